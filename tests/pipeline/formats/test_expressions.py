"""Intention expressions: what they compute, and that they can do nothing else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bucketflow.pipeline.formats.dcop.expression_arithmetic import ExpressionError
from bucketflow.pipeline.formats.dcop.python_expressions import parse


@pytest.mark.parametrize(
    ("text", "values", "cost"),
    [
        ("-0.1 if v1 == 'R' else 0.1", {"v1": "R"}, Decimal("-0.1")),
        ("0.7 * l1", {"l1": 3}, Decimal("2.1")),
        ("10 * (abs(m - 3) + abs(l - 3))", {"m": 1, "l": 4}, 30),
        ("0 if m == round(0.7 * a + 0.5 * b) else 1000", {"m": 2, "a": 1, "b": 2}, 0),
        ("{'R': 1, 'G': 2}[v]", {"v": "G"}, 2),
        ("(5, 6, 7)[v - 1] + (1, 4)[v == 3]", {"v": 3}, 11),
        ("a < b <= 3 and not c", {"a": 1, "b": 3, "c": False}, 1),
        ("a in ('x', 'y') or a not in [1]", {"a": "z"}, 1),
        ("sum([a, 2]) + min(a, 1) + max((a, 9)) + len((a, a)) + pow(a, 2) + a ** 2", {"a": 2}, 24),
        ("7 // 2 + 7 % 4 - 6 / 4 + (5 ^ 1) + (6 & 3) + (4 | 1)", {}, Decimal("15.5")),
        ("float('inf') if a == 1 else int('3')", {"a": 1}, Decimal("inf")),
        ("1 / 3", {}, Decimal("0.333333333")),
        ("if a == 2:\n    b = 4\nelif a == 3:\n    b = 1\nelse:\n    b = 2\nb += 1\nreturn a + b", {"a": 2}, 7),
        ("    if a:\n        return 1\n    return 0", {"a": 0}, 0),
        ("returned + 1", {"returned": 1}, 2),
        ("10 ** 30", {}, 10**30),
    ],
)
def test_cost(text: str, values: dict[str, Any], cost: int | Decimal) -> None:
    expression = parse(text)
    assert set(expression.names) == set(values)
    assert expression.cost(values) == cost


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("__import__('os').system('true')", "a call of something"),
        ("__import__('os')", "a call of the unknown function '__import__'"),
        ("import os\nreturn 1", "an import"),
        ("from os import system\nreturn 1", "an import"),
        ("open('x')", "a call of the unknown function 'open'"),
        ("eval('1')", "a call of the unknown function 'eval'"),
        ("().__class__.__bases__", "the attribute '__bases__'"),
        ("a.b", "the attribute 'b'"),
        ("min(1, 2, key=len)", "a call of 'min' with arguments"),
        ("min(*(1, 2))", "Starred"),
        ("[x for x in (1, 2)]", "ListComp"),
        ("(lambda: 1)()", "a call of something"),
        ("lambda: 1", "Lambda"),
        ("f'{a}'", "JoinedStr"),
        ("(a := 1)", "NamedExpr"),
        ("while True:\n    pass\nreturn 1", "While"),
        ("for a in (1, 2):\n    pass\nreturn 1", "For"),
        ("def f():\n    return 1", "FunctionDef"),
        ("global a\nreturn 1", "Global"),
        ("return", "Return"),
        ("1 << 99", "LShift"),
        ("(1, 2)[0:1]", "Slice"),
        ("b'x'", "Constant"),
        ("1 if a else", "1 if a else"),
        ("(" * 2000, ""),
        ("-" * 5000 + "1", ""),
        ("1" + "+1" * 300, "levels"),
        ("1" * 20_000, "characters"),
    ],
)
def test_what_is_refused_before_anything_is_evaluated(text: str, phrase: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse(text)
    assert phrase in str(refused.value)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("9 ** 9 ** 9 ** 9", "exponent beyond"),
        ("pow(9, 10 ** 9)", "exponent beyond"),
        ("((((9 ** 64) ** 64) ** 64) ** 64)", "bits"),
        ("'a' * 10 ** 9", "arithmetic with 'a'"),
        ("(1, 2) * 10 ** 9", "arithmetic with a tuple of 2 values"),
        ("'%999999999d' % 3", "arithmetic"),
        ("round(2.5, -10 ** 9)", "digits"),
        ("int('9' + '9')", "arithmetic with '9'"),
        ("1 / 0", "division by zero"),
        ("0.0 ** -1", "division by zero"),
        ("10.0 ** 400", "error"),
        ("(-1) ** 0.5", "complex"),
        ("float('nan')", "not a number"),
        ("int(float('inf'))", "error"),
        ("max()", "error"),
        ("min(1, 'a')", "error"),
        ("'R'", "arithmetic with 'R'"),
        ("(1, 2)", "arithmetic"),
        ("(1, 2)[2]", "item 2 of 2"),
        ("{1: 2}[3]", "a dictionary without 3"),
        ("if 0:\n    return 1", "no return is reached"),
        ("if 0:\n    b = 1\nreturn b", "'b', which has no value"),
    ],
)
def test_what_has_no_cost(text: str, phrase: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse(text).cost({})
    assert phrase in str(refused.value)
