"""Functions over very many variables that list few assignments: chains of small functions stand for them."""

from __future__ import annotations

import math
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import BudgetError, Model, ModelError
from bucketflow.pipeline.answering import question as questions
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.models.function import FORBIDDEN, Function
from bucketflow.pipeline.preprocessing.preprocessing_policy import PreprocessingPolicy
from bucketflow.pipeline.preprocessing.wide_tables import with_links
from tests.memory import traced
from tests.models import named_model


@st.composite
def listed(draw: st.DrawFn) -> Model:
    """Functions by rows that are worth something elsewhere too, over up to all of a few variables."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["cost", "markov"]))
    dims = draw(st.lists(st.integers(1, 3), min_size=1, max_size=7))
    functions = []
    for _ in range(draw(st.integers(1, 3))):
        scope = tuple(rng.permutation(len(dims))[: draw(st.integers(1, len(dims)))].tolist())
        rows = np.unique([[rng.integers(dims[v]) for v in scope] for _ in range(draw(st.integers(1, 9)))], axis=0)
        if kind == "cost":
            values = rng.choice([*range(9), FORBIDDEN], len(rows))
            functions.append(Function(scope, values, rows, default=int(rng.integers(9))))
        else:
            functions.append(Function(scope, rng.choice([0.0, 0.5, 2.0], len(rows)), rows, default=1.0))
    return named_model(kind, dims, functions)


@settings(max_examples=40)
@given(model=listed(), cells=st.sampled_from([1, 12, 64]))
def test_chains_have_the_same_optima(model: Model, cells: int) -> None:
    with PreprocessingPolicy.using(wide_cells=0, link_cells=cells):
        found = bucketflow.solve(model)
    wanted = bucketflow.solve(model, representation="dense")
    assert (found.status, found.value) == (wanted.status, wanted.value)
    assert found.log10 is wanted.log10 is None or found.log10 == pytest.approx(wanted.log10)
    if found.assignment is not None:
        assert [*found.assignment] == [*model.names]
        states = [int(found.assignment[name]) for name in model.names]
        if model.kind == "cost":
            assert model.cost(states) == found.value
        else:
            assert model.log10_value(states) == pytest.approx(found.log10)


@settings(max_examples=15)
@given(model=listed())
def test_every_assignment_has_one_of_the_links(model: Model) -> None:
    with PreprocessingPolicy.using(wide_cells=0, link_cells=1):
        chained = with_links(model)
    for query in ("partition", "count"):
        if query == "count" or model.kind == "markov":
            one, other = (bucketflow.solve(m, query, representation="dense") for m in (model, chained))  # type: ignore[arg-type]
            assert one.value == other.value
            assert one.log10 is other.log10 is None or one.log10 == pytest.approx(other.log10)


@settings(max_examples=30)
@given(model=listed(), cells=st.sampled_from([1, 12, 64]), max_marginals=st.booleans(), observe=st.booleans())
def test_chains_have_the_same_marginals(model: Model, cells: int, max_marginals: bool, observe: bool) -> None:
    max_marginals = max_marginals or model.kind == "cost"
    evidence = {model.names[0]: 0} if observe else {}
    wanted = bucketflow.marginals(model, max_marginals=max_marginals, evidence=evidence, joint=[model.names[-2:]])
    with (
        PreprocessingPolicy.using(wide_cells=0, link_cells=cells, chained_cells=0),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(questions, "has_fewer_cells", lambda *_: True)
        found = bucketflow.marginals(model, max_marginals=max_marginals, evidence=evidence, joint=[model.names[-2:]])
        compiled = bucketflow.compile(model) if model.kind != "cost" and not max_marginals else None
    assert (found.status, found.value, [*found]) == (wanted.status, wanted.value, [*wanted])
    for name, table in wanted.items():
        np.testing.assert_allclose(found[name].astype(float), table.astype(float), atol=1e-12)
    for names, table in wanted.joint.items():
        np.testing.assert_allclose(found.joint[names].astype(float), table.astype(float), atol=1e-12)
    if compiled is not None:
        compiled.set_evidence(evidence)
        assert compiled.marginals().log10_evidence == pytest.approx(wanted.log10_evidence)


def test_a_function_of_two_large_domains_is_no_table_on_the_way_to_a_chain() -> None:
    size = 40_000  # of 12.8 GB as a table
    costs = [(["a"], np.arange(size)), (["a", "b"], [[5, 5], [7, 9]], [100, 2], 0)]
    model = Model.build("cost", {"a": size, "b": size}, costs)
    peak, found = traced(lambda: with_links(model), 100_000_000)
    assert found is model
    assert peak < 100_000_000
    with pytest.raises(BudgetError, match="allowed 10 MB"):
        bucketflow.solve(model, memory="10MB")
    assert bucketflow.solve(model, "count", memory="10MB").value == size**2


def clauses(path: Path, weighted: bool) -> Path:
    """One of 150 variables is true, and of all but the last ten; each costs more than the one before."""
    head, hard, soft = ("p wcnf 150 152 9999", "9999 ", "{} ") if weighted else ("p cnf 150 11", "", "")
    wide = [" ".join(map(str, range(1, n + 1))) for n in (150, 140)]
    lines = [head, *(f"{hard}{literals} 0" for literals in wide)]
    if weighted:
        lines += [f"{soft.format(3 * v)}-{v} 0" for v in range(1, 151)]
    else:
        lines += [f"-{v} 0" for v in range(1, 10)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_clauses_of_150_variables(tmp_path: Path) -> None:
    model = bucketflow.load(clauses(tmp_path / "wide.wcnf", weighted=True))
    found = bucketflow.solve(model)
    assert (found.status, found.value) == ("optimal", 3)
    assert found.assignment is not None
    assert [name for name, state in found.assignment.items() if state] == ["x1"]
    assert bucketflow.solve(model, evidence={"x1": 0, "x3": 0}).value == 6
    satisfied = bucketflow.solve(bucketflow.load(clauses(tmp_path / "wide.cnf", weighted=False)))
    assert (satisfied.status, satisfied.log10) == ("optimal", 0.0)


def test_a_run_is_continued(tmp_path: Path) -> None:
    model = bucketflow.load(clauses(tmp_path / "wide.wcnf", weighted=True))
    found = bucketflow.solve(model, workdir=tmp_path / "run")
    again = bucketflow.resume(tmp_path / "run")
    assert (again.value, again.assignment) == (found.value, found.assignment)  # type: ignore[union-attr]


def test_narrow_functions_stay() -> None:
    rows = np.zeros((1, 20), np.uint8)
    model = named_model("cost", [2] * 20, [Function(tuple(range(20)), np.array([7]), rows, default=0)])
    assert with_links(model) is model
    forbidding = Function(tuple(range(30)), np.array([7]), np.zeros((1, 30), np.uint8), default=FORBIDDEN)
    listed_only = named_model("cost", [2] * 30, [forbidding])
    assert with_links(listed_only) is listed_only


def wide_model(seed: int, kind: str) -> Model:
    """Rows over 17 of 18 variables, which are worth something elsewhere, with small functions beside them."""
    rng, n = np.random.default_rng(seed), 18
    functions = []
    for _ in range(2):
        scope = tuple(rng.permutation(n)[:17].tolist())
        rows = np.unique(rng.integers(0, 2, (int(rng.integers(1, 4)), 17)), axis=0)
        if kind == "cost":
            functions.append(Function(scope, rng.choice([0, 7, FORBIDDEN], len(rows)), rows, default=2))
        else:
            functions.append(Function(scope, rng.choice([0.0, 1e4, 3e5], len(rows)), rows, default=1.0))
    for v in range(n - 1):
        values = rng.integers(0, 5, (2, 2))
        functions.append(Function((v, v + 1), values if kind == "cost" else values + 0.25))
    return named_model(kind, [2] * n, functions)


def dense_values(model: Model) -> np.ndarray:
    """The value of every assignment, an axis a variable."""
    total = np.zeros((2,) * 18) if model.kind == "cost" else np.ones((2,) * 18)
    for function in model.functions:
        order = np.argsort(function.scope)
        shape = [2 if v in function.scope else 1 for v in range(18)]
        table = function.dense(model.dims).transpose(order).reshape(shape).astype(float)
        table = np.where(table >= FORBIDDEN, np.inf, table) if model.kind == "cost" else table
        total = total + table if model.kind == "cost" else total * table
    return total


@pytest.mark.parametrize("seed", range(3))
def test_marginals_sums_and_counts_of_wide_functions(seed: int) -> None:
    model = wide_model(seed, "markov")
    assert question_of(model, "marginals").chained.model is not model
    table = dense_values(model)
    found = bucketflow.marginals(model, joint=["x3", "x11"])
    most = bucketflow.marginals(model, max_marginals=True)
    compiled = bucketflow.compile(model)
    assert [*found] == [*most] == [*model.names]
    assert found.model is most.model is model
    assert found.log10_evidence == pytest.approx(math.log10(table.sum()))
    for v, name in enumerate(model.names):
        others = tuple(a for a in range(18) if a != v)
        np.testing.assert_allclose(found[name], table.sum(axis=others) / table.sum(), atol=1e-12)
        np.testing.assert_allclose(most[name], table.max(axis=others) / table.max(), atol=1e-12)
        np.testing.assert_allclose(compiled.marginals()[name], found[name], atol=1e-12)
    others = tuple(a for a in range(18) if a not in (3, 11))
    np.testing.assert_allclose(found.joint["x3", "x11"], table.sum(axis=others) / table.sum(), atol=1e-12)
    evidence, part = {"x4": 1, "x9": 0}, table[:, :, :, :, 1, :, :, :, :, 0]
    given_ = bucketflow.marginals(model, evidence=evidence, variables=["x0"])
    np.testing.assert_allclose(given_["x0"], part.reshape(2, -1).sum(axis=1) / part.sum(), atol=1e-12)
    compiled.set_evidence(evidence)
    np.testing.assert_allclose(compiled.marginals()["x0"], given_["x0"], atol=1e-12)
    for query, value in (("partition", None), ("count", int((table > 0).sum()))):
        for method in ("dense", "diagram"):
            swept = bucketflow.solve(model, query, method=method)
            assert swept.value == value
            assert swept.log10 is None or swept.log10 == pytest.approx(math.log10(table.sum()))


def test_families_are_of_the_functions_themselves() -> None:
    question = question_of(wide_model(0, "markov"), "marginals", families=True)
    assert question.chained is question


@pytest.mark.parametrize("seed", range(2))
def test_least_costs_and_counts_of_wide_costs(seed: int) -> None:
    model = wide_model(seed, "cost")
    table = dense_values(model)
    found = bucketflow.marginals(model, max_marginals=True)
    assert (found.value, [*found]) == (table.min(), [*model.names])
    for v, name in enumerate(model.names):
        np.testing.assert_array_equal(found[name], table.min(axis=tuple(a for a in range(18) if a != v)))
    assert bucketflow.solve(model, "count", method="dense").value == np.isfinite(table).sum()


def violated(clauses: list[list[int]], weights: np.ndarray) -> float:
    """The weight of all assignments that violate each of some clauses, a pair of weights for each variable."""
    fixed: dict[int, int] = {}
    for literal in chain.from_iterable(clauses):
        if fixed.setdefault(abs(literal), -literal) != -literal:
            return 0.0
    sums = [pair[int(fixed[v] > 0)] if v in fixed else pair.sum() for v, pair in enumerate(weights, 1)]
    return math.prod(sums)


def satisfied(clauses: list[list[int]], weights: np.ndarray) -> float:
    """The weight of all assignments that satisfy all clauses, by inclusion and exclusion."""
    parts = [
        (-1) ** size * violated([*some], weights)
        for size in range(len(clauses) + 1)
        for some in combinations(clauses, size)
    ]
    return math.fsum(parts)


@pytest.mark.parametrize(("seed", "sizes"), [(0, [70]), (1, [40]), (2, [55, 61, 9]), (3, [70, 44, 25, 18, 2, 2])])
def test_marginals_of_long_clauses_by_inclusion_and_exclusion(seed: int, sizes: list[int], tmp_path: Path) -> None:
    rng, n = np.random.default_rng(seed), 70
    clauses = [(rng.permutation(n)[:size] + 1) * rng.choice([-1, 1], size) for size in sizes]
    clauses = [clause.tolist() for clause in clauses]
    weights = rng.integers(1, 9, (n, 2)) / 8
    weights[:, 1] = np.where(rng.random(n) < 0.9, weights[:, 1], 1e-3)
    lines = [f"p cnf {n} {len(clauses)}", *(" ".join(map(str, [*clause, 0])) for clause in clauses)]
    lines += [f"c p weight {(-v, v)[on]} {weights[v - 1, on]} 0" for v in range(1, n + 1) for on in (0, 1)]
    (tmp_path / "a.cnf").write_text("\n".join(lines))
    model = bucketflow.load(tmp_path / "a.cnf")
    found = bucketflow.marginals(model, evidence={"x7": 1})
    weights[6, 0] = 0.0
    total = satisfied(clauses, weights)
    assert [*found] == [*model.names]
    assert found.log10_evidence == pytest.approx(math.log10(total), abs=1e-9)
    for v in range(n):
        on = weights.copy()
        on[v, 0] = 0.0
        assert found[f"x{v + 1}"][1] == pytest.approx(satisfied(clauses, on) / total, abs=1e-9)


def test_long_clauses_are_counted_in_every_way(tmp_path: Path) -> None:
    model = bucketflow.load(clauses(tmp_path / "wide.cnf", weighted=False))
    found = {method: bucketflow.solve(model, "count", method=method).value for method in ("dense", "diagram", "search")}
    assert len(set(found.values())) == 1
    assert found["dense"] == (2**131 - 1) * 2**10


def test_variables_of_chains_have_no_names(tmp_path: Path) -> None:
    path = clauses(tmp_path / "wide.cnf", weighted=False)
    model = bucketflow.load(path)
    (tmp_path / "a.evid").write_text("1 150 1")
    for query in (bucketflow.solve, bucketflow.marginals):
        with pytest.raises(ModelError, match="'link0', which is not a variable"):
            query(model, evidence={"link0": 1})
        with pytest.raises(bucketflow.BucketflowError, match="a variable from 0 to 149"):
            query(model, evidence=tmp_path / "a.evid")
        found = query(model, order=[f"x{v}" for v in range(150, 0, -1)], evidence={"x12": 0})
        assert "link" not in found.to_json()
    done = CliRunner().invoke(main, ["marginals", str(path), "--json"])
    assert done.exit_code == 0
    assert "link" not in done.stdout


def test_many_wide_functions_side_by_side_stay() -> None:
    """Chains of sixty clauses over the same 24 variables take more cells than one table of all of them."""
    rng = np.random.default_rng(0)
    functions = [
        Function(tuple(rng.permutation(24)[:16].tolist()), np.zeros(1), rng.integers(0, 2, (1, 16)), default=1.0)
        for _ in range(60)
    ]
    question = question_of(named_model("markov", [2] * 24, functions), "marginals")
    assert question.chained is question


def test_bounds_of_long_clauses(tmp_path: Path) -> None:
    cost = bucketflow.load(clauses(tmp_path / "wide.wcnf", weighted=True))
    found = bucketflow.bound(cost, time=1)
    assert (found.lower, found.upper) == (3, 3)
    assert [*(found.assignment or {})] == [*cost.names]
    model = bucketflow.load(clauses(tmp_path / "wide.cnf", weighted=False))
    between = bucketflow.bound(model, "partition", time=1)
    exact = bucketflow.solve(model, "count").value
    assert between.lower <= math.log10(exact) <= between.upper
    by_name = bucketflow.bound(model, "partition", z=4, order=[*model.names])
    assert by_name.lower <= math.log10(exact) <= by_name.upper
