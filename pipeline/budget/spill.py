"""Planning out of core: stages whose tables live on disk, each cut into boxes that fit the budget.

A stage is a connected part of the tree; its output is a table on disk. A table is chunked along the variables that
its writer or its reader fixes, so both touch whole chunks only: one writer a chunk. Since a box may run through many
steps, only few tables have to be stored: with none at all the boxes are slices.

A grid of 3 x 6 variables of eight states in half of the memory that its plan needs: a few stages, named by the node
whose table they write (-1: the roots), each run once for every state of one variable. The first stage eliminates its
variable: its boxes write shares.

>>> from bucketflow.pipeline.plans.problem import Problem
>>> from bucketflow.pipeline.trees.tree import bucket_tree
>>> from bucketflow.tasks.steps.semiring import MIN_PLUS
>>> scopes = [(v, v + 1) for v in range(18) if v % 3 < 2] + [(v, v + 3) for v in range(15)]
>>> tree = bucket_tree((8,) * 18, scopes, order=range(18))
>>> problem = Problem(tree.dims, tree.leaves, MIN_PLUS, itemsize=8)
>>> planner = Planner(problem)
>>> whole = planner.of(tree)
>>> within = planner.with_options(memory_bytes=BudgetPolicy.margin_bytes + whole.peak_bytes // 2)
>>> spill = plan_spill(within, whole, disk_rate=DISK_RATE).spill
>>> for stage in spill.stages:
...     stage.head, stage.boxed, spill.boxes(stage)
(30, (3,), 8)
(33, (7,), 8)
(37, (10,), 8)
(-1, (14,), 8)
>>> spill.tables[30].shared
(3,)
>>> spill.states(spill.stages[0], 5)
{3: 5}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

from ...tasks.steps.number_limits import CELL_BYTES
from ..errors import BudgetError
from ..orders.effort import OUTLINE_SECONDS
from ..plans.plan import Plan
from ..plans.planner import Planner, planning_seconds
from ..plans.problem import UNLIMITED_BYTES, sliced_dims
from ..plans.stages import Spill, Stage, Stored
from ..plans.two_way_steps import Numbering, choose_readings
from ..trees.memory import parts_below
from .boxes import REPEATED_SHARE, StageMaker, WayBack, found_bytes
from .budget_policy import DISK_RATE, BudgetPolicy

# Tables smaller than 1 / this of the budget initially stay in memory within a stage.
_STORED_SHARES: Final = (8, 32, 128, 512)

# Keeping account of a box, and of a chunk file that is written or read.
BOX_SECONDS, CHUNK_SECONDS = 1e-3, 1e-4


def plan_spill(
    planner: Planner,
    whole: Plan,
    disk_rate: float | Callable[[], float],
    nominal_rate: float = DISK_RATE,
) -> Plan:
    """Cut a plan that does not fit memory into stages and boxes that do, one way or both.

    Parameters
    ----------
    whole : Plan
        The plan in memory, without slices.
    disk_rate : float or callable
        Bytes per second, to predict the time with; the choice of stages does not depend on it. A callable measures
        them, once there are stages.
    nominal_rate : float
        Bytes per second, to choose stages with.

    Raises
    ------
    BudgetError
        If some step does not fit even in its smallest box.
    """
    if whole.cuts:  # stages compute no table twice, and the steps are the recomputed plan's steps
        whole = planner.with_options(memory_bytes=UNLIMITED_BYTES).of(whole.tree)
    tree, way_back, problem = whole.tree, None, planner.problem
    if problem.last:
        raise planner.last_refusal(whole, "boxes on disk")
    if problem.targets is not None:
        results = 2 * sum(prod(tree.dims[v] for v in t) for t in problem.targets) * CELL_BYTES
        way_back = WayBack(tree, whole.layouts, problem, choose_readings(tree, problem.targets), results)
        planner = planner.with_options(decode=False)
    maker = StageMaker(planner, tree, whole.layouts, nominal_rate, way_back)
    cutter = Cutter(maker, tree.schedule)
    stored = planner.options.stages
    stages = _cheapest_stages(cutter, whole) if stored is None else cutter.as_before(stored)
    spill = cutter.priced(stages, disk_rate() if callable(disk_rate) else disk_rate)
    return replace(whole, spill=spill, peak_bytes=spill.peak_bytes, cuts=frozenset())


def _cheapest_stages(cutter: Cutter, whole: Plan) -> tuple[Stage, ...]:
    """Cut a plan into boxes of outputs and, where those do not fit or do much again, into boxes that make shares."""
    planner = cutter.boxing.planner
    if planner.options.kept:  # draws and rankings walk down by the tables at the heads
        return cutter.best()
    sharing = Cutter(replace(cutter.boxing, shares=True), cutter.nodes)
    try:
        stages = cutter.best()
    except BudgetError:
        return sharing.best()
    rate = cutter.boxing.disk_rate
    seconds = cutter.priced(stages, rate).seconds
    close = BudgetPolicy.current().close
    if seconds <= close * whole.seconds or not planner.effort.allows(planning_seconds(whole), seconds):
        return stages
    try:
        others = sharing.best()
    except BudgetError:
        return stages
    return others if close * sharing.priced(others, rate).seconds < seconds else stages


@dataclass(frozen=True)
class Cutter:
    """Chooses the tables that are stored.

    Parameters
    ----------
    nodes : sequence of int
        Internal nodes, children first.
    """

    boxing: StageMaker
    nodes: Sequence[int]
    _made: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Stage | BudgetError] = field(default_factory=dict)

    def best(self) -> tuple[Stage, ...]:
        """Store all large tables; then stop storing tables that cost more than they save, in long runs first."""
        policy = BudgetPolicy.current()
        cuts, stages = self.feasible()
        seconds = self.priced(stages, self.boxing.disk_rate).seconds
        for length in policy.stored_runs:
            for node in [n for n in self.nodes if n in cuts]:
                if not self.boxing.planner.effort.allows(self.trial_seconds, seconds):
                    return stages
                run = self.run(node, length, cuts)
                if len(run) < length:
                    continue
                try:
                    trial = self.stages(cuts - run)
                except BudgetError:
                    continue
                predicted = self.priced(trial, self.boxing.disk_rate).seconds
                if predicted <= seconds:
                    cuts, stages, seconds = cuts - run, trial, predicted
        return stages

    @property
    def trial_seconds(self) -> float:
        """Nominal seconds to divide the nodes into stages and to price the stages, most of which are cached."""
        return OUTLINE_SECONDS * len(self.nodes)

    def run(self, node: int, length: int, cuts: frozenset[int]) -> frozenset[int]:
        """A stored table and the next ones on the way to the root; none if this one is not stored any more."""
        found: list[int] = []
        while node >= 0 and len(found) < length and (found or node in cuts):
            if node in cuts:
                found.append(node)
            node = self.boxing.tree.parent[node]
        return frozenset(found)

    def feasible(self) -> tuple[frozenset[int], tuple[Stage, ...]]:
        """Store as many tables as a fit takes."""
        refusal: BudgetError | None = None
        for share in _STORED_SHARES:
            cuts = self.cuts(share)
            try:
                return cuts, self.stages(cuts)
            except BudgetError as error:
                refusal = error
        assert refusal is not None
        raise refusal

    def cuts(self, share: int) -> frozenset[int]:
        """Return the large tables, and small tables that are expensive to compute."""
        tree = self.boxing.tree
        large = max(self.boxing.available, 0) // share
        cells = {n: self.boxing.step(n).lowered.cells for n in self.nodes}
        total = sum(cells.values())
        work: dict[int, float] = {}
        cuts = set()
        for n in self.nodes:
            work[n] = cells[n] + sum(work.get(i, 0) for i in tree.children[n - tree.n_leaves] if i not in cuts)
            small = self.boxing.whole[n] <= large
            if tree.parent[n] >= 0 and (not small or work[n] > REPEATED_SHARE * total):
                cuts.add(n)
        return frozenset(cuts)

    def stages(self, cuts: frozenset[int]) -> tuple[Stage, ...]:
        """Make the stages between the given tables, readers first."""
        self.boxing.planner.effort.spend(self.trial_seconds)
        parts = self.parts(cuts)
        stages: dict[int, Stage] = {}
        reader: dict[int, Stage] = {}
        for head in reversed(parts):
            inputs = self.inputs(parts[head], cuts)
            preferred = reader[head].boxed if head in reader else ()
            stages[head] = stage = self.stage(head, parts[head], inputs, preferred)
            reader.update(dict.fromkeys(stage.inputs, stage))
        return tuple(stages[head] for head in parts)

    def parts(self, cuts: frozenset[int]) -> dict[int, list[int]]:
        """The nodes below each cut, in execution order; those at the roots under -1, last."""
        steps = [self.boxing.step(n) for n in self.nodes]
        return {head: [s.node for s in part] for head, part in parts_below(self.boxing.tree, steps, cuts).items()}

    def inputs(self, nodes: Sequence[int], cuts: frozenset[int]) -> tuple[int, ...]:
        tree = self.boxing.tree
        return tuple(i for n in nodes for i in tree.children[n - tree.n_leaves] if i in cuts)

    def stage(self, head: int, nodes: Sequence[int], inputs: tuple[int, ...], preferred: tuple[int, ...]) -> Stage:
        """Make a stage, or remember it: most are the same from one trial to the next."""
        key = (head, inputs, preferred)
        if key not in self._made:
            try:
                self._made[key] = self.boxing.stage(head, nodes, inputs, preferred)
            except BudgetError as error:
                self._made[key] = error
        found = self._made[key]
        if isinstance(found, BudgetError):
            raise found
        return found

    def as_before(self, stored: Sequence[tuple[int, tuple[int, ...], frozenset[int]]]) -> tuple[Stage, ...]:
        """Rebuild the stages of an earlier run; their chunks may exist already."""
        cuts = frozenset(head for head, _, _ in stored if head >= 0)
        parts = self.parts(cuts)
        return tuple(
            self.boxing.boxed_stage(head, parts[head], self.inputs(parts[head], cuts), boxed, chunked)
            for head, boxed, chunked in stored
        )

    def priced(self, stages: tuple[Stage, ...], disk_rate: float) -> Spill:
        """Add up bytes and seconds, and the peak of the bytes on disk; ``stages`` are the stages of the way up.

        Every stage reads and writes boxes of its tables; with a way back, each writes and has read what it finds.

        Parameters
        ----------
        disk_rate : float
            Bytes per second.

        Returns
        -------
        Spill
            Its seconds are the steps of all boxes, the bookkeeping of boxes and chunk files, and the movement of bytes
            at the disk's rate.
        """
        boxing, dims = self.boxing, self.boxing.tree.dims
        order = (*stages[:-1], *self.ways_back(stages)) if boxing.way_back else stages
        tables = self.tables(stages, order)
        last = {table: index for index, stage in enumerate(order) for table in stage.inputs}
        size = {table: boxing.axes_bytes(stored.axes, dims) for table, stored in tables.items()}
        read = written = live = peak_disk = found = 0
        seconds = moving = 0.0
        for index, stage in enumerate(order):
            boxes, sizes = prod(dims[v] for v in stage.boxed), sliced_dims(dims, stage.boxed)
            seconds += boxes * boxing.seconds(stage.steps)
            moving += boxes * BOX_SECONDS
            files = sum(prod(sizes[v] for v in tables[i].chunked) for i in stage.inputs) * boxes
            files += sum(prod(dims[v] for v in tables[i].chunked) for i in stage.outputs)
            moving += files * CHUNK_SECONDS
            beliefs = boxes * found_bytes(stage, sizes)
            read += boxes * sum(boxing.axes_bytes(tables[i].axes, sizes) for i in stage.inputs) + beliefs
            written += sum(size[i] for i in stage.outputs) + beliefs
            found += beliefs
            live += sum(size[i] for i in stage.outputs)
            peak_disk = max(peak_disk, live)
            # an optimum keeps its tables on disk for decoding
            if not boxing.planner.options.decode:
                live -= sum(size[i] for i in stage.inputs if last[i] == index)
        moving += (read + written) / disk_rate
        return Spill(
            stages=order,
            tables=tables,
            dims=dims,
            itemsize=boxing.planner.problem.itemsize,
            memory_bytes=boxing.planner.memory_bytes,
            peak_bytes=max(s.peak_bytes for s in order)
            + boxing.planner.problem.model_bytes
            + BudgetPolicy.current().margin_bytes,
            disk_bytes=peak_disk + found,
            read_bytes=read,
            written_bytes=written,
            seconds=seconds + moving,
            moving_seconds=moving,
            disk_rate=disk_rate,
        )

    def tables(self, up: Sequence[Stage], order: Sequence[Stage]) -> dict[int, Stored]:
        """The tables between stages: those at the heads, and what comes from above some of them.

        A variable that the boxes of a stage fix but its head does not have creates one partial result of the head's
        table per state. The message to the head of a lower stage without the variable has as many partial results.
        """
        tree, dims = self.boxing.tree, self.boxing.tree.dims
        wide = {s.head: tuple(v for v in self.boxing.layouts[s.head] if dims[v] > 1) for s in up if s.head >= 0}
        chunked = {stage.head: stage.chunked for stage in up}
        boxed = {stage.head: stage.boxed for stage in up}
        tables = {}
        for head, axes in wide.items():
            shared = tuple(v for v in boxed[head] if v not in tree.scopes[head])
            tables[head] = Stored(f"msg_{head}", (*shared, *axes), chunked[head] | {*shared}, shared)
        number = Numbering(len(tree.scopes))
        for stage in order:
            for table in filter(number.is_down, stage.outputs):
                head = number.node(table)
                shared = tuple(v for v in stage.boxed if v not in tree.scopes[head])
                axes = (*shared, *wide[head])
                cut = frozenset(v for v in axes if v in stage.boxed or v in chunked[head])
                tables[table] = Stored(f"above_{head}", axes, cut, shared)
        return tables

    def ways_back(self, stages: Sequence[Stage]) -> tuple[Stage, ...]:
        """The stages on the way back that something is read from, that at the roots first."""
        way_back = self.boxing.way_back
        assert way_back is not None
        visited, found = {-1}, []
        for stage in reversed(stages):
            if stage.head in visited:
                nodes = [s.node for s in stage.steps]
                back = way_back.stage(stage.head, nodes, stage.inputs, stage.boxed)
                found.append(replace(back, chunked=stage.chunked, peak_bytes=stage.peak_bytes))
                visited.update(i for i in stage.inputs if way_back.beyond[i])
        return tuple(found)
