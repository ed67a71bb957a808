"""Sums of one row of cells over the eliminated variables, in vector registers, from one, two or many tables."""

from __future__ import annotations

from typing import Any

from numba import njit

from .vectors import (
    VECTOR_BYTES,
    add_product,
    clamp,
    finish,
    lanes,
    load,
    product,
    put_word,
    splat,
    vload,
    vload_part,
    vstore,
    vstore_part,
    word,
)

_WIDE = 4
"""Vectors of a row that are summed together, to hide the latency of loads."""


@njit(nogil=True)
def _wide_1(law: Any, out: int, fresh: bool, numbers: int, depth: int, a: int, at_a: int) -> None:
    """Sum four vectors of one table over the depth; addresses are of the row's first cell."""
    n = lanes(law)
    t0 = t1 = t2 = t3 = splat(law, law.zero)
    if not fresh:
        t0, t1, t2, t3 = (
            vload(law, out, 0),
            vload(law, out, n),
            vload(law, out, 2 * n),
            vload(law, out, 3 * n),
        )
    for k in range(depth):
        x = splat(law, load(law, numbers, k))
        i = word(at_a, k)
        t0 = add_product(law, t0, vload(law, a, i), x)
        t1 = add_product(law, t1, vload(law, a, i + n), x)
        t2 = add_product(law, t2, vload(law, a, i + 2 * n), x)
        t3 = add_product(law, t3, vload(law, a, i + 3 * n), x)
    vstore(law, out, 0, finish(law, t0))
    vstore(law, out, n, finish(law, t1))
    vstore(law, out, 2 * n, finish(law, t2))
    vstore(law, out, 3 * n, finish(law, t3))


@njit(nogil=True)
def _wide_2(law: Any, out: int, fresh: bool, numbers: int, depth: int, a: int, at_a: int, b: int, at_b: int) -> None:
    """Sum four vectors of the product of two tables over the depth."""
    n = lanes(law)
    t0 = t1 = t2 = t3 = splat(law, law.zero)
    if not fresh:
        t0, t1, t2, t3 = (
            vload(law, out, 0),
            vload(law, out, n),
            vload(law, out, 2 * n),
            vload(law, out, 3 * n),
        )
    for k in range(depth):
        x = splat(law, load(law, numbers, k))
        i = word(at_a, k)
        j = word(at_b, k)
        t0 = add_product(law, t0, product(law, vload(law, a, i), x), vload(law, b, j))
        t1 = add_product(law, t1, product(law, vload(law, a, i + n), x), vload(law, b, j + n))
        t2 = add_product(law, t2, product(law, vload(law, a, i + 2 * n), x), vload(law, b, j + 2 * n))
        t3 = add_product(law, t3, product(law, vload(law, a, i + 3 * n), x), vload(law, b, j + 3 * n))
    vstore(law, out, 0, finish(law, t0))
    vstore(law, out, n, finish(law, t1))
    vstore(law, out, 2 * n, finish(law, t2))
    vstore(law, out, 3 * n, finish(law, t3))


@njit(nogil=True)
def _part_1(law: Any, out: int, fresh: bool, numbers: int, depth: int, a: int, at_a: int, count: int) -> None:
    """Sum the first `count` lanes of one vector of one table over the depth."""
    total = splat(law, law.zero)
    if not fresh:
        total = vload_part(law, out, 0, count)
    for k in range(depth):
        x = splat(law, load(law, numbers, k))
        total = add_product(law, total, vload_part(law, a, word(at_a, k), count), x)
    vstore_part(law, out, 0, count, finish(law, total))


@njit(nogil=True)
def _part_2(
    law: Any,
    out: int,
    fresh: bool,
    numbers: int,
    depth: int,
    a: int,
    at_a: int,
    b: int,
    at_b: int,
    count: int,
) -> None:
    """Sum the first `count` lanes of one vector of the product of two tables over the depth."""
    total = splat(law, law.zero)
    if not fresh:
        total = vload_part(law, out, 0, count)
    for k in range(depth):
        x = product(law, vload_part(law, a, word(at_a, k), count), splat(law, load(law, numbers, k)))
        total = add_product(law, total, x, vload_part(law, b, word(at_b, k), count))
    vstore_part(law, out, 0, count, finish(law, total))


@njit(nogil=True)
def _wide_many(law: Any, out: int, fresh: bool, numbers: int, depth: int, rows: int, n_rows: int, at: int) -> None:
    """Sum four vectors of the product of any number of tables, clamping after every factor."""
    n = lanes(law)
    t0 = t1 = t2 = t3 = splat(law, law.zero)
    if not fresh:
        t0, t1, t2, t3 = (
            vload(law, out, 0),
            vload(law, out, n),
            vload(law, out, 2 * n),
            vload(law, out, 3 * n),
        )
    for k in range(depth):
        x0 = x1 = x2 = x3 = splat(law, load(law, numbers, k))
        for i in range(n_rows - 1):
            a = word(rows, i)
            j = word(at, i * depth + k)
            x0 = clamp(law, product(law, x0, vload(law, a, j)))
            x1 = clamp(law, product(law, x1, vload(law, a, j + n)))
            x2 = clamp(law, product(law, x2, vload(law, a, j + 2 * n)))
            x3 = clamp(law, product(law, x3, vload(law, a, j + 3 * n)))
        a = word(rows, n_rows - 1)
        j = word(at, (n_rows - 1) * depth + k)
        t0 = add_product(law, t0, x0, vload(law, a, j))
        t1 = add_product(law, t1, x1, vload(law, a, j + n))
        t2 = add_product(law, t2, x2, vload(law, a, j + 2 * n))
        t3 = add_product(law, t3, x3, vload(law, a, j + 3 * n))
    vstore(law, out, 0, finish(law, t0))
    vstore(law, out, n, finish(law, t1))
    vstore(law, out, 2 * n, finish(law, t2))
    vstore(law, out, 3 * n, finish(law, t3))


@njit(nogil=True)
def _part_many(
    law: Any, out: int, fresh: bool, numbers: int, depth: int, rows: int, n_rows: int, at: int, count: int
) -> None:
    """Sum the first `count` lanes of the product of any number of tables, clamping after every factor."""
    total = splat(law, law.zero)
    if not fresh:
        total = vload_part(law, out, 0, count)
    for k in range(depth):
        x = splat(law, load(law, numbers, k))
        for i in range(n_rows - 1):
            x = clamp(law, product(law, x, vload_part(law, word(rows, i), word(at, i * depth + k), count)))
        i = n_rows - 1
        total = add_product(law, total, x, vload_part(law, word(rows, i), word(at, i * depth + k), count))
    vstore_part(law, out, 0, count, finish(law, total))


@njit(nogil=True)
def row(law: Any, out: int, fresh: bool, numbers: int, depth: int, rows: int, n_rows: int, at: int, cells: int) -> None:
    """Sum one row of the output over the depth, from one or two tables, whose addresses are in `rows`."""
    n = lanes(law)
    size = VECTOR_BYTES // n
    a = word(rows, 0)
    b = word(rows, 1)
    at_b = at + 8 * depth
    v = 0
    while v + _WIDE * n <= cells:
        x = v * size
        if n_rows == 1:
            _wide_1(law, out + x, fresh, numbers, depth, a + x, at)
        else:
            _wide_2(law, out + x, fresh, numbers, depth, a + x, at, b + x, at_b)
        v += _WIDE * n
    while v < cells:
        x = v * size
        count = min(n, cells - v)
        if n_rows == 1:
            _part_1(law, out + x, fresh, numbers, depth, a + x, at, count)
        else:
            _part_2(law, out + x, fresh, numbers, depth, a + x, at, b + x, at_b, count)
        v += n


@njit(nogil=True)
def row_many(
    law: Any, out: int, fresh: bool, numbers: int, depth: int, rows: int, n_rows: int, at: int, cells: int
) -> None:
    """Sum one row like `row`, from any number of tables; moves the addresses in `rows`."""
    n = lanes(law)
    v = 0
    while v < cells:
        vectors = _WIDE if v + _WIDE * n <= cells else 1
        if vectors == _WIDE:
            _wide_many(law, out, fresh, numbers, depth, rows, n_rows, at)
        else:
            _part_many(law, out, fresh, numbers, depth, rows, n_rows, at, min(n, cells - v))
        v += vectors * n
        out += vectors * VECTOR_BYTES
        for i in range(n_rows):
            put_word(rows, i, word(rows, i) + vectors * VECTOR_BYTES)
