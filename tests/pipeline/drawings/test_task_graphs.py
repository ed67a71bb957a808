"""The task graph of a plan: what Dask takes, what the plan says, and what a drawing says that it leaves out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import dask
import numpy as np
import pytest
from click.testing import CliRunner
from dask.utils import key_split

import bucketflow
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.drawings.graph_picture import Drawn, laid_out, rows_of, svg_of, thinned
from bucketflow.pipeline.plans.plan import Plan, empty_plan
from bucketflow.pipeline.plans.task_graph import TaskGraph, TaskNode
from bucketflow.pipeline.plans.worker_parts import for_workers
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.tasks.steps.policy import RowPolicy
from tests.models import grid

SPILLED = {"memory": "28kB", "fit": "spill", "disk": "1GB", "order": "min-fill", "tree": "bucket"}


def planned(query: str, **options: object) -> Plan:
    if query == "count":
        return bucketflow.plan(bucketflow.load("frequency"), query, **options)
    kind = "cost" if query == "optimum" else "markov"
    return bucketflow.plan(grid(6, 6, 4, kind), query, **options)


def reached(graph: TaskGraph, ends: Iterable[str]) -> set[str]:
    """The keys that some need, directly or through others."""
    found: set[str] = set()
    waiting = [*ends]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += graph.nodes[key].needs
    return found


@pytest.mark.parametrize("query", ["optimum", "partition", "marginals", "max-marginals", "count"])
def test_a_graph_has_a_task_for_each_step_and_dask_computes_it(query: str) -> None:
    plan = planned(query)
    graph = plan.graph()
    assert len(graph) == len(plan.steps)
    assert sum(node.cells for node in graph.nodes.values()) == plan.cost.cells
    told = dask.get(graph.to_dask(), [*graph.nodes])
    assert list(told) == list(graph.nodes.values())
    made: dict[int, str] = {}
    for step, node in zip(plan.steps, graph.nodes.values(), strict=True):
        assert node.needs == tuple(dict.fromkeys(made[i] for i in step.inputs if i in made))
        assert node.functions == sum(i < plan.tree.n_leaves for i in step.inputs)
        assert node.variables == tuple(f"x{v}" for v in step.axes)
        assert node.nbytes == np.prod([plan.tree.dims[v] for v in step.axes], dtype=int) * plan.itemsize
        assert node.level == 1 + max((graph.nodes[key].level for key in node.needs), default=-1)
        assert node.repeats == plan.sweeps
        made[step.node] = node.key
    assert reached(graph, graph.outputs) == set(graph.nodes)
    assert {key_split(key) for key in graph.nodes} == (
        {"eliminate", "message", "result"} if plan.back else {"eliminate"}
    )
    kinds = {node.kind for node in graph.nodes.values()}
    assert kinds == ({"elimination", "message", "result"} if plan.back else {"elimination"})


def test_keys_name_variables_in_ascii_and_begin_with_the_kind() -> None:
    names = {"smoke": 2, "Größe": 2, "a-b/c": 2, "x": 2, "deadbeef": 2}
    pairs = [(["smoke", "Größe"], np.ones((2, 2))), (["Größe", "a-b/c"], np.ones((2, 2)))]
    pairs += [(["a-b/c", "x"], np.ones((2, 2))), (["x", "deadbeef"], np.ones((2, 2)))]
    graph = bucketflow.plan(bucketflow.Model.build("markov", names, pairs), "marginals").graph()
    assert all(key.isascii() and key_split(key) in ("eliminate", "message", "result") for key in graph.nodes)
    found = {key.partition(".")[0] for key in graph.nodes}
    assert {f"result-{name}" for name in ("smoke", "Gr_e", "a_b_c", "x", "deadbeef")} <= found
    assert any(re.fullmatch(r"message-\w+_to_\w+", key) for key in found)


def test_a_task_of_dask_goes_after_what_it_needs() -> None:
    graph = planned("marginals").graph()
    order: list[str] = []

    class Noted(TaskNode):
        def __call__(self, *found: TaskNode) -> TaskNode:
            assert tuple(node.key for node in found) == self.needs
            order.append(self.key)
            return super().__call__(*found)

    tasks = {key: (Noted(**vars(node)), *node.needs) for key, node in graph.nodes.items()}
    dask.get(tasks, list(graph.outputs))
    assert sorted(order) == sorted(graph.nodes)


def test_slices_repeat_the_tasks_that_they_change() -> None:
    plan = planned("optimum", memory="30kB", fit="slice", order="min-fill", tree="bucket")
    assert plan.slices > 1
    graph = plan.graph()
    repeats = [node.repeats for node in graph.nodes.values()]
    shared = plan.variant_from
    assert repeats == [1] * shared + [plan.slices] * (len(plan.steps) - shared)
    assert sum(node.cells * node.repeats for node in graph.nodes.values()) == plan.cells
    assert all("slices" in node.place for node in graph.nodes.values())


@pytest.mark.parametrize("query", ["optimum", "marginals"])
def test_boxes_repeat_the_tasks_of_their_stage_which_read_what_others_store(query: str) -> None:
    with BudgetPolicy.using(margin_bytes=0):
        plan = planned(query, **SPILLED)
    assert plan.spill is not None
    graph = plan.graph()
    assert len(plan.spill.stages) > 1
    assert len(graph) == sum(len(stage.steps) for stage in plan.spill.stages)
    assert graph.runs == sum(plan.spill.boxes(stage) * len(stage.steps) for stage in plan.spill.stages)
    assert {node.place for node in graph.nodes.values()} == {
        f"stage {k}, boxes on disk" for k in range(1, len(plan.spill.stages) + 1)
    }
    assert len(dask.get(graph.to_dask(), list(graph.outputs))) == len(graph.outputs)
    # everything is computed for an answer, and no stage stands apart
    assert reached(graph, graph.outputs) == set(graph.nodes)
    of_stage = {key: key.split("-")[2] for key in graph.nodes}
    for number, stage in enumerate(plan.spill.stages, 1):
        own = [node for key, node in graph.nodes.items() if of_stage[key] == f"stage{number}"]
        others = {key for node in own for key in node.needs if of_stage[key] != f"stage{number}"}
        assert len(others) == len(stage.inputs)


def test_what_workers_share_says_its_part() -> None:
    plan = for_workers(planned("partition"), 2, 1e-5, Rates(), 1 << 30)
    assert plan.cuts
    places = {node.place for node in plan.graph().nodes.values()}
    assert places == {"memory", *(f"part {head}, memory" for head in plan.cuts)}


def test_by_rows_sizes_are_bounds_and_seconds_unknown() -> None:
    with RowPolicy.using(small_cells=1):
        plan = planned("optimum", representation="rows")
    assert plan.row_bounds is not None
    for step, node in zip(plan.steps, plan.graph().nodes.values(), strict=True):
        assert node.seconds is None
        assert node.cells == plan.row_bounds[step.node]
        assert node.nbytes <= step.lowered.out_cells * plan.itemsize


def test_names_are_those_of_the_caller() -> None:
    plan = planned("optimum")
    names = [f"v{i}" for i in range(len(plan.dims))]
    for node, named in zip(plan.graph().nodes.values(), plan.graph(names).nodes.values(), strict=True):
        assert named.eliminated == tuple(v.replace("x", "v") for v in node.eliminated)


def test_nothing_left_is_a_graph_of_no_tasks() -> None:
    graph = empty_plan().graph()
    assert (len(graph), graph.levels, graph.runs, graph.outputs, graph.to_dask()) == (0, 0, 0, (), {})
    ElementTree.fromstring(graph.to_svg())


def circles(svg: str) -> int:
    return len(ElementTree.fromstring(svg).findall("{http://www.w3.org/2000/svg}circle"))


def eliminations(graph: TaskGraph) -> list[TaskNode]:
    return [node for node in graph.nodes.values() if node.kind == "elimination"]


def test_a_small_plan_is_drawn_whole_and_a_large_one_says_what_it_leaves_out() -> None:
    graph = planned("marginals").graph()
    steps = eliminations(graph)
    whole, part = graph.to_svg(), graph.to_svg(most=10)
    assert circles(whole) == len(steps)
    assert "left out" not in whole
    assert circles(part) == 10
    assert f"{len(graph):,} tasks in {graph.levels:,} levels" in part
    assert f"{len(steps) - 10:,} of {len(steps):,} eliminations are left out" in part
    ElementTree.fromstring(graph.to_html(most=10).removeprefix("<!DOCTYPE html>").replace("<meta charset='utf-8'>", ""))


def drawn(graph: TaskGraph) -> list[Drawn]:
    return graph._drawn()


@pytest.mark.parametrize("query", ["optimum", "marginals"])
def test_rows_of_a_plan_hold_every_task_and_all_cells(query: str) -> None:
    graph = planned(query).graph()
    rows = rows_of(drawn(graph))
    assert [row.key for row in rows] == [node.key for node in eliminations(graph)]
    assert sum(row.cells for row in rows) == sum(node.cells * node.repeats for node in graph.nodes.values())
    for row in rows:
        users = [node.key for node in eliminations(graph) if row.key in node.needs]
        assert row.parent == (users[0] if users else None)


def test_a_message_back_is_in_the_row_of_its_elimination() -> None:
    graph = planned("marginals").graph()
    for node in graph.nodes.values():
        if node.kind == "message" and (up := graph.nodes[node.bucket]).key not in node.needs:
            assert set(node.variables) == set(up.variables)


def test_a_thinned_plan_connects_rows_to_the_nearest_row_below() -> None:
    rows = rows_of(drawn(planned("marginals").graph()))
    parents = {row.key: row.parent for row in rows}
    found = thinned(rows, len(rows) // 2)
    kept = {row.key for row in found}
    assert len(found) == len(rows) // 2
    assert min(row.cells for row in found if row.parent) >= max(row.cells for row in rows if row.key not in kept)
    for row in found:
        above = parents[row.key]
        while above is not None and above not in kept:
            above = parents[above]
        assert row.parent == above
        assert row.direct == (parents[row.key] == above)
    assert sum(row.hidden for row in found) == len(rows) - len(found)


def test_no_line_of_a_plan_crosses_a_step() -> None:
    rows = rows_of(drawn(planned("optimum").graph()))
    places, path = laid_out(rows)
    assert sorted(line for _, line in places.values()) == list(range(len(rows)))
    assert len({places[key][0] for key in path}) == 1
    for row in rows:
        if row.parent is None:
            continue
        (lane, line), (below, end) = places[row.key], places[row.parent]
        assert line < end
        assert lane - below in (0, 1)
        assert not [key for key, place in places.items() if place[0] == below and line < place[1] < end]


def test_names_from_files_are_escaped() -> None:
    task = Drawn("a", (), 0, 8, "<b>&'", "</title><script>")
    svg = svg_of([task], 5).text
    assert "&lt;b&gt;" in svg
    assert "<script>" not in svg
    ElementTree.fromstring(svg)


def test_the_command_writes_all_three_kinds_of_files(tmp_path: Path) -> None:
    for ending in ("svg", "html", "json"):
        done = CliRunner().invoke(
            main, ["plan", "diagnosis", "--query", "marginals", "--graph", str(tmp_path / f"g.{ending}"), "--json"]
        )
        assert done.exit_code == 0, done.output
    graph = bucketflow.plan(bucketflow.load("diagnosis"), "marginals").graph()
    told = json.loads((tmp_path / "g.json").read_text())
    assert told["tasks"] == len(graph) == len(told["nodes"])
    assert told["outputs"] == list(graph.outputs)
    assert {name for node in told["nodes"] for name in node["variables"]} <= set(bucketflow.load("diagnosis").names)
    assert circles((tmp_path / "g.svg").read_text()) == len(eliminations(graph))
    assert re.search(r"<svg.*</svg>", (tmp_path / "g.html").read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["diagnosis", "--graph", "g.gif"], 2, "a .svg, .html, .png, .pdf or .json file, not to 'g.gif'"),
        (["diagnosis", "--graph", "nowhere/g.svg", "--query", "marginals"], 2, "cannot write nowhere/g.svg"),
        (["satellite", "--graph", "g.svg", "--method", "search"], 2, "there is no task graph"),
    ],
)
def test_what_has_no_graph_is_refused(
    arguments: list[str], code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["plan", *arguments])
    assert (done.exit_code, "Traceback" in done.output) == (code, False)
    assert says in done.output
    assert list(tmp_path.iterdir()) == []
