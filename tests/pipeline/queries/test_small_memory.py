"""All queries within small memory budgets, with some or all of their variables observed, against brute force."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

import bucketflow
from bucketflow import BudgetError, Model, ModelError
from bucketflow.pipeline.models.model import dense_function
from tests.models import assignments, brute_count, brute_log10_sum, brute_optimum, named_model

MEMORIES = (600, 1_000, 1_500, 2_500, 5_000, 1 << 21)
TOP = 60
Evidence = dict[str, int]
_CLOSE = 1e-9


def random_model(rng: np.random.Generator, kind: str) -> Model:
    """A model of 4 to 7 variables, most pairs of which share a function; some entries are impossible."""
    dims = rng.integers(1, 5, rng.integers(4, 8)).tolist()
    functions = []
    for scope in combinations(range(len(dims)), 2):
        if rng.random() < 0.8:
            shape = [dims[v] for v in scope]
            zeros = rng.random(shape) < rng.choice([0.0, 0.2])
            if kind == "cost":
                values = np.where(zeros, TOP, rng.integers(-2, 9, shape))
            else:
                values = np.where(zeros, 0.0, rng.random(shape))
            functions.append(dense_function(scope, values))
    return named_model(kind, dims, functions, top=TOP if kind == "cost" else None)


def close(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return abs(found - expected) <= _CLOSE * max(1.0, abs(expected))


def values(model: Model, evidence: Evidence) -> dict[tuple[int, ...], float]:
    """What every possible assignment is worth: a cost, or log10."""
    known = {states: model.cost(states) for states in assignments(model, evidence)}
    if model.kind == "cost":
        return {states: cost for states, cost in known.items() if cost is not None}
    logs = {states: model.log10_value(states) for states in known}
    return {states: log for states, log in logs.items() if log > -math.inf}


def check_optimum(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    found = bucketflow.solve(model, evidence=evidence, memory=memory)
    value = found.value if model.kind == "cost" else found.log10
    assert close(value, brute_optimum(model, evidence))


def check_partition(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    found = bucketflow.solve(model, "partition", evidence=evidence, memory=memory)
    assert close(found.log10, brute_log10_sum(model, evidence))


def check_count(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    found = bucketflow.solve(model, "count", evidence=evidence, memory=memory)
    assert found.value == brute_count(model, evidence)


def check_projected(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    found = bucketflow.solve(model, "count", project=names, evidence=evidence, memory=memory)
    kept = [model.index[name] for name in names]
    assert found.value == len({tuple(states[v] for v in kept) for states in values(model, evidence)})


def check_mmap(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    found = bucketflow.solve(model, "mmap", maximize=names, evidence=evidence, memory=memory)
    free = [name for name in names if name not in evidence]
    kept = [(name, range(model.dims[model.index[name]])) for name in free]
    best: float | None = None
    for states in np.ndindex(*[len(domain) for _, domain in kept]):
        log = brute_log10_sum(model, evidence | dict(zip(free, map(int, states), strict=True)))
        best = log if best is None or (log is not None and log > best) else best
    assert close(found.log10, best)
    if best is not None:
        assert found.assignment is not None
        assert set(found.assignment) == set(names)
        assert close(brute_log10_sum(model, evidence | {k: int(v) for k, v in found.assignment.items()}), best)


def check_marginals(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    _check_posteriors(model, evidence, names, memory, max_marginals=False)


def check_max_marginals(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    _check_posteriors(model, evidence, names, memory, max_marginals=True)


def _check_posteriors(model: Model, evidence: Evidence, names: list[str], memory: int, max_marginals: bool) -> None:
    joint = [names] if len(names) > 1 else []
    asked = {"variables": names, "joint": joint, "max_marginals": max_marginals}
    found = bucketflow.marginals(model, evidence=evidence, memory=memory, **asked)
    worth = values(model, evidence)
    if not worth:
        assert found.status == "infeasible"
        return
    for name in names:
        v = model.index[name]
        groups = [[w for states, w in worth.items() if states[v] == s] for s in range(model.dims[v])]
        if model.kind == "cost":
            assert list(found[name]) == [min(group, default=math.inf) for group in groups]
            continue
        reduce: Callable[[list[float]], float] = (lambda each: max(each, default=0.0)) if max_marginals else math.fsum
        linear = [reduce([10.0**w for w in group]) for group in groups]
        total = max(linear) if max_marginals else sum(linear)
        np.testing.assert_allclose(np.asarray(found[name]), np.array(linear) / total, rtol=1e-8, atol=1e-12)


def check_best(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    found = bucketflow.best(model, 3, evidence=evidence, memory=memory)
    sign = 1 if model.kind == "cost" else -1
    expected = sorted(values(model, evidence).values(), key=lambda w: sign * w)[:3]
    listed = [each.value if model.kind == "cost" else each.log10 for each in found]
    assert len(listed) == len(expected)
    assert all(map(close, listed, expected))


def check_sample(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    settings = {"temperature": 1.0} if model.kind == "cost" else {}
    worth = values(model, evidence)
    if not worth:
        with pytest.raises(ModelError, match="no assignment is possible"):
            bucketflow.sample(model, 5, evidence=evidence, memory=memory, seed=1, **settings)
        return
    found = bucketflow.sample(model, 5, evidence=evidence, memory=memory, seed=1, **settings)
    assert {tuple(row) for row in np.asarray(found.states).tolist()} <= worth.keys()


def check_bound(model: Model, evidence: Evidence, names: list[str], memory: int) -> None:
    query = "optimum" if model.kind == "cost" else "partition"
    found = bucketflow.bound(model, query, evidence=evidence, memory=memory)
    best = brute_optimum(model, evidence) if query == "optimum" else brute_log10_sum(model, evidence)
    if best is not None:
        lower, upper = found.lower, found.upper
        assert lower is None or lower <= best + _CLOSE * max(1.0, abs(best))
        assert upper is None or upper >= best - _CLOSE * max(1.0, abs(best))


CHECKS = {
    "cost": (check_optimum, check_count, check_projected, check_best, check_sample, check_bound, check_max_marginals),
    "markov": (
        check_optimum,
        check_partition,
        check_count,
        check_projected,
        check_mmap,
        check_marginals,
        check_max_marginals,
        check_best,
        check_sample,
        check_bound,
    ),
}


def evidences(rng: np.random.Generator, model: Model, names: list[str]) -> list[Evidence]:
    """No evidence, evidence on some and on all variables of a query, on others too, and on all variables."""
    states = {name: int(rng.integers(dim)) for name, dim in zip(model.names, model.dims, strict=True)}
    others = [name for name in model.names if name not in names]
    observed: list[list[str]] = [[], names[:1], names, [*names, others[0]], [names[0], others[-1]], list(model.names)]
    return [{name: states[name] for name in some} for some in observed]


def answered(seed: int) -> int:
    """Check all queries on a random model; return how many were answered rather than refused."""
    rng = np.random.default_rng(seed)
    kind = ("cost", "markov")[seed % 2]
    model = random_model(rng, kind)
    names = [f"x{v}" for v in sorted(rng.choice(len(model.dims), rng.integers(1, 4), replace=False).tolist())]
    count = 0
    for evidence in evidences(rng, model, names):
        memory = int(rng.choice(MEMORIES))
        for check in CHECKS[kind]:
            try:
                check(model, evidence, names, memory)
                count += 1
            except BudgetError:
                pass
    return count


@pytest.mark.parametrize("seed", range(4))
def test_small_memories_and_observed_variables(seed: int) -> None:
    assert answered(seed) > 0


def test_marginal_map_of_observed_variables_in_slices() -> None:
    rng = np.random.default_rng(0)
    sizes = {"a": 4, "b": 4, "c": 2, "d": 4}
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("b", "d")]
    tables = [(pair, rng.random([sizes[name] for name in pair])) for pair in pairs]
    model = Model.build("markov", sizes, tables)
    found = bucketflow.solve(model, "mmap", maximize=["a"], evidence={"a": 0}, memory="1kB")
    assert found.plan is not None
    assert found.plan.slices > 1
    assert close(found.log10, brute_log10_sum(model, {"a": 0}))
    assert found.assignment == {"a": 0}
