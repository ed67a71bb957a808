"""Models of very many variables in small parts, and stars: the work of planning is counted, not timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.orders import forests
from bucketflow.tasks.steps.axes import mask_key, mask_of


def pairs(count: int) -> Model:
    names = [f"x{v}" for v in range(2 * count)]
    table = [[1.0, 2.0], [3.0, 4.0]]
    return Model.build(
        "markov", dict.fromkeys(names, 2), [((names[2 * k], names[2 * k + 1]), table) for k in range(count)]
    )


def star(leaves: int) -> Model:
    names = [f"x{v}" for v in range(leaves + 1)]
    table = [[1.0, 0.5], [0.9, 1.0]]
    return Model.build("markov", dict.fromkeys(names, 2), [(("x0", name), table) for name in names[1:]])


@pytest.mark.parametrize(
    "scope",
    [lambda k: [k], lambda k: [k, k + 1], lambda k: [0, k + 1], lambda k: [k, 5000], lambda k: [k, k + 1, k + 5]],
    ids=["single", "chain", "star", "star of the last", "triple"],
)
def test_bit_sets_of_many_variables_have_different_hashes(scope: Callable[[int], Sequence[int]]) -> None:
    """Python hashes integers modulo 2**61 - 1: sets alike but for their place would share 61 hashes."""
    count = 5000
    masks = [mask_of(scope(k)) for k in range(count)]
    assert len({*map(hash, masks)}) < 100
    assert len({hash(mask_key(mask)) for mask in masks}) == count


def test_keys_tell_bit_sets_apart() -> None:
    masks = [mask_of([k]) for k in (0, 59, 60, 61, 62, 122, 123)] + [mask_of([0, 61]), mask_of([61, 62])]
    assert len({*map(mask_key, masks)}) == len(masks)


def test_a_star_is_merged_in_work_that_grows_with_its_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge reads all inputs of its step: of leaves that look alike one refusal has to do."""
    read = 0

    def counting(*given: Any) -> Any:
        price = forests_price(*given)

        def counted(inputs: Sequence[int], output: int) -> Any:
            nonlocal read
            read += len(inputs)
            return price(inputs, output)

        return counted

    forests_price = forests.step_prices
    monkeypatch.setattr(forests, "step_prices", counting)
    counts = []
    for leaves in (300, 600, 1200):
        read = 0
        log10 = bucketflow.solve(star(leaves), "partition").log10
        assert log10 == pytest.approx(
            leaves * math.log10(1.9) + math.log1p((1.5 / 1.9) ** leaves) / math.log(10), rel=1e-12
        )
        counts.append(read)
    assert counts[0] > 300
    assert counts[1] < 3 * counts[0]
    assert counts[2] < 3 * counts[1]


@pytest.mark.parametrize("count", [2000])
def test_many_parts_have_the_answers_of_one(count: int) -> None:
    model = pairs(count)
    assert bucketflow.solve(model, "partition").log10 == pytest.approx(count, rel=1e-12)
    found = bucketflow.marginals(model)
    assert found["x0"] == pytest.approx([0.3, 0.7])
    assert found[f"x{2 * count - 1}"] == pytest.approx([0.4, 0.6])
    best = bucketflow.solve(model)
    assert best.assignment is not None
    assert {*best.assignment.values()} == {1}
    assert bucketflow.sample(model, 3).states.shape == (3, 2 * count)
    isolated = Model.build(
        "markov", {f"x{v}": 3 for v in range(count)}, [((f"x{v}",), [1, 2, 3]) for v in range(count)]
    )
    assert bucketflow.solve(isolated, "partition").log10 == pytest.approx(count * np.log10(6), rel=1e-12)
