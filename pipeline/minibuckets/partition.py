"""How buckets are split into mini-buckets: scopes and sizes alone. Pure: no tables.

A bucket whose tables together have too many variables or cells is split; each part is eliminated by itself, which
relaxes the problem: its variable may take another state in each part (Dechter & Rish, Mini-buckets, JACM 2003).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import CELL_BYTES

Scope = tuple[int, ...]


@dataclass(frozen=True)
class Size:
    """How large a mini-bucket may become; a single table that is larger is one by itself.

    Parameters
    ----------
    cells : int, optional
        Most cells of its join.
    variables : int, optional
        Maximum number of variables, including the eliminated one.
    """

    cells: int | None = None
    variables: int | None = None

    def holds(self, cells: int, variables: int) -> bool:
        """Whether a mini-bucket may have this size."""
        return (self.cells is None or cells <= self.cells) and (self.variables is None or variables <= self.variables)


@dataclass(frozen=True)
class MiniBucket:
    """Tables that are joined to eliminate one variable.

    Parameters
    ----------
    scope : tuple of int
        Variables of the join, in reverse elimination order, so that the bucket's own variable is the last axis.
    tables : tuple of int
        What is joined: the network's tables have the first numbers, messages follow in the order they are made.
    cells : int
        Cells of the join, which is never stored.
    """

    scope: Scope
    tables: tuple[int, ...]
    cells: int

    @property
    def variable(self) -> int:
        """The variable that is eliminated."""
        return self.scope[-1]

    @property
    def message(self) -> Scope:
        """Variables of the message."""
        return self.scope[:-1]


@dataclass(frozen=True, eq=False)
class Partition:
    """Mini-buckets along an elimination order.

    Parameters
    ----------
    dims : tuple of int
        Domain sizes.
    order : tuple of int
        All variables, the first eliminated first.
    scopes : tuple of tuple of int
        Scope of every table, the network's first, then messages; axes as in :attr:`MiniBucket.scope`.
    buckets : tuple of tuple of MiniBucket
        For each place of the order; empty for a variable without tables.
    """

    dims: tuple[int, ...]
    order: tuple[int, ...]
    scopes: tuple[Scope, ...]
    buckets: tuple[tuple[MiniBucket, ...], ...]

    @cached_property
    def exact(self) -> bool:
        """Whether no bucket was split, so that the bound is the optimum."""
        return all(len(bucket) < 2 for bucket in self.buckets)

    @cached_property
    def cells(self) -> int:
        """Cells of all joins: the arithmetic of one elimination."""
        return sum(mini.cells for bucket in self.buckets for mini in bucket)

    @cached_property
    def largest(self) -> int:
        """Cells of the largest join."""
        return max((mini.cells for bucket in self.buckets for mini in bucket), default=0)

    @cached_property
    def kept_bytes(self) -> int:
        """Bytes of an elimination that keeps all its tables, with the working memory of its largest bucket."""
        return CELL_BYTES * (sum(map(self._size, self.scopes)) + max(map(self._work, self.buckets), default=0))

    @cached_property
    def live_bytes(self) -> int:
        """Bytes of an elimination that drops messages once they are read; tables of the network stay."""
        made = sum(len(bucket) for bucket in self.buckets)
        live = sum(map(self._size, self.scopes[: len(self.scopes) - made]))
        peak = live
        message = originals = len(self.scopes) - made
        for bucket in self.buckets:
            live += sum(self._size(mini.message) for mini in bucket)
            peak = max(peak, live + self._work(bucket))
            live -= sum(self._size(self.scopes[t]) for mini in bucket for t in mini.tables if t >= originals)
            message += len(bucket)
        return CELL_BYTES * peak

    def shared(self, bucket: Sequence[MiniBucket]) -> Scope:
        """Return the variables that all mini-buckets of a bucket have, in the order of their axes."""
        common = set(bucket[0].scope).intersection(*(mini.scope for mini in bucket[1:]))
        return tuple(v for v in bucket[0].scope if v in common)

    def _size(self, scope: Sequence[int]) -> int:
        return math.prod([self.dims[v] for v in scope])

    def _work(self, bucket: Sequence[MiniBucket]) -> int:
        """Cells of the values compared between the mini-buckets of one bucket, and of one more message."""
        if not bucket:
            return 0
        message = max(self._size(mini.message) for mini in bucket)
        return message + (2 * len(bucket) + 4) * self._size(self.shared(bucket)) if len(bucket) > 1 else message


def partition(dims: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int], size: Size) -> Partition:
    """Split the buckets of an order into mini-buckets of a size.

    Large tables come first; each joins the mini-bucket that grows least by it, or begins one.
    """
    place = {v: i for i, v in enumerate(order)}
    found: list[Scope] = [tuple(sorted(scope, key=lambda v: -place[v])) for scope in scopes]
    waiting: list[list[int]] = [[] for _ in order]
    for table, scope in enumerate(found):
        waiting[place[scope[-1]]].append(table)
    buckets = []
    for tables in waiting:
        bucket = _split(dims, found, tables, size, place)
        for mini in bucket:
            if mini.message:
                waiting[place[mini.message[-1]]].append(len(found))
            found.append(mini.message)
        buckets.append(bucket)
    return Partition(tuple(dims), tuple(order), tuple(found), tuple(buckets))


class _Growing:
    """A mini-bucket that is still being filled."""

    def __init__(self, scope: Scope, table: int, cells: int) -> None:
        self.variables = set(scope)
        self.tables = [table]
        self.cells = cells


def _split(
    dims: Sequence[int], scopes: Sequence[Scope], tables: Sequence[int], size: Size, place: dict[int, int]
) -> tuple[MiniBucket, ...]:
    """Split one bucket."""
    cells = {table: math.prod([dims[v] for v in scopes[table]]) for table in tables}
    growing: list[_Growing] = []
    for table in sorted(tables, key=lambda t: (-cells[t], t)):
        _put(dims, scopes[table], table, cells[table], growing, size)
    return tuple(
        MiniBucket(tuple(sorted(g.variables, key=lambda v: -place[v])), tuple(g.tables), g.cells) for g in growing
    )


def _put(dims: Sequence[int], scope: Scope, table: int, cells: int, growing: list[_Growing], size: Size) -> None:
    """Put a table where it adds fewest cells for each that is there."""
    best, least = None, math.inf
    for candidate in growing:
        factor = math.prod([dims[v] for v in scope if v not in candidate.variables])
        variables = len(candidate.variables.union(scope))
        if factor == 1 or (factor < least and size.holds(candidate.cells * factor, variables)):
            best, least = candidate, factor
            if factor == 1:
                break
    if best is None:
        growing.append(_Growing(scope, table, cells))
        return
    best.variables.update(scope)
    best.tables.append(table)
    best.cells *= int(least)
