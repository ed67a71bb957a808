"""What an answer of ``dpop`` shows: the answer, its pseudo-tree, what it cost, and what went over which link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..figures import charts
from ..results.dpop import DpopResult
from .answers import Sections


def is_dpop(found: Mapping[str, Any]) -> bool:
    """Whether an answer is one of agents."""
    return "parents" in found and "metrics" in found


def dpop_sections(found: Mapping[str, Any]) -> Sections:
    """Return the sections about what ``dpop --json`` printed.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError
        If something is missing, or no such thing as stands there.
    """
    result = DpopResult.from_dict(found)
    sections: Sections = [("Answer", result.rows()), ("Metrics", result.metric_rows()), ("Pseudo-tree", _tree(result))]
    if result.by_agent:
        sections.append(("Agents", _owned(result)))
    links = result.metrics.link_bytes
    if links:
        ends: dict[str, list[Any]] = {"from": [a for a, _ in links], "to": [b for _, b in links]}
        ends["bytes"] = list(links.values())
        sections.append(("Load by link", charts.table(ends, sparks="bytes")))
    return sections


def _tree(result: DpopResult) -> Any:
    names, links = list(result.parents), result.metrics.link_bytes
    index = {name: k for k, name in enumerate(names)}
    further = [(index[name], index[other]) for name, others in result.pseudo_parents.items() for other in others]
    parents = [-1 if parent is None else index[parent] for parent in result.parents.values()]
    nbytes = [
        0 if parent is None else links.get((name, parent), 0) + links.get((parent, name), 0)
        for name, parent in result.parents.items()
    ]
    return charts.pseudo_tree(names, parents, further, nbytes)


def _owned(result: DpopResult) -> Any:
    said = [", ".join(f"{name}={state}" for name, state in own.items()) for own in result.by_agent.values()]
    return charts.table({"agent": list(result.by_agent), "assignment": said})
