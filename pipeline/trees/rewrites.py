"""Joining the small inputs of a large step before it, so that every cell of the step reads few tables.

A step of ``k`` inputs reads ``k`` numbers a cell. Most of them usually come from small functions of the same few
variables; their joins, a small part of the step, become steps of their own.
Where all inputs together make two such tables, the step becomes a product of matrices, which is many times faster.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from math import log2
from operator import itemgetter
from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import SAME_SHARE, ordered_sum
from ...tasks.steps.policy import Policy
from ...tasks.steps.products import LEAST
from ...tasks.sweeps.best_states import JOINT_STATES
from .costs import Rates, step_prices
from .tree import Sizer, Tree, build_tree

# Tuned numbers of rewriting trees. Pure.


@dataclass(frozen=True)
class TreePolicy(Policy):
    """The numbers behind steps that are joined beforehand, or left for later.

    Parameters
    ----------
    join_share : int
        A join that saves reading its inputs may have at most 1 / this of the step's cells.
    cached_cells : int
        Lowering joins inputs by itself if the joins stay in the caches, at most this many cells;
    many_inputs : int
        and at most this many of them are cheap.
    joined_step_cells : int
        Below, a further step costs about what it saves.
    later_joint_cells : int
        Fewer joint states are decoded before a further step would be planned.
    later_rows : int
        A step that is left for later handles at least this many times the rows that it leaves,
    joint_states : int
        and at most this many joint states, which are compared together.
    """

    join_share: int = 64
    cached_cells: int = 1 << 16
    many_inputs: int = 8
    joined_step_cells: int = 1 << 22
    later_joint_cells: int = 1 << 16
    later_rows: int = 1 << 4
    joint_states: int = JOINT_STATES


# Maximum inputs of a step after its inputs were joined beforehand.
_FEW_INPUTS: Final = 3


_Group = tuple[list[int], int]
"""Some inputs and the union of their scopes."""


def with_joined_inputs(tree: Tree, sizer: Sizer, rates: Rates, itemsize: int) -> Tree:
    """Return the tree with the small inputs of its large steps joined beforehand.

    A variable that only one join has is eliminated there already. A join is never larger than the largest table
    that the tree has anyway.

    Parameters
    ----------
    sizer : Sizer
        Sizes of the variables, as inside a slice.
    rates : Rates
        Joins are made where they save predicted seconds.
    itemsize : int
        Bytes of a value.
    """
    policy = TreePolicy.current()
    masks = list(tree.scope_masks)
    largest = max(map(sizer.cells, masks), default=0)
    kids: dict[int, Sequence[int]] = {tree.n_leaves + j: c for j, c in enumerate(tree.children)}
    pending = [(tree.n_leaves + j, mask) for j, mask in enumerate(tree.joined_masks)]

    step = step_prices(sizer, rates, itemsize)

    def seconds(inputs: Sequence[_Group], out: int) -> float:
        return step([union for _, union in inputs], out)[1]

    while pending:
        node, joined = pending.pop()
        cells = sizer.cells(joined)
        if len(kids[node]) <= 2 or cells < policy.joined_step_cells:
            continue
        single = [([i], masks[i]) for i in kids[node]]
        choices = [single]
        limit = min(cells // min(LEAST), largest)
        # two tables have as many cells together as their join at least
        widest = max(limit, *[sizer.cells(mask) for _, mask in single])
        if widest**2 >= cells and len(factors := _grouped(single, sizer, limit, 2)) == 2:
            choices.append(factors)
        if len(_grouped(single, sizer, policy.cached_cells, _FEW_INPUTS)) > policy.many_inputs:
            choices.append(_grouped(single, sizer, min(cells // policy.join_share, largest), _FEW_INPUTS))
        if choices == [single]:
            continue

        def price(groups: list[_Group], out: int = masks[node]) -> float:
            joins = (seconds([([i], masks[i]) for i in members], union) for members, union in groups if members[1:])
            return seconds(groups, out) + ordered_sum(joins)

        direct: list[int] = []
        for members, union in min(choices, key=price):
            if len(members) == 1 or sizer.cells(union) <= policy.cached_cells:
                direct += members
                continue
            direct.append(len(masks))
            kids[len(masks)] = members
            pending.append((len(masks), union))
            masks.append(union)
        kids[node] = direct
    return tree if len(masks) == len(tree.scope_masks) else build_tree(tree.dims, tree.leaves, kids, tree.last)


def _grouped(groups: Sequence[_Group], sizer: Sizer, limit: int, wanted: int) -> list[_Group]:
    """Group inputs with small joins: the smallest goes where it enlarges the join least, as far as the limit."""
    log = sizer.log
    largest = log2(max(limit, 1)) + SAME_SHARE
    done: list[_Group] = []
    open_groups = sorted(((log(mask), members, mask) for members, mask in groups), key=itemgetter(0))
    while open_groups and len(open_groups) + len(done) > wanted:
        _, members, mask = open_groups.pop(0)
        best: tuple[float, float, int] | None = None
        for i, (size, _, other) in enumerate(open_groups):
            if size > largest:
                break
            together = log(mask | other)
            if together <= largest and (best is None or (together - size, size) < best[:2]):
                best = (together - size, size, i)
            if mask | other == other:
                break  # Nothing is enlarged, and all that follow are as large or larger.
        if best is None:
            done.append((members, mask))
            continue
        _, others, other = open_groups.pop(best[2])
        insort(open_groups, (log(mask | other), [*others, *members], mask | other), key=itemgetter(0))
    return done + [(members, mask) for _, members, mask in open_groups]


# Steps that reduce many cells to few are split into two, so that an assignment is decoded without sweeping them again.
# Decoding looks for the best joint state of the variables that a step eliminated, given the states above it; for a
# root, this is the whole step again. Therefore the small inputs of a few of its variables are left for a second step.
# Its table gives the best value of every joint state of these variables. Once they are chosen, little of the large step
# remains.


def with_last_steps(tree: Tree, sizer: Sizer) -> Tree:
    """Return the tree with an additional step after each step that reduces a large join to few cells."""
    policy = TreePolicy.current()
    first, masks = tree.n_leaves, tree.scope_masks
    kids: dict[int, Sequence[int]] = {first + j: c for j, c in enumerate(tree.children)}
    fresh = len(masks)
    for node, joined in enumerate(tree.joined_masks, first):
        out = sizer.cells(masks[node])
        if out * policy.later_rows > policy.joint_states or sizer.cells(joined) // out < policy.later_joint_cells:
            continue
        last = _left_for_later([(i, masks[i]) for i in kids[node]], masks[node], sizer)
        if last:
            kids[fresh] = [i for i in kids[node] if i not in last]
            kids[node] = [*last, fresh]
            fresh += 1
    return tree if fresh == len(masks) else build_tree(tree.dims, tree.leaves, kids, tree.last)


def _left_for_later(inputs: Sequence[tuple[int, int]], out: int, sizer: Sizer) -> frozenset[int]:
    """Choose inputs of few variables, which the largest table has too; none if they have too few joint states."""
    policy = TreePolicy.current()
    masks = [mask for _, mask in inputs if mask]
    largest = max(masks, key=sizer.cells)
    if sizer.cells(largest) > policy.joint_states:
        masks = [mask for mask in masks if not mask & ~largest]
    rows = out
    while wider := [
        m for m in [rows | mask for mask in masks if mask & ~rows] if sizer.cells(m) <= policy.joint_states
    ]:
        rows = min(wider, key=sizer.cells)
    if sizer.cells(rows) < policy.later_rows * sizer.cells(out):
        return frozenset()
    return frozenset(i for i, mask in inputs if mask and not mask & ~rows)


# Wide steps of a tree, split if no table becomes larger: a step of many inputs is expensive on the way back.

MOST_INPUTS: Final = 8
"""Steps of more are split: their messages back join all inputs but one, each of them, k² reads for k inputs."""


def split_stars(tree: Tree) -> Tree:
    """Join the inputs of wide steps two at a time, as far as one's scope contains the other's.

    Each message back then joins two tables, and a change of one input passes through log2(k) steps. A naive Bayes
    classifier, with a message from every feature to the class, becomes a binary tree of them:

    >>> from bucketflow.pipeline.trees.tree import Tree
    >>> star = Tree((2,), ((0,),) * 9, (tuple(range(9)),))
    >>> split_stars(star).children
    ((7, 8), (5, 6), (9, 10), (3, 4), (1, 2), (12, 13), (11, 14), (0, 15))
    """
    if all(len(kids) <= MOST_INPUTS for kids in tree.children):
        return tree
    kids: dict[int, Sequence[int]] = {tree.n_leaves + j: inputs for j, inputs in enumerate(tree.children)}
    count = tree.n_leaves + len(tree.children)

    def join(pair: Sequence[int]) -> int:
        kids[count + len(kids)] = pair
        return count + len(kids) - 1

    for node, inputs in list(kids.items()):
        if len(inputs) > MOST_INPUTS:
            groups = _groups(tree, inputs)
            last = 2 if len(groups) == 1 else 1
            kids[node] = [table for group in groups for table in _halved(group, last, join)]
    return build_tree(tree.dims, tree.leaves, kids, tree.last)


def _groups(tree: Tree, inputs: Sequence[int]) -> list[list[int]]:
    """Put each input with one whose scope contains its own."""
    masks = tree.scope_masks
    groups: dict[int, list[int]] = {}
    for i in sorted(inputs, key=lambda i: (-masks[i].bit_count(), masks[i], i)):
        host = masks[i] if masks[i] in groups else next((m for m in groups if masks[i] & ~m == 0), masks[i])
        groups.setdefault(host, []).append(i)
    # the smallest first, so that they are joined with their like
    return [group[::-1] for group in groups.values()]


def _halved(tables: list[int], last: int, join: Callable[[Sequence[int]], int]) -> list[int]:
    """Join neighbours until at most ``last`` tables are left."""
    while len(tables) > last:
        pairs = [tables[i : i + 2] for i in range(0, len(tables), 2)]
        tables = [pair[0] if len(pair) == 1 else join(pair) for pair in pairs]
    return tables
