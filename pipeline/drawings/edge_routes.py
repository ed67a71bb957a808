"""Lead the edges of a network around its boxes. Pure.

A straight edge that would run through a box bends at a corner of that box. Both halves are led around further boxes in
the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import hypot
from typing import Final

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]

# Pixels between an edge and a box that it passes; a smaller distance still counts as clear of the box.
_CLEAR: Final = 7.0
_TOUCH: Final = 3.0
# An edge bends at most this many times in each half; corners that are tried at each bend.
_DEPTH: Final = 4
_CORNERS: Final = 3


def edge_routes(
    places: Mapping[str, Point], sizes: Mapping[str, Point], edges: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[Point]]:
    """Return the bends of each edge between the middles of its two boxes.

    Parameters
    ----------
    places : mapping of str to (float, float)
        Middle of each box.
    sizes : mapping of str to (float, float)
        Width and height of each box.
    edges : sequence of (str, str)

    Returns
    -------
    dict
        For each edge a list of points, empty if the edge is straight. An edge for which no way is found is straight.
    """
    names = list(places)
    number = {name: k for k, name in enumerate(names)}
    middles = np.array([places[name] for name in names], dtype=np.float64).reshape(-1, 2)
    halves = np.array([sizes[name] for name in names], dtype=np.float64).reshape(-1, 2) / 2
    found = {}
    for a, b in edges:
        others = np.ones(len(names), dtype=np.bool_)
        others[[number[a], number[b]]] = False
        way = _Obstacles(middles[others], halves[others]).way(places[a], places[b], _DEPTH)
        found[a, b] = [] if way is None else way
    return found


class _Obstacles:
    """Boxes that an edge goes around."""

    def __init__(self, middles: NDArray[np.float64], halves: NDArray[np.float64]) -> None:
        self._low, self._high = middles - halves - _TOUCH, middles + halves + _TOUCH
        self._corners = [
            (middles - halves - _CLEAR)[:, [0, 1]],
            np.column_stack([(middles + halves + _CLEAR)[:, 0], (middles - halves - _CLEAR)[:, 1]]),
            np.column_stack([(middles - halves - _CLEAR)[:, 0], (middles + halves + _CLEAR)[:, 1]]),
            (middles + halves + _CLEAR)[:, [0, 1]],
        ]

    def hit(self, a: Point, b: Point) -> int:
        """Return the first box that the line between two points runs through, or -1 (Liang and Barsky 1984)."""
        start, step = np.array(a), np.array(b) - np.array(a)
        with np.errstate(divide="ignore", invalid="ignore"):
            one, two = (self._low - start) / step, (self._high - start) / step
        inside = (self._low < start) & (start < self._high)
        flat = step == 0
        enter = np.where(flat, np.where(inside, -np.inf, np.inf), np.minimum(one, two)).max(axis=1, initial=0.0)
        leave = np.where(flat, np.where(inside, np.inf, -np.inf), np.maximum(one, two)).min(axis=1, initial=1.0)
        crossed = enter < leave
        return int(np.where(crossed, enter, np.inf).argmin()) if crossed.any() else -1

    def way(self, a: Point, b: Point, depth: int) -> list[Point] | None:
        """Return the bends of the shortest way that is found, or None if there is none."""
        box = self.hit(a, b)
        if box < 0:
            return []
        if depth == 0:
            return None
        corners = sorted(
            ((float(each[box, 0]), float(each[box, 1])) for each in self._corners),
            key=lambda corner: _length([a, corner, b]),
        )
        best: list[Point] | None = None
        for corner in corners[:_CORNERS]:
            at = np.array(corner)
            if corner in (a, b) or bool(((self._low < at) & (at < self._high)).all(axis=1).any()):
                continue
            first = self.way(a, corner, depth - 1)
            second = None if first is None else self.way(corner, b, depth - 1)
            if first is not None and second is not None:
                whole = [*first, corner, *second]
                if best is None or _length([a, *whole, b]) < _length([a, *best, b]):
                    best = whole
        return best


def _length(points: Sequence[Point]) -> float:
    return sum(hypot(c - a, d - b) for (a, b), (c, d) in pairwise(points))


def curved(points: Sequence[Point], radius: float) -> str:
    """Return the commands of a path through points, with rounded bends."""
    (x, y), *others = points
    path = f"M{x:.1f} {y:.1f}"
    for before, at, after in zip(points, others, others[1:], strict=False):
        (ax, ay), (bx, by) = _towards(at, before, radius), _towards(at, after, radius)
        path += f"L{ax:.1f} {ay:.1f}Q{at[0]:.1f} {at[1]:.1f} {bx:.1f} {by:.1f}"
    return path + f"L{others[-1][0]:.1f} {others[-1][1]:.1f}"


def _towards(at: Point, other: Point, radius: float) -> Point:
    """Return the point at most ``radius`` from one point towards another, at most half way."""
    far = hypot(other[0] - at[0], other[1] - at[1])
    share = min(radius / far, 0.5) if far else 0.0
    return at[0] + share * (other[0] - at[0]), at[1] + share * (other[1] - at[1])
