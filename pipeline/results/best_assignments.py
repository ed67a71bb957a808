"""The best assignments of a model in order, as they are found."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ..drawings.shown import first_lines, wrapped
from ..errors import MOST_NAMED, counted, public, shown_number
from ..models.frames import Tabled
from .proof import AskedOf, plain_number, plan_dict, shown_assignment

if TYPE_CHECKING:
    from ..plans.plan import Plan

#: Assignments that ``repr`` and a notebook show.
FIRST = 10


@public
@dataclass(frozen=True)
class RankedAssignment:
    """An assignment by its rank.

    Parameters
    ----------
    rank : int
        From 1 on.
    value : int, Decimal or None
        Its cost, in a cost network.
    log10 : float or None
        log10 of its probability, otherwise.
    assignment : dict of str to str or int
        Variable name → state label, or index where states have no labels.

    Examples
    --------
    >>> import bucketflow
    >>> (first,) = bucketflow.best("satellite", 1)
    >>> first.value, len(first.assignment)
    (49, 40)
    """

    rank: int
    value: int | Decimal | None
    log10: float | None
    assignment: dict[str, str | int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        value = None if self.value is None else plain_number(self.value)
        return {"rank": self.rank, "value": value, "log10": self.log10, "assignment": self.assignment}


@public
class BestAssignments(Iterator[RankedAssignment], Tabled):
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
    listed : int
        Assignments that iteration has yielded.
    asked : AskedOf or None
        The model and the evidence that were asked.
    unproved : callable
        Returns, after the last assignment, the reason why the list ended early, or None if it did not.

    Examples
    --------
    >>> import bucketflow
    >>> ranked = bucketflow.best("satellite", 2)
    >>> [each.value for each in ranked]
    [49, 49]
    """

    optimal_count: int | None
    plan: Plan | None
    seconds: Mapping[str, float]
    notes: tuple[str, ...]
    listed: int

    def __init__(
        self,
        found: Iterator[RankedAssignment],
        optimal_count: int | None,
        plan: Plan | None,
        seconds: Mapping[str, float],
        notes: tuple[str, ...] = (),
        asked: AskedOf | None = None,
        unproved: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._found, self.asked, self._unproved = found, asked, unproved
        self._seen: deque[RankedAssignment] = deque()
        self.listed = 0
        self.optimal_count, self.plan, self.seconds, self.notes = optimal_count, plan, seconds, notes

    def __next__(self) -> RankedAssignment:
        found = self._seen.popleft() if self._seen else next(self._found)
        self.listed += 1
        return found

    @property
    def unproved(self) -> str | None:
        """The reason why the list ended early, known after the last assignment; None if it did not end early."""
        return self._unproved()

    def first(self, most: int) -> list[RankedAssignment]:
        """Return the next assignments, at most ``most``, without taking them: iteration still yields them."""
        self._seen.extend(islice(self._found, max(most - len(self._seen), 0)))
        return list(islice(self._seen, most))

    def __repr__(self) -> str:
        return first_lines(self._first_lines(), "iterate to get all")

    def _repr_html_(self) -> str:
        from ..drawings.html import Html

        return Html(f"<pre>{escape(repr(self))}</pre>")._repr_html_()

    def _first_lines(self) -> Iterator[str]:
        """Yield the lines of the next :data:`FIRST` assignments, which iteration still yields."""
        found = self.first(FIRST + 1)
        yield from self._lines_of(iter(found[:FIRST]))
        if not found:
            yield "no assignment is left"
        if len(found) > FIRST:
            yield f"… the next {FIRST} assignments; iterate to get all"

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield headings, then one row for each remaining assignment: its rank, its value, and all states."""
        first = next(self, None)
        yield "rank", "value", "log10", *(first.assignment if first else ())
        for each in () if first is None else chain([first], self):
            yield each.rank, each.value, each.log10, *each.assignment.values()

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain types, as ``--json`` prints it, with all remaining assignments."""
        found = [each.to_dict() for each in self]
        unproved = self.unproved
        return {
            "query": "best",
            "status": "bounded" if unproved else "optimal" if found else "infeasible",
            **({"unproved": unproved} if unproved else {}),
            "optimal_count": None if self.optimal_count is None else str(self.optimal_count),
            "assignments": found,
            "plan": plan_dict(self.plan),
            "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
            **({"notes": list(self.notes)} if self.notes else {}),
            **(self.asked.to_dict() if self.asked else {}),
        }

    def lines(self) -> Iterator[str]:
        """Yield a line for each assignment that is still to come, after one with their number where it is known.

        The first assignment is shown in full. Of more than ``MOST_NAMED`` variables, a later assignment
        is shown by the variables that differ from the first.
        """
        yield from self._lines_of(self)
        if self.unproved:
            yield f"the list is incomplete: {self.unproved}"

    def _lines_of(self, found: Iterator[RankedAssignment]) -> Iterator[str]:
        if self.optimal_count is not None:
            verb = "is" if self.optimal_count == 1 else "are"
            yield f"{counted(self.optimal_count, 'assignment')} {verb} as good as the best"
        first: Mapping[str, str | int] = {}
        for each in found:
            worth = each.log10 if each.value is None else each.value
            first = first or each.assignment
            yield from wrapped(f"{each.rank:>4}  {shown_number(worth)}  ", _shown(each.assignment, first))


def _shown(assignment: Mapping[str, str | int], first: Mapping[str, str | int]) -> str:
    """Return an assignment on one line, or only the variables that differ from the first."""
    differing = {name: state for name, state in assignment.items() if state != first[name]}
    whole = not differing or len(assignment) <= MOST_NAMED
    return shown_assignment(assignment) if whole else f"as the first except {shown_assignment(differing)}"
