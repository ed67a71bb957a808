"""Ganak as an engine: its answers against brute force, its process against time, interruption, and lack of memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import BudgetError, Model, ModelError
from bucketflow.pipeline.answering.engines import sum_engines
from bucketflow.pipeline.answering.engines.engine import TurnEnded
from bucketflow.pipeline.answering.engines.engine_registry import EnginesOf
from bucketflow.pipeline.answering.engines.request import QueryRequest
from bucketflow.pipeline.answering.engines.strategy_policy import TurnLengths
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.errors import InternalError
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.options import Options
from bucketflow.tasks.compiler import outside_process
from bucketflow.tasks.compiler.outside_process import folder_of
from bucketflow.tasks.compiler.working_time import working_seconds
from bucketflow.tasks.counting.ganak import GanakError, GanakProcess
from tests.models import brute_count, brute_log10_sum, cost_models, markov_models, named_model
from tests.strategies import NEVER_QUICK, solve_by

installed = pytest.mark.skipif(folder_of("pyganak") is None, reason="pyganak is not installed (extra counters)")


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Whatever a test does, the counting process ends."""
    before = _descendants()
    yield
    deadline = time.monotonic() + 10
    while (left := _descendants() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left


def _descendants() -> set[int]:
    """This process's children that run Ganak, where the system lists them."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"outside_program" in (folder / "cmdline").read_bytes() and _is_below(int(folder.name)):
                found.add(int(folder.name))
    return found


def _is_below(pid: int) -> bool:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid == os.getpid():
            return True
    return False


def random_clauses(n: int, m: int, seed: int = 5) -> list[list[int]]:
    """Clauses of three literals, as DIMACS has them."""
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(n, 3, replace=False) + 1 for _ in range(m)]
    return [(each * rng.choice((-1, 1), 3)).tolist() for each in chosen]


def clause_model(n: int, m: int, weights: Any = ()) -> Model:
    functions = []
    for clause in random_clauses(n, m):
        values = np.ones((2, 2, 2))
        values[tuple(int(literal < 0) for literal in clause)] = 0.0
        functions.append(Function(tuple(abs(literal) - 1 for literal in clause), values))
    functions += [Function((v,), np.array(pair)) for v, pair in enumerate(weights)]
    return named_model("markov", [2] * n, functions)


def hard_count() -> GanakProcess:
    """A count that takes minutes."""
    return GanakProcess(150, random_clauses(150, 300), range(1, 151), None, 1 << 32)


@installed
@settings(max_examples=40, deadline=None)
@given(cost_models(), st.data())
def test_counts_of_costs(model: Model, data: Any) -> None:
    shown = data.draw(st.sets(st.sampled_from(model.names)))
    with suppress(BudgetError):  # where finite costs may add up to the top
        assert bucketflow.solve(model, "count", method="ganak").value == brute_count(model, {})
        searched = bucketflow.solve(model, "count", method="search", project=sorted(shown)).value
        assert bucketflow.solve(model, "count", method="ganak", project=sorted(shown)).value == searched


@installed
@settings(max_examples=40, deadline=None)
@given(markov_models())
def test_sums_of_potentials(model: Model) -> None:
    assert bucketflow.solve(model, "count", method="ganak").value == brute_count(model, {})
    with suppress(BudgetError):  # where weights are too far from 1
        found, expected = bucketflow.solve(model, "partition", method="ganak"), brute_log10_sum(model, {})
        assert (found.status == "infeasible") is (expected is None)
        assert found.log10 is None or found.log10 == pytest.approx(expected, abs=1e-9)


@installed
@pytest.mark.parametrize("scale", [1e-140, 1.0, 1e140])
def test_sums_that_no_float_holds(scale: float) -> None:
    """The product of 60 weights is 10^-8400 or 10^8400."""
    rng = np.random.default_rng(3)
    model = clause_model(60, 60, (scale * rng.uniform(0.5, 1.5, (60, 2))).tolist())
    found = bucketflow.solve(model, "partition", method="ganak")
    assert found.log10 == pytest.approx(bucketflow.solve(model, "partition", method="dense").log10, abs=1e-9)
    assert "probability below" in " ".join(found.notes)


@installed
def test_a_sum_that_no_float_holds_is_refused_and_no_sum_is_0() -> None:
    weights = dict.fromkeys(range(1, 21), 1e-100)
    with pytest.raises(GanakError, match="too small for a float"):
        GanakProcess(20, [[v] for v in weights], [*weights], weights, 1 << 32).run(60.0)
    assert GanakProcess(20, [[1], [-1]], [*weights], weights, 1 << 32).run(60.0) == 0.0


@installed
def test_slices_go_on_where_the_last_one_ended() -> None:
    process = hard_count()
    before = working_seconds()
    assert process.run(0.2) is None
    first = process.seconds
    assert process.run(0.3) is None
    assert 0.15 < first < process.seconds
    assert working_seconds() - before >= 0.9 * process.seconds
    process.close()


@installed
def test_a_beaten_count_is_ended() -> None:
    looks = iter([False, False, True])
    assert hard_count().run(float("inf"), lambda: next(looks)) is None


@installed
def test_ctrl_c_ends_the_process() -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hard_count().run(float("inf"), interrupted)


@installed
def test_memory_is_limited() -> None:
    with pytest.raises(GanakError):
        GanakProcess(1 << 22, [[1]], [1], None, 1 << 20).run(60.0)


@installed
def test_a_killed_process_is_an_engine_that_ended() -> None:
    process = hard_count()
    assert process.run(0.05) is None
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGKILL)
    with pytest.raises(GanakError, match="its process ended"):
        process.run(0.1)


@installed
def test_ganak_has_time_slices_and_another_engine_may_answer() -> None:
    """Turns double; whichever engine ends first answers, and the rest are ended."""
    policy = replace(NEVER_QUICK, share=1e12, lengths={**NEVER_QUICK.lengths, "ganak": TurnLengths(1e-3)})
    model = clause_model(30, 70)
    found = solve_by(policy, model, "count")
    assert found.value == bucketflow.solve(model, "count", method="dense").value
    assert "ganak" in {each.engine for each in found.tried}


@installed
def test_a_turn_after_lack_of_memory_has_the_memory_of_that_turn() -> None:
    request = QueryRequest(question_of(clause_model(14, 30), "count"), Options(memory="4GB"))
    request.reserved_bytes = 1 << 40
    engine = EnginesOf(request)["ganak"]
    assert isinstance(engine, sum_engines.GanakEngine)
    assert engine._process.memory_bytes == 0
    engine._process.clauses = [["no literal"]]  # type: ignore[list-item]
    assert isinstance(engine.run(10.0), TurnEnded)
    request.reserved_bytes = 0
    assert getattr(engine.run(60.0), "value", None) == brute_count(request.question.model, {})


@installed
def test_a_count_beyond_its_bound_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = clause_model(12, 20)
    monkeypatch.setattr(GanakProcess, "run", lambda self, seconds, stop=bool: 2**13)
    with pytest.raises(InternalError, match="exceeds"):
        bucketflow.solve(model, "count", method="ganak")


def test_mixed_tables_are_left_to_the_sweep() -> None:
    rng = np.random.default_rng(0)
    model = named_model("markov", [3] * 6, [Function((v, v + 1), rng.random((3, 3)) + 0.1) for v in range(5)])
    engines = EnginesOf(QueryRequest(question_of(model, "partition"), Options()))
    assert isinstance(engines["ganak"].estimate(), str)


def test_without_the_package_the_other_engines_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (sum_engines, outside_process):
        monkeypatch.setattr(module, "folder_of", lambda package: None)
    policy = replace(NEVER_QUICK, share=1e12, lengths={**NEVER_QUICK.lengths, "ganak": TurnLengths(1e-3)})
    model = clause_model(14, 30)
    found = solve_by(policy, model, "count")
    assert found.value == brute_count(model, {})
    assert "ganak" not in {each.engine for each in found.tried}
    with pytest.raises(BudgetError, match=r"Ganak is not installed: pip install .*\[counters\]"):
        bucketflow.solve(model, "count", method="ganak")
    (tmp_path / "model.cnf").write_text("p cnf 2 1\n1 2 0\n")
    asked = CliRunner().invoke(main, ["solve", str(tmp_path / "model.cnf"), "--query", "count", "--method", "ganak"])
    assert (asked.exit_code, "[counters]" in asked.output) == (3, True)


def test_the_method_is_for_counts_and_sums() -> None:
    with pytest.raises(ModelError, match="the method ganak is for counts and partition functions"):
        bucketflow.solve(clause_model(5, 5), "optimum", method="ganak")
