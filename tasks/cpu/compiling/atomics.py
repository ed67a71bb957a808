"""Words that several threads of compiled code change: atomic operations on arrays of int64, and waiting for one."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ...machine_code import njit
from .vectors import element_pointer, intrinsic

_WORD = ir.IntType(64)
_PATIENT, _BUSY = 1 << 12, 1 << 9

_give_way: Any = types.ExternalFunction("sched_yield", types.int32())
_sleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))


@intrinsic
def fetch_add(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Add to one int64 of the array at an address; return what it was."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        pointer = element_pointer(builder, args[0], args[1], _WORD)
        return builder.atomic_rmw("add", pointer, args[2], "seq_cst")

    return types.int64(types.int64, types.int64, types.int64), emit


@intrinsic
def published(typing: Any, address: Any, index: Any) -> Any:
    """Load one int64; what was written before it was stored is seen after this."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load_atomic(element_pointer(builder, args[0], args[1], _WORD), "acquire", 8)

    return types.int64(types.int64, types.int64), emit


@intrinsic
def publish(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Store one int64 after everything that was written before."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        builder.store_atomic(args[2], element_pointer(builder, args[0], args[1], _WORD), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@njit(nogil=True)
def awaited(address: int, index: int) -> int:
    """Return one int64 once it is not 0: at once, after giving way to other threads, or after some sleep."""
    tries = 0
    while True:
        found: int = published(address, index)
        if found != 0:
            return found
        tries += 1
        if tries > _PATIENT + _BUSY:
            _sleep(20)
        elif tries > _PATIENT:
            _give_way()
