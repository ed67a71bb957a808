"""Threads that share a loop: everything is done once, and nobody is at work after the call."""

from __future__ import annotations

import threading
import time

import pytest

from bucketflow.tasks.compiler.compile_limits import compiled_until, may_compile
from bucketflow.tasks.cpu.threads import share, split


def test_every_range_once() -> None:
    done: list[tuple[int, int]] = []
    share(lambda _, start, stop: done.append((start, stop)), ranges := split(100, 4))
    assert sorted(done) == ranges


def test_threads_have_the_deadline_of_their_caller() -> None:
    allowed: list[bool] = []
    with compiled_until(0.0):
        share(lambda *_: allowed.append(may_compile(1.0)), split(4, 4))
    assert allowed == [False] * 4


@pytest.mark.parametrize("started", [0, 1])
def test_an_interrupt_while_a_thread_starts_leaves_nobody_at_work(
    monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    """The interpreter may raise KeyboardInterrupt in ``Thread.start`` after the thread runs."""
    start = threading.Thread.start
    begun: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        begun.append(thread)
        if len(begun) == started + 1:
            for _ in begun:
                entered.acquire()
            raised.set()
            raise KeyboardInterrupt

    inside: list[int] = []
    entered, raised = threading.Semaphore(0), threading.Event()

    def work(number: int, start: int, stop: int) -> None:
        inside.append(number)
        entered.release()
        raised.wait()
        for _ in range(100):
            time.sleep(0)  # the others go on while this one is at work
        inside.remove(number)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        share(work, split(4, 2))
    assert not inside
    monkeypatch.undo()
    for thread in begun:
        thread.join()
    assert not inside
