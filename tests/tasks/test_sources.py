"""Cached machine code belongs to the sources that it was compiled from."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import numba
import pytest

from bucketflow.tasks import code_files
from bucketflow.tasks.cpu.sources import Sources
from bucketflow.tasks.incremental import packed_loops


def test_other_contents_are_another_type(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("ONE = 1")
    before, again = Sources([file]), Sources([file])
    file.write_text("ONE = 2")
    assert numba.typeof(before) == numba.typeof(again)
    assert numba.typeof(Sources([file])) != numba.typeof(before)


def inlined(path: Path) -> set[Path]:
    """Files of which kernels in a file use something, directly or through each other."""
    tree = ast.parse(path.read_text())
    origin = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            module = path.parents[node.level - 1].joinpath(*(node.module or "").split(".")).with_suffix(".py")
            origin.update({alias.name: module for alias in node.names})
    kernels = [n for n in tree.body if isinstance(n, ast.FunctionDef) and "njit" in map(decorator, n.decorator_list)]
    names = {n.id for kernel in kernels for part in kernel.body for n in ast.walk(part) if isinstance(n, ast.Name)}
    found = {module for name, module in origin.items() if name in names}
    return found.union(*(inlined(module) for module in found))


def decorator(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


@pytest.mark.parametrize("name", ["cpu.streaming", "cpu.product"])
def test_kernels_name_all_that_they_inline(name: str) -> None:
    module = importlib.import_module(f"bucketflow.tasks.{name}")
    assert module.__file__ is not None
    expected = inlined(Path(module.__file__).resolve())
    assert expected
    assert expected <= set(module.SOURCES.paths)


@pytest.mark.parametrize("name", ["packed_loops", "join_loops", "stage_loops", "crew_loops"])
def test_code_of_packed_loops_is_found_by_all_that_they_inline(name: str) -> None:
    path = Path(packed_loops.__file__).resolve().with_stem(name)
    reached, waiting = {path}, [path]
    while waiting:
        fresh = {*code_files._imported(waiting.pop())} - reached
        reached |= fresh
        waiting += fresh
    assert inlined(path)
    assert inlined(path) <= reached
