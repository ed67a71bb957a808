"""Values that were removed are dropped, variables with one value folded, functions without effect or of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...tasks.steps.light_dataclass import dataclass
from .cost_network import Costs, States
from .working_network import Integers, NetworkProblem

if TYPE_CHECKING:
    from ...tasks.networks.flat import Flat


@dataclass(frozen=True, eq=False)
class KeptValues:
    """Restores states: which variables and which of their values were kept.

    Parameters
    ----------
    states : NDArray
        Of every old variable, the least of the values kept.
    live : NDArray
        Old number of each variable that was kept.
    values, first : NDArray
        Old numbers of the values kept, of every old variable, and where each variable's begin.
    """

    states: Integers
    live: Integers
    values: Integers
    first: Integers

    def __call__(self, states: States) -> States:
        old = self.states.copy()
        old[self.live] = self.values[self.first[self.live] + np.array(states, np.int64)]
        return tuple(old.tolist())


def only(states: States) -> KeptValues:
    """Return an object that restores these states when no variable was kept."""
    values, none = np.array(states, np.int64), np.empty(0, np.int64)
    return KeptValues(values, none, values, np.arange(len(values) + 1))


def compact(problem: NetworkProblem, eliminated: int = 0, *, keep_all: bool = False) -> None:
    """Drop values of infinite unary cost, variables with one value, and functions that others contain.

    Of a variable that is in no function the cheapest value is kept, or all if ``keep_all``. ``eliminated`` variables
    were counted before.
    """
    from ...tasks.networks.flat import offsets

    flat = problem.flat
    keep = np.isfinite(flat.unary)
    if not keep_all:
        _keep_cheapest(flat, keep)
    counts = np.add.reduceat(keep, flat.first[:-1], dtype=np.int64) if len(keep) else np.empty(0, np.int64)
    if (counts == 0).any():
        problem.constant = math.inf
        return
    rebuilt = len(keep) > 0 and not (keep.all() and counts.min() > 1)
    if rebuilt:
        owner = np.repeat(np.arange(len(counts)), flat.dims)
        values = np.flatnonzero(keep) - flat.first[owner[keep]]
        first, live = offsets(counts), np.flatnonzero(counts > 1)
        problem.made.append(KeptValues(values[first[:-1]], live, values, first))
        problem.count("one value left", variables=len(counts) - len(live) - eliminated)
        _rebuild(problem, values, first, flat.unary[keep])
    if rebuilt or not problem.folded:
        _fold(problem)


def _keep_cheapest(flat: Flat, keep: np.ndarray) -> None:
    alone = np.flatnonzero(np.diff(flat.around) == 0)
    for x in alone[np.add.reduceat(keep, flat.first[:-1], dtype=np.int64)[alone] > 1] if len(alone) else ():
        begin, end = flat.first[x], flat.first[x + 1]
        keep[begin:end] &= np.arange(end - begin) == np.argmin(flat.unary[begin:end])


def _rebuild(problem: NetworkProblem, values: Integers, first: Integers, unary: Costs) -> None:
    """Restrict all functions to the kept values.

    Functions without variables go to the constant, and functions of one variable to the unary costs.
    """
    from ...tasks.networks.flat import chosen_parts, flatten, offsets, parts, restrict

    flat, counts = problem.flat, np.diff(first)
    live = counts > 1
    problem.constant += float(unary[first[:-1][~live]].sum())
    costs, sizes = restrict(flat, values, first)
    edge_live = live[flat.scope]
    arities = np.bincount(flat.function[edge_live], minlength=flat.n_functions)
    cells, scope = offsets(sizes), (np.cumsum(live) - 1)[flat.scope[edge_live]]
    problem.constant += float(costs[cells[:-1][arities == 0]].sum())
    unary, edges = unary[np.repeat(live, counts)], offsets(arities)
    new_first = offsets(counts[live])
    ones = np.flatnonzero(arities == 1)
    owners = scope[edges[ones]]
    np.add.at(unary, parts(new_first, owners), costs[parts(cells, ones)])
    more = np.flatnonzero(arities > 1)
    problem.count("contained", functions=flat.n_functions - len(more))
    left = chosen_parts(costs, cells, more), arities[more], chosen_parts(scope, edges, more)
    problem.flat = flatten(counts[live], unary, *left)


def _fold(problem: NetworkProblem) -> None:
    """Add functions to functions that contain their scope, and drop constant functions."""
    from ...tasks.networks.flat import fold_contained, selected

    flat, problem.folded = problem.flat, True
    if not flat.n_functions:
        return
    left = fold_contained(flat)
    problem.count("contained", functions=int(np.count_nonzero(~left)))
    least = np.minimum.reduceat(flat.costs, flat.cells[:-1])
    level = least == np.maximum.reduceat(flat.costs, flat.cells[:-1])
    problem.constant += float(least[level & left].sum())
    problem.count("constant", functions=int(np.count_nonzero(level & left)))
    if not (left & ~level).all():
        problem.flat = selected(flat, np.flatnonzero(left & ~level))
