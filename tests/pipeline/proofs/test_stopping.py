"""Searches for optima that are stopped, killed, resumed, and given bounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.answering import optimum
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.models.model import Function, Model
from bucketflow.pipeline.proofs import team
from bucketflow.pipeline.proofs.provers import branch_and_bound
from bucketflow.pipeline.proofs.provers.branch_and_bound import Search
from bucketflow.storage.run_folder import stored_bounds
from tests.models import named_model
from tests.pipeline.proofs.test_chain import grid
from tests.strategies import NEVER_QUICK, solve_by

SIZE = 7


@pytest.fixture(scope="module")
def best() -> int:
    return int(bucketflow.solve(grid(SIZE), method="dense").value)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    bucketflow.save(grid(SIZE), tmp_path / "grid.wcsp")
    return tmp_path / "grid.wcsp"


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> Callable[[signal.Signals], None]:
    """Lets a search send a signal as soon as it has an assignment."""

    def when_found(how: signal.Signals) -> None:
        run = Search.run

        def patched(search: Search, stop: Any, on_bounds: Any, on_states: Any) -> Any:
            def found(states: Any) -> None:
                on_states(states)
                signal.raise_signal(how)

            return run(search, stop, on_bounds, found)

        monkeypatch.setattr(Search, "run", patched)

    return when_found


ASKED = ("--method", "search", "--no-prune", "--time", "600")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_with_the_best(how: signal.Signals, path: Path, best: int, signalled: Any) -> None:
    signalled(how)
    run = CliRunner().invoke(main, ["solve", str(path), *ASKED, "--json"])
    assert (run.exit_code, run.stderr) == (4, "")
    found = json.loads(run.stdout)
    assert found["status"] == "bounded"
    assert found["proof"]["lower"] <= best <= found["value"] == found["proof"]["upper"]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_where_nothing_is_known(
    how: signal.Signals, code: int, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch_and_bound, "Search", lambda *_, **__: signal.raise_signal(how))
    run = CliRunner().invoke(main, ["solve", str(path), *ASKED])
    assert (run.exit_code, run.output) == (code, "bucketflow: stopped\n")
    folder = tmp_path / "run"
    run = CliRunner().invoke(main, ["solve", str(path), *ASKED, "--workdir", str(folder)])
    assert (run.exit_code, run.output) == (4, f"bucketflow: stopped; continue with: bucketflow resume {folder}\n")
    assert stored_bounds(folder) is not None


_DYING = """
import os, signal
from bucketflow.pipeline.answering import run_folder
from bucketflow.pipeline.cli.main import main
from bucketflow.storage.run_folder import RunDir

run_folder._OFTEN = 0
write = RunDir.write_bounds

def dying(self, bounds):
    write(self, bounds)
    if bounds["value"] is not None:
        os.kill(os.getpid(), signal.SIGKILL)

RunDir.write_bounds = dying
main()
"""


def test_killed_searches_only_improve(path: Path, tmp_path: Path, best: int) -> None:
    folder = tmp_path / "run"
    asked = ["solve", str(path), "--workdir", str(folder)]
    killed = subprocess.run([sys.executable, "-c", _DYING, *asked, *ASKED], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    run = CliRunner().invoke(main, ["inspect", str(folder), "--json"])
    facts = json.loads(run.output)
    assert facts["status"] == "unfinished"
    before = facts["bounds"]
    assert before["lower"] <= best <= before["upper"]
    assert f"{before['lower']} … {before['upper']}" in CliRunner().invoke(main, ["inspect", str(folder)]).output
    run = CliRunner().invoke(main, [*asked, "--no-prune", "--time", "0", "--json"])
    assert run.exit_code == 4
    proof = json.loads(run.stdout)["proof"]
    assert before["lower"] <= proof["lower"] <= best <= proof["upper"] <= before["upper"]
    assert CliRunner().invoke(main, ["resume", str(folder)]).exit_code == 4  # as it was last asked: for no time
    assert CliRunner().invoke(main, [*asked, "--time", "600"]).exit_code == 0
    assert json.loads(CliRunner().invoke(main, ["inspect", str(folder), "--json"]).output)["status"] == "finished"


def test_finished_searches_answer_at_once(path: Path, tmp_path: Path, best: int, monkeypatch: Any) -> None:
    model, folder = bucketflow.load(path), tmp_path / "run"
    none = bucketflow.solve(model, upper_bound=best - 1, workdir=folder)
    assert none.status == "infeasible"
    first = bucketflow.solve(model, time=600, workdir=folder)
    assert (first.status, first.value) == ("optimal", best)
    monkeypatch.setattr(optimum.Task, "of", None)
    for again in (bucketflow.solve(model, time=600, workdir=folder), bucketflow.resume(folder)):
        assert isinstance(again, bucketflow.Result)
        assert (again.status, again.value, again.assignment) == ("optimal", best, first.assignment)
        assert again.proof == first.proof
    assert bucketflow.solve(model, upper_bound=best - 1, workdir=folder).status == "infeasible"


def test_directories_of_bounds_are_swept_too(path: Path, tmp_path: Path, best: int) -> None:
    model, folder = bucketflow.load(path), tmp_path / "run"
    assert bucketflow.solve(model, time=0, workdir=folder).status == "bounded"
    assert bucketflow.solve(model, workdir=folder, method="dense").value == best
    again = bucketflow.solve(model, time=0, workdir=folder)
    assert (again.status, again.value) == ("optimal", best)


def cfn(tmp_path: Path, mustbe: str) -> Model:
    path = tmp_path / "small.cfn"
    costs = "[1.25, 2.5, 0.75, 3.1]"
    path.write_text(
        f'{{"problem": {{"name": "p", "mustbe": "{mustbe}"}}, "variables": {{"a": 2, "b": 2, "c": 2}}, "functions":'
        f' {{"f": {{"scope": ["a", "b"], "costs": {costs}}}, "g": {{"scope": ["b", "c"], "costs": {costs}}}}}}}'
    )
    return bucketflow.load(path)


@pytest.mark.parametrize("prune", [True, False])
@pytest.mark.parametrize("method", ["auto", "rows", "diagram", "search", "dense"])
def test_bounds_in_the_units_of_the_file(method: Any, prune: bool, tmp_path: Path) -> None:
    for mustbe, met, missed in (("<10.00", "2.0", 1.99), (">-10.00", "6.2", 6.21)):
        model = cfn(tmp_path, mustbe)
        assert bucketflow.solve(model, method=method, prune=prune, upper_bound=met).value == Decimal(met)
        assert bucketflow.solve(model, method=method, prune=prune, upper_bound=missed).status == "infeasible"


@pytest.mark.parametrize("method", ["auto", "dense", "rows", "diagram", "search"])
def test_a_probability_meets_itself(method: Any) -> None:
    """Also where the energies of functions are large and hardly differ, so that units are fine."""
    rng = np.random.default_rng(3)
    pairs = [(x, y) for y in range(5) for x in range(y)]
    functions = [Function(pair, 1e-300 * (1 + 1e-9 * rng.random((3, 3)))) for pair in pairs]
    model = named_model("markov", [3] * 5, functions)
    best = bucketflow.solve(model, method="dense").log10
    assert best is not None
    assert bucketflow.solve(model, method=method, upper_bound=best, prune=False).log10 == pytest.approx(best, rel=1e-12)
    assert bucketflow.solve(model, method=method, upper_bound=best + 0.01).status == "infeasible"


def test_what_ends_for_want_of_memory_says_so() -> None:
    asked: dict[str, Any] = {"method": "search", "upper_bound": 10_000, "prune": False}
    ended = bucketflow.solve(grid(SIZE), **asked, memory=200)
    assert ended.status == "bounded"
    assert ended.notes == (
        "the search ended without a proof because the memory was full; give a larger --memory, or --time",
    )
    assert bucketflow.solve(grid(SIZE), **asked, memory=200, time=0).notes == ()


LARGE = [Function((0,), np.array([2**53 + 1, 3])), Function((0, 1), np.array([[0, 5], [2**53 + 7, 2**53 + 8]]))]


@pytest.mark.parametrize("asked", [{"method": "search"}, {"method": "search", "order": "min-fill"}])
def test_what_was_only_rounded_is_not_said_to_want_memory(asked: dict[str, Any]) -> None:
    model = named_model("cost", [2, 2], LARGE)
    found = bucketflow.solve(model, **asked)
    assert (found.status, found.value) == ("bounded", 2**53 + 1)
    assert found.proof is not None
    assert found.proof.reason.startswith("bounded by")
    assert "in units of 32" in found.notes[0]
    assert found.notes[1:] == (
        ("order had no effect: the bounds did not meet, and no sweep was run",) if "order" in asked else ()
    )
    assert bucketflow.solve(model, method="dense").status == "optimal"  # as the note says


@pytest.mark.parametrize("asked", [{"gap": 0.0}, {"time": 600.0}, {"time": 600.0, "method": "dense"}])
def test_what_bounds_only_round_is_swept_in_the_time(asked: dict[str, Any]) -> None:
    found = bucketflow.solve(named_model("cost", [2, 2], LARGE), **asked)
    assert (found.status, found.value) == ("optimal", 2**53 + 1)
    assert found.notes == ("for costs this large, bounds are computed in units of 32, so every cell was swept",)


@pytest.mark.parametrize("method", ["auto", "dense", "rows", "diagram", "search"])
def test_bounds_beyond_all_numbers(method: Any) -> None:
    """Neither integers nor floats of machines hold them."""
    tables = [Function(pair, np.arange(9).reshape(3, 3)) for pair in ((0, 1), (1, 2), (2, 0))]
    costs = named_model("cost", [3] * 3, tables, top=10**400)
    odds = named_model("markov", [3] * 3, [Function(f.scope, f.values / 9) for f in tables])
    for far in (10**25, 1e300, 1.7e308):
        for model, best in ((costs, 0), (odds, None)):
            sign = 1 if model is costs else -1
            found = bucketflow.solve(model, method=method, upper_bound=sign * far, time=600, prune=False)
            assert (found.status, found.value) == ("optimal", best)
            assert bucketflow.solve(model, method=method, upper_bound=-sign * far, prune=False).status == "infeasible"


@pytest.mark.parametrize("method", ["auto", "dense", "rows", "diagram", "search"])
def test_trivial_models_meet_bounds_too(method: Any) -> None:
    model = named_model("cost", [1, 1], [Function((0, 1), np.array([[7]]))])
    assert bucketflow.solve(model, method=method, upper_bound=7).value == 7
    assert bucketflow.solve(model, method=method, upper_bound=6).status == "infeasible"
    assert bucketflow.solve(model, method=method, time=0).value == 7


def huge() -> Model:
    """Costs of which one unit of a bound is many."""
    rng = np.random.default_rng(1)
    pairs = [(x, y) for y in range(5) for x in range(y)]
    return named_model("cost", [3] * 5, [Function(pair, rng.integers(0, 1 << 57, (3, 3))) for pair in pairs])


@pytest.mark.parametrize("method", ["rows", "diagram", "search"])
def test_rounded_costs_are_no_proof(method: Any) -> None:
    best = bucketflow.solve(huge(), method="dense").value
    result = bucketflow.solve(huge(), method=method, gap=0)
    assert result.proof is not None
    assert result.status == ("optimal" if result.value == result.proof.lower else "bounded")
    assert result.proof.lower <= best <= result.value  # type: ignore[operator]
    assert result.proof.close == (result.status == "optimal")


def test_bounds_on_the_command_line_are_whole(tmp_path: Path) -> None:
    bucketflow.save(huge(), tmp_path / "huge.wcsp")
    best = int(bucketflow.solve(huge(), method="dense").value)  # type: ignore[arg-type]
    asked = ["solve", str(tmp_path / "huge.wcsp"), "--method", "dense", "--json", "--upper-bound"]
    assert json.loads(CliRunner().invoke(main, [*asked, str(best)]).stdout)["value"] == best
    assert json.loads(CliRunner().invoke(main, [*asked, str(best - 1)]).stdout)["status"] == "infeasible"
    run = CliRunner().invoke(main, [*asked, "much"])
    assert (run.exit_code, run.output) == (2, "bucketflow: the bound 'much' is not a number\n")


def test_sweeps_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that takes longer than is left is not begun, and one that was priced too low is ended."""
    start = time.perf_counter()
    assert solve_by(NEVER_QUICK, grid(12, 6), method="dense", time=0.5, prune=False).status == "bounded"
    monkeypatch.setattr(optimum._Elimination, "seconds", 0.0)
    assert solve_by(NEVER_QUICK, grid(10, 4), method="dense", time=0.01, prune=False).status == "bounded"
    assert time.perf_counter() - start < 60


def test_no_order_is_searched_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "depth_first_order", None)
    for prune in (True, False):
        assert bucketflow.solve(grid(SIZE), time=0, prune=prune).status == "bounded"
