"""Explicit vectors for compiled kernels: loads, stores and semiring arithmetic as LLVM vector instructions.

LLVM does not reliably vectorise loops over many tables with unknown overlap, so kernels use explicit vectors. A vector
holds 64 bytes (one AVX-512 register); LLVM splits it for narrower registers.

A kernel's first argument is a *law*: a named tuple whose type fixes semiring and dtype at compile time and
whose fields are the constants. Addresses are integers, so one compilation serves any number of tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from ..steps.products import VECTOR_BYTES
from ..steps.semiring import Semiring
from .jit import njit

# Numba types the decorated function as its own typer; callers inside kernels see another signature.
intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic


class MinPlus(NamedTuple):
    """Costs; integer sums are clamped to `zero`."""

    zero: Any
    one: Any


class SumProductLaw(NamedTuple):
    """Plain sums of products."""

    zero: Any
    one: Any


class Residues(NamedTuple):
    """Sums of products modulo a prime; `inverse` is its reciprocal."""

    zero: Any
    one: Any
    modulus: Any
    inverse: Any


def law_of(semiring: Semiring) -> MinPlus | SumProductLaw | Residues:
    """Return the compiled form of a semiring (all but ``log_sum``)."""
    dtype = np.dtype(semiring.dtype).type
    zero, one = dtype(semiring.zero), dtype(semiring.one)
    if semiring.name == "mod_sum_product":
        return Residues(zero, one, np.int64(semiring.modulus), np.float64(1 / semiring.modulus))
    return MinPlus(zero, one) if semiring.name == "min_plus" else SumProductLaw(zero, one)


class Vector(types.Type):
    """The Numba type of a vector of one scalar type."""

    def __init__(self, element: Any) -> None:
        self.element = element
        super().__init__(name=f"bucketflow_vector({element})")


@extending.register_model(Vector)
class _VectorModel(extending.models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, ir_vector(kind.element))  # type: ignore[no-untyped-call]


def _lanes(element: Any) -> int:
    return VECTOR_BYTES * 8 // int(element.bitwidth)


def _ir_scalar(element: Any) -> ir.Type:
    return ir.DoubleType() if isinstance(element, types.Float) else ir.IntType(element.bitwidth)


def ir_vector(element: Any) -> ir.VectorType:
    return ir.VectorType(_ir_scalar(element), _lanes(element))


def splat_like(builder: ir.IRBuilder, scalar: ir.Value, like: ir.Type) -> ir.Value:
    """Broadcast a scalar to the type `like`, a vector or the scalar type itself."""
    if not isinstance(like, ir.VectorType):
        return scalar
    head = builder.insert_element(ir.Constant(like, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), like.count), [0] * like.count)
    return builder.shuffle_vector(head, ir.Constant(like, ir.Undefined), zeros)


class VectorLaw:
    """Emits the operations of one law, on scalars and vectors alike."""

    def __init__(self, builder: ir.IRBuilder, law_type: Any, law: ir.Value) -> None:
        self.builder = builder
        self.law = law
        self.kind = law_type.instance_class
        self.element = law_type.types[0]
        self.floating = isinstance(self.element, types.Float)

    def constant(self, field: int, like: ir.Type) -> ir.Value:
        """Broadcast a field of the law."""
        return splat_like(self.builder, self.builder.extract_value(self.law, field), like)

    def minimum(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Lanewise minimum."""
        compare = self.builder.fcmp_ordered if self.floating else self.builder.icmp_signed
        return self.builder.select(compare("<", x, y), x, y)

    def product(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Semiring product, not clamped."""
        b = self.builder
        if self.kind is Residues:
            # both are below 2**31: saying so makes it one instruction, also where vectors have none of 64 bits
            return self.remainder(b.mul(self._low(x, 32), self._low(y, 32)), 32)
        if self.kind is SumProductLaw:
            return b.fmul(x, y)
        return b.fadd(x, y) if self.floating else b.add(x, y)

    def clamp(self, x: ir.Value) -> ir.Value:
        """Clamp a sum of integer costs to the infinity."""
        if self.kind is MinPlus and not self.floating:
            return self.minimum(x, self.constant(0, x.type))
        return x

    def add(self, total: ir.Value, x: ir.Value) -> ir.Value:
        """Semiring sum; residues are only reduced by `finish`."""
        if self.kind is MinPlus:
            return self.minimum(x, total)
        return self.builder.fadd(total, x) if self.floating else self.builder.add(total, x)

    def add_product(self, total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        """Semiring sum of `total` and the product of `x` and `y`."""
        if self.kind is SumProductLaw:
            kind = ir.FunctionType(x.type, [x.type] * 3)
            return self.builder.call(_declare(self.builder, f"llvm.fmuladd.{_suffix(x.type)}", kind), [x, y, total])
        return self.add(total, self.product(x, y))

    def finish(self, total: ir.Value) -> ir.Value:
        """Turn an accumulated sum into a value of the table."""
        return self.remainder(total, 52) if self.kind is Residues else total

    def remainder(self, x: ir.Value, bits: int) -> ir.Value:
        """Reduce modulo the prime, for ``0 <= x < 2**62`` and a quotient of at most ``bits`` bits (at most 52).

        The quotient is the nearest integer to one in floating point, so that the rest is between minus the prime and
        the prime. It is converted by adding 2**52, as only AVX-512 converts vectors of floats to 64 bits.
        """
        b = self.builder
        modulus = self.constant(2, x.type)
        real: ir.Type = ir.DoubleType()
        if isinstance(x.type, ir.VectorType):
            real = ir.VectorType(real, x.type.count)
        magic = splat_like(b, ir.Constant(ir.DoubleType(), 2.0**52), real)
        nearest = b.fadd(b.fmul(b.uitofp(x, real), self.constant(3, real)), magic)
        quotient = self._low(b.bitcast(nearest, x.type), bits)
        rest = b.sub(x, b.mul(quotient, self._low(modulus, 32)))
        zero = splat_like(b, ir.Constant(ir.IntType(64), 0), x.type)
        return b.select(b.icmp_signed("<", rest, zero), b.add(rest, modulus), rest)

    def _low(self, x: ir.Value, bits: int) -> ir.Value:
        """Keep the lowest bits."""
        return self.builder.and_(x, splat_like(self.builder, ir.Constant(ir.IntType(64), (1 << bits) - 1), x.type))


def element_pointer(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
    """Point to element number `index` of a table at an integer address."""
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [index])


def _vector_pointer(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, element: Any) -> ir.Value:
    pointer = element_pointer(builder, address, index, _ir_scalar(element))
    return builder.bitcast(pointer, ir_vector(element).as_pointer())


def load_vector(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, element: Any) -> ir.Value:
    """Emit an unaligned load of a whole vector."""
    return builder.load(_vector_pointer(builder, address, index, element), align=element.bitwidth // 8)


def store_vector(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, element: Any, value: ir.Value) -> None:
    """Emit an unaligned store of a whole vector."""
    builder.store(value, _vector_pointer(builder, address, index, element), align=element.bitwidth // 8)


def _mask(builder: ir.IRBuilder, count: ir.Value, lanes: int) -> ir.Value:
    wide = ir.VectorType(ir.IntType(32), lanes)
    limit = splat_like(builder, builder.trunc(count, ir.IntType(32)), wide)
    return builder.icmp_signed("<", ir.Constant(wide, list(range(lanes))), limit)


def _operation(method: str, arity: int) -> Any:
    """Make an intrinsic of a law's operation; its operands are all vectors or all scalars."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return getattr(VectorLaw(builder, signature.args[0], args[0]), method)(*args[1:])

    typers: dict[int, Callable[..., Any]] = {
        1: lambda typing, law, x: (x(law, x), emit),
        2: lambda typing, law, x, y: (x(law, x, y), emit),
        3: lambda typing, law, x, y, z: (x(law, x, y, z), emit),
    }
    return intrinsic(typers[arity])


product = _operation("product", 2)
clamp = _operation("clamp", 1)
add = _operation("add", 2)
add_product = _operation("add_product", 3)
finish = _operation("finish", 1)


@intrinsic
def lanes(typing: Any, law: Any) -> Any:
    """Return the number of lanes of a vector of the law's dtype."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return ir.Constant(ir.IntType(64), _lanes(law.types[0]))

    return types.int64(law), emit


@intrinsic
def word(typing: Any, address: Any, index: Any) -> Any:
    """Load one int64 of the array at an address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load(element_pointer(builder, args[0], args[1], ir.IntType(64)))

    return types.int64(types.int64, types.int64), emit


@intrinsic
def put_word(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Store one int64 into the array at an address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        builder.store(args[2], element_pointer(builder, args[0], args[1], ir.IntType(64)))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@intrinsic
def number(typing: Any, address: Any, index: Any) -> Any:
    """Load one float64 of the array at an address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load(element_pointer(builder, args[0], args[1], ir.DoubleType()))

    return types.float64(types.int64, types.int64), emit


@intrinsic
def put_number(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Store one float64 into the array at an address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        builder.store(args[2], element_pointer(builder, args[0], args[1], ir.DoubleType()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), emit


@njit(nogil=True, cache=True)
def fill(code: int, length: int, offsets: int) -> None:
    """Write the offsets that an `Enumeration` describes; the last axis of a group varies fastest."""
    at = 0
    while at < length:
        tables, axes = word(code, at), word(code, at + 1)
        sizes = code + 8 * (at + 2)
        at += 2 + axes * (1 + tables)
        for t in range(tables):
            strides = sizes + 8 * axes * (t + 1)
            put_word(offsets, 0, 0)
            cells = 1
            for axis in range(axes - 1, -1, -1):
                for state in range(1, word(sizes, axis)):
                    shift = state * word(strides, axis)
                    for c in range(cells):
                        put_word(offsets, state * cells + c, word(offsets, c) + shift)
                cells *= word(sizes, axis)
            offsets += 8 * cells


@intrinsic
def load(typing: Any, law: Any, address: Any, index: Any) -> Any:
    """Load one element of the table at an address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load(element_pointer(builder, args[1], args[2], _ir_scalar(law.types[0])))

    return law.types[0](law, types.int64, types.int64), emit


@intrinsic
def store(typing: Any, law: Any, address: Any, index: Any, value: Any) -> Any:
    """Store one element of the table at an address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        builder.store(args[3], element_pointer(builder, args[1], args[2], _ir_scalar(law.types[0])))
        return context.get_dummy_value()

    return types.void(law, types.int64, types.int64, law.types[0]), emit


@intrinsic
def vload(typing: Any, law: Any, address: Any, index: Any) -> Any:
    """Load a whole vector."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return load_vector(builder, args[1], args[2], law.types[0])

    return Vector(law.types[0])(law, types.int64, types.int64), emit


@intrinsic
def vstore(typing: Any, law: Any, address: Any, index: Any, value: Any) -> Any:
    """Store a whole vector."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        store_vector(builder, args[1], args[2], law.types[0], args[3])
        return context.get_dummy_value()

    return types.void(law, types.int64, types.int64, Vector(law.types[0])), emit


def load_part(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, element: Any, count: ir.Value) -> ir.Value:
    """Emit a load of the first `count` lanes, which touches no memory beyond them."""
    vector = ir_vector(element)
    pointer, mask = _vector_pointer(builder, address, index, element), _mask(builder, count, vector.count)
    align = ir.Constant(ir.IntType(32), element.bitwidth // 8)
    kind = ir.FunctionType(vector, [pointer.type, align.type, mask.type, vector])
    masked = _declare(builder, f"llvm.masked.load.{_suffix(vector)}.p0", kind)
    return builder.call(masked, [pointer, align, mask, ir.Constant(vector, None)])


def store_part(
    builder: ir.IRBuilder, address: ir.Value, index: ir.Value, element: Any, count: ir.Value, value: ir.Value
) -> None:
    """Emit a store of the first `count` lanes."""
    vector = ir_vector(element)
    pointer, mask = _vector_pointer(builder, address, index, element), _mask(builder, count, vector.count)
    align = ir.Constant(ir.IntType(32), element.bitwidth // 8)
    kind = ir.FunctionType(ir.VoidType(), [vector, pointer.type, align.type, mask.type])
    builder.call(_declare(builder, f"llvm.masked.store.{_suffix(vector)}.p0", kind), [value, pointer, align, mask])


def _suffix(kind: ir.Type) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return "f64" if isinstance(kind, ir.DoubleType) else f"i{kind.width}"


def _declare(builder: ir.IRBuilder, name: str, kind: ir.FunctionType) -> ir.Value:
    return cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
