"""Tuned numbers in the source: their places, other values for them, and the functions that read them."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tests.test_structure import ROOMS, ROOT, numbers_of

#: Smaller numbers are seconds or bytes rather than fractions of something: they are multiplied.
_SHARE = 0.05


@dataclass(frozen=True)
class Number:
    """A number in the source: its name, its file, and the place of its value."""

    path: str
    name: str
    start: int
    end: int
    text: str

    @property
    def key(self) -> str:
        return f"{self.path}:{self.name}"

    def varied(self, up: bool) -> str | None:
        """Return the text of another value; None if it has none."""
        try:
            value = eval(self.text, {"__builtins__": {}}, {"inf": math.inf})
        except Exception:  # it is made from other numbers, all of them integers
            return f"8 * ({self.text})" if up else f"({self.text}) // 8 or 1"
        new = _scaled(value, up)
        return None if new == value else repr(new)


def _scaled(value: Any, up: bool) -> Any:
    """Return 8 times a number, or an eighth. Fractions move towards 1. In a tuple, all numbers are scaled."""
    if isinstance(value, tuple):
        return tuple([_scaled(each, up) for each in value])
    if type(value) is bool:
        return not value
    if isinstance(value, int):
        return (value * 8 or 8) if up else value // 8 if value < 0 else max(value // 8, 1)
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    if up and _SHARE < value < 1:
        return 1 - (1 - value) / 8
    return (value * 8 or 1.0) if up else value / 8


def numbers_in(path: Path) -> Iterator[Number]:
    """Yield the constants and the fields of policies of a module, as ``tests/test_structure.py`` counts them."""
    source = path.read_bytes()
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    for target, value in numbers_of(path):
        assert value.end_lineno is not None
        assert value.end_col_offset is not None
        start, end = starts[value.lineno - 1] + value.col_offset, starts[value.end_lineno - 1] + value.end_col_offset
        yield Number(str(path.relative_to(ROOT)), ast.unparse(target), start, end, source[start:end].decode())


class Reading:
    """Which numbers are read by functions that the panel calls, and which are frozen in compiled loops.

    Parameters
    ----------
    called : collection of str
        Places of functions, as the panel traces them.
    """

    def __init__(self, called: Collection[str]) -> None:
        self._called, self._read = set(called), set[tuple[str, str]]()
        self._loops: dict[str, set[str]] = {}
        for path, text in texts().items():
            self._add(path, text)

    def _add(self, path: str, text: str) -> None:
        tree, compiled = ast.parse(text), "njit(" in text
        if compiled:
            self._loops[path] = {
                word for node in tree.body if isinstance(node, ast.FunctionDef) for word in _words(node)
            }
        imported = any(place.startswith(f"{path}:") for place in self._called)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.Lambda | ast.AsyncFunctionDef):
                first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
                if f"{path}:{first}" in self._called or (compiled and imported):
                    self._read |= {(path, word) for word in _words(node)}
        for node in tree.body if imported else ():
            if not isinstance(node, ast.FunctionDef):
                value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
                self._read |= {(path, word) for word in (_words(value) if value else ())}

    def is_read(self, number: Number) -> bool:
        return any((path, number.name) in self._read for path in self._users(number))

    def frozen(self, number: Number) -> list[str]:
        """Return the modules whose compiled loops have the number in their machine code; no field of a policy has."""
        if number.name.islower():
            return []
        return [path for path in self._users(number) if number.name in self._loops.get(path, ())]

    def _users(self, number: Number) -> list[str]:
        """Return the modules that may read a number: its own module, and modules that contain both names."""
        word, stem = re.compile(rf"\b{number.name}\b"), Path(number.path).stem
        is_field = number.name.islower()
        return [
            path
            for path, text in texts().items()
            if (path == number.path or is_field or stem in text) and word.search(text)
        ]


@cache
def texts() -> dict[str, str]:
    """Return the source of every module by its path."""
    return {str(p.relative_to(ROOT)): p.read_text() for room in ROOMS for p in (ROOT / room).rglob("*.py")}


def _words(node: ast.AST) -> set[str]:
    names = (each.id if isinstance(each, ast.Name) else getattr(each, "attr", None) for each in ast.walk(node))
    return {name for name in names if name}
