"""Decoding: from the kept tables of a sweep to an assignment, one slice per step.

The backward sweep of elimination (value assignment, Dechter 1999 §3): from the roots down, the variables
that a step eliminated take the states that attain its output at the states already chosen above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.gpu.arrays import is_device
from ...tasks.rows.relation import Dense, Relation, Table, to_dense
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.semiring import Semiring
from ...tasks.steps.step import Step, make_step
from ...tasks.steps.views import TableSlice, slice_of
from ...tasks.sweeps.best_states import JOINED_CELLS, JointStates, best_states, joint_choices, joint_worth

if TYPE_CHECKING:
    from ...tasks.rows.memory_account import MemoryAccount

Array = NDArray[Any]

#: Rows are decoded as dense arrays if their remaining part has at most this many cells, or if the array takes at most
#: this many times the rows' bytes. Variables are then eliminated one by one.
WHOLE_CELLS: int = JOINED_CELLS
WHOLE_BYTES: float = 1.0


def decode(
    steps: Sequence[Step],
    tables: Mapping[int, Array],
    sizes: Sequence[int],
    semiring: Semiring,
    assignment: dict[int, int],
    compiled: bool = True,
    room: MemoryAccount | None = None,
    most: float = inf,
) -> None:
    """Extend ``assignment`` (variable → state), in place, to every variable that ``steps`` minimised over.

    Steps that sum are skipped; their variables have no state in an assignment.

    Parameters
    ----------
    steps : sequence of Step
        In execution order.
    tables : mapping
        The table of every input of every step, an array or rows.
    sizes : sequence of int
        Domain sizes; a variable that was fixed before the sweep has one state and must be in ``assignment``.
    semiring : Semiring
        Min-plus, of the tables' dtype.
    compiled : bool
        Whether large slices may use compiled kernels.
    room : Room, optional
        Memory account for joins of rows.
    most : float
        Known upper limit of the sum of each step's inputs at some of its states.
    """
    begin_decode(steps, tables, sizes, semiring, assignment, compiled, room, most)()


def begin_decode(
    steps: Sequence[Step],
    tables: Mapping[int, Array],
    sizes: Sequence[int],
    semiring: Semiring,
    assignment: dict[int, int],
    compiled: bool = True,
    room: MemoryAccount | None = None,
    most: float = inf,
) -> Callable[[], None]:
    """Start to decode if the tables are on a device, which may still sweep; return a function that finishes.

    Parameters
    ----------
    steps : sequence of Step
    tables : mapping of int to array
        The inputs of all steps.
    sizes : sequence of int
        Number of states, by variable.
    semiring : Semiring
    assignment : dict of int to int
        Known states; receives all others.
    compiled : bool
        Whether compiled loops may be used.
    room : MemoryAccount, optional
        Memory that joins are charged to.
    most : float
        Most rows of a join.

    Returns
    -------
    callable
        Finishes the decoding.
    """
    best = [step for step in steps if step.lowered.semiring.name == semiring.name]
    if len(best) < len(steps):
        steps, tables = best, {i: tables[i] for step in best for i in step.inputs}
    if any(map(is_device, tables.values())):
        from ...tasks.gpu.decoding import begin_there, decodes

        if decodes(tables, semiring):
            best_of = partial(_best_of, tables=tables, sizes=sizes, semiring=semiring, assignment=assignment)
            best_of = partial(best_of, compiled=compiled, room=room)
            return begin_there(steps, tables, sizes, semiring, assignment, best_of)

    def end() -> None:
        near = _near(tables)
        for step in reversed(steps):
            # most steps eliminate few joint states, which one small table decides
            few = joint_worth(step, near, sizes, semiring, assignment)
            if few is not None:
                assignment.update(few.best)
            else:
                assignment.update(_best_of(step, near, sizes, semiring, assignment, compiled, room, most))

    return end


def _best_of(
    step: Step,
    tables: Mapping[int, Array],
    sizes: Sequence[int],
    semiring: Semiring,
    assignment: Mapping[int, int],
    compiled: bool,
    room: MemoryAccount | None,
    most: float = inf,
) -> dict[int, int]:
    """Return the best states of the variables that a step eliminated, for any number of variables and any kind of
    tables.
    """
    read = list(zip(step.inputs, step.input_axes, strict=True))
    if not any(isinstance(tables[node], Relation) for node in step.inputs):
        slices = [slice_of(tables[node], axes, sizes, assignment) for node, axes in read]
        return best_states(slices, sizes, semiring, compiled)
    from ...tasks.rows.algebra import best_row, fixed

    found = [fixed(tables[node], axes, sizes, assignment) for node, axes in read]
    if not all(_is_mostly_there(table) for table in found):
        return best_row(found, semiring, room, most)
    return best_states([_whole(table, assignment, semiring) for table in found], sizes, semiring, compiled)


@dataclass(frozen=True, eq=False)
class RowStates:
    """Joint states of the variables that a step eliminated, with their values, if only some rows are possible."""

    rows: Relation

    @property
    def scope(self) -> tuple[int, ...]:
        """Their variables."""
        return self.rows.keys.variables

    @property
    def worth(self) -> Array:
        """The best value of each row."""
        return np.asarray(self.rows.values)

    def states(self, code: int) -> dict[int, int]:
        """Return the joint state of a row."""
        found = self.rows.keys.unpack(self.rows.words[code : code + 1])
        return {v: int(state[0]) for v, state in zip(self.scope, found, strict=True)}


def choices(
    step: Step,
    tables: Mapping[int, Any],
    sizes: Sequence[int],
    algebra: Any,
    semiring: Semiring,
    states: dict[int, int],
    first: list[Array] | None = None,
) -> Iterator[JointStates | RowStates]:
    """Yield the eliminated variables of a step in groups, with the values of their states, given all chosen states.

    Parameters
    ----------
    algebra : Algebra
        Joins tables if some of them are sparse.
    states : dict of int to int
        States of all variables of the step's output. The caller adds the states of each yield before it requests the
        next.
    first : list of ndarray, optional
        Cached values of the first group for the same step and states; see
        :func:`~bucketflow.tasks.sweeps.best_states.joint_choices`.

    Raises
    ------
    RowsNoRoomError
        If a join of sparse tables does not fit in memory.
    """
    few = joint_worth(step, tables, sizes, semiring, states)
    if few is not None:
        yield few
        return
    read = list(zip(step.inputs, step.input_axes, strict=True))
    if not any(isinstance(tables[node], Relation) for node in step.inputs):
        slices = [slice_of(tables[node], axes, sizes, states) for node, axes in read]
        yield from joint_choices(slices, sizes, semiring, states, algebra.compiled, first)
        return
    from ...tasks.rows.algebra import bare, fixed

    found = [fixed(tables[node], axes, sizes, states) for node, axes in read]
    # nearly full sparse tables are smaller as arrays
    if all(map(_is_mostly_there, found)):
        slices = [_whole(table, states, semiring) for table in found]
        yield from joint_choices(slices, sizes, semiring, states, algebra.compiled, first)
        return
    scopes = [table.keys.variables for table in found]
    left = tuple(dict.fromkeys(v for scope in scopes for v in scope if v not in states))
    # rows keep the variables with a state, and of each of these one state
    inside = tuple([1 if v in states else d for v, d in enumerate(sizes)])
    whole = make_step(-1, tuple(range(len(found))), tuple(scopes), left, inside, semiring)
    joined = algebra.resized(inside).step(whole, [bare(table) for table in found], 1)
    if isinstance(joined, Relation):
        yield RowStates(joined)
    else:
        yield JointStates(left, tuple([sizes[v] for v in left]), joined)


def entry(
    table: Array | Relation, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int], semiring: Semiring
) -> Any:
    """Return the entry of a table, an array or rows, at states of all its variables."""
    from ...tasks.rows.algebra import fixed

    found = fixed(table, axes, sizes, states)
    return found.values[0].item() if len(found) else semiring.zero


def _is_mostly_there(table: Table) -> bool:
    if isinstance(table, Dense) or table.cells <= WHOLE_CELLS:
        return True
    return bool(table.cells * table.values.itemsize <= WHOLE_BYTES * table.nbytes)


def _whole(table: Table, assignment: Mapping[int, int], semiring: Semiring) -> TableSlice:
    """Return all cells of a table; of variables with one state none is left that was assigned one."""
    values = to_dense(table, semiring).values if isinstance(table, Relation) else table.values
    sizes = [table.keys.sizes.get(v, 1) for v in range(max(table.keys.variables, default=0) + 1)]
    return slice_of(values, table.keys.variables, sizes, assignment)


def _near(tables: Mapping[int, Array]) -> Mapping[int, Array]:
    """Bring small tables of a device to the host, all at once."""
    parts: dict[Any, Any] = {}
    for node, table in tables.items():
        if isinstance(table, Relation):
            parts[node, "words"], parts[node, "values"] = table.words, table.values
        else:
            parts[node] = table
    if all(type(part) is np.ndarray for part in parts.values()):
        return tables
    from ...tasks.gpu.gather import near

    found = near(parts)
    return {node: _of_parts(node, table, found) for node, table in tables.items()}


def _of_parts(node: int, table: Any, parts: Mapping[Any, Any]) -> Any:
    """Return a table of arrays that may have moved; partial rows stay where they were."""
    if not isinstance(table, Relation):
        return parts[node]
    words, values = parts[node, "words"], parts[node, "values"]
    if type(words) is not type(values):
        return table
    return replace(table, words=words.reshape(-1, table.keys.n_words), values=values)
