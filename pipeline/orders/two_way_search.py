"""The tree that is cheapest in both directions: for the messages of a forward and a backward sweep. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..trees.costs import Rates, tree_cost, two_way_seconds
from ..trees.rewrites import split_stars
from ..trees.tree import Tree, bucket_tree, junction_tree
from .forests import forest_tree, merge_steps, split_steps
from .tree_search import (
    HOPELESS_SECONDS,
    LONGEST_PLANNING,
    MOST_SAVED,
    OrderName,
    Starts,
    checked_rule,
    first_order,
    search_tree,
)

# Where both sweeps multiply no more cells than this, the buckets of one order are as good as any tree.
_TINY_CELLS = 1 << 23
# A small step both ways is one call of einsum, or a record of one compiled loop; large ones need more, where it is
# little beside their loops. Priced by more, merged steps would sweep several times the cells to save steps.
_STEP_SECONDS = 5e-6
# Propagations whose loops are predicted to take less are planned without the compiled search.
_SMALL_SECONDS = 0.2


def tree_for_both_ways(
    dims: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    *,
    tree: str,
    order: OrderName | Sequence[int],
    seconds: float | None,
    seed: int,
    rates: Rates,
    itemsize: int,
    check: Callable[[Tree], None] | None = None,
    longest: float = LONGEST_PLANNING,
) -> Tree:
    """Choose the tree that is cheapest in both directions.

    Merged steps, which save a forward sweep from writing a table, are dear on the way back: every input asks
    for the whole join again. So trees are compared as they are and with all their joins pairwise, and with steps of
    many inputs split where that makes no table larger. What is hopeless already one way is returned as it is.
    """
    given = None if isinstance(order, str) else order
    first = first_order(dims, scopes, checked_rule(order), seed) if isinstance(order, str) else tuple(order)
    if tree != "refined" and (given is not None or seconds is None):
        build = bucket_tree if tree == "bucket" else junction_tree
        return build(dims, scopes, first)
    starts = Starts(dims, scopes)
    best = starts.buckets(first)
    if seconds is None and tree_cost(best, rates, itemsize).seconds > MOST_SAVED * HOPELESS_SECONDS:
        return best
    split = split_stars(best)
    if seconds is None and _multiplied_cells(split) < _TINY_CELLS:
        return split
    rates = replace(rates, step_seconds=min(rates.step_seconds, _STEP_SECONDS))
    # what each step costs besides its loops is about the same for all trees
    loops = replace(rates, step_seconds=0.0)
    sizer, units = starts.sizer, starts.units
    pairwise = forest_tree(starts.pairwise(first), units, dims, scopes)
    merged = merge_steps(pairwise, sizer, rates, itemsize)
    best = cheapest_both_ways((best, pairwise, merged), rates, itemsize)
    if seconds is None and two_way_seconds(best, loops, itemsize) < _SMALL_SECONDS:
        return best
    searched = search_tree(
        dims,
        scopes,
        tree=tree,
        order=order,
        seconds=seconds,
        seed=seed,
        rates=rates,
        itemsize=itemsize,
        check=check,
        longest=longest,
        starts=starts,
    )
    if tree_cost(searched, rates, itemsize).seconds > HOPELESS_SECONDS:
        return searched
    split = forest_tree(split_steps(searched, units, sizer), units, dims, scopes)
    return cheapest_both_ways((best, searched, split), rates, itemsize)


def cheapest_both_ways(trees: Sequence[Tree], rates: Rates, itemsize: int) -> Tree:
    """Return the cheapest tree, as it is or with its wide steps split: it pays for many messages, not functions."""
    found = list(trees)
    for tree in trees:
        if (split := split_stars(tree)) is not tree:
            found.append(split)
    return min(found, key=lambda one: two_way_seconds(one, rates, itemsize))


def _multiplied_cells(tree: Tree) -> int:
    """Multiplications of both sweeps: every table of a join with the others, in every direction."""
    inputs = [len(kids) for kids in tree.children]
    return sum([k * (k + 1) * cells for k, cells in zip(inputs, tree.joined_cells, strict=True)])
