"""When compiled kernels pay."""

from __future__ import annotations

import sys

import pytest

from bucketflow.tasks.code_files import Patience
from bucketflow.tasks.cpu.compiling import compiler

STREAMING = "bucketflow.tasks.cpu.streaming"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a compiler, and an installation without machine code."""
    for name in ("numba", STREAMING):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(Patience, "compiled", False)
    monkeypatch.setattr(compiler, "_PATIENCE", Patience("tasks.cpu.streaming", "stream", loading=compiler._LOADING))


def test_nothing_is_compiled_for_what_takes_numpy_less(fresh: None) -> None:
    assert not compiler.compiler_pays(1 << 20)
    assert not compiler.compiler_pays(1 << 25)
    assert not compiler.compiler_pays(1 << 25)
    assert compiler.compiler_pays(1 << 26)  # NumPy would have had as long as the compiler takes


def test_long_runs_are_compiled(fresh: None) -> None:
    assert compiler.compiler_pays(1 << 28)


def test_what_is_compiled_is_loaded_for_a_long_run(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "compiled", True)
    assert compiler.compiler_pays(compiler.COLD_CELLS + 1)


def test_what_is_compiled_is_loaded_for_many_short_runs(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "compiled", True)
    short = compiler.COLD_CELLS // 3
    assert [compiler.compiler_pays(short) for _ in range(4)] == [False, False, False, True]
    assert not compiler.compiler_pays(1 << 16)


def test_what_is_compiled_is_used_where_a_compiler_is_loaded(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "compiled", True)
    monkeypatch.setitem(sys.modules, "numba", sys)
    assert compiler.compiler_pays(1 << 22)
    assert not compiler.compiler_pays(1 << 16)
