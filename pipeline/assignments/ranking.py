"""The best assignments in order: best-first over the kept tables of an optimum's sweep, whose bounds are exact.

What is left below a partial assignment is known exactly from the tables, so that A* never meets a partial assignment
that it leaves again (Flerova, Marinescu and Dechter, JAIR 2016, "Searching for the M best solutions in graphical
models"). Each assignment leads to others that follow it down to some step and take the next best state there (Lawler
1972): none is met twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.sweeps.ranked_states import chosen_by, optimal_counts, ranked, two_best
from ..queries.arithmetic import CostOptimum, EnergyOptimum
from .kept_sweep import KeptSweep
from .ranked_rows import Choice, choice_of
from .swept_tables import SweptTables

Array = NDArray[Any]
# float64 counts exactly up to here.
_EXACT = 1 << 53


@dataclass(frozen=True, eq=False)
class KeptCosts(CostOptimum):
    """Least costs whose tables all stay."""

    keeps = True


@dataclass(frozen=True, eq=False)
class KeptEnergies(EnergyOptimum):
    """Least energies whose tables all stay."""

    keeps = True


class Deviation(NamedTuple):
    """Assignments that are not made yet: as another one down to a step, and from there the best of a rank on.

    Attributes
    ----------
    total : int or float
        What the best of them is worth, above fixed functions.
    slice, number : int
        Of equals, those of the first slice go first, then those that were met first.
    states : ndarray of int
        The other assignment, local variables.
    place : int
        The step, in the order of the walk down.
    rank : int
        Of its joint states.
    """

    total: Any
    slice: int
    number: int
    states: Array
    place: int
    rank: int


@dataclass
class Ranking:
    """Assignments of local variables in the order of their worth.

    Parameters
    ----------
    sweep : KeptSweep
    totals : list
        What the best of each slice is worth; None where nothing is possible.
    most : int or None
        How many are asked for at most.
    """

    sweep: KeptSweep[Array]
    totals: list[Any]
    most: int | None = None
    _heap: list[Deviation] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _there: int = -1
    _fixed: Mapping[int, int] = field(default_factory=dict)
    _tables: SweptTables[Array] | None = None
    _stages: dict[int, tuple[int, list[Choice]]] = field(default_factory=dict)
    _places: list[tuple[int, int]] = field(default_factory=list)

    def know_whole(self) -> None:
        """Sweep a plan without slices, whose value is not known yet."""
        if not self.totals:
            self._open(0)
            assert self._tables is not None
            self.totals = [self.sweep.total(self._tables)]

    @property
    def best(self) -> Any:
        """What the optimum is worth; None if nothing is possible."""
        return min((total for total in self.totals if total is not None), default=None)

    def ranked(self, limit: Any = math.inf) -> Iterator[tuple[Any, Array]]:
        """Yield worth and states of one assignment after the other, up to a limit of their worth.

        Yields
        ------
        int or float
        ndarray of int, shape (local variables,)
        """
        variables, done = len(self.sweep.sizes), 0
        start = np.zeros(variables, np.int32)
        for number, total in enumerate(self.totals):
            if total is not None and total <= limit:
                heappush(self._heap, Deviation(total, number, next(self._numbers), start, 0, 0))
        while self._heap and (self.most is None or done < self.most):
            found = heappop(self._heap)
            self._open(found.slice)
            yield found.total, self._followed(found, limit)
            done += 1
            self._forget(done)

    def _open(self, number: int) -> None:
        """Sweep a slice, or a box at the roots, unless its tables are those that are here."""
        if number == self._there:
            return
        self._tables, self._stages = None, {}
        swept = self.sweep.tables(number)
        self._stages[0] = number, self._choices(swept)
        if not self._places:
            counts = [len(self._stages[0][1]), *(self._chosen(stage) for stage in range(1, self.sweep.stages))]
            self._places = [(stage, place) for stage, count in enumerate(counts) for place in range(count)]
        self._fixed, self._there = swept.states, number
        self._tables = swept if self.sweep.boxes is None else None

    def _choices(self, swept: SweptTables[Array]) -> list[Choice]:
        """Return the steps of a sweep that choose something, from the roots down."""
        semiring = self.sweep.run.problem.semiring
        tables = [[table for table, _ in swept.read(step)] for step in swept.steps]
        pairs = zip(swept.steps, tables, strict=True)
        steps = [choice_of(step, own, swept.sizes, semiring) for step, own in pairs][::-1]
        return [step for step in steps if step.chosen]

    def _chosen(self, stage: int) -> int:
        """How many steps of a stage on disk choose something."""
        assert self.sweep.boxes is not None
        sizes = self.sweep.boxes.sizes(stage)
        return sum(bool(chosen_by(step, sizes)) for step in self.sweep.boxes.stages[stage].steps)

    def _choice(self, place: int, states: Array) -> Choice:
        """Return a choice; that of a stage on disk is of the box that an assignment passes."""
        (stage, own), boxes = self._places[place], self.sweep.boxes
        if boxes is not None:
            number = self._there if not stage else int(boxes.number(stage, states))
            if self._stages.get(stage, (-1, []))[0] != number:
                kept = self._stages if boxes.fit_together else {}
                self._stages = kept  # before others are swept
                self._stages[stage] = number, self._choices(self.sweep.tables(number, stage))
        return self._stages[stage][1][own]

    def _followed(self, found: Deviation, limit: Any) -> Array:
        """Return the best assignment of a deviation, and enter those that deviate from it."""
        states = found.states.copy()
        for v, state in self._fixed.items():
            states[v] = state
        for place in range(found.place, len(self._places)):
            step = self._choice(place, states)
            worth = step.worth(states)
            rank = found.rank if place == found.place else 0
            if rank:
                chosen = ranked(worth, rank)
                following = ranked(worth, rank + 1) if rank + 1 < len(worth) else -1
            else:
                chosen, following = two_best(worth)
            if following >= 0:
                self._enter(found, states, place, rank + 1, worth[following].item() - worth[chosen].item(), limit)
            step.enter(chosen, states)
        return states

    def _enter(self, found: Deviation, states: Array, place: int, rank: int, more: Any, limit: Any) -> None:
        """Enter a deviation, unless it is worth too much or forbidden; ``more`` is what it is above the assignment."""
        total = found.total + more
        if total <= limit and total < self.sweep.run.problem.semiring.zero:
            heappush(self._heap, Deviation(total, found.slice, next(self._numbers), states, place, rank))

    def _forget(self, done: int) -> None:
        """Drop deviations that are not needed: each of those that are left has an assignment of its own."""
        if self.most is not None and len(self._heap) > 4 * (self.most - done) + 64:
            self._heap = nsmallest(self.most - done, self._heap)
            heapify(self._heap)

    def optimal_count(self, cells: int) -> int | None:
        """Return how many assignments are worth as much as the optimum; None where that takes tables of more cells."""
        by_rows = self.sweep.run.plan.row_bounds is not None
        if not self.sweep.run.problem.semiring.saturates or self.sweep.boxes is not None or by_rows:
            return None
        found = 0
        for number, total in enumerate(self.totals):
            if total == self.best:
                self._open(number)
                own = self._counted(cells)
                if own is None:
                    return None
                found += own
        return found

    def _counted(self, cells: int) -> int | None:
        """Count the optimal assignments of the slice that is here."""
        assert self._tables is not None
        swept, semiring, counts = self._tables, self.sweep.run.problem.semiring, dict[int, Array]()
        for step in swept.steps:
            if step.lowered.cells > cells:
                return None
            made = optimal_counts(step, swept.tables, counts, swept.sizes, semiring)
            if made.max(initial=0.0) >= _EXACT:
                return None
            counts[step.node] = made
        return math.prod(int(counts[root].item()) for root in self.sweep.run.plan.tree.roots)
