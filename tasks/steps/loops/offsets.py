"""Offset tables: where the cells of a group of axes lie in each table. Described here, filled by kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


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
