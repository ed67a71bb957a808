"""YAML as a tree whose parts know their line: no aliases, no tags, no key twice, within the memory for reading."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from ...errors import FormatError, shorten
from ..cfn_grammar import Number
from .source import Source

_MAX_DEPTH = 32
# A part with its place in a list or dictionary.
_PART_BYTES = 320
_KINDS = ("int", "float", "bool", "null")


@dataclass(frozen=True, eq=False)
class YamlNode:
    """A scalar, a list of parts, or a dictionary from scalars to parts; ``line`` is where it begins."""

    line: int
    value: Any


@dataclass
class _Open:
    """A list or dictionary that is still being read; keys and values of a dictionary alternate."""

    line: int
    keyed: bool
    parts: list[YamlNode] = field(default_factory=list)


def read_tree(source: Source) -> YamlNode:
    """Parse a file of one YAML document.

    Scalars are strings, integers, floats, booleans or None, as YAML 1.1 has them; dates stay strings.

    Raises
    ------
    FormatError
        If it is no YAML, or has aliases, tags, several documents, a key twice or is nested too deeply.
    """
    return _TreeBuilder(source).root()


class _TreeBuilder:
    """Builds the tree from events, so that nothing in the file runs or recurses."""

    def __init__(self, source: Source) -> None:
        import yaml

        self.source, self.yaml = source, yaml
        self.resolver, self.constructor = yaml.resolver.Resolver(), yaml.constructor.SafeConstructor()
        self.open = [_Open(1, False)]

    def root(self) -> YamlNode:
        """Read all events."""
        for event in self._events():
            line = event.start_mark.line + 1
            if isinstance(event, self.yaml.AliasEvent):
                raise self._fail(line, "a file without aliases", f"*{shorten(event.anchor)}")
            if isinstance(event, self.yaml.ScalarEvent):
                self._add(YamlNode(line, self._scalar(event, line)))
            elif isinstance(event, self.yaml.CollectionStartEvent):
                self._begin(event, line)
            elif isinstance(event, self.yaml.CollectionEndEvent):
                self._end()
        parts = self.open[0].parts
        if len(parts) != 1:
            raise self._fail(None, "one YAML document", f"{len(parts)}")
        return parts[0]

    def _events(self) -> Iterator[Any]:
        loader = getattr(self.yaml, "CSafeLoader", self.yaml.SafeLoader)
        try:
            yield from self.yaml.parse(self.source.text, Loader=loader)
        except self.yaml.reader.ReaderError as error:
            line = self.source.text.partition(chr(error.character))[0].count("\n") + 1
            raise self._fail(line, "text in YAML", f"the character U+{error.character:04X}") from None
        except self.yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            reason = getattr(error, "problem", None) or str(error)
            raise self._fail(None if mark is None else mark.line + 1, "well-formed YAML", shorten(reason, 80)) from None

    def _begin(self, event: Any, line: int) -> None:
        if event.tag is not None:
            raise self._fail(line, "plain YAML", f"the tag {shorten(event.tag)}")
        if len(self.open) > _MAX_DEPTH:
            raise self._fail(line, f"at most {_MAX_DEPTH} levels", "more")
        self.open.append(_Open(line, isinstance(event, self.yaml.MappingStartEvent)))

    def _end(self) -> None:
        done = self.open.pop()
        if not done.keyed:
            self._add(YamlNode(done.line, done.parts))
            return
        found: dict[Any, YamlNode] = {}
        for key, value in zip(done.parts[::2], done.parts[1::2], strict=True):
            if isinstance(key.value, list | dict):
                raise self._fail(key.line, "a key that is a word or number", "a list")
            if key.value in found:
                raise self._fail(key.line, "every key once", f"{shorten(str(key.value))!r} again")
            found[key.value] = value
        self._add(YamlNode(done.line, found))

    def _add(self, part: YamlNode) -> None:
        self.source.allowance.take(_PART_BYTES, "its YAML")
        self.open[-1].parts.append(part)

    def _scalar(self, event: Any, line: int) -> Any:
        node = self.yaml.ScalarNode(event.tag, event.value)
        plain = event.tag is None and event.implicit[0]
        kind = self.resolver.resolve(self.yaml.ScalarNode, event.value, (True, False)) if plain else event.tag
        kind = (kind or "str").removeprefix("tag:yaml.org,2002:")
        construct = getattr(self.constructor, f"construct_yaml_{kind}", None) if kind in _KINDS else None
        if event.tag is not None and construct is None and kind != "str":
            raise self._fail(line, "plain YAML", f"the tag {shorten(event.tag)}")
        try:
            value = event.value if construct is None else construct(node)
            return _WrittenNumber(value, event.value) if isinstance(value, float) else value
        except (ValueError, OverflowError) as error:
            long = len(event.value) > sys.get_int_max_str_digits() > 0
            reason = f"{len(event.value)} characters" if long else str(error)
            raise self._fail(line, "a number", f"{shorten(event.value)!r} ({reason})") from None

    def _fail(self, line: int | None, expected: str, found: str) -> FormatError:
        return FormatError(self.source.path, line, expected, found)


class _WrittenNumber(float):
    """A number that remembers its decimals: a table's entries are exactly as they are written."""

    exact: Decimal

    def __new__(cls, value: float, text: str) -> _WrittenNumber:
        """Take the decimals of a text, unless that is another notation of YAML's."""
        written = super().__new__(cls, value)
        try:
            written.exact = Decimal(text)
        except InvalidOperation:
            written.exact = Decimal(repr(value))
        return written

    def __eq__(self, other: object) -> bool:
        return self.exact == other.exact if isinstance(other, _WrittenNumber) else float(self) == other

    def __hash__(self) -> int:
        return hash(self.exact)


def number_of(part: YamlNode, source: Source) -> Number:
    """Return a number of a file, exactly as its decimals are written.

    Raises
    ------
    FormatError
        If it is none.
    """
    value = part.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        found = value.exact if isinstance(value, _WrittenNumber) else Decimal(str(value).strip())
    except InvalidOperation:
        found = Decimal("nan")
    if isinstance(value, bool) or found.is_nan():
        raise FormatError(source.path, part.line, "a number", shown(part))
    return found


def shown(part: YamlNode) -> str:
    """What a part is, in a few words."""
    if isinstance(part.value, list):
        return f"a list of {len(part.value)}"
    return "a section" if isinstance(part.value, dict) else repr(shorten(str(part.value)))


# Words in YAML, which reads some as numbers or truth values.

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def yaml_word(text: str) -> str:
    """Write a name or a key, quoted where it may be read as something else."""
    return text if _WORD.fullmatch(text) and text.lower() not in _RESERVED else yaml_quoted(text)


def yaml_quoted(text: str) -> str:
    """Quote text as YAML reads it: characters that no file may hold as such are escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
