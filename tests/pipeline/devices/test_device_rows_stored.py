"""Tables of rows on disk that pass through a device: read, merged, joined, reduced there and written, box by box.

All run on a stand-in for the device everywhere, and on a GPU where there is one.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Timer, get_ident
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import bucketflow
from bucketflow import Model
from bucketflow.cluster.pool import in_a_row
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.runs import row_ledger
from bucketflow.storage.faults import ChunkLostError
from bucketflow.storage.spec import Receipt, TableSpec
from bucketflow.tasks.boxes import device_stores, row_box
from bucketflow.tasks.boxes.row_box import RowBoxes, row_box_phases, run_row_box, sizes_within
from bucketflow.tasks.gpu.arrays import is_device
from bucketflow.tasks.rows.host import HostRows
from bucketflow.tasks.steps.policy import BoxPolicy, RowPolicy
from tests.device_stand_in import RealDevice, StandIn, device, real_device
from tests.pipeline.devices.test_device_rows import FEW
from tests.pipeline.runs.sparse import dense_ring, ring, sparse_models
from tests.policies import InForce

TINY = 900_000


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> Iterator[StandIn | RealDevice]:
    """A device for which nothing is too small; budgets are tiny."""
    monkeypatch.setattr(HostRows, "compiles", lambda *_: False)
    in_force(BudgetPolicy, margin_bytes=0)
    in_force(RowPolicy, device_rows=8, small_cells=0)
    in_force(BoxPolicy, receipt_bytes=50)
    with (device if request.param == "stand-in" else real_device)(monkeypatch) as there:
        yield there


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int]]:
    """The tables that boxes made, and by which thread."""
    found: list[tuple[Any, int]] = []
    made = row_box._Box.made

    def noted(box: Any, *args: Any) -> Any:
        table, boxes = made(box, *args), box.boxes
        bare, _ = boxes.algebra.resized(sizes_within(boxes.sizes, box.ranges)).keyed(table, boxes.step.axes)
        found.append((bare, get_ident()))
        return table

    monkeypatch.setattr(row_box._Box, "made", noted)
    return found


def stored(model: Model, query: Any = "optimum", **options: Any) -> Any:
    given = {"gpu_memory": TINY, **options}
    found = bucketflow.solve(model, query, representation="rows", fit="spill", gpus=1, **given)
    assert found.plan is None or (found.plan.way, found.plan.device) == ("disk", True)
    return found


@pytest.mark.parametrize(
    ("query", "kind", "pool"),
    [("optimum", "cost", 54), ("optimum", "markov", 48), ("partition", "markov", 48), ("count", "cost", 48)],
)
def test_boxes_give_the_answer_of_the_host(
    query: Any,
    kind: str,
    pool: int,
    place: Any,
    in_boxes: None,
    joined: list[tuple[Any, int]],
    in_force: InForce,
) -> None:
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50)
    model = ring(pool, kind, groups=4)
    whole = bucketflow.solve(model, query, representation="rows")
    found = stored(model, query)
    assert (found.status, found.value) == (whole.status, whole.value)
    assert found.log10 is whole.log10 is None or found.log10 == pytest.approx(whole.log10, rel=1e-12)
    assert sum(is_device(bare.values) for bare, _ in joined) > 3
    assert len({thread for _, thread in joined}) == 1  # one box at a time


def test_posteriors(place: Any, in_boxes: None, joined: list[tuple[Any, int]]) -> None:
    model = ring(20, "markov", groups=4)
    options: Any = {"representation": "rows", "fit": "spill"}
    found = bucketflow.marginals(model, gpus=1, gpu_memory=TINY, **options)
    host = bucketflow.marginals(model, **options)
    assert found.plan is not None
    assert found.plan.way == "disk"
    assert any(is_device(bare.values) for bare, _ in joined)
    for name in host:
        np.testing.assert_allclose(found[name], host[name], rtol=1e-9, atol=1e-300)


@pytest.fixture
def in_boxes(in_force: InForce) -> None:
    """Every step is done in boxes, and all tables are rows."""
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50)
    in_force(RowPolicy, device_rows=8, small_cells=0, cells_of_a_row=0, array_share=0.0)


@FEW
@given(model=sparse_models("cost"))
def test_costs(place: Any, in_boxes: None, model: Model) -> None:
    for query in ("optimum", "count"):
        found, dense = (
            stored(model, query, gpu_memory="1GB"),
            bucketflow.solve(model, query, representation="dense"),  # type: ignore[arg-type]
        )
        assert (found.status, found.value) == (dense.status, dense.value)


@FEW
@given(model=sparse_models("markov"))
def test_weights(place: Any, in_boxes: None, model: Model) -> None:
    for query in ("optimum", "partition"):
        found, dense = (
            stored(model, query, gpu_memory="1GB"),
            bucketflow.solve(model, query, representation="dense"),  # type: ignore[arg-type]
        )
        assert found.status == dense.status
        assert found.log10 is dense.log10 is None or found.log10 == pytest.approx(dense.log10, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
def test_arrays_of_all_cells_pass_through_too(query: Any, place: Any, in_force: InForce) -> None:
    in_force(BoxPolicy, memory_first=False, device_block_cells=100)
    model = dense_ring("markov" if query == "partition" else "cost")
    found, wanted = stored(model, query, gpu_memory="1GB"), bucketflow.solve(model, query, representation="dense")
    assert found.value == wanted.value
    assert found.log10 is wanted.log10 is None or found.log10 == pytest.approx(wanted.log10, rel=1e-12)


def test_tables_that_turn_out_not_to_fit_a_device_go_to_disk(place: Any, in_force: InForce) -> None:
    in_force(RowPolicy, device_rows=8, small_cells=0, merged_copies=20)
    in_force(BudgetPolicy, margin_bytes=0, worth_storing=0.0)
    model = ring(60, groups=4)
    found = bucketflow.solve(model, representation="rows", gpus=1, gpu_memory=TINY)
    assert found.plan is not None
    assert (found.plan.way, found.plan.device) == ("disk", True)
    assert found.value == bucketflow.solve(model, representation="rows").value


def test_a_stopped_run_goes_on_with_and_without_the_device(
    place: Any, in_boxes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, calls = ring(60, groups=4), list[Any]()

    def stops(*args: Any) -> Any:
        if len(calls) >= 3:
            raise KeyboardInterrupt
        receipts = run_row_box(*args)
        calls.append(args[1])
        return receipts

    for gpus in (1, None):
        folder = tmp_path / f"{gpus}"
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(row_ledger, "row_box_phases", stops)
            with pytest.raises(bucketflow.StoppedError):
                stored(model, workdir=folder)
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("c.*")}
        assert before
        found = bucketflow.solve(
            model, representation="rows", fit="spill", gpus=gpus, gpu_memory=gpus and TINY, workdir=folder
        )
        assert found.value == bucketflow.solve(model, representation="rows").value
        assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("phase", [1, 2])
def test_a_run_that_is_stopped_in_any_phase_goes_on(
    place: Any, in_boxes: None, in_force: InForce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: int
) -> None:
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50, least_shared_read_bytes=0)
    model, calls = ring(60, groups=4), list[Any]()

    def stops(*args: Any) -> Any:
        calls.append(args[1])
        inner = row_box_phases(*args)
        for number in (1, 2):
            if len(calls) > 4 and number == phase:
                inner.close()
                raise KeyboardInterrupt
            try:
                next(inner)
            except StopIteration as end:
                return end.value
            yield

    with monkeypatch.context() as patch:
        patch.setattr(row_ledger, "row_box_phases", stops)
        with pytest.raises(bucketflow.StoppedError):
            stored(model, workdir=tmp_path)
    free = sum(block.nbytes for block in device_stores.BUFFERS._free)
    assert free == device_stores.BUFFERS.held_bytes
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("c.*")}
    assert before
    found = stored(model, workdir=tmp_path)
    assert found.value == bucketflow.solve(model, representation="rows").value
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_buffers_are_given_back_when_no_thread_fills_them(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TableSpec("rows", (0, 1), ("x", "y"), (2, 8), frozenset([0]), "int32")
    receipts = [Receipt("rows", (chunk, 0), 32, 0, 0.0, 0, {}) for chunk in range(2)]
    store, reading, held = device_stores.BegunFiles(tmp_path), Future[None](), list[bool]()
    begun = device_stores._File(spec, receipts[0], device_stores._room(device_stores.BUFFERS, spec), reading)
    store.files[receipts[0].key] = begun
    monkeypatch.setattr(device_stores, "stored_table", lambda _, spec: spec)
    give = device_stores.BUFFERS.give

    def noted(block: Any) -> None:
        held.append(reading.done())
        give(block)

    def refused(*_: Any, **__: Any) -> Any:
        Timer(0.05, reading.set_result, [None]).start()
        raise MemoryError

    monkeypatch.setattr(device_stores.BUFFERS, "give", noted)
    monkeypatch.setattr(device_stores, "_room", refused)
    with pytest.raises(MemoryError):
        store.load(spec, np.zeros((2, 8), np.int32), receipts, {})
    assert held == [True]


def test_what_a_box_needs_is_read_before_it_is_joined(
    place: Any, in_boxes: None, in_force: InForce, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50, least_shared_read_bytes=0)
    begun, made, read = row_box._Box.begun, row_box._Box.made, device_stores.read_chunk
    ahead, late = [0], list[Any]()

    def noted_begun(box: Any) -> Any:
        found = begun(box)
        wait([file.reading for file in found.files.values()])
        ahead[0] += len(found.files)
        return found

    def noted_made(box: Any, *args: Any) -> Any:
        late.clear()
        found = made(box, *args)
        assert not late
        return found

    def noted_read(*args: Any) -> None:
        late.append(args)
        read(*args)

    monkeypatch.setattr(row_box._Box, "begun", noted_begun)
    monkeypatch.setattr(row_box._Box, "made", noted_made)
    monkeypatch.setattr(device_stores, "read_chunk", noted_read)
    monkeypatch.setattr(row_ledger, "row_box_phases", lambda *args: in_a_row(row_box_phases, *args))
    model = ring(60, groups=4)
    assert stored(model).value == bucketflow.solve(model, representation="rows").value
    assert ahead[0] > 10


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
def test_compiled_code_reads_the_same(
    query: Any, place: Any, in_boxes: None, in_force: InForce, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50)
    in_force(BoxPolicy, least_shared_read_bytes=0, compiled_read_bytes=0)
    model, read = ring(60, "markov" if query == "partition" else "cost", groups=4), list[int]()
    compiled = device_stores._read_compiled

    def noted(folder: Path, files: Any, threads: int) -> None:
        read.append(len(files))
        compiled(folder, files, threads)

    monkeypatch.setattr(device_stores, "_read_compiled", noted)
    found, wanted = stored(model, query), bucketflow.solve(model, query, representation="rows")
    assert (found.status, found.value) == (wanted.status, wanted.value)
    assert sum(read) > 10


def test_compiled_code_says_which_chunk_is_lost(
    place: Any, in_force: InForce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_force(BoxPolicy, least_shared_read_bytes=0, compiled_read_bytes=0)
    store = device_stores.BufferedFiles(tmp_path)
    spec = TableSpec("rows_1", (0, 1), ("x", "y"), (3, 8), frozenset([0]), "int32")
    cells = np.arange(24, dtype=np.int32).reshape(3, 8)
    written = list(store.save(spec, cells, [(0, 0), (1, 0), (2, 0)], {}))
    receipts = [Receipt(spec.name, chunk, nbytes, checksum, 0.0, 0, {}) for chunk, nbytes, checksum in written]
    found = np.zeros_like(cells)
    store.load(spec, found, receipts, {})
    assert found.tobytes() == cells.tobytes()
    receipts[1] = Receipt(spec.name, (1, 0), receipts[1].nbytes, receipts[1].checksum ^ 1, 0.0, 0, {})
    with pytest.raises(ChunkLostError) as lost:
        store.load(spec, found, receipts, {})
    assert lost.value.chunk == (1, 0)


def test_no_more_is_read_ahead_than_twice_what_a_box_may_read(
    place: Any, in_boxes: None, in_force: InForce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs there are of whose chunks a part is within the ranges."""
    in_force(BoxPolicy, memory_first=False, receipt_bytes=50, device_chunk_part=1, device_input_part=64)
    begun, ahead = row_box._Box.begun, list[float]()

    def noted(box: Any) -> Any:
        found = begun(box)
        ahead.append(sum(file.buffer.nbytes for file in found.files.values()) / box.boxes.read_bytes)
        return found

    monkeypatch.setattr(row_box._Box, "begun", noted)
    model = ring(60, groups=4)
    assert stored(model).value == bucketflow.solve(model, representation="rows").value
    assert max(ahead) <= 2.25  # buffers are up to an eighth longer


def test_boxes_travel_to_workers_without_what_is_on_the_device(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that died after it wrote its receipts: its boxes, sent again, are there already."""

    def twice(boxes: RowBoxes[Any], *rest: Any) -> Any:
        boxes.placed()
        receipts = run_row_box(pickle.loads(pickle.dumps(boxes)), *rest)
        assert {r.key for r in run_row_box(boxes, *rest)} == {r.key for r in receipts}
        return receipts

    monkeypatch.setattr(row_ledger, "row_box_phases", twice)
    model = ring(60, groups=4)
    assert stored(model).value == bucketflow.solve(model, representation="rows").value


def test_a_box_that_the_device_refuses_is_cut(place: Any, in_boxes: None) -> None:
    model = ring(60, groups=4)
    before = stored(model, gpu_memory="1GB")
    place.largest_table_bytes, place.patience = 1 << 12, 3
    found = stored(model, gpu_memory="1GB")
    assert place.refused == 3
    assert found.value == before.value
