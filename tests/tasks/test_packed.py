"""Tables in one array against tables one by one: the same messages, whatever changes."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.compiled.state import kept_tables
from bucketflow.pipeline.models.model import Function
from bucketflow.tasks.incremental.kept_tables import Incremental
from bucketflow.tasks.incremental.packed import Packed
from bucketflow.tasks.incremental.stages import is_small, nests
from bucketflow.tasks.steps.lowering import Quick
from bucketflow.tasks.steps.semiring import SUM_PRODUCT
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps.scaled import QuickSumProduct, Scaled, einsum_step, measured
from tests.models import bayes_models, markov_models, named_model

SIZES = (2, 3, 1, 4, 2, 5)
SCOPE = st.lists(st.integers(0, 5), unique=True, max_size=4)


def logs(table: Scaled) -> Any:
    with np.errstate(divide="ignore"):
        return (table.values if table.logs else np.log(table.values)) + table.log_scale


@given(scopes=st.lists(SCOPE, min_size=1, max_size=4), seed=st.integers(0, 99), data=st.data())
def test_nests_visit_every_cell(scopes: list[list[int]], seed: int, data: st.DataObject) -> None:
    axes = tuple(tuple(s) for s in scopes)
    union = sorted({v for s in axes for v in s})
    out = tuple(data.draw(st.lists(st.sampled_from(union), unique=True))) if union else ()
    step = make_step(9, tuple(range(len(axes))), axes, out, SIZES, SUM_PRODUCT)
    rng = np.random.default_rng(seed)
    inputs = {i: measured(rng.random(int(np.prod([SIZES[v] for v in a], dtype=int)))) for i, a in enumerate(axes)}
    assert isinstance(step.lowered.quick, Quick)
    packed = Packed([step], 1, inputs, QuickSumProduct(SIZES, True))
    packed.refresh([9])
    views = [t.values.reshape(s) for t, s in zip(inputs.values(), step.lowered.quick.shapes, strict=True)]
    expected = einsum_step(step.lowered.quick, views).reshape(-1)
    found = packed.table(9)
    assert is_small(step)
    assert found.values * np.exp(found.log_scale - sum(t.log_scale for t in inputs.values())) == pytest.approx(expected)


def test_joins_of_many_tables_are_split_as_einsum_splits_them() -> None:
    sizes, axes = (8, 9, 10, 11), ((0, 1, 2), (2, 3), (3,), (1, 3))
    quick = make_step(9, (0, 1, 2, 3), axes, (0, 3), sizes, SUM_PRODUCT).lowered.quick
    assert quick is not None
    made = nests(quick)
    assert len(made) == 3
    assert sorted(i for nest in made for i in nest.operands) == [0, 1, 2, 3, 4, 5]


@given(model=st.one_of(markov_models(), bayes_models()), data=st.data())
def test_both_ways_of_keeping_tables_agree(model: Model, data: st.DataObject) -> None:
    compiled = bucketflow.compile(model)
    plan = compiled.plan
    if plan is None or compiled.skeleton.fixed is None:
        return
    base = dict(compiled._base)
    packed, loose = kept_tables(plan, base, True), kept_tables(plan, base, False)
    assert isinstance(packed, Packed)
    assert isinstance(loose, Incremental)
    nodes = [step.node for step in plan.steps]
    for _ in range(3):
        leaf = data.draw(st.sampled_from(sorted(base)))
        values = base[leaf].values * data.draw(st.sampled_from([1.0, 0.5, 1e-200, 0.0]))
        values[data.draw(st.integers(0, values.size - 1)) :] *= data.draw(st.sampled_from([1.0, 0.25, 1e-250]))
        for tables in (packed, loose):
            tables.set_leaf(leaf, measured(values.copy(), base[leaf].log_scale))
            tables.refresh(nodes)
        for root in plan.tree.roots:
            assert logs(packed.table(root)) == pytest.approx(logs(loose.table(root)), rel=1e-10, abs=1e-10)
        for node in nodes:
            one, other = logs(packed.table(node)), logs(loose.table(node))
            if one.max() > -np.inf:
                assert one - one.max() == pytest.approx(other - other.max(), rel=1e-10, abs=1e-10)


def test_products_out_of_range_leave_the_loops() -> None:
    tiny = np.array([1.0, 1e-200])
    functions = [Function((i, i + 1), np.outer(tiny, tiny)) for i in range(6)]
    model = named_model("markov", [2] * 7, functions)
    compiled = bucketflow.compile(model)
    assert compiled.plan is not None
    packed = kept_tables(compiled.plan, compiled._base, True)
    packed.refresh([step.node for step in compiled.plan.steps])
    total = sum(packed.table(root).log_value() for root in compiled.plan.tree.roots)
    assert total == pytest.approx(np.log(10) * bucketflow.solve(model, query="partition").log10, abs=1e-9)


@pytest.mark.parametrize(("compiled", "threads"), [(True, 1), (True, 5), (False, 1)])
def test_kept_tables_need_what_the_plan_says(compiled: bool, threads: int) -> None:
    rng = np.random.default_rng(6)
    functions = [Function((i, (i + 1) % 15, (i + 4) % 15), rng.random((6, 6, 6))) for i in range(15)]
    model = bucketflow.compile(named_model("markov", [6] * 15, functions), threads=threads)
    plan, base = model.plan, dict(model._base)
    assert plan is not None
    assert plan.kept_threads == threads
    assert plan.kept_bytes > 20_000_000
    nodes = [step.node for step in plan.steps]
    kept_tables(plan, base, compiled).refresh(nodes, threads)
    gc.collect()
    tracemalloc.start()
    tables = kept_tables(plan, base, compiled)
    tables.refresh(nodes, threads)
    tables.set_leaf(0, measured(base[0].values * rng.random(216)))
    tables.refresh(nodes, threads)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= plan.kept_bytes + 1_000_000


@CompiledPolicy.using(loading_seconds=0.0)
def test_a_model_that_is_asked_often_changes_pace() -> None:
    rng = np.random.default_rng(1)
    model = named_model("markov", [3] * 6, [Function((i, i + 1), rng.random((3, 3))) for i in range(5)])
    compiled = bucketflow.compile(model)
    assert compiled.plan is not None
    compiled._keep_tables(False)
    before = {name: table.copy() for name, table in compiled.marginals().items()}
    assert isinstance(compiled._tables, Packed)
    done = compiled.computed
    after = compiled.marginals()
    assert compiled.computed == done
    assert all(after[name] == pytest.approx(before[name], rel=1e-14) for name in before)
    compiled.add("x3", 1)
    expected = bucketflow.marginals(model, evidence={"x3": 1})
    found = compiled.marginals()
    assert all(found[name] == pytest.approx(expected[name], rel=1e-12) for name in expected)
