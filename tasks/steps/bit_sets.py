"""Sets of small numbers, as of variables or axes, as the bits of integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

#: Sizes are begun anew when there are so many.
_REMEMBERED: Final = 1 << 15


def mask_of(numbers: Iterable[int]) -> int:
    """Return the bit set of some numbers."""
    mask = 0
    for v in numbers:
        mask |= 1 << v
    return mask


def bits_of(mask: int) -> list[int]:
    """Return the numbers of a bit set in increasing order."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def alike(dims: Sequence[int]) -> dict[int, int]:
    """Return the axes of each size, as bit sets."""
    found: dict[int, int] = {}
    for axis, size in enumerate(dims):
        found[size] = found.get(size, 0) | 1 << axis
    return found


class Sizes(dict[int, int]):
    """Cells of tables by the bit sets of their axes, counted once.

    >>> Sizes([2, 3, 3])[mask_of([0, 2])]
    6
    """

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self._alike = [(size, axes) for size, axes in alike(dims).items() if size != 1]

    def __missing__(self, mask: int) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        cells = 1
        for size, axes in self._alike:
            if few := mask & axes:
                cells *= size ** few.bit_count()
        self[mask] = cells
        return cells
