"""The planner: from a network's scopes to a frozen list of steps with exact byte counts.

Pure: it sees sizes, never a table. What it makes is a :class:`~bucketflow.pipeline.plans.plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from ...tasks.steps.step import Step, make_step
from ..errors import BudgetError
from ..search.orders import HOPELESS_SECONDS, elimination_order, refine_tree, search_trees
from ..trees.costs import Rates, lowered_seconds, tree_cost
from ..trees.input_joins import with_joined_inputs
from ..trees.layouts import choose_layouts
from ..trees.memory import Sizing, leaf_bytes, partition, parts_below, sweep_peak, table_bytes
from ..trees.sizes import Sizer
from ..trees.slicing import slice_count, slice_tree
from ..trees.tree import Tree
from .plan import Plan, PlanOptions, Problem, format_bytes, sliced_dims

# Beyond this many slices, or this much repeated work, conditioning is no answer to a small budget.
MAX_SLICES = 1 << 20
MAX_SLICE_OVERHEAD = 64.0

# A plan within this factor of the cheapest is not worth looking for a better one.
CLOSE = 1.1

# Planning time for rearranging a tree for its slices, at most.
REARRANGING_SECONDS = 4.0
REARRANGINGS = 2

# Nominal time of planning a step, and how often a tree is planned until it fits.
PLANNING_SECONDS = 3e-4
_TRIES_A_TREE = 8

# A message between workers; a larger one costs more to send than it saves.
MAX_SENT_BYTES = 1 << 28


def whole_plans(problem: Problem, options: PlanOptions, rates: Rates) -> Iterator[Plan]:
    """Plan without slices, whatever that needs, from each of the trees that a search finds, the cheapest first.

    Raises
    ------
    BudgetError
        If a tree would take longer than anyone waits for by so much that no slices or disks help.
    """
    if options.children is not None:
        tree = Tree(problem.dims, problem.scopes, options.children)
        yield _plan(problem, options, rates, tree, frozenset())
        return
    for tree in search_trees(
        problem.dims,
        problem.scopes,
        tree=options.tree,
        order=options.order,
        seconds=options.order_seconds,
        seed=options.seed,
        rates=rates,
        itemsize=problem.itemsize,
    ):
        _refuse_hopeless(tree, problem, options, rates)
        yield _plan(problem, options, rates, _joined(tree, problem, options, rates), frozenset())


def plan_as_before(problem: Problem, options: PlanOptions, rates: Rates) -> Plan:
    """Make an earlier plan in memory again, from its tree and the variables that it conditioned on."""
    assert options.children is not None
    assert options.sliced is not None
    tree = Tree(problem.dims, problem.scopes, options.children)
    plan = _plan(problem, options, rates, tree, frozenset(options.sliced))
    return replace(plan, unsliced_cells=tree_cost(tree, rates, problem.itemsize).cells)


def sliced_plan(problem: Problem, options: PlanOptions, rates: Rates, wholes: Sequence[Plan]) -> Plan:
    """Condition on as few variables as bring a plan into its budget, then rearrange its tree for the slices.

    Parameters
    ----------
    wholes : sequence of Plan
        Without slices, the cheapest first; the others are tried while they may make cheaper slices.

    Raises
    ------
    BudgetError
        If that takes too many slices or too much repeated work.
    """
    found: list[Plan] = []
    refusals: list[BudgetError] = []

    def best() -> Plan:
        return min(found, key=lambda plan: plan.seconds)

    for i, whole in enumerate(wholes):
        if found and (best().seconds <= CLOSE * whole.seconds or _tries(best()) < i * _TRIES_A_TREE):
            break
        try:
            found.append(_conditioned(problem, options, rates, whole))
        except BudgetError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    plan = best()
    # a tree that was given is not searched on unless slicing costs much
    given = not isinstance(options.order, str) or (
        options.children is not None and plan.seconds <= CLOSE * wholes[0].seconds
    )
    if options.tree == "refined" and not given:
        plan = _rearranged(problem, options, rates, plan)
    plan = replace(plan, unsliced_cells=wholes[0].cells)
    if plan.slice_overhead > MAX_SLICE_OVERHEAD:
        raise _refusal(wholes[0], frozenset(plan.sliced), options.memory_bytes, plan)
    return plan


def _conditioned(problem: Problem, options: PlanOptions, rates: Rates, whole: Plan) -> Plan:
    """Condition on variables of the largest tables, and of ever smaller ones, until the plan fits."""
    tree = whole.tree
    limit = max((options.memory_bytes - problem.model_bytes) // problem.itemsize, 1)
    while True:
        sliced = slice_tree(tree, limit, rates, itemsize=problem.itemsize, seed=options.seed)
        if slice_count(tree, sliced) > MAX_SLICES:
            raise _refusal(whole, sliced, options.memory_bytes)
        plan = _plan(problem, options, rates, tree, sliced)
        if plan.peak_bytes <= options.memory_bytes:
            break
        if limit == 1:
            raise _refusal(whole, sliced, options.memory_bytes)
        limit //= 2
    # not all tables are there at the same time
    for v in sorted(sliced, key=lambda v: -problem.dims[v])[: _tries(plan)]:
        if plan.seconds <= CLOSE * whole.seconds:
            break
        fewer = _plan(problem, options, rates, tree, frozenset(plan.sliced) - {v})
        if fewer.peak_bytes <= options.memory_bytes and fewer.seconds < plan.seconds:
            plan = fewer
    return plan


def _rearranged(problem: Problem, options: PlanOptions, rates: Rates, plan: Plan) -> Plan:
    """Rearrange a tree for its slices and condition again, a few times; return the cheapest plan on the way."""
    seconds = min(REARRANGING_SECONDS, plan.seconds / 2) / REARRANGINGS
    best = plan
    for turn in range(REARRANGINGS):
        sliced = frozenset(plan.sliced)
        tree = replace(plan.tree, dims=problem.dims)
        tree = refine_tree(
            tree, sliced=sliced, seconds=seconds, seed=options.seed + turn, rates=rates, itemsize=problem.itemsize
        )
        tree = _joined(tree, problem, options, rates, sliced)
        try:
            plan = _conditioned(problem, options, rates, _plan(problem, options, rates, tree, frozenset()))
        except BudgetError:
            break
        best = min(best, plan, key=lambda plan: plan.seconds)
    return best


def _tries(plan: Plan) -> int:
    """Return how many plans of that many steps may be made for a better one: a quarter of the time that it takes."""
    return int(plan.seconds / 4 / (PLANNING_SECONDS * max(len(plan.steps), 1)))


def _joined(
    tree: Tree, problem: Problem, options: PlanOptions, rates: Rates, sliced: frozenset[int] = frozenset()
) -> Tree:
    """Join the small inputs of large steps first, where that was not declined."""
    if options.tree != "refined" or options.device:
        return tree
    return with_joined_inputs(tree, Sizer(sliced_dims(tree.dims, sliced)), rates, problem.itemsize)


def conditioned_plan(problem: Problem, options: PlanOptions, rates: Rates, plan: Plan, sliced: frozenset[int]) -> Plan:
    """Plan the same tree with the given variables conditioned on, whatever it needs."""
    found = _plan(problem, options, rates, replace(plan.tree, dims=plan.dims), sliced)
    return replace(found, unsliced_cells=plan.unsliced_cells)


def _plan(problem: Problem, options: PlanOptions, rates: Rates, whole: Tree, sliced: frozenset[int]) -> Plan:
    itemsize = problem.itemsize
    tree = replace(whole, dims=sliced_dims(whole.dims, sliced))
    layouts = choose_layouts(tree, elimination_order(tree))
    varies = _variant_nodes(tree, sliced)
    order = sorted(tree.schedule, key=varies.__contains__)
    steps = tuple(_step(problem, tree, layouts, node) for node in order)
    fixed = leaf_bytes(tree, whole.dims, itemsize) + (leaf_bytes(tree, tree.dims, itemsize) if sliced else 0)
    variant_from = sum(node not in varies for node in order) if sliced else 0
    frontier = {i for s in steps[variant_from:] for i in s.inputs if i not in varies} if sliced else ()
    sizing = Sizing(tree.dims, itemsize, options.threads, options.device)
    peak = sweep_peak(steps, sizing, frontier)
    cuts: frozenset[int] = frozenset()
    if options.decode:
        cuts, again = _cuts(tree, steps, sizing, options.memory_bytes - problem.model_bytes - fixed)
        peak = max(peak, again) if sliced else again
    cost = tree_cost(tree, rates, itemsize)
    return Plan(
        tree=tree,
        dims=whole.dims,
        layouts=layouts,
        steps=steps,
        cuts=cuts,
        sliced=tuple(sorted(sliced)),
        itemsize=itemsize,
        leaf_bytes=fixed,
        model_bytes=problem.model_bytes,
        peak_bytes=problem.model_bytes + fixed + peak,
        cost=cost,
        unsliced_cells=cost.cells,
        variant_from=variant_from,
        device=options.device,
    )


def with_rates(plan: Plan, rates: Rates) -> Plan:
    """Return the plan with its seconds predicted from other rates."""
    return replace(plan, cost=tree_cost(plan.tree, rates, plan.itemsize))


def relowered(plan: Plan, problem: Problem) -> Plan:
    """Return the plan with its steps lowered for another semiring of the same value size."""

    def lowered(steps: Sequence[Step], sizes: Sequence[int]) -> tuple[Step, ...]:
        return tuple(lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in steps)

    spill = plan.spill
    if spill is not None:
        stages = (replace(s, steps=lowered(s.steps, sliced_dims(spill.dims, s.boxed))) for s in spill.stages)
        spill = replace(spill, stages=tuple(stages))
    return replace(plan, steps=lowered(plan.steps, plan.tree.dims), spill=spill)


def _variant_nodes(tree: Tree, sliced: frozenset[int]) -> frozenset[int]:
    """Nodes whose table depends on the states of the sliced variables."""
    varies = [not sliced.isdisjoint(scope) for scope in tree.leaves]
    for kids in tree.children:
        varies.append(any(varies[c] for c in kids))
    return frozenset(node for node, flag in enumerate(varies) if flag)


def _step(problem: Problem, tree: Tree, layouts: Sequence[tuple[int, ...]], node: int) -> Step:
    inputs = tree.children[node - len(tree.leaves)]
    return lowered_step(node, inputs, tuple(layouts[i] for i in inputs), layouts[node], tree.dims, problem)


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


def _cuts(tree: Tree, steps: Sequence[Step], sizing: Sizing, available: int) -> tuple[frozenset[int], int]:
    """Where to drop messages, and the peak of messages and workspace that follows.

    Keeping all messages makes the decoding free. Where they do not fit, the tree is cut and each part swept
    again, conditioned on the variables above it, which costs at most as much as the first sweep.
    """
    everything = sweep_peak(steps, sizing, [s.node for s in steps])
    best: tuple[frozenset[int], int] = (frozenset(), everything)
    order = [s.node for s in steps]
    made = {s.node: table_bytes(sizing.sizes, s.axes, sizing.itemsize) for s in steps}
    limit = everything / 2
    tried: set[frozenset[int]] = set()
    while best[1] > available and limit > everything / 4096:
        cuts = partition(tree, order, made.__getitem__, limit)
        if cuts not in tried:
            tried.add(cuts)
            peak = recomputing_peak(tree, steps, sizing, cuts)
            best = min(best, (cuts, peak), key=lambda choice: choice[1])
        limit /= 2
    return best


def recomputing_peak(tree: Tree, steps: Sequence[Step], sizing: Sizing, cuts: frozenset[int]) -> int:
    """Peak of sweeping part by part, keeping the tables at the cuts, and then each part again to decode it."""
    held = sum(table_bytes(sizing.sizes, s.axes, sizing.itemsize) for s in steps if s.node in cuts)
    peak = 0
    for head, part in parts_below(tree, steps, cuts).items():
        inner = replace(sizing, sizes=sliced_dims(sizing.sizes, tree.scopes[head] if head >= 0 else ()))
        copies = sum([table_bytes(inner.sizes, a, inner.itemsize) for s in part for a in s.input_axes])
        again = copies + sweep_peak(part, inner, [s.node for s in part])
        peak = max(peak, held + again, held + sweep_peak(part, sizing, ()))
    return peak


def split_for(plan: Plan, width: int, seconds: float, rates: Rates, memory_bytes: int) -> Plan:
    """Cut a plan into parts of at least ``seconds`` for ``width`` workers, where that pays and fits."""
    sizes = plan.tree.dims
    if plan.spill or plan.slices > 1 or plan.seconds < 2 * seconds:
        return plan
    work = {s.node: lowered_seconds(s, sizes, rates, plan.itemsize) for s in plan.steps}
    small = {s.node for s in plan.steps if table_bytes(sizes, s.axes, plan.itemsize) <= MAX_SENT_BYTES}
    enough = max(seconds, plan.seconds / (4 * width))
    cuts = partition(plan.tree, [s.node for s in plan.steps], work.__getitem__, enough, small.__contains__) | plan.cuts
    fixed = plan.model_bytes + plan.leaf_bytes
    peak = fixed + recomputing_peak(plan.tree, plan.steps, Sizing(sizes, plan.itemsize, device=plan.device), cuts)
    return replace(plan, cuts=cuts, peak_bytes=peak) if cuts and peak <= memory_bytes else plan


def _refuse_hopeless(tree: Tree, problem: Problem, options: PlanOptions, rates: Rates) -> None:
    """Refuse a tree that neither slices nor disks would bring within anyone's time, before its steps are lowered."""
    cost = tree_cost(tree, rates, problem.itemsize)
    if cost.seconds <= HOPELESS_SECONDS:
        return
    largest = max(tree.cells[tree.n_leaves :], default=0) * problem.itemsize
    slices = -(-largest // max(options.memory_bytes, 1))
    sliced = f"; slicing would take at least {float(slices):.3g} slices" if slices > 1 else ""
    raise BudgetError(
        f"the plan needs more than {format_bytes(largest)} (its largest message), allowed "
        f"{format_bytes(options.memory_bytes)}{sliced}; it would sweep {float(cost.cells):.3g} cells, in "
        f"{cost.seconds:.3g} s; try a longer --order-time"
    )


def _refusal(whole: Plan, sliced: frozenset[int], allowed_bytes: int, tried: Plan | None = None) -> BudgetError:
    """Say what the plan needs, what is allowed, and what slicing would cost."""
    largest = max(table_bytes(whole.tree.dims, s.axes, whole.itemsize) for s in whole.steps)
    slices = prod(whole.dims[v] for v in sliced)
    price = "" if tried is None else f" at {tried.slice_overhead:.3g} times the work"
    return BudgetError(
        f"the plan needs {format_bytes(whole.peak_bytes)} (largest message {format_bytes(largest)}), allowed "
        f"{format_bytes(allowed_bytes)}; slicing would take at least {float(slices):.3g} slices{price}; "
        "try a larger --memory or a longer --order-time"
    )
