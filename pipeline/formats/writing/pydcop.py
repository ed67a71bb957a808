"""pyDCOP's YAML: functions by extension, agents with what they must host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from ...models.dcop import Dcop, External
from .words import Words, cost_text, listed, lost_top, words_of
from .yaml_words import yaml_quoted, yaml_word


def pydcop_lines(dcop: Dcop) -> tuple[list[str], tuple[str, ...]]:
    """Return the lines of a file, and what it does not keep."""
    words = words_of(dcop, _is_plain)
    externals, clash = _externals(dcop, words)
    return list(_lines(dcop, words, externals)), (*words.notes, *lost_top(dcop.model), *clash)


def _externals(dcop: Dcop, words: Words) -> tuple[tuple[External, ...], tuple[str, ...]]:
    """External variables under names that no variable has in the file, and a note where these are others."""
    if not {external.name for external in dcop.externals} & set(words.names):
        return dcop.externals, ()
    numbered = tuple(replace(external, name=f"e{k}") for k, external in enumerate(dcop.externals))
    return numbered, ("names of external variables are not kept, as variables have them: they are numbered",)


def _is_plain(word: str) -> bool:
    return word.isprintable() and word.split() == [word] and "|" not in word


def _lines(dcop: Dcop, words: Words, externals: Sequence[External]) -> Iterator[str]:
    model = dcop.model
    yield f"name: {yaml_word(model.name)}"
    yield f"objective: {'max' if model.maximize else 'min'}"
    different = dict.fromkeys([*words.labels, *(external.states for external in externals)])
    domains = {labels: f"d{k}" for k, labels in enumerate(different)}
    yield "domains:"
    for labels, name in domains.items():
        yield f"  {name}: {{values: [{', '.join(map(_value, labels))}]}}"
    yield "variables:"
    for own, name, labels in zip(model.names, words.names, words.labels, strict=True):
        noise = f", noise_level: {_number(dcop.noise[own])}" if own in dcop.noise else ""
        yield f"  {yaml_word(name)}: {{domain: {domains[labels]}{noise}}}"
    if externals:
        yield "external_variables:"
    for external in externals:
        initial = _value(external.states[external.initial])
        yield f"  {yaml_word(external.name)}: {{domain: {domains[external.states]}, initial_value: {initial}}}"
    yield "constraints:" if model.functions else "constraints: {}"
    for k in range(len(model.functions)):
        yield from _constraint(dcop, words, k)
    yield from _agents(dcop, words)


def _constraint(dcop: Dcop, words: Words, k: int) -> Iterator[str]:
    model, (scope, table) = dcop.model, listed(dcop.model, k)
    default = cost_text(model, table.default, ".inf")
    yield f"  {yaml_word(words.functions[k])}:"
    yield "    type: extensional"
    yield f"    variables: [{', '.join(yaml_word(words.names[v]) for v in scope)}]"
    yield f"    default: {default}"
    yield "    values:" if table.by_cost else "    values: {}"
    for cost, cells in table.by_cost.items():
        rows = (" ".join(words.labels[v][s] for v, s in zip(scope, cell, strict=True)) for cell in cells)
        yield f"      {cost_text(model, cost, '.inf')}: {yaml_quoted(' | '.join(rows))}"


def _agents(dcop: Dcop, words: Words) -> Iterator[str]:
    yield "agents:"
    for agent, name in zip(dcop.agents, words.agents, strict=True):
        yield f"  {yaml_word(name)}: {'{}' if agent.capacity is None else f'{{capacity: {_number(agent.capacity)}}}'}"
    yield "distribution_hints:"
    yield "  must_host:"
    for host, owned in zip(words.agents, dcop.owned, strict=True):
        if owned:
            yield f"    {yaml_word(host)}: [{', '.join(yaml_word(words.names[v]) for v in owned)}]"
    yield from _routes(dcop, words)
    yield from _hosting(dcop, words)


def _routes(dcop: Dcop, words: Words) -> Iterator[str]:
    if dcop.default_route == 1 and not any(agent.routes for agent in dcop.agents):
        return
    known = dict(zip((agent.name for agent in dcop.agents), words.agents, strict=True))
    yield "routes:"
    yield f"  default: {_number(dcop.default_route)}"
    for agent in dcop.agents:
        if agent.routes:
            costs = ", ".join(f"{yaml_word(known[name])}: {_number(cost)}" for name, cost in agent.routes.items())
            yield f"  {yaml_word(known[agent.name])}: {{{costs}}}"


def _hosting(dcop: Dcop, words: Words) -> Iterator[str]:
    if not any(agent.hosting_cost or agent.hosting for agent in dcop.agents):
        return
    yield "hosting_costs:"
    for agent, name in zip(dcop.agents, words.agents, strict=True):
        costs = ", ".join(f"{yaml_word(hosted)}: {_number(cost)}" for hosted, cost in agent.hosting.items())
        yield f"  {yaml_word(name)}: {{default: {_number(agent.hosting_cost)}, computations: {{{costs}}}}}"


def _number(value: Decimal) -> str:
    return f"{value:f}"


def _value(label: str) -> str:
    """A value: an integer where it reads back as the same text."""
    return label if re.fullmatch(r"0|-?[1-9]\d{0,17}", label) else yaml_quoted(label)
