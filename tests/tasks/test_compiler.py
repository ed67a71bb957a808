"""When compiled kernels pay."""

from __future__ import annotations

import sys

import pytest

from bucketflow.tasks.compiler import code_cache
from bucketflow.tasks.compiler.code_cache import Patience

STREAMING = "bucketflow.tasks.cpu.stream_loops"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a compiler, and an installation without machine code."""
    for name in ("numba", STREAMING):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(Patience, "compiled", False)
    monkeypatch.setattr(
        code_cache, "_PATIENCE", Patience("tasks.cpu.stream_loops", "stream", loading=code_cache._LOADING)
    )


def test_nothing_is_compiled_for_what_takes_numpy_less(fresh: None) -> None:
    assert not code_cache.compiler_pays(1 << 20)
    assert not code_cache.compiler_pays(1 << 25)
    assert not code_cache.compiler_pays(1 << 25)
    assert code_cache.compiler_pays(1 << 26)  # NumPy would have had as long as the compiler takes


def test_long_runs_are_compiled(fresh: None) -> None:
    assert code_cache.compiler_pays(1 << 28)


def test_what_is_compiled_is_loaded_for_a_long_run(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "compiled", True)
    assert code_cache.compiler_pays(code_cache.COLD_CELLS + 1)


def test_what_is_compiled_is_loaded_for_many_short_runs(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "compiled", True)
    short = code_cache.COLD_CELLS // 3
    assert [code_cache.compiler_pays(short) for _ in range(4)] == [False, False, False, True]
    assert not code_cache.compiler_pays(1 << 16)


def test_what_is_compiled_is_used_where_a_compiler_is_loaded(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "compiled", True)
    monkeypatch.setitem(sys.modules, "numba", sys)
    assert code_cache.compiler_pays(1 << 22)
    assert not code_cache.compiler_pays(1 << 16)
