"""Parts of an answer: the bounds that proved an optimum, and the model and the evidence of the query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from decimal import Decimal
from math import log2
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from ...tasks.steps.light_dataclass import dataclass
from ..drawings.shown import Shown
from ..errors import format_bytes, listed, printable, shown_number
from ..models.frames import Tabled
from ..models.model import Model

if TYPE_CHECKING:
    from ..drawings.html import Html
    from ..plans.plan import Plan


# Figures of answers as JSON has them, assignments on one line, and notes.

A = TypeVar("A", bound="_Noted")


class _Noted(Protocol):
    """An answer, a dataclass."""

    @property
    def notes(self) -> tuple[str, ...]: ...


def plan_dict(plan: Plan | None) -> dict[str, int] | None:
    """Return the plan's figures that ``--json`` prints."""
    if plan is None:
        return None
    return {
        "width": plan.cost.width,
        "largest_table_cells": plan.cost.largest_table_cells,
        "cells": plan.cells,
        "peak_bytes": plan.peak_bytes,
        "tasks": plan.tasks,
        "slices": plan.slices,
    }


def plan_figures(plan: Plan | None) -> dict[str, int | str] | None:
    """Return the plan's figures that ``plan --json`` and ``marginals --json`` print."""
    if plan is None:
        return None
    spill = plan.spill
    return {
        **(plan_dict(plan) or {}),
        "steps": plan.cost.steps,
        **({} if plan.row_bounds is None else {"most_rows": plan.most_rows}),
        "way": plan.way,
        "disk_bytes": plan.disk_bytes,
        "disk_read_bytes": spill.read_bytes if spill else 0,
        "disk_written_bytes": spill.written_bytes if spill else 0,
    }


def shown_assignment(assignment: Mapping[str, str | int]) -> str:
    """Return an assignment as text, ``variable=state`` for every variable."""
    return ", ".join(f"{printable(k)}={printable(str(v))}" for k, v in assignment.items())


def plain_number(value: Any) -> Any:
    """Return a number as JSON has it: a decimal that a float cannot hold as a string."""
    if isinstance(value, Decimal):
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    return value


def noted(found: A, notes: Iterable[str]) -> A:
    """Return an answer whose notes start with the notes of its model, without repetitions."""
    every = tuple(dict.fromkeys((*notes, *found.notes)))
    if every == found.notes:
        return found
    changed: A = replace(cast(Any, found), notes=every)
    return changed


#: Ways are named that took more than this part of all.
_NOTABLE = 0.01


@dataclass(frozen=True)
class Proof(Shown, Tabled):
    """How bounds closed on an optimum.

    Parameters
    ----------
    method : str
        The method that completed the proof; "none" if the proof is incomplete.
    lower, upper : int, float, Decimal or None
        Bounds on the optimum: costs, or log10 of a probability.
    gap : float or None
        Their difference as a part of the larger one.
    tried : mapping of str to float
        CPU seconds by method.
    removed : mapping of str to mapping
        Numbers of removed values by preparation rule.
    least_total, unit
        The proved bound in integers, and what one is worth.
    sweep_cells : float or None
        About how many cells sweeping the whole would take, where that was weighed.
    gap_given : float or None
        The gap that was enough.
    history : sequence of (float, number or None, number or None)
        Both bounds by seconds, as they closed; not every step of many.
    """

    method: str
    lower: Any
    upper: Any
    gap: float | None
    tried: Mapping[str, float]
    removed: Mapping[str, Mapping[str, int]]
    least_total: int
    unit: int | float
    sweep_cells: float | None = None
    gap_given: float | None = None
    history: Sequence[tuple[float, Any, Any]] = field(default=(), repr=False)

    @property
    def reason(self) -> str:
        """Which way proved it, after which others that took notable time, and why it was not just swept: one line."""
        least = _NOTABLE * sum(self.tried.values())
        others = [method for method, seconds in self.tried.items() if seconds > least and method != self.method]
        tried = listed(others)
        if self.method == "none":
            way = f"not proved by {tried}" if tried else "not proved"
        else:
            way = f"{'proved' if self.close else 'bounded'} by {self.method}" + (f" after {tried}" if tried else "")
        if self.sweep_cells is None:
            return way
        return f"{way}; a sweep over all cells would take about 2^{math.log2(max(self.sweep_cells, 1)):.0f} cells"

    @property
    def close(self) -> bool:
        """Whether the bounds are as close as requested: equal, if no gap was given."""
        if self.method == "none" and self.lower is None:
            return False
        return self.lower == self.upper or (
            self.gap is not None and self.gap_given is not None and self.gap <= self.gap_given
        )

    @classmethod
    def without_bounds(cls) -> Proof:
        """Return the proof of a query whose time ended before any bound was computed."""
        return cls("none", None, None, None, {}, {}, 0, 1)

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield headings, then both bounds at each time of the history."""
        yield "seconds", "lower", "upper"
        yield from map(tuple, self.history)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {
            **vars(self),
            "lower": plain_number(self.lower),
            "upper": plain_number(self.upper),
            "history": [(t, plain_number(lower), plain_number(upper)) for t, lower, upper in self.history],
        }

    def draw(self) -> Html:
        """Draw how both bounds closed, with a table of them; a notebook shows it."""
        from ..drawings.charts import convergence

        return convergence("optimum", self.history, "log10" if isinstance(self.lower, float) else "cost")

    def rows(self) -> list[tuple[str, str]]:
        """Return how bounds closed, as labelled lines."""
        tried = ", ".join(f"{method} {seconds:.2f} s" for method, seconds in self.tried.items())
        rows = [("method", self.reason), *([("tried", tried)] if tried else [])]
        if self.lower != self.upper or not self.close:
            gap = "" if self.gap is None else f", gap {self.gap:.3g}"
            rows.append(("bounds", f"{shown_number(self.lower)} … {shown_number(self.upper)}{gap}"))
        removed = removed_texts(self.removed)
        return rows + ([("removed", "; ".join(removed))] if removed else [])


def removed_texts(removed: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a text for each rule of preparation that removed something."""
    counted = {rule: [f"{count:,} {what}" for what, count in by.items() if count] for rule, by in removed.items()}
    return [f"{rule} {', '.join(counts)}" for rule, counts in counted.items() if counts]


# Attempts of engines, and the work of a sum on diagrams, a search or a sparse sweep, as parts of an answer.


@dataclass(frozen=True)
class Tried:
    """A turn of an engine on the way to an answer.

    Parameters
    ----------
    engine : str
    seconds : float
        CPU seconds of this process, without the seconds spent on compilation.
    ended : str
        ``answered``, or why it gave no answer.
    """

    engine: str
    seconds: float
    ended: str


def tried_before(stored: Iterable[Mapping[str, Any]]) -> tuple[Tried, ...]:
    """Rebuild attempts from the records in a run directory."""
    return tuple(Tried(**turn) for turn in stored)


@dataclass(frozen=True)
class DaskWork:
    """Tasks sent to the requested Dask cluster.

    Parameters
    ----------
    tasks : int
        Futures that were submitted.
    workers : int
        Processes that could run them; 0 where none were started.
    where : str
        Whose they are.
    why_none : str
        Why nothing was sent, if nothing was.
    """

    tasks: int
    workers: int
    where: str
    why_none: str = ""

    @property
    def text(self) -> str:
        """One line for a person."""
        if not self.tasks:
            return f"no task was sent to {self.where}: {self.why_none}"
        return f"{self.tasks:,} tasks on {self.workers} worker{'s' if self.workers != 1 else ''}, {self.where}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {**vars(self)}


@dataclass(frozen=True)
class DiagramWork:
    """How decision diagrams summed.

    Parameters
    ----------
    sums : int
        How many: a count takes one in floats and one for each prime.
    edges, nodes : int
        Edges of all diagrams of the first sum, and the nodes of the largest.
    error : float
        The sum in floats is off by at most this part of it.
    """

    sums: int
    edges: int
    nodes: int
    error: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {"method": "diagram", **vars(self)}


@dataclass(frozen=True)
class SearchWork:
    """How models of clauses were counted, or what they weigh was summed.

    Parameters
    ----------
    clauses : int
        That the model was turned into.
    nodes : int
        Decisions of the search that ended first.
    known : int
        Components that it had counted before.
    forgotten : int
        Components that had to make room for others.
    error : float
        The sum is off by at most this part of it, apart from the rounding of the logarithm; 0 for a count.
    """

    clauses: int
    nodes: int
    known: int
    forgotten: int
    error: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {"method": "search", **vars(self)}


@dataclass(frozen=True)
class RowsWork:
    """Tables that hold only what is possible.

    Parameters
    ----------
    why : str
        Why tables were rows.
    tables, dense : int
        Tables that steps made, and how many of them are arrays of all cells all the same, as those take fewer bytes.
    largest_rows, largest_cells : int
        Rows of the table of rows that has the most, and cells that it stands for.
    joined_rows : int
        Rows of all joins.
    written_bytes : int
        Chunks of tables that were written to disk.
    disk_bytes, most_disk_bytes : int
        Bytes of the tables on disk at the same time, and the maximum predicted before.
    """

    why: str
    tables: int
    dense: int
    largest_rows: int
    largest_cells: int
    joined_rows: int
    written_bytes: int = 0
    disk_bytes: int = 0
    most_disk_bytes: int = 0

    @property
    def text(self) -> str:
        """One line for a person."""
        share = f"{self.largest_rows:,} of 2^{log2(self.largest_cells):.1f} cells" if self.largest_rows else "none"
        written = f", {format_bytes(self.written_bytes)} written to disk" if self.written_bytes else ""
        if self.disk_bytes:
            written += f", {format_bytes(self.disk_bytes)} at a time (<= {format_bytes(self.most_disk_bytes)} planned)"
        return f"{self.why}; largest table of rows {share}, {self.dense} of {self.tables} tables dense{written}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {**vars(self)}


_Work = TypeVar("_Work", DaskWork, DiagramWork, SearchWork, RowsWork)


def work_before(kind: type[_Work], stored: Mapping[str, Any] | None) -> _Work | None:
    """Rebuild a work record from the dictionary that its ``to_dict`` returned."""
    return None if stored is None else kind(**{name: value for name, value in stored.items() if name != "method"})


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
