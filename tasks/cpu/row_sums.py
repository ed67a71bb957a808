"""Sums of one row of cells over the eliminated variables, in vector registers, from one, two or many tables.

Written as LLVM instructions, which compile in a fraction of the time that as many compiled functions take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from ..compiler.vectors import (
    VECTOR_BYTES,
    VectorLaw,
    element_pointer,
    intrinsic,
    ir_vector,
    load_part,
    load_vector,
    splat_like,
    store_part,
    store_vector,
)

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
