"""Propagation out of core: equal to that in memory, within its budget, and nothing finished is lost to any fault."""

from __future__ import annotations

import gc
import json
import lzma
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.cluster.connect import local_client
from bucketflow.pipeline.answering import placement, prepared
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans import tree_planner
from bucketflow.pipeline.plans.planner import Planner, forget_plans
from bucketflow.pipeline.results.proof import plan_figures
from bucketflow.pipeline.runs import dense_boxes as outofcore
from bucketflow.pipeline.runs.dense_boxes import BoxRun
from bucketflow.pipeline.trees.tree import Tree, build_tree
from bucketflow.storage import ledger
from bucketflow.storage.chunks import write_chunk
from bucketflow.tasks.boxes import stores
from bucketflow.tasks.boxes.box import run_box
from bucketflow.tasks.sweeps.scaled import Scaled, joined_scales
from tests.killing import killing_one, stopped
from tests.memory import traced, traced_boxes
from tests.models import cost_models, grid, named_model
from tests.pipeline.budget.test_budget import SLACK_BYTES
from tests.pipeline.queries.test_marginals import PROBABILITIES, asked
from tests.pipeline.runs.test_marginal_runs import inspected, resumed, same
from tests.pipeline.runs.test_outofcore import memory_of_tasks
from tests.policies import InForce


def spilled(model: Model, **options: Any) -> Iterator[bucketflow.Marginals]:
    """Answer out of core with less and less memory, until nothing smaller fits."""
    plan = bucketflow.marginals(model, **options).plan
    memory = plan.peak_bytes if plan else 0
    while memory:
        try:
            yield bucketflow.marginals(
                model, fit="spill", memory=model.nbytes + BudgetPolicy.margin_bytes + memory, **options
            )
        except bucketflow.BudgetError:
            return
        memory //= 2


def cut(model: Model, shares: tuple[int, ...] = (3, 8), **options: Any) -> Iterator[bucketflow.Marginals]:
    """Answer out of core with parts of the memory that the plan needs."""
    plan = bucketflow.marginals(model, **options).plan
    assert plan is not None
    for share in shares:
        memory = BudgetPolicy.margin_bytes + 4 * model.nbytes + plan.peak_bytes // share
        yield bucketflow.marginals(model, fit="spill", memory=memory, **options)


def stages(found: bucketflow.Marginals) -> int:
    """How many stages an answer took."""
    assert found.plan is not None
    assert found.plan.spill is not None
    return len(found.plan.spill.stages) - found.plan.spill.top


def joined(*models: Model) -> Model:
    """Models side by side, without a function in common."""
    dims, functions = [], []
    for model in models:
        shift = len(dims)
        dims += model.dims
        functions += [replace(f, scope=tuple(v + shift for v in f.scope)) for f in model.functions]
    return named_model(models[0].kind, dims, functions, top=models[0].top)


@settings(max_examples=40)
@given(case=asked(st.one_of(PROBABILITIES, cost_models())), max_marginals=st.booleans())
def test_random_networks(case: tuple[Model, dict[str, int], list[str]], max_marginals: bool) -> None:
    model, evidence, names = case
    options: dict[str, Any] = {
        "evidence": evidence,
        "joint": [names],
        "max_marginals": max_marginals or model.kind == "cost",
    }
    whole = bucketflow.marginals(model, **options)
    for found in spilled(model, **options):
        same(found, whole, rel=1e-11 if options["max_marginals"] else 1e-12)


@pytest.mark.parametrize("kind", ["markov", "steep", "cost", "max"])
def test_many_boxes(kind: str, in_force: InForce) -> None:
    in_force(BudgetPolicy, stored_runs=())  # all large tables are stored, so that there are many stages
    model = grid(6, 6, 4, "steep" if kind == "max" else kind)
    options: dict[str, Any] = {"joint": ("x3", "x20"), "evidence": {"x8": 2}, "max_marginals": kind in ("cost", "max")}
    whole = bucketflow.marginals(model, **options)
    most = tasks = 0
    for found in cut(model, **options):
        same(found, whole, rel=1e-12 if kind == "markov" else 1e-11)
        assert found.plan is not None
        assert found.plan.spill is not None
        most, tasks = max(most, stages(found)), max(tasks, found.plan.spill.tasks)
    assert most > 2
    assert tasks > 50


@pytest.mark.parametrize("max_marginals", [False, True])
def test_boxes_that_fix_what_their_stage_eliminates(max_marginals: bool, in_force: InForce) -> None:
    """Their shares of tables are added up on both ways."""
    model = grid(4, 4, 3, "markov")
    whole = bucketflow.marginals(model, tree="bucket", max_marginals=max_marginals)
    assert whole.plan is not None
    in_force(BudgetPolicy, margin_bytes=1 << 8, chunk_bytes=(1 << 9, 1 << 11), stored_runs=())
    memory = model.nbytes + whole.plan.peak_bytes // 4 + (1 << 8)
    found = bucketflow.marginals(model, tree="bucket", max_marginals=max_marginals, fit="spill", memory=memory)
    same(found, whole, rel=1e-12)
    assert found.plan is not None
    assert found.plan.spill is not None
    assert any(table.shared and table.name.startswith("msg_") for table in found.plan.spill.tables.values())


def test_only_children_end_stages(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """What comes from above an only child is what its parent sees, but stored in the axes of its own table."""
    found = Planner.tree

    def doubled(*args: Any) -> Tree:
        tree = found(*args)
        first, count = tree.n_leaves, len(tree.scopes)
        kids = {node: [c if c < first else count + c for c in below] for node, below in enumerate(tree.children, first)}
        return build_tree(tree.dims, tree.leaves, kids | {count + node: (node,) for node in kids})

    model = grid(6, 6, 4, "steep")
    whole = bucketflow.marginals(model, joint=("x3", "x20"))
    forget_plans()
    monkeypatch.setattr(Planner, "tree", doubled)
    in_force(BudgetPolicy, stored_runs=())
    for answer in cut(model, joint=("x3", "x20")):
        same(answer, whole, rel=1e-11)
        assert answer.plan is not None
        assert answer.plan.spill is not None
        tree, heads = answer.plan.tree, [stage.head for stage in answer.plan.spill.stages if stage.head >= 0]
        assert any(len(tree.children[tree.parent[head] - tree.n_leaves]) == 1 for head in heads)
    forget_plans()


@pytest.mark.parametrize("tree", ["bucket", "junction"])
def test_other_trees(tree: str) -> None:
    model = grid(6, 6, 4, "steep")
    whole = bucketflow.marginals(model, families=True)
    for found in cut(model, (2, 4), families=True, tree=tree):
        same(found, whole, rel=1e-11)
        assert all(found.families[f] == pytest.approx(table, rel=1e-11) for f, table in whole.families.items())


@pytest.mark.parametrize("name", ["hailfinder", "pigs", "andes"])
def test_reference_posteriors(data: Path, name: str) -> None:
    reference = json.loads(lzma.decompress((data / "bn" / "ref" / f"{name}.json.xz").read_bytes()))
    model = bucketflow.load(data / "bn" / f"{name}.bif.gz")
    case = reference["cases"][-1]
    for found in cut(model, (6,), evidence=case["evidence"]):
        assert stages(found) > 1
        assert found.log10_evidence == pytest.approx(case["log10_Pe_ve"], rel=1e-9, abs=1e-9)
        assert all(found[v] == pytest.approx(posterior, abs=1e-9) for v, posterior in case["posterior"].items())


def test_a_forest_of_unequal_trees() -> None:
    model = joined(grid(6, 6, 3, "markov"), grid(2, 3, 3, "markov", seed=1), grid(5, 5, 4, "steep", seed=2))
    whole = bucketflow.marginals(model)
    assert max(stages(f) for f in cut(model) if same(f, whole, rel=1e-11) is None) > 1


def test_zeros_and_impossible_evidence() -> None:
    rng = np.random.default_rng(3)
    model = grid(6, 6, 3, "markov")
    functions = tuple(
        replace(f, values=np.where(rng.random(f.values.shape) < 0.3, 0.0, f.values)) for f in model.functions
    )
    model = replace(model, functions=functions)
    whole = bucketflow.marginals(model)
    assert whole.status == "ok"
    assert all(same(f, whole) is None for f in cut(model))
    different = [Function(pair, 1.0 - np.eye(3)) for pair in combinations((0, 1, 6, 7), 2)]
    impossible = named_model("markov", [3] * 36, [*grid(6, 6, 3, "markov").functions, *different])
    for found in cut(impossible):
        assert (found.status, found.log10_evidence) == ("infeasible", -np.inf)


def test_some_variables_visit_some_stages() -> None:
    model = grid(6, 6, 4, "markov")
    whole = bucketflow.marginals(model, variables=["x0", "x35"])
    most = dict.fromkeys(("all", "some", "none"), 0)
    for name, wanted in (("all", "all"), ("some", ["x0", "x35"]), ("none", [])):
        for found in cut(model, (3, 6), variables=wanted):
            most[name] = max(most[name], stages(found))
            assert found.log10_evidence == pytest.approx(whole.log10_evidence, rel=1e-12)
            assert all(found[v] == pytest.approx(whole[v], rel=1e-12) for v in found if v in whole)
    assert most["none"] == 1 <= most["some"] <= most["all"]


@pytest.mark.usefixtures("compiled_at_once")
@pytest.mark.parametrize("max_marginals", [False, True])
def test_measured_peak_is_within_the_plan(max_marginals: bool) -> None:
    model = grid(10, 10, 4, "markov")
    plan = bucketflow.marginals(model, max_marginals=max_marginals, threads=1).plan
    assert plan is not None
    assert [*cut(grid(6, 6, 4, "markov"), (3,), max_marginals=max_marginals)]  # imports and compiled kernels
    for share in (2, 6):
        options: dict[str, Any] = {
            "max_marginals": max_marginals,
            "threads": 1,
            "fit": "spill",
            "memory": plan.peak_bytes // share,
        }
        gc.collect()
        peak, found = traced(
            lambda options=options: bucketflow.marginals(model, **options),
            lambda found: found.plan.peak_bytes + SLACK_BYTES - model.nbytes,
        )
        assert found.plan is not None
        assert found.plan.peak_bytes <= plan.peak_bytes // share
        assert found.plan.peak_bytes > SLACK_BYTES
        assert peak + model.nbytes <= found.plan.peak_bytes + SLACK_BYTES


@pytest.mark.usefixtures("compiled_at_once")
@pytest.mark.parametrize("runs", [(), BudgetPolicy.stored_runs])
@pytest.mark.parametrize("max_marginals", [False, True])
def test_every_task_is_within_its_plan(
    max_marginals: bool, runs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """Each box of both ways by itself needs at most what the plan says; with all large tables stored, and with few."""
    in_force(BudgetPolicy, stored_runs=runs)
    model = grid(9, 9, 4, "markov")
    options: dict[str, Any] = {"max_marginals": max_marginals, "threads": 1, "tree": "bucket", "fit": "spill"}
    plan = bucketflow.plan(model, "max-marginals" if max_marginals else "marginals", threads=1, tree="bucket")
    assert plan is not None
    options["memory"] = BudgetPolicy.margin_bytes + plan.peak_bytes // 3
    plan = bucketflow.marginals(model, **options).plan
    assert plan is not None
    assert plan.spill is not None
    order = plan.spill.stages
    ratios = memory_of_tasks(monkeypatch, lambda index: order[index].peak_bytes + BudgetPolicy.margin_bytes)
    traced_boxes(lambda: bucketflow.marginals(model, **options), ratios)
    assert len(ratios) == plan.spill.tasks
    assert len(order) > 4 or runs
    assert 0.3 < max(ratios) <= 1


def test_disk_bytes_are_what_was_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(7, 7, 3, "markov")
    most = 0
    original = BoxRun.free_inputs

    def measured(self: Any, task: Any, readers: Any) -> list[Any]:
        nonlocal most
        most = max(most, sum(p.stat().st_size for p in (tmp_path / "run").rglob("c.*")))
        return original(self, task, readers)

    monkeypatch.setattr(BoxRun, "free_inputs", measured)
    plan = bucketflow.marginals(model).plan
    assert plan is not None
    found = bucketflow.marginals(
        model, fit="spill", memory=BudgetPolicy.margin_bytes + plan.peak_bytes // 8, workdir=tmp_path / "run"
    )
    assert found.plan is not None
    assert found.plan.spill is not None
    assert stages(found) > 1
    assert most <= found.plan.spill.disk_bytes <= 2 * most
    assert not [p for p in (tmp_path / "run" / "tables").iterdir() if p.name.startswith(("msg_", "above_"))]


def test_refusals_name_both_numbers() -> None:
    model = grid(7, 7, 4, "markov")
    plan = bucketflow.marginals(model).plan
    assert plan is not None
    options: dict[str, Any] = {"fit": "spill", "memory": BudgetPolicy.margin_bytes + plan.peak_bytes // 8}
    with pytest.raises(bucketflow.BudgetError, match=r"need .* of disk, allowed 10 kB"):
        bucketflow.marginals(model, disk="10kB", **options)
    with pytest.raises(bucketflow.BudgetError, match=r"needs .* for its smallest box, allowed"):
        bucketflow.marginals(model, fit="spill", memory=BudgetPolicy.margin_bytes + 20_000)
    with pytest.raises(bucketflow.BudgetError, match=r"needs .* of memory, allowed 500 kB; --fit slice"):
        bucketflow.marginals(model, fit="refuse", memory=500_000)


def test_the_cheaper_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_planner, "remade", lambda *_: None)  # otherwise slices are too cheap
    model = grid(7, 20, 4, "markov")
    question = question_of(model, "marginals")
    plan = prepared.prepare(question, Resources(Options(memory="8GB"))).plan
    assert plan is not None
    memory = BudgetPolicy.margin_bytes + plan.peak_bytes // 5
    ways = {}
    for rate in (1e12, 1e2):
        monkeypatch.setattr(prepared, "measured_disk_rate", lambda _, rate=rate: rate)
        figures = plan_figures(prepared.prepare(question, Resources(Options(memory=memory))).plan)
        assert figures is not None
        ways[rate] = figures["way"]
        assert figures["peak_bytes"] <= memory
        assert (figures["disk_bytes"] > 0) == (figures["way"] == "disk")
    assert ways == {1e12: "disk", 1e2: "slices"}


def boxes_done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the boxes that run from now on."""
    done: list[Any] = []
    original = BoxRun.call
    monkeypatch.setattr(BoxRun, "call", lambda self, task: (done.append(task), original(self, task))[1])
    return done


@pytest.mark.parametrize("how", ["missing", "flipped", "short"])
def test_lost_chunks_are_computed_again(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(7, 7, 3, "markov")
    plan = bucketflow.marginals(model).plan
    assert plan is not None
    options: dict[str, Any] = {
        "fit": "spill",
        "memory": BudgetPolicy.margin_bytes + plan.peak_bytes // 6,
        "workdir": tmp_path / "run",
    }
    first = bucketflow.marginals(model, **options)
    done = boxes_done(monkeypatch)
    same(bucketflow.marginals(model, **options), first, rel=0.0)
    assert not done
    files = sorted((tmp_path / "run" / "tables").glob("beliefs_*/c.*"))
    for path in random.Random(5).sample(files, 2):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        if how == "missing":
            path.unlink()
        else:
            path.write_bytes(bytes(data) if how == "flipped" else bytes(data[:-8]))
    same(bucketflow.marginals(model, **options), first)
    assert first.plan is not None
    assert first.plan.spill is not None
    assert 2 <= len(done) < first.plan.spill.tasks


def test_chunks_damaged_during_a_stop_are_found_before_what_they_were_made_from_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, draw = grid(7, 7, 3, "markov"), random.Random(0)
    plan = bucketflow.marginals(model).plan
    assert plan is not None
    options: dict[str, Any] = {"fit": "spill", "memory": BudgetPolicy.margin_bytes + plan.peak_bytes // 2}
    expected = bucketflow.marginals(model, **options)
    written, fewest = chunks_written(monkeypatch), 1 << 30
    for boxes in (4, 6, 8, 10):
        run = tmp_path / str(boxes)
        monkeypatch.setattr(outofcore, "run_box", stopping(boxes))
        with pytest.raises(bucketflow.StoppedError):
            bucketflow.marginals(model, workdir=run, **options)
        monkeypatch.setattr(outofcore, "run_box", run_box)
        there = {(table, f"c.{'.'.join(map(str, chunk))}") for table, chunk in ledger.load(run / "tables")}
        damaged = draw.choice(sorted(key for key in there if key[0].startswith("above_")))
        path = run.joinpath("tables", *damaged)
        path.write_bytes(bytes(b ^ 0x15 for b in path.read_bytes()))
        written.clear()
        same(bucketflow.marginals(model, workdir=run, **options), expected)
        assert damaged in written
        assert not there & {*written} - {damaged}
        fewest = min(fewest, len(there))
    assert fewest > 10


def chunks_written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record the tables and files that are written from now on."""
    written: list[tuple[str, str]] = []

    def noted(folder: Path, spec: Any, chunk: Any, *args: Any, **options: Any) -> Any:
        written.append((spec.name, spec.file_name(chunk)))
        return write_chunk(folder, spec, chunk, *args, **options)

    monkeypatch.setattr(stores, "write_chunk", noted)
    return written


def stopping(count: int) -> Any:
    """Return what runs boxes as before, but stops the run instead of beginning one too many."""
    begun: list[int] = []

    def run(*args: Any) -> Any:
        begun.append(1)
        if len(begun) > count:
            raise KeyboardInterrupt
        return (yield from run_box(*args))

    return run


def test_a_disk_that_damages_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table has one chunk damaged, after it was written and before it is read."""
    model = grid(7, 7, 4, "markov")
    plan = bucketflow.marginals(model).plan
    assert plan is not None
    options: dict[str, Any] = {"fit": "spill", "memory": BudgetPolicy.margin_bytes + plan.peak_bytes // 6}
    expected = bucketflow.marginals(model, **options)
    damaged: set[str] = set()
    original = BoxRun.call

    def call(self: Any, task: Any) -> Any:
        for name, keys in self.needs(task).items():
            if len(damaged) < 3 and name not in damaged:
                damaged.add(name)
                path = self.store.folder / name / self.by_name[name].file_name(keys[0][1])
                path.write_bytes(bytes(b ^ 0x15 for b in path.read_bytes()))
        return original(self, task)

    monkeypatch.setattr(BoxRun, "call", call)
    same(bucketflow.marginals(model, workdir=tmp_path / "run", **options), expected)
    assert len(damaged) == 3


def test_logarithms_of_nothing_are_zeros() -> None:
    values = np.full(4, -np.inf)
    found = joined_scales(
        values, [(values[:2], Scaled(values[:2], logs=True)), (values[2:], Scaled(values[2:], logs=True))]
    )
    assert not found.logs
    assert np.array_equal(found.values, np.zeros(4))


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bucketflow.Marginals, int]:
    """A model file whose boxes are enough to be interrupted, its answer, and a budget.

    Within it a plan in memory would make some tables twice, which one in boxes does not.
    """
    path = tmp_path_factory.mktemp("models") / "grid.uai"
    bucketflow.save(grid(7, 7, 4, "markov"), path)
    whole = bucketflow.marginals(bucketflow.load(path), evidence={"x0": 1}, joint=("x3", "x40"))
    assert whole.plan is not None
    return path, whole, BudgetPolicy.margin_bytes + whole.plan.peak_bytes // 6


@pytest.mark.parametrize("receipts", [5, 120])
def test_resume_after_a_kill(tmp_path: Path, long_run: tuple[Path, bucketflow.Marginals, int], receipts: int) -> None:
    path, expected, memory = long_run
    run = tmp_path / "run"
    asked = ("marginals", path, "--evidence", "x0=1", "--joint", "x3,x40", "--memory", f"{memory}B", "--fit", "spill")
    assert stopped(receipts, signal.SIGKILL, *asked, "--workdir", run).returncode == -signal.SIGKILL
    before = ledger.load(run / "tables")
    stamps = {p: p.stat().st_mtime_ns for p in (run / "tables").glob("*/c.*") if "partial" not in p.name}
    resumed(run, expected)
    after = ledger.load(run / "tables")
    assert all(after[key] == receipt for key, receipt in before.items())
    finished = [run / "tables" / name / ".".join(["c", *map(str, chunk)]) for name, chunk in before]
    assert all(p.stat().st_mtime_ns == stamps[p] for p in finished if p.exists())
    facts = inspected(run)
    assert facts["status"] == "finished"
    assert sum(s["chunks_done"] for s in facts["stages"]) >= len(before)


@pytest.mark.filterwarnings("ignore")
def test_workers_share_a_run_and_may_die(
    tmp_path: Path, long_run: tuple[Path, bucketflow.Marginals, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected, memory = long_run
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    with local_client(2) as client:
        kill_one, killed = killing_one(client, 1 / 3)
        options: dict[str, Any] = {"evidence": {"x0": 1}, "joint": ("x3", "x40"), "memory": memory, "fit": "spill"}
        found = bucketflow.marginals(
            bucketflow.load(path), workdir=tmp_path / "run", client=client, progress=kill_one, **options
        )
    assert killed
    assert stages(found) > 1
    same(found, expected)
