"""GPUs through a local cluster: the same answers as one, and clear words where something is missing."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.cluster.connect import ClusterError
from bucketflow.cluster.gpu import count_gpus
from bucketflow.pipeline.cli import main
from bucketflow.pipeline.examples import example_path


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


@pytest.mark.gpu
def test_two_gpus_give_the_answer_of_none() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available() or cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than two NVIDIA GPUs")
    from bucketflow.tasks import gpu_sweep

    gpu_sweep.Places.__init__.__defaults__ = (64,)
    for name in ("satellite", "diagnosis"):
        model = bucketflow.load(example_path(name))
        plan = bucketflow.plan(model)
        assert plan is not None
        expected = bucketflow.solve(model)
        got = bucketflow.solve(model, gpus=2, memory=max(plan.peak_bytes // 2, 1 << 16))
        assert (got.value, got.status) == (expected.value, expected.status)
