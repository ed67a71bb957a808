"""Functions that were compiled for others only: what they raise, that they may be called, and call themselves."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from bucketflow.tasks.compiler.jit import njit
from bucketflow.tasks.compiler.numba_parts import unknown_numba
from bucketflow.tasks.compiler.own_compilation import CodeOnly

pytestmark = pytest.mark.skipif(bool(unknown_numba()), reason="Numba compiles as it does by itself")


@njit(nogil=True)
def step(x: int) -> int:
    """Refuse what is negative, with a text that is a constant of this function."""
    if x < 0:
        raise ValueError("negative")
    return x + 1


@njit(nogil=True)
def two_steps(x: int) -> int:
    return int(step(step(x)))


@njit(nogil=True)
def halvings(x: int) -> int:
    return 0 if x < 2 else 1 + halvings(x // 2)


@njit(nogil=True, cache=True)
def outer(values: np.ndarray) -> int:
    total = 0
    for k in range(len(values)):
        total += two_steps(values[k]) + halvings(values[k])
    return total


@njit(nogil=True, cache=True)
def also_outer(values: np.ndarray) -> int:
    return int(step(values[0]) * two_steps(values[0]))


def test_an_inner_function_is_code_until_python_calls_it() -> None:
    values = np.array([3, 8, 1])
    assert outer(values) == outer.py_func(values) == 22
    with pytest.raises(ValueError, match="negative"):
        outer(np.array([-1]))
    assert step(4) == 5
    with pytest.raises(ValueError, match="negative"):
        step(-4)
    assert not any(isinstance(found.entry_point, CodeOnly) for found in step.overloads.values())
    assert halvings(9) == 3
    assert also_outer(values) == 20
    assert outer(values) == 22
    again = njit(nogil=True, cache=True)(outer.py_func)  # is read from its file
    assert again(values) == 22
    with pytest.raises(ValueError, match="negative"):
        again(np.array([-1]))


@njit(nogil=True)
def shifted(x: int, by: int, up: bool) -> int:
    return x + by if up else x - by


@njit(nogil=True, cache=True)
def shifts(values: np.ndarray) -> int:
    by = -1
    for k in range(len(values)):
        by = shifted(by, shifted(values[k], 1, True), values[k] > 2)
    return shifted(by, 2, False)


def test_numbers_that_callers_know_are_not_compiled_for_apart() -> None:
    values = np.array([3, 1, 4])
    assert shifts(values) == shifts.py_func(values)
    assert len(shifted.overloads) == 1


def test_functions_of_others_are_compiled_as_numba_does() -> None:
    inner = numba.njit(lambda x: x + 1)
    caller = numba.njit(lambda x: inner(x) + 1)
    assert caller(1) == 3
    assert [type(found.entry_point) is CodeOnly for found in inner.overloads.values()] == [False]


@njit(nogil=True)
def same(values: np.ndarray) -> np.ndarray:
    return values


@njit(nogil=True)
def both(values: np.ndarray) -> tuple[int, np.ndarray]:
    return len(values), values


@njit(nogil=True, makes_arrays=True)
def twice(values: np.ndarray) -> np.ndarray:
    made = np.zeros(2 * len(values), np.int64)
    for k in range(len(values)):
        made[k] = step(values[k])
    return made


def test_functions_that_return_arrays_say_so() -> None:
    values = np.arange(3)
    for function in (same, both):
        with pytest.raises(numba.TypingError, match="returns arrays: say makes_arrays=True"):
            function(values)
    made = twice(values)
    assert made.base is None or made.base is not values
    assert made.tolist() == [1, 2, 3, 0, 0, 0]
