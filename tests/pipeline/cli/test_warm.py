"""Compiling ahead leaves nothing to compile, and small questions need no compiler."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli import calibrate
from bucketflow.pipeline.cli.main import main
from bucketflow.tasks.compiler import code_cache
from bucketflow.tasks.compiler.code_cache import is_compiled

ROOT = Path(bucketflow.__file__).parent
#: Loops for many rows, which small questions do not need.
LATER = {f"tasks.rows.{name}" for name in ("layer_loops", "sort_loops", "join_loops")}


def kept() -> Iterator[tuple[str, str]]:
    """Module and name of every function whose machine code is kept, but for those that are always inlined."""
    for path in [*(ROOT / "tasks").rglob("*.py"), *(ROOT / "pipeline").rglob("*.py")]:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and module not in LATER:
                options = " ".join(map(ast.unparse, node.decorator_list))
                if "cache=True" in options and "inline='always'" not in options:
                    yield module, node.name


def test_everything_is_compiled_ahead() -> None:
    run = CliRunner().invoke(main, ["warm"])
    assert run.exit_code == 0, run.output
    assert "search" in run.output
    assert len({*kept()}) > 50
    assert [name for name in kept() if not is_compiled(*name)] == []


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
