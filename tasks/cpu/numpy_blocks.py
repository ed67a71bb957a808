"""Dense steps by NumPy broadcasting over blocks: the reference, and the fast way for small steps.

A block is a box of the join small enough to be held in cache; the join itself is never stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.semiring import Semiring
from ..steps.streaming import Blocks, StreamLoops, cut, needs_buffer


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
    axes, eliminated = blocks.axes, blocks.axes.eliminated
    if blocks.single:
        seen = zip(tables, axes.strides, strict=True)
        views = [_view(t, axes.sizes, [s * t.itemsize for s in strides], 0) for t, strides in seen]
        target = _view(out, axes.sizes[eliminated:], [s * out.itemsize for s in axes.out[eliminated:]], 0)
        _box(semiring, views, target, joined, None)
        return
    # Eliminated axes come first in `axes` but vary fastest here: a block of the output is finished at once.
    order = [*range(eliminated, len(axes.sizes)), *range(eliminated)]
    spans = [range(0, axes.sizes[k], blocks.extents[k]) for k in order]
    shapes = itertools.product(*[[min(s.step, s.stop - start) for start in s] for s in spans])
    strides = [
        [s[k] * t.itemsize for k in order] for t, s in zip((*tables, out), (*axes.strides, axes.out), strict=True)
    ]
    together = math.prod(len(span) for span in spans[len(spans) - eliminated :])
    seen_as: dict[tuple[int, ...], Seen] = {}
    for number, (shape, *begins) in enumerate(zip(shapes, *[_begins(spans, s) for s in strides], strict=True)):
        if shape not in seen_as:
            seen_as[shape] = _seen(shape, strides, len(order) - eliminated)
        *inputs, (out_shape, out_strides) = seen_as[shape]
        target = _view(out, out_shape, out_strides, begins.pop())
        views = [_view(t, *box, begin) for t, box, begin in zip(tables, inputs, begins, strict=True)]
        _box(semiring, views, target, joined, partial if number % together else None)


Seen = list[tuple[list[int], list[int]]]
"""Sizes and strides, in bytes, of every table in a box, last of the output."""


def _begins(spans: Sequence[range], strides: Sequence[int]) -> Iterator[int]:
    """Return where each box begins in a table, in bytes."""
    steps = [[start * stride for start in span] for span, stride in zip(spans, strides, strict=True)]
    return map(sum, itertools.product(*steps))


def _seen(shape: Sequence[int], strides: Sequence[Sequence[int]], kept: int) -> Seen:
    """Return how tables are seen in boxes of one shape, eliminated axes last there; axes of one cell are dropped."""
    wide = [k for k in (*range(kept, len(shape)), *range(kept)) if shape[k] > 1]
    left = [k for k in wide if k < kept]
    axes = [wide] * (len(strides) - 1) + [left]
    return [([shape[k] for k in some], [s[k] for k in some]) for some, s in zip(axes, strides, strict=True)]


def _view(table: NDArray[Any], shape: Sequence[int], strides: Sequence[int], begin: int) -> NDArray[Any]:
    """View a block of a table, broadcast over missing axes."""
    return np.ndarray(shape, table.dtype, table, begin, strides)


def _box(
    semiring: Semiring,
    views: Sequence[NDArray[Any]],
    target: NDArray[Any],
    joined: NDArray[Any],
    partial: NDArray[Any] | None,
) -> None:
    """Join and reduce one box; the first one of an output cell writes, later ones, with ``partial``, accumulate."""
    values = views[0]
    if joined.size:
        values = join(semiring, views, joined[: values.size].reshape(values.shape))
    reduced = tuple(range(values.ndim - target.ndim))
    if partial is None:
        reduce(semiring, values, reduced, target)
    else:
        rest = partial[: target.size].reshape(target.shape)
        reduce(semiring, values, reduced, rest)
        accumulate(semiring, target, rest)


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


# Streaming steps with NumPy: small inputs are merged before the loops, as for compiled loops.

Array = NDArray[Any]


def run_merged(loops: StreamLoops, blocks: Blocks, semiring: Semiring, inputs: Sequence[Array], out: Array) -> None:
    """Run a streaming step block by block over what is left once small inputs are merged.

    Parameters
    ----------
    blocks : Blocks
        Of the operands of the loops.
    inputs : sequence of ndarray, C-contiguous
    out : ndarray, shape (cells,)
    """
    run_nest(loops, semiring, inputs, out, lambda tables, target: run_blocks(blocks, semiring, tables, target))


def run_nest(
    loops: StreamLoops,
    semiring: Semiring,
    inputs: Sequence[Array],
    out: Array,
    nest: Callable[[Sequence[Array], Array], None],
) -> None:
    """Merge small inputs, give ``nest`` the operands' tables and its output, sum the row that it kept, turn it."""
    tables = list(inputs)
    for merge in loops.merges:
        merged = np.empty(merge.axes.cells, semiring.dtype)
        run_blocks(cut(merge.axes), semiring, [inputs[i] for i in merge.inputs], merged)
        tables.append(merged)
    whole = loops.summed == 1 and loops.turn is None
    target = out if whole else np.empty(out.size * loops.summed, semiring.dtype)
    nest([tables[operand.table] for operand in loops.operands], target)
    if loops.summed > 1:
        reduce(semiring, target.reshape(out.size, loops.summed).T, (0,), out)
    elif loops.turn is not None:
        turned = target.reshape(loops.turn.sizes).transpose(loops.turn.order)
        out.reshape(turned.shape)[...] = turned
