"""Approximate seconds of launches, by which several ways to compute a step are compared. Pure: no values.

A brick's price counts a warp's instructions, the rounds of accesses to shared memory, and the sectors of tables that
are read and written, at the rates of `BrickRates`. A stream's price counts loads, and the sectors that warps touch, at
the rates of `StreamRates`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ...steps.light_dataclass import dataclass
from ...steps.policy import Policy
from ...steps.semiring import Semiring
from .brick_cells import lanes
from .brick_layout import BRICK_WORD_BYTES, Brick, BrickSlice, held_blocks
from .passes import BrickPass, BucketPass, JoinPass, Pass, ProductPass, ReorderPass, StreamPass
from .product_tiles import product_seconds
from .streams import VECTOR_BYTES, Axis, Stream
from .tiling_policy import FAR_BYTES, LAUNCH_SECONDS, NOMINAL

# The minimum time of a launch of joins and of a launch of a bucket, and the time for each cell that it writes.
# Fitted to 256 launches on one H100, all of which take between two thirds and one and a half times the prediction.
_JOIN_SECONDS: Final = (6.8e-6, 18.3e-12)
_BUCKET_SECONDS: Final = (8.6e-6, 8.5e-12)
# Bytes per second that a launch without bricks reads and writes.
_JOINED_BYTES_PER_SECOND: Final = 0.7e12
# Minimum time of a launch that copies a table in another order of axes, and the bytes per second that it reads and
# writes.
_REORDER_SECONDS: Final = 15e-6
_REORDERED_BYTES_PER_SECOND: Final = 1.7e12

_BATCH: Final = 8
"""Cells that a thread loads before it stores the first; as in ``cuda/brick.cu``."""


@dataclass(frozen=True)
class BrickRates(Policy):
    """Costs of bricks, in cycles of a warp if not said otherwise.

    Fitted to 832 launches of 240 steps on one H100 (``tests/bench/gpu_steps.py``): for 94% of them the measured time is
    between two thirds and one and a half times the prediction.

    Parameters
    ----------
    begin : float
        The time that a block waits before its first brick.
    stage, slice : float
        A stage of a brick, and a slice that it copies.
    item, spread : float
        The cost of one copy of a thread; then the cost of each of its cells that is stored alone.
    read_sector, stored_round : float
        A sector that a warp's copy reads; a round of the banks of shared memory that it is stored in.
    load, arithmetic, store : float
        A round of the banks of shared memory; an operation in registers; a word of the output.
    issue, most_issued : float
        Cycles between two instructions of a warp; instructions of all warps of a multiprocessor in a cycle, at most.
    wait, wait_ahead : float
        Cycles that a stage waits for its slices; where they were copied ahead.
    wait_batch : float
        Cycles that a copy waits for a few cells which are loaded and stored, not copied by the device.
    cycles : float
        Of a multiprocessor in a second.
    read_bytes, written_bytes : float
        Of the device's memory in a second.
    far_run : float
        Bytes that could be read while neighbouring cells are, besides them, for each doubling of a far table.
    partial_sector : float
        Share of a sector that a store takes more which does not fill it.
    ragged_run, broken_line : float
        Bytes that could be written while neighbouring cells are, besides them, that begin or end within a sector; and
        within a line.
    run_beside : float
        Share of that where the next brick goes on there.
    """

    begin: float = 9400.0
    stage: float = 22.6
    slice: float = 2.8
    item: float = 2.5
    spread: float = 4.2
    read_sector: float = 2.95
    stored_round: float = 2.2
    load: float = 4.8
    arithmetic: float = 1.42
    store: float = 12.0
    issue: float = 3.7
    most_issued: float = 3.6
    wait: float = 3900.0
    wait_ahead: float = 460.0
    wait_batch: float = 350.0
    cycles: float = 1.7e9
    read_bytes: float = 2.55e12
    written_bytes: float = 2.33e12
    far_run: float = 16.0
    partial_sector: float = 0.47
    ragged_run: float = 230.0
    broken_line: float = 58.0
    run_beside: float = 0.52


def passes_seconds(
    passes: Sequence[Pass], input_cells: Sequence[int], temporaries: Sequence[int], out_cells: int, semiring: Semiring
) -> float:
    """Predict the total seconds of the passes of a step; passes that only move tables are predicted roughly.

    Parameters
    ----------
    passes : sequence of Pass
    input_cells, temporaries : sequence of int
        Cells of the inputs and of the tables between passes.
    out_cells : int
    semiring : Semiring
    """
    cells = [*input_cells, *temporaries, out_cells]
    return sum([pass_seconds(each, cells, semiring) for each in passes])


def pass_seconds(each: Pass, cells: Sequence[int], semiring: Semiring) -> float:
    """Predict the seconds of a pass.

    Parameters
    ----------
    each : Pass
    cells : sequence of int
        Cells of all tables by their numbers: inputs, temporaries, output.
    semiring : Semiring
    """
    itemsize = semiring.itemsize
    if isinstance(each, BrickPass):
        return brick_seconds(each.brick, itemsize)
    if isinstance(each, ProductPass):
        return product_seconds(each, semiring)
    moved = sum([cells[t] for t in (*each.reads, *each.writes)]) * itemsize
    if isinstance(each, ReorderPass):
        return _REORDER_SECONDS + moved / _REORDERED_BYTES_PER_SECOND
    least = moved / _JOINED_BYTES_PER_SECOND
    if isinstance(each, JoinPass | BucketPass):
        launch, cell = _JOIN_SECONDS if isinstance(each, JoinPass) else _BUCKET_SECONDS
        return launch + max(least, sum([cells[t] for t in each.writes]) * cell)
    if isinstance(each, StreamPass):  # cell by cell they are no faster than other joins; vectors are
        computed = stream_seconds(each.stream, itemsize)
        least = max(computed, least) if each.stream.width == 1 else computed
    return LAUNCH_SECONDS + least


def brick_seconds(brick: Brick, itemsize: int) -> float:
    """Predict a launch."""
    return _seconds(brick, itemsize, _work(brick, itemsize))


def resident(brick: Brick, itemsize: int) -> Brick:
    """Return a brick with as many blocks as the device holds at a time, and copies ahead where that takes less.

    The work of a block before its first brick takes as long as many bricks.
    """
    options = list[Brick]()
    for ahead in (False, True):
        blocks = min(brick.blocks, NOMINAL.processors * held_blocks(brick, itemsize, 1 + ahead))
        if not ahead or blocks < math.prod([a.size for a in (*brick.bricks, *brick.stages)]):
            options.append(replace(brick, blocks=blocks, ahead=ahead))
    work = _work(options[0], itemsize)
    return min(options, key=lambda each: _seconds(each, itemsize, work))


_Work = tuple[float, float, float, float]
"""Cycles of a warp in all bricks, rounds in which copies wait for loads, and seconds of reading and of writing."""


def _work(brick: Brick, itemsize: int) -> _Work:
    rates = BrickRates.current()
    stages, bricks = math.prod([a.size for a in brick.stages]), math.prod([a.size for a in brick.bricks])
    issued = bricks * stages * (rates.stage + _computed(brick, itemsize, rates)) + bricks * rates.store * _stored(
        brick, itemsize
    )
    read = batches = 0.0
    for t, piece in enumerate(brick.slices):
        axes = (*brick.bricks, *brick.stages)
        last = max((i for i, a in enumerate(axes) if a.strides[t]), default=-1)
        times = max(math.prod([a.size for a in axes[: last + 1]]), brick.blocks)
        issued += times * _copied(piece, itemsize, rates)
        if piece.spread or piece.unit * itemsize < BRICK_WORD_BYTES:
            batches += times * -(-piece.far_items // _BATCH)
        table = math.prod([a.size for a in axes if a.strides[t]]) * _cells(piece) * itemsize
        if table > NOMINAL.cached_bytes:
            far = rates.far_run * max(0.0, math.log2(table / FAR_BYTES))
            read += table * _overhead(piece, [a.strides[t] for a in axes if a.strides[t]], itemsize, far)
    written = bricks * _written(brick, itemsize, rates) / rates.written_bytes
    return issued, batches, read / rates.read_bytes, written


def _seconds(brick: Brick, itemsize: int, work: _Work) -> float:
    rates, (issued, batches, read, written) = BrickRates.current(), work
    warps, items = -(-brick.threads // NOMINAL.warp), math.prod([a.size for a in (*brick.bricks, *brick.stages)])
    blocks = min(held_blocks(brick, itemsize, 1 + brick.ahead), -(-brick.blocks // NOMINAL.processors))
    busy = issued * warps / min(rates.most_issued, blocks * warps / rates.issue)
    waiting = brick.blocks * rates.begin + items * (rates.wait_ahead if brick.ahead else rates.wait)
    waiting = (waiting + batches * rates.wait_batch) / blocks
    each = min(NOMINAL.processors, brick.blocks)
    return LAUNCH_SECONDS + max((busy + waiting) / each / rates.cycles, read + written)


def _computed(brick: Brick, itemsize: int, rates: BrickRates) -> float:
    """Cycles of a warp for the states of a stage."""
    inner, outer = brick.states
    first, second = [s for s in brick.slices if s.inner], [s for s in brick.slices if not s.inner]
    loads = float((inner + 1) * -(-len(brick.slices) // 4))  # of where they are, four at once
    loads += inner * sum([_loads(brick, s, itemsize) for s in first]) + sum(
        [_loads(brick, s, itemsize) for s in second]
    )
    words = _words(brick, itemsize)
    work = inner * _joined(brick.rows, words, first)
    work += _joined(brick.rows, words, second) + brick.rows * words if second else 0.0
    return outer * (rates.load * loads + rates.arithmetic * work)


def _words(brick: Brick, itemsize: int) -> float:
    """Operands of a row: pairs of 16 bits are one."""
    return lanes(brick.columns) / 2 if itemsize == 2 and brick.columns > 1 else brick.columns


def _loads(brick: Brick, piece: BrickSlice, itemsize: int) -> float:
    """Rounds of the banks in which a warp reads what a state needs of a slice."""
    most = VECTOR_BYTES // itemsize
    vector = -(-lanes(brick.columns) // most)
    tall = brick.rows if brick.rows % 2 or brick.rows == 6 else -(-brick.rows // most)
    width = lanes(brick.columns) if piece.columns else brick.rows if piece.rows and tall < brick.rows else 1
    at = _first(brick.places[: brick.ends[0]], piece.places)
    times = (
        brick.rows * vector if piece.rows and piece.columns else vector if piece.columns else tall if piece.rows else 1
    )
    return times * _rounds(at, itemsize, min(width, most))


def _joined(rows: int, words: float, some: Sequence[BrickSlice]) -> float:
    """Operations that multiply the inputs of one kind of states, and add."""
    both = sum(s.rows and s.columns for s in some)
    wide = sum(s.columns and not s.rows for s in some)
    tall = len(some) - both - wide
    work = max(0, both - 1) * rows * words + max(0, tall - 1) * rows + max(0, wide - 1) * words
    return work + rows * words * (2 if both and (tall or wide) else 1)


def _stored(brick: Brick, itemsize: int) -> float:
    """Words of the output that a thread stores."""
    if brick.vectors:
        return brick.rows * (1 + _words(brick, itemsize) / 2)
    return brick.rows * brick.columns * 1.5


def _copied(piece: BrickSlice, itemsize: int, rates: BrickRates) -> float:
    """Cycles of a warp to copy a slice once."""
    sizes = [c.size for c in piece.near]
    read, stored = _first(sizes, [c.source for c in piece.near]), _first(sizes, [c.target for c in piece.near])
    sectors = {(c + k) * itemsize // NOMINAL.sector_bytes for c in read for k in range(piece.unit)}
    rounds = piece.unit * _rounds(stored, itemsize, 1) if piece.spread else _rounds(stored, itemsize, piece.unit)
    each = rates.item * (1 if piece.spread or piece.unit * itemsize >= BRICK_WORD_BYTES else 2)
    each += rates.spread * piece.unit if piece.spread else 0.0
    return rates.slice + piece.far_items * (each + rates.read_sector * len(sectors) + rates.stored_round * rounds)


def _cells(piece: BrickSlice) -> int:
    """Cells that a slice reads; a cell that it holds several times, because cells of a thread share it, counts once."""
    return math.prod([c.size for c in piece.near + piece.far if c.source]) * piece.unit


def _overhead(piece: BrickSlice, outer: Sequence[int], itemsize: int, more: float) -> float:
    """Bytes of the sectors that a copy touches, and ``more`` bytes for each run of them, for each byte of its cells."""
    run, rest = piece.unit, list[int]()
    for copy in sorted([c for c in piece.near + piece.far if c.source], key=lambda c: c.source):
        if not rest and copy.source == run:
            run *= copy.size
        else:
            rest.append(copy.source)
    nbytes, sector = run * itemsize, NOMINAL.sector_bytes
    aligned = all(step * itemsize % sector == 0 for step in (*outer, *rest))
    return (more + (-(-nbytes // sector) * sector if aligned else nbytes + sector - itemsize)) / nbytes


def _written(brick: Brick, itemsize: int, rates: BrickRates) -> float:
    """Bytes that a brick writes, with the additional cost of sectors and lines that are written in part."""
    width = lanes(brick.columns) if brick.vectors else 1
    at = _first(brick.places[: brick.ends[0]], brick.out_places)
    covered = Counter((c + k) * itemsize // NOMINAL.sector_bytes for c in at for k in range(width))
    whole = NOMINAL.sector_bytes // itemsize
    cells = brick.threads * brick.rows * brick.columns
    stored = cells / (len(at) * width) * sum([count < whole for count in covered.values()])
    total = cells * itemsize + stored * NOMINAL.sector_bytes * rates.partial_sector
    run = written_run(brick)
    if run * itemsize % NOMINAL.line_bytes:
        ends = rates.ragged_run if ragged(brick, itemsize) else rates.broken_line
        total += cells / run * ends * (rates.run_beside if brick.bricks[-1].out == run else 1.0)
    return total


def written_run(brick: Brick) -> int:
    """Return how many neighbouring cells of the output a brick writes."""
    return min([axis.out for axis in brick.bricks], default=NOMINAL.line_bytes)


def ragged(brick: Brick, itemsize: int) -> bool:
    """Whether what a brick writes begins and ends within a sector."""
    return written_run(brick) * itemsize % NOMINAL.sector_bytes > 0


def _first(sizes: Sequence[int], steps: Sequence[int]) -> list[int]:
    """Where the threads of a first warp lie, the first axis fastest."""
    at = [0]
    for size, step in zip(sizes, steps, strict=False):
        if len(at) >= NOMINAL.warp:
            break
        at = [base + i * step for i in range(size) for base in at]
    return at[: NOMINAL.warp]


def _rounds(cells: Sequence[int], itemsize: int, width: int) -> int:
    """Rounds in which the banks of shared memory serve a warp's accesses to some cells each."""
    words = {c * itemsize // 4 + w for c in cells for w in range(max(1, width * itemsize // 4))}
    return max(Counter(word % (NOMINAL.bank_row_bytes // 4) for word in words).values())


@dataclass(frozen=True)
class StreamRates(Policy):
    """Costs of streams, in seconds for a warp.

    Fitted to 124 launches of steps of seeds 7 to 13 and 100 to 111 on one H100 (``tests/bench/gpu_steps.py``), of 0.04
    to 27 ms and from 0.02 to 1.5 Tcells/s: 93% take between half and twice what they say.

    Parameters
    ----------
    load, wide_load : float
        A load; of values of 8 bytes.
    sector, missed_sector, far_sector : float
        A sector that a load touches; that the cache of a multiprocessor misses, besides; of a table that no cache
        holds, besides.
    stored_sector, far_stored_sector : float
        A sector that a store touches; of a table that no cache holds, besides.
    moved_byte : float
        Every byte of the tables.
    near_bytes : int
        Tables up to this size stay in the cache of a multiprocessor.
    """

    load: float = 8e-12
    wide_load: float = 25e-12
    sector: float = 1.0e-12
    missed_sector: float = 1.15e-12
    far_sector: float = 2e-12
    stored_sector: float = 3e-12
    far_stored_sector: float = 5.5e-12
    moved_byte: float = 1.2e-13
    near_bytes: int = 100_000


@lru_cache(maxsize=4096)
def stream_seconds(stream: Stream, itemsize: int) -> float:
    """Predict the seconds of a streaming launch, without the fixed costs of a launch.

    Parameters
    ----------
    stream : Stream
    itemsize : int
        Bytes of a cell.
    """
    rates, (tiles, low, blocks, states) = StreamRates.current(), stream.segments
    deep = stream.unrolled or math.prod([a.size for a in (*blocks, *states)])
    positions = math.prod([a.size for a in low])
    lanes = min(NOMINAL.warp, positions)
    warps = math.prod([a.size for a in tiles]) * positions / lanes
    digits = _digits(low, lanes)
    total, sector = 0.0, NOMINAL.sector_bytes
    for t, (step, vector) in enumerate(zip(stream.lanes, stream.vectors, strict=True)):
        width = stream.width if vector else 1
        starts = _places(digits, [a.strides[t] for a in low])
        # memory is read in sectors: the price depends on how many of them a warp touches
        touched = len({(at + j) * itemsize // sector for at in starts for j in {0, width - 1}})
        loads = warps * deep * (stream.width if step and not vector else 1)
        cells = math.prod([a.size for a in (*tiles, *low, *blocks, *states) if a.strides[t]])
        nbytes = cells * itemsize * (stream.width if step else 1) * (stream.unrolled if any(stream.shifts[t]) else 1)
        sectors = loads * touched
        missed = sectors * _missed(touched, lanes, [(a.strides[t], a.size) for a in states], itemsize)
        total += loads * (rates.wide_load if itemsize > 4 else rates.load) + sectors * rates.sector
        total += missed * rates.missed_sector * (nbytes > rates.near_bytes)
        total += missed * rates.far_sector * (nbytes > NOMINAL.cached_bytes)
        total += nbytes * rates.moved_byte
    starts = _places(digits, [a.out for a in low])
    stored = warps * len({(at + j) * itemsize // sector for at in starts for j in {0, stream.width - 1}})
    nbytes = math.prod([a.size for a in (*tiles, *low)]) * stream.width * itemsize
    far = rates.far_stored_sector * (nbytes > NOMINAL.cached_bytes)
    return total + stored * (rates.stored_sector + far) + nbytes * rates.moved_byte


def _missed(touched: int, lanes: int, deep: Sequence[tuple[int, int]], itemsize: int) -> float:
    """Share of sectors that a load does not find where the one before it, of the next state, has brought them."""
    steps = [step for step in deep if step[0]]
    if not steps or touched <= lanes // 4:
        return 1.0
    stride, size = min(steps)
    return min(1.0, max(stride * itemsize / NOMINAL.sector_bytes, 1 / size))


def _digits(axes: Sequence[Axis], count: int) -> list[list[int]]:
    """The first positions of a segment, by their number along each axis."""
    found = list[list[int]]()
    for number in range(count):
        digits, rest = [0] * len(axes), number
        for i in range(len(axes) - 1, -1, -1):
            rest, digits[i] = divmod(rest, axes[i].size)
        found.append(digits)
    return found


def _places(digits: Sequence[Sequence[int]], strides: Sequence[int]) -> list[int]:
    return [sum([d * stride for d, stride in zip(each, strides, strict=True)]) for each in digits]
