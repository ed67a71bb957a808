"""Counts of models by search, against enumeration and known numbers."""

from __future__ import annotations

import math
import random
from itertools import combinations, product

import numpy as np
import pytest

from bucketflow.tasks.counting.count import Count, Counted, CountNoRoomError, CountPolicy
from bucketflow.tasks.counting.count_state import clauses_of
from bucketflow.tasks.counting.loops import LIMB_BITS, accumulate, add, as_integer, double, multiply, scale
from tests.policies import InForce

Formula = list[list[int]]


def counted(
    n: int, formula: Formula, weights: np.ndarray | None = None, memory: int = 1 << 28, seed: int = 0
) -> Counted:
    rank = np.random.default_rng(seed).permutation(n)
    found = Count([clauses_of(n, formula, rank * spread, weights) for spread in (0.1, 1e3)], memory).run(math.inf)
    assert found is not None
    return found


def models(n: int, formula: Formula) -> list[tuple[int, ...]]:
    """All assignments, by 1 where a variable holds, that violate no clause."""
    return [a for a in product((0, 1), repeat=n) if all(any(a[x >> 1] != x & 1 for x in c) for c in formula)]


def random_formula(seed: int) -> tuple[int, Formula]:
    source = random.Random(seed)
    n = source.randint(1, 9)
    widths = [source.choice((1, 2, 2, 3, 3, 3, 5)) for _ in range(source.randint(0, 3 * n))]
    return n, [[2 * v + source.randint(0, 1) for v in source.sample(range(n), min(n, k))] for k in widths]


def pigeons(birds: int, holes: int) -> tuple[int, Formula]:
    """Every bird is in some hole, none has two birds."""
    some = [[2 * (b * holes + h) for h in range(holes)] for b in range(birds)]
    alone = [
        [2 * (a * holes + h) + 1, 2 * (b * holes + h) + 1]
        for h in range(holes)
        for a, b in combinations(range(birds), 2)
    ]
    return birds * holes, some + alone


def independent_sets(width: int, height: int) -> tuple[int, Formula]:
    """No two neighbours of a grid hold."""
    cells = list(product(range(height), range(width)))
    pairs = [(i * width + j, (i + 1) * width + j) for i, j in cells if i + 1 < height]
    pairs += [(i * width + j, i * width + j + 1) for i, j in cells if j + 1 < width]
    return width * height, [[2 * a + 1, 2 * b + 1] for a, b in pairs]


def by_transfer(width: int, height: int) -> int:
    """The number of independent sets of a grid, row by row."""
    rows = [r for r in range(1 << width) if not r & r >> 1]
    counts = dict.fromkeys(rows, 1)
    for _ in range(height - 1):
        counts = {r: sum(c for s, c in counts.items() if not r & s) for r in rows}
    return sum(counts.values())


def test_counts_and_weights_of_random_formulas() -> None:
    infeasible = 0
    for seed in range(150):
        n, formula = random_formula(seed)
        expected = models(n, formula)
        assert counted(n, formula, seed=seed).value == len(expected)
        weights = np.random.default_rng(seed).random(2 * n) + 0.01
        total = math.fsum(math.prod(weights[2 * v + 1 - state] for v, state in enumerate(a)) for a in expected)
        found = counted(n, formula, weights, seed=seed).log
        infeasible += not expected
        assert found == pytest.approx(math.log(total), abs=1e-12) if expected else found == -math.inf
    assert infeasible


def test_projected_counts_and_weights_of_random_formulas() -> None:
    """Assignments that differ in hidden variables alone are one; a weight is that of what is shown."""
    fewer = 0
    for seed in range(200):
        n, formula = random_formula(seed)
        rng = np.random.default_rng(seed)
        hidden, rank = rng.random(n) < rng.choice([0.0, 0.3, 0.7, 1.0]), rng.permutation(n)
        shown = {tuple(state for v, state in enumerate(a) if not hidden[v]) for a in models(n, formula)}
        fewer += 0 < len(shown) < len(models(n, formula))
        weights = np.where(np.repeat(hidden, 2), 1.0, rng.random(2 * n) + 0.01)
        own = [v for v in range(n) if not hidden[v]]
        total = math.fsum(math.prod([weights[2 * v + 1 - s] for v, s in zip(own, a, strict=True)]) for a in shown)
        for given in (None, weights):
            orders = [clauses_of(n, formula, rank * spread, given, hidden) for spread in (0.1, 1e3)]
            found = Count(orders, 1 << 28).run(math.inf)
            assert found is not None
            if given is None:
                assert found.value == len(shown)
            else:
                assert found.log == (pytest.approx(math.log(total), abs=1e-12) if total else -math.inf)
    assert fewer


@pytest.mark.parametrize(("birds", "holes"), [(6, 5), (5, 5), (5, 7)])
def test_pigeons(birds: int, holes: int) -> None:
    n, formula = pigeons(birds, holes)
    # each bird may be in several holes: maps of holes to birds, or to none, that reach every bird
    onto = sum((-1) ** k * math.comb(birds, k) * (birds + 1 - k) ** holes for k in range(birds + 1))
    assert counted(n, formula).value == onto


def test_long_numbers_and_known_components() -> None:
    n, formula = independent_sets(7, 80)
    found = Count([clauses_of(n, formula, np.arange(n) * 1e3)], 1 << 28).run(math.inf)
    assert found is not None
    assert found.value == by_transfer(7, 80)
    assert found.value > 1 << 256
    assert found.hits
    assert counted(200, []).value == 1 << 200
    assert counted(3, [[]]).value == 0


def test_what_is_known_makes_room(in_force: InForce) -> None:
    n, formula = independent_sets(5, 16)
    in_force(CountPolicy, first_entries=1 << 6)
    small = Count([clauses_of(n, formula, np.arange(n) * 1e3)], 200_000).run(math.inf)
    assert small is not None
    assert small.forgotten
    assert small.value == by_transfer(5, 16)
    grown = Count([clauses_of(n, formula, np.arange(n) * 1e3)], 1 << 28).run(math.inf)
    assert grown is not None
    assert (grown.value, grown.forgotten) == (small.value, 0)
    with pytest.raises(CountNoRoomError):
        Count([clauses_of(n, formula, np.arange(n))], 1000)


def test_counts_end_and_go_on() -> None:
    n, formula = independent_sets(7, 60)
    search = Count([clauses_of(n, formula, np.arange(n) * spread) for spread in (0.1, 1e3)], 1 << 28)
    assert search.run(math.inf, lambda: True) is None
    assert search.run(1) is None
    turns = iter([False] * 3)
    assert search.run(math.inf, lambda: next(turns, True)) is None
    found = search.run(math.inf)
    assert found is not None
    assert found.value == by_transfer(7, 60)


def test_numbers() -> None:
    source = random.Random(0)

    def limbs(number: int) -> tuple[np.ndarray, int]:
        made = np.zeros(64, dtype=np.int64)
        length = -(-number.bit_length() // LIMB_BITS)
        for k in range(length):
            made[k] = number >> LIMB_BITS * k & (1 << LIMB_BITS) - 1
        return made, length

    for _ in range(300):
        a, b = (source.getrandbits(source.choice((0, 1, 31, 62, 200, 400))) for _ in range(2))
        times = source.choice((0, 1, 30, 31, 62, 100))
        (x, k), (y, m) = limbs(a), limbs(b)
        assert as_integer(x[: add(x, k, y, m)]) == a + b
        (x, k), (y, m) = limbs(a), limbs(b)
        assert as_integer(x[: multiply(x, k, y, m, np.zeros(200, dtype=np.int64))]) == a * b
        x, k = limbs(a)
        assert as_integer(x[: double(x, k, times)]) == a << times


def test_floats_have_a_range_of_their_own() -> None:
    number = np.array([0.5, 1.0])
    for _ in range(3000):
        scale(number, 1e-100, 0)
    other = number.copy()
    accumulate(number, other)
    accumulate(number, np.zeros(2))
    assert math.log10(number[0]) + number[1] * math.log10(2) == pytest.approx(-300_000 + math.log10(2), rel=1e-12)
    nothing = np.zeros(2)
    accumulate(nothing, number)
    assert nothing.tolist() == number.tolist()
    scale(number, 0.0, 0)
    assert number.tolist() == [0.0, 0.0]
