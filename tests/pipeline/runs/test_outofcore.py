"""Spilled runs: same answers, bounded memory, and nothing finished is lost to any fault."""

from __future__ import annotations

import gc
import json
import random
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np
import pytest

import bucketflow
from bucketflow.cluster import pool
from bucketflow.cluster.connect import local_client
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.machine import rates, resources
from bucketflow.pipeline.runs import dense_boxes
from bucketflow.storage import ledger
from bucketflow.tasks.boxes import box
from bucketflow.tasks.boxes.codecs import PlainCodec
from bucketflow.tasks.steps.semiring import MIN_PLUS
from tests.killing import killing_one, stopped
from tests.memory import traced_boxes
from tests.models import grid
from tests.opening import opened
from tests.pipeline.budget.test_budget import SLACK_BYTES, measured_peak
from tests.pipeline.runs.test_marginal_runs import inspected
from tests.policies import InForce

MARGIN = 1 << 20


def budget(model: bucketflow.Model, query: str, share: int) -> int:
    """A part of what the plan needs in memory, plus the fixed margin of a spilled plan."""
    plan = bucketflow.plan(model, query)
    assert plan is not None
    return plan.peak_bytes // share + MARGIN


@pytest.mark.parametrize("tree", ["refined", "bucket"])
@pytest.mark.parametrize(
    ("query", "kind"),
    [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov"), ("partition", "steep"), ("count", "forbids")],
)
def test_spilling_gives_the_same_answer(query: str, kind: str, tree: str) -> None:
    model = grid(6, 6, 4, kind)
    free = bucketflow.solve(model, query, tree=tree)
    for share in (2, 6):
        spilled = bucketflow.solve(model, query, tree=tree, fit="spill", memory=budget(model, query, share))
        assert spilled.plan is not None
        assert spilled.plan.spill is not None
        assert (spilled.status, spilled.value) == (free.status, free.value)
        assert (spilled.log10 is None) == (free.log10 is None)
        if free.log10 is not None:
            assert spilled.log10 == pytest.approx(free.log10, rel=1e-12)


SHARES: dict[str, Any] = {"margin_bytes": 1 << 8, "chunk_bytes": (1 << 10, 1 << 12), "stored_runs": ()}


def shared_axes(result: bucketflow.Result) -> int:
    """How many variables make shares of tables on the way up."""
    assert result.plan is not None
    assert result.plan.spill is not None
    return sum(len(table.shared) for table in result.plan.spill.tables.values())


@pytest.mark.parametrize(
    ("query", "kind", "shape", "tree", "part"),
    [
        ("optimum", "cost", (4, 4, 4), "bucket", 12),
        ("partition", "markov", (5, 5, 2), "refined", 9),
        ("partition", "steep", (5, 5, 2), "refined", 16),
        ("count", "forbids", (5, 5, 2), "refined", 16),
    ],
)
def test_boxes_that_no_cut_of_their_outputs_makes_fit_write_shares(
    query: str, kind: str, shape: tuple[int, int, int], tree: str, part: int, in_force: InForce, tmp_path: Path
) -> None:
    in_force(BudgetPolicy, **SHARES)
    model = grid(*shape, kind)
    free = bucketflow.solve(model, query, tree=tree)
    assert free.plan is not None
    memory = model.nbytes + free.plan.peak_bytes // part + SHARES["margin_bytes"]
    options: dict[str, Any] = {"tree": tree, "fit": "spill", "memory": memory, "workdir": tmp_path / "run"}
    found = bucketflow.solve(model, query, **options)
    assert shared_axes(found) > 0
    assert found.plan is not None
    assert found.plan.peak_bytes <= memory
    assert (found.status, found.value) == (free.status, free.value)
    if free.log10 is not None:
        assert found.log10 == pytest.approx(free.log10, rel=1e-12)


def test_lost_shares_are_computed_again_before_decoding(tmp_path: Path, in_force: InForce) -> None:
    in_force(BudgetPolicy, **SHARES)
    model = grid(4, 4, 4)
    plan = bucketflow.plan(model, tree="bucket")
    assert plan is not None
    memory = model.nbytes + plan.peak_bytes // 12 + SHARES["margin_bytes"]
    options: dict[str, Any] = {"tree": "bucket", "fit": "spill", "memory": memory, "workdir": tmp_path / "run"}
    first = bucketflow.solve(model, **options)
    assert shared_axes(first) > 0
    files = sorted((tmp_path / "run" / "tables").glob("msg_*/c.*"))
    for path in files[::3]:
        path.unlink()
    again = bucketflow.solve(model, **options)
    assert (again.value, again.assignment) == (first.value, first.assignment)
    assert sorted((tmp_path / "run" / "tables").glob("msg_*/c.*")) == files


def test_a_share_is_gone_before_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    shares, alive = list[ref[Any]](), list[int]()

    def read(_: Any, spec: Any, receipts: Any, at: Mapping[int, int], there: bool) -> Any:
        alive.append(sum(share() is not None for share in shares))
        found = np.full(3, 9 - at[0])
        shares.append(ref(found))
        return found

    monkeypatch.setattr(box, "read_chunks", read)
    told: Any = SimpleNamespace(
        shared={7: (0,)},
        inputs={7: SimpleNamespace(name="msg")},
        program=SimpleNamespace(dims=(4,)),
        codec=PlainCodec(MIN_PLUS),
    )
    assert box.read_part(told, 7, {"msg": []}, {}, there=False).tolist() == [6, 6, 6]
    assert alive == [0, 1, 1, 1]


def test_spilled_peak_is_within_the_budget() -> None:
    model = grid(10, 10, 4, "markov")
    limit = budget(model, "partition", 2)
    small = grid(6, 6, 4, "markov")
    bucketflow.solve(small, "partition", fit="spill", memory=budget(small, "partition", 2))  # imports
    peak, result = measured_peak(model, "partition", fit="spill", memory=limit)
    assert result.plan is not None
    assert result.plan.spill is not None
    assert result.plan.peak_bytes <= limit
    assert peak + model.nbytes <= result.plan.peak_bytes + SLACK_BYTES


def memory_of_tasks(monkeypatch: pytest.MonkeyPatch, planned: Callable[[int], int]) -> list[float]:
    """Run boxes one by one from now on; collect what each needs, traced, as a part of what its stage may need."""
    ratios: list[float] = []

    def one_by_one(_: SerialPool, nodes: Any) -> Any:
        before = tracemalloc.get_traced_memory()[0]
        ready = pool.ReadyTasks(nodes)
        gc.collect()
        gc.freeze()  # what is there already makes a collection slow
        try:
            while (key := ready.pop()) is not None:
                call = nodes[key].call(key)
                gc.collect()
                tracemalloc.reset_peak()
                outcome = pool.in_a_row(*call)
                ratios.append((tracemalloc.get_traced_memory()[1] - before) / planned(key[0]))
                yield key, outcome
                ready.finish(key)
        finally:
            gc.unfreeze()
            gc.collect()
            gc.freeze()  # what was there before the tests

    monkeypatch.setattr(SerialPool, "run_graph", one_by_one)
    return ratios


@pytest.mark.usefixtures("compiled_at_once")
@pytest.mark.parametrize(
    ("query", "kind", "runs"),
    [
        ("optimum", "cost", ()),
        ("optimum", "cost", BudgetPolicy.stored_runs),
        ("optimum", "markov", BudgetPolicy.stored_runs),
        ("partition", "markov", BudgetPolicy.stored_runs),
    ],
)
def test_every_task_is_within_its_plan(
    query: str, kind: str, runs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """Each box by itself needs at most what the plan says: the largest ratio of both is at most one.

    With two threads on every machine: what Python keeps of a thread, some 5 kB, is no part of a plan.
    """
    in_force(BudgetPolicy, stored_runs=runs)
    model = grid(10, 10, 4, kind)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    options: dict[str, Any] = {"tree": "bucket", "fit": "spill", "memory": budget(model, query, 3)}
    plan = bucketflow.plan(model, query, **options)
    assert plan is not None
    assert plan.spill is not None
    stages = plan.spill.stages
    ratios = memory_of_tasks(monkeypatch, lambda index: stages[index].peak_bytes)
    bucketflow.solve(model, query, **options)
    again = traced_boxes(lambda: bucketflow.solve(model, query, **options), ratios)
    assert again.plan is not None
    assert again.plan.spill.stages == stages
    assert len(stages) > 2 or runs
    assert len(ratios) == plan.spill.tasks
    assert 0.3 < max(ratios) <= 1


def test_tables_are_deleted_when_nothing_needs_them(tmp_path: Path) -> None:
    model = grid(7, 7, 4, "markov")
    run = tmp_path / "run"
    bucketflow.solve(model, "partition", fit="spill", memory=budget(model, "partition", 4), workdir=run)
    assert not list((run / "tables").glob("msg_*"))


def test_disk_budget_is_refused_with_both_numbers() -> None:
    model = grid(7, 7, 4, "markov")
    with pytest.raises(bucketflow.BudgetError, match=r"need .* of disk, allowed 10 kB"):
        bucketflow.solve(model, "partition", fit="spill", memory=budget(model, "partition", 4), disk=10_000)


def test_tables_on_disk_are_planned_within_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "free_bytes", lambda _: 10_000)
    model = grid(7, 7, 4, "markov")
    memory = budget(model, "partition", 4)
    with pytest.raises(bucketflow.BudgetError, match=r"need .* of disk, allowed 10 kB"):
        bucketflow.plan(model, "partition", fit="spill", memory=memory)
    spilled = bucketflow.plan(model, "partition", fit="spill", memory=memory, disk="1GB")
    assert spilled is not None
    assert spilled.way == "disk"


def test_refuse_names_the_other_ways() -> None:
    model = grid(8, 8, 4)
    with pytest.raises(bucketflow.BudgetError, match="--fit slice"):
        bucketflow.solve(model, fit="refuse", memory=100_000)


def receipts_by_mtime(run: Path) -> set[Any]:
    return set(ledger.load(run / "tables"))


def damaged(run: Path, how: str) -> int:
    """Damage three chunks of a finished sweep; return how many."""
    files = sorted((run / "tables").glob("msg_*/c.*"))
    chosen = random.Random(5).sample(files, min(3, len(files)))
    for path in chosen:
        data = bytearray(path.read_bytes())
        if how == "missing":
            path.unlink()
        elif how == "flipped":
            data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))
        else:
            path.write_bytes(bytes(data[: len(data) // 2]))
    return len(chosen)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that has to be waited for, which makes compression pay."""
    monkeypatch.setattr("bucketflow.pipeline.runs.dense_boxes.default_memory_bytes", lambda: 0)
    monkeypatch.setattr("bucketflow.pipeline.answering.prepared.measured_disk_rate", lambda _: 1e6)


def compressed_tables(run: Path) -> list[str]:
    """Names of the tables that are stored as Blosc frames."""
    return [p.parent.name for p in run.glob("tables/msg_*/zarr.json") if "blosc" in p.read_text()]


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov")])
def test_compressed_tables_give_the_same_answer(tmp_path: Path, query: str, kind: str) -> None:
    model = grid(7, 7, 4, kind)
    free = bucketflow.solve(model, query)
    run = tmp_path / "run"
    options: dict[str, Any] = {"tree": "bucket", "fit": "spill", "memory": budget(model, query, 4)}
    spilled = bucketflow.solve(model, query, **options, workdir=run)
    assert (spilled.value, spilled.assignment is None) == (free.value, free.assignment is None)
    assert spilled.log10 == (free.log10 and pytest.approx(free.log10, rel=1e-12))
    if kind == "cost":
        stored = compressed_tables(run)
        assert stored
        sizes = [r.nbytes for r in ledger.load(run / "tables").values() if r.table in stored]
        files = [p.stat().st_size for name in stored for p in (run / "tables" / name).glob("c.*")]
        assert sorted(sizes) == sorted(files)


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize("how", ["missing", "flipped", "short"])
def test_lost_compressed_chunks_are_computed_again(tmp_path: Path, how: str) -> None:
    model = grid(7, 7, 4)
    run = tmp_path / "run"
    options: dict[str, Any] = {"tree": "bucket", "fit": "spill", "memory": budget(model, "optimum", 4), "workdir": run}
    first = bucketflow.solve(model, **options)
    stored = compressed_tables(run)
    assert damaged(run, how)
    for path in (run / "ledger" / "tables").glob("*.jsonl"):
        lines = [line for line in path.read_text().splitlines() if json.loads(line)["table"] != "result"]
        path.write_text("".join(line + "\n" for line in lines))
    again = bucketflow.solve(model, **options)
    assert (again.value, again.assignment) == (first.value, first.assignment)
    assert compressed_tables(run) == stored


@pytest.mark.parametrize("how", ["missing", "flipped", "short"])
def test_lost_chunks_are_computed_again(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(7, 7, 4)
    run = tmp_path / "run"
    options: dict[str, Any] = {"fit": "spill", "memory": budget(model, "optimum", 3), "workdir": run}
    first = bucketflow.solve(model, **options)
    stamps = {p: p.stat().st_mtime_ns for p in (run / "tables").glob("msg_*/c.*")}
    count = damaged(run, how)
    for path in (run / "ledger" / "tables").glob("*.jsonl"):
        lines = [line for line in path.read_text().splitlines() if json.loads(line)["table"] != "result"]
        path.write_text("".join(line + "\n" for line in lines))
    done: list[Any] = []
    from bucketflow.pipeline.runs import dense_boxes as outofcore

    original = outofcore.run_box

    def noted(*args: Any) -> Any:
        done.append((args[0].outputs and next(iter(args[0].outputs)), args[1]))
        return (yield from original(*args))

    monkeypatch.setattr(outofcore, "run_box", noted)
    again = bucketflow.solve(model, **options)
    assert (again.value, again.assignment) == (first.value, first.assignment)
    assert 1 <= len({box for box in done if box[0]}) <= count
    assert sum(p.stat().st_mtime_ns != at for p, at in stamps.items()) == count


def test_damage_after_the_sweep_is_repaired_before_decoding(tmp_path: Path) -> None:
    model = grid(7, 7, 4)
    options: dict[str, Any] = {"fit": "spill", "memory": budget(model, "optimum", 3), "workdir": tmp_path / "run"}
    first = bucketflow.solve(model, **options)
    files = sorted((tmp_path / "run" / "tables").glob("msg_*/c.*"))
    for path in files[1:]:
        path.write_bytes(bytes(b ^ 0x15 for b in path.read_bytes()))
    stamp = files[0].stat().st_mtime_ns
    again = bucketflow.solve(model, **options)
    assert (again.value, again.assignment) == (first.value, first.assignment)
    assert files[0].stat().st_mtime_ns == stamp


@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("partition", "markov")])
def test_repeated_boxes_leave_no_further_receipts(
    tmp_path: Path, query: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster repeats a task whose worker dies between the receipt and the result."""
    model, original = grid(7, 7, 4, kind), dense_boxes.run_box

    def repeated(*args: Any) -> Any:
        first = yield from original(*args)
        again = yield from original(*args)
        assert first == again
        return again

    monkeypatch.setattr(dense_boxes, "run_box", repeated)
    options: dict[str, Any] = {"fit": "spill", "memory": budget(model, query, 3), "workdir": tmp_path / "run"}
    assert bucketflow.solve(model, query, **options).plan is not None
    written = ledger.history(tmp_path / "run" / "tables")
    assert len(written) == len({receipt.key for _, receipt in written}) > 10


@pytest.mark.parametrize("resumed", [False, True])
def test_what_steps_took_is_in_the_ledger_alone(tmp_path: Path, resumed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept for every box, it would take more than all else that is known of them."""
    kept: list[dense_boxes.BoxRun[Any]] = []
    original = dense_boxes.BoxRun.complete

    def complete(one: dense_boxes.BoxRun[Any]) -> None:
        original(one)
        kept.append(one)

    monkeypatch.setattr(dense_boxes.BoxRun, "complete", complete)
    model = grid(7, 7, 4)
    options: dict[str, Any] = {"fit": "spill", "memory": budget(model, "optimum", 3), "workdir": tmp_path / "run"}
    bucketflow.solve(model, **options)
    if resumed:
        (tmp_path / "run" / "result.json").unlink()
        kept.clear()
        bucketflow.solve(model, **options)
    assert len(kept[0].receipts) > 10
    assert not any(receipt.steps for receipt in kept[0].receipts.values())
    assert any(receipt.steps for receipt in ledger.load(tmp_path / "run" / "tables").values())


def test_a_disk_that_cannot_be_measured_has_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert rates.measured_disk_rate(None) > 0


def test_another_run_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = grid(6, 6, 4)
    options: dict[str, Any] = {"fit": "spill", "memory": budget(model, "optimum", 2), "workdir": run}
    bucketflow.solve(model, **options)
    with pytest.raises(bucketflow.IncompatibleRunError, match="model"):
        bucketflow.solve(grid(6, 6, 4, seed=1), **options)
    with pytest.raises(bucketflow.IncompatibleRunError, match="query"):
        bucketflow.solve(model, "count", **options)
    with pytest.raises(bucketflow.IncompatibleRunError, match="evidence"):
        bucketflow.solve(model, evidence={"x0": 1}, **options)
    with pytest.raises(bucketflow.IncompatibleRunError, match="cannot be used"):
        bucketflow.solve(model, workdir="/proc/nowhere")


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bucketflow.Result, int]:
    """A model file whose spilled run has enough boxes to be interrupted, and its answer."""
    model = grid(8, 8, 4)
    path = tmp_path_factory.mktemp("models") / "grid.wcsp"
    bucketflow.save(model, path)
    return path, bucketflow.solve(model, tree="bucket"), budget(model, "optimum", 4)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_resume_after_a_signal(tmp_path: Path, wide_model: tuple[Path, Any, int], how: signal.Signals) -> None:
    path, expected, memory = wide_model
    run = tmp_path / "run"
    asked = ("solve", path, "--tree", "bucket", "--json", "--fit", "spill", "--memory", f"{memory}B", "--workdir", run)
    ended = stopped(4, how, *asked)
    assert ended.returncode == (4 if how == signal.SIGINT else -how), ended.stderr
    assert ("resume" in ended.stderr) == (how == signal.SIGINT)
    before = ledger.load(run / "tables")
    assert len(before) >= 4
    _, arrays = opened(run / "tables")  # while half of it is missing
    assert {name for name, _ in before} - {"result"} <= arrays.keys()
    stamps = {p: p.stat().st_mtime_ns for p in (run / "tables").glob("msg_*/c.*") if "partial" not in p.name}
    done = subprocess.run(
        [sys.executable, "-m", "bucketflow", "resume", str(run), "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == expected.value
    finished = {(run / "tables" / k[0] / ".".join(["c", *map(str, k[1])])) for k in before if k[0] != "result"}
    assert all(p.stat().st_mtime_ns == stamps[p] for p in finished)
    facts = inspected(run)
    assert facts["status"] == "finished"
    assert facts["answer"]["value"] == expected.value


@pytest.mark.filterwarnings("ignore")
def test_workers_share_a_run_and_may_die(
    tmp_path: Path, wide_model: tuple[Path, Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected, memory = wide_model
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    with local_client(2) as client:
        kill_one, killed = killing_one(client, 1 / 4)
        result = bucketflow.solve(
            bucketflow.load(path),
            tree="bucket",
            fit="spill",
            memory=memory,
            workdir=tmp_path / "run",
            client=client,
            progress=kill_one,
        )
    assert killed
    assert (result.value, result.assignment) == (expected.value, expected.assignment)
