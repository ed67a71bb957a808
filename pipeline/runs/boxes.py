"""Running a spill plan: boxes as tasks with explicit dependencies, resumable from the ledger (DESIGN §8, §9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ...cluster.budget import default_memory_bytes
from ...cluster.pool import Node
from ...storage import ledger
from ...storage.chunks import damaged, lost_files
from ...storage.errors import ChunkLostError
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import create_table, delete_table
from ...tasks.boxes.boxes import Box, codec_for, read_slice, root_table, run_box
from ..errors import InternalError
from ..plans.plan import sliced_dims
from ..plans.planner import lowered_step
from ..plans.stages import Spill, Stage
from ..queries.decode import decode
from .forward import Run
from .pools import open_tables

T = TypeVar("T")
Task = tuple[int, int]

# A chunk that is lost again and again is a broken disk.
ATTEMPTS = 5


class Boxed(Protocol):
    """What runs box by box."""

    @property
    def boxed(self) -> tuple[int, ...]:
        """Variables that a box fixes."""
        ...


@dataclass
class OutOfCore(Generic[T]):
    """One sweep of a plan that spills, in a folder.

    Parameters
    ----------
    run : Run
        Network, arithmetic, pool and threads, and the plan.
    folder : Path
        Tables and ledger.
    keep : bool
        Whether tables are needed after the sweep, for decoding.
    """

    run: Run[T]
    folder: Path
    keep: bool = False
    receipts: dict[tuple[str, tuple[int, ...]], Receipt] = field(default_factory=dict)

    @property
    def spill(self) -> Spill:
        """The stages."""
        assert self.run.plan.spill is not None
        return self.run.plan.spill

    @cached_property
    def specs(self) -> dict[int, TableSpec]:
        """The table of every stage but the last, by head."""
        model, variables = self.run.network.model, self.run.network.variables
        specs = {}
        for stage in self.spill.stages[:-1]:
            wide = tuple(v for v in self.run.plan.layouts[stage.head] if self.spill.dims[v] > 1)
            specs[stage.head] = TableSpec(
                name=f"msg_{stage.head}",
                variables=wide,
                labels=tuple(model.names[variables[v]] for v in wide),
                shape=tuple(self.spill.dims[v] for v in wide),
                chunked=stage.chunked,
                dtype=self.run.problem.semiring.dtype,
            )
        return specs

    @cached_property
    def shared(self) -> list[Any]:
        """What the boxes of each stage share, where the pool's tasks find it."""
        return [self.run.pool.put(self.box(i)) for i in range(len(self.spill.stages))]

    @cached_property
    def disk_rate(self) -> float | None:
        """Bytes per second of the disk, if the tables are too large to stay in memory beside a task's own."""
        if self.run.device:
            return None
        room = default_memory_bytes() - self.spill.peak_bytes * self.run.pool.width
        return self.spill.disk_rate if self.spill.disk_bytes > room else None

    def box(self, index: int) -> Box[T]:
        """Build the leaf tables of a stage."""
        stage = self.spill.stages[index]
        outputs = (stage.head,) if stage.head >= 0 else self.run.plan.tree.roots
        program = replace(self.run.program(stage.steps, outputs), dims=self.spill.dims)
        sizes = sliced_dims(self.spill.dims, stage.boxed)
        algebra = self.run.arithmetic.algebra(sizes, self.run.compiled)
        inputs = {i: self.specs[i] for i in stage.inputs}
        return Box(
            self.folder.absolute(),
            replace(program, algebra=algebra),
            self.spill.dims,
            inputs,
            stage.head,
            self.specs.get(stage.head),
            "result",
            codec_for(self.run.problem.semiring),
            self.disk_rate,
        )

    def states(self, stage: Boxed, number: int) -> dict[int, int]:
        """States that box ``number`` fixes; the last variable varies fastest."""
        states = {}
        for v in reversed(stage.boxed):
            number, states[v] = divmod(number, self.spill.dims[v])
        return states

    def number(self, stage: Boxed, states: Mapping[int, int]) -> int:
        """Number of the box with the given states."""
        number = 0
        for v in stage.boxed:
            number = number * self.spill.dims[v] + states[v]
        return number

    def outputs(self, task: Task) -> list[tuple[str, tuple[int, ...]]]:
        """Keys of the receipts that a task leaves."""
        stage = self.spill.stages[task[0]]
        spec = self.specs.get(stage.head)
        if spec is None:
            return [("result", (task[1],))]
        return [(spec.name, chunk) for chunk in spec.chunks_at(self.states(stage, task[1]))]

    def needs(self, task: Task) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
        """Keys of the chunks that a task reads, by table."""
        stage = self.spill.stages[task[0]]
        states = self.states(stage, task[1])
        found = {}
        for head in stage.inputs:
            spec = self.specs[head]
            found[spec.name] = [(spec.name, chunk) for chunk in spec.chunks_at(states)]
        return found

    def producers(self, task: Task) -> Iterator[Task]:
        """Tasks that write what a task reads."""
        stage = self.spill.stages[task[0]]
        states = self.states(stage, task[1])
        for head in stage.inputs:
            index = self.index_of[head]
            source = self.spill.stages[index]
            choices = [(states[v],) if v in states else range(self.spill.dims[v]) for v in source.boxed]
            for combination in product(*choices):
                yield index, self.number(source, dict(zip(source.boxed, combination, strict=True)))

    @cached_property
    def index_of(self) -> dict[int, int]:
        """Index of the stage that ends at a head."""
        return {stage.head: i for i, stage in enumerate(self.spill.stages)}

    def is_done(self, task: Task) -> bool:
        """Whether every receipt of a task is in the ledger."""
        return all(key in self.receipts for key in self.outputs(task))

    def demanded(self) -> dict[Task, set[Task]]:
        """Unfinished tasks that the answer needs, each with the unfinished ones it waits for."""
        last = len(self.spill.stages) - 1
        goals = range(last + 1) if self.keep else [last]
        stack = [(i, b) for i in goals for b in range(self.spill.boxes(self.spill.stages[i]))]
        waiting: dict[Task, set[Task]] = {}
        while stack:
            task = stack.pop()
            if task in waiting or self.is_done(task):
                continue
            before = {p for p in self.producers(task) if not self.is_done(p)}
            waiting[task] = before
            stack.extend(before)
        return waiting

    def resume(self) -> None:
        """Take over what an earlier run finished: receipts whose chunk files are there in full length."""
        open_tables(self.run.pool, self.folder)
        self.receipts = ledger.load(self.folder)
        names = {spec.name: spec for spec in self.specs.values()}
        self.forget([receipt.key for receipt in lost_files(self.folder, names, self.receipts)])

    def sweep(self) -> list[list[Any]]:
        """Run every box that is not done yet; return the root tables of the last stage's boxes, in order."""
        self.resume()
        self.complete()
        return self.roots()

    def complete(self) -> None:
        """Run what the answer lacks. Once a chunk turns out to be lost, all others are verified too."""
        for _ in range(ATTEMPTS):
            waiting = self.demanded()
            self.create_tables(waiting)
            self.report_done(waiting)
            lost = self.attempt(waiting)
            ledger.sync(self.folder)
            if not lost:
                return
            self.forget([*lost, *self.damaged()])
        raise InternalError(f"chunks of {self.folder} are lost as fast as they are written")

    def create_tables(self, waiting: Mapping[Task, set[Task]]) -> None:
        """Make room for what the waiting tasks write."""
        for index in {index for index, _ in waiting}:
            if (spec := self.specs.get(self.spill.stages[index].head)) is not None:
                self.create(spec)

    def damaged(self) -> list[tuple[str, tuple[int, ...]]]:
        """Verify the checksum of every chunk; return the keys of those that differ."""
        names = {spec.name: spec for spec in self.specs.values()}
        return [receipt.key for receipt in damaged(self.folder, names, self.receipts)]

    def forget(self, lost: list[tuple[str, tuple[int, ...]]]) -> None:
        """Drop the receipts of lost chunks."""
        for key in lost:
            self.receipts.pop(key, None)

    def attempt(self, waiting: dict[Task, set[Task]]) -> list[tuple[str, tuple[int, ...]]]:
        """Run tasks in the order of their needs; return the keys of chunks that turned out to be lost."""
        lost: list[tuple[str, tuple[int, ...]]] = []
        nodes = {task: self.node(task[0], before) for task, before in waiting.items()}
        readers = self.open_readers(waiting)
        for task, outcome in self.run.pool.run_graph(nodes):
            if isinstance(outcome, ChunkLostError):
                lost.append((outcome.table, outcome.chunk))
                continue
            if isinstance(outcome, BaseException):
                self.fail(task, outcome)
                continue
            for receipt in outcome:
                self.receipts[receipt.key] = receipt
            self.report(task)
            if not lost:
                self.free_inputs(task, readers)
        return lost

    def call(self, task: Task) -> tuple[Any, ...]:
        """The function call of a task, once all that it needs is there."""
        stage = self.spill.stages[task[0]]
        read = {name: [self.receipts[key] for key in keys] for name, keys in self.needs(task).items()}
        wanted = {chunk for name, chunk in self.outputs(task) if (name, chunk) not in self.receipts}
        states = self.states(stage, task[1])
        return run_box, self.shared[task[0]], task[1], states, read, wanted, self.run.threads

    def node(self, index: int, before: set[Task]) -> Node:
        """Describe a box of a stage to the pool; one that reads goes first: what it reads was just written."""
        stage = self.spill.stages[index]
        priority = index if stage.inputs else -index - 1
        return Node(before, self.call, priority, stage.moving_bytes, self.spill.room_bytes(stage))

    def open_readers(self, waiting: Mapping[Task, set[Task]]) -> dict[int, int]:
        """For each stage, how many of its boxes have yet to run."""
        count = dict.fromkeys(range(len(self.spill.stages)), 0)
        for index, _ in waiting:
            count[index] += 1
        return count

    def free_inputs(self, task: Task, readers: dict[int, int]) -> None:
        """Delete the tables that a finished stage read, unless the decoding needs them."""
        readers[task[0]] -= 1
        if self.keep or readers[task[0]]:
            return
        ledger.sync(self.folder)
        for head in self.spill.stages[task[0]].inputs:
            self.delete(self.specs[head])

    def create(self, spec: TableSpec) -> None:
        """Make room for a table; its first box does where that chooses how to store it."""
        if self.disk_rate is None:
            create_table(self.folder, spec)

    def delete(self, spec: TableSpec) -> None:
        """Remove a table."""
        delete_table(self.folder, spec)

    def cells(self, spec: TableSpec, fixed: Mapping[int, int]) -> Any:
        """Return the cells of a table that agree with fixed variables."""
        receipts = [self.receipts[spec.name, chunk] for chunk in spec.chunks_at(fixed)]
        return read_slice(self.folder, spec, receipts, fixed)

    def fail(self, task: Task, error: BaseException) -> None:
        """Take note of a task that ended with an error, or raise it."""
        raise error

    def report_done(self, waiting: Mapping[Task, set[Task]]) -> None:
        """Report the bytes of the boxes that need not run."""
        if self.run.progress is None:
            return
        boxes = sum(self.spill.boxes(s) * self.box_bytes(i) for i, s in enumerate(self.spill.stages))
        self.run.progress(boxes - sum(self.box_bytes(index) for index, _ in waiting))

    def report(self, task: Task) -> None:
        """Report a finished box."""
        if self.run.progress is not None:
            self.run.progress(self.box_bytes(task[0]))

    def box_bytes(self, index: int) -> int:
        """Bytes that the steps of one box of a stage read and write."""
        stage = self.spill.stages[index]
        return sum((sum(s.lowered.input_cells) + s.lowered.out_cells) for s in stage.steps) * self.spill.itemsize

    def roots(self) -> list[list[Any]]:
        """Root tables of every box of the last stage, or of each of its parts, rebuilt from their receipts."""
        dtype = self.run.problem.semiring.dtype
        return [[root_table(value, dtype) for value in roots] for _, roots in self.ends()]

    def ends(self) -> Iterator[tuple[dict[int, int], Any]]:
        """Yield what every box of the last stage fixes, with its roots; where it was done in parts, each of them."""
        last = self.spill.stages[-1]
        for b in range(self.spill.boxes(last)):
            value, states = self.receipts["result", (b,)].value, self.states(last, b)
            if "parts" not in value:
                yield states, value["roots"]
                continue
            choices = product(*(range(self.spill.dims[v]) for v in value["also"]))
            for more, roots in zip(choices, value["parts"], strict=True):
                yield {**states, **dict(zip(value["also"], more, strict=True))}, roots

    def decoded(self, best: int, is_optimal: Callable[[dict[int, int]], bool]) -> dict[int, int]:
        """Return the optimal states; chunks that are lost or damaged by now are computed again first.

        Slices are read without their chunks' checksums, which need whole chunks; so all checksums are verified
        if the states turn out not to be optimal.
        """
        for _ in range(ATTEMPTS):
            try:
                states = self.decode(best)
            except ChunkLostError as error:
                lost = [(error.table, error.chunk)]
            else:
                lost = [] if is_optimal(states) else self.damaged()
                if not lost:
                    return states
            self.forget(lost)
            self.complete()
        raise InternalError(f"chunks of {self.folder} are lost as fast as they are written")

    def decode(self, best: int) -> dict[int, int]:
        """Return the optimal states, given the best of :meth:`ends`; reads only the slices it needs."""
        assignment = dict(next(islice(self.ends(), best, None))[0])
        for stage in reversed(self.spill.stages):
            scope = self.run.plan.tree.scopes[stage.head] if stage.head >= 0 else tuple(assignment)
            self.decode_stage(stage, {v: assignment[v] for v in scope}, assignment)
        return assignment

    def decode_stage(self, stage: Stage, fixed: Mapping[int, int], assignment: dict[int, int]) -> None:
        """Sweep a stage again with the variables above it fixed, keeping its messages, and decode it."""
        sizes = sliced_dims(self.spill.dims, fixed)
        problem = self.run.problem
        program = replace(self.run.program(stage.steps, ()), dims=self.spill.dims)
        tables = dict(program.restricted_leaves(fixed))
        for head in stage.inputs:
            tables[head] = self.cells(self.specs[head], fixed)
        steps = [lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in stage.steps]
        again = program.again(tuple(steps), tables)
        kept = again.run(keep=[s.node for s in steps], threads=self.run.threads)
        states = dict(fixed)
        decode(steps, {**tables, **kept}, sizes, problem.semiring, states, self.run.compiled)  # type: ignore[dict-item]
        assignment.update(states)
