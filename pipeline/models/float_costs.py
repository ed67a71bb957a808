"""Costs given as floats, as integers of so many decimals: exact in the digits that Python prints of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from .function import FORBIDDEN, Function

# Integers of 64 bits have no more.
_MOST_DECIMALS = 18


def stored_costs(kind: str, functions: Sequence[Function], top: Any) -> tuple[Sequence[Function], Any, int]:
    """Return functions and ``top`` as a model stores them, with the number of decimals: 0 for integers, and for
    what is no cost.

    Raises
    ------
    ModelError
        As :func:`decimal_functions`.
    """
    if kind != "cost":
        return functions, top, 0
    if _need_decimals(functions) or (isinstance(top, float) and not top.is_integer()):
        return decimal_functions(functions, top)
    return functions, int(top) if isinstance(top, float) else top, 0


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
    distinct: dict[float, Decimal] = {}
    for k, f in enumerate(functions):
        every = np.unique(np.append(f.values.astype(np.float64), 0.0 if f.default is None else float(f.default)))
        if np.isnan(every).any() or np.isneginf(every).any():
            raise ModelError(f"function {k} has a cost that is no number, or infinitely good")
        distinct |= {x: Decimal(repr(x)) for x in every[np.isfinite(every)].tolist()}
    if isinstance(top, float) and not np.isfinite(top):
        raise ModelError(f"top is {top}; leave it out where there is none")
    bound = None if top is None else Decimal(repr(top) if isinstance(top, float) else str(top))
    decimals = max([max(0, -int(x.normalize().as_tuple().exponent)) for x in (*distinct.values(), bound or Decimal())])
    scaled = {x: int(exact.scaleb(decimals)) for x, exact in distinct.items()} if decimals <= _MOST_DECIMALS else {}
    if len(scaled) < len(distinct) or max(map(abs, scaled.values()), default=0) >= FORBIDDEN:
        raise ModelError(
            f"costs with {decimals} decimals do not fit integers of 64 bits; round them, as numpy.round(costs, 6) does"
        )
    scaled[np.inf] = FORBIDDEN
    made = [f.changed(values=_whole(f.values, scaled), default=scaled[float(f.default or 0)]) for f in functions]
    return made, None if bound is None else int(bound.scaleb(decimals)), decimals


def _whole(values: NDArray[Any], scaled: dict[float, int]) -> NDArray[np.int64]:
    given, places = np.unique(values.astype(np.float64), return_inverse=True)
    return np.array([scaled[x] for x in given.tolist()], np.int64)[places].reshape(values.shape)
