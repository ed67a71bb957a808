"""The WCSP format: integer costs of at least 0, and a top."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, product

import numpy as np

from ...errors import ModelError
from ...models.function import greatest_costs
from ...models.model import FORBIDDEN, Function, Model
from .words import blocks


def wcsp_lines(model: Model) -> tuple[Iterator[str], list[str]]:
    """Return the lines of a file, and how its totals differ from the model's.

    Raises
    ------
    ModelError
        If the model has no costs, or costs that are too far from each other.
    """
    stored = _shifted(model)
    return _lines(stored.model), list(_shift_notes(model, stored))


@dataclass(frozen=True)
class _Shifted:
    """A model of costs of at least 0, and what was subtracted from its totals."""

    model: Model
    shift: int


def _shifted(model: Model) -> _Shifted:
    """Subtract the least cost of every function with a negative one from it, and all of these from the top.

    Raises
    ------
    ModelError
        If the model has no costs, or costs that are too far from each other.
    """
    if model.kind != "cost":
        raise ModelError("the model holds probabilities, and .wcsp holds costs; write .uai")
    lows = [min(low, 0) for low in model.lowest]
    highs = greatest_costs(model.functions, [FORBIDDEN] * len(lows))
    functions = tuple(
        f if low == 0 else _raised(f, high, -low) for f, low, high in zip(model.functions, lows, highs, strict=True)
    )
    shift = sum(lows)
    top = _open_top(functions) if model.top is None else max(model.top - shift, 0)
    return _Shifted(replace(model, functions=functions, top=top), shift)


def _raised(function: Function, high: int, by: int) -> Function:
    """Add to all costs that are not forbidden, of which none is higher than the one given."""
    allowed = function.values < FORBIDDEN
    if high + by >= FORBIDDEN:
        raise ModelError("the model cannot be written as .wcsp: costs of a function are 2**62 or more apart")
    default = function.default if function.rows is None or function.default >= FORBIDDEN else function.default + by
    return function.changed(values=np.where(allowed, function.values + by, FORBIDDEN), default=default)


def _open_top(functions: tuple[Function, ...]) -> int:
    """Return a top that no total reaches."""
    return max(FORBIDDEN, sum(greatest_costs(functions, [FORBIDDEN] * len(functions))) + 1)


def _shift_notes(model: Model, stored: _Shifted) -> Iterator[str]:
    factor = (-1 if model.maximize else 1) * 10**model.decimals
    if stored.shift or factor != 1:
        scaled = "value" if factor == 1 else f"{factor} * value"
        yield f"costs are integers of at least 0: the file's total is {scaled} + {-stored.shift}"


def _lines(model: Model) -> Iterator[str]:
    name = "_".join(model.name.split()) or "model"
    top = FORBIDDEN if model.top is None else model.top
    yield f"{name} {len(model.dims)} {max(model.dims, default=0)} {len(model.functions)} {top}"
    yield " ".join(map(str, model.dims))
    for f in model.functions:
        yield from _function(f, model.dims, top)


def _function(function: Function, dims: tuple[int, ...], top: int) -> Iterator[str]:
    head = " ".join(map(str, (len(function.scope), *function.scope)))
    if not function.scope:
        yield f"{head} {_written(function.at(()), top)} 0"
    elif function.rows is not None:
        yield f"{head} {_written(function.default, top)} {len(function.rows)}"
        for row, cost in chain.from_iterable(blocks(function.rows, function.values)):
            yield " ".join(map(str, (*row, _written(cost, top))))
    else:
        # Every cell is listed, so that it reads back as a dense function; the default is never used.
        yield f"{head} 0 {function.values.size}"
        states = product(*(range(dims[v]) for v in function.scope))
        costs = chain.from_iterable(blocks(function.values.ravel()))
        for row, (cost,) in zip(states, costs, strict=True):
            yield " ".join(map(str, (*row, _written(cost, top))))


def _written(cost: int | float, top: int) -> int:
    return top if cost >= FORBIDDEN else min(int(cost), top)
