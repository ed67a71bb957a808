"""The best assignments in order: best-first search (A*) with exact bounds, from the stored tables of a sweep.

The tables give the exact value of the best completion of a partial assignment. A* therefore expands only partial
assignments of the listed assignments (Flerova, Marinescu and Dechter, JAIR 2016, "Searching for the M best solutions in
graphical models"). Each listed assignment generates further assignments: they agree with it down to some step, and take
the next best state there (Lawler 1972). No assignment is generated twice.

Diverse assignments follow another rule: each assignment is the best that differs in enough variables from all earlier
assignments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.memory_account import RowsNoRoomError
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import EXACT_INTEGER
from ...tasks.steps.policy import Policy
from ...tasks.steps.semiring import Semiring
from ...tasks.steps.step import Step
from ..errors import BudgetError, InternalError, format_bytes
from ..formats.global_functions.decomposition import Decomposition
from ..formats.global_functions.global_kinds import add_diverse
from ..formats.text.source import Allowance
from ..models.model import FORBIDDEN, Function, Model
from ..queries.arithmetic import CostOptimum, EnergyOptimum
from ..queries.decode import choices
from ..results.best_assignments import RankedAssignment
from .kept_sweep import KeptSweep, SweptTables, no_room


@dataclass(frozen=True)
class RankingPolicy(Policy):
    """The numbers of the best assignments where no sweep is quick.

    Parameters
    ----------
    swept_cells, hopeless_cells : float
        Cells of a sweep in the buckets of a quick order. Above ``swept_cells``, a short search for a tree (up to 5 s)
        prices the sweep before it is planned, because a better tree can make the sweep fast. Above ``hopeless_cells``
        no tree makes it fast.
    swept_seconds : float
        A sweep that keeps its tables and is predicted to take less is not worth a proof of the optimum before it.
    patience_seconds : float
        CPU seconds of a search, where no time was given and nothing else is left to try.
    optimum_times : float
        If no sweep fits, a search runs for at least this many times the seconds of the optimum.
    passed_most : int
        Assignments in order that are passed over for being too near to those listed, before the network is given
        constraints: each takes some 0.1 ms, an optimum under constraints at least some tens of milliseconds.
    """

    swept_cells: float = 2.0**36
    hopeless_cells: float = 2.0**64
    swept_seconds: float = 2.0
    patience_seconds: float = 60.0
    optimum_times: float = 10.0
    passed_most: int = 1000


# Joint states by their worth, best first, and how many assignments below a step attain what it made.


def two_best(worth: Array) -> tuple[int, int]:
    """Return the best joint state and the second, the first of equals; -1 where there is one only."""
    first = int(worth.argmin())
    parts = ((worth[:first], 0), (worth[first + 1 :], first + 1))
    others = [int(part.argmin()) + start for part, start in parts if len(part)]
    return first, min(others, key=lambda place: worth[place], default=-1)


def ranked(worth: Array, rank: int) -> int:
    """Return the joint state of a rank, counted from 0: by worth, the first of equals in C order."""
    limit = np.partition(worth, rank)[rank]
    places = np.flatnonzero(worth <= limit)
    return int(places[np.argsort(worth[places], kind="stable")[rank]])


def optimal_counts(
    step: Step, tables: Mapping[int, Array], counts: Mapping[int, Array], sizes: Sequence[int], semiring: Semiring
) -> Array:
    """Return for each entry of a step's output how many assignments below attain it; 0 where it is forbidden.

    Parameters
    ----------
    tables : mapping of int to ndarray
        Min-plus tables of integers, the step's own among them.
    counts : mapping of int to ndarray
        What this returned for those inputs that are messages.

    Returns
    -------
    ndarray, float64, flat
    """
    scope = list(dict.fromkeys([*step.axes, *(v for axes in step.input_axes for v in axes)]))
    shape = [sizes[v] for v in scope]
    total: Array = np.zeros(shape, semiring.dtype)
    times: Array = np.ones(shape)
    for node, axes in zip(step.inputs, step.input_axes, strict=True):
        total = np.minimum(total + _spread(tables[node], axes, scope, sizes), semiring.zero)
        if node in counts:
            times *= _spread(counts[node], axes, scope, sizes)
    best = _spread(tables[step.node], step.axes, scope, sizes)
    times[(total != best) | (total >= semiring.zero)] = 0.0
    return np.asarray(times.sum(axis=tuple(range(len(step.axes), len(scope)))).reshape(-1))


def _spread(table: Array, axes: Sequence[int], scope: Sequence[int], sizes: Sequence[int]) -> Array:
    """Return a flat table with an axis for each variable of a scope; one cell along those it lacks."""
    places = [axes.index(v) for v in scope if v in axes]
    shaped = table.reshape([sizes[v] for v in axes]).transpose(places)
    return shaped.reshape([sizes[v] if v in axes else 1 for v in scope])


Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class KeptCosts(CostOptimum):
    """Least costs whose tables all stay."""

    keeps = True


@dataclass(frozen=True, eq=False)
class KeptEnergies(EnergyOptimum):
    """Least energies whose tables all stay."""

    keeps = True


@dataclass(frozen=True, eq=False)
class FoundStates:
    """An assignment, and what the next best choice of each step would cost it.

    Parameters
    ----------
    states : dict of int to int
        Local variables.
    more : list of list
        For each step, in the order of the walk down, and each choice that it makes; None where there is no other.
    """

    states: dict[int, int]
    more: list[list[Any]]


class Deviation(NamedTuple):
    """Assignments that are not made yet: as another one down to a choice, and from there the best of a rank on.

    Attributes
    ----------
    total : int or float
        Value of the best assignment of the deviation, without the fixed functions.
    slice, number : int
        Tie-breakers: deviations of an earlier slice come first, then deviations that were generated earlier.
    base : FoundStates
        The other assignment.
    place, choice : int
        The step, in the order of the walk down, and which of its choices.
    rank : int
        Of the joint states of that choice.
    """

    total: Any
    slice: int
    number: int
    base: FoundStates
    place: int
    choice: int
    rank: int


@dataclass
class Ranking:
    """Assignments of local variables in the order of their worth.

    Parameters
    ----------
    sweep : KeptSweep
    most : int or None
        How many are asked for at most.
    """

    sweep: KeptSweep[Any]
    most: int | None = None
    _heap: list[Deviation] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _limit: Any = math.inf
    _first: dict[int, tuple[Hashable, list[Any]]] = field(default_factory=dict)
    """For each step, the last states above it, and the cached values of its first choice if its join is large."""

    @property
    def best(self) -> Any:
        """The value of the optimum; None if no assignment is possible."""
        return min((total for total in self.sweep.totals if total is not None), default=None)

    def ranked(self, limit: Any = math.inf) -> Iterator[tuple[Any, Mapping[int, int]]]:
        """Yield worth and states of one assignment after the other, up to a limit of their worth.

        Yields
        ------
        int or float
        mapping of int to int
            A state of each local variable.

        Raises
        ------
        BudgetError
            If a join of rows does not fit.
        """
        done, self._limit = 0, limit
        nothing = FoundStates({}, [[] for _ in self.sweep.order])
        for number, total in enumerate(self.sweep.totals):
            if total is not None and total <= limit:
                heappush(self._heap, Deviation(total, number, next(self._numbers), nothing, 0, 0, 0))
        while self._heap and (self.most is None or done < self.most):
            deviation = heappop(self._heap)
            try:
                states = self._followed(deviation)
            except RowsNoRoomError as error:
                raise no_room(error) from None
            yield deviation.total, states
            done += 1
            self._forget(done)

    def _followed(self, deviation: Deviation) -> Mapping[int, int]:
        """Return the best assignment of a deviation, and enter the deviations from this assignment.

        A step that reads no state which differs from the other assignment's chooses what it chose there.
        """
        base, place = deviation.base, deviation.place
        found, changed = FoundStates({**base.states}, [*base.more]), set[int]()
        for at in range(place, len(self.sweep.order)):
            if at == place or not base.states or not changed.isdisjoint(self.sweep.given[at]):
                found.more[at] = self._chosen(deviation, found, at, changed)
            for choice, more in enumerate(found.more[at]):
                self._enter(deviation, found, at, choice, 1, more)
        return found.states

    def _chosen(self, deviation: Deviation, found: FoundStates, place: int, changed: set[int]) -> list[Any]:
        """Let a step choose at the states above it, and return the extra cost of the next best state of each choice."""
        step, swept = self.sweep.passed(deviation.slice, place, found.states)
        states = {**swept.states, **{v: found.states[v] for v in self.sweep.given[place] if v in found.states}}
        semiring, others, here = self.sweep.run.problem.semiring, list[Any](), place == deviation.place
        key: Hashable = deviation.slice, tuple(sorted(states.items()))
        if self._first.get(place, (None, []))[0] != key:
            self._first[place] = key, []
        known, algebra = self._first[place][1], self.sweep.algebra
        read = choices(step, swept.tables, swept.sizes, algebra, semiring, states, known)
        for number, choice in enumerate(read):
            more = None
            if here and number < deviation.choice:
                own = {v: found.states[v] for v in choice.scope}
            else:
                rank = deviation.rank if here and number == deviation.choice else 0
                chosen, following = _ranks(choice.worth, rank)
                own = choice.states(chosen)
                if following >= 0:
                    more = choice.worth[following].item() - choice.worth[chosen].item()
                if rank:  # the others of lower ranks are deviations already
                    self._enter(deviation, found, place, number, rank + 1, more)
                    more = None
            others.append(more)
            states |= own
        changed |= {v for v, state in states.items() if found.states.get(v) != state}
        found.states.update(states)
        return others

    def _enter(self, above: Deviation, found: FoundStates, place: int, choice: int, rank: int, more: Any) -> None:
        """Enter a deviation, unless it is worth too much or forbidden; ``more`` is what it is above the assignment."""
        if more is None:
            return
        total = above.total + more
        if total <= self._limit and total < self.sweep.run.problem.semiring.zero:
            heappush(self._heap, Deviation(total, above.slice, next(self._numbers), found, place, choice, rank))

    def _forget(self, done: int) -> None:
        """Drop deviations that are not needed, because each remaining deviation has an assignment of its own."""
        if self.most is not None and len(self._heap) > 4 * (self.most - done) + 64:
            self._heap = nsmallest(self.most - done, self._heap)
            if self._heap:
                self._limit = min(self._limit, self._heap[-1].total)
            heapify(self._heap)

    def optimal_count(self, cells: int) -> int | None:
        """Return how many assignments are worth as much as the optimum; None where that takes tables of more cells."""
        by_rows = self.sweep.run.plan.row_bounds is not None
        if not self.sweep.run.problem.semiring.saturates or self.sweep.boxes is not None or by_rows:
            return None
        found = 0
        for number, total in enumerate(self.sweep.totals):
            if total == self.best:
                own = self._counted(self.sweep.tables(number), cells)
                if own is None:
                    return None
                found += own
        return found

    def _counted(self, swept: SweptTables[Array], cells: int) -> int | None:
        """Count the optimal assignments of a slice."""
        semiring, counts = self.sweep.run.problem.semiring, dict[int, Array]()
        for step in swept.steps:
            if step.lowered.cells > cells:
                return None
            made = optimal_counts(step, swept.tables, counts, swept.sizes, semiring)
            if made.max(initial=0.0) >= EXACT_INTEGER:
                return None
            counts[step.node] = made
        return math.prod(int(counts[root].item()) for root in self.sweep.run.plan.tree.roots)


def _ranks(worth: Array, rank: int) -> tuple[int, int]:
    """Return the joint state of a rank and the next one; -1 where there is none."""
    if not rank:
        return two_best(worth)
    return ranked(worth, rank), ranked(worth, rank + 1) if rank + 1 < len(worth) else -1


Assignment = Mapping[str, Any]


@dataclass(frozen=True)
class DiverseAssignments:
    """Assignments of a model, each the best of all that differ enough from every one before it.

    Assignments in order are passed over as long as few of them are too near; then the network is given a constraint
    for each that was listed, a chain of hidden variables that count, and its optimum is found as any other. Either way
    the next one is the same, but for ties.

    Parameters
    ----------
    model : Model
    least : int
        In how many of the model's own variables any two differ at least.
    order : sequence of int
        Own variables in the order in which constraints count: one in which they are eliminated keeps widths small.
    memory_bytes : int
        For the functions of constraints.
    solve : callable
        Returns the best assignment of a network with constraints; None if none is possible, or time is over.
    """

    model: Model
    least: int
    order: Sequence[int]
    memory_bytes: int
    solve: Callable[[Model], RankedAssignment | None]

    def listed(self, ranked: Iterable[RankedAssignment] | None) -> Iterator[RankedAssignment]:
        """Yield diverse assignments, chosen from the full ranking if it is available.

        Raises
        ------
        BudgetError
            If a network with constraints fits no way.
        """
        chosen: list[RankedAssignment] = []
        for found in self._found(ranked, chosen):
            chosen.append(replace(found, rank=len(chosen) + 1))
            yield chosen[-1]

    def _found(
        self, ranked: Iterable[RankedAssignment] | None, chosen: Sequence[RankedAssignment]
    ) -> Iterator[RankedAssignment]:
        """Yield what is to be chosen next."""
        if ranked is not None:
            passed = 0
            for each in ranked:
                if not self._is_distant(each.assignment, chosen):
                    passed += 1
                    if passed > RankingPolicy.current().passed_most:
                        break
                    continue
                yield each
            else:
                return
        model, constraints = self.model, 0
        allowance = Allowance(model.name or "the model", self.memory_bytes)
        while True:
            try:
                model = self._constrained(model, [each.assignment for each in chosen[constraints:]], allowance)
            except BudgetError:
                needed, allowed = format_bytes(allowance.taken), format_bytes(allowance.memory)
                raise BudgetError(
                    f"the distance constraints to {len(chosen):,} assignments need at least {needed} of "
                    f"memory, allowed {allowed}; give a larger --memory"
                ) from None
            constraints = len(chosen)
            found = self.solve(model)
            if found is None:
                return
            if not self._is_distant(found.assignment, chosen):
                raise InternalError("an assignment differs in too few variables from an earlier assignment")
            yield found

    def _is_distant(self, assignment: Assignment, chosen: Sequence[RankedAssignment]) -> bool:
        """Whether it differs enough from all that were chosen."""
        return all(
            sum(one != other for one, other in zip(assignment.values(), each.assignment.values(), strict=True))
            >= self.least
            for each in reversed(chosen)
        )

    def _constrained(self, model: Model, assignments: Sequence[Assignment], allowance: Allowance) -> Model:
        """Return a network in which all that is too near to some assignments is forbidden, too."""
        parts = Decomposition([*model.dims], FORBIDDEN, allowance)
        for assignment in assignments:
            values = [model.state_index(v, assignment[model.names[v]]) for v in self.order]
            add_diverse(parts, tuple(self.order), {"values": values, "distance": self.least})
        functions = parts.functions if model.kind == "cost" else [_zeros(each) for each in parts.functions]
        return replace(
            model,
            kind="cost" if model.kind == "cost" else "markov",
            names=parts.names(model.names),
            dims=tuple(parts.dims),
            states=(*model.states, *[None] * parts.hidden),
            functions=(*model.functions, *functions),
            hidden=model.hidden + parts.hidden,
            projection=None,
        )


def _zeros(costs: Function) -> Function:
    """Return the potentials that are 0 where costs are forbidden, and 1 elsewhere."""
    values = (costs.values < FORBIDDEN).astype(np.float64)
    default = float(costs.default < FORBIDDEN) if costs.rows is not None else 0.0
    return replace(costs, values=values, default=default)
