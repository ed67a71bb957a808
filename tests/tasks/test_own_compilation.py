"""Numba's classes are changed only while one of our loops is compiled, and only for this loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import event

from bucketflow.tasks.compiler import jit, own_compilation
from bucketflow.tasks.compiler.jit import njit
from bucketflow.tasks.compiler.numba_parts import unknown_numba
from bucketflow.tasks.compiler.own_compilation import body_only

pytestmark = pytest.mark.skipif(bool(unknown_numba()), reason="Numba compiles as it does by itself")

Methods = list[Any]


def methods() -> Methods:
    """Return what the classes have where the patches would stand."""
    return [vars(patch.owner).get(patch.name) for patch in jit._patches()]


PLAIN = methods()


def pair() -> tuple[Any, Any]:
    """Return a function of another package, and a function that it calls."""

    def inner(x: int) -> int:
        return x + 1

    inner_compiled = numba.njit(inner)
    return numba.njit(lambda x: inner_compiled(x) + 1), inner_compiled


def is_plain(caller: Any, inner: Any) -> bool:
    """Whether both work, and Python can call them."""
    return caller(1) == 3 and inner(1) == 2 and not body_only(inner)


class Compilations(event.Listener):
    """Reports each compilation when it begins."""

    def __init__(self, begun: Callable[[Any], None]) -> None:
        self._begun = begun

    def on_start(self, event: Any) -> None:
        self._begun(event.data["dispatcher"])

    def on_end(self, event: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without machine code."""
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def seen() -> Iterator[dict[Any, tuple[bool, int]]]:
    """Whether methods were as Numba has them, and the thread, when a dispatcher began to compile."""
    found: dict[Any, tuple[bool, int]] = {}
    install: Any = event.install_listener
    listener = Compilations(lambda one: found.update({one: (methods() == PLAIN, threading.get_ident())}))
    with install("numba:compile", listener):
        yield found


def test_others_compile_as_numba_does_before_while_and_after_our_loops_compile(seen: dict[Any, Any]) -> None:
    assert methods() == PLAIN
    before = pair()
    assert is_plain(*before)
    meanwhile = pair()
    beside = threading.Thread(target=lambda: meanwhile[0](1))

    @njit(nogil=True)
    def step(x: int) -> int:
        return x + 1

    @njit(nogil=True)
    def steps(x: int) -> int:
        return int(step(step(x)))

    @njit(nogil=True, cache=True)
    def loop(values: np.ndarray) -> int:
        return int(steps(values[0]) + step(values[1]))

    install: Any = event.install_listener
    with install("numba:compile", Compilations(lambda one: beside.start() if one is step else None)):
        assert loop(np.array([3, 8])) == 14
    beside.join()
    assert methods() == PLAIN
    after = pair()
    assert all(is_plain(*each) for each in (before, meanwhile, after))
    assert body_only(step)
    assert not any(seen[ours][0] for ours in (loop, steps, step))
    for other in (*before, *meanwhile, *after):
        assert seen[other][0]
    assert seen[meanwhile[0]][1] != seen[loop][1]


def test_a_function_of_others_that_our_loops_call_is_complete() -> None:
    caller, inner = pair()

    @njit(nogil=True, cache=True)
    def loop(values: np.ndarray) -> int:
        return int(caller(values[0]))

    assert loop(np.array([4])) == 6
    assert not body_only(caller)
    assert is_plain(caller, inner)

    @njit(nogil=True, cache=True)
    def another(values: np.ndarray) -> int:
        return int(inner(caller(values[0])))

    assert another(np.array([4])) == 7
    assert is_plain(caller, inner)
    assert numba.njit(lambda x: caller(x) + inner(x))(1) == 5


def test_our_functions_are_complete_for_functions_of_others() -> None:
    @njit(nogil=True)
    def step(x: int) -> int:
        return x + 1

    @njit(nogil=True, cache=True)
    def loop(values: np.ndarray) -> int:
        return int(step(values[0]))

    assert loop(np.array([4])) == 5
    assert body_only(step)
    assert numba.njit(lambda x: step(x) + 1)(4) == 6
    assert not body_only(step)

    @njit(nogil=True)
    def late(x: int) -> int:
        return x + 2

    between = numba.njit(lambda x: late(x) + 1)

    @njit(nogil=True, cache=True)
    def outer(values: np.ndarray) -> int:
        return int(between(values[0]))

    assert outer(np.array([4])) == 7
    assert numba.njit(lambda x: between(x) + late(x))(4) == 13


def test_a_failed_compilation_restores_the_classes() -> None:
    @njit(nogil=True)
    def wrong(x: int) -> int:
        return x + "1"  # type: ignore[operator]

    @njit(nogil=True, cache=True)
    def loop(values: np.ndarray) -> int:
        return int(wrong(values[0]))

    with pytest.raises(numba.TypingError):
        loop(np.array([1]))
    assert methods() == PLAIN
    assert own_compilation._running == []
    assert is_plain(*pair())
