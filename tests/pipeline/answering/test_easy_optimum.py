"""Easy optima: a short search answers before anything is reduced or planned; other optima are answered as before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import Any

import numba  # noqa: F401 - short searches wait for the compiler
import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.answering import answer_question
from bucketflow.pipeline.answering.answer_question import valued
from bucketflow.pipeline.answering.engines.strategy_policy import POLICY
from bucketflow.pipeline.answering.optimum import Task
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.models.model import Model
from bucketflow.pipeline.options import Options, ProofOptions
from bucketflow.pipeline.preprocessing import preprocess
from bucketflow.pipeline.proofs import prover_registry, team
from bucketflow.tasks.compiler.code_cache import impatient

NEVER_QUICK = replace(POLICY, quick_seconds={**POLICY.quick_seconds, "optimum": -1.0})
N = 9


@contextmanager
def short_searches(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[None]:
    """Load the loops, and let a short search take this number of seconds."""
    with monkeypatch.context() as patch, impatient():
        patch.setattr(team, "LEAST_TURN_SECONDS", seconds)
        yield


def places(seed: int) -> tuple[Model, np.ndarray[Any, Any]]:
    """An assignment of nine things to nine different places: a clique of pairs that is too large for a quick sweep."""
    costs = np.random.default_rng(seed).integers(0, 50, (N, N))
    differ = np.where(np.eye(N, dtype=bool), 10_000, 0)
    names = [f"v{i}" for i in range(N)]
    functions: list[Any] = [([name], row) for name, row in zip(names, costs, strict=True)]
    functions += [([a, b], differ) for a, b in combinations(names, 2)]
    return Model.build("cost", dict.fromkeys(names, N), functions, top=10_000), costs


def least_placement(costs: np.ndarray[Any, Any]) -> int:
    orders = np.array(list(permutations(range(N))))
    return int(costs[np.arange(N), orders].sum(axis=1).min())


def test_a_short_search_answers_before_anything_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    model, costs = places(3)
    monkeypatch.setattr(preprocess, "fixpoint", lambda *_: pytest.fail("the model was reduced"))
    with short_searches(monkeypatch, math.inf):
        found = bucketflow.solve(model)
    assert found.value == least_placement(costs)
    assert found.assignment is not None
    assert found.proof is not None
    assert set(found.proof.tried) == {"search"}
    assert [tried.engine for tried in found.tried] == ["bounds"]


def test_evidence_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    model, costs = places(4)
    with short_searches(monkeypatch, math.inf):
        found = bucketflow.solve(model, evidence={"v0": 4})
        forbidden = bucketflow.solve(model, evidence={"v0": 4, "v1": 4})
    costs[0, [a for a in range(N) if a != 4]] = 10_000
    assert found.value == least_placement(costs)
    assert found.assignment is not None
    assert found.assignment["v0"] == 4
    assert forbidden.status == "infeasible"


def test_what_is_not_proved_is_answered_as_before_and_not_searched_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    model, costs = places(5)
    searched = []
    search = Task.search_shortly
    monkeypatch.setattr(Task, "search_shortly", lambda *given: (searched.append(given), search(*given))[1])
    with short_searches(monkeypatch, 0.0):
        values = [bucketflow.solve(model).value for _ in range(5)]
    assert values == [least_placement(costs)] * 5
    assert 1 <= len(searched) < 5


@pytest.mark.parametrize("given", [{"method": "search"}, {"gap": 0.1}, {"order": "min-fill"}, {"memory": "1 GB"}])
def test_options_that_choose_how_to_answer_go_first(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]) -> None:
    monkeypatch.setattr(Task, "search_shortly", lambda *_: pytest.fail("it was searched"))
    small = Model.build("cost", {"a": 9, "b": 9}, [(["a", "b"], np.arange(81).reshape(9, 9))])
    with short_searches(monkeypatch, math.inf):
        options = Options(**{name: value for name, value in given.items() if name in ("order", "memory")})
        effort = ProofOptions(**{name: value for name, value in given.items() if name in ("method", "gap")})
        found = valued(question_of(small, "optimum"), options, effort, policy=NEVER_QUICK)
    assert found.value == 0


def test_quick_sweeps_and_provers_that_are_left_out_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "search_shortly", lambda *_: pytest.fail("it was searched"))
    quick = Model.build("cost", {"a": 9, "b": 9}, [(["a", "b"], np.arange(81).reshape(9, 9))])
    others = [prover for prover in prover_registry.ALL_PROVERS if prover.name == "dense"]
    with short_searches(monkeypatch, math.inf):
        assert bucketflow.solve(quick).plan is not None
        with prover_registry.using(others):
            assert valued(question_of(quick, "optimum"), Options(), ProofOptions(), policy=NEVER_QUICK).value == 0


@pytest.mark.parametrize("kind", ["cost", "markov"])
@pytest.mark.parametrize("seed", range(8))
def test_small_models_have_the_optimum_of_brute_force(monkeypatch: pytest.MonkeyPatch, kind: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = rng.integers(1, 4, 5).tolist()
    names = [f"v{i}" for i in range(5)]
    functions = []
    for _ in range(7):
        scope = rng.choice(5, int(rng.integers(1, 4)), replace=False).tolist()
        values = rng.integers(0, 6, [dims[v] for v in scope])
        values[rng.random(values.shape) < 0.3] = 20 if kind == "cost" else 0
        functions.append((scope, values))
    named = [([names[v] for v in scope], values) for scope, values in functions]
    sizes = dict(zip(names, dims, strict=True))
    model = Model.build(kind, sizes, named, top=20) if kind == "cost" else Model.build(kind, sizes, named)
    worth = [
        [float(values[tuple(states[v] for v in scope)]) for scope, values in functions]
        for states in product(*map(range, dims))
    ]
    monkeypatch.setattr(prover_registry, "may_be_easy", lambda dims: True)
    with short_searches(monkeypatch, math.inf):
        found = valued(question_of(model, "optimum"), Options(), ProofOptions(), policy=NEVER_QUICK)
    if kind == "cost":
        least = min(map(sum, worth))
        assert found.value == (least if least < 20 else None)
    else:
        most = max(map(math.prod, worth))
        assert (found.status == "infeasible") == (most == 0)
        if most:
            assert found.log10 == pytest.approx(math.log10(most))
    assert answer_question._failures.get(model, 0) == 0
