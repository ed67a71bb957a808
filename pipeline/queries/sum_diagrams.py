"""Sums of products of all factors of a network, by bucket elimination on decision diagrams."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.diagrams.diagram import Diagram, Spaces, as_bits
from ...tasks.diagrams.min_plus import NoRoomError, diagram_bytes, n_nodes
from ...tasks.diagrams.sum_product import Factor, Means, from_table, product
from .formula import QueryPolicy

Table = tuple[Sequence[int], NDArray[Any]]


class EdgesSpentError(NoRoomError):
    """All joins together took the edges that were allowed, and none of them took too many."""


@dataclass(frozen=True)
class DiagramBudget:
    """The limits of an elimination.

    Parameters
    ----------
    memory_bytes : int
        For diagrams, and the work on them.
    edges : float
        Of all joins.
    part : float
        Edges of a join relative to its dense cells. Small joins, and joins that are a small part of the run, may have
        more.
    stop : callable
        Whether to stop, asked after every million of edges.
    """

    memory_bytes: int
    edges: float = math.inf
    part: float = math.inf
    stop: Callable[[], bool] = bool


@dataclass(frozen=True)
class Total:
    """A sum of products.

    Parameters
    ----------
    log : float
        Its natural logarithm, -inf for 0; NaN if it was computed modulo a prime.
    residue : int
        The sum modulo the prime, if it was computed so.
    error : float
        The sum is off by at most this part of it, apart from the rounding of the logarithm.
    edges, nodes : int
        Edges of all diagrams that were made, and the nodes of the largest.
    """

    log: float
    residue: int
    error: float
    edges: int
    nodes: int


@dataclass(frozen=True, eq=False)
class _Entry:
    """A diagram in a bucket, its scope as bits, and its number of nodes."""

    diagram: Diagram
    scope: int
    nodes: int


@dataclass(eq=False)
class SumElimination:
    """The sum of the product of all tables over all assignments, which can be gone on with.

    Variables are numbered by depth: 0 is eliminated last and stands on top of every diagram.

    Parameters
    ----------
    dims : sequence of int
        Domain sizes.
    tables : iterator of (scope, array)
        Non-negative floats; integers below the modulus if there is one. Every variable has one at least.
    order : sequence of int
        The variable that is eliminated first comes first.
    modulus : int
        A prime below 2**31, or 0 for floats.

    Attributes
    ----------
    held : int
        Bytes of the diagrams that wait in buckets.
    free : float
        Edges that a join of this run may make at any density.
    """

    dims: Sequence[int]
    tables: Iterator[Table]
    order: Sequence[int]
    modulus: int = 0
    work: DiagramBudget = DiagramBudget(0)
    held: int = 0
    free: float = 0.0
    edges: int = 0
    nodes: int = 0
    moved: int = 0
    logs: list[float] = field(default_factory=list)
    residue: int = 1

    def __post_init__(self) -> None:
        self.depth = np.empty(len(self.dims), np.int64)
        self.depth[list(self.order)] = np.arange(len(self.order))[::-1]
        self.sizes = np.empty(len(self.dims), np.int64)
        self.sizes[self.depth] = self.dims
        self.spaces = Spaces(self.sizes.tolist())
        self.buckets: list[list[_Entry]] = [[] for _ in self.dims]
        self.table: Table | None = None
        self.variable = len(self.dims) - 1
        self.possible = True

    def run(self, work: DiagramBudget) -> Total:
        """Continue until all variables are eliminated. Finished joins are kept if the budget does not suffice.

        Raises
        ------
        NoRoomError
            If it takes more memory, or a join more edges, than allowed.
        EdgesSpentError
            If all joins together take more edges than this run may.
        VanishedError
            If products are too small for floats.
        StoppedError
            If ``stop`` ended it.
        """
        self.work, self.free = replace(work, edges=self.edges + work.edges), QueryPolicy.current().free(work.edges)
        while self.possible and (self._has_table() or self.variable >= 0):
            self.possible = self._take(*self.table) if self.table else self._eliminate(self.buckets[self.variable])
        log = math.nan if self.modulus else math.fsum(self.logs) if self.possible else -math.inf
        residue = self.residue if self.possible and self.modulus else 0
        return Total(log, residue, self.moved * sys.float_info.epsilon, self.edges, self.nodes)

    @property
    def eliminated(self) -> int:
        """How many variables are eliminated."""
        return len(self.dims) - 1 - self.variable

    def _has_table(self) -> bool:
        if self.table is None:
            self.table = next(self.tables, None)
        return self.table is not None

    def _take(self, scope: Sequence[int], values: NDArray[Any]) -> bool:
        places = self.depth[list(scope)]
        by_depth = np.argsort(places)
        made = from_table(places[by_depth], values.transpose(by_depth), self._means(math.inf))
        self.table = None
        return self._put(self._kept(made))

    def _eliminate(self, bucket: list[_Entry]) -> bool:
        """Send the message of the last bucket; return whether anything is left."""
        while len(bucket) > 2:
            bucket.sort(key=_nodes)
            a, b = self.spaces.closest([entry.scope for entry in bucket])
            joined = self._joined([bucket[a], bucket[b]])
            if joined is None:
                return False
            bucket[:] = [*(e for i, e in enumerate(bucket) if i not in (a, b)), joined]
        message = self._joined(bucket, add_up=True)
        bucket.clear()
        self.variable -= 1
        return self._put(message)

    def _joined(self, entries: list[_Entry], add_up: bool = False) -> _Entry | None:
        """Multiply one or two functions, which are not needed any more."""
        rows = self.spaces.rows(entries[0].scope | entries[-1].scope)
        second = entries[1].diagram if len(entries) > 1 else None
        means = self._means(rows)
        try:
            made = product(entries[0].diagram, second, sizes=self.sizes, means=means, add_up=add_up)
        except NoRoomError:
            if means.edges < self._own_edges(rows):
                raise EdgesSpentError from None
            raise
        self.held -= sum(diagram_bytes(entry.diagram) for entry in entries)
        return self._kept(made)

    def _means(self, rows: float) -> Means:
        """Return the limits of a join over 2**rows cells."""
        edges = int(min(self._own_edges(rows), self.work.edges - self.edges))
        return Means(self.modulus, self.work.memory_bytes - self.held, edges, self.work.stop)

    def _own_edges(self, rows: float) -> int:
        """Edges of a join over 2**rows cells."""
        return int(min(max(self.free, self.work.part * 2.0 ** min(rows, 1000.0)), 1 << 62))

    def _kept(self, made: Factor) -> _Entry | None:
        """Account for a new factor, and return its entry; None if it is 0 everywhere."""
        self.edges += made.edges
        self.moved += made.moved
        if made.diagram is None:
            return None
        if self.modulus:
            self.residue = self.residue * int(made.number) % self.modulus
        else:
            self.logs.append(math.log(made.number))
        entry = _Entry(made.diagram, as_bits(made.diagram.scope), n_nodes(made.diagram))
        self.held += diagram_bytes(made.diagram)
        self.nodes = max(self.nodes, entry.nodes)
        return entry

    def _put(self, entry: _Entry | None) -> bool:
        if entry is None:
            return False
        if entry.scope:
            self.buckets[entry.scope.bit_length() - 1].append(entry)
        return True


def _nodes(entry: _Entry) -> int:
    return entry.nodes
