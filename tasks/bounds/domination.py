"""Dead-end elimination and arc consistency in NumPy, for networks that are too small to wait for a compiler."""

from __future__ import annotations

from collections import deque

import numpy as np

from .tables import Costs, Flags, Flat, Integers

#: Differences that are held at a time.
_CELLS = 1 << 16


def remove_dominated(flat: Flat, pending: Flags, most_work: int) -> tuple[int, int, int, int]:
    """Remove values that are in no allowed assignment, or never better; see :func:`.dominance.remove_dominated`."""
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
        alive = unary < np.inf
        least = table.min(axis=(0, 2))
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
    d = len(unary)
    with np.errstate(invalid="ignore"):
        excess = unary - unary[:, None]  # of choosing the second value for the first
        candidates = excess <= 0
        if d * d == d or np.count_nonzero(candidates) == d:
            return 0
        for table in tables:
            excess += _worst(table.transpose(1, 0, 2).reshape(d, -1))
    dead = np.zeros(d, np.bool_)
    dead_before = unary == np.inf
    for a, b in np.argwhere(candidates & (excess <= 0)).tolist():
        if a != b and not (dead_before[a] or dead_before[b] or dead[a] or dead[b]):
            dead[a] = True
    if dead.any():
        _forbid(unary, tables, dead)
    return int(np.count_nonzero(dead))


def _worst(rows: Costs) -> Costs:
    """What choosing the second value for the first costs more at worst in a table, at least 0."""
    d, n = rows.shape
    worst = np.zeros((d, d))
    step = max(1, _CELLS // (d * n))
    for a in range(0, d, step):
        own = rows[a : a + step, None]
        more = np.where(own < np.inf, rows - own, 0.0)
        worst[a : a + step] = np.maximum(more.max(axis=2), 0.0)
    return worst
