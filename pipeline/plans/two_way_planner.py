"""Planning both sweeps over a network: a tree that is cheap both ways, in slices that fit the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ..errors import BudgetError
from ..models.preprocess import Leaf, Network
from ..search.forests import forest_tree, group_units, pairwise_forest, split_steps
from ..search.min_fill import min_fill_order
from ..search.orders import search_tree
from ..trees.costs import Rates
from ..trees.sizes import Sizer
from ..trees.slicing import next_slice
from ..trees.stars import split_stars
from ..trees.tree import Target, Tree, bucket_tree, junction_tree
from .message_program import device_needs
from .plan import PlanOptions, Problem, format_bytes
from .planner import MAX_SLICE_OVERHEAD, MAX_SLICES
from .two_way import TwoWay, plan_two_way
from .two_way_costs import two_way_seconds

# Where both sweeps multiply no more cells than this, the buckets of one order are as good as any tree.
_TINY_CELLS = 1 << 23
# Propagations whose loops are predicted to take less are planned without the compiled search.
_SMALL_SECONDS = 0.1


def with_joints(network: Network, targets: Sequence[Target]) -> Network:
    """Add a table of ones over every target that no leaf contains, so that some clique does."""
    several = [set(t) for t in dict.fromkeys(targets) if len(t) > 1]
    extra = [tuple(sorted(t)) for t in several if not any(t.issubset(scope) for scope in network.scopes)]
    return replace(network, leaves=(*network.leaves, *(Leaf(t, ()) for t in extra))) if extra else network


def plan_propagation(problem: Problem, targets: Sequence[Target], options: PlanOptions, rates: Rates) -> TwoWay:
    """Choose a tree for both sweeps and slice it into the memory budget.

    Raises
    ------
    BudgetError
        If no acceptable conditioning brings the plan into ``options.memory_bytes``.
    """
    first = found = plan_whole(problem, targets, options, rates)
    sliced: frozenset[int] = frozenset()
    while not fits(found, options) and len(sliced) < len(problem.dims):
        sliced |= {next_slice(first.tree, sliced, rates=rates)}
        found = _plan_tree(first.tree, problem, targets, options, rates, sliced)
        if found.slices > MAX_SLICES:
            break
    overhead = found.cells / max(first.cells, 1)
    if not fits(found, options) or overhead > MAX_SLICE_OVERHEAD or found.slices > MAX_SLICES:
        on_gpu = options.device
        raise BudgetError(
            f"propagation needs {format_bytes(first.peak_bytes)}{' on a GPU' if on_gpu else ''}, "
            f"allowed {format_bytes(options.memory_bytes)}; "
            f"slicing to {format_bytes(found.peak_bytes)} would take {found.slices:.3g} slices at {overhead:.3g} "
            "times the work; try a larger --memory or a longer --order-time"
            + (", or leave --gpus out: CPUs can keep tables on disk" if on_gpu else "")
        )
    return found


def fits(plan: TwoWay, options: PlanOptions) -> bool:
    """Whether one slice fits the budget and, on a GPU, its tables can be counted."""
    return plan.peak_bytes <= options.memory_bytes and (plan.device is None or plan.device.countable)


def plan_whole(problem: Problem, targets: Sequence[Target], options: PlanOptions, rates: Rates) -> TwoWay:
    """Plan without slices, whatever it needs."""
    order = options.order if isinstance(options.order, str) else tuple(options.order)
    return _planned(problem, tuple(targets), replace(options, order=order, memory_bytes=0), rates)


@lru_cache(maxsize=8)
def _planned(problem: Problem, targets: tuple[Target, ...], options: PlanOptions, rates: Rates) -> TwoWay:
    """Plan without slices. Small networks take longer to plan than to run, so the last few plans are remembered:
    a plan is a function of sizes, which other states of the same variables seldom change.
    """
    return _plan_tree(choose_tree(problem, options, rates), problem, targets, options, rates, frozenset())


def plan_slices(
    problem: Problem, targets: Sequence[Target], options: PlanOptions, rates: Rates, sliced: frozenset[int]
) -> TwoWay:
    """Plan with the tree of ``options.children``, conditioned on given variables."""
    return _plan_tree(choose_tree(problem, options, rates), problem, targets, options, rates, sliced)


def _plan_tree(
    tree: Tree,
    problem: Problem,
    targets: Sequence[Target],
    options: PlanOptions,
    rates: Rates,
    sliced: frozenset[int],
) -> TwoWay:
    plan = plan_two_way(
        tree,
        targets,
        problem.semiring,
        sliced=sliced,
        rates=rates,
        model_bytes=problem.model_bytes,
        threads=options.threads,
    )
    return replace(plan, device=device_needs(plan)) if options.device else plan


def forget_plans() -> None:
    """Drop the remembered plans."""
    _planned.cache_clear()


def choose_tree(problem: Problem, options: PlanOptions, rates: Rates) -> Tree:
    """Choose the tree that is cheapest in both directions.

    Merged steps, which save a forward sweep from writing a table, are dear on the way back: every input asks
    for the whole join again. So trees are compared as they are and with all their joins pairwise, and steps of many
    inputs are split where that makes no table larger.
    """
    dims, scopes = problem.dims, problem.scopes
    if options.children is not None:
        return Tree(dims, scopes, options.children)
    given = not isinstance(options.order, str)
    order = options.order if given else min_fill_order(dims, scopes, options.seed)
    if options.tree != "refined" and (given or options.order_seconds is None):
        build = bucket_tree if options.tree == "bucket" else junction_tree
        return build(dims, scopes, order)  # type: ignore[arg-type]
    best = split_stars(bucket_tree(dims, scopes, order))  # type: ignore[arg-type]
    if options.order_seconds is None and _multiplied_cells(best) < _TINY_CELLS:
        return best
    # what each step costs besides its loops is about the same for all trees
    loops = replace(rates, step_seconds=0.0)
    sizer, units = Sizer(dims), group_units(len(dims), scopes)
    forest = pairwise_forest(units, sizer, len(dims), order)  # type: ignore[arg-type]
    pairwise = split_stars(forest_tree(forest, units, dims, scopes))
    best = min(best, pairwise, key=lambda tree: two_way_seconds(tree, rates, problem.itemsize))
    if options.order_seconds is None and two_way_seconds(best, loops, problem.itemsize) < _SMALL_SECONDS:
        return best
    searched = search_tree(
        dims,
        scopes,
        tree=options.tree,
        order=options.order,
        seconds=options.order_seconds,
        seed=options.seed,
        rates=rates,
        itemsize=problem.itemsize,
    )
    split = forest_tree(split_steps(searched, units, sizer), units, dims, scopes)
    searched, split = split_stars(searched), split_stars(split)
    return min((best, searched, split), key=lambda tree: two_way_seconds(tree, rates, problem.itemsize))


def _multiplied_cells(tree: Tree) -> int:
    """Multiplications of both sweeps: every table of a join with the others, in every direction."""
    inputs = [len(kids) for kids in tree.children]
    return sum([k * (k + 1) * cells for k, cells in zip(inputs, tree.joined_cells, strict=True)])
