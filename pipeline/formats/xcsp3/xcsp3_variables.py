"""Variables of XCSP3, in arrays of any dimension, and lists of them and of integers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

from ...errors import FormatError, format_count, shorten
from ..text.source import Source
from ..text.xml import Element

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_RANGE = re.compile(r"([+-]?\d{1,18})\.\.([+-]?\d{1,18})")
_REPEATED = re.compile(r"([+-]?\d{1,18})x(\d{1,9})")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)((?:\[[^\]]*\])*)")
_INDICES = re.compile(r"\[([^\]]*)\]")
_SIZE = re.compile(r"\d{1,9}")
_STATE_BYTES = 96
_VARIABLE_BYTES = 512
_WORD_BYTES = 64


class Xcsp3Variables:
    """The variables of a file: their names and values, in order.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.index: dict[str, int] = {}
        self.values: list[tuple[int, ...]] = []
        self.arrays: dict[str, tuple[int, ...]] = {}

    def fail(self, at: Element, expected: str, found: str) -> FormatError:
        """Return the error at an element."""
        return FormatError(self.source.path, at.line, expected, found)

    def read(self, section: Element) -> None:
        """Read the section of variables."""
        for element in section.children:
            if element.tag not in ("var", "array"):
                raise self.fail(element, "<var> or <array>", f"<{shorten(element.tag)}>, which is not read")
            name = element.attributes.get("id", "")
            if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in self.index or name in self.arrays:
                raise self.fail(element, "a variable with a name of its own", repr(shorten(name)))
            if (kind := element.attributes.get("type", "integer")) != "integer":
                raise self.fail(element, "integer variables", f"one of type {shorten(kind)!r}, which is not read")
            if element.tag == "var":
                self._add(element, name, self._domain(element, element))
            else:
                self._array(element, name)

    def _domain(self, element: Element, at: Element) -> tuple[int, ...]:
        """Return the values of a domain, which may be that of another variable."""
        if (other := element.attributes.get("as")) is not None:
            if other in self.index:
                return self.values[self.index[other]]
            if other in self.arrays:
                return self.values[next(self.indices(other, "[]" * len(self.arrays[other]), at))]
            raise self.fail(at, "a variable that is declared before", repr(shorten(other)))
        values: set[int] = set()
        for word in element.text.split():
            low, high = self._ends(word, at)
            self.source.allowance.take(_STATE_BYTES * (high - low + 1), f"{format_count(high - low + 1)} values")
            values.update(range(low, high + 1))
        if not values:
            raise self.fail(at, "a domain with values", "none")
        return tuple(sorted(values))

    def _ends(self, word: str, at: Element) -> tuple[int, int]:
        if _INTEGER.fullmatch(word):
            return int(word), int(word)
        if (found := _RANGE.fullmatch(word)) and int(found[1]) <= int(found[2]):
            return int(found[1]), int(found[2])
        raise self.fail(at, "integers, such as 1 or 3..7", repr(shorten(word)))

    def _add(self, at: Element, name: str, values: tuple[int, ...]) -> None:
        self.source.allowance.take(_VARIABLE_BYTES, "its variables")
        if self.index.setdefault(name, len(self.values)) != len(self.values):
            raise self.fail(at, "one domain of each variable", f"another of {shorten(name)!r}")
        self.values.append(values)

    def _array(self, element: Element, name: str) -> None:
        """Read an array, of one domain or of several for parts of it; what has none does not exist."""
        sizes = _INDICES.findall(element.attributes.get("size", ""))
        if not sizes or not all(map(_SIZE.fullmatch, sizes)) or element.attributes.get("startIndex", "0") != "0":
            raise self.fail(element, "an array of sizes such as [3][4], from index 0", str(element.attributes))
        self.arrays[name] = shape = tuple(map(int, sizes))
        parts = [*element.every("domain")]
        domains = [(f"{name}{'[]' * len(shape)}", self._domain(element, element))] if not parts else []
        for part in parts:
            for word in part.attributes.get("for", "").split():
                word = word if word != "others" else f"{name}{'[]' * len(shape)}"
                domains.append((word, self._domain(part, part)))
        named: dict[str, tuple[int, ...]] = {}
        for word, values in domains:
            found = _VARIABLE.fullmatch(word)
            if found is None or found[1] != name:
                raise self.fail(element, f"variables of {name!r}", repr(shorten(word)))
            for cell in self._cells(shape, found[2], element):
                named.setdefault(f"{name}{''.join(f'[{k}]' for k in cell)}", values)
        for cell in product(*map(range, shape)):
            if (own := f"{name}{''.join(f'[{k}]' for k in cell)}") in named:
                self._add(element, own, named[own])

    def _cells(self, shape: Sequence[int], brackets: str, at: Element) -> Iterator[tuple[int, ...]]:
        """Yield the places of an array that brackets such as [2][][0..3] mean."""
        inside = _INDICES.findall(brackets)
        if len(inside) != len(shape):
            raise self.fail(at, f"{len(shape)} indices", repr(shorten(brackets)))
        ranges = []
        for text, size in zip(inside, shape, strict=True):
            low, high = (0, size - 1) if not text else self._ends(text, at)
            if low < 0 or high >= size:
                raise self.fail(at, f"an index from 0 to {size - 1}", repr(shorten(text)))
            ranges.append(range(low, high + 1))
        return product(*ranges)

    def indices(self, name: str, brackets: str, at: Element) -> Iterator[int]:
        """Yield the variables that a word means, by index."""
        if not brackets and name in self.index:
            yield self.index[name]
        elif name in self.arrays:
            whole = brackets or "[]" * len(self.arrays[name])
            for cell in self._cells(self.arrays[name], whole, at):
                own = f"{name}{''.join(f'[{k}]' for k in cell)}"
                if own in self.index:
                    yield self.index[own]
                elif "[]" not in whole:
                    raise self.fail(at, "a variable of the problem", repr(shorten(own)))
        else:
            raise self.fail(at, "a variable of the problem", repr(shorten(name + brackets)))

    def scope(self, text: str, at: Element) -> list[int]:
        """Return the variables of a list."""
        found: list[int] = []
        for word in text.split():
            match = _VARIABLE.fullmatch(word)
            if match is None:
                raise self.fail(at, "a variable, such as x or y[2][]", repr(shorten(word)))
            found.extend(self.indices(match[1], match[2], at))
        return found

    def operand(self, word: str, at: Element) -> int | tuple[int]:
        """Return a variable by its index in a tuple, or an integer."""
        if _INTEGER.fullmatch(word):
            return int(word)
        scope = self.scope(word, at)
        if len(scope) != 1:
            raise self.fail(at, "an integer or one variable", repr(shorten(word)))
        return (scope[0],)

    def integers(self, text: str, at: Element) -> list[int]:
        """Return the integers of a list, of which 3..5 are three and 2x4 four times a 2."""
        found: list[int] = []
        for word in text.split():
            if repeated := _REPEATED.fullmatch(word):
                self.source.allowance.take(0, "a list of integers", for_now=_WORD_BYTES * int(repeated[2]))
                found += [int(repeated[1])] * int(repeated[2])
            else:
                low, high = self._ends(word, at)
                self.source.allowance.take(0, "a list of integers", for_now=_WORD_BYTES * (high - low + 1))
                found.extend(range(low, high + 1))
        return found
