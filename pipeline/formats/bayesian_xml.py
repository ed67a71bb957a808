"""Bayesian networks in XML: the interchange format XMLBIF 0.3 and GeNIe's .xdsl."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, shorten
from ..models.function import compact
from ..models.model import Function, Model
from .network_checks import Properties, checked
from .text.source import Source
from .text.tables import MAX_AXES, cell_count
from .text.xml import Element, root_element

# Of GeNIe's nodes, which have full tables; how nodes change with time.
_TABLES = ("cpt", "deterministic")
_IN_TIME = ("dynamic", "order")
# What nodes hold that is read.
_CPT = ("state", "parents", "probabilities")
_DETERMINISTIC = ("state", "parents", "resultingstates")


@dataclass
class _Network:
    """Variables and distributions as they are read."""

    source: Source
    names: dict[str, int] = field(default_factory=dict)
    states: list[tuple[str, ...]] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    places: list[Element] = field(default_factory=list)
    properties: Properties = field(default_factory=Properties)

    def variable(self, at: Element, name: str, labels: list[str]) -> None:
        if not name or name in self.names:
            raise self.fail(at, "a variable with a name of its own", repr(shorten(name)))
        if not labels or len(set(labels)) < len(labels):
            raise self.fail(at, f"different states of variable {shorten(name)!r}", f"{len(labels)} states")
        self.names[name] = len(self.names)
        self.states.append(tuple(labels))

    def scope(self, at: Element, child: str, parents: list[str]) -> tuple[int, ...]:
        """Return the indices of the parents and, last, of the child."""
        unknown = [name for name in (*parents, child) if name not in self.names]
        if unknown:
            raise self.fail(at, "a variable of the network", repr(shorten(unknown[0])))
        scope = tuple(self.names[name] for name in (*parents, child))
        if len(set(scope)) < len(scope) or len(scope) > MAX_AXES:
            found = f"{len(scope)} variables, of which at most {MAX_AXES} are read, or some twice"
            raise self.fail(at, f"one distribution of {shorten(child)!r}, over different variables", found)
        return scope

    def probabilities(self, at: Element, scope: tuple[int, ...], text: str) -> None:
        """Add a distribution; the first parent varies slowest, the child fastest."""
        words = self._words(at, scope, text, len(scope))
        values = np.array(self._numbers(at, text, words))
        if values.size and not (values.min() >= 0.0 and values.max() < math.inf):
            self._numbers_slowly(at, words)
        self._add(at, scope, values)

    def results(self, at: Element, scope: tuple[int, ...], text: str) -> None:
        """Add a function of the parents, whose value at each of their configurations is a state."""
        words, labels = self._words(at, scope, text, -1), self.states[scope[-1]]
        index = {label: k for k, label in enumerate(labels)}
        if unknown := [word for word in words if word not in index]:
            raise self.fail(at, "states of the node", repr(shorten(unknown[0])))
        values = np.zeros((len(words), len(labels)))
        values[np.arange(len(words)), [index[word] for word in words]] = 1.0
        self._add(at, scope, values)

    def _words(self, at: Element, scope: tuple[int, ...], text: str, stop: int) -> list[str]:
        """Split a text into as many words as some variables of a scope have joint states."""
        dims = [len(labels) for labels in self.states]
        words, count = text.split(), cell_count(scope[:stop], dims)
        if len(words) != count:
            what = "probabilities" if stop >= 0 else "resulting states"
            raise self.fail(at, f"{count} {what} of {shorten(list(self.names)[scope[-1]])!r}", f"{len(words)}")
        cells = cell_count(scope, dims)
        self.source.allowance.take(40 * cells, f"a table of {cells} entries")
        return words

    def _add(self, at: Element, scope: tuple[int, ...], values: NDArray[np.float64]) -> None:
        shape = [len(self.states[v]) for v in scope]
        self.functions.append(compact(Function(scope, values.reshape(shape), child=scope[-1])))
        self.places.append(at)

    def _numbers(self, at: Element, text: str, words: list[str]) -> list[float]:
        # float() takes "1_000" and digits of any script, which no format has.
        if text.isascii() and "_" not in text:
            try:
                return list(map(float, words))
            except ValueError:
                pass
        return self._numbers_slowly(at, words)

    def _numbers_slowly(self, at: Element, words: list[str]) -> list[float]:
        return [self._number(at, word) for word in words]

    def _number(self, at: Element, word: str) -> float:
        try:
            number = float(word) if word.isascii() and "_" not in word else math.nan
        except ValueError:
            number = math.nan
        if not 0.0 <= number < math.inf:
            raise self.fail(at, "finite numbers of at least 0", repr(shorten(word)))
        return number

    def model(self, root: Element, name: str, *, counts: bool = False) -> Model:
        """Return the network, checked; tables may hold ``counts``."""
        if not self.names:
            raise self.fail(root, "a network with variables", "none")
        dims, name = tuple(map(len, self.states)), name or self.source.stem
        notes = self.properties.notes()
        model = Model(
            "bayes", tuple(self.names), dims, tuple(self.states), tuple(self.functions), name=name, notes=notes
        )
        if not self.source.checked:
            return model
        places = self.places
        return checked(model, lambda f, *what: self.fail(root if f is None else places[f], *what), counts=counts)

    def only(self, at: Element, tags: Collection[str], single: Collection[str] = ()) -> None:
        """Refuse elements of other names, and a second one of those of which there may be a ``single`` one."""
        seen: set[str] = set()
        for child in at.children:
            if child.tag not in tags:
                raise self.fail(child, f"<{'>, <'.join(tags)}>", f"<{shorten(child.tag)}>, which is not read")
            if child.tag in seen and child.tag in single:
                raise self.fail(child, f"one <{child.tag}>", "another")
            seen.add(child.tag)

    def passes(self, at: Element, read: Collection[str], elements: Collection[str] = ()) -> None:
        """Note attributes that are not read, and elements of which nothing is."""
        for name in at.attributes:
            if name not in read:
                self.properties.passed[f"attribute {name}"] = None
        for child in at.children:
            if child.tag in elements:
                self.properties.passed[f"element {child.tag}"] = None

    def fail(self, at: Element, expected: str, found: str) -> FormatError:
        return FormatError(self.source.path, at.line, expected, found)


def read_xmlbif(source: Source) -> Model:
    """Read an XMLBIF 0.3 file (.bifxml): chance nodes with full tables.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, declares entities, or has decision or utility nodes.
    """
    root = root_element(source, "BIF")
    network = _Network(source)
    inside = next(root.every("NETWORK"), root)
    if inside is not root:
        network.only(root, ("NETWORK",), ("NETWORK",))
    network.only(inside, ("NAME", "PROPERTY", "VARIABLE", "DEFINITION"), ("NAME",))
    network.passes(root, ("VERSION",))
    _properties(network, inside)
    for element in inside.every("VARIABLE"):
        network.only(element, ("NAME", "OUTCOME", "PROPERTY"), ("NAME",))
        if (kind := element.attributes.get("TYPE", "nature")) != "nature":
            raise network.fail(element, "nodes of nature", f"a node of kind {shorten(kind)!r}, which is not read")
        network.passes(element, ("TYPE",))
        network.variable(element, "".join(element.words("NAME")), element.words("OUTCOME"))
        _properties(network, element, [*network.names][-1])
    for element in inside.every("DEFINITION"):
        network.only(element, ("FOR", "GIVEN", "TABLE", "PROPERTY"), ("FOR", "TABLE"))
        network.passes(element, ())
        _properties(network, element)
        scope = network.scope(element, "".join(element.words("FOR")), element.words("GIVEN"))
        network.probabilities(element, scope, "".join(element.words("TABLE")))
    return network.model(root, "".join(inside.words("NAME")))


def _properties(network: _Network, at: Element, variable: str = "") -> None:
    for element in at.every("PROPERTY"):
        if (found := network.properties.add(element.text, variable)) is not None:
            raise network.fail(element, "one network", found)


def read_xdsl(source: Source) -> Model:
    """Read a GeNIe file (.xdsl): nodes with full tables or of functions, named by their identifiers.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, declares entities, or has nodes of other kinds.
    """
    root = root_element(source, "smile")
    network = _Network(source)
    for part in root.every("dynamic"):
        raise network.fail(part, "one point in time", "a dynamic network (<dynamic>), which is not read")
    network.only(root, ("nodes", "extensions", "properties", "property", "observationcost"), ("nodes",))
    network.passes(root, ("version", "id"), ("extensions", "properties", "property", "observationcost"))
    nodes = [node for part in root.every("nodes") for node in part.children]
    for node in nodes:
        _xdsl_variable(network, node)
    first_fastest = _is_agrum(root)
    for node in nodes:
        parents = " ".join(node.words("parents")).split()
        if len(parents) > 1 and first_fastest:
            found = "one of pyAgrum's; let it save .bifxml or .bif"
            raise network.fail(node, "tables with the first parent slowest", found)
        scope = network.scope(node, node.attributes["id"], parents)
        if node.tag == "cpt":
            network.probabilities(node, scope, " ".join(node.words("probabilities")))
        else:
            network.results(node, scope, " ".join(node.words("resultingstates")))
    return network.model(root, root.attributes.get("id", ""), counts=True)


def _is_agrum(root: Element) -> bool:
    """Whether pyAgrum wrote a file: its tables have the first parent fastest."""
    apps = [genie.attributes.get("app", "") for part in root.every("extensions") for genie in part.every("genie")]
    return any("agrum" in app.lower() for app in apps)


def _xdsl_variable(network: _Network, node: Element) -> None:
    if node.tag not in _TABLES:
        kind = f"a node of kind {shorten(node.tag)!r}, which is not read"
        raise network.fail(node, "nodes with full tables (cpt, deterministic)", kind)
    for name in _IN_TIME:
        if name in node.attributes:
            raise network.fail(node, "one point in time", f"a node with the attribute {name!r}, which is not read")
    read = _CPT if node.tag == "cpt" else _DETERMINISTIC
    network.only(node, (*read, "property"), read[1:])
    network.passes(node, ("id",), ("property",))
    for state in node.every("state"):
        network.passes(state, ("id",))
    labels = [state.attributes.get("id", "") for state in node.every("state")]
    network.variable(node, node.attributes.get("id", ""), labels)
