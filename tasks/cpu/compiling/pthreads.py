"""Threads that compiled code starts and awaits by itself, without the interpreter and its lock.

A thread of Python's takes 0.2 ms to start while others wait for the lock, one of the system's some 0.02.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from ...machine_code import njit
from .calls import address_of, calling
from .vectors import intrinsic, put_word, word

_create: Any = types.ExternalFunction("pthread_create", types.int32(types.int64, types.int64, types.int64, types.int64))
_join: Any = types.ExternalFunction("pthread_join", types.int32(types.int64, types.int64))

# Words that each thread has, a cache line. What one returns is written to the first.
_WORDS: Final = 8
_RETURNED, _WORK, _GIVEN, _ENTRY, _THREADS, _NUMBER, _HANDLE, _STARTED = range(_WORDS)

_call_work = calling(2)


@intrinsic
def _first_argument(typing: Any) -> Any:
    """Return the address that the system gives to the first function of a thread.

    It is where Numba's functions have the address of their result, so that of this one is the first word there.
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
    """What a thread begins with."""
    _go(_first_argument())


def blocks(threads: int, work: int, given: int) -> NDArray[np.int64]:
    """Return what :func:`together` reads: the function at an address is called with a word and the thread's number."""
    rows = [(0, work, given, _entry(), threads, number, 0, 0) for number in range(threads)]
    return np.array(rows, np.int64)


@cache
def _entry() -> int:
    return address_of(_enter)


@njit(nogil=True, cache=True)
def together(where: int) -> None:
    """Work in as many threads as :func:`blocks` at an address are for, this one among them, until all are done.

    Where the system starts no more, those that there are do it.
    """
    _go(where)
