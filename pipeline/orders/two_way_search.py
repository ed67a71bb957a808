"""The tree that is cheapest in both directions: for the messages of a forward and a backward sweep. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from ...tasks.steps.lowering import SMALL_CELLS
from ..trees.costs import Rates, tree_cost, two_way_seconds
from ..trees.rewrites import split_stars
from ..trees.tree import Tree
from .depth_first import loops_are_ready
from .effort import BOTH_WAYS_STEP_SECONDS, FUNCTION_SECONDS, KEPT_TREES, OrderPolicy, PlanningBudget
from .forests import Starts, forest_tree, split_steps
from .tree_search import HOPELESS_SECONDS, MOST_SAVED, Check, TreeSearch

# Seconds per variable, or group of functions, to make the joins of a tree pairwise and to price both versions in
# both directions. Trees within a factor of the best are compared in both directions, at least one, for this
# fraction of the propagation. In a short propagation the pairwise version is skipped, because its gain is smaller
# than its cost.
_PAIRS_SECONDS: Final = 1.2e-4
_BOTH_WAYS_NEAR: Final = 1.5
# Seconds of search for each cell of requested trees of buckets or cliques, which only further orders improve.
_ASKED_CELL_SECONDS: Final = 2e-8
# Upper limit of the minimum seconds of this search. A long propagation is searched for longer.
_LONGEST_RESTARTS_SECONDS: Final = 1.0


def tree_for_both_ways(search: TreeSearch, effort: PlanningBudget | None = None, check: Check | None = None) -> Tree:
    """Choose the tree that is cheapest in both directions.

    Merged steps save a forward sweep from writing a table, but are expensive on the way back: every input needs the
    whole join again. Trees are therefore compared in three forms: unchanged, with pairwise joins, and with steps of
    many inputs split if no table becomes larger. A tree that is hopeless in one direction is returned unchanged.

    The search begins if the propagation of the first tree is not short. :class:`.effort.SearchRounds` decides when it
    ends, for a run of both sweeps.

    Parameters
    ----------
    effort : PlanningBudget, optional
        Account that the work is entered in.
    check : callable, optional
        Called once with the best tree before an automatic search becomes long; an exception ends the search.

    Raises
    ------
    ModelError
        If the order is neither a rule nor a permutation of the variables.
    """
    policy = OrderPolicy.current()
    dims, scopes, itemsize = search.dims, search.scopes, search.itemsize
    effort = effort or PlanningBudget()
    effort.spend(FUNCTION_SECONDS * len(scopes))
    first = search.first_order
    starts = Starts(dims, scopes)
    if search.tree != "refined":
        return _tree_as_asked(search, starts, first, effort, check)
    best = starts.buckets(first)
    has_large = max(best.joined_cells, default=0) > SMALL_CELLS  # a tree of small joins is never hopeless
    beyond = MOST_SAVED * HOPELESS_SECONDS
    if search.automatic and has_large and tree_cost(best, search.rates, itemsize).seconds > beyond:
        return best
    split = split_stars(best)
    if search.automatic and _multiplied_cells(split) < policy.both_ways_tiny_cells:
        return split
    rates = replace(search.rates, step_seconds=min(search.rates.step_seconds, BOTH_WAYS_STEP_SECONDS))
    # the overhead of a step outside its loops is about equal for all trees
    loops = replace(rates, step_seconds=0.0)
    sizer, units = starts.sizer, starts.units
    trees = best, starts.pairwise_tree(first), starts.merged(first, rates, itemsize)
    seconds_of_best, best = _priced_both_ways(trees, rates, itemsize)
    propagation = two_way_seconds(best, loops, itemsize)
    most = KEPT_TREES
    if search.automatic:
        # making the joins of each tree pairwise, and its price, take as long as some of the search
        each = _PAIRS_SECONDS * max(len(dims), len(units.members), 1)
        most = int(policy.pairs_share * propagation / each)
    if search.automatic and propagation < policy.restart_least_seconds:
        return best
    sweeps = max(seconds_of_best / max(tree_cost(best, rates, itemsize).seconds, rates.step_seconds), 1.0)
    found = replace(search, rates=rates, sweeps=sweeps, begins=0.0).trees(effort, check, starts)
    one_way = tree_cost(found[0], rates, itemsize).seconds
    if one_way > HOPELESS_SECONDS:
        return found[0]
    near = [one for one in found if tree_cost(one, rates, itemsize).seconds <= _BOTH_WAYS_NEAR * one_way]
    near = near[: max(most, 1)]
    pairs = [forest_tree(split_steps(one, units, sizer), units, starts.dims, starts.scopes) for one in near[:most]]
    seconds_of_other, other = _priced_both_ways((*near, *pairs), rates, itemsize)
    return best if seconds_of_best <= seconds_of_other else other


def _tree_as_asked(
    search: TreeSearch, starts: Starts, first: tuple[int, ...], effort: PlanningBudget, check: Check | None
) -> Tree:
    """Choose the buckets or cliques of the first order, or of the best of many if the first sweeps many cells."""
    best = starts.buckets(first) if search.tree == "bucket" else starts.cliques(first)
    if not isinstance(search.order, str):
        return best
    if search.automatic:
        hopeless = tree_cost(best, search.rates, search.itemsize).seconds > HOPELESS_SECONDS
        seconds = 0.0 if hopeless else _restart_seconds(best)
        if not seconds:
            return best
        one_way = max(tree_cost(best, search.rates, search.itemsize).seconds, search.rates.step_seconds)
        sweeps = max(two_way_seconds(best, search.rates, search.itemsize) / one_way, 1.0)
        search = replace(search, least=seconds, sweeps=sweeps, begins=0.0)
    found = search.trees(effort, check, starts)
    return min(found, key=lambda one: two_way_seconds(one, search.rates, search.itemsize))


def _restart_seconds(tree: Tree) -> float:
    """Return the minimum seconds for further orders if a requested tree sweeps many cells, else 0."""
    swept = sum(tree.joined_cells)
    if swept <= OrderPolicy.current().asked_cells or not loops_are_ready():
        return 0.0
    return min(_LONGEST_RESTARTS_SECONDS, _ASKED_CELL_SECONDS * swept)


def cheapest_both_ways(trees: Sequence[Tree], rates: Rates, itemsize: int) -> Tree:
    """Return the cheapest tree, as it is or with its wide steps split: it pays for many messages, not functions."""
    return _priced_both_ways(trees, rates, itemsize)[1]


def _priced_both_ways(trees: Sequence[Tree], rates: Rates, itemsize: int) -> tuple[float, Tree]:
    """Return the cheapest tree, or it with its wide steps split, with its seconds both ways."""
    found = list(trees)
    for tree in trees:
        if (split := split_stars(tree)) is not tree:
            found.append(split)
    return min([(two_way_seconds(one, rates, itemsize), one) for one in found], key=itemgetter(0))


def _multiplied_cells(tree: Tree) -> int:
    """Multiplications of both sweeps: every table of a join with the others, in every direction."""
    inputs = [len(kids) for kids in tree.children]
    return sum([k * (k + 1) * cells for k, cells in zip(inputs, tree.joined_cells, strict=True)])
