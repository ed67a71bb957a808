"""Reading counts towards the time of a query, in every format, and ends as a query without bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.errors import DeadlineError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.formats.text import source
from bucketflow.pipeline.formats.text.source import reading_within

from .test_formats_fuzz import SAMPLES

OTHERS = {
    "a.cnf": "p cnf 2 1\n1 -2 0\n",
    "a.wcnf": "h 1 -2 0\n3 -1 0\n",
    "a.fzn": "var 0..2: x;\nconstraint int_le(1, x);\nsolve minimize x;\n",
    "three.xml": '<instance format="XCSP3" type="CSP"><variables><var id="x">0 1</var></variables>'
    "<constraints><intension>eq(x,1)</intension></constraints></instance>",
}
FILES = SAMPLES | OTHERS


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every deadline of reading be in the past."""
    monkeypatch.setattr(source, "LEAST_SECONDS", -1.0)


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_reader_checks_its_deadline(tmp_path: Path, no_time: None, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    assert load(path).names
    with reading_within(-1.0), pytest.raises(DeadlineError, match=f"{name}: the time ended while the file was read"):
        load(path)
    with reading_within(None):
        assert load(path).names


def test_a_small_file_is_read_in_any_time(tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text(FILES["a.wcsp"])
    with reading_within(0.0):
        assert len(load(path).dims) == 3


def test_the_deadline_is_checked_between_the_parts_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that checks once at its beginning reads the rest of a long file without a limit."""
    clock = iter(range(1 << 30))
    monkeypatch.setattr(source, "monotonic", lambda: next(clock))
    path = tmp_path / "long.uai"
    path.write_text("MARKOV 1 2 200 " + "1 0 " * 200 + "2 1 1 " * 200)
    with reading_within(100.0), pytest.raises(DeadlineError):
        load(path)
    assert next(clock) < 150


def test_the_deadline_is_checked_between_the_tables_of_a_cfn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1 << 30))
    monkeypatch.setattr(source, "monotonic", lambda: next(clock))
    path = tmp_path / "long.cfn"
    path.write_text("{variables: {a: 2} functions: {" + "{scope: [a] costs: [1 2]}" * 300 + "}}")
    with reading_within(100.0), pytest.raises(DeadlineError):
        load(path)
    assert next(clock) < 150


def test_a_query_without_a_model_has_no_bounds(tmp_path: Path, no_time: None) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text(FILES["a.wcsp"])
    sentence = f"{path}: the time ended while the file was read; give more --time"
    found = bucketflow.solve(path, time=0)
    assert (found.status, found.notes) == ("bounded", (sentence,))
    assert found.proof is not None
    assert (found.proof.lower, found.proof.upper, found.proof.close) == (None, None, False)
    assert "unknown … unknown" in repr(found)
    bounds = bucketflow.bound(path, time=0)
    assert (bounds.status, bounds.lower, bounds.notes) == ("bounded", None, (sentence,))
    best = bucketflow.best(path, 2, time=0)
    assert ([*best], best.unproved) == ([], sentence)


@pytest.mark.parametrize("command", ["solve", "bound"])
def test_commands_end_with_the_code_of_bounds(tmp_path: Path, no_time: None, command: str) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text(FILES["a.wcsp"])
    run = CliRunner().invoke(main, [command, str(path), "--time", "0", "--json"])
    assert run.exit_code == 4
    assert json.loads(run.stdout)["status"] == "bounded"
    assert "the time ended while the file was read" in run.stderr


def test_a_list_ends_in_one_sentence(tmp_path: Path, no_time: None) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text(FILES["a.wcsp"])
    run = CliRunner().invoke(main, ["solve", str(path), "--best", "2", "--time", "0"])
    assert run.exit_code == 4
    assert run.stderr == f"bucketflow: {path}: the time ended while the file was read; give more --time\n"


def test_reading_is_subtracted_from_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bucketflow.pipeline.answering import answer_question

    given: list[float | None] = []
    monkeypatch.setattr(
        answer_question, "compiled_until", lambda seconds: given.append(seconds) or answer_question.nullcontext()
    )
    path = tmp_path / "a.wcsp"
    path.write_text(FILES["a.wcsp"])
    bucketflow.solve(path, time=1000)
    bucketflow.solve(bucketflow.load(path), time=1000)
    assert CliRunner().invoke(main, ["solve", str(path), "--time", "1000"]).exit_code == 0
    read, in_memory, command = given
    assert in_memory == 1000
    assert read is not None
    assert command is not None
    assert 0 < read < 1000
    assert 0 < command < 1000


def test_what_was_read_is_not_searched_for_cycles(tmp_path: Path) -> None:
    """Otherwise the first allocation after reading would search all objects of the file, possibly millions."""
    path = tmp_path / "a.cnf"
    path.write_text("p cnf 9 2000\n" + "1 -9 0\n5 0\n" * 1000)
    code = (
        "import gc, sys; from bucketflow.pipeline.formats.read import load\n"
        # Python 3.12 may run a search late that was due before the file was read
        "gc.collect(); sys.version_info[:2] == (3, 12) or gc.callbacks.append(lambda phase, _: print(phase))\n"
        f"assert len(load({str(path)!r}).functions) == 2000\n"
        # objects that a program excludes from searches stay excluded
        "gc.callbacks.clear(); gc.freeze(); count = gc.get_freeze_count()\n"
        f"model = load({str(path)!r}); assert gc.get_freeze_count() == count"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == ""


def test_a_process_that_reads_again_and_again_frees_objects_in_cycles(tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text(FILES["a.wcsp"])
    code = (
        "import weakref; from bucketflow.pipeline.formats.read import load\n"
        "class Cycle: pass\n"
        "alive = weakref.WeakSet()\n"
        "for _ in range(1000):\n"
        f"    load({str(path)!r}); own = Cycle(); own.members = [(own, k) for k in range(50)]; alive.add(own)\n"
        "print(len(alive))"
    )
    alive = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(alive) < 900
