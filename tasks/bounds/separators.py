"""What clusters of variables have to agree on, as arrays: which cells of a cluster belong to which entry."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tables import Flat, offsets


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
    """The entry of each cell of a table, for a separator of these of its axes."""
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
