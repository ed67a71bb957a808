"""Steps as Dask futures: each depends on those of its inputs, answers are the same bits, and what was sent is said."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
from click.testing import CliRunner
from dask import config
from dask.utils import key_split
from distributed import Client, LocalCluster
from distributed import wait as wait_for
from distributed.diagnostics.plugin import SchedulerPlugin

import bucketflow
from bucketflow.cluster.connect import ClusterError, local_client, verify_dashboard
from bucketflow.cluster.dask_pool import DaskPool, TaskBatch
from bucketflow.cluster.starting import NO_DASHBOARD
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.runs import row_sweep
from bucketflow.pipeline.runs.slices import SlicePolicy
from bucketflow.tasks.boxes import row_box
from bucketflow.tasks.steps.policy import BoxPolicy, RowPolicy
from tests.models import grid
from tests.pipeline.runs.sparse import ring

pytestmark = pytest.mark.filterwarnings("ignore")


class Needs(SchedulerPlugin):
    """Notes what each task depends on."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler, self.found, self.priorities = scheduler, dict[str, set[str]](), dict[str, Any]()
        self.annotations = dict[str, dict[str, Any]]()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if finish == "memory":
            self.found[str(key)] = {str(other.key) for other in self.scheduler.tasks[key].dependencies}
            self.annotations[str(key)] = self.scheduler.tasks[key].annotations
            self.priorities[str(key)] = self.scheduler.tasks[key].priority

    def numbered(self) -> dict[int, tuple[str, set[int]]]:
        """By the order in which tasks were submitted: their kinds, and what they need."""
        number = {key: int(key.rsplit("-", 1)[1]) for key in self.found}
        return {number[key]: (key_split(key), {number[need] for need in needs}) for key, needs in self.found.items()}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers in this process."""
    kwargs: dict[str, Any] = {"scheduler_kwargs": NO_DASHBOARD, "dashboard_address": None, "memory_limit": 0}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, silence_logs=50, **kwargs) as cluster,
        Client(cluster, set_as_default=False) as opened,
    ):
        yield opened


def answers(model: bucketflow.Model, query: str, **options: Any) -> Any:
    if query in ("marginals", "max-marginals"):
        return bucketflow.marginals(model, max_marginals=query == "max-marginals", joint=[("x0", "x1")], **options)
    return bucketflow.solve(model, query, method="dense", **options)


def assert_same(one: Any, other: Any) -> None:
    if not isinstance(one, bucketflow.Marginals):
        assert (one.status, one.value, one.log10, one.assignment) == (
            other.status,
            other.value,
            other.log10,
            other.assignment,
        )
        return
    assert (one.status, one.value, one.log10_evidence) == (other.status, other.value, other.log10_evidence)
    for name in one:
        assert one[name].tobytes() == other[name].tobytes()
    assert [t.tobytes() for t in one.joint.values()] == [t.tobytes() for t in other.joint.values()]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("optimum", "cost"),
        ("optimum", "markov"),
        ("partition", "markov"),
        ("partition", "steep"),
        ("count", "forbids"),
        ("marginals", "markov"),
        ("marginals", "steep"),
        ("max-marginals", "cost"),
    ],
)
def test_answers_are_the_same_bits(client: Client, query: str, kind: str) -> None:
    model = grid(5, 5, 4, kind)
    found = answers(model, query, client=client, tasks="steps")
    assert_same(answers(model, query), found)
    assert found.plan is not None
    assert found.dask is not None
    assert found.dask.tasks >= len(found.plan.steps) * (found.plan.sweeps if query == "count" else 1) > 0
    assert (found.dask.workers, found.dask.why_none) == (2, "")


@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("partition", "markov"), ("marginals", "markov")])
def test_every_step_is_a_future_that_depends_on_those_of_its_inputs(client: Client, query: str, kind: str) -> None:
    assert client.cluster is not None
    noted = Needs(client.cluster.scheduler)
    client.cluster.scheduler.add_plugin(noted, name="needs")
    try:
        found = answers(grid(6, 6, 3, kind), query, client=client, tasks="steps")
    finally:
        client.cluster.scheduler.remove_plugin("needs")
    tasks = noted.numbered()
    assert len(tasks) == found.dask.tasks
    number_of_key = {key: int(key.rsplit("-", 1)[1]) for key in noted.found}
    swept = ("eliminate", "message", "result")
    first = sorted((key for key in noted.found if key_split(key) in swept), key=noted.priorities.__getitem__)
    assert first == sorted(first, key=number_of_key.__getitem__)
    steps = sorted(number for number, (each, _) in tasks.items() if each in swept)
    graph = found.plan.graph()
    assert len(steps) == len(graph) > 4
    number_of = dict(zip(graph.nodes, steps, strict=True))
    for key, node in graph.nodes.items():
        assert tasks[number_of[key]][1] == {number_of[need] for need in node.needs}
    (collected,) = [needs for each, needs in tasks.values() if each == "collect"]
    assert collected == {number_of[key] for key in graph.outputs}
    # Dask's pages name and annotate each task as the plan's graph does
    (run,) = {told["run"] for told in noted.annotations.values()}
    for key, node in graph.nodes.items():
        told = noted.annotations[f"{key}-{run}-{number_of[key]}"]
        assert (told["model"], told["stage"], told["cells"]) == ("in memory", node.place, node.cells)


@pytest.mark.parametrize(("fit", "kinds"), [("slice", {"slice", "load"}), ("spill", {"box", "load"})])
def test_slices_and_boxes_are_named_by_their_numbers(client: Client, fit: Any, kinds: set[str]) -> None:
    model = grid(5, 5, 4)
    assert client.cluster is not None
    with BudgetPolicy.using(margin_bytes=0):
        options: dict[str, Any] = {"tree": "bucket", "fit": fit, "threads": 1}
        options["memory"] = bucketflow.plan(model, **options).peak_bytes // 2
        noted = Needs(client.cluster.scheduler)
        client.cluster.scheduler.add_plugin(noted, name="needs")
        try:
            found = answers(model, "optimum", client=client, tasks="steps", **options)
        finally:
            client.cluster.scheduler.remove_plugin("needs")
    assert {key_split(key) for key in noted.found} - {"collect", "decode", "store"} == kinds | {"eliminate"}
    named = [key.partition("-")[2] for key in noted.found if key_split(key) in ("slice", "box")]
    assert all(re.match(r"\d+of\d+-", name) for name in named)
    steps = {key for key in noted.found if key_split(key) == "eliminate"}
    assert all(any(each.startswith(key) for each in steps) for key in found.plan.graph().nodes)


def test_dask_writes_its_report_of_a_run(client: Client, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    found = answers(grid(4, 4, 3, "markov"), "marginals", client=client, tasks="steps", dask_report=page)
    text = page.read_text()
    assert found.dask.tasks > 0
    assert "eliminate-x" in text
    assert "message-x" in text
    small = bucketflow.solve(grid(3, 3, 2), client=client, method="dense", dask_report=page)
    assert small.notes == ("no task was sent to workers: Dask has nothing to report",)
    with pytest.raises(bucketflow.BucketflowError, match="name another file for Dask's report"):
        answers(grid(3, 3, 2), "optimum", client=client, tasks="steps", dask_report=tmp_path / "none" / "a.html")
    with pytest.raises(bucketflow.ModelError, match="give workers, a scheduler or a client"):
        bucketflow.solve("satellite", dask_report=page)


def test_leaf_tables_in_a_graph_cause_no_warning(client: Client) -> None:
    limit = {"distributed.admin.large-graph-warning-threshold": "10 kB"}
    with config.set(limit), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answers(grid(6, 6, 3, "markov"), "partition", client=client, tasks="steps").dask.tasks > 0


@pytest.mark.parametrize(("query", "kind", "length"), [("optimum", "cost", 40), ("marginals", "markov", 24)])
def test_tables_that_are_dropped_and_made_again_are_too(client: Client, query: str, kind: str, length: int) -> None:
    tree = "bucket" if query == "optimum" else "refined"
    model, options = grid(8, length, 3, kind), {"tree": tree, "fit": "slice", "threads": 1}
    memory = bucketflow.plan(model, query, **options).peak_bytes // 2
    found = answers(model, query, client=client, tasks="steps", memory=memory, **options)
    assert found.plan.slices == 1
    assert found.plan.cuts
    assert_same(answers(model, query, memory=memory, **options), found)


def test_a_worker_that_is_lost_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it held is made again from what others hold."""
    model = grid(6, 6, 3, "markov")
    send, lost = TaskBatch.send, list[str]()

    with local_client(2) as opened:
        (victim, *_) = opened.run(os.getpid).values()

        def sent(batch: TaskBatch, references: Any) -> Any:
            futures = send(batch, references)
            wait_for([*futures.values()], return_when="FIRST_COMPLETED")
            lost.append("a worker")
            os.kill(victim, signal.SIGKILL)
            return futures

        monkeypatch.setattr(TaskBatch, "send", sent)
        found = answers(model, "marginals", client=opened, tasks="steps")
    assert lost == ["a worker"]
    assert_same(answers(model, "marginals"), found)


def test_tables_of_rows_are_too(client: Client) -> None:
    with RowPolicy.using(small_cells=1):
        model = grid(4, 4, 4, "forbids")
        found = bucketflow.solve(model, representation="rows", client=client, tasks="steps")
        alone = bucketflow.solve(model, representation="rows")
    assert found.plan is not None
    assert found.plan.row_bounds is not None
    assert_same(alone, found)
    assert found.dask is not None
    assert found.dask.tasks > len(found.plan.steps)


STORED: dict[str, Any] = {"representation": "rows", "fit": "spill", "memory": 400_000}


@pytest.fixture
def stored_rows() -> Iterator[bucketflow.Model]:
    """A ring of sparse tables, of which most do not fit, and each is done in boxes."""
    with BudgetPolicy.using(margin_bytes=0), BoxPolicy.using(memory_first=False, receipt_bytes=50):
        yield ring(48, "cost", groups=4)


@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("partition", "markov"), ("count", "cost")])
def test_rows_on_disk_are_too(client: Client, query: Any, kind: str, stored_rows: bucketflow.Model) -> None:
    model = ring(48, kind, groups=4)
    how = {**STORED, "memory": 900_000}
    alone = bucketflow.solve(model, query, **how)
    found = bucketflow.solve(model, query, **how, client=client, tasks="steps")
    assert found.plan is not None
    assert found.plan.rows_stored
    assert_same(alone, found)
    assert found.dask is not None
    assert found.dask.tasks % (1 + len(found.plan.steps)) == 0 < found.dask.tasks  # of each sweep there was
    assert alone.rows_work is not None
    assert found.rows_work is not None
    assert found.rows_work.joined_rows == alone.rows_work.joined_rows
    assert found.rows_work.tables == alone.rows_work.tables


def test_posteriors_by_rows_on_disk_are_too(client: Client, stored_rows: bucketflow.Model) -> None:
    model = ring(12, "markov", groups=4)
    alone = bucketflow.marginals(model, **STORED)
    found = bucketflow.marginals(model, **STORED, client=client, tasks="steps")
    assert found.dask is not None
    assert found.plan is not None
    assert found.dask.tasks == 1 + len(found.plan.steps)
    for name in alone:
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-12, atol=1e-300)


def test_steps_by_rows_depend_on_those_of_their_inputs(client: Client, stored_rows: bucketflow.Model) -> None:
    assert client.cluster is not None
    noted = Needs(client.cluster.scheduler)
    client.cluster.scheduler.add_plugin(noted, name="needs")
    try:
        found = bucketflow.solve(stored_rows, **STORED, client=client, tasks="steps")
    finally:
        client.cluster.scheduler.remove_plugin("needs")
    tasks = noted.numbered()
    (shared,) = [number for number, (function, _) in tasks.items() if function == "load"]
    steps = sorted(number for number, (function, _) in tasks.items() if function == "eliminate")
    assert found.plan is not None
    number_of = dict(zip(found.plan.graph().nodes, steps, strict=True))
    for key, node in found.plan.graph().nodes.items():
        assert tasks[number_of[key]][1] == {shared, *(number_of[need] for need in node.needs)}


@pytest.mark.parametrize("other", ["steps", "auto"])
def test_rows_on_disk_go_on_where_steps_stopped(
    client: Client, other: Any, stored_rows: bucketflow.Model, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No chunk is written again that was finished, whoever goes on; a damaged one is, and what was made of it stays."""
    how: dict[str, Any] = {**STORED, "workdir": tmp_path / "run", "client": client}
    with monkeypatch.context() as patch:
        patch.setattr(DaskPool, "get", stopping(DaskPool.get, 3))
        with pytest.raises(bucketflow.StoppedError):
            bucketflow.solve(stored_rows, **how, tasks="steps")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("c.*")}
    assert before
    lost = max(before)
    lost.write_bytes(lost.read_bytes()[::-1])
    del before[lost]
    found = bucketflow.solve(stored_rows, **how, tasks=other)
    assert_same(bucketflow.solve(stored_rows, **STORED), found)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def stopping(get: Any, after: int) -> Any:
    """Return what fetches results and is interrupted at one of them."""
    left = [after]

    def stops(self: Any, handle: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            get(self, handle)
            raise KeyboardInterrupt
        return get(self, handle)

    return stops


def test_a_step_that_is_done_again_finds_what_a_lost_worker_left(
    client: Client, stored_rows: bucketflow.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut as it was, with the boxes that are there: nothing is written twice."""
    written: list[Any] = []
    make, store = row_sweep.make_rows, row_box.stored_run

    def twice(*args: Any) -> Any:
        first = make(*args)
        count = len(written)
        again = make(*args)
        assert len(written) == count or first.table is not None
        assert {r.key: r.checksum for r in first.receipts} == {r.key: r.checksum for r in again.receipts}
        return again

    def stored_run(boxes: Any, path: Any, *rest: Any, **options: Any) -> Any:
        written.append((boxes.name, path))
        return store(boxes, path, *rest, **options)

    monkeypatch.setattr(row_sweep, "make_rows", twice)
    monkeypatch.setattr(row_box, "stored_run", stored_run)
    found = bucketflow.solve(stored_rows, **STORED, client=client, tasks="steps")
    assert len({path for _, path in written}) > 2
    monkeypatch.undo()
    assert_same(bucketflow.solve(stored_rows, **STORED), found)


def test_large_functions_are_sent_once(client: Client) -> None:
    model = grid(2, 3, 80, "markov")
    found = answers(model, "marginals", client=client, tasks="steps")
    assert_same(answers(model, "marginals"), found)
    functions = found.plan.tree.n_leaves
    assert found.dask.tasks <= len(found.plan.steps) + functions + 1


def test_nothing_left_sends_nothing_and_says_so(client: Client) -> None:
    found = bucketflow.solve(bucketflow.load("diagnosis"), "partition", client=client, tasks="steps")
    assert found.dask is not None
    assert (found.dask.tasks, found.dask.why_none) == (0, "preprocessing gives the answer")


def test_what_was_not_sent_is_said(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    model = grid(4, 4, 3, "markov")
    with caplog.at_level(logging.INFO, "bucketflow"):
        found = bucketflow.solve(model, "partition", client=client)
    assert found.dask is not None
    assert found.dask.tasks == found.dask.workers == 0
    assert re.fullmatch(
        r"the whole sweep takes \S+ s, and sending it to workers pays only from 0.4 s "
        r"on",
        found.dask.why_none,
    )
    assert f"dask: no task was sent to workers of the client's cluster: {found.dask.why_none}" in caplog.text
    assert ("dask", found.dask.text) in found.rows()
    beliefs = bucketflow.marginals(model, client=client)
    assert beliefs.dask is not None
    assert beliefs.dask.why_none.startswith("the propagation takes")
    assert beliefs.to_dict()["dask"]["tasks"] == 0
    bounds = bucketflow.solve(grid(6, 6, 4), method="search", client=client)
    assert bounds.dask is not None
    assert bounds.dask.tasks or "before workers were due to help" in bounds.dask.why_none
    assert bucketflow.solve(model, "partition").dask is None
    assert "dask" not in bucketflow.solve(model, "partition").to_dict()


def test_what_was_sent_is_kept_in_a_run_directory(client: Client, tmp_path: Any) -> None:
    model = bucketflow.load("satellite")
    found = bucketflow.solve(model, method="dense", client=client, tasks="steps", workdir=tmp_path / "run")
    again = bucketflow.solve(model, method="dense", client=client, tasks="steps", workdir=tmp_path / "run")
    assert found.dask is not None
    assert found.dask.tasks > 0
    assert (again.dask, again.value, again.assignment) == (found.dask, found.value, found.assignment)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"client": None}, "give workers, a scheduler, a client or gpus"),
        ({"method": "search"}, "the method 'search' runs no sweep"),
        ({"time": 1.0}, "leave out time, gap and upper_bound"),
        ({"tasks": "all"}, "unknown tasks 'all'; one of auto, steps"),
    ],
)
def test_what_is_not_cut_into_steps_is_refused_by_name(client: Client, options: dict[str, Any], says: str) -> None:
    with BudgetPolicy.using(margin_bytes=0), pytest.raises(bucketflow.ModelError, match=re.escape(says)):
        bucketflow.solve(grid(6, 6, 4), **{"client": client, "tasks": "steps", **options})


@pytest.mark.parametrize("fit", ["slice", "spill"])
def test_more_tasks_than_a_scheduler_is_given_are_refused(client: Client, fit: str) -> None:
    options: dict[str, Any] = {"client": client, "tasks": "steps", "fit": fit, "memory": "28kB"}
    says = r"steps of all slices or boxes are \d{3} tasks, and a scheduler receives at most 40"
    few = BudgetPolicy.using(margin_bytes=0), SlicePolicy.using(step_tasks=40)
    with few[0], few[1], pytest.raises(bucketflow.ModelError, match=says):
        bucketflow.solve(grid(6, 6, 4), **options)


@pytest.mark.parametrize(
    ("query", "kind"), [("optimum", "cost"), ("partition", "steep"), ("count", "forbids"), ("marginals", "markov")]
)
@pytest.mark.parametrize("fit", ["slice", "spill"])
def test_steps_of_slices_and_of_boxes_are_futures_too(
    client: Client, query: str, kind: str, fit: str, tmp_path: Any
) -> None:
    """The same bits as slices and boxes that are run whole, and receipts from which such a run ends."""
    model, options = grid(4, 4, 4, kind), dict[str, Any](fit=fit, tree="bucket")
    with BudgetPolicy.using(margin_bytes=0):
        whole = bucketflow.plan(model, query, tree="bucket")
        assert whole is not None
        options["memory"] = (whole.peak_bytes + whole.model_bytes + whole.leaf_bytes) // 2
        alone = answers(model, query, **options)
        found = answers(model, query, client=client, tasks="steps", workdir=tmp_path / "run", **options)
        (tmp_path / "run" / "result.json").unlink()
        again = answers(model, query, workdir=tmp_path / "run", **options)
    assert found.plan.way == ("slices" if fit == "slice" else "disk")
    assert_same(alone, found)
    assert_same(alone, again)
    once = len(found.plan.steps) * found.plan.sweeps
    assert found.dask.tasks > found.plan.step_tasks > once
    if fit == "slice":  # steps that no slice changes are tasks once
        assert found.plan.variant_from > 0
        assert found.plan.step_tasks < found.plan.slices * once


def test_compiled_models_refuse_steps() -> None:
    with pytest.raises(bucketflow.ModelError, match="'tasks' does not apply"):
        bucketflow.compile(bucketflow.load("diagnosis"), tasks="steps", workers=1)


def test_a_dashboard_is_served_on_this_machine_only(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, int]] = []

    def look(address: str) -> None:
        with urlopen(address) as page:
            told.append((address, page.status))

    with local_client(1, look) as client:
        assert client.submit(sum, (1, 2)).result() == 3
    ((address, status),) = told
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/status", address)
    assert status == 200
    with pytest.raises(URLError):
        urlopen(address)


def test_the_command_serves_prints_and_answers() -> None:
    flags = ["--workers", "1", "--tasks", "steps", "--dashboard", "--json"]
    done = CliRunner().invoke(main, ["solve", "satellite", "--method", "dense", *flags])
    assert done.exit_code == 0, done.output
    assert re.search(r"Dask's dashboard is at http://127\.0\.0\.1:\d+/status while workers run", done.stderr)
    found = json.loads(done.stdout)
    assert found["dask"]["tasks"] > found["plan"]["tasks"]
    assert found["dask"]["where"] == "1 processes of this machine"
    assert found["value"] == bucketflow.solve(bucketflow.load("satellite")).value


def test_without_bokeh_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(ClusterError, match=re.escape("pip install 'bucketflow-inference[report]'")):
        verify_dashboard()


def test_a_dashboard_without_local_workers_is_refused(client: Client) -> None:
    for options in ({}, {"client": client}, {"gpus": 1}):
        with pytest.raises(bucketflow.ModelError, match="the dashboard shows workers started here"):
            bucketflow.plan(grid(3, 3, 2), dashboard=True, **options)
