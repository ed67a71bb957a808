"""Matrix-like steps: a batched matrix product over any semiring, tiled for registers and caches.

``out[b, m, n] = ⊕_k left[b, m, k] ⊗ right[b, k, n]``, where b, m, k and n are groups of axes in any layout. Panels are
gathered into contiguous buffers through offset tables, so that no table is transposed as a whole (the blocking of Goto
and van de Geijn 2008 for BLAS, with ⊕ and ⊗ in place of + and ×).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from ..compiler.jit import njit
from ..compiler.vectors import (
    VectorLaw,
    add,
    clamp,
    element_pointer,
    fill,
    finish,
    intrinsic,
    ir_vector,
    lanes,
    law_of,
    load,
    load_vector,
    product,
    splat_like,
    store,
    vload,
    vstore,
    word,
)
from ..steps.axes import Axes
from ..steps.products import (
    DEPTH,
    LEFT_ROWS,
    RIGHT_COLUMNS,
    TILE_BYTES,
    TILE_ROWS,
    VECTOR_BYTES,
    Product,
    batches_inside,
    buffer_cells,
    cells,
)
from ..steps.semiring import Semiring
from .threads import share, split

_VECTORS = TILE_BYTES // VECTOR_BYTES


@intrinsic
def _tile(typing: Any, law: Any, left: Any, right: Any, tile: Any, depth: Any) -> Any:
    """Multiply packed panels ``left (depth, rows)`` and ``right (depth, columns)`` into ``tile``.

    All accumulators stay in registers: per step of depth two vector loads, one broadcast a row, and two
    vector operations per vector of results.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        law_value, left, right, tile, depth = args
        ops = VectorLaw(builder, law, law_value)
        element, vector, word = law.types[0], ir_vector(law.types[0]), ir.IntType(64)
        zero = ops.constant(0, vector)
        totals = [cgutils.alloca_once_value(builder, zero) for _ in range(TILE_ROWS * _VECTORS)]  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, depth, intp=word) as loop:
            at = builder.mul(loop.index, word(vector.count * _VECTORS))
            columns = [
                load_vector(builder, right, builder.add(at, word(j * vector.count)), element) for j in range(_VECTORS)
            ]
            at = builder.mul(loop.index, word(TILE_ROWS))
            for i, total in enumerate(totals):
                row, column = divmod(i, _VECTORS)
                pointer = element_pointer(builder, left, builder.add(at, word(row)), vector.element)
                value = splat_like(builder, builder.load(pointer), vector)
                builder.store(ops.add_product(builder.load(total), value, columns[column]), total)
        for i, total in enumerate(totals):
            pointer = element_pointer(builder, tile, word(i * vector.count), vector.element)
            pointer = builder.bitcast(pointer, vector.as_pointer())
            builder.store(builder.load(total), pointer, align=element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(law, types.int64, types.int64, types.int64, types.int64), emit


class _FactorNest(NamedTuple):
    """Addresses and counts of one factor, int64; offset tables are in cells, one row a table.

    `panel` is a field because numbers that the compiler knows would have it compile a function once for each.
    """

    addresses: int
    batch: int
    lines: int
    depths: int
    tables: int
    packed: int
    panel: int


class _Shape(NamedTuple):
    """Counts of a product, where its result goes, and the rows and columns of a stripe."""

    batches: int
    rows: int
    columns: int
    depth: int
    out: int
    out_batch: int
    out_rows: int
    out_columns: int
    tile: int
    tall: int
    wide: int


@njit(nogil=True)
def _contiguous(offsets: int, count: int) -> bool:
    """Whether `count` offsets follow each other."""
    follow = True
    for i in range(1, count):
        follow &= word(offsets, i) == word(offsets, 0) + i
    return follow


@njit(nogil=True)
def _pack(
    law: Any,
    factor: Any,
    shape: Any,
    lines: int,
    batch: int,
    first: int,
    last: int,
    k: int,
    k_stop: int,
) -> None:
    """Gather lines `first` to `last` of a factor into panels ``(depth, panel)``, padded with zeros.

    Parameters
    ----------
    law : Any
        How numbers are added and multiplied, compiled in.
    factor : _FactorNest
        Addresses of the factor's tables, if several their product is packed; ``factor.packed`` is written.
    shape : _Shape
        Counts of the product.
    lines : int
        All lines of the factor: rows of the left one, columns of the right one.
    batch : int
        The batch.
    first, last : int
        Range of lines; panels begin at `first`.
    k, k_stop : int
        Range of depths.
    """
    panel = factor.panel
    size = VECTOR_BYTES // lanes(law)
    at = 0
    for start in range(first, last, panel):
        stop = min(start + panel, last)
        # A panel that lies contiguously in a single table is copied by vectors; any other is gathered cell by cell.
        whole = factor.tables == 1 and stop - start == panel and panel % lanes(law) == 0
        if whole and _contiguous(factor.lines + 8 * start, panel):
            for d in range(k, k_stop):
                base = word(factor.batch, batch) + word(factor.depths, d) + word(factor.lines, start)
                table = word(factor.addresses, 0) + base * size
                for line in range(0, panel, lanes(law)):
                    vstore(law, factor.packed, at + line, vload(law, table, line))
                at += panel
            continue
        for d in range(k, k_stop):
            for i in range(factor.tables):
                base = word(factor.batch, i * shape.batches + batch) + word(factor.depths, i * shape.depth + d)
                table = word(factor.addresses, i) + base * size
                offsets = factor.lines + 8 * (i * lines + start)
                for line in range(stop - start):
                    value = load(law, table, word(offsets, line))
                    if i:
                        value = clamp(law, product(law, load(law, factor.packed, at + line), value))
                    store(law, factor.packed, at + line, value)
            # Zeros of the semiring add nothing, so that the tile kernel never tests for the edge.
            for pad in range(stop - start, panel):
                store(law, factor.packed, at + pad, law.zero)
            at += panel


@njit(nogil=True)
def _write(
    law: Any,
    tile: int,
    out: int,
    at_rows: int,
    rows: int,
    at_columns: int,
    columns: int,
    first: bool,
    whole: bool,
) -> None:
    """Add a tile to the output, or write it if nothing is there yet; `whole` tiles have contiguous rows.

    Parameters
    ----------
    law : Any
        How numbers are added and multiplied, compiled in.
    tile : int
        Address of the tile, rows of ``_VECTORS`` vectors.
    out : int
        Address of the output's first cell of this batch; written.
    at_rows, at_columns : int
        Addresses of int64 offsets of the tile's rows and columns, in cells of the output.
    rows, columns : int
        The part of the tile that is inside the output.
    first : bool
        Whether this is the first block of depths.
    whole : bool
        Whether the columns are a full tile and contiguous in the output.
    """
    size = VECTOR_BYTES // lanes(law)
    for r in range(rows):
        at = out + word(at_rows, r) * size
        here = tile + r * _VECTORS * VECTOR_BYTES
        if whole:
            # Contiguous columns: the tile's rows are stored by vectors, which is where most of the output goes.
            at += word(at_columns, 0) * size
            for c in range(0, columns, lanes(law)):
                values = vload(law, here, c)
                if not first:
                    values = add(law, vload(law, at, c), values)
                vstore(law, at, c, finish(law, values))
        else:
            for c in range(columns):
                value = load(law, here, c)
                if not first:
                    value = add(law, load(law, at, word(at_columns, c)), value)
                store(law, at, word(at_columns, c), finish(law, value))


@njit(nogil=True)
def _block(
    law: Any, left: Any, right: Any, shape: Any, batch: int, row: int, row_stop: int, column: int, k: int
) -> None:
    """Multiply a packed left block by a packed right block, tile by tile."""
    size = VECTOR_BYTES // lanes(law)
    width = lanes(law) * _VECTORS
    depth = min(DEPTH, shape.depth - k)
    column_stop = min(column + RIGHT_COLUMNS, shape.columns)
    out = shape.out + word(shape.out_batch, batch) * size
    for j in range(column, column_stop, width):
        panel = right.packed + (j - column) * depth * size
        columns = min(width, column_stop - j)
        at_columns = shape.out_columns + 8 * j
        whole = columns == width and _contiguous(at_columns, width)
        for i in range(row, row_stop, TILE_ROWS):
            _tile(law, left.packed + (i - row) * depth * size, panel, shape.tile, depth)
            rows = min(TILE_ROWS, row_stop - i)
            at_rows = shape.out_rows + 8 * i
            _write(law, shape.tile, out, at_rows, rows, at_columns, columns, k == 0, whole)


class Multiplication(NamedTuple):
    """A product: addresses, counts, and panels and stripes of each factor, all int64.

    Parameters
    ----------
    addresses : int
        Addresses of the left factor's tables, the right factor's tables, and the output.
    left_tables, right_tables : int
    left_batch, left_rows, left_depth, right_batch, right_columns, right_depth, out_batch, out_rows, out_columns : int
        Addresses of offsets, as `fill` makes them of ``Product.offsets``.
    batches, rows, columns, depth : int
    left_panel, right_panel, tall, wide : int
        Lines of a panel, and rows and columns of a stripe.
    left_cells, right_cells : int
        Of the packed blocks: the left one is first in the buffers, then the right one, then a tile.
    """

    addresses: int
    left_tables: int
    right_tables: int
    left_batch: int
    left_rows: int
    left_depth: int
    right_batch: int
    right_columns: int
    right_depth: int
    out_batch: int
    out_rows: int
    out_columns: int
    batches: int
    rows: int
    columns: int
    depth: int
    left_panel: int
    right_panel: int
    tall: int
    wide: int
    left_cells: int
    right_cells: int


@njit(nogil=True, cache=True)
def multiply(law: Any, given: Any, buffers: int, batch_start: int, batch_stop: int, start: int, stop: int) -> None:
    """Multiply a range of batches and a range of rows, a stripe of both factors at a time, in one thread's buffers.

    Parameters
    ----------
    law : Any
        How numbers are added and multiplied, compiled in.
    given : Multiplication
    buffers : int
        Address of this thread's buffers: packed left and right panels and a tile.
    batch_start, batch_stop, start, stop : int
        Ranges of batches and of rows.
    """
    size = VECTOR_BYTES // lanes(law)
    packed_right = buffers + given.left_cells * size
    tile, tables = packed_right + given.right_cells * size, given.left_tables
    starts = given.left_batch, given.left_rows, given.left_depth
    left = _FactorNest(given.addresses, starts[0], starts[1], starts[2], tables, buffers, given.left_panel)
    starts = given.right_batch, given.right_columns, given.right_depth
    right = _FactorNest(
        given.addresses + 8 * tables,
        *(starts[0], starts[1], starts[2], given.right_tables, packed_right, given.right_panel),
    )
    out = word(given.addresses, tables + given.right_tables)
    shape = _Shape(
        *(given.batches, given.rows, given.columns, given.depth, out),
        *(given.out_batch, given.out_rows, given.out_columns, tile, given.tall, given.wide),
    )
    for first_column in range(0, shape.columns, shape.wide):
        last_column = min(first_column + shape.wide, shape.columns)
        for first_row in range(start, stop, shape.tall):
            last_row = min(first_row + shape.tall, stop)
            for batch in range(batch_start, batch_stop):
                for k in range(0, shape.depth, DEPTH):
                    k_stop = min(k + DEPTH, shape.depth)
                    for column in range(first_column, last_column, RIGHT_COLUMNS):
                        column_stop = min(column + RIGHT_COLUMNS, last_column)
                        # Packed once for all rows of the stripe: the right block stays in the larger cache while left
                        # blocks pass through the smaller one (Goto and van de Geijn 2008).
                        _pack(law, right, shape, shape.columns, batch, column, column_stop, k, k_stop)
                        for row in range(first_row, last_row, LEFT_ROWS):
                            row_stop = min(row + LEFT_ROWS, last_row)
                            _pack(law, left, shape, shape.rows, batch, row, row_stop, k, k_stop)
                            _block(law, left, right, shape, batch, row, row_stop, column, k)


def run_product(
    axes: Axes,
    step: Product,
    semiring: Semiring,
    tables: Sequence[NDArray[Any]],
    out: NDArray[Any],
    threads: int,
) -> None:
    """Run a matrix-like step; ranges of batches, or of rows where batches are few, go to threads."""
    offsets = np.empty(step.offsets.cells, np.int64)
    code = np.array(step.offsets.code, np.int64)
    fill(code.ctypes.data, code.size, offsets.ctypes.data)
    addresses = np.array([*[tables[i].ctypes.data for i in (*step.left, *step.right)], out.ctypes.data], np.int64)
    given = multiplication(axes, step, semiring, addresses.ctypes.data, offsets.ctypes.data)
    by_batch = given.batches >= threads
    ranges = split(given.batches, threads) if by_batch else split(given.rows, threads, TILE_ROWS)
    buffers = np.empty((len(ranges), sum(buffer_cells(axes, step, semiring.itemsize))), semiring.dtype)
    law = law_of(semiring)

    def work(number: int, start: int, stop: int) -> None:
        whole = (start, stop, 0, given.rows) if by_batch else (0, given.batches, start, stop)
        multiply(law, given, buffers[number].ctypes.data, *whole)

    share(work, ranges)


def multiplication(axes: Axes, step: Product, semiring: Semiring, addresses: int, offsets: int) -> Multiplication:
    """Return the loops' input for a product, from the addresses of its arrays; see `Multiplication`."""
    counts = [cells(axes, group) for group in (step.batch, step.rows, step.columns, step.depth)]
    # neighbours in memory that belong to different batches are gathered batch by batch: from a stripe that stays
    # in the cache meanwhile
    tall = LEFT_ROWS if batches_inside(axes, step, step.left[0]) else max(counts[1], 1)
    wide = RIGHT_COLUMNS if batches_inside(axes, step, step.right[0]) else max(counts[2], 1)
    starts = [offsets + 8 * start for start in step.offsets.starts]
    panels = TILE_ROWS, VECTOR_BYTES // semiring.itemsize * _VECTORS
    blocks = buffer_cells(axes, step, semiring.itemsize)[:2]
    tables = len(step.left), len(step.right)
    return Multiplication._make((addresses, *tables, *starts, *counts, *panels, tall, wide, *blocks))
