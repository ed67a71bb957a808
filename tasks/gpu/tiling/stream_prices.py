"""Approximate seconds of a streaming launch: loads, and sectors that warps touch, mainly of large tables. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from ...steps.light_dataclass import dataclass
from ...steps.policy import Policy
from .device_limits import NOMINAL
from .streams import Axis, Stream


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
