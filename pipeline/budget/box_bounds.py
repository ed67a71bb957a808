"""Bytes of tables inside boxes, and what a box needs at least, before its steps are lowered for its sizes. Pure.

A cycle of four variables of ten states: the first of two messages has 100 values of 8 bytes, and loses its axis of ten
where boxes fix one of its variables.

>>> from bucketflow.pipeline.trees.tree import bucket_tree
>>> tables = Tables(bucket_tree((10,) * 4, ((0, 1), (1, 2), (2, 3), (0, 3)), order=(0, 1, 2, 3)), itemsize=8)
>>> [tables.inside(boxed)[4] for boxed in ((), (1,), (2,))]
[800, 80, 800]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.bit_sets import bits_of, mask_of
from ...tasks.steps.step import Step
from ...tasks.sweeps.sweep import freed_tables
from ..trees.tree import Tree

# Bounds are sums of rounded numbers.
_ROUNDED = 1e-9
# Tables are as large as this power of 2 times what there is, at most: sums of more would lose small ones.
_MOST_LOG = 2.0


class Inside(dict[int, int]):
    """Bytes of the tables of a tree inside boxes that fix some variables."""

    def __init__(self, tree: Tree, itemsize: int, boxed: Sequence[int]) -> None:
        super().__init__()
        self._tree, self._itemsize, self._mask = tree, itemsize, mask_of(boxed)
        self._divisors = {0: 1}

    def __missing__(self, node: int) -> int:
        common = self._tree.scope_masks[node] & self._mask
        divisor = self._divisors.get(common)
        if divisor is None:
            divisor = self._divisors[common] = prod([self._tree.dims[v] for v in bits_of(common)])
        size = self[node] = self._tree.cells[node] * self._itemsize // divisor
        return size


@dataclass(frozen=True)
class Tables:
    """The tables of a tree, whose steps are stages."""

    tree: Tree
    itemsize: int

    def inside(self, boxed: Sequence[int]) -> Inside:
        """Return the bytes of tables inside boxes."""
        return Inside(self.tree, self.itemsize, boxed)

    def leaves_of(self, steps: Sequence[Step]) -> set[int]:
        """Return the leaves that some steps read."""
        first = self.tree.n_leaves
        return {i for step in steps for i in step.inputs if i < first}

    @cached_property
    def _holders(self) -> list[list[int]]:
        """The tables that have a variable."""
        found: list[list[int]] = [[] for _ in self.tree.dims]
        for node, scope in enumerate(self.tree.scopes):
            for v in scope:
                found[v].append(node)
        return found

    @cached_property
    def _logs(self) -> NDArray[np.float64]:
        """log2 of the bytes of each table."""
        return np.array([log2(cells) for cells in self.tree.cells]) + log2(self.itemsize)

    def fewest_boxed(
        self, head: int, steps: Sequence[Step], inputs: Sequence[int], candidates: Sequence[int], available: int
    ) -> int:
        """Return how many of the candidates, in their order, boxes have to fix at least, all of them if none fits.

        Parameters
        ----------
        available : int
            Bytes for what a box reads, makes and writes, whatever its steps are lowered to.
        """
        if not candidates:
            return 0
        nodes, leaves = [step.node for step in steps], self.leaves_of(steps)
        tables = [*nodes, *leaves, *inputs]
        size = self._sizes(tables, candidates, available)
        made, rest = size[: len(nodes)], size[len(nodes) :]
        place = {node: i for i, node in enumerate(nodes)}
        gone = [(i, place[node]) for i, freed in enumerate(freed_tables(steps, ())) for node in freed if node in place]
        freed = np.zeros_like(made)
        at, which = np.array(gone, dtype=np.intp).reshape(-1, 2).T
        np.add.at(freed, at, made[which])
        peak = (np.cumsum(made, axis=0) - np.cumsum(freed, axis=0) + freed).max(axis=0)
        read = rest[len(leaves) :]
        moving = read.sum(axis=0) + 2 * read.max(axis=0, initial=0.0)
        if head >= 0:
            moving = np.maximum(moving, made[place[head]])
        needed = peak + rest.sum(axis=0) + moving
        fits = np.flatnonzero(needed <= available * (1 + _ROUNDED))
        return int(fits[0]) if len(fits) else len(candidates)

    def _sizes(self, tables: Sequence[int], candidates: Sequence[int], available: int) -> NDArray[np.float64]:
        """Bytes of tables by the number of candidates that are fixed."""
        dims = self.tree.dims
        place = {table: i for i, table in enumerate(tables)}
        logs = np.zeros((len(tables), len(candidates) + 1))
        logs[:, 0] = self._logs[tables]
        for k, v in enumerate(candidates, 1):
            logs[[place[table] for table in self._holders[v] if table in place], k] = -log2(dims[v])
        most = log2(max(available, 1)) + _MOST_LOG
        return np.exp2(np.minimum(np.cumsum(logs, axis=1), most))
