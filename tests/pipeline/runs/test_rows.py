"""Tables that hold only what is possible: the answers of dense ones, whatever the query, and however they are cut."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import bucketflow
from bucketflow import Model
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering import prepared as prepared_module
from bucketflow.pipeline.answering.engines import row_engines
from bucketflow.pipeline.answering.engines.strategy_policy import POLICY, StrategyPolicy, TurnLengths
from bucketflow.pipeline.answering.prepared import Prepared, prepare
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.answering.row_trials import in_slices
from bucketflow.pipeline.answering.running import answered, run_of
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.errors import BudgetError, ModelError
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.plans.planner import HopelessError, Planner
from bucketflow.pipeline.queries import decode
from bucketflow.pipeline.results.proof import plan_figures
from bucketflow.pipeline.runs.slices import run_group, slices_of
from bucketflow.tasks.rows import algebra, memory_account
from bucketflow.tasks.rows.host import HostRows
from bucketflow.tasks.rows.memory_account import RowsNoRoomError
from bucketflow.tasks.steps.policy import RowPolicy
from tests.memory import traced
from tests.models import brute_count
from tests.pipeline.queries.test_counts import chain
from tests.pipeline.runs.sparse import COSTS, FEW, WEIGHTS, dense_ring, ring, sparse_models
from tests.policies import InForce
from tests.strategies import solve_by


@pytest.fixture(params=["all rows", "whichever is smaller"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """Small tables are arrays all the same, but for tests of rows."""
    in_force(RowPolicy, small_cells=0)
    if request.param == "all rows":
        in_force(RowPolicy, cells_of_a_row=0, array_share=0.0)
        monkeypatch.setattr(decode, "WHOLE_CELLS", 0)
        monkeypatch.setattr(decode, "WHOLE_BYTES", 0.0)


def both(model: Model, query: str, **options: Any) -> Iterator[Any]:
    """Answers by rows and dense."""
    for representation in ("rows", "dense"):
        yield bucketflow.solve(model, query, representation=representation, **options)  # type: ignore[arg-type]


@FEW
@given(model=COSTS)
def test_least_costs(kept: None, model: Model) -> None:
    rows, dense = both(model, "optimum")
    assert (rows.status, rows.value) == (dense.status, dense.value)
    if rows.assignment is not None:
        assert model.cost([int(state) for state in rows.assignment.values()]) == rows.value


@FEW
@given(model=sparse_models("cost"))
def test_counts(kept: None, model: Model) -> None:
    rows, dense = both(model, "count")
    assert rows.value == dense.value


def test_counts_below_top(kept: None) -> None:
    assert bucketflow.solve(chain(4, 3, 5, 9), "count", representation="rows").value == brute_count(
        chain(4, 3, 5, 9), {}
    )


@FEW
@given(model=WEIGHTS)
def test_best_probabilities_sums_and_counts(kept: None, model: Model) -> None:
    for query in ("optimum", "partition"):
        rows, dense = both(model, query)
        assert rows.status == dense.status
        assert rows.log10 is dense.log10 is None or rows.log10 == pytest.approx(dense.log10, rel=1e-12, abs=1e-12)
    rows, dense = both(model, "count")
    assert rows.value == dense.value


@FEW
@given(model=COSTS)
def test_least_costs_of_every_state(kept: None, model: Model) -> None:
    rows, dense = (bucketflow.marginals(model, max_marginals=True, representation=r) for r in ("rows", "dense"))
    assert (rows.status, rows.value) == (dense.status, dense.value)
    assert all(np.array_equal(rows[name], dense[name]) for name in dense)


@FEW
@given(model=WEIGHTS)
def test_posteriors(kept: None, model: Model) -> None:
    for max_marginals in (False, True):
        options: Any = {"max_marginals": max_marginals, "families": True}
        rows, dense = (bucketflow.marginals(model, representation=r, **options) for r in ("rows", "dense"))
        assert rows.status == dense.status
        for name in dense:
            np.testing.assert_allclose(rows[name], dense[name], rtol=1e-9, atol=1e-300)
        for f in dense.families:
            np.testing.assert_allclose(rows.families[f], dense.families[f], rtol=1e-9, atol=1e-300)


def prepared_by_rows(model: Model, query: str, **options: Any) -> Prepared:
    """A question planned by rows."""
    return prepare(question_of(model, query), Resources(Options(representation="rows", **options)))


@pytest.mark.usefixtures("compiled_at_once")
@pytest.mark.parametrize("compiled", [False, True])
def test_tables_keep_to_their_budget(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostRows, "compiles", lambda *_: compiled)
    model = ring(60)
    free = bucketflow.solve(model, representation="rows")
    assert free.rows_work is not None
    assert free.rows_work.largest_rows == 3_600
    slices = set()
    for memory in (2_500_000, 520_000):
        prepared = prepared_by_rows(model, "optimum", memory=memory)
        peak_bytes, found = traced(
            lambda own=prepared: in_slices(own, lambda once: answered(once, None, None, [])), memory - model.nbytes
        )
        assert found.value == free.value
        assert peak_bytes <= memory - model.nbytes
        slices.add(found.plan.slices)
    assert min(slices) == 1 < max(slices)


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    """Results are said to take more memory than they do."""
    monkeypatch.setattr(HostRows, "compiles", lambda *_: False)
    in_force(RowPolicy, merged_copies=20)


def rows_by(part: float) -> StrategyPolicy:
    """Rows are tried for a part of the sweep's predicted time, however little that is."""
    return replace(POLICY, lengths={**POLICY.lengths, "rows": TurnLengths(part=part, most_turns=1)})


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
def test_rows_are_tried_before_long_sweeps(query: Any, in_force: InForce) -> None:
    model = dense_ring("markov" if query == "partition" else "cost")
    in_force(RowPolicy, small_cells=0)
    options: Any = {"tree": "bucket"}  # neither bounds nor diagrams
    tried = solve_by(rows_by(1.0), model, query, **options)
    dense = bucketflow.solve(model, query, representation="dense", **options)
    assert tried.rows_work is not None
    assert dense.rows_work is None
    assert "would take" in tried.rows_work.why
    assert tried.to_dict()["rows"]["largest_rows"] == tried.rows_work.largest_rows < tried.rows_work.largest_cells
    assert tried.value == dense.value
    assert tried.log10 is dense.log10 is None or tried.log10 == pytest.approx(dense.log10, rel=1e-12)
    ended = solve_by(rows_by(1e-9), model, query, **options)
    assert ended.rows_work is None
    assert (ended.value, ended.log10) == (dense.value, dense.log10)
    assert "sparse tables were tried first" in ended.notes[0]
    assert [(turn.engine, turn.ended) for turn in ended.tried] == [
        ("rows", "they took too long"),
        ("sweep", "answered"),
    ]


def test_whoever_asks_for_all_cells_does_not_wait_for_rows_long(
    monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(RowPolicy, small_cells=0)
    allowed = []
    monkeypatch.setattr(row_engines, "trial_beside", lambda _, most_work: allowed.append(most_work))
    model, policy = dense_ring("markov"), rows_by(1e12)
    solve_by(policy, model, "partition", tree="bucket")
    solve_by(policy, model, "partition", tree="bucket", method="dense")
    assert allowed[0] > prepared_module.PATIENCE
    assert allowed[1:] == [prepared_module.SHORT_PATIENCE]


def test_what_is_refused_dense_is_answered_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise BudgetError("the plan needs too much")

    monkeypatch.setattr(prepared_module, "fitted", refuse)
    model, options = dense_ring(), dict[str, Any](method="dense")
    found = bucketflow.solve(model, **options)
    assert found.rows_work is not None
    assert "the dense sweep was refused" in found.rows_work.why
    assert found.value == bucketflow.solve(model, representation="rows").value
    shown = bucketflow.plan(model)
    assert shown is not None
    assert "rows            <= " in repr(shown)
    assert plan_figures(shown)["most_rows"] == shown.most_rows  # type: ignore[index]
    with pytest.raises(BudgetError, match="the plan needs"):
        bucketflow.solve(model, representation="dense", **options)
    monkeypatch.setattr(prepared_module, "PATIENCE", 1.0)
    unswept: Any = {"fit": "auto", "tree": "bucket"}
    with pytest.raises(BudgetError, match="--representation rows runs without this limit"):
        bucketflow.solve(model, **unswept)
    # whoever asks for all cells does not wait for rows as long
    assert bucketflow.solve(model, **options).value == found.value
    monkeypatch.setattr(prepared_module, "SHORT_PATIENCE", 1.0)
    with pytest.raises(BudgetError, match="--representation rows runs without this limit"):
        bucketflow.solve(model, **options)


def test_rows_begin_with_the_tree_of_a_search_that_was_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    trees: list[Any] = []

    def refuse(planner: Planner, *_: Any) -> None:
        trees.append(TreeSearch(planner.problem.dims, planner.problem.scopes).cheapest())
        raise pickle.loads(pickle.dumps(HopelessError("the plan needs too much", trees[-1])))

    monkeypatch.setattr(prepared_module, "fitted", refuse)
    monkeypatch.setattr(Planner, "tree", lambda *_, **__: pytest.fail("searched again"))
    found = bucketflow.solve(dense_ring(), method="dense")
    assert found.plan is not None
    assert found.plan.tree.children == trees[0].children


def test_rows_are_not_tried_where_far_too_many_are_expected(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    def refuse(planner: Planner, *_: Any) -> None:
        raise HopelessError("the plan needs too much", planner.search.cheapest())

    monkeypatch.setattr(prepared_module, "fitted", refuse)
    in_force(RowPolicy, hopeless_ratio=0.0)
    with pytest.raises(BudgetError, match=r"^the plan needs too much$"):
        bucketflow.solve(dense_ring(), method="dense")


@pytest.mark.parametrize("query", ["optimum", "partition", "count"])
def test_rows_are_tried_before_functions_are_made_dense(query: Any) -> None:
    model = ring(20, "markov" if query == "partition" else "cost", groups=4)
    found = bucketflow.solve(model, query)
    assert found.rows_work is not None
    assert "functions have 2^" in found.rows_work.why
    rows = bucketflow.solve(model, query, representation="rows")
    assert (found.value, found.log10) == (rows.value, rows.log10)


def test_compiled_models_are_dense() -> None:
    with pytest.raises(ModelError, match="tables of compiled models are dense"):
        bucketflow.compile(dense_ring("markov"), representation="rows")


def test_what_fits_in_no_slices_is_refused_with_both_numbers(tight: None, in_force: InForce) -> None:
    in_force(BudgetPolicy, most_slices=9)
    with pytest.raises(BudgetError, match=r"need .* kB, allowed 300 kB"):
        bucketflow.solve(ring(60), representation="rows", memory="300kB")
    with pytest.raises(BudgetError, match=r"a sparse table needs at least .*, allowed .*; try"):
        bucketflow.solve(ring(60), representation="rows", memory=600_000)


@pytest.mark.parametrize("query", ["optimum", "count", "partition"])
def test_slices_add_up_and_their_receipts_are_kept(tight: None, query: Any, tmp_path: Path) -> None:
    model = ring(60, "markov" if query == "partition" else "cost", groups=4)
    whole = bucketflow.solve(model, query, representation="rows")
    options: Any = {"representation": "rows", "memory": 900_000, "workdir": tmp_path / "run"}
    found = bucketflow.solve(model, query, **options)
    assert found.plan is not None
    assert found.plan.slices > 1
    assert whole.plan is not None
    assert found.plan.slice_overhead == found.plan.cells / whole.plan.cells
    assert found.value == whole.value
    assert found.log10 is whole.log10 is None or found.log10 == pytest.approx(whole.log10, rel=1e-12)
    (tmp_path / "run" / "result.json").unlink()
    again = bucketflow.solve(model, query, **options)
    assert (again.value, again.log10, again.plan and again.plan.slices) == (found.value, found.log10, found.plan.slices)
    # only the slice that is decoded is swept again
    assert again.rows_work is None or again.rows_work.tables < 5


def test_marginals_of_slices(tight: None) -> None:
    model = ring(60, "markov", groups=4)
    whole = bucketflow.marginals(model, representation="rows")
    found = bucketflow.marginals(model, representation="rows", memory=700_000)
    assert found.plan is not None
    assert found.plan.slices > 1
    for name in whole:
        np.testing.assert_allclose(found[name], whole[name], rtol=1e-12)


def test_rows_travel_to_workers(tight: None) -> None:
    model = ring(60, groups=4)
    prepared = prepared_by_rows(model, "optimum", memory=900_000)
    run = run_of(prepared, SerialPool(), None)
    slices = slices_of(run)
    sent = pickle.loads(pickle.dumps(slices))
    allowed = sent.program.algebra.choice.room.nbytes
    assert run.room is not None
    assert allowed == run.room.nbytes
    with pytest.raises(RowsNoRoomError) as stopped:
        run_group(sent, 0, 1)
    error = pickle.loads(pickle.dumps(stopped.value))
    assert (error.axes, error.needed, error.allowed) == (stopped.value.axes, stopped.value.needed, allowed)


def test_small_tables_are_multiplied_before_rows_meet_them(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(12)]
    rows = np.unique(rng.integers(0, 4, (300, 9)), axis=0)
    functions: list[Any] = [(names[:9], rows, rng.integers(0, 9, len(rows)), 1000)]
    pairs = [(a, b) for a in range(9) for b in range(9, 12)]
    functions += [([names[a], names[b]], rng.integers(0, 9, (4, 4))) for a, b in pairs]
    model = Model.build("cost", dict.fromkeys(names, 4), functions, top=1000)
    inputs, join = [0], memory_account.joined_reduced

    def counted(tables: Any, *args: Any) -> Any:
        inputs.append(len(tables))
        return join(tables, *args)

    monkeypatch.setattr(memory_account, "joined_reduced", counted)
    in_force(RowPolicy, cells_of_a_row=0)
    found = bucketflow.solve(model, representation="rows", tree="junction")
    assert found.value == bucketflow.solve(model, representation="dense").value
    assert 0 < max(inputs) < 8


def test_rows_with_few_cells_are_decoded_as_arrays(monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    in_force(RowPolicy, small_cells=0, array_share=0.0)
    model = dense_ring()
    monkeypatch.setattr(algebra, "best_row", None)
    found = []
    for cells, share in ((10**6, 0.0), (0, 1e6)):
        monkeypatch.setattr(decode, "WHOLE_CELLS", cells)
        monkeypatch.setattr(decode, "WHOLE_BYTES", share)
        found.append(bucketflow.solve(model, representation="rows").value)
    assert found == [bucketflow.solve(model, representation="dense").value] * 2
