"""Whole models on a GPU: the same answers as on the CPU, also in slices, in parts, and as logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.models.model import Function, Model
from bucketflow.tasks.gpu import kernels
from bucketflow.tasks.gpu.arrays import upload
from bucketflow.tasks.gpu.device_policy import DevicePolicy
from bucketflow.tasks.steps.semiring import Semiring, min_plus, mod_sum_product
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps import device_sweep as gpu_sweep
from bucketflow.tasks.sweeps.scaled import Scaled, from_logs, measured

from ..programs import chain_program

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
if not cupy.cuda.is_available():
    pytest.skip("no NVIDIA GPU", allow_module_level=True)


@pytest.fixture(autouse=True)
def everything_on_the_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiny steps too, and no time for compiling is expected."""
    monkeypatch.setattr(kernels, "is_marked", lambda _: True)
    with DevicePolicy.using(step_least_cells=64):
        yield


def network(kind: str, seed: int, variables: int = 24, domain: int = 4, tiny: float = 1.0) -> Model:
    """Draw a ring of rings with functions of three variables; ``tiny`` scales all probabilities."""
    rng = np.random.default_rng(seed)
    dims = [int(d) for d in rng.integers(2, domain + 1, variables)]
    scopes = [(v, (v + 1) % variables, (v + 5) % variables) for v in range(variables)]
    functions = []
    for scope in scopes:
        shape = [dims[v] for v in scope]
        values: Any = rng.integers(0, 50, shape) if kind == "cost" else rng.random(shape) ** 3 * tiny
        functions.append(Function(scope, values))
    names = tuple(f"x{v}" for v in range(variables))
    return Model("cost" if kind == "cost" else "markov", names, tuple(dims), (None,) * variables, tuple(functions))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("query", ["optimum", "count"])
def test_costs(seed: int, query: str) -> None:
    model = network("cost", seed)
    expected = bucketflow.solve(model, query)
    got = bucketflow.solve(model, query, gpus=1)
    assert (got.status, got.value) == (expected.status, expected.value)


@pytest.mark.parametrize("tiny", [1.0, 1e-200])
@pytest.mark.parametrize("query", ["optimum", "partition"])
def test_probabilities(query: str, tiny: float) -> None:
    model = network("probability", 5, tiny=tiny)
    expected = bucketflow.solve(model, query)
    got = bucketflow.solve(model, query, gpus=1)
    assert got.log10 is not None
    assert expected.log10 is not None
    assert math.isclose(got.log10, expected.log10, rel_tol=1e-12)


def test_slices_and_parts_fit_a_small_budget() -> None:
    model = network("cost", 9, variables=30)
    expected = bucketflow.solve(model)
    plan = bucketflow.plan(model, gpus=1)
    assert plan is not None
    small = bucketflow.solve(model, gpus=1, memory=plan.peak_bytes // 8)
    assert small.plan is not None
    assert small.plan.slices > 1 or small.plan.cuts
    assert small.value == expected.value


def test_a_chain_stays_on_the_device_and_small_subtrees_on_the_host() -> None:
    places = gpu_sweep.DevicePlaces(1000)

    class Fake:
        def __init__(self, node: int, inputs: tuple[int, ...], cells: int) -> None:
            self.node, self.inputs = node, inputs
            self.lowered = type("L", (), {"cells": cells})()

    steps: Any = [Fake(5, (0, 1), 10), Fake(6, (2, 5), 2000), Fake(7, (6, 3), 10), Fake(8, (4,), 20)]
    assert places.device_nodes(steps) == {6, 7}


@pytest.mark.parametrize("size", [1e-80, 1e-30, 1.0, 1e30, 1e80])
def test_logarithms_and_bounds_are_measured_alike(size: float) -> None:
    rng = np.random.default_rng(2)
    values = rng.random(100_000) * size
    values[::7] = 0.0
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    for there, here in (
        (measured(cupy.asarray(values)), measured(values.copy())),
        (from_logs(cupy.asarray(logs), 1.0), from_logs(logs, 1.0)),
    ):
        scale = there.log_scale - here.log_scale
        assert math.isclose(there.high + scale, here.high, abs_tol=1e-10)
        assert math.isclose(there.low + scale, here.low, abs_tol=1e-10)
        found = gpu_sweep.fetch(there).values
        np.testing.assert_allclose(found + scale if there.logs else found * np.exp(scale), here.values, rtol=1e-11)


def test_upload_keeps_every_table() -> None:
    arrays = [np.arange(n, dtype=d) for n, d in ((1, "int16"), (300, "float64"), (7, "int32"), (0, "int64"))]
    for most in (1 << 24, 512):
        with DevicePolicy.using(packed_bytes=most):
            found = upload(arrays)
        for there, here in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(there.get(), here)
    assert isinstance(gpu_sweep.fetch(Scaled(cupy.ones(3))).values, np.ndarray)


@pytest.mark.parametrize("semiring", [min_plus("int16", 4), min_plus("int32", 4), mod_sum_product(2147483647)])
def test_repeated_sweeps_read_their_own_tables(semiring: Semiring) -> None:
    program = chain_program(semiring, length=9, states=6)
    keep = [step.node for step in program.steps]
    for change in (0, 1, 2, 0):
        leaves = {node: (table + change).astype(semiring.dtype) for node, table in program.leaves.items()}
        once = program.again(program.steps, leaves)
        expected, found = once.run(keep=keep), gpu_sweep.device_program(once, fetched=True).run(keep=keep)
        for node, table in expected.items():
            np.testing.assert_array_equal(found[node], table)


def test_slices_that_repeat_a_sweep_are_those_of_the_cpu() -> None:
    costs = min_plus("int16", 4)
    program = chain_program(costs, length=9, states=6)
    sizes = {v: 1 if v == 10 else n for v, n in enumerate(program.dims)}
    steps = [make_step(s.node, s.inputs, s.input_axes, s.axes, sizes, costs) for s in program.steps]
    sliced, states = program.again(tuple(steps), program.leaves), [{10: state} for state in range(6)] * 3
    expected = list(sliced.run_slices(states))
    for one, other in zip(gpu_sweep.device_program(sliced, fetched=True).run_slices(states), expected, strict=True):
        np.testing.assert_array_equal(one[program.outputs[0]], other[program.outputs[0]])


@pytest.mark.parametrize("semiring", [min_plus("int16", 4), mod_sum_product(2147483647)])
def test_repeated_sweeps_are_one_graph_and_read_the_tables_of_each(semiring: Semiring) -> None:
    program = chain_program(semiring)
    for change in range(14):
        leaves = {node: (table + change).astype(semiring.dtype) for node, table in program.leaves.items()}
        again = program.again(program.steps, leaves)
        found = gpu_sweep.device_program(again, fetched=True).run()
        for node, table in again.run().items():
            np.testing.assert_array_equal(found[node], table)
