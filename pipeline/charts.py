"""Charts: trees, bars, lines, spans of time, tables that can be sorted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .pages import verify_installed

_WIDTH: Final = 1060
_COLOUR: Final = "#4c78a8"
_OTHER: Final = "#f58518"
# Pixels of the widest edge; agents whose names stand beside them.
_WIDEST: Final = 12.0
_NAMED: Final = 80


def _figure(title: str, height: int, **options: Any) -> Any:
    verify_installed()
    from bokeh.plotting import figure

    made = figure(title=title, width=_WIDTH, height=height, toolbar_location="above", **options)
    made.toolbar.logo = None
    return made


def tree(children: Mapping[int, Sequence[int]], cells: Mapping[int, int], labels: Mapping[int, str]) -> Any:
    """Draw a forest, roots on top, coloured by the binary logarithm of its cells; the wheel zooms.

    Parameters
    ----------
    children : mapping of int to sequence of int
        Of every node that is drawn, those below it that are drawn too.
    cells : mapping of int to int
    labels : mapping of int to str
        What is said of a node under the mouse.
    """
    made = _figure("Tree of the plan", 520, tools="pan,wheel_zoom,box_zoom,reset,hover", active_scroll="wheel_zoom")
    from bokeh.models import ColorBar, ColumnDataSource, LinearColorMapper
    from bokeh.palettes import Viridis256

    across, depth = positions(children)
    nodes = list(across)
    logs = {node: math.log2(max(cells.get(node, 1), 1)) for node in nodes}
    least, most = min(logs.values(), default=0.0), max(logs.values(), default=1.0)
    mapper = LinearColorMapper(palette=Viridis256, low=least, high=max(most, least + 1))
    edges = [(node, kid) for node in nodes for kid in children.get(node, ())]
    made.segment(
        [across[a] for a, _ in edges],
        [-depth[a] for a, _ in edges],
        [across[b] for _, b in edges],
        [-depth[b] for _, b in edges],
        color="#bbbbbb",
    )
    source = ColumnDataSource(
        {
            "x": [across[node] for node in nodes],
            "y": [-depth[node] for node in nodes],
            "log": [logs[node] for node in nodes],
            "size": [6 + 12 * (logs[node] - least) / max(most - least, 1) for node in nodes],
            "label": [labels.get(node, "") for node in nodes],
        }
    )
    dots = made.scatter("x", "y", size="size", source=source, fill_color={"field": "log", "transform": mapper})
    made.hover.renderers = [dots]
    made.hover.tooltips = [("step", "@label"), ("cells", "2^@log{0.0}")]
    made.add_layout(ColorBar(color_mapper=mapper, title="log2 cells"), "right")
    made.axis.visible = False
    made.grid.visible = False
    return made


def pseudo_tree(
    names: Sequence[str], parents: Sequence[int], further: Sequence[tuple[int, int]], nbytes: Sequence[int]
) -> Any:
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
    made = _figure("Pseudo-tree", 520, tools="pan,wheel_zoom,box_zoom,reset,hover", active_scroll="wheel_zoom")
    from bokeh.models import ColumnDataSource

    children: dict[int, list[int]] = {agent: [] for agent in range(len(names))}
    for agent, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(agent)
    across, depth = positions(children)
    below = [agent for agent, parent in enumerate(parents) if parent >= 0]
    edges = {
        "x0": [across[a] for a in below],
        "y0": [-depth[a] for a in below],
        "x1": [across[parents[a]] for a in below],
        "y1": [-depth[parents[a]] for a in below],
        "width": [max(1.0, _WIDEST * nbytes[a] / max(*nbytes, 1)) for a in below],
        "label": [f"{names[a]} - {names[parents[a]]}: {nbytes[a]:,} bytes" for a in below],
    }
    ties = made.segment("x0", "y0", "x1", "y1", line_width="width", color="#bbbbbb", source=ColumnDataSource(edges))
    made.quadratic(**_bent(further, across, depth), color=_OTHER, line_dash="dashed")
    shown = {
        "x": [across[a] for a in range(len(names))],
        "y": [-depth[a] for a in range(len(names))],
        "label": list(names),
    }
    source = ColumnDataSource(shown)
    dots = made.scatter("x", "y", size=10, source=source, color=_COLOUR)
    if len(names) <= _NAMED:
        made.text("x", "y", "label", x_offset=8, y_offset=-4, text_font_size="11px", source=source)
    made.hover.renderers = [dots, ties]
    made.hover.tooltips = [("", "@label")]
    made.axis.visible = False
    made.grid.visible = False
    return made


def _bent(
    pairs: Sequence[tuple[int, int]], across: Mapping[int, float], depth: Mapping[int, int]
) -> dict[str, list[float]]:
    """Curves that pass beside the nodes between their ends, further out the more there may be."""
    bends = [0.15 * (1 + abs(depth[a] - depth[b])) for a, b in pairs]
    return {
        "x0": [across[a] for a, _ in pairs],
        "y0": [-depth[a] for a, _ in pairs],
        "x1": [across[b] for _, b in pairs],
        "y1": [-depth[b] for _, b in pairs],
        "cx": [(across[a] + across[b]) / 2 + bend for (a, b), bend in zip(pairs, bends, strict=True)],
        "cy": [-(depth[a] + depth[b]) / 2 for a, b in pairs],
    }


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


def bars(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> Any:
    """Draw bars beside each other for every name."""
    from bokeh.models import ColumnDataSource
    from bokeh.transform import dodge

    shown = _distinct(names)
    height = 60 + 26 * max(4, len(shown)) + 40 * (len(series) > 1)
    made = _figure(title, height, y_range=list(reversed(shown)), tools="hover,save")
    width = 0.8 / max(len(series), 1)
    for k, (label, values) in enumerate(series.items()):
        source = ColumnDataSource({"name": shown, "value": list(values)})
        place = dodge("name", (k + 0.5) * width - 0.4, range=made.y_range)
        colour = (_COLOUR, _OTHER)[k % 2]
        made.hbar(y=place, right="value", height=0.9 * width, source=source, color=colour, legend_label=label)
    made.hover.tooltips = [("", "@name"), (unit, "@value{0.0000}")]
    made.xaxis.axis_label = unit
    made.add_layout(made.legend[0], "above")
    made.legend.visible = len(series) > 1
    made.legend.orientation = "horizontal"
    return made


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names that are all different, as categories have to be."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], across: str, unit: str) -> Any:
    """Draw points that follow each other as steps, one colour a series."""
    made = _figure(title, 300, tools="pan,xwheel_zoom,reset,hover,save")
    for k, (label, points) in enumerate(series.items()):
        x, y = [p[0] for p in points], [p[1] for p in points]
        colour = (_COLOUR, _OTHER)[k % 2]
        made.step(x, y, mode="after", line_width=2, color=colour, legend_label=label)
        made.scatter(x, y, size=5, color=colour)
    made.xaxis.axis_label, made.yaxis.axis_label = across, unit
    made.add_layout(made.legend[0], "above")
    made.legend.orientation = "horizontal"
    return made


def convergence(query: str, history: Sequence[Sequence[Any]], unit: str) -> Any:
    """Draw both bounds on an answer as they closed: seconds, and at least and at most what it was known to be."""
    ends = {"at least": 1, "at most": 2}
    series = {name: [(p[0], float(p[k])) for p in history if p[k] is not None] for name, k in ends.items()}
    return lines(f"Bounds on the {query}", {name: points for name, points in series.items() if points}, "seconds", unit)


def below(*figures: Any) -> Any:
    """Put figures below each other."""
    from bokeh.layouts import column

    return column(*figures)


def timeline(spans: Sequence[tuple[str, float, float, str]]) -> Any:
    """Draw tasks by worker: name of the worker, begin, end in seconds, and what is said of the task."""
    from bokeh.models import ColumnDataSource

    workers = list(dict.fromkeys(span[0] for span in spans))
    made = _figure(
        "Tasks by worker", 90 + 30 * len(workers), y_range=workers[::-1], tools="xpan,xwheel_zoom,reset,hover"
    )
    columns = ("worker", "begin", "end", "label")
    source = ColumnDataSource({name: [span[k] for span in spans] for k, name in enumerate(columns)})
    made.hbar(y="worker", left="begin", right="end", height=0.7, source=source, color=_COLOUR, line_color="white")
    made.hover.tooltips = [("task", "@label"), ("seconds", "@begin{0.00} – @end{0.00}")]
    made.xaxis.axis_label = "seconds"
    return made


def table(columns: Mapping[str, Sequence[Any]], sparks: str = "") -> Any:
    """A table whose columns can be sorted; the numbers of ``sparks`` are drawn beside them, as bars of characters."""
    verify_installed()
    from bokeh.models import ColumnDataSource, DataTable, TableColumn

    shown = dict(columns)
    if sparks:
        shown[""] = sparklines([float(value or 0) for value in columns[sparks]])
    made = [TableColumn(field=f"c{k}", title=n, width=_room([n, *v])) for k, (n, v) in enumerate(shown.items())]
    source = ColumnDataSource({f"c{k}": list(values) for k, values in enumerate(shown.values())})
    height = min(600, 60 + 25 * max(map(len, columns.values()), default=0))
    return DataTable(source=source, columns=made, width=_WIDTH, height=height, index_position=None, sizing_mode="fixed")


def _room(values: Sequence[Any]) -> int:
    """Return the width of a column that shows most of its cells."""
    return min(260, 30 + 7 * max((len(str(value)) for value in values), default=0))


def sparklines(values: Sequence[float]) -> list[str]:
    """Return a bar of characters for every number, as long as the logarithm of how much larger than the least it is."""
    positive = [value for value in values if value > 0]
    if not positive:
        return [""] * len(values)
    least, most = math.log(min(positive)), math.log(max(positive))
    return ["█" * (1 + round(11 * (math.log(v) - least) / max(most - least, 1e-9))) if v > 0 else "" for v in values]
