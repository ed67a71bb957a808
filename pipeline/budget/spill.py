"""Planning out of core: stages whose tables live on disk, each cut into boxes that fit the budget (DESIGN §8).

A stage is a connected part of the tree; its output is a table on disk. A table is chunked along the variables that
its writer or its reader fixes, so both touch whole chunks only: one writer a chunk. Since a box may run through many
steps, only few tables have to be stored: with none at all the boxes are slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ..errors import BudgetError
from ..plans.plan import Plan, PlanOptions, Problem, sliced_dims
from ..plans.stages import Spill, Stage
from ..trees.costs import Rates
from ..trees.memory import parts_below
from .boxes import MARGIN, Boxing

# Tables of less than this share of the budget stay in memory within a stage, to begin with.
_SHARES = (8, 32, 128, 512)
# A subtree that costs this share of the whole is swept once and stored, to begin with, not again in every box.
_WORK_SHARE = 0.02
# Tables are tried to be left out in runs of so many, each time from so many places at most: two stages become one
# at the price of more and smaller chunks, which only pays once several have.
_RUNS = (16, 8, 4, 2, 1)
_MAX_TRIALS = 256
# The same plan has to come out again, so it is chosen with a typical rate of a disk and not with a measured one.
DISK_RATE = 5e8
# Keeping account of a box, and of a chunk file that is written or read.
BOX_SECONDS, CHUNK_SECONDS = 1e-3, 1e-4


def plan_spill(
    problem: Problem,
    options: PlanOptions,
    rates: Rates,
    whole: Plan,
    disk_rate: float,
    nominal_rate: float = DISK_RATE,
) -> Plan:
    """Cut a plan that does not fit memory into stages and boxes that do.

    Parameters
    ----------
    whole : Plan
        The plan in memory, without slices.
    disk_rate : float
        Bytes per second, to predict the time with; the choice of stages does not depend on it.
    nominal_rate : float
        Bytes per second, to choose stages with.

    Raises
    ------
    BudgetError
        If some step does not fit even in its smallest box.
    """
    boxing = Boxing(problem, options, rates, whole.tree, whole.layouts, nominal_rate)
    cutter = Cutter(boxing, whole.tree.schedule)
    stages = cutter.best() if options.stages is None else cutter.as_before(options.stages)
    spill = cutter.priced(stages, disk_rate)
    return replace(whole, spill=spill, peak_bytes=spill.peak_bytes, cuts=frozenset())


@dataclass(frozen=True)
class Cutter:
    """Chooses the tables that are stored.

    Parameters
    ----------
    nodes : sequence of int
        Internal nodes, children first.
    """

    boxing: Boxing
    nodes: Sequence[int]
    _made: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Stage | BudgetError] = field(default_factory=dict)

    def best(self) -> tuple[Stage, ...]:
        """Store all large tables; then leave out those that cost more than they save, many in a row at first."""
        cuts, stages = self.feasible()
        seconds = self.priced(stages, self.boxing.disk_rate).seconds
        for length in _RUNS:
            for node in [n for n in self.nodes if n in cuts][:_MAX_TRIALS]:
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
        for share in _SHARES:
            cuts = self.cuts(share)
            try:
                return cuts, self.stages(cuts)
            except BudgetError as error:
                refusal = error
        assert refusal is not None
        raise refusal

    def cuts(self, share: int) -> frozenset[int]:
        """The large tables, and the small ones that are dear to make."""
        tree = self.boxing.tree
        large = max(self.boxing.available, 0) // share
        cells = {n: self.boxing.step(n).lowered.cells for n in self.nodes}
        total = sum(cells.values())
        work: dict[int, float] = {}
        cuts = set()
        for n in self.nodes:
            work[n] = cells[n] + sum(work.get(i, 0) for i in tree.children[n - tree.n_leaves] if i not in cuts)
            small = self.boxing.bytes_of(n, tree.dims) <= large
            if tree.parent[n] >= 0 and (not small or work[n] > _WORK_SHARE * total):
                cuts.add(n)
        return frozenset(cuts)

    def stages(self, cuts: frozenset[int]) -> tuple[Stage, ...]:
        """Make the stages between the given tables, readers first."""
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
        """Make the stages of an earlier run again, whose chunks may be there already."""
        cuts = frozenset(head for head, _, _ in stored if head >= 0)
        parts = self.parts(cuts)
        return tuple(
            self.boxing.boxed_stage(head, parts[head], self.inputs(parts[head], cuts), boxed, chunked)
            for head, boxed, chunked in stored
        )

    def priced(self, stages: tuple[Stage, ...], disk_rate: float) -> Spill:
        """Add up bytes and seconds, and follow what lies on disk at the same time."""
        boxing, dims = self.boxing, self.boxing.tree.dims
        chunked = {stage.head: stage.chunked for stage in stages}
        read = written = 0
        seconds = 0.0
        live = peak_disk = 0
        for stage in stages:
            boxes = prod(dims[v] for v in stage.boxed)
            sizes = sliced_dims(dims, stage.boxed)
            files = sum(prod(dims[v] for v in chunked[i].difference(stage.boxed)) for i in stage.inputs) * boxes
            seconds += boxes * (boxing.seconds(stage.steps, sizes) + BOX_SECONDS)
            read += boxes * sum(boxing.bytes_of(i, sizes) for i in stage.inputs)
            if stage.head >= 0:
                size = boxing.bytes_of(stage.head, dims)
                files += prod(dims[v] for v in stage.chunked)
                written += size
                live += size
                peak_disk = max(peak_disk, live)
            seconds += files * CHUNK_SECONDS
            if not boxing.options.decode:
                live -= sum(boxing.bytes_of(i, dims) for i in stage.inputs)
        return Spill(
            stages=stages,
            dims=dims,
            itemsize=boxing.problem.itemsize,
            memory_bytes=boxing.options.memory_bytes,
            peak_bytes=max(s.peak_bytes for s in stages) + boxing.problem.model_bytes + MARGIN,
            disk_bytes=peak_disk,
            read_bytes=read,
            written_bytes=written,
            seconds=seconds + (read + written) / disk_rate,
            disk_rate=disk_rate,
        )
