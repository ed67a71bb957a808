"""Bayesian networks in XML: the interchange format XMLBIF 0.3 and GeNIe's .xdsl."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..errors import FormatError, shorten
from ..models.function import compact
from ..models.model import Function, Model
from .text.source import Source
from .text.tables import MAX_AXES, cell_count
from .text.xml import Element, root_element


@dataclass
class _Network:
    """Variables and distributions as they are read."""

    source: Source
    names: dict[str, int] = field(default_factory=dict)
    states: list[tuple[str, ...]] = field(default_factory=list)
    functions: dict[int, Function] = field(default_factory=dict)

    def variable(self, at: Element, name: str, labels: list[str]) -> None:
        if not name or name in self.names:
            raise self.fail(at, "a variable with a name of its own", repr(shorten(name)))
        if not labels or len(set(labels)) < len(labels):
            raise self.fail(at, f"different states of variable {shorten(name)!r}", f"{len(labels)} states")
        self.names[name] = len(self.names)
        self.states.append(tuple(labels))

    def distribution(self, at: Element, child: str, parents: list[str], text: str) -> None:
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

    def _number(self, at: Element, word: str) -> float:
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

    def fail(self, at: Element, expected: str, found: str) -> FormatError:
        return FormatError(self.source.path, at.line, expected, found)


def read_xmlbif(source: Source) -> Model:
    """Read an XMLBIF 0.3 file (.bifxml): chance nodes with full tables.

    Raises
    ------
    FormatError
        If the file is malformed, declares entities, or has decision or utility nodes.
    """
    root = root_element(source, "BIF")
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
    root = root_element(source, "smile")
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
