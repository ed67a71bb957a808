"""Lower limits of a plan's memory, from the sizes of tables and from the steps with the most live tables, before the
plan is made.

Lowering all steps takes most of the time of planning a tree, and most of the trees that are looked at do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.step import Step
from ..trees.memory import Sizing, leaf_bytes
from ..trees.tree import Tree, cells_beside
from .plan import Plan
from .problem import Problem

# Number of steps that are lowered to see that a plan does not fit.
_LOOKED_AT = 24


@dataclass(frozen=True)
class Outline:
    """A tree that fits no memory without slices, not lowered.

    Parameters
    ----------
    seconds : float
        Predicted.
    """

    tree: Tree
    seconds: float


def first_plan(plans: Iterator[Plan | Outline]) -> tuple[Plan, Iterator[Plan | Outline]]:
    """Return the first of some plans, which is more than an outline, and the others."""
    first = next(plans)
    assert isinstance(first, Plan)
    return first, plans


def least_bytes(problem: Problem, tree: Tree, sliced: frozenset[int] = frozenset()) -> int:
    """Bytes that any plan of a tree needs at least: the leaves, and what the largest step reads and writes."""
    cells = cells_beside(tree.cells, tree.scope_masks, tree.dims, sliced) if sliced else tree.cells
    first = tree.n_leaves
    steps = zip(tree.children, cells[first:], strict=True)
    largest = max([out + sum([cells[c] for c in kids if c >= first]) for kids, out in steps], default=0)
    leaves = leaf_bytes(tree, problem.dims, problem.itemsize)
    if sliced:
        leaves += sum(cells[:first]) * problem.itemsize
    return problem.model_bytes + leaves + largest * problem.itemsize


def live_cells(tree: Tree, order: Sequence[int]) -> list[int]:
    """Return for each node, in an order of children first, the cells of the messages that are there when it is made."""
    first, cells = tree.n_leaves, tree.cells
    found = []
    live = 0
    for node in order:
        live += cells[node]
        found.append(live)
        live -= sum([cells[c] for c in tree.children[node - first] if c >= first])
    return found


def needed_bytes(tree: Tree, order: Sequence[int], sizing: Sizing) -> int:
    """Return a lower limit of the bytes of live messages and workspace, for any lowering of the steps."""
    first, cells = tree.n_leaves, tree.joined_cells
    least = [sizing.least_workspace_bytes(cells[node - first], len(tree.children[node - first])) for node in order]
    live = live_cells(tree, order)
    return max([there * sizing.itemsize + more for there, more in zip(live, least, strict=True)], default=0)


def exceeds(tree: Tree, order: Sequence[int], sizing: Sizing, available: int, lowered: Callable[[int], Step]) -> bool:
    """Return whether an upward sweep cannot fit although its messages do, by the steps with the most live messages.

    Parameters
    ----------
    order : sequence of int
        The internal nodes as they are swept.
    available : int
        Bytes for messages and workspace.
    lowered : callable
        Lowers the step of a node.
    """
    live = [cells * sizing.itemsize for cells in live_cells(tree, order)]
    steps = [(live[i], lowered(order[i])) for i in nlargest(_LOOKED_AT, range(len(live)), key=live.__getitem__)]
    return any(
        there + sizing.most_workspace_bytes(step) > available and there + sizing.workspace_bytes(step) > available
        for there, step in steps
    )
