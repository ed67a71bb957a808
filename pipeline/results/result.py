"""The answer to a query, with its work and seconds. An answer rebuilt from a run directory is checked first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from decimal import Decimal
from math import inf
from sys import float_info
from typing import TYPE_CHECKING, Any, Literal

from ...tasks.steps.light_dataclass import dataclass
from ..drawings.shown import Shown
from ..errors import ModelError, ShortDir, format_bytes, logarithm, power_of_ten, public
from ..models.frames import Tabled
from ..models.model import Model
from ..models.query import ValueQuery
from .proof import (
    AskedOf,
    DaskWork,
    DiagramWork,
    Proof,
    RowsWork,
    SearchWork,
    Tried,
    plain_number,
    plan_dict,
    shown_assignment,
    tried_before,
    work_before,
)

if TYPE_CHECKING:
    from ..drawings.html import Html
    from ..plans.plan import Plan

Status = Literal["optimal", "bounded", "infeasible", "ok"]


@public
@dataclass(frozen=True, repr=False)
class Result(ShortDir, Shown, Tabled):
    """The answer to one query.

    Parameters
    ----------
    query : {"optimum", "partition", "count", "mmap"}
    status : {"optimal", "bounded", "infeasible", "ok"}
        ``optimal`` for an optimum; ``bounded`` for the best assignment found in the given time; ``ok`` for a sum or a
        count; ``infeasible`` if no assignment is possible, because the evidence has probability 0 or every assignment
        is forbidden.
    value : int, Decimal or None
        The cost of the optimum (a Decimal where the file has decimals), or the count.
    log10 : float or None
        log10 of the best probability, or of the partition function.
    assignment : dict of str to str or int, or None
        A best assignment: variable name → state label, or index where states have no labels.
    plan : Plan or None
        What was run; None when preprocessing already gave the answer.
    seconds : dict of str to float
        CPU and worker time is not counted here: wall seconds of ``read``, ``plan``, ``run``, ``decode``.
    peak_rss_bytes : int
        Largest resident size of this process.
    notes : tuple of str
        Events of the run that the answer does not show, for example that a device ran out of memory.
    proof : Proof or None
        How it was proved, or between what it lies; None where every cell was swept.
    diagram : DiagramWork or None
        Work of a sum on decision diagrams; None if every cell was swept.
    search : SearchWork or None
        Work of a count by search; None if no search ran.
    rows_work : RowsWork or None
        Work of a sweep with sparse tables; None if all tables were dense, or if workers joined the sparse tables.
    tried : tuple of Tried
        The engines that took turns, with their seconds and the reason why each ended; the last engine answered.
    dask : DaskWork or None
        The tasks sent to the cluster, or the reason why none were sent; None if no cluster was requested.
    asked : AskedOf or None
        The model and the evidence that were asked.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.solve("satellite")
    >>> found.value, found.status, len(found.assignment)
    (49, 'optimal', 40)
    """

    _SHOWN = (
        *("query", "status", "value", "cost", "log10", "probability", "assignment", "proof", "plan", "plot", "notes"),
        *("seconds", "peak_rss_bytes", "tried", "dask", "to_dict", "to_frame", "to_json"),
    )

    query: ValueQuery
    status: Status
    value: int | Decimal | None = None
    log10: float | None = None
    assignment: dict[str, str | int] | None = None
    plan: Plan | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    notes: tuple[str, ...] = ()
    proof: Proof | None = None
    diagram: DiagramWork | None = None
    search: SearchWork | None = None
    rows_work: RowsWork | None = None
    tried: tuple[Tried, ...] = ()
    dask: DaskWork | None = None
    asked: AskedOf | None = None

    @property
    def probability(self) -> float | None:
        """10 to the power of :attr:`log10`: 0.0 below 1e-323, infinite above 1e308; None for costs and counts."""
        if self.log10 is None:
            return None
        return 10.0**self.log10 if self.log10 < float_info.max_10_exp else inf

    @property
    def cost(self) -> int | Decimal | None:
        """The total cost of the assignment, for an optimum of a cost network; None otherwise."""
        return None if self.query == "count" else self.value

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield headings, then each variable with its state."""
        yield "variable", "state"
        yield from (self.assignment or {}).items()

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain types, as ``--json`` prints it."""
        return {
            "query": self.query,
            "status": self.status,
            "value": _plain_value(self.query, self.value),
            "log10": self.log10,
            "assignment": self.assignment,
            "plan": plan_dict(self.plan),
            "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
            "peak_rss_bytes": self.peak_rss_bytes,
            "tried": [vars(turn) for turn in self.tried],
            **({"notes": list(self.notes)} if self.notes else {}),
            **({"proof": self.proof.to_dict()} if self.proof else {}),
            **({"diagram": self.diagram.to_dict()} if self.diagram else {}),
            **({"search": self.search.to_dict()} if self.search else {}),
            **({"rows": self.rows_work.to_dict()} if self.rows_work else {}),
            **({"dask": self.dask.to_dict()} if self.dask else {}),
            **(self.asked.to_dict() if self.asked else {}),
        }

    def plot(self) -> Html:
        """Draw what it took, by phase and by way, and how bounds closed on it; a notebook shows it."""
        from ..drawings.charts import bars, below, convergence

        tried = dict(self.proof.tried) if self.proof else {}
        spent = {**self.seconds, **{f"by {way}": seconds for way, seconds in tried.items() if seconds}}
        chart = bars(f"{self.query}: {self.status}", list(spent), {"seconds": list(spent.values())}, "seconds")
        history = self.proof.history if self.proof else ()
        unit = "cost" if self.log10 is None else "log10"
        return below(chart, convergence(self.query, history, unit)) if history else chart

    def rows(self) -> list[tuple[str, str]]:
        """Return the answer as labelled lines for a person."""
        rows: list[tuple[str, str]] = [("query", self.query), ("status", self.status)]
        if self.value is not None:
            rows.append(("value", _grouped(self.value)))
        if self.log10 is not None:
            # only of a Bayesian network is the number a probability
            probability = self.asked is not None and self.asked.model["kind"] == "bayes"
            rows.append(("probability", power_of_ten(self.log10)) if probability else ("log10", logarithm(self.log10)))
        if self.proof is not None:
            rows += self.proof.rows()
        if self.diagram is not None:
            done = self.diagram
            rows.append(("method", f"diagram ({done.edges:,} edges, largest {done.nodes:,} nodes, sums {done.sums})"))
        if self.search is not None:
            work = self.search
            rows.append(("method", f"search ({work.nodes:,} decisions, {work.known:,} components were cached)"))
        if self.rows_work is not None:
            rows.append(("by rows", self.rows_work.text))
        if self.dask is not None:
            rows.append(("dask", self.dask.text))
        if self.assignment is not None:
            rows.append(("assignment", shown_assignment(self.assignment)))
        if self.plan is not None:
            plan = self.plan
            rows.append(
                (
                    "plan",
                    f"width {plan.cost.width}, {plan.cells:.3g} cells in {plan.slices} slice"
                    f"{'s' if plan.slices != 1 else ''}, peak {format_bytes(plan.peak_bytes)}",
                )
            )
        if self.seconds:
            rows.append(("seconds", ", ".join(f"{k} {v:.3f}" for k, v in self.seconds.items())))
        rows += [("note", text) for text in dict.fromkeys(self.notes)]
        return rows


def _plain_value(query: ValueQuery, value: int | Decimal | None) -> Any:
    """A count as a decimal string, costs as JSON numbers; a decimal that a float cannot hold as a string."""
    if value is None:
        return None
    if query == "count":
        return _digits(value)
    return plain_number(value)


def _digits(value: int | Decimal) -> str:
    """Return all digits; Python writes no integer of more than 4,300 as text, and reads none."""
    return str(Decimal(value))


def _grouped(value: int | Decimal) -> str:
    text = _digits(value)
    return text if len(text) <= 40 else f"{text[:12]}…{text[-6:]} ({len(text)} digits)"


def answered_before(stored: Mapping[str, Any], model: Model, plan: Plan | None, plan_seconds: float) -> Result:
    """Rebuild an answer from the dictionary that :meth:`.Result.to_dict` returned."""
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
        diagram=work_before(DiagramWork, stored.get("diagram")),
        search=work_before(SearchWork, stored.get("search")),
        rows_work=work_before(RowsWork, stored.get("rows")),
        tried=tried_before(stored.get("tried", ())),
        dask=work_before(DaskWork, stored.get("dask")),
        asked=AskedOf.before(stored),
    )


def _proof_before(stored: Mapping[str, Any]) -> Proof:
    return Proof(**{**stored, "history": [tuple(point) for point in stored.get("history", ())]})


def unread_result(query: ValueQuery, why: str, seconds: float) -> Result:
    """Return the result of a query whose time ended while its model was read: no bounds, and a note that says so.

    Parameters
    ----------
    query : {"optimum", "partition", "count", "mmap"}
    why : str
        The note.
    seconds : float
        Wall seconds of reading.
    """
    return Result(query, "bounded", seconds={"read": seconds}, notes=(why,), proof=Proof.without_bounds())


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
    if len(states) < len(model.own_names) or any(states[v] != s for v, s in observed.items()):
        return False
    full = [states[v] for v in range(len(model.own_names))]
    if model.kind != "cost":
        return result.log10 == model.log10_value(full)
    cost = model.cost(full)
    return cost is not None and result.value == model.objective(cost)
