"""Lowering of matrix-like steps: which axes are batch, rows, columns and depth. Pure: no values."""

from __future__ import annotations

import math
from typing import Final

from .axes import Axes, Enumeration, enumerate_groups
from .light_dataclass import dataclass
from .semiring import Semiring

Group = tuple[int, ...]

DEPTH: Final = 256
LEFT_ROWS: Final = 128
RIGHT_COLUMNS: Final = 512
"""Cells of the packed blocks: the left block fits in the second-level cache beside the right one."""

TILE_ROWS: Final = 8
VECTOR_BYTES: Final = 64
"""Bytes of a vector: one AVX-512 register. LLVM splits it for narrower registers."""

TILE_BYTES: Final = 2 * VECTOR_BYTES
"""A register tile: with two vectors of columns its accumulators fill 16 of 32 registers."""

LEAST: Final = (8, 16, 8)
"""Rows, columns and depth from which packing pays (measured against the streaming loops)."""


@dataclass(frozen=True, slots=True)
class Product:
    """A step as a batched matrix product ``out[b, m, n] = ⊕_k left[b, m, k] ⊗ right[b, k, n]``.

    Attributes
    ----------
    left, right
        Inputs that make up each factor; the first is the large one, the others are multiplied into it while
        it is packed.
    batch, rows, columns, depth
        Axes of each group, in the order of `Axes`.
    """

    left: Group
    right: Group
    batch: Group
    rows: Group
    columns: Group
    depth: Group
    offsets: Enumeration


def as_product(axes: Axes, semiring: Semiring, least: tuple[int, int, int] = LEAST) -> Product | None:
    """Return the step as a matrix product if it is one, with at least the rows, columns and depth of ``least``."""
    if semiring.name == "log_sum" or len(axes.strides) < 2 or not axes.eliminated:
        return None
    order = sorted(range(len(axes.strides)), key=axes.cells_of, reverse=True)
    left, right = order[:2]
    # The rightmost axis of the output belongs to the columns if it can: tiles are written along them.
    if axes.strides[right][-1] == 0:
        left, right = right, left
    for first, second in ((left, right), (right, left)):
        groups = _groups(axes, first, second)
        if groups is None:
            return None
        if all(cells(axes, g) >= n for g, n in zip(groups[1:], least, strict=True)):
            folded = _fold(axes, first, second, order[2:])
            return None if folded is None else Product(*folded, *groups, _offsets(axes, folded, groups))
    return None


def pays(left: int, right: int, depth: int) -> bool:
    """Whether packing pays for factors with these numbers of cells besides the depth and the batch, in either order."""
    rows, columns, deep = LEAST
    return depth >= deep and min(left, right) >= min(rows, columns) and max(left, right) >= max(rows, columns)


def cells(axes: Axes, group: Group) -> int:
    """Cells of a group of axes."""
    return math.prod([axes.sizes[axis] for axis in group])


def _groups(axes: Axes, left: int, right: int) -> tuple[Group, Group, Group, Group] | None:
    batch: list[int] = []
    rows: list[int] = []
    columns: list[int] = []
    depth: list[int] = []
    for axis, (a, b, out) in enumerate(zip(axes.strides[left], axes.strides[right], axes.out, strict=True)):
        if not (a or b) or (not out and not (a and b)):
            return None
        group = depth if not out else batch if a and b else rows if a else columns
        group.append(axis)
    return tuple(batch), tuple(rows), tuple(columns), tuple(depth)


def _fold(axes: Axes, left: int, right: int, rest: list[int]) -> tuple[Group, Group] | None:
    """Assign each further input to a factor whose axes include its own."""
    factors: tuple[list[int], list[int]] = ([left], [right])
    for i in rest:
        for factor in factors:
            if all(have or not need for have, need in zip(axes.strides[factor[0]], axes.strides[i], strict=True)):
                factor.append(i)
                break
        else:
            return None
    return tuple(factors[0]), tuple(factors[1])


def batches_inside(axes: Axes, product: Product, table: int) -> bool:
    """Whether neighbouring cells of a table belong to different batches."""
    stride = {axis: axes.strides[table][axis] for axis in range(len(axes.sizes)) if axes.strides[table][axis]}
    return min(stride, key=stride.__getitem__) in product.batch


def buffer_cells(axes: Axes, product: Product, itemsize: int) -> tuple[int, int, int]:
    """Cells of a thread's packed left block, packed right block and tile."""
    columns = TILE_BYTES // itemsize
    depth = min(DEPTH, cells(axes, product.depth))
    rows = _round_up(min(LEFT_ROWS, cells(axes, product.rows)), TILE_ROWS)
    wide = _round_up(min(RIGHT_COLUMNS, cells(axes, product.columns)), columns)
    return rows * depth, wide * depth, TILE_ROWS * columns


def thread_bytes(axes: Axes, product: Product, itemsize: int) -> int:
    """Bytes of one thread's packed blocks and tile."""
    return sum(buffer_cells(axes, product, itemsize)) * itemsize


def workspace_bytes(axes: Axes, product: Product, itemsize: int) -> int:
    """Return the bytes of temporaries of one thread's run: offsets and buffers."""
    words = product.offsets.cells + len(product.offsets.code) + len(product.left) + len(product.right)
    return 8 * words + thread_bytes(axes, product, itemsize)


def _offsets(axes: Axes, factors: tuple[Group, Group], groups: tuple[Group, ...]) -> Enumeration:
    """Offsets of the left factor and of the right factor by batch, line and depth, then the output's offsets."""
    batch, rows, columns, depth = groups
    left, right = ([axes.strides[i] for i in factor] for factor in factors)
    return enumerate_groups(
        axes.sizes,
        [
            *[(group, left) for group in (batch, rows, depth)],
            *[(group, right) for group in (batch, columns, depth)],
            *[(group, [axes.out]) for group in (batch, rows, columns)],
        ],
    )


def _round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
