"""Tiles of a matrix-like launch: which cells of rows and columns a block of threads computes together, and when.

Axes are split so that a tile covers whole lines of memory in both factors and in the output, for every order of their
axes. The remaining parts of rows and columns go to the batches, which are taken in an order that finds lines and
factors in the cache. Pure: no values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from ...steps.light_dataclass import dataclass
from ...steps.policy import Policy
from ...steps.semiring import Semiring
from .pass_axes import fused
from .passes import ProductPass
from .streams import AXES, VECTOR_BYTES, Axis, divisor
from .tiling_policy import NOMINAL

# Depths of a round of a product, in the order of preference.
_PRODUCT_DEPTH_STATES: Final = (8, 9, 10, 7, 6, 5)
# Share of a product that a depth other than the usual one must save.
_PRODUCT_DEPTH_GAIN_SHARE: Final = 0.15
# Depth from which a block takes one batch, which is work enough.
_PRODUCT_LONG_STATES: Final = 256
# Bytes of the right factor that all rows are computed from before the next ones are read.
_PRODUCT_NEAR_BYTES: Final = 1 << 21
# Columns follow the right factor, not the output, where the depth has this many times the rows of a tile.
_PRODUCT_DEEP_RATIO: Final = 8
# Share of a tile that must be filled for parts of axes to be taken.
_PRODUCT_FULL_SHARE: Final = 0.9

# Blocks that a product has at least before a block takes several batches.
_BATCH_BLOCKS: Final = 32 * NOMINAL.processors

DEPTH: Final = 8
"""Depth of a step usually, and always on matrix units; as in ``cuda/product.cu``, like the next two."""

PAD: Final = 4
SPAN: Final = 16
"""Batches that a block takes one after another at most."""

_LINE_CELLS: Final = NOMINAL.line_bytes // 8
"""Cells side by side of rows in a tile: a cache line of 8-byte values."""


Group = tuple[Axis, ...]
Groups = tuple[Group, Group, Group, Group]


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns (in words) of a block's tile, of a thread, rows of a warp, and its rate of arithmetic."""

    rows: int
    columns: int
    tall: int
    broad: int
    warp_rows: int
    rate: float

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows // self.tall * (self.columns // self.broad)


_TILES: Final = {
    4: (
        Tile(128, 128, 8, 8, 0, 1.0),
        Tile(64, 64, 8, 8, 0, 0.8),
        Tile(32, 128, 8, 8, 0, 0.75),
        Tile(16, 256, 4, 8, 0, 0.65),
        Tile(32, 32, 4, 4, 0, 0.5),
    ),
    8: (
        Tile(64, 64, 4, 8, 32, 1.0),
        Tile(32, 128, 4, 8, 32, 0.95),
        Tile(16, 256, 4, 8, 16, 0.85),
        Tile(32, 32, 4, 4, 16, 0.5),
    ),
}
"""Tiles by bytes of a word. Larger ones of 8 bytes, with one block in a multiprocessor, were no faster."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tiled launch.

    Attributes
    ----------
    tile
    groups
        Axes of batches, rows, columns and depth; rows and columns that lie in other tiles may be batches.
    row_tiles, column_tiles
        Tiles of the groups that serve as rows and columns.
    span
        Batches of a block.
    order
        The columns of a tile as the right factor has them.
    """

    tile: Tile
    groups: Groups
    row_tiles: int
    column_tiles: int
    span: int
    order: tuple[int, ...]

    @property
    def batches(self) -> int:
        """Batches, tiles of rows and columns among them."""
        return cells_of(self.groups[0])

    @property
    def tiles(self) -> int:
        """All tiles."""
        return self.batches * self.row_tiles * self.column_tiles

    @property
    def blocks(self) -> int:
        """Blocks of threads."""
        return -(-self.batches // self.span) * self.row_tiles * self.column_tiles


def cells_of(group: Sequence[Axis]) -> int:
    """Return the cells of a group of axes."""
    return math.prod(a.size for a in group)


def product_tiles(groups: Groups, itemsize: int) -> Tiling:
    """Choose the tiling with the least predicted time: padded work, smaller tiles at a lower rate, idle processors."""
    lanes = 2 if itemsize == 2 else 1

    def time(tiling: Tiling) -> float:
        tile = tiling.tile
        return max(1.0, tiling.tiles / NOMINAL.processors) * tile.rows * tile.columns / tile.rate

    return min((_tiling(groups, tile, lanes, itemsize) for tile in _TILES[max(itemsize, 4)]), key=time)


def _tiling(groups: Groups, tile: Tile, lanes: int, itemsize: int) -> Tiling:
    batch, rows, columns, depth = groups
    wide = tile.columns * lanes
    line = NOMINAL.line_bytes // itemsize
    left, right = (lambda a: a.strides[0]), (lambda a: a.strides[1])
    near_rows, far_rows = _cut(rows, tile.rows, [left], _LINE_CELLS)
    # Columns go as the output has them, unless the right factor is much larger.
    runs = [_out, right] if cells_of(depth) < _PRODUCT_DEEP_RATIO * min(tile.rows, cells_of(rows)) else [right, _out]
    near_columns, far_columns = _cut(columns, wide, runs, line)
    if len(batch) + len(near_rows) + len(far_rows) + len(near_columns) + len(far_columns) + len(depth) > AXES:
        near_rows, far_rows, near_columns, far_columns = list(rows), [], list(columns), []
    near_rows.sort(key=left, reverse=True)
    near_columns.sort(key=runs[0], reverse=True)
    footprint = cells_of(depth) * wide * itemsize
    walk = _walk([*batch, *far_columns], far_rows, footprint)
    cut: Groups = (tuple(fused(walk)), tuple(fused(near_rows)), tuple(fused(near_columns)), depth)
    batches = cells_of(walk)
    row_tiles, column_tiles = -(-cells_of(near_rows) // tile.rows), -(-cells_of(near_columns) // wide)
    span = 1
    if cells_of(depth) < _PRODUCT_LONG_STATES:
        span = max(1, min(SPAN, batches, batches * row_tiles * column_tiles // _BATCH_BLOCKS))
    order = _load_order(near_columns, wide) if column_tiles == 1 else tuple(range(wide))
    return Tiling(tile, cut, row_tiles, column_tiles, span, order)


def _out(axis: Axis) -> int:
    return axis.out


def _cut(
    axes: Sequence[Axis], limit: int, runs: Sequence[Callable[[Axis], int]], line: int
) -> tuple[list[Axis], list[Axis]]:
    """Split a group into the axes of a tile of at most ``limit`` cells and the other axes.

    A tile first gets a line of neighboring cells of each table in ``runs``, then more cells of the first table. All
    axes stay together if no part of them nearly fills a tile.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    limit : int
        Most cells of a tile along the group.
    runs : sequence of callable
        Stride of an axis in each table that is read in lines.
    line : int
        Cells of a memory line.
    """
    cells = cells_of(axes)
    if cells <= limit:
        return list(axes), []
    parts = [1] * len(axes)
    room = limit
    for stride in runs:
        run = 1
        for i in sorted(range(len(axes)), key=lambda i: stride(axes[i])):
            grown = divisor(axes[i].size // parts[i], max(1, min(room, -(-line // (run * parts[i])))))
            parts[i] *= grown
            room //= grown
            run *= parts[i]
            if run >= line or parts[i] < axes[i].size:
                break
    for i in sorted(range(len(axes)), key=lambda i: runs[0](axes[i])):
        grown = divisor(axes[i].size // parts[i], room)
        parts[i] *= grown
        room //= grown
    # a tile with many idle rows is worse than one that covers the whole group and is cut at its end
    if math.prod(parts) / limit < _PRODUCT_FULL_SHARE * cells / (-(-cells // limit) * limit):
        return list(axes), []
    near = [Axis(p, a.strides, a.out) for a, p in zip(axes, parts, strict=True) if p > 1]
    far = [
        Axis(a.size // p, tuple(s * p for s in a.strides), a.out * p)
        for a, p in zip(axes, parts, strict=True)
        if p < a.size
    ]
    return near, far


def _walk(axes: Sequence[Axis], rows: Sequence[Axis], footprint: int) -> list[Axis]:
    """Order the batches: as the output has them, and all rows while their columns are still in the cache."""
    rest = sorted(axes, key=_out, reverse=True)
    near: list[Axis] = []
    while rest and footprint * rest[-1].size <= _PRODUCT_NEAR_BYTES:
        near.insert(0, rest.pop())
        footprint *= near[0].size
    return [*rest, *sorted(rows, key=_out, reverse=True), *near]


def _load_order(columns: Sequence[Axis], wide: int) -> tuple[int, ...]:
    """Number the columns of a tile as they follow each other in the right factor."""
    at = [0]
    for axis in columns:
        at = [base + i * axis.strides[1] for base in at for i in range(axis.size)]
    return (*sorted(range(len(at)), key=at.__getitem__), *range(len(at), wide))


@dataclass(frozen=True, slots=True)
class Loads:
    """How a factor is loaded: cells of an aligned vector, along the depth or not, and by way of registers or not."""

    width: int
    deep: bool
    staged: bool


def step_depth(depth: int) -> int:
    """Choose the depth of a step: the depth with the fewest unused states at the end."""

    def padded(step: int) -> float:
        return -(-depth // step) * step + (0 if step == DEPTH else _PRODUCT_DEPTH_GAIN_SHARE * depth)

    return min(_PRODUCT_DEPTH_STATES, key=padded)


def factor_loads(tiling: Tiling, side: int, itemsize: int, deep_cells: int = DEPTH) -> Loads:
    """Choose vectors: straight into shared memory they must be neighbours there too, and of 4 bytes.

    Along the depth they are parts of a step of ``deep_cells``.
    """
    own, depth = tiling.groups[1 + side], tiling.groups[3]
    axes = list(chain(tiling.groups[0], own, depth))
    ordered = side == 1 and tiling.column_tiles == 1
    order = tiling.order if ordered else ()
    lines = sorted(own, key=lambda a: -a.strides[side]) if ordered else own
    for deep, group in ((False, lines), (True, depth)):
        width = _width(group, axes, side, math.gcd(VECTOR_BYTES // itemsize, deep_cells if deep else 1 << 10))
        if width == 0:
            continue
        if deep:
            return Loads(width, True, itemsize == 2 or (itemsize == 4 and width > 1))
        together = all(order[i] + j == order[i + j] for i in range(0, len(order), width) for j in range(width))
        if itemsize == 2:
            return Loads(width, False, side == 0 or width == 1 or not together)
        return Loads(width if together else 1, False, False)
    deep = min(a.strides[side] for a in depth) < min(a.strides[side] for a in own)
    return Loads(1, deep, itemsize == 2)


def _width(group: Sequence[Axis], axes: Sequence[Axis], side: int, most: int) -> int:
    """Cells of the longest aligned vectors along the last axes of a group; 0 where they are not contiguous."""
    run, within = 1, []
    for axis in reversed(group):
        if axis.strides[side] != run:
            break
        run *= axis.size
        within.append(axis)
    if not within:
        return 0
    others = [a.strides[side] for a in axes if not any(a is b for b in within)]
    while run % most or any(stride % most for stride in others):
        most //= 2
    return most


def whole_chunks(groups: Groups, chunk: int) -> bool:
    """Whether every chunk of columns is contiguous and aligned in the output."""
    batch, rows, columns, _ = groups
    last = columns[-1]
    others = chain(batch, rows, columns[:-1])
    return last.out == 1 and last.size % chunk == 0 and all(a.out % chunk == 0 for a in others)


# Approximate seconds of a launch: its arithmetic, and the memory sectors and partial lines that its warps load and
# store.


@dataclass(frozen=True)
class ProductRates(Policy):
    """Rates that predict the seconds of products.

    Fitted to 89 launches of steps of seeds 7 to 13 and 100 to 135 on one H100 (``tests/bench/gpu_steps.py``): 95% take
    between half and twice the predicted time.

    Parameters
    ----------
    launch_seconds : float
    bytes_per_second : float
        Bytes in a second of tables that are moved once.
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
