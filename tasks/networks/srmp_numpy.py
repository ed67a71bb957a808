"""SRMP in NumPy: variables that share no function are done together, so that no compiler is needed.

Every number equals the number that :mod:`.srmp` computes. A variable comes after its neighbours before it in the order,
and sums of multiples of a power of two do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .flat import Costs, Flags, Flat, Integers, entries_of, offsets, parts


class Level(NamedTuple):
    """Variables that share no function. An *entry* is a value of one, a *slice* the cells of a table with one value.

    Parameters
    ----------
    entries, owners, first : NDArray
        Place in ``unary`` and variable of each entry; where the entries of a variable begin.
    cells, begins, counts : NDArray
        Cells, slice by slice; where slices begin in them, and how many there are.
    entry, shifts : NDArray
        Of each slice: its entry, and its place among the shifts.
    taking : NDArray
        (2, slices): whether its table takes a share on the way forwards, and back.
    takers, shares : NDArray
        (2, entries), (entries,): how many tables take one; how many shares there are.
    """

    entries: Integers
    owners: Integers
    first: Integers
    cells: Integers
    begins: Integers
    counts: Integers
    entry: Integers
    shifts: Integers
    taking: Flags
    takers: Costs
    shares: Costs


def level_numbers(flat: Flat, order: Integers) -> Integers:
    """Return for each variable how many neighbours that come one after the other stand before it in an order."""
    around = flat.around.tolist()
    functions = flat.function[flat.incident].tolist()
    highest = [-1] * flat.n_functions
    numbers = [0] * (len(around) - 1)
    for x in order.tolist():
        own = functions[around[x] : around[x + 1]]
        numbers[x] = 1 + max((highest[f] for f in own), default=-1)
        for f in own:
            highest[f] = numbers[x]
    return np.array(numbers, np.int64)


def levels_of(flat: Flat, numbers: Integers, ends: Flags, shift: Integers) -> tuple[Level, ...]:
    """Return the levels of a network; the other parameters are the parameters of :func:`.srmp.sweep`."""
    return tuple(_levels(flat, numbers, ends, shift))


def _levels(flat: Flat, numbers: Integers, ends: Flags, shift: Integers) -> Iterator[Level]:
    """Yield what sweeps need of each level, as arrays over its edges, values and cells.

    Parameters
    ----------
    flat : Flat
    numbers : (variables,) int64
        The level of each variable; variables of one level share no function.
    ends : (2, edges) bool
        Whether the edge's variable is the first, and the last, of its function in the order.
    shift : (edges,) int64
        Where the shifts of an edge begin.

    Yields
    ------
    Level
        In ascending order of their numbers.
    """
    dims, sizes = flat.dims, np.diff(flat.cells)
    for number in range(int(numbers.max(initial=-1)) + 1):
        chosen = np.flatnonzero(numbers == number)
        edges = flat.incident[parts(flat.around, chosen)]
        degrees = flat.around[chosen + 1] - flat.around[chosen]
        owner, function, d = np.repeat(np.arange(len(chosen)), degrees), flat.function[edges], dims[flat.scope[edges]]
        first = offsets(dims[chosen])
        value, edge = _ranges(d)
        counts = (sizes[function] // d)[edge]
        cell, slice_ = _ranges(counts)
        # The cells of a slice come in runs of ``inner`` cells; the runs of one value are ``wide * inner`` cells apart.
        inner, wide = flat.stride[edges][edge][slice_], d[edge][slice_]
        cells = flat.cells[function][edge][slice_] + (cell // inner * wide + value[slice_]) * inner + cell % inner
        # Row 0 is the sweep forth, in which the last variable of a function takes no share: hence the reversed rows of
        # ``ends``.
        taking = ~ends[::-1, edges]
        takers: Costs = np.stack([np.bincount(owner, side.astype(np.float64), len(chosen)) for side in taking])
        owners = np.repeat(np.arange(len(chosen)), dims[chosen])
        yield Level(
            parts(flat.first, chosen),
            owners,
            first[:-1],
            cells,
            offsets(counts)[:-1],
            counts,
            first[owner][edge] + value,
            shift[edges][edge] + value,
            taking[:, edge],
            takers[:, owners],
            takers.max(axis=0)[owners],
        )


def _ranges(counts: Integers) -> tuple[Integers, Integers]:
    """Return 0 … count - 1 for each count, and which count it was."""
    which = np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(which)) - offsets(counts)[which], which


def sweep(
    flat: Flat,
    levels: tuple[Level, ...],
    shifts: Costs,
    grain: float,
    constant: float,
    limit: float,
    count: int,
) -> tuple[float, int, int]:
    """Sweep ``count`` times; see :func:`.srmp.sweep`."""
    unsupported = dear = 0
    for number in range(count):
        room = limit - constant
        for level in levels if number % 2 == 0 else levels[::-1]:
            least, lost, gone = _sweep_level(flat, level, number % 2, shifts, grain, room)
            unsupported += lost
            dear += gone
            constant += least
            if not constant <= limit:
                return np.inf, unsupported, dear
    return constant, unsupported, dear


def _sweep_level(
    flat: Flat, level: Level, side: int, shifts: Costs, grain: float, room: float
) -> tuple[float, int, int]:
    """Collect the least costs of slices, take out what each variable must pay, and give shares back.

    Parameters
    ----------
    flat : Flat
        Its costs (float64) are changed in place.
    level : Level
    side : int
        0 on the way forth, 1 back.
    shifts : (values of all edges,) float64
        The costs that were moved to tables are added here; empty if they are not wanted.
    grain : float
        Shares are multiples of it, so that sums of integers stay exact.
    room : float
        Costs above become infinite.

    Returns
    -------
    tuple of (float, int, int)
        The cost that the variables must pay together, infinite if nothing is possible; the number of values that lost
        their support, and the number of values that cost more than ``room``.
    """
    costs = flat.costs[level.cells]
    gathered = np.minimum.reduceat(costs, level.begins) if len(costs) else costs
    before = flat.unary[level.entries]
    unary = before + np.bincount(level.entry, gathered, len(before))
    lost = int(np.count_nonzero((unary == np.inf) & (before < np.inf)))
    least = np.minimum.reduceat(unary, level.first)
    total = float(least.sum())
    if total == np.inf:
        return total, lost, 0
    unary -= least[level.owners]
    above = (unary > room) & (unary < np.inf)
    unary[above] = np.inf
    takers = level.takers[side]
    alive = (unary < np.inf) & (takers > 0)
    # Rounded down to the grain: shares are exact in float64, and what rounding leaves stays in the unary cost.
    share = np.full(len(unary), np.inf)
    share[alive] = np.floor(unary[alive] / (level.shares[alive] * grain)) * grain
    unary[alive] -= share[alive] * takers[alive]
    flat.unary[level.entries] = unary
    change = np.where(gathered < np.inf, -gathered, 0.0)
    change[level.taking[side]] += share[level.entry[level.taking[side]]]
    if len(shifts):
        shifts[level.shifts] += change
    costs += np.repeat(change, level.counts)
    costs[costs > room] = np.inf
    flat.costs[level.cells] = costs
    return total, lost, int(np.count_nonzero(above))


def shift_back(flat: Flat, levels: tuple[Level, ...], shifts: Costs) -> None:
    """Add whole shifts to the tables, and take them from the unary costs."""
    for level in levels:
        change = shifts[level.shifts]
        flat.costs[level.cells] += np.repeat(change, level.counts)
        flat.unary[level.entries] -= np.bincount(level.entry, change, len(level.entries))


def forbid_tuples(flat: Flat, levels: tuple[Level, ...], room: float) -> int:
    """Forbid the cells that cost more than the room together with the unary costs of their values; return how many."""
    total = flat.costs.copy()
    for level in levels:
        total[level.cells] += np.repeat(flat.unary[level.entries][level.entry], level.counts)
    above = (total > room) & (flat.costs < np.inf)
    flat.costs[above] = np.inf
    return int(np.count_nonzero(above))


def decode(flat: Flat, order: Integers, states: Integers) -> None:
    """Assign the variables in an order, each the value that is cheapest with those before it."""
    if (states < 0).any():
        _begin(flat, order, states)
    else:
        _improve(flat, order, states)


def _begin(flat: Flat, order: Integers, states: Integers) -> None:
    """Assign variables that have no state; for variables that are not assigned yet the cheapest state is assumed."""
    dims = flat.dims
    for x in order:
        score = flat.unary[flat.first[x] : flat.first[x + 1]].copy()
        for f in flat.function[flat.incident[flat.around[x] : flat.around[x + 1]]]:
            scope = flat.scope[flat.edges[f] : flat.edges[f + 1]]
            table = flat.costs[flat.cells[f] : flat.cells[f + 1]].reshape(dims[scope])
            index: list[Any] = [slice(None) if y == x or states[y] < 0 else int(states[y]) for y in scope]
            free = [y for y in scope if y == x or states[y] < 0]
            score += table[tuple(index)].min(axis=tuple(i for i, y in enumerate(free) if y != x))
        states[x] = _cheapest(score, max(int(states[x]), 0))


def _improve(flat: Flat, order: Integers, states: Integers) -> None:
    """Assign variables again, with all others as they are."""
    places = entries_of(flat, states)
    for x in order.tolist():
        edges, own = flat.incident[flat.around[x] : flat.around[x + 1]], int(states[x])
        functions, strides = flat.function[edges], flat.stride[edges]
        unary = flat.unary[flat.first[x] : flat.first[x + 1]]
        rows = (places[functions] - own * strides)[:, None] + strides[:, None] * np.arange(len(unary))
        states[x] = best = _cheapest(unary + flat.costs[rows].sum(axis=0), own)
        if best != own:
            places[functions] += (best - own) * strides


def _cheapest(score: Costs, own: int) -> int:
    """The first of the cheapest values, or the own one if it is among them."""
    best = int(score.argmin())
    return own if score[own] == score[best] else best
