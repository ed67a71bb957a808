"""Lowering of dense steps for a GPU: which cells a block of threads computes, and in which passes. Pure: no values.

A step becomes a few *passes*, each one launch: inputs beyond four are joined first, an elimination with little
output is cut into partial sums so that the whole device works on it, and a matrix-like step becomes one product
(the thread mapping of Fioretto et al. 2018 §6; Bistaffa et al. 2016 §V).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from .gpu_axes import (
    FEW_INPUTS,
    JOIN_CELLS,
    as_axes,
    fused,
    join_cells,
    join_groups,
    ordered,
    partial_axes,
    row_major,
    split_axes,
)
from .gpu_tiles import Axis, Stream, divisor, stream_tiles
from .lowering import Lowered
from .products import Product

JOIN_INPUTS: Final = 16
JOIN_AXES: Final = 24
"""Inputs and axes of a `JoinPass`; as in ``cuda/join.cu``."""

_LEAST_PRODUCT: Final = (16, 16, 12)
_TILE: Final = 64
_BUSY_TILES: Final = 132 * 4
_LEAST_PIECE: Final = 16


@dataclass(frozen=True, slots=True)
class StreamPass:
    """One streaming launch: inputs and output by number; temporaries are numbered after the step's inputs."""

    inputs: tuple[int, ...]
    output: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class RowsPass:
    """Sum every row of a ``(rows, length)`` table."""

    input: int
    output: int
    rows: int
    length: int


@dataclass(frozen=True, slots=True)
class ProductPass:
    """One matrix product; axes by group (batch, rows, columns, depth), with strides of left, right and output."""

    inputs: tuple[int, int]
    output: int
    groups: tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]


@dataclass(frozen=True, slots=True)
class JoinPass:
    """Join many small tables into one of row-major order, in one launch."""

    inputs: tuple[int, ...]
    output: int
    axes: tuple[Axis, ...]


_Table = tuple[int, list[int]]
"""A table's number and its strides by axis."""

Pass = StreamPass | RowsPass | ProductPass | JoinPass


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """The passes of a step, and the cells of the temporaries between them."""

    passes: tuple[Pass, ...]
    temporaries: tuple[int, ...]

    @property
    def workspace_cells(self) -> int:
        """Cells of all temporaries together."""
        return sum(self.temporaries)


@lru_cache(maxsize=4096)
def device_step(lowered: Lowered) -> DeviceStep:
    """Lower a step for the device."""
    builder = _Builder(lowered)
    axes = as_axes(lowered.axes)
    inputs = list(range(len(lowered.input_cells)))
    product = lowered.product
    if product is not None and all(
        math.prod(axes[i].size for i in group) >= least
        for group, least in zip((product.rows, product.columns, product.depth), _LEAST_PRODUCT, strict=True)
    ):
        builder.product(axes, product)
    else:
        axes, inputs = builder.merged(axes, inputs)
        builder.stream(axes, inputs, builder.output)
    return DeviceStep(tuple(builder.passes), tuple(builder.temporaries))


def gather_step(axes: Sequence[Axis], itemsize: int) -> DeviceStep:
    """Lower a copy of the cells that ``axes`` reach in one table, into a C-ordered table."""
    return DeviceStep((StreamPass((0,), -1, stream_tiles(fused(axes), 1, itemsize)),), ())


class _Builder:
    """Collects passes and temporaries."""

    def __init__(self, lowered: Lowered) -> None:
        self.itemsize = lowered.semiring.itemsize
        self.inputs = len(lowered.input_cells)
        self.output = -1
        self.passes: list[Pass] = []
        self.temporaries: list[int] = []

    def temporary(self, cells: int) -> int:
        """Number a new temporary."""
        self.temporaries.append(cells)
        return self.inputs + len(self.temporaries) - 1

    def merged(self, axes: list[Axis], inputs: list[int]) -> tuple[list[Axis], list[int]]:
        """Join inputs in groups until one pass takes them; return the axes with the strides of what is left."""
        if len(inputs) <= FEW_INPUTS:
            return axes, inputs
        left = []
        for group in join_groups(axes, len(inputs)):
            cells = join_cells(axes, group)
            held = sum(any(axis.strides[t] for t in group) for axis in axes)
            small = cells <= JOIN_CELLS and held <= JOIN_AXES
            at_once = JOIN_INPUTS if small else FEW_INPUTS
            members = [(inputs[t], [axis.strides[t] for axis in axes]) for t in group]
            while len(members) > 1:
                members = [self.joined(axes, members[:at_once], small), *members[at_once:]]
            left.append(members[0])
        columns = zip(*(strides for _, strides in left), strict=True)
        merged = [Axis(axis.size, column, axis.out) for axis, column in zip(axes, columns, strict=True)]
        return merged, [table for table, _ in left]

    def joined(self, axes: Sequence[Axis], members: Sequence[_Table], small: bool) -> _Table:
        """Add one pass that joins some tables, laid out like the first of them where that has an axis."""
        held = [i for i in range(len(axes)) if any(strides[i] for _, strides in members)]
        held.sort(key=lambda i: -members[0][1][i])
        places = dict(zip(held, row_major([axes[i] for i in held]), strict=True))
        table = self.temporary(math.prod(axes[i].size for i in held))
        ours = fused(Axis(axes[i].size, tuple(s[i] for _, s in members), places[i]) for i in held)
        tables = tuple(number for number, _ in members)
        if small:
            self.passes.append(JoinPass(tables, table, tuple(ours)))
        else:
            self.passes.append(StreamPass(tables, table, stream_tiles(ours, len(members), self.itemsize)))
        return table, [places.get(i, 0) for i in range(len(axes))]

    def stream(self, axes: list[Axis], inputs: Sequence[int], output: int) -> None:
        """Add streaming passes; partial sums first where the output alone would leave the device idle."""
        axes = fused(axes)
        parts, rows_last = partial_axes(axes, len(inputs))
        if not parts:
            self.passes.append(StreamPass(tuple(inputs), output, stream_tiles(axes, len(inputs), self.itemsize)))
            return
        axes, summed = split_axes(axes, parts)
        kept = [a for a in axes if a.out]
        kept_cells, summed_cells = (
            math.prod(axes[i].size if isinstance(i, int) else i.size for i in g) for g in (kept, summed)
        )
        table = self.temporary(kept_cells * summed_cells)
        of_summed = dict(zip(summed, row_major([axes[i] for i in summed]), strict=True))
        scale = 1 if rows_last else kept_cells
        ours = [
            replace(a, out=of_summed[i] * scale)
            if i in of_summed
            else replace(a, out=a.out * (summed_cells if rows_last else 1))
            for i, a in enumerate(axes)
        ]
        self.passes.append(StreamPass(tuple(inputs), table, stream_tiles(fused(ours), len(inputs), self.itemsize)))
        if rows_last:
            self.passes.append(RowsPass(table, output, kept_cells, summed_cells))
        else:
            again = [Axis(summed_cells, (kept_cells,), 0), *([Axis(kept_cells, (1,), 1)] if kept_cells > 1 else [])]
            self.stream(again, [table], output)

    def product(self, axes: list[Axis], product: Product) -> None:
        """Add a product of two factors, each joined first where it has several inputs."""
        factors = [product.left[0], product.right[0]]
        inputs = list(range(self.inputs))
        columns = {i: [a.strides[i] for a in axes] for i in inputs}
        for side, factor in enumerate((product.left, product.right)):
            for other in factor[1:]:
                factors[side] = self.folded(axes, columns, factors[side], other)
        left, right = factors
        groups = tuple(
            ordered([Axis(axes[i].size, (columns[left][i], columns[right][i]), axes[i].out) for i in group], key)
            for group, key in ((product.batch, 0), (product.rows, 0), (product.columns, 2), (product.depth, 0))
        )
        self.multiply((left, right), groups)

    def folded(self, axes: Sequence[Axis], columns: dict[int, list[int]], base: int, other: int) -> int:
        """Add a pass that multiplies a small input into a factor, whose layout the result keeps."""
        strides = columns[base]
        held = sorted((i for i in range(len(axes)) if strides[i]), key=lambda i: -strides[i])
        ours = [Axis(axes[i].size, (strides[i], columns[other][i]), strides[i]) for i in held]
        table = self.temporary(math.prod(a.size for a in ours))
        self.passes.append(StreamPass((base, other), table, stream_tiles(fused(ours), 2, self.itemsize)))
        columns[table] = strides
        return table

    def multiply(self, factors: tuple[int, int], groups: tuple[tuple[Axis, ...], ...]) -> None:
        """Add the product itself; with few tiles and much depth, in partial products that are summed after."""
        batch, rows, columns, depth = groups
        count, tall, wide = (math.prod(a.size for a in group) for group in (batch, rows, columns))
        tiles = count * -(-tall // _TILE) * -(-wide // _TILE)
        first = depth[0]
        pieces = divisor(first.size, max(1, min(_BUSY_TILES // tiles, first.size // _LEAST_PIECE)))
        if tiles >= _BUSY_TILES // 4 or pieces == 1:
            self.passes.append(ProductPass(factors, self.output, (batch, rows, columns, depth)))
            return
        cells = count * tall * wide
        table = self.temporary(pieces * cells)
        part = first.size // pieces
        cut = Axis(pieces, (first.strides[0] * part, first.strides[1] * part), cells)
        inner = (*([Axis(part, first.strides, 0)] if part > 1 else []), *depth[1:])
        self.passes.append(ProductPass(factors, table, ((cut, *batch), rows, columns, inner)))
        self.stream([Axis(pieces, (cells,), 0), Axis(cells, (1,), 1)], [table], self.output)
