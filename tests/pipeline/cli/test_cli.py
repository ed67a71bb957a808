"""The command line as other programs use it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bucketflow import Result
from bucketflow.pipeline.cli.ending import Commands
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.examples import example_path


def run(*args: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "bucketflow", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)


def called(*args: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process."""
    done = CliRunner().invoke(main, [*map(str, args)])
    return subprocess.CompletedProcess([*args], done.exit_code, done.stdout, done.stderr)


Runner = Callable[..., subprocess.CompletedProcess[str]]


def answer(*args: object, by: Runner = called) -> dict[str, Any]:
    """Run a command with --json and return its object."""
    done = by(*args, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_solve_prints_one_json_object() -> None:
    result = answer("solve", "satellite", by=run)
    assert result["query"] == "optimum"
    assert result["status"] == "optimal"
    assert isinstance(result["value"], int)
    assert set(result["plan"]) == {"width", "largest_table_cells", "cells", "peak_bytes", "tasks", "slices"}
    assert set(result["seconds"]) - {"compile"} == {"read", "plan", "run", "decode"}
    assert result["peak_rss_bytes"] > 10**7
    assert len(result["assignment"]) == 40


def test_queries_and_evidence() -> None:
    free = answer("solve", "diagnosis", "--query", "partition")
    assert free["status"] == "ok"
    assert free["log10"] == pytest.approx(0.0, abs=1e-9)
    best = answer("solve", "diagnosis")
    name, state = next(iter(best["assignment"].items()))
    fixed = answer("solve", "diagnosis", "--evidence", f"{name}={state}")
    assert fixed["log10"] == pytest.approx(best["log10"])
    from_file = answer("solve", "diagnosis", "--query", "partition", "--evidence", example_path("diagnosis.evid"))
    assert from_file["log10"] < 0
    count = answer("solve", "grid", "--query", "count")
    assert count["value"] == str(2**144)


def test_infeasible_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "no.wcsp"
    path.write_text("no 2 2 2 5\n2 2\n2 0 1 5 0\n1 0 0 1\n0 3\n")
    result = answer("solve", path)
    assert (result["status"], result["value"], result["assignment"]) == ("infeasible", None, None)
    assert answer("solve", path, "--query", "count")["value"] == "0"


def test_decimal_values(tmp_path: Path) -> None:
    path = tmp_path / "a.cfn"
    path.write_text(
        '{"problem": {"name": "a", "mustbe": ">-9.50"}, "variables": {"x": ["l", "r"], "y": 2},'
        '"functions": {"f": {"scope": ["x", "y"], "costs": [0.25, 1.5, -3, 0.75]}}}'
    )
    result = answer("solve", path)
    assert result["value"] == 1.5
    assert result["assignment"] == {"x": "l", "y": 1}


@pytest.mark.parametrize(
    ("arguments", "code", "words", "by"),
    [
        *((["solve", "/nowhere.uai"], 2, ["/nowhere.uai"], by) for by in (run, called)),
        (["solve", "satellite", "--evidence", "nobody=1"], 2, ["nobody"], called),
        (["solve", "satellite", "--evidence", "nothing"], 2, ["neither a file"], called),
        (["solve", "satellite", "--order", "a,b"], 2, ["'a'"], called),
        (["solve", "satellite", "--memory", "lots"], 2, ["lots", "4GB"], called),
        (["solve", "satellite", "--query", "partition"], 2, ["partition"], called),
        (["solve", "grid", "--memory", "20kB"], 3, ["needs", "20 kB"], run),
        (["plan", "grid", "--memory", "20kB"], 3, ["needs", "20 kB"], called),
        (["solve", "satellite", "--query", "best"], 2, ["best"], called),
        (["convert", "grid", "/tmp/x.wcsp"], 2, [".uai"], called),
    ],
)
def test_refusals_are_one_sentence(arguments: list[str], code: int, words: list[str], by: Runner) -> None:
    done = by(*arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words)


def test_plan_info_examples_convert(tmp_path: Path) -> None:
    plan = answer("plan", "grid", "--query", "partition")
    assert plan["plan"]["width"] >= 12
    assert plan["plan"]["seconds"] > 0
    assert "largest steps" in called("plan", "grid").stdout
    facts = answer("info", "frequency")
    assert (facts["kind"], facts["variables"]) == ("cost", 20)
    assert "satellite" in called("examples").stdout
    copy = tmp_path / "copy.uai.xz"
    assert called("convert", "grid", copy).returncode == 0
    ours, theirs = answer("solve", copy, "--query", "partition"), answer("solve", "grid", "--query", "partition")
    assert ours["log10"] == pytest.approx(theirs["log10"], rel=1e-12)


def test_orders_and_trees_agree() -> None:
    values = {
        answer("solve", "frequency", "--tree", tree, "--order", order)["value"]
        for tree in ("refined", "bucket", "junction")
        for order in ("auto", "min-fill", "min-degree")
    }
    assert len(values) == 1


def in_process(*args: object, code: int = 0) -> str:
    """Run the command line in this process and return what it prints, errors too."""
    done = CliRunner().invoke(main, list(map(str, args)))
    assert done.exit_code == code, done.output
    return done.output


def test_evidence_longer_than_a_file_name() -> None:
    asked = ",".join(f"x{k}=0" for k in range(40)) + "," * 300
    assert "x0=0, x1=0" in in_process("solve", "satellite", "--evidence", asked)


@pytest.mark.parametrize(
    "command",
    [
        ["batch", "LONG", "--out", "r"],
        ["jobs", "LONG"],
        ["report", "LONG", "--out", "page.html"],
        ["solve", "satellite", "--workdir", "LONG"],
        ["solve", "satellite", "--cluster", "LONG"],
        ["marginals", "grid", "--uai-out", "LONG/a"],
        ["convert", "grid", "LONG.uai"],
    ],
)
def test_names_longer_than_a_file_system_takes(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    said = in_process(*(word.replace("LONG", 300 * "n") for word in command), code=2)
    assert said.startswith("bucketflow: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", [["jobs", "closed"], ["report", "closed", "--out", "page.html"]])
def test_folders_that_nobody_may_read(command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    if os.access(closed, os.R_OK):
        pytest.skip("nothing is closed to root")
    assert "you do not have permission to read it" in in_process(*command, code=2)


def test_evidence_may_be_repeated_and_mixed(tmp_path: Path) -> None:
    file = tmp_path / "one.evid"
    file.write_text("1 2 0")
    both = json.loads(in_process("solve", "satellite", "--json", "--evidence", "x0=1, x1=2", "--evidence", file))
    assert [both["assignment"][name] for name in ("x0", "x1", "x2")] == [1, 2, 0]
    said = in_process("solve", "satellite", "--evidence", "x2=1", "--evidence", file, code=2)
    assert said == "bucketflow: variable 'x2' is observed in two different states\n"


def test_examples_answer_what_they_ask() -> None:
    """Their evidence is found by name, as their models are."""
    listed = in_process("examples")
    assert "bucketflow marginals diagnosis --evidence diagnosis.evid\n" in re.sub(" +\n", "\n", listed)
    assert "BearingWear" in in_process("marginals", "diagnosis", "--evidence", "diagnosis.evid")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A model whose names are markup, control characters and very long."""
    names = {"[/x]": ["[red]l", "r\x1b[31m"], "b\nd\x07": 2, ":smile:" + "n" * 100_000: 2}
    first, second, third = names
    functions = {
        "f": {"scope": [first, second], "costs": [1, 2, 3, 0]},
        "g": {"scope": [second, third], "costs": [1, 2, 3, 0]},
    }
    model = {"problem": {"name": "[bold]\x1b[0m", "mustbe": "<100"}, "variables": names, "functions": functions}
    path = tmp_path / "odd.cfn"
    path.write_text(json.dumps(model))
    return path


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["info"], r"[bold]\x1b[0m"),
        (["plan"], r"[/x]"),
        (["solve"], r"b\nd\x07=1"),
        (["solve", "--evidence", "[/x]=[red]l"], "[/x]=[red]l"),
        (["marginals", "--max-marginals", "--joint", "[/x],:smile:" + "n" * 100_000], r"r\x1b[31m"),
    ],
)
def test_names_from_files_are_shown_as_they_are(odd: Path, command: list[str], shown: str) -> None:
    printed = in_process(command[0], odd, *command[1:])
    assert shown in printed
    assert printed.replace("\n", "").isprintable()
    assert len(printed) < 4000


@pytest.mark.parametrize("state", ["7", "\x1b[31m", "n" * 10_000])
def test_messages_are_short_and_printable(odd: Path, state: str) -> None:
    for name in (":smile:" + "n" * 100_000, "unknown"):
        said = in_process("solve", odd, "--evidence", f"{name}={state}", code=2)
        assert said.removesuffix("\n").isprintable()
        assert len(said) < 2100


def test_lines_fit_eighty_columns(monkeypatch: pytest.MonkeyPatch, odd: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for printed in (in_process("plan", odd), in_process("plan", "grid"), in_process("examples")):
        assert max(map(len, printed.splitlines())) <= 80
        assert "…" not in printed.replace("n…n", "")
    assert "kernel" in in_process("plan", odd)
    assert "eliminates " in in_process("plan", "grid")


@pytest.mark.parametrize("command", ["solve", "marginals", "plan", "submit", "bound"])
def test_what_is_asked_stands_under_question(command: str) -> None:
    """Under the last heading are files and forms of the answer alone."""
    others = in_process(command, "--help").partition("\nOptions:\n")[2]
    allowed = {"--json", "--out", "--uai-out", "--graph", "--log", "--log-level", "--metrics", "-h,"}
    assert {line.split()[0] for line in others.splitlines() if line.startswith("  -")} <= allowed


def test_where_preparation_answers_the_plan_says_what_it_removed_and_why() -> None:
    printed = " ".join(in_process("plan", "diagnosis", "--query", "partition").split())
    assert printed.startswith("Preprocessing gives the answer: no sweep is needed.")
    assert "barren 26 variables, summed to 1: no evidence and no queried variable depends on them: " in printed
    assert "next bucketflow solve … --query partition answers immediately" in printed


def test_a_plan_names_the_variables_that_it_need_not_sweep() -> None:
    shown = in_process("plan", "diagnosis", "--query", "partition", "--evidence", "Flow=full")
    assert re.search(r"^observed +1 variables, fixed by the evidence: Flow$", shown, re.MULTILINE)
    assert re.search(r"^barren +\d+ variables, summed to 1", shown, re.MULTILINE)
    assert re.search(r"^largest table ", shown, re.MULTILINE)


def test_terminals_of_any_encoding(tmp_path: Path) -> None:
    path = tmp_path / "names.cfn"
    functions = {"f": {"scope": ["日本", "ü"], "costs": [0, 1, 2, 1]}}
    path.write_text(json.dumps({"problem": {"name": "ä"}, "variables": {"日本": 2, "ü": 2}, "functions": functions}))
    for command in ("info", "plan"):
        done = run(command, path, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")


def test_progress_is_shown_on_terminals_only() -> None:
    assert run("solve", "satellite").stderr == ""


@pytest.mark.parametrize(
    ("option", "value"),
    [("--memory", "-1"), ("--memory", "1e400"), ("--disk", "-5GB"), ("--gpu-memory", "many"), ("--order-time", "nan")],
)
def test_numbers_that_are_none_are_refused(option: str, value: str) -> None:
    said = in_process("solve", "satellite", option, value, code=2)
    assert value in said
    assert said.count("\n") == 1


def test_rounding_is_not_shown() -> None:
    assert "probability 1 (log10 0)\n" in re.sub(" +", " ", in_process("solve", "diagnosis", "--query", "partition"))
    assert repr(Result("partition", "ok", log10=9.6e-17)).splitlines()[-1] == "log10   0"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
@pytest.mark.parametrize("arguments", [["--help"], ["info", "grid"], ["solve", "satellite", "--json"]])
def test_standard_output_may_be_full(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "bucketflow", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.stderr == "bucketflow: cannot write to standard output: no space left on device\n"
    assert done.returncode == 2


def test_plans_say_what_the_process_takes_beside_its_budget() -> None:
    printed = re.sub(" +", " ", in_process("plan", "grid", "--memory", "3GB"))
    assert "budget 3 GB\nprocess some 50 MB outside the budget" in printed
    found = json.loads(in_process("plan", "grid", "--memory", "3GB", "--json"))["plan"]
    assert (found["memory_bytes"], found["process_bytes"]) == (3 * 10**9, 50_000_000)
    assert "Python and compiled code" in " ".join(in_process("plan", "--help").split())


def test_a_closed_standard_error_changes_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code in ((["solve", "satellite"], 0), (["solve", "no such file"], 2)):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", None)
            with pytest.raises(SystemExit) as ended:
                main.main(arguments)
            sys.stderr.close()
        assert ended.value.code == code
    assert "optimum" in capsys.readouterr().out


def test_every_command_is_in_one_group_of_the_help() -> None:
    assert isinstance(main, Commands)
    grouped = [name for names in main.groups.values() for name in names]
    assert sorted(grouped) == main.list_commands(click.Context(main, **main.context_settings))


def test_a_finished_command_leaves_the_interpreter_little_to_search() -> None:
    """The interpreter searches for cycles when it ends: 40,000 objects of an answer would take a fifth of its time."""
    code = (
        "import atexit, gc; from bucketflow.__main__ import run\n"
        "atexit.register(lambda: print(len(gc.get_objects())))\n"
        "run()"
    )
    done = subprocess.run([sys.executable, "-c", code, "solve", "satellite"], capture_output=True, text=True)
    assert "optimal" in done.stdout
    assert int(done.stdout.split()[-1]) < 1000
