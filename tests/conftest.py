"""Shared fixtures: hypothesis profile, benchmark files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def no_patience_with_numpy() -> None:
    """Let no test depend on those before it in its process: what may be compiled is compiled when it is first used."""
    import numba  # noqa: F401  # whether it is there moves a threshold

    from bucketflow.tasks.cpu import compiler

    compiler._PATIENCE._spent = inf


@pytest.fixture
def compiled_at_once() -> Iterator[None]:
    """Let a test that measures memory meet no compiler but in what it runs first."""
    from bucketflow.tasks.code_files import impatient

    with impatient():
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of public benchmark instances; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "MANIFEST.tsv").exists():
        pytest.skip(f"benchmark instances not found in {folder}; set BUCKETFLOW_DATA")
    return folder
