"""Cost shifting between functions of two variables and the triangles that three of them make, compiled.

As :mod:`.clusters`, for clusters of three variables of which any two share a function. A triangle has no table: its
cost is the sum of the costs that it holds for its three sides, so that domains of forty values do not need 64,000
cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..compiler.jit import njit
from .flat import Flat, Integers, offsets
from .srmp import share_out


class Triangles(NamedTuple):
    """Three functions each, over the variables ``i < j``, ``i < k`` and ``j < k``.

    Parameters
    ----------
    sides : NDArray
        (triangles, 3) these functions, in this order, which is also theirs in the network.
    begin : NDArray
        (triangles, 3) where what a triangle holds for each begins: an entry a cell.
    around : NDArray
        (functions + 1,) where a function's triangles begin in ``incident``.
    incident : NDArray
        Triangles by function.
    """

    sides: Any
    begin: Any
    around: Any
    incident: Any


def triangles_of(flat: Flat, sides: Sequence[Sequence[int]]) -> Triangles:
    """Lay triangles out."""
    functions: Integers = np.array(sides, np.int64).reshape(-1, 3)
    begin = offsets(np.diff(flat.cells)[functions.reshape(-1)])[:-1].reshape(-1, 3)
    around = offsets(np.bincount(functions.reshape(-1), minlength=flat.n_functions))
    return Triangles(functions, begin, around, np.argsort(functions.reshape(-1), kind="stable") // 3)


def held_cells(flat: Flat, sides: Sequence[Sequence[int]]) -> int:
    """Return how many entries triangles hold."""
    return int(np.diff(flat.cells)[np.array(sides, np.int64).reshape(-1)].sum())


@njit(cache=True, nogil=True, error_model="numpy", makes_arrays=True)
def sweep(flat: Any, triangles: Any, held: Any, grain: float, constant: float, limit: float, count: int) -> float:
    """Sweep ``count`` times, forwards first, then back and so on.

    Parameters
    ----------
    flat : Flat
        Its costs are not negative, multiples of ``grain``.
    triangles : Triangles
    held : NDArray
        What triangles hold; any three entries that agree add up to no less than 0.
    grain : float
        A power of two that all costs are multiples of.
    constant, limit : float
        Taken out before; totals above the limit become infinite.

    Returns
    -------
    float
        The constant; inf: nothing is left below the limit.
    """
    cells, costs, sides = flat.cells, flat.costs, triangles.sides
    around, incident = triangles.around, triangles.incident
    functions, widest, most = len(cells) - 1, 0, 0
    for f in range(functions):
        if around[f + 1] > around[f]:
            widest = max(widest, cells[f + 1] - cells[f])
        most = max(most, (around[f + 1] - around[f]) * (cells[f + 1] - cells[f]))
    share, gathered, turned = np.empty(widest), np.empty(most), np.empty(widest)
    for number in range(count):
        last, room = 2 if number % 2 == 0 else 0, limit - constant
        for i in range(functions):
            f = i if last == 2 else functions - 1 - i
            b, d, k0, k1 = cells[f], cells[f + 1] - cells[f], around[f], around[f + 1]
            if k0 == k1:
                continue
            before, after = 0, 0
            for k in range(k0, k1):
                t = incident[k]
                before += sides[t, 0] != f
                after += sides[t, 2] != f
                least_through(flat, triangles, held, t, f, gathered[(k - k0) * d : (k - k0 + 1) * d], turned)
                _add(costs[b : b + d], gathered[(k - k0) * d : (k - k0 + 1) * d], room)
            least = np.inf
            for a in range(b, b + d):
                least = min(least, costs[a])
            constant += least
            if not constant <= limit:
                return np.inf
            # The shares are SRMP's: a side gives one share to each triangle in which it is not the last side of this
            # direction.
            share_out(costs, b, d, least, room, max(before, after), after if last == 2 else before, grain, share)
            for k in range(k0, k1):
                t = incident[k]
                side = 0 if sides[t, 0] == f else 1 if sides[t, 1] == f else 2
                at = triangles.begin[t, side]
                _settle(held[at : at + d], gathered[(k - k0) * d :], costs[b:], share, side != last)
    return constant


@njit(nogil=True)
def _add(costs: Any, more: Any, room: float) -> None:
    """Add costs; forbid what is then above the room."""
    for a in range(len(costs)):
        cost = costs[a] + more[a]
        costs[a] = cost if cost <= room else np.inf


@njit(nogil=True)
def _settle(held: Any, gathered: Any, costs: Any, share: Any, takes: bool) -> None:
    """Subtract the gathered costs from a triangle's costs and add its share; forbidden entries stay forbidden."""
    for a in range(len(held)):
        if costs[a] == np.inf:
            held[a] = np.inf
        else:
            held[a] -= gathered[a] - (share[a] if takes else 0.0)


@njit(nogil=True)
def least_through(flat: Any, triangles: Any, held: Any, t: int, f: int, least: Any, turned: Any) -> None:
    """Write to ``least`` what a triangle costs at least with each cell of one of its functions."""
    sides, begin, cells, stride, edges = triangles.sides, triangles.begin, flat.cells, flat.stride, flat.edges
    ij, jk = sides[t, 0], sides[t, 2]
    n_j, n_k = stride[edges[ij]], stride[edges[jk]]
    n_i = (cells[ij + 1] - cells[ij]) // n_j
    h_ij, h_ik, h_jk = begin[t, 0], begin[t, 1], begin[t, 2]
    if f == jk:
        _least_sums(held, h_ij, 1, n_j, held, h_ik, n_j, n_i, n_k, least)
        own = h_jk
    elif f == ij:
        for b in range(n_j):
            for c in range(n_k):
                turned[c * n_j + b] = held[h_jk + b * n_k + c]
        _least_sums(held, h_ik, n_k, 1, turned, 0, n_i, n_k, n_j, least)
        own = h_ij
    else:
        _least_sums(held, h_ij, n_j, 1, held, h_jk, n_i, n_j, n_k, least)
        own = h_ik
    for a in range(len(least)):
        least[a] += held[own + a]


@njit(nogil=True)
def _least_sums(one: Any, at: int, by_row: int, by_middle: int, other: Any, begin: int, rows: int, middles: int,
                columns: int, least: Any) -> None:  # fmt: skip
    """Write the least sum of an entry of a row and one of a column, over what is between: four at a time.

    Parameters
    ----------
    one : (cells,) float64
        A table whose entry of row ``a`` and middle ``c`` is ``at + a * by_row + c * by_middle``.
    other : (cells,) float64
        A table whose middles times columns begin at ``begin``, columns fastest.
    rows, middles, columns : int
        Numbers of states.
    least : (rows * columns,) float64
        Written to: the least sum over the middles.
    """
    table, n = other[begin : begin + middles * columns], np.uint64(columns)
    for a in range(rows):
        row, c, p = least[a * columns : (a + 1) * columns], 0, np.uint64(0)
        for b in range(n):
            row[b] = np.inf
        while c + 4 <= middles:
            q = at + a * by_row + c * by_middle
            x, y, z, w = one[q], one[q + by_middle], one[q + 2 * by_middle], one[q + 3 * by_middle]
            for b in range(n):
                r = p + np.uint64(b)
                first, second = x + table[r], y + table[r + n]
                third, fourth = z + table[r + n + n], w + table[r + n + n + n]
                first = first if first < second else second
                third = third if third < fourth else fourth
                first = first if first < third else third
                row[b] = first if first < row[b] else row[b]
            p += n + n + n + n
            c += 4
        while c < middles:
            x = one[at + a * by_row + c * by_middle]
            for b in range(n):
                first = x + table[p + np.uint64(b)]
                row[b] = first if first < row[b] else row[b]
            p += n
            c += 1
