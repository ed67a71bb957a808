"""Sets of small numbers, as of variables or axes, as the bits of integers."""

from __future__ import annotations

from collections.abc import Iterable


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
