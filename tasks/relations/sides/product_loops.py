"""Compiled loops over rows: products with rows of other tables, and with entries of dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...machine_code import njit
from .loops import same_key


@njit(nogil=True)
def _times(law: int, zero: Any, modulus: int, a: Any, b: Any) -> Any:
    """Multiply; `law` is the number of the semiring's name in :data:`.host.LAWS`."""
    if law == 1:
        return a * b
    if law == 3:
        return a * b % modulus
    total = a + b
    return zero if law == 0 and total > zero else total


@njit(nogil=True, cache=True)
def expand(
    law: int,
    zero: Any,
    modulus: int,
    row: int,
    first: Any,
    ends: Any,
    start: int,
    stop: int,
    left: Any,
    right: Any,
    left_values: Any,
    right_values: Any,
    out: Any,
    values: Any,
) -> int:
    """Write outputs `start` to `stop` of a join, the first of them of `row`; zeros are left out.

    Parameters
    ----------
    first, ends : (rows,) int64
        Row i of the left meets rows of the right from ``first[i]`` on; its outputs end before ``ends[i]``.
    left, right : (rows, words) uint64
        Keys in the layout of the result, zeros where a side has no state.
    out, values
        The result, with room for one row more.
    """
    n = 0
    at = start
    narrow = out.shape[1] == 1
    while at < stop:
        last = min(ends[row], stop)
        begin = ends[row - 1] if row else 0
        begin = first[row] + at - begin
        for j in range(begin, begin + last - at):
            product = _times(law, zero, modulus, left_values[row], right_values[j])
            if narrow:
                out[n, 0] = left[row, 0] | right[j, 0]
            else:
                for w in range(out.shape[1]):
                    out[n, w] = left[row, w] | right[j, w]
            values[n] = product
            n += product != zero
        at = max(at, last)
        row += 1
    return n


@njit(nogil=True)
def _plus(law: int, a: Any, b: Any) -> Any:
    return a + b if law == 3 else min(a, b)


@njit(nogil=True)
def _makes(left: Any, row: int, right: Any, other: int, out: Any, n: int) -> bool:
    """Whether the key that rows of both sides make is one of `out`."""
    differ = np.uint64(0)
    for w in range(out.shape[1]):
        differ |= out[n, w] ^ (left[row, w] | right[other, w])
    return bool(differ == 0)


@njit(nogil=True, cache=True)
def expand_costs(
    law: int,
    zero: Any,
    modulus: int,
    row: int,
    first: Any,
    ends: Any,
    start: int,
    stop: int,
    left: Any,
    right: Any,
    left_values: Any,
    right_values: Any,
    out: Any,
    sums: Any,
) -> int:
    """Write what :func:`expand` does, which ascends, with the sum of equal keys: the least, or residues.

    What rows of the right that have equal keys add up to is multiplied once.
    """
    n, begun = 0, False
    at = start
    while at < stop:
        j = first[row] + at - (ends[row - 1] if row else 0)
        last = max(at, min(ends[row], stop))
        end = j + last - at
        while j < end:
            k, total = j + 1, right_values[j]
            while k < end and same_key(right, k, right, j):
                total = _plus(law, total, right_values[k])
                k += 1
            total = _times(law, zero, modulus, left_values[row], total % modulus if law == 3 else total)
            if begun and _makes(left, row, right, j, out, n):
                total = _plus(law, sums[n], total)
                sums[n] = total % modulus if law == 3 else total
            else:
                n += begun and sums[n] != zero
                for w in range(out.shape[1] - 1, -1, -1):
                    out[n, w] = left[row, w] | right[j, w]
                sums[n], begun = total, True
            j = k
        at = last
        row += 1
    return n + int(begun and sums[n] != zero)


@njit(nogil=True, cache=True)
def multiply(law: int, zero: Any, modulus: int, words: Any, values: Any, parts: Any, table: Any, out: Any) -> int:
    """Write the products of rows with entries of a dense table; return how many are zero.

    Parameters
    ----------
    parts : (parts, 4) uint64
        Where the entry of a key stands; see :meth:`.rows.keys.Keys.gathers`.
    """
    zeros = 0
    for i in range(len(words)):
        at = np.uint64(0)
        for k in range(len(parts)):
            at += (words[i, parts[k, 0]] >> parts[k, 1] & parts[k, 2]) * parts[k, 3]
        product = _times(law, zero, modulus, values[i], table[np.int64(at)])
        out[i] = product
        zeros += product == zero
    return zeros
