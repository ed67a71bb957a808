"""What tests of formats share: a model from the text of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.models.model import Model


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str, str], Model]:
    """Write a text into a file of a name, and read it."""

    def read(text: str, name: str) -> Model:
        path = tmp_path / name
        path.write_bytes(text.encode())
        return load(path)

    return read
