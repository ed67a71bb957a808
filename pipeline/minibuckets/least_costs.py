"""Mini-bucket elimination on integer costs: a lower bound, and messages that bound what is left of any assignment.

The tables of a bucket that was split first agree on what they share: of every cell of their common variables each
gets an equal share of the sum of their minima (moment matching; Ihler, Flerova, Dechter & Otten, UAI 2012). Shares
are integers whose sum is unchanged, so that every assignment keeps its total and the bound is a sum of integers.
Joins are never stored: the minima over them are steps of the dense engine, on the CPU or on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ...tasks.gpu.arrays import is_device
from ...tasks.steps.semiring import MIN_PLUS
from ..cost_networks.cost_network import CostNetwork, States
from .joins import BucketTable, Joins, on_one_side, ordered
from .partition import MiniBucket, Partition

Stop = Callable[[], bool]


@dataclass(frozen=True, eq=False)
class MiniBuckets:
    """What mini-bucket elimination found.

    Any assignment of the variables from some place of the order to its end has a bound on what it can still become:
    ``lower``, plus the tables of its buckets at its states, minus the messages that these sent and their offsets.
    It never falls as variables are assigned in the reverse of the order, and ends as the assignment's total.

    Parameters
    ----------
    order : tuple of int
        All variables, the first eliminated first.
    lower : int
        No assignment below the cut-off has a smaller total.
    feasible : bool
        False if no assignment is below the cut-off; the tables are then not complete.
    exact : bool
        Whether no bucket was split: ``lower`` is the optimum, if that is below the cut-off.
    buckets : tuple of tuple of BucketTable
        For each variable the tables of its bucket, the network's own and messages. Axes are in the reverse of the
        order, so that the variable itself is the last.
    messages : tuple of tuple of BucketTable
        For each variable the messages that its bucket sent, their least entry 0.
    offsets : tuple of int
        For each variable what was taken from the messages that its bucket sent.
    cells, largest : int
        Cells of all joins, and of the largest.
    """

    order: tuple[int, ...]
    lower: int
    feasible: bool
    exact: bool
    buckets: tuple[tuple[BucketTable, ...], ...]
    messages: tuple[tuple[BucketTable, ...], ...]
    offsets: tuple[int, ...]
    cells: int
    largest: int


def eliminate(
    network: CostNetwork,
    split: Partition,
    *,
    upper: int | None = None,
    keep: bool = True,
    threads: int = 1,
    compiled: bool = True,
    device_cells: int | None = None,
    stop: Stop | None = None,
) -> MiniBuckets | None:
    """Eliminate all variables, bucket by bucket; None if it was stopped.

    Parameters
    ----------
    network : CostNetwork
    split : Partition
        Of the network's scopes; its ``kept_bytes`` or ``live_bytes`` are the memory this takes.
    upper : int, optional
        A cut-off: assignments of this total or more do not interest, and bounds may pass over them.
    keep : bool
        Whether buckets and messages are kept; else they are empty in what is returned.
    threads : int
        Threads of large steps.
    compiled : bool
        Whether compiled kernels may be used.
    device_cells : int, optional
        Joins of at least so many cells run on the GPU; their messages stay there.
    stop : callable, optional
        Asked before each bucket.
    """
    work = _Elimination(network, split, upper, keep, Joins(split.dims, MIN_PLUS, threads, compiled, device_cells))
    for place in range(len(split.order)):
        if stop is not None and stop():
            return None
        if not work.feasible:
            break
        work.bucket(place)
    return work.result()


@dataclass(frozen=True)
class Told:
    """What a message tells the bound: its least entry, and from where on its entries, less that, are forbidden."""

    lowest: int
    limit: int

    def apply(self, costs: Any) -> None:
        """Take the least entry from a message, in place, and forbid what reaches the cut-off."""
        costs -= self.lowest
        costs[costs >= self.limit] = np.inf


@dataclass
class Reach:
    """The bound so far, and the cut-off that it must stay below."""

    lower: int
    upper: int
    feasible: bool = True

    @property
    def room(self) -> int:
        """What may still be added."""
        return self.upper - self.lower

    @property
    def bound(self) -> int:
        """No total below the cut-off is smaller."""
        return self.lower if self.feasible else self.upper

    def told(self, lowest: float) -> Told | None:
        """Add the least entry of a message to the bound; None, and nothing is possible, if that reaches the cut-off."""
        limit = self.room
        if not lowest < limit:
            self.feasible = False
            return None
        self.lower += int(lowest)
        return Told(int(lowest), limit - int(lowest))


def beginning(network: CostNetwork, split: Partition, upper: int | None) -> tuple[list[BucketTable], Reach]:
    """Return a network's tables, the least entry of each as 0, and the bound that these entries are."""
    tables, lower, feasible = [], network.constant, True
    for table, scope in zip(network.tables, split.scopes, strict=False):
        costs = ordered(table, scope)
        lowest = float(costs.min())
        if lowest < math.inf:
            lower += int(lowest)
            tables.append(BucketTable(scope, costs - lowest if lowest else costs))
        else:
            feasible = False
    most = lower + sum(_greatest(table.costs) for table in tables)
    return tables, Reach(lower, most + 1 if upper is None else min(upper, most + 1), feasible)


class _Elimination:
    """The state of one elimination."""

    def __init__(self, network: CostNetwork, split: Partition, upper: int | None, keep: bool, joins: Joins) -> None:
        self.split, self.keep, self.joins = split, keep, joins
        own, self.reach = beginning(network, split, upper)
        self.tables: list[BucketTable | None] = list(own)
        n = len(split.dims)
        self.buckets: list[tuple[BucketTable, ...]] = [()] * n
        self.messages: list[tuple[BucketTable, ...]] = [()] * n
        self.offsets = [0] * n

    @property
    def feasible(self) -> bool:
        """Whether an assignment below the cut-off may be left."""
        return self.reach.feasible

    def bucket(self, place: int) -> None:
        """Eliminate one variable."""
        minis, v = self.split.buckets[place], self.split.order[place]
        tables = [[self._take(t) for t in mini.tables] for mini in minis]
        if self.keep:
            self.buckets[v] = tuple(table for each in tables for table in each)
        if len(minis) > 1:
            self._agree(minis, tables)
        for mini, each in zip(minis, tables, strict=True):
            self._send(mini, each)

    def _take(self, number: int) -> BucketTable:
        table = self.tables[number]
        assert table is not None
        if not self.keep:
            self.tables[number] = None
        return table

    def _agree(self, minis: Sequence[MiniBucket], tables: list[list[BucketTable]]) -> None:
        """Give the mini-buckets equal shares of what they cost together, by one more table for each."""
        common = self.split.shared(minis)
        minima = [self.joins.projected(mini.scope, each, common) for mini, each in zip(minis, tables, strict=True)]
        for each, shift in zip(tables, shifts(minima, self.reach.room), strict=True):
            each.append(BucketTable(common, shift))

    def _send(self, mini: MiniBucket, tables: Sequence[BucketTable]) -> None:
        """Send a message, its least entry as 0; what reaches the cut-off with the bound so far is forbidden."""
        if not self.feasible:
            return
        costs = self.joins.projected(mini.scope, tables, mini.message)
        told = self.reach.told(float(costs.min()))
        if told is None:
            return
        told.apply(costs)
        message = BucketTable(mini.message, costs)
        self.tables.append(message)
        self.offsets[mini.variable] += told.lowest
        if self.keep and mini.message:
            self.messages[mini.variable] = (*self.messages[mini.variable], message)

    def result(self) -> MiniBuckets:
        """What was found."""
        return MiniBuckets(
            self.split.order,
            self.reach.bound,
            self.feasible,
            self.split.exact,
            tuple(self.buckets),
            tuple(self.messages),
            tuple(self.offsets),
            self.split.cells,
            self.split.largest,
        )


def shifts(minima: Sequence[Any], limit: float) -> list[Any]:
    """Return what to add to each of several tables so that their minima become equal shares of the sum of them.

    Shares are whole numbers and add up to that sum; where it is ``limit`` or more everything becomes forbidden.
    """
    minima = on_one_side(minima)
    total = reduce(np.add, minima)
    dead = ~(total < limit)
    whole = np.where(dead, 0.0, total).astype(np.int64)
    share, left = whole // len(minima), whole % len(minima)
    return [np.where(dead, np.inf, share + (left > i) - each) for i, each in enumerate(minima)]


def _greatest(costs: Any) -> int:
    return int(np.where(np.isfinite(costs), costs, 0.0).max())


# An assignment from mini-buckets: variables are assigned in the reverse of the order, each to its best bound.


def greedy_states(found: MiniBuckets, dims: Sequence[int]) -> States:
    """Assign every variable to the state whose bound is least, given those that are assigned; the first of equals.

    Optimal if no bucket was split, else a heuristic that may end at a forbidden assignment. Needs the tables that
    :func:`eliminate` keeps.
    """
    states = [0] * len(dims)
    for v in reversed(found.order):
        if found.buckets[v]:
            bounds = sum(_row(table, states, dims) for table in found.buckets[v])
            states[v] = int(np.argmin(bounds))
    return tuple(states)


def _row(table: BucketTable, states: Sequence[int], dims: Sequence[int]) -> Any:
    """Return the costs of each state of a table's last variable, the others being assigned."""
    at, d = 0, dims[table.scope[-1]]
    for v in table.scope[:-1]:
        at = at * dims[v] + states[v]
    row = table.costs[at * d : (at + 1) * d]
    return row.get() if is_device(row) else row
