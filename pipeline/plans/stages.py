"""Divisions of a plan: stages with tables outside memory, parts for workers, and the sweeps of a count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from math import prod
from typing import Any

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.step import Step


@dataclass(frozen=True)
class Stored:
    """A table between stages.

    Parameters
    ----------
    name : str
    axes : tuple of int
        Variables with several states; first those whose shares the reader adds up.
    chunked : frozenset of int
        Variables along which it is cut, so that writers and readers touch whole chunks only.
    shared : tuple of int
        Variables that the boxes of its writer fix and its reader does not know.
    """

    name: str
    axes: tuple[int, ...]
    chunked: frozenset[int]
    shared: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A part of the tree that runs box by box, one way or, on the way back, both ways.

    Parameters
    ----------
    head : int
        Node at the top of the stage, -1 for the stage that ends at the roots.
    steps : tuple of Step
        Lowered for the sizes inside a box.
    boxed : tuple of int
        Variables that a box fixes. Variables that the head does not have make partial results of its table.
    inputs : tuple of int
        Stored tables that it reads, by their numbers.
    outputs : mapping of int to int
        For each stored table that it writes the table of a box that this is.
    results : mapping of tuple of int to int
        The table that answers each set of variables.
    roots : tuple of int
        Tables of the value of everything; none but in the stage at the roots.
    chunked : frozenset of int
        Variables along which the table at the head is cut.
    computing_bytes : int
        Of one box while it computes: leaves, input boxes, messages, workspace, the output.
    moving_bytes : int
        Of one box while its inputs are read, or its output is written; 0 where that is a part of computing.
    peak_bytes : int
        Of one box while the one before is written or the one after is read, and of decoding the stage.
    """

    head: int
    steps: tuple[Step, ...]
    boxed: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: Mapping[int, int]
    results: Mapping[tuple[int, ...], int] = field(default_factory=dict)
    roots: tuple[int, ...] = ()
    chunked: frozenset[int] = frozenset()
    computing_bytes: int = 0
    moving_bytes: int = 0
    peak_bytes: int = 0

    @property
    def found_name(self) -> str:
        """Name of the table of its boxes' results: beliefs, with the roots in the receipts."""
        return "result" if self.head < 0 else f"beliefs_{self.head}"


@dataclass(frozen=True)
class Spill:
    """Stages in execution order, and what they cost.

    Parameters
    ----------
    stages : tuple of Stage
        Up to the one at the roots, then those on the way back, if there is one; the stage at the roots runs both ways.
    tables : mapping of int to Stored
        Between the stages, by their numbers.
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
    moving_seconds : float
        Those of them that are not the steps'.
    disk_rate : float
        Bytes per second that the disk was measured to write and read.
    resident : bool
        Whether the tables stay in the host's memory, beside a device.
    """

    stages: tuple[Stage, ...]
    tables: Mapping[int, Stored]
    dims: tuple[int, ...]
    itemsize: int
    memory_bytes: int
    peak_bytes: int
    disk_bytes: int
    read_bytes: int
    written_bytes: int
    seconds: float
    moving_seconds: float
    disk_rate: float
    resident: bool = False

    @cached_property
    def top(self) -> int:
        """Index of the stage at the roots."""
        return next(i for i, stage in enumerate(self.stages) if stage.head < 0)

    @cached_property
    def tasks(self) -> int:
        """Number of boxes of all stages."""
        return sum(self.boxes(s) for s in self.stages)

    @property
    def cuts(self) -> tuple[tuple[int, tuple[int, ...], frozenset[int]], ...]:
        """The facts that rebuild the stages: head, boxed and chunked variables of each stage up to the roots."""
        return tuple((s.head, s.boxed, s.chunked) for s in self.stages[: self.top + 1])

    def boxes(self, stage: Stage) -> int:
        """Number of boxes of a stage."""
        return prod(self.dims[v] for v in stage.boxed)

    def states(self, stage: Stage, number: int) -> dict[int, int]:
        """States that box ``number`` fixes; the last variable varies fastest."""
        states = {}
        for v in reversed(stage.boxed):
            number, states[v] = divmod(number, self.dims[v])
        return states

    def number(self, stage: Stage, states: Mapping[int, int]) -> int:
        """Number of the box with the given states."""
        number = 0
        for v in stage.boxed:
            number = number * self.dims[v] + states[v]
        return number

    @property
    def place(self) -> str:
        """Where the tables between stages are, in words."""
        return "host memory" if self.resident else "disk"

    def room_bytes(self, stage: Stage) -> int:
        """Return the bytes that other boxes may move while a box of this stage computes."""
        return max(s.peak_bytes for s in self.stages) - stage.computing_bytes if stage.moving_bytes else 0

    def box_cells(self, stage: Stage) -> int:
        """Cells that the steps of one box of a stage sweep."""
        return sum([step.lowered.cells for step in stage.steps])

    def moved_bytes(self, stage: Stage, table: int) -> int:
        """Bytes of one box of a stored table that a box of a stage reads or writes."""
        return prod(self.dims[v] for v in self.tables[table].axes if v not in stage.boxed) * self.itemsize

    def records(self) -> list[dict[str, Any]]:
        """Return the facts of the stages that ``inspect`` shows and that rebuild them."""
        return [
            {
                "head": stage.head,
                "table": stage.found_name if index >= self.top else self.tables[stage.head].name,
                "boxed": list(stage.boxed),
                "boxes": self.boxes(stage),
                "chunked": sorted(stage.chunked),
                "peak_bytes": stage.peak_bytes,
            }
            for index, stage in enumerate(self.stages)
        ]


@dataclass(frozen=True)
class DeviceNeeds:
    """The GPU memory of one slice when all requested answers are computed.

    Parameters
    ----------
    nbytes : int
        All tables, and what describes them; the tables only where they are not countable.
    countable : bool
        Whether the numbers of a record are large enough for all tables.
    """

    nbytes: int
    countable: bool


Task = tuple[int, bool]
"""The part that a task belongs to, by its top node or -1 for the roots, and whether it is on the way up."""


@dataclass(frozen=True)
class Parts:
    """One sweep, or both, as tasks: a part goes up when those below it have, and back when those above it have.

    Parameters
    ----------
    makers : mapping of int to (int, bool)
        The task that makes each table.
    heads : tuple of int
        The top node of every part, or -1 for the roots; parts below before those above.
    seconds : float
        Predicted seconds with enough workers: the longest chain of tasks; 0 if this was not requested.
    """

    makers: Mapping[int, Task]
    heads: tuple[int, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Evaluations:
    """The sweeps modulo primes that follow a plan's own, for a count.

    Parameters
    ----------
    points, primes : int
        Where a polynomial is evaluated, and modulo how many primes at most.
    together : int
        Points that one sweep takes.
    steps : tuple of Step
        Steps of a sweep of several points.
    seconds : float
        Predicted seconds of a sweep of several points.
    share : float
        How many times the plan's own sweep one of a single point takes: its numbers are residues.
    expected : int, optional
        Primes that are expected: the first sweep says how many there are, at most ``primes``.
    """

    points: int
    primes: int
    together: int = 1
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0
    share: float = 1.0
    expected: int | None = None

    @property
    def likely(self) -> Evaluations:
        """The expected numbers, which plans are priced by."""
        return self if self.expected is None else replace(self, primes=self.expected, expected=None)

    @property
    def sweeps(self) -> int:
        """How many sweeps there are at most."""
        return self.primes * -(-self.points // self.together)
