"""Joining the small inputs of a large step before it, so that every cell of the step reads few tables.

A step of ``k`` inputs reads ``k`` numbers a cell. Most of them usually come from small functions of the same few
variables; their joins, a small part of the step, become steps of their own.
Where all inputs together make two such tables, the step becomes a product of matrices, which is many times faster.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from functools import cache
from math import log2
from operator import itemgetter

from ...tasks.steps.loops.products import LEAST
from .costs import Rates, sized_work, step_seconds
from .sizes import Sizer
from .tree import Tree, build_tree

_SHARE = 64
"""A join that saves reading its inputs may have this part of the cells of the step."""

_FEW_INPUTS = 3
# Lowering joins inputs by itself as long as the joins stay in the caches; a few of those cost little.
_CACHED_CELLS = 1 << 16
_MANY_INPUTS = 8
# Below, a further step costs about what it saves.
_LEAST_STEP = 1 << 22

_EPSILON = 1e-9

_Group = tuple[list[int], int]
"""Some inputs and the union of their scopes."""


def with_joined_inputs(tree: Tree, sizer: Sizer, rates: Rates, itemsize: int) -> Tree:
    """Return the tree with the small inputs of its large steps joined beforehand.

    A variable that only one join has is eliminated there already. A join is never larger than the largest table
    that the tree has anyway.
    """
    masks = list(tree.scope_masks)
    largest = max(map(sizer.cells, masks), default=0)
    kids: dict[int, Sequence[int]] = {tree.n_leaves + j: c for j, c in enumerate(tree.children)}
    pending = [(tree.n_leaves + j, mask) for j, mask in enumerate(tree.joined_masks)]

    def seconds(inputs: Sequence[_Group], out: int) -> float:
        return step_seconds(sized_work(sizer, [union for _, union in inputs], out), rates, itemsize)

    while pending:
        node, joined = pending.pop()
        cells = sizer.cells(joined)
        if len(kids[node]) <= 2 or cells < _LEAST_STEP:
            continue
        single = [([i], masks[i]) for i in kids[node]]
        choices = [single]
        if len(factors := _grouped(single, sizer, min(cells // min(LEAST), largest), 2)) == 2:
            choices.append(factors)
        if len(_grouped(single, sizer, _CACHED_CELLS, _FEW_INPUTS)) > _MANY_INPUTS:
            choices.append(_grouped(single, sizer, min(cells // _SHARE, largest), _FEW_INPUTS))
        if choices == [single]:
            continue

        def price(groups: list[_Group], out: int = masks[node]) -> float:
            joins = (seconds([([i], masks[i]) for i in members], union) for members, union in groups if members[1:])
            return seconds(groups, out) + sum(joins)

        direct: list[int] = []
        for members, union in min(choices, key=price):
            if len(members) == 1 or sizer.cells(union) <= _CACHED_CELLS:
                direct += members
                continue
            direct.append(len(masks))
            kids[len(masks)] = members
            pending.append((len(masks), union))
            masks.append(union)
        kids[node] = direct
    return tree if len(masks) == len(tree.scope_masks) else build_tree(tree.dims, tree.leaves, kids)


def _grouped(groups: Sequence[_Group], sizer: Sizer, limit: int, wanted: int) -> list[_Group]:
    """Group inputs with small joins: the smallest goes where it enlarges the join least, as far as the limit."""
    log = cache(sizer.log)
    largest = log2(max(limit, 1)) + _EPSILON
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
