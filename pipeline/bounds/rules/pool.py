"""Functions by number while variables are taken out one by one, and how these get their states back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..network import Costs, States
from .problem import Problem

if TYPE_CHECKING:
    from ....tasks.bounds.tables import Flat


@dataclass(frozen=True, eq=False)
class Best:
    """Restores the states of eliminated variables.

    Parameters
    ----------
    choices : tuple
        In the order of elimination: the variable, those that its best state depends on, and that state for each of
        their states.
    """

    choices: tuple[tuple[int, tuple[int, ...], NDArray[np.unsignedinteger[Any]]], ...]

    def __call__(self, states: States) -> States:
        full = list(states)
        for x, scope, best in reversed(self.choices):
            full[x] = int(best[tuple([full[v] for v in scope])])
        return tuple(full)


class Pool:
    """Functions by number while variables are eliminated; tables are only made of those that are touched."""

    def __init__(self, flat: Flat) -> None:
        self.source = flat
        self.dims: list[int] = flat.dims.tolist()
        scope, edges = flat.scope.tolist(), flat.edges.tolist()
        self.scopes = {f: tuple(scope[edges[f] : edges[f + 1]]) for f in range(flat.n_functions)}
        self.sizes: list[int] = np.diff(flat.cells).tolist()
        function, around = flat.function[flat.incident].tolist(), flat.around.tolist()
        self.around = [dict.fromkeys(function[around[x] : around[x + 1]]) for x in range(len(self.dims))]
        self.tables: dict[int, Costs] = {}
        self.unary = flat.unary.copy()
        self.first: list[int] = flat.first.tolist()
        self.constant = 0.0
        self.choices: list[tuple[int, tuple[int, ...], NDArray[np.unsignedinteger[Any]]]] = []

    def aligned(self, f: int, axes: Sequence[int]) -> Costs:
        """The table of a function with axes in this order, of length one where it has none."""
        scope = self.scopes[f]
        table = self.table(f)
        place = {v: i for i, v in enumerate(scope)}
        there = [v for v in axes if v in place]
        shape = [self.dims[v] if v in place else 1 for v in axes]
        return table.transpose([place[v] for v in there]).reshape(shape)

    def table(self, f: int) -> Costs:
        """The table of a function."""
        if f in self.tables:
            return self.tables[f]
        cells = self.source.cells
        shape = [self.dims[v] for v in self.scopes[f]]
        table: Costs = self.source.costs[cells[f] : cells[f + 1]].reshape(shape)
        return table

    def take_out(self, x: int, scope: tuple[int, ...], best: NDArray[Any]) -> None:
        """Leave a variable that is in no function any more one value; restore the best for each state of others."""
        self.choices.append((x, scope, best.astype(np.min_scalar_type(self.dims[x] - 1))))
        self.unary[self.first[x]] = 0.0
        self.unary[self.first[x] + 1 : self.first[x + 1]] = np.inf

    def drop(self, f: int) -> None:
        """Remove a function."""
        for v in self.scopes.pop(f):
            del self.around[v][f]
        self.tables.pop(f, None)

    def add(self, scope: tuple[int, ...], costs: Costs) -> None:
        """Add a function: to the constant, to unary costs, or as a table."""
        if not scope:
            self.constant += float(costs)
        elif len(scope) == 1:
            self.unary[self.first[scope[0]] : self.first[scope[0] + 1]] += costs
        else:
            f = len(self.sizes)
            self.sizes.append(costs.size)
            self.scopes[f], self.tables[f] = scope, costs
            for v in scope:
                self.around[v][f] = None

    def leave(self, problem: Problem, rule: str) -> int:
        """Put what is left into a problem; return how many variables were taken out, by a rule of this name."""
        if self.choices:
            problem.made.append(Best(tuple(self.choices)))
            problem.constant += self.constant
            gone = problem.flat.n_functions
            problem.flat, problem.folded = self.flat(), False
            problem.count(rule, variables=len(self.choices), functions=gone - problem.flat.n_functions)
        return len(self.choices)

    def flat(self) -> Flat:
        """Return what is left as arrays."""
        from ....tasks.bounds.tables import chosen_parts, flatten

        old = np.array([f for f in self.scopes if f not in self.tables], np.int64)
        scope = [chosen_parts(self.source.scope, self.source.edges, old)]
        costs = [chosen_parts(self.source.costs, self.source.cells, old)]
        arities = np.diff(self.source.edges)[old].tolist()
        for f, table in self.tables.items():
            scope.append(np.array(self.scopes[f], np.int64))
            costs.append(table.reshape(-1))
            arities.append(len(self.scopes[f]))
        return flatten(
            np.array(self.dims), self.unary, np.concatenate(costs), np.array(arities, np.int64), np.concatenate(scope)
        )
