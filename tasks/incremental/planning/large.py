"""Large steps of sums of products as stages that threads share: each reads what stages before it made. Pure: no values.

Small inputs are merged, loops stream over the largest one, and what they made is summed or turned where it has to be;
see ``tasks/steps/loops/streaming.py``. A product of matrices is made by ranges of its batches or rows instead. Between
stages everything is in a work area of the step's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Final, NamedTuple

from ...steps.loops.products import TILE_ROWS, Product, buffer_cells
from ...steps.loops.products import cells as cells_of
from ...steps.loops.streaming import Loops
from ...steps.lowering import Lowered
from ...steps.step import Step
from .nests import is_small

#: A thread is worth waking for so many cells, and for so many times as many of a product, which takes less for each.
GRAIN: Final = 1 << 15
_PRODUCT_GRAINS: Final = 8

#: More parts than any step has.
MOST_PARTS: Final = 1 << 10


class LargeStep(NamedTuple):
    """How a large step is shared, and where its work area has what, in words of 8 bytes.

    Parameters
    ----------
    loops : Loops or None
    product : Product or None
        Where there are no loops.
    by_batch : bool
        Whether parts of a product are ranges of its batches, not of its rows.
    offset_cells : int
    code : tuple of int
        From which offsets are filled.
    parts : int
        Of the stages that merge and stream.
    out_parts : int
        Of those that go over the output.
    out_cells : int
    operands : int
        Words of a part's places in the operands.
    numbers : int
        Words of a part's numbers and gathered rows, or of its packed blocks.
    merges : tuple of int
        Where each merged table begins.
    offsets, parts_at, target, room : int
        Where offsets, the words of parts, what is summed or turned later, and a result that is compared begin.
    words : int
        All of them.
    """

    loops: Loops | None
    product: Product | None
    by_batch: bool
    offset_cells: int
    code: tuple[int, ...]
    parts: int
    out_parts: int
    out_cells: int
    operands: int
    numbers: int
    merges: tuple[int, ...]
    offsets: int
    parts_at: int
    target: int
    room: int
    words: int

    @property
    def summed(self) -> int:
        """Cells that are summed into one after the loops."""
        return self.loops.summed if self.loops else 1

    @property
    def ordered(self) -> bool:
        """Whether what is streamed is no result yet."""
        return self.loops is not None and (self.loops.summed > 1 or self.loops.turn is not None)

    @property
    def merged_cells(self) -> int:
        """Cells of the tables that small inputs are merged into."""
        return sum([merge.axes.cells for merge in self.loops.merges]) if self.loops else 0


def is_streamed(step: Step) -> bool:
    """Return whether a step is run in stages."""
    lowered = step.lowered
    return (lowered.loops is not None or lowered.product is not None) and not is_small(step)


def large_step(step: Step, threads: int) -> LargeStep:
    """Return how some threads share a step that :func:`is_streamed`."""
    lowered, threads = step.lowered, min(threads, MOST_PARTS - 1)
    if lowered.product is not None:
        return _large_product(lowered, lowered.product, threads)
    assert lowered.loops is not None
    return _large_loops(lowered, lowered.loops, threads)


def _large_loops(lowered: Lowered, loops: Loops, threads: int) -> LargeStep:
    outer = loops.cells(loops.outer_high) * loops.cells(loops.outer_low)
    parts = min(threads, outer, -(-lowered.cells // GRAIN))
    depth = loops.cells(loops.depth_low)
    gathers = sum([operand.role == "gather" for operand in loops.operands])
    operands = (len(loops.operands) + 1) * (1 + depth)
    numbers = depth * (1 + gathers * loops.cells(loops.row))
    later = lowered.out_cells * loops.summed if loops.summed > 1 or loops.turn is not None else 0
    merges = [merge.axes.cells for merge in loops.merges]
    return _laid(lowered, loops, False, threads, parts, (operands, numbers), merges, later)


def _large_product(lowered: Lowered, product: Product, threads: int) -> LargeStep:
    """Cut into ranges of batches or, where those are few, of rows in whole tiles."""
    axes = lowered.axes
    most = min(threads, -(-lowered.cells // (_PRODUCT_GRAINS * GRAIN)))
    batches, rows = cells_of(axes, product.batch), cells_of(axes, product.rows)
    by_batch = batches >= most
    parts = most if by_batch else min(most, -(-rows // TILE_ROWS))
    packed = sum(buffer_cells(axes, product, lowered.semiring.itemsize))
    return _laid(lowered, product, by_batch, threads, parts, (0, packed))


def _laid(
    lowered: Lowered,
    kernel: Loops | Product,
    by_batch: bool,
    threads: int,
    parts: int,
    buffers: tuple[int, int],
    merges: Sequence[int] = (),
    later: int = 0,
) -> LargeStep:
    """Lay out the work area: merged tables, offsets, buffers of the parts, what is summed later, and the room."""
    offsets, product = kernel.offsets, kernel if isinstance(kernel, Product) else None
    sizes = [*merges, offsets.cells, parts * sum(buffers), later]
    *starts, offsets_at, parts_at, target, room = accumulate(sizes, initial=0)
    return LargeStep(
        loops=None if isinstance(kernel, Product) else kernel,
        product=product,
        by_batch=by_batch,
        offset_cells=offsets.cells,
        code=offsets.code,
        parts=parts,
        out_parts=min(threads, -(-lowered.out_cells // GRAIN)),
        out_cells=lowered.out_cells,
        operands=buffers[0],
        numbers=buffers[1],
        merges=tuple(starts),
        offsets=offsets_at,
        parts_at=parts_at,
        target=target,
        room=room,
        words=room + lowered.out_cells,
    )


def spread_code(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return nested loops that multiply tables cell by cell, as :func:`.join_loops.join` reads them.

    Parameters
    ----------
    sizes : sequence of int
        Of the axes of the result, in its order.
    strides : sequence of sequence of int
        Of each table, 0 along axes that it lacks.

    Returns
    -------
    code, operands : tuples of int
        The tables in the order of the loops.
    """
    axes = [len(sizes) - 1, len(sizes) - 2, *range(len(sizes) - 2)]
    operands = sorted(range(len(strides)), key=lambda i: not strides[i][-1]) if sizes else [*range(len(strides))]
    out = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]

    def of(values: Sequence[int], missing: int) -> list[int]:
        return [values[axis] if axis >= 0 else missing for axis in axes[: max(2, len(sizes))]]

    code = [len(strides), max(0, len(sizes) - 2), prod(sizes), *of(sizes, 1)]
    for each in (*[strides[i] for i in operands], out):
        code += of(each, 0)
    return tuple(code), tuple(operands)
