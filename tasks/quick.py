"""Small steps of a sum-product sweep with as little ado as NumPy allows.

A network of hundreds of small tables spends its time between the loops, not in them: such steps are planned
once for all that look alike and run as one call to ``einsum``, a third of the time of the general way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lowering import Lowered, lower
from .scaled import HIGHEST, LOOSE, LOWEST, Scaled, SumProduct, measured
from .semiring import Semiring
from .sweep import Step

Array = NDArray[Any]

# Up to here einsum is faster than NumPy broadcasting, and than compiled loops that have to be started. With
# three tables or more it has only its slow general loop.
_QUICK_CELLS = {1: 1 << 17, 2: 1 << 17}
_QUICK_CELLS_OF_MANY = 1 << 13
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class QuickStep(Step):
    """A small step of sums of products.

    Parameters
    ----------
    subscripts : str
        The step as ``einsum`` reads it.
    shapes : tuple of tuple of int
        Shapes of the inputs.
    log_summed : float
        ln of the number of cells that are summed into one.
    """

    subscripts: str
    shapes: tuple[tuple[int, ...], ...]
    log_summed: float


@dataclass(frozen=True)
class QuickSumProduct(SumProduct):
    """The algebra of scaled tables, with a short way for steps that were planned as quick ones."""

    def step(self, step: Step, tables: Sequence[Scaled], threads: int) -> Scaled:
        """Return the output of ``step``."""
        if not isinstance(step, QuickStep):
            return super().step(step, tables, threads)
        # the bounds of SumProduct._fits, and those of the result, in one pass
        low = high = scale = below = above = 0.0
        for table in tables:
            low, high, scale = low + table.low, high + table.high, scale + table.log_scale
            below, above = below + min(table.low, 0.0), above + max(table.high, 0.0)
            if table.logs:
                return super().step(step, tables, threads)
        if below < LOWEST or above + step.log_summed > HIGHEST:
            return super().step(step, tables, threads)
        values = np.einsum(step.subscripts, *[t.values.reshape(s) for t, s in zip(tables, step.shapes, strict=True)])
        if low < -LOOSE or high + step.log_summed > LOOSE:
            return measured(values.reshape(-1), scale)
        return Scaled(values.reshape(-1), scale, low, high + step.log_summed)


def make_step(
    node: int,
    inputs: tuple[int, ...],
    input_axes: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    sizes: Sequence[int],
    semiring: Semiring,
) -> Step:
    """Lower a step; those that differ only in the names of their variables are lowered once."""
    names: dict[int, int] = {}
    for scope in input_axes:
        for v in scope:
            names.setdefault(v, len(names))
    renamed = tuple([tuple([names[v] for v in scope]) for scope in input_axes])
    lowered, subscripts, shapes = _lowered(
        renamed, tuple([names[v] for v in axes]), tuple([sizes[v] for v in names]), semiring
    )
    if not subscripts:
        return Step(node, inputs, input_axes, axes, lowered)
    return QuickStep(
        node, inputs, input_axes, axes, lowered, subscripts, shapes, log(lowered.cells / lowered.out_cells)
    )


@lru_cache(maxsize=1 << 13)
def _lowered(
    input_axes: tuple[tuple[int, ...], ...], axes: tuple[int, ...], sizes: tuple[int, ...], semiring: Semiring
) -> tuple[Lowered, str, tuple[tuple[int, ...], ...]]:
    lowered = lower(input_axes, axes, dict(enumerate(sizes)), semiring.dtype, semiring)
    fused = lowered.axes
    most = _QUICK_CELLS.get(len(input_axes), _QUICK_CELLS_OF_MANY)
    if semiring.name != "sum_product" or lowered.cells > most or len(fused.sizes) > len(_LETTERS):
        return lowered, "", ()
    orders = [_axis_order(strides) for strides in fused.strides]
    terms = ["".join([_LETTERS[a] for a in order]) for order in orders]
    shapes = tuple([tuple([fused.sizes[a] for a in order]) for order in orders])
    return lowered, f"{','.join(terms)}->{_LETTERS[fused.eliminated : len(fused.sizes)]}", shapes


def _axis_order(strides: Sequence[int]) -> list[int]:
    """Return the axes that a table has, the most significant first."""
    return sorted([axis for axis, stride in enumerate(strides) if stride], key=lambda axis: -strides[axis])
