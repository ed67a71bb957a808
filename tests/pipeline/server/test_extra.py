"""Without the extra ``serve``, one sentence says what to install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.server import server_folder

SENTENCE = "needs the packages uvicorn and starlette: pip install 'bucketflow-inference[serve]', or in a checkout"


@pytest.fixture(autouse=True)
def without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> Any:
        assert name in ("uvicorn", "starlette")

    monkeypatch.setattr(server_folder, "find_spec", find)
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path))


def test_serve_says_what_to_install() -> None:
    found = CliRunner().invoke(main, ["serve"])
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(f"bucketflow: serve {SENTENCE}")
    with pytest.raises(bucketflow.BucketflowError, match="serve needs the packages uvicorn and starlette"):
        bucketflow.serve()


def test_keep_warm_says_what_to_install() -> None:
    found = CliRunner().invoke(main, ["solve", "satellite", "--keep-warm"])
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(f"bucketflow: --keep-warm {SENTENCE}")


def test_no_server_runs_without_it() -> None:
    assert CliRunner().invoke(main, ["serve", "--stop"]).stdout == "no server runs\n"
