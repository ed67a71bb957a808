"""What a plan that spills to disk consists of: stages, their boxes, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...tasks.steps.step import Step


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
