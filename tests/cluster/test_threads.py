"""The pool of threads: needs are met, as many run as there is room for, and failures stay where they are."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bucketflow.cluster.pool import Node, SerialPool, ThreadPool, _ThreadTask


def test_tasks_run_together_but_not_before_what_they_need() -> None:
    running, most, order = 0, 0, []
    lock, together = threading.Lock(), threading.Barrier(3)

    def work(key: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if key < 3:
            together.wait()
        with lock:
            running -= 1
            order.append(key)
        return key * key

    nodes = {k: Node({j for j in range(3) if k >= 3}, lambda key: (work, key)) for k in range(9)}
    found = dict(ThreadPool(3).run_graph(nodes))
    assert found == {k: k * k for k in range(9)}
    assert most == 3
    assert set(order[:3]) == {0, 1, 2}


@pytest.mark.parametrize("pool", [SerialPool(), ThreadPool(2)], ids=["serial", "threads"])
def test_threads_hand_over_the_interpreter_sooner_while_graphs_run(pool: SerialPool) -> None:
    gc.collect()  # graphs that an earlier test left unfinished end here
    before, seen = sys.getswitchinterval(), list[float]()

    def look(key: int) -> int:
        seen.append(sys.getswitchinterval())
        if key == 0:
            assert dict(pool.run_graph({1: Node(set(), lambda k: (look, k))})) == {1: 1}
            seen.append(sys.getswitchinterval())
        return key

    assert dict(pool.run_graph({0: Node(set(), lambda k: (look, k))})) == {0: 0}
    assert len(seen) == 3
    assert all(seconds <= 1e-3 < before for seconds in seen)
    assert sys.getswitchinterval() == before


def test_what_needs_a_failed_task_never_starts() -> None:
    def work(key: str) -> str:
        if key == "bad":
            raise ValueError(key)
        return key

    nodes = {"bad": Node(set(), lambda k: (work, k)), "good": Node(set(), lambda k: (work, k))}
    nodes["after"] = Node({"bad"}, lambda k: (work, k))
    found = dict(ThreadPool(2).run_graph(nodes))
    assert set(found) == {"bad", "good"}
    assert isinstance(found["bad"], ValueError)


def test_an_abandoned_graph_ends() -> None:
    done: list[int] = []
    nodes = {k: Node(set(), lambda key: (done.append, key)) for k in range(100)}
    graph = ThreadPool(2).run_graph(nodes)
    next(graph)
    graph.close()
    assert len(done) < 100


def test_it_is_serial_for_everything_else() -> None:
    pool = ThreadPool(4)
    assert isinstance(pool, SerialPool)
    assert pool.width == 4
    assert list(pool.stream(lambda x: x + 1, [(1,), (2,)])) == [2, 3]
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0)


@pytest.mark.parametrize("room", [1, 2])
def test_two_transfers_go_on_together_where_there_is_room_for_both(room: int) -> None:
    lock, moving, most, later = threading.Lock(), [0], [0], threading.Event()

    @contextmanager
    def transfer() -> Iterator[None]:
        with lock:
            moving[0] += 1
            most[0] = max(most[0], moving[0])
        yield
        with lock:
            moving[0] -= 1

    def task(number: int) -> Generator[None, None, int]:
        with transfer():
            if number == 2:
                later.set()
        yield
        yield
        with transfer():
            if number == 0 and room == 2:  # the task after the next one begins while this one ends
                assert later.wait(60)
        return number

    nodes = {i: Node(set(), lambda i: (task, i), moving_bytes=1, room_bytes=room) for i in range(8)}
    assert sorted(SerialPool().run_graph(nodes)) == [(i, i) for i in range(8)]
    assert most[0] <= room


def test_what_had_no_room_beside_a_computation_waits_for_its_end_to_be_written() -> None:
    begun, early = threading.Event(), list[bool]()

    def task(number: int) -> Generator[None, None, int]:
        if number == 1:
            begun.set()
        yield
        yield
        if number == 0:
            early.append(begun.wait(0.2))
        return number

    nodes = {i: Node(set(), lambda i: (task, i), moving_bytes=2, room_bytes=1) for i in range(2)}
    assert sorted(SerialPool().run_graph(nodes)) == [(0, 0), (1, 1)]
    assert early == [False]


def test_tasks_that_a_stopped_graph_gave_up_hold_nothing() -> None:
    held, last = set[int](), threading.Event()

    def task(number: int) -> Generator[None, None, int]:
        held.add(number)
        if number == 3:
            last.set()
        try:
            yield
            if number == 2:
                assert last.wait(60)
                raise KeyboardInterrupt
            yield
        finally:
            held.discard(number)
        return number

    nodes = {i: Node(set(), lambda i: (task, i), moving_bytes=1, room_bytes=2) for i in range(4)}
    graph = SerialPool().run_graph(nodes)
    with pytest.raises(KeyboardInterrupt) as stopped:
        list(graph)
    assert stopped.tb is not None  # its frames are kept, and with them the tasks
    assert not held


def test_a_task_that_is_given_up_lets_its_generator_go() -> None:
    """In Python 3.12.3 a closed generator keeps its local variables; since 3.12, so does one that never began."""

    class Phases:
        closed = False

        def __next__(self) -> None:
            """Begin."""

        def close(self) -> None:
            """Keep everything."""
            Phases.closed = True

    phases: Any = Phases()
    held, task = weakref.ref(phases), _ThreadTask(None, phases)
    del phases
    task.close()
    assert Phases.closed
    assert held() is None
