"""Variables with few neighbours are eliminated exactly: their functions are joined and minimised over them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..network import Costs, States
from .problem import Problem

if TYPE_CHECKING:
    from ....tasks.bounds.tables import Flat

#: Tables of variables of two neighbours may become larger than what they replace, up to so many cells.
_SMALL = 1 << 12
#: No joined table is larger.
_LARGEST = 1 << 22


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


def eliminate(problem: Problem) -> int:
    """Eliminate every variable that leaves no larger table than it takes, or has at most two neighbours.

    Returns
    -------
    int
        How many variables were eliminated; they stay in the arrays, with one value.
    """
    pool = _Pool(problem.flat)
    pool.run()
    if pool.choices:
        problem.made.append(Best(tuple(pool.choices)))
        problem.constant += pool.constant
        gone = problem.flat.n_functions
        problem.flat, problem.folded = pool.flat(), False
        problem.count("small degree", variables=len(pool.choices), functions=gone - problem.flat.n_functions)
    return len(pool.choices)


class _Pool:
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

    def run(self) -> None:
        """Eliminate as long as a variable qualifies, those of few functions first."""
        queue = deque(sorted((x for x in range(len(self.dims)) if self.around[x]), key=lambda x: len(self.around[x])))
        waiting = set(queue)
        while queue:
            x = queue.popleft()
            waiting.discard(x)
            scope = self.neighbours(x)
            if scope is not None:
                self.eliminate(x, scope)
                fresh = [v for v in scope if v not in waiting and self.around[v]]
                queue.extend(fresh)
                waiting.update(fresh)

    def neighbours(self, x: int) -> tuple[int, ...] | None:
        """Return who shares functions with a variable that qualifies, else None."""
        if not self.around[x]:
            return None
        largest = max(self.sizes[f] for f in self.around[x])
        found: dict[int, None] = {}
        cells = 1
        for f in self.around[x]:
            for v in self.scopes[f]:
                if v != x and v not in found:
                    found[v] = None
                    cells *= self.dims[v]
            if cells * self.dims[x] > _LARGEST or cells > (max(largest, _SMALL) if len(found) <= 2 else largest):
                return None
        return tuple(sorted(found))

    def eliminate(self, x: int, scope: tuple[int, ...]) -> None:
        """Join the functions of a variable, and take the least over its values."""
        axes = (*scope, x)
        joined = np.zeros([self.dims[v] for v in axes])
        joined += self.unary[self.first[x] : self.first[x + 1]]
        for f in list(self.around[x]):
            joined += self.aligned(f, axes)
            self.drop(f)
        best = joined.argmin(axis=-1)
        self.choices.append((x, scope, best.astype(np.min_scalar_type(self.dims[x] - 1))))
        self.unary[self.first[x]] = 0.0
        self.unary[self.first[x] + 1 : self.first[x + 1]] = np.inf
        self.add(scope, joined.min(axis=-1))

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
