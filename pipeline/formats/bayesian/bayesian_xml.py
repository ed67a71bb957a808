"""Bayesian networks in XML: the interchange format XMLBIF 0.3 and GeNIe's .xdsl."""

from __future__ import annotations

from collections.abc import Collection

from ...errors import FormatError, shorten
from ...models.model import Model
from ..text.source import Source
from ..text.xml import Element, root_element
from .network_draft import NetworkDraft, strength_ordered

# Elements read from each kind of GeNIe's nodes; elements that describe changes over time.
_READ = {
    "cpt": ("state", "parents", "probabilities"),
    "deterministic": ("state", "parents", "resultingstates"),
    "noisymax": ("state", "parents", "strengths", "parameters"),
}
_IN_TIME = ("dynamic", "order")


class _XmlDraft(NetworkDraft[Element]):
    """A network whose parts are elements."""

    def __init__(self, source: Source):
        super().__init__(source, lambda at, *what: FormatError(source.path, at.line, *what))

    def only(self, at: Element, tags: Collection[str], single: Collection[str] = ()) -> None:
        """Refuse elements with other names, and a second element of a ``single`` name."""
        seen: set[str] = set()
        for child in at.children:
            if child.tag not in tags:
                raise self.refuse(child, f"<{'>, <'.join(tags)}>", f"<{shorten(child.tag)}>, which is not read")
            if child.tag in seen and child.tag in single:
                raise self.refuse(child, f"one <{child.tag}>", "a second one")
            seen.add(child.tag)

    def passes(self, at: Element, read: Collection[str], elements: Collection[str] = ()) -> None:
        """Note attributes that are not read, and elements that are not read at all."""
        for name in at.attributes:
            if name not in read:
                self.properties.passed[f"attribute {name}"] = None
        for child in at.children:
            if child.tag in elements:
                self.properties.passed[f"element {child.tag}"] = None


def read_xmlbif(source: Source) -> Model:
    """Read an XMLBIF 0.3 file (.bifxml): chance nodes with full tables.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, declares entities, or has decision or utility nodes.
    """
    root = root_element(source, "BIF")
    network = _XmlDraft(source)
    inside = next(root.every("NETWORK"), root)
    if inside is not root:
        network.only(root, ("NETWORK",), ("NETWORK",))
    network.only(inside, ("NAME", "PROPERTY", "VARIABLE", "DEFINITION"), ("NAME",))
    network.passes(root, ("VERSION",))
    _properties(network, inside)
    for element in inside.every("VARIABLE"):
        network.only(element, ("NAME", "OUTCOME", "PROPERTY"), ("NAME",))
        if (kind := element.attributes.get("TYPE", "nature")) != "nature":
            raise network.refuse(element, "nodes of nature", f"a node of kind {shorten(kind)!r}, which is not read")
        network.passes(element, ("TYPE",))
        network.variable(element, "".join(element.words("NAME")), element.words("OUTCOME"))
        _properties(network, element, [*network.names][-1])
    for element in inside.every("DEFINITION"):
        network.only(element, ("FOR", "GIVEN", "TABLE", "PROPERTY"), ("FOR", "TABLE"))
        network.passes(element, ())
        _properties(network, element)
        scope = network.scope(element, "".join(element.words("FOR")), element.words("GIVEN"))
        network.probabilities(element, scope, "".join(element.words("TABLE")).split())
    return network.model(root, "".join(inside.words("NAME")))


def _properties(network: _XmlDraft, at: Element, variable: str = "") -> None:
    for element in at.every("PROPERTY"):
        if (found := network.properties.add(element.text, variable)) is not None:
            raise network.refuse(element, "one network", found)


def read_xdsl(source: Source) -> Model:
    """Read a GeNIe file (.xdsl): nodes with full tables, of functions or noisy maxima, named by their identifiers.

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, declares entities, or has nodes of other kinds.
    """
    root = root_element(source, "smile")
    network = _XmlDraft(source)
    for part in root.every("dynamic"):
        raise network.refuse(part, "one point in time", "a dynamic network (<dynamic>), which is not read")
    network.only(root, ("nodes", "extensions", "properties", "property", "observationcost"), ("nodes",))
    network.passes(root, ("version", "id"), ("extensions", "properties", "property", "observationcost"))
    nodes = [node for part in root.every("nodes") for node in part.children]
    for node in nodes:
        _xdsl_variable(network, node)
    # pyAgrum writes these tables in the other order than GeNIe, and the file does not say so
    first_fastest = _is_agrum(root)
    for node in nodes:
        parents = _listed(node, "parents")
        if len(parents) > 1 and first_fastest:
            found = "one of pyAgrum's; let it save .bifxml or .bif"
            raise network.refuse(node, "tables with the first parent slowest", found)
        if node.tag == "noisymax":
            scope = network.scope(node, node.attributes["id"], parents, len(nodes))
            words = _listed(node, "parameters")
            network.chain(node, strength_ordered(network, node, scope, words, _listed(node, "strengths")))
            continue
        scope = network.scope(node, node.attributes["id"], parents)
        if node.tag == "cpt":
            network.probabilities(node, scope, _listed(node, "probabilities"))
        else:
            network.results(node, scope, _listed(node, "resultingstates"))
    return network.model(root, root.attributes.get("id", ""), counts=True)


def _listed(node: Element, tag: str) -> list[str]:
    return " ".join(node.words(tag)).split()


def _is_agrum(root: Element) -> bool:
    """Whether pyAgrum wrote a file: its tables have the first parent fastest."""
    apps = [genie.attributes.get("app", "") for part in root.every("extensions") for genie in part.every("genie")]
    return any("agrum" in app.lower() for app in apps)


def _xdsl_variable(network: _XmlDraft, node: Element) -> None:
    if (read := _READ.get(node.tag)) is None:
        kind = f"a node of kind {shorten(node.tag)!r}, which is not read"
        raise network.refuse(node, f"nodes of chance ({', '.join(_READ)})", kind)
    for name in _IN_TIME:
        if name in node.attributes:
            raise network.refuse(node, "one point in time", f"a node with the attribute {name!r}, which is not read")
    network.only(node, (*read, "property"), read[1:])
    network.passes(node, ("id",), ("property",))
    for state in node.every("state"):
        network.passes(state, ("id",))
    labels = [state.attributes.get("id", "") for state in node.every("state")]
    network.variable(node, node.attributes.get("id", ""), labels)
