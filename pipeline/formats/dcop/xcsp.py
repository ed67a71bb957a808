"""XCSP 2.1 as FRODO writes it, and XDisCSP: agents, domains, relations of tuples, predicates and functions.

Each element and attribute of these formats is read, descriptive, or refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from html import escape
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import LARGEST_INT32
from ...errors import printable, shorten
from ...models.dcop import Agent, Dcop
from ...models.model import FORBIDDEN, Model
from ..decimal_costs import Number
from ..format_policy import STATE_BYTES
from ..text.source import Source
from ..text.tables import cell_count
from ..text.written_words import (
    ListedFunction,
    WrittenFile,
    WrittenWords,
    cost_text,
    highest_costs,
    listed,
    lost_of_agents,
    lost_top,
    words_of,
    written_top,
)
from ..text.xml import Element, root_element
from .draft import Draft, Given
from .predicates import Intension, read_intensions, tabulated

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


# Global constraints of XCSP 2.1 that are read: allDifferent, as a constraint of each two variables.

_ALL_DIFFERENT = "global:alldifferent"


def is_all_different(reference: str) -> bool:
    """Whether a constraint refers to allDifferent."""
    return "".join(reference.split()).lower() == _ALL_DIFFERENT


def all_different(name: str, element: Element, scope: tuple[int, ...], draft: Draft) -> Iterator[Given]:
    """Yield what forbids that two variables have one value; their values count, not the places in their domains.

    Raises
    ------
    FormatError
        If parameters are not the variables of the scope.
    """
    words = " ".join(element.words("parameters")).replace("[", " ").replace("]", " ").split()
    if words and {*words} != {other for other, v in draft.names.items() if v in scope}:
        raise draft.fail(element.line, "the variables of the scope as parameters", repr(shorten(" ".join(words))))
    for k, (x, y) in enumerate(combinations(scope, 2)):
        draft.take_costs(element.line, 0, (x, y), dense=True)
        equal = np.equal.outer(*(np.array(draft.labels[v], object) for v in (x, y)))
        costs = np.where(equal.astype(bool), FORBIDDEN, 0).ravel()
        yield Given(f"{name}.{k}" if len(scope) > 2 else name, element.line, (x, y), costs)


_RANGE = re.compile(r"([+-]?[0-9]+)\.\.([+-]?[0-9]+)")
_COUNT = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_INFINITE = {"infinity": "inf", "+infinity": "inf", "-infinity": "-inf"}
_MAX_DIGITS = 1000
_MAX_ARITY = 10_000
_SEMANTICS = ("soft", "supports", "conflicts")


Labels = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class _Tuples:
    """Tuples as state indices, and their costs."""

    rows: NDArray[np.int32]
    costs: list[Number]


@dataclass(frozen=True, eq=False)
class _Relation:
    """A relation. Its text is read for the domains of the constraints that refer to it."""

    element: Element
    arity: int
    semantics: str
    default: Number
    read: dict[Labels, _Tuples] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether the cost of unlisted tuples is not given."""
        return self.semantics == "soft" and "defaultCost" not in self.element.attributes


def read_xcsp(source: Source) -> Dcop:
    """Read an XCSP 2.1 problem with agents (.xml).

    Without a section of agents, the agents are the agents named by variables, or every variable gets its own.

    ``initialCost`` is a function of no variables; totals of ``maximalCost`` are forbidden.

    Raises
    ------
    FormatError
        If the file is malformed, a variable has no agent, a constraint is another global one than allDifferent, or
        something else is there that changes the problem.
    """
    root = root_element(source, "instance")
    draft = Draft(source)
    check_elements(root, draft)
    for element in root.every("presentation"):
        read_presentation(element, draft)
    for section in root.every("agents"):
        if "self" in section.attributes:
            draft.note(section.line, "the attribute 'self' of <agents>", "is not read: the file is read as a whole")
    for agent in _inside(root, "agents", "agent"):
        draft.agent(agent.line, Agent(agent.attributes.get("name", "")))
    domains = {name: _domain(e, draft) for name, e in _named(root, "domains", "domain", draft)}
    alone = not draft.agents
    for variable in _inside(root, "variables", "variable"):
        _read_variable(variable, domains, draft, alone)
    relations = {name: _relation(e, draft) for name, e in _named(root, "relations", "relation", draft)}
    intensions = read_intensions(root, draft)
    _read_bounds(root, draft)
    constraints = _inside(root, "constraints", "constraint")
    for constraint in constraints:
        draft.given += _constraint(constraint, relations, intensions, draft)
    largest = max((len(c.attributes.get("scope", "").split()) for c in constraints), default=0)
    check_arity(root, largest, draft)
    return draft.dcop()


def _inside(root: Element, section: str, tag: str) -> list[Element]:
    return [element for part in root.every(section) for element in part.every(tag)]


def _named(root: Element, section: str, tag: str, draft: Draft) -> Iterator[tuple[str, Element]]:
    """Elements of a section that others refer to, by name."""
    seen: set[str] = set()
    for element in _inside(root, section, tag):
        if (name := _name(element, draft)) in seen:
            raise draft.fail(element.line, f"a {tag} with a name of its own", repr(shorten(name)))
        seen.add(name)
        yield name, element


def _name(element: Element, draft: Draft) -> str:
    name = element.attributes.get("name", "")
    if not name:
        raise draft.fail(element.line, f"a {element.tag} with a name", "no name")
    return name


def _domain(element: Element, draft: Draft) -> tuple[str, ...]:
    name, words = _name(element, draft), element.text.split()
    if not words:
        count = element.attributes.get("nbValues", "")
        if not _COUNT.fullmatch(count) or not int(count[:12]):
            raise draft.fail(element.line, f"the values of domain {shorten(name)!r}", "none")
        words = [f"1..{count}"]
    labels: list[str] = []
    for word in words:
        if (bounds := _RANGE.fullmatch(word)) is None:
            draft.take_states(1)
            labels.append(word)
            continue
        if max(map(len, bounds.groups())) > _MAX_DIGITS:
            raise draft.fail(element.line, f"numbers of at most {_MAX_DIGITS} digits in a range", repr(shorten(word)))
        low, high = map(int, bounds.groups())
        if not low <= high <= low + LARGEST_INT32:
            raise draft.fail(element.line, "a range such as 1..10", repr(shorten(word)))
        draft.take_states(high - low + 1)
        labels.extend(map(str, range(low, high + 1)))
    if "nbValues" in element.attributes:
        check_count(element, "nbValues", len(labels), draft)
    return draft.domain(element.line, name, labels)


def _read_variable(element: Element, domains: Mapping[str, tuple[str, ...]], draft: Draft, alone: bool) -> None:
    name, domain = _name(element, draft), element.attributes.get("domain", "")
    if domain not in domains:
        raise draft.fail(element.line, f"a domain of variable {shorten(name)!r}", repr(shorten(domain)))
    v = draft.variable(element.line, name, domains[domain])
    _check_variable(element, draft)
    agent = element.attributes.get("agent")
    if alone:
        agent = agent or name
        if agent not in draft.agents:
            draft.agent(element.line, Agent(agent))
    if agent is None:
        raise draft.fail(element.line, f"the agent of variable {shorten(name)!r}", "no owner")
    if agent not in draft.agents:
        raise draft.fail(element.line, "an agent of the problem", f"the unknown agent {shorten(agent)!r}")
    draft.owners[v] = agent


def _check_variable(element: Element, draft: Draft) -> None:
    kind = element.attributes.get("type", "").strip()
    if kind == "random":
        raise draft.fail(element.line, "a variable that is decided", "one of type 'random', which is not read")
    for name in ("type", "scope"):
        if name in element.attributes:
            draft.note(element.line, f"the attribute {name!r} of <variable>", "is not read")


def _read_bounds(root: Element, draft: Draft) -> None:
    """Read what every assignment costs besides, and from where on totals are forbidden."""
    for element in root.every("constraints"):
        initial = _number(element.attributes.get("initialCost", "0"), element, draft)
        if initial:
            draft.given.append(Given("initialCost", element.line, (), [initial]))
        top = _number(element.attributes.get("maximalCost", "infinity"), element, draft)
        if isinstance(top, int) or top.is_finite():
            draft.top = top
        if draft.top is not None and draft.maximize:
            raise draft.fail(element.line, "no maximalCost where utilities are maximised", str(top))


def _number(text: str, element: Element, draft: Draft) -> Number:
    text = text.strip()
    if text in _INFINITE:
        return Decimal(_INFINITE[text])
    try:
        return int(text) if _COUNT.fullmatch(text) else Decimal(text if _NUMBER.fullmatch(text) else "none")
    except (ValueError, InvalidOperation):
        raise draft.fail(element.line, "a cost, a number or infinity", repr(shorten(text))) from None


def _relation(element: Element, draft: Draft) -> _Relation:
    text, attributes = element.text, element.attributes
    semantics = attributes.get("semantics", "soft" if ":" in text else "supports")
    if semantics not in _SEMANTICS:
        raise draft.fail(element.line, f"semantics {', '.join(_SEMANTICS)}", repr(shorten(semantics)))
    arity = attributes.get("arity", str(len(text.partition("|")[0].rpartition(":")[2].split())))
    if not _COUNT.fullmatch(arity) or not 0 < int(arity[:9]) <= _MAX_ARITY:
        raise draft.fail(element.line, f"an arity of 1 to {_MAX_ARITY}", repr(shorten(arity)))
    default = _number(attributes.get("defaultCost", "0"), element, draft)
    if semantics != "soft":
        if "defaultCost" in attributes:
            draft.note(element.line, f"the attribute 'defaultCost' of <relation> of {semantics}", "is not read")
        default = draft.forbidden if semantics == "supports" else 0
    return _Relation(element, int(arity), semantics, default)


def _constraint(
    element: Element, relations: Mapping[str, _Relation], intensions: Mapping[str, Intension], draft: Draft
) -> Sequence[Given]:
    """Read a constraint of XCSP 2.1: a relation, an expression, or allDifferent.

    Parameters
    ----------
    element : Element
        A <constraint>.
    relations, intensions : mapping
        Relations, and predicates and functions, by name.
    draft : Draft
    """
    attributes = element.attributes
    reference = attributes.get("reference", "")
    name = attributes.get("name", reference)
    different = is_all_different(reference)
    if reference not in relations and reference not in intensions and not different:
        raise draft.fail(element.line, "a relation, predicate or function of the file", _unknown(reference))
    scope = draft.scope(element.line, attributes.get("scope", "").split())
    _check_constraint(element, draft)
    if (arity := attributes.get("arity", str(len(scope)))).strip() != str(len(scope)):
        raise draft.fail(element.line, f"a scope of {shorten(arity)} variables, as its arity says", f"{len(scope)}")
    if different:
        return [*all_different(name, element, scope, draft)]
    if reference in intensions:
        return [tabulated(name, element, scope, intensions[reference], draft)]
    relation = relations[reference]
    if len(scope) != relation.arity:
        raise draft.fail(element.line, f"a scope of {relation.arity} variables", f"{len(scope)} variables")
    for parameters in element.every("parameters"):
        draft.note(parameters.line, "the element <parameters> in <constraint> of a relation", "is not read")
    labels = tuple(draft.labels[v] for v in scope)
    # relations are shared by many constraints over equal domains
    if labels not in relation.read:
        relation.read[labels] = _tuples(relation, labels, scope, draft)
    tuples = relation.read[labels]
    draft.take_costs(element.line, len(tuples.costs), scope, dense=False)
    if relation.is_open and len(tuples.costs) < cell_count(scope, draft.dims):
        draft.note(
            relation.element.line,
            "the attribute 'defaultCost' of <relation>",
            "is not there: unlisted tuples cost 0",
        )
    return [Given(name, element.line, scope, tuples.costs, tuples.rows, relation.default)]


def _check_constraint(element: Element, draft: Draft) -> None:
    attributes = element.attributes
    if attributes.get("agent", "PUBLIC") != "PUBLIC":
        draft.note(
            element.line, "the attribute 'agent' of <constraint>", "is not read: owners of its variables know it"
        )
    if attributes.get("model", "TKC") != "TKC":
        draft.note(element.line, "the attribute 'model' of <constraint>", "is not read: it counts for all agents")


def _unknown(reference: str) -> str:
    kind, colon, name = reference.partition(":")
    if colon and kind.strip().lower() == "global":
        return f"the global constraint {shorten(name.strip())!r}, which is not read"
    return f"the undefined name {shorten(reference)!r}"


def _tuples(relation: _Relation, labels: Labels, scope: Sequence[int], draft: Draft) -> _Tuples:
    """Read ``cost:tuple|tuple|cost:tuple``; a tuple without a cost has the cost of the tuple before it.

    Parameters
    ----------
    relation : _Relation
    labels : tuple of tuple of str
        Values of each variable of the scope.
    scope : sequence of int
    draft : Draft
    """
    element, text = relation.element, relation.element.text
    count = text.count("|") + 1 if text else 0
    if "nbTuples" in element.attributes:
        check_count(element, "nbTuples", count, draft)
    kept = (4 * relation.arity + 8) * count
    draft.source.allowance.take(kept, "the tuples of a relation", for_now=STATE_BYTES * count + len(text))
    places = [{label: k for k, label in enumerate(values)} for values in labels]
    states: list[int] = []
    costs: list[Number] = []
    cost: Number | None = {"soft": None, "supports": 0}.get(relation.semantics, draft.forbidden)
    for part in text.split("|") if text else []:
        written, colon, values = part.rpartition(":")
        if colon:
            if relation.semantics != "soft":
                raise draft.fail(element.line, "tuples without costs", f"{shorten(part.strip())!r}")
            cost = _number(written, element, draft)
        words = values.split()
        if len(words) != relation.arity:
            raise draft.fail(element.line, f"tuples of {relation.arity} values", f"{shorten(part.strip())!r}")
        if cost is None:
            raise draft.fail(element.line, "a cost before the first tuple", f"{shorten(part.strip())!r}")
        states += [place.get(word, -1) for place, word in zip(places, words, strict=True)]
        # the error names the variable whose domain lacks the value
        if -1 in states[-relation.arity :]:
            k = states[-relation.arity :].index(-1)
            variable = list(draft.names)[scope[k]]
            raise draft.fail(element.line, f"values of variable {variable!r}", f"the value {shorten(words[k])!r}")
        costs.append(cost)
    return _Tuples(np.array(states, dtype=np.int32).reshape(len(costs), relation.arity), costs)


# XCSP 2.1 as FRODO reads it: one soft relation for each function.

# Values stand in texts, where these have a meaning.
_WORD = re.compile(r"[^\s|:<>&.]+(?:\.[^\s|:<>&.]+)*")
_WRITTEN_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


def xcsp_file(dcop: Dcop) -> WrittenFile:
    """Return the lines of a file, and what it does not keep.

    Raises
    ------
    ModelError
        If costs are infinite to the format.
    """
    highest_costs(dcop.model, ".xml")
    words = words_of(dcop, _is_plain)
    lost = lost_top(dcop.model) if _top(dcop.model) is None else ()
    return WrittenFile(list(_lines(dcop, words)), (*words.notes, *lost, *lost_of_agents(dcop)))


def _top(model: Model) -> int | None:
    """Return from where totals are forbidden in the file, which are costs there; None if none are."""
    return None if model.maximize else written_top(model, ".xml")


def _is_plain(word: str) -> bool:
    return word.isprintable() and _WORD.fullmatch(word) is not None


def _quoted(text: str) -> str:
    """Return text without line breaks as the value of an attribute; xml.sax has it too, but imports urllib.request."""
    return f'"{escape(text)}"'


def _lines(dcop: Dcop, words: WrittenWords) -> Iterator[str]:
    model = dcop.model
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield "<instance>"
    maximize = "true" if model.maximize else "false"
    yield f'  <presentation name={_quoted(printable(model.name))} maximize="{maximize}" format="XCSP 2.1_FRODO" />'
    yield f'  <agents nbAgents="{len(dcop.agents)}">'
    yield from (f"    <agent name={_quoted(agent)} />" for agent in words.agents)
    yield "  </agents>"
    yield from _variables(dcop, words)
    functions = [listed(model, k) for k in range(len(model.functions))]
    yield f'  <relations nbRelations="{len(functions)}">'
    for k, (scope, table) in enumerate(functions):
        yield _relation_lines(model, words, k, scope, table)
    yield "  </relations>"
    top = "infinity" if (held := _top(model)) is None else cost_text(model, held, "infinity")
    yield f'  <constraints nbConstraints="{len(functions)}" maximalCost="{top}">'
    for k, (scope, _) in enumerate(functions):
        names = _quoted(" ".join(words.names[v] for v in scope))
        name = _quoted(words.functions[k])
        yield f'    <constraint name={name} arity="{len(scope)}" scope={names} reference="R{k}" />'
    yield "  </constraints>"
    yield "</instance>"


def _variables(dcop: Dcop, words: WrittenWords) -> Iterator[str]:
    domains = {labels: f"D{k}" for k, labels in enumerate(dict.fromkeys(words.labels))}
    yield f'  <domains nbDomains="{len(domains)}">'
    for labels, name in domains.items():
        yield f'    <domain name="{name}" nbValues="{len(labels)}">{_values(labels)}</domain>'
    yield "  </domains>"
    yield f'  <variables nbVariables="{len(words.names)}">'
    for name, labels, owner in zip(words.names, words.labels, dcop.owners, strict=True):
        agent = _quoted(words.agents[owner])
        yield f'    <variable name={_quoted(name)} domain="{domains[labels]}" agent={agent} />'
    yield "  </variables>"


def _values(labels: tuple[str, ...]) -> str:
    """Values in a text: a range where they count."""
    first = labels[0]
    if _WRITTEN_NUMBER.fullmatch(first) and labels == tuple(map(str, range(int(first), int(first) + len(labels)))):
        return f"{first}..{labels[-1]}"
    return " ".join(labels)


def _relation_lines(model: Model, words: WrittenWords, k: int, scope: tuple[int, ...], table: ListedFunction) -> str:
    groups = []
    for cost, cells in table.by_cost.items():
        tuples = "|".join(" ".join(words.labels[v][s] for v, s in zip(scope, cell, strict=True)) for cell in cells)
        groups.append(f"{cost_text(model, cost, 'infinity')}:{tuples}")
    count = sum(map(len, table.by_cost.values()))
    default = cost_text(model, table.default, "infinity")
    head = f'name="R{k}" arity="{len(scope)}" nbTuples="{count}" semantics="soft" defaultCost="{default}"'
    return f"    <relation {head}>{'|'.join(groups)}</relation>"
