"""Cost shifting between tables that share several variables (SRMP; Kolmogorov, PAMI 2015), compiled.

As :mod:`.srmp`, which shifts between tables and single variables: the total of every assignment stays what it is,
bit for bit, and nothing is ever negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiler.jit import njit
from .flat import Flat, offsets
from .srmp import share_out


@njit(cache=True, nogil=True, error_model="numpy", makes_arrays=True)
def sweep(flat: Any, separators: Any, held: Any, grain: float, constant: float, limit: float, count: int) -> float:
    """Sweep ``count`` times, forwards first, then back and so on.

    Parameters
    ----------
    flat : Flat
        Its costs are not negative, multiples of ``grain``.
    separators : Separators
    held : NDArray
        Costs of the separators' entries, which are in no table.
    grain : float
        A power of two that all costs are multiples of.
    constant, limit : float
        Taken out before; totals above the limit become infinite.

    Returns
    -------
    float
        The constant; inf: nothing is left below the limit.
    """
    first, sides, cells, costs = separators.first, separators.sides, flat.cells, flat.costs
    n, widest, most = len(first) - 1, 0, 0
    for s in range(n):
        widest = max(widest, first[s + 1] - first[s])
        most = max(most, (sides[s + 1] - sides[s]) * (first[s + 1] - first[s]))
    share, gathered = np.empty(widest), np.empty(most)
    for number in range(count):
        way, room = 1 if number % 2 == 0 else 0, limit - constant
        for i in range(n):
            s = i if way == 1 else n - 1 - i
            b, d = first[s], first[s + 1] - first[s]
            before, after = 0, 0
            for k in range(sides[s], sides[s + 1]):
                f, at = separators.table[k], (k - sides[s]) * d
                # SRMP's weights: a cost is divided by the number of tables with an earlier separator, or with a later
                # one, whichever is larger.
                before += not separators.ends[0, k]
                after += not separators.ends[1, k]
                _least(costs, cells[f], cells[f + 1], separators.entry, separators.begin[k], d, gathered, at)
                for a in range(d):
                    held[b + a] += gathered[at + a]
            least = np.inf
            for a in range(d):
                least = min(least, held[b + a])
            constant += least
            if not constant <= limit:
                return np.inf
            share_out(held, b, d, least, room, max(before, after), after if way == 1 else before, grain, share)
            for k in range(sides[s], sides[s + 1]):
                f, at = separators.table[k], (k - sides[s]) * d
                for a in range(d):
                    back = -gathered[at + a] if gathered[at + a] < np.inf else 0.0
                    gathered[at + a] = back if separators.ends[way, k] else back + share[a]
                _add(costs, cells[f], cells[f + 1], separators.entry, separators.begin[k], gathered, at, room)
    return constant


@njit(nogil=True, error_model="numpy")
def _least(costs: Any, begin: int, end: int, entry: Any, shift: int, d: int, least: Any, at: int) -> None:
    """Write the least cost of each entry to ``least[at:]``."""
    for a in range(d):
        least[at + a] = np.inf
    for p in range(end - begin):
        e = at + entry[shift + p]
        cost = costs[begin + p]
        least[e] = cost if cost < least[e] else least[e]


@njit(nogil=True, error_model="numpy")
def _add(costs: Any, begin: int, end: int, entry: Any, shift: int, change: Any, at: int, room: float) -> None:
    """Add ``change[at:]`` to the entries; forbid what is then above the room."""
    for p in range(end - begin):
        cost = costs[begin + p] + change[at + entry[shift + p]]
        costs[begin + p] = cost if cost <= room else np.inf


@njit(cache=True, nogil=True)
def settle(flat: Any, separators: Any, held: Any, room: float) -> None:
    """Give what separators hold to one table each."""
    first, sides, cells = separators.first, separators.sides, flat.cells
    for s in range(len(first) - 1):
        k, b = sides[s], first[s]
        f, d = separators.table[k], first[s + 1] - b
        _add(flat.costs, cells[f], cells[f + 1], separators.entry, separators.begin[k], held, b, room)
        for a in range(d):
            held[b + a] = 0.0


# The agreement between clusters of variables, as arrays: which cells of a cluster belong to which entry.


class Separators(NamedTuple):
    """Sets of variables that several tables have; an *entry* is one assignment of them, a *side* one of the tables.

    Parameters
    ----------
    first : NDArray
        (separators + 1,) where a separator's entries begin.
    sides : NDArray
        (separators + 1,) where a separator's sides begin.
    table : NDArray
        Of each side: its table.
    begin, entry : NDArray
        Where a side's part of ``entry`` begins, which has for each cell of its table the entry that it belongs to.
    ends : NDArray
        (2, sides): whether the separator is the first, the last of the table's.
    """

    first: Any
    sides: Any
    table: Any
    begin: Any
    entry: Any
    ends: Any


def separators_of(flat: Flat, scopes: Sequence[Sequence[int]]) -> Separators:
    """Lay separators out, in this order; a side is each table with all their variables."""
    dims, edges = flat.dims, flat.edges.tolist()
    places = [{int(v): i for i, v in enumerate(flat.scope[a:b])} for a, b in pairwise(edges)]
    around = [flat.function[flat.incident[a:b]].tolist() for a, b in pairwise(flat.around.tolist())]
    maps: dict[tuple[int, ...], int] = {}
    entries: list[NDArray[np.int32]] = []
    sides, tables, begins, length = [0], list[int](), list[int](), 0
    for scope in scopes:
        for f in sorted(set(around[scope[0]]).intersection(*(around[v] for v in scope[1:]))):
            shape = tuple(dims[flat.scope[edges[f] : edges[f + 1]]].tolist())
            key = (*(places[f][v] for v in scope), -1, *shape)
            if key not in maps:
                maps[key] = length
                entries.append(_entries(shape, key[: len(scope)]))
                length += len(entries[-1])
            tables.append(f)
            begins.append(maps[key])
        sides.append(len(tables))
    sizes = np.array([int(np.prod(dims[list(scope)])) for scope in scopes], np.int64)
    table = np.array(tables, np.int64)
    joined = np.concatenate(entries) if entries else np.empty(0, np.int32)
    return Separators(offsets(sizes), np.array(sides), table, np.array(begins, np.int64), joined, _ends(table))


def _entries(shape: Sequence[int], axes: Sequence[int]) -> NDArray[np.int32]:
    """The entry of each cell of a table, for a separator that consists of some of its axes."""
    numbers = np.arange(int(np.prod([shape[axis] for axis in axes])), dtype=np.int32)
    numbers = numbers.reshape([shape[axis] for axis in axes]).transpose(np.argsort(axes))
    spread = numbers.reshape([shape[axis] if axis in axes else 1 for axis in range(len(shape))])
    return np.ascontiguousarray(np.broadcast_to(spread, shape)).reshape(-1)


def _ends(table: NDArray[np.int64]) -> NDArray[np.bool_]:
    ends = np.zeros((2, len(table)), np.bool_)
    for side, order in enumerate((np.arange(len(table)), np.arange(len(table))[::-1])):
        _, places = np.unique(table[order], return_index=True)
        ends[side, order[places]] = True
    return ends
