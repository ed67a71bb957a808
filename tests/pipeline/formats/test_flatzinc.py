"""FlatZinc against the definitions of its constraints: what is allowed, what is optimised, and what is refused."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.errors import BudgetError, FormatError
from bucketflow.pipeline.formats.flatzinc.flatzinc_constraints import KINDS
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.text.tokens import Tokens
from bucketflow.pipeline.models.model import Model

Read = Callable[[str, str], Model]
NAMES = ("a", "b", "c", "d", "p", "q", "r")
VALUES = ((-2, -1, 0, 1, 3), (-1, 0, 1, 2), (0, 1, 2, 3), (1, 2, 3), (0, 1), (0, 1), (0, 1))
HEAD = """% a comment
predicate fzn_unused(array [int] of var int: x, int: k);
array [1..3] of int: W = [2,-1,3];
int: FIVE = 5;
set of int: ODD = {-1,1,3};
var {-2,-1,0,1,3}: a :: output_var;
var -1..2: b;
var 0..3: c :: is_defined_var :: output_array([1..2, 1..3]);
var 1..3: d;
var bool: p;
var bool: q;
var bool: r;
array [1..4] of var int: X = [a,b,c,d];
array [1..3] of var bool: B = [p,q,r];
"""


def towards_zero(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if x * y > 0 else -1)


def power(x: int, y: int) -> Any:
    return x**y if y >= 0 else None if x == 0 else int(1 / x**-y)


def peak(tasks: list[tuple[int, int, int]]) -> int:
    return max(
        sum(height for start, length, height in tasks if start <= time < start + length) for time in range(-3, 8)
    )


def load_of(v: Values, sizes: tuple[int, ...], number: int) -> int:
    return sum(size for size, at in zip(sizes, (v.a, v.b, v.c, v.d), strict=True) if at == number)


def behind(v: Values, first: int, second: int) -> bool:
    x = [v.a, v.b, v.c, v.d]
    return second not in x or first in x[: x.index(second)]


COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "le": lambda x, y: x <= y,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
}
HOLDS: dict[str, Callable[..., Any]] = {
    **{f"int_{name}(a,b)": lambda v, t=t: t(v.a, v.b) for name, t in COMPARED.items()},
    **{f"int_{name}_reif(a,1,p)": lambda v, t=t: t(v.a, 1) == v.p for name, t in COMPARED.items()},
    **{f"int_{name}_imp(a,b,p)": lambda v, t=t: t(v.a, v.b) or not v.p for name, t in COMPARED.items()},
    **{f"bool_{name}(p,q)": lambda v, t=t: t(v.p, v.q) for name, t in COMPARED.items()},
    **{f"bool_{name}_reif(p,q,r)": lambda v, t=t: t(v.p, v.q) == v.r for name, t in COMPARED.items()},
    **{f"int_lin_{n}(W,[a,b,c],FIVE)": lambda v, t=t: t(2 * v.a - v.b + 3 * v.c, 5) for n, t in COMPARED.items()},
    **{
        f"int_lin_{n}_reif(W,[a,b,c],4,q)": lambda v, t=t: t(2 * v.a - v.b + 3 * v.c, 4) == v.q
        for n, t in COMPARED.items()
    },
    **{
        f"int_lin_{n}_imp([1,1,2],[a,a,2],3,q)": lambda v, t=t: t(2 * v.a + 4, 3) or not v.q
        for n, t in COMPARED.items()
    },
    "int_lin_le_reif([1,1],[a,b],9,p)": lambda v: v.p,
    "int_lin_le_reif([1,1],[a,b],1,false)": lambda v: v.a + v.b > 1,
    "int_lin_le_reif([1,2],[a,p],1,p)": lambda v: (v.a + 2 * v.p <= 1) == v.p,
    "int_lin_eq_imp([1,1],[a,b],1,true)": lambda v: v.a + v.b == 1,
    "bool_lin_eq([1,2,3],B,c)": lambda v: v.p + 2 * v.q + 3 * v.r == v.c,
    "bool_lin_le([1,2,3],[p,true,r],4)": lambda v: v.p + 2 + 3 * v.r <= 4,
    "int_plus(a,b,c)": lambda v: v.a + v.b == v.c,
    "int_minus(a,b,2)": lambda v: v.a - v.b == 2,
    "int_times(a,b,a)": lambda v: v.a * v.b == v.a,
    "int_times(a,b,c)": lambda v: v.a * v.b == v.c,
    "int_div(a,b,c)": lambda v: v.b and towards_zero(v.a, v.b) == v.c,
    "int_mod(a,b,c)": lambda v: v.b and v.a - v.b * towards_zero(v.a, v.b) == v.c,
    "int_pow(a,b,c)": lambda v: power(v.a, v.b) == v.c,
    "int_min(a,b,c)": lambda v: min(v.a, v.b) == v.c,
    "int_max(a,b,c)": lambda v: max(v.a, v.b) == v.c,
    "int_abs(a,c)": lambda v: abs(v.a) == v.c,
    "bool2int(p,c)": lambda v: v.p == v.c,
    "bool_not(p,q)": lambda v: v.p != v.q,
    "bool_xor(p,q,r)": lambda v: (v.p != v.q) == v.r,
    "bool_and(p,q,r)": lambda v: (v.p and v.q) == v.r,
    "bool_or(p,q,r)": lambda v: (v.p or v.q) == v.r,
    "bool_clause([p,q],[r])": lambda v: v.p or v.q or not v.r,
    "bool_clause([p,false],[p,q])": lambda v: True,
    "bool_clause([],[true])": lambda v: False,
    "bool_clause_reif([p],[q],r)": lambda v: (v.p or not v.q) == v.r,
    "array_bool_and(B,true)": lambda v: v.p and v.q and v.r,
    "array_bool_and([p,q],r)": lambda v: (v.p and v.q) == v.r,
    "array_bool_and_imp([p,q],r)": lambda v: (v.p and v.q) or not v.r,
    "array_bool_or([p,q],r)": lambda v: (v.p or v.q) == v.r,
    "array_bool_or(B,false)": lambda v: not (v.p or v.q or v.r),
    "array_bool_or_imp([p,q],r)": lambda v: v.p or v.q or not v.r,
    "array_bool_xor([p,q,true,r])": lambda v: (v.p + v.q + v.r) % 2 == 0,
    "array_int_element(c,W,a)": lambda v: 1 <= v.c <= 3 and (2, -1, 3)[v.c - 1] == v.a,
    "array_int_element(c,[1,2,1],c)": lambda v: 1 <= v.c <= 3 and (1, 2, 1)[v.c - 1] == v.c,
    "array_var_int_element(c,[a,2,X[4]],b)": lambda v: 1 <= v.c <= 3 and (v.a, 2, v.d)[v.c - 1] == v.b,
    "array_bool_element(d,[true,false,true],p)": lambda v: (1, 0, 1)[v.d - 1] == v.p,
    "array_var_bool_element(2,B,r)": lambda v: v.q == v.r,
    "array_int_maximum(c,[a,b,1])": lambda v: max(v.a, v.b, 1) == v.c,
    "fzn_minimum_int(0,[a,b])": lambda v: min(v.a, v.b) == 0,
    "set_in(a,ODD)": lambda v: v.a in (-1, 1, 3),
    "set_in(a,0..1)": lambda v: v.a in (0, 1),
    "set_in_reif(a,{0,3},p)": lambda v: (v.a in (0, 3)) == v.p,
    "set_in_imp(a,{0,3},p)": lambda v: v.a in (0, 3) or not v.p,
    "fzn_all_different_int(X)": lambda v: len({v.a, v.b, v.c, v.d}) == 4,
    "gecode_all_different_int([a,1,b])": lambda v: len({v.a, v.b, 1}) == 3,
    "all_different_int([1,a,1])": lambda v: False,
    "fzn_alldifferent_except_0([a,0,b,0])": lambda v: v.a != v.b or v.a == 0,
    "fzn_alldifferent_except(X,{0,1})": lambda v: all(
        x != y or x in (0, 1) for x, y in itertools.combinations((v.a, v.b, v.c, v.d), 2)
    ),
    "fzn_all_equal_int([a,b,c])": lambda v: v.a == v.b == v.c,
    "fzn_table_int([a,b],[0,1,3,2,3,2,9,9])": lambda v: (v.a, v.b) in ((0, 1), (3, 2)),
    "fzn_table_int([a,2,a],[0,2,0,1,2,0,3,1,3])": lambda v: v.a == 0,
    "table_bool([p,q],[true,false,false,true])": lambda v: v.p != v.q,
    "fzn_count_eq(X,1,2)": lambda v: (v.a, v.b, v.c, v.d).count(1) == 2,
    "fzn_count_neq([a,b,1],1,c)": lambda v: (v.a, v.b, 1).count(1) != v.c,
    "fzn_count_leq(X,1,c)": lambda v: v.c <= (v.a, v.b, v.c, v.d).count(1),
    "fzn_count_geq(X,1,d)": lambda v: v.d >= (v.a, v.b, v.c, v.d).count(1),
    "fzn_count_lt(X,1,c)": lambda v: v.c < (v.a, v.b, v.c, v.d).count(1),
    "fzn_count_gt(X,1,2)": lambda v: (v.a, v.b, v.c, v.d).count(1) < 2,
    "fzn_at_least_int(2,X,1)": lambda v: (v.a, v.b, v.c, v.d).count(1) >= 2,
    "fzn_at_most_int(1,X,1)": lambda v: (v.a, v.b, v.c, v.d).count(1) <= 1,
    "fzn_exactly_int(1,X,1)": lambda v: (v.a, v.b, v.c, v.d).count(1) == 1,
    "fzn_among(c,[a,b],ODD)": lambda v: (v.a in (-1, 1, 3)) + (v.b in (-1, 1, 3)) == v.c,
    "fzn_global_cardinality([a,b],[1,2],[c,1])": lambda v: (v.a == 1) + (v.b == 1) == v.c and v.b == 2,
    "fzn_global_cardinality_closed([a,b],[0,1],[1,d])": lambda v: {v.a, v.b} == {0, 1} and v.d == 1,
    "fzn_global_cardinality_low_up(X,[1,3],[1,0],[2,1])": lambda v: (
        1 <= (v.a, v.b, v.c, v.d).count(1) <= 2 and (v.a, v.b, v.c, v.d).count(3) <= 1
    ),
    "fzn_nvalue(d,[a,b,c,1])": lambda v: len({v.a, v.b, v.c, 1}) == v.d,
    "fzn_increasing_int([a,b,c])": lambda v: v.a <= v.b <= v.c,
    "fzn_strictly_decreasing_int([c,1,a])": lambda v: v.c > 1 > v.a,
    "fzn_inverse([c,d],[b,2])": lambda v: (v.c, v.d, v.b) == (1, 2, 1),
    "fzn_regular([c,d],2,3,[2,1,0,2,2,1],1,{2})": lambda v: (v.c, v.d) in ((1, 1), (1, 2), (2, 1)),
    "fzn_lex_less_int([a,1,c],[b,d,2])": lambda v: [v.a, 1, v.c] < [v.b, v.d, 2],
    "fzn_lex_lesseq_int([a,b],[b,a])": lambda v: [v.a, v.b] <= [v.b, v.a],
    "fzn_lex_less_int([1,a],[1,a,b])": lambda v: True,
    "fzn_cumulative([a,b,1],[2,c,1],[1,d,p],3)": lambda v: peak([(v.a, 2, 1), (v.b, v.c, v.d), (1, 1, v.p)]) <= 3,
    "fzn_cumulative([a,b],[b,1],[1,2],d)": lambda v: v.b >= 0 and peak([(v.a, v.b, 1), (v.b, 1, 2)]) <= v.d,
    "fzn_disjunctive([a,b],[c,d])": lambda v: not v.c or v.a + v.c <= v.b or v.b + v.d <= v.a,
    "fzn_disjunctive_strict([a,b],[c,d])": lambda v: v.a + v.c <= v.b or v.b + v.d <= v.a,
    "fzn_diffn([a,b],[c,d],[1,p],[2,1])": lambda v: (
        v.a + 1 <= v.b or v.b + v.p <= v.a or v.c + 2 <= v.d or v.d + 1 <= v.c
    ),
    "fzn_diffn_nonstrict([a,b],[c,d],[1,p],[2,1])": lambda v: (
        not v.p or v.a + 1 <= v.b or v.b + v.p <= v.a or v.c + 2 <= v.d or v.d + 1 <= v.c
    ),
    "fzn_circuit([c,d,a])": lambda v: [v.c, v.d, v.a] in ([2, 3, 1], [3, 1, 2]),
    "fzn_circuit([p])": lambda v: v.p == 1,
    "fzn_subcircuit([c,d,a])": lambda v: (
        [v.c, v.d, v.a] in ([2, 3, 1], [3, 1, 2], [1, 2, 3], [2, 1, 3], [3, 2, 1], [1, 3, 2])
    ),
    "fzn_bin_packing(5,X,[3,2,4,1])": lambda v: all(load_of(v, (3, 2, 4, 1), number) <= 5 for number in range(-2, 4)),
    "fzn_bin_packing_capa([4,5],[c,d,2],[3,2,1])": lambda v: (
        1 <= v.c <= 2 and v.d <= 2 and 3 * (v.c == 2) + 2 * (v.d == 2) + 1 <= 5 and 3 * (v.c == 1) + 2 * (v.d == 1) <= 4
    ),
    "fzn_bin_packing_load([b,a],[c,d],[2,1])": lambda v: (
        1 <= v.c <= 2 and v.d <= 2 and all(2 * (v.c == k) + (v.d == k) == wanted for k, wanted in ((1, v.b), (2, v.a)))
    ),
    "fzn_value_precede_int(1,3,X)": lambda v: behind(v, 1, 3),
    "fzn_value_precede_int(1,1,X)": lambda v: True,
    "fzn_value_precede_chain_int([2,1,3],X)": lambda v: behind(v, 2, 1) and behind(v, 1, 3),
    "fzn_seq_precede_chain_int(X)": lambda v: behind(v, 1, 2) and behind(v, 2, 3),
    "fzn_seq_precede_chain_int([d])": lambda v: v.d == 1,
    "fzn_arg_max_int([a,b,c],d)": lambda v: (v.a, v.b, v.c).index(max(v.a, v.b, v.c)) + 1 == v.d,
    "fzn_minimum_arg_int([a,1,b],c)": lambda v: (v.a, 1, v.b).index(min(v.a, 1, v.b)) + 1 == v.c,
    "fzn_knapsack([2,1,3],[1,4,2],[a,c,p],d,b)": lambda v: (
        v.a >= 0 and 2 * v.a + v.c + 3 * v.p == v.d and v.a + 4 * v.c + 2 * v.p == v.b
    ),
    "fzn_sliding_sum(0,4,2,X)": lambda v: all(0 <= x + y <= 4 for x, y in ((v.a, v.b), (v.b, v.c), (v.c, v.d))),
    "fzn_member_int([a,b,2],c)": lambda v: v.c in (v.a, v.b, 2),
    "fzn_symmetric_all_different([c,d,a])": lambda v: all(
        1 <= to <= 3 and (v.c, v.d, v.a)[to - 1] == k for k, to in enumerate((v.c, v.d, v.a), 1)
    ),
}


class Values:
    """An assignment, by attributes."""

    a: int
    b: int
    c: int
    d: int
    p: int
    q: int
    r: int

    def __init__(self, values: tuple[int, ...]) -> None:
        vars(self).update(zip(NAMES, values, strict=True))


@cache
def assignments() -> list[tuple[tuple[int, ...], Values]]:
    """All states of the variables of HEAD, with the values of the states."""
    every = itertools.product(*(range(len(own)) for own in VALUES))
    return [(states, Values(tuple(own[s] for own, s in zip(VALUES, states, strict=True)))) for states in every]


@pytest.mark.parametrize("constraint", HOLDS)
@pytest.mark.parametrize("cells", [1, 1 << 10])
def test_constraints_allow_what_they_say(read: Read, constraint: str, cells: int) -> None:
    with FormatPolicy.using(global_table_cells=cells):
        model = read(f"{HEAD}constraint {constraint} :: domain;\nsolve satisfy;\n", "a.fzn")
    assert model.own_names == NAMES
    tried = assignments()[:: 29 if cells == 1 else 7]
    wanted = {states: bool(HOLDS[constraint](values)) for states, values in tried}
    assert {states: model.cost(states) is not None for states in wanted} == wanted
    if cells == 1:
        assert bucketflow.solve(model, "count").value == sum(
            bool(HOLDS[constraint](values)) for _, values in assignments()
        )


def test_every_kind_is_tested() -> None:
    words = [re.sub("^(fzn|gecode)_", "", text.partition("(")[0]) for text in HOLDS]
    tested = {KINDS[word if word in KINDS else re.sub("_(int|bool)$", "", word)] for word in words}
    same = {
        "count",
        "strictly_increasing",
        "decreasing",
        "maximum",
        "array_int_minimum",
        "global_cardinality_low_up_closed",
        "maximum_arg",
        "arg_min",
    }
    assert {name for name, kind in KINDS.items() if kind not in tested and "_lin_" not in name} - same == {
        f"bool_{name}_imp" for name in COMPARED
    } | {"int_negate"}


GOAL = "var {}: o;\nconstraint int_lin_eq([{},2,-3],[o,a,c],4) :: defines_var(o);\n"


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize(("domain", "own"), [("int", 1), ("int", -1), ("-3..6", 1), ("-9..99", -1), ("{1,3}", 1)])
def test_a_variable_that_a_sum_defines_is_the_value(read: Read, goal: str, domain: str, own: int) -> None:
    text = (
        HEAD + GOAL.format(domain, own) + "constraint int_lt(b,a);\nsolve :: int_search(X,first_fail) " + goal + " o;\n"
    )
    model = read(text, "a.fzn")
    totals = [own * (4 - 2 * v.a + 3 * v.c) for _, v in assignments() if v.b < v.a]
    inside = {"int": totals, "-3..6": range(-3, 7), "-9..99": range(-9, 100), "{1,3}": (1, 3)}[domain]
    totals = [t for t in totals if t in inside]
    found = bucketflow.solve(model)
    assert found.value == (min if goal == "minimize" else max)(totals)
    assert bucketflow.solve(model, "count").value == len(totals)
    told = "'o' is not a variable of the model: its value is the value of the answer"
    assert found.notes == ((told,) if domain != "{1,3}" else ())
    assert found.assignment is not None
    assert found.assignment["p"] in ("false", "true")


def test_objectives_that_are_no_sums(read: Read) -> None:

    def best(product: str, goal: str) -> Any:
        return bucketflow.solve(read(f"{HEAD}constraint int_times(a,b,{product});\nsolve {goal};\n", "a.fzn")).value

    assert best("c", "maximize X[3]") == 3
    assert best("-3", "minimize b") == -1
    assert best("0", "minimize 7") == 7
    equal = HEAD + "var int: o = d;\nvar int: n = 4;\nvar bool: s = true;\nsolve maximize o;\n"
    assert bucketflow.solve(read(equal, "a.fzn"), "count").value == len(assignments())
    assert bucketflow.solve(read(equal, "a.fzn")).value == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "constraint fzn_geost(X,X,X,4);\n",
            "constraints that are read, found 'fzn_geost', which is not read",
        ),
        ("constraint int_eq(a);\n", "2 arguments of 'int_eq', found 1"),
        ("constraint int_eq(a,X);\n", "an integer or a variable in 'int_eq'"),
        ("constraint fzn_cumulative(X,X,[1,2],4);\n", "lists of one length, found lengths 4, 4, 2"),
        ("constraint int_lin_eq([1],[a,b],2);\n", "2 coefficients, found 1"),
        ("constraint fzn_table_int([a,b],[1,2,3]);\n", "rows of 2 values, found 3 of them"),
        ("constraint int_eq(a,e);\n", "an expression, or a name that is declared before, found 'e'"),
        ("constraint int_eq(a,X[5]);\n", "an index from 1 to 4, found '5'"),
        ("constraint int_eq(a,d[1]);\n", "an array before '[', found 'd'"),
        ("constraint int_eq(a,2)\n", "';', found 'solve'"),
        ("constraint int_eq(a,2.5);\n", "an integer or a variable in 'int_eq', found 2.5"),
        ("var float: x;\n", "variables that are integers or booleans, found a variable of float"),
        ("var set of 1..3: x;\n", "variables that are integers or booleans, found a variable of set"),
        ("var 1..3: a;\n", "a name of its own, found 'a'"),
        ("var 3..1: x;\n", "a type: bool, int, float, a range such as 1..3"),
        ("array [1..2] of var int: Y;\n", "'=' and what 'Y' is"),
        ("var int: x;\n", "variables with bounds, such as var 1..9, found 'x', which has none"),
        ("var 0.0..1.0: x;\n", "variables that are integers or booleans, found a variable of float"),
        ("var -1e3..2: x;\n", "variables that are integers or booleans, found a variable of float"),
        (
            "constraint float_lin_le([1.0],[a],0.5);\n",
            "integers and booleans, found 'float_lin_le', which is over floats",
        ),
        ("constraint int2float(a,b);\n", "integers and booleans, found 'int2float', which is over floats"),
        ("constraint array_set_element(a,[1..2],1..2);\n", "'array_set_element', which is over sets"),
        ("array [1..2] of int: V = [1,2,3];\n", "2 entries of the array 'V', found 3"),
        ("array [int] of int: V = [1];\n", "the size of an array, such as 1..3, found"),
        ("constraint int_eq(a,1e3);\n", "an integer or a variable in 'int_eq', found 1e3"),
        ("constraint int_eq(a,1000000000000000000001);\n", "an integer from -1000000000000000000 to 10000"),
        ("var 3000000000..3000000001: x;\n", "variables of values up to 2147483647, found 'x', from 3000000000 to"),
        ("var int: x;\nconstraint int_le(x,3);\n", "'x', which has none, and no constraint implies any"),
        ("solve satisfy;\n", "the end of the file behind 'solve'"),
        ("solve minimise a;\n", "satisfy, minimize or maximize, found 'minimise'"),
    ],
)
def test_what_is_not_read_is_named(read: Read, text: str, told: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(f"{HEAD}{text}solve satisfy;\n", "a.fzn")
    assert told in str(caught.value)
    assert re.search(r"a\.fzn:1[56]: ", str(caught.value))


def test_what_explodes_is_refused_with_the_number(read: Read) -> None:
    wide = "var 0..4000: x;\nvar 0..4000: y;\nvar 0..4000: z;\nconstraint int_times(x,y,z);\nsolve satisfy;\n"
    with pytest.raises(BudgetError, match=r"the constraint 'int_times' of line 4 has 1.6e.07 joint values"):
        read(wide, "a.fzn")
    with pytest.raises(FormatError, match="expected a statement 'solve', found the end of the file"):
        read("var 0..3: x;\n", "a.fzn")


def test_brackets_nested_too_deeply_are_refused(read: Read) -> None:
    for text in (f"array [1..1] of int: W = {'[' * 3000}1{']' * 3000};\n", f"{'set of ' * 3000}1..2: x = 1..2;\n"):
        with pytest.raises(FormatError, match="expected brackets nested less deeply"):
            read(f"{text}solve satisfy;\n", "a.fzn")


def test_blanks_comments_and_annotations_may_stand_anywhere(read: Read) -> None:
    text = (
        "predicate p(array[int]of var int:x);array[1..2]of int:W=[0x2,-0o1];%c;\n"
        'var{3,1}:a::output_var::m("%;::",[1..2,f(g)]);var -2..-0x1:b;var bool:p;% end\n'
        "array[1..2]of var int:X::output_array([1..2])=[a,b];"
        "constraint int_lin_le(W,X,5)::domain::m({1,2});constraint int_ne(X[2],-1)::x;"
        "solve::int_search(X,first_fail,indomain_min,complete)::y maximize a;"
    )
    assert bucketflow.solve(read(text, "a.fzn"), "count").value == 2
    assert bucketflow.solve(read(text, "a.fzn")).value == 1


def best(read: Read, text: str) -> Any:
    return bucketflow.solve(read(text, "a.fzn")).value


def test_wide_domains_stay_bounds_until_a_table_is_needed(read: Read) -> None:
    head = "var 0..1000000: x;\nvar 0..1000000: y;\nvar int: t;\n"
    sums = head + "constraint int_lin_eq([1,1,-1],[x,y,t],0);\nconstraint int_lin_eq([4,-7],[x,y],5);\n"
    assert best(read, sums + "constraint int_le(t,60000);\nsolve maximize t;\n") == max(
        x + y for x in range(60000) for y in [(4 * x - 5) // 7] if 7 * y == 4 * x - 5 and y >= 0 and x + y <= 60000
    )
    product_ = head + "constraint int_times(x,y,t);\nconstraint int_lin_le([1,1],[x,t],900);\n"
    product_ += "constraint int_le(700,t);\nconstraint int_le(3,x);\nsolve maximize y;\n"
    assert best(read, product_) == 299
    signed = "var -2147483646..2147483646: x;\nvar -2147483646..2147483646: y;\nvar 1..40: k;\n"
    signed += "constraint int_abs(x,y);\nconstraint array_int_element(k,[{}],y);\n"
    signed = signed.format(",".join(str(k * k * 1000) for k in range(40)))
    signed += "constraint int_lin_le([-1],[y],-5000);\n"
    assert best(read, signed + "solve minimize x;\n") == -1521000
    assert bucketflow.solve(read(signed + "solve satisfy;\n", "a.fzn"), "count").value == 2 * 37
    apart = "var 0..99999: x;\nvar 0..99999: y;\nconstraint fzn_all_different_int([x,y]);\n"
    model = read(apart + "solve satisfy;\n", "a.fzn")
    assert model.functions[0].values.size == 100000
    assert model.cost((7, 7)) is None
    assert model.cost((99999, 7)) == 0


def test_notes_say_that_wide_domains_lost_values(read: Read) -> None:
    text = "var 0..99999: x;\nvar int: y;\nconstraint int_le(x,6);\nconstraint int_plus(x,1,y);\nsolve satisfy;\n"
    model = read(text, "a.fzn")
    told = "'x' keeps 7 values that the constraints do not exclude, and 1 more wide variables keep fewer than declared"
    assert model.notes == (told,)
    assert model.states[1] == tuple(map(str, range(1, 8)))
    text = "var 0..99999: x;\nconstraint int_le(x,-6);\nconstraint int_times(x,x,7);\nsolve satisfy;\n"
    assert bucketflow.solve(read(text, "a.fzn")).status == "infeasible"


def test_a_bound_follows_from_the_sum_that_defines_a_variable(read: Read) -> None:
    text = "var 0..1: a;\nvar 0..1: b;\nvar int: s :: is_defined_var;\nvar 0..30: c :: is_defined_var;\n"
    text += "constraint int_ne(a,b);\nconstraint int_lin_eq([-1,2,3],[s,a,b],0) :: defines_var(s);\n"
    assert best(read, text + "constraint int_lin_eq([-1,7],[c,s],0) :: defines_var(c);\nsolve minimize c;\n") == 14


def test_lines_are_not_counted_anew_for_every_constraint(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    def count_lines(*_: Any) -> int:
        raise AssertionError("the lines before a token are counted although nothing is wrong")

    monkeypatch.setattr(Tokens, "line_at", count_lines)
    assert read(f"{HEAD}constraint int_eq(a,b);\nsolve satisfy;\n", "a.fzn").functions
