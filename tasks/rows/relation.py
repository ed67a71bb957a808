"""Tables as rows, tables as dense arrays that rows meet, and the way between both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np

from ..gpu.arrays import is_device
from ..steps.light_dataclass import dataclass
from ..steps.semiring import Semiring
from ..steps.streaming import BLOCK_CELLS
from .keys import Keys, Words
from .row_backend import backend_of


@dataclass(frozen=True, eq=False)
class Relation:
    """The entries of a table that are not zero, on the host or on a device.

    Parameters
    ----------
    keys : Keys
        Variables, most significant first, and their domain sizes.
    words : (rows, keys.n_words) uint64
        Packed states in ascending order, none twice.
    values : (rows,)
        Entries, of the semiring's dtype; the entries of absent rows are the semiring's zero.
    """

    keys: Keys
    words: Any
    values: Any

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Memory of keys and values."""
        return int(self.words.nbytes + self.values.nbytes)

    @property
    def cells(self) -> int:
        """Cells of the table if it was dense."""
        return prod(self.keys.dims)

    def rows(self, which: Any) -> Relation:
        """Return some rows: a slice, a mask, or numbers in ascending order."""
        return replace(self, words=self.words[which], values=self.values[which])


@dataclass(frozen=True, eq=False)
class Dense:
    """A flat C-ordered table, the last variable of `keys` fastest; entries may be zero."""

    keys: Keys
    values: Any

    def __len__(self) -> int:
        return len(self.values)

    @property
    def strides(self) -> list[int]:
        """Cells from one state of each variable to the next."""
        return [*accumulate(self.keys.dims[:0:-1], mul, initial=1)][::-1] if self.keys.dims else []


Table = Relation | Dense


def empty(keys: Keys, like: Any) -> Relation:
    """Return the table whose entries are all zero; its arrays are where `like` is, and of its dtype."""
    there = backend_of(like).arrays
    return Relation(keys, there.zeros((0, keys.n_words), np.uint64), there.zeros(0, like.dtype))


def from_dense(table: Dense, semiring: Semiring, part: slice = slice(None)) -> Relation:
    """Return the rows of a dense table, or of a part of its cells."""
    if type(table.values) is np.ndarray and part == slice(None) and len(table) > BLOCK_CELLS:
        # in blocks that stay in a cache, which take little memory besides
        starts = range(0, len(table), BLOCK_CELLS)
        blocks = [from_dense(table, semiring, slice(start, start + BLOCK_CELLS)) for start in starts]
        words = np.concatenate([block.words for block in blocks])
        return Relation(table.keys, words, np.concatenate([block.values for block in blocks]))
    arrays, keys = backend_of(table.values).arrays, table.keys
    found = arrays.flatnonzero(table.values[part] != semiring.zero)
    if part.start:
        found += part.start
    words = arrays.zeros((len(found), keys.n_words), np.uint64)
    for word, shift, _, stride, dim in _digits(table):
        words[:, word] |= (found // stride % dim).astype(np.uint64) << np.uint64(shift)
    return Relation(keys, words, table.values[found])


def to_dense(relation: Relation, semiring: Semiring) -> Dense:
    """Return the whole table, with the variables in the same order."""
    backend = backend_of(relation.words)
    values = backend.arrays.full(relation.cells, semiring.zero, semiring.dtype)
    table = Dense(relation.keys, values)
    backend.scattered(relation.words, relation.values, gathers(relation.keys, table), values)
    return table


def offsets_of(relation: Relation, table: Dense) -> Any:
    """Return where each row of a relation stands in a dense table of some of its variables, ``(rows,) int64``."""
    return backend_of(relation.words).offsets(relation.words, gathers(relation.keys, table))


def gathers(keys: Keys, table: Dense) -> Words:
    """Return the parts of keys that say where a row stands in a dense table; see :meth:`.rows.keys.Keys.gathers`."""
    return np.array(keys.gathers(table.keys.variables, table.strides), np.uint64).reshape(-1, 4)


def _digits(table: Dense) -> list[tuple[int, int, int, int, int]]:
    """Return (word, shift, bits of the key, stride, domain size) of each variable of a dense table.

    Neighbours whose fields have no gap between them are one: of binary variables all within a word.
    """
    found: list[tuple[int, int, int, int, int]] = []
    for (word, shift, bits), stride, dim in zip(
        table.keys.fields.values(), table.strides, table.keys.dims, strict=True
    ):
        if found and found[-1][0] == word and dim == 1 << bits:
            _, _, before, _, outer = found.pop()
            found.append((word, shift, before + bits, stride, outer * dim))
        else:
            found.append((word, shift, bits, stride, dim))
    return found


def restricted(relation: Relation, states: Mapping[int, int]) -> Relation:
    """Return the rows in which some variables have given states; these variables stay, with one state.

    Variables that the table lacks, or that have one state in it, do not matter.
    """
    keys = relation.keys
    fixed = {v: states[v] for v, d in keys.sizes.items() if d > 1 and v in states}
    if not fixed:
        return relation
    wanted, mask = np.zeros(keys.n_words, np.uint64), ~keys.mask(tuple(fixed))
    for v, state in fixed.items():
        word, shift, _ = keys.fields[v]
        wanted[word] |= np.uint64(state) << np.uint64(shift)
    backend = backend_of(relation.words)
    agree = (relation.words & backend.arrays.asarray(mask)) == backend.arrays.asarray(wanted)
    found = backend.arrays.flatnonzero(agree.all(axis=1))
    target = Keys(keys.variables, tuple([1 if v in fixed else d for v, d in keys.sizes.items()]))
    words = backend.repacked(relation.words[found], keys.moves(target), target.n_words)
    return Relation(target, words, relation.values[found])


def on_host(relation: Relation) -> Relation:
    """Return a relation in the host's memory."""
    if not is_device(relation.words):
        return relation
    return replace(relation, words=relation.words.get(), values=relation.values.get())
