"""Linear problems as they are read: sums of products of integer variables, in constraints and in an objective."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import LARGEST_DECIMALS
from ...errors import BudgetError, FormatError, format_count, shorten
from ...models.model import FORBIDDEN, Function, Model
from ...models.state_names import integer_labels
from ..decimal_costs import decimal_places
from ..format_policy import STATE_BYTES, FormatPolicy
from ..global_functions.decomposition import Decomposition
from ..text.source import Source
from .wide_sums import add_linear, decided

P = TypeVar("P")

Factor = tuple[str, bool]
"""A variable by name, and whether it is the complement of a variable of 0 and 1 that is meant."""


@dataclass(frozen=True)
class LinearTerm:
    """A number times a product of variables; of none it is a constant."""

    coefficient: Decimal
    factors: tuple[Factor, ...]


@dataclass(frozen=True)
class LinearConstraint(Generic[P]):
    """A sum in relation to a number; hard, or what a violation of it costs."""

    at: P
    terms: Sequence[LinearTerm]
    relation: str
    right: Decimal
    cost: Decimal | None = None


@dataclass
class LinearDraft(Generic[P]):
    """The content of a problem read so far.

    Parameters
    ----------
    source : Source
    refuse : callable
        Builds the error at a place of the file from the expected and the found content.
    """

    source: Source
    refuse: Callable[[P, str, str], FormatError]
    domains: dict[str, tuple[int, int]] = field(default_factory=dict)
    constraints: list[LinearConstraint[P]] = field(default_factory=list)
    objective: list[LinearTerm] = field(default_factory=list)
    maximize: bool = False
    top: Decimal | None = None
    notes: list[str] = field(default_factory=list)

    def model(self, name: str = "") -> Model:
        """Return the model: costs of the objective, and chains of hidden sums for constraints with many variables.

        Raises
        ------
        FormatError
            If numbers are too long for 64 bits.
        BudgetError
            If a domain or a constraint is too large, with its size.
        """
        build = _Build(self)
        build.costs(self.objective)
        for constraint in self.constraints:
            build.constraint(constraint)
        return build.parts.model(
            [*self.domains],
            [integer_labels(range(low, high + 1)) for low, high in self.domains.values()],
            top=None if self.top is None else build.whole(self.top, build.decimals),
            decimals=build.decimals,
            maximize=self.maximize,
            name=name or self.source.stem,
            notes=tuple(self.notes),
        )


@dataclass(frozen=True)
class _Shown(Generic[P]):
    """A constraint as messages show it: its line is counted only for a message."""

    draft: LinearDraft[P]
    at: P

    def __str__(self) -> str:
        return f"the linear constraint of line {self.draft.refuse(self.at, '', '').line}"


class _Build(Generic[P]):
    """Builds the functions of a draft."""

    def __init__(self, draft: LinearDraft[P]) -> None:
        self.draft = draft
        for name, (low, high) in draft.domains.items():
            count = high - low + 1
            draft.source.allowance.take(STATE_BYTES * count, f"{format_count(count)} values of {shorten(name)!r}")
        self.index = {name: v for v, name in enumerate(draft.domains)}
        self.numbers = [np.arange(low, high + 1) for low, high in draft.domains.values()]
        self.parts = Decomposition([len(own) for own in self.numbers], FORBIDDEN, draft.source.allowance)
        numbers = [term.coefficient for term in draft.objective]
        numbers += [c.cost for c in draft.constraints if c.cost is not None]
        self.decimals = decimal_places([*numbers, *([] if draft.top is None else [draft.top])])
        if self.decimals > LARGEST_DECIMALS:
            raise FormatError(
                draft.source.path, None, f"costs of at most {LARGEST_DECIMALS} decimals", f"{self.decimals}"
            )
        self.products: dict[tuple[Factor, ...], int] = {}

    def stored(self, number: Decimal) -> int:
        """Return a cost as stored; the sign of a maximised objective is removed."""
        cost = self.whole(number, self.decimals)
        self._check_reach(abs(cost))
        return cost

    def _check_reach(self, cost: int) -> None:
        if cost >= 10**LARGEST_DECIMALS:
            most = f"costs of at most {LARGEST_DECIMALS} digits (here with {self.decimals} decimals)"
            raise FormatError(self.draft.source.path, None, most, "greater ones")

    def whole(self, number: Decimal, decimals: int) -> int:
        """Return a number in units of its last decimal."""
        if number.adjusted() + decimals > LARGEST_DECIMALS:
            raise FormatError(
                self.draft.source.path, None, f"numbers of at most {LARGEST_DECIMALS} digits", str(number)
            )
        return int(number.scaleb(decimals))

    def _values(self, factor: Factor) -> NDArray[np.int64]:
        """Return the number that each state of a factor's variable means."""
        name, complement = factor
        own = self.numbers[self.index[name]]
        return 1 - own if complement else own

    def costs(self, terms: Sequence[LinearTerm]) -> None:
        """Add what the objective costs: one function for each set of variables that are multiplied."""
        sign = -1 if self.draft.maximize else 1
        by_scope: dict[tuple[int, ...], NDArray[np.int64]] = {}
        reaches: Counter[tuple[int, ...]] = Counter()
        for term in terms:
            cost = sign * self.stored(term.coefficient)
            scope = tuple(sorted({self.index[name] for name, _ in term.factors}))
            sizes = [self.parts.dims[v] for v in scope]
            self._check_cells(sizes, term.factors)
            table = np.full(sizes, cost, np.int64)
            reach = abs(cost)
            for factor in term.factors:
                values = self._values(factor)
                reach *= int(np.abs(values).max())
                self._check_reach(reach)
                at = scope.index(self.index[factor[0]])
                table *= values.reshape([-1 if axis == at else 1 for axis in range(len(scope))])
            reaches[scope] += reach
            self._check_reach(reaches[scope])
            by_scope[scope] = by_scope[scope] + table if scope in by_scope else table
        for scope, table in by_scope.items():
            self.parts.add(Function(scope, table))

    def _check_cells(self, sizes: Sequence[int], factors: Sequence[Factor]) -> None:
        most = FormatPolicy.current().predicate_cells
        if len(sizes) > 1 and (cells := math.prod(sizes)) > most:
            shown = shorten(" ".join(name for name, _ in factors))
            raise BudgetError(
                f"{self.draft.source.path}: the product of {shown} has a table of {format_count(cells)} entries, and "
                f"at most {format_count(most)} are allowed; give it as products of fewer variables"
            )

    def constraint(self, given: LinearConstraint[P]) -> None:
        """Add a constraint: a table where that is small, or a chain of hidden sums."""
        decimals = decimal_places([given.right, *(term.coefficient for term in given.terms)])
        right, weights = self.whole(given.right, decimals), dict[int, NDArray[np.int64]]()
        for term in given.terms:
            coefficient = self.whole(term.coefficient, decimals)
            if not term.factors:
                right -= coefficient
                continue
            variable, values = self._product(given.at, term.factors)
            added = coefficient * values.astype(object)
            weights[variable] = weights[variable] + added if variable in weights else added
        scope = [v for v, own in weights.items() if any(own)]
        sums = [[int(number) for number in weights[v]] for v in scope]
        if max((abs(number) for own in sums for number in own), default=0) * max(1, len(sums)) >= 10**LARGEST_DECIMALS:
            raise self.draft.refuse(given.at, f"sums below 10^{LARGEST_DECIMALS}", "greater ones")
        cost = None if given.cost is None else self.stored(given.cost)
        holds = decided(sum(map(min, sums)), sum(map(max, sums)), given.relation, right)
        if holds is None:
            self.parts.what = _Shown(self.draft, given.at)
            add_linear(self.parts, scope, sums, given.relation, right, cost)
        elif not holds and cost is None:
            self.parts.forbid()
        elif not holds:
            self.parts.add(Function((), np.array(cost)))

    def _product(self, place: P, factors: tuple[Factor, ...]) -> tuple[int, NDArray[np.int64]]:
        """Return a variable whose states are a product of others, and the number that each of its states means.

        Raises
        ------
        FormatError
            If numbers of states are too long for 64 bits.
        """
        if math.prod([max(map(abs, self.draft.domains[name])) for name, _ in factors]) >= 10**LARGEST_DECIMALS:
            raise self.draft.refuse(place, f"products below 10^{LARGEST_DECIMALS}", "greater ones")
        if len({name for name, _ in factors}) == 1:
            values = np.prod([self._values(factor) for factor in factors], axis=0)
            return self.index[factors[0][0]], values
        key = tuple(sorted({*factors} if all(self._is_binary(name) for name, _ in factors) else factors))
        scope = [*dict.fromkeys(self.index[name] for name, _ in key)]
        sizes = [self.parts.dims[v] for v in scope]
        self._check_cells([*sizes, 2], key)
        whole = np.ones(sizes, np.int64)
        for factor in key:
            at = scope.index(self.index[factor[0]])
            whole = whole * self._values(factor).reshape([-1 if axis == at else 1 for axis in range(len(scope))])
        numbers, places = np.unique(whole, return_inverse=True)
        if key not in self.products:
            self.products[key] = self.parts.variable(len(numbers))
            rows = np.array([[*at, places.reshape(sizes)[at]] for at in product(*map(range, sizes))])
            costs = np.full((*sizes, len(numbers)), FORBIDDEN)
            costs[tuple(rows.T)] = 0
            self.parts.table([*scope, self.products[key]], costs)
        return self.products[key], numbers

    def _is_binary(self, name: str) -> bool:
        return self.draft.domains[name] == (0, 1)
