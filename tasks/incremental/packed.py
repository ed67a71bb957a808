"""Both sweeps with all their tables in one array, so that compiled loops run the steps without a pause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.dense import run
from ..steps.light_dataclass import dataclass
from ..steps.step import Step
from ..sweeps.scaled import Scaled, SumProduct, einsum_step
from ..sweeps.sweep import useful_threads
from .kept_tables import KeptTables
from .packed_loops import LIMITS, PackedLayout, PackedState, normalise, put_given
from .schedule import arena_words, scheduled
from .stages import MOST_PLACES, is_small, nests, small_cells
from .thread_crew import CrewTables, ThreadTeam, functions

Array = NDArray[Any]


@dataclass(frozen=True)
class _InPlace(SumProduct):
    """Runs single steps into one array, which the next step writes over."""

    room: Array = field(default_factory=lambda: np.empty(0))

    def _run(self, step: Step, tables: Sequence[Scaled], threads: int) -> Array:
        lowered, out = step.lowered, self.room[: step.lowered.out_cells]
        quick = lowered.quick
        if quick is None or (quick.pairs and self.compiled):
            return run(lowered, [t.values for t in tables], out, threads, compiled=self.compiled)
        views = [t.values.reshape(shape) for t, shape in zip(tables, quick.shapes, strict=True)]
        sizes = lowered.axes.sizes[lowered.axes.eliminated :]
        return einsum_step(quick, views, out.reshape(sizes)).reshape(-1)


class Packed(KeptTables):
    """Keeps all tables in one array, for compiled loops."""

    compiled = True

    def _set_up(self, leaves: Mapping[int, Scaled]) -> None:
        """Lay out tables, work areas and steps, and the team of threads that runs them.

        Parameters
        ----------
        leaves : mapping of int to Scaled
            Leaf tables by node, of which only sizes are looked at.

        Notes
        -----
        The arena, float64, holds the tables one after the other, leaves before steps. Behind them is a work area of
        ``small_cells`` for each thread, and the work areas of large steps. All steps begin as stale.
        """
        steps = self._steps
        room = max((step.lowered.out_cells for step in steps), default=0)
        self._algebra = _InPlace(self._algebra.sizes, self._algebra.compiled, np.empty(room))
        self._index = {node: i for i, node in enumerate([*leaves, *(step.node for step in steps)])}
        self._cells = [*(t.values.size for t in leaves.values()), *(step.lowered.out_cells for step in steps)]
        self._starts = [0, *accumulate(self._cells)]
        self._shift = small_cells(steps)
        self._layout = self._laid_out(self._forward)
        tables, schedule = len(self._cells), scheduled(steps, self._threads)
        arena = self._starts[-1] + self._threads * self._shift
        self._state = PackedState(
            # Empty, not zero: a page of the work areas takes memory only when a step writes to it.
            values=np.empty(arena + arena_words(steps, self._threads)),
            scale=np.zeros(tables),
            low=np.zeros(tables),
            high=np.zeros(tables),
            top=np.zeros(tables),
            logs=np.zeros(tables, np.int64),
            known=np.zeros(tables, np.int64),
            stale=np.ones(len(steps), np.int64),
            needed=np.zeros(len(steps), np.int64),
            pending=np.zeros(len(steps), np.int64),
            places=np.zeros((self._threads, MOST_PLACES), np.int64),
        )
        inputs = [[self._starts[self._index[i]] for i in step.inputs] for step in steps]
        made = [self._index[step.node] for step in steps]
        found = CrewTables(self._layout, self._state, inputs, made, [step.lowered.axes for step in steps])
        self._crew = ThreadTeam(schedule, found, arena, self._threads)
        self._reads: dict[tuple[int, ...], tuple[Array, list[int]]] = {}

    def table(self, node: int) -> Scaled:
        """Return a table; its values change with the next refresh."""
        i, state = self._index[node], self._state
        start = self._starts[i]
        values = state.values[start : start + self._cells[i]]
        return Scaled(values, float(state.scale[i]), float(state.low[i]), float(state.high[i]), bool(state.logs[i]))

    def posteriors(self, nodes: tuple[int, ...]) -> list[Array] | None:
        """Return tables, flat, each summing to 1; None where one needs more care."""
        if nodes not in self._reads:
            tables = [self._index[node] for node in nodes]
            ends = [0, *accumulate(self._cells[i] for i in tables)]
            self._reads[nodes] = _words(tables), ends
        wanted, ends = self._reads[nodes]
        flat = np.empty(ends[-1])
        if not normalise(self._crew.where, wanted.ctypes.data, len(wanted), flat.ctypes.data):
            return None
        return [flat[start:end] for start, end in pairwise(ends)]

    def copies(self, nodes: Iterable[int]) -> dict[int, Scaled]:
        """Return tables that stay as they are."""
        found = {node: self.table(node) for node in nodes}
        for table in found.values():
            table.values = table.values.copy()
        return found

    def reset(self, leaves: Mapping[int, Scaled]) -> None:
        """Forget every table but the given leaves."""
        self._state.known[:] = 0
        self._state.stale[:] = 1
        for node, table in leaves.items():
            self._put(node, table)

    def set_leaf(self, node: int, table: Scaled) -> None:
        """Replace a leaf table."""
        self._put(node, table)

    def _is_stale(self, position: int) -> bool:
        return bool(self._state.stale[position])

    def _restore(self, tables: Mapping[int, Scaled]) -> None:
        for node, table in tables.items():
            self._put(node, table)
        for node in tables:
            self._state.stale[self._position[node]] = 0

    def _refresh(self, order: Array, threads: int) -> None:
        state = self._state
        state.needed[:] = 0
        state.needed[order] = 1
        while state.stale[order].any():
            self.computed += self._crew.run(min(threads, self._threads))
            for k in order[state.stale[order] != 0].tolist():
                if not self._is_behind(k):
                    self.run_alone(k, threads)

    def _is_behind(self, position: int) -> bool:
        """Whether a step depends on others that are still to be run."""
        made = [self._position[i] for i in self._steps[position].inputs if i in self._position]
        return bool(self._state.pending[made].any())

    def run_alone(self, position: int, threads: int) -> None:
        """Run a step that needs more care than loops take."""
        step = self._steps[position]
        inputs = [self.table(i) for i in step.inputs]
        self._state.stale[position] = 0
        self.computed += 1
        self._put(step.node, self._algebra.step(step, inputs, useful_threads(step, threads)))

    def _put(self, node: int, table: Scaled) -> None:
        values = np.ascontiguousarray(table.values).reshape(-1)
        bounds = float(table.log_scale), float(table.low), float(table.high)
        put_given(self._crew.where, self._index[node], values.ctypes.data, *bounds, int(table.logs))

    def _laid_out(self, n_forward: int) -> PackedLayout:
        """Put all steps into arrays.

        Parameters
        ----------
        n_forward : int
            Steps before this number belong to the upward sweep.

        Returns
        -------
        PackedLayout
            Words are int64; places count float64 numbers from the beginning of the arena. A step that is run as nested
            loops has its nests in ``joins``, rows of (code, first of its bases, where it writes), others have none.
        """
        index, starts = self._index, self._starts
        codes: list[int] = []
        places: dict[tuple[int, ...], int] = {}
        joins: list[tuple[int, int, int]] = []
        join_start, bases = [0], list[int]()
        small = [nests(s.lowered.quick) if is_small(s) else () for s in self._steps]
        result = max((n[-1].cells for n in small if n), default=0)
        scratch = starts[-1]
        for step, made in zip(self._steps, small, strict=True):
            operands = [starts[index[i]] for i in step.inputs]
            # A step's result is first in the work area, for all steps at one place; its intermediate tables follow it.
            free = scratch + result
            for nest in made:
                if nest.code not in places:
                    places[nest.code] = len(codes)
                    codes += nest.code
                last = nest is made[-1]
                joins.append((places[nest.code], len(bases), scratch if last else free))
                bases += [operands[i] for i in nest.operands]
                operands.append(free)
                free += 0 if last else nest.cells
            join_start.append(len(joins))
        readers: list[list[int]] = [[] for _ in self._cells]
        for k, step in enumerate(self._steps):
            for i in dict.fromkeys(step.inputs):
                readers[index[i]].append(k)
        inputs = [index[i] for step in self._steps for i in step.inputs]
        makers = [-1] * len(self._cells)
        for k, step in enumerate(self._steps):
            makers[index[step.node]] = k
        return PackedLayout(
            codes=_words(codes),
            joins=_words(joins).reshape(-1, 3),
            join_start=_words(join_start),
            bases=_words(bases),
            inputs=_words(inputs),
            input_start=_words([0, *accumulate(len(step.inputs) for step in self._steps)]),
            outputs=_words([index[step.node] for step in self._steps]),
            log_summed=np.array([np.log(s.lowered.cells / s.lowered.out_cells) for s in self._steps], np.float64),
            readers=_words([k for each in readers for k in each]),
            reader_start=_words([0, *accumulate(len(each) for each in readers)]),
            forward=_words([int(k < n_forward) for k in range(len(self._steps))]),
            start=_words(starts),
            cells=_words(self._cells),
            makers=_words(makers),
            scratch=scratch,
            shift=self._shift,
            iterate=functions().iterate,
            stream=functions().stream,
            multiply=functions().multiply,
            limits=np.array(LIMITS),
        )


def _words(values: Sequence[object]) -> Array:
    return np.array(values, np.int64)
