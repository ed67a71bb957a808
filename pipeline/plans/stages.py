"""What a plan that spills to disk consists of: stages, their boxes, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...tasks.steps.step import Step
from ...tasks.sweeps.sweep import freed_tables


@dataclass(frozen=True)
class Stage:
    """A part of the tree that runs box by box.

    Parameters
    ----------
    head : int
        Node whose table is written to disk, -1 for the stage that ends at the roots.
    steps : tuple of Step
        Lowered for the sizes inside a box.
    boxed : tuple of int
        Variables that a box fixes; of the head's scope, except in the last stage.
    inputs : tuple of int
        Heads of the stages whose tables it reads.
    chunked : frozenset of int
        Variables along which the output is chunked.
    computing_bytes : int
        Of one box while it computes: leaves, input boxes, messages, workspace, the output.
    moving_bytes : int
        Of one box while its inputs are read, or its output is written.
    peak_bytes : int
        Of one box while the one before is written or the one after is read, and of decoding the stage.
    """

    head: int
    steps: tuple[Step, ...]
    boxed: tuple[int, ...]
    inputs: tuple[int, ...]
    chunked: frozenset[int]
    computing_bytes: int
    moving_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Spill:
    """Stages in execution order, and what they cost.

    Parameters
    ----------
    stages : tuple of Stage
    dims : tuple of int
    itemsize : int
    memory_bytes : int
        Budget of a task for which this was planned.
    peak_bytes : int
        Largest peak of a task, the model included.
    disk_bytes : int
        Largest total of tables on disk at one time.
    read_bytes, written_bytes : int
        To and from disk.
    seconds : float
        Predicted for one core and one disk.
    disk_rate : float
        Bytes per second that the disk was measured to write and read.
    resident : bool
        Whether the tables stay in the host's memory, beside a device.
    """

    stages: tuple[Stage, ...]
    dims: tuple[int, ...]
    itemsize: int
    memory_bytes: int
    peak_bytes: int
    disk_bytes: int
    read_bytes: int
    written_bytes: int
    seconds: float
    disk_rate: float
    resident: bool = False

    def boxes(self, stage: Stage) -> int:
        """Number of boxes of a stage."""
        return prod(self.dims[v] for v in stage.boxed)

    def room_bytes(self, stage: Stage) -> int:
        """What other boxes may move while one of this stage computes."""
        return max(s.peak_bytes for s in self.stages) - stage.computing_bytes

    @cached_property
    def tasks(self) -> int:
        """Number of boxes of all stages."""
        return sum(self.boxes(s) for s in self.stages)


@dataclass(frozen=True)
class DownStage:
    """A stage on the way back.

    Parameters
    ----------
    head : int
        Node at the top of the stage, -1 for the stage that ends at the roots.
    steps : tuple of Step
        Upward messages that are needed again, then the backward ones and the readings, lowered for a box.
    boxed : tuple of int
        Variables that a box fixes; the same as on the way up.
    inputs : tuple of int
        Tables on disk that are read: heads of stages below, and the message from above the head.
    outputs : mapping of int to int
        For each head of a stage below that is to be visited too, the table of a box that is its message.
    results : mapping of tuple of int to int
        The table that answers each target.
    roots : tuple of int
        Tables of the value of everything; none but in the last stage.
    visited : frozenset of int
        Heads of the stages below that something is read from.
    """

    head: int
    steps: tuple[Step, ...]
    boxed: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: Mapping[int, int]
    results: Mapping[tuple[int, ...], int]
    roots: tuple[int, ...]
    visited: frozenset[int]

    @cached_property
    def freed(self) -> tuple[tuple[int, ...], ...]:
        """For each step the tables that nobody needs after it, its own if it is only written."""
        kept = {*self.results.values(), *self.roots}
        return freed_tables(self.steps, kept)


@dataclass(frozen=True)
class TwoWaySpill(Spill):
    """Stages of both ways.

    Parameters
    ----------
    down : tuple of DownStage
        From the roots to the leaves. The first runs both ways in one, so that the last of ``stages`` does not
        run by itself.
    found_bytes : int
        Weights and beliefs of all boxes, on disk.
    """

    down: tuple[DownStage, ...] = ()
    found_bytes: int = 0

    @cached_property
    def tasks(self) -> int:
        """Number of boxes of all stages, both ways."""
        boxed = [*(stage.boxed for stage in self.stages[:-1]), *(stage.boxed for stage in self.down)]
        return sum(prod(self.dims[v] for v in variables) for variables in boxed)


@dataclass(frozen=True)
class DeviceNeeds:
    """What one slice needs on a GPU when everything that is asked for is answered.

    Parameters
    ----------
    nbytes : int
        All tables, and what describes them; the tables only where they are not countable.
    countable : bool
        Whether the numbers of a record are large enough for all tables.
    """

    nbytes: int
    countable: bool
