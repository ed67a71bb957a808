"""XCSP predicates and functions: random expressions against Python, tables of any size, what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import BucketflowError, Dcop
from bucketflow.pipeline.formats.dcop.expression_arithmetic import ExpressionError
from bucketflow.pipeline.formats.dcop.functional_expressions import parse_functional

XML = """\
<instance>
  <presentation maximize="{maximize}" format="XCSP 2.1_FRODO"/>
  <agents nbAgents="1"><agent name="A"/></agents>
  <domains nbDomains="2">
    <domain name="D" nbValues="4">-2..1</domain><domain name="W" nbValues="300">0..299</domain>
  </domains>
  <variables nbVariables="4">
    <variable name="X" domain="D" agent="A"/><variable name="Y" domain="D" agent="A"/>
    <variable name="V" domain="W" agent="A"/><variable name="U" domain="W" agent="A"/>
  </variables>
  <predicates nbPredicates="1"><predicate name="P">
    <parameters>int A int B int C</parameters>
    <expression><functional>{predicate}</functional></expression>
  </predicate></predicates>
  <functions nbFunctions="1"><function name="F" return="int">
    <parameters> int A int B </parameters>
    <expression><functional>{function}</functional></expression>
  </function></functions>
  <constraints nbConstraints="2">
    <constraint name="p" arity="{arity}" scope="{scope}" reference="P">
      <parameters>{parameters}</parameters></constraint>
    <constraint name="f" arity="2" scope="Y X" reference="{reference}"><parameters>X Y</parameters></constraint>
  </constraints>
</instance>
"""
DEFAULTS = {
    "maximize": "false",
    "predicate": "le(add(A,B),C)",
    "function": "mul(A, sub(B, 3))",
    "arity": "2",
    "scope": "X Y",
    "parameters": "X Y 0",
    "reference": "F",
}


def read(folder: Path, **changes: str) -> Dcop:
    (folder / "p.xml").write_text(XML.format(**{**DEFAULTS, **changes}))
    return bucketflow.load_dcop(folder / "p.xml")


@pytest.mark.parametrize("maximize", ["false", "true"])
def test_predicates_forbid_and_functions_cost(maximize: str, tmp_path: Path) -> None:
    dcop = read(tmp_path, maximize=maximize)
    model = dcop.model
    assert dcop.functions == ("p", "f")
    for x, y in product(range(4), repeat=2):
        cost = model.cost([x, y, 0, 0])
        allowed = (x - 2) + (y - 2) <= 0
        assert (cost is not None) == allowed
        assert cost is None or model.objective(cost) == (x - 2) * (y - 2 - 3)


def test_large_scopes_are_rows(tmp_path: Path) -> None:
    """90,000 assignments, of which few are allowed, or few are not, or a part that is neither."""
    for predicate, default, listed in (("eq(A,B)", None, 300), ("ne(A,B)", 0, 300)):
        table = read(tmp_path, predicate=predicate, scope="V U", parameters="V U 0").model.functions[0]
        assert table.rows is not None
        assert len(table.rows) == listed
        assert table.at((1, 1)) == (0 if default is None else 1 << 62)
        assert table.at((1, 2)) == (1 << 62 if default is None else 0)
    table = read(tmp_path, predicate="lt(A,B)", scope="V U", parameters="V U 0").model.functions[0]
    assert table.rows is None
    assert np.array_equal(table.values == 0, np.triu(np.ones((300, 300), bool), 1))


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


Operation = tuple[Callable[..., Any], str, int]
INTEGERS: dict[str, Operation] = {
    "neg": (lambda x: -x, "i", 1),
    "abs": (abs, "i", 1),
    "add": (lambda x, y: x + y, "i", 2),
    "sub": (lambda x, y: x - y, "i", 2),
    "mul": (lambda x, y: x * y, "i", 2),
    "div": (lambda x, y: truncated(x, y), "i", 2),
    "mod": (lambda x, y: x - y * truncated(x, y), "i", 2),
    "min": (min, "i", 2),
    "max": (max, "i", 2),
}
BOOLEANS: dict[str, Operation] = {
    "eq": (lambda x, y: x == y, "i", 2),
    "ne": (lambda x, y: x != y, "i", 2),
    "ge": (lambda x, y: x >= y, "i", 2),
    "gt": (lambda x, y: x > y, "i", 2),
    "le": (lambda x, y: x <= y, "i", 2),
    "lt": (lambda x, y: x < y, "i", 2),
    "xor": (lambda x, y: x != y, "b", 2),
    "iff": (lambda x, y: x == y, "b", 2),
    "not": (lambda x: not x, "b", 1),
}


def made(rng: random.Random, kind: str, depth: int) -> tuple[str, Callable[[dict[str, int]], Any]]:
    """A random expression, and the same in Python."""
    if depth == 0 or rng.random() < 0.1:
        if kind == "b":
            truth = rng.random() < 0.5
            return str(truth).lower(), lambda values: truth
        name = rng.choice("XYZ")
        number = rng.randint(-3, 3)
        return (name, lambda values: values[name]) if rng.random() < 0.7 else (f"{number:+}", lambda values: number)
    if rng.random() < 0.15:
        (a, test), (b, one), (c, two) = (made(rng, each, depth - 1) for each in ("b", kind, kind))
        return f"if({a},{b},{c})", lambda values: one(values) if test(values) else two(values)
    if kind == "b" and rng.random() < 0.3:
        parts = [made(rng, "b", depth - 1) for _ in range(rng.randint(2, 3))]
        text = ", ".join(part for part, _ in parts)
        if rng.random() < 0.5:
            return f"and({text})", lambda values: all(part(values) for _, part in parts)
        return f"or({text})", lambda values: any(part(values) for _, part in parts)
    name, (compute, takes, count) = rng.choice(list((INTEGERS if kind == "i" else BOOLEANS).items()))
    inside = [made(rng, takes, depth - 1) for _ in range(count)]
    return f"{name}({','.join(text for text, _ in inside)})", lambda values: compute(
        *(part(values) for _, part in inside)
    )


def test_random_expressions_against_python() -> None:
    points = list(product(range(-2, 3), repeat=3))
    columns = {name: np.array([point[k] for point in points]) for k, name in enumerate("XYZ")}
    divided = 0
    for seed in range(400):
        rng = random.Random(seed)
        text, expected = made(rng, rng.choice("ib"), 4)
        term = parse_functional(text, "XYZ")
        low, high = term.bounds(dict.fromkeys("XYZ", (-2, 2)))
        try:
            wanted = [expected(dict(zip("XYZ", point, strict=True))) for point in points]
        except ZeroDivisionError:
            divided += 1
            with pytest.raises(ExpressionError, match="a division by zero"):
                term.values(columns, np.ones(len(points), bool))
            continue
        found = np.broadcast_to(term.values(columns, np.ones(len(points), bool)), len(points))
        assert found.tolist() == wanted, text
        assert low <= min(wanted) <= max(wanted) <= high
    assert 10 < divided < 300


def test_powers() -> None:
    term = parse_functional("pow(X,2)", "X")
    assert term.values({"X": np.array([-3, 2])}, np.ones(2, bool)).tolist() == [9, 4]
    with pytest.raises(ExpressionError, match="an exponent beyond 64"):
        parse_functional("pow(2,X)", "X").bounds({"X": (0, 65)})
    with pytest.raises(ExpressionError, match="a negative exponent"):
        parse_functional("pow(2,X)", "X").values({"X": np.array([-1])}, np.ones(1, bool))


WRONG = [
    ({"predicate": "le(A,B"}, "found the end of an expression that is not complete"),
    ({"predicate": "le(A,B))"}, "found ')' behind an expression"),
    ({"predicate": "le(A B)"}, "found 'B' among the arguments of le"),
    ({"predicate": "A + B"}, "which is not an expression such as add(X,1)"),
    ({"predicate": ""}, "found the end of an expression that is not complete"),
    ({"predicate": "le(A,Q)"}, "found 'Q', which is not a parameter"),
    ({"predicate": "exec(A,B)"}, "found the unknown operator 'exec' (known are neg, abs"),
    ({"predicate": "__import__(os)"}, "found 'os', which is not a parameter"),
    ({"predicate": "le(A,B,C)"}, "found le of 3 arguments"),
    ({"predicate": "le(A,le(B,C))"}, "found le of an argument that is not of type integer"),
    ({"predicate": "add(A,B)"}, "expected a predicate of boolean values, found one of integer values"),
    ({"predicate": "if(A,true,false)"}, "found an if of anything but a boolean value"),
    ({"predicate": "le(A,99999999999999999999)"}, "found a number of too many digits"),
    ({"predicate": "le(pow(A,99),B)"}, "found an exponent beyond 64"),
    (
        {"predicate": "le(" + "mul(A," * 12 + "999999" + ")" * 12 + ",mul(C,C))", "parameters": "X Y 9999999999"},
        "may reach",
    ),
    ({"predicate": "not(" * 200 + "true" + ")" * 200}, "an expression of more than 150 levels"),
    ({"predicate": "le(div(A,B),C)"}, ":20: expected an expression of 'P' that has a value, found a division by zero"),
    ({"parameters": "X Y"}, "expected 3 parameters of 'P', found 2"),
    ({"parameters": "X Y V"}, "expected variables of the scope, and numbers, found 'V'"),
    ({"parameters": "X Y add(X,1)"}, "expected variables of the scope, and numbers, found 'add(X,1)'"),
    ({"reference": "global:cumulative"}, "found the global constraint 'cumulative', which is not read"),
    ({"reference": "Q"}, "expected a relation, predicate or function of the file, found the undefined name 'Q'"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_is_no_expression_is_refused(changes: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(BucketflowError) as refused:
        read(tmp_path, **changes)
    assert message in str(refused.value)


def test_scopes_that_are_too_large_are_refused_before_they_are_evaluated(tmp_path: Path) -> None:
    variables = "".join(f'<variable name="Z{k}" domain="D" agent="A"/>' for k in range(40))
    names = " ".join(f"Z{k}" for k in range(40))
    text = XML.format(**{**DEFAULTS, "arity": "40", "scope": names, "parameters": "Z0 Z1 0"}).replace(
        "</variables>", f"{variables}</variables>"
    )
    (tmp_path / "p.xml").write_text(text)
    with pytest.raises(BucketflowError, match="expected a scope of at most 858,993,459 assignments for 'P'"):
        bucketflow.load_dcop(tmp_path / "p.xml")


def test_values_that_are_no_integers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text(XML.format(**DEFAULTS).replace("-2..1", "a b c d"))
    with pytest.raises(BucketflowError, match="expected integer values of variable 'X', found 'a'"):
        bucketflow.load_dcop(tmp_path / "p.xml")
