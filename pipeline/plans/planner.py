"""The planner: from a network's scopes to a frozen list of steps with exact byte counts.

Pure: it sees sizes, never a table. What it makes is a :class:`~bucketflow.pipeline.plans.plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ...tasks.steps.caches import Remembered
from ..errors import BudgetError, format_bytes, format_count
from ..orders.effort import OUTLINE_SECONDS, TABLE_SECONDS, PlanningBudget
from ..orders.last_variables import trees_with_last
from ..orders.starts import Starts
from ..orders.tree_search import HOPELESS_SECONDS, LONGEST_PLANNING, Check, TreeSearch
from ..orders.two_way_search import cheapest_both_ways, tree_for_both_ways
from ..trees.costs import Rates, steps_cost, tree_cost
from ..trees.cutsets import variant_nodes
from ..trees.layouts import choose_layouts
from ..trees.memory import Sizing, leaf_bytes, sweep_peak
from ..trees.rewrites import with_joined_inputs, with_last_steps
from ..trees.tree import Sizer, Tree, elimination_order
from .lower_bounds import Outline, exceeds, least_bytes, needed_bytes
from .plan import Plan
from .planning_policy import PlanningPolicy
from .prediction import RunOverhead
from .problem import UNLIMITED_BYTES, PlanOptions, Problem, sliced_dims
from .recompute import BothWaysBytes, cuts_for_decoding, remade
from .repricing import PRICED, with_rates
from .two_way_steps import StepBuilder, TargetReading, choose_readings, ordered_layouts, table_layouts

# The last few plans: a plan is a function of sizes, which other states of the same variables seldom change.
#
# Small networks take longer to plan than to run.

_Key = tuple[Problem, PlanOptions, Rates]
"""What a plan without slices is a function of, whatever memory there is."""

_REMEMBERED: Final = 8
_planned: dict[_Key, tuple[Plan, float]] = {}
"""With the nominal seconds that finding its tree took."""


def forget_plans() -> None:
    """Drop the remembered plans."""
    _planned.clear()
    for found in (PRICED, _ORDERED, _BOTH_WAYS):
        found.forget()


class HopelessError(BudgetError):
    """A search ended with a tree that nobody would wait for.

    Parameters
    ----------
    reason : str
    tree : Tree
    """

    def __init__(self, reason: str, tree: Tree) -> None:
        super().__init__(reason)
        self.reason: str = reason
        self.tree: Tree = tree

    def __reduce__(self) -> tuple[type[HopelessError], tuple[str, Tree]]:
        return HopelessError, (self.reason, self.tree)


@dataclass(frozen=True)
class Planner:
    """Plans one problem: what is planned, what is asked of the plan, how fast steps are, and what planning may cost.

    Parameters
    ----------
    problem : Problem
    options : PlanOptions
    rates : Rates
        Of what the steps run on; nominal ones by default.
    effort : PlanningBudget
        Account that the work is entered in.
    """

    problem: Problem
    options: PlanOptions = PlanOptions()  # noqa: RUF009 - a frozen value
    rates: Rates = Rates()  # noqa: RUF009 - a frozen value
    effort: PlanningBudget = field(default_factory=PlanningBudget, compare=False)

    def with_options(self, **changes: Any) -> Planner:
        """Return the planner with some options changed."""
        return replace(self, options=replace(self.options, **changes))

    @property
    def memory_bytes(self) -> int:
        """Peak bytes that the plan may need."""
        return self.options.memory_bytes

    # trees

    @property
    def search(self) -> TreeSearch:
        """The search for trees of the problem, as the options ask for it."""
        problem, options = self.problem, self.options
        return TreeSearch(
            problem.dims,
            problem.scopes,
            tree=options.tree,
            order=options.order,
            seconds=options.order_seconds,
            seed=options.seed,
            rates=self.rates,
            itemsize=problem.itemsize,
        )

    def tree(self, check: Check | None = None, longest: float = LONGEST_PLANNING) -> Tree:
        """Return the tree of a stored plan, or the one that a search of nominally so many seconds at most finds."""
        problem = self.problem
        if self.options.children is not None:
            return Tree(problem.dims, problem.scopes, self.options.children, problem.last)
        search = replace(self.search, longest=longest)
        find = TreeSearch.cheapest if problem.targets is None else tree_for_both_ways
        if problem.last:
            return trees_with_last(
                search, problem.last, lambda part: [find(part, self.effort)], kept=problem.keeps_last
            )[0]
        return find(search, self.effort, check)

    def trees(
        self, check: Check | None = None, longest: float = LONGEST_PLANNING, starts: Starts | None = None
    ) -> Iterator[Tree]:
        """Search for trees of a sweep one way, the cheapest first; see :meth:`plans`."""
        search, last = replace(self.search, longest=longest), self.problem.last
        if last:
            kept = self.problem.keeps_last
            found = trees_with_last(search, last, lambda part: part.trees(self.effort), kept=kept)
        else:
            found = search.trees(self.effort, check, starts)
        for tree in found:
            self._refuse_hopeless(tree)
            yield self.joined(tree)

    def joined(self, tree: Tree, sliced: frozenset[int] = frozenset()) -> Tree:
        """Join the small inputs of large steps first, where that was not declined, and leave some for later."""
        options = self.options
        if options.tree != "refined" or self.problem.targets is not None:
            return tree
        sizer = Sizer(sliced_dims(tree.dims, sliced))
        if not options.device:
            tree = with_joined_inputs(tree, sizer, self.rates, self.problem.itemsize)
        return with_last_steps(tree, sizer) if options.decode else tree

    # plans of the trees that are found

    def plans(self, check: Check | None = None) -> Iterator[Plan | Outline]:
        """Plan without slices, whatever that needs, from each of the trees that a search finds, the cheapest first.

        Further trees than the first whose tables exceed memory by far are not planned.

        Parameters
        ----------
        check : callable, optional
            Looks at the best tree before a search goes on for long; what it raises ends the search.

        Raises
        ------
        HopelessError
            If a tree would take longer than anyone waits for by so much that no slices or disks help.
        """
        if self.problem.targets is not None:
            plan = self.whole(check)
            self.effort.spend(planning_seconds(plan))
            yield plan
            if not self.problem.last:
                yield from self._further_plans(plan)
        elif self.options.children is not None:
            yield self.of(self.tree())
        else:
            for i, tree in enumerate(self.trees(check)):
                yield self.plan_or_outline(tree, first=i == 0)

    def plan_or_outline(self, tree: Tree, *, first: bool = False) -> Plan | Outline:
        """Plan a tree, unless it is not the first one and its tables exceed memory by far."""
        if not first and least_bytes(self.problem, tree) > self.memory_bytes:
            self.effort.spend(OUTLINE_SECONDS * len(tree.scopes))
            return self.outline(tree)
        plan = self.of(tree)
        self.effort.spend(planning_seconds(plan))
        return plan

    def outline(self, tree: Tree) -> Outline:
        """Return a tree with what it is predicted to take."""
        return Outline(tree, tree_cost(tree, self.rates, self.problem.itemsize).seconds)

    def whole(self, check: Check | None = None) -> Plan:
        """Plan without slices, from the cheapest tree that is found.

        Both ways all messages are in memory or, where that is too much, some are made again.

        Raises
        ------
        HopelessError
            If a tree would take longer than anyone waits for; see also ``check``.
        """
        if self.problem.targets is None:
            plan = next(self.plans(check))
            assert isinstance(plan, Plan)
            return plan
        known = _planned.get(self._key)
        if known is None:
            own = PlanningBudget(self.effort.asked, least=self.effort.least)
            free = replace(self.with_options(memory_bytes=UNLIMITED_BYTES), effort=own)
            tree = free.tree(check)
            self._refuse_hopeless(tree)
            known = free.of(tree), own.spent
            self._keep(*known)
        found, spent = known
        self.effort.spend(spent)  # as if it were not remembered, so that what follows is the same
        options = self.options
        if found.fits(options.memory_bytes) or options.device or options.by_rows:
            return found
        return self._remade(found, must_fit=True) or found

    def _further_plans(self, found: Plan) -> Iterator[Plan | Outline]:
        """Plan both ways over the tree of a short search, which those that are fast anyway are planned without."""
        policy = PlanningPolicy.current()
        options, effort = self.options, self.effort
        seconds = min(policy.further_search_seconds, effort.left(found.seconds) / 2)
        if (
            options.children is None
            and options.tree == "refined"
            and seconds > 0
            and found.seconds < policy.searched_seconds
        ):
            searched = replace(self.search, seconds=seconds).trees(effort)[0]
            tree = cheapest_both_ways((searched,), self.rates, self.problem.itemsize)
            plan = self.within(tree) or self.outline(tree)
            effort.spend(planning_seconds(plan))
            yield plan

    # plans that are remembered

    @property
    def _key(self) -> _Key:
        order = self.options.order
        options = replace(
            self.options, order=order if isinstance(order, str) else tuple(order), memory_bytes=UNLIMITED_BYTES
        )
        return self.problem, options, self.rates

    def remembered(self) -> Plan | None:
        """Return the plan of one sweep that :meth:`remember` was given, if it fits memory."""
        plan, _ = _planned.get(self._key, (None, 0.0))
        return plan if plan is not None and plan.fits(self.memory_bytes) else None

    def remember(self, plan: Plan) -> None:
        """Remember the first plan of one sweep that a search found, if it is the same wherever it fits memory."""
        if not (plan.sliced or plan.cuts or plan.spill):
            self._keep(plan)

    def _keep(self, plan: Plan, spent: float = 0.0) -> None:
        """Remember a plan, and forget the oldest of many."""
        _planned[self._key] = plan, spent
        if len(_planned) > _REMEMBERED:
            _planned.pop(next(iter(_planned)), None)

    # plans of a tree

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
        """What both sweeps need at least, and where targets are read."""
        targets, itemsize = self.problem.targets, self.problem.itemsize
        assert targets is not None
        key = targets, itemsize
        return _BOTH_WAYS.of((tree,), key, lambda: BothWaysBytes(tree, order, targets, itemsize))

    def _available(self, tree: Tree, whole: Tree) -> int:
        """Bytes for messages and workspace."""
        return self.memory_bytes - self.problem.model_bytes - self._leaf_bytes(tree, whole)

    def conditioned(self, plan: Plan, sliced: frozenset[int]) -> Plan:
        """Plan the same tree with the given variables conditioned on, whatever it needs."""
        return replace(self.of(replace(plan.tree, dims=plan.dims), sliced), unsliced_cells=plan.unsliced_cells)

    def _sizing(self, tree: Tree) -> Sizing:
        return Sizing(tree.dims, self.problem.itemsize, self.options.threads, self.options.device)

    def _laid_out(self, whole: Tree, sliced: frozenset[int]) -> _LaidOut:
        tree, order, varies = self._ordered(whole, sliced)
        return tree, self._layouts(tree), order, varies

    def _ordered(self, whole: Tree, sliced: frozenset[int]) -> _Ordered:
        """The tree of a slice, its internal nodes in the order of their steps, and those that vary."""
        if whole.last and not sliced <= whole.last:
            raise BudgetError(
                "slices would fix variables that have to be eliminated before the last ones; try a larger --memory"
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
        """Bytes of the leaf tables, and of those of a slice."""
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
            The tree of a slice, axis orders by node, nodes in the order of their steps, and those that vary.
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
        cost = steps_cost((*plan.up, *back), plan.tree, self.rates, plan.itemsize)
        return replace(plan, back=back, results=builder.results, cost=cost, unsliced_cells=cost.cells)

    def _remade(self, plan: Plan, *, must_fit: bool) -> Plan | None:
        """Plan both sweeps, whose peak is added up; where it is too much, messages are made again.

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
        """Keep all messages of both sweeps, and those that slices share where that fits."""
        plan = plan if plan.back else self._with_back(plan, readings)
        fixed = plan.model_bytes + plan.leaf_bytes
        found = plan
        for shared in dict.fromkeys((plan.shared_tables, ())):
            peak = fixed + sweep_peak(plan.steps, sizing, (*plan.outputs, *shared))
            found = replace(plan, peak_bytes=peak, variant_from=plan.variant_from if shared else 0)
            if peak <= self.memory_bytes:
                break
        return found

    def last_refusal(self, whole: Plan, way: str) -> BudgetError:
        """Say why a plan is not made in another way where some variables go last."""
        if whole.fits(self.memory_bytes):
            return BudgetError(f"there are no {way} where some variables have to be eliminated last; leave out --fit")
        return BudgetError(
            f"the plan needs {format_bytes(whole.peak_bytes)}, allowed {format_bytes(self.memory_bytes)}, and has no "
            f"{way} as some variables have to be eliminated last; try a larger --memory"
        )

    def _refuse_hopeless(self, tree: Tree) -> None:
        """Refuse a tree that neither slices nor disks bring within anyone's time, before its steps are lowered."""
        cost = tree_cost(tree, self.rates, self.problem.itemsize)
        if cost.seconds <= HOPELESS_SECONDS:
            return
        largest = max(tree.cells[tree.n_leaves :], default=0) * self.problem.itemsize
        slices = -(-largest // max(self.memory_bytes, 1))
        sliced = f"; slicing would take at least {format_count(slices)} slices" if slices > 1 else ""
        raise HopelessError(
            f"the plan needs more than {format_bytes(largest)} (its largest message), allowed "
            f"{format_bytes(self.memory_bytes)}{sliced}; it would sweep {format_count(cost.cells)} cells, in "
            f"{cost.seconds:.3g} s; try a longer --order-time",
            tree,
        )


_Ordered = tuple[Tree, tuple[int, ...], frozenset[int]]
"""The tree of a slice, its internal nodes in the order of their steps, and those that vary."""

_ORDERED: Final[Remembered[_Ordered]] = Remembered(4)
_BOTH_WAYS: Final[Remembered[BothWaysBytes]] = Remembered(4)
"""Whether a tree may fit is asked before it is planned."""

_LaidOut = tuple[Tree, tuple[tuple[int, ...], ...], tuple[int, ...], frozenset[int]]
"""The tree of a slice, its layouts, the internal nodes as they are swept, and those that differ between slices."""


def planning_seconds(plan: Plan | Outline) -> float:
    """Nominal seconds of planning the steps of a tree."""
    if isinstance(plan, Outline):
        return TABLE_SECONDS * len(plan.tree.scopes)
    return TABLE_SECONDS * sum([1 + len(step.inputs) for step in plan.steps])
