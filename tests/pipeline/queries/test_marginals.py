"""Marginals against brute force, reference posteriors, and pyAgrum."""

from __future__ import annotations

import gc
import json
import lzma
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.plans import planned_steps
from bucketflow.pipeline.preprocessing.leaf_tables import restricted
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.queries.arithmetic import ScaledPartition
from bucketflow.pipeline.trees import memory as peaks
from bucketflow.tasks.sweeps import program
from bucketflow.tasks.sweeps.scaled import LOWEST, as_logs
from bucketflow.tasks.sweeps.sweep import freed_tables
from tests.models import assignments, bayes_models, cost_models, markov_models, named_model

PROBABILITIES = st.one_of(markov_models(), bayes_models())
# Python objects that are not tables: the plan, lists, small temporaries.
_PYTHON_BYTES = 4_000_000
TREES: list[dict[str, Any]] = [{}, {"tree": "bucket"}, {"tree": "junction"}, {"order_time": 0.0}]


@st.composite
def asked(draw: st.DrawFn, models: st.SearchStrategy[Model]) -> tuple[Model, dict[str, int], list[str]]:
    """A model, evidence on some variables, and a set whose joint is wanted."""
    model = draw(models)
    variables = st.integers(0, len(model.dims) - 1)
    evidence = draw(st.lists(variables, max_size=2, unique=True))
    joint = draw(st.lists(variables, min_size=1, max_size=3, unique=True))
    states = {model.names[v]: draw(st.integers(0, model.dims[v] - 1)) for v in evidence}
    return model, states, [model.names[v] for v in joint]


def brute_logs(model: Model, evidence: dict[str, int], names: list[str]) -> np.ndarray[Any, Any]:
    """ln of the unnormalised joint of some variables, one array entry each summand's list."""
    table = np.empty([model.dims[model.index[n]] for n in names], dtype=object)
    for index in np.ndindex(*table.shape):
        table[index] = []
    for a in assignments(model, evidence):
        table[tuple(a[model.index[n]] for n in names)].append(a)
    return table


def brute_joint(model: Model, evidence: dict[str, int], names: list[str]) -> np.ndarray[Any, Any] | None:
    """Joint distribution of some variables; None if the evidence is impossible."""
    cells = brute_logs(model, evidence, names)
    logs = {i: [model.log10_value(a) for a in cells[i]] for i in np.ndindex(*cells.shape)}
    top = max((x for values in logs.values() for x in values), default=-math.inf)
    if top == -math.inf:
        return None
    table = np.zeros(cells.shape)
    for i, values in logs.items():
        table[i] = math.fsum(10.0 ** (x - top) for x in values)
    return np.asarray(table / table.sum())


@pytest.mark.parametrize("options", TREES)
@given(case=asked(PROBABILITIES))
def test_posteriors_joints_and_families(case: tuple[Model, dict[str, int], list[str]], options: dict[str, Any]) -> None:
    model, evidence, joint = case
    found = bucketflow.marginals(model, evidence=evidence, joint=[joint], families=True, **options)
    expected = brute_joint(model, evidence, joint)
    if expected is None:
        assert (found.status, found.log10_evidence, dict(found)) == ("infeasible", -math.inf, {})
        return
    assert found.joint[tuple(joint)] == pytest.approx(expected, rel=1e-10, abs=1e-14)
    for name in model.names:
        assert found[name] == pytest.approx(brute_joint(model, evidence, [name]), rel=1e-10, abs=1e-14)
    for f, table in found.families.items():
        scope = [model.names[v] for v in model.functions[f].scope]
        assert table == pytest.approx(brute_joint(model, evidence, scope), rel=1e-10, abs=1e-14)
    partition = bucketflow.solve(model, "partition", evidence=evidence)
    assert found.log10_evidence == pytest.approx(partition.log10, rel=1e-11, abs=1e-11)


@given(case=asked(PROBABILITIES))
def test_asking_for_some_prunes_and_agrees(case: tuple[Model, dict[str, int], list[str]]) -> None:
    model, evidence, names = case
    found = bucketflow.marginals(model, evidence=evidence, variables=names)
    assert set(found) == (set(names) if found.status == "ok" else set())
    for name, table in found.items():
        assert table == pytest.approx(brute_joint(model, evidence, [name]), rel=1e-10, abs=1e-14)


@given(case=asked(st.one_of(cost_models(), PROBABILITIES)))
def test_max_marginals(case: tuple[Model, dict[str, int], list[str]]) -> None:
    model, evidence, joint = case
    found = bucketflow.marginals(model, evidence=evidence, joint=joint, max_marginals=True)
    cells = brute_logs(model, evidence, joint)
    best = np.empty(cells.shape)
    for i in np.ndindex(*cells.shape):
        if model.kind == "cost":
            best[i] = min((c for a in cells[i] if (c := model.cost(a)) is not None), default=math.inf)
        else:
            best[i] = max((model.log10_value(a) for a in cells[i]), default=-math.inf)
    if not np.isfinite(best).any():
        assert found.status == "infeasible"
    elif model.kind == "cost":
        assert found.value == best.min()
        assert np.array_equal(found.joint[tuple(joint)], best)
    else:
        assert found.log10_evidence == pytest.approx(best.max(), rel=1e-11, abs=1e-11)
        assert found.joint[tuple(joint)] == pytest.approx(10 ** (best - best.max()), rel=1e-9, abs=1e-300)


@given(case=asked(PROBABILITIES), data=st.data())
def test_soft_evidence_is_one_more_function(case: tuple[Model, dict[str, int], list[str]], data: st.DataObject) -> None:
    model, evidence, names = case
    v = model.index[names[0]]
    weights = data.draw(
        st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=model.dims[v], max_size=model.dims[v])
    )
    soft: dict[str, Any] = {**evidence, names[0]: weights}
    evidence = {name: state for name, state in evidence.items() if name != names[0]}
    found = bucketflow.marginals(model, evidence=soft)
    extra = named_model("markov", list(model.dims), [*model.functions, Function((v,), np.array(weights))])
    for name in model.names:
        expected = brute_joint(extra, evidence, [name])
        assert (found.status == "infeasible") == (expected is None)
        if expected is not None:
            assert found[name] == pytest.approx(expected, rel=1e-10, abs=1e-14)


@given(case=asked(PROBABILITIES))
def test_slices_agree(case: tuple[Model, dict[str, int], list[str]]) -> None:
    """A budget that only the smallest slices fit."""
    model, evidence, joint = case
    whole = bucketflow.marginals(model, evidence=evidence, joint=joint)
    for memory in (whole.plan.peak_bytes * 2 // 3, whole.plan.peak_bytes // 2) if whole.plan else ():
        try:
            found = bucketflow.marginals(model, evidence=evidence, joint=joint, memory=memory, fit="slice")
        except bucketflow.BudgetError:
            continue
        assert found.plan is not None
        assert found.plan.peak_bytes <= memory
        assert found.status == whole.status
        for name in found:
            assert found[name] == pytest.approx(whole[name], rel=1e-10, abs=1e-14)
        for names, table in found.joint.items():
            assert table == pytest.approx(whole.joint[names], rel=1e-10, abs=1e-14)


def test_underflow_is_impossible() -> None:
    """A chain whose every product is below the smallest float has marginals all the same."""
    tiny = np.array([[1e-300, 1e-290], [0.0, 1e-280]])
    functions = [Function((i, i + 1), tiny) for i in range(30)]
    found = bucketflow.marginals(named_model("markov", [2] * 31, functions))
    # all assignments are k zeros followed by ones; the more ones the better
    assert found["x0"] == pytest.approx([1e-10, 1.0], rel=1e-9)
    assert all(np.isfinite(table).all() for table in found.values())


@pytest.mark.parametrize("name", ["asia", "alarm", "hailfinder", "insurance", "water", "win95pts", "andes", "pigs"])
def test_reference_posteriors(data: Path, name: str) -> None:
    reference = json.loads(lzma.decompress((data / "bn" / "ref" / f"{name}.json.xz").read_bytes()))
    model = bucketflow.load(data / "bn" / f"{name}.bif.gz")
    for case in reference["cases"]:
        found = bucketflow.marginals(model, evidence=case["evidence"])
        assert found.log10_evidence == pytest.approx(case["log10_Pe_ve"], rel=1e-9, abs=1e-9)
        for variable, posterior in case["posterior"].items():
            assert found[variable] == pytest.approx(posterior, abs=1e-9)


@pytest.mark.usefixtures("compiled_at_once")
def test_planned_memory_is_kept() -> None:
    """What is measured while both sweeps run is within the plan, whole and in slices."""
    rng = np.random.default_rng(5)
    side = 9
    pairs = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    pairs += [(i, i + side) for i in range(side * (side - 1))]
    model = named_model("markov", [3] * side * side, [Function(p, rng.random((3, 3))) for p in pairs])
    whole = bucketflow.marginals(model, threads=1)
    assert whole.plan is not None
    for memory in (None, whole.plan.peak_bytes // 2):
        bucketflow.marginals(model, memory=memory, fit="slice", threads=1)  # compiled kernels
        gc.collect()
        tracemalloc.start()
        found = bucketflow.marginals(model, memory=memory, fit="slice", threads=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.plan is not None
        assert memory is None or found.plan.peak_bytes <= memory
        assert peak <= found.plan.peak_bytes + _PYTHON_BYTES
        assert all(found[name] == pytest.approx(whole[name], rel=1e-10) for name in model.names)


def test_what_follows_from_a_plan_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two questions took as long as the first to find out which tables are freed when."""
    calls = []

    def freed(steps: Any, keep: Any) -> Any:
        calls.append(steps)
        return freed_tables(steps, keep)

    for module in (peaks, planned_steps, program):
        monkeypatch.setattr(module, "freed_tables", freed)
    model = bucketflow.load("diagnosis")
    for state in (0, 1):
        calls.clear()
        bucketflow.marginals(model, evidence={"Storm": state})
    assert not calls


def test_refusals() -> None:
    model = named_model("markov", [2, 2], [Function((0, 1), np.ones((2, 2)))])
    with pytest.raises(bucketflow.ModelError, match="'nobody'"):
        bucketflow.marginals(model, variables=["nobody"])
    with pytest.raises(bucketflow.ModelError, match="3 values for 2 states"):
        bucketflow.marginals(model, evidence={"x0": [1, 2, 3]})
    with pytest.raises(bucketflow.ModelError, match="negative"):
        bucketflow.marginals(model, evidence={"x0": [1, -2]})
    with pytest.raises(bucketflow.ModelError, match="max-marginals"):
        bucketflow.marginals(named_model("cost", [2], [Function((0,), np.array([1, 2]))]))


def test_representations() -> None:
    model = named_model("markov", [2, 3], [Function((0, 1), np.arange(6.0).reshape(2, 3))])
    found = bucketflow.marginals(model, joint=("x0", "x1"))
    assert "█" in repr(found)
    assert "<table>" in found._repr_html_()
    assert json.loads(found.to_json())["marginals"]["x0"] == pytest.approx([0.2, 0.8])
    impossible = bucketflow.marginals(model, evidence={"x0": 0, "x1": 0})
    assert "impossible" in repr(impossible)
    assert json.loads(impossible.to_json())["log10_evidence"] is None


@given(model=markov_models(), power=st.sampled_from([-60, 0, 60]))
def test_leaf_tables_hold_nothing_above_one(model: Model, power: int) -> None:
    functions = tuple(replace(f, values=f.values * 10.0**power) for f in model.functions)
    network = reduce_model(replace(model, functions=functions), "partition", {})
    for leaf in network.leaves:
        table = ScaledPartition(network).leaf(leaf, leaf.scope)
        logs = as_logs(table).values
        inside = logs[logs > -np.inf]
        assert table.logs == (inside.size > 0 and np.ptp(inside) > -LOWEST)
        assert inside.max(initial=-1.0) <= 0.0
        assert np.all((table.low - 1e-9 <= inside) & (inside <= table.high + 1e-9))
        total = np.zeros([network.dims[v] for v in leaf.scope])
        for scope, values in (restricted(network, f) for f in leaf.functions):
            shape = [network.dims[v] if v in scope else 1 for v in leaf.scope]
            with np.errstate(divide="ignore"):
                total += np.log(values.transpose([scope.index(v) for v in leaf.scope if v in scope]).reshape(shape))
        assert logs + table.log_scale == pytest.approx(total.reshape(-1), rel=1e-12, abs=1e-12)
