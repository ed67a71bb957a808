"""The rooms import only what they may, and planning never touches tables, disks or clusters."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "storage": set(),
    "tasks": {"storage"},
    "cluster": set(),
    "pipeline": {"storage", "tasks", "cluster"},
}


def imported_rooms(path: Path, room: str) -> set[str]:
    """Rooms that a module imports by relative imports."""
    depth = len(path.relative_to(ROOT).parts) - 1
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth + 1 and node.module:
            found.add(node.module.split(".")[0])
    return found & set(MAY_IMPORT) - {room}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_one_way(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        assert imported_rooms(path, room) <= MAY_IMPORT[room], path


PURE = (
    *("boxing", "costs", "fit", "greedy", "layouts", "memory", "ordering"),
    *("plan", "planner", "refine", "slicing", "spill", "stages", "trees"),
)


@pytest.mark.parametrize("module", PURE)
def test_planning_is_pure(module: str) -> None:
    path = ROOT / "pipeline" / f"{module}.py"
    assert imported_rooms(path, "pipeline") <= {"tasks"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        assert not {name.split(".")[0] for name in names} & {"zarr", "dask", "distributed", "cupy"}


def run_python(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from bucketflow.pipeline.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'numba', 'dask', 'distributed', 'zarr', 'rich') if m in sys.modules])"
    )
    assert run_python(code).strip().endswith("[]")


def test_planning_and_small_solves_need_no_compiler_disk_or_cluster() -> None:
    code = (
        "import sys\n"
        "for name in ('zarr', 'dask', 'distributed', 'cupy', 'numba', 'cotengra'): sys.modules[name] = None\n"
        "import bucketflow\n"
        "from bucketflow.pipeline.examples import example_path\n"
        "for name in ('satellite', 'diagnosis'):\n"
        "    print(bucketflow.solve(bucketflow.load(example_path(name))).status)"
    )
    assert run_python(code).split() == ["optimal", "optimal"]
