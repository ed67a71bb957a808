"""Sizes of sets of variables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log2
from typing import Final

#: A table of sizes is begun anew when it has so many.
_REMEMBERED: Final = 1 << 15


class Sizer:
    """Sizes of sets of variables given as bit sets."""

    def __init__(self, dims: Sequence[int]) -> None:
        classes: dict[int, int] = {}
        for v, d in enumerate(dims):
            classes[d] = classes.get(d, 0) | 1 << v
        self._classes = [(d, log2(d), mask) for d, mask in classes.items() if d > 1]
        self.wide = sum(mask for *_, mask in self._classes)
        """The variables of more than one state."""
        self._cells: dict[int, int] = {}

    def log(self, mask: int) -> float:
        """Return the log2 size."""
        size = 0.0
        for _, each, members in self._classes:
            size += each * (mask & members).bit_count()
        return size

    def cells(self, mask: int) -> int:
        """Return the exact size."""
        size = self._cells.get(mask)
        if size is None:
            if len(self._cells) >= _REMEMBERED:
                self._cells.clear()
            size = self._cells[mask] = self._counted(mask)
        return size

    def _counted(self, mask: int) -> int:
        size = 1
        for d, _, members in self._classes:
            if few := mask & members:
                size *= d ** few.bit_count()
        return size


@lru_cache(maxsize=4)
def sizer_of(dims: tuple[int, ...]) -> Sizer:
    """Return the sizes of a network, which the prices of all its trees share: most of their tables are the same."""
    return Sizer(dims)
