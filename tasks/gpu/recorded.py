"""A sweep that is known: its launches with all their arguments, made once and repeated for as long as tables lie there.

Python's work for a step takes ten times as long as its launch. A sweep of the same steps gets a block of the same size,
usually at the same place, with its leaf tables in it. Then a single copy precedes the launches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..steps.semiring import Semiring
from ..steps.step import Step
from . import arrays
from .arrays import Packing
from .kernels import ALIGNED, bound_launches, cupy
from .launch import DeviceRun
from .memory import out_of_memory
from .placement import room_for
from .small_steps import SmallRun, SmallSteps


class RecordedSweep:
    """The launches of some steps, and where each of their tables lies.

    Parameters
    ----------
    steps : sequence of Step
        In execution order, the small ones first; each makes another table.
    runs : mapping
        The launches of every step that has its own, by its node.
    small : SmallSteps
        The others.
    freed : sequence of collections
        For each step the tables that are dropped after it.
    kept : collection of int
        Tables that are returned: those of steps.
    others : collection of int
        Tables of steps that outlast the sweep, and have memory of their own.
    given : collection of int
        Tables on the device that steps read and others made.
    semiring : Semiring
        Of all tables.

    Attributes
    ----------
    dtype : str
    """

    def __init__(
        self,
        steps: Sequence[Step],
        runs: Mapping[int, DeviceRun],
        small: SmallSteps,
        freed: Sequence[Collection[int]],
        kept: Collection[int],
        others: Collection[int],
        given: Collection[int],
        semiring: Semiring,
    ) -> None:
        """Place all tables of the sweep in one block of device memory.

        Parameters
        ----------
        steps : sequence of Step
        runs : mapping of int to DeviceRun
            Prepared launches, by node.
        small : SmallSteps
            Small steps that share launches.
        freed : sequence of collection of int
            Tables that are not needed after each step.
        kept : collection of int
            Tables that outlast the sweep.
        others : collection of int
            Tables that get memory of their own.
        given : collection of int
            Tables that are on the device before.
        semiring : Semiring
        """
        self.dtype = semiring.dtype
        self._small = small
        made_by: dict[int, DeviceRun | SmallRun] = {**runs, **small.runs}
        together = len(small.steps)
        if together:  # their input tables exist until all of them are done
            freed = [*[()] * (together - 1), [*chain.from_iterable(freed[:together])], *freed[together:]]
        room = room_for(steps, made_by, freed, others, all_placed=True)
        nodes = [step.node for step in steps]
        made, cells = set(nodes), dict[int, int]()
        for step in steps:
            cells.update(zip(step.inputs, step.lowered.input_cells, strict=True))
        read = [node for node in cells if node not in made]
        self._given = [node for node in read if node in given]
        self._staged = [node for node in read if node not in given]
        self._packing = Packing([cells[node] for node in self._staged], semiring.dtype)
        self._first = -(-room.nbytes // arrays.PACKED) * arrays.PACKED
        places = {step.node: room.places.get(id(step), (None, None)) for step in steps}
        self._outputs = {node: out for node, (out, _) in places.items() if out is not None}
        self._steps = [
            (runs[step.node], step.inputs, step.node, places[step.node][1] or 0) for step in steps if step.node in runs
        ]
        self._others = [node for node in nodes if node not in self._outputs]
        self._kept = [node for node in nodes if node in kept]
        self._cells = {node: made_by[node].cells for node in {*self._others, *self._kept}}
        self._lock = threading.Lock()
        self._where: tuple[int, ...] = ()
        self._repeat: Callable[[], None] = bound_launches((), ())

    @property
    def nbytes(self) -> int:
        """Bytes of the block: leaf tables, step tables, and workspaces."""
        return self._first + self._packing.nbytes

    def run(self, tables: Mapping[int, Any]) -> dict[int, Any] | None:
        """Sweep and return the kept tables by node.

        Return None if a table is not in its expected place or not aligned, or if the device has no room for the block
        in one piece, or for the tables that outlast the sweep.

        Parameters
        ----------
        tables : mapping of int to array
            Leaf tables of the host, and tables of the device.
        """
        given = [tables[node].data.ptr for node in self._given]
        staged = [tables[node] for node in self._staged]
        if any(at % ALIGNED for at in given) or set(map(type, staged)) - {np.ndarray}:
            return None
        try:
            place = arrays.block(self.nbytes)
            live = {node: arrays.empty(self._cells[node], self.dtype) for node in self._others}
        except MemoryError as error:
            if out_of_memory(error):
                return None
            raise
        first, cp = place.ptr, cupy()
        if staged:
            self._packing.copy(staged, place + self._first)
        where = first, *given, *[table.data.ptr for table in live.values()]
        with self._lock:
            # launches are bound to addresses, so that a repeated sweep at the same place costs no Python per step
            if where != self._where:
                self._repeat = self._bound(first, given, {node: table.data.ptr for node, table in live.items()})
                self._where = where
            self._repeat()
        for node in self._kept:
            if node not in live:
                live[node] = cp.ndarray(self._cells[node], self.dtype, place + self._outputs[node])
        return live

    def _bound(self, first: int, given: Sequence[int], others: Mapping[int, int]) -> Callable[[], None]:
        """Return the launches on tables that lie there."""
        at = {**dict(zip(self._given, given, strict=True)), **others}
        at |= {node: first + place for node, place in self._outputs.items()}
        leaves = first + self._first
        at |= {node: leaves + place for node, place in zip(self._staged, self._packing.places, strict=True)}
        launches = list(self._small.bound(at))
        waits: list[Sequence[int]] = [range(max(k - 1, 0), k) for k in range(len(launches))]
        before = [len(launches) - 1] if launches else []
        for run, inputs, node, workspace in self._steps:
            begun = len(launches)
            launches += run.bound([at[i] for i in inputs], at[node], first + workspace)
            # tables of two steps may share memory, so a step begins after all passes of the previous step
            waits += [[begun + i for i in own] or before for own in run.waits]
            read = {i for own in run.waits for i in own}
            before = [begun + i for i in range(len(run.waits)) if i not in read]
        return bound_launches(launches, waits)
