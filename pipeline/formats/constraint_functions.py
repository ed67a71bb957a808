"""Functions of constraints in XCSP3, FlatZinc and CPMpy: tables of few variables, clauses, machines that read sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetError, format_count
from ..models.model import FORBIDDEN, Function
from .flatzinc.flatzinc_syntax import Operand
from .format_policy import FormatPolicy
from .global_functions.decomposition import Decomposition
from .global_functions.machine import Machine, Moves, State
from .linear.integer_domains import AffineViews, LinearRow
from .linear.wide_sums import MOST_CELLS, add_linear, add_reified_linear, decided, equal_pairs, linear_machine
from .text.tables import tuple_table

Numbers = NDArray[Any]
Literal = tuple[Operand, bool]
"""A boolean, and the value of it that makes the literal true."""


RELATIONS = {"lt": "<", "le": "<=", "ge": ">=", "gt": ">", "eq": "=", "ne": "!="}
NEGATED = {"=": "!=", "!=": "=", "<=": ">", ">": "<=", ">=": "<", "<": ">="}
#: The same relations, of integers and of arrays.
COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {"lt": lt, "le": le, "ge": ge, "gt": gt, "eq": eq, "ne": ne}


def without_strict(relation: str, right: int) -> tuple[str, int]:
    """Return a relation to an integer without < and >."""
    return {"<": ("<=", right - 1), ">": (">=", right + 1)}.get(relation, (relation, right))


@dataclass(frozen=True)
class Condition:
    """The right side of a comparison: an integer, a variable (its index, in a tuple), or a set of integers."""

    operator: str
    operand: Operand | frozenset[int]

    def holds(self, number: int, other: int = 0) -> bool:
        """Whether a number fulfils it; ``other`` is the value of the variable, if the operand is one."""
        operand = self.operand
        if isinstance(operand, frozenset):
            return (number in operand) == (self.operator == "in")
        return bool(COMPARED[self.operator](number, other if isinstance(operand, tuple) else operand))

    def related(self) -> tuple[Callable[[Any, Any], Any], Operand]:
        """Return a function of a number and of the operand's value, of arrays as well, and the operand; 0 for a set."""
        operand = self.operand
        if isinstance(operand, frozenset):
            among, wanted = [*operand], self.operator == "in"
            return lambda number, _: np.isin(number, among) == wanted, 0
        return COMPARED[self.operator], operand


@dataclass
class ConstraintFunctions:
    """The functions of a problem of constraints that is being read; operands are variables or integers.

    Parameters
    ----------
    parts : Decomposition
    values : sequence of tuple of int
        The value of each state, of the problem's own variables.
    views : AffineViews, optional
        Expressions of wide variables by others, if a domain is wide.
    """

    parts: Decomposition
    values: Sequence[tuple[int, ...]]
    views: AffineViews | None = None

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

    def cells(self, operands: Sequence[Operand]) -> int:
        """Return the number of joint values of the variables among operands."""
        return prod(len(self.values[v]) for v in {each[0] for each in operands if isinstance(each, tuple)})

    def _scope(self, operands: Sequence[Operand], what: str = "") -> list[int]:
        """Return the variables among operands, each once, if they have few enough joint values."""
        scope = list(dict.fromkeys(each[0] for each in operands if isinstance(each, tuple)))
        cells = self.cells(operands)
        if cells > MOST_CELLS:
            raise BudgetError(
                f"{self.parts.allowance.path}: {what or self.parts.what} has {format_count(cells)} joint values, and "
                f"at most {format_count(MOST_CELLS)} are tried; bound its variables more tightly"
            )
        self.parts.allowance.take(0, "a table of a constraint", for_now=48 * cells)
        return scope

    def _grids(self, operands: Sequence[Operand], scope: Sequence[int]) -> list[Numbers]:
        """Return the values of operands, broadcast over a scope."""
        grids = []
        for each in operands:
            if isinstance(each, tuple):
                axis = scope.index(each[0])
                grids.append(
                    np.array(self.values[each[0]]).reshape([-1 if k == axis else 1 for k in range(len(scope))])
                )
            else:
                grids.append(np.array(each))
        return grids

    def evaluated(self, operands: Sequence[Operand], compute: Callable[..., Numbers]) -> Numbers:
        """Return the result of a computation on the operands' values, with one axis for each variable operand."""
        scope = self._scope(operands)
        sizes = [len(self.values[v]) for v in scope]
        return np.broadcast_to(compute(*self._grids(operands, scope)), sizes)

    def relation(self, operands: Sequence[Operand], holds: Callable[..., Numbers]) -> None:
        """Forbid where a relation of the operands' values, as arrays, does not hold."""
        scope = self._scope(operands)
        truth = holds(*self._grids(operands, scope))
        self.allowed(scope, np.broadcast_to(truth, [len(self.values[v]) for v in scope]))

    def result(
        self, operands: Sequence[Operand], output: Operand, compute: Callable[..., tuple[Numbers, Numbers]]
    ) -> None:
        """Force an operand to equal the computed result of other operands; undefined results are forbidden.

        Parameters
        ----------
        operands : sequence of operand
        output : operand
        compute : callable
            Called with the operands' values as arrays; returns results and where they are defined.
        """
        if not isinstance(output, tuple) or output in operands:
            self.relation([*operands, output], lambda *all_: np.logical_and(*_equals(compute(*all_[:-1]), all_[-1])))
            return
        scope = self._scope(operands)
        sizes = [len(self.values[v]) for v in scope]
        found, defined = (np.broadcast_to(each, sizes) for each in compute(*self._grids(operands, scope)))
        values = np.array(self.values[output[0]])
        states = np.searchsorted(values, found).clip(max=len(values) - 1)
        fits = defined & (values[states] == found)
        rows = np.argwhere(fits)
        # A mask keeps one axis even if there is no input variable and the arrays have none.
        table = np.column_stack([rows, states[fits]]).astype(np.int32)
        costs = np.zeros(len(rows), np.int64)
        self.parts.add(tuple_table([*scope, output[0]], self.parts.dims, table, costs, FORBIDDEN))

    def listed(self, operands: Sequence[Operand], rows: NDArray[np.int64]) -> None:
        """Allow the rows of values that are listed."""
        kept, scope, columns = np.ones(len(rows), bool), list[int](), list[NDArray[np.int64]]()
        for each, column in zip(operands, rows.T, strict=True):
            if not isinstance(each, tuple):
                kept &= column == each
                continue
            values = np.array(self.values[each[0]])
            states = np.searchsorted(values, column).clip(max=len(values) - 1)
            kept &= values[states] == column
            if each[0] in scope:
                kept &= states == columns[scope.index(each[0])]
            else:
                scope.append(each[0])
                columns.append(states)
        states = np.column_stack([*columns, np.zeros(len(rows))])[kept, :-1].astype(np.int32)
        costs = np.zeros(len(states), np.int64)
        self.parts.add(tuple_table(scope, self.parts.dims, states, costs, FORBIDDEN))

    def clause(self, literals: Sequence[Literal]) -> None:
        """Forbid that all literals are false."""
        signs: dict[int, bool] = {}
        for operand, positive in literals:
            if not isinstance(operand, tuple):
                if bool(operand) == positive:
                    return
            elif signs.setdefault(operand[0], positive) != positive:
                return
        scope = [*signs]
        row = np.array([[self.values[v].index(int(not positive)) for v, positive in signs.items()]], np.int32)
        self.parts.add(tuple_table(scope, self.parts.dims, row, np.array([FORBIDDEN]), 0))

    def disjunction(self, literals: Sequence[Literal], told: Operand, *, both: bool = True) -> None:
        """Let a boolean say whether some literal is true, or, not both ways, imply it."""
        self.clause([*literals, (told, False)])
        for operand, positive in literals if both else ():
            self.clause([(operand, not positive), (told, True)])

    def conjunction(self, literals: Sequence[Literal], told: Operand, *, both: bool = True) -> None:
        """Let a boolean say whether all literals are true, or, not both ways, imply it."""
        for literal in literals:
            self.clause([literal, (told, False)])
        if both:
            self.clause([*((operand, not positive) for operand, positive in literals), (told, True)])

    def linear(self, weights: Sequence[int], operands: Sequence[Operand], relation: str, right: int) -> None:
        """Compare a weighted sum with an integer."""
        scope, sums, right = self._sum(weights, operands, relation, right, given=True)
        self._linear(scope, sums, relation, right)

    def told_linear(
        self,
        weights: Sequence[int],
        operands: Sequence[Operand],
        relation: str,
        right: int,
        told: tuple[int],
        *,
        both: bool,
    ) -> None:
        """Let a boolean say whether a weighted sum compares with an integer, or, not both ways, imply it."""
        scope, sums, right = self._sum(weights, operands, relation, right)
        holds = decided(sum(map(min, sums)), sum(map(max, sums)), relation, right)
        if holds is not None:
            self.relation([told], lambda own: (own == holds) | (not both and own == 0))
            return
        if add_reified_linear(self.parts, scope, sums, relation, right, told[0], self.values[told[0]], both=both):
            return
        inner, behind = linear_machine(sums, relation, right, 1), self.values[told[0]]

        def moves(state: State, place: int, own: int) -> Moves:
            if place < len(scope):
                return inner.moves(state, place, own)
            fails = inner.end(state)
            return () if (fails if behind[own] else both and not fails) else ((None, 0),)

        self.parts.machine([*scope, told[0]], Machine(inner.starts, moves, lambda _: 0))

    def _sum(
        self, weights: Sequence[int], operands: Sequence[Operand], relation: str, right: int, *, given: bool = False
    ) -> tuple[list[int], list[list[int]], int]:
        """Return the variables of a sum, the amounts of their states, and the right side.

        Variables that equations express by others are replaced, if fewer variables remain. A constraint that is
        ``given``, and not just reified, may be the equation itself, which then stays an equation of two variables.
        """
        pairs = [*zip(weights, operands, strict=True)]
        right -= sum(weight * each for weight, each in pairs if isinstance(each, int))
        row = LinearRow.of([(each[0], weight) for weight, each in pairs if isinstance(each, tuple)], relation, right)
        if self.views is not None:
            known = self.views.definitions.get(row) if given else None
            known = known or self.views.substituted(row)
            row = known if len(known.weights) < len(row.weights) else row
        scope = [v for v, _ in row.weights]
        return scope, [[weight * value for value in self.values[v]] for v, weight in row.weights], row.right

    def total(self, scope: Sequence[int], weights: Sequence[Sequence[int]], condition: Condition) -> None:
        """Compare a sum of amounts of states; the amounts of a variable named twice are added."""
        right = condition.operand
        assert not isinstance(right, tuple)
        own: dict[int, list[int]] = {}
        for v, added in zip(scope, weights, strict=True):
            own[v] = [*map(int.__add__, own[v], added)] if v in own else [*added]
        kept = {v: added for v, added in own.items() if any(added)}
        sums = [*kept.values()]
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
        self._linear([*kept], sums, *without_strict(RELATIONS[condition.operator], right))

    def _linear(self, scope: Sequence[int], sums: Sequence[Sequence[int]], relation: str, right: int) -> None:
        holds = decided(sum(map(min, sums)), sum(map(max, sums)), relation, right)
        if holds is None:
            add_linear(self.parts, scope, sums, relation, right)
        elif not holds:
            self.parts.forbid()

    def allowed(self, scope: Sequence[int], truth: NDArray[np.bool_]) -> None:
        """Forbid the assignments at which an array over a scope is false: by a table, or by rows of the rarer value."""
        if truth.size <= FormatPolicy.current().predicate_cells:
            self.parts.table(scope, np.where(truth, 0, FORBIDDEN))
            return
        few = np.count_nonzero(truth) * 2 <= truth.size
        rows = np.argwhere(truth if few else ~truth).astype(np.int32)
        costs = np.full(len(rows), 0 if few else FORBIDDEN, np.int64)
        self.parts.add(tuple_table(scope, self.parts.dims, rows, costs, FORBIDDEN if few else 0))

    def different(self, operands: Sequence[Operand], but: frozenset[int]) -> None:
        """Forbid equal values of two operands, except for the excepted values."""
        scope = [each[0] for each in operands if isinstance(each, tuple)]
        taken = [each for each in operands if not isinstance(each, tuple) and each not in but]
        if len({*taken}) < len(taken):
            self.parts.forbid()
        for v in scope if taken else ():
            self.relation([(v,)], lambda own: ~np.isin(own, taken))
        known: dict[tuple[int, int], Function] = {}  # pairs of the same two domains share a table
        for k, x in enumerate(scope):
            for y in scope[k + 1 :]:
                key = id(self.values[x]), id(self.values[y])
                if x == y:
                    self.relation([(x,)], lambda own: np.isin(own, [*but]))
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


def _equals(computed: tuple[Numbers, Numbers], output: Numbers) -> tuple[Numbers, Numbers]:
    found, defined = computed
    return defined, found == output
