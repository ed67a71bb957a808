"""Planning one tree: its steps laid out and lowered, one way or both, with exact byte counts.

Pure: it sees sizes, never a table. Which trees are planned is up to :mod:`~bucketflow.pipeline.plans.planner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Self

from ...tasks.steps.caches import Remembered
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.sweeps.sweep import freed_tables
from ..errors import BudgetError
from ..trees.costs import Rates, steps_cost
from ..trees.cutsets import variant_nodes
from ..trees.layouts import choose_layouts
from ..trees.memory import Sizing, leaf_bytes, sweep_peak
from ..trees.tree import Tree, elimination_order
from .lower_bounds import exceeds, needed_bytes
from .plan import Plan, with_rates
from .prediction import RunOverhead
from .problem import PlanOptions, Problem, sliced_dims
from .recompute import BothWaysBytes, cuts_for_decoding, remade
from .two_way_steps import StepBuilder, TargetReading, choose_readings, ordered_layouts, table_layouts

_Ordered = tuple[Tree, tuple[int, ...], frozenset[int]]
"""The tree of a slice, its internal nodes in the order of their steps, and the nodes that differ between slices."""

_LaidOut = tuple[Tree, tuple[tuple[int, ...], ...], tuple[int, ...], frozenset[int]]
"""The tree of a slice, its layouts, the internal nodes in sweep order, and the nodes that differ between slices."""

_ORDERED: Final[Remembered[_Ordered]] = Remembered(4)
_BOTH_WAYS: Final[Remembered[BothWaysBytes]] = Remembered(4)
"""Whether a tree may fit is asked before it is planned."""


def forget_trees() -> None:
    """Drop what is remembered of trees."""
    _ORDERED.forget()
    _BOTH_WAYS.forget()


@dataclass(frozen=True)
class TreePlanner:
    """Plans trees of one problem.

    Parameters
    ----------
    problem : Problem
    options : PlanOptions
        The requested kind of plan.
    rates : Rates
        Of what the steps run on; nominal ones by default.
    """

    problem: Problem
    options: PlanOptions = PlanOptions()
    rates: Rates = Rates()

    def with_options(self, **changes: Any) -> Self:
        """Return the planner with some options changed."""
        return replace(self, options=replace(self.options, **changes))

    @property
    def memory_bytes(self) -> int:
        """Peak bytes that the plan may need."""
        return self.options.memory_bytes

    def of(self, whole: Tree, sliced: frozenset[int] = frozenset()) -> Plan:
        """Lay out and lower the steps of a tree, one way or both; where messages do not fit, some are made again.

        Parameters
        ----------
        whole : Tree
            With all domain sizes.
        sliced : frozenset of int
            Variables that are conditioned on.
        """
        plan = self.lowered(whole, sliced, self._laid_out(whole, sliced))
        assert plan is not None
        return plan

    def within(self, whole: Tree, sliced: frozenset[int] = frozenset()) -> Plan | None:
        """Plan a tree as :meth:`of` does, or return None where it does not fit, mostly before steps are lowered."""
        problem, options = self.problem, self.options
        bounded = self._bounded(sliced)
        if bounded and not self.may_fit(whole, sliced):
            return None
        laid_out = tree, layouts, order, _ = self._laid_out(whole, sliced)
        if bounded:
            lowered = StepBuilder(tree, layouts, problem).forward
            if exceeds(tree, order, self._sizing(tree), self._available(tree, whole), lowered):
                return None
        plan = self.lowered(whole, sliced, laid_out, must_fit=True)
        return plan if plan and plan.fits(options.memory_bytes) else None

    def _bounded(self, sliced: frozenset[int]) -> bool:
        """Whether messages of a sweep up have to fit memory.

        Without slices, decoding may sweep part by part, and devices have the tables of both sweeps in one place.
        """
        options = self.options
        one_place = self.problem.targets is None or not options.device
        return one_place and not options.by_rows and bool(sliced or not options.decode)

    def may_fit(self, whole: Tree, sliced: frozenset[int]) -> bool:
        """Whether the messages that are alive together fit, of a sweep up or both ways, before steps are laid out."""
        if not self._bounded(sliced):
            return True
        tree, order, _ = self._ordered(whole, sliced)
        available = self._available(tree, whole)
        if needed_bytes(tree, order, self._sizing(tree)) > available:
            return False
        return self.problem.targets is None or any(True for _ in self._both_ways(tree, order).fitting(available))

    def _both_ways(self, tree: Tree, order: Sequence[int]) -> BothWaysBytes:
        """Return lower limits of the memory of both sweeps, and the places where targets are read."""
        targets, itemsize = self.problem.targets, self.problem.itemsize
        assert targets is not None
        key = targets, itemsize
        return _BOTH_WAYS.of((tree,), key, lambda: BothWaysBytes(tree, order, targets, itemsize))

    def _available(self, tree: Tree, whole: Tree) -> int:
        """Bytes for messages and workspace."""
        return self.memory_bytes - self.problem.model_bytes - self._leaf_bytes(tree, whole)

    def conditioned(self, plan: Plan, sliced: frozenset[int]) -> Plan:
        """Plan the same tree conditioned on the given variables, for any memory."""
        return replace(self.of(replace(plan.tree, dims=plan.dims), sliced), unsliced_cells=plan.unsliced_cells)

    def _sizing(self, tree: Tree) -> Sizing:
        return Sizing(tree.dims, self.problem.itemsize, self.options.threads, self.options.device)

    def _laid_out(self, whole: Tree, sliced: frozenset[int]) -> _LaidOut:
        tree, order, varies = self._ordered(whole, sliced)
        return tree, self._layouts(tree), order, varies

    def _ordered(self, whole: Tree, sliced: frozenset[int]) -> _Ordered:
        """Return the tree of a slice, its internal nodes in the order of their steps, and the nodes that differ between
        slices.
        """
        if whole.last and not sliced <= whole.last:
            raise BudgetError(
                "slices would fix variables that must be eliminated before the last variables; try a larger --memory"
            )

        def found() -> _Ordered:
            tree = whole.resized(sliced_dims(whole.dims, sliced)) if sliced else whole
            varies = variant_nodes(tree, sliced)
            return tree, tuple(sorted(tree.schedule, key=varies.__contains__)), varies

        return _ORDERED.of((whole,), sliced, found)

    def _layouts(self, tree: Tree) -> tuple[tuple[int, ...], ...]:
        """The axis order of every table; rows are sorted in one order, so that most joins find them sorted."""
        if self.options.by_rows:
            return ordered_layouts(tree)
        if self.problem.targets is not None:
            return table_layouts(tree)
        return choose_layouts(tree, elimination_order(tree))

    def _leaf_bytes(self, tree: Tree, whole: Tree) -> int:
        """Return the bytes of the leaf tables of the whole tree and of a slice."""
        itemsize = self.problem.itemsize
        return leaf_bytes(whole, whole.dims, itemsize) + (0 if tree is whole else leaf_bytes(tree, tree.dims, itemsize))

    def lowered(
        self, whole: Tree, sliced: frozenset[int], laid_out: _LaidOut, *, must_fit: bool = False
    ) -> Plan | None:
        """Lower all steps of a tree that is laid out, and add up bytes and seconds.

        Parameters
        ----------
        whole : Tree
            With all domain sizes.
        sliced : frozenset of int
            Variables that are conditioned on.
        laid_out
            The tree of a slice, axis orders by node, nodes in the order of their steps, and the nodes that differ
            between slices.
        must_fit : bool
            Whether steps back are of no use where they do not fit.

        Returns
        -------
        Plan or None
            By rows with bounds; one way with the peak of decoding; both ways with messages that are made again where
            all of them do not fit. None only where it must fit.
        """
        (tree, layouts, order, varies), problem, options = laid_out, self.problem, self.options
        itemsize, rates = problem.itemsize, self.rates
        builder = StepBuilder(tree, layouts, problem)
        up = tuple([builder.forward(node) for node in order])
        cost = steps_cost(up, tree, rates, itemsize)
        # steps before this one are the same in all slices and run once
        variant_from = sum(s.node not in varies for s in up) if sliced else 0
        evaluated = problem.evaluated if options.decode else 0
        plan = Plan(
            tree=tree,
            dims=whole.dims,
            layouts=layouts,
            up=up,
            back=(),
            results={},
            cuts=frozenset(),
            sliced=tuple(sorted(sliced)),
            itemsize=itemsize,
            leaf_bytes=self._leaf_bytes(tree, whole),
            model_bytes=problem.model_bytes,
            peak_bytes=0,
            cost=cost,
            unsliced_cells=cost.cells,
            variant_from=variant_from,
            shared_seconds=steps_cost(up[:variant_from], tree, rates, itemsize).seconds,
            threads=options.threads,
            device=options.device,
            around=RunOverhead(problem.functions or len(problem.scopes), evaluated, rates),
        )
        if problem.targets is not None and (options.by_rows or options.device):
            plan = self._with_back(plan, choose_readings(tree, problem.targets))
        if options.by_rows:
            from .row_bounds import with_row_bounds

            assert problem.rows is not None
            return with_row_bounds(plan, problem.rows, decode=options.decode, rates=rates)
        if problem.targets is None:
            return self._one_way(plan, must_fit=must_fit)
        if options.device:
            from .message_program import device_needs

            needs = device_needs(plan)
            return replace(plan, variant_from=0, needs=needs, peak_bytes=needs.nbytes)
        return self._remade(plan, must_fit=must_fit)

    def _one_way(self, plan: Plan, *, must_fit: bool) -> Plan | None:
        """Add up the peak of a forward sweep and, for an assignment, of its decoding, unless slices do not fit."""
        sizing, fixed = self._sizing(plan.tree), plan.model_bytes + plan.leaf_bytes
        available = self.memory_bytes - fixed
        if self.options.kept:
            return replace(plan, peak_bytes=fixed + sweep_peak(plan.up, sizing, [s.node for s in plan.up]))
        peak = sweep_peak(plan.up, sizing, (*plan.tree.roots, *plan.shared_tables), available)
        if not self.options.decode:
            return replace(plan, peak_bytes=fixed + peak)
        if must_fit and plan.sliced and peak > available:
            return None
        cuts, again = cuts_for_decoding(plan.tree, plan.up, sizing, available)
        return replace(plan, cuts=cuts, peak_bytes=fixed + (max(peak, again) if plan.sliced else again))

    def _with_back(self, plan: Plan, readings: Sequence[TargetReading]) -> Plan:
        """Lower the steps back of a plan that has those up."""
        builder = StepBuilder(plan.tree, plan.layouts, self.problem)
        back = tuple(builder.backward(readings))
        cost = steps_cost(back, plan.tree, self.rates, plan.itemsize, before=plan.cost)
        return replace(plan, back=back, results=builder.results, cost=cost, unsliced_cells=cost.cells)

    def _remade(self, plan: Plan, *, must_fit: bool) -> Plan | None:
        """Plan both sweeps with their joint peak. If the peak is too high, messages are recomputed.

        Slices first give up what they share. Steps back are lowered only where their messages may fit.

        Parameters
        ----------
        plan : Plan
            With its steps up, and perhaps those back.
        must_fit : bool
            Whether None is returned where nothing fits, and not a plan that keeps all messages.
        """
        sizing, fixed = self._sizing(plan.tree), plan.model_bytes + plan.leaf_bytes
        available = self.memory_bytes - fixed
        needs = self._both_ways(plan.tree, [s.node for s in plan.up])
        kept = None
        if needs.least() <= available:
            kept = self._kept(plan, needs.readings, sizing)
            if kept.peak_bytes <= self.memory_bytes:
                return kept
        again = remade(plan, self.problem, needs.readings, needs.fitting(available), sizing, available)
        if again is not None:
            again = with_rates(again, self.rates)
            return again if plan.back else replace(again, unsliced_cells=again.cost.cells)
        return None if must_fit else kept or self._kept(plan, needs.readings, sizing)

    def _kept(self, plan: Plan, readings: Sequence[TargetReading], sizing: Sizing) -> Plan:
        """Keep all messages of both sweeps, and also the tables shared by slices if they fit."""
        plan = plan if plan.back else self._with_back(plan, readings)
        fixed = plan.model_bytes + plan.leaf_bytes
        found = plan
        for shared in dict.fromkeys((plan.shared_tables, ())):
            freed = freed_tables(plan.steps, (*plan.outputs, *shared))
            peak = fixed + sweep_peak(plan.steps, sizing, (), freed=freed)
            found = replace(plan, peak_bytes=peak, variant_from=plan.variant_from if shared else 0)
            if not shared:
                found.remember_freed(freed)
            if peak <= self.memory_bytes:
                break
        return found
