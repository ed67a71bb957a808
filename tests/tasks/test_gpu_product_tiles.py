"""Tiles of matrix-like launches, run block by block in NumPy: each output cell is written once, and rightly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.tasks.gpu.tiling.product_tiles import (
    AXES,
    SPAN,
    Groups,
    Tiling,
    cells_of,
    factor_loads,
    product_tiles,
    whole_chunks,
)
from bucketflow.tasks.gpu.tiling.streams import Axis


def offsets(axes: tuple[Axis, ...], table: int) -> np.ndarray:
    """Where the cells of a group of axes lie in a factor, or in the output for 2."""
    at = np.zeros(1, np.int64)
    for axis in axes:
        at = (at[:, None] + np.arange(axis.size) * (*axis.strides, axis.out)[table]).reshape(-1)
    return at


def run(tiling: Tiling, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """Run all blocks as ``cuda/product.cu`` does: minimum of sums."""
    batch, rows, columns, depth = tiling.groups
    tall, wide = tiling.tile.rows, len(tiling.order)
    assert sorted(tiling.order) == list(range(wide))
    assert 1 <= tiling.span <= SPAN
    assert sum(map(len, tiling.groups)) <= AXES
    for block in range(tiling.blocks):
        rest, row_tile = divmod(block, tiling.row_tiles)
        group, column_tile = divmod(rest, tiling.column_tiles)
        m = slice(row_tile * tall, (row_tile + 1) * tall)
        n = slice(column_tile * wide, (column_tile + 1) * wide)
        for b in range(group * tiling.span, min((group + 1) * tiling.span, tiling.batches)):
            a = left[offsets(batch, 0)[b] + offsets(rows, 0)[m, None] + offsets(depth, 0)]
            c = right[offsets(batch, 1)[b] + offsets(columns, 1)[n, None] + offsets(depth, 1)]
            at = offsets(batch, 2)[b] + offsets(rows, 2)[m, None] + offsets(columns, 2)[n]
            assert np.isnan(out[at]).all(), "written twice"
            out[at] = (a[:, None] + c).min(axis=-1)


def check_loads(tiling: Tiling, itemsize: int) -> None:
    """Vectors are aligned and contiguous in a factor, and in shared memory unless they go through registers."""
    for side in (0, 1):
        loads = factor_loads(tiling, side, itemsize)
        assert loads.staged or itemsize * (1 if loads.deep else loads.width) >= 4
        assert loads.staged or side == 1 or itemsize > 2
        starts = offsets(tiling.groups[0], side)
        assert not (starts % loads.width).any()
        own = offsets(tiling.groups[1 + side], side)
        if side == 1 and tiling.column_tiles == 1:
            order = np.array([i for i in tiling.order if i < own.size])
            if not loads.staged and not loads.deep:
                assert (np.diff(order.reshape(-1, loads.width)) == 1).all()
            own = own[order]
        lines = offsets(tiling.groups[3], side) if loads.deep else own
        vectors = lines.reshape(-1, loads.width)
        assert not (vectors[:, 0] % loads.width).any()
        assert (np.diff(vectors) == 1).all()
        others = own if loads.deep else offsets(tiling.groups[3], side)
        assert not (others % loads.width).any()
    chunk = 16 // itemsize
    if whole_chunks(tiling.groups, chunk):
        out = offsets(tiling.groups[2], 2).reshape(-1, chunk)
        assert (np.diff(out) == 1).all()
        assert not (out[:, 0] % chunk).any()


def groups_of(sizes: list[tuple[str, int]], orders: tuple[list[int], list[int], list[int]]) -> Groups:
    """Axes of groups by letter, with the strides of tables that have the axes in the given orders."""
    strides = []
    for letters, order in zip(("bmk", "bnk", "bmn"), orders, strict=True):
        stride, cells = [0] * len(sizes), 1
        for i in order[::-1]:
            if sizes[i][0] in letters:
                stride[i] = cells
                cells *= sizes[i][1]
        strides.append(stride)
    found: dict[str, list[Axis]] = {letter: [] for letter in "bmnk"}
    for i, (letter, size) in enumerate(sizes):
        found[letter].append(Axis(size, (strides[0][i], strides[1][i]), strides[2][i]))
    keys = {"b": 0, "m": 0, "k": 0}
    for letter, axes in found.items():
        axes.sort(key=lambda a: -(*a.strides, a.out)[keys.get(letter, 2)])
    return tuple(found["b"]), tuple(found["m"]), tuple(found["n"]), tuple(found["k"])


def check(groups: Groups, itemsize: int) -> Tiling:
    """Compare a tiling with the plain product."""
    batch, rows, columns, depth = groups
    rng = np.random.default_rng(0)
    left, right = (rng.random(cells_of(batch) * cells_of(own) * cells_of(depth)) for own in (rows, columns))
    out = np.full(cells_of(batch) * cells_of(rows) * cells_of(columns), np.nan)
    tiling = product_tiles(groups, itemsize)
    run(tiling, left, right, out)
    a = left[offsets(batch, 0)[:, None, None] + offsets(rows, 0)[:, None] + offsets(depth, 0)]
    c = right[offsets(batch, 1)[:, None, None] + offsets(columns, 1)[:, None] + offsets(depth, 1)]
    at = offsets(batch, 2)[:, None, None] + offsets(rows, 2)[:, None] + offsets(columns, 2)
    np.testing.assert_array_equal(out[at], (a[:, :, None] + c[:, None]).min(axis=-1))
    check_loads(tiling, itemsize)
    return tiling


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_layouts(data: st.DataObject) -> None:
    sizes = []
    for letter, most in (("b", 30), ("m", 200), ("n", 700), ("k", 24)):
        cells = 1
        while not sizes or sizes[-1][0] != letter or data.draw(st.booleans()):
            size = data.draw(st.sampled_from([2, 2, 2, 3, 4, 5, 8, 16, 44]))
            if cells * size > most:
                break
            cells *= size
            sizes.append((letter, size))
    for letter in "mnk":
        if all(letter != found for found, _ in sizes):
            sizes.append((letter, 3))
    everything = list(range(len(sizes)))
    orders = tuple(data.draw(st.permutations(everything)) for _ in range(3))
    check(groups_of(sizes, orders), data.draw(st.sampled_from([2, 4, 8])))


def test_lines_of_both_tables_lie_in_a_tile() -> None:
    """Binary columns in opposite orders: a tile holds whole lines of the right factor and of the output."""
    sizes = [("m", 16), ("k", 32), *(("n", 2) for _ in range(18))]
    columns = list(range(2, 20))
    tiling = product_tiles(groups_of(sizes, ([0, 1], [1, *columns], [0, *columns[::-1]])), 8)
    assert tiling.tile.rows == 16
    assert cells_of(tiling.groups[2]) == 256
    for table in (1, 2):
        near = np.sort(offsets(tiling.groups[2], table))
        assert (near[:16] == np.arange(16)).all()


def test_tiles_keep_the_output_in_order() -> None:
    """Batches within a line of the output follow each other in one block."""
    sizes = [("b", 16), ("m", 4096), ("n", 256), ("k", 16)]
    groups = groups_of(sizes, ([0, 1, 3], [3, 0, 2], [2, 1, 0]))
    tiling = product_tiles(groups, 4)
    assert tiling.groups[0][-1].out == 1
    assert tiling.groups[0][-1].size == 16


@pytest.mark.parametrize(("rows", "expected"), [(16, 16), (30, 32), (64, 64), (900, 64)])
def test_tiles_fit_the_rows(rows: int, expected: int) -> None:
    groups = groups_of([("m", rows), ("n", 1 << 18), ("k", 32)], ([0, 2], [2, 1], [0, 1]))
    tiling = product_tiles(groups, 8)
    assert tiling.tile.rows == expected
    assert math.prod((tiling.tiles, tiling.tile.rows, tiling.tile.columns)) < 1.2 * cells_of(groups[2]) * max(rows, 32)
