"""The parts of tables that belong to slices: those of small tables are taken all at once, by one array of places."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.sweep_policy import SweepPolicy
from .sweep import restrict

Array = NDArray[Any]


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
        self._variables, self._taken = [*variables], 0
        self._small, self._others = list[int](), [*tables]

    def _find_places(self) -> None:
        """Find where the cells of small tables are, from now on taken at once."""
        tables, policy = self._tables, SweepPolicy.current()
        small = [n for n, table in tables.items() if type(table) is np.ndarray and table.size <= policy.sliced_cells]
        small.sort(key=lambda n: tables[n].size)
        small = small[: bisect_right([*accumulate(tables[n].size for n in small)], policy.sliced_together)]
        if not small or len({tables[n].dtype for n in small}) > 1:
            return
        chosen = set(small)
        self._small, self._others = small, [n for n in tables if n not in chosen]
        self._steps = np.zeros((len(self._variables), len(small)), np.intp)
        places, start = list[Array](), 0
        for k, node in enumerate(small):
            places.append(start + self._places(k, self._axes[node]))
            start += tables[node].size
        counts = [len(each) for each in places]
        self._parts = [slice(a, b) for a, b in pairwise(np.cumsum([0, *counts]).tolist())]
        self._owners, self._at = np.repeat(np.arange(len(small)), counts), np.concatenate(places)
        self._cells = np.concatenate([tables[n] for n in small], axis=None)

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
        if self._taken == SweepPolicy.current().slices_one_by_one:
            self._find_places()
        self._taken += 1
        found = {n: restrict(self._tables[n], self._axes[n], self._sizes, states) for n in self._others}
        if self._small:
            moved = np.array([states[v] for v in self._variables], np.intp) @ self._steps
            cells = self._cells[self._at + moved[self._owners]]
            found.update(zip(self._small, [cells[part] for part in self._parts], strict=True))
        return found
