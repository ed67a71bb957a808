"""Slices of tables: some variables fixed, nothing copied before it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class TableSlice(NamedTuple):
    """Where the cells of a slice lie in a contiguous table, which may be on a device.

    Attributes
    ----------
    table
        The whole table.
    offset
        Cells before the first one of the slice.
    scope, shape, strides
        Variables that are not fixed, states of each, and cells from one state to the next.
    """

    table: Any
    offset: int
    scope: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Cells of the slice."""
        return prod(self.shape)

    @property
    def here(self) -> bool:
        """Whether the table is in the host's memory."""
        return type(self.table) is np.ndarray

    def view(self) -> Array:
        """Return the slice of a table in the host's memory, an axis for each variable."""
        table, size = self.table, self.table.itemsize
        return np.ndarray(self.shape, table.dtype, table, self.offset * size, [s * size for s in self.strides])

    def spread(self, places: Mapping[int, int], shape: Sequence[int]) -> Array:
        """Return the same table with an axis for each of ``places``, one place after the other; along axes that it
        lacks all cells are the same.
        """
        table, size = self.table, self.table.itemsize
        strides = [0] * len(shape)
        for v, stride in zip(self.scope, self.strides, strict=True):
            strides[places[v]] = stride * size
        return np.ndarray(shape, table.dtype, table, self.offset * size, strides)

    def of(self, table: Any) -> TableSlice:
        """Return the same variables of a C-ordered table of this slice's cells."""
        return TableSlice(
            table, 0, self.scope, self.shape, tuple([prod(self.shape[i + 1 :]) for i in range(len(self.shape))])
        )

    def fixed(self, states: Mapping[int, int]) -> TableSlice:
        """Fix the variables that have a state."""
        axes = list(zip(self.scope, self.shape, self.strides, strict=True))
        kept = [axis for axis in axes if axis[0] not in states]
        return TableSlice(
            self.table,
            self.offset + sum([states[v] * stride for v, _, stride in axes if v in states]),
            tuple([v for v, _, _ in kept]),
            tuple([n for _, n, _ in kept]),
            tuple([stride for _, _, stride in kept]),
        )


def slice_of(table: Any, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> TableSlice:
    """Fix the variables of a C-ordered table that have a state; where one has a single cell, it has that for any."""
    offset, stride = 0, 1
    scope, shape, strides = [], [], []
    for v in reversed(axes):
        n = sizes[v]
        state = states.get(v)
        if state is None:
            scope.append(v)
            shape.append(n)
            strides.append(stride)
        elif n > 1:
            offset += state * stride
        stride *= n
    return TableSlice(table, offset, tuple(scope[::-1]), tuple(shape[::-1]), tuple(strides[::-1]))
