"""The parts of tables that belong to slices: those of small tables are taken all at once, by one array of places."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .sweep import restrict

Array = NDArray[Any]

# Of larger tables a copy takes longer than Python does, and places would take more memory than they do.
_SMALL_CELLS: Final = 1 << 12


class SlicedTables:
    """Tables of the host, of which each slice has the cells at its states of some variables.

    Parameters
    ----------
    tables : mapping of int to ndarray
        C-ordered, by node.
    axes : mapping of int to tuple of int
        Variables of each.
    sizes : sequence of int
        Of all variables.
    variables : collection of int
        Those that have one state in a slice.
    """

    def __init__(
        self,
        tables: Mapping[int, Any],
        axes: Mapping[int, Sequence[int]],
        sizes: Sequence[int],
        variables: Collection[int],
    ) -> None:
        self._tables, self._axes, self._sizes = tables, axes, sizes
        small = [n for n, table in tables.items() if type(table) is np.ndarray and table.size <= _SMALL_CELLS]
        if len({tables[n].dtype for n in small}) > 1:
            small = []
        self._small, chosen = small, set(small)
        self._others = [n for n in tables if n not in chosen]
        self._variables = [*variables]
        self._steps = np.zeros((len(self._variables), len(small)), np.intp)
        places, start = list[Array](), 0
        for k, node in enumerate(small):
            places.append(start + self._places(k, axes[node]))
            start += tables[node].size
        counts = [len(each) for each in places]
        ends = np.cumsum([0, *counts]).tolist()
        self._parts = [slice(a, b) for a, b in pairwise(ends)]
        self._owners = np.repeat(np.arange(len(small)), counts)
        self._at = np.concatenate(places) if places else np.zeros(0, np.intp)
        self._cells = np.concatenate([tables[n] for n in small], axis=None) if small else np.zeros(0)

    def _places(self, table: int, axes: Sequence[int]) -> Array:
        """Return where the cells are of a table at the first states; how far apart others are is written down."""
        places, stride = np.zeros(1, np.intp), 1
        for v in reversed(axes):
            size = self._sizes[v]
            if size == 1:
                continue
            if v in self._variables:
                self._steps[self._variables.index(v), table] = stride
            else:
                places = (np.arange(size)[:, np.newaxis] * stride + places).reshape(-1)
            stride *= size
        return places

    def at(self, states: Mapping[int, int]) -> dict[int, Any]:
        """Return the tables of a slice, flat."""
        found = {n: restrict(self._tables[n], self._axes[n], self._sizes, states) for n in self._others}
        if self._small:
            moved = np.array([states[v] for v in self._variables], np.intp) @ self._steps
            cells = self._cells[self._at + moved[self._owners]]
            found.update(zip(self._small, [cells[part] for part in self._parts], strict=True))
        return found
