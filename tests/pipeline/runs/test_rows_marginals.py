"""Marginals with tables of rows on disk: both ways through boxes, the same beliefs, and nothing finished done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.runs import row_ledger as row_steps
from bucketflow.pipeline.runs import row_sweep as row_tables
from bucketflow.storage import ledger
from bucketflow.tasks.rows import scaled_rows
from bucketflow.tasks.rows.host import HostRows
from bucketflow.tasks.steps.policy import RowPolicy
from bucketflow.tasks.sweeps.scaled import Scaled, measured
from tests.memory import traced
from tests.pipeline.runs.sparse import COSTS, WEIGHTS, ring
from tests.pipeline.runs.test_marginal_outofcore import chunks_written
from tests.pipeline.runs.test_rows_stored import FEWER, Task, files
from tests.pipeline.runs.test_rows_stored import cut as cut
from tests.pipeline.runs.test_rows_stored import done as done
from tests.pipeline.runs.test_rows_stored import plain as plain
from tests.policies import InForce

TINY = 1_000_000


def stored(model: Model, **options: Any) -> Any:
    """Marginals by rows, with tables on disk."""
    found = bucketflow.marginals(model, representation="rows", fit="spill", **{"memory": TINY, **options})
    assert found.plan is None or found.plan.way == "disk"
    assert found.rows_work is None or found.rows_work.disk_bytes <= found.plan.disk_bytes
    return found


def assert_same(found: Any, wanted: Any, *, exactly: bool = False) -> None:
    """Compare all beliefs, and what they belong to."""
    assert (found.status, [*found]) == (wanted.status, [*wanted])
    assert found.value == wanted.value
    if wanted.log10_evidence is not None:
        assert found.log10_evidence == pytest.approx(wanted.log10_evidence, rel=1e-12, abs=1e-12)
    for name in wanted:
        if exactly:
            assert np.array_equal(found[name], wanted[name])
        else:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-9, atol=1e-300)
    for scope in wanted.families:
        np.testing.assert_allclose(found.families[scope], wanted.families[scope], rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize(("max_marginals", "kind"), [(False, "markov"), (True, "markov"), (True, "cost")])
def test_boxes_give_the_same_beliefs(max_marginals: bool, kind: str, done: list[Task]) -> None:
    model = ring(60, kind, groups=4)
    found = stored(model, max_marginals=max_marginals)
    assert len({path for _, path in done}) > 3
    assert {name for name, _ in done} & {f"rows_{step.node}" for step in found.plan.back}
    assert_same(
        found, bucketflow.marginals(model, max_marginals=max_marginals, representation="rows"), exactly=kind == "cost"
    )


@FEWER
@given(model=COSTS)
def test_least_costs_of_every_state(cut: None, model: Model) -> None:
    found = stored(model, max_marginals=True, memory="1GB")
    assert_same(found, bucketflow.marginals(model, max_marginals=True, representation="dense"), exactly=True)


@FEWER
@given(model=WEIGHTS)
def test_posteriors(cut: None, model: Model) -> None:
    for max_marginals in (False, True):
        options: Any = {"max_marginals": max_marginals, "families": True}
        found = stored(model, memory="1GB", **options)
        assert_same(found, bucketflow.marginals(model, representation="dense", **options))


@pytest.mark.usefixtures("compiled_at_once")
def test_peak_is_within_the_plan(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    in_force(BudgetPolicy, margin_bytes=BudgetPolicy().margin_bytes)
    monkeypatch.setattr(HostRows, "compiles", lambda *_: False)
    model = ring(80, "markov", groups=4)
    stored(ring(60, "markov", groups=3), memory="5MB")  # what is imported once
    peak_bytes, found = traced(
        lambda: stored(model, memory=3_700_000), lambda found: found.plan.peak_bytes - model.nbytes
    )
    assert found.plan.peak_bytes <= 3_700_000
    assert found.rows_work.written_bytes
    assert peak_bytes + model.nbytes <= found.plan.peak_bytes


@pytest.mark.parametrize("boxes", [4, 20])
def test_finished_boxes_survive_a_stop(
    boxes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[Task]
) -> None:
    """Those whose tables were deleted, as nobody needs them any more, too."""
    model, counted = ring(60, "markov", groups=4), row_steps.run_row_box

    def stops(*args: Any) -> Any:
        if len(done) == boxes:
            raise KeyboardInterrupt
        return counted(*args)

    monkeypatch.setattr(row_steps, "run_row_box", stops)
    with pytest.raises(bucketflow.StoppedError, match="stopped; continue with"):
        stored(model, workdir=tmp_path / "run")
    finished = [*done]
    done.clear()
    monkeypatch.setattr(row_steps, "run_row_box", counted)
    found = stored(model, workdir=tmp_path / "run")
    assert_same(found, bucketflow.marginals(model, representation="rows"))
    assert done
    assert not {*done} & {*finished}


def test_chunks_damaged_during_a_stop_are_found_before_what_they_were_made_from_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[Task]
) -> None:
    model, counted = ring(60, "markov", groups=4), row_steps.run_row_box
    expected, damaged = stored(model), 0
    for boxes in range(4, len(done), 5):
        run = tmp_path / str(boxes)

        def stops(*args: Any, boxes: int = boxes) -> Any:
            if len(done) == boxes:
                raise KeyboardInterrupt
            return counted(*args)

        done.clear()
        monkeypatch.setattr(row_steps, "run_row_box", stops)
        with pytest.raises(bucketflow.StoppedError):
            stored(model, workdir=run)
        path = max(files(run), key=lambda path: path.stat().st_mtime_ns)
        path.write_bytes(bytes(b ^ 0x15 for b in path.read_bytes()))
        others = {number_of(other) for other in files(run)} - {number_of(path)}
        damaged += len(others)
        written = chunks_written(monkeypatch)
        monkeypatch.setattr(row_steps, "run_row_box", counted)
        assert_same(stored(model, workdir=run), expected)
        again = {name.split("_")[1] for name, _ in written}
        assert number_of(path) in again
        assert not again & others - {number_of(path)}
    assert damaged > 5


def number_of(path: Path) -> str:
    """Return which table a chunk file is of."""
    return path.parent.name.split("_")[1]


def test_tables_are_removed_and_beliefs_are_kept(tmp_path: Path, done: list[Task]) -> None:
    model = ring(60, "markov", groups=4)
    first = stored(model, workdir=tmp_path / "run")
    written = {table.split("_")[1] for table, _ in ledger.load(tmp_path / "run" / "tables")}
    left = {path.parent.name.split("_")[1] for path in files(tmp_path)}
    messages = {str(step.node) for step in first.plan.steps} - {*map(str, first.plan.outputs)}
    assert len(written & messages) > 2
    assert not left & messages
    done.clear()
    again = stored(model, workdir=tmp_path / "run")
    assert not done
    assert_same(again, first, exactly=True)


@pytest.mark.parametrize("how", ["flipped", "removed"])
def test_chunks_lost_meanwhile_are_made_again(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, free = ring(60, "markov", groups=4), row_tables.RowTables.free
    spoilt: list[Path] = []

    def damages(tables: Any, gone: Any) -> None:
        free(tables, gone)
        some = sorted(files(tmp_path))
        if len(some) > 3 and len(spoilt) < 3:
            spoilt.append(path := some[len(some) // 2])
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 4
            path.write_bytes(data)
            if how == "removed":
                path.unlink()

    monkeypatch.setattr(row_tables.RowTables, "free", damages)
    found = stored(model, workdir=tmp_path / "run")
    assert len(spoilt) == 3
    assert_same(found, bucketflow.marginals(model, representation="rows"))


def test_a_box_with_another_scale_takes_nothing_of_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[Task]
) -> None:
    """Values are scaled by what they are made from, and that may be cut otherwise when it is made again."""
    model = ring(60, "markov", groups=4)
    first = stored(model, workdir=tmp_path / "run")

    def halved(values: Any, log_scale: float) -> Any:
        found, shift = measured(values, log_scale), np.log(2.0)
        values = found.values - shift if found.logs else found.values / 2
        return Scaled(values, found.log_scale + shift, found.low - shift, found.high - shift, found.logs)

    monkeypatch.setattr(scaled_rows, "measured", halved)
    lost = [path for path in sorted(files(tmp_path)) if path.parent.name.endswith("_keys")]
    assert len(lost) > 1
    for path in lost[::2]:
        path.unlink()
    done.clear()
    found = stored(model, workdir=tmp_path / "run")
    assert done
    assert_same(found, first)


def test_disk_is_chosen_where_slices_repeat_much(in_force: InForce) -> None:
    model, options = ring(60, "markov", groups=4), dict[str, Any](representation="rows", memory=TINY)
    in_force(RowPolicy, merged_copies=20)  # results are said to take more memory than they do
    ways = {}
    for worth in (1e9, 0.0):
        in_force(BudgetPolicy, worth_storing=worth)
        found = bucketflow.marginals(model, **options)
        assert found.plan is not None
        ways[found.plan.way] = found
    assert {*ways} == {"slices", "disk"}
    assert_same(ways["disk"], ways["slices"])
