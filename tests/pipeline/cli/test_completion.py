"""Completion in a shell: variables and states of the command's model, without reading large files."""

from __future__ import annotations

import doctest
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from bucketflow.pipeline.api import complete_names
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats.text import source


@pytest.fixture(autouse=True)
def _time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LEAST_SECONDS", 1_000.0)


def completed(*words: str) -> list[str]:
    """The words that a shell offers in place of the last one; a path is ``FILE``."""
    *args, incomplete = words
    found = ShellComplete(main, {}, "bucketflow", "_BUCKETFLOW_COMPLETE").get_completions(args, incomplete)
    return ["FILE" if item.type == "file" else item.value for item in found]


def test_examples_of_the_completion() -> None:
    found = doctest.testmod(complete_names)
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("marginals", "diagnosis", "--variables", "St"), ["Storm", "StreetFlooded"]),
        (("marginals", "diagnosis", "--variables", "Flow,St"), ["Flow,Storm", "Flow,StreetFlooded"]),
        (("marginals", "diagnosis", "--variables", "Storm,St"), ["Storm,StreetFlooded"]),
        (("marginals", "diagnosis", "--joint", "Storm,Seas"), ["Storm,Season"]),
        (("marginals", "diagnosis", "--mutual", "Storm:Flow|Seas"), ["Storm:Flow|Season"]),
        (("marginals", "diagnosis", "--voi", "St"), ["Storm", "StreetFlooded"]),
        (("marginals", "diagnosis", "--evidence", "Storm=n"), ["Storm=no", "FILE"]),
        (
            ("solve", "diagnosis", "--evidence", "Flow=none,Season=s"),
            ["Flow=none,Season=spring", "Flow=none,Season=summer", "FILE"],
        ),
        (("draw", "diagnosis", "--evidence", "Sto"), ["Storm=no", "Storm=yes", "FILE"]),
        (("solve", "frequency", "--project", "x1"), ["x1", *(f"x{k}" for k in range(10, 20)), "FILE"]),
        (("solve", "diagnosis", "--evidence", "Storm=[0.2,S"), ["FILE"]),
        (("solve", "nowhere.uai", "--evidence", "S"), ["FILE"]),
        (("solve", "--evidence", "S"), ["FILE"]),
    ],
)
def test_names_and_states_are_those_of_the_model(words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(*words) == expected


def test_large_files_pipes_and_malformed_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = tmp_path / "large.uai"
    large.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4 1 1 1 1\n")
    assert completed("solve", str(large), "--project", "x") == ["x0", "x1", "FILE"]
    monkeypatch.setattr(complete_names, "MOST_BYTES", 10)
    assert completed("solve", str(large), "--project", "x") == ["FILE"]
    monkeypatch.undo()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "odd.uai").write_text("MARKOV\n2\n2")
    for name in ("pipe", "odd.uai"):
        assert completed("solve", str(tmp_path / name), "--project", "x") == ["FILE"]


def test_names_that_a_shell_would_split_are_not_offered() -> None:
    variables = {"a b": ["0"], "a,b": ["0"], "a$b": ["0"], "ab": ["x y", "z"]}
    assert complete_names.offered(variables, "a", ",", False) == ["ab"]
    assert complete_names.offered(variables, "a", ",", True) == ["ab=z"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "count", "offers", "expected"),
    [
        ("marginals m --evidence Storm=", 4, ["Storm=no", "Storm=yes"], ["no", "yes"]),
        ("marginals m --evidence Flow=none,Storm=y", 4, ["Flow=none,Storm=yes"], ["yes"]),
        ("marginals m --variables Season,Stor", 4, ["Season,Storm"], ["Season,Storm"]),
        ("marginals m --evidence St", 4, ["Storm=", "StreetFlooded="], ["Storm=", "StreetFlooded="]),
        ("marginals m --mutual a:", 4, ["a:b"], ["b"]),
        ("marginals m --evidence ", 4, ["a=", "b="], ["a=", "b="]),
        ("so", 1, ["solve"], ["solve"]),
    ],
)
def test_bash_replaces_the_word_after_the_equals_sign(
    line: str, count: int, offers: list[str], expected: list[str], tmp_path: Path
) -> None:
    """The script asks about whole words, and leaves out what bash keeps: all up to an equals sign or a colon."""
    script = tmp_path / "complete.sh"
    script.write_text(CliRunner().invoke(main, ["completion", "bash"]).stdout)
    program, asked = tmp_path / "bucketflow", tmp_path / "asked"
    answers = "".join(f"plain,{word}\\n" for word in offers)
    program.write_text(f'#!/bin/sh\necho "$COMP_CWORD $COMP_WORDS" > "{asked}"\nprintf "{answers}file,x\\n"\n')
    program.chmod(0o755)
    whole = f"bucketflow {line}"
    code = f'compopt() {{ :; }}; . "{script}"; COMP_LINE="{whole}"; COMP_POINT={len(whole)}; '
    code += f'COMPREPLY=(); _bucketflow_completion "{program}"; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == expected, done.stderr
    assert asked.read_text().rstrip("\n") == f"{count} {whole}"
