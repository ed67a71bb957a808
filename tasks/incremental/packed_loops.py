"""Tables of a propagation in one flat array, for compiled loops: how one is replaced, and how small steps make one.

A small step is one or more joins of few tables, each a nest of loops over strides. Large steps use these nests for the
work beside streaming. The kernels see addresses: of the array that holds every table, and of integer arrays that say
where things are; :mod:`.packed` makes them. Compiling them takes a third of the time that it takes for arrays.

Arguments are addresses of float64 values and int64 words; their position tells what they hold. ``iterate`` is the
address of :func:`iterate_nest`.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from ..compiler.jit import njit
from ..compiler.pthreads import calling, reader
from ..compiler.vectors import number, put_number, put_word, word
from ..sweeps.scaled import HIGHEST, LOOSE, LOWEST
from .kept_tables import SAME
from .stages import MOST_PLACES


@njit(nogil=True)
def _outside(code: int) -> int:
    """Count the iterations outside the lane."""
    count = 1
    for d in range(word(code, 1)):
        count *= word(code, 5 + d)
    return count


@njit(nogil=True, cache=True, error_model="numpy")
def iterate_nest(values: int, code: int, places: int, first: int, stop: int) -> None:
    """Run some outside iterations of a nest from the places of its inputs and output, which the indices follow.

    Parameters
    ----------
    values : int
        Address of the arena of float64.
    code : int
        Address of a nest as ``StageNest.code`` has it: numbers of inputs, axes, outside iterations, row and lane,
        sizes of the axes, strides of the inputs and the output.
    places : int
        Address of where inputs and output begin, in numbers of the arena; the indices of the axes follow, written here.
    first, stop : int
        Outside iterations, the last axis fastest.
    """
    n_inputs, n_axes, n_row, n_lane = word(code, 0), word(code, 1), word(code, 3), word(code, 4)
    sizes = code + 8 * 5
    strides, width = sizes + 8 * n_axes, 8 * (2 + n_axes)
    last = strides + n_inputs * width
    indices = places + 8 * (n_inputs + 1)
    left = first
    for d in range(n_axes - 1, -1, -1):
        put_word(indices, d, left % word(sizes, d))
        left //= word(sizes, d)
        for i in range(n_inputs + 1):
            put_word(places, i, word(places, i) + word(indices, d) * word(strides + i * width, 2 + d))
    kept = word(last, 0) == 1
    for _ in range(first, stop):
        if n_inputs == 1:
            _lane_of_one(values, strides, last, places, n_lane, n_row, kept)
        elif n_inputs == 2:
            _lane_of_two(values, strides, width, places, n_lane, n_row, kept)
        else:
            _lane_of_many(values, strides, width, places, n_inputs, n_lane, n_row)
        d = n_axes - 1
        while d >= 0:
            index = word(indices, d) + 1
            # An odometer: the next index of an axis moves each table by one stride, and its last index moves it back to
            # the axis' start, so that places are never computed from all indices.
            steps = 1 if index < word(sizes, d) else 1 - index
            put_word(indices, d, index if steps == 1 else 0)
            for i in range(n_inputs + 1):
                put_word(places, i, word(places, i) + steps * word(strides + i * width, 2 + d))
            if steps == 1:
                break
            d -= 1


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _lane_of_one(values: int, strides: int, last: int, places: int, n_lane: int, n_row: int, kept: bool) -> None:
    a, out = word(places, 0), word(places, 1)
    s, along, to = word(strides, 0), word(strides, 1), word(last, 1)
    for _ in range(n_lane):
        if not kept:
            total = 0.0
            for r in range(n_row):
                total += number(values, a + r * s)
            put_number(values, out, number(values, out) + total)
        elif s == 1:
            for r in range(n_row):
                put_number(values, out + r, number(values, out + r) + number(values, a + r))
        else:
            for r in range(n_row):
                put_number(values, out + r, number(values, out + r) + number(values, a + r * s))
        a += along
        out += to


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _lane_of_two(values: int, strides: int, width: int, places: int, n_lane: int, n_row: int, kept: bool) -> None:
    """Add the products of two inputs to the output, for a lane of rows.

    Parameters
    ----------
    values : int
        Address of the arena of float64.
    strides : int
        Address of int64 words: of each input, then of the output, the stride of the row, of the lane, and of the axes.
    width : int
        Bytes of these words for one table.
    places : int
        Address of three int64 words: where the rows of the inputs and of the output begin, in numbers of the arena.
    n_lane, n_row : int
        Rows of the lane, and cells of a row.
    kept : bool
        Whether the output has the row's axis, with stride 1; otherwise a row is summed into one cell.
    """
    a, b, out = word(places, 0), word(places, 1), word(places, 2)
    s, along = word(strides, 0), word(strides, 1)
    t, beside = word(strides + width, 0), word(strides + width, 1)
    to = word(strides + 2 * width, 1)
    for _ in range(n_lane):
        # The second input has one number for the whole row: it is multiplied once, outside the sum. Loops with constant
        # stride 1 stand apart, because the compiler vectorises them.
        if t == 0:
            factor = number(values, b)
            if not kept:
                total = 0.0
                for r in range(n_row):
                    total += number(values, a + r * s)
                put_number(values, out, number(values, out) + factor * total)
            elif factor != 0.0:
                if s == 1:
                    for r in range(n_row):
                        put_number(values, out + r, number(values, out + r) + factor * number(values, a + r))
                else:
                    for r in range(n_row):
                        put_number(values, out + r, number(values, out + r) + factor * number(values, a + r * s))
        elif s == 1 and t == 1:
            if kept:
                for r in range(n_row):
                    product = number(values, a + r) * number(values, b + r)
                    put_number(values, out + r, number(values, out + r) + product)
            else:
                total = 0.0
                for r in range(n_row):
                    total += number(values, a + r) * number(values, b + r)
                put_number(values, out, number(values, out) + total)
        elif kept:
            for r in range(n_row):
                product = number(values, a + r * s) * number(values, b + r * t)
                put_number(values, out + r, number(values, out + r) + product)
        else:
            total = 0.0
            for r in range(n_row):
                total += number(values, a + r * s) * number(values, b + r * t)
            put_number(values, out, number(values, out) + total)
        a += along
        b += beside
        out += to


@njit(nogil=True, error_model="numpy")
def _lane_of_many(values: int, strides: int, width: int, places: int, n_inputs: int, n_lane: int, n_row: int) -> None:
    last = strides + n_inputs * width
    step, out, to = word(last, 0), word(places, n_inputs), word(last, 1)
    for n in range(n_lane):
        for r in range(n_row):
            product = 1.0
            for i in range(n_inputs):
                at = strides + i * width
                product *= number(values, word(places, i) + n * word(at, 1) + r * word(at, 0))
            put_number(values, out + r * step, number(values, out + r * step) + product)
        out += to


_call = calling(5)


@njit(nogil=True)
def join(iterate: int, values: int, code: int, bases: int, out: int, places: int, scratch: int, shift: int) -> None:
    """Run one nest: any axes outside, then a lane, then a row; inputs behind ``scratch`` are ``shift`` further.

    ``code`` begins with the number of inputs, the number of outside axes and the cells of the output. The sizes of the
    row, the lane and the outside axes follow, then the strides of each input and of the output in the same order.
    ``bases`` are the positions of the inputs. Inputs that vary along the row come first. The output has stride 1 along
    the row, or does not vary along it.
    """
    for i in range(word(code, 0)):
        base = word(bases, i)
        put_word(places, i, base + shift if base >= scratch else base)
    put_word(places, word(code, 0), out)
    for i in range(out, out + word(code, 2)):
        put_number(values, i, 0.0)
    _call(iterate, values, code, places, 0, _outside(code))


@njit(nogil=True)
def spread(iterate: int, values: int, code: int, bases: int, out: int, places: int, part: int, parts: int) -> None:
    """Run a part of a nest whose output has the axes in the order outside, lane, row, and all of them."""
    outside = _outside(code)
    first, stop = outside * part // parts, outside * (part + 1) // parts
    for i in range(word(code, 0)):
        put_word(places, i, word(bases, i))
    put_word(places, word(code, 0), out)
    inside = word(code, 3) * word(code, 4)
    for i in range(out + first * inside, out + stop * inside):
        put_number(values, i, 0.0)
    _call(iterate, values, code, places, first, stop)


_BLOCK = 256


LIMITS: Final = (LOWEST, HIGHEST, LOOSE, SAME)
LOWEST_AT, HIGHEST_AT, LOOSE_AT, SAME_AT = range(4)


class PackedLayout(NamedTuple):
    """What never changes: arrays, or their addresses for loops; all int64 but ``log_summed`` and ``limits``.

    Lists of lists are cut by a ``*_start`` array.

    ``joins`` are (code, first base, output) of each join: its nest, the addresses of its inputs, the address of its
    output. ``makers`` are the steps that make the tables, -1 for leaves. Temporaries begin at ``scratch``, and each
    further thread has its own ``shift`` later. ``iterate``, ``stream`` and ``multiply`` are addresses of compiled
    functions.
    """

    codes: Any
    joins: Any
    join_start: Any
    bases: Any
    inputs: Any
    input_start: Any
    outputs: Any
    log_summed: Any
    readers: Any
    reader_start: Any
    forward: Any
    start: Any
    cells: Any
    makers: Any
    scratch: int
    shift: int
    iterate: int
    stream: int
    multiply: int
    limits: Any


class PackedState(NamedTuple):
    """The changing state, as arrays or their addresses: float64 are values, scale, bounds and maximum, the others
    int64.

    Values of all tables and scratch. By table: its scale, bounds, maximum (-1 if it was not computed), whether it holds
    logarithms, and whether it is present. By step: whether it is stale, needed, and pending (stale itself or after a
    stale step). By thread: its places.
    """

    values: Any
    scale: Any
    low: Any
    high: Any
    top: Any
    logs: Any
    known: Any
    stale: Any
    needed: Any
    pending: Any
    places: Any


_read_layout, _read_state = reader(PackedLayout), reader(PackedState)

STATE_AT: Final = 8 * len(PackedLayout._fields)


@njit(nogil=True)
def same_ratios(x: int, top: float, y: int, other: float, first: int, stop: int, same: float) -> bool:
    """Whether cells of two tables with the given maxima are multiples of each other, up to rounding."""
    if top == 0.0 or other == 0.0:
        return top == other
    ratio = other / top
    begin, differ = first, 0
    while begin < stop and not differ:
        differ = _differ(x, y, ratio, begin, min(begin + _BLOCK, stop), same)
        begin += _BLOCK
    return differ == 0


@njit(nogil=True)
def _differ(x: int, y: int, ratio: float, first: int, stop: int, same: float) -> int:
    """Count the entries that are not multiples; an entry that only underflowed does not count as zero."""
    count = 0
    for i in range(first, stop):
        a, b = number(x, i), number(y, i)
        count += (abs(a * ratio - b) > same * b) | ((a > 0.0) != (b > 0.0))
    return count


@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def greatest(x: int, first: int, stop: int) -> float:
    """Return the maximum of some cells, none below 0."""
    top = 0.0
    for i in range(first, stop):
        value = number(x, i)
        top = value if value > top else top
    return top


@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def least(x: int, first: int, stop: int) -> float:
    """Return the least positive of some cells, infinity if there is none."""
    bottom = math.inf
    for i in range(first, stop):
        value = number(x, i)
        value = value if value > 0.0 else math.inf
        bottom = value if value < bottom else bottom
    return bottom


@njit(nogil=True)
def mark_readers(layout: Any, state: Any, table: int, all_of_them: bool) -> None:
    """Mark the steps that read a table, or only the forward ones, as stale.

    Only these readers see a common factor: their scale adds up to the probability of the evidence.
    """
    for i in range(word(layout.reader_start, table), word(layout.reader_start, table + 1)):
        reader = word(layout.readers, i)
        if all_of_them or word(layout.forward, reader):
            put_word(state.stale, reader, 1)


@njit(nogil=True)
def describe(state: Any, table: int, scale: float, low: float, high: float, top: float, logs: int) -> None:
    """Note what a table is now."""
    put_number(state.scale, table, scale)
    put_number(state.low, table, low)
    put_number(state.high, table, high)
    put_number(state.top, table, top)
    put_word(state.logs, table, logs)
    put_word(state.known, table, 1)


@njit(nogil=True)
def put(layout: Any, state: Any, table: int, source: int, scale: float, low: float, high: float, logs: int) -> None:
    """Replace a table by the one at an address, and mark the steps whose results that changes."""
    here, cells = state.values + 8 * word(layout.start, table), word(layout.cells, table)
    read = word(layout.reader_start, table) < word(layout.reader_start, table + 1)
    top = 0.0 if logs or not read else greatest(source, 0, cells)
    same = False
    if word(state.known, table) and read and not logs and not word(state.logs, table):
        old = number(state.top, table)
        old = greatest(here, 0, cells) if old < 0.0 else old
        same = same_ratios(here, old, source, top, 0, cells, number(layout.limits, SAME_AT))
        if same and scale == number(state.scale, table) and old == top:
            return
    mark_readers(layout, state, table, not same)
    for i in range(cells):
        put_number(here, i, number(source, i))
    describe(state, table, scale, low, high, top, logs)


@njit(nogil=True)
def is_due(layout: Any, state: Any, step: int) -> bool:
    """Whether a needed step is to be run now; it is pending if it is, or if one is that it depends on."""
    pending = 0
    for i in range(word(layout.input_start, step), word(layout.input_start, step + 1)):
        maker = word(layout.makers, word(layout.inputs, i))
        if maker >= 0:
            pending |= word(state.pending, maker)
    due = pending == 0 and word(state.stale, step) != 0
    put_word(state.pending, step, pending | word(state.stale, step))
    return due


@njit(nogil=True)
def bounds(layout: Any, state: Any, step: int) -> tuple[float, float, float, bool]:
    """Bounds and scale of a step's result, and whether its products stay in range."""
    low = high = scale = below = above = 0.0
    fit = True
    for i in range(word(layout.input_start, step), word(layout.input_start, step + 1)):
        table = word(layout.inputs, i)
        least, most = number(state.low, table), number(state.high, table)
        low += least
        high += most
        scale += number(state.scale, table)
        below += min(least, 0.0)
        above += max(most, 0.0)
        fit &= word(state.logs, table) == 0
    summed = number(layout.log_summed, step)
    fit &= below >= number(layout.limits, LOWEST_AT) and above + summed <= number(layout.limits, HIGHEST_AT)
    return low, high + summed, scale, fit


@njit(nogil=True, cache=True)
def run_small(layout: Any, state: Any, step: int, worker: int) -> None:
    """Run a small step; without joins, or if its products or result may leave the range of numbers, it stays stale."""
    low, high, scale, fit = bounds(layout, state, step)
    first, stop = word(layout.join_start, step), word(layout.join_start, step + 1)
    if not fit or first == stop:
        return
    shift, places = worker * layout.shift, state.places + 8 * MOST_PLACES * worker
    for j in range(first, stop):
        code, bases = layout.codes + 8 * word(layout.joins, 3 * j), layout.bases + 8 * word(layout.joins, 3 * j + 1)
        out = word(layout.joins, 3 * j + 2) + shift
        join(layout.iterate, state.values, code, bases, out, places, layout.scratch, shift)
    table, made = word(layout.outputs, step), state.values + 8 * (layout.scratch + shift)
    if low < -number(layout.limits, LOOSE_AT) or high > number(layout.limits, LOOSE_AT):
        low, high, scale = measure(made, word(layout.cells, table), scale, number(layout.limits, LOWEST_AT))
        if low < number(layout.limits, LOWEST_AT):
            return
    put_word(state.stale, step, 0)
    put_word(state.pending, step, 0)
    put(layout, state, table, made, scale, low, high, 0)


@njit(nogil=True)
def measure(table: int, cells: int, scale: float, lowest: float) -> tuple[float, float, float]:
    """Scale a table to maximum 1; return exact bounds and its scale. One that spans too much stays as it is."""
    top = greatest(table, 0, cells)
    if top == 0.0:
        return 0.0, 0.0, scale
    low = math.log(least(table, 0, cells)) - math.log(top)
    if low >= lowest:
        for i in range(cells):
            put_number(table, i, number(table, i) / top)
    return low, 0.0, scale + math.log(top)


@njit(nogil=True, cache=True)
def put_given(where: int, table: int, source: int, scale: float, low: float, high: float, logs: int) -> None:
    """Replace a table as :func:`put` does; layout and state are at an address."""
    put(_read_layout(where), _read_state(where + STATE_AT), table, source, scale, low, high, logs)


@njit(nogil=True, cache=True)
def normalise(where: int, tables: int, count: int, out: int) -> bool:
    """Copy tables one after the other and make each sum to 1; False if one has logarithms, or sums out of range."""
    layout, state, at = _read_layout(where), _read_state(where + STATE_AT), 0
    for i in range(count):
        table = word(tables, i)
        here, cells = state.values + 8 * word(layout.start, table), word(layout.cells, table)
        low, high = number(state.low, table), number(state.high, table)
        if word(state.logs, table) or low < number(layout.limits, LOWEST_AT) or high > number(layout.limits, LOOSE_AT):
            return False
        total = 0.0
        for k in range(cells):
            total += number(here, k)
        if total == 0.0:
            total = 1.0
        for k in range(cells):
            put_number(out, at + k, number(here, k) / total)
        at += cells
    return True
