"""Plans whose tables hold only what is possible: rows are known when they are made, before that only bounds. Pure.

A table has at most as many rows as cells. It also has at most the product of the rows of inputs that together contain
all its variables. An input that adds only some new variables counts with the joint states of these variables.

>>> sizes = (10,) * 6
>>> most_rows((0, 1, 2, 3), [((0, 1, 2, 4), 50), ((2, 3, 5), 30)], sizes)
500
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, inf, log, prod
from typing import Final

from ...tasks.rows.keys import Keys
from ...tasks.steps.number_limits import LARGEST_EXPONENT, ordered_sum
from ...tasks.steps.policy import RowPolicy
from ...tasks.steps.step import Step
from ...tasks.sweeps.sweep import freed_tables
from ..trees.costs import Rates
from ..trees.tree import Tree
from .plan import Plan

#: Bytes of a row of a leaf table while it is made: packed, in order, and sorted.
LEAF_ROW_BYTES: Final = 136
# Minimum seconds of a sparse sweep: to build a leaf table, and to run a step.
_LEAF_SECONDS: Final = 5e-5
_STEP_SECONDS: Final = 1e-4
_CELLS_OF_A_ROW: Final = RowPolicy().cells_of_a_row
#: Boxes of a step at most: more cost more to keep account of than anyone waits for.
MOST_BOXES: Final = 1 << 14


def most_rows(axes: Sequence[int], inputs: Sequence[tuple[Sequence[int], int]], sizes: Sequence[int]) -> int:
    """Return how many rows a table has at most that is made from inputs, each with its axes and its rows."""
    rows, left = 1, {v for v in axes if sizes[v] > 1}
    while left:
        new = [({*scope} & left, count) for scope, count in inputs]
        found, factor = min(
            ((own, min(count, prod(sizes[v] for v in own))) for own, count in new if own),
            key=lambda one: log(max(one[1], 1)) / log(max(prod(sizes[v] for v in one[0]), 2)),
        )
        rows *= factor
        left -= found
    return min(rows, prod(sizes[v] for v in axes))


def expected_work(tree: Tree, leaf_rows: Sequence[int]) -> float:
    """Return about how many rows the joins of a tree have together; steps that are shorter as loops count as these.

    Parameters
    ----------
    leaf_rows : sequence of int
        Assignments that each leaf table allows, at most.
    """
    return _expected(tree, leaf_rows)[1]


def _expected(tree: Tree, leaf_rows: Sequence[int]) -> tuple[dict[frozenset[int], float], float]:
    """Return the logarithm of about how many rows tables have, by their variables, and joins have together.

    The estimate of query planners: without other information, tables with common variables agree in one of k joint
    states of these variables, where k is the number of rows of the table with most states of them.
    """
    logs = [log(d) for d in tree.dims]
    tables = [(frozenset(scope), log(max(rows, 1))) for scope, rows in zip(tree.leaves, leaf_rows, strict=True)]
    work = 0.0
    for kids, out in zip(tree.children, tree.scopes[tree.n_leaves :], strict=True):
        scope, rows = frozenset[int](), 0.0
        for own, count in sorted((tables[kid] for kid in kids), key=lambda table: table[1]):
            shared = ordered_sum([logs[v] for v in scope & own])
            scope |= own
            rows = min(rows + count - max(min(rows, shared), min(count, shared)), ordered_sum([logs[v] for v in scope]))
        tables.append((frozenset(out), min(rows, ordered_sum([logs[v] for v in out]))))
        looped = ordered_sum([logs[v] for v in scope]) - log(_CELLS_OF_A_ROW)
        work += exp(min(rows, looped, LARGEST_EXPONENT))
    return dict(tables), work


def states_left(dims: Sequence[int], scopes: Sequence[Sequence[int]], leaf_rows: Sequence[int]) -> list[float]:
    """Return as how many states each variable counts, if the rows of its sparsest table are spread evenly over it."""
    found = [log(d) for d in dims]
    for scope, rows in zip(scopes, leaf_rows, strict=True):
        cells = ordered_sum([log(dims[v]) for v in scope])
        for v in scope:
            found[v] = min(found[v], log(dims[v]) * log(max(rows, 1)) / cells if cells else 0.0)
    return [exp(states) for states in found]


def row_bytes(sizes: Sequence[int], axes: Sequence[int], itemsize: int) -> int:
    """Return about the bytes of a row: its packed key and its value."""
    bits = sum((sizes[v] - 1).bit_length() for v in axes)
    return 8 * max(1, -(-bits // 63)) + itemsize


def least_seconds(plan: Plan) -> float:
    """Return a lower limit of the seconds of a slice of a sparse sweep, for any number of rows."""
    return _LEAF_SECONDS * plan.tree.n_leaves + _STEP_SECONDS * len(plan.steps)


def with_row_bounds(plan: Plan, leaf_rows: Sequence[int], *, decode: bool, rates: Rates) -> Plan:
    """Return a plan with bounds on the rows of all tables, and what follows for peak, disk and seconds.

    Boxes of a step that sum out what they are cut by make the same rows, each of them from other rows of the join.

    Parameters
    ----------
    leaf_rows : sequence of int
        Assignments that each leaf table allows.
    decode : bool
        Whether all tables are kept.
    """
    from ...tasks.boxes.row_box import most_stored_bytes

    sizes, whole = plan.tree.dims, plan.dims
    bounds: dict[int, int] = {}
    axes: dict[int, Sequence[int]] = {}
    for node, (scope, rows) in enumerate(zip(plan.tree.leaves, leaf_rows, strict=True)):
        bounds[node], axes[node] = min(rows, prod(sizes[v] for v in scope)), scope
    seconds, stored, expected = least_seconds(plan), 0, 0
    likely = _expected(plan.tree, leaf_rows)[0]
    for step in plan.steps:
        inputs = [(scope, bounds[i]) for i, scope in zip(step.inputs, step.input_axes, strict=True)]
        bounds[step.node], axes[step.node] = most_rows(step.axes, inputs, sizes), step.axes
        joined = most_rows([*dict.fromkeys(v for scope in step.input_axes for v in scope)], inputs, sizes)
        keys = Keys(tuple(step.axes), tuple([sizes[v] for v in step.axes]))
        stored += most_stored_bytes(min(joined, MOST_BOXES * bounds[step.node]), keys, plan.itemsize)
        # the expectation assumes independent tables, so it is only shown, and the bound is refused on
        rows = int(exp(min(likely.get(frozenset(step.axes), LARGEST_EXPONENT), LARGEST_EXPONENT)))
        expected += most_stored_bytes(min(rows, bounds[step.node]), keys, plan.itemsize)
        cells = min(step.lowered.cells, _CELLS_OF_A_ROW * joined)
        seconds += cells / rates.cells_per_second if cells < 1 << 900 else inf

    def nbytes(node: int) -> int:
        cells = prod(sizes[v] for v in axes[node])
        return min(cells * plan.itemsize, bounds[node] * row_bytes(sizes, axes[node], plan.itemsize))

    leaves = sum(
        min(prod(whole[v] for v in scope) * plan.itemsize, rows * row_bytes(whole, scope, plan.itemsize))
        for scope, rows in zip(plan.tree.leaves, leaf_rows, strict=True)
    )
    kept = [step.node for step in plan.steps] if decode else plan.outputs
    making = LEAF_ROW_BYTES * max(leaf_rows, default=0)
    peak = plan.model_bytes + leaves + max(making, _peak(plan.steps, kept, nbytes))
    cost = replace(plan.cost, seconds=seconds)
    plan = replace(plan, row_bounds=bounds, stored_bytes=expected, most_stored_bytes=stored)
    return replace(plan, leaf_bytes=leaves, peak_bytes=peak, cost=cost, shared_seconds=0.0)


def _peak(steps: Sequence[Step], kept: Sequence[int], nbytes: Callable[[int], int]) -> int:
    """Return the peak bytes of the step tables."""
    live = peak = 0
    made: set[int] = set()
    for step, gone in zip(steps, freed_tables(steps, kept), strict=True):
        made.add(step.node)
        live += nbytes(step.node)
        peak = max(peak, live)
        live -= sum(nbytes(i) for i in gone if i in made)
        made.difference_update(gone)
    return peak
