"""Approximate seconds of a matrix-like launch: arithmetic, sectors that warps load and store, broken lines. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from ....steps.light_dataclass import dataclass
from ....steps.policy import Policy
from ....steps.semiring import Semiring
from ..device_limits import NOMINAL
from ..passes import ProductPass
from ..streams import VECTOR_BYTES, Axis
from .product_tiles import DEPTH, Tiling, cells_of, factor_loads, product_tiles, step_depth, whole_chunks


@dataclass(frozen=True)
class ProductRates(Policy):
    """What products cost.

    Fitted to 89 launches of steps of seeds 7 to 13 and 100 to 135 on one H100 (``tests/bench/gpu_steps.py``): 95% take
    between half and twice what they say.

    Parameters
    ----------
    launch_seconds : float
    bytes_per_second : float
        Of tables that are moved once.
    cells_of_words, cells_of_matrix_units : tuple of float, float
        Cells of tiles in a second, whether they are filled or not: of 2, 4 and 8 bytes, and of sums on matrix units.
    load_sector, store_sector : float
        Seconds of a sector that a warp loads or stores at once.
    far_load, far_store : float
        The same cost for an additional sector of a table that no cache holds, of which a tile has only a part: the
        sector is read again with other tiles, and written in parts.
    """

    launch_seconds: float = 12e-6
    bytes_per_second: float = 2.5e12
    cells_of_words: tuple[float, float, float] = 44e12, 15e12, 5.4e12
    cells_of_matrix_units: float = 16e12
    load_sector: float = 3.1e-12
    store_sector: float = 8.2e-12
    far_load: float = 9e-12
    far_store: float = 22e-12


def least_product_seconds(cells: int, moved_cells: int, semiring: Semiring) -> float:
    """Return a lower bound on the seconds of a product: the time of its arithmetic, or of its tables."""
    rates = ProductRates.current()
    return rates.launch_seconds + max(cells / _rate(semiring), moved_cells * semiring.itemsize / rates.bytes_per_second)


def _rate(semiring: Semiring) -> float:
    """Cells of full tiles in a second."""
    rates = ProductRates.current()
    units = on_matrix_units(semiring)
    return rates.cells_of_matrix_units if units else rates.cells_of_words[semiring.itemsize.bit_length() - 2]


def on_matrix_units(semiring: Semiring) -> bool:
    """Whether matrix units do the arithmetic."""
    return semiring.name == "sum_product" and semiring.dtype == "float64"


@lru_cache(maxsize=4096)
def product_seconds(each: ProductPass, semiring: Semiring) -> float:
    """Predict a launch."""
    itemsize, matrix_units = semiring.itemsize, on_matrix_units(semiring)
    rates, tiling = ProductRates.current(), product_tiles(each.groups, itemsize)
    tile, (rows, columns, depth) = tiling.tile, tiling.groups[1:]
    lanes = 2 if itemsize == 2 else 1
    deep = DEPTH if matrix_units else step_depth(cells_of(depth))
    steps = -(-cells_of(depth) // deep)
    padded = tiling.tiles * tile.rows * tile.columns * lanes * steps * deep
    total = rates.launch_seconds + padded / (_rate(semiring) * tile.rate)
    total += rates.load_sector * tiling.tiles * steps * sum([_loaded(tiling, t, itemsize, deep) for t in (0, 1)])
    height, width = min(tile.rows, cells_of(rows)), min(tile.columns * lanes, cells_of(columns))
    total += rates.store_sector * tiling.tiles * height * width * _stored(tiling, itemsize, matrix_units)
    near = _inner(rows, height), _inner(columns, width)
    for table, (far, own) in enumerate(
        ((rates.far_load, (near[0], depth)), (rates.far_load, (near[1], depth)), (rates.far_store, near))
    ):
        stride = _stride_in(table)
        nbytes = itemsize * math.prod([a.size for group in each.groups for a in group if stride(a)])
        cells = math.prod([cells_of(group) for group in own])
        broken = sectors(own, stride, itemsize)
        if nbytes > NOMINAL.cached_bytes and broken * NOMINAL.sector_bytes > _BROKEN * cells * itemsize:
            total += far * tiling.tiles * broken
    return total


_BROKEN = 1.3
"""Sectors count as broken if they have at least this many times the bytes that are used."""


def _stride_in(table: int) -> Callable[[Axis], int]:
    return lambda axis: (*axis.strides, axis.out)[table]


def _inner(group: Sequence[Axis], limit: int) -> list[Axis]:
    """The last axes of a group, with at most ``limit`` cells."""
    found = list[Axis]()
    for axis in reversed(group):
        part = min(axis.size, limit)
        found.insert(0, Axis(part, axis.strides, axis.out))
        limit //= part
    return found


def sectors(groups: Sequence[Sequence[Axis]], stride: Callable[[Axis], int], itemsize: int) -> int:
    """Sectors of a table that some cells lie in, about."""
    run, cells = 1, math.prod([cells_of(group) for group in groups])
    for axis in sorted([a for group in groups for a in group if a.size > 1], key=stride):
        if stride(axis) != run:
            break
        run *= axis.size
    return cells // run * -(-run * itemsize // NOMINAL.sector_bytes)


def _loaded(tiling: Tiling, side: int, itemsize: int, deep: int) -> float:
    """Sectors that the warps load for one step of a tile: as the first warp does."""
    loads, own, depth = factor_loads(tiling, side, itemsize, deep), tiling.groups[1 + side], tiling.groups[3]
    lines = (tiling.tile.rows, len(tiling.order))[side]
    cells = loads.width if loads.staged or not loads.deep else 1
    across = deep // (loads.width if loads.staged else 1) if loads.deep else lines // cells
    count = lines * deep // cells
    lengths, found = (cells_of(own), cells_of(depth)), set[int]()
    stride = _stride_in(side)
    for item in range(min(NOMINAL.warp, count)):
        outer, inner = divmod(item, across)
        line, k = (outer, inner * cells) if loads.deep else (inner * cells, outer)
        line = tiling.order[line] if side else line
        if line < lengths[0] and k < lengths[1]:
            found.add((_place(own, line, stride) + _place(depth, k, stride)) * itemsize // NOMINAL.sector_bytes)
    return len(found) * -(-count // NOMINAL.warp)


def _stored(tiling: Tiling, itemsize: int, matrix_units: bool) -> float:
    """Sectors that a warp stores at once for each cell: as the first warp does for its first row."""
    tile, (_, rows, columns, _) = tiling.tile, tiling.groups
    lanes, chunk = 2 if itemsize == 2 else 1, VECTOR_BYTES // max(itemsize, 4)
    across = tile.columns // tile.broad
    if matrix_units:
        first, vector = [(t // 4, t % 4 * 2) for t in range(NOMINAL.warp)], 2
    else:
        vector = chunk * lanes
        first = [(t // across * chunk, t % across * vector) for t in range(NOMINAL.warp)]
    whole = whole_chunks(tiling.groups, VECTOR_BYTES // itemsize)
    count = stored = 0
    stride = _stride_in(2)
    lengths = cells_of(rows), cells_of(columns)
    for j in range(1 if whole else vector):
        there = [(row, c + j) for row, c in first if row < lengths[0] and c + j < lengths[1]]
        places = [_place(rows, row, stride) + _place(columns, c, stride) for row, c in there]
        stored += len({at * itemsize // NOMINAL.sector_bytes for at in places})
        count += len(there) * (vector if whole else 1)
    return stored / max(1, count)


def _place(group: Sequence[Axis], number: int, stride: Callable[[Axis], int]) -> int:
    """Where a cell of a group lies in a table."""
    at = 0
    for axis in reversed(group):
        number, digit = divmod(number, axis.size)
        at += digit * stride(axis)
    return at
