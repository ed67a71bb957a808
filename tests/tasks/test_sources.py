"""Cached machine code belongs to the sources that it was compiled from."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from bucketflow.tasks.compiler.code_cache import code_folders, sources_digest, sources_of
from bucketflow.tasks.incremental import packed_loops


def test_other_contents_are_looked_for_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"

    def folders(text: str) -> tuple[Path, ...]:
        file.write_text(text)
        sources_digest.cache_clear()
        return code_folders(file)

    before = folders("ONE = 1")
    assert folders("ONE = 1") == before
    assert not {*folders("ONE = 2")} & {*before}


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


@pytest.mark.parametrize("name", ["cpu.stream_loops", "cpu.product"])
def test_code_is_found_by_all_that_kernels_inline(name: str) -> None:
    module = importlib.import_module(f"bucketflow.tasks.{name}")
    assert module.__file__ is not None
    source = Path(module.__file__).resolve()
    expected = inlined(source)
    assert expected
    assert expected <= sources_of(source)


@pytest.mark.parametrize("name", ["packed_loops", "stage_loops"])
def test_code_of_packed_loops_is_found_by_all_that_they_inline(name: str) -> None:
    path = Path(packed_loops.__file__).resolve().with_stem(name)
    assert inlined(path)
    assert inlined(path) <= sources_of(path)
