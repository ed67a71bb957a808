"""Models of CPMpy against CPMpy's own evaluation of them, assignment by assignment."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import BudgetError, ModelError

cp = pytest.importorskip("cpmpy", reason="CPMpy is not installed")
argval = pytest.importorskip("cpmpy.expressions.utils").argval


class Some:
    """Variables of a model."""

    def __init__(self) -> None:
        self.x, self.y = cp.intvar(-2, 3, name="x"), cp.intvar(0, 3, name="y")
        self.z = cp.intvar(1, 3, name="z")
        self.p, self.q = cp.boolvar(name="p"), cp.boolvar(name="q")
        self.all = [self.x, self.y, self.z, self.p, self.q]


def allowed(variables: Any, constraints: Any) -> dict[tuple[int, ...], bool]:
    """Return which assignments CPMpy says satisfy constraints."""
    found = {}
    for values in itertools.product(*(range(int(v.lb), int(v.ub) + 1) for v in variables)):
        for variable, value in zip(variables, values, strict=True):
            variable._value = bool(value) if variable.is_bool() else value
        flat = [one for each in constraints for one in (each if isinstance(each, list) else [each])]
        found[values] = all(bool(argval(each)) for each in flat)
    return found


CONSTRAINTS = {
    "linear": lambda v: [2 * v.x - 3 * v.y + v.z * 2 <= 4, v.x + v.y != 2],
    "products": lambda v: [v.x * v.y == v.z, v.x * v.y * v.z <= 5],
    "quotients": lambda v: [v.x // v.z == v.y, v.x % v.z >= 0],
    "a divisor of 0": lambda v: [v.z // v.y <= v.x],
    "powers": lambda v: [v.y**2 == v.x + v.z, abs(v.x) >= v.y],
    "clauses": lambda v: [v.p | ~v.q, ~(v.p & v.q)],
    "told": lambda v: [v.p == (v.x + v.y > 2), (v.x == 1).implies(v.q)],
    "nested": lambda v: [((v.x > 0) & (v.y < 2)) | (v.p.implies(v.z == 2)), ~((v.x > v.y) | v.q) == v.p],
    "counts of comparisons": lambda v: [cp.sum([v.x > 0, v.y > 1, v.z == 2, v.p]) == 2],
    "booleans as numbers": lambda v: [v.p + 2 * v.q + ~v.p * 3 >= v.x],
    "xor": lambda v: [cp.Xor([v.p, v.q, v.x > 1])],
    "extremes": lambda v: [cp.max([v.x, v.y, 1]) == v.z, cp.min([v.x, v.y]) < 1],
    "element": lambda v: [cp.Element([3, v.y, 1, 2], v.x) >= v.z],
    "element of constants": lambda v: [cp.cpm_array([1, 0, 2, 2])[v.y] == v.z - 1],
    "count": lambda v: [cp.Count([v.x, v.y, v.z], 2) >= 1, cp.Count([v.x, v.y], v.z) <= 1],
    "among": lambda v: [cp.Among([v.x, v.y, v.z], [1, 3]) == 2],
    "nvalue": lambda v: [cp.NValue([v.x, v.y, v.z]) == 2],
    "alldifferent": lambda v: [cp.AllDifferent([v.x, v.y, v.z + 1])],
    "alldifferent, but 0": lambda v: [cp.AllDifferentExcept0([v.x, v.y])],
    "alldifferent, but some": lambda v: [cp.AllDifferentExceptN([v.x, v.z], [1, 2])],
    "told alldifferent": lambda v: [v.p == cp.AllDifferent(v.x, v.y, v.z)],
    "allequal": lambda v: [cp.AllEqual(v.x, v.y)],
    "table": lambda v: [cp.Table([v.x, v.y], [[0, 1], [1, 2], [3, 3]])],
    "gcc": lambda v: [cp.GlobalCardinalityCount([v.x, v.y, v.z], [1, 2], [1, v.p])],
    "gcc, closed": lambda v: [cp.GlobalCardinalityCount([v.x, v.y], [1, 2], [1, 1], closed=True)],
    "orders": lambda v: [cp.Increasing(v.x, v.y, v.z), cp.LexLess([v.x, v.y], [v.y, v.z])],
    "circuit": lambda v: [cp.Circuit([v.y, v.x, v.z - 1])],
    "circuit of constants": lambda v: [cp.Circuit([v.y, 2, v.x, 1])],
    "cumulative": lambda v: [cp.Cumulative([v.x, v.y, 1], [2, v.z, 1], demand=[1, v.y, 2], capacity=v.z)],
    "cumulative with ends": lambda v: [cp.Cumulative([v.x, 1], [v.y, 2], [v.z, 3], demand=1, capacity=1)],
    "no overlap": lambda v: [cp.NoOverlap([v.x, v.y, 4], [v.z - 1, v.p, v.x])],
    "no overlap with ends": lambda v: [cp.NoOverlap([v.x, 2], [v.y, v.z], [v.z, 2 + v.z])],
    "precedence": lambda v: [cp.Precedence([v.x, v.y, v.z, v.x], [1, 0, 2])],
    "chains of lists": lambda v: [cp.LexChainLess([[v.x, v.y], [v.y, v.z]]), cp.LexChainLessEq([[v.p, v.q], [1, v.p]])],
    "domain": lambda v: [cp.InDomain(v.x, [-1, 0, 3])],
    "decomposed": lambda v: [cp.IfThenElse(v.p, v.x > 0, v.y > 1), cp.NegativeTable([v.x, v.y], [[1, 1], [2, 3]])],
    "lists": lambda v: [[v.x > 0, v.p], cp.all([v.y > 0, v.q])],
    "constants": lambda v: [True, v.x * 0 + 3 == 3, v.p | True],
    "no": lambda v: [cp.BoolVal(False) if hasattr(cp, "BoolVal") else v.p & ~v.p],
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_what_is_allowed(name: str) -> None:
    v = Some()
    constraints = CONSTRAINTS[name](v)
    problem = cp.Model(*constraints)
    problem += [each == each for each in v.all]  # all variables are named
    model = bucketflow.from_cpmpy(problem)
    by_name = {each.name: each for each in v.all}
    wanted = allowed([by_name[own] for own in model.own_names], constraints)
    lows = [int(by_name[own].lb) for own in model.own_names]
    for values, truth in [*wanted.items()][::7]:
        assert (model.cost([value - low for value, low in zip(values, lows, strict=True)]) is not None) == truth, values
    assert bucketflow.solve(model, "count").value == sum(wanted.values())


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_objectives(sense: str) -> None:
    v = Some()
    goal, constraints = v.x * v.y - 2 * v.z + 3 * cp.max([v.x, v.z]) + v.p + 4, [v.x + v.y >= 1, v.p.implies(v.x > 1)]
    model = bucketflow.from_cpmpy(cp.Model(constraints, **{sense: goal}))
    found = bucketflow.solve(model)
    totals = []
    named = [v.x, v.y, v.z, v.p]
    for values, truth in allowed(named, constraints).items():
        for variable, value in zip(named, values, strict=True):
            variable._value = value
        totals += [int(goal.value())] * truth
    assert found.value == (min if sense == "minimize" else max)(totals)
    assert found.assignment is not None
    assert {*found.assignment} == {"x", "y", "z", "p"}


def test_what_is_not_read_is_named() -> None:
    v = Some()
    with pytest.raises(ModelError, match="a model of CPMpy is expected, found list"):
        bucketflow.from_cpmpy([v.x > 1])
    with pytest.raises(ModelError, match="the model of CPMpy has no variables"):
        bucketflow.from_cpmpy(cp.Model())
    with pytest.raises(ModelError, match="'div' inside another expression must always have a value"):
        bucketflow.from_cpmpy(cp.Model(v.p == (v.z // v.y == 1)))
    with pytest.raises(ModelError, match="an element inside another expression must have an index within its list"):
        bucketflow.from_cpmpy(cp.Model(v.p == (cp.Element([v.y, 2], v.x) == 1)))
    with pytest.raises(ModelError, match="the constraint 'circuit' of CPMpy is not supported"):
        bucketflow.from_cpmpy(cp.Model(v.p == cp.Circuit([v.y, v.x, v.z])))
    wide = [cp.intvar(0, 5000, name=f"w{k}") for k in range(2)]
    with pytest.raises(BudgetError, match=r"'mul' of the model has .* joint values"):
        bucketflow.from_cpmpy(cp.Model(wide[0] * wide[1] == 12))


def test_a_puzzle() -> None:
    letters = cp.intvar(0, 9, shape=8, name="l")
    s, e, n, d, m, o, r, y = letters
    total = (np.array([1000, 100, 10, 1]) * np.array([s, e, n, d])).sum() + (
        np.array([1000, 100, 10, 1]) * np.array([m, o, r, e])
    ).sum()
    money = (np.array([10000, 1000, 100, 10, 1]) * np.array([m, o, n, e, y])).sum()
    model = bucketflow.from_cpmpy(cp.Model(cp.AllDifferent(letters), total == money, s > 0, m > 0))
    assert model.dims[:8] == (10,) * 8
