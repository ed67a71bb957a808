"""Charts without scripts: lines, spans of time, trees of agents, and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

from ..errors import shorten
from .html import LOG_RATIO, Html, bar, cell, number_text, shares
from .html import bars as bars
from .html import below as below
from .shown import LISTED_MEMBERS, DisplayPolicy
from .svg import LINE, Canvas, Svg

# A bound is omitted from the axis if its distance from the others is this many times their range.
_FIRST_BOUND_RATIO: Final = 20.0

_WIDTH: Final = 38 * LINE
_LEFT, _RIGHT, _TOP, _BOTTOM = 4.5 * LINE, LINE, 3 * LINE, 2.3 * LINE

Points = Sequence[tuple[float, float]]


class _Axis:
    """Numbers as places along a line, by their logarithm where they span decades."""

    def __init__(self, values: Sequence[float], begin: float, end: float, whole: bool = False) -> None:
        positive = [value for value in values if value > 0]
        ratio = max(positive, default=1.0) / min(positive, default=1.0)
        self.logarithmic = len(positive) >= len(values) - whole and ratio >= LOG_RATIO
        known = positive if self.logarithmic else [*values, *([0.0] if whole else [])]
        self.low, self.high = min(known, default=0.0), max(known, default=1.0)
        # ticks that differ by less would be equal as texts: floats have no more digits
        if math.isclose(self.low, self.high, rel_tol=1e-12):
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        """Return where a number is, no further than the ends."""
        inside = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self._begin + share * (self._end - self._begin)

    def labels(self) -> list[tuple[float, str]]:
        """Return the ticks with their texts, with as many digits as tell the ticks apart."""
        ticks = self.ticks()
        texts = [number_text(tick) for tick in ticks]
        if len({*texts}) < len(texts):
            step = min(after - before for before, after in pairwise(ticks))
            texts = [f"{tick:.{max(0, -math.floor(math.log10(step)))}f}" for tick in ticks]
        return list(zip(ticks, texts, strict=True))

    def ticks(self) -> list[float]:
        """Return numbers to be written beside the axis."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            by = max(1, (last - first) // 5)
            return [10.0**k for k in range(first, last + 1, by)]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
        step *= next(k for k in (1.0, 2.0, 5.0, 10.0) if (self.high - self.low) / (step * k) <= 6)
        return [k * step for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def lines(title: str, series: Mapping[str, Points], across: str, unit: str) -> Svg:
    """Draw up to two series of points as steps; a first value far beyond all others is cut off.

    Parameters
    ----------
    title : str
    series : mapping of str to sequence of (x, y)
        At most two.
    across, unit : str
        Titles of the axes.
    """
    canvas, height = Canvas(), 300
    shown = {name: points for name, points in series.items() if points}
    far = _far_values([y for points in shown.values() for _, y in points])
    times = [x for points in shown.values() for x, _ in points]
    end = max(times, default=1.0)
    if len({*times}) < 2:  # values of one moment are lines from there on
        end = 2 * end or 1.0
    x = _Axis([*times, end], _LEFT, _WIDTH - _RIGHT, whole=True)
    y = _Axis([v for points in shown.values() for _, v in points if v not in far], height - _BOTTOM, _TOP)
    canvas.text(_LEFT, 20, title, "title")
    for tick, text in y.labels():
        canvas.line((_LEFT, y.at(tick), _WIDTH - _RIGHT, y.at(tick)), width=0.3)
        canvas.text(_LEFT - 8, y.at(tick) + 4, text, "label", "end")
    for tick, text in x.labels():
        canvas.line((x.at(tick), height - _BOTTOM, x.at(tick), height - _BOTTOM + 5))
        canvas.text(x.at(tick), height - _BOTTOM + 18, text, "label", "middle")
    scales = [f"{what}, logarithmic" if axis.logarithmic else what for what, axis in ((across, x), (unit, y))]
    canvas.text(_WIDTH - _RIGHT, height - 8, scales[0], "soft", "end")
    canvas.text(8, _TOP - 10, scales[1], "soft")
    told = []
    for k, (name, points) in enumerate(shown.items()):
        kind = ("one", "two")[k % 2]
        places = [(x.at(a), y.at(b)) for a, b in points]
        steps = "".join(f"H{a:.1f}V{b:.1f}" for a, b in places[1:])
        canvas.path(f"M{places[0][0]:.1f} {places[0][1]:.1f}{steps}H{x.at(end):.1f}", kind)
        canvas.line((_LEFT + 150 * k, 36, _LEFT + 150 * k + 24, 36), kind)
        canvas.text(_LEFT + 150 * k + 30, 40, name)
        told.append(f"{name}: first {number_text(points[0][1])}, last {number_text(points[-1][1])}")
    cut = f"; {', '.join(map(number_text, sorted(far)))} is beyond the axis" if far else ""
    if far:
        canvas.text(_WIDTH - _RIGHT, 40, cut.removeprefix("; "), "soft", "end")
    return canvas.svg(_WIDTH, height, title, "; ".join(told) + cut)


def _far_values(values: Sequence[float]) -> set[float]:
    """Return the least or greatest value if it is alone, far from all others: a trivial first bound."""
    distinct = sorted(set(values))
    if len(distinct) < 4:
        return set()
    ratio = _FIRST_BOUND_RATIO
    if distinct[1] - distinct[0] > ratio * (distinct[-1] - distinct[1]):
        return {distinct[0]}
    return {distinct[-1]} if distinct[-1] - distinct[-2] > ratio * (distinct[-2] - distinct[0]) else set()


def convergence(query: str, history: Sequence[Sequence[Any]], unit: str) -> Html:
    """Draw both bounds on an answer as they closed: seconds, and at least and at most what it was known to be."""
    ends = {"at least": 1, "at most": 2}
    series = {name: [(p[0], float(p[k])) for p in history if p[k] is not None] for name, k in ends.items()}
    drawn = lines(f"Bounds on the {query}", series, "seconds", unit)
    named = {"seconds": [p[0] for p in history], "at least": [_known(p[1]) for p in history]}
    return below(drawn, details("as a table", table({**named, "at most": [_known(p[2]) for p in history]})))


def _known(value: Any) -> Any:
    return "" if value is None else value


def details(summary: str, what: Html) -> Html:
    """Fold something away, until it is asked for."""
    return Html(f"<details><summary>{escape(summary)}</summary>{what.markup}</details>", what.title)


def timeline(spans: Sequence[tuple[str, float, float, str]]) -> Svg:
    """Draw tasks by worker: name of the worker, begin, end in seconds, and what is said of the task."""
    most = DisplayPolicy.current().spans
    workers = list(dict.fromkeys(span[0] for span in spans))
    canvas, height = Canvas(), _TOP + 26 * len(workers) + _BOTTOM
    x = _Axis([0.0, *(span[2] for span in spans)], _LEFT + 60, _WIDTH - _RIGHT, whole=True)
    x.logarithmic = False
    longest = sorted(spans, key=lambda span: span[1] - span[2])[:most]
    left_out = f", the longest {most:,} of {len(spans):,}" if len(spans) > most else ""
    canvas.text(8, 20, f"Tasks by worker{left_out}", "title")
    rows = {worker: _TOP + 26 * k for k, worker in enumerate(workers)}
    for worker, top in rows.items():
        canvas.text(8, top + 15, shorten(worker, 22), "label")
    for worker, begin, end, label in longest:
        box = (x.at(begin), rows[worker] + 2, max(x.at(end) - x.at(begin), 1.0), 20)
        canvas.rect(box, "bar", title=f"{label}: {begin:.2f} - {end:.2f} s")
    for tick in x.ticks():
        canvas.line((x.at(tick), height - _BOTTOM, x.at(tick), height - _BOTTOM + 5))
        canvas.text(x.at(tick), height - _BOTTOM + 18, f"{number_text(tick)} s", "label", "middle")
    return canvas.svg(_WIDTH, height, "Tasks by worker", f"{len(spans):,} tasks of {len(workers)} workers")


def pseudo_tree(
    names: Sequence[str], parents: Sequence[int], further: Sequence[tuple[int, int]], nbytes: Sequence[int]
) -> Svg:
    """Draw agents by depth, edges as wide as the bytes of their messages, those to pseudo-parents dashed.

    Parameters
    ----------
    names : sequence of str
    parents : sequence of int
        Of each agent, by index; -1 of a root.
    further : sequence of (int, int)
        Agents with their pseudo-parents.
    nbytes : sequence of int
        For each agent the bytes between it and its parent, both ways; none of a root.
    """
    children: dict[int, list[int]] = {agent: [] for agent in range(len(names))}
    for agent, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(agent)
    across, depth = positions(children)
    step = max(26.0, min(90.0, (_WIDTH - 80) / max(max(across.values(), default=0), 1)))
    at = {a: (40 + step * across[a], _TOP + 60 * depth[a]) for a in children}
    canvas = Canvas()
    canvas.text(8, 20, "Pseudo-tree", "title")
    for a, b in further:
        (x1, y1), (x2, y2) = at[a], at[b]
        # an arc, because the straight line would cross the agents between
        bend = 20 * (1 + abs(depth[a] - depth[b]))
        canvas.path(f"M{x1:.1f} {y1:.1f}Q{(x1 + x2) / 2 + bend:.1f} {(y1 + y2) / 2:.1f} {x2:.1f} {y2:.1f}", "through")
    for a, parent in enumerate(parents):
        if parent >= 0:
            said = f"{names[a]} - {names[parent]}: {nbytes[a]:,} bytes"
            canvas.line((*at[a], *at[parent]), width=max(1.0, LINE / 2 * nbytes[a] / max(*nbytes, 1)), title=said)
    for a, name in enumerate(names):
        canvas.circle(*at[a], 6, "#4c78a8", title=name)
        if len(names) <= LISTED_MEMBERS:
            canvas.text(at[a][0] + 9, at[a][1] + 4, shorten(name, 20), "label")
    width = max(_WIDTH, max((x for x, _ in at.values()), default=0) + 120)
    return canvas.svg(width, _TOP + 60 * (max(depth.values(), default=0) + 1), "Pseudo-tree", f"{len(names)} agents")


def positions(children: Mapping[int, Sequence[int]]) -> tuple[dict[int, float], dict[int, int]]:
    """Return where nodes stand: leaves one beside the other, others in the middle of theirs; and how deep.

    Examples
    --------
    >>> positions({4: (2, 3), 3: (0, 1), 0: (), 1: (), 2: ()})
    ({2: 0.0, 0: 1.0, 1: 2.0, 3: 1.5, 4: 0.75}, {4: 0, 2: 1, 3: 1, 0: 2, 1: 2})
    """
    below = {kid for kids in children.values() for kid in kids}
    across: dict[int, float] = {}
    depth: dict[int, int] = {}
    for root in (node for node in children if node not in below):
        depth[root] = 0
        stack: list[tuple[int, bool]] = [(root, False)]
        while stack:
            node, done = stack.pop()
            kids = children.get(node, ())
            if done:
                across[node] = sum(across[kid] for kid in kids) / len(kids)
            elif not kids:
                across[node] = float(sum(not children.get(n) for n in across))
            else:
                stack.append((node, True))
                stack += [(kid, False) for kid in reversed(kids)]
            if not done:
                depth.update(dict.fromkeys(kids, depth[node] + 1))
    return across, depth


def table(columns: Mapping[str, Sequence[Any]], sparks: str = "") -> Html:
    """Return a table with sortable columns, with bars beside the numbers of ``sparks``; only the first of many rows."""
    policy = DisplayPolicy.current()
    lengths, _ = shares([float(value or 0) for value in columns[sparks]]) if sparks else ([], False)
    rows = list(zip(*columns.values(), strict=True))
    sort = len(rows) > 1
    heads = "".join(
        f"<th scope='col'>{f'<button>{escape(name)}</button>' if sort else escape(name)}</th>" for name in columns
    )
    body = []
    for k, row in enumerate(rows[: policy.table_rows]):
        cells = "".join(cell(value) for value in row)
        body.append(f"<tr>{cells}{f'<td>{bar(lengths[k])}</td>' if sparks else ''}</tr>")
    head = f"<thead><tr>{heads}{'<td></td>' if sparks else ''}</tr></thead>"
    more = len(rows) - policy.table_rows
    told = f"<p class='told'>the first {policy.table_rows:,} rows of {len(rows):,}</p>" if more > 0 else ""
    return Html(f"<table class='grid'>{head}<tbody>{''.join(body)}</tbody></table>{told}")
