"""Threads that share both sweeps: the same tables for any number of them, and a schedule that keeps many busy."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.compiled.compiled import Compiled
from bucketflow.pipeline.compiled.state import kept_tables
from bucketflow.pipeline.models.model import Function, Model
from bucketflow.tasks.incremental import thread_crew as crew_module
from bucketflow.tasks.incremental.packed import Packed
from bucketflow.tasks.incremental.schedule import Item, Schedule, arena_words, scheduled
from bucketflow.tasks.incremental.stages import PropagationPolicy, is_streamed
from bucketflow.tasks.sweeps.scaled import QuickSumProduct, Scaled, as_logs, measured
from tests.models import named_model
from tests.policies import InForce

DATA = Path(__file__).parents[3] / "shared" / "data" / "bn"

#: Cells that take as long as a thread takes to find and finish a part.
PART_CELLS = 300


def mixed_model(seed: int) -> Model:
    """Functions of two to four variables of 3 to 11 states: joins of 2^13 to 2^18 cells, in all orders of axes."""
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.integers(3, 12, 12)]
    scopes = [rng.choice(12, int(rng.integers(2, 5)), replace=False) for _ in range(12)]
    scopes = [scope for scope in scopes if np.prod([sizes[v] for v in scope]) < 5000]
    return named_model(
        "markov", sizes, [Function(tuple(map(int, scope)), rng.random([sizes[v] for v in scope])) for scope in scopes]
    )


@pytest.fixture(scope="module")
def mixed() -> list[Compiled]:
    return [bucketflow.compile(mixed_model(seed), threads=1) for seed in (2, 5, 7, 10, 11)]


@pytest.fixture
def fine(in_force: InForce) -> None:
    """Parts of few cells, so that small models have many, and none is left to the first thread."""
    in_force(PropagationPolicy, grain_cells=1 << 10, alone_cells=0)


def test_the_mixed_models_have_every_kind_of_large_step(mixed: list[Compiled]) -> None:
    steps = [step for model in mixed if model.plan is not None for step in model.plan.steps]
    loops = [step.lowered.loops for step in steps if is_streamed(step) and step.lowered.loops]
    assert any(len(one.merges) > 1 for one in loops)
    assert any(one.summed > 1 for one in loops)
    assert any(one.turn is not None for one in loops)
    assert any(operand.role == "gather" for one in loops for operand in one.operands)
    assert any(one.depth_high for one in loops)
    assert any(step.lowered.product for step in steps)


def packed(model: Compiled, threads: int) -> Packed:
    assert model.plan is not None
    plan = model.plan
    return Packed(plan.steps, len(plan.up), dict(model._base), QuickSumProduct(plan.tree.dims, True), threads)


def changes(model: Compiled, seed: int) -> list[tuple[int, Scaled]]:
    """Leaf tables that become others: wholly, in no ratio, or so that products leave the range of numbers."""
    rng = np.random.default_rng(seed)
    found = []
    for leaf, factor in zip(rng.permutation(sorted(model._base)), [1.0, 0.5, 1e-250, 1.0, 1.0], strict=False):
        table = model._base[leaf]
        values = table.values * rng.random(table.values.size) if factor == 1.0 else table.values.copy()
        values[: values.size // 2] *= 1.0 if factor == 0.5 else factor
        found.append((int(leaf), measured(values, table.log_scale)))
    return found


def same(one: Scaled, other: Scaled) -> bool:
    equal = one.log_scale == other.log_scale and one.logs == other.logs
    return equal and one.values.tobytes() == other.values.tobytes()


def assert_equal_for_any_threads(model: Compiled, numbers: Sequence[int]) -> None:
    assert model.plan is not None
    nodes = [step.node for step in model.plan.steps]
    first, *others = [packed(model, threads) for threads in numbers]
    for change in [None, *changes(model, 1)]:
        for tables, threads in zip((first, *others), numbers, strict=True):
            if change is not None:
                tables.set_leaf(*change)
            tables.refresh(model.plan.tree.roots, threads)
            tables.refresh(nodes, threads)
        for tables in others:
            assert tables.computed == first.computed
            assert all(same(first.table(node), tables.table(node)) for node in nodes)


@pytest.mark.usefixtures("fine")
def test_tables_are_the_same_for_any_number_of_threads(mixed: list[Compiled]) -> None:
    for model in mixed:
        assert_equal_for_any_threads(model, (1, 2, 5, 16))


@pytest.mark.parametrize("threads", [1, 3])
def test_products_and_steps_without_loops_are_made_with_all_others(
    threads: int, mixed: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them waits for Python, and nobody for it."""
    monkeypatch.setattr(Packed, "run_alone", None)
    for model in mixed:
        assert model.plan is not None
        nodes = [step.node for step in model.plan.steps]
        tables = packed(model, threads)
        tables.refresh(nodes, threads)
        assert tables.computed == len(nodes)


@pytest.mark.usefixtures("fine")
def test_threads_that_come_back_after_every_item_make_the_same_tables(mixed: list[Compiled], in_force: InForce) -> None:
    in_force(PropagationPolicy, turn_cells=1)
    assert_equal_for_any_threads(mixed[0], (1, 3))


@pytest.mark.usefixtures("fine")
def test_threads_agree_with_tables_one_by_one(mixed: list[Compiled]) -> None:
    for model in mixed:
        assert model.plan is not None
        tables, loose = packed(model, 4), kept_tables(model.plan, dict(model._base), False)
        nodes = [step.node for step in model.plan.steps]
        for change in [None, *changes(model, 2)]:
            for each in (tables, loose):
                if change is not None:
                    each.set_leaf(*change)
                each.refresh(nodes, 4)
            for node in nodes:
                one, other = as_logs(tables.table(node)), as_logs(loose.table(node))
                shift = other.values.max() - one.values.max()
                assert np.allclose(one.values + shift, other.values, rtol=0.0, atol=1e-9)


def test_a_propagation_that_is_interrupted_goes_on(
    mixed: list[Compiled], monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    model = mixed[0]
    assert model.plan is not None
    nodes = [step.node for step in model.plan.steps]
    whole, broken = packed(model, 2), packed(model, 2)
    together, calls = crew_module.together, iter(range(1000))

    def interrupted(*args: Any) -> None:
        together(*args)
        if next(calls) % 2 == 1:
            raise KeyboardInterrupt

    in_force(PropagationPolicy, turn_cells=1, alone_cells=0)
    for change in [None, *changes(model, 3)]:
        if change is not None:
            whole.set_leaf(*change)
            broken.set_leaf(*change)
        whole.refresh(nodes, 2)
        with monkeypatch.context() as patched:
            patched.setattr(crew_module, "together", interrupted)
            with pytest.raises(KeyboardInterrupt):
                broken.refresh(nodes, 2)
        broken.refresh(nodes, 2)
        assert all(same(whole.table(node), broken.table(node)) for node in nodes)


def test_what_one_thread_is_done_with_sooner_starts_no_others(
    mixed: list[Compiled], monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(PropagationPolicy, alone_cells=1 << 26)
    for model in mixed:
        assert model.plan is not None
        nodes = [step.node for step in model.plan.steps]
        one, several = packed(model, 1), packed(model, 4)
        with monkeypatch.context() as patched:
            patched.setattr(crew_module, "together", None)
            several.refresh(nodes, 4)
        one.refresh(nodes, 1)
        assert all(same(one.table(node), several.table(node)) for node in nodes)


@pytest.mark.usefixtures("fine")
def test_what_is_up_to_date_is_not_counted_as_work(
    mixed: list[Compiled], monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    model = mixed[0]
    assert model.plan is not None
    nodes = [step.node for step in model.plan.steps]
    tables = packed(model, 2)
    tables.refresh(nodes, 2)
    position = len(nodes) - 1
    tables._state.stale[position] = 1
    cells = [item.cells for item in scheduled(model.plan.steps, 2).items]
    assert sum(cells) > 2 * max(cells)
    in_force(PropagationPolicy, alone_cells=max(cells) + 1)
    monkeypatch.setattr(crew_module, "together", None)
    tables.refresh([nodes[position]], 2)
    assert not tables._state.stale[position]


@pytest.mark.usefixtures("fine")
@pytest.mark.parametrize("threads", [1, 3, 16])
def test_areas_that_overlap_are_used_one_after_the_other(mixed: list[Compiled], threads: int) -> None:
    for model in mixed:
        assert model.plan is not None
        schedule = scheduled(model.plan.steps, threads)
        before = waited_for(schedule.items)
        words = arena_words(model.plan.steps, threads)
        ends: list[tuple[int, int, int, int]] = []
        for number, (large, area) in enumerate(zip(schedule.large.values(), schedule.areas, strict=True)):
            mine = [i for i, item in enumerate(schedule.items) if item.kind != "group" and item.number == number]
            assert area + large.words <= words
            for start, stop, first, last in ends:
                if area < stop and area + large.words > start:
                    assert last in before[mine[0]] or mine[-1] in before[first]
            ends.append((area, area + large.words, mine[0], mine[-1]))


def waited_for(items: Sequence[Item]) -> list[set[int]]:
    """For each item all those that are done before it begins."""
    found: dict[int, set[int]] = {}

    def visit(i: int) -> set[int]:
        if i not in found:
            found[i] = set(items[i].after).union(*[visit(j) for j in items[i].after])
        return found[i]

    return [visit(i) for i in range(len(items))]


def seconds(schedule: Schedule, threads: int, changed: bool) -> float:
    """Cells on the longest way through a schedule, where threads take parts in the order in which they are ready.

    With ``changed`` tables are compared with those before and copied, not made in their place.
    """
    items = schedule.items
    after: list[list[int]] = [[] for _ in items]
    for i, item in enumerate(items):
        for before in item.after:
            after[before].append(i)
    waiting, left = [len(item.after) for item in items], [item.parts for item in items]
    ready = deque(i for i, item in enumerate(items) if not item.after for _ in range(item.parts))
    busy: list[tuple[float, int]] = []
    now = 0.0
    while ready or busy:
        while ready and len(busy) < threads:
            item = items[i := ready.popleft()]
            idle = item.kind in ("top", "compare", "copy") and not changed
            heapq.heappush(busy, (now + PART_CELLS + (0 if idle else item.cells / item.parts), i))
        now, i = heapq.heappop(busy)
        left[i] -= 1
        for other in after[i] if not left[i] else ():
            waiting[other] -= 1
            ready.extend([other] * (0 if waiting[other] else items[other].parts))
    assert not any(left)
    return now


@pytest.mark.parametrize("name", ["munin", "munin3"])
@pytest.mark.skipif(not DATA.exists(), reason="public instances are not here")
def test_sixteen_threads_have_work_on_networks_of_a_thousand_variables(name: str) -> None:
    plan = bucketflow.compile(bucketflow.load(DATA / f"{name}.bif.gz"), threads=1).plan
    assert plan is not None
    alone, shared = scheduled(plan.steps, 1), scheduled(plan.steps, 16)
    for changed in (False, True):
        assert seconds(alone, 1, changed) >= 8 * seconds(shared, 16, changed)
