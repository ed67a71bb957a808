"""Tests of signals find Ctrl-C as on a terminal, however the tests were started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROBE = """
import signal, subprocess, sys

def test_probe():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    asked = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout == "False\\n"
"""


def test_ctrl_c_is_heard_where_the_shell_ignored_it(tmp_path: Path) -> None:
    (tmp_path / "test_probe.py").write_text(PROBE)
    # Without the root of the tests, pytest lists the folders above, which an ordinary user may not be allowed to read.
    options = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 0, done.stdout
    assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN
