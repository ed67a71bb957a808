"""Rows in memory on several devices of this process: subtrees side by side, ranges of keys, the bits of one device."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import bucketflow
from bucketflow import Model
from bucketflow.cluster.pool import DeviceThreads, present_device
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.models.function import Function
from bucketflow.pipeline.runs import row_devices
from bucketflow.tasks.rows import memory_account
from bucketflow.tasks.rows.algebra import PlainRows, Representation
from bucketflow.tasks.rows.device_algebra import rows_there, tables_there
from bucketflow.tasks.rows.joins import joined_reduced
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.memory_account import MemoryAccount
from bucketflow.tasks.rows.relation import Dense, Relation
from bucketflow.tasks.steps.policy import RowPolicy
from bucketflow.tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps.sweep import Plain
from tests.cluster.test_steps import assert_same
from tests.device_stand_in import StandInRows, device
from tests.models import named_model
from tests.pipeline.runs.sparse import ring, sparse_models
from tests.policies import InForce

FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
QUESTIONS = [
    ("optimum", "cost"),
    ("optimum", "markov"),
    ("count", "cost"),
    ("partition", "markov"),
    ("marginals", "markov"),
    ("max-marginals", "cost"),
]


@pytest.fixture(params=[2, 4])
def cards(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> Any:
    """Devices for which nothing is too small."""
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    in_force(RowPolicy, device_rows=8, small_cells=0, cells_of_a_row=0, array_share=0.0)
    with device(monkeypatch, cards=request.param):
        yield request.param


@pytest.fixture
def shared(in_force: InForce) -> None:
    """No join is too small to be shared."""
    in_force(RowPolicy, device_rows=8, small_cells=0, cells_of_a_row=0, array_share=0.0, device_shared_joins=0)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many operations on rows each device did."""
    found: Counter[int] = Counter()
    call = StandInRows.called

    def called(rows: StandInRows, *args: Any, **options: Any) -> Any:
        found[present_device()] += 1
        return call(rows, *args, **options)

    monkeypatch.setattr(StandInRows, "called", called)
    return found


def star(kind: str, arms: int = 6) -> Model:
    """Chains of rows that meet in one variable: subtrees that are as large as each other."""
    rng = np.random.default_rng(7)
    functions = []
    for arm in range(arms):
        scope = [0, *range(1 + 3 * arm, 4 + 3 * arm)]
        for triple in zip(scope, scope[1:], scope[2:], strict=False):
            rows = np.unique(rng.integers(0, 8, (150, 3)), axis=0)
            values: Any = rng.integers(0, 5, len(rows)) if kind == "cost" else rng.random(len(rows))
            functions.append(Function(triple, values, rows, default=200 if kind == "cost" else 0.0))
    return named_model(kind, [8] * (1 + 3 * arms), functions, 200 if kind == "cost" else None)


def asked(model: Model, query: str, **options: Any) -> Any:
    if query in ("marginals", "max-marginals"):
        how = {"max_marginals": query == "max-marginals", "joint": [tuple(model.names[:2])]}
        return bucketflow.marginals(model, representation="rows", **how, **options)
    return bucketflow.solve(model, query, representation="rows", **options)


@pytest.mark.parametrize(("query", "kind"), QUESTIONS)
@pytest.mark.parametrize("make", [star, lambda kind: ring(24, kind, groups=5)])
def test_subtrees_go_to_all_devices(cards: int, used: Counter[int], make: Any, query: str, kind: str) -> None:
    model = make(kind)
    alone = asked(model, query, gpus=1)
    used.clear()
    found = asked(model, query, gpus=cards)
    assert set(used) == set(range(cards)) if make is star else len(used) > 1
    assert_same(alone, found)
    assert found.dask.tasks == 0
    assert found.dask.why_none == f"threads of this process use its {cards} GPUs"
    if query in ("optimum", "partition"):
        assert found.rows_work.joined_rows == alone.rows_work.joined_rows
        assert found.rows_work.tables == alone.rows_work.tables


@pytest.mark.parametrize(("query", "kind"), QUESTIONS)
def test_ranges_of_keys_go_to_all_devices(
    cards: int, shared: None, used: Counter[int], query: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: Counter[Any] = Counter()
    join = memory_account.joined_reduced

    def counted(*args: Any) -> Any:
        found = join(*args)
        parts[args[-1], present_device()] += len(found) > 0
        return found

    monkeypatch.setattr(memory_account, "joined_reduced", counted)
    model = ring(24, kind, groups=4)
    alone = asked(model, query, gpus=1)
    parts.clear()
    found = asked(model, query, gpus=cards)
    assert_same(alone, found)
    assert all(parts[(number, cards), number] for number in range(cards))


@pytest.mark.parametrize("semiring", [MIN_PLUS, SUM_PRODUCT])
def test_arrays_beside_rows_go_to_all_devices(cards: int, semiring: Any) -> None:
    rng, sizes = np.random.default_rng(3), (40, 6, 50)
    states = np.stack([line.ravel() for line in np.indices(sizes)])[:, rng.random(40 * 6 * 50) < 0.1]
    keys, array = Keys((0, 1, 2), sizes), Dense(Keys((1, 2), sizes[1:]), rng.random(300) + 1)
    tables = [Relation(keys, keys.pack(states), rng.random(states.shape[1]) + 1), array]
    step = make_step(3, (1, 2), ((0, 1, 2), (1, 2)), (0, 1), sizes, semiring, keep=False)
    team = row_devices.DeviceTeam(DeviceThreads(cards, 1), [MemoryAccount(1 << 24) for _ in range(cards)])
    given: Any = PlainRows(Representation(semiring, sizes, team.rooms[0]), Plain(semiring))
    algebra: Any = rows_there(given)
    there = tables_there(tables)
    found, alone = team.joined(algebra.choice, step, there), algebra.choice.joined_there(step, there)
    assert len(found) > cards
    assert found.words.tobytes() == alone.words.tobytes()
    assert found.values.tobytes() == alone.values.tobytes()
    if semiring is MIN_PLUS:
        here = joined_reduced(tables, (0, 1), semiring)
        assert found.words.tobytes() == here.words.tobytes()
        assert found.values.tobytes() == here.values.tobytes()


def test_what_steps_took_is_told(cards: int, tmp_path: Path) -> None:
    asked(star("cost"), "optimum", gpus=1, workdir=tmp_path / "one")
    asked(star("cost"), "optimum", gpus=cards, workdir=tmp_path / "all")
    one, several = [json.loads((tmp_path / name / "result.json").read_text())["steps"] for name in ("one", "all")]
    assert several.keys() == one.keys() != set()
    assert all(seconds > 0 and times == 1 for seconds, times in several.values())


@FEW
@given(model=sparse_models("markov"))
def test_random_models(cards: int, shared: None, model: Model) -> None:
    for query in ("optimum", "partition", "marginals"):
        found = asked(model, query, gpus=cards) if len(model.names) > 1 or query != "marginals" else None
        if found is not None:
            assert_same(asked(model, query, gpus=1), found)


def test_what_several_hold_and_one_may_not_is_done_by_one(
    cards: int, used: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_devices, "default_memory_bytes", lambda: 0)
    free = memory_account.MemoryAccount.free
    monkeypatch.setattr(
        memory_account.MemoryAccount, "free", property(lambda room: 0 if "_kept" in _callers() else free.fget(room))
    )
    model = star("cost")
    found = asked(model, "optimum", gpus=cards)
    monkeypatch.undo()
    assert_same(asked(model, "optimum"), found)


def _callers() -> set[str]:
    frame, names = sys._getframe(1), set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return names


def test_a_join_that_a_device_refuses_is_done_again(cards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    join, left = memory_account.joined_reduced, [1]

    def refusing(*args: Any) -> Any:
        if present_device() and left[0]:
            left[0] -= 1
            raise cupy.cuda.memory.OutOfMemoryError(1, 0)
        return join(*args)

    monkeypatch.setattr(memory_account, "joined_reduced", refusing)
    found = asked(star("cost"), "optimum", gpus=cards)
    assert left[0] == 0
    assert_same(asked(star("cost"), "optimum"), found)


def test_a_run_that_fails_leaves_no_thread(cards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> Any:
        raise RuntimeError("stopped")

    monkeypatch.setattr(row_devices, "spend", stopped)
    with pytest.raises(RuntimeError, match="stopped"):
        asked(star("cost"), "optimum", gpus=cards)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("place-")]


@pytest.mark.parametrize("semiring", [MIN_PLUS, SUM_PRODUCT])
def test_ranges_one_after_the_other_are_the_whole_join(semiring: Any) -> None:
    rng = np.random.default_rng(3)
    sizes = (40, 6, 50)

    def table(variables: tuple[int, ...], rows: int) -> Relation:
        keys = Keys(variables, tuple(sizes[v] for v in variables))
        states = np.unique(np.stack([rng.integers(0, sizes[v], rows) for v in variables]), axis=1)
        return Relation(keys, keys.pack(states), rng.random(states.shape[1]) + 1)

    inputs = [table((0, 1), 120), table((1, 2), 200), table((0, 2), 900)]
    whole = joined_reduced(inputs, (0, 1), semiring)
    for parts in (1, 2, 3, 7, 60):
        found = [joined_reduced(inputs, (0, 1), semiring, part=(i, parts)) for i in range(parts)]
        assert np.array_equal(np.concatenate([part.words for part in found]), whole.words)
        assert np.concatenate([part.values for part in found]).tobytes() == whole.values.tobytes()
        assert sum(len(part) > 0 for part in found) == min(parts, 40) or parts == 60


def test_threads_of_this_process_serve(cards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started for what threads do."""
    asked_for: list[int] = []
    made = DeviceThreads.__init__

    def noted(self: DeviceThreads, devices: int, *rest: Any) -> None:
        asked_for.append(devices)
        made(self, devices, *rest)

    monkeypatch.setattr(DeviceThreads, "__init__", noted)
    asked(star("cost"), "optimum", gpus=cards)
    assert asked_for == [cards]
