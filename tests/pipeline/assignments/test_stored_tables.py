"""Samples and the best assignments from tables on disk, by rows and from a GPU: as from dense tables in memory."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketflow import BudgetError, Model, ModelError, best, marginals, sample
from bucketflow.pipeline.assignments import kept_sweep
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.runs.row_sweep import RowTables
from bucketflow.tasks.gpu.device_policy import DevicePolicy
from bucketflow.tasks.rows.device_algebra import entries
from bucketflow.tasks.rows.memory_account import MemoryAccount, RowsNoRoomError, TooMuchWorkError
from bucketflow.tasks.steps.policy import BoxPolicy, SweepPolicy
from tests.device_stand_in import device
from tests.exact import Weights, costs
from tests.models import cost_models, grid, markov_models
from tests.pipeline.assignments.test_samples import FAR, joint_deviation

FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DRAWS = 1500


def values(found: Any) -> list[Any]:
    """What is listed, without the assignments: equals may come in any order."""
    return [each.value if each.log10 is None else pytest.approx(each.log10) for each in found]


def joints(model: Model, names: list[str], **asked: Any) -> float:
    """How far the joint of some variables is from its exact one."""
    found = sample(model, DRAWS, seed=3, **asked)
    exact = marginals(model, joint=[tuple(names)]).joint[tuple(names)]
    weights = {cell: float(exact[cell]) for cell in np.ndindex(exact.shape)}
    states = np.stack([found[name] for name in names], axis=1)
    return joint_deviation(states, weights, exact.shape)


@pytest.mark.parametrize("kind", ["markov", "steep"])
def test_draws_from_boxes_on_disk_are_exact(kind: str) -> None:
    model = grid(5, 5, 3, kind)
    with BudgetPolicy.using(margin_bytes=0):
        found = sample(model, DRAWS, fit="spill", memory="760kB")
        assert found.plan is not None
        assert found.plan.spill is not None
        assert [found.plan.spill.boxes(stage) for stage in found.plan.spill.stages] == [9, 9, 27]
        assert joints(model, ["x0", "x6", "x12"], fit="spill", memory="760kB") < FAR
        assert joints(model, ["x23", "x24", "x18"], fit="spill", memory="740kB") < FAR


@pytest.mark.parametrize("kind", ["cost", "markov"])
@pytest.mark.parametrize("memory", ["24kB", "20kB"])
def test_the_best_from_boxes_on_disk_are_the_same(kind: str, memory: str) -> None:
    model = grid(5, 5, 3, kind, seed=1)
    expected = values(best(model, 12))
    with BudgetPolicy.using(margin_bytes=0):
        found = best(model, 12, fit="spill", memory=memory)
        assert found.plan is not None
        assert found.plan.spill is not None
        assert max(found.plan.spill.boxes(stage) for stage in found.plan.spill.stages) > 1
        assert values(found) == expected
    first = next(best(model, 3, fit="spill"))
    assert first.rank == 1


@given(markov_models())
@FEW
def test_draws_by_rows_are_exact(model: Model) -> None:
    weights = Weights(model, {}).weights
    if not weights:
        with pytest.raises(ModelError, match="nothing to draw from"):
            sample(model, 3, representation="rows")
        return
    found = sample(model, DRAWS, seed=1, representation="rows")
    scaled = {states: weight / max(weights.values()) for states, weight in weights.items()}
    assert joint_deviation(found.states, scaled, model.dims) < FAR


@given(cost_models())
@FEW
def test_the_best_by_rows_are_those_of_an_enumeration(model: Model) -> None:
    expected = sorted(costs(model, {}).values())[:7]
    found = [*islice(best(model, 7, representation="rows"), 7)]
    assert [each.value for each in found] == expected
    assert len({tuple(each.assignment.items()) for each in found}) == len(found)


def test_the_best_and_draws_from_rows_on_disk_are_those_of_rows_in_memory() -> None:
    """Every step in boxes, as if nothing fitted; one seed draws the same from tables wherever they are."""
    for kind in ("cost", "markov"):
        model = grid(4, 4, 3, kind, seed=3)
        expected = values(best(model, 12, representation="rows"))
        with BoxPolicy.using(memory_first=False):
            found = best(model, 12, representation="rows", fit="spill")
            assert found.plan is not None
            assert found.plan.rows_stored
            assert values(found) == expected
    here = sample(model, 300, seed=2, representation="rows")
    with BoxPolicy.using(memory_first=False):
        stored = sample(model, 300, seed=2, representation="rows", fit="spill", workers=2)
        assert (stored.states == here.states).mean() > 0.99  # sums of another order may round otherwise
        assert joints(model, ["x0", "x5", "x10"], representation="rows", fit="spill") < FAR


def test_where_all_cells_are_refused_few_possible_ones_are_rows_and_that_is_said() -> None:
    states, rng = 600, np.random.default_rng(0)
    names = [f"x{i}" for i in range(4)]
    pairs = [((a, b), np.stack([np.arange(states), rng.permutation(states)], axis=1)) for a, b in pairwise(names)]
    listed: list[Any] = [(pair, rows, rng.integers(1, 50, states), 0) for pair, rows in pairs]
    model = Model.build("markov", dict.fromkeys(names, states), listed)
    exact = sorted(best(model, 5), key=lambda each: each.rank)
    with BudgetPolicy.using(margin_bytes=0):
        found = best(model, 5, memory="600kB")
        assert found.plan is not None
        assert found.plan.rows_stored
        assert any("tables are sparse, because" in note for note in found.notes)
        assert values(found) == [each.log10 for each in exact]
        drawn = sample(model, 50, memory="900kB")
        assert any("tables are sparse, because" in note for note in drawn.notes)
        with pytest.raises(BudgetError):
            best(model, 5, memory="600kB", representation="dense")


def test_draws_that_do_not_fit_together_read_only_rows_that_agree() -> None:
    model = grid(4, 4, 3, "markov", seed=3)
    read, narrow = RowTables.inputs_at, set[int]()

    def little(self: Any, step: Any, states: Any) -> Any:
        narrow.add(len(states))
        if len(states) < min(len(step.axes), 2):
            raise RowsNoRoomError((), 2, 1)
        return read(self, step, states)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowTables, "inputs_at", little)
        assert joints(model, ["x0", "x5", "x10"], representation="rows", fit="spill") < FAR
        assert joints(model, ["x15", "x14", "x9"], representation="rows", fit="spill") < FAR
    assert narrow == {0, 1, 2}


@pytest.mark.parametrize("query", [sample, best])
def test_rows_on_disk_that_take_longer_than_allowed_are_refused(query: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def long(self: MemoryAccount, rows: float) -> None:
        raise TooMuchWorkError

    monkeypatch.setattr(MemoryAccount, "work", long)
    with pytest.raises(BudgetError, match="longer than allowed"):
        query(grid(4, 4, 3, "markov", seed=3), 3, representation="rows", fit="spill")


@given(cost_models(), st.sampled_from([(1, 1 << 16), (4, 1), (4, 16)]))
@FEW
def test_every_way_to_choose_lists_the_same(model: Model, limits: tuple[int, int]) -> None:
    expected = sorted(costs(model, {}).values())[:9]
    with SweepPolicy.using(joint_states=limits[0], joined_cells=limits[1]):
        found = [*islice(best(model, 9), 9)]
    assert [each.value for each in found] == expected
    assert len({tuple(each.assignment.items()) for each in found}) == len(found)


def test_optima_by_rows_and_on_disk_are_not_counted_and_that_is_said() -> None:
    model = grid(3, 3, 2)
    for asked in ({"representation": "rows"}, {"fit": "spill"}):
        found = best(model, 1, count_optimal=True, **asked)  # type: ignore[arg-type]
        assert found.optimal_count is None
        assert any("not counted" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["cost", "markov"])
def test_a_device_sweeps_and_this_process_walks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(5, 5, 4, kind, seed=2)
    expected = values(best(model, 5))
    drawn = sample(model, 200, seed=4) if kind == "markov" else None
    kept, places = kept_sweep.kept_tables, set[type]()

    def watched(*args: Any, **options: Any) -> Any:
        found = kept(*args, **options)
        places.update(type(entries(table)) for table in found.tables.values())
        return found

    monkeypatch.setattr(kept_sweep, "kept_tables", watched)
    with device(monkeypatch), DevicePolicy.using(step_least_cells=100):
        here = best(model, 5, gpus=1)
        assert values(here) == expected
        assert any("takes less time than starting a device" in note for note in here.notes)
    places.clear()
    with device(monkeypatch), DevicePolicy.using(step_least_cells=100):
        assert values(best(model, 5, gpus=1, fit="slice")) == expected
        if drawn is not None:
            assert (
                sample(model, 200, seed=4, gpus=1, fit="slice").states.mean(axis=0) - drawn.states.mean(axis=0)
            ).std() < 0.2
            assert joints(model, ["x0", "x6", "x12"], gpus=1, fit="slice") < FAR
    assert places == {np.ndarray}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"representation": "rows", "gpus": 1}, "from sparse tables are computed on this machine's CPU cores; 'gpus'"),
        ({"workdir": "x"}, "'workdir' does not apply"),
    ],
)
def test_what_does_not_go_together_is_refused(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        sample(grid(2, 2, 2, "markov"), 3, **asked)
    with pytest.raises(ModelError, match=why):
        best(grid(2, 2, 2), 3, **asked)


def test_tables_of_rows_that_do_not_fit_are_refused_with_both_numbers() -> None:
    with pytest.raises(BudgetError, match=r"need .*, allowed "):
        best(grid(7, 7, 4), 1, memory="100kB", representation="rows")
