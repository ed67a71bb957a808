"""Translation of FlatZinc constraints: tables of few variables, clauses, and machines that read sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import BudgetError, format_count
from ...models.model import FORBIDDEN
from ..global_functions.machine import Machine, Moves, State
from ..linear.integer_domains import AffineViews, LinearRow
from ..linear.wide_sums import MOST_CELLS, add_reified_linear, decided, linear_machine
from ..text.tables import tuple_table
from ..xcsp3.xcsp3_machines import Condition, Xcsp3Functions
from .flatzinc_syntax import Operand

Numbers = NDArray[Any]
Literal = tuple[Operand, bool]
"""A boolean, and the value of it that makes the literal true."""


class FlatZincFunctions(Xcsp3Functions):
    """The functions of a FlatZinc problem; operands are variables or integers."""

    views: AffineViews | None = None
    """Expressions of wide variables by others; None if no domain is wide."""

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

    def parity(self, operands: Sequence[Operand], odd: int) -> None:
        """Let the number of true operands be odd, or even."""
        odd ^= sum(each for each in operands if not isinstance(each, tuple)) & 1
        scope = [each[0] for each in operands if isinstance(each, tuple)]
        self.machine(scope, 0, lambda own, _, value: own ^ value, lambda own: 0 if own == odd else FORBIDDEN)

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

    def offset(
        self, scope: Sequence[int], weights: Sequence[Sequence[int]], operator: str, number: tuple[int], constant: int
    ) -> None:
        """Compare a sum and a constant with a variable."""
        less = [[-value for value in self.values[number[0]]]]
        self.total([*scope, number[0]], [*weights, *less], Condition(operator, -constant))

    def among_different(self, operands: Sequence[Operand], but: frozenset[int]) -> None:
        """Forbid equal values of two operands, except for the excepted values."""
        scope = [each[0] for each in operands if isinstance(each, tuple)]
        taken = [each for each in operands if not isinstance(each, tuple) and each not in but]
        if len({*taken}) < len(taken):
            self.parts.forbid()
        for v in scope if taken else ():
            self.relation([(v,)], lambda own: ~np.isin(own, taken))
        self.different(scope, but)

    def extreme(self, operands: Sequence[Operand], choose: Callable[[int, int], int], condition: Condition) -> None:
        """Compare the greatest, or the least, of some operands with an operand or a set."""
        constants = [each for each in operands if not isinstance(each, tuple)]
        start = reduce(choose, constants) if constants else None
        scope = [each[0] for each in operands if isinstance(each, tuple)]

        def step(state: int | None, value: int) -> int:
            return value if state is None else choose(state, value)

        self.conditioned(scope, start, step, lambda state: state, condition)


def _equals(computed: tuple[Numbers, Numbers], output: Numbers) -> tuple[Numbers, Numbers]:
    found, defined = computed
    return defined, found == output
