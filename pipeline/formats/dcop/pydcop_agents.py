"""Agents of a pyDCOP file and who owns a variable; keys of pyDCOP's YAML that are read, passed over or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from ...errors import FormatError, shorten
from ...models.dcop import Agent, Dcop, amount_fault, owned_by
from ...models.model import Model
from ..text.source import Source
from ..text.yaml import YamlNode, number_of, read_tree, shown, yaml_word
from .draft import Draft

_UNREAD = "is not read"
_STARTS = "is only a starting point for local search, and is not used"
# Properties that are read or only describe, and other known properties with the text of their notes.
_KNOWN: dict[str, tuple[frozenset[str], dict[str, str]]] = {
    "the problem": (
        frozenset({"name", "description", "objective", "agents", "routes", "hosting_costs", "distribution_hints"})
        | {"domains", "variables", "external_variables", "constraints"},
        {
            "distribution": "is not read: --agents takes one",
            "events": "are not read: the problem is read as it is at the start",
        },
    ),
    "domains": (frozenset({"values", "type"}), {"initial_value": _STARTS}),
    "variables": (frozenset({"domain", "cost_function", "noise_level"}), {"initial_value": _STARTS}),
    "external variables": (frozenset({"domain", "initial_value"}), {}),
    "intentions": (frozenset({"type", "function", "partial", "source"}), {}),
    "extensions": (frozenset({"type", "variables", "values", "default"}), {}),
    "agents": (frozenset({"capacity"}), {}),
    "hosting costs of agents": (frozenset({"default", "computations"}), {}),
    "distribution hints": (frozenset({"must_host"}), {"host_with": "is not read: it binds no owner"}),
}


def check_keys(part: YamlNode | Mapping[Any, YamlNode], what: str, draft: Draft) -> None:
    """Note the ignored properties of a part; a part that is not a dictionary has none."""
    entries = part.value if isinstance(part, YamlNode) else part
    if not isinstance(entries, dict):
        return
    read, others = _KNOWN[what]
    for key in [key for key in entries if key not in read]:
        draft.note(entries[key].line, f"{shorten(str(key))!r} of {what}", others.get(key, _UNREAD))


Root = Mapping[Any, YamlNode]


def read_agents(root: Root, draft: Draft) -> None:
    """Read agents with their costs. Without agents, every variable gets its own agent."""
    for name, part in _named(root, "agents", draft):
        if not (part.value is None or isinstance(part.value, dict)):
            raise draft.fail(part.line, f"properties of agent {shorten(name)!r}", shown(part))
        check_keys(part, "agents", draft)
        capacity = part.value.get("capacity") if part.value else None
        draft.agent(part.line, Agent(name, None if capacity is None else amount_of(capacity, draft)))
    if not draft.agents:
        for name in draft.names:
            draft.agent(1, Agent(name))
    _read_routes(root, draft)
    _read_hosting(root, draft)


def read_owners(root: Root, draft: Draft) -> None:
    """Give variables to the agents that must host them, others to whom they cost least, then to whom has fewest."""
    held = dict.fromkeys(draft.agents, 0)
    functions = {given.name for given in draft.given}
    for agent, name, line in _hints(root, draft):
        if name in draft.names:
            if draft.owners.setdefault(draft.names[name], agent) != agent:
                raise draft.fail(line, "an owner for every variable", f"two agents that must host {shorten(name)!r}")
            held[agent] += 1
        elif name not in functions:
            raise draft.fail(line, "a variable or constraint to host", repr(shorten(name)))
    for name, v in draft.names.items():
        if v not in draft.owners:
            agents = draft.agents.values()
            owner = min(agents, key=lambda agent: (agent.hosting.get(name, agent.hosting_cost), held[agent.name])).name
            draft.owners[v] = owner
            held[owner] += 1


def _named(root: Root, section: str, draft: Draft) -> Iterator[tuple[str, YamlNode]]:
    """Entries of a section that is a dictionary or a list of names."""
    part = root.get(section, YamlNode(1, None))
    if isinstance(part.value, dict):
        yield from ((str(name), inside) for name, inside in part.value.items())
    elif isinstance(part.value, list):
        yield from ((str(inside.value), YamlNode(inside.line, None)) for inside in part.value)
    elif part.value is not None:
        raise draft.fail(part.line, f"named {section}", shown(part))


def _known(name: str, line: int, draft: Draft) -> str:
    if name not in draft.agents:
        raise draft.fail(line, "an agent of the problem", f"the unknown agent {shorten(name)!r}")
    return name


def _read_routes(root: Root, draft: Draft) -> None:
    for name, part in _named(root, "routes", draft):
        if name == "default":
            draft.default_route = amount_of(part, draft)
            continue
        agent = draft.agents[_known(name, part.line, draft)]
        routes = {_known(other, to.line, draft): amount_of(to, draft) for other, to in _inside(part, draft)}
        for other, cost in routes.items():
            if draft.agents[other].routes.get(name, cost) != cost:
                raise draft.fail(part.line, f"one cost of the route {name} {other}", "two costs")
        draft.agents[name] = replace(agent, routes=routes)


def _read_hosting(root: Root, draft: Draft) -> None:
    sections = dict(_named(root, "hosting_costs", draft))
    default = amount_of(sections.pop("default"), draft) if "default" in sections else Decimal(0)
    for name, agent in draft.agents.items():
        draft.agents[name] = replace(agent, hosting_cost=default)
    for name, part in sections.items():
        agent = draft.agents[_known(name, part.line, draft)]
        inside = dict(_inside(part, draft))
        check_keys(part, "hosting costs of agents", draft)
        own = amount_of(inside["default"], draft) if "default" in inside else default
        listed = inside.get("computations", YamlNode(part.line, {}))
        hosting = {computation: amount_of(cost, draft) for computation, cost in _inside(listed, draft)}
        draft.agents[name] = replace(agent, hosting_cost=own, hosting=hosting)


def _hints(root: Root, draft: Draft) -> Iterator[tuple[str, str, int]]:
    """Yield each agent with the names that it must host."""
    check_keys(root.get("distribution_hints", YamlNode(1, None)), "distribution hints", draft)
    for kind, part in _named(root, "distribution_hints", draft):
        if kind == "must_host":
            for agent, names in _inside(part, draft):
                _known(agent, names.line, draft)
                for name in names.value if isinstance(names.value, list) else [names]:
                    yield agent, str(name.value), name.line


def _inside(part: YamlNode, draft: Draft) -> Iterator[tuple[str, YamlNode]]:
    if part.value is None:
        return
    if not isinstance(part.value, dict):
        raise draft.fail(part.line, "names with values", shown(part))
    yield from ((str(name), inside) for name, inside in part.value.items())


def amount_of(part: YamlNode, draft: Draft) -> Decimal:
    """Return a finite number of at least 0 with a limited number of digits.

    Raises
    ------
    FormatError
        If it is none.
    """
    found = Decimal(number_of(part, draft.source))
    if (fault := amount_fault(found)) is not None:
        raise draft.fail(part.line, fault, str(found))
    return found


# Files that say which agent owns which variables, for a model of any format.

_SECTIONS = ("distribution", "agents")


def read_owners_file(source: Source, problem: Model | Dcop) -> Dcop:
    """Read agents with lists of their variables, in YAML (or JSON), perhaps below ``distribution`` or ``agents``.

    Raises
    ------
    FormatError
        If the file is something else.
    ModelError
        If a name is none of the problem's, or a variable has no owner or two.
    """
    root = read_tree(source)
    for section in _SECTIONS:
        if isinstance(root.value, dict) and section in root.value:
            root = root.value[section]
            break
    if not isinstance(root.value, dict) or not root.value:
        raise FormatError(source.path, root.line, "agents, each with a list of its variables", shown(root))
    return owned_by(problem, {str(agent): _names(part, source) for agent, part in root.value.items()})


def _names(part: YamlNode, source: Source) -> list[str]:
    """Names of variables: a list, or one; None for nothing."""
    if part.value is None:
        return []
    if not isinstance(part.value, list):
        return [str(part.value)] if not isinstance(part.value, dict) else [_refused(part, source)]
    return [
        str(each.value) if not isinstance(each.value, list | dict) else _refused(each, source) for each in part.value
    ]


def _refused(part: YamlNode, source: Source) -> str:
    raise FormatError(source.path, part.line, "the name of a variable", shown(part))


# Who owns what, as a file of its own beside a model that has no place for it.


def owner_lines(dcop: Dcop, names: Sequence[str]) -> Iterator[str]:
    """Give the lines of a file for ``--agents``, which pyDCOP reads as a distribution; ``names`` are the variables'."""
    yield "distribution:"
    for agent, own in zip(dcop.agents, dcop.owned, strict=True):
        yield f"  {yaml_word(agent.name)}: [{', '.join(yaml_word(names[v]) for v in own)}]"


def is_told(dcop: Dcop, names: Sequence[str]) -> bool:
    """Whether a model alone says who owns what: every variable has an agent of its own, which has its name."""
    alone = dcop.owners == tuple(range(len(names)))
    return alone and [agent.name for agent in dcop.agents] == list(names)
