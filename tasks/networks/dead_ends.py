"""Dead-end elimination and arc consistency in NumPy, for networks that are too small to wait for a compiler."""

from __future__ import annotations

from collections import deque

import numpy as np

from .flat import Costs, Flags, Flat, Integers, NetworkPolicy


def remove_dominated(flat: Flat, pending: Flags, most_work: int) -> tuple[int, int, int, int]:
    """Remove values without support and values that are never better; see :func:`.dead_end_loops.remove_dominated`."""
    with np.errstate(invalid="ignore"):
        return _removed(flat, pending, most_work)


def _removed(flat: Flat, pending: Flags, most_work: int) -> tuple[int, int, int, int]:
    queue = deque(np.flatnonzero(pending).tolist())
    unsupported = dominated = work = 0
    while queue and work < most_work:
        x = queue.popleft()
        pending[x] = False
        tables = _tables(flat, x)
        unary = flat.unary[flat.first[x] : flat.first[x + 1]]
        died, gone = _collect(unary, tables), _remove_dominated(unary, tables)
        work += sum(table.size for table in tables) * (1 + len(unary) // 4)
        unsupported += died
        dominated += gone
        if not (unary < np.inf).any():
            return unsupported, dominated, 1, work
        if died + gone:
            fresh = dict.fromkeys(_around(flat, x).tolist())
            queue.extend(y for y in fresh if not pending[y] and (y != x or gone))
            pending[[y for y in fresh if y != x or gone]] = True
    return unsupported, dominated, 0, work


def _tables(flat: Flat, x: int) -> list[Costs]:
    """The tables of a variable as (before, values, behind)."""
    edges = flat.incident[flat.around[x] : flat.around[x + 1]]
    functions, d = flat.function[edges], int(flat.first[x + 1] - flat.first[x])
    begins, ends = flat.cells[functions].tolist(), flat.cells[functions + 1].tolist()
    spans = zip(begins, ends, flat.stride[edges].tolist(), strict=True)
    return [flat.costs[begin:end].reshape(-1, d, inner) for begin, end, inner in spans]


def _around(flat: Flat, x: int) -> Integers:
    """The variables of the functions of a variable, function by function."""
    functions = flat.function[flat.incident[flat.around[x] : flat.around[x + 1]]]
    scopes = [flat.scope[flat.edges[f] : flat.edges[f + 1]] for f in functions]
    return np.concatenate(scopes) if scopes else np.empty(0, np.int64)


def _collect(unary: Costs, tables: list[Costs]) -> int:
    """Move the least cost of each value from the tables to ``unary``; return how many values died."""
    died = 0
    for table in tables:
        least = np.minimum.reduce(table, axis=(0, 2))
        if not least.any():
            continue
        alive = unary < np.inf
        dead = alive & (least == np.inf)
        moved = np.where(alive & ~dead, least, 0.0)
        if moved.any():
            unary += moved
            table -= moved[:, None]
        if dead.any():
            died += int(np.count_nonzero(dead))
            _forbid(unary, tables, dead)
    return died


def _forbid(unary: Costs, tables: list[Costs], dead: Flags) -> None:
    unary[dead] = np.inf
    for table in tables:
        table[:, dead] = np.inf


def _remove_dominated(unary: Costs, tables: list[Costs]) -> int:
    """Remove the dominated values of a variable whose tables hold no cost that a value has anyway."""
    alive = unary < np.inf
    excess = unary - unary[:, None]  # of choosing the second value for the first
    better = (excess <= 0) & alive[:, None]
    np.fill_diagonal(better, val=False)
    one, other = np.nonzero(better)
    excess = excess[one, other]
    for table in tables:
        if not len(one):
            return 0
        excess += _worst(table.transpose(1, 0, 2).reshape(len(unary), -1), one, other)
        left = excess <= 0  # it only grows
        one, other, excess = one[left], other[left], excess[left]
    dead = np.zeros(len(unary), np.bool_)
    for a, b in zip(one.tolist(), other.tolist(), strict=True):
        if not (dead[a] or dead[b]):
            dead[a] = True
    if dead.any():
        _forbid(unary, tables, dead)
    return int(np.count_nonzero(dead))


def _worst(rows: Costs, one: Integers, other: Integers) -> Costs:
    """The largest additional cost of choosing the other value instead of the one in a table, at least 0."""
    worst = np.empty(len(one))
    step = max(1, NetworkPolicy.current().compared_cells // rows.shape[1])
    for a in range(0, len(one), step):
        own = rows[one[a : a + step]]
        more = np.where(own < np.inf, rows[other[a : a + step]] - own, 0.0)
        worst[a : a + step] = np.maximum.reduce(more, axis=1, initial=0.0)
    return worst
