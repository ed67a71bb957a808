"""Optima of functions over very many variables that list few assignments: chains of small functions stand for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.models.function import FORBIDDEN, Function
from bucketflow.pipeline.preprocessing import wide_tables
from bucketflow.pipeline.preprocessing.wide_tables import with_links
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide_tables, "_LARGE_CELLS", 0)
        patch.setattr(wide_tables, "_LINK_CELLS", cells)
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide_tables, "_LARGE_CELLS", 0)
        patch.setattr(wide_tables, "_LINK_CELLS", 1)
        chained = with_links(model)
    for query in ("partition", "count"):
        if query == "count" or model.kind == "markov":
            one, other = (bucketflow.solve(m, query, representation="dense") for m in (model, chained))  # type: ignore[arg-type]
            assert one.value == other.value
            assert one.log10 is other.log10 is None or one.log10 == pytest.approx(other.log10)


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
