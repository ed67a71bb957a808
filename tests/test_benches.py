"""Benches say in one sentence what they lack."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import bucketflow
from bucketflow.pipeline.answering.question import question_of

BENCHES = Path(__file__).parent / "bench"
LACKING_DATA = [
    ("plans", "instances"),
    ("marginals", "instances"),
    ("marginal_spill", "instances"),
    ("gpu_models", "instances"),
]
LACKING_GPUS = [("gpu", "CuPy"), ("gpu_spill", "CuPy"), ("gpu_marginals", "CuPy"), ("gpu_scaling", "CuPy")]


IMPORT_ALL = """
import importlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    try:
        importlib.import_module(path.stem)
    except SystemExit as lacking:
        print(path.stem, lacking)
"""


def test_all_import() -> None:
    """Those for a GPU too, up to where they ask for CuPy."""
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, BENCHES], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert all("CuPy" in line for line in done.stdout.splitlines())


@pytest.mark.parametrize(("bench", "word"), [*LACKING_DATA, *LACKING_GPUS])
def test_what_is_missing_is_named(tmp_path: Path, bench: str, word: str) -> None:
    if word == "CuPy" and find_spec("cupy"):
        pytest.skip("CuPy is there")
    nowhere = {name: str(tmp_path) for name in ("BUCKETFLOW_DATA", "BUCKETFLOW_GPUDATA")}
    done = subprocess.run(
        [sys.executable, BENCHES / f"{bench}.py"], capture_output=True, text=True, env=os.environ | nowhere
    )
    assert done.returncode == 1
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plan_without_cells_is_no_division_by_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the tables of the model are all there is, a CPU's plan has no steps and no cells."""
    monkeypatch.syspath_prepend(BENCHES)
    bench = importlib.import_module("gpu_runs")
    model = bucketflow.Model.build("cost", {"a": 1}, [(("a",), [7])])
    left = bench.preprocessed(question_of(model, "optimum"))
    monkeypatch.setitem(bench.CASES, "settled", ("none", "optimum", None))
    monkeypatch.setattr(bench, "unplanned", lambda name: left)
    prices, spent, ratio = bench.planned("settled", 1 << 30)
    assert ratio is None
    bench.shown("settled", replace(left, prices=prices, seconds=spent), ratio)
    assert "no cells, 0 steps" in capsys.readouterr().out
    bench.print_summary([bench.Took(1.0, 1.0, 0.0)])
