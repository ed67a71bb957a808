"""YAML as a tree whose parts know their line: no tags, no key twice, aliases only where asked, within a memory."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ....tasks.steps.light_dataclass import dataclass
from ....tasks.steps.number_limits import LARGEST_DECIMALS
from ...errors import FormatError, encodable, shorten
from ..decimal_costs import Number
from ..format_policy import ENTRY_BYTES, MOST_LEVELS
from .source import Source
from .tokens import has_plain_digits

# Most values that aliases stand for, each as often as it is meant.
_ALIASED_VALUES: Final = 1_000_000
# Most keys of a length at which their hashes could be chosen to collide.
_LONG_KEYS: Final = 1000


class Written(float):
    """A number that remembers its decimals: a table's entries are exactly as they are written."""

    exact: Decimal

    def __new__(cls, value: float, text: str) -> Written:
        """Take the decimals of a text, unless that is another notation of YAML's."""
        written = super().__new__(cls, value)
        try:
            written.exact = Decimal(text)
        except InvalidOperation:
            written.exact = Decimal(repr(value))
        return written

    def __eq__(self, other: object) -> bool:
        return self.exact == other.exact if isinstance(other, Written) else float(self) == other

    def __hash__(self) -> int:
        return hash(self.exact)


def is_long(key: Any) -> bool:
    """Whether a number has so many digits that hash collisions in a dictionary could be provoked."""
    if isinstance(key, Written):
        _, digits, exponent = key.exact.as_tuple()
        # Python's hash of a number is a remainder of 61 bits, so longer numbers can be chosen to have equal hashes.
        return isinstance(exponent, int) and len(digits) + abs(exponent) > LARGEST_DECIMALS
    return isinstance(key, int) and abs(key) >= 10**LARGEST_DECIMALS


_KINDS = ("int", "float", "bool", "null")


@dataclass(frozen=True)
class Dialect:
    """The supported part of YAML.

    Parameters
    ----------
    aliases : bool
        Whether values may be named once and meant several times, and dictionaries merged.
    kinds : tuple of (str, str, list of str)
        Kinds of plain words that are not text, each with a pattern and the first characters of such words; empty for
        the kinds of YAML 1.1.
    """

    aliases: bool = False
    kinds: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


YAML_1_1 = Dialect()


@dataclass(frozen=True, eq=False)
class YamlNode:
    """A scalar, a list of parts, or a dictionary from scalars to parts.

    Parameters
    ----------
    line : int
        Where it begins.
    value : Any
    size, depth : int
        How many parts it is made of, each as often as it is meant, and how deep they are inside each other.
    """

    line: int
    value: Any
    size: int = 1
    depth: int = 0


@dataclass
class _Open:
    """A list or dictionary that is still being read; keys and values of a dictionary alternate."""

    line: int
    keyed: bool
    anchor: str | None = None
    parts: list[YamlNode] = field(default_factory=list)
    size: int = 1
    depth: int = 0


class _Merge(str):
    """The key of a dictionary whose entries are merged into another."""


def read_tree(source: Source, dialect: Dialect = YAML_1_1) -> YamlNode:
    """Parse a file of one YAML document.

    Scalars are strings, integers, floats, booleans or None, as YAML 1.1 has them; dates stay strings.

    Raises
    ------
    FormatError
        If it is no YAML, or has aliases that the dialect does not read, tags, several documents, a key twice or is
        nested too deeply.
    """
    return _TreeBuilder(source, dialect).root()


class _TreeBuilder:
    """Builds the tree from events, so that nothing in the file runs or recurses."""

    def __init__(self, source: Source, dialect: Dialect) -> None:
        import yaml

        self.source, self.dialect, self.yaml = source, dialect, yaml
        self.resolver, self.constructor = _resolver(yaml, dialect), yaml.constructor.SafeConstructor()
        self.open = [_Open(1, False)]
        self.anchors: dict[str, YamlNode] = {}
        self.aliased = 0

    def root(self) -> YamlNode:
        """Read all events."""
        for event in self._events():
            line = event.start_mark.line + 1
            if isinstance(event, self.yaml.AliasEvent):
                self._alias(line, event.anchor)
            elif isinstance(event, self.yaml.ScalarEvent):
                self._add(YamlNode(line, self._scalar(event, line)), event.anchor)
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

    def _alias(self, line: int, anchor: str) -> None:
        if not self.dialect.aliases:
            raise self._fail(line, "a file without aliases", f"*{shorten(anchor)}")
        if (part := self.anchors.get(anchor)) is None:
            raise self._fail(line, "the name of a value that is complete", f"*{shorten(anchor)}")
        self._mean_again(line, part)
        self._add(part)

    def _mean_again(self, line: int, part: YamlNode) -> None:
        """Count what an alias stands for."""
        self.aliased += part.size
        if self.aliased > _ALIASED_VALUES:
            raise self._fail(line, f"aliases that stand for at most {_ALIASED_VALUES:,} values in all", "more")
        self._check_depth(line, part.depth)

    def _check_depth(self, line: int, inside: int = 0) -> None:
        if len(self.open) + inside > MOST_LEVELS:
            raise self._fail(line, f"at most {MOST_LEVELS} levels", "more")

    def _begin(self, event: Any, line: int) -> None:
        if event.tag is not None:
            raise self._fail(line, "plain YAML", f"the tag {shorten(event.tag)}")
        self._check_depth(line)
        self.open.append(_Open(line, isinstance(event, self.yaml.MappingStartEvent), event.anchor))

    def _end(self) -> None:
        done = self.open.pop()
        value = self._dictionary(done) if done.keyed else done.parts
        self._add(YamlNode(done.line, value, done.size, done.depth + 1), done.anchor)

    def _dictionary(self, done: _Open) -> dict[Any, YamlNode]:
        found: dict[Any, YamlNode] = {}
        merged: list[YamlNode] = []
        long = 0
        for key, value in zip(done.parts[::2], done.parts[1::2], strict=True):
            if isinstance(key.value, list | dict):
                raise self._fail(key.line, "a key that is a word or number", "a list")
            if isinstance(key.value, _Merge):
                merged += self._merged(key, value)
                continue
            long += is_long(key.value)
            if long > _LONG_KEYS:
                raise self._fail(key.line, f"at most {_LONG_KEYS:,} keys that are numbers of many digits", "more")
            if key.value in found:
                raise self._fail(key.line, "every key once", f"{shorten(str(key.value))!r} again")
            found[key.value] = value
        for part in merged:
            for name, value in part.value.items():
                found.setdefault(name, value)
        return found

    def _merged(self, key: YamlNode, value: YamlNode) -> list[YamlNode]:
        """Return the dictionaries that are merged into another dictionary, in descending priority."""
        parts = value.value if isinstance(value.value, list) else [value]
        if not self.dialect.aliases or not all(isinstance(part.value, dict) for part in parts):
            raise self._fail(key.line, "a key that is a word or number", "the merging of dictionaries")
        for part in parts:
            self._mean_again(key.line, part)
        return parts

    def _add(self, part: YamlNode, anchor: str | None = None) -> None:
        self.source.allowance.take(ENTRY_BYTES, "its YAML")
        into = self.open[-1]
        into.parts.append(part)
        into.size += part.size
        if part.depth > into.depth:
            into.depth = part.depth
        if anchor is not None:
            self.anchors[anchor] = part

    def _scalar(self, event: Any, line: int) -> Any:
        node = self.yaml.ScalarNode(event.tag, event.value)
        plain = event.tag is None and event.implicit[0]
        kind = self.resolver.resolve(self.yaml.ScalarNode, event.value, (True, False)) if plain else event.tag
        kind = (kind or "str").removeprefix("tag:yaml.org,2002:")
        construct = getattr(self.constructor, f"construct_yaml_{kind}", None) if kind in _KINDS else None
        if event.tag is not None and construct is None and kind != "str":
            raise self._fail(line, "plain YAML", f"the tag {shorten(event.tag)}")
        if construct is None:
            return _Merge(event.value) if kind == "merge" else event.value
        if kind == "int":
            return self._integer(construct, node, line)
        try:
            value = construct(node)
            return Written(value, event.value) if isinstance(value, float) else value
        except (ValueError, OverflowError) as error:
            raise self._fail(line, "a number", f"{shorten(event.value)!r} ({error})") from None

    def _integer(self, construct: Any, node: Any, line: int) -> int:
        """Return an integer in any base of YAML's, none so long that Python would not write it."""
        text, most = node.value, sys.get_int_max_str_digits() or sys.int_info.default_max_str_digits
        try:
            value = int(construct(node)) if len(text) <= most else None
        except ValueError as error:
            raise self._fail(line, "a number", f"{shorten(text)!r} ({error})") from None
        if value is None or value.bit_length() > most * math.log2(10):
            found = f"{shorten(text)!r} ({len(text)} characters)"
            raise self._fail(line, f"a number of at most {most:,} digits", found)
        return value

    def _fail(self, line: int | None, expected: str, found: str) -> FormatError:
        return FormatError(self.source.path, line, expected, found)


def _resolver(yaml: Any, dialect: Dialect) -> Any:
    """Return the resolver that assigns kinds to plain words."""
    if not dialect.kinds:
        return yaml.resolver.Resolver()

    class Resolver(yaml.resolver.BaseResolver):  # type: ignore[misc]
        """Knows only some kinds."""

    for kind, pattern, beginnings in dialect.kinds:
        words = re.compile(rf"(?:{pattern})\Z")
        Resolver.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", words, list(beginnings))
    return Resolver()


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
        text = str(value).strip()
        found = value.exact if isinstance(value, Written) else Decimal(text if has_plain_digits(text) else "nan")
    except InvalidOperation:
        found = Decimal("nan")
    if isinstance(value, bool) or found.is_nan():
        raise FormatError(source.path, part.line, "a number", shown(part))
    return found


def shown(part: YamlNode) -> str:
    """Return a short description of a part."""
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
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    quoted = json.dumps(encodable(text), ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
