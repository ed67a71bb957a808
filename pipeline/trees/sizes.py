"""Sizes of sets of variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import log2

from ...tasks.steps.bit_sets import Sizes, alike


class Sizer:
    """Sizes of sets of variables given as bit sets."""

    def __init__(self, dims: Sequence[int]) -> None:
        self._classes = [(log2(d), mask) for d, mask in alike(dims).items() if d > 1]
        self.wide = sum(mask for _, mask in self._classes)
        """The variables of more than one state."""
        self.cells: Callable[[int], int] = Sizes(dims).__getitem__
        """Returns the exact size."""

    def log(self, mask: int) -> float:
        """Return the log2 size."""
        size = 0.0
        for each, members in self._classes:
            size += each * (mask & members).bit_count()
        return size


@lru_cache(maxsize=4)
def sizer_of(dims: tuple[int, ...]) -> Sizer:
    """Return the sizes of a network, which the prices of all its trees share: most of their tables are the same."""
    return Sizer(dims)
