"""Functions by number while variables are taken out one by one, and how these get their states back."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from .cost_network import Costs, NetworkProblem, States

if TYPE_CHECKING:
    from ...tasks.networks.flat import Flat

# Tables of variables with two neighbours may exceed the tables that they replace, up to this many cells.
_JOINED_SMALL_CELLS: Final = 1 << 12
# No joined table has more cells.
_JOINED_CELLS: Final = 1 << 22


@dataclass(frozen=True, eq=False)
class Best:
    """Restores the states of eliminated variables.

    Parameters
    ----------
    choices : tuple
        In the order of elimination: the variable, the variables that its best state depends on, and the best state for
        each of their states.
    """

    choices: tuple[tuple[int, tuple[int, ...], NDArray[np.unsignedinteger[Any]]], ...]

    def __call__(self, states: States) -> States:
        full = list(states)
        for x, scope, best in reversed(self.choices):
            full[x] = int(best[tuple([full[v] for v in scope])])
        return tuple(full)


@dataclass(frozen=True, eq=False)
class PackedBest:
    """Restores the states of variables that compiled loops eliminated.

    Parameters
    ----------
    dims : NDArray
        Domain sizes, by variable.
    variables, edges, near, begins, best : NDArray
        See :class:`~bucketflow.tasks.networks.elimination_loops.Eliminated`.
    """

    dims: NDArray[np.int64]
    variables: NDArray[np.int64]
    edges: NDArray[np.int64]
    near: NDArray[np.int64]
    begins: NDArray[np.int64]
    best: NDArray[np.uint8]

    def __call__(self, states: States) -> States:
        full, dims, near, best = list(states), self.dims.tolist(), self.near.tolist(), self.best.tobytes()
        variables, edges, begins = self.variables.tolist(), self.edges.tolist(), self.begins.tolist()
        for i in range(len(variables) - 1, -1, -1):
            place = 0
            for v in near[edges[i] : edges[i + 1]]:
                place = place * dims[v] + full[v]
            full[variables[i]] = best[begins[i] + place]
        return tuple(full)

    @property
    def unpacked(self) -> Best:
        """The same with an array for each variable."""
        scopes = [tuple(part.tolist()) for part in np.split(self.near, self.edges[1:-1])]
        tables = np.split(self.best, self.begins[1:-1])
        shaped = [table.reshape([int(self.dims[v]) for v in own]) for table, own in zip(tables, scopes, strict=True)]
        return Best(tuple(zip(self.variables.tolist(), scopes, shaped, strict=True)))


class FunctionStore:
    """Functions by number during elimination; tables are built only for changed functions."""

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
        if scope == axes:
            return table
        there = [scope.index(v) for v in axes if v in scope]
        shape = [self.dims[v] if v in scope else 1 for v in axes]
        return table.transpose(there).reshape(shape)

    def table(self, f: int) -> Costs:
        """The table of a function."""
        if f in self.tables:
            return self.tables[f]
        cells = self.source.cells
        shape = [self.dims[v] for v in self.scopes[f]]
        table: Costs = self.source.costs[cells[f] : cells[f + 1]].reshape(shape)
        return table

    def take_out(self, x: int, scope: tuple[int, ...], best: NDArray[Any]) -> None:
        """Restore the best state for each state of others of a variable that is in no function any more."""
        self.choices.append(
            (x, scope, best.astype(np.uint8 if self.dims[x] <= 256 else np.min_scalar_type(self.dims[x] - 1)))
        )

    def drop(self, f: int) -> None:
        """Remove a function."""
        for v in self.scopes.pop(f):
            del self.around[v][f]
        self.tables.pop(f, None)

    def add(self, scope: tuple[int, ...], costs: Costs) -> tuple[int, ...]:
        """Add a function: to the constant, to unary costs, to a function that contains its scope, or as a table.

        A function that is constant then goes to the constant, which leaves its variables fewer neighbours.

        Returns
        -------
        tuple of int
            The variables of the function that changed, or was dropped.
        """
        if not scope:
            self.constant += float(costs)
            return scope
        if len(scope) == 1:
            self.unary[self.first[scope[0]] : self.first[scope[0] + 1]] += costs
            return scope
        around = [self.around[v] for v in scope]
        hosts = [g for g in min(around, key=len) if all(g in near for near in around)]
        if hosts:
            f = min(hosts, key=self.sizes.__getitem__)
            whole, table = self.scopes[f], self.table(f)
            there = sorted(range(len(scope)), key=lambda i: whole.index(scope[i]))
            table += costs.transpose(there).reshape([self.dims[v] if v in scope else 1 for v in whole])
            scope, costs = whole, table
        else:
            f = len(self.sizes)
            self.sizes.append(costs.size)
            self.scopes[f], self.tables[f] = scope, costs
            for v in scope:
                self.around[v][f] = None
        # most functions differ in two of their entries
        if costs.item(0) == costs.item(-1) < math.inf and costs.min() == costs.max():
            self.constant += costs.item(0)
            self.drop(f)
        return scope

    def leave(self, problem: NetworkProblem, rule: str) -> int:
        """Put the remaining functions into a problem, with one value of each variable that the rule eliminated; return
        the number of these.
        """
        if self.choices:
            problem.made.append(Best(tuple(self.choices)))
            variables = np.array([x for x, *_ in self.choices])
            _settle(self.unary, problem.flat, variables)
            _leave(problem, rule, self.flat(), self.constant, len(variables))
        return len(self.choices)

    def flat(self) -> Flat:
        """Return the remaining functions as arrays."""
        from ...tasks.networks.flat import chosen_parts, flatten

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


def _settle(unary: Costs, flat: Flat, variables: NDArray[np.int64]) -> None:
    """Leave the eliminated variables one value, which costs nothing."""
    from ...tasks.networks.flat import parts

    unary[parts(flat.first, variables)] = np.inf
    unary[flat.first[variables]] = 0.0


def _leave(problem: NetworkProblem, rule: str, left: Flat, constant: float, eliminated: int) -> None:
    """Put the functions that a rule left into a problem."""
    gone = problem.flat.n_functions
    problem.constant += constant
    problem.flat, problem.folded = left, False
    problem.count(rule, variables=eliminated, functions=gone - left.n_functions)


# Variables that another one determines are replaced by it, as a function of two allows one state for each of its own.
#
# Frequencies of the two directions of a link, say, differ by a constant. No table becomes larger by it, and no width.


def replace(problem: NetworkProblem) -> int:
    """Replace every variable that one of as few states determines.

    Returns
    -------
    int
        How many variables were replaced; they stay in the arrays, with one value.
    """
    flat = problem.flat
    if not flat.n_functions:
        return 0
    allowed = np.add.reduceat(np.isfinite(flat.costs), flat.cells[:-1], dtype=np.int64)
    arities = np.diff(flat.edges)
    firsts = flat.edges[:-1]
    most = flat.dims[flat.scope[firsts]]
    pairs = arities == 2
    most[pairs] = np.minimum(most[pairs], flat.dims[flat.scope[firsts[pairs] + 1]])
    few = np.flatnonzero(pairs & (allowed <= most)).tolist()
    if not few:
        return 0
    pool = _Replacing(flat)
    pool.run(few)
    return pool.leave(problem, "determined")


class _Replacing(FunctionStore):
    """Replaces variables of functions of two."""

    def run(self, few: list[int]) -> None:
        """Look at some functions of two, and at what becomes one of two."""
        while few:
            f = few.pop()
            if f not in self.scopes:
                continue
            for x, y in (self.scopes[f], self.scopes[f][::-1]):
                states = self.determined(f, x, y)
                if states is not None:
                    few += self.replace(f, x, y, states)
                    break

    def determined(self, f: int, x: int, y: int) -> NDArray[np.intp] | None:
        """Return the state of ``y`` for each of ``x``, any where there is none, or None."""
        if self.dims[x] > self.dims[y]:
            return None
        allowed = np.isfinite(self.aligned(f, (x, y)))
        return None if (allowed.sum(axis=1) > 1).any() else allowed.argmax(axis=1)

    def replace(self, f: int, x: int, y: int, states: NDArray[np.intp]) -> list[int]:
        """Put ``x`` in the place of ``y`` everywhere; return the functions of ``x`` and another variable."""
        own = self.unary[self.first[y] : self.first[y + 1]]
        self.add((x,), self.aligned(f, (x, y))[np.arange(self.dims[x]), states] + own[states])
        self.drop(f)
        while self.around[y]:
            g = next(iter(self.around[y]))
            others = tuple(v for v in self.scopes[g] if v not in (x, y))
            costs = self.with_states(g, others, x, y, states)
            self.drop(g)
            self.add((*others, x), costs)
        self.take_out(y, (x,), states)
        return [g for g in self.around[x] if len(self.scopes[g]) == 2]

    def with_states(self, g: int, others: tuple[int, ...], x: int, y: int, states: NDArray[np.intp]) -> Costs:
        """Return a function of ``y`` as one of others and ``x``."""
        table = self.aligned(g, (*others, x, y))
        own = np.arange(self.dims[x]) if x in self.scopes[g] else np.zeros(self.dims[x], np.intp)
        costs: Costs = table[..., own, states]
        return costs


# Variables with few neighbours are eliminated exactly: their functions are joined and minimised over them.


def eliminate(problem: NetworkProblem) -> int:
    """Eliminate every variable that leaves no larger table than it takes, or has at most two neighbours.

    Returns
    -------
    int
        How many variables were eliminated; they stay in the arrays, with one value.
    """
    first = _eliminable(problem.flat)
    if not len(first):
        return 0
    if (eliminated := _eliminated_compiled(problem, first)) is not None:
        return eliminated
    pool = _Eliminating(problem.flat)
    pool.run(first.tolist())
    return pool.leave(problem, "small degree")


def _eliminated_compiled(problem: NetworkProblem, first: NDArray[np.int64]) -> int | None:
    """Eliminate by compiled loops; return how many variables were eliminated, None while these loops do not pay."""
    from ...tasks.networks.flat import chosen_parts, flatten
    from ...tasks.networks.reparametrise import eliminate

    flat, unary = problem.flat, problem.flat.unary.copy()
    found = eliminate(flat, unary, first, _JOINED_CELLS, _JOINED_SMALL_CELLS)
    if found is None or not len(found.variables):
        return None if found is None else 0
    problem.made.append(PackedBest(flat.dims, found.variables, found.edges, found.near, found.begins, found.best))
    old = np.flatnonzero(found.alive)
    scope = np.concatenate([chosen_parts(flat.scope, flat.edges, old), found.scope])
    costs = np.concatenate([chosen_parts(flat.costs, flat.cells, old), found.costs])
    _settle(unary, flat, found.variables)
    arities = np.concatenate([np.diff(flat.edges)[old], found.arities])
    _leave(
        problem, "small degree", flatten(flat.dims, unary, costs, arities, scope), found.constant, len(found.variables)
    )
    return len(found.variables)


def _eliminable(flat: Flat) -> NDArray[np.int64]:
    """Return the variables that qualify before any is eliminated, variables with few functions first."""
    from ...tasks.networks.flat import parts

    n, dims = len(flat.first) - 1, flat.dims
    degrees = np.diff(flat.around)
    used = np.flatnonzero(degrees)
    if not len(used):
        return used
    # each axis of each function, once for each variable of this function, then without repetitions
    arities = np.diff(flat.edges)[flat.function]
    pairs = np.unique(np.repeat(flat.scope, arities) * n + flat.scope[parts(flat.edges, flat.function)])
    starts = np.flatnonzero(np.diff(pairs // n, prepend=-1))
    joined = np.multiply.reduceat(dims[pairs % n].astype(np.float64), starts)
    near = np.diff(starts, append=len(pairs)) - 1
    largest = np.maximum.reduceat(np.diff(flat.cells)[flat.function[flat.incident]], flat.around[:-1][used])
    most = np.where(near <= 2, np.maximum(largest, _JOINED_SMALL_CELLS), largest)
    fits = (joined <= _JOINED_CELLS) & (joined <= most * dims[used])
    chosen: NDArray[np.int64] = used[fits][np.argsort(degrees[used[fits]], kind="stable")]
    return chosen


class _Eliminating(FunctionStore):
    """Tables are only made of functions that are touched."""

    def run(self, first: list[int]) -> None:
        """Eliminate some variables that qualify, and neighbours that qualify then."""
        queue = deque(first)
        waiting = set(queue)
        while queue:
            x = queue.popleft()
            waiting.discard(x)
            scope = self.neighbours(x)
            if scope is not None:
                changed = self.eliminate(x, scope)
                fresh = [v for v in changed if v not in waiting and self.around[v]]
                queue.extend(fresh)
                waiting.update(fresh)

    def neighbours(self, x: int) -> tuple[int, ...] | None:
        """Return the variables that share functions with a variable that qualifies, else None."""
        around, scopes = self.around[x], self.scopes
        if not around:
            return None
        found = {v for f in around for v in scopes[f]}
        largest = max([self.sizes[f] for f in around])
        cells = math.prod([self.dims[v] for v in found])
        most = max(largest, _JOINED_SMALL_CELLS) if len(found) <= 3 else largest
        if cells > _JOINED_CELLS or cells > most * self.dims[x]:
            return None
        found.discard(x)
        return tuple(sorted(found))

    def eliminate(self, x: int, scope: tuple[int, ...]) -> tuple[int, ...]:
        """Join the functions of a variable, and take the least over its values; return which variables that changed."""
        axes = (*scope, x)
        joined = self.unary[self.first[x] : self.first[x + 1]]
        for f in list(self.around[x]):
            joined = self.aligned(f, axes) + joined
            self.drop(f)
        best = joined.argmin(axis=-1)
        self.take_out(x, scope, best)
        return self.add(scope, np.minimum.reduce(joined, axis=-1))
