"""XML as a tree of elements, read within the memory for reading; entities are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from ...errors import FormatError, shorten
from ..format_policy import ELEMENT_BYTES, FormatPolicy
from .source import Source

_MAX_DEPTH = 64
_BEGINNING = re.compile(rb"[ \t\r\n]*")


@dataclass
class Element:
    """An element, its children and texts, and the line it begins at."""

    tag: str
    line: int
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of its own text."""
        return "".join(self.texts).strip()

    def every(self, tag: str) -> Iterator[Element]:
        """Children of a name."""
        return (child for child in self.children if child.tag == tag)

    def words(self, tag: str) -> list[str]:
        """The text of every child of a name."""
        return [child.text for child in self.every(tag)]


class _ElementParser:
    """Builds the tree of elements, within the memory for reading; entities are refused, blanks may come first."""

    def __init__(self, source: Source):
        self.source, self.open = source, [Element("", 1, {})]
        self.start = next(_BEGINNING.finditer(source.data)).end()
        self.lines_before = source.data.count(b"\n", 0, self.start)
        self.expat = expat.ParserCreate()
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = lambda _: self.open.pop()
        self.expat.CharacterDataHandler = self._text
        self.expat.EntityDeclHandler = self._entity

    def root(self) -> Element:
        """Parse the file."""
        data, chunk = self.source.data, FormatPolicy.current().chunk_bytes
        try:
            for start in range(self.start, len(data), chunk):
                self.expat.Parse(bytes(data[start : start + chunk]), False)
            self.expat.Parse(b"", True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            line = self.lines_before + self.expat.ErrorLineNumber
            raise FormatError(self.source.path, line, "well-formed XML", str(error)) from None
        return self.open[0].children[0]

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.open) > _MAX_DEPTH:
            raise self.fail(f"at most {_MAX_DEPTH} elements inside each other", "more")
        size = ELEMENT_BYTES + 64 * len(attributes) + sum(map(len, attributes.values()))
        self.source.allowance.take(size, "its XML elements")
        element = Element(tag, self.lines_before + self.expat.CurrentLineNumber, attributes)
        self.open[-1].children.append(element)
        self.open.append(element)

    def _text(self, text: str) -> None:
        if not text.isspace():
            self.source.allowance.take(64 + len(text), "its texts")
        self.open[-1].texts.append(text if not text.isspace() else " ")

    def _entity(self, name: str, *_: Any) -> None:
        raise self.fail("a file without entities", f"the entity {shorten(name)!r}")

    def fail(self, expected: str, found: str) -> FormatError:
        return FormatError(self.source.path, self.lines_before + self.expat.CurrentLineNumber, expected, found)


def root_element(source: Source, tag: str) -> Element:
    """Parse a file whose outermost element is ``tag``.

    Raises
    ------
    FormatError
        If it is another, or the file is not well-formed or declares entities.
    """
    root = _ElementParser(source).root()
    if root.tag != tag:
        raise FormatError(source.path, root.line, f"<{tag}>", f"<{shorten(root.tag)}>")
    return root
