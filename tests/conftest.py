"""Shared fixtures: hypothesis profile, benchmark files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of public benchmark instances; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "MANIFEST.tsv").exists():
        pytest.skip(f"benchmark instances not found in {folder}; set BUCKETFLOW_DATA")
    return folder
