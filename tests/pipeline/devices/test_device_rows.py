"""Tables of rows on a device: the answers of dense ones on the host, in slices too, and when memory runs out.

All run on a stand-in for the device everywhere, and on a GPU where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.queries import decode
from bucketflow.tasks.gpu.arrays import is_device
from bucketflow.tasks.rows import device_algebra as rows_device
from bucketflow.tasks.rows import memory_account
from bucketflow.tasks.rows.relation import Relation
from bucketflow.tasks.steps.policy import RowPolicy
from tests.device_stand_in import RealDevice, StandIn, device, real_device
from tests.models import cost_models
from tests.pipeline.runs.sparse import dense_ring, ring, sparse_models
from tests.policies import InForce

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn | RealDevice]:
    with (device if request.param == "stand-in" else real_device)(monkeypatch) as there:
        yield there


@pytest.fixture
def few(in_force: InForce) -> None:
    """What is small everywhere else is large enough for the device here."""
    in_force(RowPolicy, device_rows=8, small_cells=0)


@pytest.fixture(params=["all rows", "whichever is smaller"])
def kept(request: pytest.FixtureRequest, few: None, monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    if request.param == "all rows":
        in_force(RowPolicy, cells_of_a_row=0, array_share=0.0)
        monkeypatch.setattr(decode, "WHOLE_CELLS", 0)
        monkeypatch.setattr(decode, "WHOLE_BYTES", 0.0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Tables that steps made."""
    found: list[Any] = []
    keep = memory_account.MemoryAccount.made

    def made(self: memory_account.MemoryAccount, table: Any) -> Any:
        found.append(table)
        return keep(self, table)

    monkeypatch.setattr(memory_account.MemoryAccount, "made", made)
    return found


def rows_there(made: list[Any]) -> int:
    """How many of the tables are rows on the device."""
    return sum(isinstance(table, Relation) and is_device(table.words) for table in made)


def by_rows(model: Model, query: Any, **options: Any) -> Any:
    return bucketflow.solve(model, query, representation="rows", gpus=1, **options)


@FEW
@given(model=sparse_models("cost"))
def test_costs(place: Any, kept: None, model: Model) -> None:
    for query in ("optimum", "count"):
        found, dense = by_rows(model, query), bucketflow.solve(model, query, representation="dense")
        assert (found.status, found.value) == (dense.status, dense.value)


@FEW
@given(model=sparse_models("markov"))
def test_probabilities(place: Any, kept: None, model: Model) -> None:
    for query in ("optimum", "partition"):
        found, dense = by_rows(model, query), bucketflow.solve(model, query, representation="dense")
        assert found.status == dense.status
        assert found.log10 is dense.log10 is None or found.log10 == pytest.approx(dense.log10, rel=1e-12, abs=1e-12)


@FEW
@given(model=sparse_models("markov"))
def test_posteriors(place: Any, kept: None, model: Model) -> None:
    options: Any = {"families": True}
    found = bucketflow.marginals(model, representation="rows", gpus=1, **options)
    dense = bucketflow.marginals(model, representation="dense", **options)
    assert found.status == dense.status
    for name in dense:
        np.testing.assert_allclose(found[name], dense[name], rtol=1e-9, atol=1e-300)
    for f in dense.families:
        np.testing.assert_allclose(found.families[f], dense.families[f], rtol=1e-9, atol=1e-300)


@FEW
@given(model=cost_models())
def test_least_costs_of_every_state(place: Any, kept: None, model: Model) -> None:
    found = bucketflow.marginals(model, max_marginals=True, representation="rows", gpus=1)
    dense = bucketflow.marginals(model, max_marginals=True, representation="dense")
    assert (found.status, found.value) == (dense.status, dense.value)
    assert all(np.array_equal(found[name], dense[name]) for name in dense)


@pytest.mark.parametrize("query", ["optimum", "count", "partition"])
def test_slices_read_leaves_that_went_once(
    place: Any, few: None, made: list[Any], query: Any, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(RowPolicy, merged_copies=20)
    copies: list[int] = []
    upload = rows_device.upload

    def counted(arrays: Any) -> Any:
        copies.append(sum(array.nbytes for array in arrays))
        return upload(arrays)

    monkeypatch.setattr(rows_device, "upload", counted)
    model = ring(60, "markov" if query == "partition" else "cost", groups=4)
    whole = bucketflow.solve(model, query, representation="rows")
    found = by_rows(model, query, gpu_memory=900_000)
    assert found.plan.device
    assert found.plan.slices > 1
    assert (found.status, found.value) == (whole.status, whole.value)
    assert found.log10 is whole.log10 is None or found.log10 == pytest.approx(whole.log10, rel=1e-12)
    assert rows_there(made) > 0
    leaves = sum(function.values.size for function in model.functions) * 16
    assert max(copies) > leaves / 4
    assert sum(nbytes > leaves / 4 for nbytes in copies) <= 6  # not once a slice: for each sweep, and to decode


@pytest.mark.parametrize("query", ["optimum", "count", "partition"])
def test_run_directories(place: Any, few: None, query: Any, tmp_path: Path, in_force: InForce) -> None:
    in_force(RowPolicy, merged_copies=20)
    model = ring(60, "markov" if query == "partition" else "cost", groups=4)
    whole = bucketflow.solve(model, query, representation="rows")
    for fit, memory, name in (("auto", 900_000, "slices"), ("spill", 4_000_000, "disk")):
        options: Any = {"gpu_memory": memory, "fit": fit, "workdir": tmp_path / name}
        first = by_rows(model, query, **options)
        (tmp_path / name / "result.json").unlink()
        again = by_rows(model, query, **options)
        for found in (first, again):
            assert found.value == whole.value
            assert found.log10 is whole.log10 is None or found.log10 == pytest.approx(whole.log10, rel=1e-12)


def test_what_fits_in_no_slices_is_refused_with_both_numbers(
    place: Any, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BudgetError, match=r"need .* kB, allowed 300 kB"):
        by_rows(ring(60), "optimum", gpu_memory="300kB")


def test_what_runs_out_of_memory_is_planned_again(place: Any, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    join, left = memory_account.joined_reduced, [2]

    def refusing(inputs: Any, *args: Any) -> Any:
        if is_device(inputs[0].values) and left[0]:
            left[0] -= 1
            raise cupy.cuda.memory.OutOfMemoryError(1, 0)
        return join(inputs, *args)

    monkeypatch.setattr(memory_account, "joined_reduced", refusing)
    found = by_rows(ring(60), "optimum")
    assert left == [0]
    assert found.value == bucketflow.solve(ring(60), representation="rows").value
    assert "the device ran out of memory" in found.notes[0]


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
def test_rows_are_tried_before_functions_are_made_dense(place: Any, few: None, made: list[Any], query: Any) -> None:
    model = ring(20, "markov" if query == "partition" else "cost", groups=4)
    found = bucketflow.solve(model, query, gpus=1)
    assert found.rows_work is not None
    assert rows_there(made) > 0
    rows = bucketflow.solve(model, query, representation="rows")
    assert (found.status, found.value) == (rows.status, rows.value)
    assert found.log10 is rows.log10 is None or found.log10 == pytest.approx(rows.log10, rel=1e-12)


def test_small_steps_stay_on_the_host(place: Any, made: list[Any]) -> None:
    found = by_rows(dense_ring(), "optimum")
    assert found.value == bucketflow.solve(dense_ring(), representation="dense").value
    assert rows_there(made) == 0
