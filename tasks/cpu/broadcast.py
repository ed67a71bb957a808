"""Dense steps by NumPy broadcasting over blocks: the reference, and the fast way for small steps.

A block is a box of the join small enough to be held in cache; the join itself is never stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.loops.axes import Axes
from ..steps.loops.blocks import Blocks, needs_buffer
from ..steps.semiring import Semiring


def run_blocks(blocks: Blocks, semiring: Semiring, tables: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
    """Compute a step block by block, in a fixed order.

    Parameters
    ----------
    tables : sequence of ndarray, C-contiguous
        The inputs, any shape.
    out : ndarray, shape (cells,), C-contiguous
        Receives the result.
    """
    dtype = np.dtype(semiring.dtype)
    joined = np.empty(blocks.joined_cells if needs_buffer(blocks, semiring) else 0, dtype)
    partial = np.empty(blocks.partial_cells, dtype)
    if blocks.single:
        _block(blocks.axes, semiring, tables, out, blocks.axes.sizes, None, joined, partial)
        return
    spans = [range(0, n, step) for n, step in zip(blocks.axes.sizes, blocks.extents, strict=True)]
    # Eliminated axes come first in `axes` but vary fastest here: a block of the output is finished at once.
    spans = [*spans[blocks.axes.eliminated :], *spans[: blocks.axes.eliminated]]
    for point in itertools.product(*spans):
        cut_at = len(point) - blocks.axes.eliminated
        start = (*point[cut_at:], *point[:cut_at])
        shape = tuple(map(_clip, blocks.axes.sizes, start, blocks.extents))
        _block(blocks.axes, semiring, tables, out, shape, start, joined, partial)


def _clip(size: int, start: int, extent: int) -> int:
    return min(extent, size - start)


def _block(
    axes: Axes,
    semiring: Semiring,
    tables: Sequence[NDArray[Any]],
    out: NDArray[Any],
    shape: tuple[int, ...],
    start: tuple[int, ...] | None,
    joined: NDArray[Any],
    partial: NDArray[Any],
) -> None:
    """Join and reduce one box of the step; the first box of an output cell writes, later ones accumulate."""
    views = [_view(t, strides, shape, start) for t, strides in zip(tables, axes.strides, strict=True)]
    eliminated = axes.eliminated
    target = _view(out, axes.out[eliminated:], shape[eliminated:], start and start[eliminated:])
    reduced = tuple(range(views[0].ndim - target.ndim))
    if joined.size:
        values = join(semiring, views, joined[: math.prod(shape)].reshape(views[0].shape))
    else:
        values = views[0]
    first = start is None or not any(start[:eliminated])
    if first:
        reduce(semiring, values, reduced, target)
    else:
        rest = partial[: target.size].reshape(target.shape)
        reduce(semiring, values, reduced, rest)
        accumulate(semiring, target, rest)


def _view(
    table: NDArray[Any], strides: tuple[int, ...], shape: tuple[int, ...], start: tuple[int, ...] | None
) -> NDArray[Any]:
    """View a box of a table, broadcast over the axes it lacks; axes of one cell are dropped."""
    width = table.itemsize
    if start is None:
        return np.ndarray(shape, table.dtype, table, 0, [stride * width for stride in strides])
    offset = sum([s * stride for s, stride in zip(start, strides, strict=True)]) * width
    wide = [(n, stride * width) for n, stride in zip(shape, strides, strict=True) if n > 1]
    return np.ndarray([n for n, _ in wide], table.dtype, table, offset, [stride for _, stride in wide])


def join(semiring: Semiring, views: Sequence[NDArray[Any]], joined: NDArray[Any]) -> NDArray[Any]:
    """Multiply views of one shape into `joined`, clamping so that no sum of costs can overflow."""
    law = semiring.name
    product = np.multiply if law in ("sum_product", "mod_sum_product") else np.add
    if len(views) == 1:
        np.copyto(joined, views[0])
        return joined
    product(views[0], views[1], out=joined)
    pending = 2
    for view in views[2:]:
        if law == "mod_sum_product":
            np.remainder(joined, semiring.modulus, out=joined)
        elif semiring.saturates and pending == semiring.max_inputs:
            np.minimum(joined, semiring.zero, out=joined)
            pending = 1
        product(joined, view, out=joined)
        pending += 1
    if law == "mod_sum_product":
        np.remainder(joined, semiring.modulus, out=joined)
    return joined


def reduce(semiring: Semiring, values: NDArray[Any], axes: tuple[int, ...], out: NDArray[Any]) -> None:
    """Sum `values` over its leading `axes` into `out`; a buffer of the log-domain sum is overwritten."""
    if semiring.name == "min_plus":
        np.minimum.reduce(values, axes, out=out)
        if semiring.saturates:
            np.minimum(out, semiring.zero, out=out)
    elif semiring.name == "log_sum" and axes:
        best = np.maximum.reduce(values, axes)
        best = np.where(best == semiring.zero, 0.0, best)
        np.subtract(values, best, out=values)
        np.exp(values, out=values)
        np.add.reduce(values, axes, out=out)
        with np.errstate(divide="ignore"):
            np.log(out, out=out)
        np.add(out, best, out=out)
    else:
        np.add.reduce(values, axes, out=out)
        if semiring.modulus:
            np.remainder(out, semiring.modulus, out=out)


def accumulate(semiring: Semiring, out: NDArray[Any], rest: NDArray[Any]) -> None:
    """Add the partial result `rest` to `out`."""
    if semiring.name == "min_plus":
        np.minimum(out, rest, out=out)
    elif semiring.name == "log_sum":
        np.logaddexp(out, rest, out=out)
    else:
        np.add(out, rest, out=out)
        if semiring.modulus:
            np.remainder(out, semiring.modulus, out=out)
