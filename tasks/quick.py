"""Small steps of a sum-product sweep with as little ado as NumPy allows.

A network of hundreds of small tables spends its time between the loops, not in them: such steps are planned
once for all that look alike and run as one call to ``einsum``, a third of the time of the general way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lowering import Lowered, Quick, lower
from .scaled import HIGHEST, LOOSE, LOWEST, Scaled, SumProduct, measured
from .semiring import Semiring
from .sweep import Step

Array = NDArray[Any]

# Up to here einsum is faster than NumPy broadcasting, and than compiled loops that have to be started.
_QUICK_CELLS = 1 << 17
# With three tables or more einsum has only its slow general loop: from here on they are joined two at a time,
# which is faster than NumPy broadcasting, but soon not than compiled loops.
_PAIRWISE_CELLS, _MOST_PAIRWISE_CELLS = 512, 1 << 20
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class QuickSumProduct(SumProduct):
    """The algebra of scaled tables, with a short way for steps that were planned as quick ones."""

    def step(self, step: Step, tables: Sequence[Scaled], threads: int) -> Scaled:
        """Return the output of ``step``."""
        lowered = step.lowered
        if lowered.quick is None:
            return super().step(step, tables, threads)
        shapes, subscripts, pairs, summed = lowered.quick
        if pairs and self.compiled and lowered.regime != "small":
            return super().step(step, tables, threads)
        # the bounds of SumProduct._fits, and those of the result, in one pass
        low = high = scale = below = above = 0.0
        views = []
        for table, shape in zip(tables, shapes, strict=True):
            if table.logs:
                return super().step(step, tables, threads)
            low, high, scale = low + table.low, high + table.high, scale + table.log_scale
            if table.low < 0.0:
                below += table.low
            if table.high > 0.0:
                above += table.high
            views.append(table.values.reshape(shape))
        if below < LOWEST or above + summed > HIGHEST:
            return super().step(step, tables, threads)
        if pairs or len(views) == 1:
            values = einsum_step(lowered.quick, views).reshape(-1)
        else:
            values = np.einsum(subscripts, *views).reshape(-1)
        if low < -LOOSE or high + summed > LOOSE:
            return measured(values, scale)
        return Scaled(values, scale, low, high + summed)


def einsum_step(quick: Quick, views: list[Array], out: Array | None = None) -> Array:
    """Compute a step from its shaped inputs, which are taken out of the list."""
    for i, j, joined in quick.pairs:
        right = views.pop(j)
        views.append(np.einsum(joined, views.pop(i), right))
    if out is not None:
        return np.einsum(quick.subscripts, *views, out=out)
    values: Array = np.einsum(quick.subscripts, *views)
    # with nothing to sum, einsum returns a view of its only input
    return values.copy() if len(views) == 1 and quick.log_summed == 0.0 else values


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
            if v not in names:
                names[v] = len(names)
    name, size = names.__getitem__, sizes.__getitem__
    renamed = tuple([tuple(map(name, scope)) for scope in input_axes])
    return Step(
        node, inputs, input_axes, axes, _lowered(renamed, tuple(map(name, axes)), tuple(map(size, names)), semiring)
    )


@lru_cache(maxsize=1 << 13)
def _lowered(
    input_axes: tuple[tuple[int, ...], ...], axes: tuple[int, ...], sizes: tuple[int, ...], semiring: Semiring
) -> Lowered:
    lowered = lower(input_axes, axes, dict(enumerate(sizes)), semiring.dtype, semiring)
    fused = lowered.axes
    most = _QUICK_CELLS if len(input_axes) < 3 else _MOST_PAIRWISE_CELLS
    if semiring.name != "sum_product" or lowered.cells > most or len(fused.sizes) > len(_LETTERS):
        return lowered
    orders = [_axis_order(strides) for strides in fused.strides]
    shapes = tuple([tuple([fused.sizes[a] for a in order]) for order in orders])
    terms = ["".join([_LETTERS[a] for a in order]) for order in orders]
    out = _LETTERS[fused.eliminated : len(fused.sizes)]
    pairs: list[tuple[int, int, str]] = []
    workspace = 0
    if lowered.cells >= _PAIRWISE_CELLS:
        pairs, workspace = _pairs(terms, out, dict(zip(_LETTERS, fused.sizes, strict=False)))
        workspace *= semiring.itemsize
    summed = log(lowered.cells / lowered.out_cells)
    quick = Quick(shapes, f"{','.join(terms)}->{out}", tuple(pairs), summed)
    return replace(lowered, quick=quick, workspace_bytes=max(workspace, lowered.workspace_bytes))


def _axis_order(strides: Sequence[int]) -> list[int]:
    """Return the axes that a table has, the most significant first."""
    return sorted([axis for axis, stride in enumerate(strides) if stride], key=lambda axis: -strides[axis])


def _pairs(terms: list[str], out: str, sizes: Mapping[str, int]) -> tuple[list[tuple[int, int, str]], int]:
    """Join tables, in place, until two are left: each time those two whose join grows the least.

    Returns the joins and the cells of all of their results.
    """
    pairs, cells = [], 0
    while len(terms) > 2:
        best, chosen = inf, (0, 1, "")
        for j in range(1, len(terms)):
            for i in range(j):
                kept = {*out, *"".join(terms[:i] + terms[i + 1 : j] + terms[j + 1 :])}
                # axes in the order of the step's: those of the output last
                result = "".join(sorted(kept & {*terms[i], *terms[j]}))
                size = prod([sizes[x] for x in result])
                growth = size - prod([sizes[x] for x in terms[i]]) - prod([sizes[x] for x in terms[j]])
                if growth < best:
                    best, chosen = growth, (i, j, result)
        i, j, result = chosen
        pairs.append((i, j, f"{terms[i]},{terms[j]}->{result}"))
        del terms[j], terms[i]
        terms.append(result)
        cells += prod([sizes[x] for x in result])
    return pairs, cells
