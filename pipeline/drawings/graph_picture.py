"""Drawing task graphs as SVG, level by level, coloured by the bytes of tables. Pure.

Large graphs are thinned: tasks of small tables are left out, and a dashed line stands for a way through them. The
picture says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import format_bytes
from .svg import Canvas, Svg, colour_of, drawn_ramp

# Pixels between tasks of a level and between levels, around everything, and the radii of tasks.
_ACROSS, _DOWN, _MARGIN = 34, 64, 40
_SMALL, _LARGE = 4.0, 14.0
_TOP: Final = 96
_LEAST_WIDTH: Final = 640
# Up to so many tasks have their variables beside them.
_LABELLED: Final = 60


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
    cells : int
        That it sweeps.
    place : str
        Where it runs.
    """

    key: str
    needs: tuple[str, ...]
    level: int
    nbytes: int
    label: str
    text: str
    cells: int = 1
    place: str = ""


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


def svg_of(tasks: Sequence[Drawn], most: int) -> Svg:
    """Draw tasks: those of the first level on top, each with its text under the mouse.

    The colour of a task is by the bytes of its table, its area by the cells that are swept, and its frame says whether
    that is on disk or on a device.
    """
    found = thinned(tasks, most)
    places, width = _placed(found)
    levels = 1 + max((task.level for task in tasks), default=0)
    sizes = [math.log2(max(task.nbytes, 1)) for task in found.tasks]
    low, high = min(sizes, default=0.0), max(sizes, default=1.0)
    cells = [math.log2(max(task.cells, 1)) for task in found.tasks]
    least, largest = min(cells, default=0.0), max(cells, default=1.0)
    canvas = Canvas()
    title, told = _words(tasks, found, levels)
    canvas.text(_MARGIN, 26, title, "title")
    canvas.text(_MARGIN, 46, told)
    if found.tasks:
        drawn_ramp(canvas, _MARGIN, 56, f"{format_bytes(round(2**low))} … {format_bytes(round(2**high))}")
    for edges, kind in ((found.direct, ""), (found.through, "through")):
        for here, there in edges:
            canvas.line((*places[there], *places[here]), kind)
    for task, size, area in zip(found.tasks, sizes, cells, strict=True):
        x, y = places[task.key]
        radius = _SMALL + (_LARGE - _SMALL) * math.sqrt((area - least) / max(largest - least, 1.0))
        colour = colour_of((size - low) / max(high - low, 1.0))
        kind = "disk" if "disk" in task.place else "device" if "device" in task.place else ""
        canvas.circle(x, y, radius, colour, title=task.text, kind=kind)
        if len(found.tasks) <= _LABELLED and task.label:
            canvas.text(x, y + _LARGE + 12, task.label, "label", "middle")
    return canvas.svg(width, _TOP + _DOWN * levels + _MARGIN, title, told)


def _words(tasks: Sequence[Drawn], found: Thinned, levels: int) -> tuple[str, str]:
    """Return what a drawing shows, and what its colours mean and it leaves out."""
    title = f"{len(tasks):,} tasks in {levels if tasks else 0:,} levels"
    told = "colour: bytes of the table that a task makes; area: cells that it sweeps"
    places = " ".join(task.place for task in tasks)
    told += (
        "; orange frame: on disk" if "disk" in places else "; green frame: on a device" if "device" in places else ""
    )
    if left_out := len(tasks) - len(found.tasks):
        drawn = {task.key for task in found.tasks}
        largest = max(task.nbytes for task in tasks if task.key not in drawn)
        told = (
            f"drawn are the {len(found.tasks):,} of the largest tables; {left_out:,} whose tables have at most "
            f"{format_bytes(largest)} are left out, dashed lines lead through them"
        )
    return title, told


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
