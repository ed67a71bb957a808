"""Models of many small functions, which are read and evaluated together: what is found is what each one says alone."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from bucketflow import Model
from bucketflow.pipeline.models.function import (
    FORBIDDEN,
    Function,
    greatest_costs,
    highest_costs,
    know_positive,
    least_costs,
    row_function,
)
from bucketflow.pipeline.preprocessing import consistency, leaf_groups
from bucketflow.pipeline.preprocessing.preprocess import Network, full_states, reduce_model
from bucketflow.pipeline.preprocessing.preprocessing_policy import PreprocessingPolicy
from bucketflow.pipeline.queries.arithmetic import arithmetic_for
from bucketflow.tasks.sweeps.scaled import Scaled, measured, measured_each
from tests.memory import traced
from tests.models import named_model
from tests.policies import InForce

SEEDS = range(6)


def entries(rng: np.random.Generator, shape: list[int], kind: str, zeros: float) -> Any:
    """Values of which some are forbidden, in any order of axes in memory."""
    order = rng.permutation(len(shape))
    shuffled = [shape[axis] for axis in order]
    if kind == "cost":
        values = np.where(rng.random(shuffled) < zeros, FORBIDDEN, rng.integers(-5, 20, shuffled))
    else:
        values = np.where(rng.random(shuffled) < zeros, 0.0, 10.0 ** rng.uniform(-2, 1, shuffled))
    return np.asarray(values).transpose(np.argsort(order))


def many(kind: str, seed: int, functions: int = 120) -> Model:
    """Functions of up to three variables and two larger ones; some are stored by rows, one lists nothing."""
    rng = np.random.default_rng(seed)
    dims = rng.choice([1, 2, 2, 3, 4], 50).tolist()
    dims[:3] = 40, 30, 2
    found = [
        Function((2, 0, 1), entries(rng, [2, 40, 30], kind, 0.01)),
        Function((3,), entries(rng, dims[3:4], kind, 0)),
    ]
    for _ in range(functions):
        scope = rng.choice(50, rng.integers(0, 4), replace=False).tolist()
        shape = [dims[v] for v in scope]
        values = entries(rng, shape, kind, 0.0 if rng.random() < 0.7 else 0.1)
        kept = rng.random(values.size) < rng.choice([0.0, 0.4])
        if scope and math.prod(shape) < 100 and rng.random() < 0.3:
            rows = np.argwhere(np.ones(shape, bool))[kept].astype(rng.choice(["u1", "i8"]))
            found.append(row_function(scope, rows, values.reshape(-1)[kept], 7 if kind == "cost" else 0.5))
        else:
            found.append(Function(tuple(scope), values))
    return named_model(kind, dims, found, 10**6 if kind == "cost" else None)


def drawn(model: Model, seed: int) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randrange(size) for size in model.dims]


def one_by_one(model: Model, states: Any) -> list[Any]:
    return [function.at([states[v] for v in function.scope]) for function in model.functions]


@pytest.mark.parametrize("seed", SEEDS)
def test_assignments_are_worth_what_each_function_says(seed: int) -> None:
    cost, markov = many("cost", seed), many("markov", seed)
    for draw in range(20):
        states = drawn(cost, draw)
        values = one_by_one(cost, states)
        expected = None if max(values) >= FORBIDDEN or sum(values) >= 10**6 else sum(values)
        given: list[Any] = [states, tuple(states), np.array(states, np.int8)]
        assert [cost.cost(each) for each in given] == [expected] * 3
        values = one_by_one(markov, states)
        log10 = -math.inf if 0.0 in values else math.fsum(math.log10(value) for value in values)
        assert [markov.log10_value(each) for each in given] == [log10] * 3


def test_totals_may_exceed_64_bits() -> None:
    model = named_model("cost", [2] * 40, [Function((v,), np.array([0, FORBIDDEN - 1])) for v in range(40)])
    assert model.cost([1] * 40) == 40 * (FORBIDDEN - 1)


def test_many_functions_may_have_no_variables() -> None:
    assert named_model("cost", [], [Function((), np.array(k)) for k in range(40)]).cost([]) == sum(range(40))
    constants = [Function((), np.array(10.0)) for _ in range(40)]
    assert named_model("markov", [2], constants).log10_value([1]) == 40


@pytest.mark.parametrize("state", [-1, 2, 200])
def test_states_outside_of_a_domain_have_no_value(state: int) -> None:
    model = named_model("cost", [2] * 40, [Function((v, (v + 1) % 40), np.eye(2, dtype=int)) for v in range(40)])
    with pytest.raises(IndexError):
        model.cost([0] * 17 + [state] + [0] * 22)
    with pytest.raises(TypeError):
        model.cost([0.5] * 40)  # type: ignore[list-item]


def listed(function: Function) -> list[Any]:
    """All values that are stored."""
    values: list[Any] = function.values.reshape(-1).tolist()
    return values if function.rows is None else [*values, function.default]


@pytest.mark.parametrize("seed", SEEDS)
def test_ends_of_functions_are_those_of_each(seed: int) -> None:
    model = many("cost", seed)
    limits = [FORBIDDEN, 3, -(10**30), 10] * len(model.functions)
    every = [listed(function) for function in model.functions]
    allowed = [[value for value in values if value < FORBIDDEN] for values in every]
    assert least_costs(model.functions) == [min(values, default=0) for values in allowed] == [*model.lowest]
    assert highest_costs(model.functions) == [max(values) for values in every]
    below = [[v for v in values if v < limit] for values, limit in zip(every, limits, strict=False)]
    found = greatest_costs(model.functions, limits[: len(every)], model.lowest)
    assert found == [max([*values, low]) for values, low in zip(below, model.lowest, strict=True)]
    functions = many("markov", seed).functions
    positive = [[value for value in listed(function) if value > 0] for function in functions]
    know_positive(functions[::2])
    ends = [(min(values, default=1.0), max(values, default=1.0)) for values in positive]
    assert [function.positive for function in functions] == ends
    assert least_costs(()) == greatest_costs((), ()) == []


def reduced(kind: str, query: Any, seed: int) -> Network:
    """What is left under evidence, with variables of which some states are not possible."""
    model = many(kind, seed)
    network = reduce_model(model, query, dict.fromkeys(range(3 + seed, 50, 9), 0))
    return network if network.feasible else reduced(kind, query, seed + 100)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_many_functions_exclude_is_what_each_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = reduced("cost", "optimum", seed)
    for module in (consistency, leaf_groups):
        monkeypatch.setattr(module, "FEW", 1 << 20)
    alone = reduced("cost", "optimum", seed)
    assert found.pruned == alone.pruned != consistency.NOTHING
    assert [domain.tolist() for domain in found.domains] == [domain.tolist() for domain in alone.domains]
    assert (found.leaves, found.constants) == (alone.leaves, alone.constants)


def told(table: Any) -> tuple[Any, ...]:
    """Everything about a leaf table, bit by bit."""
    if isinstance(table, Scaled):
        return table.log_scale, table.low, table.high, table.logs, *told(table.values)
    return table.dtype, table.shape, table.tobytes()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cells", [0, 50, 1 << 16])
@pytest.mark.parametrize(
    ("kind", "query"),
    [("cost", "optimum"), ("cost", "count"), *(("markov", q) for q in ("optimum", "partition", "count"))],
)
def test_leaf_tables_made_together_are_those_made_alone(
    kind: str, query: str, cells: int, seed: int, in_force: InForce
) -> None:
    network, shuffled = reduced(kind, query, seed), random.Random(seed)
    arithmetic = arithmetic_for(network)
    axes = {node: tuple(shuffled.sample(scope, len(scope))) for node, scope in enumerate(network.scopes)}
    in_force(PreprocessingPolicy, group_cells=cells)
    found = arithmetic.leaves(axes)
    assert [*found] == [*axes]
    for node, leaf in enumerate(network.leaves):
        assert told(found[node]) == told(arithmetic.leaf(leaf, axes[node]))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cells", [1, 7, 100])
@pytest.mark.parametrize(("kind", "query"), [("cost", "optimum"), ("cost", "count"), ("markov", "partition")])
def test_leaf_tables_made_in_parts_are_those_made_at_once(
    kind: str, query: str, cells: int, seed: int, in_force: InForce
) -> None:
    network, shuffled = reduced(kind, query, seed), random.Random(seed)
    arithmetic = arithmetic_for(network)
    for leaf in network.leaves:
        axes = tuple(shuffled.sample(leaf.scope, len(leaf.scope)))
        in_force(PreprocessingPolicy, group_cells=1 << 16)
        whole = told(arithmetic.leaf(leaf, axes))
        in_force(PreprocessingPolicy, group_cells=cells)
        assert told(arithmetic.leaf(leaf, axes)) == whole


@pytest.mark.parametrize("default", [0, 3])
@pytest.mark.parametrize("shape", [(2000, 500), (2,) * 20])
def test_a_large_leaf_table_of_few_rows_takes_little_more_than_itself(shape: tuple[int, ...], default: int) -> None:
    rows = np.random.default_rng(0).integers(0, shape, (30, len(shape)))
    function = row_function(
        range(len(shape)), np.unique(rows, axis=0), np.arange(len(np.unique(rows, axis=0))), default
    )
    rest = [Function((v,), np.arange(size)) for v, size in enumerate(shape)]
    network = reduce_model(
        named_model("cost", [*shape], [function, *rest], 30_000), "optimum", {0: 1} if default else {}
    )
    (leaf,), arithmetic = network.leaves, arithmetic_for(network)
    peak, table = traced(lambda: arithmetic.leaf(leaf, leaf.scope), 5e6)
    assert peak < table.nbytes + 3e6


def test_small_tables_are_few_groups() -> None:
    network = reduced("cost", "optimum", 0)
    axes = dict(enumerate(network.scopes))
    found = [*leaf_groups.groups(network, axes)]
    assert sorted(node for group in found for node in group.nodes) == [*axes]
    several = [group for group in found if len(group.nodes) > 1]
    assert len(several) == 1
    large = [node for node, scope in axes.items() if math.prod(network.dims[v] for v in scope) > 1 << 10]
    assert set(large) <= {group.nodes[0] for group in found if len(group.nodes) == 1}
    assert len(found) - 1 <= len(large) + 1
    assert leaf_groups.made_together(network, {}, lambda group: []) == {}


def test_tables_that_might_underflow_are_made_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_groups, "FEW", 0)
    tiny, usual = np.array([1e-200, 1e-150]), np.array([0.5, 0.25])
    functions = [Function((v,), values) for v in range(3) for values in ((tiny, tiny) if v == 1 else (usual, usual))]
    network = reduce_model(named_model("markov", [2] * 3, functions), "partition", {})
    arithmetic = arithmetic_for(network)
    found = arithmetic.leaves(dict(enumerate(network.scopes)))
    assert [told(table) for table in found.values()] == [told(arithmetic.leaf(f, f.scope)) for f in network.leaves]
    assert found[1].log_scale < -600


def test_states_of_what_is_left_are_states_of_the_model() -> None:
    network = reduced("cost", "optimum", 1)
    assert network.variables != tuple(range(50))
    assert any(1 < len(domain) < size for domain, size in zip(network.domains, network.model.dims, strict=True))
    states = {v: size - 1 for v, size in enumerate(network.dims) if v % 3}
    full = [int(domain[0]) for domain in network.domains]
    for v, state in states.items():
        full[network.variables[v]] = int(network.domains[network.variables[v]][state])
    assert full_states(network, states) == full
    assert full_states(network, {}) == [int(domain[0]) for domain in network.domains]


def test_tables_are_measured_together_as_alone() -> None:
    rng = np.random.default_rng(0)
    tables = [10.0 ** rng.uniform(-3, 3, size) * (rng.random(size) < 0.8) for size in rng.integers(1, 9, 50)]
    tables += [np.zeros(3), np.array([1e-300, 0.0, 1e300]), np.ones(2), np.array([1e-320])]
    assert [told(t) for t in measured_each(tables)] == [told(measured(table.copy())) for table in tables]
    assert measured_each([]) == []
