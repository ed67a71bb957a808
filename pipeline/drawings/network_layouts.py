"""Place the boxes of a network: on a grid, by Graphviz if it is installed, by networkx, or level by level."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .svg import LINE

Edge = tuple[str, str]
Places = dict[str, tuple[float, float]]
Sizes = Mapping[str, tuple[float, float]]

# Pixels between boxes.
_GAP: Final = 1.3 * LINE
# Rounds in which boxes that overlap move apart, at most.
_ROUNDS: Final = 80


def placed(sizes: Sizes, edges: Sequence[Edge], directed: bool) -> Places:
    """Return the middles of boxes, which do not overlap, in pixels from the upper left corner.

    Parameters
    ----------
    sizes : mapping of str to (float, float)
        Width and height of each box, by its key.
    edges : sequence of (str, str)
        Those of a directed network from parents, which stand above, to children.
    directed : bool
    """
    if not sizes:
        return {}
    if not directed and (cells := grid_cells(list(sizes), edges)):
        return _on_grid(sizes, cells)
    if (dot := shutil.which("dot")) is not None and (found := _by_graphviz(dot, sizes, edges, directed)):
        return found
    if directed or find_spec("networkx") is None:
        return _by_level(sizes, edges)
    return _by_springs(sizes, edges)


def grid_cells(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, tuple[int, int]]:
    """Return the column and the row of each node if the network is a rectangular grid, and nothing otherwise.

    The distances of a node from two neighbouring corners are the sum and the difference of its coordinates. The
    coordinates are a proof: every cell has one node, and every edge joins two neighbours.

    Parameters
    ----------
    names : sequence of str
    edges : sequence of (str, str)
    """
    beside: dict[str, set[str]] = {name: set() for name in names}
    for a, b in edges:
        beside[a].add(b)
        beside[b].add(a)
    pairs = sum(map(len, beside.values())) // 2
    corners = [name for name in names if len(beside[name]) == 2]
    if len(corners) != 4:
        return {}
    first = _distances(beside, corners[0])
    for corner in corners[1:]:
        # one of the other corners ends the first row, whose length is its distance
        columns = first.get(corner, 0) + 1
        rows, rest = divmod(len(names), columns)
        if rest or rows < 2 or columns < 2 or pairs != rows * (columns - 1) + columns * (rows - 1):
            continue
        second = _distances(beside, corner)
        cells = {
            name: ((first[name] - second[name] + columns - 1) // 2, (first[name] + second[name] - columns + 1) // 2)
            for name in names
            if name in first and name in second
        }
        near = all(
            sum(abs(p - q) for p, q in zip(cells[a], cells[b], strict=True)) == 1 for a, b in edges if a in cells
        )
        if near and len({*cells.values()}) == len(names) and max(row for _, row in cells.values()) == rows - 1:
            return cells
    return {}


def _distances(beside: Mapping[str, set[str]], start: str) -> dict[str, int]:
    """Return the number of edges between a node and every other that it is connected to."""
    found, ring, far = {start: 0}, [start], 0
    while ring:
        far += 1
        ring = list(dict.fromkeys(other for name in ring for other in beside[name] if other not in found))
        found.update(dict.fromkeys(ring, far))
    return found


def _on_grid(sizes: Sizes, cells: Mapping[str, tuple[int, int]]) -> Places:
    """Place boxes in columns and rows of equal size."""
    across = max(width for width, _ in sizes.values()) + _GAP
    down = max(height for _, height in sizes.values()) + _GAP
    return _from_corner({name: (across * column, down * row) for name, (column, row) in cells.items()}, sizes)


def _by_graphviz(dot: str, sizes: Sizes, edges: Sequence[Edge], directed: bool) -> Places:
    """Ask Graphviz; nothing where it fails or takes long."""
    names = list(sizes)
    number = {name: k for k, name in enumerate(names)}
    inch = 72.0  # sizes of Graphviz are in inches of 72 points
    boxes = [f"n{k} [width={w / inch:.3f},height={h / inch:.3f}];" for k, (w, h) in enumerate(sizes.values())]
    arrows = [f"n{number[a]} -> n{number[b]};" for a, b in edges]
    engine = "dot" if directed else "neato"
    settings = f'graph [layout={engine},overlap=false,splines=false,start=1];node [shape=box,fixedsize=true,label=""];'
    text = f"digraph {{{settings}{''.join(boxes)}{''.join(arrows)}}}"
    try:
        done = subprocess.run([dot, "-Tplain"], input=text, capture_output=True, text=True, timeout=20.0, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = [line.split() for line in done.stdout.splitlines()]
    found = {names[int(w[1][1:])]: (float(w[2]) * inch, -float(w[3]) * inch) for w in lines if w and w[0] == "node"}
    return _from_corner(found, sizes) if len(found) == len(names) else {}


def _by_springs(sizes: Sizes, edges: Sequence[Edge]) -> Places:
    import networkx  # type: ignore[import-untyped,unused-ignore]

    graph = networkx.Graph()
    graph.add_nodes_from(sizes)
    graph.add_edges_from(edges)
    found = networkx.spring_layout(graph, seed=0, iterations=300)
    names = list(sizes)
    boxes = np.array([sizes[name] for name in names])
    spread = float(np.sqrt((boxes[:, 0] + _GAP).max() * (boxes[:, 1] + _GAP).max() * len(names))) * 1.2
    middles = np.array([found[name] for name in names])
    middles = (middles - middles.min(axis=0)) / np.maximum(np.ptp(middles, axis=0), 1e-9) * [1.6 * spread, spread]
    apart = _moved_apart(middles, boxes + _GAP)
    return _from_corner({name: (float(x), float(y)) for name, (x, y) in zip(names, apart, strict=True)}, sizes)


def _moved_apart(middles: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move boxes that overlap apart along the axis in which they overlap less.

    Parameters
    ----------
    middles, boxes : ndarray, shape (boxes, 2)
        Middles, and widths and heights.
    """
    middles, least = middles.copy(), (boxes[:, None] + boxes[None]) / 2
    for _ in range(_ROUNDS):
        between = middles[:, None] - middles[None]
        over = least - np.abs(between)
        over[np.arange(len(middles)), np.arange(len(middles))] = 0
        hit = (over > 0).all(axis=2)
        if not hit.any():
            break
        axis = over.argmin(axis=2)
        sign = np.where(between == 0, np.triu(np.ones(hit.shape), 1)[:, :, None] * 2 - 1, np.sign(between))
        for k in range(2):
            push = np.where(hit & (axis == k), over[:, :, k] * sign[:, :, k] / 2, 0.0)
            middles[:, k] += push.sum(axis=1) / np.maximum((push != 0).sum(axis=1), 1)
    return middles


def _by_level(sizes: Sizes, edges: Sequence[Edge]) -> Places:
    """Put every box one level below its lowest predecessor, and horizontally in the middle of its neighbours.

    Levels of longest paths (Sugiyama, Tagawa and Toda 1981), ordered by two passes of means.
    """
    levels = _levels(sizes, edges)
    rows: dict[int, list[str]] = defaultdict(list)
    for name in sizes:
        rows[levels[name]].append(name)
    beside: dict[str, list[str]] = defaultdict(list)
    for a, b in edges:
        beside[a].append(b)
        beside[b].append(a)
    across: dict[str, float] = {}
    for order in (sorted(rows), sorted(rows, reverse=True), sorted(rows)):
        for level in order:
            _set_row(rows[level], beside, across, sizes)
    top, found = 0.0, dict[str, tuple[float, float]]()
    for level in sorted(rows):
        height = max(sizes[name][1] for name in rows[level])
        found |= {name: (across[name], top + height / 2) for name in rows[level]}
        top += height + 1.6 * _GAP
    return _from_corner(found, sizes)


def _levels(names: Sizes, edges: Sequence[Edge]) -> dict[str, int]:
    """Return the length of the longest path to each name; nodes of a cycle keep their first level."""
    below: dict[str, list[str]] = defaultdict(list)
    above = dict.fromkeys(names, 0)
    for a, b in edges:
        below[a].append(b)
        above[b] += 1
    levels = dict.fromkeys(names, 0)
    ready = [name for name in names if not above[name]] or list(names)[:1]
    seen = set(ready)
    while ready:
        name = ready.pop()
        for kid in below[name]:
            above[kid] -= 1
            if kid not in seen:
                levels[kid] = max(levels[kid], levels[name] + 1)
            if above[kid] == 0 and kid not in seen:
                seen.add(kid)
                ready.append(kid)
        if not ready and len(seen) < len(names):
            rest = next(other for other in names if other not in seen)
            seen.add(rest)
            ready.append(rest)
    return levels


def _set_row(row: list[str], beside: Mapping[str, Sequence[str]], across: dict[str, float], sizes: Sizes) -> None:
    """Order a row by the means of neighbours that are placed, and set its boxes beside each other about the middle."""

    def mean(name: str) -> float:
        known = [across[other] for other in beside[name] if other in across]
        return sum(known) / len(known) if known else across.get(name, 0.0)

    wanted = {name: mean(name) for name in row}
    row.sort(key=lambda name: wanted[name])
    place, found = -float("inf"), []
    for name in row:
        half = sizes[name][0] / 2
        place = max(wanted[name], place + half)
        found.append(place)
        place += half + _GAP
    shift = sum(wanted[name] for name in row) / len(row) - sum(found) / len(row)
    across.update({name: x + shift for name, x in zip(row, found, strict=True)})


def _from_corner(found: Places, sizes: Sizes) -> Places:
    left = min(x - sizes[name][0] / 2 for name, (x, _) in found.items())
    top = min(y - sizes[name][1] / 2 for name, (_, y) in found.items())
    return {name: (x - left, y - top) for name, (x, y) in found.items()}
