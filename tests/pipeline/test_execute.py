"""What workers are given: equal shares of slices, programs in one block, and parts that end at small tables."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.api.prepared import prepare
from bucketflow.pipeline.api.questions import Question
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.planner import split_for
from bucketflow.pipeline.resources import Resources
from bucketflow.pipeline.runs.forward import Run, _slices_per_task, run_slices, slice_states
from bucketflow.pipeline.trees.costs import Rates
from bucketflow.pipeline.trees.memory import partition, table_bytes
from bucketflow.tasks.sweeps import program as module
from bucketflow.tasks.sweeps.program import Program
from tests.pipeline.test_budget import grid


def run_of(share: int = 1, **options: Any) -> Run[Any]:
    model = grid(8, 8, 3)
    free = prepare(Question(model, "optimum"), Resources(Options(tree="bucket", **options)))
    assert free.plan is not None
    memory = free.plan.peak_bytes // share
    asked = Options(tree="bucket", fit="slice", memory=memory, **options)
    prepared = prepare(Question(model, "optimum"), Resources(asked))
    return Run(prepared.network, prepared.plan, prepared.problem, prepared.arithmetic, SerialPool())


@pytest.mark.parametrize("width", [1, 3, 4, 7])
@pytest.mark.parametrize("slices", [2, 36, 64, 100, 625])
def test_no_worker_waits_long_for_another(width: int, slices: int) -> None:
    plan: Any = SimpleNamespace(slices=slices, cost=SimpleNamespace(seconds=1e-6))
    size = _slices_per_task(plan, width)
    rounds = -(-slices // (size * width))
    assert rounds * size <= max(1.25 * slices / width, 1)
    assert size == 1 or slices >= 2 * width * size


def sliced_program(run: Run[Any]) -> Program[Any]:
    return run.program(run.plan.steps, run.plan.tree.roots, run.plan.variant_from)


@pytest.mark.parametrize("cells", [0, 1 << 21])
def test_programs_travel(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PACKED_CELLS", cells)
    run = run_of(share=4)
    states = [slice_states(run.plan, i) for i in range(3)]
    program = sliced_program(run)
    expected = run_slices(program, states, 1)
    assert program.shared
    buffers: list[pickle.PickleBuffer] = []
    sent = pickle.dumps(program, 5, buffer_callback=buffers.append)
    assert bool(buffers) == (cells == 0)
    arrived = pickle.loads(sent, buffers=buffers)
    assert not arrived.shared
    np.testing.assert_array_equal(run_slices(arrived, states, 1), expected)


def test_what_all_slices_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(share=4)
    program = sliced_program(run)
    ran: list[int] = []
    original = module.sweep

    def counted(steps: Any, *args: Any, **options: Any) -> Any:
        ran.append(len(steps))
        return original(steps, *args, **options)

    monkeypatch.setattr(module, "sweep", counted)
    first = run_slices(program, [slice_states(run.plan, 0)], 1)
    again = run_slices(program, [slice_states(run.plan, 0)], 1)
    assert first == again
    varying = len(run.plan.steps) - run.plan.variant_from
    assert run.plan.variant_from > 0
    assert ran == [run.plan.variant_from, varying, varying]


def test_parts_end_at_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = run_of().plan
    sizes = [table_bytes(plan.tree.dims, s.axes, plan.itemsize) for s in plan.steps]
    limit = sorted(sizes)[len(sizes) // 4]
    monkeypatch.setattr("bucketflow.pipeline.plans.planner.MAX_SENT_BYTES", limit)
    parts = split_for(plan, 4, 0.0, Rates(), 1 << 40)
    assert len(parts.cuts) > 1
    assert all(size <= limit for s, size in zip(plan.steps, sizes, strict=True) if s.node in parts.cuts)
    order = [s.node for s in plan.steps]
    everywhere = partition(plan.tree, order, lambda node: 1.0, 4.0)
    assert not partition(plan.tree, order, lambda node: 1.0, 4.0, lambda node: False)
    assert partition(plan.tree, order, lambda node: 1.0, 4.0, everywhere.__contains__) <= everywhere
