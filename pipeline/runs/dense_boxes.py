"""Running a plan whose tables leave memory: boxes as tasks with explicit dependencies, resumable from the receipts.

A task reads boxes of stored tables, fixes the states of some variables, runs a program, and writes boxes of other
tables, or what it found. Needs and producers are known by key: a table and a chunk of it. Where the
tables are, a store knows; whether there is a way back makes no difference here.

The answer of a forward sweep is the values at the roots, and optimal states that are decoded from the stored tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import cached_property
from itertools import islice, product
from math import prod
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ...cluster.memory import default_memory_bytes
from ...cluster.pool import Node, TaskLabel
from ...storage.chunks import write_chunk
from ...storage.faults import ChunkLostError, StorageError
from ...storage.files import Place
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import LOG_SCALE, LOGS, create_table
from ...tasks.boxes.box import Box, added_shares, run_box
from ...tasks.boxes.codecs import Codec, root_table
from ...tasks.boxes.stores import Key, Receipts, Store, chunk_store, picked
from ...tasks.gpu.memory import DeviceMemoryError
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program
from ..plans.plan import lowered_step
from ..plans.problem import sliced_dims
from ..plans.stages import Spill, Stage
from ..queries.decode import decode
from ..trees.memory import table_bytes
from .pools import open_tables
from .run import Run

# The scales of a table of probabilities, as Zarr arrays beside it, so that any Zarr reader can use its values.
#
# Each chunk of such a table has a scale of its own, which bucketflow reads from the receipts. Other readers find it in
# the array ``NAME_log_scale``. It has one entry a chunk, and the axes along which the table is cut, by the same names.


def write_scales(folder: Place, spec: TableSpec, receipts: Collection[Receipt]) -> None:
    """Write the scales of a table's finished chunks; NaN stands for the others.

    If chunks hold logarithms, the array ``NAME_logs`` is 1 for these chunks and 0 for others.

    Raises
    ------
    StorageError
        If the arrays cannot be written.
    """
    scales, logs = np.full(spec.grid, np.nan), np.zeros(spec.grid, np.int8)
    for receipt in receipts:
        scales[receipt.chunk], logs[receipt.chunk] = receipt.value["log_scale"], receipt.value["logs"]
    _write(folder, spec, LOG_SCALE, scales, "logarithm of the scale of each chunk")
    if logs.any():
        _write(folder, spec, LOGS, logs, "1 for each chunk of logarithms")


def _write(folder: Place, spec: TableSpec, end: str, values: Any, kind: str) -> None:
    axes = [axis for axis, v in enumerate(spec.variables) if v in spec.chunked]
    beside = replace(
        spec,
        name=spec.name + end,
        variables=tuple(spec.variables[axis] for axis in axes),
        labels=tuple(spec.labels[axis] for axis in axes),
        shape=tuple(spec.shape[axis] for axis in axes),
        chunked=frozenset(),
        dtype=values.dtype.name,
        compression="",
        attributes={"kind": kind, "of": spec.name},
    )
    create_table(folder, beside)
    write_chunk(folder, beside, (0,) * len(axes), values.reshape(beside.shape))


# The common work of a box's parts is computed in each part. A box that needs more parts than this to fit a device
# is planned again, or given up.
_DEVICE_PARTS: Final = 1 << 6

T = TypeVar("T")
Task = tuple[int, int]
"""The index of a stage, and the number of a box."""


@dataclass
class BoxRun(Generic[T]):
    """The boxes of all stages of a plan, over a store.

    Parameters
    ----------
    run : Run
        Network, arithmetic, pool and threads, and the plan.
    store : Store
        Where the tables between stages are.
    keep : bool
        Whether tables are needed after the sweep, for decoding.
    """

    run: Run[T]
    store: Store
    keep: bool = False
    wanted: dict[Task, set[Key]] = field(default_factory=dict)
    """The chunks that each waiting task must write."""
    sent: dict[int, Any] = field(default_factory=dict)
    """The pool's handles of the data shared by the boxes of a stage."""
    cut: dict[Task, tuple[int, ...]] = field(default_factory=dict)
    """Boxes that did not fit a device, and the further variables that their parts fix by now."""
    described: set[str] = field(default_factory=set)
    """Names of the tables whose scales are written already."""

    @property
    def spill(self) -> Spill:
        """The stages."""
        assert self.run.plan.spill is not None
        return self.run.plan.spill

    @cached_property
    def receipts(self) -> Receipts:
        """The receipts of chunks."""
        return Receipts(self.store, lambda: self.by_name)

    @cached_property
    def specs(self) -> dict[int, TableSpec]:
        """The tables between stages, by number."""
        dims = self.spill.dims
        return {
            number: TableSpec(
                name=table.name,
                variables=table.axes,
                labels=self.run.names(table.axes),
                shape=tuple(dims[v] for v in table.axes),
                chunked=table.chunked,
                dtype=self.run.problem.semiring.dtype,
                attributes=self.run.told_of(number, table.axes) | self._told_shares(table.shared),
            )
            for number, table in self.spill.tables.items()
        }

    def _told_shares(self, shared: tuple[int, ...]) -> dict[str, Any]:
        """Return the attributes of an array with axes along which its entries must be added up."""
        return {"shares": self.run.names(shared)} if shared else {}

    @cached_property
    def found(self) -> dict[int, TableSpec]:
        """The specs of the results of each stage's boxes, weights and beliefs, by the index of the stage."""
        specs = {}
        for index, stage in enumerate(self.spill.stages):
            if stage.results or stage.roots:
                sizes = sliced_dims(self.spill.dims, stage.boxed)
                cells = max(1, sum(1 + prod(sizes[v] for v in target) for target in stage.results))
                shape, dtype = (self.spill.boxes(stage), cells), self.codec.belief_dtype
                name, labels = stage.found_name, (f"{stage.found_name}_box", f"{stage.found_name}_cell")
                targets = [self.run.names(target) for target in stage.results]
                told = {"kind": "beliefs of each box, one after the other", "of": targets}
                specs[index] = TableSpec(name, (0, 1), labels, shape, frozenset((0,)), dtype, attributes=told)
        return specs

    @cached_property
    def by_name(self) -> dict[str, TableSpec]:
        """All tables that are stored, by name; roots alone have only receipts."""
        found = [spec for index, spec in self.found.items() if self.spill.stages[index].results]
        return {spec.name: spec for spec in (*self.specs.values(), *found)}

    @cached_property
    def codec(self) -> Codec[T]:
        """How tables are stored."""
        return self.run.arithmetic.codec

    @cached_property
    def writer(self) -> dict[str, int]:
        """The stage that writes a table, by name."""
        made = {self.specs[table].name: i for i, stage in enumerate(self.spill.stages) for table in stage.outputs}
        return made | {spec.name: index for index, spec in self.found.items()}

    def producer(self, key: Key) -> Task:
        """The task that writes a chunk."""
        name, chunk = key
        index = self.writer[name]
        if index in self.found and self.found[index].name == name:
            return index, chunk[0]
        stage, axes = self.spill.stages[index], self.by_name[name].variables
        return index, self.spill.number(stage, {v: chunk[axes.index(v)] for v in stage.boxed})

    def needs(self, task: Task) -> dict[str, list[Key]]:
        """Keys of the chunks that a task reads, by table."""
        stage = self.spill.stages[task[0]]
        states = self.spill.states(stage, task[1])
        specs = [self.specs[table] for table in stage.inputs]
        return {spec.name: [(spec.name, chunk) for chunk in spec.chunks_at(states)] for spec in specs}

    def goals(self) -> Iterator[Key]:
        """Yield the keys of the chunks that the answer is read from."""
        if self.keep:
            yield from ((spec.name, chunk) for spec in self.specs.values() for chunk in spec.chunks_at({}))
        for spec in self.found.values():
            yield from ((spec.name, (box, 0)) for box in range(spec.shape[0]))

    def demanded(self) -> dict[Task, set[Task]]:
        """Unfinished tasks that the answer needs, each with the unfinished ones it waits for."""
        self.wanted = {}
        waiting: dict[Task, set[Task]] = {}
        stack = [key for key in self.goals() if key not in self.receipts]
        while stack:
            key = stack.pop()
            task = self.producer(key)
            self.wanted.setdefault(task, set()).add(key)
            if task not in waiting:
                lacking = [k for keys in self.needs(task).values() for k in keys if k not in self.receipts]
                waiting[task] = {self.producer(k) for k in lacking}
                stack.extend(lacking)
        return waiting

    def resume(self) -> None:
        """Take over what an earlier run finished."""
        if self.store.folder is not None:
            open_tables(self.run.pool, self.store.folder, self.run.told)
        self.receipts.resume()

    def complete(self) -> None:
        """Run the boxes that the answer still needs. Boxes that do not fit the device are cut until they do."""
        self.receipts.until_whole(self.run_waiting)

    def run_waiting(self) -> None:
        """Run the boxes that the answer still needs, unless a chunk is lost.

        Raises
        ------
        ChunkLostError
            After all tasks that could be done.
        """
        while True:
            waiting = self.demanded()
            for name in {name for keys in self.wanted.values() for name, _ in keys if name in self.by_name}:
                self.store.create(self.by_name[name])
            self.report_done(waiting)
            lost, larger = self.attempt(waiting)
            self.store.sync()
            for task, error in larger.items():
                self.cut_further(task, error)
            if lost:
                self.receipts.forget(lost)
                raise ChunkLostError(*lost[0], "a task reported this")
            if not larger:
                return

    def attempt(self, waiting: Mapping[Task, set[Task]]) -> tuple[list[Key], dict[Task, DeviceMemoryError]]:
        """Run tasks in the order of their needs; return chunks that turned out to be lost, and boxes too large."""
        readers = self.open_readers(waiting)
        self.described.clear()
        try:
            return self.take_outcomes(waiting, readers)
        finally:
            self.write_scales(spec for spec in self.specs.values() if spec.name not in self.described)

    def take_outcomes(
        self, waiting: Mapping[Task, set[Task]], readers: dict[Any, int]
    ) -> tuple[list[Key], dict[Task, DeviceMemoryError]]:
        """Run tasks, take their receipts, and delete tables; see :meth:`attempt`."""
        lost: list[Key] = []
        larger: dict[Task, DeviceMemoryError] = {}
        for task, outcome in self.run.pool.run_graph({t: self.node(t, before) for t, before in waiting.items()}):
            if isinstance(outcome, ChunkLostError):
                lost.append((outcome.table, outcome.chunk))
            elif isinstance(outcome, DeviceMemoryError):
                larger[task] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self.receipts.take(outcome)
                if self.run.progress is not None:
                    self.run.progress(self.spill.box_cells(self.spill.stages[task[0]]))
                if not lost:
                    lost += self.free_inputs(task, readers)
        return lost, larger

    def node(self, task: Task, before: set[Task]) -> Node:
        """Describe a box to the pool.

        On the way up, a box with inputs goes first, because its inputs were just written.
        """
        index, number = task
        stage = self.spill.stages[index]
        priority = index if stage.inputs and index <= self.spill.top else -index - 1
        name = f"box-{number + 1}of{self.spill.boxes(stage)}-stage{index + 1}"
        label = TaskLabel(name, f"stage {index + 1}", self.spill.box_cells(stage))
        return Node(before, self.call, priority, stage.moving_bytes, self.spill.room_bytes(stage), label=label)

    def call(self, task: Task) -> tuple[Any, ...]:
        """The function call of a task, once all that it needs is there."""
        index, number = task
        if index not in self.sent:
            self.sent[index] = self.run.shared(self.box(index), f"stage_{index + 1}", index)
        read = {name: [self.receipts[key] for key in keys] for name, keys in self.needs(task).items()}
        wanted: dict[str, set[tuple[int, ...]]] = {}
        for name, chunk in self.wanted[task]:
            wanted.setdefault(name, set()).add(chunk)
        states = self.spill.states(self.spill.stages[index], number)
        return run_box, self.sent[index], number, states, read, wanted, self.run.threads, self.cut.get(task, ())

    def box(self, index: int) -> Box[T]:
        """Build the leaf tables of a stage."""
        stage = self.spill.stages[index]
        overlaps = stage.moving_bytes > 0
        outputs: dict[int, list[TableSpec]] = {}
        for number, table in stage.outputs.items():
            outputs.setdefault(table, []).append(self.specs[number])
        return Box(
            program=self.program(stage, {*stage.results.values(), *stage.roots, *(outputs if overlaps else ())}),
            store=self.store,
            codec=self.codec,
            inputs={table: self.specs[table] for table in stage.inputs},
            shared={table: self.spill.tables[table].shared for table in stage.inputs},
            outputs={table: tuple(specs) for table, specs in outputs.items()},
            results=tuple(stage.results.values()),
            roots=stage.roots,
            found=self.found.get(index),
            overlaps=overlaps,
            device=self.run.device,
        )

    def program(self, stage: Stage, outputs: set[int]) -> Program[T]:
        """Build the program of a stage for the sizes inside a box, with leaves for all."""
        run, dims = self.run, self.spill.dims
        algebra = run.arithmetic.algebra(sliced_dims(dims, stage.boxed), run.compiled)
        if run.device:
            from ...tasks.sweeps.device_sweep import on_device

            algebra = on_device(algebra, run.least_cells)
        return replace(run.program(stage.steps, tuple(sorted(outputs))), dims=dims, algebra=algebra)

    def open_readers(self, waiting: Mapping[Task, set[Task]]) -> dict[Any, int]:
        """For each table, how many boxes have yet to read it; for each stage, how many of its boxes have yet to run."""
        count: Counter[Any] = Counter(index for index, _ in waiting)
        for index, boxes in list(count.items()):
            count.update({self.specs[table].name: boxes for table in self.spill.stages[index].inputs})
        return count

    def free_inputs(self, task: Task, readers: dict[Any, int]) -> list[Key]:
        """Delete the tables without remaining readers, unless the decoding needs them.

        Returns the chunks of an earlier run that are damaged: then nothing is deleted, as they may be made from it.
        """
        readers[task[0]] -= 1
        if not readers[task[0]]:
            del self.sent[task[0]]
            outputs = [self.specs[number] for number in self.spill.stages[task[0]].outputs]
            self.write_scales(outputs)
            self.described.update(spec.name for spec in outputs)
        names = [*self.needs(task)]
        for name in names:
            readers[name] -= 1
        gone = [] if self.keep else [name for name in names if not readers[name]]
        lost = self.receipts.lost_of_earlier(self.by_name) if gone else []
        if gone and not lost:
            self.receipts.delete([self.by_name[name] for name in gone])
        return lost

    def write_scales(self, specs: Iterable[TableSpec]) -> None:
        """Describe the scales of tables of probabilities to other readers; bucketflow reads them from the receipts."""
        folder = self.store.folder
        if folder is None:
            return
        for spec in specs:
            found = [self.receipts.get((spec.name, chunk)) for chunk in spec.chunks_at({})]
            scaled = [receipt for receipt in found if receipt is not None and "log_scale" in receipt.value]
            if scaled:
                with suppress(StorageError):
                    write_scales(folder, spec, scaled)

    def cut_further(self, task: Task, error: DeviceMemoryError) -> None:
        """Do a box that did not fit the device in parts, or in more of them: in each its large tables are smaller."""
        stage, cut = self.spill.stages[task[0]], self.cut.get(task, ())
        sizes = sliced_dims(self.spill.dims, (*stage.boxed, *cut))
        gains: Counter[int] = Counter()
        for axes in (axes for step in stage.steps for axes in (*step.input_axes, step.axes)):
            cells = table_bytes(sizes, axes, 1)
            gains.update({v: cells**2 * (1 - 1 / sizes[v] ** 2) for v in axes if sizes[v] > 1})
        variable = max(gains, key=lambda v: (gains[v], -v), default=None)
        if variable is None or prod(self.spill.dims[v] for v in (*cut, variable)) > _DEVICE_PARTS:
            raise error
        if not self.cut:
            self.run.note(f"boxes did not fit in the device's memory ({error}); they were split")
        self.cut[task] = (*cut, variable)

    def report_done(self, waiting: Mapping[Task, set[Task]]) -> None:
        """Report the cells of the boxes that need not run."""
        if self.run.progress is not None:
            left = sum(self.spill.box_cells(self.spill.stages[index]) for index, _ in waiting)
            self.run.progress(self.run.plan.reported_cells - left)


@contextmanager
def opened_boxes(run: Run[T], name: str, keep: bool) -> Iterator[BoxRun[T]]:
    """Open the boxes of a plan: over files in the run's folder if it has one, otherwise over host memory."""
    store = _store(run, name)
    try:
        yield BoxRun(run, store, keep)
    finally:
        store.close()


def _store(run: Run[Any], name: str) -> Store:
    spill, folder = run.plan.spill, run.folder and (run.folder / name).absolute()
    assert spill is not None
    if not run.device:
        assert folder is not None
        # tables that do not fit the memory beside the tasks make them wait for the disk
        room = default_memory_bytes() - spill.peak_bytes * run.pool.width
        return chunk_store(folder, spill.disk_rate if spill.disk_bytes > room else None)
    from ...tasks.boxes.device_stores import BufferedFiles, HostTables
    from ...tasks.gpu.memory import Pinned

    return HostTables(Pinned(spill.disk_bytes)) if folder is None else BufferedFiles(folder)


def swept_roots(boxes: BoxRun[Any]) -> list[list[Any]]:
    """Run every unfinished box; return the root tables of each box at the roots, or of each of its parts, in order.

    The receipts of the boxes contain these tables.
    """
    boxes.resume()
    boxes.complete()
    return [roots for _, roots in ends(boxes)]


def ends(boxes: BoxRun[Any]) -> Iterator[tuple[dict[int, int], list[Any]]]:
    """Yield the fixed states and the root tables of every box at the roots, or of every part of the box."""
    spill, dtype = boxes.spill, boxes.run.problem.semiring.dtype
    stage, name = spill.stages[spill.top], boxes.found[spill.top].name
    for number in range(spill.boxes(stage)):
        value, states = boxes.receipts[name, (number, 0)].value, spill.states(stage, number)
        choices = product(*(range(spill.dims[v]) for v in value["also"]))
        for more, roots in zip(choices, value["parts"], strict=True):
            fixed = {**states, **dict(zip(value["also"], more, strict=True))}
            yield fixed, [root_table(boxes.codec, root, dtype) for root in roots]


def decoded(boxes: BoxRun[Any], best: int, is_optimal: Callable[[dict[int, int]], bool]) -> dict[int, int]:
    """Return the optimal states, given the best of :func:`ends`; lost or damaged chunks are computed again.

    Decoding reads slices of chunks, without the checksums of whole chunks. If the decoded states are not optimal, all
    checksums are verified.
    """
    return boxes.receipts.until_whole(lambda: _states(boxes, best), boxes.complete, is_optimal)


def _states(boxes: BoxRun[Any], best: int) -> dict[int, int]:
    """Decode stage by stage from the roots on, and read only the needed slices of tables."""
    assignment = dict(next(islice(ends(boxes), best, None))[0])
    for stage in reversed(boxes.spill.stages):
        scope = boxes.run.plan.tree.scopes[stage.head] if stage.head >= 0 else tuple(assignment)
        fixed = {v: assignment[v] for v in scope}
        assignment |= _decoded_stage(boxes, stage, fixed | _best_share(boxes, stage.head, fixed))
    return assignment


def _best_share(boxes: BoxRun[Any], head: int, fixed: Mapping[int, int]) -> dict[int, int]:
    """Return the states of the partial result with the least cost of a head; empty without partial results."""
    shared = boxes.spill.tables[head].shared if head >= 0 else ()
    if not shared:
        return {}
    spec = boxes.specs[head]
    costs = picked(boxes.store, spec, boxes.receipts.at(spec, fixed), fixed)
    place = np.unravel_index(int(costs.argmin()), [boxes.spill.dims[v] for v in shared])
    return dict(zip(shared, map(int, place), strict=True))


def _decoded_stage(boxes: BoxRun[Any], stage: Stage, fixed: Mapping[int, int]) -> dict[int, int]:
    """Sweep a stage again with the variables above it fixed, keeping its messages, and decode it."""
    steps, tables, sizes = swept_stage(boxes, stage, fixed)
    states = dict(fixed)
    decode(steps, tables, sizes, boxes.run.problem.semiring, states, boxes.run.compiled)
    return states


def swept_stage(
    boxes: BoxRun[Any], stage: Stage, fixed: Mapping[int, int]
) -> tuple[tuple[Step, ...], dict[int, Any], tuple[int, ...]]:
    """Sweep a stage again with the variables above it fixed; return its steps, all its tables, and domain sizes.

    If workers hold the devices, this process sweeps on its CPU.
    """
    run, spill = boxes.run, boxes.spill
    run = run if run.serial else replace(run, device=False)
    sizes, problem = sliced_dims(spill.dims, fixed), run.problem
    program = replace(run.program(stage.steps, ()), dims=spill.dims)
    tables = dict(program.restricted_leaves(fixed))
    for head in stage.inputs:
        tables[head] = _picked_sum(boxes, head, fixed)
    steps = tuple(lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in stage.steps)
    kept = program.again(steps, tables).run(keep=[s.node for s in steps], threads=run.threads)
    return steps, {**tables, **kept}, sizes


def _picked_sum(boxes: BoxRun[Any], head: int, fixed: Mapping[int, int]) -> Any:
    """Return the cells of a head's table at some states, the sum of its partial results."""
    spec, shared = boxes.specs[head], boxes.spill.tables[head].shared

    def read(at: Mapping[int, int]) -> Any:
        return picked(boxes.store, spec, boxes.receipts.at(spec, at), at)

    return added_shares(boxes.codec, shared, boxes.spill.dims, fixed, read)
