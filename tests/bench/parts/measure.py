"""Work in a child process with a time and a memory limit, measured: a crash or a kill stays in the child."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Literal

import psutil

End = Literal["done", "raised", "crashed", "out of time", "out of memory"]

_POLL_SECONDS = 0.01
_WORKERS_SECONDS = 0.05


@dataclass(frozen=True)
class Outcome:
    """How a child ended, and what it returned or raised.

    Parameters
    ----------
    end : {"done", "raised", "crashed", "out of time", "out of memory"}
    value : object
        What the work returned, or the exception's class name.
    message : str
        The exception's message and last frame, or the exit code of a crash.
    cpu_seconds : float
        User and system time of the child.
    wall_seconds : float
    peak_bytes : int
        Largest resident size of the child.
    worker_bytes : int
        Largest resident size of a process that the child started, if they were watched.
    """

    end: End
    value: Any
    message: str
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    worker_bytes: int = 0


def run_child(work: Callable[[], Any], *, seconds: float, memory_bytes: int, watch_workers: bool = False) -> Outcome:
    """Run ``work`` in a forked child; fork before threads or large tables exist in this process.

    Parameters
    ----------
    work : callable
        Its result must be picklable.
    seconds : float
        Wall time after which the child is killed.
    memory_bytes : int
        Resident size above which the child is killed.
    watch_workers : bool
        Whether to follow the size of the processes that the child starts.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(work, sender))
    start = time.perf_counter()
    child.start()
    sender.close()
    try:
        workers = _Workers(child.pid) if watch_workers else None
        outcome = _watch(child, receiver, start, seconds, memory_bytes, workers)
        return replace(outcome, worker_bytes=workers.peak_bytes) if workers else outcome
    finally:
        child.kill()
        child.join()
        receiver.close()


def _child(work: Callable[[], Any], sender: Connection) -> None:
    """Send what the work returned or raised."""
    _silence()
    reset_peak()
    try:
        found = ("done", work(), "")
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        found = ("raised", type(error).__name__, f"{error} ({Path(frame.filename).name}:{frame.lineno})")
    sender.send((*found, time.process_time(), peak_bytes()))
    sender.close()


def _silence() -> None:
    """Drop what solvers print, also from C."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def reset_peak() -> int:
    """Forget the peak so far and return what is left, the size now; where the kernel allows no such thing, nothing."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes(pid: int | str = "self") -> int:
    """Return the largest resident size of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class _Workers:
    """The largest resident size of any descendant of a process so far."""

    def __init__(self, pid: int | None):
        self.peak_bytes = 0
        self._process = psutil.Process(pid)
        self._next = 0.0

    def look(self) -> None:
        """Read the kernel's own high-water marks, now and then."""
        if time.perf_counter() < self._next:
            return
        self._next = time.perf_counter() + _WORKERS_SECONDS
        with suppress(psutil.Error):
            for process in self._process.children(recursive=True):
                with suppress(OSError, StopIteration):
                    self.peak_bytes = max(self.peak_bytes, peak_bytes(process.pid))


def _watch(
    child: ForkProcess,
    receiver: Connection,
    start: float,
    seconds: float,
    memory_bytes: int,
    workers: _Workers | None,
) -> Outcome:
    """Wait for the child's message, its end, or a limit."""
    process = psutil.Process(child.pid)
    cpu, peak = 0.0, 0
    end: End = "crashed"
    while True:
        if receiver.poll(_POLL_SECONDS):
            break
        cpu, peak = _usage(process, cpu, peak)
        if workers is not None:
            workers.look()
        if peak > memory_bytes:
            end = "out of memory"
            break
        if time.perf_counter() - start > seconds:
            end = "out of time"
            break
    wall = time.perf_counter() - start
    if end != "crashed":
        return Outcome(end, None, "", cpu, wall, peak)
    try:
        found, value, message, cpu, peak = receiver.recv()
    except EOFError:
        child.join()
        return Outcome("crashed", None, f"exit code {child.exitcode}", cpu, wall, peak)
    return Outcome(found, value, message, cpu, wall, peak)


def _usage(process: psutil.Process, cpu: float, peak: int) -> tuple[float, int]:
    """Return the CPU time and the peak so far; a child that has just ended keeps its last values."""
    try:
        times = process.cpu_times()
        return times.user + times.system, max(peak, process.memory_info().rss)
    except psutil.Error:
        return cpu, peak
