"""The documentation as a site: every page is in it, every public name and command has a text, and the manual too."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.ending import EXIT_STATUS
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cli.manual import EXAMPLES, command_texts, man_page
from tests.test_structure import ROOT

SITE = ROOT / "docs" / "site"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Pages that are made from the code, by their paths."""
    pytest.importorskip("mkdocs", reason="the site is built with the extra docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(SITE), *sys.path])
        return dict(import_module("site_hooks").generated_pages(run=False))


def nav_pages(nav: list[Any]) -> Iterator[str]:
    """Yield the paths that a navigation names."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else nav_pages(value)


def configured() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((SITE / "mkdocs.yml").read_text())
    return loaded


def test_every_page_is_in_the_navigation() -> None:
    written = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    named = [*nav_pages(configured()["nav"])]
    assert len(named) == len(set(named))
    assert written <= set(named)


def test_every_page_that_the_navigation_names_is_there(pages: dict[str, str]) -> None:
    missing = [
        page for page in nav_pages(configured()["nav"]) if page not in pages and not (ROOT / "docs" / page).is_file()
    ]
    assert missing == []


def test_every_public_name_has_a_text(pages: dict[str, str]) -> None:
    described = [name for text in pages.values() for name in re.findall(r"^::: bucketflow\.(\w+)$", text, re.MULTILINE)]
    assert sorted(described) == sorted(bucketflow.__all__)
    assert [name for name in bucketflow.__all__ if not (getattr(bucketflow, name).__doc__ or "").strip()] == []


def test_every_command_and_option_has_a_text(pages: dict[str, str]) -> None:
    context = click.Context(main, info_name="bucketflow", **main.context_settings)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        text = pages[f"reference/cli/{name}.md"]
        shown = [param for param in command.params if not getattr(param, "hidden", False)]
        options = [option for param in shown for option in param.opts if option.startswith("--")]
        assert [option for option in options if option not in text] == []
        assert f"({name}.md)" in pages["reference/cli/index.md"]


def test_links_of_the_top_level_lead_into_the_site(pages: dict[str, str]) -> None:
    for page in ("contributing.md", "changelog.md"):
        links = re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", pages[page])
        assert [link for link in links if link not in pages and not (ROOT / "docs" / link).is_file()] == []


def test_formats_and_exit_codes_are_those_of_the_code(pages: dict[str, str]) -> None:
    for row in bucketflow.formats():
        assert all(f"`{suffix}`" in pages["reference/formats.md"] for suffix in row["suffixes"])
    assert re.findall(r"^\| (\d+) \|", pages["reference/exit-codes.md"], re.MULTILINE) == [*map(str, EXIT_STATUS)]


@pytest.mark.parametrize("asked", ["solve frequency", "marginals diagnosis --evidence Storm=yes", "info grid"])
def test_other_answers_fit_the_schemas(asked: str, pages: dict[str, str]) -> None:
    validate = pytest.importorskip("jsonschema").validate
    command = asked.split()[0]
    schema = re.search(rf"^## {command}\n.*?^```json\n(.*?)^```", pages["reference/json.md"], re.MULTILINE | re.DOTALL)
    assert schema is not None
    answer = json.loads(CliRunner().invoke(main, [*asked.split(), "--json"]).stdout)
    assert set(answer) <= set(json.loads(schema[1])["properties"])
    validate(answer, json.loads(schema[1]))


def test_the_manual_has_every_command_and_is_roff() -> None:
    page = man_page()
    assert [text.name for text in command_texts()] == main.list_commands(click.Context(main, **main.context_settings))
    assert all(f".SS bucketflow {text.name}" in page for text in command_texts())
    requests = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert requests == {".TH", ".SH", ".SS", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi"}
    sections = re.findall(r"^\.SH (.*)", page, re.MULTILINE)
    assert sections == ["NAME", "SYNOPSIS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"]
    assert CliRunner().invoke(main, ["man"]).output == page


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_is_typeset_without_warnings() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8"], input=man_page(), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "bucketflow solve [OPTIONS] FILE" in re.sub(".\x08", "", done.stdout)  # what is bold is printed twice


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_of_this_program(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_BUCKETFLOW_COMPLETE={shell}_complete" in done.output


def test_completion_of_another_shell_is_refused() -> None:
    done = CliRunner().invoke(main, ["completion", "csh"])
    assert done.exit_code == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in done.output


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("bucketflow dp", ["plain,dpop"]),
        ("bucketflow solve sat", ["plain,satellite", "file,sat"]),
        ("bucketflow solve grid --query part", ["plain,partition"]),
        ("bucketflow solve grid --workdir ru", ["file,ru"]),
        ("bucketflow resume ru", ["file,ru"]),
        ("bucketflow batch questions", ["file,questions"]),
    ],
)
def test_completion_offers_commands_options_examples_and_files(typed: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_BUCKETFLOW_COMPLETE": "bash_complete"}
    done = CliRunner().invoke(main, [], prog_name="bucketflow", env=words)
    assert done.output.split() == offered


def test_examples_of_the_manual_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _, command in EXAMPLES:
        program, *args = command.split()
        done = CliRunner().invoke(main, args)
        assert program == "bucketflow"
        assert done.exit_code == 0, f"{command}\n{done.output}"
    assert {"diagnosis.svg", "diagnosis.uai", "run"} <= {path.name for path in tmp_path.iterdir()}


def test_the_environment_of_the_manual_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables and the file that the manual names change what a command does."""
    assert "BUCKETFLOW_SOLVE_QUERY=count" in man_page()
    monkeypatch.setenv("BUCKETFLOW_PLAN_QUERY", "marginals")
    assert "71 steps" in CliRunner().invoke(main, ["plan", "diagnosis"]).output
    monkeypatch.delenv("BUCKETFLOW_PLAN_QUERY")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "bucketflow").mkdir()
    (tmp_path / "bucketflow" / "config.toml").write_text('[plan]\nquery = "marginals"\n')
    assert "71 steps" in CliRunner().invoke(main, ["plan", "diagnosis"]).output


def test_results_of_a_notebook_are_those_of_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SITE))
    notebooks = import_module("notebook_pages")
    names: dict[str, Any] = {}
    assert notebooks.results("import bucketflow\nfound = bucketflow.marginals('diagnosis')", names) == []
    drawn, shown = notebooks.results("print('drawn')\nfound.draw()", names)
    assert drawn["text"] == "drawn\n"
    assert shown["data"]["image/svg+xml"] == names["found"].draw().text
    cells = [{"cell_type": "markdown", "source": ["# Title\n"]}, {"cell_type": "code", "source": ["a = 1\n", "a + 1"]}]
    (_, code) = notebooks.executed("n", json.dumps({"cells": cells}))
    assert code["outputs"] == [{"data": {"text/plain": "2"}}]
    with pytest.raises(ValueError, match=r"n: cell 1 failed: ZeroDivisionError"):
        notebooks.executed("n", json.dumps({"cells": [{"cell_type": "code", "source": "1 / 0"}]}))
