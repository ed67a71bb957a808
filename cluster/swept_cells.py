"""Cells that tasks have swept so far, counted on workers and reported through the scheduler's event log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

# One topic for all runs: the scheduler keeps a bounded number of events of each topic.
_TOPIC: Final = "bucketflow-cells"
#: Seconds between two reports of a worker about a run.
_REPORT_SECONDS: Final = 0.5

_lock = threading.Lock()
_here = threading.local()

# On workers: the task's run and its cells so far, by thread; and of each run the cells, and when they were reported.
_swept: dict[str, tuple[int, float]] = {}


def counted(run: str, cells: int, function: Callable[..., Any], *args: Any) -> Any:
    """Task: call a function, and count its cells: those of :func:`count` before its end, the others at its end."""
    _here.run, _here.cells = run, 0
    try:
        found = function(*args)
        count(cells - _here.cells)
    finally:
        _here.run = None
    return found


def count(cells: int) -> None:
    """Count cells that the task of this thread has swept."""
    run = getattr(_here, "run", None)
    if run is None or cells <= 0:
        return
    _here.cells += cells
    now = time.monotonic()
    with _lock:
        total, reported = _swept.pop(run, (0, 0.0))
        total += cells
        due = now - reported >= _REPORT_SECONDS
        _swept[run] = total, now if due else reported
        while len(_swept) > 64:
            del _swept[next(iter(_swept))]
    if due:
        from distributed import get_worker

        worker = get_worker()
        worker.log_event(_TOPIC, {"run": run, "worker": worker.address, "cells": total})


# In the process that drives runs: the cells of each worker by its address, for each run; and who receives events.
_runs: dict[str, dict[str, int]] = {}
_subscribed: WeakSet[Any] = WeakSet()


@contextmanager
def received(client: Any, run: str) -> Iterator[Callable[[], int]]:
    """Receive the reports of a run; yield a function that returns the cells of all workers so far."""
    cells = _runs[run] = {}
    if client not in _subscribed:
        _subscribed.add(client)
        client.subscribe_topic(_TOPIC, _take)
    try:
        yield lambda: sum([*cells.values()])
    finally:
        del _runs[run]


def _take(event: tuple[float, dict[str, Any]]) -> None:
    """Enter a report; reports of runs of other processes are ignored."""
    _, told = event
    if (cells := _runs.get(told["run"])) is not None:
        cells[told["worker"]] = max(told["cells"], cells.get(told["worker"], 0))
