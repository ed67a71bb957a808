"""What expressions may cost: bounds are known before anything is evaluated, and hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.formats.dcop.expression_arithmetic import ExpressionError
from bucketflow.pipeline.formats.dcop.python_expressions import parse
from tests.fuzzing import examples

# No text of 10,000 characters asks for more, whatever it nests.
LARGEST_WORK = 10_000 * 10_000 * 17


class Counted(int):
    """An integer that counts how often values like it are compared or shown."""

    looks = 0

    def __hash__(self) -> int:
        return hash(int(self))


def _counting(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def look(*values: Any) -> Any:
        Counted.looks += 1
        return plain(*values)

    return look


for operation in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__repr__", "__hash__"):
    setattr(Counted, operation, _counting(operation))


def looks(text: str, values: dict[str, int]) -> tuple[int, int]:
    """Evaluate an expression; return how often its values were looked at, and how often they may be."""
    try:
        expression = parse(text)
    except ExpressionError:
        return 0, 0
    assert expression.work <= LARGEST_WORK
    Counted.looks = 0
    with suppress(ExpressionError):
        expression.cost({name: Counted(value) for name, value in values.items()})
    return Counted.looks, expression.work


# Tuples of other objects that are equal, so that comparing them looks at every one.
START = ["a = (x, y)", "b = (z, u)"]
VALUES = {"x": 1, "y": 2, "z": 1, "u": 2}


def doubled(times: int, end: str) -> str:
    """A body that puts two tuples into themselves, twice at a time."""
    lines = [*START, *["a = (a, a)", "b = (b, b)"] * times]
    return "\n".join([*lines, f"return {end}"])


ENDS = (
    "a == b",
    "a != b",
    "a < b",
    "a >= b",
    "a in (b, b)",
    "a not in {b, b}",
    "len({a, b, a, b})",
    "max(a, b) == a",
    "min((a, b)) == b",
    "sum(a)",
    "any(a) + all(b)",
    "{a: 1}[b]",
    "{1: 2}[a]",
    "(1, 2)[a]",
    "-a",
    "a",
    "int(a)",
    "round(1.5, a)",
    "a ** 2",
    "a * 1000",
    "a if b else a",
    " and ".join(["a == b"] * 60),
    " or ".join(["a < b"] * 60),
    f"max({', '.join('ab' * 30)}) == a",
    f"{{{', '.join('ab: 1' for _ in range(30))}}}[a]".replace("ab", "b"),
)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("times", [3, 9, 40])
def test_tuples_in_themselves(end: str, times: int) -> None:
    """Small ones are compared, within the work that was said; large ones are refused before they are made."""
    text = doubled(times, end)
    if times == 40:
        with pytest.raises(ExpressionError, match=r"a tuple of more than 10,000 values|levels"):
            parse(text)
    found, allowed = looks(text, VALUES)
    assert found <= allowed


def test_tuples_that_differ_are_looked_at_on_every_level() -> None:
    rows = [f"a = ({'x, ' * 60} u)", f"b = ({'z, ' * 60} y + 1)", *["a = (a,)", "b = (b,)"] * 14]
    found, allowed = looks("\n".join([*rows, f"return {' and '.join(['a < b'] * 30)}"]), VALUES)
    assert 30 * 14 * 60 < found <= allowed


def test_comparing_is_most_of_the_work() -> None:
    """What is counted comes near to what is allowed, which is no idle bound."""
    found, allowed = looks(doubled(9, " and ".join(["a == b"] * 60)), VALUES)
    assert found == 60 * 2**10
    assert allowed < 10 * found


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["a = 3", *["a = a * a"] * 40, "return a"]),
        "\n".join(["a = 3", *["a = a ** 64"] * 40, "return a"]),
        "\n".join(["a = 1", *["a = (a,)"] * 400, "return a == a"]),
        "return " + "max(" * 140 + "x" + ")" * 140,
        "x" + " == x" * 1000,
        "x in (" + "x, " * 3000 + ")",
        "len({" + "x, " * 3000 + "})",
        "{" + "x: x, " * 1500 + "}[y]",
        "'" + "a" * 300 + "' == x",
        "2 ** x ** 2 ** x ** 2 ** x",
        "2 ** 64 ** 2 ** 9",
        "0x" + "f" * 9000,
        "1.0 ** 10 ** 300",
    ],
)
def test_long_texts(text: str) -> None:
    found, allowed = looks(text, {"x": 60, "y": 7})
    assert found <= allowed


@pytest.mark.parametrize(("text", "cost"), [("len({x, 1, y, 1.0})", 3), ("x in {1, 2} and 3 in {y, 3}", 1)])
def test_sets_hold_every_value_once(text: str, cost: int) -> None:
    assert parse(text).cost({"x": 2, "y": 4}) == cost


@pytest.mark.parametrize("text", ["{x} == {y}", "max({x}, {y})", "{x} in (1, 2)", "a = {x}\nreturn a"])
def test_sets_stand_where_their_order_does_not_matter(text: str) -> None:
    with pytest.raises(ExpressionError, match="a set"):
        parse(text)


GROWTH = ("a = (a, a)", "b = (b, b)", "a = (a, a, a, a)", "b = (b, b, b, b)", "a = max(a, b)", "b = (a, a)[0]")
NAMES = ("x", "z", "a", "b", "a", "b", "1", "0", "-2", "'u'", "64")
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "*", "**", "%", "and", "or")
FUNCTIONS = ("min", "max", "sum", "len", "any", "all", "abs", "bool", "int", "round", "pow")


def made(rng: random.Random, depth: int) -> str:
    """An expression of few names, which are often tuples."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(NAMES)
    one, two, three = (made(rng, depth - 1) for _ in range(3))
    several = ", ".join([one, two, three, *[two] * rng.randrange(8)])
    forms = (
        f"({several})",
        f"{{{several}}}",
        f"{rng.choice(FUNCTIONS)}({rng.choice([one, several])})",
        f"({one} {rng.choice(OPERATORS)} {two})",
        f"({one} {rng.choice(OPERATORS)} {two} {rng.choice(OPERATORS)} {three})",
        f"({one} if {two} else {three})",
        f"({several})[{two}]",
        f"{{{one}: {two}, {three}: {one}}}[{two}]",
    )
    return rng.choice(forms)


def body(rng: random.Random) -> str:
    """Assignments, often of a name to tuples of itself, under conditions too, and an expression."""
    lines = list(START)
    for _ in range(rng.randrange(10)):
        line = rng.choice(GROWTH) if rng.random() < 0.7 else f"{rng.choice('ab')} = {made(rng, 2)}"
        lines.append(f"if x:\n    {line}" if rng.random() < 0.2 else line)
    return "\n".join([*lines, f"return {rng.choice(ENDS) if rng.random() < 0.3 else made(rng, 4)}"])


@settings(max_examples=examples(), deadline=None)
@given(seed=st.integers(0, 2**32), x=st.integers(0, 3), y=st.integers(-2, 2))
def test_no_expression_takes_more_work_than_it_says(seed: int, x: int, y: int) -> None:
    text = body(random.Random(seed))
    found, allowed = looks(text, {"x": x, "y": y, "z": x, "u": y})
    assert found <= allowed, text


def file_of(folder: Path, function: str, values: str = "0 .. 99", names: str = "abcd") -> Path:
    variables = "".join(f"  {name}: {{domain: d}}\n" for name in names)
    text = f"domains:\n  d: {{values: [{values}]}}\nvariables:\n{variables}constraints:\n"
    text += "".join(f"  c{k}:\n    type: intention\n    function: {function}\n" for k in range(2))
    (folder / "p.yaml").write_text(text)
    return folder / "p.yaml"


def test_the_work_of_a_file_is_counted_before_it_is_done(tmp_path: Path) -> None:
    long = "a + b + c + d" + " + a" * 20
    with pytest.raises(bucketflow.FormatError) as refused:
        bucketflow.load(file_of(tmp_path, long), memory="60GB")
    most = "expressions that evaluate at most 2.15e+09 parts in all"
    assert f"p.yaml:11: expected {most}, found one of 47 parts for 1e+08 assignments" in str(refused.value)


@pytest.mark.parametrize(
    ("value", "phrase"),
    [("u" * 300, "a text of more than 256 characters"), ("9" * 400, "an integer of more than 1024 bits")],
)
def test_values_too_large_to_compute_with_are_refused_where_they_are_used(
    value: str, phrase: str, tmp_path: Path
) -> None:
    with pytest.raises(bucketflow.FormatError, match=phrase):
        bucketflow.load(file_of(tmp_path, "1 if a == 1 else 0", f"1, {value}", "a"))
    assert bucketflow.load(file_of(tmp_path, "1", f"1, {value}", "a")).states[0] == ("1", value)
