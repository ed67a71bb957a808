"""Within a time loops are compiled in another process, for which nobody waits beyond it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import typeof

from bucketflow.pipeline.orders import greedy_orders
from bucketflow.tasks.compiler import compile_beside, kept_code
from bucketflow.tasks.compiler.compile_limits import (
    NotCompiledError,
    compiled_or,
    compiled_until,
    goes_on,
    going_on_meanwhile,
)
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


class Child:
    """Stands for a process that compiles until it is told that it is through."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.stdin = io.BytesIO()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, seconds: float) -> None:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("compiler", seconds)


@pytest.fixture
def nothing_begun() -> Iterator[dict[Any, Any]]:
    """Let no process have been started for compiling, until the test ends."""
    begun = compile_beside._begun
    before = {**begun}
    begun.clear()
    yield begun
    begun.clear()
    begun.update(before)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, nothing_begun: dict[Any, Any]) -> list[Child]:
    """The processes that were started, none of which compiles anything; one at a time may, beside this one."""
    started: list[Child] = []

    def start(*_: Any, **__: Any) -> Child:
        started.append(Child())
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    return started


def test_compiling_goes_on_after_the_deadline_and_its_code_is_kept(
    empty: Path, nothing_begun: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_beside, "time_left", lambda: 0.0)
    heard: list[bool] = []
    with compiled_until(3600.0), told_of_compiling(heard.append), pytest.raises(NotCompiledError, match="initial_fill"):
        loaded()
    assert heard == [True, False]
    (child,) = nothing_begun.values()
    child.wait()
    assert [path.name.split("-")[0] for path in empty.rglob("*.nbc")] == ["initial_fill"]


def test_a_caller_that_goes_on_waits_for_nothing(children: list[Child]) -> None:
    with compiled_until(3600.0), going_on_meanwhile():
        for _ in range(2):
            with pytest.raises(NotCompiledError) as caught:
                loaded()
            assert caught.value.pending
        assert len(children) == 1  # the second call asks for the same code
        children[0].returncode = 0
        assert loaded() is None  # this process wrote no file: compiled here


def test_as_many_processes_compile_as_cores_are_free(children: list[Child]) -> None:
    other = (*SIGNATURE[:2], typeof(1))
    with compiled_until(3600.0), going_on_meanwhile():
        for signature in (SIGNATURE, other):
            with pytest.raises(NotCompiledError) as caught:
                compile_beside.compiled_beside(LOOP.py_func, signature)
            assert caught.value.pending
        assert len(children) == 1
        children[0].returncode = 0
        with pytest.raises(NotCompiledError):
            compile_beside.compiled_beside(LOOP.py_func, other)
    assert len(children) == 2


def test_a_wait_for_any_process_ends_with_the_process_or_the_caller(children: list[Child]) -> None:
    assert not compile_beside.await_any(bool)
    with compiled_until(3600.0):
        with going_on_meanwhile(), pytest.raises(NotCompiledError):
            loaded()
        assert compile_beside.await_any(lambda: True)
        looks = iter([False, True])

        def through() -> bool:
            children[0].returncode = 0 if next(looks) else None
            return False

        assert compile_beside.await_any(through)
    assert children[0].returncode == 0


def test_code_without_loops_stands_in_within_a_time_limit_only() -> None:
    def late() -> str:
        raise NotCompiledError("loop", pending=goes_on())

    with compiled_until(3600.0):
        assert compiled_or(late, lambda: "plain") == "plain"
        assert compiled_or(lambda: "compiled", late) == "compiled"
        assert not goes_on()
    with pytest.raises(NotCompiledError):
        compiled_or(late, lambda: "plain")


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
