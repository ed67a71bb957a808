"""Cases of observed states that are answered one by one, each over a tree of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.models.model import Function
from tests.exact import Weights

CASES = 15


@pytest.fixture(autouse=True)
def _one_by_one() -> Iterator[None]:
    """Have small batches answered as large ones are."""
    with CompiledPolicy.using(observing_cells=0, visit_seconds=0.0):
        yield


def model(seed: int, spread: float = 0.0, dims: tuple[int, ...] = (2, 3, 4, 1, 2, 3, 2)) -> Model:
    """Functions with zeros, of up to three variables, in several components."""
    rng = np.random.default_rng(seed)
    functions = []
    for _ in range(9):
        scope = tuple(int(v) for v in rng.permutation(len(dims))[: rng.integers(1, 4)])
        shape = [dims[v] for v in scope]
        values = 10.0 ** rng.uniform(-spread, 0.0, size=shape) * (rng.random(shape) < 0.85)
        values.flat[0] = 1.0  # all first states together are possible
        functions.append(Function(scope, values))
    names = tuple(f"x{v}" for v in range(len(dims)))
    return Model("markov", names, dims, (None,) * len(dims), tuple(functions))


def cases_of(asked: Model, seed: int) -> dict[str, np.ndarray]:
    """States of some variables in each case; the first observes nothing, the last everything."""
    rng = np.random.default_rng(seed)
    chance = np.linspace(0.0, 1.0, CASES)
    return {
        name: np.where(rng.random(CASES) < chance, rng.integers(size, size=CASES), -1)
        for name, size in zip(asked.names, asked.dims, strict=True)
    }


def check(asked: Model, cases: dict[str, np.ndarray], found: bucketflow.CaseMarginals) -> int:
    """Compare every case with enumeration; return how many are possible."""
    possible = 0
    for k in range(CASES):
        weights = Weights(asked, {name: int(column[k]) for name, column in cases.items() if column[k] >= 0})
        assert found.log10_evidence[k] == pytest.approx(weights.log10_sum, rel=1e-12, abs=1e-12)
        total = sum(weights.weights.values())
        possible += total > 0
        for v, name in enumerate(asked.names):
            sums = [sum(w for s, w in weights.weights.items() if s[v] == state) for state in range(asked.dims[v])]
            expected = [each / total if total else 0.0 for each in sums]
            np.testing.assert_allclose(found[name][k], expected, rtol=1e-11, atol=1e-300)
    return possible


@pytest.mark.parametrize("seed", range(4))
def test_cases_are_those_of_enumeration(seed: int) -> None:
    asked = model(seed)
    cases = cases_of(asked, seed)
    found = bucketflow.compile(asked).marginals_batch(cases)
    assert check(asked, cases, found) > 0


def test_what_leaves_the_range_of_floats_is_answered_alone() -> None:
    asked = model(3, spread=250.0)
    cases = cases_of(asked, 3)
    assert check(asked, cases, bucketflow.compile(asked).marginals_batch(cases))


@pytest.mark.parametrize("lacking", [{"observed_variables": 1}, {"visit_seconds": 1.0}])
def test_what_there_is_no_room_for_is_answered_as_before(lacking: dict[str, float]) -> None:
    asked = model(1)
    cases = cases_of(asked, 1)
    with CompiledPolicy.using(**lacking):
        assert check(asked, cases, bucketflow.compile(asked).marginals_batch(cases))


def test_findings_of_all_cases_count_and_threads_change_nothing() -> None:
    asked = model(4)
    cases = {name: column for name, column in cases_of(asked, 4).items() if name != "x1"}
    compiled = bucketflow.compile(asked, threads=1)
    likelihoods = [0.5, 0.0, 2.0]
    compiled.set_evidence({"x1": likelihoods})
    found = compiled.marginals_batch(cases, ["x1", "x2"])
    again = bucketflow.compile(asked, threads=2)
    again.set_evidence({"x1": likelihoods})
    same = again.marginals_batch(cases, ["x1", "x2"])
    assert list(found) == ["x1", "x2"]
    for k in range(CASES):
        compiled.set_evidence(
            {"x1": likelihoods, **{name: int(column[k]) for name, column in cases.items() if column[k] >= 0}}
        )
        alone = compiled.marginals(["x1", "x2"])
        assert found.log10_evidence[k] == pytest.approx(alone.log10_evidence, rel=1e-12)
        for name in found:
            np.testing.assert_allclose(found[name][k], alone.get(name, 0.0), rtol=1e-12)
            assert np.array_equal(found[name], same[name])


def test_many_variables_have_rows_of_several_words() -> None:
    """A chain of 200 variables, longer than three words of bits."""
    rng, count = np.random.default_rng(0), 200
    functions = [Function((0,), np.array([0.3, 0.7]))]
    functions += [Function((v, v + 1), rng.random((2, 2)) + 0.1) for v in range(count - 1)]
    asked = Model("markov", tuple(f"x{v}" for v in range(count)), (2,) * count, (None,) * count, tuple(functions))
    cases = {f"x{v}": rng.integers(-1, 2, size=CASES) for v in range(0, count, 7)}
    compiled = bucketflow.compile(asked)
    found = compiled.marginals_batch(cases)
    for k in range(0, CASES, 4):
        compiled.set_evidence({name: int(column[k]) for name, column in cases.items() if column[k] >= 0})
        alone = compiled.marginals()
        assert found.log10_evidence[k] == pytest.approx(alone.log10_evidence, rel=1e-12)
        for name in asked.names:
            np.testing.assert_allclose(found[name][k], alone[name], rtol=1e-11)
