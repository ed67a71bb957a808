"""Mini-bucket elimination on integer costs: a lower bound, and messages that bound what is left of any assignment.

The tables of a bucket that was split first agree on what they share: of every cell of their common variables each
gets an equal share of the sum of their minima (moment matching; Ihler, Flerova, Dechter & Otten, UAI 2012). Shares
are integers whose sum is unchanged, so that every assignment keeps its total and the bound is a sum of integers.
Joins are never stored: the minima over them are steps of the dense engine, on the CPU or on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...tasks.gpu.arrays import is_device
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.semiring import MIN_PLUS
from ..cost_networks.cost_network import CostNetwork, States
from .bucket_elimination import Array, Extent, MessageWorkers, Stop, elimination
from .joins import BucketTable, Joins, ordered
from .partition import MiniBucket, Partition


@dataclass(frozen=True, eq=False)
class MiniBuckets:
    """The result of mini-bucket elimination.

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
    workers: MessageWorkers | None = None,
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
        Whether buckets and messages are kept; otherwise they are empty in the result.
    threads : int
        Threads of large steps.
    compiled : bool
        Whether compiled kernels may be used.
    device_cells : int, optional
        Minimum cells of a join that runs on the GPU and leaves its message there.
    stop : callable, optional
        Asked before each bucket.
    workers : MessageWorkers, optional
        Where messages are computed; by default in this process.
    """
    own, reach = beginning(network, split, upper)
    joins = Joins(split.dims, MIN_PLUS, threads, compiled, device_cells)
    work = elimination(workers, split, own, LeastCosts(reach), joins, keep=keep)
    # a network that is infeasible after its preparation needs no elimination
    if reach.feasible and work.run(stop) is None:
        return None
    return MiniBuckets(
        split.order,
        reach.bound,
        reach.feasible,
        split.exact,
        tuple(work.buckets),
        tuple([tuple([message for message in messages if message.scope]) for messages in work.messages]),
        tuple([sum(int(message.extent.least) for message in messages) for messages in work.messages]),
        split.cells,
        split.largest,
    )


@dataclass(frozen=True)
class Told:
    """The contribution of a message to the bound: its least entry, and the value (minus the least) from which entries
    are forbidden.
    """

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
        """The amount that may still be added."""
        return self.upper - self.lower

    @property
    def bound(self) -> int:
        """No total below the cut-off is smaller."""
        return self.lower if self.feasible else self.upper

    def told(self, lowest: float) -> Told | None:
        """Return the contribution of a message with this least entry; None if the bound would reach the cut-off."""
        return Told(int(lowest), self.room - int(lowest)) if lowest < self.room else None

    def enter(self, lowest: float) -> bool:
        """Add the least entry of a message to the bound; return whether the bound stays below the cut-off."""
        self.feasible = lowest < self.room
        if self.feasible:
            self.lower += int(lowest)
        return self.feasible


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


class LeastCosts:
    """The rule of integer costs: shares are whole, messages are cut off.

    Parameters
    ----------
    reach : Reach
        At the beginning, and then with all messages that were entered.
    """

    def __init__(self, reach: Reach) -> None:
        self.reach, self._base = reach, reach.lower

    def within(self, below: int) -> LeastCosts:
        return LeastCosts(Reach(self._base + below, self.reach.upper))

    def agreed(self, sums: Sequence[Any]) -> tuple[list[Any], float]:
        return shifts(sums, self.reach.room), 0.0

    def added(self, total: Array, share: Array) -> Array:
        return np.minimum(total, share, out=total)

    def written(self, costs: Any, parts: int) -> None:
        pass

    def measured(self, costs: Any, shared: float) -> Extent:
        return Extent(float(costs.min()), math.inf, shared)

    def told(self, extent: Extent) -> Told | None:
        return self.reach.told(extent.least)

    def below(self, told: Told) -> int:
        return told.lowest

    def entered(self, minis: Sequence[MiniBucket], extents: Sequence[Extent]) -> bool:
        return all(self.reach.enter(extent.least) for extent in extents)

    def read(self, costs: Any, told: Told) -> None:
        told.apply(costs)

    def raised(self, costs: Any, parts: int, out: Any = None) -> Any:
        return costs


def shifts(minima: Sequence[Any], limit: float) -> list[Any]:
    """Return the amounts to add to several tables so that their minima become equal parts of the sum of the minima.

    Shares are whole numbers and add up to that sum; where it is ``limit`` or more everything becomes forbidden.
    """
    total = reduce(np.add, minima)
    dead = ~(total < limit)
    whole = np.where(dead, 0.0, total).astype(np.int64)
    share, left = whole // len(minima), whole % len(minima)
    return [np.where(dead, np.inf, share + (left > i) - each) for i, each in enumerate(minima)]


def _greatest(costs: Any) -> int:
    return int(np.where(np.isfinite(costs), costs, 0.0).max())


# An assignment from mini-buckets: variables are assigned in the reverse of the order, each to its best bound.


def greedy_states(found: MiniBuckets, dims: Sequence[int]) -> States:
    """Assign every variable the state with the least bound, given the variables assigned so far; ties go to the first
    state.

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
