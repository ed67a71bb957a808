"""Bayesian networks in XML: the interchange format XMLBIF 0.3 and GeNIe's .xdsl."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

import numpy as np

from ..errors import FormatError, shorten
from ..models.function import compact
from ..models.model import Function, Model
from .text.source import Source
from .text.tables import MAX_AXES, cell_count

_CHUNK_BYTES = 1 << 20
_MAX_DEPTH = 64
# An element with its lists, a variable with its place in the model.
_ELEMENT_BYTES = 1024


@dataclass
class _Element:
    tag: str
    line: int
    attributes: dict[str, str]
    children: list[_Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts).strip()

    def every(self, tag: str) -> Iterator[_Element]:
        return (child for child in self.children if child.tag == tag)

    def words(self, tag: str) -> list[str]:
        """The text of every child of a name."""
        return [child.text for child in self.every(tag)]


class _Parser:
    """Builds the tree of elements, within the memory for reading; entities are refused."""

    def __init__(self, source: Source):
        self.source, self.open = source, [_Element("", 1, {})]
        self.expat = expat.ParserCreate()
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = lambda _: self.open.pop()
        self.expat.CharacterDataHandler = self._text
        self.expat.EntityDeclHandler = self._entity

    def root(self) -> _Element:
        """Parse the file."""
        data = self.source.data
        try:
            for start in range(0, len(data), _CHUNK_BYTES):
                self.expat.Parse(bytes(data[start : start + _CHUNK_BYTES]), False)
            self.expat.Parse(b"", True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise FormatError(self.source.path, self.expat.ErrorLineNumber, "well-formed XML", str(error)) from None
        return self.open[0].children[0]

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.open) > _MAX_DEPTH:
            raise self.fail(f"at most {_MAX_DEPTH} elements inside each other", "more")
        size = _ELEMENT_BYTES + 64 * len(attributes) + sum(map(len, attributes.values()))
        self.source.allowance.take(size, "its XML elements")
        element = _Element(tag, self.expat.CurrentLineNumber, attributes)
        self.open[-1].children.append(element)
        self.open.append(element)

    def _text(self, text: str) -> None:
        if not text.isspace():
            self.source.allowance.take(64 + len(text), "its texts")
        self.open[-1].texts.append(text if not text.isspace() else " ")

    def _entity(self, name: str, *_: Any) -> None:
        raise self.fail("a file without entities", f"the entity {shorten(name)!r}")

    def fail(self, expected: str, found: str) -> FormatError:
        return FormatError(self.source.path, self.expat.CurrentLineNumber, expected, found)


@dataclass
class _Network:
    """Variables and distributions as they are read."""

    source: Source
    names: dict[str, int] = field(default_factory=dict)
    states: list[tuple[str, ...]] = field(default_factory=list)
    functions: dict[int, Function] = field(default_factory=dict)

    def variable(self, at: _Element, name: str, labels: list[str]) -> None:
        if not name or name in self.names:
            raise self.fail(at, "a variable with a name of its own", repr(shorten(name)))
        if not labels or len(set(labels)) < len(labels):
            raise self.fail(at, f"different states of variable {shorten(name)!r}", f"{len(labels)} states")
        self.names[name] = len(self.names)
        self.states.append(tuple(labels))

    def distribution(self, at: _Element, child: str, parents: list[str], text: str) -> None:
        """Add a distribution; the first parent varies slowest, the child fastest."""
        unknown = [name for name in (*parents, child) if name not in self.names]
        if unknown:
            raise self.fail(at, "a variable of the network", repr(shorten(unknown[0])))
        scope = tuple(self.names[name] for name in (*parents, child))
        if len(set(scope)) < len(scope) or scope[-1] in self.functions or len(scope) > MAX_AXES:
            raise self.fail(at, f"one distribution of {shorten(child)!r}, over different variables", "another")
        dims = [len(labels) for labels in self.states]
        words = text.split()
        if len(words) != (cells := cell_count(scope, dims)):
            raise self.fail(at, f"{cells} probabilities of {shorten(child)!r}", f"{len(words)}")
        self.source.allowance.take(40 * cells, f"a table of {cells} entries")
        values = np.array([self._number(at, word) for word in words]).reshape([dims[v] for v in scope])
        self.functions[scope[-1]] = compact(Function(scope, values, child=scope[-1]))

    def _number(self, at: _Element, word: str) -> float:
        try:
            number = float(word) if word.isascii() and "_" not in word else math.nan
        except ValueError:
            number = math.nan
        if not 0.0 <= number < math.inf:
            raise self.fail(at, "finite numbers of at least 0", repr(shorten(word)))
        return number

    def model(self, name: str) -> Model:
        missing = [variable for variable, v in self.names.items() if v not in self.functions]
        if missing or not self.names:
            raise FormatError(
                self.source.path, None, "a network with a distribution of every variable", f"none of {missing[:1]}"
            )
        dims = tuple(len(labels) for labels in self.states)
        functions = tuple(self.functions.values())
        return Model("bayes", tuple(self.names), dims, tuple(self.states), functions, name=name or self.source.stem)

    def fail(self, at: _Element, expected: str, found: str) -> FormatError:
        return FormatError(self.source.path, at.line, expected, found)


def read_xmlbif(source: Source) -> Model:
    """Read an XMLBIF 0.3 file (.bifxml): chance nodes with full tables.

    Raises
    ------
    FormatError
        If the file is malformed, declares entities, or has decision or utility nodes.
    """
    root = _root(source, "BIF")
    inside = next(root.every("NETWORK"), root)
    network = _Network(source)
    for element in inside.every("VARIABLE"):
        if (kind := element.attributes.get("TYPE", "nature")) != "nature":
            raise network.fail(element, "nodes of nature", f"a node of kind {shorten(kind)!r}, which is not read")
        network.variable(element, "".join(element.words("NAME")), element.words("OUTCOME"))
    for element in inside.every("DEFINITION"):
        texts = " ".join(element.words("TABLE"))
        network.distribution(element, "".join(element.words("FOR")), element.words("GIVEN"), texts)
    return network.model("".join(inside.words("NAME")))


def read_xdsl(source: Source) -> Model:
    """Read a GeNIe file (.xdsl): nodes with full tables (``cpt``), named by their identifiers.

    Raises
    ------
    FormatError
        If the file is malformed, declares entities, or has nodes of other kinds.
    """
    root = _root(source, "smile")
    nodes = [node for part in root.every("nodes") for node in part.children]
    network = _Network(source)
    for node in nodes:
        if node.tag != "cpt":
            kind = f"a node of kind {shorten(node.tag)!r}, which is not read"
            raise network.fail(node, "nodes with full tables (cpt)", kind)
        labels = [state.attributes.get("id", "") for state in node.every("state")]
        network.variable(node, node.attributes.get("id", ""), labels)
    apps = [genie.attributes.get("app", "") for part in root.every("extensions") for genie in part.every("genie")]
    for node in nodes:
        parents = " ".join(node.words("parents")).split()
        if len(parents) > 1 and any("agrum" in app.lower() for app in apps):
            # It lists them with the first parent fastest.
            found = "one of pyAgrum's; let it save .bifxml or .bif"
            raise network.fail(node, "tables with the first parent slowest", found)
        network.distribution(node, node.attributes["id"], parents, " ".join(node.words("probabilities")))
    return network.model(root.attributes.get("id", ""))


def _root(source: Source, tag: str) -> _Element:
    root = _Parser(source).root()
    if root.tag != tag:
        raise FormatError(source.path, root.line, f"<{tag}>", f"<{shorten(root.tag)}>")
    return root
