"""The planner: from a network's scopes to a frozen list of steps with exact byte counts.

Pure: it sees sizes, never a table. What it makes is a :class:`~bucketflow.pipeline.plans.plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

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
from .recompute import cuts_for_decoding, remade
from .repricing import PRICED, with_rates
from .two_way_steps import StepBuilder, choose_readings, ordered_layouts, table_layouts

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
    PRICED.forget()


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
        return found if found.fits(options.memory_bytes) or options.device or options.by_rows else self._remade(found)

    def _further_plans(self, found: Plan) -> Iterator[Plan]:
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
            plan = self.of(cheapest_both_ways((searched,), self.rates, self.problem.itemsize))
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
        return self.lowered(whole, sliced, self._laid_out(whole, sliced))

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
        plan = self.lowered(whole, sliced, laid_out)
        return plan if plan.fits(options.memory_bytes) else None

    def _bounded(self, sliced: frozenset[int]) -> bool:
        """Whether messages of a sweep up have to fit memory.

        Without slices, decoding may sweep part by part, and devices have the tables of both sweeps in one place.
        """
        options = self.options
        one_place = self.problem.targets is None or not options.device
        return one_place and not options.by_rows and bool(sliced or not options.decode)

    def may_fit(self, whole: Tree, sliced: frozenset[int]) -> bool:
        """Whether the messages of a sweep up a tree fit that are alive together, before steps are laid out."""
        if not self._bounded(sliced):
            return True
        tree, order, _ = self._ordered(whole, sliced)
        return needed_bytes(tree, order, self._sizing(tree)) <= self._available(tree, whole)

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

    def _ordered(self, whole: Tree, sliced: frozenset[int]) -> tuple[Tree, tuple[int, ...], frozenset[int]]:
        """The tree of a slice, its internal nodes in the order of their steps, and those that vary."""
        if whole.last and not sliced <= whole.last:
            raise BudgetError(
                "slices would fix variables that have to be eliminated before the last ones; try a larger --memory"
            )
        tree = whole.resized(sliced_dims(whole.dims, sliced)) if sliced else whole
        varies = variant_nodes(tree, sliced)
        return tree, tuple(sorted(tree.schedule, key=varies.__contains__)), varies

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
        return leaf_bytes(tree, whole.dims, itemsize) + (0 if tree is whole else leaf_bytes(tree, tree.dims, itemsize))

    def lowered(self, whole: Tree, sliced: frozenset[int], laid_out: _LaidOut) -> Plan:
        """Lower all steps of a tree that is laid out, and add up bytes and seconds.

        Parameters
        ----------
        whole : Tree
            With all domain sizes.
        sliced : frozenset of int
            Variables that are conditioned on.
        laid_out
            The tree of a slice, axis orders by node, nodes in the order of their steps, and those that vary.

        Returns
        -------
        Plan
            By rows with bounds; one way with the peak of decoding; both ways with messages that are made again where
            all of them do not fit.
        """
        (tree, layouts, order, varies), problem, options = laid_out, self.problem, self.options
        targets, itemsize, rates = problem.targets, problem.itemsize, self.rates
        builder = StepBuilder(tree, layouts, problem)
        up = tuple([builder.forward(node) for node in order])
        back = () if targets is None else tuple(builder.backward(choose_readings(tree, targets)))
        cost = steps_cost((*up, *back), tree, rates, itemsize)
        variant_from = sum(s.node not in varies for s in up) if sliced else 0
        evaluated = problem.evaluated if options.decode else 0
        plan = Plan(
            tree=tree,
            dims=whole.dims,
            layouts=layouts,
            up=up,
            back=back,
            results=builder.results,
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
        if options.by_rows:
            from .row_bounds import with_row_bounds

            assert problem.rows is not None
            return with_row_bounds(plan, problem.rows, decode=options.decode, rates=rates)
        return self._one_way(plan) if targets is None else self._remade(plan)

    def _one_way(self, plan: Plan) -> Plan:
        """Add up the peak of a forward sweep and, for an assignment, of its decoding."""
        sizing, fixed = self._sizing(plan.tree), plan.model_bytes + plan.leaf_bytes
        available = self.memory_bytes - fixed
        if self.options.kept:
            return replace(plan, peak_bytes=fixed + sweep_peak(plan.up, sizing, [s.node for s in plan.up]))
        peak = sweep_peak(plan.up, sizing, (*plan.tree.roots, *plan.shared_tables), available)
        if not self.options.decode:
            return replace(plan, peak_bytes=fixed + peak)
        cuts, again = cuts_for_decoding(plan.tree, plan.up, sizing, available)
        return replace(plan, cuts=cuts, peak_bytes=fixed + (max(peak, again) if plan.sliced else again))

    def _remade(self, plan: Plan) -> Plan:
        """Add up the peak of both sweeps; where it is too much, give up what slices share, then make messages again."""
        if plan.device:
            from .message_program import device_needs

            needs = device_needs(plan)
            return replace(plan, variant_from=0, needs=needs, peak_bytes=needs.nbytes)
        sizing, fixed = self._sizing(plan.tree), plan.model_bytes + plan.leaf_bytes
        found = plan
        for shared in dict.fromkeys((plan.shared_tables, ())):
            peak = fixed + sweep_peak(plan.steps, sizing, (*plan.outputs, *shared))
            found = replace(plan, peak_bytes=peak, variant_from=plan.variant_from if shared else 0)
            if peak <= self.memory_bytes:
                return found
        again = remade(found, self.problem, sizing, self.memory_bytes - fixed)
        return found if again is None else with_rates(again, self.rates)

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


_LaidOut = tuple[Tree, tuple[tuple[int, ...], ...], tuple[int, ...], frozenset[int]]
"""The tree of a slice, its layouts, the internal nodes as they are swept, and those that differ between slices."""


def planning_seconds(plan: Plan | Outline) -> float:
    """Nominal seconds of planning the steps of a tree."""
    if isinstance(plan, Outline):
        return TABLE_SECONDS * len(plan.tree.scopes)
    return TABLE_SECONDS * sum([1 + len(step.inputs) for step in plan.steps])
