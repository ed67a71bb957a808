"""Constraints of XCSP3 over many variables, as machines that read the values of one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.model import FORBIDDEN, Function
from ..format_policy import FormatPolicy
from ..global_functions.decomposition import Decomposition
from ..global_functions.machine import Machine, State
from ..linear.wide_sums import add_linear, decided, equal_pairs
from ..text.tables import tuple_table

RELATIONS = {"lt": "<", "le": "<=", "ge": ">=", "gt": ">", "eq": "=", "ne": "!="}

_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "lt": np.less,
    "le": np.less_equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "eq": np.equal,
    "ne": np.not_equal,
}


@dataclass(frozen=True)
class Condition:
    """The right side of a comparison: an integer, a variable (its index, in a tuple), or a set of integers."""

    operator: str
    operand: int | tuple[int] | frozenset[int]

    def holds(self, number: int, other: int = 0) -> bool:
        """Whether a number fulfils it; ``other`` is the value of the variable, if the operand is one."""
        operand = self.operand
        if isinstance(operand, frozenset):
            return (number in operand) == (self.operator == "in")
        right = other if isinstance(operand, tuple) else operand
        return {
            "lt": number < right,
            "le": number <= right,
            "ge": number >= right,
            "gt": number > right,
            "eq": number == right,
            "ne": number != right,
        }[self.operator]

    def related(self) -> tuple[Callable[[Any, Any], Any], int | tuple[int]]:
        """Return a function of a number and of the operand's value, of arrays as well, and the operand; 0 for a set."""
        operand = self.operand
        if isinstance(operand, frozenset):
            among, wanted = [*operand], self.operator == "in"
            return lambda number, _: np.isin(number, among) == wanted, 0
        return _COMPARED[self.operator], operand


@dataclass
class Xcsp3Functions:
    """The functions of a problem that is being read.

    Parameters
    ----------
    parts : Decomposition
    values : sequence of tuple of int
        The value of each state, of the problem's own variables.
    """

    parts: Decomposition
    values: Sequence[tuple[int, ...]]

    def __post_init__(self) -> None:
        self.values = [*self.values]

    def hidden(self, values: Sequence[int]) -> tuple[int]:
        """Add a hidden variable with these values and return its index; the functions that follow must decide it."""
        v = self.parts.variable(len(values))
        assert isinstance(self.values, list)
        self.values += [()] * (v - len(self.values))
        self.values.append(tuple(values))
        return (v,)

    def machine(
        self, scope: Sequence[int], start: State, step: Callable[[State, int, int], State | None], end: State
    ) -> None:
        """Add a constraint: ``step`` is called with a state, a place in the scope and a value; None forbids."""
        places = [self.values[v] for v in scope]

        def read(state: State, place: int, own: int) -> State | None:
            return step(state, place, places[place][own])

        self.parts.machine(scope, Machine.counting(start, read, end))

    def conditioned(
        self,
        scope: Sequence[int],
        start: State,
        step: Callable[[State, int], State],
        number: Callable[[State], int],
        condition: Condition,
    ) -> None:
        """Compare what is known behind the last variable; a variable in the condition is read at the end."""
        operand, last = condition.operand, len(scope)

        def read(state: State, place: int, value: int) -> State | None:
            return (state, value) if place == last else step(state, value)

        def end(state: State) -> int:
            found, other = state if isinstance(operand, tuple) else (state, 0)
            return 0 if condition.holds(number(found), other) else FORBIDDEN

        self.machine([*scope, *(operand if isinstance(operand, tuple) else ())], start, read, end)

    def total(self, scope: Sequence[int], weights: Sequence[Sequence[int]], condition: Condition) -> None:
        """Compare a sum of amounts of states; the amounts of a variable named twice are added."""
        operand = condition.operand
        own: dict[int, list[int]] = {}
        pairs = [*zip(scope, weights, strict=True)]
        if isinstance(operand, tuple):
            pairs.append((operand[0], [-value for value in self.values[operand[0]]]))
        for v, added in pairs:
            own[v] = [*map(int.__add__, own[v], added)] if v in own else [*added]
        kept = {v: added for v, added in own.items() if any(added)}
        sums, right = [*kept.values()], 0 if isinstance(operand, tuple) else operand
        if isinstance(right, frozenset):
            ends = min(right, default=1), max(right, default=0)
            if condition.operator == "in" and len(right) == ends[1] - ends[0] + 1:
                self._linear([*kept], sums, ">=", ends[0])
                self._linear([*kept], sums, "<=", ends[1])
                return

            def end(total: int) -> int:
                return 0 if condition.holds(total) else FORBIDDEN

            self.parts.machine([*kept], Machine.counting(0, lambda total, at, s: total + sums[at][s], end))
            return
        relation = RELATIONS[condition.operator]
        right += {"<": -1, ">": 1}.get(relation, 0)
        self._linear([*kept], sums, {"<": "<=", ">": ">="}.get(relation, relation), right)

    def _linear(self, scope: Sequence[int], sums: Sequence[Sequence[int]], relation: str, right: int) -> None:
        holds = decided(sum(map(min, sums)), sum(map(max, sums)), relation, right)
        if holds is None:
            add_linear(self.parts, scope, sums, relation, right)
        elif not holds:
            self.parts.forbid()

    def table(self, scope: Sequence[int], allowed: Callable[..., bool]) -> None:
        """Add a small constraint by trying all values of a scope."""
        sizes = [len(self.values[v]) for v in scope]
        costs = np.empty(sizes, np.int64)
        for at in np.ndindex(*sizes):
            costs[at] = 0 if allowed(*(self.values[v][s] for v, s in zip(scope, at, strict=True))) else FORBIDDEN
        if (costs == FORBIDDEN).any():
            self.parts.table(scope, costs)

    def allowed(self, scope: Sequence[int], truth: NDArray[np.bool_]) -> None:
        """Forbid the assignments at which an array over a scope is false: by a table, or by rows of the rarer value."""
        if truth.size <= FormatPolicy.current().predicate_cells:
            self.parts.table(scope, np.where(truth, 0, FORBIDDEN))
            return
        few = np.count_nonzero(truth) * 2 <= truth.size
        rows = np.argwhere(truth if few else ~truth).astype(np.int32)
        costs = np.full(len(rows), 0 if few else FORBIDDEN, np.int64)
        self.parts.add(tuple_table(scope, self.parts.dims, rows, costs, FORBIDDEN if few else 0))

    def different(self, scope: Sequence[int], but: frozenset[int]) -> None:
        """Forbid equal values of two variables, except for the excepted values."""
        known: dict[tuple[int, int], Function] = {}  # pairs of the same two domains share a table
        for k, x in enumerate(scope):
            for y in scope[k + 1 :]:
                key = id(self.values[x]), id(self.values[y])
                if x == y:
                    self.table([x], lambda value: value in but)
                elif key in known:
                    self.parts.again(known[key], (x, y))
                elif len(self.values[x]) * len(self.values[y]) > FormatPolicy.current().predicate_cells:
                    rows = equal_pairs(np.array(self.values[x], np.int64), np.array(self.values[y], np.int64))
                    rows = rows[[self.values[x][state] not in but for state in rows[:, 0]]]
                    self.parts.add(tuple_table([x, y], self.parts.dims, rows, np.full(len(rows), FORBIDDEN), 0))
                    known[key] = self.parts.functions[-1]
                elif {*self.values[x]} & {*self.values[y]} - but:
                    equal = np.equal.outer(self.values[x], self.values[y]) & ~np.isin(self.values[x], [*but])[:, None]
                    self.parts.table([x, y], np.where(equal, FORBIDDEN, 0))
                    known[key] = self.parts.functions[-1]

    def element(self, scope: Sequence[int], index: int, condition: Condition) -> None:
        """Compare the variable at an index; variables of other places may have any value."""
        places = [place for place in self.values[index] if 0 <= place < len(scope)]

        def step(state: State, place: int, value: int) -> State | None:
            if state is None or place == 0:
                return ("at", value) if value in places else None
            known, at = state
            return ("is", value) if known == "at" and at == place - 1 else state

        operand, last = condition.operand, len(scope) + 1

        def read(state: State, place: int, value: int) -> State | None:
            return (state, value) if place == last else step(state, place, value)

        def end(state: State) -> int:
            (known, number), other = state if isinstance(operand, tuple) else (state, 0)
            return 0 if known == "is" and condition.holds(number, other) else FORBIDDEN

        self.machine([index, *scope, *(operand if isinstance(operand, tuple) else ())], ("", 0), read, end)
