"""Tasks of a cluster that drive others: no client waits for them, they are interrupted from afar, and block no task.

Dask keeps this task without its client, and restarts it if its worker dies.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .address import GONE_SECONDS, LOOK_SECONDS

#: Priority of a task that drives a run. It starts immediately, before tasks that compute, because it mostly waits.
FIRST = 1_000_000
_PAUSE_SECONDS = 0.01

_here = threading.local()


def start(client: Any, key: str, function: Callable[..., Any], *args: Any, priority: int = 0, model: str = "") -> None:
    """Start a task that goes on without its client, and again on another worker where its own died.

    Dask knows the run, the model and the stage as annotations.
    """
    from dask import annotate  # type: ignore[attr-defined]
    from distributed import fire_and_forget

    with annotate(run=key, model=model, stage="driver", cells=0):
        future = client.submit(function, *args, key=key, pure=False, priority=FIRST + priority)
    fire_and_forget(future)
    while _state(client, key) is None and not future.done():  # the scheduler takes it in its own time
        time.sleep(_PAUSE_SECONDS)


def is_known(client: Any, key: str) -> bool:
    """Whether a scheduler will still run a task, or runs it."""
    return _state(client, key) not in (None, "erred", "memory", "forgotten")


def _state(client: Any, key: str) -> str | None:
    found: str | None = client.sync(client.scheduler.get_task_status, keys=[key])[key]
    return found


def failure_of(client: Any, key: str) -> str:
    """Return why the cluster gave a task up, or nothing."""
    from distributed import Future

    if _state(client, key) != "erred":
        return ""
    error = Future(key, client).exception(timeout=GONE_SECONDS)
    return f"{type(error).__name__}: {error}"


def ask_to_stop(client: Any, key: str) -> None:
    """Ask a task to stop."""
    from distributed import Event

    Event(_stop_of(key), client=client).set()


def _stop_of(key: str) -> str:
    return f"stop-{key}"


def announce(client: Any, name: str, what: dict[str, str]) -> None:
    """Publish a few words for all clients of the scheduler."""
    client.publish_dataset(what, name=name, override=True)


def withdraw(client: Any, name: str, key: str = "") -> None:
    """Remove what was published under a name, and a request to stop the task, if there are any."""
    from distributed import Event

    if name in client.list_datasets():
        client.unpublish_dataset(name)
    if key:
        Event(_stop_of(key), client=client).clear()  # the scheduler drops an event that is not set


def announced_as(client: Any, name: str) -> dict[str, str]:
    """Return the content published under a name, or {}."""
    found: dict[str, str] = client.get_dataset(name, default={})
    return found


def announced(client: Any, prefix: str) -> dict[str, dict[str, str]]:
    """Return the published contents whose names start with ``prefix``."""
    names = [name for name in client.list_datasets() if str(name).startswith(prefix)]
    return {name: client.get_dataset(name) for name in names}


class Driver:
    """Runs a function in a thread beside the one of its task, which waits, looks, and interrupts it.

    Calls submitted from the thread of one task have priority over later tasks; calls from several tasks take turns.

    Parameters
    ----------
    key : str
        Of the task.
    look : callable
        Called about once a second while the function runs.
    """

    def __init__(self, key: str, look: Callable[[], None]) -> None:
        self.key, self.look = key, look
        self.stopped: bool = False
        self._leave, self._ended = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def run(self, function: Callable[[Any], None]) -> None:
        """Call a function with this worker's client; ``KeyboardInterrupt`` is raised in it when it is to stop."""
        from distributed import get_client

        client = get_client()
        thread = threading.Thread(target=self._called, args=(function, client), name=self.key, daemon=True)
        thread.start()
        self._wait(client, thread)
        thread.join()

    def _called(self, function: Callable[[Any], None], client: Any) -> None:
        _here.leave = self._leave.set
        try:
            function(client)
        finally:
            with self._lock:
                self._ended.set()

    def _wait(self, client: Any, thread: threading.Thread) -> None:
        from distributed import secede

        seconds = 0.0
        while not self._ended.wait(LOOK_SECONDS):
            if self._leave.is_set():
                self._leave.clear()
                secede()
            seconds += LOOK_SECONDS
            if seconds >= 1.0:
                seconds = 0.0
                self.look()
                self._interrupt_if_asked(client, thread)

    def _interrupt_if_asked(self, client: Any, thread: threading.Thread) -> None:
        if self.stopped or not _is_asked_to_stop(client, self.key):
            return
        with self._lock:
            if not self._ended.is_set():
                self.stopped = True
                interrupt(thread)


def _is_asked_to_stop(client: Any, key: str) -> bool:
    try:
        return bool(client.sync(client.scheduler.event_is_set, name=_stop_of(key), callback_timeout=GONE_SECONDS))
    except (TimeoutError, OSError):  # the pool notices that the scheduler is gone
        return False


def interrupt(thread: threading.Thread) -> None:
    """Raise ``KeyboardInterrupt`` in a thread, as soon as it is back from compiled code, or from compiling it."""
    assert thread.ident is not None
    with _no_compiler():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))


def _no_compiler() -> AbstractContextManager[None]:
    """Let no thread compile meanwhile: a compiler that is interrupted loses the exception, or what it was to keep."""
    numba = sys.modules.get("numba.core.compiler_lock")
    lock: AbstractContextManager[None] = nullcontext() if numba is None else numba.global_compiler_lock
    return lock


def leave_slot() -> None:
    """Where this thread belongs to a task that is about to wait for others: give its place to them."""
    leave = getattr(_here, "leave", None)
    if leave is not None:
        leave()


def worker_address() -> str:
    """Return the address of the worker whose task this is."""
    from distributed import get_worker

    return str(get_worker().address)


def cluster_usage(client: Any) -> tuple[int, int]:
    """Return the number of workers and the largest resident size among them, in bytes; zeros if no worker answers."""
    try:
        known = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=GONE_SECONDS)
    except Exception:  # a scheduler that is gone ends the run elsewhere, with a sentence
        return 0, 0
    workers = known["workers"].values()
    return len(workers), max((int(worker["metrics"]["memory"]) for worker in workers), default=0)
