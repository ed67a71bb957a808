"""Names that no file and no terminal can hold: half of a character, as JSON may write it; and empty options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bucketflow.pipeline.cli.main import main

ODD = json.dumps(
    {
        "problem": {"name": "\ud800", "mustbe": "<10"},
        "variables": {"\ud800": ["\ud801", "b\x07"], "y": 2},
        "functions": {"\ud802": {"scope": ["\ud800", "y"], "costs": [1, 2, 3, 4]}},
    }
)
COMMANDS = [
    *(["solve"], ["solve", "--json"], ["info"], ["info", "--json"], ["plan"], ["plan", "--json"], ["bound"], ["dpop"]),
    *(["dpop", "--json"], ["marginals", "--query", "max-marginals"], ["solve", "--evidence", "\ud800=\ud801"]),
    *(["solve", "--evidence", "\udcff=1"], ["solve", "--evidence", "y=\udcff"], ["solve", "--order", "\udcff"]),
]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    (tmp_path / "odd.cfn").write_text(ODD)
    return tmp_path / "odd.cfn"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command).encode("unicode_escape").decode())
def test_commands_show_lone_surrogates_as_escapes(command: list[str], odd: Path) -> None:
    done = CliRunner().invoke(main, [command[0], str(odd), *command[1:]])
    assert done.exit_code in (0, 2), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("suffix", ["wcsp", "cfn", "xml", "yaml", "xml.gz"])
def test_files_are_written_without_them(suffix: str, odd: Path) -> None:
    target = odd.parent / f"new.{suffix}"
    done = CliRunner().invoke(main, ["convert", str(odd), str(target)])
    assert done.exit_code == 0, done.output
    found = CliRunner().invoke(main, ["solve", str(target), "--json"])
    assert json.loads(found.stdout)["value"] == 1


def test_pages_are_written_without_them(odd: Path) -> None:
    for command in (["solve"], ["dpop"]):
        answer = odd.parent / "answer.json"
        answer.write_text(CliRunner().invoke(main, [command[0], str(odd), "--json"]).stdout)
        done = CliRunner().invoke(main, ["report", str(answer), "-o", str(odd.parent / "page.html")])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("option", ["--out", "--workdir", "--memory", "--metrics", "--project"])
def test_an_empty_option_is_not_passed_over(option: str) -> None:
    """As of --out "$FILE", where FILE is empty."""
    done = CliRunner().invoke(main, ["solve", "satellite", option, " "])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': the text is empty." in done.output


def test_variables_that_are_empty_are_not_there() -> None:
    done = CliRunner(env={"BUCKETFLOW_MEMORY": "", "BUCKETFLOW_WORKDIR": ""}).invoke(main, ["solve", "satellite"])
    assert done.exit_code == 0
