"""Slices on a device: the next one is launched before the results of one are waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bucketflow.tasks.steps.semiring import MIN_PLUS
from bucketflow.tasks.steps.step import Step, make_step
from bucketflow.tasks.sweeps.device_sweep import device_program
from bucketflow.tasks.sweeps.program import Program
from bucketflow.tasks.sweeps.sweep import Plain
from tests.device_stand_in import _Stream, device

DIMS = (12, 12, 3)


def program() -> Program[Any]:
    """A table over three variables, of which the first two are eliminated, in slices by the last."""
    table = np.random.default_rng(5).random(12 * 12 * 3)
    steps = (
        make_step(1, (0,), ((0, 1, 2),), (1, 2), (12, 12, 1), MIN_PLUS),
        make_step(2, (1,), ((1, 2),), (), (12, 12, 1), MIN_PLUS),
    )
    return Program(steps, {0: table}, {0: (0, 1, 2)}, (2,), DIMS, Plain(MIN_PLUS))


def test_a_slice_is_launched_before_the_results_of_the_last_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = [{2: state} for state in range(3)]
    expected = [float(found[2][0]) for found in program().run_slices(slices)]
    launched: list[Step] = []
    with device(monkeypatch, least_cells=1):
        there = device_program(program(), fetched=True)
        found, steps = [], []
        for tables in there.run_slices(slices, on_table=lambda step, _: launched.append(step)):
            assert type(tables[2]) is np.ndarray
            found.append(float(tables[2][0]))
            steps.append(len(launched))
    assert found == expected
    assert steps == [4, 6, 6]


def test_who_leaves_early_waits_for_what_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[int]()
    with device(monkeypatch, least_cells=1):
        monkeypatch.setattr(_Stream, "synchronize", lambda _: waited.append(1))
        slices: Any = device_program(program(), fetched=True).run_slices([{2: state} for state in range(3)])
        next(slices)
        waited.clear()
        slices.close()
    assert waited
