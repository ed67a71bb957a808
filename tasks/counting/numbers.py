"""Natural numbers of any size as limbs of 31 bits in int64, the lowest first; floats as mantissa and exponent."""

from __future__ import annotations

import math

from ..compiler.jit import njit
from .count_state import Array

#: A product of two limbs and two more still fits int64.
LIMB_BITS = 31
_ONES = (1 << LIMB_BITS) - 1


@njit(nogil=True)
def multiply(number: Array, length: int, factor: Array, n_factor: int, scratch: Array) -> int:
    """Multiply a number, in place; return its length, which is 0 for 0."""
    if length == 0 or n_factor == 0:
        return 0
    for i in range(length + n_factor):
        scratch[i] = 0
    for i in range(length):
        carry = 0
        for j in range(n_factor):
            whole = scratch[i + j] + number[i] * factor[j] + carry
            scratch[i + j] = whole & _ONES
            carry = whole >> LIMB_BITS
        scratch[i + n_factor] = carry
    length += n_factor
    if scratch[length - 1] == 0:
        length -= 1
    for i in range(length):
        number[i] = scratch[i]
    return length


@njit(nogil=True)
def add(number: Array, length: int, other: Array, n_other: int) -> int:
    """Add to a number, in place; return its length."""
    if length < n_other:
        for i in range(length, n_other):
            number[i] = 0
        length = n_other
    carry = 0
    for i in range(length):
        if carry == 0 and i >= n_other:
            break
        whole = number[i] + carry + (other[i] if i < n_other else 0)
        number[i] = whole & _ONES
        carry = whole >> LIMB_BITS
    if carry:
        number[length] = carry
        length += 1
    return length


@njit(nogil=True)
def double(number: Array, length: int, times: int) -> int:
    """Multiply a number by a power of two, in place; return its length."""
    if length == 0:
        return 0
    limbs, bits = times // LIMB_BITS, times % LIMB_BITS
    carry = 0
    for i in range(length):
        whole = (number[i] << bits) | carry
        number[i] = whole & _ONES
        carry = whole >> LIMB_BITS
    if carry:
        number[length] = carry
        length += 1
    if limbs:
        for i in range(length - 1, -1, -1):
            number[i + limbs] = number[i]
        for i in range(limbs):
            number[i] = 0
    return length + limbs


@njit(nogil=True)
def scale(number: Array, mantissa: float, exponent: int) -> None:
    """Multiply a float, in place: mantissa (0, or 0.5 to 1) and exponent, an integer."""
    found, shift = math.frexp(number[0] * mantissa)
    number[0] = found
    number[1] = number[1] + exponent + shift if found else 0.0


@njit(nogil=True)
def accumulate(number: Array, other: Array) -> None:
    """Add to a float, in place."""
    if other[0] == 0.0:
        return
    if number[0] == 0.0:
        number[0], number[1] = other[0], other[1]
        return
    highest = max(number[1], other[1])
    least = -1100.0
    low = math.ldexp(number[0], int(max(number[1] - highest, least)))
    found, shift = math.frexp(low + math.ldexp(other[0], int(max(other[1] - highest, least))))
    number[0], number[1] = found, highest + shift


def as_integer(limbs: Array) -> int:
    """Return a number as Python has it."""
    return sum(int(limb) << LIMB_BITS * k for k, limb in enumerate(limbs.tolist()))
