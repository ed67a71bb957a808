"""Value assignment on a device finds the states that the host finds; of equals the first, where both compare all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from bucketflow.pipeline.queries.decode import decode
from bucketflow.tasks.cpu import dense
from bucketflow.tasks.gpu import decoding
from bucketflow.tasks.gpu.arrays import upload
from bucketflow.tasks.gpu.device_policy import DevicePolicy
from bucketflow.tasks.steps.policy import SweepPolicy
from bucketflow.tasks.steps.semiring import MIN_PLUS, Semiring, min_plus
from bucketflow.tasks.steps.step import Step, make_step
from tests.device_stand_in import device
from tests.policies import InForce

SEMIRINGS = (min_plus("int16", 4), min_plus("int32", 2), min_plus("int64", 2), MIN_PLUS)
# Cells and joint states that a block looks at at a time, and joint states of steps that are left to the host.
LIMITS = ((1 << 14, 256, 1 << 22), (64, 4, 1 << 22), (0, 1, 64), (16, 2, 8), (0, 1, 0))


def sweep(seed: int, semiring: Semiring, variables: int) -> tuple[list[Step], dict[int, Any], tuple[int, ...]]:
    """Eliminate groups of variables of random tables; ties, infinities, variables with one state, small tables."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(1, 5, variables))
    tables: dict[int, Any] = {}
    scopes: dict[int, tuple[int, ...]] = {}
    for node in range(2 * variables):
        scope = tuple(int(v) for v in rng.permutation(variables)[: rng.integers(1, 4)])
        cells = rng.integers(0, 6, int(np.prod([sizes[v] for v in scope]))).astype(semiring.dtype)
        cells[1:][rng.random(cells.size - 1) < 0.2] = semiring.zero  # all first states are possible together
        tables[node], scopes[node] = cells, scope
    steps, live, left = [], set(tables), [int(v) for v in rng.permutation(variables)]
    while left:
        group = {left.pop() for _ in range(min(len(left), int(rng.integers(1, 6))))}
        inputs = tuple(i for i in sorted(live) if group.intersection(scopes[i]))
        if not inputs:
            continue
        node = len(tables)
        axes = tuple(dict.fromkeys(v for i in inputs for v in scopes[i] if v not in group))
        step = make_step(node, inputs, tuple(scopes[i] for i in inputs), axes, sizes, semiring)
        tables[node] = dense.run(step.lowered, [tables[i] for i in inputs], compiled=False)
        scopes[node] = axes
        live = {*live.difference(inputs), node}
        steps.append(step)
    return steps, tables, sizes


def cost(steps: list[Step], tables: dict[int, Any], sizes: tuple[int, ...], states: dict[int, int]) -> float:
    """What the tables that no step made add up to."""
    made = {step.node for step in steps}
    read = {i: axes for step in steps for i, axes in zip(step.inputs, step.input_axes, strict=True) if i not in made}
    shaped = {i: tables[i].reshape([sizes[v] for v in axes]) for i, axes in read.items()}
    return sum(float(shaped[i][tuple(states[v] for v in axes)]) for i, axes in read.items())


def check(seed: int, semiring: Semiring, in_force: InForce, most: int) -> None:
    in_force(SweepPolicy, joint_states=1 << 22)
    steps, tables, sizes = sweep(seed, semiring, 9 if seed % 2 else 14)
    on_device = [node for node in tables if node % 3]
    there = tables | dict(zip(on_device, upload([tables[node] for node in on_device]), strict=True))
    assert decoding.decodes(there, semiring)
    read = {v for step in steps for axes in step.input_axes for v in axes}
    for known in ({}, {steps[0].input_axes[0][0]: 0}):  # nothing, or what was fixed before the sweep
        expected, found = dict(known), dict(known)
        decode(steps, tables, sizes, semiring, expected, compiled=False)
        decode(steps, there, sizes, semiring, found, compiled=False)
        assert found.keys() == expected.keys() == read
        if most >= max(decoding.DecodeRecords.of(steps, sizes, known).joint):
            assert found == expected
        if not known:
            assert cost(steps, tables, sizes, found) == cost(steps, tables, sizes, expected)


@contextmanager
def real(_: pytest.MonkeyPatch) -> Iterator[None]:
    yield


def places() -> list[Any]:
    missing = find_spec("cupy") is None
    gpu = [pytest.mark.gpu, pytest.mark.skipif(missing, reason="CuPy is not installed")]
    return [pytest.param(device, id="stand-in"), pytest.param(real, id="gpu", marks=gpu)]


@pytest.mark.parametrize("where", places())
@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("semiring", SEMIRINGS, ids=lambda s: s.dtype)
def test_a_device_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, in_force: InForce, limits: tuple[int, int, int], semiring: Semiring, where: Any
) -> None:
    cells, least, most = limits
    policy = DevicePolicy.using(decode_item_cells=cells, decode_item_states=least, decode_joint_states=most)
    with where(monkeypatch), policy:
        for seed in range(6):
            check(seed, semiring, in_force, most)


def test_what_is_not_decoded_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with device(monkeypatch):
        table = np.zeros(4, "int32")
        (there,) = upload([table])
        assert not decoding.decodes({0: table}, SEMIRINGS[1])
        assert decoding.decodes({0: table, 1: there}, SEMIRINGS[1])
        assert not decoding.decodes({0: table, 1: there}, SEMIRINGS[0])
        assert not decoding.decodes({0: np.zeros(1 << 21, "int32"), 1: there}, SEMIRINGS[1])
