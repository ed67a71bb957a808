"""Variables of XCSP3, in arrays of any dimension, and lists of them and of integers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from ...errors import FormatError, format_count, shorten
from ..format_policy import ENTRY_BYTES, OBJECT_BYTES, STATE_BYTES, WORD_BYTES
from ..text.source import Source
from ..text.xml import Element

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_RANGE = re.compile(r"([+-]?\d{1,18})\.\.([+-]?\d{1,18})")
_REPEATED = re.compile(r"([+-]?\d{1,18})x(\d{1,9})")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)((?:\[[^\]]*\])*)")
_INDICES = re.compile(r"\[([^\]]*)\]")
_SIZE = re.compile(r"\d{1,9}")


class Xcsp3Variables:
    """The variables of a file: their names and values, in order.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.index: dict[str, int] = {}
        self.names: list[str] = []
        self.values: list[tuple[int, ...]] = []
        self.arrays: dict[str, tuple[range, ...]] = {}
        self._own_cells: dict[str, Mapping[tuple[int, ...], int]] = {}

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
        """Return the values of a domain; it may refer to the domain of another variable."""
        if (other := element.attributes.get("as")) is not None:
            if other in self.index:
                return self.values[self.index[other]]
            if self._own_cells.get(other):
                return self.values[next(iter(self._own_cells[other].values()))]
            raise self.fail(at, "a variable that is declared before", repr(shorten(other)))
        values: set[int] = set()
        for word in element.text.split():
            low, high = self._ends(word, at)
            self.source.allowance.take(STATE_BYTES * (high - low + 1), f"{format_count(high - low + 1)} values")
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
        self.source.allowance.take(OBJECT_BYTES + len(name), "its variables")
        if self.index.setdefault(name, len(self.values)) != len(self.values):
            raise self.fail(at, "one domain of each variable", f"another of {shorten(name)!r}")
        self.names.append(name)
        self.values.append(values)

    def _array(self, element: Element, name: str) -> None:
        """Read an array with one domain, or with domains for parts of it; a cell without a domain is no variable."""
        sizes = _INDICES.findall(element.attributes.get("size", ""))
        start = self.start_index(element)
        if not sizes or not all(map(_SIZE.fullmatch, sizes)):
            raise self.fail(element, "an array of sizes such as [3][4]", repr(shorten(str(element.attributes))))
        self.arrays[name] = shape = tuple([range(start, start + int(size)) for size in sizes])
        parts = [*element.every("domain")]
        domains = [(f"{name}{'[]' * len(shape)}", self._domain(element, element))] if not parts else []
        for part in parts:
            own_values = self._domain(part, part)
            for word in part.attributes.get("for", "").split():
                word = word if word != "others" else f"{name}{'[]' * len(shape)}"
                domains.append((word, own_values))
        cells: dict[tuple[int, ...], tuple[int, ...]] = {}
        for word, values in domains:
            found = _VARIABLE.fullmatch(word)
            if found is None or found[1] != name:
                raise self.fail(element, f"variables of {name!r}", repr(shorten(word)))
            ranges = self._ranges(shape, found[2], element)
            count = prod(map(len, ranges))
            what = f"{format_count(count)} variables of the array {shorten(name)!r}"
            cell_bytes = ENTRY_BYTES + OBJECT_BYTES + 16 * len(shape)
            self.source.allowance.take(0, what, for_now=cell_bytes * (count + len(cells)))
            for cell in product(*ranges):
                cells.setdefault(cell, values)
        own: dict[tuple[int, ...], int] = {}
        for cell in sorted(cells):
            own[cell] = len(self.values)
            self._add(element, f"{name}{''.join(f'[{k}]' for k in cell)}", cells[cell])
        self._own_cells[name] = own

    def start_index(self, element: Element) -> int:
        """Return the first index of an array or a list: 0, unless the element says otherwise."""
        text = element.attributes.get("startIndex", "0")
        if not _INTEGER.fullmatch(text):
            raise self.fail(element, "an integer as startIndex", repr(shorten(text)))
        return int(text)

    def _ranges(self, shape: Sequence[range], brackets: str, at: Element) -> list[range]:
        """Return the indices of each axis of an array that brackets such as [2][][0..3] mean."""
        inside = _INDICES.findall(brackets)
        if len(inside) != len(shape):
            raise self.fail(at, f"{len(shape)} indices", repr(shorten(brackets)))
        ranges = []
        for text, own in zip(inside, shape, strict=True):
            low, high = (own.start, own.stop - 1) if not text else self._ends(text, at)
            if low < own.start or high >= own.stop:
                raise self.fail(at, f"an index from {own.start} to {own.stop - 1}", repr(shorten(text)))
            ranges.append(range(low, high + 1))
        return ranges

    def cells(self, name: str, brackets: str, at: Element) -> list[tuple[tuple[int, ...], int]]:
        """Return the cells of an array that brackets mean, each with its variable; cells without one are left out.

        Raises
        ------
        FormatError
            If there is no such array, or the brackets do not fit it.
        """
        if name not in self.arrays:
            raise self.fail(at, "a variable of the problem", repr(shorten(name + brackets)))
        shape, own = self.arrays[name], self._own_cells.get(name, {})
        ranges = self._ranges(shape, brackets or "[]" * len(shape), at)
        if not brackets.strip("[]"):
            return [*own.items()]
        if prod(map(len, ranges)) > len(own):  # most cells have no variable
            return [(c, v) for c, v in own.items() if all(k in r for k, r in zip(c, ranges, strict=True))]
        return [(cell, own[cell]) for cell in product(*ranges) if cell in own]

    def indices(self, name: str, brackets: str, at: Element) -> list[int]:
        """Return the variables that a word means, by index."""
        if not brackets and name in self.index:
            return [self.index[name]]
        found = [v for _, v in self.cells(name, brackets, at)]
        if not found and brackets and "[]" not in brackets and ".." not in brackets:
            raise self.fail(at, "a variable of the problem", repr(shorten(name + brackets)))
        return found

    def scope(self, text: str, at: Element) -> list[int]:
        """Return the variables of a list."""
        found: list[int] = []
        for word in text.split():
            match = _VARIABLE.fullmatch(word)
            if match is None:
                raise self.fail(at, "a variable, such as x or y[2][]", repr(shorten(word)))
            found.extend(self.indices(match[1], match[2], at))
            self.source.allowance.take(0, "a list of variables", for_now=WORD_BYTES * len(found))
        return found

    def integers(self, text: str, at: Element) -> list[int]:
        """Return the integers of a list; 3..5 stands for three integers, and 2x4 for four times 2."""
        found: list[int] = []
        for word in text.split():
            if repeated := _REPEATED.fullmatch(word):
                low = high = int(repeated[1])
                count = int(repeated[2])
            else:
                low, high = self._ends(word, at)
                count = high - low + 1
            self.source.allowance.take(0, "a list of integers", for_now=WORD_BYTES * (len(found) + count))
            found.extend(range(low, high + 1) if low < high else [low] * count)
        return found
