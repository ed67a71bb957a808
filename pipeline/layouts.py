"""Axis orders of all tables of a tree: reverse elimination order, ended by a run for vector instructions."""

from __future__ import annotations

from collections.abc import Sequence

from .trees import Tree


def choose_layouts(tree: Tree, order: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Choose the axis order of every node's table.

    Parameters
    ----------
    tree
        The contraction tree.
    order
        The elimination order; the variable that is eliminated last comes first in every table.

    Returns
    -------
    tuple of tuple of int
        For each node, the variables of its scope in the order of its axes.
    """
    rank = {v: i for i, v in enumerate(order)}
    return tuple(tuple(sorted(scope, key=lambda v: -rank[v])) for scope in tree.scopes)
