"""Compiled loops of one stage of a large step: what a thread does of it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ..cpu.compiling.calls import calling, reader
from ..cpu.compiling.vectors import fill, number, put_number, put_word, word
from ..cpu.streaming import Nest, Scratch
from ..machine_code import njit
from .join_loops import spread
from .packed_loops import (
    LOOSE_AT,
    LOWEST_AT,
    SAME_AT,
    bounds,
    describe,
    greatest,
    is_due,
    mark_readers,
    measure,
    same_ratios,
)
from .planning.nests import MOST_PLACES

GROUP: Final = 0
PREPARE: Final = 1
MERGE: Final = 2
STREAM: Final = 3
ORDER: Final = 4
MEASURE: Final = 5
TOP: Final = 6
COMPARE: Final = 7
COPY: Final = 8
FINISH: Final = 9
"""Kinds of items: a group of small steps, and the stages of a large one in their order."""

#: What becomes of a large step: nothing, made in its place, made beside it to be compared, copied because it differs.
IDLE, _DIRECT, _BESIDE, _CHANGED = 0, 1, 2, 3


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
        What is summed or turned later, -1 if nothing is, and the cells that are summed into one.
    room : int
        A result that is compared with the table that it replaces.
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


LARGE_WORDS: Final = len(Large._fields)
_NEST_WORDS: Final = len(Nest._fields)
_STEP, _TABLE, _OUT_PARTS, _CODE, _CODE_WORDS, _OFFSETS, _ADDRESSES, _OPERANDS = range(8)
_PARTS_AT, _PLACES, _WORDS, _TARGET, _SUMMED, _ROOM = range(8, LARGE_WORDS)


class Stages(NamedTuple):
    """What never changes, arrays of int64 or their addresses: rows of :class:`Large`, their nests, joins.

    ``spreads`` are (code, first base, output) of joins that eliminate nothing: the merges of a step, and then what
    turns its target into the result, whose output is -1. ``words`` holds what addresses in rows point to.
    """

    large: Any
    nests: Any
    spreads: Any
    spread_start: Any
    codes: Any
    bases: Any
    words: Any


class Course(NamedTuple):
    """What changes, arrays or their addresses: by large step its mode, bounds and scale of its result, maxima of parts.

    Those are of the new table and the one before, for as many ``parts`` as any step has. ``done`` counts steps by
    thread, 8 words each.
    """

    mode: Any
    bounds: Any
    tops: Any
    done: Any
    parts: int


_call, _read_nest = calling(5), reader(Nest)


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
    """Run a part of a stage of large step number ``step``."""
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
    if kind == STREAM:
        _stream(layout.stream, law, stages, large, step, part, parts)
    elif kind == MERGE or (kind == ORDER and word(large, _SUMMED) == 1):
        _spread(layout.iterate, state, stages, step, kind == ORDER, made, part, parts, worker)
    elif kind == ORDER:
        _sum_rows(state.values + 8 * word(large, _TARGET), word(large, _SUMMED), there, first, stop)
    elif kind == MEASURE:
        _measure(layout, course, step, there, cells)
    elif kind == FINISH:
        _finish(layout, state, course, large, step, worker)
    elif mode == _DIRECT:
        return
    elif kind == TOP:
        put_number(course.tops, 2 * (step * course.parts + part), greatest(there, first, stop))
        if number(state.top, table) < 0.0:
            put_number(course.tops, 2 * (step * course.parts + part) + 1, greatest(here, first, stop))
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
    _bound(course, step, low, high, scale)
    if not beside:
        put_word(state.known, table, 0)
    put_word(course.mode, step, _BESIDE if beside else _DIRECT)


@njit(nogil=True)
def _bound(course: Any, step: int, low: float, high: float, scale: float) -> None:
    put_number(course.bounds, 3 * step, low)
    put_number(course.bounds, 3 * step + 1, high)
    put_number(course.bounds, 3 * step + 2, scale)


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


@njit(nogil=True, fastmath={"reassoc", "contract"})
def _sum_rows(target: int, summed: int, out: int, first: int, stop: int) -> None:
    for i in range(first, stop):
        total = 0.0
        for r in range(i * summed, (i + 1) * summed):
            total += number(target, r)
        put_number(out, i, total)


@njit(nogil=True)
def _measure(layout: Any, course: Any, step: int, made: int, cells: int) -> None:
    """Scale a result whose bounds are loose; one that spans too much is left to others."""
    low, high = number(course.bounds, 3 * step), number(course.bounds, 3 * step + 1)
    if low < -number(layout.limits, LOOSE_AT) or high > number(layout.limits, LOOSE_AT):
        low, high, scale = measure(made, cells, number(course.bounds, 3 * step + 2), number(layout.limits, LOWEST_AT))
        _bound(course, step, low, high, scale)
        if low < number(layout.limits, LOWEST_AT):
            put_word(course.mode, step, IDLE)


@njit(nogil=True)
def _tops(state: Any, course: Any, large: int, step: int) -> tuple[float, float]:
    """Return the maxima of the table and of what replaces it."""
    tops, old, new = course.tops + 16 * step * course.parts, 0.0, 0.0
    for part in range(word(large, _OUT_PARTS)):
        new, old = max(new, number(tops, 2 * part)), max(old, number(tops, 2 * part + 1))
    top = number(state.top, word(large, _TABLE))
    return (old if top < 0.0 else top), new


@njit(nogil=True)
def _is_equal(state: Any, course: Any, large: int, step: int) -> bool:
    """Whether two tables of the same ratios have the same scale too."""
    old, new = _tops(state, course, large, step)
    return old == new and number(state.scale, word(large, _TABLE)) == number(course.bounds, 3 * step + 2)


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
    a = course.bounds + 24 * step
    describe(state, table, number(a, 2), number(a, 0), number(a, 1), top, 0)
