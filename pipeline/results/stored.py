"""Answers that a run directory holds: rebuilt, and checked on the model before they are believed."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ModelError
from ..models.model import Model
from .proof import DiagramWork, Proof, RowsWork, SearchWork, tried_before
from .result import Result

if TYPE_CHECKING:
    from ..plans.plan import Plan

_Work = TypeVar("_Work", DiagramWork, SearchWork, RowsWork)


def answered_before(stored: Mapping[str, Any], model: Model, plan: Plan | None, plan_seconds: float) -> Result:
    """Rebuild an answer from what :meth:`.Result.to_dict` returned."""
    value = stored["value"]
    if value is not None and stored["query"] == "count":
        value = int(Decimal(value))
    elif value is not None and model.decimals:
        value = Decimal(str(value))
    return Result(
        query=stored["query"],
        status=stored["status"],
        value=value,
        log10=stored["log10"],
        assignment=stored["assignment"],
        plan=plan,
        seconds={**stored["seconds"], "plan": plan_seconds},
        peak_rss_bytes=stored["peak_rss_bytes"],
        notes=tuple(stored.get("notes", ())),
        proof=_proof_before(stored["proof"]) if stored.get("proof") else None,
        diagram=_done(DiagramWork, stored.get("diagram")),
        search=_done(SearchWork, stored.get("search")),
        rows_work=_done(RowsWork, stored.get("rows")),
        tried=tried_before(stored.get("tried", ())),
    )


def _proof_before(stored: Mapping[str, Any]) -> Proof:
    return Proof(**{**stored, "history": [tuple(point) for point in stored.get("history", ())]})


def _done(kind: type[_Work], stored: Mapping[str, Any] | None) -> _Work | None:
    """Rebuild what was done from what its ``to_dict`` returned."""
    return None if stored is None else kind(**{name: value for name, value in stored.items() if name != "method"})


def is_confirmed(result: Result, model: Model, observed: Mapping[int, int]) -> bool:
    """Whether an assignment agrees with the evidence and is worth what the result says; only optima have one."""
    if result.status == "bounded":
        return False
    if result.status != "optimal":
        return result.assignment is None
    try:
        states = model.observe({**(result.assignment or {})})
    except ModelError:
        return False
    if len(states) < len(model.names) or any(states[v] != s for v, s in observed.items()):
        return False
    full = [states[v] for v in range(len(model.names))]
    if model.kind != "cost":
        return result.log10 == model.log10_value(full)
    cost = model.cost(full)
    return cost is not None and result.value == model.objective(cost)
