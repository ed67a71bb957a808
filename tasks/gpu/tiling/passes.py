"""Passes of a step on a GPU, each one launch, as plain values.

Tables are identified by number: first the tables of the step, then temporaries; -1 is the step's output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import permutations
from typing import Final

from ...steps.light_dataclass import dataclass
from .brick_layout import Brick
from .buckets import Bucket, BucketJoin
from .reorders import Reorder
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
    waits
        For each pass, the earlier passes that must end before it begins. The pass reads tables of these passes, or it
        overwrites memory that they use. Other passes may run concurrently.
    temporaries
        Cells of each temporary.
    places
        The start of each temporary in the workspace; temporaries that are needed at different times share their cells.
    workspace_cells
        Cells of the workspace.
    """

    passes: tuple[Pass, ...]
    waits: tuple[tuple[int, ...], ...]
    temporaries: tuple[int, ...]
    places: tuple[int, ...]
    workspace_cells: int


def device_step_of(
    inputs: int, passes: Sequence[Pass], temporaries: Sequence[int], seconds: Sequence[float]
) -> DeviceStep:
    """Order the passes of a step by the time at which they can begin, and place its temporaries in the workspace.

    A pass can begin when the tables that it reads exist. Temporaries are placed from the largest to the smallest. Each
    gets the first cells that are free from the beginning of its first pass to the end of its last reader. By the
    predicted seconds, no pass therefore waits for memory.

    Parameters
    ----------
    inputs : int
    passes : sequence of Pass
        Passes; each stands after the passes whose tables it reads.
    temporaries : sequence of int
    seconds : sequence of float
        Predicted seconds of each pass, above 0.
    """
    waits, ends = readers_waits(passes), list[float]()
    for before, taken in zip(waits, seconds, strict=True):
        ends.append(max([ends[i] for i in before], default=0.0) + taken)
    order = sorted(range(len(passes)), key=lambda i: max([ends[j] for j in waits[i]], default=0.0))
    passes, ends = [passes[i] for i in order], [ends[i] for i in order]
    ready = readers_waits(passes)
    begins = [max([ends[i] for i in before], default=0.0) for before in ready]
    users: list[list[int]] = [[] for _ in temporaries]
    for at, each in enumerate(passes):
        for number in {n for n in (*each.reads, *each.writes) if n >= inputs}:
            users[number - inputs].append(at)
    first = [begins[own[0]] if own else 0.0 for own in users]
    last = [max([ends[i] for i in own], default=0.0) for own in users]
    places, placed = [0] * len(temporaries), list[int]()
    for t in sorted(range(len(temporaries)), key=lambda t: -temporaries[t]):
        beside = [u for u in placed if first[u] < last[t] and first[t] < last[u]]
        for start, end in sorted((places[u], places[u] + temporaries[u]) for u in beside):
            if places[t] + temporaries[t] <= start:
                break
            places[t] = max(places[t], -(-end // _ALIGNED) * _ALIGNED)
        placed.append(t)
    until = [place + cells for place, cells in zip(places, temporaries, strict=True)]
    all_waits = [{*before} for before in ready]
    for t, u in permutations(range(len(temporaries)), 2):
        if places[u] < until[t] and places[t] < until[u] and users[u] and users[t] and last[u] <= first[t]:
            all_waits[users[t][0]].update(users[u])
    return DeviceStep(
        tuple(passes),
        tuple([tuple(sorted(before)) for before in all_waits]),
        tuple(temporaries),
        tuple(places),
        max(until, default=0),
    )


def readers_waits(passes: Sequence[Pass]) -> list[list[int]]:
    """Return for each pass the earlier passes whose tables it reads."""
    makers = {number: at for at, each in enumerate(passes) for number in each.writes}
    return [sorted({makers[number] for number in each.reads if number in makers}) for each in passes]
