"""Run directories that were damaged, changed or made by somebody else: the same answer, or one sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.cli.show_run import run_facts
from bucketflow.pipeline.machine import rates
from bucketflow.storage import ledger, run_folder
from bucketflow.storage.run_folder import read_json, stored_plan, write_json
from tests.models import grid
from tests.pipeline.runs.test_outofcore import MARGIN

# The query, the kind of model, how it is made to fit, and a part of the memory that it would need.
RUNS = {
    "whole": ("optimum", "cost", "auto", 1),
    "slices": ("optimum", "cost", "slice", 3),
    "spilled": ("optimum", "cost", "spill", 6),
    "sums": ("partition", "markov", "slice", 3),
    "spilled sums": ("partition", "markov", "spill", 6),
    "counts": ("count", "forbids", "auto", 1),
    "marginals": ("marginals", "markov", "slice", 2),
    "spilled marginals": ("marginals", "markov", "spill", 8),
}


def budget(model: bucketflow.Model, query: str, fit: str, share: int) -> dict[str, Any]:
    """Options that make a plan fit in one way."""
    plan = bucketflow.marginals(model).plan if query == "marginals" else bucketflow.plan(model, query)
    assert plan is not None
    memory = plan.peak_bytes // share + (MARGIN if fit == "spill" else 0)
    return {"fit": fit, "memory": memory} if share > 1 else {}


def asked(path: Path, run: Path, query: str, options: dict[str, Any]) -> Any:
    """Ask in a run directory."""
    model = bucketflow.load(path)
    if query == "marginals":
        return answer(bucketflow.marginals(model, workdir=run, **options))
    return answer(bucketflow.solve(model, query, workdir=run, **options))


def answer(found: Any) -> dict[str, Any]:
    """What has to be the same however a run went."""
    if isinstance(found, bucketflow.Marginals):
        return dict(found)
    logs = {} if found.log10 is None else {"log10": found.log10}
    return {found.status: found.value or 0, **logs}


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same: exactly, or within rounding where they are not whole numbers."""
    return one == other if isinstance(other, int) else np.allclose(one, other, rtol=1e-12)


@pytest.fixture(scope="module", autouse=True)
def known_disk() -> Iterator[None]:
    """Disks are not measured: it takes longer than everything else here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "sampled_rate", lambda _: 1e9)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path, Any]]:
    """Finished runs of every kind: their models, their directories, their answers."""
    found = {}
    for name, (query, kind, fit, share) in RUNS.items():
        folder = tmp_path_factory.mktemp("finished")
        path = folder / ("grid.wcsp" if kind in ("cost", "forbids") else "grid.uai")
        bucketflow.save(grid(5, 5, 4, kind), path)
        options = budget(bucketflow.load(path), query, fit, share)
        found[name] = (path, folder / "run", asked(path, folder / "run", query, options))
        stored = stored_plan(folder / "run")["plan"]
        assert bool(stored.get("sliced")) == (fit == "slice")
        assert (stored["disk_bytes"] > 0) == (fit == "spill")
    return found


def files_of(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file() and p.name != "lock")


def damage(path: Path, how: str, place: float) -> None:
    """Change a byte of a file, or cut it."""
    data = bytearray(path.read_bytes())
    at = int(place * len(data))
    if how == "empty":
        data.clear()
    elif how == "cut":
        del data[at:]
    elif how == "gone":
        path.unlink()
        return
    elif data:
        old = data[at]
        data[at] = ord("0") + (old - ord("0") + 1) % 10 if how == "digit" and chr(old).isdigit() else old ^ 4
    path.write_bytes(bytes(data))


def tried(act: Callable[[], Any]) -> Any:
    """Return an answer, or None after one sentence; everything else is a failure."""
    try:
        return act()
    except bucketflow.BucketflowError as error:
        caught = error
    assert caught.exit_code in (2, 4), caught
    assert "\n" not in str(caught)
    return None


@settings(max_examples=40, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*RUNS]),
    file=st.floats(0, 1, exclude_max=True),
    how=st.sampled_from(["flip", "digit", "cut", "empty", "gone"]),
    place=st.floats(0, 1, exclude_max=True),
    finished=st.booleans(),
)
def test_random_damage(
    runs: dict[str, tuple[Path, Path, Any]],
    tmp_path: Path,
    name: str,
    file: float,
    how: str,
    place: float,
    finished: bool,
) -> None:
    path, made, expected = runs[name]
    run = tmp_path / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(made, run)
    if not finished:
        (run / "result.json").unlink()
    # metadata are as likely as all chunks together
    files = sorted(files_of(run), key=lambda p: p.name.startswith("c."))
    metadata = [p for p in files if not p.name.startswith("c.")]
    pool = metadata if file < 0.7 else files
    damage(pool[int(file * len(pool) / 0.7) % len(pool)], how, place)
    facts = tried(lambda: run_facts(run))
    assert facts is None or facts["status"] in ("finished", "unfinished")
    found = [tried(lambda: answer(bucketflow.resume(run))), tried(lambda: asked(path, run, RUNS[name][0], {}))]
    for one in found:
        assert one is None or one.keys() == expected.keys()
        assert one is None or all(equal(one[k], expected[k]) for k in expected)


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a stored object, with a checksum that fits."""
    stored = read_json(path)
    assert stored is not None
    change(stored)
    write_json(path, stored)


@pytest.mark.parametrize("kind", ["cost", "markov"])
def test_a_stored_answer_is_evaluated_again(tmp_path: Path, kind: str) -> None:
    """Also one whose checksum fits, whoever wrote it."""
    model = grid(4, 4, 3, kind)
    first = bucketflow.solve(model, workdir=tmp_path)
    assert first.assignment is not None
    name = "x5"
    other = {**first.assignment, name: (int(first.assignment[name]) + 1) % 3}
    changes: list[dict[str, Any]] = [
        {"value": 1, "log10": -1.0},
        {"assignment": other},
        {"assignment": {**first.assignment, name: 7}},
        {"assignment": {k: v for k, v in first.assignment.items() if k != name}},
        {"assignment": None},
    ]
    for change in changes:
        rewritten(tmp_path / "result.json", lambda stored, change=change: stored.update(change))
        again = bucketflow.solve(model, workdir=tmp_path)
        assert (again.value, again.log10, again.assignment) == (first.value, first.log10, first.assignment)
        stored = json.loads((tmp_path / "result.json").read_text())
        assert stored["assignment"] == first.assignment


def test_an_answer_of_other_evidence_is_not_shown(tmp_path: Path) -> None:
    model = grid(4, 4, 3)
    free = bucketflow.solve(model, workdir=tmp_path / "free")
    assert free.assignment is not None
    evidence = {"x5": (int(free.assignment["x5"]) + 1) % 3}
    first = bucketflow.solve(model, evidence=evidence, workdir=tmp_path / "run")
    shutil.copy(tmp_path / "free" / "result.json", tmp_path / "run" / "result.json")
    assert bucketflow.solve(model, evidence=evidence, workdir=tmp_path / "run").value == first.value


def test_a_damaged_plan_is_made_again_only_where_nothing_was_done(tmp_path: Path) -> None:
    model = grid(4, 4, 3)
    first = bucketflow.solve(model, workdir=tmp_path)
    (tmp_path / "plan.json").write_bytes(b"")
    with pytest.raises(bucketflow.IncompatibleRunError, match=r"plan\.json is damaged.*remove .* or use another"):
        bucketflow.solve(model, workdir=tmp_path)
    with pytest.raises(bucketflow.IncompatibleRunError, match=r"plan\.json is damaged"):
        bucketflow.resume(tmp_path)
    (tmp_path / "result.json").unlink()
    assert bucketflow.solve(model, workdir=tmp_path).value == first.value


def test_other_formats_are_refused_by_number(tmp_path: Path) -> None:
    model = grid(4, 4, 3)
    bucketflow.solve(model, workdir=tmp_path)
    stored = json.loads((tmp_path / "plan.json").read_text())
    for form in (1, 2, 3, 4, 5, 7):
        changed = {k: v for k, v in stored.items() if k != "checksum"} | {"format": form, "new": 1}
        for checksum in ({}, {"checksum": run_folder._checksum(changed)}):
            (tmp_path / "plan.json").write_text(json.dumps(changed | checksum))
            for act in (lambda: bucketflow.solve(model, workdir=tmp_path), lambda: bucketflow.resume(tmp_path)):
                with pytest.raises(
                    bucketflow.IncompatibleRunError, match=f"has format {form}, this .* reads format 6: go on with"
                ):
                    act()


def test_a_slice_with_another_value_is_swept_again(runs: dict[str, tuple[Path, Path, Any]], tmp_path: Path) -> None:
    path, made, expected = runs["slices"]
    shutil.copytree(made, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    (book,) = (tmp_path / "run" / "ledger" / "tables").iterdir()
    lines = [json.loads(line) for line in book.read_text().splitlines()]
    lines[1]["value"]["totals"][0] = 0
    book.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(ledger.load(tmp_path / "run" / "tables")) == len(lines) - 1
    assert asked(path, tmp_path / "run", "optimum", {}) == expected


@pytest.mark.parametrize("place", ["result.json.partial", "result.json", "lock", "tables", "ledger", "ledger/tables"])
def test_links_are_not_followed(runs: dict[str, tuple[Path, Path, Any]], tmp_path: Path, place: str) -> None:
    path, made, _ = runs["slices"]
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(made, run)
    link = run / place
    if link.is_dir():
        shutil.copytree(link, outside)
        shutil.rmtree(link)
    else:
        outside.write_text("precious")
        link.unlink(missing_ok=True)
    link.symlink_to(outside)
    before = {p: p.read_bytes() for p in (outside, *outside.rglob("*")) if p.is_file()}
    for act in (lambda: answer(bucketflow.resume(run)), lambda: asked(path, run, "optimum", {})):
        with pytest.raises(bucketflow.IncompatibleRunError, match="symbolic link"):
            act()
    assert before == {p: p.read_bytes() for p in (outside, *outside.rglob("*")) if p.is_file()}


def test_files_that_are_no_files_do_not_hang(runs: dict[str, tuple[Path, Path, Any]], tmp_path: Path) -> None:
    path, made, expected = runs["whole"]
    shutil.copytree(made, tmp_path / "run")
    for name in ("result.json", "plan.json"):
        (tmp_path / "run" / name).unlink()
        os.mkfifo(tmp_path / "run" / name)
        found = tried(lambda: asked(path, tmp_path / "run", "optimum", {}))
        assert found in (None, expected)
