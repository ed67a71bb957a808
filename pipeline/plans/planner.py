"""The planner: from a network's scopes to a frozen list of steps with exact byte counts.

Pure: it sees sizes, never a table. What it makes is a :class:`~bucketflow.pipeline.plans.plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ...tasks.steps.caches import Remembered
from ...tasks.steps.step import Step, make_step
from ..errors import BudgetError, format_bytes, format_count
from ..orders.effort import OUTLINE_SECONDS, TABLE_SECONDS, PlanningBudget
from ..orders.tree_search import HOPELESS_SECONDS, LONGEST_PLANNING, Starts, search_tree, search_trees
from ..orders.two_way_search import cheapest_both_ways, tree_for_both_ways
from ..trees.costs import Rates, steps_cost, tree_cost
from ..trees.cutsets import variant_nodes
from ..trees.layouts import choose_layouts
from ..trees.memory import Sizing, leaf_bytes, sweep_peak
from ..trees.rewrites import with_joined_inputs, with_last_steps
from ..trees.tree import Sizer, Tree, elimination_order
from .lower_bounds import Outline, exceeds, least_bytes, outline
from .plan import Plan
from .prediction import RunOverhead
from .problem import PlanOptions, Problem, sliced_dims
from .recompute import cuts_for_decoding, remade
from .residue_sweeps import repriced
from .two_way_steps import StepBuilder, choose_readings, ordered_layouts, table_layouts

# The last few plans: a plan is a function of sizes, which other states of the same variables seldom change.
#
# Small networks take longer to plan than to run.

Key = tuple[Problem, PlanOptions, Rates]
"""What a plan without slices is a function of, whatever memory there is."""

_REMEMBERED: Final = 8
_planned: dict[Key, Plan] = {}
# What they take by other rates: predicting hundreds of steps takes a tenth as long as running them.
_PRICED: Final[Remembered[Plan]] = Remembered(_REMEMBERED)


def plan_key(problem: Problem, options: PlanOptions, rates: Rates) -> Key:
    """Return what a plan is remembered by."""
    order = options.order if isinstance(options.order, str) else tuple(options.order)
    return problem, replace(options, order=order, memory_bytes=1 << 62), rates


def known_plan(key: Key) -> Plan | None:
    """Return a plan that was kept."""
    return _planned.get(key)


def keep_plan(key: Key, plan: Plan) -> None:
    """Remember a plan, and forget the oldest of many."""
    _planned[key] = plan
    if len(_planned) > _REMEMBERED:
        _planned.pop(next(iter(_planned)), None)


def remembered_plan(problem: Problem, options: PlanOptions, rates: Rates) -> Plan | None:
    """Return the plan of one sweep that :func:`remember_plan` was given, if it fits memory."""
    plan = known_plan(plan_key(problem, options, rates))
    return plan if plan is not None and plan.fits(options.memory_bytes) else None


def remember_plan(problem: Problem, options: PlanOptions, rates: Rates, plan: Plan) -> None:
    """Remember the first plan of one sweep that a search found, if it is the same wherever it fits memory."""
    if not (plan.sliced or plan.cuts or plan.spill):
        keep_plan(plan_key(problem, options, rates), plan)


def priced_once(plan: Plan, rates: Rates, price: Callable[[Plan, Rates], Plan]) -> Plan:
    """Return a plan by other rates, priced again only where it is not one of the last few."""
    return _PRICED.of((plan,), rates, lambda: price(plan, rates))


def forget_plans() -> None:
    """Drop the remembered plans."""
    _planned.clear()
    _PRICED.forget()


# Nominal seconds of a search for a tree whose messages fit memory, and propagations that were not searched before.
_FURTHER_SEARCH, _SEARCHED_SECONDS = 0.2, 1.0


class HopelessError(BudgetError):
    """A search ended with a tree that nobody would wait for.

    Parameters
    ----------
    reason : str
    tree : Tree
    """

    def __init__(self, reason: str, tree: Tree) -> None:
        super().__init__(reason)
        self.reason, self.tree = reason, tree

    def __reduce__(self) -> tuple[type[HopelessError], tuple[str, Tree]]:
        return HopelessError, (self.reason, self.tree)


Check = Callable[[Tree], None]
"""Looks at the best tree before a search goes on for long; what it raises ends the search."""


def whole_plans(
    problem: Problem,
    options: PlanOptions,
    rates: Rates,
    effort: PlanningBudget | None = None,
    check: Check | None = None,
) -> Iterator[Plan | Outline]:
    """Plan without slices, whatever that needs, from each of the trees that a search finds, the cheapest first.

    Further trees than the first whose tables exceed memory by far are not planned.

    Parameters
    ----------
    effort : Effort, optional
        Account that the work is entered in.
    check : callable, optional

    Raises
    ------
    HopelessError
        If a tree would take longer than anyone waits for by so much that no slices or disks help.
    """
    effort = effort or PlanningBudget()
    if problem.targets is not None:
        plan = whole_plan(problem, options, rates, check)
        effort.spend(planning_seconds(plan))
        yield plan
        yield from _further_plans(problem, options, rates, effort, plan)
        return
    if options.children is not None:
        yield plan_tree(problem, options, rates, Tree(problem.dims, problem.scopes, options.children))
        return
    for i, tree in enumerate(whole_trees(problem, options, rates, effort, check)):
        yield plan_or_outline(tree, problem, options, rates, effort, first=i == 0)


def whole_trees(
    problem: Problem,
    options: PlanOptions,
    rates: Rates,
    effort: PlanningBudget,
    check: Check | None = None,
    longest: float = LONGEST_PLANNING,
    starts: Starts | None = None,
) -> Iterator[Tree]:
    """Search for trees of a sweep one way, the cheapest first; see :func:`whole_plans`."""
    for tree in search_trees(
        problem.dims,
        problem.scopes,
        tree=options.tree,
        order=options.order,
        seconds=options.order_seconds,
        seed=options.seed,
        rates=rates,
        itemsize=problem.itemsize,
        effort=effort,
        check=check,
        longest=longest,
        starts=starts,
    ):
        _refuse_hopeless(tree, problem, options, rates)
        yield joined_tree(tree, problem, options, rates)


def plan_or_outline(
    tree: Tree, problem: Problem, options: PlanOptions, rates: Rates, effort: PlanningBudget, *, first: bool = False
) -> Plan | Outline:
    """Plan a tree, unless it is not the first one and its tables exceed memory by far."""
    if not first and least_bytes(problem, tree) > options.memory_bytes:
        effort.spend(OUTLINE_SECONDS * len(tree.scopes))
        return outline(tree, rates, problem)
    plan = plan_tree(problem, options, rates, tree)
    effort.spend(planning_seconds(plan))
    return plan


def _further_plans(
    problem: Problem, options: PlanOptions, rates: Rates, effort: PlanningBudget, found: Plan
) -> Iterator[Plan]:
    """Plan both ways over the tree of a short search, which those that are fast anyway are planned without."""
    seconds = min(_FURTHER_SEARCH, effort.left(found.seconds) / 2)
    if options.children is None and options.tree == "refined" and seconds > 0 and found.seconds < _SEARCHED_SECONDS:
        searched = search_tree(
            problem.dims,
            problem.scopes,
            order=options.order,
            seconds=seconds,
            seed=options.seed,
            rates=rates,
            itemsize=problem.itemsize,
            effort=effort,
        )
        tree = cheapest_both_ways((searched,), rates, problem.itemsize)
        plan = plan_tree(problem, options, rates, tree)
        effort.spend(planning_seconds(plan))
        yield plan


def planning_seconds(plan: Plan | Outline) -> float:
    """Nominal seconds of planning the steps of a tree."""
    if isinstance(plan, Outline):
        return TABLE_SECONDS * len(plan.tree.scopes)
    return TABLE_SECONDS * sum([1 + len(step.inputs) for step in plan.steps])


def whole_plan(problem: Problem, options: PlanOptions, rates: Rates, check: Check | None = None) -> Plan:
    """Plan both ways without slices: all messages in memory or, where that is too much, some made again.

    Raises
    ------
    HopelessError
        If a tree would take longer than anyone waits for; see also ``check``.
    """
    key = plan_key(problem, options, rates)
    plan = known_plan(key)
    if plan is None:
        free = replace(options, memory_bytes=1 << 62)
        tree = searched_tree(problem, free, rates, check)
        _refuse_hopeless(tree, problem, options, rates)
        plan = plan_tree(problem, free, rates, tree)
        keep_plan(key, plan)
    if plan.fits(options.memory_bytes) or options.device or options.by_rows:
        return plan
    return _both_ways(plan, problem, options, rates)


def searched_tree(
    problem: Problem,
    options: PlanOptions,
    rates: Rates,
    check: Check | None = None,
    longest: float = LONGEST_PLANNING,
) -> Tree:
    """Return the tree of a stored plan, or the one that a search of nominally so many seconds at most finds."""
    if options.children is not None:
        return Tree(problem.dims, problem.scopes, options.children)
    find = search_tree if problem.targets is None else tree_for_both_ways
    return find(
        problem.dims,
        problem.scopes,
        tree=options.tree,
        order=options.order,
        seconds=options.order_seconds,
        seed=options.seed,
        rates=rates,
        itemsize=problem.itemsize,
        check=check,
        longest=longest,
    )


def remembered_with_rates(plan: Plan, rates: Rates) -> Plan:
    """Return the plan with its seconds predicted from other rates; those of the last few plans are remembered."""
    return priced_once(plan, rates, with_rates)


def conditioned_plan(problem: Problem, options: PlanOptions, rates: Rates, plan: Plan, sliced: frozenset[int]) -> Plan:
    """Plan the same tree with the given variables conditioned on, whatever it needs."""
    found = plan_tree(problem, options, rates, replace(plan.tree, dims=plan.dims), sliced)
    return replace(found, unsliced_cells=plan.unsliced_cells)


def joined_tree(
    tree: Tree, problem: Problem, options: PlanOptions, rates: Rates, sliced: frozenset[int] = frozenset()
) -> Tree:
    """Join the small inputs of large steps first, where that was not declined, and leave some for later."""
    if options.tree != "refined" or problem.targets is not None:
        return tree
    sizer = Sizer(sliced_dims(tree.dims, sliced))
    if not options.device:
        tree = with_joined_inputs(tree, sizer, rates, problem.itemsize)
    return with_last_steps(tree, sizer) if options.decode else tree


def plan_tree(
    problem: Problem, options: PlanOptions, rates: Rates, whole: Tree, sliced: frozenset[int] = frozenset()
) -> Plan:
    """Lay out and lower the steps of a tree, one way or both; where messages do not fit, some are made again.

    Parameters
    ----------
    whole : Tree
        With all domain sizes.
    sliced : frozenset of int
        Variables that are conditioned on.
    """
    return _lowered(problem, options, rates, whole, sliced, _outlined(problem, options, whole, sliced))


def plan_within(
    problem: Problem, options: PlanOptions, rates: Rates, whole: Tree, sliced: frozenset[int] = frozenset()
) -> Plan | None:
    """Plan a tree as :func:`plan_tree` does, or return None where it does not fit, mostly before steps are lowered."""
    outlined = tree, layouts, order, _ = _outlined(problem, options, whole, sliced)
    # without slices, decoding may sweep part by part, and devices have the tables of both sweeps in one place
    bounded = problem.targets is None or not options.device
    if bounded and not options.by_rows and (sliced or not options.decode):
        sizing = Sizing(tree.dims, problem.itemsize, options.threads, options.device)
        available = options.memory_bytes - problem.model_bytes - _leaf_bytes(tree, whole, problem.itemsize)
        if exceeds(tree, order, sizing, available, StepBuilder(tree, layouts, problem.semiring).forward):
            return None
    plan = _lowered(problem, options, rates, whole, sliced, outlined)
    return plan if plan.fits(options.memory_bytes) else None


_Outlined = tuple[Tree, tuple[tuple[int, ...], ...], tuple[int, ...], frozenset[int]]
"""The tree of a slice, its layouts, the internal nodes as they are swept, and those that differ between slices."""


def _outlined(problem: Problem, options: PlanOptions, whole: Tree, sliced: frozenset[int]) -> _Outlined:
    tree = whole.resized(sliced_dims(whole.dims, sliced)) if sliced else whole
    varies = variant_nodes(tree, sliced)
    order = tuple(sorted(tree.schedule, key=varies.__contains__))
    return tree, _layouts(tree, options, problem.targets is not None), order, varies


def _leaf_bytes(tree: Tree, whole: Tree, itemsize: int) -> int:
    """Bytes of the leaf tables, and of those of a slice."""
    return leaf_bytes(tree, whole.dims, itemsize) + (0 if tree is whole else leaf_bytes(tree, tree.dims, itemsize))


def _lowered(
    problem: Problem, options: PlanOptions, rates: Rates, whole: Tree, sliced: frozenset[int], outlined: _Outlined
) -> Plan:
    tree, layouts, order, varies = outlined
    both = problem.targets is not None
    builder = StepBuilder(tree, layouts, problem.semiring)
    up = tuple([builder.forward(node) for node in order])
    back = tuple(builder.backward(choose_readings(tree, problem.targets))) if problem.targets is not None else ()
    cost = steps_cost((*up, *back), tree, rates, problem.itemsize)
    itemsize = problem.itemsize
    variant_from = sum(s.node not in varies for s in up) if sliced else 0
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
        leaf_bytes=_leaf_bytes(tree, whole, itemsize),
        model_bytes=problem.model_bytes,
        peak_bytes=0,
        cost=cost,
        unsliced_cells=cost.cells,
        variant_from=variant_from,
        shared_seconds=steps_cost(up[:variant_from], tree, rates, itemsize).seconds,
        threads=options.threads,
        device=options.device,
        around=RunOverhead(problem.functions or len(problem.scopes), problem.evaluated if options.decode else 0, rates),
    )
    if options.by_rows:
        from .row_bounds import with_row_bounds

        assert problem.rows is not None
        return with_row_bounds(plan, problem.rows, decode=options.decode, rates=rates)
    return _both_ways(plan, problem, options, rates) if both else _one_way(plan, options)


def _layouts(tree: Tree, options: PlanOptions, both: bool) -> tuple[tuple[int, ...], ...]:
    """The axis order of every table; rows are sorted in one order, so that most joins find them sorted."""
    if options.by_rows:
        return ordered_layouts(tree)
    return table_layouts(tree) if both else choose_layouts(tree, elimination_order(tree))


def _one_way(plan: Plan, options: PlanOptions) -> Plan:
    """Add up the peak of a forward sweep and, for an assignment, of its decoding."""
    sizing, fixed = Sizing(plan.tree.dims, plan.itemsize, plan.threads, plan.device), plan.model_bytes + plan.leaf_bytes
    peak = sweep_peak(plan.up, sizing, (*plan.tree.roots, *shared_tables(plan)), options.memory_bytes - fixed)
    if not options.decode:
        return replace(plan, peak_bytes=fixed + peak)
    cuts, again = cuts_for_decoding(plan.tree, plan.up, sizing, options.memory_bytes - fixed)
    return replace(plan, cuts=cuts, peak_bytes=fixed + (max(peak, again) if plan.sliced else again))


def _both_ways(plan: Plan, problem: Problem, options: PlanOptions, rates: Rates) -> Plan:
    """Add up the peak of both sweeps; where it is too much, give up what slices share, then make messages again."""
    if plan.device:
        from .message_program import device_needs

        needs = device_needs(plan)
        return replace(plan, variant_from=0, needs=needs, peak_bytes=needs.nbytes)
    sizing, fixed = Sizing(plan.tree.dims, plan.itemsize, plan.threads), plan.model_bytes + plan.leaf_bytes
    found = plan
    for shared in dict.fromkeys((shared_tables(plan), ())):
        peak = fixed + sweep_peak(plan.steps, sizing, (*plan.outputs, *shared))
        found = replace(plan, peak_bytes=peak, variant_from=plan.variant_from if shared else 0)
        if peak <= options.memory_bytes:
            return found
    again = remade(found, problem, sizing, options.memory_bytes - fixed)
    return found if again is None else with_rates(again, rates)


def shared_tables(plan: Plan) -> tuple[int, ...]:
    """Tables that do not depend on the slice and are read in every one of them."""
    made = {s.node for s in plan.steps[: plan.variant_from]}
    return tuple(dict.fromkeys(i for s in plan.steps[plan.variant_from :] for i in s.inputs if i in made))


def with_rates(plan: Plan, rates: Rates) -> Plan:
    """Return the plan with its seconds predicted from other rates."""
    later = plan.evaluations and repriced(plan.evaluations, rates, plan.itemsize)
    cost = steps_cost(plan.steps, plan.tree, rates, plan.itemsize)
    shared = steps_cost(plan.steps[: plan.variant_from], plan.tree, rates, plan.itemsize).seconds
    around = replace(plan.around, rates=rates)
    return replace(plan, cost=cost, shared_seconds=shared, evaluations=later, around=around)


def relowered(plan: Plan, problem: Problem) -> Plan:
    """Return the plan with its steps lowered for another semiring of the same value size."""

    def lowered(steps: Sequence[Step], sizes: Sequence[int]) -> tuple[Step, ...]:
        return tuple(lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in steps)

    spill = plan.spill
    if spill is not None:
        stages = (replace(s, steps=lowered(s.steps, sliced_dims(spill.dims, s.boxed))) for s in spill.stages)
        spill = replace(spill, stages=tuple(stages))
    return replace(plan, up=lowered(plan.up, plan.tree.dims), spill=spill)


def lowered_step(
    node: int,
    inputs: tuple[int, ...],
    input_axes: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    sizes: Sequence[int],
    problem: Problem,
) -> Step:
    """Fix the loops of one step for the given domain sizes."""
    return make_step(node, inputs, input_axes, axes, sizes, problem.semiring)


def _refuse_hopeless(tree: Tree, problem: Problem, options: PlanOptions, rates: Rates) -> None:
    """Refuse a tree that neither slices nor disks would bring within anyone's time, before its steps are lowered."""
    cost = tree_cost(tree, rates, problem.itemsize)
    if cost.seconds <= HOPELESS_SECONDS:
        return
    largest = max(tree.cells[tree.n_leaves :], default=0) * problem.itemsize
    slices = -(-largest // max(options.memory_bytes, 1))
    sliced = f"; slicing would take at least {format_count(slices)} slices" if slices > 1 else ""
    raise HopelessError(
        f"the plan needs more than {format_bytes(largest)} (its largest message), allowed "
        f"{format_bytes(options.memory_bytes)}{sliced}; it would sweep {format_count(cost.cells)} cells, in "
        f"{cost.seconds:.3g} s; try a longer --order-time",
        tree,
    )
