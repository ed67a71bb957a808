"""Layouts: every scope once, and runs that readers keep."""

from __future__ import annotations

import math

from bucketflow.pipeline.trees.layouts import RUN_CELLS, choose_layouts
from bucketflow.pipeline.trees.tree import Tree, bucket_tree, elimination_order
from bucketflow.tasks.steps.lowering import lower
from bucketflow.tasks.steps.semiring import min_plus


def grid_tree(width: int, length: int) -> Tree:
    """Build the bucket tree of a binary grid, eliminated column by column."""
    edges = [(x * width + y, x * width + y + 1) for x in range(length) for y in range(width - 1)]
    edges += [(x * width + y, (x + 1) * width + y) for x in range(length - 1) for y in range(width)]
    return bucket_tree((2,) * (width * length), edges, range(width * length))


def test_layouts_are_permutations_of_the_scopes() -> None:
    tree = grid_tree(5, 6)
    layouts = choose_layouts(tree, elimination_order(tree))
    assert len(layouts) == len(tree.scopes)
    for layout, scope in zip(layouts, tree.scopes, strict=True):
        assert len(layout) == len(scope)
        assert frozenset(layout) == scope


def test_large_tables_end_in_a_run_that_the_reader_keeps() -> None:
    tree = grid_tree(16, 20)
    layouts = choose_layouts(tree, elimination_order(tree))
    gathers = steps = 0
    for j, children in enumerate(tree.children):
        step = lower(
            [layouts[c] for c in children],
            layouts[tree.n_leaves + j],
            dict(enumerate(tree.dims)),
            "int32",
            min_plus("int32"),
        )
        if step.loops is not None:
            steps += 1
            gathers += any(operand.role == "gather" for operand in step.loops.operands)
            assert step.loops.cells(step.loops.row) >= RUN_CELLS // 2
    assert steps > 100
    assert gathers < steps / 4


def test_nothing_is_left_out_of_a_forest() -> None:
    tree = bucket_tree((3, 2, 2), [(0,), (1, 2), ()], (0, 1, 2))
    layouts = choose_layouts(tree, elimination_order(tree))
    assert [math.prod(tree.dims[v] for v in layout) for layout in layouts][:3] == [3, 4, 1]
