"""What stands in pyDCOP's YAML: what is read, what only describes, what is passed over, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import shorten
from ..text.yaml import YamlNode
from .draft import Draft

_UNREAD = "is not read"
_STARTS = "is where a search may begin, and is not used"
# Properties that are read or only describe; others that are known, with what becomes of them.
_KNOWN: dict[str, tuple[frozenset[str], dict[str, str]]] = {
    "the problem": (
        frozenset({"name", "description", "objective", "agents", "routes", "hosting_costs", "distribution_hints"})
        | {"domains", "variables", "external_variables", "constraints"},
        {"distribution": "is not read: --agents takes one", "events": "are not read: the problem is that at the start"},
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
    """Note the properties of something that are passed over; what is no dictionary has none."""
    entries = part.value if isinstance(part, YamlNode) else part
    if not isinstance(entries, dict):
        return
    read, others = _KNOWN[what]
    for key in [key for key in entries if key not in read]:
        draft.note(entries[key].line, f"{shorten(str(key))!r} of {what}", others.get(key, _UNREAD))
