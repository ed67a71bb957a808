"""Rows of one layer of a search, and what happens when one more variable gets its states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .keys import Keys, Words

Costs = NDArray[np.float64]
Origin = NDArray[np.uint32]

#: Expanded rows at a time: their sums and owners stay in the second-level cache.
_BLOCK_CELLS = 4096
_SMALLEST_BLOCK = 16


class Term(Protocol):
    """A table of a layer: flat ``costs (cells,) float64``, C-ordered, the last variable of ``scope`` fastest."""

    @property
    def scope(self) -> tuple[int, ...]:
        """Variables, in the order of their axes."""

    @property
    def costs(self) -> Any:
        """Entries; inf = forbidden."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Distinct keys in ascending order, ``(rows, words) uint64``, and their costs ``(rows,) float64``."""

    keys: Words
    costs: Costs

    def __len__(self) -> int:
        return len(self.costs)


@dataclass(frozen=True, eq=False)
class Layer:
    """What happens when one variable gets its states.

    Parameters
    ----------
    keys, next_keys : Keys
        Layouts before and after; the later one has some of the same variables in the same order, and may have
        `variable` behind them.
    variable, d : int
        The variable, and the size of its domain.
    added : sequence of Term
        Their scopes end with `variable`, the other variables are of `keys`.
    subtracted : sequence of Term
        Bounds that costs already hold; their scopes are of variables of `keys`.
    constant : float
        Subtracted too.
    """

    keys: Keys
    next_keys: Keys
    variable: int
    d: int
    added: Sequence[Term]
    subtracted: Sequence[Term]
    constant: float = 0.0

    @property
    def leaving(self) -> list[int]:
        """Variables that fall out of the key, the last field first."""
        return [v for v in self.keys.variables[::-1] if v not in self.next_keys.fields]

    @property
    def stays(self) -> bool:
        """Whether the new variable is in the new key."""
        return self.variable in self.next_keys.fields

    @property
    def block_rows(self) -> int:
        """Rows that are expanded at a time."""
        return max(_SMALLEST_BLOCK, _BLOCK_CELLS // self.d)

    @property
    def least_room(self) -> int:
        """Rows that what :func:`.rows.next_rows` writes to must at least have room for beyond those it keeps."""
        return (self.block_rows + 1) * self.d + 1


def first_rows(cost: float) -> Rows:
    """Return the one row of no variables."""
    return Rows(np.zeros((1, 1), np.uint64), np.array([float(cost)]))


def lowered(layer: Layer) -> tuple[Words, list[tuple[Term, int, int, int]]]:
    """Return the parts of offsets in a layer's tables, and for each table (term, first part, last part, sign)."""
    dims = dict(zip(layer.keys.variables, layer.keys.dims, strict=True)) | {layer.variable: layer.d}
    parts: list[tuple[int, int, int, int]] = []
    spans = []
    for sign, terms in ((1, layer.added), (-1, layer.subtracted)):
        for term in terms:
            strides = [*accumulate((dims[v] for v in term.scope[:0:-1]), mul, initial=1)][::-1]
            scope = [(v, stride) for v, stride in zip(term.scope, strides, strict=True) if v != layer.variable]
            first = len(parts)
            parts += layer.keys.gathers([v for v, _ in scope], [stride for _, stride in scope])
            spans.append((term, first, len(parts), sign))
    return np.array(parts, np.uint64).reshape(-1, 4), spans
