"""Small steps in few launches: the tables of steps one by one, in costs and residues, of any axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bucketflow.tasks.gpu import small_steps
from bucketflow.tasks.gpu.device_policy import DevicePolicy
from bucketflow.tasks.steps.semiring import MIN_PLUS, Semiring, min_plus, mod_sum_product
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps import device_sweep
from bucketflow.tasks.sweeps.device_sweep import device_program
from bucketflow.tasks.sweeps.program import Program
from bucketflow.tasks.sweeps.sweep import Plain

from .test_device_decoding import places, sweep

SEMIRINGS = (min_plus("int16", 4), min_plus("int32", 2), min_plus("int64", 2), MIN_PLUS, mod_sum_product(2147483647))


def random_program(seed: int, semiring: Semiring) -> Program[Any]:
    """Small steps over random tables, and one step of their results that is large."""
    steps, tables, sizes = sweep(seed, semiring, 9 if seed % 2 else 14)
    made = {step.node for step in steps}
    axes = {i: own for step in steps for i, own in zip(step.inputs, step.input_axes, strict=True)}
    leaves = {i: tables[i] for i in axes if i not in made}
    read = {i for step in steps for i in step.inputs}
    roots = tuple(step.node for step in steps if step.node not in read)
    wide, sizes = len(sizes), (*sizes, 40, 40)
    leaves[-1], axes[-1] = np.arange(1600).astype(semiring.dtype), (wide, wide + 1)
    scopes = (*[next(s.axes for s in steps if s.node == root) for root in roots], axes[-1])
    last = make_step(len(tables), (*roots, -1), scopes, (wide,), sizes, semiring)
    leaf_axes = {i: axes[i] for i in leaves}
    return Program((*steps, last), leaves, leaf_axes, (last.node,), sizes, Plain(semiring))


@pytest.mark.parametrize("where", places())
@pytest.mark.parametrize("lane_cells", [1, 64])
@pytest.mark.parametrize("semiring", SEMIRINGS, ids=lambda s: f"{s.name}-{s.dtype}")
def test_they_make_the_tables_of_steps_one_by_one(
    monkeypatch: pytest.MonkeyPatch, semiring: Semiring, lane_cells: int, where: Any
) -> None:
    with where(monkeypatch), DevicePolicy.using(step_least_cells=1600, small_lane_cells=lane_cells):
        device_sweep._RECORDS.forget()
        for seed in range(8):
            program = random_program(seed, semiring)
            nodes = [step.node for step in program.steps]
            large = [step.lowered.cells >= 1600 for step in program.steps]
            assert large[-1]
            assert not all(large)
            expected = program.run(keep=nodes)
            for keep in (nodes, ()):
                found = device_program(program, fetched=True).run(keep=keep)
                assert found.keys() == {*keep, nodes[-1]}
                for node, table in found.items():
                    np.testing.assert_array_equal(table, expected[node])


def test_steps_with_too_many_cells_are_not_among_them() -> None:
    step = make_step(2, (0, 1), ((0,), (1,)), (0,), {0: 64, 1: 64}, SEMIRINGS[0])
    with DevicePolicy.using(small_step_cells=1 << 12):
        assert small_steps.takes(step)
    with DevicePolicy.using(small_step_cells=1 << 11):
        assert not small_steps.takes(step)
