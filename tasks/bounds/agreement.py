"""Cost shifting between tables that share several variables (SRMP; Kolmogorov, PAMI 2015), compiled.

As :mod:`.shifting`, which shifts between tables and single variables: the total of every assignment stays what it is,
bit for bit, and nothing is ever negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..machine_code import njit
from .shifting import share_out


@njit(cache=True, nogil=True, error_model="numpy")
def sweep(flat: Any, separators: Any, held: Any, grain: float, constant: float, limit: float, count: int) -> float:
    """Sweep ``count`` times, forwards first, then back and so on.

    Parameters
    ----------
    flat : Flat
        Its costs are not negative, multiples of ``grain``.
    separators : Separators
    held : NDArray
        Costs of the separators' entries, which are in no table.
    grain : float
        A power of two that all costs are multiples of.
    constant, limit : float
        Taken out before; totals above the limit become infinite.

    Returns
    -------
    float
        The constant; inf: nothing is left below the limit.
    """
    first, sides, cells, costs = separators.first, separators.sides, flat.cells, flat.costs
    n, widest, most = len(first) - 1, 0, 0
    for s in range(n):
        widest = max(widest, first[s + 1] - first[s])
        most = max(most, (sides[s + 1] - sides[s]) * (first[s + 1] - first[s]))
    share, gathered = np.empty(widest), np.empty(most)
    for number in range(count):
        way, room = 1 if number % 2 == 0 else 0, limit - constant
        for i in range(n):
            s = i if way == 1 else n - 1 - i
            b, d = first[s], first[s + 1] - first[s]
            before, after = 0, 0
            for k in range(sides[s], sides[s + 1]):
                f, at = separators.table[k], (k - sides[s]) * d
                before += not separators.ends[0, k]
                after += not separators.ends[1, k]
                _least(costs, cells[f], cells[f + 1], separators.entry, separators.begin[k], d, gathered, at)
                for a in range(d):
                    held[b + a] += gathered[at + a]
            least = np.inf
            for a in range(d):
                least = min(least, held[b + a])
            constant += least
            if not constant <= limit:
                return np.inf
            share_out(held, b, d, least, room, max(before, after), after if way == 1 else before, grain, share)
            for k in range(sides[s], sides[s + 1]):
                f, at = separators.table[k], (k - sides[s]) * d
                for a in range(d):
                    back = -gathered[at + a] if gathered[at + a] < np.inf else 0.0
                    gathered[at + a] = back if separators.ends[way, k] else back + share[a]
                _add(costs, cells[f], cells[f + 1], separators.entry, separators.begin[k], gathered, at, room)
    return constant


@njit(cache=True, nogil=True, error_model="numpy")
def _least(costs: Any, begin: int, end: int, entry: Any, shift: int, d: int, least: Any, at: int) -> None:
    """Write the least cost of each entry to ``least[at:]``."""
    for a in range(d):
        least[at + a] = np.inf
    for p in range(end - begin):
        e = at + entry[shift + p]
        cost = costs[begin + p]
        least[e] = cost if cost < least[e] else least[e]


@njit(cache=True, nogil=True, error_model="numpy")
def _add(costs: Any, begin: int, end: int, entry: Any, shift: int, change: Any, at: int, room: float) -> None:
    """Add ``change[at:]`` to the entries; forbid what is then above the room."""
    for p in range(end - begin):
        cost = costs[begin + p] + change[at + entry[shift + p]]
        costs[begin + p] = cost if cost <= room else np.inf


@njit(cache=True, nogil=True)
def settle(flat: Any, separators: Any, held: Any, room: float) -> None:
    """Give what separators hold to one table each."""
    first, sides, cells = separators.first, separators.sides, flat.cells
    for s in range(len(first) - 1):
        k, b = sides[s], first[s]
        f, d = separators.table[k], first[s + 1] - b
        _add(flat.costs, cells[f], cells[f + 1], separators.entry, separators.begin[k], held, b, room)
        held[b : b + d] = 0.0
