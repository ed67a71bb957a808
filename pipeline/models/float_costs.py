"""Costs given as floats, stored as integers with a fixed number of decimals.

Exact in the digits that Python prints. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import LARGEST_DECIMALS
from ..errors import ModelError
from .function import FORBIDDEN, Function


def stored_costs(kind: str, functions: Sequence[Function], top: Any) -> tuple[Sequence[Function], Any, int]:
    """Return functions and ``top`` as a model stores them, and the number of decimals, which is 0 for integers and for
    values that are not costs.

    Raises
    ------
    ModelError
        As :func:`decimal_functions`.
    """
    if kind != "cost":
        return functions, top, 0
    top = _bound(top) if isinstance(top, float | np.floating | Decimal) else top
    if _need_decimals(functions) or (isinstance(top, Decimal) and top != int(top)):
        return decimal_functions(functions, top)
    functions = [f.changed(default=int(f.default)) if isinstance(f.default, float) else f for f in functions]
    return functions, int(top) if isinstance(top, Decimal) else top, 0


def _bound(top: Any) -> Decimal:
    """Return a top as it is printed.

    Raises
    ------
    ModelError
        If it is no finite number.
    """
    try:
        bound = Decimal(top if isinstance(top, int) else str(top))
    except ArithmeticError:
        raise ModelError(f"top is {top!r}, which is not a number") from None
    if not bound.is_finite():
        raise ModelError(f"top is {top}; leave it out if there is no top")
    return bound


def _need_decimals(functions: Iterable[Function]) -> bool:
    return any(_is_fractional(values) for f in functions for values in (f.values, np.asarray(f.default)))


def _is_fractional(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and not (np.isfinite(values) & (values == np.floor(values))).all()


def decimal_functions(functions: Sequence[Function], top: Any) -> tuple[list[Function], int | None, int]:
    """Return functions of integers in place of floats, and ``top`` likewise, with the number of decimals.

    Parameters
    ----------
    functions : sequence of Function
        Of floats or integers; positive infinity is forbidden.
    top : number or None

    Raises
    ------
    ModelError
        If a cost is no number or infinitely good, or they do not fit 64 bits with the decimals that they need.
    """
    given = [[_listed(k, part) for part in (f.values, np.asarray(f.default or 0))] for k, f in enumerate(functions)]
    bound = None if top is None else _bound(top)
    distinct = {x for parts in given for numbers, _ in parts for x in numbers if x is not None}
    decimals = max([max(0, -int(x.normalize().as_tuple().exponent)) for x in (*distinct, bound or Decimal())])
    if decimals > LARGEST_DECIMALS or any(abs(int(x.scaleb(decimals))) >= FORBIDDEN for x in distinct):
        raise ModelError(
            f"costs with {decimals} decimals do not fit integers of 64 bits; round them, as numpy.round(costs, 6) does"
        )
    whole = [[_whole(numbers, decimals)[places] for numbers, places in parts] for parts in given]
    made = [f.changed(values=v, default=int(default)) for f, (v, default) in zip(functions, whole, strict=True)]
    return made, None if bound is None else int(bound.scaleb(decimals)), decimals


def _listed(k: int, values: NDArray[Any]) -> tuple[list[Decimal | None], NDArray[np.int64]]:
    """Return the different costs of an array, None where they forbid, and which of them each of its cells has."""
    if values.dtype.kind not in "biuf":
        raise ModelError(f"function {k} has values of type {values.dtype}; expected numbers")
    if np.isnan(values).any() or np.isneginf(values).any():
        raise ModelError(f"function {k} has a cost that is not a number, or is minus infinity")
    given, places = np.unique(values, return_inverse=True)
    return [_exact(x) for x in given], places.reshape(values.shape)


def _exact(number: Any) -> Decimal | None:
    """Return a cost as it is meant, None if it forbids: whole numbers as they are, others in their printed digits."""
    if np.isinf(number) or (not isinstance(number, np.floating) and number >= FORBIDDEN):
        return None
    return Decimal(int(number)) if number == np.floor(number) else Decimal(str(number))


def _whole(numbers: Sequence[Decimal | None], decimals: int) -> NDArray[np.int64]:
    return np.array([FORBIDDEN if x is None else int(x.scaleb(decimals)) for x in numbers], np.int64)
