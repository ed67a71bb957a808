"""Tables of rows on disk: the same answers, bounded memory, and nothing finished is lost or done again."""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.budget import rows_fit
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cli.show_run import run_facts
from bucketflow.pipeline.errors import BudgetError, format_bytes
from bucketflow.pipeline.models.function import Function
from bucketflow.pipeline.runs import row_ledger as rows_on_disk
from bucketflow.pipeline.runs.row_ledger import Split, counted_boxes, sample_of_rows, split
from bucketflow.pipeline.runs.row_sweep import RowTables
from bucketflow.storage import ledger
from bucketflow.tasks.boxes import sorted_runs
from bucketflow.tasks.boxes.row_box import RowBoxes, even_chunks, known_run, run_row_box
from bucketflow.tasks.rows.host import HostRows
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.relation import Relation
from bucketflow.tasks.steps.policy import BoxPolicy, RowPolicy
from bucketflow.tasks.steps.semiring import MIN_PLUS
from bucketflow.tasks.steps.step import make_step
from tests.device_stand_in import device
from tests.memory import traced
from tests.pipeline.runs.sparse import COSTS, FEW, WEIGHTS, dense_ring, ring, sparse_models
from tests.policies import InForce

Task = tuple[str, tuple[int, ...]]
TINY = 600_000
FEWER = settings(FEW, max_examples=12)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """NumPy alone, and no margin: budgets are tiny."""
    monkeypatch.setattr(HostRows, "compiles", lambda *_: False)
    in_force(BudgetPolicy, margin_bytes=0)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The boxes that ran to their end, in order."""
    found: list[Task] = []

    def run(boxes: RowBoxes[Any], path: tuple[int, ...], *rest: Any) -> Any:
        receipts = run_row_box(boxes, path, *rest)
        found.append((boxes.name, path))
        return receipts

    monkeypatch.setattr(rows_on_disk, "run_row_box", run)
    return found


def stored(model: Model, query: Any = "optimum", **options: Any) -> Any:
    """An answer by rows, with tables on disk."""
    found = bucketflow.solve(model, query, representation="rows", fit="spill", **{"memory": TINY, **options})
    assert found.plan is None or found.plan.way == "disk"
    assert found.rows_work is None or found.rows_work.disk_bytes <= found.plan.disk_bytes
    return found


@pytest.mark.parametrize(
    ("query", "kind"), [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov"), ("count", "cost")]
)
def test_boxes_give_the_same_answer(query: str, kind: str, done: list[Task]) -> None:
    model = ring(60, kind, groups=4)
    whole = bucketflow.solve(model, query, representation="rows")  # type: ignore[arg-type]
    found = stored(model, query)
    assert len({path for _, path in done}) > 3
    assert (found.status, found.value) == (whole.status, whole.value)
    assert found.log10 is whole.log10 is None or found.log10 == pytest.approx(whole.log10, rel=1e-12)
    assert found.rows_work.largest_rows == whole.rows_work.largest_rows  # type: ignore[union-attr]


@pytest.mark.parametrize(("pool", "groups"), [(48, 5), (64, 3)])
def test_decoding_reads_the_box_that_made_the_least(
    pool: int, groups: int, done: list[Task], monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """Each box's own rows tell what it made: the inputs of others are not read."""
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50)
    read: list[int] = []
    best = RowTables.best_within

    def counted(tables: RowTables[Any], step: Any, *rest: Any) -> Any:
        read.append(step.node)
        return best(tables, step, *rest)

    monkeypatch.setattr(RowTables, "best_within", counted)
    model = ring(pool, "markov", groups=groups)
    found = stored(model)
    whole = bucketflow.solve(model, representation="rows")
    assert (found.status, found.value, found.log10) == (whole.status, whole.value, whole.log10)
    assert max(Counter(name for name, _ in done).values()) > 2
    assert sorted(read) == sorted({*read})


def test_inspect_shows_the_stages_and_says_what_is_at_most(done: list[Task], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    found = stored(ring(60, groups=4), workdir=folder)
    facts = run_facts(folder)
    assert [stage["table"] for stage in facts["stages"]] == list(dict.fromkeys(name for name, _ in done))
    for stage in facts["stages"]:
        assert stage["boxes"] == stage["boxes_done"] == len({path for name, path in done if name == stage["table"]})
    assert sum(stage["bytes"] for stage in facts["stages"]) == found.rows_work.written_bytes
    assert facts["disk_bytes_expected"] == found.plan.stored_bytes
    assert facts["disk_bytes_planned"] == found.plan.disk_bytes
    shown = CliRunner().invoke(main, ["inspect", str(folder)]).output
    planned = format_bytes(found.plan.stored_bytes), format_bytes(found.plan.disk_bytes)
    assert "planned about {} and at most {}".format(*planned) in shown
    assert all(stage["table"] in shown for stage in facts["stages"])


def test_inspect_counts_the_boxes_that_are_open(done: list[Task], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stored(ring(60, groups=4), workdir=folder)
    cut = next(name for name, path in done if path)
    receipts = ledger.load(folder / "tables")
    boxes, ended = counted_boxes(cut, receipts)
    last = next(path for name, path in reversed(done) if name == cut)
    del receipts[cut, last]
    assert counted_boxes(cut, receipts) == (boxes, ended - 1)
    assert counted_boxes("rows_0", receipts) == (1, 0)


@pytest.fixture(params=[True, False], ids=["runs that meet", "runs that follow"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """All steps are done in boxes, each cut twice, by variables that are summed out or not; all tables are rows."""
    complete = rows_on_disk.BoxedStep.complete

    def cut_first(step: Any) -> None:
        for _ in range(2):
            for path, ranges, _ in step.disk.open(step.node):
                step.cut([], path, ranges, 2.0, reads=False)
        complete(step)

    def last(step: Any, sizes: Any, samples: Any, ranges: Any, parts: int, *, reads: bool) -> Any:
        variables = [*step.axes, *(v for axes in step.input_axes for v in axes if v not in step.axes)]
        wide = [v for v in variables if v in ranges or sizes[v] > 1]
        open_ = [v for v in wide if ranges.get(v, (0, sizes[v]))[1] - ranges.get(v, (0, sizes[v]))[0] > 1]
        if not open_:
            return None
        chosen = open_[-1 if request.param else 0]
        return Split(chosen, (ranges.get(chosen, (0, 0))[0] + 1,))

    in_force(BoxPolicy, memory_first=False)
    monkeypatch.setattr(rows_on_disk.BoxedStep, "complete", cut_first)
    monkeypatch.setattr(rows_on_disk, "split", last)
    in_force(RowPolicy, small_cells=0, cells_of_a_row=0, array_share=0.0)


@FEWER
@given(model=COSTS)
def test_least_costs(cut: None, model: Model) -> None:
    found, dense = stored(model, memory="1GB"), bucketflow.solve(model, representation="dense")
    assert (found.status, found.value) == (dense.status, dense.value)
    if found.assignment is not None:
        assert model.cost([int(state) for state in found.assignment.values()]) == found.value


@FEWER
@given(model=WEIGHTS)
def test_sums_and_best_probabilities(cut: None, model: Model) -> None:
    for query in ("partition", "optimum"):
        found, dense = stored(model, query, memory="1GB"), bucketflow.solve(model, query, representation="dense")  # type: ignore[arg-type]
        assert found.status == dense.status
        assert found.log10 is dense.log10 is None or found.log10 == pytest.approx(dense.log10, rel=1e-12, abs=1e-12)


@FEWER
@given(model=sparse_models("cost"))
def test_counts(cut: None, model: Model) -> None:
    found = stored(model, "count", memory="1GB")
    assert found.value == bucketflow.solve(model, "count", representation="dense").value


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
def test_every_table_is_stored_and_read_again(query: Any, in_force: InForce, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of all cells among them: what is mostly possible takes fewer bytes so."""
    in_force(BoxPolicy, large_part=1 << 60)
    monkeypatch.setattr(sorted_runs, "BLOCK_CELLS", 100)
    model = dense_ring("markov" if query == "partition" else "cost")
    names = [*model.names]
    rng = np.random.default_rng(0)
    full = [Function((v, v + 1), rng.integers(1, 9, (10, 10)).astype(model.functions[0].values.dtype)) for v in (0, 4)]
    model = replace(model, functions=(*model.functions, *full))
    found = stored(model, query, memory="1GB")
    wanted = bucketflow.solve(model, query, representation="dense")
    assert found.value == wanted.value
    assert found.log10 is wanted.log10 is None or found.log10 == pytest.approx(wanted.log10, rel=1e-12)
    assert found.assignment is None or [*found.assignment] == names


@pytest.mark.usefixtures("compiled_at_once")
def test_peak_is_within_the_plan(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    in_force(BudgetPolicy, margin_bytes=BudgetPolicy().margin_bytes)
    monkeypatch.setattr(HostRows, "compiles", lambda *_: False)
    model = ring(110, groups=4)
    stored(ring(60, groups=3), memory="4MB")  # what is imported once
    peak_bytes, found = traced(
        lambda: stored(model, memory=4_400_000), lambda found: found.plan.peak_bytes - model.nbytes
    )
    assert found.plan.peak_bytes <= 4_400_000
    assert peak_bytes + model.nbytes <= found.plan.peak_bytes


def files(folder: Path) -> dict[Path, int]:
    """Chunk files and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("c.*")}


def stop_after_five(done: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sixth box be interrupted."""
    counted = rows_on_disk.run_row_box

    def stops(*args: Any) -> Any:
        if len(done) == 5:
            raise KeyboardInterrupt
        return counted(*args)

    monkeypatch.setattr(rows_on_disk, "run_row_box", stops)


def test_finished_boxes_survive_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[Task]) -> None:
    model, counted = ring(60, groups=4), rows_on_disk.run_row_box
    stop_after_five(done, monkeypatch)
    with pytest.raises(bucketflow.StoppedError, match="stopped; continue with"):
        stored(model, workdir=tmp_path / "run")
    before, finished = files(tmp_path), [*done]
    done.clear()
    monkeypatch.setattr(rows_on_disk, "run_row_box", counted)
    found = stored(model, workdir=tmp_path / "run")
    assert found.value == bucketflow.solve(model, representation="rows").value
    assert before
    assert done
    assert not {*done} & {*finished}
    assert {path: files(tmp_path)[path] for path in before} == before


def test_boxes_of_a_table_that_was_cut_otherwise_before_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[Task]
) -> None:
    """A table that was deleted and made again, until the run was killed."""
    model, counted = ring(60, groups=4), rows_on_disk.run_row_box
    stop_after_five(done, monkeypatch)
    with pytest.raises(bucketflow.StoppedError):
        stored(model, workdir=tmp_path / "run")
    monkeypatch.setattr(rows_on_disk, "run_row_box", counted)
    tables = tmp_path / "run" / "tables"
    name = next(name for name, path in reversed(done) if path)
    first = ledger.load(tables)[name, ()]
    others = [state + 1 for state in first.value["cuts"]]
    ledger.append(tables, [replace(first, value={**first.value, "cuts": others})])
    finished = {box for box in done if box[0] == name}
    done.clear()
    found = stored(model, workdir=tmp_path / "run")
    assert found.value == bucketflow.solve(model, representation="rows").value
    assert finished <= {*done}


@pytest.mark.parametrize("how", ["flipped", "removed", "cut short"])
def test_damaged_chunks_are_made_again_and_no_others(how: str, tmp_path: Path, done: list[Task]) -> None:
    model = ring(60, groups=4)
    first = stored(model, workdir=tmp_path / "run")
    before = files(tmp_path)
    (tmp_path / "run" / "result.json").unlink()
    chosen = sorted(before)[:: max(1, len(before) // 3)]
    for path in chosen:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes({"flipped": data, "removed": data, "cut short": data[:-3]}[how])
        if how == "removed":
            path.unlink()
    done.clear()
    again = stored(model, workdir=tmp_path / "run")
    assert (again.value, again.assignment) == (first.value, first.assignment)
    after = files(tmp_path)
    assert all(after[path] == at for path, at in before.items() if path not in chosen)
    assert len(done) <= len(chosen)


def test_small_tables_that_only_decoding_needs_are_made_again(tmp_path: Path, in_force: InForce) -> None:
    """They were in memory when a run stopped, and what was made from them is on disk."""
    in_force(BoxPolicy, large_part=16)
    first = stored(ring(60), workdir=tmp_path / "run", memory=1_000_000)
    assert files(tmp_path)
    (tmp_path / "run" / "result.json").unlink()
    again = stored(ring(60), workdir=tmp_path / "run", memory=1_000_000)
    assert (again.value, again.assignment) == (first.value, first.assignment)


def test_a_box_that_is_repaired_takes_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is cut where it took more when it was done first."""
    model, account = ring(60, groups=4), rows_on_disk.RowsOnDisk.account
    first = stored(model, workdir=tmp_path / "run", memory=1_500_000)
    (tmp_path / "run" / "result.json").unlink()
    for path in files(tmp_path):
        path.unlink()
    seen: list[int] = []

    def more_is_known(disk: Any, *args: Any) -> None:
        account(disk, *args)
        disk.room.beside = disk.room.nbytes * 2 // 3

    def run(boxes: RowBoxes[Any], *rest: Any) -> Any:
        seen.append(boxes.nbytes)
        assert boxes.nbytes <= boxes.algebra.choice.room.free  # type: ignore[attr-defined]
        return run_row_box(boxes, *rest)

    monkeypatch.setattr(rows_on_disk.RowsOnDisk, "account", more_is_known)
    monkeypatch.setattr(rows_on_disk, "run_row_box", run)
    again = stored(model, workdir=tmp_path / "run", memory=1_500_000)
    assert seen
    assert again.value == first.value


def test_a_box_that_was_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that died after it wrote its receipts: its boxes, sent again, are there already."""
    calls: list[Any] = []

    def twice(*args: Any) -> Any:
        boxes = pickle.loads(pickle.dumps(args[0]))
        receipts = run_row_box(boxes, *args[1:])
        before = files(tmp_path)
        assert [r.key for r in run_row_box(args[0], *args[1:])] == [r.key for r in receipts] or not before
        assert files(tmp_path) == before
        calls.append(args)
        return receipts

    monkeypatch.setattr(rows_on_disk, "run_row_box", twice)
    model = ring(60, groups=4)
    assert stored(model, workdir=tmp_path / "run").value == bucketflow.solve(model, representation="rows").value
    assert calls


def test_chunks_that_are_made_again_are_as_long_as_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """A box that is repaired may take more than when it was done."""
    in_force(BoxPolicy, least_chunk_bytes=1 << 8)
    calls: list[str] = []

    def repaired(boxes: RowBoxes[Any], path: tuple[int, ...], *rest: Any) -> Any:
        receipts = run_row_box(boxes, path, *rest)
        run = known_run(receipts[-1], boxes.keys, {receipt.key: receipt for receipt in receipts})
        assert run is not None
        if run.chunks > 2:
            before = [part.words.tolist() for part in run.read(boxes.store, {})]
            for spec, chunk in zip(run.specs, run.keys_of(1), strict=True):
                (tmp_path / "run" / "tables" / spec.name / spec.file_name(chunk[1])).unlink()
                receipts = run_row_box(replace(boxes, nbytes=3 * boxes.nbytes), path, *rest)
                again = known_run(receipts[-1], boxes.keys, {receipt.key: receipt for receipt in receipts})
                assert again is not None
                assert [part.words.tolist() for part in again.read(boxes.store, {})] == before
            calls.append(run.name)
        return receipts

    monkeypatch.setattr(rows_on_disk, "run_row_box", repaired)
    model = ring(60, groups=4)
    assert stored(model, workdir=tmp_path / "run").value == bucketflow.solve(model, representation="rows").value
    assert calls


def test_any_zarr_reader_opens_the_tables(tmp_path: Path) -> None:
    import zarr

    stored(ring(60, groups=4), workdir=tmp_path / "run")
    receipts = ledger.load(tmp_path / "run" / "tables")
    group: Any = zarr.open_group(tmp_path / "run" / "tables", mode="r")
    seen = 0
    for (table, chunk), receipt in receipts.items():
        if table.endswith("_keys"):
            words = group[table][chunk[0]][: receipt.value["rows"]]
            assert words[0].tolist() == receipt.value["first"]
            assert all(a < b for a, b in zip(words.tolist()[:-1], words.tolist()[1:], strict=True))
            values = group[table.removesuffix("keys") + "values"][chunk[0]]
            assert len(values) == group[table].shape[1]
            seen += 1
    assert seen


def test_sums_remove_tables_that_were_read(tmp_path: Path) -> None:
    stored(ring(60, "markov", groups=4), "partition", workdir=tmp_path / "run")
    written = {table.split("_")[1] for table, _ in ledger.load(tmp_path / "run" / "tables")}
    left = files(tmp_path)
    assert len(written) > 1
    assert {path.parent.name.split("_")[1] for path in left} == {max(written, key=int)}  # the root
    assert all(path.stat().st_size == 8 for path in left)


def test_ways_are_chosen(in_force: InForce) -> None:
    model, options = ring(60, groups=4), dict[str, Any](representation="rows", memory=900_000)
    in_force(RowPolicy, merged_copies=20)  # results are said to take more memory than they do
    with pytest.raises(BudgetError, match=r"a sparse table needs at least .*; try --fit slice or --fit spill"):
        bucketflow.solve(model, fit="refuse", **options)
    in_force(BudgetPolicy, worth_storing=1e9)
    sliced = bucketflow.solve(model, **options)
    in_force(BudgetPolicy, worth_storing=0.0)
    found = bucketflow.solve(model, **options)
    assert sliced.plan is not None
    assert found.plan is not None
    assert (sliced.plan.way, found.plan.way) == ("slices", "disk")
    assert bucketflow.solve(model, disk=0, **options).plan.way == "slices"  # type: ignore[union-attr]
    assert sliced.value == found.value
    with pytest.raises(BudgetError, match=r"more than .* of disk, allowed 1 kB"):
        bucketflow.solve(model, fit="spill", disk="1kB", **options)


@pytest.mark.parametrize("place", ["host", "stand-in"])
@pytest.mark.parametrize("query", ["optimum", "count"])
def test_values_are_compressed_where_the_disk_is_small(
    place: str, query: Any, in_force: InForce, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50, least_chunk_bytes=1 << 12)
    in_force(RowPolicy, device_rows=8, small_cells=0)
    model, options = ring(60, groups=4), dict[str, Any](representation="rows", fit="spill", memory=TINY)
    if place == "stand-in":
        options["gpus"] = 1
    with device(monkeypatch) if place == "stand-in" else nullcontext():
        whole = bucketflow.solve(model, query, **options)
        disk = whole.rows_work.disk_bytes * 4 // 5
        with BoxPolicy.using(compact_part=0), pytest.raises(BudgetError, match="of disk, allowed"):
            bucketflow.solve(model, query, disk=disk, **options)
        found = bucketflow.solve(model, query, disk=disk, **options)
    assert found.value == whole.value
    assert found.rows_work.disk_bytes <= disk


@pytest.mark.parametrize("query", ["optimum", "count"])
def test_more_receipts_than_memory_holds_are_not_kept(
    query: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    """Slices need none; who asked for tables on disk hears both numbers."""
    model, options = ring(60, groups=4), dict[str, Any](representation="rows", memory=TINY)
    wanted = bucketflow.solve(model, query, representation="rows").value
    in_force(BudgetPolicy, worth_storing=0.0)
    assert bucketflow.solve(model, query, **options).plan.way == "disk"  # type: ignore[union-attr]
    in_force(BoxPolicy, receipt_bytes=TINY // 8)
    plans: list[Any] = []
    stored_or_sliced = rows_fit.stored_or_sliced
    monkeypatch.setattr(
        rows_fit, "stored_or_sliced", lambda *given: plans.append(stored_or_sliced(*given)) or plans[-1]
    )
    found = bucketflow.solve(model, query, workdir=tmp_path / "run", **options)
    assert [plan.way for plan in plans] == ["disk"]
    assert found.plan is not None
    assert (found.plan.way, found.value) == ("slices", wanted)
    again = bucketflow.solve(model, query, workdir=tmp_path / "run", **options)
    assert (again.value, len(plans)) == (wanted, 1)
    with pytest.raises(BudgetError, match=r"held in memory need .* kB, allowed .* kB; try"):
        stored(model, query)


def test_a_disk_that_has_less_is_not_filled(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """What is known to be too much is not written, and both numbers are named."""
    monkeypatch.setattr(rows_on_disk, "free_bytes", lambda _: 1_000)
    with pytest.raises(BudgetError, match=r"need more than .*B of disk, but .*tables has 1 kB left; try"):
        stored(ring(60, groups=4))
    in_force(BoxPolicy, large_part=1 << 60)
    monkeypatch.setattr(rows_on_disk.RowsOnDisk, "record", lambda *_: pytest.fail("it was written"))
    monkeypatch.setattr(rows_on_disk, "free_bytes", lambda _: 100)
    with pytest.raises(BudgetError, match=r"of disk, but .*tables has 100 B left"):
        stored(ring(60, groups=4), memory="1GB")


def test_plans_bound_what_is_written(tmp_path: Path) -> None:
    """Also where it is not known yet whether anything will be; the answer has both."""
    model, options = ring(60, groups=4), dict[str, Any](representation="rows", memory=TINY)
    lines = {fit: dict(bucketflow.plan(model, fit=fit, **options).rows()) for fit in ("spill", "auto", "slice")}  # type: ignore[union-attr]
    assert "computed in boxes" in lines["spill"]["disk"]
    assert "if they turn out not to fit" in lines["auto"]["disk"]
    assert "disk" not in lines["slice"]
    assert "disk" not in dict(bucketflow.plan(model, representation="rows", memory="4GB").rows())  # type: ignore[union-attr]
    found = stored(model, workdir=tmp_path / "run")
    work, written = found.rows_work, ledger.load(tmp_path / "run" / "tables").values()
    assert work.disk_bytes == work.written_bytes == sum(receipt.nbytes for receipt in written) > 0
    assert work.most_disk_bytes == found.plan.disk_bytes
    assert work.disk_bytes <= found.plan.stored_bytes < found.plan.most_stored_bytes // 9
    expected, most = map(format_bytes, (found.plan.stored_bytes, found.plan.most_stored_bytes))
    assert dict(found.plan.rows())["disk"].startswith(f"about {expected}, <= {most}, tables of rows")
    assert f"at a time (<= {format_bytes(found.plan.disk_bytes)} planned)" in work.text
    assert stored(model, workdir=tmp_path / "run").rows_work == work  # the answer is known


@pytest.mark.parametrize(("rows", "most"), [(0, 5), (1, 1), (10, 4), (11, 5), (100, 99), (7, 100)])
def test_chunks_have_about_as_many_rows(rows: int, most: int) -> None:
    size = even_chunks(rows, most)
    assert 1 <= size <= most
    assert -(-rows // size) == -(-rows // most)
    assert -(-rows // size) * size - rows < max(1, -(-rows // most)) + (not rows)


def test_what_does_not_fit_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ring(60, groups=4)
    with (
        BudgetPolicy.using(margin_bytes=1 << 20),
        pytest.raises(BudgetError, match=r"sparse tables on disk need .* MB, .* allowed 600 kB"),
    ):
        stored(model)
    monkeypatch.setattr(rows_on_disk, "split", lambda *_, **__: None)
    with pytest.raises(BudgetError, match=r"a box of sparse tables needs .* kB, allowed .* kB"):
        stored(model)


@pytest.fixture
def skewed() -> tuple[Any, Relation]:
    """A step that sums variable 2 out of rows of which most have the same state of variable 0."""
    keys = Keys((0, 1, 2), (10, 10, 10))
    rng = np.random.default_rng(0)
    often = np.where(rng.random(500) < 0.8, 7, rng.integers(0, 10, 500))
    states = np.unique(np.array([often, *rng.integers(0, 10, (2, 500))]), axis=1)
    return (
        make_step(1, (0,), ((0, 1, 2),), (0, 1), (10, 10, 10), MIN_PLUS),
        Relation(keys, keys.pack(states), np.ones(states.shape[1])),
    )


def test_boxes_have_about_as_many_rows(skewed: tuple[Any, Relation]) -> None:
    step, rows = skewed
    sample = [sample_of_rows(rows)]
    first = split(step, (10, 10, 10), sample, {}, 4, reads=True)
    assert first is not None
    assert first.variable == 0
    assert {7, 8} <= {*first.cuts}
    parts = [*first.parts({}, (10, 10, 10))]
    assert sum(len(range(*part[0])) for part in parts) == 10
    heavy = next(part for part in parts if part[0] == (7, 8))
    second = split(step, (10, 10, 10), sample, heavy, 4, reads=True)
    assert second is not None
    assert (second.variable, len(second.cuts)) == (1, 3)
    assert split(step, (10, 10, 10), sample, {0: (7, 8), 1: (2, 3), 2: (0, 1)}, 2, reads=True) is None
    assert split(step, (10, 10, 10), sample, {0: (7, 8), 1: (2, 3)}, 2, reads=True).variable == 2  # type: ignore[union-attr]
