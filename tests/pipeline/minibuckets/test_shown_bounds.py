"""What is shown of optima that are not quick: plans before and after preparation, bounds, the proof."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from tests.pipeline.proofs.test_chain import grid

HARD = ("--memory", "1GB", "--order-time", "0.05")


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid that takes some cells, and one that takes too many."""
    made = tmp_path_factory.mktemp("grids")
    bucketflow.save(grid(10), made / "large.wcsp")
    bucketflow.save(grid(24), made / "hopeless.wcsp")
    return made


def test_plans_show_what_preparation_leaves(folder: Path) -> None:
    shown = json.loads(run("plan", folder / "large.wcsp", "--json"))
    left = shown["prepared"]
    assert left["status"] == "bounded"
    assert left["removed"]["small degree"]["variables"] > 0
    assert left["before"]["variables"] == 100
    assert left["after"]["variables"] < 100
    assert left["plan"]["cells"] <= shown["plan"]["cells"]
    assert left["lower"] <= left["upper"]
    printed = run("plan", folder / "large.wcsp")
    assert "small degree" in printed
    assert f"at least {left['lower']}" in printed
    alone = json.loads(run("plan", folder / "large.wcsp", "--json", "--no-prune"))
    assert set(alone) == set(shown) - {"prepared"}


def test_plans_that_do_not_fit_say_what_solve_does(folder: Path) -> None:
    said = run("plan", folder / "hopeless.wcsp", *HARD, code=3)
    assert "allowed 1 GB" in said
    assert " of 576 variables, which do not fit in memory either" in said
    assert "`solve` tries to prove it by bounds; with --time" in said
    assert "preparation" not in run("plan", folder / "hopeless.wcsp", *HARD, "--no-prune", code=3)


def test_what_fits_only_after_preparation_is_planned(tmp_path: Path) -> None:
    """Every state but the first is dominated where neighbours only cost more."""
    model = grid(24)
    costs: Any = [[0, 1, 1, 1], [1, 9, 9, 9], [1, 9, 9, 9], [1, 9, 9, 9]]
    functions = [([model.names[v] for v in f.scope], costs) for f in model.functions]
    easy = bucketflow.Model.build("cost", dict(zip(model.names, model.dims, strict=True)), functions)
    bucketflow.save(easy, tmp_path / "easy.wcsp")
    shown = json.loads(run("plan", tmp_path / "easy.wcsp", *HARD, "--json"))
    assert shown["plan"] is None
    assert "allowed 1 GB" in shown["refused"]
    assert (shown["prepared"]["status"], shown["prepared"]["lower"]) == ("optimal", 0)
    assert "0, proved" in run("plan", tmp_path / "easy.wcsp", *HARD)


def test_the_plan_is_that_of_the_method(folder: Path) -> None:
    """A sweep's where every cell is swept, and none where a method sweeps nothing."""
    file = folder / "large.wcsp"
    dense = json.loads(run("plan", file, "--json", "--method", "dense"))
    assert (dense["method"], "prepared" in dense) == ("dense", False)
    assert dense["plan"]["cells"] == json.loads(run("plan", file, "--json"))["plan"]["cells"]
    for method in ("rows", "diagram", "search"):
        found = json.loads(run("plan", file, "--json", "--method", method))
        assert (found["method"], found["plan"]) == (method, None)
        assert found["unswept"]
        assert found["prepared"]["plan"] is None
        assert found["prepared"]["after"]["variables"] < found["prepared"]["before"]["variables"]
        printed = run("plan", file, "--method", method)
        assert printed.startswith("method  ")
        assert "take turns" not in printed


@pytest.mark.parametrize(
    ("query", "method", "said"),
    [
        ("partition", "search", "cached components"),
        ("partition", "diagram", "sums on decision diagrams"),
        ("partition", "dense", "variables"),
    ],
)
def test_the_plan_of_a_sum_is_that_of_the_method(query: str, method: str, said: str) -> None:
    assert said in run("plan", "grid", "--query", query, "--method", method)


@pytest.mark.parametrize(("query", "method"), [("partition", "rows"), ("marginals", "search"), ("marginals", "dense")])
def test_methods_of_other_questions_are_refused(query: str, method: str) -> None:
    said = run("plan", "diagnosis", "--query", query, "--method", method, code=2)
    assert "rows are for the optimum" in said or f"the method {method} is for an optimum" in said


def test_a_method_of_a_question_that_preprocessing_answers_has_an_empty_plan() -> None:
    shown = json.loads(run("plan", "diagnosis", "--query", "partition", "--method", "search", "--json"))
    assert shown["plan"]["steps"] == shown["plan"]["cells"] == 0


@pytest.mark.parametrize("command", ["solve", "plan", "bound", "marginals"])
def test_help_is_grouped(command: str) -> None:
    """Every option stands once, under a title."""
    shown = run(command, "--help")
    found = main.get_command(click.Context(main, **main.context_settings), command)
    options = [option for param in found.params for option in param.opts if option.startswith("--")]
    listed = re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE)
    assert sorted(listed) == sorted([*options, "--help"])
    assert shown.index("\nQuestion:\n") < shown.index("\nPlan:\n") < shown.index("\nOptions:\n")


@pytest.mark.parametrize(("kind", "known"), [("cost", "at least 0"), ("markov", "at most ")])
@pytest.mark.parametrize("method", ["search", "rows", "diagram"])
def test_refusals_without_an_assignment_name_one_bound(kind: Any, known: str, method: Any) -> None:
    functions = [(tuple(pair), np.eye(30, dtype=np.int64)) for pair in ("ab", "bc", "ca")]
    model = bucketflow.Model.build(kind, dict.fromkeys("abc", 30), functions)
    with pytest.raises(
        bucketflow.BudgetError,
        match=f"the optimum is {known}.*, but no assignment with this value is known; give a larger",
    ):
        bucketflow.solve(model, method=method, prune=False, memory=1)
