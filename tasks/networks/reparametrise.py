"""The loops over a network of costs, by whatever is quicker: compiled, or in NumPy while there is little to do.

Dead-end elimination and arc consistency in NumPy are here; the sweeps of messages in NumPy are in `srmp_numpy`.
Variables are eliminated by compiled loops here; callers do it in NumPy while these loops are not worth loading.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from ..compiler.code_cache import Patience
from ..compiler.compile_limits import compiled_or
from ..steps.streaming import BLOCK_CELLS
from .flat import Costs, Flags, Flat, Integers
from .srmp_numpy import Level, decode, forbid_tuples, level_numbers, levels_of, shift_back, sweep

if TYPE_CHECKING:
    from .elimination_loops import Eliminated

# NumPy's seconds for a level of a sweep, for a cell, and for a variable or an axis of a function.
_LEVEL_SECONDS: Final = 8e-5
_CELL_SECONDS: Final = 1e-8
_VARIABLE_SECONDS: Final = 2e-5
# Tables with more cells, counted once an axis, are not taken apart in NumPy.
_LARGEST_CELLS: Final = 1 << 21
# Sweeps until the bound stalls: seldom fewer.
_LIKELY_SWEEPS: Final = 300

_PATIENCE = Patience("tasks.networks.srmp", "sweep", compiling=6.0)
_ELIMINATING = Patience("tasks.networks.elimination_loops", "eliminate")


def eliminate(flat: Flat, unary: Costs, first: Integers, most_cells: int, small_cells: int) -> Eliminated | None:
    """Eliminate variables of small degree; see :func:`.elimination_loops.eliminate`.

    Returns
    -------
    Eliminated or None
        None while NumPy had better do it, or if a variable has more values than a byte holds.
    """
    many = flat.dims.max(initial=0) > np.iinfo(np.uint8).max + 1
    if many or not _ELIMINATING.ends(_VARIABLE_SECONDS * len(first)):
        return None
    from . import elimination_loops as loops

    given = flat, unary, first, most_cells, small_cells
    return compiled_or(lambda: loops.Eliminated(*loops.eliminate(*given)), lambda: None)


def remove_dominated(flat: Flat, pending: Flags, most_work: int) -> tuple[int, int, int, int]:
    """Remove values without support and values that are never better; see :func:`.dead_end_loops.remove_dominated`."""
    work = int(np.diff(flat.cells)[flat.function] @ flat.dims[flat.scope])
    if _PATIENCE.ends(_VARIABLE_SECONDS * len(flat.scope) + _CELL_SECONDS * work):
        from . import dead_end_loops

        found: tuple[int, int, int, int] = compiled_or(
            lambda: dead_end_loops.remove_dominated(flat, pending, most_work),
            lambda: remove_dominated_in_numpy(flat, pending, most_work),
        )
        return found
    return remove_dominated_in_numpy(flat, pending, most_work)


def remove_dominated_in_numpy(flat: Flat, pending: Flags, most_work: int) -> tuple[int, int, int, int]:
    """Do the same in NumPy, for networks that are too small to wait for a compiler."""
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
    step = max(1, BLOCK_CELLS // rows.shape[1])
    for a in range(0, len(one), step):
        own = rows[one[a : a + step]]
        more = np.where(own < np.inf, rows[other[a : a + step]] - own, 0.0)
        worst[a : a + step] = np.maximum.reduce(more, axis=1, initial=0.0)
    return worst


class Loops:
    """Sweeps over the functions of one structure, for any costs.

    Parameters
    ----------
    flat : Flat
    order, ends, shift : NDArray
        See :func:`.srmp.sweep`.
    """

    def __init__(self, flat: Flat, order: Integers, ends: Flags, shift: Integers) -> None:
        self._flat, self._order, self._ends, self._shift = flat, order, ends, shift
        self._cells = int(np.diff(flat.cells) @ np.diff(flat.edges))

    @cached_property
    def _numbers(self) -> Integers:
        return level_numbers(self._flat, self._order)

    @cached_property
    def _levels(self) -> tuple[Level, ...]:
        return levels_of(self._flat, self._numbers, self._ends, self._shift)

    def _compiled(self, rounds: int) -> bool:
        """Whether rounds over all levels had better be compiled."""
        if self._cells > _LARGEST_CELLS:
            return _PATIENCE.ends(np.inf)
        levels = int(self._numbers.max(initial=0))
        of_round = _LEVEL_SECONDS * levels + _CELL_SECONDS * self._cells
        return _PATIENCE.ends(rounds * of_round, _LIKELY_SWEEPS * of_round)

    def sweep(
        self, flat: Flat, shifts: Costs, grain: float, constant: float, limit: float, count: int
    ) -> tuple[float, int, int]:
        """See :func:`.srmp.sweep`."""
        if not self._compiled(count):
            return sweep(flat, self._levels, shifts, grain, constant, limit, count)
        from . import srmp

        limits = float(grain), float(constant), float(limit), count  # of one type, so that the loop is compiled once
        found: tuple[float, int, int] = compiled_or(
            lambda: srmp.sweep(flat, self._order, self._ends, shifts, self._shift, *limits),
            lambda: sweep(flat, self._levels, shifts, *limits),
        )
        return found

    def forbid_tuples(self, flat: Flat, room: float) -> int:
        """See :func:`.srmp.forbid_tuples`."""
        if not self._compiled(1):
            return forbid_tuples(flat, self._levels, room)
        from . import srmp

        found: int = compiled_or(
            lambda: srmp.forbid_tuples(flat, room), lambda: forbid_tuples(flat, self._levels, room)
        )
        return found

    def shift_back(self, flat: Flat, shifts: Costs) -> None:
        """See :func:`.srmp.shift_back`."""
        if not self._compiled(1):
            shift_back(flat, self._levels, shifts)
            return
        from . import srmp

        compiled_or(lambda: srmp.shift_back(flat, shifts, self._shift), lambda: shift_back(flat, self._levels, shifts))

    def decode(self, flat: Flat, order: Integers, states: Integers) -> None:
        """See :func:`.srmp.decode`."""
        edges = len(flat.scope) if (states < 0).any() else 0
        if not _PATIENCE.ends(_VARIABLE_SECONDS * (len(states) + edges)):
            decode(flat, order, states)
            return
        from . import srmp

        compiled_or(lambda: srmp.decode(flat, np.ascontiguousarray(order), states), lambda: decode(flat, order, states))
