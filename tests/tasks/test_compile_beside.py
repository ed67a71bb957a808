"""Within a time loops are compiled in another process, for which nobody waits beyond it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import typeof
from psutil import Process

from bucketflow.pipeline.orders import greedy_orders
from bucketflow.tasks.compiler import compile_beside, kept_code
from bucketflow.tasks.compiler.compile_limits import NotCompiledError, compiled_until
from bucketflow.tasks.compiler.numba_parts import unknown_numba
from bucketflow.tasks.compiler.working_time import compiling_seconds, told_of_compiling, working_seconds

pytestmark = pytest.mark.skipif(bool(unknown_numba()), reason="Numba keeps its code by itself")

LOOP: Any = greedy_orders.initial_fill
ARGUMENTS = (np.array([[0b10], [0b01]], dtype=np.uint64), np.ones(2), True)
SIGNATURE = tuple(typeof(value) for value in ARGUMENTS)


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own; no function takes long enough not to be begun."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(kept_code, "SECONDS_PER_BYTE", 0.0)
    monkeypatch.setattr(kept_code, "code_folders", lambda source: (tmp_path / "machine-code" / folder_of(source),))
    return tmp_path


def folder_of(source: Path) -> str:
    from bucketflow.tasks.compiler.code_cache import sources_digest

    return f"{source.stem}-{sources_digest(source)[:16]}"


def loaded() -> Any:
    return LOOP._cache.load_overload(SIGNATURE, LOOP.targetctx)


def test_another_process_compiles_and_this_one_loads(empty: Path) -> None:
    assert loaded() is None  # without an end to the time it is compiled here
    heard: list[bool] = []
    before, worked = compiling_seconds(), working_seconds()
    with compiled_until(3600.0), told_of_compiling(heard.append):
        found = loaded()
    assert found is not None
    assert found.signature.args == SIGNATURE
    assert heard == [True, False]
    assert compiling_seconds() > before
    assert working_seconds() >= worked  # the other's seconds are none of this one's
    assert [path.name.split("-")[0] for path in empty.rglob("*.nbc")] == ["initial_fill"]
    with compiled_until(-1.0):
        assert loaded() is not None  # from the file


def test_nobody_waits_beyond_the_time(empty: Path) -> None:
    """The other process has no chance to be through at once."""
    heard: list[bool] = []
    before = {child.pid for child in Process().children()}
    with compiled_until(0.0), told_of_compiling(heard.append), pytest.raises(NotCompiledError, match="initial_fill"):
        loaded()
    assert heard in ([True, False], [])  # it may be too late to begin
    assert not list(empty.rglob("*.nbc"))
    assert {child.pid for child in Process().children()} <= before  # nothing is left of it


def test_what_cannot_be_handed_over_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with compiled_until(3600.0):
        assert not compile_beside.compiled_beside(lambda x: x, SIGNATURE)
        assert not compile_beside.compiled_beside(LOOP.py_func, (lambda x: x, sys._getframe()))
        monkeypatch.setattr(sys, "executable", "")
        assert loaded() is None
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        assert loaded() is None
        monkeypatch.setattr(sys, "executable", "/bin/false")
        assert loaded() is None
