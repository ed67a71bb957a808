"""Planning propagation out of core: the stages of the way up, each cut so that its way back fits too. Pure.

A variable that the boxes of a stage fix but that the head of a stage below does not have makes as many shares of
the message to that head as it has states; its reader adds them up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..plans.plan import Plan, PlanOptions, Problem, sliced_dims
from ..plans.stages import DownStage, Stage, TwoWaySpill
from ..plans.two_way import TwoWay, choose_readings, live_peak
from ..trees.costs import Rates
from .boxes import Boxing
from .spill import BOX_SECONDS, CHUNK_SECONDS, DISK_RATE, Cutter
from .way_back import WayBack

_WEIGHT_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class TwoWayBoxing(Boxing):
    """Makes stages whose boxes fit on the way up and on the way back."""

    way_back: WayBack
    result_bytes: int

    def boxed_stage(
        self, head: int, nodes: Sequence[int], inputs: tuple[int, ...], boxed: tuple[int, ...], chunked: frozenset[int]
    ) -> Stage:
        """Make the stage with the given boxes."""
        stage = super().boxed_stage(head, nodes, inputs, boxed, chunked)
        if stage.peak_bytes + self.result_bytes > self.available:
            return stage
        back = self.way_back.stage(head, nodes, inputs, boxed)
        return replace(stage, peak_bytes=max(stage.peak_bytes + self.result_bytes, self.back_peak(back)))

    def back_peak(self, stage: DownStage) -> int:
        """Bytes of a box on the way back: tables that are read, what is made of them, and one on its way out."""
        sizes = sliced_dims(self.tree.dims, stage.boxed)
        above = self.way_back.above(0)
        read = [self.bytes_of(i - above if i >= above else i, sizes) for i in stage.inputs]
        # what comes from above is a sum of shares: another one, as it is stored and unpacked
        transit = 2 * max(read, default=0)
        written = 2 * max((self.bytes_of(i, sizes) for i in stage.outputs), default=0)
        found = 3 * sum(prod(sizes[v] for v in t) + 1 for t in stage.results) * _WEIGHT_BYTES
        made = live_peak(stage.steps, stage.freed, self.problem.itemsize, self.options.threads)
        leaves = self.all_leaves + self.leaves_bytes(stage.steps, sizes)
        return leaves + sum(read) + max(transit, made + max(written, found)) + self.result_bytes


@dataclass(frozen=True)
class TwoWayCutter(Cutter):
    """Chooses the tables that are stored, by the price of both ways."""

    boxing: TwoWayBoxing

    def priced(self, stages: tuple[Stage, ...], disk_rate: float) -> TwoWaySpill:
        """Add up both ways."""
        last = stages[-1]
        up = super().priced((*stages[:-1], replace(last, steps=())), disk_rate)
        down = self.ways_back(stages)
        live = peak_disk = sum(self.boxing.bytes_of(s.head, up.dims) for s in stages[:-1])
        seconds, read, written, found = up.seconds, up.read_bytes, up.written_bytes, 0
        above = self.boxing.way_back.above
        by_head = {s.head: s for s in stages}
        shares: dict[int, int] = {}
        for stage in down:
            boxes = prod(up.dims[v] for v in stage.boxed)
            sizes = sliced_dims(up.dims, stage.boxed)
            made = self.made(stage, by_head)
            shares.update({i: size for i, (size, _) in made.items()})
            came = shares.get(stage.head, 0)
            tables = [i for i in stage.inputs if i != above(stage.head)]
            again = boxes * sum(self.boxing.bytes_of(i, sizes) for i in tables) if stage.head >= 0 else 0
            out = sum(size for size, _ in made.values())
            beliefs = boxes * sum(prod(sizes[v] for v in t) + 1 for t in stage.results) * _WEIGHT_BYTES
            # each chunk is written once and read once
            seconds += boxes * (self.boxing.seconds(stage.steps, sizes) + BOX_SECONDS)
            seconds += 2 * sum(files for _, files in made.values()) * CHUNK_SECONDS
            seconds += (again + came + out + 2 * beliefs) / disk_rate
            read, written, found = read + again + came + beliefs, written + out + beliefs, found + beliefs
            live += out
            peak_disk = max(peak_disk, live)
            live -= came + sum(self.boxing.bytes_of(i, up.dims) for i in by_head[stage.head].inputs)
        return TwoWaySpill(
            stages=stages,
            dims=up.dims,
            itemsize=up.itemsize,
            memory_bytes=up.memory_bytes,
            peak_bytes=up.peak_bytes,
            disk_bytes=peak_disk + found,
            read_bytes=read,
            written_bytes=written,
            seconds=seconds,
            disk_rate=disk_rate,
            down=down,
            found_bytes=found,
        )

    def ways_back(self, stages: Sequence[Stage]) -> tuple[DownStage, ...]:
        """The stages on the way back that something is read from, those at the roots first."""
        visited = {-1}
        found = []
        for stage in reversed(stages):
            if stage.head in visited:
                nodes = [s.node for s in stage.steps]
                back = self.boxing.way_back.stage(stage.head, nodes, stage.inputs, stage.boxed)
                found.append(back)
                visited.update(back.visited)
        return tuple(found)

    def made(self, stage: DownStage, by_head: Mapping[int, Stage]) -> dict[int, tuple[int, int]]:
        """Bytes and chunk files of each message that a stage writes, all shares together."""
        dims = self.boxing.tree.dims
        found = {}
        for i in stage.outputs:
            scope = self.boxing.tree.scopes[i]
            cut = {*stage.boxed, *(v for v in by_head[i].chunked if v in scope)}
            shares = prod(dims[v] for v in stage.boxed if v not in scope)
            found[i] = (shares * self.boxing.bytes_of(i, dims), prod(dims[v] for v in cut))
        return found


def plan_marginal_spill(
    problem: Problem,
    targets: Sequence[tuple[int, ...]],
    options: PlanOptions,
    rates: Rates,
    whole: TwoWay,
    disk_rate: float,
) -> TwoWay:
    """Cut a propagation that does not fit memory into stages and boxes that do, both ways.

    Parameters
    ----------
    whole : TwoWay
        The plan in memory, without slices.
    disk_rate : float
        Bytes per second, to predict the time with; the choice of stages does not depend on it.

    Raises
    ------
    BudgetError
        If some step does not fit even in its smallest box.
    """
    tree = whole.tree
    way_back = WayBack(tree, whole.layouts, problem.semiring, choose_readings(tree, targets))
    results = 2 * sum(prod(tree.dims[v] for v in t) for t in targets) * _WEIGHT_BYTES
    wanted = replace(options, decode=False)
    boxing = TwoWayBoxing(
        problem, wanted, rates, tree, whole.layouts, DISK_RATE, way_back=way_back, result_bytes=results
    )
    cutter = TwoWayCutter(boxing, tree.schedule)
    stages = cutter.best() if options.stages is None else cutter.as_before(options.stages)
    return replace(whole, spill=cutter.priced(stages, disk_rate))


def way_up(plan: TwoWay) -> Plan:
    """Return the forward sweep of a propagation as a plan of its own."""
    return Plan(
        tree=plan.tree,
        dims=plan.dims,
        layouts=plan.layouts,
        steps=plan.up,
        cuts=frozenset(),
        sliced=(),
        itemsize=plan.itemsize,
        leaf_bytes=plan.leaf_bytes,
        model_bytes=plan.model_bytes,
        peak_bytes=plan.peak_bytes,
        cost=plan.cost,
        unsliced_cells=plan.cells,
        spill=plan.spill,
    )


def stage_records(plan: TwoWay) -> list[dict[str, Any]]:
    """Return what ``inspect`` shows of the stages of both ways."""
    spill = plan.spill
    assert spill is not None

    def record(table: str, stage: Stage | DownStage, peak_bytes: int) -> dict[str, Any]:
        return {"table": table, "boxes": prod(spill.dims[v] for v in stage.boxed), "peak_bytes": peak_bytes}

    peaks = {stage.head: stage.peak_bytes for stage in spill.stages}
    up = [record(f"msg_{stage.head}", stage, stage.peak_bytes) for stage in spill.stages[:-1]]
    return up + [record(found_name(stage), stage, peaks[stage.head]) for stage in spill.down]


def found_name(stage: DownStage) -> str:
    """Name of the table of what the boxes of a stage find."""
    return "beliefs" if stage.head < 0 else f"beliefs_{stage.head}"
