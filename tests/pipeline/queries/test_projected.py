"""Projected counts and sums: assignments of some variables that others complete, in every way, against brute force."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import BudgetError, Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.models.model import Function, dense_function, row_function
from tests.models import assignments, bayes_models, cost_models, grid, markov_models, named_model
from tests.strategies import NEVER_QUICK, solve_by

METHODS = ("auto", "dense", "diagram", "search")


def shown_states(model: Model, shown: Collection[int], evidence: dict[str, int]) -> set[tuple[int, ...]]:
    """Assignments of the shown variables that some assignment of the others completes, by looking at all."""
    cost = model.kind == "cost"

    def is_possible(states: tuple[int, ...]) -> bool:
        return model.cost(states) is not None if cost else model.log10_value(states) > -math.inf

    return {tuple(a[v] for v in sorted(shown)) for a in assignments(model, evidence) if is_possible(a)}


def names_of(model: Model, variables: Collection[int]) -> list[str]:
    return [model.names[v] for v in variables]


@settings(max_examples=150, deadline=None)
@given(st.one_of(cost_models(), markov_models(), bayes_models()), st.data())
def test_counts_of_completions(model: Model, data: Any) -> None:
    shown = data.draw(st.sets(st.integers(0, len(model.dims) - 1)))
    observed = data.draw(st.sets(st.integers(0, len(model.dims) - 1), max_size=2))
    evidence = {model.names[v]: data.draw(st.integers(0, model.dims[v] - 1)) for v in observed}
    method = data.draw(st.sampled_from(METHODS))
    expected = len(shown_states(model, shown, evidence))
    asked: dict[str, Any] = {"project": names_of(model, shown), "evidence": evidence}
    if method == "search" and model.kind == "cost":
        with suppress(BudgetError):  # where finite costs may add up to the top
            assert bucketflow.solve(model, "count", method=method, **asked).value == expected
        return
    found = bucketflow.solve(model, "count", method=method, **asked)
    assert (found.query, found.status, found.value) == ("count", "ok", expected)


@settings(max_examples=60, deadline=None)
@given(st.one_of(cost_models(), markov_models()), st.data())
def test_all_engines_take_turns(model: Model, data: Any) -> None:
    shown = data.draw(st.sets(st.integers(0, len(model.dims) - 1)))
    found = solve_by(NEVER_QUICK, model, "count", project=names_of(model, shown))
    assert found.value == len(shown_states(model, shown, {}))


@st.composite
def formulas(draw: st.DrawFn) -> tuple[Model, frozenset[int]]:
    """Clauses of up to four of nine variables, weights of the shown ones, and some potentials of the shown ones."""
    n = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shown = frozenset(draw(st.sets(st.integers(0, n - 1))))
    functions: list[Function] = []
    for width in draw(st.lists(st.integers(1, min(n, 4)), max_size=14)):
        scope = tuple(rng.permutation(n)[:width].tolist())
        functions.append(row_function(scope, rng.integers(0, 2, (1, width)), np.zeros(1), 1.0))
    functions += [dense_function((v,), rng.random(2) + 0.01) for v in shown if rng.random() < 0.7]
    if len(shown) > 1:
        functions.append(dense_function(tuple(sorted(shown)[:2]), rng.random((2, 2)) * (rng.random((2, 2)) < 0.7)))
    return named_model("markov", [2] * n, functions), shown


@settings(max_examples=120, deadline=None)
@given(formulas(), st.sampled_from(METHODS))
def test_sums_of_weights(formula: tuple[Model, frozenset[int]], method: Any) -> None:
    model, shown = formula
    own = [f for f in model.functions if shown.issuperset(f.scope)]
    weigher, total = named_model("markov", list(model.dims), own), 0.0
    for states in shown_states(model, shown, {}):
        full = [0] * len(model.dims)
        for v, state in zip(sorted(shown), states, strict=True):
            full[v] = state
        total += 10 ** weigher.log10_value(full)
    found = bucketflow.solve(model, "partition", project=names_of(model, shown), method=method)
    if total:
        assert found.log10 == pytest.approx(math.log10(total), abs=1e-9)
    else:
        assert found.status == "infeasible"


PAIR = "p cnf 4 2\n1 2 0\n-1 3 4 0\n"


@pytest.mark.parametrize("told", ["c p show 1 2 0\n", "c ind 1 2 0\n", "c t pmc\nc p show 1 2 0\n"])
@pytest.mark.parametrize("method", METHODS)
def test_files_that_ask_for_it(told: str, method: Any, tmp_path: Path) -> None:
    path = tmp_path / "formula.cnf"
    path.write_text(told + PAIR)
    model = bucketflow.load(path)
    assert bucketflow.solve(model, "count", method=method).value == 3
    assert bucketflow.solve(model, "count", project="x1,x2,x3,x4", method=method).value == 10
    assert bucketflow.solve(model, "count", project=[], method=method).value == 1
    assert bucketflow.solve(model, "count", project=["x3"], evidence={"x1": 1, "x4": 0}, method=method).value == 1


def test_weights_of_variables_that_are_not_counted_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "weighted.cnf"
    weights = "c p weight 1 0.25 0\nc p weight -1 0.75 0\nc p weight 3 0.1 0\nc p weight -3 0 0\n"
    path.write_text("c t pwmc\nc p show 1 2 0\n" + weights + PAIR)
    found = bucketflow.solve(bucketflow.load(path), "partition")
    assert found.log10 == pytest.approx(math.log10(0.25 * 2 + 0.75))
    assert [note for note in found.notes if "are ignored" in note] == [
        "weights of 1 variables that are not counted are ignored, as in the counting competitions"
    ]
    with pytest.raises(ModelError, match="but a function weighs 'x3' too"):
        bucketflow.solve(bucketflow.load(path), "partition", project=["x1", "x2"])


def test_costs_that_all_assignments_have_forbid_none() -> None:
    large = 2**62 - 1
    model = Model.build("cost", {"a": 2, "b": 2}, [("a", [large, 2**62]), ((), large), (("a", "b"), [[0, 1], [0, 0]])])
    for project in ([], ["a"], ["b"]):
        assert bucketflow.solve(model, "count", project=project).value == (2 if project == ["b"] else 1)


def test_what_is_no_projection_is_refused() -> None:
    model = grid(2, 2, 2, "markov")
    with pytest.raises(
        ModelError, match="a projection goes with a count or a partition function, not with the optimum"
    ):
        bucketflow.solve(model, project=["x0"])
    with pytest.raises(ModelError, match="'y' is not a variable of the model, and not a file"):
        bucketflow.solve(model, "count", project="x0,y")
    with pytest.raises(ModelError, match="'y' is not a variable of the model"):
        bucketflow.solve(model, "count", project=["y"])
    with pytest.raises(ModelError, match="5 are not names of variables"):
        bucketflow.solve(model, "count", project=5)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="leave out representation rows"):
        bucketflow.solve(model, "count", project=["x0"], representation="rows")
    with pytest.raises(ModelError, match="a function weighs 'x1' too"):
        bucketflow.solve(model, "partition", project=["x0"])


def test_budgets_and_plans() -> None:
    """A star whose centre is not counted leaves a table over all points."""
    names = {"centre": 2, **{f"p{k}": 2 for k in range(14)}}
    functions = [(("centre", f"p{k}"), np.array([[1.0, 0.0], [1.0, 1.0]])) for k in range(14)]
    model = Model.build("markov", names, functions)
    points = [f"p{k}" for k in range(14)]
    plan = bucketflow.plan(model, "count", project=points)
    assert plan.cost.width == 14
    assert plan.tree.cells[plan.tree.roots[-1]] == 1 << 14
    assert bucketflow.solve(model, "count", project=points, method="dense").value == 1 << 14
    with pytest.raises(BudgetError, match=r"needs .*kB, allowed 20 kB"):
        bucketflow.solve(model, "count", project=points, method="dense", memory=20_000)
    # a search needs no table
    assert solve_by(NEVER_QUICK, model, "count", project=points).value == 1 << 14


def test_run_directories_keep_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "formula.cnf"
    path.write_text(PAIR)
    model = bucketflow.load(path)
    found = bucketflow.solve(model, "count", project=["x1", "x3"], workdir=tmp_path / "run")
    assert bucketflow.resume(tmp_path / "run").value == found.value == len(shown_states(model, [0, 2], {}))
    with pytest.raises(bucketflow.IncompatibleRunError, match="its outer is"):
        bucketflow.solve(model, "count", project=["x1"], workdir=tmp_path / "run")


def test_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "formula.cnf"
    path.write_text(PAIR)
    listed = tmp_path / "shown.query"
    listed.write_text("# the first two\n2\n0\n1\n")
    for told in ("x1,x2", str(listed)):
        done = CliRunner().invoke(main, ["solve", str(path), "--query", "count", "--project", told, "--json"])
        assert json.loads(done.stdout)["value"] == "3"
        shown = CliRunner().invoke(main, ["plan", str(path), "--query", "count", "--project", told, "--json"])
        assert json.loads(shown.stdout)["plan"]["width"] == 2
    listed.write_text("3\n0\n1\n")
    done = CliRunner().invoke(main, ["solve", str(path), "--query", "count", "--project", str(listed)])
    assert (done.exit_code, "expected 3 variables" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "name", ["mc2024/mc2024_track4_039", "mc2024/mc2024_track3_131", "mc2022_pwmc/mc2022_track4_019"]
)
def test_elimination_and_search_agree_on_public_formulas(name: str, data: Path) -> None:
    """No answers of these were published."""
    folder, stem = name.split("/")
    (path,) = (data / "cnf" / folder).glob(f"{stem}.cnf*")
    query = "count" if "track3" in name else "partition"
    model = bucketflow.load(path)
    assert model.projection is not None
    first, second = (bucketflow.solve(model, query, method=method, memory="1GB") for method in ("dense", "search"))
    assert first.value == second.value
    assert first.log10 == pytest.approx(second.log10, abs=1e-9)
    assert (first.value or first.log10) is not None
