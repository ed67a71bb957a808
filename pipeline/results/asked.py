"""The query, as answers repeat it: the model and the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ...tasks.steps.light_dataclass import dataclass
from ..models.model import Model
from .proof import shown_assignment


@dataclass(frozen=True)
class AskedOf:
    """The model and the evidence that an answer is about.

    Parameters
    ----------
    model : mapping
        ``name``, ``source`` (the path of its file, empty without one), ``kind`` and ``variables``, their number.
    evidence : mapping
        Name of a variable → label or index of its state, or a likelihood for each of its states.
    """

    model: Mapping[str, Any]
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, hard: Mapping[int, int], soft: Mapping[int, Any]) -> AskedOf:
        """Return the query's model and its evidence: states and likelihoods by variable."""
        facts = {"name": model.name, "source": model.source, "kind": model.kind, "variables": len(model.own_names)}
        found: dict[str, Any] = {model.names[v]: model.label(v, int(s)) for v, s in sorted(hard.items())}
        return cls(facts, found | {model.names[v]: weights.tolist() for v, weights in sorted(soft.items())})

    @classmethod
    def before(cls, stored: Mapping[str, Any]) -> AskedOf | None:
        """Return the query that a stored answer repeats, or None if an older version stored the answer without it."""
        return cls(stored["model"], stored.get("evidence", {})) if stored.get("model") else None

    def to_dict(self) -> dict[str, Any]:
        """Return the query as plain types, as ``--json`` prints it."""
        return {"model": dict(self.model), "evidence": dict(self.evidence)}

    @property
    def title(self) -> str:
        """The name of the model's file, or its own."""
        from pathlib import PurePath

        return PurePath(self.model["source"]).name or self.model["name"] or f"a {self.model['kind']} model in memory"

    def rows(self) -> list[tuple[str, str]]:
        """Return it as labelled lines for a person."""
        described = f"{self.title}, {self.model['kind']}, {self.model['variables']:,} variables"
        return [("model", described)] + ([("evidence", shown_assignment(self.evidence))] if self.evidence else [])
