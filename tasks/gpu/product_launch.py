"""Matrix-like steps on a GPU: a register-tiled tropical product, and cuBLAS for sums of products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ..steps.semiring import Semiring
from .kernels import Launch, cupy, kernel
from .stream_launch import bound_of, fill_axes
from .tiling.device_limits import NOMINAL
from .tiling.passes import ProductPass
from .tiling.product_tiles import (
    DEPTH,
    PAD,
    cells_of,
    factor_loads,
    product_tiles,
    step_depth,
    whole_chunks,
)
from .tiling.streams import AXES, VECTOR_BYTES, Axis

# Rows, columns and depth from which cuBLAS pays.
_CUBLAS_LEAST_CELLS: Final = 64
# Bytes of a stage of both factors up to which four stages are in shared memory, not three.
_PRODUCT_SMALL_STAGE_BYTES: Final = 12 << 10

_THREADS: Final = NOMINAL.registers // 128
"""Threads of a multiprocessor: each then has 128 registers, enough for its share of a tile."""


def product_launch(each: ProductPass, semiring: Semiring) -> Callable[[Sequence[int]], None]:
    """Choose cuBLAS or the tiled kernel, which takes tables of any layout."""
    least = min(cells_of(group) for group in each.groups[1:])
    if semiring.name == "sum_product" and least >= _CUBLAS_LEAST_CELLS:
        matmul = _MatmulLaunch(each, semiring)
        if matmul.direct:
            return matmul
    return _tiled_launch(each, semiring)


def _tiled_launch(each: ProductPass, semiring: Semiring) -> Launch:
    """Prepare a matrix product of tiles in shared memory.

    Parameters
    ----------
    each : ProductPass
        Tables and groups of axes: batch, rows, columns, depth.
    semiring : Semiring
    """
    itemsize = semiring.itemsize
    tensor = semiring.name == "sum_product" and semiring.dtype == "float64"
    tiling = product_tiles(each.groups, itemsize)
    tile = tiling.tile
    deep = DEPTH if tensor else step_depth(cells_of(each.groups[3]))
    stage = deep * (tile.rows + tile.columns + 2 * PAD) * max(itemsize, 4)
    constants = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "TALL": tile.tall,
        "BROAD": tile.broad,
        "DEPTH": deep,
        "RESIDENT": _THREADS // tile.threads,
    }
    if tensor:
        constants |= {"TENSOR": 1, "WARP_ROWS": tile.warp_rows}
    stages = 4 if stage <= _PRODUCT_SMALL_STAGE_BYTES else 3
    for side, name in enumerate(("LEFT", "RIGHT")):
        loads = factor_loads(tiling, side, itemsize, deep)
        constants |= {f"{name}_VECTOR": loads.width, f"{name}_DEEP": int(loads.deep)}
        constants[f"{name}_STAGED"] = int(loads.staged)
        # a factor that goes through registers needs no more than two buffers
        stages = 2 if loads.staged else stages
    shared = stage * stages
    compiled = kernel("product", semiring.name, semiring.dtype, STAGES=stages, **constants)
    compiled.max_dynamic_shared_size_bytes = shared
    record = np.zeros((), _PRODUCT)
    fill_axes(record, tiling.groups, 3)
    record["bound"] = bound_of(semiring)
    counts = (tiling.batches, *(cells_of(group) for group in tiling.groups[1:]))
    record["counts"] = (*counts, tiling.row_tiles, tiling.column_tiles, tiling.span)
    record["whole"] = whole_chunks(tiling.groups, VECTOR_BYTES // itemsize)
    record["order"][: len(tiling.order)] = tiling.order
    return Launch(compiled, record, (each.reads, each.writes), tiling.blocks, tile.threads, shared)


_PRODUCT: Final = np.dtype(
    [
        ("inputs", "u8", 2),
        ("out", "u8"),
        ("bound", "i8"),
        ("stride", "i8", (3, AXES)),
        ("size", "u4", AXES),
        ("segment", "i4", 5),
        ("counts", "u4", 7),
        ("whole", "i4"),
        ("order", "u2", 512),
    ],
    align=True,
)
"""The layout of ``Step`` in ``cuda/product.cu``."""


class _MatmulLaunch:
    """cuBLAS on ``(batch, rows, depth)`` and ``(batch, depth, columns)``, where the tables are laid out for it."""

    def __init__(self, each: ProductPass, semiring: Semiring) -> None:
        batch, rows, columns, depth = each.groups
        self._inputs, self._output, self._dtype = each.inputs, each.output, np.dtype(semiring.dtype)
        out = [tuple(replace(a, strides=(a.out,)) for a in group) for group in (batch, rows, columns)]
        self._left, self._right = _matrices((batch, rows, depth), 0), _matrices((batch, depth, columns), 1)
        self._out = _matrices((out[0], out[1], out[2]), 0)
        self.direct = None not in (self._left, self._right, self._out)

    def __call__(self, addresses: Sequence[int]) -> None:
        left = self._view(self._left, addresses[self._inputs[0]])
        right = self._view(self._right, addresses[self._inputs[1]])
        out = self._view(self._out, addresses[self._output])
        if out.strides[2] == out.itemsize:
            cupy().matmul(left, right, out=out)
        else:
            cupy().matmul(_transposed(right), _transposed(left), out=_transposed(out))

    def _view(self, matrices: tuple[tuple[int, ...], tuple[int, ...]] | None, address: int) -> Any:
        """See a table that its owner holds as a stack of matrices."""
        assert matrices is not None
        shape, strides = matrices
        step = self._dtype.itemsize
        nbytes = step * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
        cuda = cupy().cuda
        there = cuda.MemoryPointer(cuda.UnownedMemory(address, nbytes, None), 0)
        return cupy().ndarray(shape, self._dtype, there, tuple(s * step for s in strides))


def _matrices(groups: Sequence[tuple[Axis, ...]], table: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return shape and strides of a table as a stack of matrices, None where it cannot be seen as one."""
    strides = [_single(group, table) for group in groups]
    found = tuple(s for s in strides if s is not None)
    if len(found) < len(groups) or 1 not in found[1:]:
        return None
    return tuple(cells_of(group) for group in groups), found


def _transposed(matrices: Any) -> Any:
    return matrices.transpose(0, 2, 1)


def _single(group: Sequence[Axis], table: int) -> int | None:
    """Return the stride of a group as one axis, None if it has none."""
    for outer, inner in pairwise(group):
        if outer.strides[table] != inner.size * inner.strides[table]:
            return None
    return group[-1].strides[table] if group else 0
