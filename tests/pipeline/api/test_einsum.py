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


# Signs, digits, blanks of Unicode and letters beyond ASCII, in the order of their code points.
_ODD = sorted("!*7@_|~\u00a0\u00d7\u00f7\u2003\u4e2d")


def random_expression(rng: np.random.Generator) -> tuple[str, list[np.ndarray[Any, Any]]]:
    """Random subscripts with ellipses, diagonals, axes of length 1 and now and then a fault, and their operands."""
    names = [chr(97 + k) for k in range(len(_ODD))][: rng.integers(1, 7)]
    sizes = {name: int(rng.integers(1, 4)) for name in names}
    around = rng.integers(1, 4, rng.integers(0, 3)).tolist()
    parts, operands = [], []
    for _ in range(rng.integers(1, 5)):
        own = [str(name) for name in rng.choice(names, rng.integers(0, 4))]
        shape = [sizes[name] for name in own]
        if rng.random() < 0.3 and len({*own}) == len(own):
            shape = [size if rng.random() < 0.6 else 1 for size in shape]
        if rng.random() < 0.02 and shape:
            shape[0] += 1
        if rng.random() < 0.4:
            place, count = int(rng.integers(0, len(own) + 1)), int(rng.integers(0, len(around) + 1))
            own.insert(place, "...")
            more = [size if rng.random() < 0.7 else 1 for size in around[len(around) - count :]]
            shape[place:place] = more
        parts.append("".join(own))
        operands.append(rng.integers(-4, 5, shape))
    text = ",".join(parts)
    if rng.random() < 0.7:
        known = sorted({*text} - {*",."})
        kept = [name for name in known if rng.random() < 0.5]
        rng.shuffle(kept)
        if "..." in text and rng.random() < 0.95:
            kept.insert(int(rng.integers(0, len(kept) + 1)), "...")
        text += "->" + "".join(kept)
    return text, operands


@pytest.mark.parametrize("seed", range(12))
def test_random_expressions_are_those_of_numpy(seed: int) -> None:
    rng, answered, refused = np.random.default_rng(seed), 0, 0
    for _ in range(60):
        text, operands = random_expression(rng)
        odd = "".join(_ODD[ord(sign) - 97] if sign.isalpha() else sign for sign in text)
        odd = "".join(f" {sign}" if rng.random() < 0.2 and sign not in ".>" else sign for sign in odd)
        try:
            expected = np.einsum(text, *operands)
        except ValueError:
            with pytest.raises(ModelError):
                bucketflow.einsum(odd, *operands)
            refused += 1
            continue
        np.testing.assert_array_equal(bucketflow.einsum(odd, *operands), expected, err_msg=text)
        np.testing.assert_array_equal(bucketflow.einsum(text, *operands), expected, err_msg=text)
        answered += 1
    assert answered > 40


def test_every_symbol_of_opt_einsum_is_an_index() -> None:
    symbols = pytest.importorskip("opt_einsum", reason="opt_einsum is not installed").get_symbol
    for count in (75, 300):
        names = [symbols(k) for k in range(count)]
        text = ",".join(a + b for a, b in pairwise(names)) + "->" + names[0] + names[-1]
        operands = [np.random.default_rng(k).random((2, 2)) for k in range(count - 1)]
        np.testing.assert_allclose(bucketflow.einsum(text, *operands), np.linalg.multi_dot(operands))


def test_axes_of_length_one_are_broadcast_in_every_semiring() -> None:
    one, two = np.array([[1.0], [2.0]]), np.array([[3.0, 5.0], [4.0, 1.0]])
    spread = np.broadcast_to(one, (2, 2))
    for semiring in ("real", "log", "min-plus", "max-plus"):
        found = bucketflow.einsum("ij,jk->ik", one, two, semiring=semiring)  # type: ignore[arg-type]
        expected = bucketflow.einsum("ij,jk->ik", spread, two, semiring=semiring)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected)


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
        ("i..->", [(2,)], "'.', which is not an index"),
        ("i-j->", [(2, 2)], "'-', which is not an index"),
        ("i->j->", [(2,)], "'-', which is not an index"),
        ("......->", [(2,)], "'.', which is not an index"),
        ("...i->i", [(2, 2)], "has no ellipsis"),
        ("ii->i", [(1, 2)], "different sizes"),
        ("...ij->...", [(2,)], "has 1 axes and the indices"),
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
    with pytest.raises(BudgetError, match="a table of 8 kB does not fit in 100 B of memory"):
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
