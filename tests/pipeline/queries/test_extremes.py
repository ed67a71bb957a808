"""Random small models at the ends of what numbers can hold, every query against exact integers.

``BUCKETFLOW_MODELS`` sets how many models are drawn (300; a nightly run takes 10,000).
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Compiled, Marginals, Model, ModelError
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.compiled.state import kept_tables
from bucketflow.pipeline.models.model import Function
from tests.exact import Weights, costs
from tests.models import named_model

_MODELS = int(os.environ.get("BUCKETFLOW_MODELS", "300"))
_GROUPS = 12
_RELATIVE = 1e-9
# What is less than this, relative to the whole, may be taken for 0: float64 has nothing to hold it.
_NOTHING = 1e-290

# log10 ranges of the entries of a table, and single entries that it may have besides.
_RANGES = ((-1, 0), (-16, 0), (-30, 0), (-160, 0), (-320, 0), (-320, 308), (-320, -300), (150, 308), (290, 308))
_EXTRAS = (0.0, 1.0, 1e-14, 1e-310, 5e-324, 1e-300, 1e300, 1.7976931348623157e308)


def near(found: float, expected: float) -> bool:
    """Whether a logarithm is right."""
    if not (math.isfinite(found) and math.isfinite(expected)):
        return found == expected
    return abs(found - expected) <= _RELATIVE * max(1.0, abs(expected))


def same(found: Any, expected: list[float]) -> bool:
    """Whether every entry of a distribution is right, however small."""
    flat = np.asarray(found, dtype=float).reshape(-1)
    return len(flat) == len(expected) and bool(
        (np.abs(flat - expected) <= _RELATIVE * np.asarray(expected) + _NOTHING).all()
    )


def entry(rng: random.Random, span: tuple[int, int], zeros: float, extras: float) -> float:
    if rng.random() < zeros:
        return 0.0
    if rng.random() < extras:
        return rng.choice(_EXTRAS)
    return min(max(10.0 ** rng.uniform(*span), 5e-324), 1.7e308)


def numbers(rng: random.Random, count: int) -> list[float]:
    """Entries of one table or likelihood: one range, some zeros, some odd ones, some equal."""
    span, zeros, extras = rng.choice(_RANGES), rng.choice((0.0, 0.0, 0.3)), rng.choice((0.0, 0.0, 0.3))
    values = [entry(rng, span, zeros, extras) for _ in range(count)]
    return [values[rng.randrange(count)] if rng.random() < 0.2 else x for x in values]


def dims_of(rng: random.Random) -> list[int]:
    return [rng.choice((1, 2, 2, 2, 3)) for _ in range(rng.randint(1, 5))]


def scopes_of(rng: random.Random, n: int) -> list[tuple[int, ...]]:
    return [tuple(rng.sample(range(n), rng.randint(min(n, 1), min(n, 3)))) for _ in range(rng.randint(1, 6))]


def probability_model(rng: random.Random) -> Model:
    dims = dims_of(rng)
    functions = []
    for scope in scopes_of(rng, len(dims)):
        shape = [dims[v] for v in scope]
        functions.append(Function(scope, np.array(numbers(rng, math.prod(shape))).reshape(shape)))
    return named_model("markov", dims, functions)


def findings(rng: random.Random, model: Model, soft: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, size in zip(model.names, model.dims, strict=True):
        chance = rng.random()
        if chance < 0.2:
            found[name] = rng.randrange(size)
        elif soft and chance < 0.4:
            found[name] = rng.choice((numbers(rng, size), [rng.choice((0.0, 0.8, 1e6, 1.0)) for _ in range(size)]))
    return found


def check_posteriors(found: Marginals, exact: Weights, names: list[str]) -> None:
    assert found.log10_evidence is not None
    assert near(found.log10_evidence, exact.log10_sum)
    assert found.status == ("ok" if exact.weights else "infeasible")
    if exact.weights:
        for name in names:
            assert same(found[name], exact.table([name], sum))


def check_queries(model: Model, rng: random.Random) -> None:
    """Optimum, partition function and count, with observed states."""
    evidence = findings(rng, model, soft=False)
    exact = Weights(model, evidence)
    best = bucketflow.solve(model, "optimum", evidence=evidence)
    total = bucketflow.solve(model, "partition", evidence=evidence)
    count = bucketflow.solve(model, "count", evidence=evidence)
    assert count.value == len(exact.weights)
    if not exact.weights:
        assert best.status == total.status == "infeasible"
        return
    assert best.log10 is not None
    assert best.assignment is not None
    assert total.log10 is not None
    assert near(best.log10, exact.log10_best)
    assert near(exact.log10(exact.weights[tuple(int(best.assignment[n]) for n in model.names)]), exact.log10_best)
    assert near(total.log10, exact.log10_sum)


def check_marginals(model: Model, rng: random.Random) -> None:
    """Posteriors, a joint and max-marginals, with likelihoods."""
    evidence, names = findings(rng, model), list(model.names)
    exact = Weights(model, evidence)
    joint = rng.sample(names, min(2, len(names)))
    found = bucketflow.marginals(model, evidence=evidence, joint=[joint])
    check_posteriors(found, exact, names)
    most = bucketflow.marginals(model, evidence=evidence, max_marginals=True)
    assert most.status == found.status
    if exact.weights:
        assert same(found.joint[tuple(joint)], exact.table(joint, sum))
        assert most.log10_evidence is not None
        assert near(most.log10_evidence, exact.log10_best)
        for name in names:
            assert same(most[name], exact.table([name], max))


def updated(compiled: Compiled, model: Model, rng: random.Random) -> dict[str, Any]:
    """Change findings in the ways there are; return those that hold now."""
    wanted = findings(rng, model)
    if rng.random() < 0.3:
        compiled.set_evidence(wanted)
        return wanted
    compiled.clear()
    for name, finding in wanted.items():
        compiled.add(name, finding)
        if rng.random() < 0.3:
            compiled.marginals()
    return wanted


def check_compiled(model: Model, rng: random.Random) -> None:
    """Updates of a compiled model, whichever way it keeps its tables."""
    compiled = bucketflow.compile(model)
    if compiled.plan is not None and compiled._base and rng.random() < 0.5:
        compiled._tables = kept_tables(compiled.plan, compiled._base, rng.random() < 0.7)
    for _ in range(3):
        evidence = updated(compiled, model, rng)
        exact = Weights(model, evidence)
        asked = list(model.names) if rng.random() < 0.7 else [rng.choice(model.names)]
        check_posteriors(compiled.marginals(asked), exact, asked)
        assert near(compiled.partition(), exact.log10_sum)


def check_batch(model: Model, rng: random.Random) -> None:
    """Cases of states and likelihoods, beside findings that hold in all of them."""
    compiled = bucketflow.compile(model)
    shared = findings(rng, model) if rng.random() < 0.4 else {}
    compiled.set_evidence(shared)
    columns: dict[str, Any] = {}
    for name, size in zip(model.names, model.dims, strict=True):
        if rng.random() < 0.4:
            columns[name] = [rng.choice([None, *range(size)]) for _ in range(3)]
        elif rng.random() < 0.4:
            columns[name] = np.array([numbers(rng, size) for _ in range(3)])
    if not columns:
        return
    found = compiled.marginals_batch(columns)
    for case in range(3):
        evidence = {name: finding for name, finding in shared.items() if name not in columns}
        for name, column in columns.items():
            if column[case] is not None:
                evidence[name] = column[case] if isinstance(column[case], int) else list(column[case])
        exact = Weights(model, evidence)
        assert near(float(found.log10_evidence[case]), exact.log10_sum)
        for name in model.names:
            assert same(
                found[name][case], exact.table([name], sum) if exact.weights else [0.0] * len(found[name][case])
            )


def cost_model(rng: random.Random) -> Model:
    """Integers of every size, some above any that can be added, a top that sums may reach, or none."""
    dims = dims_of(rng)
    size = 2 ** rng.choice((3, 15, 31, 53, 58, 60))
    low = rng.choice((0, 0, -size))
    top = rng.choice((None, size, 2 * size, 2**62))
    functions = []
    for scope in scopes_of(rng, len(dims)):
        shape = [dims[v] for v in scope]
        near_size = rng.random() < 0.3
        values = [rng.randint(size - 3 if near_size else low, size) for _ in range(math.prod(shape))]
        values = [2**62 if rng.random() < 0.1 else x for x in values]
        functions.append(Function(scope, np.array(values, dtype=np.int64).reshape(shape)))
    return named_model("cost", dims, functions, top=top)


def span(model: Model) -> int:
    """No allowed total exceeds the sum of the least costs by more than this."""
    total = 0
    for f in model.functions:
        values = [int(x) for x in f.values.reshape(-1) if x < 2**62]
        total += max(values) - min(values) if values else 0
    return total


def check_costs(model: Model, rng: random.Random) -> None:
    """Optimum, count and least costs of a cost network, to the last digit, or refused by name."""
    evidence = findings(rng, model, soft=False)
    exact = costs(model, evidence)
    if span(model) >= 2**61:
        for ask in (bucketflow.solve, partial(bucketflow.marginals, max_marginals=True)):
            with suppress(ModelError):  # where no bound proves that sums fit 64 bits
                assert ask(model, evidence=evidence).value == min(exact.values(), default=None)
        return
    best = bucketflow.solve(model, "optimum", evidence=evidence)
    least = bucketflow.marginals(model, evidence=evidence, max_marginals=True)
    assert best.value == (min(exact.values()) if exact else None)
    if not exact:
        assert best.status == least.status == "infeasible"
        return
    assert best.assignment is not None
    assert exact[tuple(int(best.assignment[name]) for name in model.names)] == best.value
    assert least.value == best.value
    for v, name in enumerate(model.names):
        expected = [min([c for a, c in exact.items() if a[v] == s], default=math.inf) for s in range(model.dims[v])]
        assert least[name].tolist() == expected
    with suppress(ModelError):  # totals at top that would take too many sweeps
        assert bucketflow.solve(model, "count", evidence=evidence).value == len(exact)


CHECKS = (check_queries, check_marginals, check_compiled, check_batch)


def groups() -> Iterator[range]:
    for first in range(0, _MODELS, -(-_MODELS // _GROUPS)):
        yield range(first, min(first + -(-_MODELS // _GROUPS), _MODELS))


@pytest.mark.parametrize("seeds", list(groups()), ids=str)
def test_every_query_is_right_at_extreme_numbers(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        if seed % 4 == 0:
            check_costs(cost_model(rng), rng)
        else:
            model = probability_model(rng)
            for check in CHECKS:
                check(model, rng)


def pairs(dims: list[int], *tables: tuple[tuple[int, ...], list[float]]) -> Model:
    """A Markov network of given scopes and entries."""
    functions = [Function(s, np.array(entries).reshape([dims[v] for v in s])) for s, entries in tables]
    return named_model("markov", dims, functions)


FINDINGS_BESIDE_SMALL_ENTRIES = (
    pairs([2, 2, 2], ((0, 1), [1e-14, 1e-14, 1, 1]), ((1, 2), [1, 1, 1e-15, 1e-15])),
    pairs([2, 2, 2], ((0, 1), [1e-15, 1e-15, 1, 1]), ((0, 2), [1, 1, 1e-20, 1e-20])),
)


@pytest.mark.parametrize("model", FINDINGS_BESIDE_SMALL_ENTRIES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_finding_is_seen_beside_small_entries(model: Model, packed: bool) -> None:
    compiled = bucketflow.compile(model)
    assert compiled.plan is not None
    compiled._tables = kept_tables(compiled.plan, compiled._base, packed)
    compiled.marginals()
    compiled.add("x0", 0)
    exact = Weights(model, {"x0": 0})
    check_posteriors(compiled.marginals(), exact, list(model.names))
    assert compiled.marginals()["x0"].tolist() == [1.0, 0.0]
    assert near(compiled.partition(), exact.log10_sum)


TABLES_BEYOND_FLOAT64 = (
    pairs([2, 2, 2], ((0, 2), [0, 1, 1, 1]), ((1, 0), [1e300, 1, 1e-300, 0]), ((1, 2), [1, 0, 1, 1e300])),
    pairs([2], ((0,), [1e300, 1e-300]), ((0,), [1e-300, 1e300])),
    pairs([2, 2], ((0, 1), [1e300, 1e-300, 0, 1e-300]), ((1,), [0, 1])),
    pairs([2, 2], ((0, 1), [1e300, 0, 1e-300, 1e-20]), ((1,), [0, 1e300]), ((0,), [1, 1e296])),
    pairs([2, 2], ((0, 1), [1e-310, 1e-310, 1, 1])),
)


@pytest.mark.parametrize("model", TABLES_BEYOND_FLOAT64)
def test_a_table_may_span_more_than_float64(model: Model) -> None:
    exact, names = Weights(model, {}), list(model.names)
    check_posteriors(bucketflow.marginals(model), exact, names)
    assert near(bucketflow.solve(model, "partition").log10 or math.inf, exact.log10_sum)
    compiled = bucketflow.compile(model)
    for evidence in ({"x0": 0}, {"x0": [1e-200, 1e-300]}, {"x0": [0.8, 1e6]}, {}):
        compiled.set_evidence(evidence)
        check_posteriors(compiled.marginals(), Weights(model, evidence), names)


def test_a_compiled_leaf_may_span_more_than_float64() -> None:
    model = pairs([3, 2], ((0, 1), [1, 1, 1e-200, 1e-200, 0, 1]))
    evidence = {"x0": [1e200, 1e-200, 0.0], "x1": [1e-300, 1]}
    compiled = bucketflow.compile(model)
    compiled.set_evidence(evidence)
    check_posteriors(compiled.marginals(), Weights(model, evidence), ["x0", "x1"])
    compiled.clear()
    check_posteriors(compiled.marginals(), Weights(model, {}), ["x0", "x1"])
    columns = {"x0": np.array([evidence["x0"], [0.0, 5e-324, 0.0]]), "x1": np.array([evidence["x1"], [1e300, 1e-300]])}
    found = compiled.marginals_batch(columns)
    for case in range(2):
        exact = Weights(model, {name: list(column[case]) for name, column in columns.items()})
        assert near(float(found.log10_evidence[case]), exact.log10_sum)
        assert same(found["x0"][case], exact.table(["x0"], sum))


def test_cases_of_tiny_probability_are_possible() -> None:
    functions = [((i, i + 1), [1.0, 1e-170, 1e-170, 1.0]) for i in range(5)]
    model = pairs([2] * 6, *functions)
    states: list[list[int | None]] = [[0, 1, None], [1, 1, 0], [0, 0, 1]]
    cases = {f"x{2 * k}": column for k, column in enumerate(states)}
    found = bucketflow.compile(model).marginals_batch(cases)
    assert found.possible.all()
    for case in range(3):
        evidence = {name: s for name, column in cases.items() if (s := column[case]) is not None}
        assert near(float(found.log10_evidence[case]), Weights(model, evidence).log10_sum)


@pytest.mark.parametrize("fit", ["slice", "spill"])
def test_least_costs_keep_their_last_digit_in_parts(fit: str) -> None:
    rng = np.random.default_rng(5)
    edges = [(i, j) for i in range(8) for j in range(i) if (i - j) in (1, 3)]
    functions = [Function(e, rng.integers(2**56, 2**57, (3, 3))) for e in edges]
    functions[0].values[0, 1] = 2**62
    model = named_model("cost", [3] * 8, functions)
    whole = bucketflow.marginals(model, max_marginals=True)
    assert whole.plan is not None
    peak = whole.plan.peak_bytes
    memory = peak * 3 // 4 if fit == "slice" else BudgetPolicy.margin_bytes + 4 * model.nbytes + peak // 3
    parts = bucketflow.marginals(model, max_marginals=True, fit=fit, memory=memory)
    assert parts.plan is not None
    assert parts.plan.slices > 1 or parts.plan.spill is not None
    exact = costs(model, {})
    assert parts.value == min(exact.values())
    for v, name in enumerate(model.names):
        expected = [min(c for a, c in exact.items() if a[v] == s) for s in range(3)]
        assert parts[name].tolist() == whole[name].tolist() == expected
    assert json.loads(parts.to_json())["marginals"]["x3"] == whole["x3"].tolist()


def test_decimal_costs_keep_their_last_digit() -> None:
    unary = np.array([9007199254740993, 2**62, 12, 1234567890123456789])
    model = replace(named_model("cost", [4], [Function((0,), unary)]), decimals=2)
    found = bucketflow.marginals(model, max_marginals=True)
    expected = [Decimal("90071992547409.93"), math.inf, Decimal("0.12"), Decimal("12345678901234567.89")]
    assert found["x0"].tolist() == expected
    printed = ["90071992547409.93", None, 0.12, "12345678901234567.89"]
    assert json.loads(found.to_json())["marginals"]["x0"] == printed
    assert "█" in repr(found)
    assert "<table>" in found._repr_html_()
