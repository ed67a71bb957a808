"""The state of a branch and bound: one array of int64, so that compiled loops pass few arguments.

It begins with numbers that everybody needs, then come regions of records. A record is known by its place: field
``DIM`` of variable ``x`` is ``s[x + DIM]``. Costs are integers of up to 2**53, and ``INF`` for what is forbidden.
They live in tables that never change, an array of their own, and in the region of costs that do: a cost for each value
of each variable (INF = removed), and for each table what was moved out of it to the values of each of its variables.
What a table costs at ``(a, b)`` is its entry less the moved amounts of ``a`` and ``b``. This region is in blocks, the
values of a variable or the amounts moved to them from one table: a block that changes is saved once a node, and
backtracking restores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..steps.number_limits import EXACT_INTEGER, FAR_INTEGER
from ..steps.streaming import BLOCK_CELLS

Array = NDArray[Any]

#: Forbidden. After costs were moved out of it, or when a few of them are added, it is still at least ``ENDLESS``; no
#: total cost is.
INF = FAR_INTEGER // 4
ENDLESS = INF // 4
#: The whole tree below an open node. Smaller parts are integers.
ONE = EXACT_INTEGER // 2

#: The cost of everything, and what the search counts and remembers; 1 in EVERY if every assignment below the cut-off is
#: asked for, not only better ones. SHARE is the part of the tree below the present node, in parts of ONE.
CONSTANT, STAMP, TRAIL, SAVED, DEPTH, NODES, BACKTRACKS = range(7)
LAST_CONFLICT, STARTED, CAUSE, TINY, REST_CELLS, EVERY, SHARE = range(7, 14)
#: Where regions begin, each ends where the next begins.
VARIABLES, PAIRS, WIDE, AXES, USES, COSTS, HINTS, WORK, REST, DECISIONS, CHOSEN, TRAILS, SAVES, END = range(14, 28)

#: Its values are at START, its pairs FIRST to LAST, its tables of three or more variables FIRST_WIDE to LAST_WIDE of
#: the uses. Costs are moved to the smaller RANK; the records' BY_RANK list variables in that order. SUPPORT is a value
#: that costs nothing with some values of the neighbours, LEFT the number of values, BEST the value in the best
#: assignment, AT a place in a loop over combinations; three flags say what it has to be made consistent by.
START, DIM, FIRST, LAST, FIRST_WIDE, LAST_WIDE, RANK, BY_RANK = range(8)
SUPPORT, LEFT, BEST, CHANGED, ARC, DIRECTED, EXISTENTIAL, AT, VARIABLE = range(8, 17)
#: A pair of a variable and a NEIGHBOUR, stored both ways (MIRROR is the other one). Its TABLE is a place in the
#: entries, a row a value of the variable; MOVED is where the amounts moved to these values are, BACK those moved to
#: the neighbour's, HINT the neighbour's values that were cheapest. WEIGHT counts the conflicts it caused,
#: MOVES is the stamp of when MOVED was saved last.
NEIGHBOUR, TABLE, MOVED, BACK, HINT, MIRROR, WEIGHT, MOVES, PAIR = range(9)
#: A function of three or more variables: axes FROM to TO, its TABLE; whether it is to be projected.
FROM, _, TO, FLAG, FUNCTION = range(5)  # TABLE is 1
#: One of its variables, with MOVED and MOVES as in a pair.
OF, STRIDE = range(2)
AXIS = MOVES + 1
#: A saved block: its place, where it is among what is saved, and its variable if it holds a variable's costs, or -1.
PLACE, KEPT, LENGTH, WHOSE, SAVE = range(5)
#: The variable was left the values from HEAD of the chosen on; the length of the trail and the constant before, and the
#: SHARE of the assignments with its other values.
DECIDED, HEAD, BEFORE, BOUND, OTHERS, DECISION = range(6)


#: At most this number of open variables and of their values is enumerated.
REST_VARIABLES, REST_VALUES = 24, 128


class State(NamedTuple):
    """A search: its memory, and the entries of the tables."""

    memory: Array
    entries: Array


def integers(costs: Array) -> Array:
    """Return costs in float64, infinite where forbidden, as int64."""
    return np.where(np.isfinite(costs), costs, float(INF)).astype(np.int64)


def joined_integers(tables: Sequence[Array]) -> Array:
    """Return the entries of tables as integers, flat, one table after another.

    Small tables are converted together, and temporary arrays are never much larger than the largest table.
    """
    entries = np.empty(sum([table.size for table in tables]), dtype=np.int64)
    begin, some, cells = 0, list[Array](), 0
    for table in tables:
        if cells and cells + table.size > BLOCK_CELLS:
            entries[begin : begin + cells] = integers(np.concatenate(some, axis=None))
            begin, some, cells = begin + cells, [], 0
        some.append(table)
        cells += table.size
    if cells:
        entries[begin:] = integers(np.concatenate(some, axis=None))
    return entries


class _Layout:
    """Hands out places in the entries and in the costs."""

    def __init__(self) -> None:
        self.tables: list[Array] = []
        self.n_entries = self.n_costs = 0

    def table(self, costs: Array) -> int:
        """Add a table; return where it begins."""
        self.tables.append(costs)
        self.n_entries += costs.size
        return self.n_entries - costs.size

    def block(self, dim: int) -> int:
        """Add costs; return where they begin."""
        self.n_costs += dim
        return self.n_costs - dim

    @property
    def entries(self) -> Array:
        """The entries of all tables, one table after another."""
        return joined_integers(self.tables) if self.tables else np.zeros(1, dtype=np.int64)


def _records(rows: Iterable[Sequence[int]], size: int) -> Array:
    return np.array(list(rows), dtype=np.int64).reshape(-1, size)


def _pairs(pairs: dict[tuple[int, int], Array], layout: _Layout, n: int) -> tuple[Array, Array]:
    """Return the pairs grouped by variable, and the number of pairs of each variable; places count from zero."""
    # each pair has two adjacent records: one for its first variable, and one for its second variable
    own = _records(pairs, 2).reshape(-1)
    dims = _records([costs.shape for costs in pairs.values()], 2).reshape(-1)
    tables = [layout.table(table) for costs in pairs.values() for table in (costs, costs.T)]
    moved = layout.block(int(dims.sum())) + np.cumsum(dims) - dims
    mirror = np.arange(len(own)) ^ 1
    order = np.argsort(own, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(own))
    records = np.ones((len(own), PAIR), dtype=np.int64)
    records[:, NEIGHBOUR], records[:, TABLE], records[:, MOVED] = own[mirror], tables, moved
    records[:, BACK], records[:, HINT], records[:, MIRROR] = moved[mirror], moved, places[mirror]
    records[:, MOVES] = -1
    return records[order], np.bincount(own, minlength=n)


def _wide(wide: list[tuple[tuple[int, ...], Array]], layout: _Layout, n: int) -> tuple[Array, Array, list[list[int]]]:
    """Return functions, their axes, and the functions of each variable; places count from zero."""
    functions, axes = list[tuple[int, ...]](), list[tuple[int, ...]]()
    uses: list[list[int]] = [[] for _ in range(n)]
    for f, (scope, costs) in enumerate(wide):
        functions.append((len(axes), layout.table(costs), len(axes) + len(scope), 1))
        strides = [int(stride) for stride in np.cumprod([1, *costs.shape[:0:-1]])[::-1]]
        axes += [
            (x, stride, layout.block(d), 0, 0, 0, 0, -1)
            for x, stride, d in zip(scope, strides, costs.shape, strict=True)
        ]
        for x in scope:
            uses[x].append(f)
    return _records(functions, FUNCTION), _records(axes, AXIS), uses


def _variables(unary: list[Array], rank: Array, layout: _Layout) -> Array:
    """Return the variables without their pairs and functions; places count from zero."""
    records = np.zeros((len(unary), VARIABLE), dtype=np.int64)
    records[:, START] = [layout.block(len(costs)) for costs in unary]
    records[:, DIM] = [len(costs) for costs in unary]
    records[:, RANK], records[:, BY_RANK], records[:, BEST] = rank, np.argsort(rank), -1
    records[:, LEFT] = [int(np.isfinite(costs).sum()) for costs in unary]
    records[:, CHANGED] = -1
    records[:, [ARC, DIRECTED, EXISTENTIAL]] = 1
    return records


def new_state(
    unary: list[Array],
    pairs: dict[tuple[int, int], Array],
    wide: list[tuple[tuple[int, ...], Array]],
    constant: int,
    rank: Array,
    tiny: int = 0,
) -> State:
    """Lay a problem out; no cost may be negative.

    Parameters
    ----------
    unary : list of ndarray
        Costs of the values of each variable.
    pairs : dict
        ``(x, y)`` with ``x < y`` → costs, shape ``(dims[x], dims[y])``.
    wide : list of (scope, costs)
        Functions of three or more variables.
    rank : ndarray of int
        Costs are moved to the variable of the smaller rank.
    tiny : int
        Moves of at most this are not worth propagating.
    """
    layout, n = _Layout(), len(unary)
    variables = _variables(unary, rank, layout)
    pair_records, n_pairs = _pairs(pairs, layout, n)
    functions, axes, uses = _wide(wide, layout, n)
    n_uses = [len(found) for found in uses]
    n_values, blocks = sum(len(costs) for costs in unary), n + len(pair_records) + len(axes)
    widest = max((len(costs) for costs in unary), default=1)
    # Records count places from zero until all sizes are known; then they are moved to their regions.
    sizes = [END + 1, variables.size, pair_records.size, functions.size, axes.size, sum(n_uses), layout.n_costs]
    sizes += [
        layout.n_costs,
        3 * widest,
        _rest_size(),
        64 * DECISION,
        64 * widest,
        4 * SAVE * blocks,
        4 * layout.n_costs,
    ]
    places = np.cumsum(sizes)
    memory = np.zeros(places[-1], dtype=np.int64)
    memory[VARIABLES : END + 1] = places
    memory[[CONSTANT, LAST_CONFLICT, CAUSE, TINY, REST_CELLS, SHARE]] = constant, -1, -1, tiny, 1 << 14, ONE
    at = dict(zip(range(VARIABLES, END + 1), places.tolist(), strict=True))
    variables[:, START] += at[COSTS]
    variables[:, FIRST : LAST + 1] = at[PAIRS] + PAIR * _ranges(n_pairs)
    variables[:, FIRST_WIDE : LAST_WIDE + 1] = at[USES] + _ranges(n_uses)
    variables[:, BY_RANK] = at[VARIABLES] + VARIABLE * variables[:, BY_RANK]
    for records in (pair_records, axes):
        records[:, NEIGHBOUR] = at[VARIABLES] + VARIABLE * records[:, NEIGHBOUR]
        records[:, MOVED] += at[COSTS]
    pair_records[:, BACK] += at[COSTS]
    pair_records[:, HINT] += at[HINTS]
    pair_records[:, MIRROR] = at[PAIRS] + PAIR * pair_records[:, MIRROR]
    functions[:, [FROM, TO]] = at[AXES] + AXIS * functions[:, [FROM, TO]]
    for place, records in ((VARIABLES, variables), (PAIRS, pair_records), (WIDE, functions), (AXES, axes)):
        memory[at[place] : at[place] + records.size] = records.reshape(-1)
    memory[at[USES] : at[COSTS]] = [at[WIDE] + FUNCTION * f for found in uses for f in found]
    memory[at[COSTS] : at[COSTS] + n_values] = integers(np.concatenate(unary)) if unary else []
    return State(memory, layout.entries)


def _rest_size() -> int:
    """Numbers that the enumeration of a few open variables needs: see :mod:`.enumeration`."""
    return REST_VALUES * (REST_VALUES + REST_VARIABLES + 1) + 5 * REST_VARIABLES + 1


def _ranges(counts: Array | list[int]) -> Array:
    """Return where each begins and ends, one after the other; shape (number, 2)."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.stack([ends - counts, ends], axis=1)


def bests(state: State) -> Array:
    """The values of the best assignment; a view."""
    variables = state.memory[state.memory[VARIABLES] : state.memory[PAIRS]]
    return variables.reshape(-1, VARIABLE)[:, BEST]


def root_of(state: State) -> Array:
    """Return the constant and the costs."""
    memory = state.memory
    return np.concatenate([memory[CONSTANT : CONSTANT + 1], memory[memory[COSTS] : memory[HINTS]]])


def grown(state: State) -> State:
    """Return the same state with room for twice the decisions and the trail, which takes no memory yet."""
    old = state.memory
    regions = [old[old[place] : old[place + 1]] for place in range(DECISIONS, END)]
    ends = int(old[DECISIONS]) + np.cumsum([2 * len(region) for region in regions])
    memory = np.zeros(ends[-1], dtype=np.int64)
    memory[: old[DECISIONS]] = old[: old[DECISIONS]]
    for region, end in zip(regions, ends.tolist(), strict=True):
        memory[end - 2 * len(region) : end - len(region)] = region
    memory[DECISIONS + 1 : END + 1] = ends
    return State(memory, state.entries)


def nbytes(state: State) -> int:
    """Bytes of both arrays."""
    return state.memory.nbytes + state.entries.nbytes


def least_costs(s: Array, entries: Array, f: int, kept: int) -> None:
    """Find the least cost of a function with each value of a variable, in NumPy; see :func:`.costs.least_costs`.

    Searches that run in the interpreter use it.
    """
    memory, table = np.asarray(s), np.asarray(entries)
    cells, moved = np.array([s[f + TABLE]], np.int64), np.zeros(1, np.int64)
    for axis in range(s[f + FROM], s[f + TO], AXIS):
        if axis != kept:
            start, stop = s[s[axis + OF] + START], s[s[axis + OF] + START] + s[s[axis + OF] + DIM]
            values = np.flatnonzero(memory[start:stop] < INF)
            cells = np.add.outer(cells, values * s[axis + STRIDE]).reshape(-1)
            moved = np.add.outer(moved, memory[s[axis + MOVED] + values]).reshape(-1)
    d = s[s[kept + OF] + DIM]
    sums = table[np.add.outer(cells, s[kept + STRIDE] * np.arange(d))] - moved[:, None]
    memory[s[WORK] : s[WORK] + d] = sums.min(axis=0, initial=INF)
