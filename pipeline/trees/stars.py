"""Wide steps of a tree, split where that makes no table larger: a step of many inputs is dear on the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from .tree import Tree, build_tree

MOST_INPUTS: Final = 8
"""Steps of more are split: their messages back join all inputs but one, each of them, k² reads for k inputs."""


def split_stars(tree: Tree) -> Tree:
    """Join the inputs of wide steps two at a time, as far as one's scope contains the other's.

    Each message back then joins two tables, and a change of one input passes through log2(k) steps. A naive Bayes
    classifier, whose class has a message from every feature, becomes a binary tree of them:

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
    return build_tree(tree.dims, tree.leaves, kids)


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
    """Join neighbours until no more than ``last`` are left."""
    while len(tables) > last:
        pairs = [tables[i : i + 2] for i in range(0, len(tables), 2)]
        tables = [pair[0] if len(pair) == 1 else join(pair) for pair in pairs]
    return tables
