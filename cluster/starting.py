"""Starting processes of a cluster: Ctrl-C does not reach them, and no script of the user's is run once more by them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import NoReturn

from .address import ClusterError

# Names the file in which processes that we start say that they are running the user's script again.
_TOLD = "BUCKETFLOW_STARTING"


@contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Start processes and threads that Ctrl-C does not reach, and that start others like them.

    A terminal sends it to all processes at once. It is for this one, which stops the others.
    """
    resource_tracker.ensure_running()  # where it is not, starting it lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def starting(what: str) -> Iterator[None]:
    """Start processes; where one cannot start, say why in one sentence.

    A process that Python starts imports the script that is running first. A script that is not written for that asks
    its question again there: that process only leaves a note, and ends.

    Parameters
    ----------
    what : str
        The processes, in words.

    Raises
    ------
    ClusterError
        If a process did not start, whatever the reason.
    """
    verify_first_import()
    with tempfile.NamedTemporaryFile(prefix="bucketflow-start-") as told:
        os.environ[_TOLD] = told.name
        try:
            yield
        except Exception as error:  # Dask and its deployers have their own
            if script := told.read().decode():
                raise ClusterError(_unguarded(script)) from None
            if isinstance(error, ClusterError):
                raise
            raise ClusterError(f"{what} did not start: {last_sentence(error)}") from None
        finally:
            os.environ.pop(_TOLD, None)


def verify_first_import() -> None:
    """Go no further where a process only imports the script of the one that started it, which asks for workers.

    Raises
    ------
    ClusterError
        If the process is not one of ours; ours leave a note, and end without a word.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # Python itself asks that
        _end_here()


def _end_here() -> NoReturn:
    script = str(getattr(sys.modules.get("__mp_main__"), "__file__", None) or "the script")
    path = os.environ.get(_TOLD)
    if path is None:
        raise ClusterError(_unguarded(script))
    Path(path).write_text(script)
    os._exit(1)


def _unguarded(script: str) -> str:
    return (
        f"workers are Python processes that run {script} again from its first line: "
        "write what it does under if __name__ == '__main__':"
    )


def last_sentence(error: BaseException) -> str:
    """Return what an exception says in one line, with what it was raised for where that says more."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__
