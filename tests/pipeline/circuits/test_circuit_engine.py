"""Marginals, draws and marginal MAP from the circuit of a search, beside brute force and where no sweep is possible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import bucketflow
from bucketflow import Function, Marginals, Model, Result
from bucketflow.pipeline.answering.answer_question import solved
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.assignments.draw_sources import draw_source, drawn_from_circuit
from bucketflow.pipeline.options import Options, ProofOptions
from tests.models import named_model
from tests.strategies import NEVER_QUICK

Array = NDArray[Any]
#: No model is so easy that it is swept before others were through.
PATIENT = replace(NEVER_QUICK, share=1e9)
#: Of a normal variable: one test in a million fails by chance, and seeds are fixed.
FAR = 4.9


def weighted_clauses(seed: int) -> Model:
    """Seven variables, clauses of three of them, and a weight for each state; some models are impossible."""
    rng = np.random.default_rng(seed)
    dims, functions = [2, 3, 2, 2, 3, 2, 2], []
    for _ in range(int(rng.integers(4, 12))):
        scope = tuple(sorted(rng.choice(7, 3, replace=False).tolist()))
        values = np.ones([dims[v] for v in scope])
        values[tuple(int(rng.integers(dims[v])) for v in scope)] = 0.0
        functions.append(Function(scope, values))
    functions += [Function((v,), rng.random(dims[v])) for v in range(6)]  # the last one is free of weights
    return named_model("markov", dims, functions)


def joint(model: Model, hard: Mapping[int, int], soft: Mapping[int, Array]) -> Array:
    """The product of all functions, an axis a variable."""
    found = np.zeros(model.dims)
    for states in product(*map(range, model.dims)):
        if all(states[v] == s for v, s in hard.items()):
            factors = [f.values[tuple(states[v] for v in f.scope)] for f in model.functions]
            found[states] = math.prod([*factors, *(likelihood[states[v]] for v, likelihood in soft.items())])
    return found


@pytest.mark.parametrize("seed", range(12))
def test_marginals_of_a_circuit_are_those_of_all_assignments(seed: int) -> None:
    model, likelihood = weighted_clauses(seed), np.array([0.25, 0.5, 0.0])
    a, b = model.names[seed % 4], model.names[4]
    question = question_of(model, "marginals", {a: 1, b: likelihood.tolist()})
    found = solved(question, Options(), ProofOptions(), policy=PATIENT)
    assert isinstance(found, Marginals)
    assert found.tried[-1].engine == "circuit"
    whole = joint(model, {seed % 4: 1}, {4: likelihood})
    if not whole.any():
        assert found.status == "infeasible"
        return
    assert found.log10_evidence == pytest.approx(math.log10(whole.sum()), abs=1e-9)
    for v, name in enumerate(model.names):
        others = tuple(u for u in range(7) if u != v)
        np.testing.assert_allclose(found[name], whole.sum(axis=others) / whole.sum(), atol=1e-12)


@pytest.mark.parametrize("asked", [{"joint": [["x0", "x1"]]}, {"families": True}])
def test_joints_are_left_to_the_sweep(asked: dict[str, Any]) -> None:
    model = weighted_clauses(1)
    asked = {**asked, "joint": [model.names[:2]]} if "joint" in asked else asked
    found = solved(question_of(model, "marginals", None, **asked), Options(), ProofOptions(), policy=PATIENT)
    assert found.tried[-1].engine != "circuit"


def test_draws_of_a_circuit_have_the_distribution_of_the_model() -> None:
    model, n = weighted_clauses(3), 20_000
    question = question_of(model, "partition", {model.names[0]: 1})
    source = draw_source(question, Options(), lambda: pytest.fail("swept"), PATIENT)
    assert source.circuit is not None
    states = np.concatenate([*drawn_from_circuit(source.circuit, n, 5)])
    np.testing.assert_array_equal(states[:300], np.concatenate([*drawn_from_circuit(source.circuit, 300, 5)]))
    assert (states[:300] != np.concatenate([*drawn_from_circuit(source.circuit, 300, 6)])).any()
    whole = joint(model, {0: 1}, {})
    expected = (n * whole / whole.sum()).reshape(-1)
    counts = np.bincount(np.ravel_multi_index(tuple(states.T), model.dims), minlength=expected.size)
    assert not counts[expected == 0].any()
    often = expected >= 5
    chi_square, freedom = ((counts - expected)[often] ** 2 / expected[often]).sum(), int(often.sum()) - 1
    spread = 2 / (9 * freedom)
    assert abs((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread) < FAR


@pytest.mark.parametrize("seed", range(16))
def test_marginal_map_of_a_circuit_is_the_best_of_all_sums(seed: int) -> None:
    model, rng = weighted_clauses(seed), np.random.default_rng(seed)
    outer = sorted(rng.choice(7, int(rng.integers(1, 6)), replace=False).tolist())
    hard = {0: 1} if seed % 2 else {}
    names = [model.names[v] for v in outer]
    question = question_of(model, "mmap", {model.names[v]: s for v, s in hard.items()}, maximize=names)
    found = solved(question, Options(), ProofOptions(), policy=PATIENT)
    assert isinstance(found, Result)
    assert found.tried[-1].engine == "outer circuit"
    sums = joint(model, hard, {}).sum(axis=tuple(v for v in range(7) if v not in outer))
    if not sums.any():
        assert found.status == "infeasible"
        return
    assert found.status == "optimal"
    assert found.log10 == pytest.approx(math.log10(sums.max()), abs=1e-9)
    assert found.assignment is not None
    chosen = tuple(model.state_index(v, found.assignment[model.names[v]]) for v in outer)
    assert sums[chosen] == pytest.approx(sums.max())


def at_most_one_of(n: int) -> Model:
    """At most one of ``n`` variables is 1 unless the first one, which weighs 2^n times as much at 1, is 0."""
    functions = [Function((0,), np.array([1.0, 2.0**n]))]
    for a, b in combinations(range(1, n + 1), 2):
        values = np.ones((2, 2, 2))
        values[1, 1, 1] = 0.0
        functions.append(Function((0, a, b), values))
    return named_model("markov", [2] * (n + 1), functions)


def test_what_no_sweep_fits_is_answered_from_a_circuit() -> None:
    n = 44
    model = at_most_one_of(n)
    one, total = 2.0**n, 2.0**n * (n + 1) + 2.0**n
    found = bucketflow.marginals(model)
    assert found[model.names[0]][1] == pytest.approx(one * (n + 1) / total)
    assert found[model.names[1]][1] == pytest.approx((one + one / 2) / total)
    drawn = bucketflow.sample(model, 500, seed=3)
    assert any("circuit" in note for note in drawn.notes)
    assert drawn.plan is None
    assert (bucketflow.sample(model, 20, seed=3).states == drawn.states[:20]).all()
    first, rest = drawn.states[:, 0], drawn.states[:, 1:].sum(axis=1)
    assert (rest[first == 1] <= 1).all()
    assert abs(first.mean() - one * (n + 1) / total) < FAR * math.sqrt(0.25 / 500)


@pytest.mark.parametrize("effort", [{}, {"gap": 0.0}, {"time": 600.0}])
def test_marginal_map_that_no_sweep_fits_is_proved(effort: dict[str, float]) -> None:
    """The variables that exclude each other are summed, the one that forbids two of them is chosen."""
    n = 44
    model = at_most_one_of(n)
    found = bucketflow.solve(model, "mmap", maximize=model.names[:3], **effort)
    assert found.status == "optimal"
    assert found.tried[-1].engine == ("sweep" if "time" in effort else "outer circuit")
    assert found.log10 == pytest.approx(math.log10(2.0**n * (n - 1)))
    assert found.assignment == dict(zip(model.names[:3], [1, 0, 0], strict=True))


def test_an_order_that_is_asked_for_is_swept() -> None:
    model = weighted_clauses(1)
    assert not any("circuit" in note for note in bucketflow.sample(model, 5, order="min-fill").notes)
