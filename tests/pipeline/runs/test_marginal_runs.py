"""Marginals in run directories: slices are done once, whatever happens, and only the same run takes one up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.cluster.connect import local_client
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.runs import slices as marginal_slices
from bucketflow.storage import chunks, ledger
from bucketflow.storage.faults import DiskFullError
from bucketflow.storage.run_folder import stored_plan, write_json
from tests.killing import killing_one, stopped
from tests.models import grid


def same(found: bucketflow.Marginals, expected: bucketflow.Marginals, rel: float = 1e-12) -> None:
    """Check that two answers are equal within rounding."""
    assert found.status == expected.status
    assert set(found) == set(expected)
    assert (found.log10_evidence is None) == (expected.log10_evidence is None)
    if expected.log10_evidence is not None:
        assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=rel, abs=1e-14)
    assert found.value == expected.value
    for name, table in expected.items():
        assert found[name] == pytest.approx(table, rel=rel, abs=1e-15)
    for names, table in expected.joint.items():
        assert found.joint[names] == pytest.approx(table, rel=rel, abs=1e-15)


def sliced(model: bucketflow.Model, **options: Any) -> int:
    """A budget that takes several slices."""
    plan = bucketflow.marginals(model, **options).plan
    assert plan is not None
    return plan.peak_bytes * 2 // 3


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slice is a task of its own."""
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("kind", ["markov", "steep", "cost", "max"])
def test_a_finished_run_is_only_read(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(6, 6, 3, "steep" if kind == "max" else kind)
    asked: dict[str, Any] = {"max_marginals": kind in ("cost", "max"), "joint": ("x0", "x35"), "evidence": {"x7": 1}}
    whole = bucketflow.marginals(model, **asked)
    options = {**asked, "fit": "slice", "memory": sliced(model, **asked), "workdir": tmp_path / "run"}
    first = bucketflow.marginals(model, **options)
    assert first.plan is not None
    assert first.plan.slices > 1
    same(first, whole)
    monkeypatch.setattr(marginal_slices, "run_group", lambda *_: pytest.fail("a slice was swept again"))
    again = bucketflow.marginals(model, **options)
    assert all(np.array_equal(again[name], first[name]) for name in model.names)
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored["marginals"]["x0"] == json.loads(first.to_json())["marginals"]["x0"]


def test_one_piece_and_nothing_at_all(tmp_path: Path) -> None:
    model = grid(3, 3, 2, "markov")
    for evidence in ({}, {"x4": 0}, dict.fromkeys(model.names, 0)):
        run = tmp_path / str(len(evidence))
        expected = bucketflow.marginals(model, evidence=evidence)
        for _ in range(2):
            same(bucketflow.marginals(model, evidence=evidence, workdir=run), expected)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("how", ["missing", "flipped", "short"])
def test_damaged_slices_are_swept_again(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(6, 6, 3, "markov")
    options: dict[str, Any] = {"fit": "slice", "memory": sliced(model), "workdir": tmp_path / "run"}
    first = bucketflow.marginals(model, **options)
    path = sorted((tmp_path / "run" / "tables" / "slices").glob("c.*"))[1]
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data) if how == "flipped" else bytes(data[:-8]))
    swept: list[int] = []
    original = marginal_slices.run_group
    monkeypatch.setattr(marginal_slices, "run_group", lambda *a: (swept.append(a[1]), original(*a))[1])
    same(bucketflow.marginals(model, **options), first, rel=0.0)
    assert swept == [1]


@pytest.mark.usefixtures("small_groups")
def test_another_question_is_refused(tmp_path: Path) -> None:
    model = grid(5, 5, 3, "markov")
    options: dict[str, Any] = {"fit": "slice", "memory": sliced(model), "workdir": tmp_path / "run"}
    bucketflow.marginals(model, evidence={"x0": [1, 2, 3]}, **options)
    changed: list[tuple[bucketflow.Model, dict[str, Any], str]] = [
        (grid(5, 5, 3, "markov", seed=1), {"evidence": {"x0": [1, 2, 3]}}, "model"),
        (model, {"evidence": {"x0": [1, 2, 4]}}, "likelihoods"),
        (model, {"evidence": {"x0": [1, 2, 3], "x1": 0}}, "evidence"),
        (model, {"evidence": {"x0": [1, 2, 3]}, "variables": ["x1"]}, "variables"),
        (model, {"evidence": {"x0": [1, 2, 3]}, "joint": ("x1", "x2")}, "joints"),
        (model, {"evidence": {"x0": [1, 2, 3]}, "max_marginals": True}, "query"),
    ]
    for other, asked, what in changed:
        with pytest.raises(bucketflow.IncompatibleRunError, match=f"its {what} is"):
            bucketflow.marginals(other, **asked, **options)
    with pytest.raises(bucketflow.IncompatibleRunError, match="its query is"):
        bucketflow.solve(model, "partition", workdir=tmp_path / "run")
    stored = stored_plan(tmp_path / "run")
    stored["plan"]["structure"] = "that of other tables"
    write_json(tmp_path / "run" / "plan.json", stored)
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(bucketflow.IncompatibleRunError, match="builds different tables for the stored plan"):
        bucketflow.marginals(model, evidence={"x0": [1, 2, 3]}, **options)


def test_the_plan_is_that_of_the_first_run(tmp_path: Path) -> None:
    model = grid(6, 6, 3, "markov")
    first = bucketflow.marginals(model, fit="slice", memory=sliced(model), workdir=tmp_path / "run")
    again = bucketflow.marginals(model, memory="1GB", tree="bucket", workdir=tmp_path / "run")
    assert first.plan is not None
    assert again.plan is not None
    assert (again.plan.sliced, again.plan.tree) == (first.plan.sliced, first.plan.tree)


@pytest.mark.usefixtures("small_groups")
def test_a_full_disk_stops_resumably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(6, 6, 3, "markov")
    options: dict[str, Any] = {"fit": "slice", "memory": sliced(model), "workdir": tmp_path / "run"}
    original = chunks.write_chunk

    def full(folder: Path, spec: Any, chunk: tuple[int, ...], values: Any) -> Any:
        if chunk[0] == 2:
            raise DiskFullError("no space left")
        return original(folder, spec, chunk, values)

    monkeypatch.setattr(chunks, "write_chunk", full)
    with pytest.raises(bucketflow.StoppedError, match="resume"):
        bucketflow.marginals(model, **options)
    monkeypatch.undo()
    assert len(ledger.load(tmp_path / "run" / "tables")) == 2
    same(bucketflow.marginals(model, **options), bucketflow.marginals(model))


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bucketflow.Marginals, int]:
    """A model file whose slices are enough to be interrupted, its answer, and a budget."""
    path = tmp_path_factory.mktemp("models") / "grid.uai"
    bucketflow.save(grid(7, 7, 4, "markov"), path)
    whole = bucketflow.marginals(bucketflow.load(path), evidence={"x0": 1}, joint=("x3", "x40"))
    assert whole.plan is not None
    return path, whole, whole.plan.peak_bytes // 8


def command(*args: object) -> list[str]:
    """A command line that prints JSON."""
    return [sys.executable, "-m", "bucketflow", *map(str, args), "--json"]


def inspected(run: Path) -> Any:
    """What the command line says of a run directory."""
    done = CliRunner().invoke(main, ["inspect", str(run), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def resumed(run: Path, expected: bucketflow.Marginals) -> dict[str, Any]:
    """Resume a run by the command, and return its answer, which has the expected posteriors."""
    done = subprocess.run(command("resume", run), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["log10_evidence"] == pytest.approx(expected.log10_evidence, rel=1e-12)
    for name, table in expected.items():
        assert found["marginals"][name] == pytest.approx(table.tolist(), rel=1e-12)
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_resume_after_a_signal(
    tmp_path: Path, long_run: tuple[Path, bucketflow.Marginals, int], how: signal.Signals
) -> None:
    path, expected, memory = long_run
    run = tmp_path / "run"
    asked = ("marginals", path, "--evidence", "x0=1", "--joint", "x3,x40", "--memory", f"{memory}B", "--fit", "slice")
    small_groups = "from bucketflow.pipeline.answering import placement; placement.TASK_SECONDS = 0.0"
    ended = stopped(3, how, *asked, "--workdir", run, setup=small_groups)
    assert ended.returncode == (4 if how == signal.SIGINT else -signal.SIGKILL), ended.stderr
    before = ledger.load(run / "tables")
    stamps = {key: (run / "tables" / "slices" / f"c.{key[1][0]}.0").stat().st_mtime_ns for key in before}
    unfinished = inspected(run)
    assert unfinished["status"] == "unfinished"
    assert 3 <= unfinished["stages"][0]["chunks_done"] < unfinished["stages"][0]["boxes"]
    found = resumed(run, expected)
    assert found["joint"][0]["table"] == pytest.approx(expected.joint["x3", "x40"], rel=1e-12)
    assert all(
        (run / "tables" / "slices" / f"c.{key[1][0]}.0").stat().st_mtime_ns == stamp for key, stamp in stamps.items()
    )
    facts = inspected(run)
    assert facts["status"] == "finished"
    assert facts["answer"]["log10_evidence"] == found["log10_evidence"]


@pytest.mark.filterwarnings("ignore")
def test_workers_share_the_slices_and_may_die(
    tmp_path: Path, long_run: tuple[Path, bucketflow.Marginals, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected, memory = long_run
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    with local_client(2) as client:
        kill_one, killed = killing_one(client, 1 / 4)
        options: dict[str, Any] = {"evidence": {"x0": 1}, "joint": ("x3", "x40"), "memory": memory, "fit": "slice"}
        found = bucketflow.marginals(
            bucketflow.load(path), workdir=tmp_path / "run", client=client, progress=kill_one, **options
        )
    assert killed
    same(found, expected)
