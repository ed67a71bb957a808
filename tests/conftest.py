"""Shared fixtures: hypothesis profile, benchmark files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def same_on_every_machine() -> None:
    """Let no test depend on the machine's speed, nor on tests before it in its process.

    What may be compiled is compiled when it is first used, and slices are run in order, all of them.
    """
    import numba  # noqa: F401  # whether it is there moves a threshold

    from bucketflow.pipeline.runs import best_first
    from bucketflow.tasks.compiler import code_cache

    code_cache._PATIENCE._spent = inf
    best_first._LEAST_SECONDS = inf


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Let tests of signals work in a shell's background too, as with ``nohup pytest &``, where SIGINT is ignored.

    Commands that tests start inherit what is ignored, and not what is handled.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def compiled_at_once() -> Iterator[None]:
    """Let a test that measures memory meet no compiler but in what it runs first."""
    from bucketflow.tasks.compiler.code_cache import impatient

    with impatient():
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of public benchmark instances; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "MANIFEST.tsv").exists():
        pytest.skip(f"benchmark instances not found in {folder}; set BUCKETFLOW_DATA")
    return folder
