"""Batches of cases equal single runs; impossible and endangered cases harm no other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.compiled import case_run
from bucketflow.pipeline.compiled.better_plans import propagation_seconds
from bucketflow.pipeline.compiled.case_program import CompiledPolicy, alone_seconds, together_seconds
from bucketflow.pipeline.models.cases import Cases, cases_of
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.orders.depth_first import sweep_cells
from tests.models import bayes_models, markov_models, named_model
from tests.policies import InForce

PROBABILITIES = st.one_of(markov_models(), bayes_models())


@st.composite
def batch(draw: st.DrawFn) -> tuple[Model, list[dict[str, Any]]]:
    """A model and cases that observe some of its variables."""
    model = draw(PROBABILITIES)
    observed = draw(st.lists(st.integers(0, len(model.dims) - 1), max_size=4, unique=True))
    state = {v: st.one_of(st.none(), st.integers(0, model.dims[v] - 1)) for v in observed}
    case = st.fixed_dictionaries({model.names[v]: s for v, s in state.items()})
    return model, draw(st.lists(case, min_size=1, max_size=6))


def check(model: Model, found: bucketflow.CaseMarginals, evidence: list[dict[str, Any]]) -> None:
    for k, case in enumerate(evidence):
        single = bucketflow.marginals(model, evidence={n: s for n, s in case.items() if s is not None})
        assert found.possible[k] == (single.status == "ok")
        for name, table in found.items():
            assert table[k] == pytest.approx(single[name] if single else 0.0, rel=1e-9, abs=1e-13)
        if single.status == "ok":
            assert found.log10_evidence[k] == pytest.approx(single.log10_evidence, rel=1e-9, abs=1e-9)


@given(case=batch())
def test_batches_equal_single_runs(case: tuple[Model, list[dict[str, Any]]]) -> None:
    model, cases = case
    compiled = bucketflow.compile(model)
    found = compiled.marginals_batch(cases)
    assert not any(np.isnan(table).any() for table in found.values())
    check(model, found, cases)


@given(case=batch(), data=st.data())
def test_shared_findings_and_likelihoods(case: tuple[Model, list[dict[str, Any]]], data: st.DataObject) -> None:
    model, cases = case
    compiled = bucketflow.compile(model)
    name = data.draw(st.sampled_from(model.names))
    state = data.draw(st.integers(0, model.dims[model.index[name]] - 1))
    compiled.add(name, state)
    cases = [{n: s for n, s in c.items() if n != name} for c in cases]
    check(model, compiled.marginals_batch(cases, list(model.names)), [{**c, name: state} for c in cases])
    assert compiled.marginals([name]).status in ("ok", "infeasible")
    weights = np.array([[0.5, 4.0, 1.0, 0.0, 1e-3][: model.dims[model.index[name]]]] * len(cases))
    columns: dict[str, Any] = {n: [c[n] for c in cases] for n in (cases[0] if cases else {})}
    found = compiled.marginals_batch({**columns, name: weights})
    check(model, found, [{**c, name: weights[0]} for c in cases])


def test_blocks_are_cut_by_memory() -> None:
    rng = np.random.default_rng(1)
    functions = [Function((i, (i + 3) % 12), rng.random((3, 3))) for i in range(12)]
    model = named_model("markov", [3] * 12, functions)
    compiled = bucketflow.compile(model)
    cases = {f"x{v}": rng.integers(-1, 3, 300) for v in (0, 4, 7)}
    whole = compiled.marginals_batch(cases)
    with CompiledPolicy.using(block_cells=1):
        blocks = list(compiled.batches(cases))
    assert [len(b.log10_evidence) for b in blocks] == [16] * 18 + [12]
    for name in whole:
        assert np.concatenate([b[name] for b in blocks]) == pytest.approx(whole[name], rel=1e-12)


def test_threads_answer_blocks_concurrently_as_far_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    pairs = [Function((i, (i + 3) % 12), rng.random((24, 24))) for i in range(12)]
    model = named_model("markov", [24] * 12, pairs)  # enough cells that threads do not only wait for Python
    cases = {f"x{v}": rng.integers(-1, 24, 96) for v in (0, 4, 7)}
    original, together, seen = case_run.run_block, threading.Barrier(3), list[tuple[int, int]]()

    def met(program: Any, evidence: Any, count: int, threads: int) -> Any:
        if meeting:
            together.wait(60)
        seen.append((program.block_bytes(count) + program.plan.kept_bytes, threads))
        return original(program, evidence, count, threads)

    monkeypatch.setattr(case_run, "run_block", met)
    monkeypatch.setattr(case_run.CaseRunner, "is_quicker_alone", lambda *_: False)
    with CompiledPolicy.using(block_cells=1):
        meeting = False
        alone = bucketflow.compile(model, threads=1).marginals_batch(cases)
        tight = bucketflow.compile(model, threads=3, memory=2 * seen[0][0]).marginals_batch(cases)
        meeting = True
        shared = bucketflow.compile(model, threads=3).marginals_batch(cases)
    assert [threads for _, threads in seen] == [1] * 6 + [3] * 6 + [1] * 6
    for name, table in alone.items():
        assert table.tolist() == tight[name].tolist() == shared[name].tolist()


def test_only_cases_with_too_wide_a_range_are_computed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likelihoods of 1e-200 at every variable of a chain: their products are far below the smallest float."""
    rng = np.random.default_rng(2)
    model = named_model("markov", [2] * 8, [Function((i, i + 1), rng.random((2, 2))) for i in range(7)])
    weights = rng.random((20, 2))
    weights[3] = [1e-200, 1.0]
    columns = {name: weights if k % 2 else weights[:, ::-1].copy() for k, name in enumerate(model.names)}
    alone = []
    original = case_run.run_block

    def spy(*args: Any) -> Any:
        answer = original(*args)
        alone.append(answer.endangered.tolist())
        return answer

    monkeypatch.setattr(case_run, "run_block", spy)
    found = bucketflow.compile(model).marginals_batch(columns)
    assert alone == [[k == 3 for k in range(20)]]
    check(model, found, [{name: column[k] for name, column in columns.items()} for k in range(20)])


def test_tables_of_any_range() -> None:
    tiny = np.array([[1.0, 1e-150], [1e-150, 1.0]])
    functions = [Function((i, i + 1), tiny) for i in range(12)]
    functions += [Function((i, 13 + i), tiny) for i in range(13)]
    model = named_model("markov", [2] * 26, functions)
    cases = [{f"x{13 + i}": i % 2 for i in range(13)}, {"x13": 0}, {"x13": 0, "x14": 1, "x15": 0}, {}]
    check(model, bucketflow.compile(model).marginals_batch(cases), cases)


@pytest.mark.parametrize("name", ["x0", "x1", "x2"])
def test_findings_on_a_joint_that_no_function_has(name: str) -> None:
    rng = np.random.default_rng(0)
    model = named_model(
        "markov", [2, 3, 2], [Function((0, 1), rng.random((2, 3))), Function((1, 2), rng.random((3, 2)))]
    )
    cases = [{name: 0}, {name: 1}, {}]
    check(model, bucketflow.compile(model, joint=[("x0", "x2")]).marginals_batch(cases), cases)


def test_refusals() -> None:
    model = named_model("markov", [2, 2], [Function((0, 1), np.ones((2, 2)))])
    compiled = bucketflow.compile(model)
    with pytest.raises(bucketflow.ModelError, match="'nobody'"):
        compiled.marginals_batch([{"nobody": 1}])
    with pytest.raises(bucketflow.ModelError, match="no state"):
        compiled.marginals_batch([{"x0": 5}])
    for wrong in ("cases.csv", 3, [3], ["x0"], {"x0": 1}, {"x0": "012"}):
        with pytest.raises(bucketflow.ModelError, match=r"cases (are columns|need a list)"):
            compiled.marginals_batch(wrong)
    with pytest.raises(bucketflow.ModelError, match="different lengths"):
        compiled.marginals_batch({"x0": [1], "x1": [1, 0]})
    assert len(compiled.marginals_batch([]).log10_evidence) == 0


def test_rows_about_a_wide_clause_share_no_order(tmp_path: Path) -> None:
    """The chains that stand for it have variables that no order can name."""
    clause = " ".join(map(str, range(1, 71)))
    (tmp_path / "wide.cnf").write_text(f"p cnf 70 2\n{clause} 0\n-1 -70 0\n")
    rows = [f"wide.cnf,{query}" for query in ("optimum", "count", "partition")]
    (tmp_path / "list.csv").write_text("\n".join(["model,query", *rows]))
    found = bucketflow.batch(tmp_path / "list.csv", tmp_path / "out")
    assert (found.answered, found.exit_code) == (3, 0)


def ring(states: int, variables: int = 12) -> Model:
    """Two rings that share their variables; the tables of a sweep have several variables."""
    rng = np.random.default_rng(5)
    functions = [Function((i, (i + 3) % variables), rng.random((states, states))) for i in range(variables)]
    functions += [Function((i, (i + 1) % variables), rng.random((states, states))) for i in range(variables)]
    return named_model("markov", [states] * variables, functions)


@pytest.mark.parametrize(("states", "count", "together"), [(2, 400, True), (8, 3, False)])
def test_cases_are_answered_together_where_steps_cost_more_than_cells(
    states: int, count: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many cases of small tables share the cost of steps; few cases of large tables compute only their changed
    messages.
    """
    blocks = []
    original = case_run.run_block

    def spy(*args: Any) -> Any:
        blocks.append(args)
        return original(*args)

    monkeypatch.setattr(case_run, "run_block", spy)
    model = ring(states)
    cases = [{f"x{k % 12}": k % states} for k in range(count)]
    compiled = bucketflow.compile(model, threads=1, background=False)
    found = compiled.marginals_batch(cases)
    assert bool(blocks) == together
    check(model, found, cases[:12])


def test_cases_in_turn_are_priced_by_the_messages_that_differ() -> None:
    compiled = bucketflow.compile(ring(3), background=False)
    plan, hosts = compiled.plan, compiled.skeleton.hosts
    assert plan is not None
    seen = np.array([0, 1, 2, 0, 1, 2])
    leaves = {0: hosts[0], 5: hosts[5]}
    one = alone_seconds(plan.steps, Cases(6, {0: seen, 5: np.zeros(6, int)}), leaves, 12, True, 1)
    two = alone_seconds(plan.steps, Cases(6, {0: seen, 5: seen}), leaves, 12, True, 1)
    assert 0 < one <= two
    assert alone_seconds(plan.steps, Cases(6, {0: seen * 0}), leaves, 12, True, 1) == 0
    assert alone_seconds(plan.steps, Cases(6, {0: seen * 0}), leaves, 12, False, 1) > 0
    few, many = (sum(together_seconds(plan.steps, count, 100)) for count in (1, 100))
    assert few < many < 100 * few


def test_threads_answer_no_more_blocks_than_python_can_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a block holds Python for some microseconds: if its cells take no longer, a second thread only waits."""
    monkeypatch.setattr(case_run.CaseRunner, "is_quicker_alone", lambda *_: False)
    rng, cases = np.random.default_rng(1), {"x0": [0, 1] * 2000}
    for states, threads in ((2, 1), (200, 4)):
        chain = [Function((i, i + 1), rng.random((states, states))) for i in range(9)]
        compiled = bucketflow.compile(named_model("markov", [states] * 10, chain), threads=4, background=False)
        runner = case_run._PosteriorRunner(compiled, {}, cases_of(compiled.model, cases), range(10), whole=True)
        with CompiledPolicy.using(block_cells=1):
            runner.plan_blocks(compiled.resources)
            assert runner.blocks_at_once(compiled.resources, 4) == threads


def test_options_of_a_batch_add_to_the_options_of_compile() -> None:
    """A batch with more threads stays within the memory that the model was compiled for."""
    rng = np.random.default_rng(1)
    model = named_model("markov", [3] * 12, [Function((i, (i + 3) % 12), rng.random((3, 3))) for i in range(12)])
    cases = {f"x{v}": rng.integers(-1, 3, 96) for v in (0, 4, 7)}
    free = bucketflow.compile(model, background=False)
    assert free.plan is not None
    tight = bucketflow.compile(model, background=False, memory=free.plan.kept_bytes + 20_000)
    sizes = [
        [len(block.log10_evidence) for block in tight.batches(cases, **options)] for options in ({}, {"threads": 2})
    ]
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) > len([*free.batches(cases)])
    assert len([*tight.batches(cases, memory="1GB")]) == 1


def test_a_tree_of_its_own_is_built_only_for_a_case_that_makes_it_small(
    in_force: InForce, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_force(CompiledPolicy, observing_cells=1, visit_seconds=1e-7)
    trees = []
    original = case_run.observing

    def spy(*args: Any) -> Any:
        trees.append(args)
        return original(*args)

    monkeypatch.setattr(case_run, "observing", spy)
    model = ring(4)
    compiled = bucketflow.compile(model, background=False)
    end = {"x0": 1}
    check(model, compiled.marginals_batch([end, end]), [end, end])
    assert not trees
    most = {f"x{v}": v % 4 for v in range(0, 12, 2)}
    check(model, compiled.marginals_batch([end, most]), [end, most])
    assert trees


def test_a_tree_of_its_own_has_room_for_messages_too(in_force: InForce) -> None:
    in_force(CompiledPolicy, observing_cells=1, visit_seconds=0.0)
    compiled = bucketflow.compile(ring(4), background=False)
    plan = compiled.plan
    assert plan is not None
    cases = cases_of(compiled.model, [{"x0": 1}] * 2)
    runner = case_run._PosteriorRunner(compiled, {}, cases, range(12), whole=True)
    cliques = sweep_cells((1, *plan.tree.dims[1:]), plan.layouts[: plan.tree.n_leaves], 0)
    for cells, fits in ((cliques + 1, False), (2 * cliques, True)):
        trees = runner._own_trees(plan, runner._observations, 8 * 2 * int(cells), 1)
        assert trees is not None
        assert (trees.seconds < 2 * propagation_seconds(plan)) is fits
