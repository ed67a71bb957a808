"""YAML as a tree: long numbers, aliases, keys that are made to collide; nothing costs more than its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow import FormatError
from bucketflow.pipeline.formats.text.source import read_source
from bucketflow.pipeline.formats.text.yaml import Dialect, YamlNode, read_tree

PLACES = """\
domains: {{d: {{values: [{domain}, 1]}}}}
variables: {{a: {{domain: d, noise_level: {noise}}}, b: {{domain: d}}}}
external_variables: {{e: {{domain: d, initial_value: {external}}}}}
constraints:
  c: {{type: intention, function: a + p, partial: {{p: {partial}}}}}
  t: {{type: extensional, variables: [a], default: {default}, values: {{{cost}: 1}}}}
  m: {{type: extensional, variables: [a], values: [{entry}, 2]}}
agents: {{x: {{capacity: {capacity}}}, y: {{}}}}
routes: {{default: {route}, x: {{y: 2}}}}
hosting_costs: {{default: {hosting}}}
"""
GOOD = {
    "domain": "0",
    "noise": "1",
    "external": "1",
    "partial": "3",
    "default": "4",
    "cost": "5",
    "entry": "6",
    "capacity": "7",
    "route": "8",
    "hosting": "9",
}
LONG = {"hexadecimal": "0x" + "f" * 4500, "octal": "0" + "7" * 5000, "binary": "0b" + "1" * 20_000}
LONG |= {"decimal": "9" * 5000, "sexagesimal": "1" + ":00" * 3000, "short in its base": "0x" + "f" * 3700}


def tree(text: str, folder: Path, dialect: Dialect | None = None) -> YamlNode:
    (folder / "t.yaml").write_text(text)
    return read_tree(read_source(folder / "t.yaml", 1 << 30), *([] if dialect is None else [dialect]))


@pytest.mark.parametrize("place", GOOD)
@pytest.mark.parametrize("kind", LONG)
def test_integers_of_many_digits(kind: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PLACES.format(**GOOD))
    assert len(bucketflow.load(path).dims) == 2
    path.write_text(PLACES.format(**{**GOOD, place: LONG[kind]}))
    with pytest.raises(FormatError, match=r"p.yaml:\d+: expected a number of at most 4,300 digits, found") as refused:
        bucketflow.load(path)
    assert f"({len(LONG[kind])} characters)" in str(refused.value)


@pytest.mark.parametrize("kind", LONG)
def test_integers_of_many_digits_in_files_of_agents(kind: str, tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(f"one: [{LONG[kind]}]")
    with pytest.raises(FormatError, match=r"agents.yaml:1: expected a number of at most 4,300 digits, found"):
        bucketflow.load_dcop("satellite", agents=tmp_path / "agents.yaml")


@pytest.mark.parametrize("place", ["noise", "capacity", "route", "hosting"])
@pytest.mark.parametrize("text", ["1.0e+999999999", "1.0e-999999999", "1" * 50])
def test_amounts_of_many_digits(place: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLACES.format(**{**GOOD, place: text}))
    with pytest.raises(FormatError, match=r"expected a number of at (most 40 digits|least 0), found"):
        bucketflow.load(tmp_path / "p.yaml")


@pytest.mark.parametrize("kind", ["int", "float"])
def test_keys_that_are_made_to_collide(kind: str, tmp_path: Path) -> None:
    """Python's hashes of numbers are remainders, so that a dictionary of many that have the same one takes long."""
    keys = ((k + 1) * (2**61 - 1) for k in range(1001))
    lines = [f"{key}{'.0' if kind == 'float' else ''}: 1" for key in keys]
    assert len(tree("\n".join(lines[:-1]), tmp_path).value) == 1000
    with pytest.raises(FormatError, match=r"t.yaml:1001: expected at most 1,000 keys that are numbers of many digits"):
        tree("\n".join(lines), tmp_path)


ALIASES = Dialect(aliases=True)


def plain(part: YamlNode) -> Any:
    if isinstance(part.value, list):
        return [plain(each) for each in part.value]
    return {key: plain(each) for key, each in part.value.items()} if isinstance(part.value, dict) else part.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[&a 1, *a, &a 2, *a]", [1, 1, 2, 2]),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("- &x {b: 1}\n- &y {b: 2, c: 3}\n- {<<: [*x, *y]}", [{"b": 1}, {"b": 2, "c": 3}, {"b": 1, "c": 3}]),
        ("['<<', \"<<\"]", ["<<", "<<"]),
    ],
)
def test_aliases_and_merges(text: str, value: Any, tmp_path: Path) -> None:
    assert plain(tree(text, tmp_path, ALIASES)) == value


def doubled(first: str, again: str) -> str:
    return "\n".join([f"- &a0 {first}", *(f"- &a{k} {again.replace('*', f'*a{k - 1}')}" for k in range(1, 40))])


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        (doubled("[x, x]", "[*, *]"), "aliases that stand for at most 1,000,000 values in all"),
        (doubled("{x: x}", "{a: *, b: *}"), "aliases that stand for at most 1,000,000 values in all"),
        (doubled("{x: x}", "{<<: [*, *, *, *, *, *, *, *]}"), "aliases that stand for at most 1,000,000 values in all"),
        (doubled("[x]", "[*]"), "at most 32 levels"),
        (f"- &a {[0] * 1000}\n" + "- *a\n" * 1000, "aliases that stand for at most 1,000,000 values in all"),
        ("&a [*a]", "the name of a value that is complete, found *a"),
        ("&a {<<: *a}", "the name of a value that is complete, found *a"),
        ("[*b]", "the name of a value that is complete, found *b"),
        ("- &a [1]\n- {<<: *a}", "a key that is a word or number, found the merging of dictionaries"),
    ],
)
def test_aliases_are_counted(text: str, phrase: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError) as refused:
        tree(text, tmp_path, ALIASES)
    assert phrase in str(refused.value)


@pytest.mark.parametrize("text", ["[&a 1, *a]", "{<<: {a: 1}, b: 2}"])
def test_other_files_have_no_aliases_and_merges(text: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        tree(text, tmp_path)
