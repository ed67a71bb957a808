"""Functions that a count has to look at: those that forbid some assignment of the states that are left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.function import Function
from ..models.model import Model
from .consistency import allowed
from .semijoins import rows_within


def excluding(
    model: Model, functions: Sequence[int], smaller: Collection[int], domains: Sequence[NDArray[np.intp]]
) -> tuple[int, ...]:
    """Return the functions that a count needs, all of them where costs that each function allows may reach ``top``.

    An assignment does not count if some function forbids it, or if its costs reach ``top`` together. They cannot if
    even the greatest costs that each function allows do not: then functions that allow every assignment of the states
    that are left say nothing about the count. Where they can, every cost matters.

    Parameters
    ----------
    smaller : collection of int
        Functions of which entries fell that are part of no assignment: they are needed.
    domains : sequence of ndarray
        The states that are left of each variable of the model.
    """
    needed, above = [], 0
    whole = [len(states) == size for states, size in zip(domains, model.dims, strict=True)]
    for f in functions:
        function = model.functions[f]
        values = _values_within(function, None if all(whole[v] for v in function.scope) else domains)
        mask = allowed(model, f, values)
        if model.top is not None:
            above += int(values[mask].max(initial=model.lowest[f])) - model.lowest[f]
        if f in smaller or not mask.all():
            needed.append(f)
    reaches_top = model.top is not None and sum(model.lowest) + above >= model.top
    return tuple(functions if reaches_top else needed)


def _values_within(function: Function, domains: Sequence[NDArray[np.intp]] | None) -> NDArray[Any]:
    """Return the values of a function that assignments of some states have, or of all: at least those."""
    if domains is None:
        return function.values if function.rows is None else np.append(function.values, function.default)
    states = [domains[v] for v in function.scope]
    if function.rows is None:
        return np.asarray(function.values[np.ix_(*states)])
    listed = function.values[rows_within(function.rows, states)]
    return listed if len(listed) == prod(map(len, states)) else np.append(listed, function.default)
