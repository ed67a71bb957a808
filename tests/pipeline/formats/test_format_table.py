"""The table of formats: the README's is that of the registry, and the command prints it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats.registry import FORMATS, markdown_table, unread_formats, written_format

from .test_recognition import NAMED

ROOT = Path(__file__).parents[3]


def run(*words: str) -> str:
    done = CliRunner().invoke(main, ["formats", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_the_table_of_the_registry() -> None:
    assert run("--markdown") == markdown_table() + "\n"


def test_every_format_is_said_to_be_for_something() -> None:
    rows = bucketflow.formats()
    assert len(rows) == len(FORMATS)
    for row, form in zip(rows, FORMATS, strict=True):
        assert row["about"]
        assert row["suffixes"]
        assert not set("`[]") & set(row["about"])
        assert row["written"] == any(written_format(suffix) is form for suffix in map(str.lower, row["suffixes"]))


def test_logarithms_are_not_written_as_probabilities(tmp_path: Path) -> None:
    model = bucketflow.Model.build("markov", {"a": 2}, [(("a",), [0.25, 0.75])])
    with pytest.raises(bucketflow.ModelError, match="models are written as"):
        bucketflow.save(model, tmp_path / "a.LG")
    (tmp_path / "a.LG").write_text("MARKOV\n1\n2\n1\n1 0\n2\n0 0\n")
    assert bucketflow.solve(bucketflow.load(tmp_path / "a.LG"), "partition").log10 == pytest.approx(math.log10(2))


def test_the_command_lists_what_is_read_and_what_is_not() -> None:
    printed = run()
    for form in FORMATS:
        assert (form.suffixes or form.shared)[0] in printed
    for row in unread_formats():
        assert row["suffixes"][0] in printed
        for suffix in row["suffixes"]:
            told = NAMED.get(f"a{suffix}")
            assert told is None or told.startswith(f"{row['what']}, which is not read: {row['instead'][:8]}")
    found = json.loads(run("--json"))
    assert found == {"formats": bucketflow.formats(), "unread": unread_formats()}
    assert CliRunner().invoke(main, ["formats", "--json", "--markdown"]).exit_code == 2
