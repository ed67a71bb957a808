"""Forced variables and equal literals: the simpler formula has the same models with the same weights."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.queries.formula import Formula, simplified
from tests.models import brute_count
from tests.pipeline.answering.test_ganak import random_clauses

_VARIABLES = 6


def total(formula: Formula) -> float:
    """The sum over the counted variables' states that the others complete, by looking at all."""
    found = dict[tuple[int, ...], float]()
    for states in itertools.product((0, 1), repeat=len(formula.owners)):
        if all(any(states[literal >> 1] != literal & 1 for literal in clause) for clause in formula.clauses):
            weight = math.prod(w for literal, w in formula.weights.items() if states[literal >> 1] != literal & 1)
            found[tuple(s for s, owner in zip(states, formula.owners, strict=True) if owner not in formula.hidden)] = (
                weight
            )
    return math.exp(formula.log_scale) * math.fsum(found.values())


@st.composite
def formulas(draw: st.DrawFn) -> Formula:
    literal = st.integers(0, 2 * _VARIABLES - 1)
    hidden = draw(st.frozensets(st.integers(0, _VARIABLES - 1), max_size=3))
    made = Formula((2,) * _VARIABLES, hidden=hidden)
    for clause in draw(st.lists(st.lists(literal, min_size=1, max_size=3), max_size=10)):
        made.add(clause)
    for variable in set(range(_VARIABLES)) - hidden:
        made.weights |= draw(st.dictionaries(st.sampled_from([2 * variable, 2 * variable + 1]), st.floats(0.1, 10.0)))
    return made


@settings(max_examples=300, deadline=None)
@given(formulas())
def test_sums_are_the_same(formula: Formula) -> None:
    assert total(simplified(formula)) == pytest.approx(total(formula), rel=1e-12, abs=1e-300)


def test_a_chain_of_equal_variables_becomes_one() -> None:
    chain = Formula((2,) * 52)
    for v in range(49):
        chain.add((2 * v, 2 * v + 3))
        chain.add((2 * v + 1, 2 * v + 2))
    chain.add((0, 2, 101))  # of two more variables, so that a clause is left
    chain.add((100, 103))
    found = simplified(chain)
    assert len(found.owners) == 3
    assert total(found) == 4


@pytest.mark.parametrize("method", ["search", "auto"])
def test_counts_with_gates_that_copy(method: Any) -> None:
    """Each variable of some clauses is written down twice."""
    n, functions = 8, []
    for clause in random_clauses(n, 14):
        table = dict.fromkeys(itertools.product((0, 1), repeat=3), 1.0)
        table[tuple(int(literal < 0) for literal in clause)] = 0.0  # type: ignore[index]
        functions.append(([f"x{abs(literal) - 1 + n * (k % 2)}" for k, literal in enumerate(clause)], table))
    names = [f"x{v}" for v in range(2 * n)]
    tables = [([f"x{v}", f"x{v + n}"], [[1.0, 0.0], [0.0, 1.0]]) for v in range(n)]
    built = [
        (scope, [[[table[a, b, c] for c in (0, 1)] for b in (0, 1)] for a in (0, 1)]) for scope, table in functions
    ]
    model = bucketflow.Model.build("markov", dict.fromkeys(names, 2), [*tables, *built])
    assert bucketflow.solve(model, "count", method=method).value == brute_count(model, {})
