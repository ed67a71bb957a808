"""Killing workers and commands in the middle of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def killing_one(client: Any, share: float) -> tuple[Callable[[int, int], None], list[int]]:
    """Return a progress callback that kills a worker once past a share of the run, and the list of whom it killed."""
    victim = next(iter(client.run(os.getpid).values()))
    killed: list[int] = []

    def kill_one(done: int, planned: int) -> None:
        if not killed and done > planned * share:
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    return kill_one, killed


# A command line that says so on standard error when its run has begun, as the first cells are reported.
_REPORTING = """
import sys
from contextlib import contextmanager
from bucketflow.pipeline.api import progress
from bucketflow.pipeline.cli.main import main

@contextmanager
def reporting(hidden):
    said = []
    def report(swept):
        if not said:
            said.append(print("running", file=sys.stderr, flush=True))
    yield report

progress.progress_lines = reporting
main()
"""


# A command line that sends itself a signal, once, when so many receipts are written.
_DYING = """
import os, sys
from bucketflow.pipeline.cli.main import main
from bucketflow.storage import ledger

count, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
append, written = ledger.append, []

def dying(folder, receipts):
    append(folder, receipts)
    before = len(written)
    written.extend(receipts)
    if before < count <= len(written):
        os.kill(os.getpid(), number)

ledger.append = dying
main()
"""


def stopped(receipts: int, how: signal.Signals, *args: object, setup: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command that is sent a signal when so many receipts of its run are written; ``setup`` runs first."""
    command = [sys.executable, "-c", setup + _DYING, str(receipts), str(int(how)), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True)


def running(*args: object, folder: Path) -> subprocess.Popen[str]:
    """Start a command in a session of its own and return when its run has begun; temporary files go to a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _REPORTING, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "running\n"
    return process
