"""The planner: from a network's scopes to a frozen list of steps with exact byte counts.

Pure: the planner sees sizes, never a table. It makes a :class:`~bucketflow.pipeline.plans.plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from ...tasks.steps.caches import REMEMBERED
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.lowering import SMALL_CELLS
from ..errors import BudgetError, format_bytes, format_count
from ..orders.effort import LEAST_SEARCH, OUTLINE_SECONDS, TABLE_SECONDS, PlanningBudget
from ..orders.forests import Starts
from ..orders.last_variables import trees_with_last
from ..orders.tree_search import HOPELESS_SECONDS, LONGEST_PLANNING, Check, TreeSearch
from ..trees.costs import Rates, tree_cost
from ..trees.rewrites import with_joined_inputs, with_last_steps
from ..trees.tree import Sizer, Tree
from .lower_bounds import Outline, least_bytes
from .plan import PRICED, Plan
from .problem import UNLIMITED_BYTES, PlanOptions, Problem, sliced_dims
from .tree_planner import TreePlanner, forget_trees

# The last few plans: a plan is a function of sizes, which other states of the same variables seldom change.
#
# Small networks take longer to plan than to run.

_Key = tuple[Problem, PlanOptions, Rates]
"""The inputs that determine a plan without slices, for any memory."""

_planned: dict[_Key, tuple[Plan, float]] = {}
"""With the nominal seconds that finding its tree took."""


def forget_plans() -> None:
    """Drop the remembered plans."""
    _planned.clear()
    PRICED.forget()
    forget_trees()


class HopelessError(BudgetError):
    """A search ended with a tree that would take unacceptably long.

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
class Planner(TreePlanner):
    """Finds trees for one problem, plans them within a budget of planning, and remembers the best plan.

    Parameters
    ----------
    effort : PlanningBudget
        Account that the work is entered in.
    """

    effort: PlanningBudget = field(default_factory=PlanningBudget, compare=False)

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
        """Return the tree of a stored plan, or the result of a search of at most ``longest`` nominal seconds."""
        from ..orders.two_way_search import tree_for_both_ways

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
        """Yield plans without slices, for any memory, from the trees that a search finds, the cheapest first.

        Further trees than the first whose tables exceed memory by far are not planned.

        Parameters
        ----------
        check : callable, optional
            Called with the best tree before a long search continues; an exception ends the search.

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
        """Return a tree with its predicted seconds."""
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
        """Plan both sweeps over the tree of a short search, unless the first plan is fast enough."""
        from ..orders.two_way_search import cheapest_both_ways

        options, effort = self.options, self.effort
        seconds = min(LEAST_SEARCH, effort.left(found.seconds) / 2)
        if options.children is None and options.tree == "refined" and seconds > 0:
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
        if len(_planned) > REMEMBERED:
            _planned.pop(next(iter(_planned)), None)

    def last_refusal(self, whole: Plan, way: str) -> BudgetError:
        """Say why a plan is not made in another way where some variables go last."""
        if whole.fits(self.memory_bytes):
            return BudgetError(f"{way} are impossible, because some variables must be eliminated last; leave out --fit")
        return BudgetError(
            f"the plan needs {format_bytes(whole.peak_bytes)}, allowed {format_bytes(self.memory_bytes)}; "
            f"{way} are impossible, because some variables must be eliminated last; try a larger --memory"
        )

    def _refuse_hopeless(self, tree: Tree) -> None:
        """Refuse a tree that neither slices nor disks bring within anyone's time, before its steps are lowered."""
        if max(tree.joined_cells, default=0) <= SMALL_CELLS:
            return
        cost = tree_cost(tree, self.rates, self.problem.itemsize)
        if cost.seconds <= HOPELESS_SECONDS:
            return
        largest = max(tree.cells[tree.n_leaves :], default=0) * self.problem.itemsize
        slices = -(-largest // max(self.memory_bytes, 1))
        sliced = f"; slicing would take at least {format_count(slices)} slices" if slices > 1 else ""
        raise HopelessError(
            f"the plan needs more than {format_bytes(largest)} (its largest message), allowed "
            f"{format_bytes(self.memory_bytes)}{sliced}; the plan would sweep {format_count(cost.cells)} cells, in "
            f"{cost.seconds:.3g} s; try a longer --order-time",
            tree,
        )


def planning_seconds(plan: Plan | Outline) -> float:
    """Nominal seconds of planning the steps of a tree."""
    if isinstance(plan, Outline):
        return TABLE_SECONDS * len(plan.tree.scopes)
    return TABLE_SECONDS * sum([1 + len(step.inputs) for step in plan.steps])
