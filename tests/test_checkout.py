"""A checkout works under any name of its folder, and nothing imports a second copy of the package from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_structure import ROOMS, ROOT

# What tests/conftest.py needs.
SHARED = ("clusters.py", "conftest.py", "few_cases.py", "object_server.py", "policies.py", "slow.txt")
TEST = "def test_imports():\n    import sys, bucketflow\n    assert not set(%r) & set(sys.modules)\n"


def run(*command: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=where, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["bucketflow-main", ".x", "a b", "1.2", "import"])
def test_tests_run_in_a_folder_of_any_name(name: str, tmp_path: Path) -> None:
    clone = tmp_path / name
    (clone / "tests").mkdir(parents=True)
    for path in ("__init__.py", "pyproject.toml", *(f"tests/{name}" for name in SHARED)):
        shutil.copy(ROOT / path, clone / path)
    (clone / "tests" / "test_imports.py").write_text(f"{TEST % (sorted(ROOMS),)}")
    ended = run("-m", "pytest", "-p", "no:cacheprovider", where=clone)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_imported_as_a_part_of_the_package(room: str) -> None:
    ended = run("-c", f"import {room}", where=ROOT)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last == f"ImportError: the package {room} is a part of bucketflow: import bucketflow.{room} instead"
