"""What would not be compiled in the time that is left is not begun; by a clock of our own."""

from __future__ import annotations

import math
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from bucketflow.tasks.compiler import code_cache, compile_limits, kept_code
from bucketflow.tasks.compiler.code_cache import Patience
from bucketflow.tasks.compiler.compile_limits import NotCompiledError, compiled_until, may_compile
from bucketflow.tasks.compiler.jit import njit


class Clock:
    """Stands still, unless something is compiled."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(compile_limits, "clock", made)
    return made


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, and a second that costs of a byte, so that functions take seconds."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(code_cache, "PACKAGE", tmp_path)
    monkeypatch.setattr(kept_code, "SECONDS_PER_BYTE", 1.0)
    return tmp_path / "cache"


def test_without_an_end_everything_may_be_compiled(clock: Clock) -> None:
    assert may_compile(1e300)
    with compiled_until(math.inf):
        assert may_compile(1e300)


def test_the_earlier_end_counts_and_is_forgotten_after_it(clock: Clock) -> None:
    with compiled_until(10):
        assert may_compile(10)
        assert not may_compile(10.5)
        with compiled_until(20):
            assert not may_compile(10.5)
        with compiled_until(5):
            assert not may_compile(6)
        clock.now += 4
        assert may_compile(6)
        assert not may_compile(7)
    assert may_compile(1e9)


def test_threads_of_others_have_no_end(clock: Clock) -> None:
    found: list[bool] = []
    with compiled_until(0):
        thread = threading.Thread(target=lambda: found.append(may_compile(1.0)))
        thread.start()
        thread.join()
    assert found == [True]


def loop(x: Any) -> Any:
    return 2 * x


def test_what_takes_too_long_is_not_begun_and_is_compiled_later(clock: Clock) -> None:
    size = len(loop.__code__.co_code)
    function = njit(cache=True)(loop)
    with compiled_until(size - 1), pytest.raises(NotCompiledError, match="loop is not compiled yet"):
        function(3)
    assert not function.signatures
    with compiled_until(size):
        assert function(3) == 6
    again = njit(cache=True)(loop)
    with compiled_until(0):
        assert again(4) == 8  # its code is in a file


def test_what_a_function_calls_is_part_of_its_time(clock: Clock) -> None:
    namespace: dict[str, Any] = {"inner": njit(nogil=True)(loop)}
    exec("def outer(x):\n    return inner(x) + 1", namespace)
    outer = namespace["outer"]
    size = len(outer.__code__.co_code) + len(loop.__code__.co_code)
    with compiled_until(size - 1), pytest.raises(NotCompiledError, match="outer"):
        njit(nogil=True)(outer)(3)
    with compiled_until(size):
        assert njit(nogil=True)(outer)(3) == 7


def test_the_end_is_looked_at_between_two_functions(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compiled by then is kept; the rest is not, though it was begun in time."""
    first = njit(cache=True)(loop)
    namespace: dict[str, Any] = {"first": first, "second": njit(cache=True)(lambda x: x - 1)}
    exec("def both(x):\n    return second(first(x))", namespace)
    whole = sum(len(f.__code__.co_code) for f in (namespace["both"], loop, namespace["second"].py_func))
    save = kept_code.KeptCode.save_overload

    def slowly(self: Any, *args: Any) -> None:
        save(self, *args)
        clock.now += whole

    monkeypatch.setattr(kept_code.KeptCode, "save_overload", slowly)
    with compiled_until(whole), pytest.raises(NotCompiledError, match="lambda"):
        njit(nogil=True)(namespace["both"])(3)
    assert [len(first.signatures), len(namespace["second"].signatures)] == [1, 0]
    assert njit(nogil=True)(namespace["both"])(3) == 5


def test_numpy_goes_on_where_loops_would_come_too_late(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "is_compiled", lambda module, function: False)
    patience = Patience("tasks.rows.layer_loops", "advance", compiling=3.0)
    assert patience.ends(4.0)
    with compiled_until(2.0):
        assert not patience.ends(4.0)
    with compiled_until(3.0):
        assert patience.ends(4.0)


def test_the_error_travels() -> None:
    for pending in (False, True):
        error = NotCompiledError("explore", pending)
        again = pickle.loads(pickle.dumps(error))
        assert (again.function, again.pending, str(again)) == ("explore", pending, str(error))
