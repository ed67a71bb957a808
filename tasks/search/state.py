"""What a branch and bound works on, as flat arrays that compiled loops share.

Costs live in binary tables that never change and in one array ``costs`` that does: the constant, a cost for each value
of each variable (inf = removed), and for each table what was moved out of it along its rows and columns. What a binary
table costs at ``(a, b)`` is its entry less the moved amounts of ``a`` and ``b``. Every change of ``costs`` is written
on a trail, from which backtracking restores it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Places in `counters`.
TRAIL, STAMP, DEPTH, NODES, BACKTRACKS, LAST_CONFLICT, STARTED, CAUSE = range(8)


class Functions(NamedTuple):
    """The functions of a problem, which no search changes.

    Variables are ``0 … n - 1``; ``start[x]`` is where the values of ``x`` begin in ``costs``. The neighbours of ``x``
    are entries ``first[x]`` to ``first[x + 1]`` of ``neighbour``, ``table`` (where the table of the pair begins in
    ``entries``, rows = values of ``x``: each pair is stored both ways) and ``moved``, ``moved_back`` (where in
    ``costs`` the amounts moved to ``x`` and to the neighbour begin) and ``mirror`` (which entry is the same pair from
    the other side). Function ``f`` of three or more variables has the scope ``scope[wide_first[f] : wide_first[f +
    1]]`` with those strides, its entries at ``wide_table[f]``, and in ``costs`` a mark at ``wide_mark + f`` once it
    was added. Moves of at most ``tiny`` are not worth propagating.
    """

    dims: Array
    start: Array
    first: Array
    neighbour: Array
    table: Array
    moved: Array
    moved_back: Array
    mirror: Array
    entries: Array
    rank: Array
    by_rank: Array
    wide_first: Array
    wide_scope: Array
    wide_stride: Array
    wide_table: Array
    wide_mark: int
    tiny: float


class State(NamedTuple):
    """What a search changes: costs with their trail, open decisions, flags and counters."""

    costs: Array
    hints: Array  # for each amount moved to a value, the neighbour's value that it was cheapest with
    stamps: Array
    trail_place: Array
    trail_value: Array
    flags: Array  # (3, n): to be made consistent by arc, by direction, by existence
    weight: Array  # of the pairs of neighbours, by the conflicts that they caused
    left: Array  # values left of each variable, when last counted
    support: Array  # of each variable, a value that costs nothing with some values of its neighbours
    work: Array  # (2, largest domain)
    decision_variable: Array
    decision_first: Array  # where the values begin that the variable was left
    decision_values: Array
    decision_trail: Array
    decision_bound: Array
    counters: Array
    best: Array


def functions_of(
    dims: tuple[int, ...],
    pairs: dict[tuple[int, int], Array],
    wide: list[tuple[tuple[int, ...], Array]],
    rank: Array,
    tiny: float = 0.0,
) -> tuple[Functions, int]:
    """Lay functions out; return them and the length of ``costs``.

    Parameters
    ----------
    pairs : dict
        ``(x, y)`` with ``x < y`` → costs, shape ``(dims[x], dims[y])``, none negative.
    wide : list of (scope, costs)
        Functions of three or more variables, none negative.
    rank : ndarray of int
        Costs are moved to the variable of the smaller rank.
    """
    n = len(dims)
    start = np.concatenate([[1], 1 + np.cumsum(dims)]).astype(np.int64)
    place = int(start[-1])
    rows: list[list[tuple[int, int, int, int]]] = [[] for _ in range(n)]
    entries, offset = [], 0
    for (x, y), costs in pairs.items():
        to_x, to_y = place, place + dims[x]
        place += dims[x] + dims[y]
        rows[x].append((y, offset, to_x, to_y))
        rows[y].append((x, offset + costs.size, to_y, to_x))
        entries += [costs.reshape(-1), costs.T.reshape(-1)]
        offset += 2 * costs.size
    tables: list[int] = []
    scopes: list[int] = []
    strides: list[int] = []
    firsts = [0]
    for scope, costs in wide:
        tables.append(offset)
        scopes += scope
        strides += [s // costs.itemsize for s in np.ascontiguousarray(costs).strides]
        firsts.append(len(scopes))
        entries.append(costs.reshape(-1))
        offset += costs.size
    flat = [entry for row in rows for entry in row]
    columns = np.array(flat, dtype=np.int64).reshape(-1, 4).T.copy()
    places = {(to, back): k for k, (_, _, to, back) in enumerate(flat)}
    mirror = np.array([places[back, to] for _, _, to, back in flat], dtype=np.int64)
    functions = Functions(
        np.array(dims, dtype=np.int64),
        start,
        np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
        columns[0],
        columns[1],
        columns[2],
        columns[3],
        mirror,
        np.concatenate(entries).astype(np.float64) if entries else np.zeros(1),
        np.asarray(rank, dtype=np.int64),
        np.argsort(rank).astype(np.int64),
        np.array(firsts, dtype=np.int64),
        np.array(scopes or [0], dtype=np.int64),
        np.array(strides or [0], dtype=np.int64),
        np.array(tables or [0], dtype=np.int64),
        place,
        tiny,
    )
    return functions, place + len(wide)


def new_state(functions: Functions, length: int, unary: list[Array], constant: float, best: Array) -> State:
    """Return the state of a search that has not begun."""
    n = len(functions.dims)
    costs = np.zeros(length)
    costs[0] = constant
    for x, values in enumerate(unary):
        costs[functions.start[x] : functions.start[x + 1]] = values
    return State(
        costs,
        np.zeros(length, dtype=np.int64),
        np.full(length, -1, dtype=np.int64),
        np.empty(4 * length, dtype=np.int64),
        np.empty(4 * length),
        np.ones((3, n), dtype=np.uint8),
        np.ones(len(functions.neighbour)),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.empty((2, int(functions.dims.max(initial=1)))),
        np.zeros(64, dtype=np.int64),
        np.zeros(64, dtype=np.int64),
        np.zeros(64 * int(functions.dims.max(initial=1)), dtype=np.int64),
        np.zeros(64, dtype=np.int64),
        np.zeros(64),
        np.array([0, 0, 0, 0, 0, -1, 0, -1], dtype=np.int64),
        np.array(best, dtype=np.int64),
    )


def grown(state: State) -> State:
    """Return the same state with room for twice the trail and the decisions."""

    def twice(array: Array) -> Array:
        return np.concatenate([array, np.empty_like(array)])

    return state._replace(
        trail_place=twice(state.trail_place),
        trail_value=twice(state.trail_value),
        decision_variable=twice(state.decision_variable),
        decision_first=twice(state.decision_first),
        decision_values=twice(state.decision_values),
        decision_trail=twice(state.decision_trail),
        decision_bound=twice(state.decision_bound),
    )


def nbytes(functions: Functions, state: State) -> int:
    """Bytes of all arrays."""
    return sum(array.nbytes for array in (*functions, *state) if isinstance(array, np.ndarray))
