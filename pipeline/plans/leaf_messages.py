"""Both sweeps over a tree, for messages to some leaves: the message to a leaf excludes the leaf itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...tasks.steps.step import Step
from ..trees.tree import Target, Tree
from .problem import Problem
from .two_way_steps import StepBuilder, choose_readings, table_layouts

Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LeafMessages:
    """The steps of both sweeps.

    Parameters
    ----------
    tree : Tree
    layouts : tuple of tuple of int
        Axis order of every node's table.
    up, back : tuple of Step
    results : dict of tuple of int to int
        The table of the belief of each target.
    leaving : dict of int to (int, tuple of int) or None
        For some leaves, the table of the message from all other leaves, and its axes: the leaf's axes that occur in
        another table. None for a leaf that nothing is joined to.
    """

    tree: Tree
    layouts: tuple[Axes, ...]
    up: tuple[Step, ...]
    back: tuple[Step, ...]
    results: Mapping[Target, int]
    leaving: Mapping[int, tuple[int, Axes] | None]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        return (*self.up, *self.back)

    def root(self, node: int) -> int:
        """Return the root above a node, itself if there is none."""
        while self.tree.parent[node] >= 0:
            node = self.tree.parent[node]
        return node


def leaf_messages(tree: Tree, problem: Problem, ends: Sequence[int]) -> LeafMessages:
    """Lower both sweeps, with the beliefs of a problem's targets and the messages to some leaves."""
    layouts = table_layouts(tree)
    builder = StepBuilder(tree, layouts, problem)
    up = tuple([builder.forward(node) for node in tree.schedule])
    back = tuple(builder.backward(choose_readings(tree, problem.targets or ()), ends=frozenset(ends)))
    leaving: dict[int, tuple[int, Axes] | None] = {}
    for end in ends:
        tables = builder.above[end]
        leaving[end] = (tables[0], builder.axes[tables[0]]) if tables else None
    return LeafMessages(tree, layouts, up, back, builder.results, leaving)
