"""Memory of rows on disk: what is known of their runs counts, and so does what decoding joins."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bucketflow import Model
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.runs import row_ledger as row_steps
from bucketflow.pipeline.runs import row_sweep as row_tables
from bucketflow.storage import ledger
from bucketflow.tasks.rows import algebra, memory_account
from bucketflow.tasks.rows.algebra import best_row
from bucketflow.tasks.rows.joins import joined_reduced
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.ordering import forget_layouts
from bucketflow.tasks.rows.relation import Dense, Table, from_dense, restricted
from bucketflow.tasks.steps import step as step_module
from bucketflow.tasks.steps.policy import BoxPolicy, RowPolicy
from bucketflow.tasks.steps.semiring import MIN_PLUS
from bucketflow.tasks.steps.step import make_step
from tests.memory import traced
from tests.pipeline.runs.test_rows_stored import plain as plain
from tests.pipeline.runs.test_rows_stored import stored
from tests.policies import InForce


def band_grid(rows: int, columns: int, states: int) -> Model:
    """A grid whose neighbours differ by one state at most: tables of few rows, and wide ones between its halves."""
    rng = np.random.default_rng(0)
    near = np.argwhere(np.abs(np.subtract.outer(*[np.arange(states)] * 2)) <= 1).astype(np.uint8)
    places = [(r, c) for r in range(rows) for c in range(columns)]
    pairs = [(a, b) for a in places for b in places if (b[0] - a[0], b[1] - a[1]) in {(0, 1), (1, 0)}]
    name = "x{0[0]}_{0[1]}".format
    functions = [([name(a), name(b)], near, rng.integers(0, 100, len(near)), 10_000) for a, b in pairs]
    return Model.build("cost", dict.fromkeys(map(name, places), states), functions, top=10_000)


def test_what_is_known_of_runs_is_in_the_account(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """Receipts of many boxes count, and nothing else of them stays: no layouts of their ranges, no lowered steps."""
    model, make, seen = band_grid(3, 3, 8), row_tables.RowTables.make, list[tuple[int, int]]()
    complete = row_steps.BoxedStep.complete

    def cut_first(step: Any) -> None:
        for _ in range(2):
            for path, ranges, _ in step.disk.open(step.node):
                step.cut([], path, ranges, 3.0, reads=False)
        complete(step)

    def in_boxes(tables: Any, step: Any) -> None:
        make(tables, step)
        gc.collect()
        held = sum(tables._bytes_of(table, tables.steps[node]) for node, table in tables.held.items())
        seen.append((len(tables.disk.receipts), tracemalloc.get_traced_memory()[0] - held))
        assert tables.room.beside >= len(tables.disk.receipts) * BoxPolicy().receipt_bytes

    in_force(BoxPolicy, memory_first=False)
    monkeypatch.setattr(row_steps.BoxedStep, "complete", cut_first)
    monkeypatch.setattr(row_tables.RowTables, "make", in_boxes)
    in_force(RowPolicy, small_cells=0)
    stored(model, memory="1GB")  # what is imported, and kept once
    shares = []
    for _ in range(2):  # in one of them the interpreter's table of names may grow
        seen.clear()
        forget_layouts()
        step_module._lowered.cache_clear()
        tracemalloc.start()
        stored(model, memory="1GB")
        tracemalloc.stop()
        (first, before), (last, after) = seen[0], seen[-1]
        assert last - first > 80
        shares.append((after - before) / (last - first))
        if shares[-1] <= BoxPolicy().receipt_bytes:
            break
    assert min(shares) <= BoxPolicy().receipt_bytes


def test_runs_of_which_too_much_is_known_are_refused() -> None:
    with pytest.raises(BudgetError, match=r"held in memory need .* kB, allowed .* kB; try"):
        stored(band_grid(5, 5, 10), memory=150_000)


def test_decoding_keeps_to_its_budget() -> None:
    """Joins of what is left to be decoded are made in blocks that fit."""
    rng = np.random.default_rng(0)
    tables = [
        from_dense(Dense(Keys(scope, (60, 60)), rng.integers(1, 1000, 3_600)), MIN_PLUS)
        for scope in ((0, 1), (1, 2), (0, 2))
    ]
    room_ = memory_account.MemoryAccount(4_000_000)
    most = room_.nbytes + 2 * sum(table.nbytes for table in tables)
    peak_bytes, found = traced(lambda: best_row(tables, MIN_PLUS, room_), most)
    assert peak_bytes <= most
    whole = joined_reduced(tables, (), MIN_PLUS)
    assert sum(restricted(table, found).values[0] for table in tables) == whole.values[0]


@pytest.mark.parametrize("real", [False, True])
def test_what_exceeds_a_known_sum_is_not_joined(real: bool) -> None:
    """The best row stays the same where its sum is known before, by all joint states."""
    rng = np.random.default_rng(0)
    for share in np.linspace(0.0, 0.7, 25):
        tables, total = list[Table](), np.zeros((8,) * 4)
        for scope in ((0, 1), (1, 2), (0, 2), (3,)):
            sizes = [8 if v in scope else 1 for v in range(4)]
            values = rng.random(sizes) - 0.5 if real else rng.integers(0, 9, sizes).astype(float)
            values[rng.random(sizes) < share] = np.inf
            table = Dense(Keys(scope, (8,) * len(scope)), values.reshape(-1))
            total = total + values
            tables.append(from_dense(table, MIN_PLUS) if rng.random() < 0.5 else table)
        found = best_row(tables, MIN_PLUS, None, float(total.min()))
        assert total[tuple(found[v] for v in range(4))] == pytest.approx(total.min(), abs=1e-12)
        assert found == best_row(tables, MIN_PLUS)


def test_rows_made_of_arrays_are_in_the_account() -> None:
    """Arrays that a join turns to rows, and its inputs in other orders, fit beside it or it is not made."""
    rng = np.random.default_rng(0)
    cells = np.where(rng.random((3, 40_000)) < 0.3, 1.0, np.inf)
    arrays = [
        Dense(Keys(scope, (200, 200)), values) for scope, values in zip(((0, 1), (2, 1), (2, 0)), cells, strict=True)
    ]
    step = make_step(3, (0, 1, 2), ((0, 1), (2, 1), (2, 0)), (0,), (200, 200, 200), MIN_PLUS)
    refused = 0
    for nbytes in (700_000, 2_000_000, 16_000_000):
        choice = algebra.Representation(MIN_PLUS, (200, 200, 200), memory_account.MemoryAccount(nbytes))

        def is_refused(choice: algebra.Representation = choice) -> bool:
            try:
                choice.joined(step, arrays)
            except memory_account.RowsNoRoomError:
                return True
            return False

        peak_bytes, was_refused = traced(is_refused, nbytes)
        refused += was_refused
        assert peak_bytes <= nbytes
    assert refused == 1


def test_sorted_keys_are_compressed(tmp_path: Path, in_force: InForce) -> None:
    """Any Zarr reader reads them; the answer says what was written."""
    in_force(BoxPolicy, large_part=1 << 60)
    found = stored(band_grid(4, 4, 12), memory="1GB", workdir=tmp_path / "run")
    receipts = ledger.load(tmp_path / "run" / "tables")
    assert found.rows_work.written_bytes == sum(receipt.nbytes for receipt in receipts.values()) > 0
    group: Any = zarr.open_group(tmp_path / "run" / "tables", mode="r")
    keys = [receipt for receipt in receipts.values() if receipt.table.endswith("_keys")]
    raw_bytes = 0
    for receipt in keys:
        words = group[receipt.table][receipt.chunk[0]]
        raw_bytes += words.nbytes
        states = words[: receipt.value["rows"]]
        assert all(a < b for a, b in zip(states.tolist()[:-1], states.tolist()[1:], strict=True))
    assert raw_bytes > 3 * sum(receipt.nbytes for receipt in keys)
