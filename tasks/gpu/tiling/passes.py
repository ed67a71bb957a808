"""Passes of a step on a GPU, each one launch, as plain values.

Tables are identified by number: first the tables of the step, then temporaries; -1 is the step's output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from ...steps.light_dataclass import dataclass
from .brick_layout import Brick
from .buckets import Bucket, BucketJoin
from .products.reorders import Reorder
from .streams import Axis, Stream


class Pass(ABC):
    """One launch of a step."""

    __slots__ = ()

    @property
    @abstractmethod
    def reads(self) -> Sequence[int]:
        """Numbers of the tables that it reads."""

    @property
    @abstractmethod
    def writes(self) -> Sequence[int]:
        """Numbers of the tables that it writes."""


@dataclass(frozen=True, slots=True)
class OneTablePass(Pass):
    """A launch that reads some tables and writes one."""

    inputs: tuple[int, ...]
    output: int

    @property
    def reads(self) -> Sequence[int]:
        """Its inputs."""
        return self.inputs

    @property
    def writes(self) -> Sequence[int]:
        """Its output."""
        return (self.output,)


@dataclass(frozen=True, slots=True)
class StreamPass(OneTablePass):
    """One streaming launch."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class ReorderPass(OneTablePass):
    """One launch that copies a table with its axes in another order."""

    reorder: Reorder


@dataclass(frozen=True, slots=True)
class BrickPass(OneTablePass):
    """One launch of bricks."""

    brick: Brick


@dataclass(frozen=True, slots=True)
class RowsPass(OneTablePass):
    """Sum every row of a ``(rows, length)`` table."""

    rows: int
    length: int


@dataclass(frozen=True, slots=True)
class BucketPass(OneTablePass):
    """One launch that joins small inputs in shared memory and eliminates, perhaps up to partial sums."""

    bucket: Bucket


@dataclass(frozen=True, slots=True)
class ProductPass(OneTablePass):
    """One matrix product; axes by group (batch, rows, columns, depth), with strides of left, right and output."""

    groups: tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]


@dataclass(frozen=True, slots=True)
class JoinPass(Pass):
    """Some joins in one launch."""

    joins: tuple[BucketJoin, ...]

    @property
    def reads(self) -> Sequence[int]:
        """Inputs of all joins."""
        return [number for join in self.joins for number in join.inputs]

    @property
    def writes(self) -> Sequence[int]:
        """Results of all joins."""
        return [join.output for join in self.joins]


_ALIGNED: Final = 256
"""Every temporary begins at a multiple of this number of cells."""


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """The passes of a step, and the temporaries between them.

    Attributes
    ----------
    passes
    temporaries
        Cells of each.
    places
        The start of each temporary in the workspace; temporaries that are needed at different times share their cells.
    workspace_cells
        Cells of the workspace.
    """

    passes: tuple[Pass, ...]
    temporaries: tuple[int, ...]
    places: tuple[int, ...]
    workspace_cells: int


def device_step_of(inputs: int, passes: Sequence[Pass], temporaries: Sequence[int]) -> DeviceStep:
    """Place the temporaries of a step with some inputs in the workspace: each takes the first cells that are free."""
    first = [len(passes)] * len(temporaries)
    last = [-1] * len(temporaries)
    for at, each in enumerate(passes):
        for number in (*each.reads, *each.writes):
            if number >= inputs:
                first[number - inputs] = min(first[number - inputs], at)
                last[number - inputs] = at
    places: list[int] = []
    for t, cells in enumerate(temporaries):
        beside = [u for u in range(t) if first[u] <= last[t] and first[t] <= last[u]]
        taken = sorted((places[u], places[u] + temporaries[u]) for u in beside)
        place = 0
        for start, end in taken:
            if place + cells <= start:
                break
            place = max(place, -(-end // _ALIGNED) * _ALIGNED)
        places.append(place)
    ends = [place + cells for place, cells in zip(places, temporaries, strict=True)]
    return DeviceStep(tuple(passes), tuple(temporaries), tuple(places), max(ends, default=0))
