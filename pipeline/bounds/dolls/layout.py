"""Networks whose functions only forbid, apart from costs of single values, as a Russian doll search has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..network import CostNetwork, CostTable

#: Functions that are no sums of costs of single values are at most this part of all.
_SOFT_PART = 0.05
#: Networks of more cells are not looked at.
_MOST_CELLS = 1 << 20
#: Costs that add up to at most this stay exact.
_MOST = float(1 << 52)
#: Of these the search has a number for each variable, zero before it begins.
_OF_VARIABLES = ("rise", "before", "risen", "marks", "tried", "states", "best")

Costs = NDArray[np.float64]


def separated(network: CostNetwork) -> tuple[list[Costs], list[CostTable], int] | None:
    """Move to single values what is theirs; None where functions have costs of their own.

    Shifting costs between functions is undone by it: what only forbids does so again, and nothing else.

    Returns
    -------
    unary, tables, constant
        A cost a value, of which the least is 0; functions of two or more variables, none of them negative.
    """
    from ....tasks.search.separation import separate

    if network.cells > _MOST_CELLS:
        return None
    unary, tables, soft, most = [np.zeros(d) for d in network.dims], [], 0, 0.0
    n_tables = sum(len(scope) > 1 for scope in network.scopes)
    for table in network.tables:
        found = np.empty(sum(table.costs.shape))
        if separate(np.ascontiguousarray(table.costs).reshape(-1), np.array(table.costs.shape), found):
            rest = np.where(np.isfinite(table.costs), 0.0, np.inf)
        else:
            soft += 1
            rest, found = _projected(table.costs)
            most += float(rest[np.isfinite(rest)].max(initial=0.0))
        most += len(table.scope) * float(np.abs(found[np.isfinite(found)]).max(initial=0.0))
        if soft > _SOFT_PART * n_tables or most > _MOST:
            return None
        for x, own in zip(table.scope, np.split(found, np.cumsum(table.costs.shape)[:-1]), strict=True):
            unary[x] += own
        if len(table.scope) == 1:
            unary[table.scope[0]] += rest
        else:
            tables.append(CostTable(table.scope, rest))
    least = [float(costs.min()) if np.isfinite(costs).any() else 0.0 for costs in unary]
    unary = [costs - low for costs, low in zip(unary, least, strict=True)]
    return unary, tables, network.constant + int(math.fsum(least))


def _projected(costs: Costs) -> tuple[Costs, Costs]:
    """Return a table less what each value costs at least, one axis after the other, and these costs."""
    found = []
    for axis in range(costs.ndim):
        least = costs.min(axis=tuple(other for other in range(costs.ndim) if other != axis), keepdims=True)
        costs = costs - np.where(np.isfinite(least), least, 0.0)
        found.append(least.reshape(-1))
    return costs, np.concatenate(found)


def laid_out(unary: list[Costs], tables: list[CostTable], order: Sequence[int]) -> Any:
    """Return the state of a search that decides variables in an order and has not begun."""
    from ....tasks.search.dolls import NUMBERS, DollState
    from ....tasks.search.state import integers

    n, place = len(order), {v: i for i, v in enumerate(order)}
    first = _begins(len(unary[v]) for v in order)
    costs = integers(np.concatenate([unary[v] for v in order]))
    rows: list[list[tuple[int, int]]] = [[] for _ in costs]
    functions: list[list[tuple[tuple[int, ...], tuple[int, ...], int]]] = [[] for _ in order]
    entries, size, changes, saved = [np.zeros(1, dtype=np.int64)], 1, 1, 1
    for table in tables:
        axes = sorted(range(len(table.scope)), key=lambda axis: place[table.scope[axis]])
        scope, own = tuple(place[table.scope[axis]] for axis in axes), integers(table.costs.transpose(axes))
        if own.ndim == 2:
            for a in np.flatnonzero(own.any(axis=1)).tolist():
                rows[first[scope[0]] + a].append((scope[1], size + a * own.shape[1]))
        else:
            strides = tuple(np.cumprod(own.shape[:0:-1])[::-1].tolist())
            functions[scope[-2]].append((scope, strides, size))
        entries.append(own.reshape(-1))
        size, changes, saved = size + own.size, changes + 1, saved + own.shape[-1]
    flat = [function for own in functions for function in own]
    begins = _begins(len(scope) - 1 for scope, _, _ in flat)
    numbers = [(begin, scope[-1], at) for begin, (scope, _, at) in zip(begins, flat, strict=False)]
    axes_of = [pair for scope, strides, _ in flat for pair in zip(scope[:-1], strides, strict=True)]
    return DollState(
        first=first,
        unary=costs,
        rows=_begins(map(len, rows)),
        row=_records([row for own in rows for row in own], 2),
        wide=_begins(map(len, functions)),
        function=_records([*numbers, (len(axes_of), 0, 0)], 3),
        axes=_records(axes_of, 2),
        entries=np.concatenate(entries),
        doll=np.zeros(n + 1, dtype=np.int64),
        costs=costs.copy(),
        least=np.minimum.reduceat(costs, first[:-1]),
        trail=np.zeros((changes, 3), dtype=np.int64),
        saved=np.zeros(saved, dtype=np.int64),
        values=np.zeros_like(costs),
        numbers=np.zeros(NUMBERS, dtype=np.int64),
        **{name: np.zeros(n, dtype=np.int64) for name in _OF_VARIABLES},
    )


def _begins(sizes: Any) -> NDArray[np.int64]:
    """Return where each of several begins, and where the last one ends."""
    return np.cumsum([0, *sizes], dtype=np.int64)


def _records(rows: Sequence[tuple[int, ...]], size: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, size)
