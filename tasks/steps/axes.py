"""The normal form of a dense step: fused axes with one stride per table.

A table over variables 0, 1 and 2, of 2, 3 and 4 states, times one over variable 2, which is summed out: that one comes
first, and the other two, always neighbours in the same order, are one axis of six cells.

>>> axes = fuse([(0, 1, 2), (2,)], (0, 1), {0: 2, 1: 3, 2: 4})
>>> axes.sizes, axes.strides, axes.out
((4, 6), ((1, 4), (1, 0)), (0, 1))
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

from .light_dataclass import dataclass

RUN_CELLS: Final = 4096
"""Fused axes, joins of small inputs and the offsets of a loop stop growing here: they stay in the first-level cache. A
row of this length is long enough for any loop, and shorter rows leave outer axes for threads and blocks to share."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes of a step after fusing: first the eliminated axes, then the output's axes in its order.

    Attributes
    ----------
    sizes
        Cells of each axis, all at least 2.
    strides
        For each input, the stride in cells of each axis; 0 where the input does not have it.
    out
        The stride in cells of each axis in the output; 0 for the eliminated ones.
    """

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    out: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Cells of the join, which is never stored."""
        return math.prod(self.sizes)

    @property
    def eliminated(self) -> int:
        """Number of leading axes that the step eliminates."""
        return self.out.count(0)

    def cells_of(self, table: int) -> int:
        """Cells of input number `table`."""
        strides = self.strides[table]
        return math.prod([n for n, stride in zip(self.sizes, strides, strict=True) if stride])


def fuse(inputs: Sequence[Sequence[int]], output: Sequence[int], sizes: Mapping[int, int] | Sequence[int]) -> Axes:
    """Drop axes of one cell and merge axes that are adjacent, in the same order, wherever they occur.

    Raises
    ------
    ValueError
        If a scope repeats a variable or the output has a variable that no input has.
    """
    return fused(inputs, output, sizes)[0]


def fused(
    inputs: Sequence[Sequence[int]], output: Sequence[int], sizes: Mapping[int, int] | Sequence[int]
) -> tuple[Axes, list[int]]:
    """Fuse the axes of a step as :func:`fuse` does, and return the cells of each input and of the output too."""
    _check(inputs, output)
    # for each variable, the variable that follows it in all tables, and the one before it; -1 if there is none
    after: dict[int, int] = {}
    before: dict[int, int] = {}
    strides: list[dict[int, int]] = []
    counts: list[int] = []
    for scope in (*inputs, output):
        own: dict[int, int] = {}
        cells, following = 1, -1
        for v in reversed(scope):
            size = sizes[v]
            if size == 1:
                continue
            own[v] = cells
            cells *= size
            if after.setdefault(v, following) != following:
                after[v] = -1
            if following >= 0 and before.setdefault(following, v) != v:
                before[following] = -1
            following = v
        if following >= 0 and before.setdefault(following, -1) != -1:
            before[following] = -1
        strides.append(own)
        counts.append(cells)
    kept = strides[-1]
    largest = counts.index(max(counts[:-1]))
    eliminated: dict[int, None] = {}
    for own in (strides[largest], *strides[:-1]):
        for v in reversed(own):
            if v not in kept:
                eliminated[v] = None
    runs = _runs((*eliminated, *reversed(kept)), after, before, sizes)
    last = [run[-1] for run in runs]
    axes = Axes(
        sizes=tuple([sizes[run[0]] if len(run) == 1 else math.prod([sizes[v] for v in run]) for run in runs]),
        strides=tuple([tuple([own.get(v, 0) for v in last]) for own in strides[:-1]]),
        out=tuple([kept.get(v, 0) for v in last]),
    )
    return axes, counts


def _check(inputs: Sequence[Sequence[int]], output: Sequence[int]) -> None:
    for scope in (*inputs, output):
        if len(set(scope)) < len(scope):
            raise ValueError(f"scope {tuple(scope)} repeats a variable")
    missing = set(output).difference(*inputs)
    if missing:
        raise ValueError(f"output variables {sorted(missing)} occur in no input")


def _runs(
    order: Sequence[int],
    after: Mapping[int, int],
    before: Mapping[int, int],
    sizes: Mapping[int, int] | Sequence[int],
) -> list[list[int]]:
    """Cut the axis order into runs to fuse, grown from the right so that the innermost run is full."""
    runs: list[list[int]] = []
    cells = 0
    for v in reversed(order):
        joined = runs[-1][0] if runs else -1
        if runs and after[v] == joined and before[joined] == v and cells * sizes[v] <= RUN_CELLS:
            runs[-1].insert(0, v)
            cells *= sizes[v]
        else:
            runs.append([v])
            cells = sizes[v]
    runs.reverse()
    return runs


# Sets of small numbers, as of variables or axes, as the bits of integers.

_HASHED: Final = sys.hash_info.modulus
# Bit sets from here on are shifted before their bits are taken one by one: each step copies a whole set, and the
# numbers of a large set that is sparse are often near each other.
_WIDE: Final = 1 << 1024
#: The memory of sizes is cleared when it has this number of entries.
REMEMBERED_SIZES: Final = 1 << 15


def mask_of(numbers: Iterable[int]) -> int:
    """Return the bit set of some numbers."""
    mask = 0
    for v in numbers:
        mask |= 1 << v
    return mask


def bits_of(mask: int) -> list[int]:
    """Return the numbers of a bit set in increasing order."""
    if mask >= _WIDE and (start := (mask & -mask).bit_length() - 1):
        return [start + v for v in bits_of(mask >> start)]
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


def mask_key(mask: int) -> Hashable:
    """Return a key by which a dictionary finds a bit set quickly.

    Python hashes an integer modulo 2**61 - 1, so that all bit sets of one number share 61 hashes, and all bit sets of
    two neighbours too. Sets of small numbers are found by themselves; others by their highest and lowest too.
    """
    return mask if mask < _HASHED else (mask.bit_length(), (mask & -mask).bit_length(), mask)


class Sizes:
    """Cells of tables by the bit sets of their axes, counted once.

    >>> Sizes([2, 3, 3])[mask_of([0, 2])]
    6
    """

    def __init__(self, dims: Sequence[int]) -> None:
        self._alike = [(size, axes) for size, axes in alike(dims).items() if size != 1]
        self._known: dict[Hashable, int] = {}

    def __getitem__(self, mask: int) -> int:
        if mask < _HASHED:
            key: Hashable = mask
        elif len(self._alike) == 1:  # counted as soon as found, and not kept: wide sets of many variables take memory
            ((size, axes),) = self._alike
            return int(size ** (mask & axes).bit_count())
        else:
            key = mask.bit_length(), (mask & -mask).bit_length(), mask
        cells = self._known.get(key)
        return self._counted(mask, key) if cells is None else cells

    def _counted(self, mask: int, key: Hashable) -> int:
        if len(self._known) >= REMEMBERED_SIZES:
            self._known.clear()
        cells = 1
        for size, axes in self._alike:
            if few := mask & axes:
                cells *= size ** few.bit_count()
        self._known[key] = cells
        return cells


# Offset tables: where the cells of a group of axes lie in each table. Described here, filled by kernels.


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Groups of axes to enumerate in row-major order, each for several tables.

    Attributes
    ----------
    code
        For each group: number of tables, number of axes, the sizes of its axes, and for each table the
        strides of its axes.
    starts
        Where each group's offsets start; table t of a group of n cells has its own at ``start + t * n``.
    cells
        Number of all offsets.
    """

    code: tuple[int, ...]
    starts: tuple[int, ...]
    cells: int


def enumerate_groups(
    sizes: Sequence[int], groups: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]]
) -> Enumeration:
    """Describe the offsets of some groups of axes, each with the strides (by axis) of its tables."""
    code: list[int] = []
    starts: list[int] = []
    cells = 0
    for group, tables in groups:
        code += (len(tables), len(group))
        code += [sizes[axis] for axis in group]
        for strides in tables:
            code += [strides[axis] for axis in group]
        starts.append(cells)
        cells += len(tables) * math.prod([sizes[axis] for axis in group])
    return Enumeration(tuple(code), tuple(starts), cells)
