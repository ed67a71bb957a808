"""Draw a plan as a tree in SVG: one row for each elimination, the result at the bottom. Pure.

The tree is laid out by heavy paths (Sleator and Tarjan 1983). The subtree with the most cells continues in the lane of
its parent, and every other subtree starts one lane further right. So the most expensive path is a straight line, no
line crosses a step, and there are at most log2(cells) lanes. A message back and a result stand in the row of the
elimination that they belong to.

In a large plan, the steps with the fewest cells are left out, and the picture says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ...tasks.steps.light_dataclass import dataclass
from ..errors import format_bytes, shorten
from .svg import LABEL_CHARACTERS, LINE, MARGIN, Canvas, Svg, colour_of, drawn_ramp, legend_words, text_width

# Width of a lane, of the longest bar, and of a column of numbers, and the radius of a step.
_LANE, _BAR, _NUMBERS, _RADIUS = MARGIN, 11 * LINE, 4 * LINE, LINE / 4


@dataclass(frozen=True)
class Drawn:
    """A task of a plan.

    Parameters
    ----------
    key : str
    needs : tuple of str
        Keys of tasks before it.
    level, nbytes : int
    label, text : str
        The variables that it eliminates, and its tooltip.
    cells : int
        Cells that it sweeps, all repetitions together.
    place : str
        Where it runs.
    over : str
        Variables of its table.
    row : str
        Key of the elimination that the task belongs to: of a message back, the elimination of the same bucket. Empty
        if the task has a row of its own.
    """

    key: str
    needs: tuple[str, ...]
    level: int
    nbytes: int
    label: str
    text: str
    cells: int = 1
    place: str = ""
    over: str = ""
    row: str = ""


@dataclass(frozen=True)
class PlanRow:
    """A row of the picture: an elimination, with the message back and the results of its bucket.

    Parameters
    ----------
    key : str
    parent : str or None
        The row that uses its table; None of a root.
    task : Drawn
        The elimination.
    back : int
        Cells of the message back and of results.
    text : str
        Tooltip.
    direct : bool
        Whether the parent uses the table itself, and not through steps that are left out.
    hidden : int
        Rows below this one that are left out.
    """

    key: str
    parent: str | None
    task: Drawn
    back: int = 0
    text: str = ""
    direct: bool = True
    hidden: int = 0

    @property
    def cells(self) -> int:
        """Cells of all tasks of the row."""
        return self.task.cells + self.back


def rows_of(tasks: Sequence[Drawn]) -> list[PlanRow]:
    """Return the rows of a plan in execution order.

    Parameters
    ----------
    tasks : sequence of Drawn
        Every task after the tasks that it needs.
    """
    known = {task.key for task in tasks}
    row_of = {task.key: task.row if task.row in known else task.key for task in tasks}
    members: dict[str, list[Drawn]] = defaultdict(list)
    for task in tasks:
        members[row_of[task.key]].append(task)
    position = {key: k for k, key in enumerate(members)}
    parents: dict[str, str] = {}
    for task in tasks:
        own = row_of[task.key]
        for need in task.needs:
            other = row_of[need]
            if need == other and position[other] < position[own]:
                parents.setdefault(other, own)
    return [
        PlanRow(
            key,
            parents.get(key),
            group[0],
            back=sum(task.cells for task in group[1:]),
            text="\n\n".join(task.text for task in group),
        )
        for key, group in members.items()
    ]


def thinned(rows: Sequence[PlanRow], most: int) -> list[PlanRow]:
    """Keep the rows with the most cells, and the roots below them; a row belongs to the nearest row that is kept.

    Parameters
    ----------
    rows : sequence of PlanRow
        In execution order.
    most : int
        Rows to keep.
    """
    root: dict[str, str] = {}
    for row in reversed(rows):
        root[row.key] = row.key if row.parent is None else root[row.parent]
    ranked = [row.key for row in sorted(rows, key=lambda row: (-row.cells, -row.task.nbytes))]
    roots = dict.fromkeys(root[key] for key in ranked[: max(most, 1)])
    kept = {*list(dict.fromkeys([*roots, *ranked]))[: max(most, 1)]}
    # the nearest kept row at or above each row; parents come later, so the walk goes backwards
    nearest: dict[str, str | None] = {}
    hidden: dict[str, int] = defaultdict(int)
    for row in reversed(rows):
        above = None if row.parent is None else nearest[row.parent]
        nearest[row.key] = row.key if row.key in kept else above
        if row.key not in kept and above is not None:
            hidden[above] += 1
    found = []
    for row in rows:
        if row.key in kept:
            parent = None if row.parent is None else nearest[row.parent]
            found.append(replace(row, parent=parent, direct=parent == row.parent, hidden=hidden[row.key]))
    return found


def laid_out(rows: Sequence[PlanRow]) -> tuple[dict[str, tuple[int, int]], set[str]]:
    """Return the lane and the line of each row, and the rows of the most expensive path.

    A row stands below its subtrees. The subtree with the most cells comes first, in the lane of its parent.

    Parameters
    ----------
    rows : sequence of PlanRow
        Each with its parent's key and its cells.

    Returns
    -------
    dict, set
        (lane, line) by key, and the keys of the most expensive path.
    """
    children: dict[str | None, list[str]] = defaultdict(list)
    weight = {row.key: row.cells for row in rows}
    for row in rows:
        children[row.parent].append(row.key)
        if row.parent is not None:
            weight[row.parent] += weight[row.key]
    for kids in children.values():
        kids.sort(key=lambda key: -weight[key])
    places: dict[str, tuple[int, int]] = {}
    stack = [(root, 0, False) for root in reversed(children[None])]
    while stack:
        key, lane, ready = stack.pop()
        if ready or not children[key]:
            places[key] = lane, len(places)
            continue
        heavy, *others = children[key]
        # a row is placed after its subtrees: postorder without recursion, as trees are deep
        stack.append((key, lane, True))
        stack += [(other, lane + 1, False) for other in reversed(others)]
        stack.append((heavy, lane, False))
    path: set[str] = set()
    at = children[None][:1]
    while at:
        path.add(at[0])
        at = children[at[0]][:1]
    return places, path


def svg_of(tasks: Sequence[Drawn], most: int) -> Svg:
    """Draw the tasks of a plan, with at most ``most`` rows.

    The area of a bar is proportional to the cells of its step. The colour of a step shows the bytes of its table, and
    its frame shows whether the table is on disk or on a device.

    Parameters
    ----------
    tasks : sequence of Drawn
    most : int
        Most rows.
    """
    every = rows_of(tasks)
    rows = thinned(every, most)
    places, path = laid_out(rows)
    canvas = Canvas()
    title = f"Plan: {len(tasks):,} tasks in {1 + max((task.level for task in tasks), default=-1):,} levels"
    told = _sentences(tasks, every, rows)
    canvas.text(MARGIN, 26, title, "title")
    for k, sentence in enumerate(told):
        canvas.text(MARGIN, 46 + 16 * k, sentence, "soft")
    columns = _Columns(rows, 1 + max((lane for lane, _ in places.values()), default=0))
    sizes = [math.log2(max(row.task.nbytes, 1)) for row in rows]
    low, high = min(sizes, default=0.0), max(sizes, default=1.0)
    legend = Canvas()
    top = _legend(legend, rows, 46 + 16 * len(told), (low, high), any(not row.direct for row in rows))
    # the legend is a group of its own, which readers of the page may hide
    canvas.group("legend", legend)
    columns.head(canvas, top + 14)
    top += 34
    at = {key: (MARGIN + 8 + _LANE * lane, top + LINE * line) for key, (lane, line) in places.items()}
    for row in rows:
        if row.parent is not None:
            kind = ("one" if {row.key, row.parent} <= path else "") if row.direct else "through"
            canvas.path(_edge(at[row.key], at[row.parent]), kind)
    largest = max((row.cells for row in rows), default=1)
    for row, size in zip(rows, sizes, strict=True):
        colour = colour_of((size - low) / max(high - low, 1.0))
        columns.row(canvas, row, at[row.key], colour, _BAR / max(largest, 1))
    width = max(columns.width, text_width([title], len(title)) * 1.25, text_width(told, 200)) + 2 * MARGIN
    return canvas.svg(width, top + LINE * len(rows) + MARGIN, title, " ".join(told))


def _edge(here: tuple[float, float], there: tuple[float, float]) -> str:
    """Return the line from a row down to its parent, which is in the same lane or one lane further left."""
    (x, y), (to_x, to_y) = here, there
    if x == to_x:
        return f"M{x:.1f} {y:.1f}V{to_y:.1f}"
    return f"M{x:.1f} {y:.1f}C{x:.1f} {y + 12:.1f} {to_x:.1f} {y + 6:.1f} {to_x:.1f} {y + LINE:.1f}V{to_y:.1f}"


def _sentences(tasks: Sequence[Drawn], every: Sequence[PlanRow], rows: Sequence[PlanRow]) -> list[str]:
    """Return what the picture shows and what it leaves out."""
    if not rows:
        return ["Nothing is left to compute."]
    told = ["Each row is an elimination. Its table goes down the line to the row that uses it."]
    if len(tasks) > len(every):
        told.append("The message back to an elimination and its results are in the same row.")
    if left_out := len(every) - len(rows):
        most = max(cells for cells in sorted(row.cells for row in every)[:left_out])
        told.append(
            f"{left_out:,} of {len(every):,} eliminations are left out, each with at most {most:,} cells. "
            "Dashed lines lead through them."
        )
    return told


def _legend(canvas: Canvas, rows: Sequence[PlanRow], y: float, sizes: tuple[float, float], dashed: bool) -> float:
    """Draw what colours, lines and frames mean; return where the legend ends."""
    if not rows:
        return y
    low, high = (format_bytes(round(2**size)) for size in sizes)
    drawn_ramp(canvas, MARGIN, y, f"bytes of a table, logarithmic: {low} … {high}")
    y += 26
    places = " ".join(row.task.place for row in rows)
    x = MARGIN
    if any(row.parent for row in rows):
        canvas.line((x, y, x + 22, y), "one")
        x = legend_words(canvas, x + 28, y, "most expensive path")
    if dashed:
        canvas.line((x, y, x + 22, y), "through")
        x = legend_words(canvas, x + 28, y, "through steps that are left out")
    for word, kind, meaning in (("disk", "disk", "on disk"), ("device", "device", "on a device")):
        if word in places:
            canvas.circle(x + 6, y, _RADIUS, "none", kind=kind)
            x = legend_words(canvas, x + 17, y, meaning)
    return y + 12


class _Columns:
    """The columns beside the tree: names, numbers and bars."""

    def __init__(self, rows: Sequence[PlanRow], lanes: int) -> None:
        self._names = MARGIN + 8 + _LANE * lanes + 6
        longest = text_width([*(row.task.label for row in rows), "eliminates"], LABEL_CHARACTERS)
        self._tables = self._names + longest + MARGIN
        tables = text_width([*(row.task.over for row in rows), "table of"], 2 * LABEL_CHARACTERS)
        self._cells = self._tables + 0.9 * tables + _NUMBERS
        self._bytes = self._cells + _NUMBERS
        self._bars = self._bytes + MARGIN
        self._back = any(row.back for row in rows)
        self.width = self._bars + _BAR + (110 if any(row.hidden for row in rows) else 0)

    def head(self, canvas: Canvas, y: float) -> None:
        """Write the heads of the columns."""
        canvas.text(self._names, y, "eliminates", "soft")
        canvas.text(self._tables, y, "table of", "soft")
        canvas.text(self._cells, y, "cells", "soft", "end")
        canvas.text(self._bytes, y, "bytes", "soft", "end")
        canvas.rect((self._bars, y - 9, 10, 10), "bar")
        canvas.text(self._bars + 15, y, "cells", "soft")
        if self._back:
            canvas.rect((self._bars + 62, y - 9, 10, 10), "back")
            canvas.text(self._bars + 77, y, "messages back, results", "soft")

    def row(self, canvas: Canvas, row: PlanRow, at: tuple[float, float], colour: str, scale: float) -> None:
        """Draw one row; ``scale`` is the pixels of a cell."""
        x, y = at
        task = row.task
        kind = "disk" if "disk" in task.place else "device" if "device" in task.place else ""
        canvas.circle(x, y, _RADIUS, colour, title=row.text, kind=kind)
        base = y + 4
        canvas.text(self._names, base, shorten(task.label, LABEL_CHARACTERS))
        canvas.text(self._tables, base, shorten(task.over, 2 * LABEL_CHARACTERS), "small")
        canvas.text(self._cells, base, f"{row.cells:,}", "small", "end")
        canvas.text(self._bytes, base, format_bytes(task.nbytes), "small", "end")
        split = self._bars + scale * task.cells
        canvas.rect((self._bars, y - 6, max(scale * task.cells, 0.5), 12), "bar", title=f"{task.cells:,} cells")
        if row.back:
            canvas.rect((split, y - 6, max(scale * row.back, 0.5), 12), "back", title=f"{row.back:,} cells")
        if row.hidden:
            canvas.text(self._bars + scale * row.cells + 8, base, f"and {row.hidden:,} smaller", "small soft")
