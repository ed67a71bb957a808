"""Kept tables one by one, as NumPy goes: nothing to compile, and nothing to copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sweeps.scaled import Scaled
from ..sweeps.sweep import useful_threads
from .kept import SAME, KeptTables

Array = NDArray[Any]

_BLOCK = 1 << 13


class Incremental(KeptTables):
    """Keeps each table as the algebra returned it."""

    compiled = False

    def _set_up(self, leaves: Mapping[int, Scaled]) -> None:
        self._readers: dict[int, list[int]] = {}
        for k, step in enumerate(self._steps):
            for i in step.inputs:
                self._readers.setdefault(i, []).append(k)

    def table(self, node: int) -> Scaled:
        """Return a table, up to date if it was refreshed."""
        return self._tables[node]

    def reset(self, leaves: Mapping[int, Scaled]) -> None:
        """Forget every table but the given leaves."""
        self._tables: dict[int, Scaled] = dict(leaves)
        self._stale = set(range(len(self._steps)))

    def set_leaf(self, node: int, table: Scaled) -> None:
        """Replace a leaf table."""
        self._replace(node, table)

    def _is_stale(self, position: int) -> bool:
        return position in self._stale

    def _restore(self, tables: Mapping[int, Scaled]) -> None:
        self._tables.update(tables)
        self._stale.difference_update(self._position[node] for node in tables)

    def _refresh(self, order: Array, threads: int) -> None:
        if not self._stale:
            return
        for k in order.tolist():
            if k in self._stale:
                step = self._steps[k]
                inputs = [self._tables[i] for i in step.inputs]
                self._stale.discard(k)
                self.computed += 1
                self._replace(step.node, self._algebra.step(step, inputs, useful_threads(step, threads)))

    def _replace(self, node: int, table: Scaled) -> None:
        old = self._tables.get(node)
        readers = self._readers.get(node, ())
        if old is None or not readers or not same_ratios(old, table):
            self._tables[node] = table
            self._stale.update(readers)
        elif not _same_scale(old, table):
            # nobody below sees a factor; only the probability of the evidence does
            self._tables[node] = table
            self._stale.update(k for k in readers if k < self._forward)


def same_ratios(old: Scaled, new: Scaled) -> bool:
    """Whether two tables are multiples of each other, up to rounding."""
    if old.logs or new.logs:
        return old.logs == new.logs and old.values is new.values
    x, y = old.values, new.values
    top, other = x.max(), y.max()
    if top == 0.0 or other == 0.0:
        return bool(top == other)
    # block by block: a table that has changed differs early, and no copy grows
    parts = (slice(i, i + _BLOCK) for i in range(0, x.size, _BLOCK))
    return all(_agree(x[part], other / top, y[part]) for part in parts)


def _agree(x: Array, ratio: float, y: Array) -> bool:
    """Whether ``x * ratio`` is ``y``; an entry that only underflowed is no zero."""
    gap = np.abs(x * ratio - y)
    return bool((gap <= SAME * y).all() and ((x > 0.0) == (y > 0.0)).all())


def _same_scale(old: Scaled, new: Scaled) -> bool:
    """Whether two multiples of each other are equal; exactly, since the scale of all tables adds up."""
    return bool(old.log_scale == new.log_scale and old.values.max() == new.values.max())
