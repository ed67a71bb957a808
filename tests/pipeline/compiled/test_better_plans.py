"""Compiled models search for better trees beside their answers, and turn to them once those have paid."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Compiled, Model
from bucketflow.pipeline.answering.engines.engine import Stop
from bucketflow.pipeline.compiled import state as compiled_state
from bucketflow.pipeline.compiled.better_plans import FoundPlan, propagation_seconds, searches_of
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.compiled.structure import paths_of
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.tasks.compiler.code_cache import impatient
from tests.models import grid


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """A search begins with the first answer, whatever it took."""
    with CompiledPolicy.using(searching_seconds=0.0):
        yield


def model() -> Model:
    return grid(5, 5, 3, "markov")


def bad_order() -> list[str]:
    """Any order: its buckets are wide."""
    names = list(model().names)
    return [names[int(i)] for i in np.random.default_rng(4).permutation(len(names))]


def dear() -> Compiled:
    """A compiled model with a bad tree, whose searches find a good one at once."""
    made = bucketflow.compile(model())
    bad = bucketflow.compile(model(), order=bad_order(), tree="bucket")
    good = made.plan
    assert good is not None
    assert bad.plan is not None
    assert propagation_seconds(good) < 0.8 * propagation_seconds(bad.plan)
    compiled = Compiled(bad.skeleton, bad.options)
    assert made.better is not None
    compiled.better = made.better
    compiled.better.find = lambda seconds, stop: FoundPlan(good, 0.0)
    return compiled


def answers(compiled: Compiled) -> dict[str, Any]:
    compiled.add("x0", 0)
    compiled.clear("x0")
    return dict(compiled.marginals())


def test_a_better_plan_is_taken_once_it_has_paid() -> None:
    """Which follows from predictions, not from clocks; answers stay the same, and findings are kept."""
    compiled, names = dear(), model().names
    bad, better = compiled.plan, compiled.better
    assert bad is not None
    assert better is not None
    compiled.add(names[3], 1)
    expected = bucketflow.marginals(model(), evidence={names[3]: 1})
    propagations = 0
    while compiled.plan is bad:
        compiled.reset()
        compiled.add(names[3], 1)
        found = compiled.marginals()
        propagations += 1
        better.wait()
        assert propagations < 100
        for name in expected:
            assert found[name] == pytest.approx(expected[name], rel=1e-12)
    good = compiled.plan
    assert good is not None
    assert propagation_seconds(bad) > 2 * propagation_seconds(good)
    assert propagations == 3  # searched for beside the first, found to have paid after the second
    assert 0 < compiled.computed <= len(good.steps)  # new tables
    found = compiled.marginals()
    for name in expected:
        assert found[name] == pytest.approx(expected[name], rel=1e-12)
    assert compiled.partition() == pytest.approx(expected.log10_evidence, rel=1e-12)
    cases = compiled.marginals_batch({names[0]: [0, 1, None]})
    for case, state in enumerate((0, 1)):
        alone = bucketflow.marginals(model(), evidence={names[3]: 1, names[0]: state})
        assert cases[names[7]][case] == pytest.approx(alone[names[7]], rel=1e-9)


def test_a_better_plan_whose_joints_do_not_fit_is_not_taken() -> None:
    """Joints that were requested at compilation are computed beside the messages, along paths of the plan in use."""
    pair = ("x0", "x24")
    bad = bucketflow.compile(model(), joint=[pair], order=bad_order(), tree="bucket")
    made = bucketflow.compile(model(), joint=[pair])
    good, (target,) = made.plan, [t for t in made.skeleton.targets if len(t) > 1]
    assert good is not None
    needed = good.kept_bytes + paths_of(good).joint(target).nbytes
    expected = bucketflow.marginals(model(), joint=[pair])
    for memory, fits in ((needed - 1, False), (needed, True)):
        compiled = Compiled(bad.skeleton, replace(bad.options, memory=memory))
        assert made.better is not None
        compiled.better = searches_of(made.skeleton.planner, 1 << 40)
        assert compiled.better is not None
        compiled.better.find = lambda seconds, stop: FoundPlan(good, 0.0)
        for _ in range(9):
            compiled.reset()
            found = compiled.marginals()
            assert found.joints[pair] == pytest.approx(expected.joints[pair], rel=1e-9)
            compiled.better.wait()
        assert (compiled.plan is good) == fits


def test_a_search_that_took_long_pays_later() -> None:
    compiled = dear()
    assert compiled.better is not None
    assert compiled.plan is not None
    good = compiled.better.find(0.0, lambda: False)
    assert good is not None
    taken = propagation_seconds(good.plan)
    saved = propagation_seconds(compiled.plan) - taken
    compiled.better.find = lambda seconds, stop: FoundPlan(good.plan, 20 * saved)
    bad = compiled.plan
    propagations = 0
    while compiled.plan is bad and propagations < 100:
        propagations += 1
        compiled.reset()
        compiled.marginals()
        compiled.better.wait()
    assert 20 < propagations <= 22 + taken / saved + 1


def test_a_plan_that_saves_little_or_does_not_fit_is_left() -> None:
    for memory, share in ((1 << 40, 1.0), (1 << 10, 0.0)):
        compiled = dear()
        assert compiled.better is not None
        bad = compiled.plan
        compiled.better.memory_bytes = memory
        with CompiledPolicy.using(searching_seconds=0.0, least_saved=share):
            for _ in range(20):
                compiled.reset()
                compiled.marginals()
                compiled.better.wait()
        assert compiled.plan is bad


def test_no_search_where_the_plan_was_asked_for() -> None:
    names = model().names
    options: list[dict[str, Any]] = [
        {"order_time": 0.1},
        {"tree": "junction"},
        {"order": list(names)},
        {"background": False},
    ]
    for asked in options:
        assert bucketflow.compile(model(), **asked).better is None, asked
    assert bucketflow.compile(model()).better is not None


def test_a_search_that_fails_is_said_and_is_the_last(caplog: pytest.LogCaptureFixture) -> None:
    compiled, begun = dear(), []

    def failing(seconds: float, stop: Stop) -> FoundPlan | None:
        begun.append(seconds)
        raise RuntimeError("lost")

    assert compiled.better is not None
    compiled.better.find = failing
    expected = bucketflow.marginals(model())
    for _ in range(5):
        compiled.reset()
        found = compiled.marginals()
        compiled.better.wait()
    for name in expected:
        assert found[name] == pytest.approx(expected[name], rel=1e-12)
    assert len(begun) == 1
    assert "the search for a better plan failed: lost" in caplog.text


def test_searches_grow_with_what_propagations_took() -> None:
    compiled, begun = dear(), []

    def vain(seconds: float, stop: Stop) -> FoundPlan | None:
        begun.append(seconds)
        return None

    assert compiled.better is not None
    compiled.better.find = vain
    plan = compiled.plan
    assert plan is not None
    longest = 30 * propagation_seconds(plan)
    with CompiledPolicy.using(searching_seconds=0.0, longest_search_seconds=longest):
        for _ in range(80):
            compiled.reset()
            compiled.marginals()
            compiled.better.wait()
    assert begun[0] == pytest.approx(propagation_seconds(plan))
    assert all(4 * a <= b * 1.001 for a, b in pairwise(begun[:-1]))
    assert begun[-1] == longest
    assert len(begun) == 4  # of 1, 5, 21 propagations, and of the longest


def test_a_search_begins_once_answers_took_some_seconds() -> None:
    """Answers count by their predicted seconds."""
    plan = bucketflow.compile(model()).plan
    assert plan is not None
    with CompiledPolicy.using(searching_seconds=2.5 * propagation_seconds(plan)):
        compiled, begun = bucketflow.compile(model()), list[float]()
        assert compiled.better is not None
        compiled.better.find = lambda seconds, stop: begun.append(seconds)
        for count in range(1, 5):
            compiled.reset()
            compiled.marginals()
            compiled.better.wait()
            assert bool(begun) == (count >= 3)


def test_threads_may_ask_while_plans_change() -> None:
    """And batches, which read plan and tables together."""
    compiled, names = dear(), model().names
    expected = {s: bucketflow.marginals(model(), evidence={names[2]: s}) for s in range(3)}
    bad = compiled.plan

    def ask(i: int) -> None:
        state = i % 3
        found = compiled.marginals_batch({names[2]: [state]})
        for name in (names[9], names[17]):
            assert found[name][0] == pytest.approx(expected[state][name], rel=1e-9)
        compiled.reset()
        assert compiled.marginals()[names[9]] == pytest.approx(free[names[9]], rel=1e-9)

    free = bucketflow.marginals(model())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(48)))
    assert compiled.plan is not bad


def test_an_interruption_between_two_plans_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = dear()
    assert compiled.better is not None
    expected = bucketflow.marginals(model())
    bad = compiled.plan
    real, others = compiled_state.kept_tables, []

    def interrupted(plan: Plan, *given: Any) -> Any:
        if plan is not bad:
            others.append(plan)
            if len(others) == 1:
                raise KeyboardInterrupt
        return real(plan, *given)

    monkeypatch.setattr(compiled_state, "kept_tables", interrupted)
    interruptions = 0
    for _ in range(60):
        compiled.reset()
        try:
            found = compiled.marginals()
        except KeyboardInterrupt:
            interruptions += 1
            continue
        compiled.better.wait()
        for name in expected:
            assert found[name] == pytest.approx(expected[name], rel=1e-12)
    assert interruptions == 1
    assert compiled.plan is not bad  # what was lost with the exception was searched for again, later


def test_travelling_and_saving_keep_the_better_plan(tmp_path: Path) -> None:
    compiled = dear()
    assert compiled.better is not None
    bad = compiled.plan
    while compiled.plan is bad:
        compiled.reset()
        compiled.marginals()
        compiled.better.wait()
    compiled.save(tmp_path / "model.npz")
    assert compiled.plan is not None
    for other in (pickle.loads(pickle.dumps(compiled)), Compiled.load(tmp_path / "model.npz")):
        assert other.plan is not None
        assert other.plan.tree == compiled.plan.tree
        assert other.better is None
        np.testing.assert_allclose(other.marginals()[model().names[4]], compiled.marginals()[model().names[4]])


def test_a_real_search_ends_when_it_is_told_to() -> None:
    compiled = bucketflow.compile(model())
    better = compiled.better
    assert better is not None
    with impatient():
        found = better.find(0.2, lambda: False)
        assert found is None or found.plan.tree.leaves == compiled.skeleton.network.scopes
        told = threading.Event()
        told.set()
        ended = better.find(3600.0, told.is_set)  # an hour otherwise
    assert ended is None or ended.plan.results.keys() == found.plan.results.keys()  # type: ignore[union-attr]


def test_the_process_ends_while_a_search_runs() -> None:
    """The thread is told to end, and nothing is said."""
    code = """
import time, bucketflow
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
model = bucketflow.load("diagnosis")
with CompiledPolicy.using(searching_seconds=0.0):
    compiled = bucketflow.compile(model)
    running = []
    def endless(seconds, stop):
        running.append(True)
        while not stop():
            time.sleep(0.001)
        print("told", flush=True)
    compiled.better.find = endless
    compiled.marginals()
    while not running:
        time.sleep(0.001)
print("done", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["done", "told"], "")
