"""Compiled loops of one stage of a large step: the part of one thread."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from ..compiler.jit import njit
from ..compiler.pthreads import calling, reader
from ..compiler.vectors import fill, number, put_number, put_word, word
from ..cpu.product import Multiplication
from ..cpu.stream_loops import Scratch, StreamNest
from ..steps.products import TILE_ROWS
from .packed_loops import (
    LOOSE_AT,
    LOWEST_AT,
    SAME_AT,
    bounds,
    describe,
    greatest,
    is_due,
    least,
    mark_readers,
    same_ratios,
    spread,
)
from .stages import MOST_PLACES

GROUP, PREPARE, MERGE, STREAM, ORDER, MEASURE, SCALE, TOP, COMPARE, COPY, FINISH = range(11)
"""Kinds of items: a group of small steps, and the stages of a large one in their order."""

#: The fate of a large step: not run, made in its place, made beside it to be compared, copied because it differs.
IDLE, _DIRECT, _BESIDE, _CHANGED = range(4)


class Large(NamedTuple):
    """A large step, all int64; areas and tables are places in the values, offsets and words of parts addresses.

    Parameters
    ----------
    step, table, out_parts : int
        Its number, the table that it makes, and the parts of stages that go over that.
    code, code_words, offsets : int
        From which offsets are filled, and where.
    addresses, operands : int
        Where the addresses of the operands and the output are, and their number.
    parts_at, places, words : int
        Buffers of the parts, words of the places at the beginning of each, all words of each.
    target, summed : int
        The table that is summed or turned later, -1 if there is none, and the cells that are summed into one.
    room : int
        A result that is compared with the table that it replaces.
    ranges : int
        The axis that is cut into the parts of a product: 1 for batches, 0 for rows; -1 for loops.
    """

    step: int
    table: int
    out_parts: int
    code: int
    code_words: int
    offsets: int
    addresses: int
    operands: int
    parts_at: int
    places: int
    words: int
    target: int
    summed: int
    room: int
    ranges: int


LARGE_WORDS: Final = len(Large._fields)
_NEST_WORDS: Final = len(StreamNest._fields)
_PRODUCT_WORDS: Final = len(Multiplication._fields)
_STEP, _TABLE, _OUT_PARTS, _CODE, _CODE_WORDS, _OFFSETS, _ADDRESSES, _OPERANDS = range(8)
_PARTS_AT, _PLACES, _WORDS, _TARGET, _SUMMED, _ROOM, _RANGES = range(8, LARGE_WORDS)


class Stages(NamedTuple):
    """Constant data, as int64 arrays or their addresses: rows of :class:`Large`, their nests or products, joins.

    ``spreads`` are (code, first base, output) of joins that eliminate nothing: the merges of a step, and then the join
    that turns its target into the result, whose output is -1. ``words`` holds the data to which addresses in rows
    point.
    """

    large: Any
    nests: Any
    products: Any
    spreads: Any
    spread_start: Any
    codes: Any
    bases: Any
    words: Any


class Course(NamedTuple):
    """The changing state, as arrays or their addresses: by large step its mode, bounds of its result, extremes of
    parts.

    ``bounds`` are lower bound, upper bound and scale of the loops' result and of the final result. ``tops`` are two
    numbers for each part, for the largest number ``parts`` of any step: maximum and least positive value, then the
    maxima of the new table and of the previous table. ``done`` counts steps by thread, 8 words each.
    """

    mode: Any
    bounds: Any
    tops: Any
    done: Any
    parts: int


_call, _read_nest = calling(5), reader(StreamNest)
_call_product, _read_product = calling(7), reader(Multiplication)
_BOUNDS: Final = 6


@njit(nogil=True, cache=True)
def run_stage(
    law: Any,
    layout: Any,
    state: Any,
    stages: Any,
    course: Any,
    kind: int,
    step: int,
    part: int,
    parts: int,
    worker: int,
) -> None:
    """Run a part of a stage of large step number ``step``.

    Parameters
    ----------
    law : Any
        How kernels add and multiply, compiled in.
    layout : PackedLayout
    state : PackedState
    stages : Stages
    course : Course
        The stages of each step, and its current mode.
    kind : int
        One of ``schedule.STAGES``.
    step : int
        Number of the step among all.
    part, parts : int
        This part of how many; cells are cut evenly.
    worker : int
        Number of the thread whose buffers are used.
    """
    large = stages.large + 8 * LARGE_WORDS * step
    if kind == PREPARE:
        _prepare(layout, state, stages, course, large, step)
    mode = word(course.mode, step)
    if mode == IDLE or kind == PREPARE:
        return
    table = word(large, _TABLE)
    start, cells = word(layout.start, table), word(layout.cells, table)
    first, stop = cells * part // parts, cells * (part + 1) // parts
    made = start if mode == _DIRECT else word(large, _ROOM)
    here, there = state.values + 8 * start, state.values + 8 * made
    if kind == STREAM and word(large, _RANGES) >= 0:
        _multiply(layout.multiply, law, stages, large, step, part, parts)
    elif kind == STREAM:
        _stream(layout.stream, law, stages, large, step, part, parts)
    elif kind == MERGE or (kind == ORDER and word(large, _SUMMED) == 1):
        _spread(layout.iterate, state, stages, step, kind == ORDER, made, part, parts, worker)
    elif kind == ORDER:
        _sum_rows(state.values + 8 * word(large, _TARGET), word(large, _SUMMED), there, first, stop)
    elif kind == MEASURE:
        if _is_loose(layout, course, step):
            _put_tops(course, step, part, greatest(there, first, stop), least(there, first, stop))
    elif kind == SCALE:
        _scale(layout, course, large, step, part, there, first, stop)
    elif kind == FINISH:
        _finish(layout, state, course, large, step, worker)
    elif mode == _DIRECT:
        return
    elif kind == TOP:
        known = number(state.top, table)
        _put_tops(
            course, step, part, greatest(there, first, stop), greatest(here, first, stop) if known < 0.0 else known
        )
    elif kind == COMPARE and mode == _BESIDE:
        old, new = _tops(state, course, large, step)
        if not same_ratios(here, old, there, new, first, stop, number(layout.limits, SAME_AT)):
            put_word(course.mode, step, _CHANGED)
    elif kind == COPY and (mode == _CHANGED or not _is_equal(state, course, large, step)):
        put_word(state.known, table, 0)  # until all of it is copied
        for i in range(first, stop):
            put_number(here, i, number(there, i))


@njit(nogil=True)
def _prepare(layout: Any, state: Any, stages: Any, course: Any, large: int, step: int) -> None:
    """Decide what becomes of a step, and tell its loops where things are."""
    put_word(course.mode, step, IDLE)
    position, table = word(large, _STEP), word(large, _TABLE)
    if not (word(state.needed, position) and is_due(layout, state, position)):
        return
    low, high, scale, fit = bounds(layout, state, position)
    if not fit:
        return
    read = word(layout.reader_start, table) < word(layout.reader_start, table + 1)
    beside = read and word(state.known, table) != 0 and word(state.logs, table) == 0
    out = word(large, _ROOM) if beside else word(layout.start, table)
    if word(large, _TARGET) >= 0:
        out = word(large, _TARGET)
    put_word(word(large, _ADDRESSES), word(large, _OPERANDS), state.values + 8 * out)
    fill(word(large, _CODE), word(large, _CODE_WORDS), word(large, _OFFSETS))
    _bound(course, _BOUNDS * step, low, high, scale)
    if not beside:
        put_word(state.known, table, 0)
    put_word(course.mode, step, _BESIDE if beside else _DIRECT)


@njit(nogil=True)
def _bound(course: Any, at: int, low: float, high: float, scale: float) -> None:
    put_number(course.bounds, at, low)
    put_number(course.bounds, at + 1, high)
    put_number(course.bounds, at + 2, scale)


@njit(nogil=True)
def _put_tops(course: Any, step: int, part: int, first: float, second: float) -> None:
    at = 2 * (step * course.parts + part)
    put_number(course.tops, at, first)
    put_number(course.tops, at + 1, second)


@njit(nogil=True)
def _spread(
    iterate: int, state: Any, stages: Any, step: int, turning: bool, out: int, part: int, parts: int, worker: int
) -> None:
    """Run the part's share of the merges, or of the turn."""
    places = state.places + 8 * MOST_PLACES * worker
    for i in range(word(stages.spread_start, step), word(stages.spread_start, step + 1)):
        code, bases = word(stages.spreads, 3 * i), word(stages.spreads, 3 * i + 1)
        target = word(stages.spreads, 3 * i + 2)
        if (target < 0) == turning:
            where = out if turning else target
            spread(iterate, state.values, stages.codes + 8 * code, stages.bases + 8 * bases, where, places, part, parts)


@njit(nogil=True)
def _stream(address: int, law: Any, stages: Any, large: int, step: int, part: int, parts: int) -> None:
    """Run the part's share of the outer loop, with the buffers of the part."""
    nest = _read_nest(stages.nests + 8 * _NEST_WORDS * step)
    here = word(large, _PARTS_AT) + 8 * part * word(large, _WORDS)
    depth, numbers = here + 8 * (word(large, _OPERANDS) + 1), here + 8 * word(large, _PLACES)
    outer = nest.n_outer_high * nest.n_outer_low
    scratch = Scratch(here, depth, numbers, numbers + 8 * nest.depth)
    _call(address, law, nest, scratch, outer * part // parts, outer * (part + 1) // parts)


@njit(nogil=True)
def _multiply(address: int, law: Any, stages: Any, large: int, step: int, part: int, parts: int) -> None:
    """Run the part's share of the batches or the rows of a product, with the buffers of the part."""
    given = _read_product(stages.products + 8 * _PRODUCT_WORDS * step)
    buffers = word(large, _PARTS_AT) + 8 * part * word(large, _WORDS)
    if word(large, _RANGES):
        first, stop = given.batches * part // parts, given.batches * (part + 1) // parts
        _call_product(address, law, given, buffers, first, stop, 0, given.rows)
    else:
        tiles = (given.rows + TILE_ROWS - 1) // TILE_ROWS
        first, stop = tiles * part // parts * TILE_ROWS, tiles * (part + 1) // parts * TILE_ROWS
        _call_product(address, law, given, buffers, 0, given.batches, first, min(stop, given.rows))


@njit(nogil=True, fastmath={"reassoc", "contract"})
def _sum_rows(target: int, summed: int, out: int, first: int, stop: int) -> None:
    for i in range(first, stop):
        total = 0.0
        for r in range(i * summed, (i + 1) * summed):
            total += number(target, r)
        put_number(out, i, total)


@njit(nogil=True)
def _is_loose(layout: Any, course: Any, step: int) -> bool:
    """Whether the bounds of the loops' result are so loose that the values must be examined."""
    low, high = number(course.bounds, _BOUNDS * step), number(course.bounds, _BOUNDS * step + 1)
    return bool(low < -number(layout.limits, LOOSE_AT) or high > number(layout.limits, LOOSE_AT))


@njit(nogil=True)
def _scale(layout: Any, course: Any, large: int, step: int, part: int, made: int, first: int, stop: int) -> None:
    """Scale this part of a result with loose bounds to maximum 1. If its range is too wide, mark the step as idle."""
    before = _BOUNDS * step
    low, high, scale = (
        number(course.bounds, before),
        number(course.bounds, before + 1),
        number(course.bounds, before + 2),
    )
    lowest, fits = number(layout.limits, LOWEST_AT), True
    if _is_loose(layout, course, step):
        tops, top, bottom = course.tops + 16 * step * course.parts, 0.0, math.inf
        for i in range(word(large, _OUT_PARTS)):
            top, bottom = max(top, number(tops, 2 * i)), min(bottom, number(tops, 2 * i + 1))
        low = high = 0.0
        if top > 0.0:
            low = math.log(bottom) - math.log(top)
            fits = low >= lowest
            scale += math.log(top)
        if top > 0.0 and fits:
            for i in range(first, stop):
                put_number(made, i, number(made, i) / top)
    if part == 0:
        _bound(course, before + 3, low, high, scale)
        if not fits:
            put_word(course.mode, step, IDLE)


@njit(nogil=True)
def _tops(state: Any, course: Any, large: int, step: int) -> tuple[float, float]:
    """Return the maxima of the table and of its replacement."""
    tops, old, new = course.tops + 16 * step * course.parts, 0.0, 0.0
    for part in range(word(large, _OUT_PARTS)):
        new, old = max(new, number(tops, 2 * part)), max(old, number(tops, 2 * part + 1))
    top = number(state.top, word(large, _TABLE))
    return (old if top < 0.0 else top), new


@njit(nogil=True)
def _is_equal(state: Any, course: Any, large: int, step: int) -> bool:
    """Whether two tables of the same ratios have the same scale too."""
    old, new = _tops(state, course, large, step)
    return old == new and number(state.scale, word(large, _TABLE)) == number(course.bounds, _BOUNDS * step + 5)


@njit(nogil=True)
def _finish(layout: Any, state: Any, course: Any, large: int, step: int, worker: int) -> None:
    """Mark the steps whose results the new table changes."""
    table, mode, top = word(large, _TABLE), word(course.mode, step), -1.0
    put_word(state.stale, word(large, _STEP), 0)
    put_word(state.pending, word(large, _STEP), 0)
    put_word(course.done, 8 * worker, word(course.done, 8 * worker) + 1)
    if mode != _DIRECT:
        if mode == _BESIDE and _is_equal(state, course, large, step):
            return
        _, top = _tops(state, course, large, step)
    mark_readers(layout, state, table, mode != _BESIDE)
    a = _BOUNDS * step + 3
    low, high, scale = number(course.bounds, a), number(course.bounds, a + 1), number(course.bounds, a + 2)
    describe(state, table, scale, low, high, top, 0)
