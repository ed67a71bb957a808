"""The pool of threads: needs are met, as many run as there is room for, and failures stay where they are."""

from __future__ import annotations

import threading

import pytest

from bucketflow.cluster.pool import Node, SerialPool, ThreadPool


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
