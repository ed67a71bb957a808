"""Drawing task graphs as SVG, level by level, coloured by the bytes of tables. Pure.

Large graphs are thinned: tasks of small tables are left out, and a dashed line stands for a way through them. The
picture says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from ..errors import format_bytes

# From small tables to large ones.
_RAMP: Final = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
# Pixels between tasks of a level and between levels, around everything, and of a task's radius.
_ACROSS, _DOWN, _MARGIN, _RADIUS = 30, 64, 40, 9
_TOP: Final = 96
_LEAST_WIDTH: Final = 640
# Up to so many tasks have their variables beside them.
_LABELLED: Final = 60
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#222}.title{font-size:15px;font-weight:600}.label{font-size:10px}"
    "line{stroke:#999;stroke-width:1}.through{stroke-dasharray:4 3}circle{stroke:#444;stroke-width:.6}"
)


@dataclass(frozen=True)
class Drawn:
    """A task as it is drawn.

    Parameters
    ----------
    key : str
    needs : tuple of str
        Keys of tasks before it.
    level, nbytes : int
    label, text : str
        What stands beside it, and what is said of it under the mouse.
    """

    key: str
    needs: tuple[str, ...]
    level: int
    nbytes: int
    label: str
    text: str


@dataclass(frozen=True)
class Thinned:
    """What is left of a graph: tasks, and edges from a task to what it needs, directly or through others."""

    tasks: tuple[Drawn, ...]
    direct: tuple[tuple[str, str], ...]
    through: tuple[tuple[str, str], ...]


def thinned(tasks: Sequence[Drawn], most: int) -> Thinned:
    """Keep the tasks of the largest tables, and those that nobody needs before others of equal size.

    Parameters
    ----------
    tasks : sequence of Drawn
        Those that are needed before those that need them.
    most : int
    """
    needed = {need for task in tasks for need in task.needs}
    ranked = sorted(tasks, key=lambda task: (-task.nbytes, task.key in needed, task.level, task.key))
    kept = {task.key for task in ranked[: max(most, 1)]}
    # of every task the kept ones that are reached through tasks that are left out only
    reached: dict[str, dict[str, None]] = {}
    direct: list[tuple[str, str]] = []
    through: list[tuple[str, str]] = []
    for task in tasks:
        ways = dict.fromkeys(key for need in task.needs if need not in kept for key in reached[need])
        own = [need for need in task.needs if need in kept]
        if task.key in kept:
            direct += [(task.key, need) for need in own]
            through += [(task.key, need) for need in ways if need not in own]
        else:
            reached[task.key] = ways | dict.fromkeys(own)
    return Thinned(tuple(task for task in tasks if task.key in kept), tuple(direct), tuple(through))


def svg_of(tasks: Sequence[Drawn], most: int) -> str:
    """Return a drawing as SVG: those of the first level on top, each with its text under the mouse."""
    found = thinned(tasks, most)
    places, width = _placed(found)
    levels = 1 + max((task.level for task in tasks), default=0)
    height = _TOP + _DOWN * levels + _MARGIN
    sizes = [math.log2(max(task.nbytes, 1)) for task in found.tasks]
    low, high = min(sizes, default=0.0), max(sizes, default=1.0)
    parts = [*_head(tasks, found, levels, low, high)]
    for edges, kind in ((found.direct, ""), (found.through, " class='through'")):
        for here, there in edges:
            (x1, y1), (x2, y2) = places[there], places[here]
            parts.append(f"<line{kind} x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'/>")
    for task, size in zip(found.tasks, sizes, strict=True):
        x, y = places[task.key]
        colour = _colour((size - low) / max(high - low, 1.0))
        circle = f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{_RADIUS}' fill='{colour}'>"
        parts.append(f"{circle}<title>{escape(task.text)}</title></circle>")
        if len(found.tasks) <= _LABELLED and task.label:
            at = f"x='{x:.1f}' y='{y + _RADIUS + 12:.1f}' text-anchor='middle'"
            parts.append(f"<text class='label' {at}>{escape(task.label)}</text>")
    size_of = f"width='{width:.0f}' height='{height}' viewBox='0 0 {width:.0f} {height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size_of} role='img'><style>{_STYLE}</style>"
    return f"{head}{''.join(parts)}</svg>\n"


def page_of(svg: str, title: str) -> str:
    """Return a page that holds a drawing and needs no network."""
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>body{{margin:1rem}}</style>"
    return f"<!DOCTYPE html><html lang='en'><head>{head}</head><body>{svg}</body></html>\n"


def _head(tasks: Sequence[Drawn], found: Thinned, levels: int, low: float, high: float) -> list[str]:
    """What a drawing shows, what it leaves out, and what its colours mean."""
    title = f"{len(tasks):,} tasks in {levels if tasks else 0:,} levels"
    told = "colour: bytes of the table that a task makes"
    if left_out := len(tasks) - len(found.tasks):
        most = max(task.nbytes for task in tasks)
        drawn = {task.key for task in found.tasks}
        largest = max((task.nbytes for task in tasks if task.key not in drawn), default=most)
        told = (
            f"drawn are the {len(found.tasks):,} of the largest tables; {left_out:,} whose tables have at most "
            f"{format_bytes(largest)} are left out, dashed lines lead through them"
        )
    parts = [
        f"<text class='title' x='{_MARGIN}' y='26'>{escape(title)}</text>",
        f"<text x='{_MARGIN}' y='46'>{escape(told)}</text>",
    ]
    if not found.tasks:
        return parts
    for k in range(40):
        parts.append(f"<rect x='{_MARGIN + 5 * k}' y='56' width='5' height='10' fill='{_colour(k / 39)}'/>")
    ends = f"{format_bytes(round(2**low))} … {format_bytes(round(2**high))}"
    return [*parts, f"<text x='{_MARGIN + 208}' y='65'>{escape(ends)}</text>"]


def _placed(found: Thinned) -> tuple[dict[str, tuple[float, float]], float]:
    """Return where tasks stand, and the width: below what they need, in the middle of it."""
    needs: dict[str, list[str]] = defaultdict(list)
    for here, there in (*found.direct, *found.through):
        needs[here].append(there)
    rows: dict[int, list[Drawn]] = defaultdict(list)
    for task in found.tasks:
        rows[task.level].append(task)
    widest = max(map(len, rows.values()), default=1)
    width = max(_LEAST_WIDTH, 2 * _MARGIN + _ACROSS * widest)
    places: dict[str, tuple[float, float]] = {}
    for level in sorted(rows):
        row = sorted(rows[level], key=lambda task: _middle(needs[task.key], places, width / 2))
        step = (width - 2 * _MARGIN) / len(row)
        for k, task in enumerate(row):
            places[task.key] = _MARGIN + (k + 0.5) * step, _TOP + _DOWN * (level + 0.5)
    return places, width


def _middle(keys: Sequence[str], places: Mapping[str, tuple[float, float]], otherwise: float) -> float:
    return sum(places[key][0] for key in keys) / len(keys) if keys else otherwise


def _colour(share: float) -> str:
    """Return the colour of a share between 0 and 1."""
    at = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    k = min(int(at), len(_RAMP) - 2)
    mixed = [round(a + (b - a) * (at - k)) for a, b in zip(_RAMP[k], _RAMP[k + 1], strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)
