"""Running a propagation whose tables are on disk: boxes of both ways as tasks, resumable from the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import numpy as np

from ...cluster.pool import Node
from ...storage import ledger
from ...storage.chunks import read_chunk
from ...storage.errors import ChunkLostError
from ...storage.spec import TableSpec
from ...storage.tables import create_table
from ...tasks.boxes.boxes import Codec, PlainCodec, ScaledCodec, root_table, run_box
from ...tasks.boxes.down_boxes import DownBox, run_down_box
from ...tasks.sweeps.beliefs import UNREACHABLE
from ..budget.two_way_spill import found_name
from ..errors import InternalError
from ..plans.plan import sliced_dims
from ..plans.stages import DownStage, Stage, TwoWaySpill
from ..queries.arithmetic import log_sum
from ..queries.beliefs import Beliefs, belief_dtype, combiner_for, place
from ..trees.tree import Target
from .boxes import ATTEMPTS, OutOfCore, Task

T = TypeVar("T")
Key = tuple[str, tuple[int, ...]]


@dataclass
class BothWays(OutOfCore[T]):
    """Both sweeps of a propagation, in a folder.

    The stages are numbered as they run: those of the way up but the last, then those of the way back.
    """

    wanted: dict[Task, set[Key]] = field(default_factory=dict)
    sent: dict[int, Any] = field(default_factory=dict)

    @property
    def spill(self) -> TwoWaySpill:
        """The stages."""
        spill = self.run.plan.spill
        assert isinstance(spill, TwoWaySpill)
        return spill

    @cached_property
    def order(self) -> tuple[Stage | DownStage, ...]:
        """All stages, in execution order."""
        return (*self.spill.stages[:-1], *self.spill.down)

    @property
    def sums(self) -> bool:
        """Whether beliefs are sums of probabilities, not least costs or energies."""
        return self.run.problem.semiring.name == "sum_product"

    @property
    def first_down(self) -> int:
        """Index of the first stage on the way back."""
        return len(self.spill.stages) - 1

    def above(self, node: int) -> int:
        """Number of the table of what comes from above a node."""
        return len(self.run.plan.tree.scopes) + node

    @cached_property
    def specs(self) -> dict[int, TableSpec]:
        """All tables: upward messages by node, those from above by their number, what boxes find by stage."""
        return {**super().specs, **self.messages, **{-1 - i: spec for i, spec in self.found.items()}}

    @cached_property
    def messages(self) -> dict[int, TableSpec]:
        """What comes from above the heads, with an axis for every variable whose shares are to be added up."""
        model, variables, plan = self.run.network.model, self.run.network.variables, self.run.plan
        chunked = {stage.head: stage.chunked for stage in self.spill.stages}
        specs = {}
        for stage in self.spill.down:
            for node in stage.outputs:
                scope = plan.tree.scopes[node]
                shares = [v for v in stage.boxed if v not in scope]
                axes = (*shares, *(v for v in plan.layouts[node] if self.spill.dims[v] > 1))
                specs[self.above(node)] = TableSpec(
                    name=f"above_{node}",
                    variables=axes,
                    labels=tuple(model.names[variables[v]] for v in axes),
                    shape=tuple(self.spill.dims[v] for v in axes),
                    chunked=frozenset(v for v in axes if v in stage.boxed or v in chunked[node]),
                    dtype=self.run.problem.semiring.dtype,
                )
        return specs

    @cached_property
    def found(self) -> dict[int, TableSpec]:
        """Weights and beliefs of every box of the stages on the way back, by the index of the stage."""
        specs = {}
        for index, stage in enumerate(self.spill.down, self.first_down):
            sizes = sliced_dims(self.spill.dims, stage.boxed)
            cells = max(1, sum(1 + prod(sizes[v] for v in target) for target in stage.results))
            shape, dtype = (self.boxes(index), cells), belief_dtype(self.run.arithmetic)
            specs[index] = TableSpec(found_name(stage), (0, 1), ("box", "cell"), shape, frozenset((0,)), dtype)
        return specs

    def boxes(self, index: int) -> int:
        """Number of boxes of a stage."""
        return prod(self.spill.dims[v] for v in self.order[index].boxed)

    @cached_property
    def writer(self) -> dict[str, int]:
        """The stage that writes a table, by name."""
        found = {}
        for index, stage in enumerate(self.order):
            written = (
                [self.above(i) for i in stage.outputs] + [-1 - index] if isinstance(stage, DownStage) else [stage.head]
            )
            found.update({self.specs[table].name: index for table in written})
        return found

    @cached_property
    def by_name(self) -> dict[str, TableSpec]:
        """All tables by name."""
        return {spec.name: spec for spec in self.specs.values()}

    def producer(self, key: Key) -> Task:
        """The task that writes a chunk."""
        index = self.writer[key[0]]
        if index in self.found and self.found[index].name == key[0]:
            return index, key[1][0]
        stage, spec = self.order[index], self.by_name[key[0]]
        states = {v: key[1][spec.variables.index(v)] for v in stage.boxed}
        return index, self.number(stage, states)

    def needs(self, task: Task) -> dict[str, list[Key]]:
        """Keys of the chunks that a task reads, by table."""
        stage = self.order[task[0]]
        states = self.states(stage, task[1])
        specs = [self.specs[table] for table in stage.inputs]
        return {spec.name: [(spec.name, chunk) for chunk in spec.chunks_at(states)] for spec in specs}

    def goals(self) -> Iterator[Key]:
        """Keys of what the answer is read from."""
        for index, spec in self.found.items():
            if self.order[index].results or index == self.first_down:  # type: ignore[union-attr]
                yield from ((spec.name, (box, 0)) for box in range(self.boxes(index)))

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

    def create_tables(self, waiting: Mapping[Task, set[Task]]) -> None:
        """Make room for what the waiting tasks write."""
        found = {spec.name for spec in self.found.values()}
        for name in {name for keys in self.wanted.values() for name, _ in keys}:
            if name in found:
                create_table(self.folder, self.by_name[name])
            else:
                self.create(self.by_name[name])

    def node(self, index: int, before: set[Task]) -> Node:
        """Describe a box to the pool; on the way back nothing else is moved while it computes."""
        if index < self.first_down:
            return super().node(index, before)
        return Node(before, self.call, -index)

    def call(self, task: Task) -> tuple[Any, ...]:
        """The function call of a task, once all that it needs is there."""
        index, number = task
        stage = self.order[index]
        if index not in self.sent:
            box = self.down_box(index, stage) if isinstance(stage, DownStage) else self.box(index)
            self.sent[index] = self.run.pool.put(box)
        read = {name: [self.receipts[key] for key in keys] for name, keys in self.needs(task).items()}
        wanted: dict[str, set[tuple[int, ...]]] = {}
        for name, chunk in self.wanted[task]:
            wanted.setdefault(name, set()).add(chunk)
        states = self.states(stage, number)
        if isinstance(stage, DownStage):
            return run_down_box, self.sent[index], number, states, read, wanted, self.run.threads
        (chunks,) = wanted.values()
        return run_box, self.sent[index], number, states, read, chunks, self.run.threads

    def down_box(self, index: int, stage: DownStage) -> DownBox[T]:
        """Build the leaf tables of a stage on the way back."""
        run = self.run
        program = run.program(stage.steps, ())
        outputs: dict[int, list[TableSpec]] = {}
        for node, table in stage.outputs.items():
            outputs.setdefault(table, []).append(self.specs[self.above(node)])
        inputs = {table: self.specs[table] for table in stage.inputs}
        scope = run.plan.tree.scopes[stage.head] if stage.head >= 0 else frozenset()
        shares = (
            tuple(v for v in inputs[self.above(stage.head)].variables if v not in scope)
            if (self.above(stage.head) in inputs)
            else ()
        )
        codec: Codec[Any] = ScaledCodec() if self.sums else PlainCodec()
        return DownBox(
            folder=self.folder.absolute(),
            steps=stage.steps,
            freed=stage.freed,
            leaves=program.leaves,
            leaf_axes=program.leaf_axes,
            sizes=self.spill.dims,
            algebra=run.arithmetic.algebra(sliced_dims(self.spill.dims, stage.boxed), run.compiled),
            inputs=inputs,
            shares={self.above(stage.head): shares},
            outputs={table: tuple(specs) for table, specs in outputs.items()},
            results=tuple(stage.results.values()),
            roots=stage.roots,
            found=self.found[index],
            infinity=run.problem.semiring.zero,
            codec=codec,
            disk_rate=self.disk_rate,
        )

    def open_readers(self, waiting: Mapping[Task, set[Task]]) -> dict[Any, int]:
        """For each table, how many boxes have yet to read it; for each stage, how many of its boxes have yet to run."""
        count: Counter[Any] = Counter(index for index, _ in waiting)
        for index, boxes in list(count.items()):
            count.update({self.specs[table].name: boxes for table in self.order[index].inputs})
        return count

    def free_inputs(self, task: Task, readers: dict[Any, int]) -> None:
        """Delete the tables that nobody reads any more."""
        for name in self.needs(task):
            readers[name] -= 1
            if not readers[name]:
                self.remove(self.by_name[name])
        readers[task[0]] -= 1
        if not readers[task[0]]:
            del self.sent[task[0]]

    def remove(self, spec: TableSpec) -> None:
        """Delete a table, and what is known of it; first the receipts of what was made from it are forced to disk."""
        ledger.sync(self.folder)
        self.delete(spec)
        self.forget([key for key in self.receipts if key[0] == spec.name])

    def report_done(self, waiting: Mapping[Task, set[Task]]) -> None:
        """Report the bytes of the boxes that need not run."""
        if self.run.progress is not None:
            self.run.progress(self.planned_bytes - sum(self.box_bytes(index) for index, _ in waiting))

    @property
    def planned_bytes(self) -> int:
        """Bytes that the steps of all boxes read and write."""
        return sum(self.boxes(index) * self.box_bytes(index) for index in range(len(self.order)))

    def box_bytes(self, index: int) -> int:
        """Bytes that the steps of one box of a stage read and write."""
        steps = self.order[index].steps
        return sum((sum(s.lowered.input_cells) + s.lowered.out_cells) for s in steps) * self.spill.itemsize

    def propagated(self) -> Beliefs:
        """Run every box that is not done yet and add up what all have found."""
        self.resume()
        for _ in range(ATTEMPTS):
            self.complete()
            try:
                beliefs = self.beliefs()
            except ChunkLostError as error:
                self.forget([(error.table, error.chunk), *self.damaged()])
                continue
            for name in {*self.by_name} - {spec.name for spec in self.found.values()}:
                self.delete(self.by_name[name])
            return beliefs
        raise InternalError(f"chunks of {self.folder} are lost as fast as they are written")

    def beliefs(self) -> Beliefs:
        """Add up what the boxes have found."""
        total = self.total()
        if total is None:
            return Beliefs(None, {})
        tables: dict[Target, Any] = {}
        for index, spec in self.found.items():
            tables |= self.stage_beliefs(index, spec)
        return Beliefs(total, tables)

    def total(self) -> Any:
        """Return the value of everything, None if nothing is possible."""
        arithmetic, dtype = self.run.arithmetic, self.run.problem.semiring.dtype
        name = self.found[self.first_down].name
        totals = []
        for box in range(self.boxes(self.first_down)):
            roots = self.receipts[name, (box, 0)].value["roots"]
            totals.append(arithmetic.total([root_table(value, dtype) for value in roots]))
        if self.sums:
            total = log_sum(totals)
            return total if total > -np.inf else None
        return min((t for t in totals if t is not None), default=None)

    def stage_beliefs(self, index: int, spec: TableSpec) -> dict[Target, Any]:
        """Add up the beliefs of the boxes of one stage, each target's with weights of its own."""
        stage = self.order[index]
        assert isinstance(stage, DownStage)
        if not stage.results:
            return {}
        dims = self.spill.dims
        sizes = sliced_dims(dims, stage.boxed)
        combiners = {t: combiner_for({t: tuple(dims[v] for v in t)}, self.run.arithmetic) for t in stage.results}
        values = np.empty(spec.shape[1], spec.dtype)
        for box in range(self.boxes(index)):
            read_chunk(self.folder, spec, self.receipts[spec.name, (box, 0)], values)
            states = self.states(stage, box)
            start = len(combiners)
            for weight, (target, combiner) in zip(values, combiners.items(), strict=False):
                cells = prod(sizes[v] for v in target)
                if np.isfinite(weight) and weight != UNREACHABLE:
                    combiner.add(weight.item(), {target: (values[start : start + cells], place(target, states))})
                start += cells
        return {target: combiner.beliefs().tables[target] for target, combiner in combiners.items()}
