"""Passes of a step on a GPU, each one launch, as plain values.

Tables go by number: those of the step first, then temporaries; -1 is the step's output.
"""

from __future__ import annotations

from dataclasses import dataclass

from .brick_layout import Brick
from .buckets import Bucket
from .joins import Join
from .streams import Axis, Stream


@dataclass(frozen=True, slots=True)
class StreamPass:
    """One streaming launch."""

    inputs: tuple[int, ...]
    output: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class BrickPass:
    """One launch of bricks."""

    inputs: tuple[int, ...]
    output: int
    brick: Brick


@dataclass(frozen=True, slots=True)
class RowsPass:
    """Sum every row of a ``(rows, length)`` table."""

    input: int
    output: int
    rows: int
    length: int


@dataclass(frozen=True, slots=True)
class BucketPass:
    """One launch that joins small inputs in shared memory and eliminates, perhaps up to partial sums."""

    inputs: tuple[int, ...]
    output: int
    bucket: Bucket


@dataclass(frozen=True, slots=True)
class ProductPass:
    """One matrix product; axes by group (batch, rows, columns, depth), with strides of left, right and output."""

    inputs: tuple[int, int]
    output: int
    groups: tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]


@dataclass(frozen=True, slots=True)
class JoinPass:
    """Some joins in one launch."""

    joins: tuple[Join, ...]


Pass = StreamPass | BrickPass | RowsPass | ProductPass | JoinPass | BucketPass


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """The passes of a step, and the cells of the temporaries between them."""

    passes: tuple[Pass, ...]
    temporaries: tuple[int, ...]

    @property
    def workspace_cells(self) -> int:
        """Cells of all temporaries together."""
        return sum(self.temporaries)
