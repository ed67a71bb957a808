"""What two-way propagation costs: of its steps, and of a tree before it is lowered."""

from __future__ import annotations

from collections.abc import Sequence

from ...tasks.steps.step import Step
from ..trees.costs import MATMUL_SIDE, Rates, TreeCost, is_matmul, step_seconds
from ..trees.tree import Tree


def sweeps_cost(steps: Sequence[Step], tree: Tree, itemsize: int, rates: Rates) -> TreeCost:
    """Count the work of both sweeps."""
    cells = read = written = 0
    seconds = 0.0
    # steps that look alike are lowered once
    alike: dict[int, tuple[float, int]] = {}
    for step in steps:
        lowered = step.lowered
        known = alike.get(id(lowered))
        if known is None:
            known = alike[id(lowered)] = predicted_seconds(step, rates, itemsize), sum(lowered.input_cells)
        seconds += known[0]
        cells, read, written = cells + lowered.cells, read + known[1], written + lowered.out_cells
    width = max([mask.bit_count() for mask in tree.joined_masks], default=0) - 1
    return TreeCost(cells, max(tree.cells, default=1), width, read, written, seconds, len(steps))


def predicted_seconds(step: Step, rates: Rates, itemsize: int) -> float:
    """Predict the time of one step."""
    lowered = step.lowered
    matmul = lowered.cells >= MATMUL_SIDE**3 and is_matmul(lowered.cells, lowered.input_cells, lowered.out_cells)
    return step_seconds(lowered.cells, sum(lowered.input_cells) + lowered.out_cells, matmul, rates, itemsize)


def two_way_seconds(tree: Tree, rates: Rates, itemsize: int) -> float:
    """Predict both sweeps: a node's join is swept upward, and once more for each of its inputs."""
    seconds = 0.0
    size = tree.cells
    for node, (kids, cells) in enumerate(zip(tree.children, tree.joined_cells, strict=True), tree.n_leaves):
        tables = [*[size[c] for c in kids], size[node]]
        moved = sum(tables)
        if len(tables) != 3 or cells < MATMUL_SIDE**3:
            seconds += len(tables) * step_seconds(cells, moved, False, rates, itemsize)
            continue
        for i, table in enumerate(tables):
            matmul = is_matmul(cells, tables[:i] + tables[i + 1 :], table)
            seconds += step_seconds(cells, moved, matmul, rates, itemsize)
    return seconds
