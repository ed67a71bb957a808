"""Threads that compiled code starts and awaits by itself, without the interpreter and its lock.

A thread of Python's takes 0.2 ms to start while others wait for the lock, one of the system's some 0.02.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from .jit import njit
from .vectors import element_pointer, intrinsic, put_word, word

# Compiled functions that call each other by address. Otherwise an inner function is compiled again within every caller.
# Shared data is also passed by address, because the time of a call from Python grows with its arguments.


def address_of(function: Any, *examples: Any) -> int:
    """Return where the code of a compiled function is in this process, for arguments like some examples."""
    kind: Callable[[Any], Any] = numba.typeof
    args = tuple([kind(each) for each in examples])
    function.compile(args)
    made = function.overloads[args]
    address: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    return address


def _typed(address: Any, *given: Any) -> Any:
    args = tuple([types.int64 if isinstance(each, types.Integer | types.Boolean) else each for each in given])

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        kind = context.call_conv.get_function_type(types.none, args)
        callee = builder.inttoptr(values[0], kind.as_pointer())
        context.call_conv.call_function(builder, callee, types.none, args, values[1:])
        return context.get_dummy_value()

    return types.none(types.int64, *args), emit


_TYPERS: dict[int, Callable[..., Any]] = {
    2: lambda typing, f, a, b: _typed(f, a, b),
    4: lambda typing, f, a, b, c, d: _typed(f, a, b, c, d),
    5: lambda typing, f, a, b, c, d, e: _typed(f, a, b, c, d, e),
    7: lambda typing, f, a, b, c, d, e, g, h: _typed(f, a, b, c, d, e, g, h),
    10: lambda typing, f, a, b, c, d, e, g, h, i, j, k: _typed(f, a, b, c, d, e, g, h, i, j, k),
}


def calling(arity: int) -> Any:
    """Return an intrinsic that calls the function at an address with some arguments; it returns and raises nothing.

    Numbers are given as int64.
    """
    return intrinsic(_TYPERS[arity])


def reader(kind: Any) -> Any:
    """Return an intrinsic that loads a named tuple of int64 from the words at an address."""
    fields = len(kind._fields)
    named: Callable[..., Any] = types.NamedUniTuple
    loaded_type = named(types.int64, fields, kind)

    def typed(typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
            word = ir.IntType(64)
            loaded = [builder.load(element_pointer(builder, values[0], word(i), word)) for i in range(fields)]
            return context.make_tuple(builder, signature.return_type, loaded)

        return loaded_type(types.int64), emit

    return intrinsic(typed)


_create: Any = types.ExternalFunction("pthread_create", types.int32(types.int64, types.int64, types.int64, types.int64))
_join: Any = types.ExternalFunction("pthread_join", types.int32(types.int64, types.int64))

# Words of each thread, one cache line. The first receives the returned value.
_RETURNED, _WORK, _GIVEN, _ENTRY, _THREADS, _NUMBER, _HANDLE, _STARTED = range(8)
_WORDS: Final = _STARTED + 1

_call_work = calling(2)


@intrinsic
def _first_argument(typing: Any) -> Any:
    """Return the address that the system gives to the first function of a thread.

    Numba's functions have the address of their result there; the first word at this address belongs to this function.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.ptrtoint(builder.function.args[0], ir.IntType(64))

    return types.int64(), emit


@njit(nogil=True)
def _go(block: int) -> None:
    """Start the two threads that follow in a tree of all of them, work, and await those."""
    threads, number = word(block, _THREADS), word(block, _NUMBER)
    for child in range(2 * number + 1, min(2 * number + 3, threads)):
        there = block + 8 * _WORDS * (child - number)
        put_word(there, _STARTED, 0)
        if _create(there + 8 * _HANDLE, 0, word(block, _ENTRY), there) == 0:
            put_word(there, _STARTED, 1)
    _call_work(word(block, _WORK), word(block, _GIVEN), number)
    for child in range(2 * number + 1, min(2 * number + 3, threads)):
        there = block + 8 * _WORDS * (child - number)
        if word(there, _STARTED):
            _join(word(there, _HANDLE), 0)


@njit(nogil=True, cache=True)
def _enter() -> None:
    """The entry function of a thread."""
    _go(_first_argument())


def blocks(threads: int, work: int, given: int) -> NDArray[np.int64]:
    """Return the input of :func:`together`: the function at an address gets a word and the thread's number."""
    rows = [(0, work, given, _entry(), threads, number, 0, 0) for number in range(threads)]
    return np.array(rows, np.int64)


@cache
def _entry() -> int:
    return address_of(_enter)


@njit(nogil=True, cache=True)
def together(where: int) -> None:
    """Work in as many threads as :func:`blocks` at an address are for, this one among them, until all are done.

    If the system starts no more threads, the running threads do the work.
    """
    _go(where)


# Words that several threads of compiled code change: atomic operations on arrays of int64, and waiting for one.

_WORD = ir.IntType(64)
_PATIENT, _BUSY = 1 << 12, 1 << 9

_give_way: Any = types.ExternalFunction("sched_yield", types.int32())
_sleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))


@intrinsic
def fetch_add(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Add to one int64 of the array at an address; return its earlier value."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        pointer = element_pointer(builder, args[0], args[1], _WORD)
        return builder.atomic_rmw("add", pointer, args[2], "seq_cst")

    return types.int64(types.int64, types.int64, types.int64), emit


@intrinsic
def published(typing: Any, address: Any, index: Any) -> Any:
    """Load one int64; writes before its store are visible afterwards."""

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
