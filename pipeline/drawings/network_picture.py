"""Networks of boxes: variables with their distributions inside, functions, or communities of many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from math import hypot
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...cluster.version import install_hint
from ..errors import BucketflowError, shorten
from .network_layouts import Edge, placed
from .shown import DisplayPolicy
from .svg import LABEL_CHARACTERS, LINE, MARGIN, Canvas, Svg, legend_words, text_width

# Lead the edges of a network around its boxes. Pure.
#
# A straight edge that would run through a box bends at a corner of that box. Both halves are led around further boxes
# in the same way.

Point = tuple[float, float]

# Pixels between an edge and a box that it passes; a smaller distance still counts as clear of the box.
_CLEAR: Final = LINE / 3
_TOUCH: Final = _CLEAR / 2
# An edge bends at most this many times in each half; with each bend one corner less is tried.
_DEPTH: Final = 4


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
        for corner in corners[:depth]:
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


# States of a variable that are shown in its box.
_BAR_STATES: Final = 6
# Room for the title and the sentence below it; a row of a state, and the longest bar in it.
_TOP, _ROW, _BAR = 3 * LINE, 0.7 * LINE, 3.5 * LINE

Pair = tuple[float, float]
NodeKind = Literal["variable", "function", "community"]


@dataclass(frozen=True)
class NetworkNode:
    """A box of a network.

    Parameters
    ----------
    key : str
    label : str
    kind : {"variable", "function", "community"}
    bars : tuple of (str, float)
        The states of a variable, and a number between 0 and 1 for each.
    observed : bool
    doubt : float or None
        How undecided it is, between 0 and 1: its entropy over the most that it might have.
    text : str
        Its tooltip.
    members : int
        Variables of a community.
    """

    key: str
    label: str
    kind: NodeKind = "variable"
    bars: tuple[tuple[str, float], ...] = ()
    observed: bool = False
    doubt: float | None = None
    text: str = ""
    members: int = 1


def network_picture(title: str, nodes: Sequence[NetworkNode], edges: Sequence[Edge], directed: bool) -> Svg:
    """Draw a network; a network with many nodes is drawn as its communities.

    Parameters
    ----------
    title : str
    nodes : sequence of NetworkNode
    edges : sequence of (str, str)
    directed : bool
        Whether edges have arrowheads.
    """
    told = f"{len(nodes):,} nodes, {len(edges):,} edges"
    weights: Mapping[Edge, int] = {}
    if len(nodes) > DisplayPolicy.current().network_nodes:
        nodes, weights = _communities(nodes, edges)
        edges, directed = list(weights), False
        told += (
            f", drawn as {len(nodes):,} communities; a line's width shows the number of edges between two communities"
        )
    sizes = {node.key: _size(node) for node in nodes}
    # nodes get places first, then edges bend around them
    places = placed(sizes, edges, directed)
    canvas = Canvas()
    at = {key: (x + MARGIN, y + _TOP) for key, (x, y) in places.items()}
    most = max(weights.values(), default=1)
    for (a, b), bends in edge_routes(at, sizes, edges).items():
        begin = _edge_of(at[a], sizes[a], (bends or [at[b]])[0])
        end = _edge_of(at[b], sizes[b], (bends or [at[a]])[-1])
        more = " marker-end='url(#bf-end)'" if directed else ""
        if weights:
            more = f" style='stroke-width:{1 + 5 * weights[a, b] / most:.1f}'"
        canvas.path(curved([begin, *bends, end], LINE / 2), more=more)
    for node in nodes:
        _draw(canvas, node, at[node.key], sizes[node.key])
    width = max([6 * _BAR, text_width([told], len(told)), *(x + sizes[k][0] / 2 for k, (x, _) in at.items())]) + MARGIN
    height = max([_TOP, *(y + sizes[k][1] / 2 for k, (_, y) in at.items())]) + MARGIN
    canvas.text(MARGIN, 24, title, "title")
    canvas.text(MARGIN, 44, told, "soft")
    legend = Canvas()
    width = max(width, _legend(legend, nodes, bool(weights), directed, height) + MARGIN)
    canvas.group("legend", legend)
    return canvas.svg(width, height + 26, title, told)


def _legend(canvas: Canvas, nodes: Sequence[NetworkNode], communities: bool, directed: bool, y: float) -> float:
    """Draw below a network what its shapes and colours mean; return where the legend ends."""
    x = MARGIN
    if directed:
        canvas.path(f"M{x:.1f} {y:.1f}H{x + 22:.1f}", more=" marker-end='url(#bf-end)'")
        x = legend_words(canvas, x + 28, y, "from a parent to a child")
    elif communities:
        canvas.line((x, y, x + 22, y), width=4)
        x = legend_words(canvas, x + 28, y, "functions between two communities")
    else:
        canvas.line((x, y, x + 22, y))
        x = legend_words(canvas, x + 28, y, "function of two variables")
    if any(node.kind == "function" for node in nodes):
        canvas.rect((x, y - 6, 12, 12), "bar")
        x = legend_words(canvas, x + 18, y, "function of more variables")
    if any(node.observed for node in nodes):
        canvas.rect((x, y - 6, 20, 12), "box seen", rounded=3)
        x = legend_words(canvas, x + 26, y, "observed")
    if any(node.doubt is not None for node in nodes):
        for k in range(10):
            canvas.rect((x + 5 * k, y - 5, 5, 10), fill=_doubt_colour(k / 9))
        x = legend_words(canvas, x + 56, y, "certain … undecided")
    return x


def _size(node: NetworkNode) -> tuple[float, float]:
    if node.kind == "function":
        return 12.0, 12.0
    if node.kind == "community":
        side = 34 + 7 * math.sqrt(node.members)
        return max(side, text_width([node.label], LABEL_CHARACTERS)), side
    label = text_width([node.label], LABEL_CHARACTERS) + 16
    if not node.bars:
        return max(label, 40.0), 26.0
    shown = node.bars[:_BAR_STATES]
    rows = len(shown) + (len(node.bars) > len(shown))
    states = text_width([state for state, _ in shown], 2 * LABEL_CHARACTERS // 3) * 0.95
    return max(label, states + _BAR + 66.0), LINE + _ROW * rows + 6.0


def _draw(canvas: Canvas, node: NetworkNode, at: tuple[float, float], size: tuple[float, float]) -> None:
    """Draw one node: a function, a community, or a variable with bars for its states.

    Parameters
    ----------
    canvas : Canvas
    node : NetworkNode
    at : (float, float)
        Center of the node, in pixels.
    size : (float, float)
        Width and height, in pixels.
    """
    (x, y), (width, height) = at, size
    box = (x - width / 2, y - height / 2, width, height)
    if node.kind == "function":
        canvas.rect(box, "bar", title=node.text)
        return
    label = shorten(node.label, LABEL_CHARACTERS)
    if node.kind == "community":
        canvas.rect(box, "box", title=node.text, rounded=height / 2)
        canvas.text(x, y - 2, label, "label", "middle")
        canvas.text(x, y + 12, f"{node.members:,} variables", "label", "middle")
        return
    canvas.rect(box, "box seen" if node.observed else "box", title=node.text, rounded=5)
    if node.doubt is not None:
        # the left edge shows the uncertainty, so that observed and unobserved frames stay comparable
        canvas.rect((box[0], box[1], 5, height), fill=_doubt_colour(node.doubt), rounded=2)
    canvas.text(x, box[1] + 15 if node.bars else y + 4, label, anchor="middle")
    shown = node.bars[:_BAR_STATES]
    left = box[0] + 9
    begin = box[0] + width - _BAR - 48
    for k, (state, share) in enumerate(shown):
        line = box[1] + LINE + _ROW * k + 10
        canvas.text(left, line, shorten(state, 2 * LABEL_CHARACTERS // 3), "label")
        canvas.rect((begin, line - 8, _BAR * min(max(share, 0.0), 1.0), 9), "bar")
        canvas.text(box[0] + width - 5, line, f"{100 * share:.1f}%", "label", "end")
    if more := len(node.bars) - len(shown):
        canvas.text(left, box[1] + LINE + _ROW * len(shown) + 10, f"and {more} more", "label soft")


def _doubt_colour(doubt: float) -> str:
    """Return a colour from green (certain) to red (undecided)."""
    mixed = hls_to_rgb((1 - min(max(doubt, 0.0), 1.0)) / 3, 0.45, 0.65)
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed)


def _edge_of(at: Pair, size: Pair, towards: Pair) -> Pair:
    """Return the point where the line from the middle of a box towards another point leaves the box."""
    dx, dy = towards[0] - at[0], towards[1] - at[1]
    if dx == dy == 0:
        return at
    part = min(size[0] / 2 / abs(dx) if dx else math.inf, size[1] / 2 / abs(dy) if dy else math.inf, 1.0)
    return at[0] + part * dx, at[1] + part * dy


def _communities(nodes: Sequence[NetworkNode], edges: Sequence[Edge]) -> tuple[list[NetworkNode], dict[Edge, int]]:
    """Return a node for each community, and the number of edges between two communities.

    Communities have greatest modularity (Blondel et al. 2008); functions belong to the communities of their variables.

    Parameters
    ----------
    nodes : sequence of NetworkNode
    edges : sequence of (str, str)

    Raises
    ------
    BucketflowError
        If networkx is not installed.
    """
    if find_spec("networkx") is None:
        why = f"a network of {len(nodes):,} nodes is drawn by its communities, and finding them needs networkx"
        raise BucketflowError(f"{why}: {install_hint('draw')}")
    import networkx  # type: ignore[import-untyped,unused-ignore]

    graph = networkx.Graph()
    graph.add_nodes_from(node.key for node in nodes)
    graph.add_edges_from(edges)
    found = sorted(networkx.community.louvain_communities(graph, seed=0), key=len, reverse=True)
    most, order = DisplayPolicy.current().communities, {node.key: k for k, node in enumerate(nodes)}
    groups = [sorted(group, key=order.__getitem__) for group in found]
    if len(groups) > most:
        groups = [*groups[: most - 1], [key for group in groups[most - 1 :] for key in group]]
    where = {key: f"c{k}" for k, group in enumerate(groups) for key in group}
    known = {node.key: node for node in nodes}
    made = []
    for k, group in enumerate(groups):
        own = [known[key] for key in group if known[key].kind == "variable"]
        names = ", ".join(node.label for node in own[:12]) + (", …" if len(own) > 12 else "")
        label = own[0].label if own else "functions"
        seen = any(node.observed for node in own)
        made.append(NetworkNode(f"c{k}", label, "community", observed=seen, text=names, members=len(own)))
    weights: dict[Edge, int] = {}
    for a, b in edges:
        pair = min(where[a], where[b]), max(where[a], where[b])
        if pair[0] != pair[1]:
            weights[pair] = weights.get(pair, 0) + 1
    return made, weights
