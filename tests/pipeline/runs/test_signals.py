"""Ctrl-C and SIGTERM end a command in one sentence, leave nothing behind, and reach no process but ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

import bucketflow
from bucketflow.pipeline.cli.ending import terminable
from tests.killing import running
from tests.models import grid

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are tested on POSIX systems")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of wide steps that takes minutes."""
    path = tmp_path_factory.mktemp("models") / "wide.uai"
    n, d = 14, 8
    pairs = [(i, j) for i in range(n) for j in range(i)]
    table = " ".join(["1", "0.5"] * (d * d // 2))
    lines = ["MARKOV", str(n), " ".join([str(d)] * n), str(len(pairs))]
    lines += [f"2 {i} {j}" for i, j in pairs] + [f"{d * d}\n{table}" for _ in pairs]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_stops_in_one_sentence(wide: Path, tmp_path: Path, how: signal.Signals, code: int) -> None:
    process = running("solve", wide, "--query", "partition", "--memory", "50MB", "--tree", "bucket", folder=tmp_path)
    process.send_signal(how)
    out, err = process.communicate()
    assert process.returncode == code
    assert out == ""
    assert err.strip().splitlines()[-1] == "bucketflow: stopped"
    assert "Traceback" not in err


def test_ctrl_c_in_a_terminal_reaches_the_workers_too(wide: Path, tmp_path: Path) -> None:
    """It does so at once; the sentence is the only one all the same."""
    asked = ("solve", wide, "--query", "partition", "--memory", "50MB", "--tree", "bucket", "--workers", 2)
    process = running(*asked, folder=tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "bucketflow: stopped\n")


_INTERRUPTED = """
import atexit

def interrupted():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        pass

atexit.register(interrupted)
"""


def test_exit_codes_are_ours_wherever_ctrl_c_was_met(tmp_path: Path) -> None:
    """Python remembers one that passed through code that was compiled from a text, as data classes are."""
    (tmp_path / "sitecustomize.py").write_text(_INTERRUPTED)
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "bucketflow", "info", str(tmp_path / "nothing.uai")]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_temporary_tables_are_removed(tmp_path: Path, how: signal.Signals) -> None:
    path, folder = tmp_path / "grid.uai", tmp_path / "temporary"
    bucketflow.save(grid(11, 11, 4, "markov"), path)
    folder.mkdir()
    asked = ("solve", path, "--query", "partition", "--tree", "bucket", "--fit", "spill", "--memory", "30MB")
    process = running(*asked, folder=folder)
    assert [p.name.startswith("bucketflow-") for p in folder.iterdir()] == [True]
    process.send_signal(how)
    _, err = process.communicate()
    assert (process.returncode, err) == (128 + how, "bucketflow: stopped\n")
    assert not list(folder.iterdir())


def test_handlers_of_others_stay() -> None:
    """Whoever runs commands inside a program of his own keeps his way to stop."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with terminable([]):
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with pytest.raises(KeyboardInterrupt), terminable(codes := []):
            os.kill(os.getpid(), signal.SIGTERM)
        assert codes == [143]
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def wait_until_swallowed(number: int) -> None:
    """Wait for a minute once a signal came in a callback of a weak reference, such as imports have."""
    alive = {"one": {1}}
    watched = weakref.ref(alive["one"], lambda _: signal.raise_signal(number))
    alive.clear()
    assert watched() is None
    time.sleep(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_python_swallows_come_again(number: int) -> None:
    """Handlers that tests before it left, such as those of libraries, would be kept."""
    hook = sys.unraisablehook
    handlers = (
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGALRM, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
    )
    before = {each: signal.signal(each, handler) for each, handler in handlers}
    try:
        with pytest.raises(KeyboardInterrupt), terminable(codes := []):
            wait_until_swallowed(number)
        assert codes == [143] * (number == signal.SIGTERM)
        assert sys.unraisablehook is hook
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.mark.parametrize("start", ["run", "main"])
def test_nothing_is_said_of_ctrl_c_while_the_interpreter_ends(start: str) -> None:
    """Of a program that calls the command, Python says what it says of any."""
    code = f"""
import os, signal, sys, threading
from bucketflow.__main__ import run
from bucketflow.pipeline.cli.main import main
real = threading._shutdown
def shutdown():
    os.kill(os.getpid(), signal.SIGINT)
    real()
threading._shutdown = shutdown
sys.argv = ["bucketflow", "examples"]
{start}()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert "satellite" in done.stdout
    assert done.returncode == 0
    assert ("KeyboardInterrupt" in done.stderr) == (start == "main")
    assert done.stderr == "" or start == "main"
