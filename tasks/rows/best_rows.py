"""The best joint state of a sum of tables of which some are rows: by joins of which never much is alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..steps.row_policy import RowPolicy
from ..steps.semiring import Semiring
from ..steps.views import slice_of
from .joins import joined_reduced
from .keys import Keys
from .memory_account import MemoryAccount
from .relation import Dense, Relation, Table, from_dense, on_host, restricted


def fixed(table: Any, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> Table:
    """Return an array or a relation, wherever it is, with the variables fixed that have a state; on the host."""
    if isinstance(table, Relation):
        return on_host(restricted(table, states))
    view = slice_of(table, axes, sizes, states)
    if not view.here:
        from ..gpu.gather import fetched

        (view,) = fetched([view])
    return Dense(Keys(view.scope, view.shape), np.ascontiguousarray(view.view()).reshape(-1))


def best_row(tables: Iterable[Table], semiring: Semiring, room: MemoryAccount | None = None) -> dict[int, int]:
    """Return a state of every variable of several states, jointly of the least sum; 0 where nothing is possible.

    ``room`` is what joins may take of; None where memory is not limited.
    """
    states: dict[int, int] = {}
    policy = RowPolicy.current()
    for group in _components(tables):
        left = {v: d for table in group for v, d in table.keys.sizes.items() if d > 1}
        most = policy.best_joint_states
        if room is not None:
            most = max(policy.best_least_states, min(room.block_rows(group), most))
        while left:
            scope = _first(left, most)
            inputs = [_fixed(table, states) for table in group]
            found = joined_reduced(_with_rows(inputs, semiring), scope, semiring, most)
            row = np.argmin(found.values) if len(found) else None
            chosen = [0] * len(scope) if row is None else found.keys.unpack(found.words[row : row + 1])[:, 0].tolist()
            states.update(zip(scope, chosen, strict=True))
            for v in scope:
                del left[v]
    return states


def _fixed(table: Table, states: Mapping[int, int]) -> Table:
    if isinstance(table, Relation):
        return restricted(table, states)
    dims = table.keys.sizes
    sizes = [dims.get(v, 1) for v in range(max(dims, default=0) + 1)]
    return fixed(table.values, table.keys.variables, sizes, states)


def _first(left: Mapping[int, int], most: int) -> list[int]:
    """Return some of the variables, with at most so many joint states, or one."""
    scope: list[int] = []
    cells = 1
    for v, d in left.items():
        if scope and cells * d > most:
            break
        scope.append(v)
        cells *= d
    return scope


def _with_rows(tables: Sequence[Table], semiring: Semiring) -> list[Table]:
    """Return tables of which one at least is rows."""
    if any(isinstance(table, Relation) for table in tables):
        return [*tables]
    first = max(tables, key=len)
    assert isinstance(first, Dense)
    return [from_dense(first, semiring), *(table for table in tables if table is not first)]


def _components(tables: Iterable[Table]) -> list[list[Table]]:
    """Group tables that share variables of several states, directly or not."""
    groups: list[tuple[set[int], list[Table]]] = []
    for table in tables:
        scope = {v for v, d in table.keys.sizes.items() if d > 1}
        touched = [group for group in groups if not scope.isdisjoint(group[0])]
        members = [table, *(one for group in touched for one in group[1])]
        groups = [group for group in groups if scope.isdisjoint(group[0])]
        groups.append((scope.union(*(group[0] for group in touched)), members))
    return [members for _, members in groups]
