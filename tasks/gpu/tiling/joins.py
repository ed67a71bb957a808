"""Joins of small tables, several in a launch. Pure: no values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .axes import fused, row_major
from .buckets import ENTRIES, TABLES
from .streams import Axis

JOINS: Final = 8
JOIN_AXES: Final = 24
ALL_JOIN_AXES: Final = 96
"""Joins of a launch, axes of each and of all together; as in ``cuda/join.cu``, and `TABLES` and `ENTRIES`."""

Table = tuple[int, list[int]]
"""A table's number and its strides by axis."""


@dataclass(frozen=True, slots=True)
class Join:
    """A product of small tables over the axes of any of them, in row-major order."""

    inputs: tuple[int, ...]
    output: int
    axes: tuple[Axis, ...]


def joint(
    axes: Sequence[Axis], members: Sequence[Table], order: Sequence[int] | None = None
) -> tuple[tuple[Axis, ...], list[int]]:
    """Return the axes of a join, in an order or laid out like the first table; and its strides by axis."""
    held = [i for i in order or range(len(axes)) if any(strides[i] for _, strides in members)]
    if order is None:
        held.sort(key=lambda i: -members[0][1][i])
    places = dict(zip(held, row_major([axes[i] for i in held]), strict=True))
    ours = fused(Axis(axes[i].size, tuple([s[i] for _, s in members]), places[i]) for i in held)
    return tuple(ours), [places.get(i, 0) for i in range(len(axes))]


def one_launch(joins: Sequence[Join]) -> bool:
    """Whether one launch takes some joins."""
    axes = [len(join.axes) for join in joins]
    entries = sum(stride > 0 for join in joins for axis in join.axes for stride in axis.strides)
    tables = sum(len(join.inputs) for join in joins)
    return (
        len(joins) <= JOINS
        and max(axes) <= JOIN_AXES
        and sum(axes) <= ALL_JOIN_AXES
        and tables <= TABLES
        and entries <= ENTRIES
    )
