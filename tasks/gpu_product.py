"""Matrix-like steps on a GPU: a register-tiled tropical product, and cuBLAS for sums of products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from .gpu import _AXES, DeviceRun, bound_of, cupy, empty, fill_axes, kernel
from .gpu_lowering import ProductPass, gather_step
from .gpu_tiles import Axis
from .semiring import Semiring

_TILES: Final = {
    4: ({"ROWS": 128, "COLUMNS": 128, "TALL": 8, "BROAD": 8}, {"ROWS": 32, "COLUMNS": 32, "TALL": 4, "BROAD": 4}),
    8: ({"ROWS": 64, "COLUMNS": 64, "TALL": 4, "BROAD": 8}, {"ROWS": 32, "COLUMNS": 32, "TALL": 4, "BROAD": 4}),
}
"""Tiles by bytes of a word: a large one that reuses its loads most, a small one that wastes less."""

_MIDDLE: Final = {"ROWS": 64, "COLUMNS": 64, "TALL": 8, "BROAD": 8}
_BUSY: Final = 132
_LEAST_MATMUL: Final = 64
_LEAST_COPIED: Final = 256
"""Rows, columns and depth from which cuBLAS pays, without and with copies into a layout that it takes."""
_DEPTH: Final = 8
_VECTOR_BYTES: Final = 16
_THREADS: Final = 512
"""Threads of a multiprocessor: each then has 128 registers, enough for its tile of 4-byte words."""


def product_launch(each: ProductPass, semiring: Semiring) -> Any:
    """Choose cuBLAS or the tiled kernel, which is faster on stacks of small matrices."""
    least = min(math.prod(a.size for a in group) for group in each.groups[1:])
    if semiring.name == "sum_product" and least >= _LEAST_MATMUL:
        matmul = _MatmulLaunch(each, semiring)
        if matmul.direct or least >= _LEAST_COPIED:
            return matmul
    return _ProductLaunch(each, semiring)


class _ProductLaunch:
    def __init__(self, each: ProductPass, semiring: Semiring) -> None:
        self._inputs, self._output = each.inputs, each.output
        counts = [math.prod(a.size for a in group) for group in each.groups]
        itemsize = semiring.itemsize
        lanes = 2 if itemsize == 2 else 1
        tile = _choose_tile(counts, max(itemsize, 4), lanes)
        row_tiles = -(-counts[1] // tile["ROWS"])
        column_tiles = -(-counts[2] // (tile["COLUMNS"] * lanes))
        self._grid = (counts[0] * row_tiles * column_tiles,)
        threads = tile["ROWS"] // tile["TALL"] * (tile["COLUMNS"] // tile["BROAD"])
        self._block = (threads,)
        constants = {**tile, "RESIDENT": (_THREADS if itemsize <= 4 else _THREADS // 2) // threads}
        for side, name in enumerate(("LEFT", "RIGHT")):
            constants[f"{name}_VECTOR"], constants[f"{name}_DEEP"] = _loads(each, side, itemsize)
        self._kernel = kernel("product", semiring.name, semiring.dtype, **constants)
        record = np.zeros((), _PRODUCT)
        fill_axes(record, each.groups, 3)
        record["bound"] = bound_of(semiring)
        record["counts"] = (*counts[1:], row_tiles, column_tiles)
        record["whole"] = _whole(each, _VECTOR_BYTES // itemsize)
        self._record = record

    def __call__(self, arrays: Sequence[Any]) -> None:
        self._record["inputs"] = [arrays[i].data.ptr for i in self._inputs]
        self._record["out"] = arrays[self._output].data.ptr
        self._kernel(self._grid, self._block, (self._record,))


_PRODUCT: Final = np.dtype(
    [
        ("inputs", "u8", 2),
        ("out", "u8"),
        ("bound", "i8"),
        ("stride", "i8", (3, _AXES)),
        ("size", "u4", _AXES),
        ("segment", "i4", 5),
        ("counts", "u4", 5),
        ("whole", "i4"),
    ],
    align=True,
)
"""The layout of ``Step`` in ``cuda/product.cu``."""


def _choose_tile(counts: Sequence[int], word: int, lanes: int) -> dict[str, int]:
    """Take the tile with the least predicted time: padded work, smaller tiles at a lower rate, idle processors."""
    large, small = _TILES[word]
    options = [(large, 1.0), (small, 0.5)]
    if word == 4:
        options.insert(1, (_MIDDLE, 0.8))

    def time(option: tuple[dict[str, int], float]) -> float:
        tile, rate = option
        tiles = counts[0] * -(-counts[1] // tile["ROWS"]) * -(-counts[2] // (tile["COLUMNS"] * lanes))
        waves = max(1.0, tiles / _BUSY)
        return waves * tile["ROWS"] * tile["COLUMNS"] / rate

    return min(options, key=time)[0]


def _loads(each: ProductPass, side: int, itemsize: int) -> tuple[int, int]:
    """Cells of an aligned vector of a factor, and whether it lies along the depth."""
    own, depth = each.groups[1 + side], each.groups[3]
    axes = (*each.groups[0], *own, *depth)
    for deep, group in ((0, own), (1, depth)):
        if group[-1].strides[side] == 1:
            others = [a.strides[side] for a in axes if a is not group[-1]]
            width = min(_VECTOR_BYTES // itemsize, _DEPTH)
            while group[-1].size % width or any(stride % width for stride in others):
                width //= 2
            return width, deep
    return 1, int(min(a.strides[side] for a in depth) < min(a.strides[side] for a in own))


def _whole(each: ProductPass, chunk: int) -> bool:
    """Whether every chunk of columns is contiguous and aligned in the output."""
    batch, rows, columns, _ = each.groups
    last = columns[-1]
    others = (*batch, *rows, *columns[:-1])
    return last.out == 1 and last.size % chunk == 0 and all(a.out % chunk == 0 for a in others)


class _MatmulLaunch:
    """cuBLAS on ``(batch, rows, depth)`` and ``(batch, depth, columns)``; tables in other layouts are copied."""

    def __init__(self, each: ProductPass, semiring: Semiring) -> None:
        batch, rows, columns, depth = each.groups
        self._inputs, self._output = each.inputs, each.output
        self._left = _Matrix((batch, rows, depth), 0, semiring)
        self._right = _Matrix((batch, depth, columns), 1, semiring)
        out = [tuple(replace(a, strides=(a.out,)) for a in group) for group in (batch, rows, columns)]
        self._out = _Matrix((out[0], out[1], out[2]), 0, semiring)
        self._dtype = semiring.dtype
        self.direct = all(m.strides is not None for m in (self._left, self._right, self._out))

    def __call__(self, arrays: Sequence[Any]) -> None:
        left = self._left.view(arrays[self._inputs[0]])
        right = self._right.view(arrays[self._inputs[1]])
        target = arrays[self._output]
        if self._out.strides is not None:
            out = self._out.view(target)
            if self._out.strides[2] == 1:
                cupy().matmul(left, right, out=out)
            else:
                cupy().matmul(_transposed(right), _transposed(left), out=_transposed(out))
            return
        product = empty(math.prod(self._out.shape), self._dtype).reshape(self._out.shape)
        cupy().matmul(left, right, out=product)
        self._out.scatter(product.reshape(-1), target)


class _Matrix:
    """A table seen as a stack of matrices; strides in cells, None where a group of axes has no single one."""

    def __init__(self, groups: tuple[tuple[Axis, ...], ...], table: int, semiring: Semiring) -> None:
        axes = [[Axis(a.size, (a.strides[table],), 0) for a in group] for group in groups]
        self.shape = tuple(math.prod(a.size for a in group) for group in axes)
        single = [_single(group) for group in axes]
        self.strides = None if None in single else tuple(s for s in single if s is not None)
        if self.strides is not None and 1 not in self.strides[1:]:
            self.strides = None
        self._semiring = semiring
        flat = [a for group in axes for a in group]
        cells = [math.prod(a.size for a in flat[i + 1 :]) for i in range(len(flat))]
        packed = [Axis(a.size, a.strides, c) for a, c in zip(flat, cells, strict=True)]
        scattered = sorted(
            (Axis(a.size, (c,), a.strides[0]) for a, c in zip(flat, cells, strict=True)), key=lambda a: -a.out
        )
        itemsize = semiring.itemsize
        if self.strides is None:
            self._gather = DeviceRun(gather_step(packed, itemsize), semiring, math.prod(self.shape))
            self._scatter = DeviceRun(gather_step(scattered, itemsize), semiring, math.prod(self.shape))

    def view(self, table: Any) -> Any:
        """Return the table as an array ``(batch, rows, columns)``, copied where it must be."""
        if self.strides is None:
            return self._gather([table.reshape(-1)]).reshape(self.shape)
        step = table.dtype.itemsize
        return cupy().lib.stride_tricks.as_strided(table.reshape(-1), self.shape, tuple(s * step for s in self.strides))

    def scatter(self, packed: Any, table: Any) -> None:
        """Write packed matrices back into the table's own layout."""
        self._scatter([packed], table)


def _transposed(matrices: Any) -> Any:
    return matrices.transpose(0, 2, 1)


def _single(group: Sequence[Axis]) -> int | None:
    """Return the stride of a group as one axis, None if it has none."""
    for outer, inner in pairwise(group):
        if outer.strides[0] != inner.size * inner.strides[0]:
            return None
    return group[-1].strides[0] if group else 0
