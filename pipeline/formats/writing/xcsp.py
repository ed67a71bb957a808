"""XCSP 2.1 as FRODO reads it: one soft relation for each function."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from ...models.dcop import Dcop
from ...models.model import FORBIDDEN, Model
from ...text import printable
from .words import Listed, Words, cost_text, infinite_cost, listed, lost_of_agents, lost_top, words_of

# Values stand in texts, where these have a meaning.
_WORD = re.compile(r"[^\s|:<>&.]+(?:\.[^\s|:<>&.]+)*")


def xcsp_lines(dcop: Dcop) -> tuple[list[str], tuple[str, ...]]:
    """Return the lines of a file, and what it does not keep."""
    words = words_of(dcop, _is_plain)
    lost = lost_top(dcop.model) if _top(dcop.model) is None else ()
    return list(_lines(dcop, words)), (*words.notes, *lost, *lost_of_agents(dcop))


def _top(model: Model) -> int | None:
    """Return from where totals are forbidden in the file, which are costs there; None if none are."""
    held = model.top is not None and not model.maximize and model.top < min(infinite_cost(model), FORBIDDEN)
    return model.top if held else None


def _is_plain(word: str) -> bool:
    return word.isprintable() and _WORD.fullmatch(word) is not None


def _quoted(text: str) -> str:
    """Return text without line breaks as the value of an attribute; xml.sax has it too, but imports urllib.request."""
    return f'"{escape(text)}"'


def _lines(dcop: Dcop, words: Words) -> Iterator[str]:
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
        yield _relation(model, words, k, scope, table)
    yield "  </relations>"
    top = "infinity" if (held := _top(model)) is None else cost_text(model, held, "infinity")
    yield f'  <constraints nbConstraints="{len(functions)}" maximalCost="{top}">'
    for k, (scope, _) in enumerate(functions):
        names = _quoted(" ".join(words.names[v] for v in scope))
        name = _quoted(words.functions[k])
        yield f'    <constraint name={name} arity="{len(scope)}" scope={names} reference="R{k}" />'
    yield "  </constraints>"
    yield "</instance>"


def _variables(dcop: Dcop, words: Words) -> Iterator[str]:
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
    first = labels[0]
    if first.isdecimal() and labels == tuple(map(str, range(int(first), int(first) + len(labels)))):
        return f"{first}..{labels[-1]}"
    return " ".join(labels)


def _relation(model: Model, words: Words, k: int, scope: tuple[int, ...], table: Listed) -> str:
    groups = []
    for cost, cells in table.by_cost.items():
        tuples = "|".join(" ".join(words.labels[v][s] for v, s in zip(scope, cell, strict=True)) for cell in cells)
        groups.append(f"{cost_text(model, cost, 'infinity')}:{tuples}")
    count = sum(map(len, table.by_cost.values()))
    default = cost_text(model, table.default, "infinity")
    head = f'name="R{k}" arity="{len(scope)}" nbTuples="{count}" semantics="soft" defaultCost="{default}"'
    return f"    <relation {head}>{'|'.join(groups)}</relation>"
