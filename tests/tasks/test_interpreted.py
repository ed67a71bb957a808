"""Loops in the interpreter: the same results as compiled ones, until compiling pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bucketflow.tasks.compiler import compile_beside
from bucketflow.tasks.compiler.compile_beside import Interpreter, run_interpreted
from bucketflow.tasks.compiler.compile_limits import NotCompiledError, compiled_until
from bucketflow.tasks.compiler.jit import njit


@njit(nogil=True)
def twice(values: Any, place: int) -> None:
    values[place] *= 2


@njit(nogil=True)
def double(values: Any, most: int) -> int:
    for i in range(len(values)):
        twice(values, i)
        if values[i] > most:
            return i
    return -1


def test_arrays_are_written_in_place_and_nothing_is_compiled() -> None:
    values = np.array([1, 5, 7], dtype=np.int64)
    assert run_interpreted(double, values, 9) == 1
    assert values.tolist() == [2, 10, 7]
    assert not getattr(double, "signatures") and not getattr(twice, "signatures")  # noqa: B009, PT018


def test_an_inner_function_can_be_replaced() -> None:
    values = np.array([1, 5, 7], dtype=np.int64)

    def thrice(values: Any, place: int) -> None:
        np.asarray(values)[place] *= 3

    assert run_interpreted(double, values, 99, replaced=(("twice", thrice),)) == -1
    assert values.tolist() == [3, 15, 21]


class Loop:
    """A loop that another process compiles until it is ready."""

    __name__ = "loop"

    def __init__(self, pending: bool = True) -> None:
        self.ready, self.calls, self.pending = False, 0, pending

    def __call__(self) -> str:
        self.calls += 1
        if not self.ready:
            raise NotCompiledError("loop", self.pending)
        return "compiled"


def test_a_loop_is_compiled_once_the_interpreter_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(compile_beside.time, "process_time", lambda: float(next(clock)))
    monkeypatch.setattr(compile_beside, "is_compiled", lambda module, function: False)
    monkeypatch.setattr(compile_beside, "run_interpreted", lambda *_, **__: "interpreted")
    monkeypatch.setattr(compile_beside, "await_any", lambda stop, seconds: True)
    loop, runner = Loop(), Interpreter("somewhere", patience_seconds=2.0)
    with compiled_until(3600.0):
        # each call in the interpreter takes one second of this clock
        assert [runner.call(loop) for _ in range(4)] == ["interpreted"] * 4
        assert loop.calls == 2
        loop.ready = True
        assert runner.call(loop) == "compiled"


@pytest.mark.parametrize("pending", [True, False])
def test_the_interpreter_leaves_the_core_to_the_compiler(pending: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not where nothing is compiled, as it would come too late."""
    waits = list[float]()
    monkeypatch.setattr(compile_beside, "await_any", lambda stop, seconds: waits.append(seconds))
    clock = iter(range(100))
    monkeypatch.setattr(compile_beside.time, "process_time", lambda: float(next(clock)))
    monkeypatch.setattr(compile_beside, "is_compiled", lambda module, function: False)
    monkeypatch.setattr(compile_beside, "run_interpreted", lambda *_, **__: "interpreted")
    loop, runner = Loop(pending), Interpreter("somewhere", patience_seconds=1.0, most_seconds=3.0)
    with compiled_until(3600.0):
        assert [runner.call(loop) for _ in range(3)] == ["interpreted"] * 3
        assert not waits
        assert runner.call(loop) == "interpreted"
    assert len(waits) == pending


def test_a_loop_that_was_compiled_before_is_not_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_beside, "is_compiled", lambda module, function: True)
    loop = Loop()
    loop.ready = True
    with compiled_until(3600.0):
        assert Interpreter("somewhere").call(loop) == "compiled"
