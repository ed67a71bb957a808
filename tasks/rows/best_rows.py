"""The best joint state of a sum of tables of which some are rows, by joins that need little memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, Final

import numpy as np

from ..steps.number_limits import SAME_SHARE
from ..steps.ordered_sum import ordered_sum
from ..steps.row_policy import RowPolicy
from ..steps.semiring import Semiring
from ..steps.views import slice_of
from .algebra import Representation
from .joins import least_row
from .keys import Keys
from .memory_account import LEAST_BLOCK_ROWS, MemoryAccount, rows_bytes
from .relation import Dense, Relation, Table, from_dense, on_host, restricted

# To find a best joint state, this number of joint states is compared at once, and this number of rows of a join is
# made. With little memory the number is smaller, but at least the second number.
_BEST_JOINT_STATES: Final = 1 << 18


def fixed(table: Any, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> Table:
    """Return an array or a relation, wherever it is, with the variables fixed that have a state; on the host."""
    if isinstance(table, Relation):
        return on_host(restricted(table, states))
    view = slice_of(table, axes, sizes, states)
    if not view.here:
        from ..gpu.gather import fetched

        (view,) = fetched([view])
    return Dense(Keys(view.scope, view.shape), np.ascontiguousarray(view.view()).reshape(-1))


def best_row(
    tables: Iterable[Table], semiring: Semiring, room: MemoryAccount | None = None, most: float = inf
) -> dict[int, int]:
    """Return a state of every variable of several states with jointly the least sum; 0 if nothing is possible.

    Parameters
    ----------
    room : MemoryAccount, optional
        The memory account of joins; None if memory is not limited.
    most : float
        An upper bound on the least sum: rows that cannot be part of such a sum are not joined.
    """
    states: dict[int, int] = {}
    given = [*tables]
    for group in _components(given if most == inf else _part_of_sums(given, semiring, most)):
        scope = {v: d for table in group for v, d in table.keys.sizes.items() if d > 1}
        inputs = _with_rows(_fewer(group, semiring), semiring)
        block = _BEST_JOINT_STATES
        if room is not None:
            block = max(LEAST_BLOCK_ROWS, min(room.block_rows(inputs), block))
        found = least_row(inputs, Keys(tuple(scope), tuple(scope.values())), semiring, block)
        states.update(dict.fromkeys(scope, 0) if found is None else found)
    return states


def _part_of_sums(tables: Sequence[Table], semiring: Semiring, most: float) -> list[Table]:
    """Drop what exceeds a sum even where all other tables have their least entries; rounding drops nothing."""
    least = [float(table.values.min()) if len(table) else inf for table in tables]
    total = ordered_sum(least)
    if not isfinite(total):
        return [*tables]
    rounding = SAME_SHARE * (abs(most) + ordered_sum(map(abs, least)))
    return [_at_most(table, most - total + own + rounding, semiring) for table, own in zip(tables, least, strict=True)]


def _at_most(table: Table, value: float, semiring: Semiring) -> Table:
    """Return a table without entries above a value, as rows where few are left."""
    kept = table.values <= value
    if isinstance(table, Relation):
        return table if kept.all() else table.rows(kept)
    rest = Dense(table.keys, np.where(kept, table.values, semiring.zero))
    few = rows_bytes(rest, semiring) < rest.values.nbytes and len(rest) > RowPolicy.current().small_cells
    return from_dense(rest, semiring) if few else rest


def _fewer(tables: Sequence[Table], semiring: Semiring) -> list[Table]:
    """Multiply small arrays, as steps do."""
    dims = {v: d for table in tables for v, d in table.keys.sizes.items()}
    sizes = tuple([dims.get(v, 1) for v in range(max(dims, default=-1) + 1)])
    return Representation(semiring, sizes, MemoryAccount(0)).fewer(tables)


def _with_rows(tables: Sequence[Table], semiring: Semiring) -> list[Table]:
    """Return tables of which at least one is rows."""
    if any(isinstance(table, Relation) for table in tables):
        return [*tables]
    first = max(tables, key=len)
    assert isinstance(first, Dense)
    return [from_dense(first, semiring), *(table for table in tables if table is not first)]


def _components(tables: Iterable[Table]) -> list[list[Table]]:
    """Group tables that share variables of several states, directly or not; tables of one cell restrict no states."""
    groups: list[tuple[set[int], list[Table]]] = []
    for table in tables:
        scope = {*table.keys.varying}
        if not scope:
            continue
        touched = [group for group in groups if not scope.isdisjoint(group[0])]
        members = [table, *(one for group in touched for one in group[1])]
        groups = [group for group in groups if scope.isdisjoint(group[0])]
        groups.append((scope.union(*(group[0] for group in touched)), members))
    return [members for _, members in groups]
