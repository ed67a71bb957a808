"""Steps that leave few cells of many are made in two, so that an assignment is decoded without sweeping them again.

Decoding looks for the best joint state of what a step eliminated, at the states chosen above it: of a root that is the
whole step once more. So the small inputs of a few of its variables are left for a further step, whose table says the
best of every joint state of these: once they are chosen, little of the large step is left to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...tasks.sweeps.best_states import JOINT_STATES
from .sizes import Sizer
from .tree import Tree, build_tree

_LEAST_JOINT: Final = 1 << 16
"""Fewer joint states are decoded before a further step would be planned."""
_FEWEST_ROWS: Final = 1 << 4


def with_last_steps(tree: Tree, sizer: Sizer) -> Tree:
    """Return the tree with a further step after each one that eliminates a large join down to few cells."""
    first, masks = tree.n_leaves, tree.scope_masks
    kids: dict[int, Sequence[int]] = {first + j: c for j, c in enumerate(tree.children)}
    fresh = len(masks)
    for node, joined in enumerate(tree.joined_masks, first):
        out = sizer.cells(masks[node])
        if out * _FEWEST_ROWS > JOINT_STATES or sizer.cells(joined) // out < _LEAST_JOINT:
            continue
        last = _left_for_later([(i, masks[i]) for i in kids[node]], masks[node], sizer)
        if last:
            kids[fresh] = [i for i in kids[node] if i not in last]
            kids[node] = [*last, fresh]
            fresh += 1
    return tree if fresh == len(masks) else build_tree(tree.dims, tree.leaves, kids)


def _left_for_later(inputs: Sequence[tuple[int, int]], out: int, sizer: Sizer) -> frozenset[int]:
    """Choose inputs of few variables, which the largest table has too; none if they have too few joint states."""
    masks = [mask for _, mask in inputs if mask]
    largest = max(masks, key=sizer.cells)
    if sizer.cells(largest) > JOINT_STATES:
        masks = [mask for mask in masks if not mask & ~largest]
    rows = out
    while wider := [m for m in [rows | mask for mask in masks if mask & ~rows] if sizer.cells(m) <= JOINT_STATES]:
        rows = min(wider, key=sizer.cells)
    if sizer.cells(rows) < _FEWEST_ROWS * sizer.cells(out):
        return frozenset()
    return frozenset(i for i, mask in inputs if mask and not mask & ~rows)
