"""Shapes of the JSON objects that pages show: names and kinds of values, checked before drawing.

A shape is a function of a value and of its place in the file, such as ``proof.tried``. A value of another shape raises
:exc:`ShapeError`; unknown names are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import shorten

Shape = Callable[[Any, str], None]


class ShapeError(Exception):
    """A value of another kind.

    Parameters
    ----------
    expected, found : str
        In words, with where it stands.
    """

    def __init__(self, expected: str, found: str):
        super().__init__(expected, found)
        self.expected, self.found = expected, found

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


def _plain(words: str, *kinds: type) -> Shape:
    """The shape of a value of some kinds; a truth value is no number."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ShapeError(f"{words} for {where or 'the whole'}", shorten(json.dumps(value)))

    return check


TEXT = _plain("a text", str)
NUMBER = _plain("a number", int, float)
COUNT = _plain("a whole number", int)
#: A cost, a count or a logarithm; decimals that no float holds are texts.
FIGURE = _plain("a number", int, float, str)
STATE = _plain("a state", int, str)
EVIDENCE = _plain("a state or likelihoods", int, str, list)


def or_none(shape: Shape) -> Shape:
    """The shape of a value, or of none."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            shape(value, where)

    return check


def listed(shape: Shape, length: int | None = None) -> Shape:
    """The shape of a list whose members have one."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            of = "" if length is None else f" of {length}"
            raise ShapeError(f"a list{of} for {where or 'the whole'}", shorten(json.dumps(value)))
        for k, member in enumerate(value):
            shape(member, f"{where}[{k}]")

    return check


def named(shape: Shape) -> Shape:
    """The shape of an object of any names whose values have one."""

    def check(value: Any, where: str) -> None:
        for name, member in _object(value, where).items():
            shape(member, _inside(where, name))

    return check


def record(needed: Mapping[str, Shape], perhaps: Mapping[str, Shape] | None = None) -> Shape:
    """Return the shape of an object with known names: required names, and optional names, which may be null."""

    def check(value: Any, where: str) -> None:
        there = _object(value, where)
        for name, shape in needed.items():
            if name not in there:
                raise ShapeError(f"{_inside(where, name)}", "nothing")
            shape(there[name], _inside(where, name))
        for name, shape in (perhaps or {}).items():
            or_none(shape)(there.get(name), _inside(where, name))

    return check


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ShapeError(f"names with values for {where or 'the whole'}", shorten(json.dumps(value)))
    return value


def _inside(where: str, name: str) -> str:
    return f"{where}.{shorten(name)}" if where else shorten(name)


_ROUND = record({"seconds": NUMBER, "lower": or_none(FIGURE), "upper": or_none(FIGURE)})
_PROOF = record(
    {"method": TEXT, "lower": or_none(FIGURE), "upper": or_none(FIGURE)},
    {"tried": named(NUMBER), "history": listed(listed(or_none(FIGURE), 3))},
)
_MODEL = record({"name": TEXT, "source": TEXT, "kind": TEXT, "variables": COUNT})
_JOINT = record({"variables": listed(TEXT), "table": _plain("a table", list)})
_RANKED = record({"rank": COUNT, "assignment": named(STATE)}, {"value": FIGURE, "log10": NUMBER})
#: Output of ``solve --best``.
BEST = record(
    {"status": TEXT, "seconds": named(NUMBER), "assignments": listed(_RANKED)},
    {"optimal_count": FIGURE, "model": _MODEL, "evidence": named(EVIDENCE), "notes": listed(TEXT)},
)
#: Output of ``solve``, ``marginals``, ``bound`` and ``result``.
ANSWER = record(
    {"status": TEXT, "seconds": named(NUMBER), "peak_rss_bytes": COUNT},
    {
        "query": TEXT,
        "value": FIGURE,
        "log10": NUMBER,
        "log10_evidence": NUMBER,
        "lower": FIGURE,
        "upper": FIGURE,
        "gap": NUMBER,
        "assignment": named(STATE),
        "model": _MODEL,
        "evidence": named(EVIDENCE),
        "joint": listed(_JOINT),
        "marginals": named(listed(or_none(NUMBER))),
        "states": named(listed(STATE)),
        "rounds": listed(_ROUND),
        "proof": _PROOF,
        "notes": listed(TEXT),
    },
)
