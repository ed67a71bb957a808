"""Compiled loops over all small steps of a propagation: one call runs hundreds of them.

A step is one or more joins of few tables, each a nest of loops over strides. The kernels see one flat array
that holds every table, and plain integer arrays that say where things are; :mod:`.packed` makes them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..machine_code import njit
from ..sweeps.scaled import HIGHEST, LOOSE, LOWEST
from .kept import SAME

_BLOCK = 256


class Limits(NamedTuple):
    """Constants of other files, as values: numba's cache would not notice that one changes."""

    lowest: float = LOWEST
    highest: float = HIGHEST
    loose: float = LOOSE
    same: float = SAME


class Layout(NamedTuple):
    """What never changes, all int64 but ``log_summed``; lists of lists are cut by a ``*_start`` array.

    ``joins`` are (code, first base, output) of each join: its nest, where its inputs are, where it writes.
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
    scratch: int
    limits: Limits = Limits()


class State(NamedTuple):
    """What changes.

    Values of all tables and scratch; by table its scale, bounds, maximum, whether it holds logarithms and
    whether it is there; by step whether it is stale.
    """

    values: Any
    scale: Any
    low: Any
    high: Any
    top: Any
    logs: Any
    known: Any
    stale: Any
    places: Any


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _join(values: Any, codes: Any, at: int, bases: Any, base: int, out: int, places: Any) -> None:
    """Run one nest: any axes outside, then a lane, then a row.

    ``codes[at:]`` holds the numbers of inputs and of outside axes, the cells of the output, the sizes of the
    row, the lane and the other axes, and for each input and then the output its strides in the same order.
    Inputs that vary along the row come first; the output varies along it with stride 1 or not at all.
    """
    n_inputs, n_axes, cells, n_row, n_lane = codes[at], codes[at + 1], codes[at + 2], codes[at + 3], codes[at + 4]
    sizes = at + 5
    strides, width = sizes + n_axes, 2 + n_axes
    last = strides + n_inputs * width
    for i in range(cells):
        values[out + i] = 0.0
    for i in range(n_inputs):
        places[i] = bases[base + i]
    places[n_inputs] = out
    outside = 1
    for d in range(n_axes):
        places[n_inputs + 1 + d] = 0
        outside *= codes[sizes + d]
    kept = codes[last] == 1
    for _ in range(outside):
        if n_inputs == 1:
            _lane_of_one(values, codes, strides, last, places, n_lane, n_row, kept)
        elif n_inputs == 2:
            _lane_of_two(values, codes, strides, width, places, n_lane, n_row, kept)
        else:
            _lane_of_many(values, codes, strides, width, places, n_inputs, n_lane, n_row)
        d = n_axes - 1
        while d >= 0:
            at_axis = strides + 2 + d
            index = n_inputs + 1 + d
            places[index] += 1
            if places[index] < codes[sizes + d]:
                for i in range(n_inputs + 1):
                    places[i] += codes[at_axis + i * width]
                break
            for i in range(n_inputs + 1):
                places[i] -= (places[index] - 1) * codes[at_axis + i * width]
            places[index] = 0
            d -= 1


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _lane_of_one(
    values: Any, codes: Any, strides: int, last: int, places: Any, n_lane: int, n_row: int, kept: bool
) -> None:
    a, out = places[0], places[1]
    along, to = codes[strides + 1], codes[last + 1]
    s = codes[strides]
    for _ in range(n_lane):
        if not kept:
            total = 0.0
            for r in range(n_row):
                total += values[a + r * s]
            values[out] += total
        elif s == 1:
            for r in range(n_row):
                values[out + r] += values[a + r]
        else:
            for r in range(n_row):
                values[out + r] += values[a + r * s]
        a += along
        out += to


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _lane_of_two(
    values: Any, codes: Any, strides: int, width: int, places: Any, n_lane: int, n_row: int, kept: bool
) -> None:
    a, b, out = places[0], places[1], places[2]
    s, t = codes[strides], codes[strides + width]
    along, beside, to = codes[strides + 1], codes[strides + width + 1], codes[strides + 2 * width + 1]
    for _ in range(n_lane):
        if t == 0:
            factor = values[b]
            if not kept:
                total = 0.0
                for r in range(n_row):
                    total += values[a + r * s]
                values[out] += factor * total
            elif factor != 0.0:
                if s == 1:
                    for r in range(n_row):
                        values[out + r] += factor * values[a + r]
                else:
                    for r in range(n_row):
                        values[out + r] += factor * values[a + r * s]
        elif s == 1 and t == 1:
            if kept:
                for r in range(n_row):
                    values[out + r] += values[a + r] * values[b + r]
            else:
                total = 0.0
                for r in range(n_row):
                    total += values[a + r] * values[b + r]
                values[out] += total
        elif kept:
            for r in range(n_row):
                values[out + r] += values[a + r * s] * values[b + r * t]
        else:
            total = 0.0
            for r in range(n_row):
                total += values[a + r * s] * values[b + r * t]
            values[out] += total
        a += along
        b += beside
        out += to


@njit(nogil=True, error_model="numpy")
def _lane_of_many(
    values: Any, codes: Any, strides: int, width: int, places: Any, n_inputs: int, n_lane: int, n_row: int
) -> None:
    step = codes[strides + n_inputs * width]
    out, to = places[n_inputs], codes[strides + n_inputs * width + 1]
    for n in range(n_lane):
        for r in range(n_row):
            product = 1.0
            for i in range(n_inputs):
                at = strides + i * width
                product *= values[places[i] + n * codes[at + 1] + r * codes[at]]
            values[out + r * step] += product
        out += to


@njit(nogil=True)
def _same_ratios(x: Any, x_at: int, top: float, y: Any, y_at: int, other: float, cells: int, same: float) -> bool:
    """Whether two tables with the given maxima are multiples of each other, up to rounding."""
    if top == 0.0 or other == 0.0:
        return top == other
    ratio = other / top
    for first in range(0, cells, _BLOCK):
        if _differ(x, x_at + first, ratio, y, y_at + first, min(_BLOCK, cells - first), same):
            return False
    return True


@njit(nogil=True)
def _differ(x: Any, x_at: int, ratio: float, y: Any, y_at: int, cells: int, same: float) -> int:
    """Count the entries that are no multiples; one that only underflowed is no zero."""
    count = 0
    for i in range(cells):
        a, b = x[x_at + i], y[y_at + i]
        count += (abs(a * ratio - b) > same * b) | ((a > 0.0) != (b > 0.0))
    return count


@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _greatest(x: Any, at: int, cells: int) -> float:
    top = 0.0
    for i in range(cells):
        value = x[at + i]
        top = value if value > top else top
    return top


@njit(nogil=True, cache=True)
def put(
    layout: Any, state: Any, table: int, source: Any, at: int, scale: float, low: float, high: float, logs: int
) -> None:
    """Replace a table, and mark the steps whose results that changes.

    Nobody sees a common factor but the forward steps, whose scale adds up to the probability of the evidence.
    """
    values, start, cells = state.values, layout.start[table], layout.cells[table]
    first, stop = layout.reader_start[table], layout.reader_start[table + 1]
    natural = not logs and not state.logs[table]
    top = 0.0 if logs or first == stop else _greatest(source, at, cells)
    old = state.top[table]
    if (
        state.known[table]
        and natural
        and first < stop
        and _same_ratios(values, start, old, source, at, top, cells, layout.limits.same)
    ):
        if scale == state.scale[table] and old == top:
            return
        for i in range(first, stop):
            if layout.forward[layout.readers[i]]:
                state.stale[layout.readers[i]] = 1
    else:
        for i in range(first, stop):
            state.stale[layout.readers[i]] = 1
    for i in range(cells):
        values[start + i] = source[at + i]
    state.scale[table], state.low[table], state.high[table], state.top[table] = scale, low, high, top
    state.logs[table], state.known[table] = logs, 1


@njit(nogil=True, cache=True)
def run_small(layout: Any, state: Any, order: Any, begin: int) -> tuple[int, int]:
    """Run the stale steps of ``order`` from a position on; return where it stopped, and how many were run.

    It stops at a step without joins, or whose products or result may leave the range of natural numbers.
    """
    values, scratch, limits = state.values, layout.scratch, layout.limits
    done = 0
    for position in range(begin, len(order)):
        step = order[position]
        if not state.stale[step]:
            continue
        first, stop = layout.join_start[step], layout.join_start[step + 1]
        low = high = scale = below = above = 0.0
        logs = 0
        for i in range(layout.input_start[step], layout.input_start[step + 1]):
            table = layout.inputs[i]
            low += state.low[table]
            high += state.high[table]
            scale += state.scale[table]
            below += min(state.low[table], 0.0)
            above += max(state.high[table], 0.0)
            logs |= state.logs[table]
        high += layout.log_summed[step]
        if first == stop or logs or below < limits.lowest or above + layout.log_summed[step] > limits.highest:
            return position, done
        for j in range(first, stop):
            join = layout.joins[j]
            _join(values, layout.codes, join[0], layout.bases, join[1], join[2], state.places)
        table = layout.outputs[step]
        if low < -limits.loose or high > limits.loose:
            low, high, scale = _measure(values, scratch, layout.cells[table], scale, limits.lowest)
            if low < limits.lowest:
                return position, done
        state.stale[step] = 0
        done += 1
        put(layout, state, table, values, scratch, scale, low, high, 0)
    return len(order), done


@njit(nogil=True)
def _measure(values: Any, at: int, cells: int, scale: float, lowest: float) -> tuple[float, float, float]:
    """Scale a table to maximum 1; return exact bounds and its scale. One that spans too much stays as it is."""
    top = _greatest(values, at, cells)
    if top == 0.0:
        return 0.0, 0.0, scale
    least = top
    for i in range(cells):
        x = values[at + i]
        if 0.0 < x < least:
            least = x
    low = math.log(least) - math.log(top)
    if low >= lowest:
        for i in range(cells):
            values[at + i] /= top
    return low, 0.0, scale + math.log(top)


@njit(nogil=True, cache=True)
def normalise(layout: Any, state: Any, tables: Any, out: Any) -> bool:
    """Copy tables one after the other and make each sum to 1; False if one has logarithms, or sums out of range."""
    values, at = state.values, 0
    for table in tables:
        start, cells = layout.start[table], layout.cells[table]
        if state.logs[table] or state.low[table] < layout.limits.lowest or state.high[table] > layout.limits.loose:
            return False
        total = 0.0
        for i in range(cells):
            total += values[start + i]
        if total == 0.0:
            total = 1.0
        for i in range(cells):
            out[at + i] = values[start + i] / total
        at += cells
    return True
