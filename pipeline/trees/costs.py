"""What a contraction tree costs: cells swept, tables stored, predicted seconds."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import prod

from ...tasks.steps.step import Step
from .memory import step_bytes
from .tree import Tree

#: A product over a semiring reuses its inputs once each of M, N and K is at least this.
MATMUL_SIDE = 16


@dataclass(frozen=True)
class Rates:
    """A machine's calibration.

    Parameters
    ----------
    cells_per_second : float
        Streaming kernel with inputs in cache.
    matmul_cells_per_second : float
        Two inputs with M, N and K of at least 16 each.
    bytes_per_second : float
        Memory traffic.
    step_seconds : float
        Overhead of one step.
    """

    cells_per_second: float = 1.0e9
    matmul_cells_per_second: float = 8.0e9
    bytes_per_second: float = 5.0e9
    step_seconds: float = 40e-6


GPU_RATES = Rates(2e12, 8e12, 3.5e12, 20e-6)
"""What one data-centre GPU does; plans for GPUs are made with these rates."""


@dataclass(frozen=True)
class TreeCost:
    """Cost of running a tree once (of one slice, if sliced).

    ``cells`` are combined values, ``largest_table_cells`` counts input functions too, ``width`` is the
    largest number of variables swept by a step, less one.
    """

    cells: int
    largest_table_cells: int
    width: int
    read_cells: int
    written_cells: int
    seconds: float
    steps: int


def step_seconds(cells: int | float, moved_cells: int | float, matmul: bool, rates: Rates, itemsize: int) -> float:
    """Predict one step: the slower of arithmetic and memory, after a fixed overhead (roofline)."""
    rate = rates.matmul_cells_per_second if matmul else rates.cells_per_second
    return rates.step_seconds + max(_ratio(cells, rate), _ratio(moved_cells, rates.bytes_per_second / itemsize))


def lowered_seconds(step: Step, sizes: Sequence[int], rates: Rates, itemsize: int) -> float:
    """Predict a step whose loops are fixed."""
    lowered = step.lowered
    return step_seconds(lowered.cells, step_bytes(step, sizes, 1), lowered.regime == "matrix", rates, itemsize)


def is_matmul(cells: int | float, inputs: Sequence[int | float], output: int | float) -> bool:
    """Tell whether a step of two inputs is a product with M, N and K of at least 16 each.

    With every eliminated variable in both inputs, cells = M·N·K·batch, so M = cells / right and so on.
    """
    return len(inputs) == 2 and all(cells >= MATMUL_SIDE * side for side in (*inputs, output))


def tree_cost(tree: Tree, rates: Rates | None = None, itemsize: int = 8, sliced: Set[int] = frozenset()) -> TreeCost:
    """Count a tree's work exactly, and predict its seconds.

    Parameters
    ----------
    sliced : set of int
        Variables that are conditioned on; the cost is that of one slice, and the total is this times the
        product of their domain sizes.
    """
    rates = rates or Rates()
    dims = [1 if v in sliced else d for v, d in enumerate(tree.dims)]
    sizes = [prod(dims[v] for v in scope) for scope in tree.scopes]
    cells = read = written = 0
    seconds = 0.0
    width = -1
    for j, (kids, joined) in enumerate(zip(tree.children, tree.joined, strict=True)):
        swept = prod(dims[v] for v in joined)
        inputs = [sizes[c] for c in kids]
        output = sizes[tree.n_leaves + j]
        cells += swept
        read += sum(inputs)
        written += output
        width = max(width, len(joined - sliced) - 1)
        matmul = is_matmul(swept, inputs, output)
        seconds += step_seconds(swept, sum(inputs) + output, matmul, rates, itemsize)
    return TreeCost(cells, max(sizes, default=1), width, read, written, seconds, len(tree.children))


def _ratio(amount: int | float, rate: float) -> float:
    """Divide without overflow: amounts beyond the float range give infinity."""
    try:
        return amount / rate
    except OverflowError:
        return float("inf")
