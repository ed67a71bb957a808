"""How a step is cut into blocks for NumPy: boxes of the join that stay in cache; the join itself is never stored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .axes import Axes
from .semiring import Semiring

BLOCK_CELLS: Final = 32768
"""Cells of the joined block: 256 KiB of float64, which stays in the second-level cache."""

_ROW_CELLS: Final = 256
"""Output cells that a block takes before it takes eliminated axes, so that reductions run over rows."""

UFUNC_CELLS: Final = 8192
"""NumPy's universal functions copy up to two strided operands through buffers of this many cells."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a step is cut into blocks.

    Attributes
    ----------
    extents
        Cells of one block along each axis (the last block of an axis may be smaller).
    joined_cells, partial_cells
        Cells of the buffers for the joined block and for a reduced block that is not the first of its cell.
    """

    axes: Axes
    extents: tuple[int, ...]
    joined_cells: int
    partial_cells: int

    @property
    def single(self) -> bool:
        """Whether one block is the whole step."""
        return self.extents == self.axes.sizes


def cut(axes: Axes, block_cells: int = BLOCK_CELLS) -> Blocks:
    """Choose the block of a step: a row of the output, then eliminated axes, then the rest of the output."""
    eliminated = axes.eliminated
    if axes.cells <= block_cells:
        extents = axes.sizes
    else:
        extents = _extents(axes, eliminated, block_cells)
    joined = math.prod(extents)
    split = extents[:eliminated] != axes.sizes[:eliminated]
    return Blocks(axes, extents, joined, math.prod(extents[eliminated:]) if split else 0)


def _extents(axes: Axes, eliminated: int, block_cells: int) -> tuple[int, ...]:
    extents = [1] * len(axes.sizes)

    def grow(candidates: Iterator[int], limit: int) -> None:
        for axis in candidates:
            room = limit // (math.prod(extents) // extents[axis])
            extents[axis] = max(extents[axis], min(axes.sizes[axis], room))
            if extents[axis] < axes.sizes[axis]:
                return

    kept = range(eliminated, len(extents))
    grow(iter(reversed(kept)), _ROW_CELLS)
    grow(iter(reversed(range(eliminated))), block_cells)
    grow(iter(reversed(kept)), block_cells)
    return tuple(extents)


def workspace_bytes(blocks: Blocks, semiring: Semiring) -> int:
    """Return the bytes of temporaries that `run_blocks` allocates."""
    joined = blocks.joined_cells if needs_buffer(blocks, semiring) else 0
    out_cells = math.prod(blocks.extents[blocks.axes.eliminated :])
    rows = 0
    if semiring.name == "log_sum" and blocks.axes.eliminated:
        rows = 2 * out_cells + out_cells // 8
    buffers = 2 * min(UFUNC_CELLS, math.prod(blocks.extents))
    return (joined + blocks.partial_cells + rows + buffers) * semiring.itemsize


def needs_buffer(blocks: Blocks, semiring: Semiring) -> bool:
    # The log-domain sum exponentiates in place, so it needs a copy even of a single input.
    return len(blocks.axes.strides) > 1 or (semiring.name == "log_sum" and blocks.axes.eliminated > 0)
