"""A cost network during preparation: its arrays, the removed parts, and the restoration of states."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy
from .cost_network import Costs, CostTable, Restore, States

if TYPE_CHECKING:
    from ...tasks.networks.flat import Flat


@dataclass(frozen=True)
class CostNetworkPolicy(Policy):
    """The numbers behind making networks of costs smaller, and shifting their costs.

    Parameters
    ----------
    joined_cells : int
        No joined table is larger.
    rounds : int
        Rounds of making a network smaller, at most.
    sweeps, sweep_cells : int
        Sweeps between two looks at the clock; even, so that the last one went backwards. Fewer where they touch more
        cells together.
    """

    joined_cells: int = 1 << 22
    rounds: int = 12
    sweeps: int = 10
    sweep_cells: int = 20_000_000

    def sweeps_at_a_time(self, cells: float) -> int:
        """Return how many sweeps that touch ``cells`` cells each are between two looks at the clock."""
        return int(max(2, min(self.sweeps, self.sweep_cells // (2 * max(cells, 1)) * 2)))


Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Removed:
    """Numbers removed by one rule.

    Parameters
    ----------
    values, tuples : int
        Values of variables; entries of functions that became forbidden.
    variables, functions : int
        Variables that are in no function any more, and functions.
    """

    values: int = 0
    tuples: int = 0
    variables: int = 0
    functions: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(
            self.values + other.values,
            self.tuples + other.tuples,
            self.variables + other.variables,
            self.functions + other.functions,
        )


@dataclass(eq=False)
class NetworkProblem:
    """The remaining network; rules change it in place.

    Parameters
    ----------
    flat : Flat
        Functions of two variables and more, and unary costs.
    constant : float
        An integer, part of every total; inf once it is proved that no assignment is left.
    made : list of Restore
        How it was made smaller, oldest first.
    removed : dict
        Numbers removed, by the name of the rule.
    folded : bool
        Whether contained scopes were looked for since functions changed.
    """

    flat: Flat
    constant: float
    made: list[Restore] = field(default_factory=list)
    removed: defaultdict[str, Removed] = field(default_factory=lambda: defaultdict(Removed))
    folded: bool = False

    @property
    def feasible(self) -> bool:
        """Whether assignments may be left."""
        return self.constant < math.inf

    def count(self, rule: str, **removed: int) -> None:
        """Note what a rule removed."""
        if any(removed.values()):
            self.removed[rule] += Removed(**removed)

    def restored(self, states: Any) -> States:
        """Turn states of the variables left into states of the first variables."""
        found: States = tuple(int(s) for s in states)
        for restore in reversed(self.made):
            found = restore(found)
        return found


def problem_of(dims: Sequence[int], tables: Sequence[CostTable], constant: float) -> NetworkProblem:
    """Take a network apart: unary functions are added up by variable, the tables of the others put into one array."""
    from ...tasks.networks.flat import flatten, offsets

    sizes = np.array(dims, np.int64)
    first, unary = offsets(sizes), np.zeros(int(sizes.sum()))
    larger = []
    for table in tables:
        if len(table.scope) == 1:
            begin = first[table.scope[0]]
            unary[begin : begin + table.costs.size] += table.costs
        else:
            larger.append(table)
    arities = np.fromiter((len(t.scope) for t in larger), np.int64, len(larger))
    scope = np.fromiter(chain.from_iterable(t.scope for t in larger), np.int64, int(arities.sum()))
    costs = np.concatenate([t.costs.reshape(-1) for t in larger]) if larger else np.empty(0)
    return NetworkProblem(flatten(sizes, unary, costs, arities, scope), constant)


def tables_of(flat: Flat) -> tuple[CostTable, ...]:
    """Return the functions as tables; unary costs are added to the smallest table of their variable."""
    dims = flat.dims.tolist()
    costs, alone = _with_unary(flat)
    scope, edges, cells = flat.scope.tolist(), flat.edges.tolist(), flat.cells.tolist()
    tables = []
    for f in range(flat.n_functions):
        variables = tuple(scope[edges[f] : edges[f + 1]])
        tables.append(CostTable(variables, costs[cells[f] : cells[f + 1]].reshape([dims[v] for v in variables])))
    for x in alone:
        tables.append(CostTable((x,), flat.unary[flat.first[x] : flat.first[x + 1]].copy()))
    return tuple(tables)


def _with_unary(flat: Flat) -> tuple[Costs, list[int]]:
    """Add unary costs to the tables, in a copy; return the variables of none that have some."""
    costs, sizes = flat.costs.copy(), np.diff(flat.cells)
    alone: list[int] = []
    if not len(flat.unary):
        return costs, alone
    for x in np.flatnonzero(np.maximum.reduceat(flat.unary, flat.first[:-1]) > 0):
        edges = flat.incident[flat.around[x] : flat.around[x + 1]]
        if not len(edges):
            alone.append(int(x))
            continue
        edge = edges[np.argmin(sizes[flat.function[edges]])]
        f, own = flat.function[edge], flat.unary[flat.first[x] : flat.first[x + 1]]
        costs[flat.cells[f] : flat.cells[f + 1]].reshape(-1, len(own), flat.stride[edge])[...] += own[:, None]
    return costs, alone
