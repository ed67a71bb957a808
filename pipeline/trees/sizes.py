"""Sizes of sets of variables."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2


class Sizer:
    """Sizes of sets of variables given as bit sets."""

    def __init__(self, dims: Sequence[int]) -> None:
        classes: dict[int, int] = {}
        for v, d in enumerate(dims):
            classes[d] = classes.get(d, 0) | 1 << v
        self._classes = [(d, log2(d), mask) for d, mask in classes.items() if d > 1]
        self.wide = sum(mask for *_, mask in self._classes)
        """The variables of more than one state."""

    def log(self, mask: int) -> float:
        """Return the log2 size."""
        size = 0.0
        for _, each, members in self._classes:
            size += each * (mask & members).bit_count()
        return size

    def cells(self, mask: int) -> int:
        """Return the exact size."""
        size = 1
        for d, _, members in self._classes:
            size *= d ** (mask & members).bit_count()
        return size
