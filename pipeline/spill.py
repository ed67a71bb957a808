"""Planning out of core: stages whose tables live on disk, each cut into boxes that fit the budget (DESIGN §8).

A stage is a connected part of the tree; its output is a table on disk. A *box* fixes some variables of
that output, the root-most first, which are in most tables of the stage and stay the longest; inside a box
the stage is an ordinary sweep. A table is chunked along the variables that its writer or its reader fixes, so
both touch whole chunks only: one writer a chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ..tasks.sweep import Step
from .costs import Rates
from .errors import BudgetError
from .memory import Sizing, parts_below, step_bytes, sweep_peak, table_bytes
from .plan import Plan, PlanOptions, Problem, format_bytes, sliced_dims
from .planner import lowered_step
from .stages import Spill, Stage
from .trees import Tree, elimination_order

# More boxes or chunks than this cost more to keep account of than they save.
MAX_BOXES = 1 << 16
# Tables of less than this share of the budget stay in memory within a stage.
_SHARES = (8, 32, 128, 512)
# A subtree that costs this share of the whole is swept once and stored, not again in every box.
_WORK_SHARE = 0.02
# What the chunk files, receipts and the interpreter's own temporaries need besides tables.
_MARGIN = 1 << 20


def plan_spill(problem: Problem, options: PlanOptions, rates: Rates, whole: Plan, disk_rate: float) -> Plan:
    """Cut a plan that does not fit memory into stages and boxes that do.

    Parameters
    ----------
    whole : Plan
        The plan in memory, without slices.
    disk_rate : float
        Bytes per second, to estimate with.

    Raises
    ------
    BudgetError
        If some step does not fit even in its smallest box.
    """
    refusal: BudgetError | None = None
    for share in _SHARES:
        try:
            spill = _Cutter(problem, options, rates, whole.tree, whole.layouts, share).spill(disk_rate)
            return replace(whole, spill=spill, peak_bytes=spill.peak_bytes, cuts=frozenset())
        except BudgetError as error:
            refusal = error
    assert refusal is not None
    raise refusal


@dataclass(frozen=True)
class _Cutter:
    problem: Problem
    options: PlanOptions
    rates: Rates
    tree: Tree
    layouts: Sequence[tuple[int, ...]]
    share: int

    @property
    def available(self) -> int:
        """Bytes for the tables of one task."""
        return self.options.memory_bytes - self.problem.model_bytes - _MARGIN

    @cached_property
    def rank(self) -> dict[int, int]:
        """Root-most variables first: the order in which boxes fix them."""
        return {v: i for i, v in enumerate(reversed(elimination_order(self.tree)))}

    def spill(self, disk_rate: float) -> Spill:
        steps = [self.step(node, self.tree.dims) for node in self.tree.schedule]
        cuts = self.cuts(steps)
        parts = parts_below(self.tree, steps, cuts)
        stages: dict[int, Stage] = {}
        reader: dict[int, Stage] = {}
        for head in reversed(parts):
            stage = self.stage(head, parts[head], cuts, reader.get(head))
            stages[head] = stage
            reader.update(dict.fromkeys(stage.inputs, stage))
        ordered = tuple(stages[head] for head in parts)
        return self.priced(ordered, disk_rate)

    def step(self, node: int, sizes: Sequence[int]) -> Step:
        inputs = self.tree.children[node - self.tree.n_leaves]
        axes = tuple(self.layouts[i] for i in inputs)
        return lowered_step(node, inputs, axes, self.layouts[node], sizes, self.problem)

    def bytes_of(self, node: int, sizes: Sequence[int]) -> int:
        return table_bytes(sizes, self.tree.scopes[node], self.problem.itemsize)

    def cuts(self, steps: Sequence[Step]) -> frozenset[int]:
        """Store the large tables, and the small ones that are dear to make."""
        large = max(self.available, 0) // self.share
        total = sum(s.lowered.cells for s in steps)
        work: dict[int, float] = {}
        cuts = set()
        for s in steps:
            work[s.node] = s.lowered.cells + sum(work.get(i, 0) for i in s.inputs if i not in cuts)
            small = self.bytes_of(s.node, self.tree.dims) <= large
            if self.tree.parent[s.node] >= 0 and (not small or work[s.node] > _WORK_SHARE * total):
                cuts.add(s.node)
        return frozenset(cuts)

    def stage(self, head: int, steps: Sequence[Step], cuts: frozenset[int], reader: Stage | None) -> Stage:
        """Fix variables one by one, those of the reader's boxes first, until a box fits."""
        inputs = tuple(i for s in steps for i in s.inputs if i in cuts)
        if head >= 0:
            own = self.tree.scopes[head]
        else:
            own = frozenset().union(*(self.tree.scopes[i] for i in inputs))
        preferred = [v for v in reader.boxed if v in own] if reader else []
        rest = sorted(own.difference(preferred), key=self.rank.__getitem__)
        boxed: list[int] = []
        candidates = [v for v in (*preferred, *rest) if self.tree.dims[v] > 1]
        while True:
            stage = self.boxed_stage(head, steps, inputs, boxed, frozenset(boxed).union(preferred))
            if stage.peak_bytes <= self.available:
                return stage
            if not candidates or prod(self.tree.dims[v] for v in boxed) > MAX_BOXES:
                raise self.refusal(steps, stage)
            boxed.append(candidates.pop(0))

    def boxed_stage(
        self, head: int, steps: Sequence[Step], inputs: tuple[int, ...], boxed: list[int], chunked: frozenset[int]
    ) -> Stage:
        sizes = sliced_dims(self.tree.dims, boxed)
        lowered = tuple(self.step(s.node, sizes) for s in steps)
        peak = self.box_peak(lowered, inputs, sizes)
        if self.options.decode and head >= 0:
            again = sliced_dims(self.tree.dims, self.tree.scopes[head])
            kept = [s.node for s in steps]
            peak = max(peak, self.box_peak([self.step(s.node, again) for s in steps], inputs, again, kept))
        elif self.options.decode:
            peak = max(peak, self.box_peak(lowered, inputs, sizes, [s.node for s in steps]))
        return Stage(head, lowered, tuple(boxed), inputs, chunked, peak)

    def box_peak(
        self, steps: Sequence[Step], inputs: Iterable[int], sizes: tuple[int, ...], kept: Sequence[int] = ()
    ) -> int:
        """Bytes of one box: leaves with all states and restricted, inputs and one chunk in transit, the sweep."""
        itemsize = self.problem.itemsize
        leaves = {i for s in steps for i in s.inputs if i < self.tree.n_leaves}
        whole = sum(self.bytes_of(i, self.tree.dims) + self.bytes_of(i, sizes) for i in leaves)
        read = [table_bytes(sizes, self.tree.scopes[i], itemsize) for i in inputs]
        transit = max([*read, self.bytes_of(steps[-1].node, sizes)])
        sizing = Sizing(sizes, itemsize, self.options.threads)
        return whole + sum(read) + transit + sweep_peak(steps, sizing, kept)

    def refusal(self, steps: Sequence[Step], stage: Stage) -> BudgetError:
        largest = max(steps, key=lambda s: s.lowered.cells)
        return BudgetError(
            f"the step of {largest.lowered.cells:.3g} cells needs {format_bytes(stage.peak_bytes)} for its smallest "
            f"box, allowed {format_bytes(max(self.available, 0))}; try a larger --memory or a longer --order-time"
        )

    def priced(self, stages: tuple[Stage, ...], disk_rate: float) -> Spill:
        """Add up bytes and seconds, and follow what lies on disk at the same time."""
        dims, itemsize = self.tree.dims, self.problem.itemsize
        read = written = 0
        seconds = 0.0
        live = peak_disk = 0
        for stage in stages:
            boxes = prod(dims[v] for v in stage.boxed)
            sizes = sliced_dims(dims, stage.boxed)
            cells = sum(s.lowered.cells for s in stage.steps)
            moved = sum(step_bytes(s, sizes, itemsize) for s in stage.steps)
            compute = max(cells / self.rates.cells_per_second, moved / self.rates.bytes_per_second)
            seconds += boxes * (compute + len(stage.steps) * self.rates.step_seconds)
            read += boxes * sum(self.bytes_of(i, sizes) for i in stage.inputs)
            if stage.head >= 0:
                size = self.bytes_of(stage.head, dims)
                written += size
                live += size
                peak_disk = max(peak_disk, live)
            if not self.options.decode:
                live -= sum(self.bytes_of(i, dims) for i in stage.inputs)
        return Spill(
            stages=stages,
            dims=dims,
            itemsize=itemsize,
            memory_bytes=self.options.memory_bytes,
            peak_bytes=max(s.peak_bytes for s in stages) + self.problem.model_bytes + _MARGIN,
            disk_bytes=peak_disk,
            read_bytes=read,
            written_bytes=written,
            seconds=seconds + (read + written) / disk_rate,
        )
