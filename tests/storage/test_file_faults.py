"""Files that cannot be read or written: the reasons in plain words, through every reader."""

from __future__ import annotations

import doctest
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.errors import FormatError, UnreadableError, unreadable
from bucketflow.storage import faults

READERS = [
    ("info", "PATH"),
    ("solve", "diagnosis", "--evidence", "PATH"),
    ("marginals", "diagnosis", "--cases", "PATH", "--out", "out.csv"),
    ("batch", "PATH", "--out", "out"),
    ("evaluate", "PATH"),
    ("evaluate", "diagnosis", "--assignment", "PATH"),
    ("report", "PATH", "-o", "page.html"),
    ("dpop", "PATH"),
    ("--config", "PATH", "info", "grid"),
]


def test_examples() -> None:
    assert doctest.testmod(faults).failed == 0


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_every_reader_names_a_missing_file(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suffix = {"--cases": ".csv", "batch": ".csv", "evaluate PATH": ".npz", "--assignment": ".json", "report": ".json"}
    name = "nowhere" + next((own for word, own in suffix.items() if word in " ".join(command)), ".uai")
    done = CliRunner().invoke(main, [name if word == "PATH" else word for word in command])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert f"{name}: no such file" in done.stderr or "is neither a file nor a list" in done.stderr


def test_a_file_without_permission_is_said() -> None:
    assert str(unreadable("a.uai", PermissionError(13, "Permission denied"))) == (
        "a.uai: you do not have permission to read it"
    )


def test_unreadable_files_are_format_errors_that_travel() -> None:
    error = pickle.loads(pickle.dumps(UnreadableError("a.uai", "the file is empty")))
    assert isinstance(error, FormatError)
    assert (str(error), error.line) == ("a.uai: the file is empty", None)
