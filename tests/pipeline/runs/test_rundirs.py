"""Run directories of plans in memory: a finished run answers at once, others go on after their last slice."""

from __future__ import annotations

import errno
import json
import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.answering import answers as answer
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cli.show_run import _blocks, run_facts
from bucketflow.pipeline.report.runs import TaskHistory
from bucketflow.pipeline.runs import slices as execute
from bucketflow.storage import ledger, run_folder
from bucketflow.storage.run_folder import stored_plan
from bucketflow.storage.spec import Receipt
from tests.models import grid

CASES = [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov"), ("count", "forbids")]


def same(one: bucketflow.Result, other: bucketflow.Result) -> bool:
    """Whether two results are the same answer."""
    return (one.status, one.value, one.log10, one.assignment) == (
        other.status,
        other.value,
        other.log10,
        other.assignment,
    )


@pytest.mark.parametrize(("query", "kind"), CASES)
def test_a_finished_run_in_memory_is_not_run_again(
    tmp_path: Path, query: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = grid(6, 6, 3, kind)
    bucketflow.save(model, tmp_path / ("grid.wcsp" if kind in ("cost", "forbids") else "grid.uai"))
    path = next(tmp_path.glob("grid.*"))
    first = bucketflow.solve(bucketflow.load(path), query, workdir=tmp_path / "run")

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it ran again")

    monkeypatch.setattr(answer, "sweep_parts", never)
    monkeypatch.setattr(answer, "sweep_groups", never)
    again = bucketflow.solve(bucketflow.load(path), query, workdir=tmp_path / "run")
    assert same(again, first)
    assert same(bucketflow.resume(tmp_path / "run"), first)
    assert run_facts(tmp_path / "run")["status"] == "finished"


def test_decimals_and_labels_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "small.cfn"
    path.write_text(
        '{"problem": {"name": "p", "mustbe": "<10.00"}, "variables": {"a": ["x", "y"], "b": ["x", "y"]},'
        ' "functions": {"f": {"scope": ["a", "b"], "costs": [1.25, 2.5, 0.75, 3.1]}}}'
    )
    first = bucketflow.solve(bucketflow.load(path), workdir=tmp_path / "run")
    again = bucketflow.solve(bucketflow.load(path), workdir=tmp_path / "run")
    assert same(again, first)
    assert again.value == Decimal("0.75")
    assert again.assignment == {"a": "y", "b": "x"}


@pytest.mark.parametrize(("query", "kind"), CASES)
def test_slices_that_are_done_are_not_done_again(
    tmp_path: Path, query: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = grid(6, 6, 4, kind)
    whole = bucketflow.plan(model, query)
    assert whole is not None
    options: dict[str, Any] = {"fit": "slice", "memory": whole.peak_bytes // 3}
    free = bucketflow.solve(model, query, **options)
    assert free.plan is not None
    assert free.plan.slices > 3
    swept: list[list[int]] = []
    original, original_groups = execute.run_group, answer.sweep_groups

    def groups(*args: Any) -> Any:
        swept.append([])
        return original_groups(*args)

    def interrupted(slices: Any, number: int, *args: Any) -> Any:
        if len(swept) == 1 and len(swept[0]) == 2:
            raise KeyboardInterrupt
        swept[-1].append(number)
        return original(slices, number, *args)

    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    monkeypatch.setattr(answer, "sweep_groups", groups)
    monkeypatch.setattr(execute, "run_group", interrupted)
    with pytest.raises(bucketflow.StoppedError, match="resume"):
        bucketflow.solve(model, query, **options, workdir=tmp_path / "run")
    again = bucketflow.solve(model, query, workdir=tmp_path / "run")
    assert same(again, free)
    assert again.plan is not None
    assert again.plan.slices == free.plan.slices
    assert swept[0] == [0, 1]
    assert swept[1] == list(range(2, free.plan.slices))
    if query != "count":
        stage = run_facts(tmp_path / "run")["stages"][0]
        assert (stage["chunks_done"], stage["boxes"]) == (free.plan.slices, free.plan.slices)
        assert len(ledger.load(tmp_path / "run" / "tables")) == free.plan.slices


@pytest.mark.parametrize(("query", "kind"), CASES)
def test_a_group_that_left_its_receipt_is_not_swept_again(
    tmp_path: Path, query: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster repeats a task whose worker dies between the receipt and the result."""
    model = grid(6, 6, 4, kind)
    whole = bucketflow.plan(model, query)
    assert whole is not None
    swept: list[Any] = []
    store, sweep = execute.store_group, execute.run_group

    def swept_once(slices: Any, number: int, *args: Any) -> Any:
        swept.append((slices.folder, number))
        return sweep(slices, number, *args)

    def repeated(*args: Any) -> Any:
        first, again = store(*args), store(*args)
        assert first == again
        return again

    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    monkeypatch.setattr(execute, "run_group", swept_once)
    monkeypatch.setattr(execute, "store_group", repeated)
    options: dict[str, Any] = {"fit": "slice", "memory": whole.peak_bytes // 3, "workdir": tmp_path / "run"}
    assert bucketflow.solve(model, query, **options).log10 == bucketflow.solve(model, query).log10
    assert len(swept) > 3
    assert swept == list(dict.fromkeys(swept))


def test_a_repeated_group_whose_beliefs_were_damaged_is_swept_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = grid(6, 6, 3, "markov")
    whole = bucketflow.plan(model, "marginals")
    assert whole is not None
    store = execute.store_group

    def repeated(slices: Any, *args: Any) -> Any:
        receipt = store(slices, *args)
        chunk = slices.folder / slices.table.name / slices.table.file_name(receipt.chunk)
        chunk.write_bytes(bytes(receipt.nbytes))
        return store(slices, *args)

    monkeypatch.setattr(execute, "store_group", repeated)
    options: dict[str, Any] = {"fit": "slice", "memory": whole.peak_bytes // 3, "workdir": tmp_path / "run"}
    found, expected = bucketflow.marginals(model, **options), bucketflow.marginals(model)
    assert all(np.allclose(found[name], table) for name, table in expected.items())


@pytest.mark.parametrize(
    ("name", "advice", "kept"),
    [("result.json", "and resume .*run", ["lock", "plan.json"]), ("plan.json", "and repeat the query", ["lock"])],
)
def test_a_disk_that_is_full_when_something_is_written(
    name: str, advice: str, kept: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be resumed is said to be; nothing can before there is a plan."""
    model = grid(5, 5, 3)
    original = run_folder.os.replace

    def full(source: Any, target: Path) -> None:
        if target.name == name:
            raise OSError(errno.ENOSPC, "no space")
        original(source, target)

    monkeypatch.setattr(run_folder.os, "replace", full)
    with pytest.raises(bucketflow.StoppedError, match=f"no space left for .*free some space {advice}$"):
        bucketflow.solve(model, workdir=tmp_path / "run")
    monkeypatch.undo()
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == kept
    assert bucketflow.solve(model, workdir=tmp_path / "run").value == bucketflow.solve(model).value


def test_slices_stay_in_the_groups_that_have_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(7, 7, 4)
    whole = bucketflow.plan(model)
    assert whole is not None
    options: dict[str, Any] = {"fit": "slice", "memory": whole.peak_bytes // 3, "workdir": tmp_path / "run"}
    first = bucketflow.solve(model, **options).plan
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    (tmp_path / "run" / "result.json").unlink()
    again = bucketflow.solve(model, **options).plan
    assert first is not None
    assert again is not None
    assert again.group == first.group > 1
    assert len(ledger.load(tmp_path / "run" / "tables")) == first.groups < first.slices


class _StopError(Exception):
    """Ends a run that made a first step."""


def _stopped(*_: Any) -> None:
    raise _StopError


@pytest.mark.parametrize("asked", [{"fit": "slice"}, {"fit": "spill"}, {"representation": "rows"}])
def test_a_run_is_planned_again_for_less_memory(tmp_path: Path, asked: dict[str, Any]) -> None:
    model, folder = grid(8, 8, 3, "cost"), tmp_path / "run"
    whole = bucketflow.plan(model)
    assert whole is not None
    enough = model.nbytes + whole.peak_bytes // 2 if asked == {"fit": "slice"} else 3_000_000
    with pytest.raises(_StopError):
        bucketflow.solve(model, **asked, memory=enough, method="dense", progress=_stopped, workdir=folder)
    with pytest.raises(bucketflow.BudgetError):  # and what is finished stays
        bucketflow.solve(model, memory=10, method="dense", fit="refuse", workdir=folder)
    before = stored_plan(folder)["plan"]
    assert before["memory_bytes"] == enough
    less = (before["memory_bytes"] if "fit" not in asked else before["peak_bytes"]) * 9 // 10
    again = bucketflow.solve(model, **asked, memory=less, method="dense", workdir=folder)
    assert again.value == bucketflow.solve(model).value
    assert again.plan is not None
    assert again.plan.peak_bytes <= less
    assert any(note.startswith("planned again for ") for note in again.notes)
    assert stored_plan(folder)["plan"]["memory_bytes"] == less


def test_resume_plans_again_for_less_memory(tmp_path: Path) -> None:
    bucketflow.save(grid(8, 8, 3, "cost"), tmp_path / "grid.wcsp")
    model, folder = bucketflow.load(tmp_path / "grid.wcsp"), tmp_path / "run"
    with pytest.raises(_StopError):
        bucketflow.solve(model, fit="spill", memory="3MB", method="dense", progress=_stopped, workdir=folder)
    done = CliRunner().invoke(main, ["resume", str(folder), "--memory=1.1MB", "--json"])
    assert done.exit_code == 0, done.stderr
    assert "planned again for 1.1 MB instead of" in done.stderr
    assert json.loads(done.stdout)["value"] == bucketflow.solve(model).value


def test_resume_finds_a_model_that_has_moved(tmp_path: Path) -> None:
    before, after, other = (tmp_path / f"{name}.wcsp" for name in ("before", "after", "other"))
    bucketflow.save(grid(5, 5, 2), before)
    bucketflow.save(grid(5, 5, 2, seed=1), other)
    folder = tmp_path / "run"
    value = bucketflow.solve(before, workdir=folder).value
    before.rename(after)
    with pytest.raises(bucketflow.IncompatibleRunError, match=rf"is not there; .* resume {folder} --model PATH$"):
        bucketflow.resume(folder)
    wrong = CliRunner().invoke(main, ["resume", str(folder), "--model", str(other)])
    assert wrong.exit_code == 2
    assert wrong.stderr == f"bucketflow: {other} is not the model of the run in {folder}\n"
    done = CliRunner().invoke(main, ["resume", str(folder), "--model", str(after), "--json"])
    assert json.loads(done.stdout)["value"] == value
    assert bucketflow.resume(folder).value == value  # the new path is stored


def test_a_plan_that_was_refused_as_it_ran_names_its_directory(tmp_path: Path) -> None:
    """It is stored, and more memory does not change it."""
    model, folder = grid(8, 8, 3, "cost"), tmp_path / "run"
    asked: dict[str, Any] = {"representation": "rows", "fit": "refuse", "method": "dense", "workdir": folder}
    with pytest.raises(bucketflow.BudgetError, match=r"try --fit slice or --fit spill$"):
        bucketflow.solve(model, **asked, memory=100_000)
    with pytest.raises(bucketflow.BudgetError, match=r"run has a stored plan for 100 kB: use another --workdir$"):
        bucketflow.solve(model, **asked, memory="1GB")


def test_bounds_are_taken_up_again_by_the_command_that_is_named(tmp_path: Path) -> None:
    path, folder = tmp_path / "grid.uai", tmp_path / "run"
    bucketflow.save(grid(4, 4, 2, "markov"), path)
    bucketflow.bound(bucketflow.load(path), "partition", evidence={"x0": 1}, z=3, workdir=folder)
    named = f"bucketflow bound {path} --query partition --workdir {folder}, and the same --evidence"
    with pytest.raises(
        bucketflow.IncompatibleRunError, match=re.escape(f"holds bounds on the partition; continue with: {named}")
    ):
        bucketflow.resume(folder)


@pytest.mark.parametrize("asked", [{}, {"method": "search"}, {"method": "diagram"}])
def test_a_sum_that_was_refused_is_resumed_as_it_was_asked(tmp_path: Path, asked: dict[str, Any]) -> None:
    """In as little memory, which is refused again, and by the same method."""
    bucketflow.save(grid(7, 7, 4, "markov"), tmp_path / "a.uai")
    options: dict[str, Any] = {"workdir": tmp_path / "run", **asked}
    with pytest.raises(bucketflow.BudgetError) as refused:
        bucketflow.solve(bucketflow.load(tmp_path / "a.uai"), "partition", memory=20_000, **options)
    with pytest.raises(bucketflow.BudgetError) as again:
        bucketflow.resume(tmp_path / "run")
    assert str(again.value) == str(refused.value)


def test_a_finished_run_answers_where_it_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are read from the answer; all else is refused in a sentence."""
    folder = tmp_path / "run"
    found = bucketflow.solve("satellite", workdir=folder)
    count = bucketflow.solve("grid", "partition", workdir=tmp_path / "sum")
    bucketflow.marginals("diagnosis", workdir=tmp_path / "marginals")
    real = os.open

    def refuse(path: Any, flags: int, *more: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refuse)
    before = sorted(tmp_path.rglob("*"))
    for again in (bucketflow.solve("satellite", workdir=folder), bucketflow.resume(folder)):
        assert isinstance(again, bucketflow.Result)
        assert (again.value, again.assignment) == (found.value, found.assignment)
    for again in (bucketflow.solve("grid", "partition", workdir=tmp_path / "sum"), bucketflow.resume(tmp_path / "sum")):
        assert isinstance(again, bucketflow.Result)
        assert again.log10 == count.log10
    for ask in (lambda: bucketflow.resume(tmp_path / "marginals"), lambda: bucketflow.solve("grid", workdir=folder)):
        with pytest.raises(bucketflow.IncompatibleRunError, match=r"cannot be written|belongs to another run"):
            ask()
    with pytest.raises(bucketflow.IncompatibleRunError, match="as a run directory: read-only file system"):
        bucketflow.solve("satellite", workdir=tmp_path / "new")
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "new") == before


def test_seconds_of_a_block_are_counted_once_however_many_chunks_it_wrote() -> None:
    def receipt(table: str, chunk: int, seconds: float, ended: float) -> Receipt:
        return Receipt(table, (chunk,), 8, 0, seconds, 0, {}, ended)

    # one block of three chunks, one of two by another process at the same time, and one of another table behind it
    written = [("p", receipt("t0", k, 10 + k / 10, 110 + k / 10)) for k in range(3)]
    written += [("q", receipt("t0", 3 + k, 10 + k / 10, 110 + k / 10)) for k in range(2)]
    written += [("p", receipt("t1", 0, 5, 115.3)), ("p", receipt("t0", 5, 4.0, 120.0))]
    found = _blocks(written)
    assert sorted((r.table, r.seconds) for r in found) == [("t0", 4.0), ("t0", 10.1), ("t0", 10.2), ("t1", 5)]


def test_inspect_shows_no_more_seconds_than_the_tasks_of_a_run_took(tmp_path: Path) -> None:
    with BudgetPolicy.using(chunk_bytes=(1 << 10, 1 << 12)):
        bucketflow.marginals(grid(8, 8, 4, "markov"), fit="spill", memory="2MB", workdir=tmp_path / "run")
    stages = {stage["table"]: stage["seconds"] for stage in run_facts(tmp_path / "run")["stages"]}
    history = TaskHistory(ledger.history(tmp_path / "run" / "tables"))
    assert len(history.latest) > 2 * len(history.tasks)
    for name, seconds in stages.items():
        took = sum(task.end - task.begin for task in history.tasks if task.table == name)
        assert seconds == pytest.approx(took, abs=0.001)
