"""Joins of few tables as nested loops over strides, for all small steps and what large ones do beside streaming.

Arguments are addresses of float64 values and int64 words; their position tells what they hold. ``iterate`` is the
address of :func:`iterate_nest`.
"""

from __future__ import annotations

from ..compiler.jit import njit
from ..compiler.pthreads import calling
from ..compiler.vectors import number, put_number, put_word, word


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
