"""Pages that show commands and Python with their output: all of it runs, and prints what the page shows.

A block ``console`` holds commands after ``$`` and what they print; ``...`` stands for text that differs between
machines, as in doctests. A block ``pycon`` is a doctest. The blocks of a page run in order, in an empty folder.
"""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bucketflow.pipeline.cli.main import main
from tests.test_structure import ROOT

_NAMES = (
    "batches best-practice bounds circuits coming-from dcop diagrams drawings dynamic-networks "
    "index marginals models out-of-core outer-variables parameters plans samples tour troubleshooting"
)
PAGES = ["README.md", *(f"docs/{name}.md" for name in _NAMES.split())]
_BLOCK = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", PAGES)
def test_pages_print_what_they_show(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = _BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for kind, block in blocks:
        if kind == "console":
            run_console(block)
        else:
            run_doctest(page, block, names)


def run_console(block: str) -> None:
    """Run each command of a block, and compare what it prints with the lines up to the next command."""
    for command, expected in re.findall(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        program, *arguments = shlex.split(command)
        if program == "printf":  # writes the file that the next command reads
            subprocess.run(["sh", "-c", command], check=True)
            continue
        assert program == "bucketflow", command
        found = CliRunner().invoke(main, arguments)
        assert found.exit_code == 0, f"{command}\n{found.output}"
        assert same(expected, found.stdout), f"{command}\n{found.stdout}"


def run_doctest(page: str, block: str, names: dict[str, Any]) -> None:
    """Run the examples of a block with the names of the blocks before it."""
    examples = doctest.DocTestParser().get_doctest(block, names, page, page, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, clear_globs=False)
    names.update(examples.globs)
    assert not runner.failures, page


def same(expected: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(expected, printed, _FLAGS)


def test_another_output_is_found() -> None:
    with pytest.raises(AssertionError):
        run_console("$ bucketflow info diagnosis\nkind  cost\n...\n")
    with pytest.raises(AssertionError):
        run_doctest("page", ">>> 1 + 1\n3\n", {})
