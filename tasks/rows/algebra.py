"""Steps on tables. A table is an array of all cells, or a relation of the possible cells.

A step loops over arrays or joins rows, whichever is predicted to be faster. A cell of a loop takes far less time than a
row of a join, so tables of mostly possible cells are swept as arrays. The result of a step is stored in the form that
takes fewer bytes. `best_row` returns an assignment with the least sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, prod
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ..gpu.arrays import is_device
from ..steps.axes import RUN_CELLS
from ..steps.light_dataclass import dataclass
from ..steps.number_limits import SAME_SHARE, ordered_sum
from ..steps.policy import RowPolicy
from ..steps.row_order import SMALL_SHARE
from ..steps.semiring import Semiring
from ..steps.step import Step
from ..steps.views import slice_of
from ..sweeps.sweep import Algebra, restrict
from .joins import least_row
from .keys import Keys, Words
from .memory_account import LEAST_BLOCK_ROWS, MemoryAccount, RowsNoRoomError, possible, rows_bytes
from .numpy_rows import product
from .ordering import Ranges, gathered, union, within
from .relation import Dense, Relation, Table, from_dense, on_host, restricted, to_dense

Array = NDArray[Any]


def takes_less(dense_bytes: int, rows_bytes: int) -> bool:
    """Whether a table is kept as an array of all cells."""
    return dense_bytes <= RowPolicy.current().array_share * rows_bytes


@dataclass(frozen=True)
class Representation:
    """The choice between arrays and rows.

    Parameters
    ----------
    semiring : Semiring
        The rows leave out cells with the zero of this semiring.
    sizes : tuple of int
        Domain sizes.
    room : Room
    whole : frozenset of int
        Tables that are read as arrays.
    """

    semiring: Semiring
    sizes: tuple[int, ...]
    room: MemoryAccount
    whole: frozenset[int] = frozenset()

    def keys(self, axes: Sequence[int]) -> Keys:
        """Return the layout of rows over some axes."""
        return Keys(tuple(axes), tuple([self.sizes[v] for v in axes]))

    def tables(self, step: Step, values: Sequence[Array | Relation]) -> list[Table]:
        """Return the inputs of a step with their variables."""
        return [self.table(one, axes) for one, axes in zip(values, step.input_axes, strict=True)]

    def table(self, values: Array | Relation, axes: Sequence[int]) -> Table:
        """Return a table with its variables."""
        return values if isinstance(values, Relation) else Dense(self.keys(axes), values)

    def within(self, values: Array | Relation, axes: Sequence[int], ranges: Ranges) -> Array | Relation:
        """Return the part of a table within ranges, with its states counted from their start."""
        return bare(within(self.table(values, axes), ranges))

    def smaller(self, values: Array, axes: Sequence[int]) -> Array | Relation:
        """Return an array as rows where those take fewer bytes."""
        if values.size <= RowPolicy.current().small_cells:
            return values
        table = Dense(self.keys(axes), values)
        if takes_less(values.nbytes, rows_bytes(table, self.semiring)):
            return values
        return from_dense(table, self.semiring)

    def made(self, step: Step, values: Array | Relation) -> Array | Relation:
        """Return the result of a step in the form in which it is kept."""
        found = values
        if isinstance(values, Relation):
            dense_bytes = values.cells * values.values.itemsize
            small = values.cells <= RowPolicy.current().small_cells or takes_less(dense_bytes, values.nbytes)
            if step.node in self.whole or small:
                found = to_dense(values, self.semiring).values
        elif step.node not in self.whole:
            found = self.smaller(values, step.axes)
        kept: Array | Relation = self.room.made(found)
        return kept

    def is_swept(self, step: Step, tables: Sequence[Table]) -> bool:
        """Whether looping over all cells is expected to take less than joining, and fits memory."""
        cells = [prod(table.keys.dims) for table in tables]
        left = self.room.free - self.semiring.itemsize * (sum(cells) + 2 * step.lowered.out_cells)
        if left < 0 or self._workspace_bytes(step) > left:
            return False
        if self._is_short(step, tables):
            return True
        share = 1.0
        for table, count in zip(tables, cells, strict=True):
            share *= self._rows(table) / count
        return share * self._cells_of_a_row(tables) >= 1.0

    def _workspace_bytes(self, step: Step) -> int:
        """Return the bytes that a loop over all cells needs besides its tables."""
        return step.lowered.workspace_bytes

    def _is_short(self, step: Step, tables: Sequence[Table]) -> bool:
        """Whether looping over all cells is over before rows are looked at."""
        return (
            all(isinstance(table, Dense) for table in tables) and step.lowered.cells <= RowPolicy.current().small_cells
        )

    def _cells_of_a_row(self, tables: Sequence[Table]) -> int:
        """Return how many cells of a loop take as long as a row of a join, where these tables are."""
        return RowPolicy.current().cells_of_a_row

    def placed(self, step: Step, tables: Sequence[Table]) -> Sequence[Table]:
        """Return the inputs of a loop over all cells where it runs."""
        return tables

    def sweep(self, step: Step) -> None:
        """Enter the work of a loop over all cells.

        Raises
        ------
        TooMuchWorkError
            If that is more than was allowed.
        """
        self.room.work(step.lowered.cells // max(RowPolicy.current().cells_of_a_row, 1))

    def _rows(self, table: Table) -> int:
        if isinstance(table, Relation):
            return len(table)
        return possible(table.values, self.semiring)

    def array(self, table: Table) -> Array:
        """Return all cells of a table."""
        values: Array = table.values if isinstance(table, Dense) else to_dense(table, self.semiring).values
        return values

    def joined(self, step: Step, tables: Sequence[Table]) -> Relation:
        """Join tables by rows.

        Raises
        ------
        NoRoomError
            If what they make does not fit.
        """
        return self.room.joined_reduced(self.with_rows(self.fewer(tables)), step.axes, self.semiring)

    def fewer(self, tables: Sequence[Table]) -> list[Table]:
        """Multiply small arrays of the host with each other: a join reads every input for each of its rows."""
        groups: list[tuple[Keys, list[Dense]]] = []
        others: list[Table] = []
        most = max(RUN_CELLS, max(map(len, tables)) // SMALL_SHARE)
        for table in sorted(tables, key=len, reverse=True):
            if not isinstance(table, Dense) or len(table) > most or is_device(table.values):
                others.append(table)
                continue
            for i, (keys, members) in enumerate(groups):
                both = self.keys(tuple(dict.fromkeys((*keys.variables, *table.keys.variables))))
                if prod(both.dims) <= most:
                    groups[i] = both, [*members, table]
                    break
            else:
                groups.append((table.keys, [table]))
        return [*others, *(self._product(*group) for group in groups)]

    def _product(self, keys: Keys, tables: Sequence[Dense]) -> Dense:
        """Multiply arrays of the host, each over some of the variables of a layout."""
        if len(tables) == 1:
            return tables[0]
        places = {v: i for i, v in enumerate(keys.variables)}
        views = (
            slice_of(table.values, table.keys.variables, self.sizes, {}).spread(places, keys.dims) for table in tables
        )
        total = np.array(next(views), copy=True)
        for view in views:
            total = product(total, view, self.semiring)
        return Dense(keys, total.reshape(-1))

    def with_rows(self, tables: Sequence[Table]) -> Sequence[Table]:
        """Return the tables; if all are arrays, convert the sparsest one to rows, because a join begins with rows.

        Raises
        ------
        NoRoomError
            If its rows do not fit.
        """
        if not all(isinstance(table, Dense) for table in tables):
            return tables
        first = min(range(len(tables)), key=lambda i: self._rows(tables[i]) / max(len(tables[i]), 1))
        lead = tables[first]
        assert isinstance(lead, Dense)
        if (needed := 2 * rows_bytes(lead, self.semiring)) > (free := self.room.free):
            raise RowsNoRoomError(lead.keys.variables, self.room.nbytes - free + needed, self.room.nbytes)
        return [*tables[:first], from_dense(lead, self.semiring), *tables[first + 1 :]]


@dataclass(frozen=True)
class PlainRows:
    """Bare arrays and relations of one semiring: least costs and energies, residues.

    Parameters
    ----------
    choice : Choice
    base : Algebra
        The algebra that loops over all cells.
    """

    choice: Representation
    base: Algebra[Array]

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels may be used."""
        return self.base.compiled

    def step(self, step: Step, tables: Sequence[Array | Relation], threads: int) -> Array | Relation:
        """Return the output table of ``step``."""
        choice = self.choice
        inputs = choice.tables(step, tables)
        if choice.is_swept(step, inputs):
            choice.sweep(step)
            arrays = [choice.array(table) for table in choice.placed(step, inputs)]
            return choice.made(step, self.base.step(step, arrays, threads))
        return choice.made(step, choice.joined(step, inputs))

    def restrict(
        self, table: Array | Relation, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]
    ) -> Array | Relation:
        """Return the table with some variables fixed."""
        found = narrowed(table, axes, sizes, states)
        return found if found is table else self.choice.room.keep(found)

    def resized(self, sizes: tuple[int, ...]) -> Self:
        """Return the algebra for tables over other domain sizes."""
        return replace(self, choice=replace(self.choice, sizes=sizes))

    def listed(self, keys: Keys, words: Words, values: Array) -> Relation:
        """Return a leaf table from the keys of some of its cells and their values, zeros among them."""
        return gathered(keys, words, values, self.choice.semiring)

    def leaf(self, table: Array, axes: Sequence[int]) -> Array | Relation:
        """Return a leaf table as whichever takes fewer bytes."""
        return self.choice.smaller(table, axes)

    def in_room(self, room: MemoryAccount) -> Self:
        """Return the algebra with another account."""
        return replace(self, choice=replace(self.choice, room=room))

    def keyed(self, table: Array | Relation, axes: Sequence[int]) -> tuple[Table, dict[str, Any]]:
        """Return a table with its variables, and what belongs to its values besides."""
        return self.choice.table(table, axes), {}

    def restored(self, values: Array, kept: Mapping[str, Any]) -> Array:
        """Return an array of all cells, to which nothing belongs besides its values."""
        return values

    def within(self, table: Array | Relation, axes: Sequence[int], ranges: Ranges) -> Array | Relation:
        """Return the part of a table within ranges, with its states counted from their start."""
        return self.choice.within(table, axes, ranges)

    def united(self, parts: Sequence[tuple[Relation, Mapping[str, Any]]]) -> Relation:
        """Return the sum of runs, each with the data that belongs to its values."""
        return union([run for run, _ in parts], self.choice.semiring)

    def made(self, step: Step, table: Array | Relation) -> Array | Relation:
        """Return the result of a step that was run elsewhere in the form in which it is kept."""
        return self.choice.made(step, table)


def bare(table: Table) -> Array | Relation:
    """Return a table without the variables of an array."""
    return table if isinstance(table, Relation) else table.values


def narrowed(
    table: Array | Relation, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]
) -> Array | Relation:
    """Return a table with some variables fixed."""
    if isinstance(table, Relation):
        return restricted(table, states)
    return restrict(table, axes, sizes, states)


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
    """Return the joint state with the least sum, for all variables with at least two states.

    The tables fall into groups without common variables. If a group has no possible joint state, its states are 0.

    Parameters
    ----------
    room : MemoryAccount, optional
        The memory account of joins; None if memory is not limited.
    most : float
        An upper bound on the least sum. A row is not joined if every sum that contains the row is larger.
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
    """Return the tables; if all are arrays, convert the one with the most cells to rows."""
    if any(isinstance(table, Relation) for table in tables):
        return [*tables]
    first = max(tables, key=len)
    assert isinstance(first, Dense)
    return [from_dense(first, semiring), *(table for table in tables if table is not first)]


def _components(tables: Iterable[Table]) -> list[list[Table]]:
    """Group tables that variables with at least two states connect, and leave out tables of one cell."""
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
