"""Sums of products in four semirings against NumPy, and our trees as paths of other libraries."""

from __future__ import annotations

import doctest
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import BudgetError, ContractionOptimizer, ModelError
from bucketflow.pipeline.api import einsum as module

CASES = [
    "ij,jk,kl->il",
    "ij,jk,kl->",
    "ij,jk,lm",
    "ii,ij->j",
    "ijk->ki",
    "i,i,i->i",
    "ij,kl->jl",
    "a,b,ab,c->cb",
    "ij,ij,ij->",
]


def arrays(subscripts: str, seed: int) -> list[np.ndarray[Any, Any]]:
    rng, sizes = np.random.default_rng(seed), {name: 2 + k % 3 for k, name in enumerate("abcijklm")}
    return [rng.normal(size=[sizes[n] for n in part]) for part in subscripts.split("->")[0].split(",")]


def whole(subscripts: str, operands: list[Any]) -> tuple[Any, tuple[int, ...]]:
    """Join all operands into one table by sums, and say which axes are summed."""
    left, _, output = subscripts.partition("->")
    output = output if "->" in subscripts else "".join(sorted(n for n in set(left) - {","} if left.count(n) == 1))
    names = output + "".join(sorted(set(left) - {","} - set(output)))
    total: Any = 0.0
    for part, values in zip(left.split(","), operands, strict=True):
        ones = np.einsum(values, [names.index(n) for n in part], sorted({names.index(n) for n in part}))
        shape = [1] * len(names)
        for k, size in zip(sorted({names.index(n) for n in part}), ones.shape, strict=True):
            shape[k] = size
        total = total + ones.reshape(shape)
    return total, tuple(range(len(output), len(names)))


@pytest.mark.parametrize("subscripts", CASES)
def test_semirings_are_what_they_are_called(subscripts: str) -> None:
    operands = arrays(subscripts, 1)
    np.testing.assert_allclose(bucketflow.einsum(subscripts, *operands), np.einsum(subscripts, *operands), atol=1e-12)
    total, axes = whole(subscripts, operands)
    logs = np.log(np.exp(total).sum(axis=axes))
    np.testing.assert_allclose(bucketflow.einsum(subscripts, *operands, semiring="log"), logs, atol=1e-12)
    for semiring, best in (("min-plus", np.min), ("max-plus", np.max)):
        found = bucketflow.einsum(subscripts, *operands, semiring=semiring)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, best(total, axis=axes), atol=1e-12)


def test_logarithms_neither_overflow_nor_lose_what_is_small() -> None:
    a, b = np.array([[1000.0, -1000.0]]), np.array([[-2000.0], [0.0]])
    assert bucketflow.einsum("ij,jk->", a, b, semiring="log") == pytest.approx(-1000 + math.log(2))
    nothing = np.array([-math.inf, -math.inf])
    assert bucketflow.einsum("i,i->", nothing, nothing, semiring="log") == -math.inf


def test_integers_stay_exact() -> None:
    found = bucketflow.einsum("ij,jk,kl->il", *[np.full((2, 2), 3**12, dtype=np.int64)] * 3)
    assert found.tolist() == [[4 * 3**36] * 2] * 2
    large = 2**61
    assert bucketflow.einsum("i,i->", np.array([large, -large]), [4, 4]) == 0
    with pytest.raises(ModelError, match="do not fit integers of 64 bits"):
        bucketflow.einsum("i->", np.array([large] * 4))
    for semiring, expected in (("real", 10_000), ("min-plus", 200), ("max-plus", 200), ("log", 200)):
        small = np.array([100], np.int8)
        assert bucketflow.einsum("i,i->i", small, small, semiring=semiring)[0] == pytest.approx(expected)


def test_a_chain_of_many_indices_takes_no_table_of_all() -> None:
    letters = [chr(0x4E00 + k) for k in range(60)]
    text = ",".join(a + b for a, b in pairwise(letters)) + "->"
    found = bucketflow.einsum(text, *[np.full((2, 2), 0.5)] * 59, memory=1000)
    assert found == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ij,jk", [(2, 2)], "of 2 operands, and 1 are given"),
        ("i...->", [(2,)], "which is no index"),
        ("ij->", [(2,)], "has 1 axes and the indices"),
        ("i,i->", [(2,), (3,)], "index 'i' has 2 and 3 values"),
        ("ii->", [(2, 3)], "different sizes"),
        ("i->j", [(2,)], "'j', which no operand has"),
        ("ij->ii", [(2, 2)], "an index twice"),
    ],
)
def test_subscripts_that_do_not_fit_are_refused(subscripts: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bucketflow.einsum(subscripts, *map(np.ones, shapes))
    with pytest.raises(ModelError, match="one of real, log, min-plus, max-plus"):
        bucketflow.einsum("i->", [1], semiring="max-times")  # type: ignore[arg-type]


def test_memory_is_kept_to() -> None:
    with pytest.raises(BudgetError, match="a table of 8 kB does not fit 100 B of memory"):
        bucketflow.einsum("i,j->ij", np.ones(10), np.ones(100), memory=100)


def test_trees_are_paths_of_opt_einsum_and_cotengra() -> None:
    opt_einsum = pytest.importorskip("opt_einsum")
    rng = np.random.default_rng(2)
    text, operands = "ab,bc,cd,de,ea,bf,dg->fg", []
    sizes = dict(zip("abcdefg", (3, 2, 4, 3, 2, 3, 2), strict=True))
    operands = [rng.normal(size=[sizes[n] for n in part]) for part in text.split("->")[0].split(",")]
    expected = np.einsum(text, *operands)
    np.testing.assert_allclose(opt_einsum.contract(text, *operands, optimize=ContractionOptimizer(seed=1)), expected)
    np.testing.assert_allclose(bucketflow.einsum(text, *operands, optimizer=opt_einsum.paths.greedy), expected)
    cotengra = pytest.importorskip("cotengra")
    np.testing.assert_allclose(cotengra.einsum(text, *operands, optimize=ContractionOptimizer()), expected)


def test_disconnected_networks_and_few_operands_have_paths() -> None:
    sizes = dict.fromkeys("abcdef", 2)
    for inputs, output in (([{"a"}], "a"), ([{"a"}, {"b"}], ""), ([{"a", "b"}, {"c"}, {"d"}, {"e", "f"}], "ac")):
        path = ContractionOptimizer()(inputs, set(output), sizes)
        count = len(inputs)
        for places in path:
            assert all(0 <= place < count for place in places)
            count -= len(places) - 1
        assert count == 1


def test_examples_of_the_docstrings() -> None:
    assert doctest.testmod(module).failed == 0
