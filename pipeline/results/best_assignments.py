"""The best assignments of a model in order, as they are found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from .proof import plain_number, plan_dict, shown_assignment

if TYPE_CHECKING:
    from ..plans.plan import Plan


@dataclass(frozen=True)
class RankedAssignment:
    """An assignment by its rank.

    Parameters
    ----------
    rank : int
        From 1 on.
    value : int, Decimal or None
        What it costs, in a cost network.
    log10 : float or None
        log10 of its probability, otherwise.
    assignment : dict of str to str or int
        Variable name → state label, or index where states have no labels.
    """

    rank: int
    value: int | Decimal | None
    log10: float | None
    assignment: dict[str, str | int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        value = None if self.value is None else plain_number(self.value)
        return {"rank": self.rank, "value": value, "log10": self.log10, "assignment": self.assignment}


class BestAssignments(Iterator[RankedAssignment]):
    """Assignments in the order of their worth, each found when it is asked for; ties are in no order of meaning.

    Parameters
    ----------
    found : iterator of RankedAssignment
    optimal_count : int or None
        How many there are that are as good as the best; None where it was not asked for or is not counted.
    plan : Plan or None
        What was swept; None where nothing was left to eliminate.
    seconds : mapping of str to float
        Wall seconds before the first: of ``plan`` and ``run``.
    notes : tuple of str
    """

    optimal_count: int | None
    plan: Plan | None
    seconds: Mapping[str, float]
    notes: tuple[str, ...]

    def __init__(
        self,
        found: Iterator[RankedAssignment],
        optimal_count: int | None,
        plan: Plan | None,
        seconds: Mapping[str, float],
        notes: tuple[str, ...] = (),
    ) -> None:
        self._found = found
        self.optimal_count, self.plan, self.seconds, self.notes = optimal_count, plan, seconds, notes

    def __next__(self) -> RankedAssignment:
        return next(self._found)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints: plain types only, with all assignments that are still to come."""
        found = [each.to_dict() for each in self]
        return {
            "query": "best",
            "status": "optimal" if found else "infeasible",
            "optimal_count": None if self.optimal_count is None else str(self.optimal_count),
            "assignments": found,
            "plan": plan_dict(self.plan),
            "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as one line of JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def lines(self) -> Iterator[str]:
        """Yield a line for each assignment that is still to come, after one with their number where it is known."""
        if self.optimal_count is not None:
            yield f"{self.optimal_count:,} assignments are as good as the best"
        for each in self:
            worth = each.log10 if each.value is None else each.value
            yield f"{each.rank:>4}  {worth}  {shown_assignment(each.assignment)}"
