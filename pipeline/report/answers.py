"""What an answer shows, as ``--json`` prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from ..figures import charts
from ..results.figures import shown_assignment
from ..text import format_bytes, shown_number

Sections = list[tuple[str, Any]]

# Variables whose bars are shown.
_SHOWN = 60


def answer_sections(found: Mapping[str, Any], query: str) -> Sections:
    """Return the sections about an answer."""
    sections: Sections = [("Answer", _rows(found))]
    if found.get("marginals"):
        sections.append(("Marginals", marginal_bars(found, query)))
    proof = found.get("proof")
    history = _history(found)
    if history:
        sections.append(("Convergence", charts.convergence(str(found.get("query", query)), history, _unit(found))))
    if proof and proof.get("tried"):
        tried = {name: seconds for name, seconds in proof["tried"].items() if seconds}
        if tried:
            chart = charts.bars("CPU seconds by way", list(tried), {"seconds": list(tried.values())}, "seconds")
            sections.append(("Ways that were tried", chart))
    return sections


def _history(found: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
    """Both bounds by seconds: of an optimum as they were proved and found, of ``bound`` by size of its mini-buckets."""
    rounds = found.get("rounds") or ()
    ends = accumulate(each["seconds"] for each in rounds)
    by_size = [(t, each["lower"], each["upper"]) for t, each in zip(ends, rounds, strict=True)]
    return by_size or (found.get("proof") or {}).get("history") or ()


def _unit(found: Mapping[str, Any]) -> str:
    return "cost" if found.get("log10") is None and found.get("value") is not None else "log10"


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("status", str(found["status"]))]
    for name in ("value", "log10", "log10_evidence"):
        if found.get(name) is not None:
            rows.append((name, shown_number(found[name])))
    proof = found.get("proof")
    if proof:
        rows.append(("proved by", str(proof["method"])))
        rows.append(("bounds", f"{shown_number(proof['lower'])} … {shown_number(proof['upper'])}"))
    if found.get("assignment"):
        rows.append(("assignment", shown_assignment(found["assignment"])))
    rows.append(("seconds", ", ".join(f"{name} {seconds:.3f}" for name, seconds in found["seconds"].items())))
    rows.append(("peak memory", format_bytes(found["peak_rss_bytes"])))
    return rows + [("note", text) for text in found.get("notes", ())]


def marginal_bars(found: Mapping[str, Any], query: str) -> Any:
    """Bars of the distributions of the first variables."""
    names, values = [], []
    for name, table in list(found["marginals"].items())[:_SHOWN]:
        for label, value in zip(found["states"][name], table, strict=True):
            names.append(f"{name} = {label}")
            values.append(float("nan") if value is None else float(value))
    unit = "best that is possible" if query == "max-marginals" else "probability"
    return charts.bars(f"The first {min(_SHOWN, len(found['marginals']))} variables", names, {unit: values}, unit)
