"""Signals that come while compiled code runs."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import extending, types

from bucketflow.cluster.driver import interrupt
from bucketflow.tasks.compiler.jit import njit
from bucketflow.tasks.compiler.signals import Uninterrupted
from tests.interrupting import at_every_line

raise_signal = ctypes.CDLL(None)["raise"]
raise_signal.argtypes, raise_signal.restype = [ctypes.c_int], ctypes.c_int

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are raised by POSIX's function")


class Pair(NamedTuple):
    """Two arrays."""

    first: Any
    second: Any


@njit(makes_arrays=True)
def a_named_tuple(number: int) -> Pair:
    """Raise a signal: its handler runs as soon as the interpreter does."""
    if number:
        raise_signal(number)
    return Pair(np.ones(3), np.ones(4, np.int32))


@njit(makes_arrays=True)
def arrays(number: int) -> Any:
    if number:
        raise_signal(number)
    return np.ones(3), np.ones(4, np.int32), 5


@njit()
def an_error(number: int) -> Any:
    if number:
        raise_signal(number)
    raise ValueError("of the function's own")


class OtherError(Exception):
    """What somebody's handler raises."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(sentence)


def raising(*_: object) -> None:
    raise OtherError("in time")


@pytest.fixture(params=[KeyboardInterrupt, OtherError])
def expected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is raised by a signal."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler if request.param is KeyboardInterrupt else raising)
    yield request.param
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("compiled", [a_named_tuple, arrays, an_error])
@pytest.mark.parametrize("first", [True, False])
def test_a_signal_raises_after_compiled_code(first: bool, compiled: Callable[[int], Any], expected: Any) -> None:
    def call(number: int) -> Any:
        with suppress(ValueError):
            return compiled(number)

    if not first:
        call(0)
    for _ in range(3):
        with pytest.raises(expected):
            call(int(signal.SIGINT))
    gc.collect()
    result = call(0)
    assert result is None or result[0].tolist() == [1, 1, 1]


def test_a_signal_waits_for_the_compiler(expected: Any) -> None:
    """LLVM asks the interpreter for what it is to keep: what is raised there is lost, and so is what was compiled."""
    steps = iter([True])

    @extending.intrinsic
    def interrupted(context: Any) -> Any:
        if next(steps, False):
            signal.raise_signal(signal.SIGINT)
        return types.int64(), lambda context, builder, signature, args: context.get_constant(types.int64, 5)

    @njit()
    def compiled() -> Any:
        return interrupted()

    with pytest.raises(expected):
        compiled()
    assert len(compiled.overloads) == 1
    assert compiled() == 5


def test_signals_wait_for_the_end_of_the_outermost(expected: Any) -> None:
    quiet, seen = Uninterrupted(), []

    def one_signal() -> None:
        with quiet:
            with quiet:
                signal.raise_signal(signal.SIGINT)
                seen.append("inner")
            seen.append("outer")

    def two_signals() -> None:
        with quiet:
            signal.raise_signal(signal.SIGINT)
            seen.append("the first waits")
            signal.raise_signal(signal.SIGINT)
            seen.append("the second does not")

    with pytest.raises(expected):
        one_signal()
    with pytest.raises(expected):
        two_signals()
    assert seen == ["inner", "outer", "the first waits"]
    with pytest.raises(expected):
        signal.raise_signal(signal.SIGINT)


def test_threads_are_interrupted_when_they_have_compiled() -> None:
    came: list[str] = []
    here: list[threading.Thread] = []

    @extending.intrinsic
    def interrupted(context: Any) -> Any:
        if not here:
            here.append(threading.Thread(target=interrupt, args=(threading.current_thread(),)))
            here[0].start()
            here[0].join(0.2)  # it does not end before the compiler does
        return types.int64(), lambda context, builder, signature, args: context.get_constant(types.int64, 5)

    @njit()
    def compiled() -> Any:
        return interrupted()

    def work() -> None:
        try:
            compiled()
            came.append("compiled")
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            came.append("interrupted")

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    here[0].join()
    assert len(compiled.overloads) == 1
    assert came[-1:] == ["interrupted"]
    assert compiled() == 5


def test_signals_are_given_back_wherever_one_comes() -> None:
    def quiet(held: Uninterrupted) -> None:
        with held, held:
            pass

    for held, how in at_every_line(quiet, Uninterrupted, errors=(KeyboardInterrupt,)):
        assert how.came is KeyboardInterrupt, how
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        quiet(held)
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before, how
        assert signal.SIG_DFL in before, how
        assert not held._depth, how
