"""Versions of Numba that are not known, or lack a part: slower, with the same answers, and said."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

import bucketflow
from bucketflow.tasks.compiler import numba_parts
from bucketflow.tasks.compiler.numba_parts import TESTED, _missing, _unknown_version, unknown_numba

PARTS = [(module, name) for module, names in numba_parts._PARTS.items() for name in names]

# What stands before a program: another version, or a part that is gone.
CHANGES = {
    "version": 'import numba; numba.__version__ = "0.999.1"\n',
    "part": (
        "from numba.core.codegen import JITCodeLibrary\n"
        "name = '_set_compiled_object'\n"
        "delattr(next(c for c in JITCodeLibrary.__mro__ if name in vars(c)), name)\n"
    ),
}
_ANSWERS = """
import json, logging
import numpy as np
import bucketflow
from bucketflow.tasks.compiler.code_cache import impatient

def grid(kind):
    rng = np.random.default_rng(1)
    n, d = 7, 4
    names = {f"x{v}": d for v in range(n * n)}
    functions = [([f"x{v}", f"x{v + 1}"], rng.integers(1, 9, (d, d))) for v in range(n * n - 1) if v % n < n - 1]
    functions += [([f"x{v}", f"x{v + n}"], rng.integers(1, 9, (d, d))) for v in range(n * n - n)]
    return bucketflow.Model.build(kind, names, functions)

with impatient():
    optimum = bucketflow.solve(grid("cost"), method="dense", order="min-fill")
    total = bucketflow.solve(grid("markov"), "partition", method="dense", order="min-fill")
    found = bucketflow.marginals(grid("markov"), evidence={"x0": 1}, order="min-fill")
    compiled = bucketflow.compile(grid("markov"), order="min-fill")
    compiled.add("x0", 1)
    kept = compiled.marginals("all")
print(json.dumps({
    "optimum": optimum.value,
    "total": round(total.log10, 9),
    "marginals": {name: np.round(table, 9).tolist() for name, table in found.tables.items()},
    "kept": {name: np.round(table, 9).tolist() for name, table in kept.tables.items()},
    "notes": [*optimum.notes],
}))
"""


@pytest.mark.parametrize(("module", "name"), PARTS)
def test_every_part_is_looked_for(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [*_missing()] == []
    *path, last = name.split(".")
    owner: Any = importlib.import_module(module)
    for part in path:
        owner = getattr(owner, part)
    owner = next((base for base in getattr(owner, "__mro__", ()) if last in vars(base)), owner)
    monkeypatch.delattr(owner, last)
    assert f"Numba {numba.__version__} has no {module}.{name}" in [*_missing()]


@pytest.mark.parametrize(
    ("version", "known"),
    [("0.61.2", False), ("0.62.0", True), ("0.62.0rc1", True), ("0.68.9", True), ("0.69.0", False), ("1.0.0", False)],
)
def test_versions(version: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba, "__version__", version)
    said = _unknown_version()
    assert (said == "") == known
    assert known or f"Numba {version} was not tested with bucketflow (0.62 to 0.68 were)" in said


def test_this_version_is_known() -> None:
    """The tests run with it: that is what the range says."""
    assert unknown_numba() == ""
    assert TESTED[0] < TESTED[1]


def run(change: str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BUCKETFLOW_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-c", change + program], capture_output=True, text=True, env=environment, check=True
    )


@pytest.mark.parametrize("change", CHANGES)
def test_answers_are_the_same(change: str, tmp_path: Path) -> None:
    done = run(CHANGES[change], _ANSWERS, tmp_path)
    (line,) = done.stderr.splitlines()
    assert "NumPy does what vectors would" in line
    found = json.loads(done.stdout)
    assert found.pop("notes") == [line]
    names: dict[str, Any] = {}
    exec(_ANSWERS.partition("with impatient")[0], names)
    costs, potentials = names["grid"]("cost"), names["grid"]("markov")
    assert found["optimum"] == bucketflow.solve(costs, method="dense").value
    assert found["total"] == pytest.approx(bucketflow.solve(potentials, "partition", method="dense").log10)
    expected = bucketflow.marginals(potentials, evidence={"x0": 1})
    for tables in (found["marginals"], found["kept"]):
        assert {name: pytest.approx(table) for name, table in tables.items()} == {
            name: expected[name].tolist() for name in tables
        }


_LOOP = """
import sys
sys.path.insert(0, {folder!r})
import loops
print(loops.doubled(4), sum(loops.doubled.stats.cache_hits.values()))
"""


def test_machine_code_is_kept_by_numba_itself(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(
        "from bucketflow.tasks.compiler.jit import njit\n\n@njit(cache=True)\ndef doubled(x):\n    return x * 2\n"
    )
    program = _LOOP.format(folder=str(tmp_path))
    assert [run(CHANGES["version"], program, tmp_path).stdout for _ in range(2)] == ["8 0\n", "8 1\n"]
    kept = list((tmp_path / "cache").rglob("*.nb?"))
    assert kept
    assert all("plain" in path.parts for path in kept)


def test_where_nothing_can_be_written_loops_are_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(
        "from bucketflow.tasks.compiler.jit import njit\n\n@njit(cache=True)\ndef doubled(x):\n    return x * 2\n"
    )
    (tmp_path / "cache").write_text("no folder")
    assert run(CHANGES["version"], _LOOP.format(folder=str(tmp_path)), tmp_path).stdout == "8 0\n"
