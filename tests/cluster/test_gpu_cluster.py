"""GPUs through a local cluster: the same answers as one, and clear words where something is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.cluster.connect import ClusterError
from bucketflow.cluster.gpus import count_gpus, gpu_client
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.examples import example_path
from bucketflow.pipeline.models.model import Function, Model
from bucketflow.pipeline.plans import worker_parts
from bucketflow.pipeline.plans.problem import PlanningPolicy
from tests.cluster.test_gpu_marginals import branching
from tests.models import grid


def test_missing_cupy_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for command in ("solve", "plan"):
        result = CliRunner().invoke(main, [command, str(example_path("satellite")), "--gpus", "all"])
        assert result.exit_code == 2
        assert "CuPy" in result.output
        assert len(result.output.splitlines()) == 1


@pytest.mark.gpu
def test_counts() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    there = count_gpus("all")
    assert count_gpus(1) == 1
    for wrong in (0, there + 1, "many"):
        with pytest.raises(ClusterError):
            count_gpus(wrong)


def ring(variables: int = 26) -> Model:
    """A ring with chords, of random costs, each of which forbids something."""
    rng = np.random.default_rng(4)
    scopes = [(v, (v + 1) % variables, (v + 5) % variables) for v in range(variables)]
    tables = rng.integers(0, 50, (variables, 4, 4, 4))
    tables[:, 3, 3, 3] = 10**6
    functions = tuple(Function(scope, table) for scope, table in zip(scopes, tables, strict=True))
    names = tuple(f"x{v}" for v in range(variables))
    return Model("cost", names, (4,) * variables, (None,) * variables, functions, top=10**6)


@pytest.mark.gpu
def test_two_gpus_give_the_answer_of_none() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available() or cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than two NVIDIA GPUs")
    model = ring()
    expected = bucketflow.solve(model)
    plan = bucketflow.plan(model, gpus=2)
    assert plan is not None
    got = bucketflow.solve(model, gpus=2, memory=plan.peak_bytes // 12)
    assert got.plan is not None
    assert got.plan.slices > 1
    assert (got.value, got.status) == (expected.value, expected.status)


@pytest.mark.gpu
@pytest.mark.parametrize("query", ["optimum", "count"])
def test_two_gpus_share_boxes_of_tables_larger_than_either(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available() or cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than two NVIDIA GPUs")
    model = ring()
    expected = bucketflow.solve(model, query)
    plan = bucketflow.plan(model, query, gpus=2, tree="bucket")
    assert plan is not None
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-9)
    options = {"gpus": 2, "tree": "bucket", "fit": "spill", "gpu_memory": plan.peak_bytes * 2}
    got = bucketflow.solve(model, query, **options)
    assert got.plan is not None
    assert got.plan.spill is not None
    assert max(map(got.plan.spill.boxes, got.plan.spill.stages)) > 1
    assert (got.value, got.status) == (expected.value, expected.status)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2])
@CompiledPolicy.using(device_block_seconds=0.0)
def test_marginals_on_workers_of_gpus(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of cases and slices, spread over one process a GPU."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available() or cupy.cuda.runtime.getDeviceCount() < count:
        pytest.skip("fewer NVIDIA GPUs")
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    model, rng = grid(4, 5, 6, "markov"), np.random.default_rng(1)
    cases = {"x0": rng.integers(-1, 6, 500), "x7": rng.integers(0, 6, 500), "x9": rng.random((500, 6))}
    expected, several = bucketflow.marginals(model), bucketflow.compile(model).marginals_batch(cases)
    with gpu_client(count) as client:
        options = {"client": client, "gpus": count}
        batch = bucketflow.compile(model, **options).marginals_batch(cases)
        whole = bucketflow.marginals(model, **options)
        assert whole.plan is not None
        sliced = bucketflow.marginals(model, gpu_memory=whole.plan.peak_bytes // 3, **options)
        assert sliced.plan is not None
        assert sliced.plan.slices > 1
    assert batch.log10_evidence == pytest.approx(several.log10_evidence, rel=1e-11)
    for name in model.names:
        assert batch[name] == pytest.approx(several[name], rel=1e-9, abs=1e-13)
        for found in (whole, sliced):
            assert found[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-13)


@pytest.mark.gpu
def test_two_gpus_propagate_parts_of_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available() or cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than two NVIDIA GPUs")
    monkeypatch.setattr(worker_parts, "CORES_OF_A_DEVICE", 1)
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-6)
    free = {"start_seconds": 0.0, "part_seconds": 0.0, "device_link_bytes_per_second": 1e30}
    with gpu_client(2) as client, PlanningPolicy.using(**free):
        for kind in ("markov", "cost"):
            model, max_marginals = branching(kind), kind == "cost"
            found = bucketflow.marginals(model, max_marginals=max_marginals, client=client, gpus=2)
            assert found.plan is not None
            assert found.plan.parts is not None
            assert found.plan.device
            for name, table in bucketflow.marginals(model, max_marginals=max_marginals).items():
                assert found[name] == pytest.approx(table, rel=1e-12, abs=1e-15)
