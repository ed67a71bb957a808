"""The task graph of a plan as a value: a node for each elimination, each message back and each result. Pure.

Tasks have the same names in the graph, in stored tables and in Dask: ``eliminate-x12.57``.
A name is the kind of the task, a hyphen, variables, a dot, and the number of the table. A message names the two
eliminations between which it goes: ``message-x3_to_x12.83``. Dask colours tasks by the first words that are letters
only. The number makes the second word another word, so that the colour follows from the kind alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.step import Step
from ..drawings.graph_picture import Drawn, svg_of
from ..drawings.svg import RENDERED, Svg, check_renderer, page_of
from ..errors import ModelError
from ..local_paths import local_path, whole_text

# Eliminations in the picture of a plan. 160 rows are about three screens; more would not be read.
_DRAWN_ROWS: Final = 160

Kind = Literal["elimination", "message", "result"]
"""A step up the tree, a message from above, or what an answer is read from."""

_WORDS: Final = {"elimination": "eliminate", "message": "message", "result": "result"}
_OTHER: Final = re.compile(r"[^A-Za-z0-9_]+")
_SHOWN: Final = 2
_CHARACTERS: Final = 20
_ENDINGS: Final = (".svg", ".html", ".json", *RENDERED)


@dataclass(frozen=True)
class TaskNode:
    """A step of a plan, as a task that depends on others.

    A call with the results of its inputs returns the node itself: a dry run.

    Parameters
    ----------
    key : str
    kind : {"elimination", "message", "result"}
    needs : tuple of str
        Keys of the tasks whose tables it reads, once each.
    functions : int
        Tables of the model's functions that it reads besides.
    level : int
        0 if it reads only functions, otherwise one more than the highest level among its inputs.
    variables, eliminated : tuple of str
        Variables of its table, in the order of the axes; and the variables that it sums out or optimises over.
    cells : int
        Swept each time; by rows, the rows of its table at most.
    nbytes : int
        Of the table that it makes each time; by rows at most.
    seconds : float or None
        Predicted for one core, each time; None by rows, where sizes are known only when tables are made.
    place : str
        Where it runs: "memory", "slices", "part 17", "stage 2 on disk", "device", …
    repeats : int
        How many times it runs: once for each slice or box that it is in, and for each sweep of a count.
    bucket : str
        Key of the first elimination of its bucket: of a message from above, the elimination that the message goes to.
    """

    key: str
    kind: Kind
    needs: tuple[str, ...]
    functions: int
    level: int
    variables: tuple[str, ...]
    eliminated: tuple[str, ...]
    cells: int
    nbytes: int
    seconds: float | None
    place: str
    repeats: int = 1
    bucket: str = ""

    def __call__(self, *found: TaskNode) -> TaskNode:
        """Return the node itself: the result that a Dask scheduler computes for :meth:`.TaskGraph.to_dask`."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        told = {**vars(self), "bytes": self.nbytes}
        del told["nbytes"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}


@dataclass(frozen=True)
class GraphSection:
    """Steps of a plan that run at the same place.

    Parameters
    ----------
    steps : sequence of Step
        In execution order.
    place : callable
        Where a step runs, by its table.
    repeats : callable
        How many times, by the position of the step.
    ends : sequence of int
        Tables that the answer is read from.
    suffix : str
        End of the keys.
    outputs : mapping of int to int
        Numbers of the tables that later sections know: the number there, and the table here.
    """

    steps: Sequence[Step]
    place: Callable[[int], str]
    repeats: Callable[[int], int]
    ends: Sequence[int]
    suffix: str = ""
    outputs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TableMeasure:
    """Functions that measure a table and its step.

    Parameters
    ----------
    nodes : int
        Of the tree, leaves included: smaller numbers are of tables on the way up, as many more of messages from above.
    size_of : callable
        Cells or rows, and bytes, of the table that a step makes.
    seconds_of : callable
        Predicted for a step.
    """

    nodes: int
    size_of: Callable[[Step], tuple[int, int]]
    seconds_of: Callable[[Step], float | None]

    def kind(self, table: int) -> Kind:
        """Return the kind of the task that makes a table."""
        return kind_of(table, self.nodes)


@dataclass(frozen=True, repr=False)
class TaskGraph:
    """The tasks of a plan by key, each after the tasks that it needs.

    Parameters
    ----------
    nodes : dict of str to TaskNode
    outputs : tuple of str
        Keys of the tasks that the answer is read from.
    """

    nodes: Mapping[str, TaskNode]
    outputs: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def levels(self) -> int:
        """Number of levels: tasks of one level may run at the same time."""
        return 1 + max((node.level for node in self.nodes.values()), default=-1)

    @property
    def runs(self) -> int:
        """How many times tasks run, all together."""
        return sum(node.repeats for node in self.nodes.values())

    def to_dask(self) -> dict[str, tuple[Any, ...]]:
        """Return a graph as Dask has them, ``key: (callable, *keys)``, which every scheduler and ``visualize`` takes.

        Computed, each key gives its :class:`TaskNode`: a dry run, as a plan has no tables. ``solve(tasks="steps")``
        runs the same tasks.

        Examples
        --------
        >>> import bucketflow
        >>> graph = bucketflow.plan(bucketflow.load("diagnosis"), "partition").graph()
        >>> all(callable(task[0]) and set(task[1:]) <= graph.nodes.keys() for task in graph.to_dask().values())
        True
        """
        return {key: (node, *node.needs) for key, node in self.nodes.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {
            "tasks": len(self),
            "runs": self.runs,
            "levels": self.levels,
            "outputs": list(self.outputs),
            "nodes": [node.to_dict() for node in self.nodes.values()],
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def draw(self, most: int | None = None) -> Svg:
        """Draw the graph as :meth:`to_svg` does, as a value that notebooks show."""
        return svg_of(self._drawn(), _DRAWN_ROWS if most is None else most)

    def to_svg(self, most: int | None = None) -> str:
        """Draw the plan as a tree, with a row for each elimination and bars whose areas are cells.

        Parameters
        ----------
        most : int, optional
            Draw at most ``most`` eliminations, those with the most cells. The picture states what it leaves out.
        """
        return self.draw(most).text

    def to_html(self, most: int | None = None) -> str:
        """Return a page with the drawing, which needs no network."""
        return page_of(self.to_svg(most), f"Task graph: {len(self):,} tasks")

    def save(self, path: str | PathLike[str]) -> None:
        """Write the graph to a ``.svg``, ``.html``, ``.png``, ``.pdf`` or ``.json`` file.

        Raises
        ------
        ModelError
            If the name ends in anything else, or the file cannot be written.
        BucketflowError
            If a ``.png`` or ``.pdf`` file is requested and CairoSVG, from the extra ``draw``, is not installed.
        """
        if graph_ending(path) != ".json":
            self.draw().save(path)
            return
        with whole_text(path) as file:
            file.write(self.to_json())

    def _drawn(self) -> list[Drawn]:
        return [
            Drawn(
                key,
                node.needs,
                node.level,
                node.nbytes,
                label=", ".join(node.eliminated) or "–",
                text=_text(node),
                cells=node.cells * node.repeats,
                place=node.place,
                over=", ".join(node.variables) or "one number",
                row=node.bucket,
            )
            for key, node in self.nodes.items()
        ]

    def _repr_html_(self) -> str:
        return self.to_svg()

    def __repr__(self) -> str:
        return f"<{len(self):,} tasks in {self.levels:,} levels, run {self.runs:,} times>"


def graph_ending(path: str | PathLike[str]) -> str:
    """Return the ending of a graph's file, after a check that such files can be written.

    Raises
    ------
    ModelError
        If the ending is not one of .svg, .html, .png, .pdf and .json.
    BucketflowError
        If CairoSVG is missing for .png or .pdf.
    """
    ending = local_path(path).suffix.lower()
    if ending not in _ENDINGS:
        raise ModelError(f"a graph is written to a .svg, .html, .png, .pdf or .json file, not to {Path(path).name!r}")
    check_renderer(ending)
    return ending


def _text(node: TaskNode) -> str:
    """Return the tooltip of a task."""
    from ..errors import format_bytes

    seconds = "seconds unknown" if node.seconds is None else f"{node.seconds:.2g} s"
    lines = [
        f"{node.key}: {node.kind}, level {node.level}",
        f"table of {', '.join(node.variables) or 'no variable'}",
        f"{node.cells:,} cells, {format_bytes(node.nbytes)}, {seconds}, {node.place}",
    ]
    if node.eliminated:
        lines.insert(1, f"eliminates {', '.join(node.eliminated)}")
    return "\n".join([*lines, f"runs {node.repeats:,} times"] if node.repeats > 1 else lines)


def kind_of(table: int, nodes: int) -> Kind:
    """Return the kind of the task that makes a table, if the tree has ``nodes`` nodes, leaves included."""
    return ("elimination", "message", "result")[min(table // max(nodes, 1), 2)]


def step_keys(steps: Sequence[Step], nodes: int, name: Callable[[int], str], suffix: str = "") -> list[str]:
    """Return the names of the tasks of steps; a table that is dropped and made again has another name then.

    Parameters
    ----------
    steps : sequence of Step
    nodes : int
        Nodes of the tree: tables with smaller numbers are eliminations, as many more are messages from above.
    name : callable
        Returns the name of a variable.
    suffix : str
        End of every name.
    """
    gone = {step.node: _names(eliminated(step), name) for step in steps}
    readers: dict[int, int] = {}
    for step in steps:
        if kind_of(step.node, nodes) == "elimination":
            readers.update(dict.fromkeys(step.inputs, step.node))
    keys: dict[str, None] = {}
    for step in steps:
        kind = kind_of(step.node, nodes)
        what = _names(step.axes, name) if kind == "result" else gone[step.node]
        child = step.node - nodes
        if kind == "message" and child in gone and child in readers:
            what = f"{gone[readers[child]]}_to_{gone[child]}"
        keys[_unused(f"{_WORDS[kind]}-{what}.{step.node}{suffix}", keys)] = None
    return list(keys)


def eliminated(step: Step) -> list[int]:
    """Return the variables that a step sums out or optimises over."""
    return sorted({v for axes in step.input_axes for v in axes} - set(step.axes))


def ascii_name(text: str) -> str:
    """Return a short word of ASCII letters, digits and underscores for a name."""
    return _OTHER.sub("_", text)[:_CHARACTERS]


def _names(variables: Sequence[int], name: Callable[[int], str]) -> str:
    """Return a word for a few variables."""
    shown = [ascii_name(name(v)) for v in variables[:_SHOWN]]
    more = len(variables) - len(shown)
    return "+".join([*shown, *([f"{more}_more"] if more else [])]) or "join"


def _unused(key: str, keys: dict[str, None]) -> str:
    found, times = key, 1
    while found in keys:
        times += 1
        found = f"{key}-again{times}"
    return found


def task_graph(sections: Sequence[GraphSection], measure: TableMeasure, name: Callable[[int], str]) -> TaskGraph:
    """Build the graph of steps, section after section.

    Parameters
    ----------
    sections : sequence of GraphSection
    measure : TableMeasure
    name : callable
        The name of a variable.
    """
    nodes: dict[str, TaskNode] = {}
    known: dict[int, str] = {}
    outputs: dict[str, None] = {}
    buckets: dict[int, str] = {}
    for section in sections:
        makers = dict(known)
        keys = step_keys(section.steps, measure.nodes, name, section.suffix)
        for position, (step, key) in enumerate(zip(section.steps, keys, strict=True)):
            node = _node(section, key, position, step, makers, nodes, measure, name)
            node = replace(node, bucket=_bucket(node, step.node, measure.nodes, buckets, nodes))
            nodes[node.key] = node
            makers[step.node] = node.key
        known.update({number: makers[table] for number, table in section.outputs.items()})
        outputs.update(dict.fromkeys(makers[i] for i in section.ends if i in makers))
    return TaskGraph(nodes, tuple(outputs))


def _node(
    section: GraphSection,
    key: str,
    position: int,
    step: Step,
    makers: Mapping[int, str],
    nodes: Mapping[str, TaskNode],
    measure: TableMeasure,
    name: Callable[[int], str],
) -> TaskNode:
    """Describe the task of one step.

    Parameters
    ----------
    section : GraphSection
        The part of the run that the task belongs to.
    key : str
    position : int
        Place of the step in its section.
    step : Step
    makers : mapping of int to str
        Key of the task that computes each table.
    nodes : mapping of str to TaskNode
        The tasks before it.
    measure : TableMeasure
        Sizes and seconds.
    name : callable
        Name of a variable.
    """
    needs = tuple(dict.fromkeys(makers[i] for i in step.inputs if i in makers))
    cells, nbytes = measure.size_of(step)
    return TaskNode(
        key=key,
        kind=measure.kind(step.node),
        needs=needs,
        # inputs without a task are functions of the model
        functions=sum(i not in makers for i in step.inputs),
        level=1 + max((nodes[key].level for key in needs), default=-1),
        variables=tuple(map(name, step.axes)),
        eliminated=tuple(map(name, eliminated(step))),
        cells=cells,
        nbytes=nbytes,
        seconds=measure.seconds_of(step),
        place=section.place(step.node),
        repeats=section.repeats(position),
    )


def _bucket(node: TaskNode, table: int, tree_nodes: int, buckets: dict[int, str], nodes: Mapping[str, TaskNode]) -> str:
    """Return the key of the elimination that a task belongs to, and enter a new elimination into ``buckets``."""
    if node.kind == "elimination":
        return buckets.setdefault(table, node.key)
    if node.kind == "message" and (found := buckets.get(table - tree_nodes)):
        return found
    return nodes[node.needs[0]].bucket if node.needs else node.key
