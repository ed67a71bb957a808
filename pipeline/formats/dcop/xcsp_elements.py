"""Elements and attributes of XCSP 2.1, including FRODO's, and of XDisCSP: read, descriptive, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import shorten
from ..text.xml import Element
from .draft import Draft

_REFUSED = {
    "quantification": "quantified variables (QCSP), which are not read",
    "probabilities": "random variables (of FRODO's stochastic problems), which are not read",
}
_TYPES = ("", "csp", "wcsp", "cop", "discsp", "dcop")


@dataclass(frozen=True)
class _Kind:
    """Elements of a tag.

    Parameters
    ----------
    attributes : str
        Those that are read.
    describing : str
        Attributes that only describe, or that are compared with the actual counts.
    children : str
        Tags of elements inside, in any number.
    ignored : str
        Tags of elements that only describe.
    counts : mapping of str to str
        Attributes that say how many children of a tag there are.
    holds_text : bool
        Whether it is made of text alone: elements inside are another notation.
    """

    attributes: str = ""
    describing: str = ""
    children: str = ""
    ignored: str = ""
    counts: Mapping[str, str] = field(default_factory=dict)
    holds_text: bool = False

    @property
    def known(self) -> frozenset[str]:
        """All attributes."""
        return frozenset([*self.attributes.split(), *self.describing.split(), *self.counts])


_SECTIONS = "presentation agents domains variables relations predicates functions constraints"
_KINDS = {
    "instance": _Kind(children=_SECTIONS, ignored="GuiPresentation"),
    "presentation": _Kind(
        "name maximize type constraintModel maxConstraintArity nbSolutions minViolatedConstraints solution",
        "format benchmark model description",
        ignored="stats",
    ),
    "agents": _Kind("self", children="agent", counts={"nbAgents": "agent"}),
    "agent": _Kind("name", "id description"),
    "domains": _Kind(children="domain", counts={"nbDomains": "domain"}),
    "domain": _Kind("name nbValues", "id description", holds_text=True),
    "variables": _Kind(children="variable", counts={"nbVariables": "variable"}),
    "variable": _Kind("name domain agent type scope", "id description"),
    "relations": _Kind(children="relation", counts={"nbRelations": "relation"}),
    "relation": _Kind("name arity nbTuples semantics defaultCost", "id description", holds_text=True),
    "predicates": _Kind(children="predicate", counts={"nbPredicates": "predicate"}),
    "predicate": _Kind("name", "id description", children="parameters expression"),
    "functions": _Kind(children="function", counts={"nbFunctions": "function"}),
    "function": _Kind("name return", "id description", children="parameters expression"),
    "expression": _Kind(children="functional", ignored="infix postfix math"),
    "functional": _Kind(holds_text=True),
    "constraints": _Kind("maximalCost initialCost", children="constraint", counts={"nbConstraints": "constraint"}),
    "constraint": _Kind("name arity scope reference agent model", "id description", children="parameters"),
    # Of global constraints, which are refused, parameters are elements too.
    "parameters": _Kind(),
}
_KNOWN = {tag: kind.known for tag, kind in _KINDS.items()}
_CHILDREN = {tag: frozenset(kind.children.split()) for tag, kind in _KINDS.items()}
_IGNORED = {tag: frozenset(kind.ignored.split()) for tag, kind in _KINDS.items()}


def check_elements(root: Element, draft: Draft) -> None:
    """Look at every element and attribute: refuse what changes the problem, and note what is passed over.

    Raises
    ------
    FormatError
        If there is a section twice, another notation, or a problem of another kind.
    """
    sections: set[str] = set()
    for section in root.children:
        if section.tag in _REFUSED:
            raise draft.fail(section.line, "a problem of costs and constraints", _REFUSED[section.tag])
        if section.tag in sections and section.tag in _CHILDREN["instance"]:
            raise draft.fail(section.line, f"one section <{section.tag}>", "a second one")
        sections.add(section.tag)
    _look(root, draft)


def _look(element: Element, draft: Draft) -> None:
    tag = element.tag
    if not element.attributes.keys() <= _KNOWN[tag]:
        _note_attributes(element, draft)
    kind = _KINDS[tag]
    for name, child in kind.counts.items():
        if name in element.attributes:
            check_count(element, name, sum(each.tag == child for each in element.children), draft)
    if tag == "parameters":
        return
    for each in element.children:
        if each.tag in _CHILDREN[tag]:
            _look(each, draft)
        elif kind.holds_text:
            raise draft.fail(each.line, f"<{tag}> as text", f"the element <{shorten(each.tag)}>, which is not read")
        elif each.tag not in _IGNORED[tag]:
            draft.note(each.line, f"the element <{shorten(each.tag)}> in <{tag}>", "is not read")


def _note_attributes(element: Element, draft: Draft) -> None:
    """Note attributes that the format does not define; attributes of schemas have other name spaces."""
    for name in element.attributes:
        if name not in _KNOWN[element.tag] and ":" not in name and name != "xmlns":
            draft.note(element.line, f"the attribute {shorten(name)!r} of <{element.tag}>", "is not read")


def check_count(element: Element, name: str, count: int, draft: Draft) -> None:
    """Note an attribute that counts wrongly; "?" is not known."""
    said = element.attributes[name].strip()
    if said not in (str(count), "?"):
        what = f"the attribute {name!r} of <{element.tag}>"
        draft.note(element.line, what, f"is wrong: it says {shorten(said)!r}, but there are {count}")


def read_presentation(element: Element, draft: Draft) -> None:
    """Read a problem's name, and whether it is maximised.

    Raises
    ------
    FormatError
        If it is a problem of another type.
    """
    attributes = element.attributes
    draft.name = attributes.get("name", "")
    maximize = attributes.get("maximize", "false").strip().lower()
    if maximize not in ("true", "false"):
        raise draft.fail(element.line, "maximize true or false", repr(shorten(maximize)))
    draft.maximize = maximize == "true"
    kind = attributes.get("type", "").strip()
    if kind.lower().startswith(("qcsp", "max")):
        raise draft.fail(element.line, "a problem of costs and constraints", f"one of type {shorten(kind)!r}")
    if kind.lower() not in _TYPES:
        draft.note(element.line, f"the type {shorten(kind)!r} of <presentation>", "is not read")
    if (model := attributes.get("constraintModel", "TKC").strip()) != "TKC":
        draft.note(
            element.line, f"the constraintModel {shorten(model)!r}", "is not read: all constraints count for all agents"
        )
    for name in ("nbSolutions", "minViolatedConstraints", "solution"):
        if attributes.get(name, "?").strip() not in ("?", ""):
            draft.note(element.line, f"the attribute {name!r} of <presentation>", "is not compared with answers")


def check_arity(root: Element, largest: int, draft: Draft) -> None:
    """Compare what the presentation says of the largest scope."""
    for element in root.every("presentation"):
        if "maxConstraintArity" in element.attributes:
            check_count(element, "maxConstraintArity", largest, draft)
