"""Streaming steps: compiled loops over rows of contiguous cells, bound by memory or by vector arithmetic.

Each input is read once, in order, and each row of the output is summed in registers: the elimination of a
variable from a join that never exists (Fioretto et al. 2018 §6.3, one row taking the place of their block of
threads). The sum of a row is written as LLVM instructions, which compile in a fraction of the time that as many
compiled functions take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from ..compiler.jit import njit
from ..compiler.vectors import (
    VectorLaw,
    clamp,
    element_pointer,
    fill,
    intrinsic,
    ir_vector,
    lanes,
    law_of,
    load,
    load_part,
    load_vector,
    product,
    put_word,
    splat_like,
    store,
    store_part,
    store_vector,
    word,
)
from ..steps.products import VECTOR_BYTES
from ..steps.semiring import Semiring
from ..steps.streaming import StreamLoops
from .numpy_blocks import run_nest
from .threads import share, split

_WIDE = 4
"""Vectors of a row that are summed together, to hide the latency of loads."""

_WORD = ir.IntType(64)


class _RowPart(NamedTuple):
    """A part of a row, from a byte on: some whole vectors, or the first lanes of one."""

    start: ir.Value
    vectors: int
    lanes: ir.Value | None = None


Factors = Callable[[_RowPart, ir.Value, ir.Value], list[tuple[ir.Value, ir.Value]]]
"""Return the two factors of the terms added to each vector, from a block, a step of depth and the number there."""


class _Row:
    """Emits the loops of a row; the caller supplies the factors."""

    def __init__(self, builder: ir.IRBuilder, law_type: Any, args: Any) -> None:
        law, self.out, self.fresh, self.numbers, self.depth, self.rows, self.count, self.at, self.cells = args
        self.builder = builder
        self.ops = VectorLaw(builder, law_type, law)
        self.element = law_type.types[0]
        self.vector = ir_vector(self.element)

    def run(self, factors: Factors) -> None:
        """Sum all blocks: wide ones as long as they last, then vector by vector."""
        b, lanes = self.builder, self.vector.count
        wide = b.udiv(self.cells, _WORD(_WIDE * lanes))
        with cgutils.for_range(b, wide, intp=_WORD) as loop:
            self.block(_RowPart(b.mul(loop.index, _WORD(_WIDE * VECTOR_BYTES)), _WIDE), factors)
        first = b.mul(wide, _WORD(_WIDE))
        end = b.udiv(b.add(self.cells, _WORD(lanes - 1)), _WORD(lanes))
        with cgutils.for_range(b, b.sub(end, first), intp=_WORD) as loop:
            number = b.add(first, loop.index)
            left = b.sub(self.cells, b.mul(number, _WORD(lanes)))
            some = b.select(b.icmp_unsigned("<", left, _WORD(lanes)), left, _WORD(lanes))
            self.block(_RowPart(b.mul(number, _WORD(VECTOR_BYTES)), 1, some), factors)

    def block(self, block: _RowPart, factors: Factors) -> None:
        """Sum one block over the depth."""
        b, ops = self.builder, self.ops
        out = b.add(self.out, block.start)
        zero = ops.constant(0, self.vector)
        totals = [cgutils.alloca_once_value(b, zero) for _ in range(block.vectors)]  # type: ignore[no-untyped-call]
        with b.if_then(b.not_(self.fresh)):
            for vector, total in enumerate(totals):
                b.store(self.load(block, out, _WORD(0), vector), total)
        with cgutils.for_range(b, self.depth, intp=_WORD) as loop:
            number = b.load(element_pointer(b, self.numbers, loop.index, self.vector.element))
            terms = factors(block, loop.index, splat_like(b, number, self.vector))
            for (x, y), total in zip(terms, totals, strict=True):
                b.store(ops.add_product(b.load(total), x, y), total)
        for vector, total in enumerate(totals):
            self.store(block, out, vector, ops.finish(b.load(total)))

    def word(self, address: ir.Value, index: ir.Value) -> ir.Value:
        """Load one int64."""
        return self.builder.load(element_pointer(self.builder, address, index, _WORD))

    def load(self, block: _RowPart, address: ir.Value, cell: ir.Value, vector: int) -> ir.Value:
        """Load a vector of a block whose first cell has this number in a table."""
        cell = self.builder.add(cell, _WORD(vector * self.vector.count))
        if block.lanes is None:
            return load_vector(self.builder, address, cell, self.element)
        return load_part(self.builder, address, cell, self.element, block.lanes)

    def store(self, block: _RowPart, address: ir.Value, vector: int, value: ir.Value) -> None:
        """Store a vector of a block."""
        cell = _WORD(vector * self.vector.count)
        if block.lanes is None:
            store_vector(self.builder, address, cell, self.element, value)
        else:
            store_part(self.builder, address, cell, self.element, block.lanes, value)

    def one(self) -> Factors:
        """Factors of one table."""
        b, table = self.builder, self.word(self.rows, _WORD(0))

        def factors(block: _RowPart, k: ir.Value, number: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
            a, i = b.add(table, block.start), self.word(self.at, k)
            return [(self.load(block, a, i, v), number) for v in range(block.vectors)]

        return factors

    def two(self) -> Factors:
        """Factors of two tables."""
        b, tables = self.builder, [self.word(self.rows, _WORD(i)) for i in range(2)]

        def factors(block: _RowPart, k: ir.Value, number: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
            first, second = (b.add(table, block.start) for table in tables)
            i, j = self.word(self.at, k), self.word(self.at, b.add(self.depth, k))
            left = [self.ops.product(self.load(block, first, i, v), number) for v in range(block.vectors)]
            return [(x, self.load(block, second, j, v)) for v, x in enumerate(left)]

        return factors

    def many(self) -> Factors:
        """Factors of any number of tables, clamped after every one."""
        b, ops, last = self.builder, self.ops, self.builder.sub(self.count, _WORD(1))

        def table(block: _RowPart, number: ir.Value, k: ir.Value) -> list[ir.Value]:
            address = b.add(self.word(self.rows, number), block.start)
            cell = self.word(self.at, b.add(b.mul(number, self.depth), k))
            return [self.load(block, address, cell, v) for v in range(block.vectors)]

        def factors(block: _RowPart, k: ir.Value, number: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
            products = [cgutils.alloca_once_value(b, number) for _ in range(block.vectors)]  # type: ignore[no-untyped-call]
            with cgutils.for_range(b, last, intp=_WORD) as loop:
                for x, y in zip(products, table(block, loop.index, k), strict=True):
                    b.store(ops.clamp(ops.product(b.load(x), y)), x)
            return list(zip(map(b.load, products), table(block, last, k), strict=True))

        return factors


def _signature(law: Any) -> Any:
    return types.void(law, types.int64, types.boolean, *[types.int64] * 6)


@intrinsic
def row(
    typing: Any, law: Any, out: Any, fresh: Any, numbers: Any, depth: Any, rows: Any, n_rows: Any, at: Any, cells: Any
) -> Any:
    """Sum one row of the output over the depth, from one or two tables with addresses in `rows`."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emitted = _Row(builder, law, args)
        with builder.if_else(builder.icmp_signed("==", emitted.count, _WORD(1))) as (one, two):
            with one:
                emitted.run(emitted.one())
            with two:
                emitted.run(emitted.two())
        return context.get_dummy_value()

    return _signature(law), emit


@intrinsic
def row_many(
    typing: Any, law: Any, out: Any, fresh: Any, numbers: Any, depth: Any, rows: Any, n_rows: Any, at: Any, cells: Any
) -> Any:
    """Sum one row like `row`, from any number of tables."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emitted = _Row(builder, law, args)
        emitted.run(emitted.many())
        return context.get_dummy_value()

    return _signature(law), emit


class StreamNest(NamedTuple):
    """Addresses and counts of a nest, all int64; offset tables are in cells, one row an operand."""

    addresses: int
    outer_high: int
    outer_low: int
    inner: int
    depth_high: int
    depth_low: int
    gather_row: int
    inside: int
    numbers: int
    rows: int
    gathers: int
    n_outer_high: int
    n_outer_low: int
    n_inner: int
    n_depth_high: int
    depth: int
    cells: int
    clamping: int


class Scratch(NamedTuple):
    """Addresses of one thread's buffers."""

    here: int
    depth: int
    numbers: int
    gathered: int


@njit(nogil=True)
def _gather(law: Any, buffer: int, table: int, depths: int, depth: int, row: int, cells: int) -> None:
    """Copy the rows of a table that does not have them contiguously: ``buffer (depth, cells)``."""
    for k in range(depth):
        at = word(depths, k)
        for v in range(cells):
            store(law, buffer, k * cells + v, load(law, table, at + word(row, v)))


@njit(nogil=True)
def _numbers(law: Any, numbers: int, tables: int, n_numbers: int, at: int, depth: int) -> None:
    """Multiply the operands without the row axis, for every step of depth."""
    for k in range(depth):
        x = load(law, word(tables, 0), word(at, k))
        for i in range(1, n_numbers):
            x = clamp(law, product(law, x, load(law, word(tables, i), word(at, i * depth + k))))
        store(law, numbers, k, x)


@njit(nogil=True, cache=True)
def stream(law: Any, nest: Any, scratch: Any, start: int, stop: int) -> None:
    """Run outer iterations `start` to `stop` of a nest.

    Parameters
    ----------
    law : Any
        How numbers are added and multiplied, compiled in.
    nest : StreamNest
        Addresses of tables and of their offsets (int64, in cells), and the counts of the loops; the output is written.
    scratch : Scratch
        Addresses of this thread's buffers, which are written: places and depths (int64), numbers and gathered rows (in
        the dtype of the tables).
    start, stop : int
        Range of the ``n_outer_high * n_outer_low`` outer iterations.
    """
    size = VECTOR_BYTES // lanes(law)
    n_operands = nest.numbers + nest.rows + nest.gathers
    n_rows = nest.rows + nest.gathers
    here = scratch.here
    rows = here + 8 * nest.numbers
    tables = nest.addresses
    depth_rows = nest.depth_low + 8 * nest.numbers * nest.depth
    at_gathers = nest.depth_low + 8 * (nest.numbers + nest.rows) * nest.depth
    for k in range(nest.depth):
        store(law, scratch.numbers, k, law.one)
        for g in range(nest.gathers):
            put_word(scratch.depth, (nest.rows + g) * nest.depth + k, k * nest.cells)
        for i in range(nest.rows):
            put_word(scratch.depth, i * nest.depth + k, word(depth_rows, i * nest.depth + k))
    for o in range(start, stop):
        high = o // nest.n_outer_low
        low = o - high * nest.n_outer_low
        for h in range(nest.n_depth_high):
            for n in range(nest.n_inner):
                for i in range(n_operands + 1):
                    cell = word(nest.outer_high, i * nest.n_outer_high + high)
                    cell += word(nest.outer_low, i * nest.n_outer_low + low)
                    cell += word(nest.depth_high, i * nest.n_depth_high + h)
                    cell += word(nest.inner, i * nest.n_inner + n)
                    put_word(here, i, word(tables, i) + cell * size)
                for g in range(nest.gathers):
                    buffer = scratch.gathered + g * nest.depth * nest.cells * size
                    # A row that no inner axis moves is gathered once for all inner iterations.
                    if n == 0 or word(nest.inside, g):
                        _gather(
                            law,
                            buffer,
                            word(rows, nest.rows + g),
                            at_gathers + 8 * g * nest.depth,
                            nest.depth,
                            nest.gather_row + 8 * g * nest.cells,
                            nest.cells,
                        )
                    put_word(rows, nest.rows + g, buffer)
                if nest.numbers:
                    _numbers(law, scratch.numbers, here, nest.numbers, nest.depth_low, nest.depth)
                out = word(here, n_operands)
                # The first block of depths writes the output's rows, the others add to them.
                fresh = h == 0
                if nest.clamping:
                    row_many(law, out, fresh, scratch.numbers, nest.depth, rows, n_rows, scratch.depth, nest.cells)
                else:
                    row(law, out, fresh, scratch.numbers, nest.depth, rows, n_rows, scratch.depth, nest.cells)


def run_loops(
    loops: StreamLoops, semiring: Semiring, inputs: Sequence[NDArray[Any]], out: NDArray[Any], threads: int
) -> None:
    """Run a streaming step; threads share the outer loop.

    Parameters
    ----------
    inputs : sequence of ndarray, C-contiguous
    out : ndarray, shape (cells,)
    """
    run_nest(loops, semiring, inputs, out, lambda tables, target: _run_nest(loops, semiring, tables, target, threads))


def _run_nest(
    loops: StreamLoops, semiring: Semiring, tables: Sequence[NDArray[Any]], out: NDArray[Any], threads: int
) -> None:
    offsets = np.empty(loops.offsets.cells, np.int64)
    code = np.array(loops.offsets.code, np.int64)
    fill(code.ctypes.data, code.size, offsets.ctypes.data)
    addresses = np.array([table.ctypes.data for table in (*tables, out)], np.int64)
    inside = np.array([loops.gathered_inside(operand) for operand in loops.operands], np.int64)
    nest = nest_of(loops, semiring, addresses.ctypes.data, offsets.ctypes.data, inside.ctypes.data)
    ranges = split(nest.n_outer_high * nest.n_outer_low, threads)
    words = np.empty((len(ranges), len(addresses) * (1 + nest.depth)), np.int64)
    values = np.empty((len(ranges), nest.depth * (1 + nest.gathers * nest.cells)), semiring.dtype)
    law = law_of(semiring)

    def work(number: int, start: int, stop: int) -> None:
        here, numbers = words[number].ctypes.data, values[number].ctypes.data
        depth, gathered = here + 8 * len(addresses), numbers + nest.depth * semiring.itemsize
        stream(law, nest, Scratch(here, depth, numbers, gathered), start, stop)

    share(work, ranges)


def nest_of(loops: StreamLoops, semiring: Semiring, addresses: int, offsets: int, inside: int) -> StreamNest:
    """Return the nest of a streaming step, from where its arrays are.

    Parameters
    ----------
    addresses
        Addresses of the operands, then of the output.
    offsets
        Output of `fill` for ``loops.offsets``.
    inside
        For each operand whether it is gathered within the inner loop.
    """
    roles = [operand.role for operand in loops.operands]
    numbers, rows, gathers = (roles.count(role) for role in ("number", "row", "gather"))
    terms = rows + gathers + (numbers > 0)
    starts = [offsets + 8 * start for start in loops.offsets.starts]
    groups = (loops.outer_high, loops.outer_low, loops.inner, loops.depth_high, loops.depth_low, loops.row)
    clamping = rows + gathers > 2 or (semiring.saturates and terms > semiring.max_inputs)
    inside += 8 * (numbers + rows)
    counts = [loops.cells(group) for group in groups]
    return StreamNest._make((addresses, *starts, inside, numbers, rows, gathers, *counts, int(clamping)))
