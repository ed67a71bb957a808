"""Answers in the formats of the UAI competitions: ``.PR``, ``.MAR`` and ``.MPE``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import writing
from ..models.model import Model
from .posteriors import Marginals


def write_uai(prefix: str, found: Marginals, assignment: Mapping[str, str | int] | None) -> list[Path]:
    """Write what was found to ``prefix.PR``, ``prefix.MAR`` and ``prefix.MPE``; return the files.

    Impossible evidence has the logarithm ``-inf``; it has neither marginals nor an assignment.

    Raises
    ------
    ModelError
        If a file cannot be written.
    """
    written = []
    for kind, text in (
        ("PR", "-inf" if found.status == "infeasible" else repr(found.log10_evidence)),
        ("MAR", marginals_text(found) if found.status == "ok" else None),
        ("MPE", None if assignment is None else assignment_text(found.model, assignment)),
    ):
        if text is not None:
            path = Path(f"{prefix}.{kind}")
            with writing(path):
                path.write_text(f"{kind}\n{text}\n")
            written.append(path)
    return written


def marginals_text(found: Marginals) -> str:
    """Write the number of variables, then for each its number of states and their probabilities."""
    tables = [found[name] for name in found.model.names]
    return " ".join([str(len(tables)), *(f"{len(t)} {' '.join(map(repr, t.tolist()))}" for t in tables)])


def assignment_text(model: Model, assignment: Mapping[str, str | int]) -> str:
    """Write the number of variables, then the index of each one's state."""
    states = [model.state_index(v, assignment[name]) for v, name in enumerate(model.names)]
    return " ".join(map(str, [len(states), *states]))
