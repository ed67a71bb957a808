"""Compiling ahead leaves nothing to compile, and small questions need no compiler."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.cluster import gpus
from bucketflow.cluster.connect import ClusterError
from bucketflow.pipeline.cli import calibrate
from bucketflow.pipeline.cli.main import main
from bucketflow.tasks.compiler import code_cache
from bucketflow.tasks.compiler.code_cache import is_compiled
from bucketflow.tasks.gpu import kernels
from bucketflow.tasks.gpu.decoding import decode_kernel
from bucketflow.tasks.gpu.kernels import Kernel
from bucketflow.tasks.gpu.messages.propagation import propagation_kernels
from bucketflow.tasks.rows.device import join_kernels
from bucketflow.tasks.steps.semiring import min_plus
from bucketflow.tasks.sweeps.conditional_draws import walk_kernels

ROOT = Path(bucketflow.__file__).parent


def kept() -> Iterator[tuple[str, str]]:
    """Module and name of every function whose machine code is kept, but for those that are always inlined."""
    for path in [*(ROOT / "tasks").rglob("*.py"), *(ROOT / "pipeline").rglob("*.py")]:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                options = " ".join(map(ast.unparse, node.decorator_list))
                if "cache=True" in options and "inline='always'" not in options:
                    yield module, node.name


def test_everything_is_compiled_ahead(warmed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output, errors = json.loads((warmed / "warm.json").read_text())
    assert (code, errors) == (0, "")
    assert "search" in output
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(warmed))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    code_cache.forget_folders()
    assert len({*kept()}) > 50
    assert [name for name in kept() if not is_compiled(*name)] == []


# Asks every query by every engine, with loops wherever they can be called.
_ASKED = """
import numpy as np
import bucketflow as b
from bucketflow.pipeline.cli.calibrate import _grid
from bucketflow.tasks.compiler.code_cache import impatient
from bucketflow.tasks.steps.policy import RowPolicy

def clauses():
    clause = (np.arange(8.0) > 0.0).reshape(2, 2, 2)
    scopes = [[f"x{(v + k) % 9}" for k in (0, 1, 3)] for v in range(9)]
    return b.Model.build("markov", {f"x{v}": 2 for v in range(9)}, [(scope, clause) for scope in scopes])

costs, fractions, weights = _grid("cost", 4, 2), _grid("cost", 4, 2), _grid("markov", 4, 2)
fractions = b.Model.build("cost", dict(zip(costs.names, costs.dims)), [
    ([costs.names[v] for v in f.scope], f.values + 0.125) for f in costs.functions])
rows = lambda: RowPolicy.using(warm_rows=0, cold_rows=0, block_rows=8, small_cells=0, array_share=0.0,
                               cells_of_a_row=0)
with impatient():
    for model in (costs, fractions, weights):
        for query in ("optimum", "count") if model.kind == "cost" else ("optimum", "partition"):
            for method in ("auto", "dense", "search", "diagram", *["rows"] * (query == "optimum")):
                b.solve(model, query, method=method, prune=query != "optimum")
            b.solve(model, query, threads=2)
            with rows():
                b.solve(model, query, representation="rows")
        b.best(model, 4), b.best(model, 3, diverse=2), b.bound(model, z=3)
        b.marginals(model, max_marginals=True)
    names = list(weights.names)
    b.marginals(weights, derivatives=True), b.bound(weights, query="partition", z=3)
    b.sample(weights, 9), b.sample(costs, 9, temperature=1.0)
    b.solve(weights, "mmap", maximize=names[:4])
    with rows():
        b.marginals(weights, representation="rows")
    compiled = b.compile(weights)
    compiled.set_evidence({names[0]: 1}), compiled.marginals(), compiled.joint(names[:2])
    compiled.marginals_batch([{names[0]: 0}, {names[1]: 1}])
    b.solve(clauses(), "count"), b.solve(clauses(), "count", project=["x0", "x1", "x2"])
"""


def test_after_warm_nothing_is_compiled(warmed: Path) -> None:
    before = {*warmed.rglob("*.nbc")}
    environment = {**os.environ, "BUCKETFLOW_CACHE": str(warmed)}
    done = subprocess.run([sys.executable, "-c", _ASKED], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert before
    assert {*warmed.rglob("*.nbc")} - before == set()


def test_modules_are_compiled_ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    calibrate._modules()
    for module in (bucketflow, calibrate):
        assert Path(cache_from_source(str(module.__file__))).exists()


# A command line that fails where the compiler was loaded for it.
_WITHOUT = """
import sys
from bucketflow.pipeline.cli.calibrate import warm
from bucketflow.pipeline.cli.main import main
main(sys.argv[1:], standalone_mode=False)
assert "numba" not in sys.modules
"""


@pytest.mark.parametrize("command", ["dpop meetings", "plan grid", "solve satellite"])
def test_small_first_questions_compile_nothing(command: str, tmp_path: Path) -> None:
    environment = {**os.environ, "BUCKETFLOW_CACHE": str(tmp_path)}
    script = [sys.executable, "-c", _WITHOUT, *command.split(), "--json"]
    done = subprocess.run(script, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_compiled_ahead_where_code_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(code_cache, "PACKAGE", tmp_path / "package")
    (tmp_path / "package" / "__pycache__").mkdir(parents=True)
    (tmp_path / "package" / "__pycache__" / "machine-code").write_text("no folder")
    assert code_cache.code_home() == tmp_path / "machine-code"
    (tmp_path / "machine-code").mkdir()
    (tmp_path / "machine-code").chmod(0o777)
    run = CliRunner().invoke(main, ["warm"])
    assert run.exit_code == 2
    assert "no folder can store machine code: machine code is neither read from" in run.stderr
    assert f"everybody may write to {tmp_path / 'machine-code'}" in run.stderr
    assert "cannot be written to" in run.stderr
    assert not run.stdout


@pytest.mark.parametrize("usable", [True, False])
def test_kernels_that_no_model_decides_are_compiled_ahead(usable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the command, compiled models, draws, decoding and joins of sparse tables with keys of one word find their
    kernels.
    """
    compiled: list[Kernel] = []

    def count_gpus(_: str) -> int:
        if not usable:
            raise ClusterError("--gpus needs an NVIDIA GPU, and this process finds none")
        return 1

    monkeypatch.setattr(gpus, "is_asleep", lambda: True)
    monkeypatch.setattr(gpus, "count_gpus", count_gpus)
    monkeypatch.setattr(kernels, "compile_together", compiled.extend)
    dict(calibrate.warm_jobs())["kernels of GPUs"]()
    wanted = [*propagation_kernels("sum_product"), *propagation_kernels("sum_product", 5)]
    wanted += [*walk_kernels(np.dtype("int16")), decode_kernel(min_plus("int32")), *join_kernels(1, min_plus("int64"))]
    assert ({each.code for each in wanted} <= {each.code for each in compiled}) == usable
    monkeypatch.setattr(gpus, "is_asleep", lambda: False)
    assert "kernels of GPUs" not in dict(calibrate.warm_jobs())
