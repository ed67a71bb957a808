"""A program of other authors in a process of its own, which works during time slices only.

Such programs need a process, because their memory has to be limited and their work cannot be interrupted from Python.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .working_time import count_outside

if TYPE_CHECKING:
    import subprocess

# Seconds between two looks at the clock and at another process.
LOOK_SECONDS: Final = 0.02


@cache
def folder_of(package: str) -> str | None:
    """Return the folder that holds an optional package; None if it is not installed, or no process can be forked."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not hasattr(os, "fork"):
        return None
    return str(Path(spec.origin).parents[0 if spec.submodule_search_locations is None else 1])


class OutsideProcess:
    """A process that starts suspended, and ends with its ``close``, with this object, or with this process.

    Parameters
    ----------
    program : str
        A function of :mod:`.outside_program`.
    package : str
        The installed package that the function imports.
    memory_bytes : int
        Limit of the process's address space.
    job : mapping
        Arguments of the function.

    Attributes
    ----------
    pid : int
    cpu_seconds : float
        CPU seconds of the process in all.
    ended : bool
        Whether the process is gone.
    """

    def __init__(self, program: str, package: str, memory_bytes: int, job: Mapping[str, Any]) -> None:
        import subprocess

        import psutil

        child = self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("outside_program.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in a terminal is for this process, which then ends the child
        )
        self.pid, self._process = child.pid, psutil.Process(child.pid)
        self.cpu_seconds, self._text = 0.0, b""
        self.close = weakref.finalize(self, _kill, child)
        assert child.stdin is not None
        assert child.stdout is not None
        self.ended = not child.stdout.readline()
        given = {**job, "program": program, "folder": folder_of(package), "memory_bytes": memory_bytes}
        with suppress(BrokenPipeError), io.BufferedWriter(child.stdin) as stdin:  # raw writes may be short
            pickle.dump(given, stdin)
        with suppress(psutil.Error):
            self._process.suspend()

    @property
    def nbytes(self) -> int:
        """Bytes that the process holds."""
        return 0 if self.ended else int(self._process.memory_info().rss)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let the process work, and count its CPU seconds."""
        import psutil

        with suppress(psutil.Error):
            self._process.resume()
        try:
            yield
        finally:
            with suppress(psutil.Error):
                self._process.suspend()
            self._count()

    def lines(self) -> Iterator[str]:
        """Wait a moment for lines of the process, and yield them; find out whether it ended."""
        assert self._child.stdout is not None
        if not self.ended and select.select([self._child.stdout], [], [], LOOK_SECONDS)[0]:
            text = os.read(self._child.stdout.fileno(), 1 << 20)
            *lines, self._text = (self._text + text).split(b"\n")
            yield from map(bytes.decode, lines)
            if not text:
                self._count()
                self.end()
        self._count()

    def end(self) -> None:
        """End the process."""
        self.ended = True
        self.close()

    def _count(self) -> None:
        """Count the CPU seconds of the process since the last call."""
        import psutil

        with suppress(psutil.Error):
            times = self._process.cpu_times()
            seconds = times.user + times.system
            count_outside(seconds - self.cpu_seconds)
            self.cpu_seconds = seconds


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a process, suspended or not, and wait for it."""
    child.kill()
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
