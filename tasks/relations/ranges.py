"""Rows within ranges of states, and what runs of such rows are together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..rows.keys import Keys, Words
from ..steps.semiring import Semiring
from .ordering import concatenated, merged, moved
from .relation import Dense, Relation, Table

Ranges = Mapping[int, tuple[int, int]]
"""For some variables the first state and the one behind the last; others may have any."""


def inside(keys: Keys, words: Words, ranges: Ranges) -> NDArray[np.bool_]:
    """Return which keys have all states within ranges, ``(rows,)``."""
    found = np.ones(len(words), bool)
    for v, (first, stop) in ranges.items():
        if v in keys.fields:
            word, shift, bits = keys.fields[v]
            states = words[:, word] >> np.uint64(shift) & np.uint64((1 << bits) - 1)
            found &= (states >= np.uint64(first)) & (states < np.uint64(stop))
    return found


def within(table: Table, ranges: Ranges) -> Table:
    """Return the part of a table of the host within ranges, whose states count from there."""
    keys = part_of(table.keys, ranges)
    if keys == table.keys:
        return table
    if isinstance(table, Dense):
        place = tuple([slice(*ranges.get(v, (0, d))) for v, d in table.keys.sizes.items()])
        return Dense(keys, np.ascontiguousarray(table.values.reshape(table.keys.dims)[place]).reshape(-1))
    found = inside(table.keys, table.words, ranges)
    rows = table if bool(found.all()) else table.rows(found)
    return Relation(keys, moved(rows.words - _origin(table.keys, ranges), table.keys, keys), rows.values)


def put_back(part: Relation, keys: Keys, ranges: Ranges) -> Relation:
    """Return rows of :func:`within` with the states of the whole table, whose keys are given."""
    if part.keys == keys:
        return part
    return replace(part, keys=keys, words=moved(part.words, part.keys, keys) + _origin(keys, ranges))


def part_of(keys: Keys, ranges: Ranges) -> Keys:
    """Return the layout of a table within ranges."""
    own = [ranges.get(v, (0, d)) for v, d in keys.sizes.items()]
    return Keys(keys.variables, tuple([stop - first for first, stop in own]))


def _origin(keys: Keys, ranges: Ranges) -> Words:
    """Return the key of the first states of ranges."""
    return ends(keys, ranges)[0]


def ends(keys: Keys, ranges: Ranges) -> tuple[Words, Words]:
    """Return keys, ``(1, words)`` each, between which all rows within ranges are, both included."""
    own = [ranges.get(v, (0, d)) for v, d in zip(keys.variables, keys.dims, strict=True)]
    low, high = (np.array(states, np.int64).reshape(-1, 1) for states in ([a for a, _ in own], [b - 1 for _, b in own]))
    return keys.pack(low), keys.pack(high)


def union(runs: Sequence[Relation], semiring: Semiring) -> Relation:
    """Return the sum of sorted runs of one layout, of the host; those that follow each other are only put together.

    Raises
    ------
    ValueError
        If there are no runs.
    """
    if not runs:
        raise ValueError("nothing to unite")
    parts = sorted([run for run in runs if len(run)], key=lambda run: run.words[0].tolist())
    if not parts:
        return runs[0]
    if all(a.words[-1].tolist() < b.words[0].tolist() for a, b in pairwise(parts)):
        return concatenated(parts)
    return merged(parts, semiring)
