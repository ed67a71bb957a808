"""One elimination of all variables on decision diagrams, leaving out what reaches a cut-off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from heapq import heapify, heappop, heappush
from operator import or_
from typing import Final

import numpy as np

from ....tasks.cpu.threads import return_freed_pages
from ....tasks.diagrams.diagram import FORBIDDEN, Spaces, as_bits
from ....tasks.diagrams.min_plus import (
    DiagramStoppedError,
    Integers,
    Join,
    Limits,
    NoRoomError,
    Summed,
    add_last_weights,
    from_dense,
    n_nodes,
)
from ....tasks.steps.number_limits import FAR_INTEGER
from ...cost_networks.cost_network import CostNetwork, CostTable, States
from ..prover_policy import MEMORY_PART, SCARCE_BYTES

# Bytes of an edge of a diagram: its weight, its child, and its part of the nodes.
_EDGE_BYTES: Final = 24
# If memory is scarce, freed pages are returned after joins have freed 1 / this of it.
_DIAGRAM_FREED_PART: Final = 16


@dataclass(frozen=True, eq=False)
class Entry:
    """A function in a bucket: its diagram without the constant, its scope as bits, and its number of nodes."""

    function: Summed
    scope: int
    nodes: int

    @classmethod
    def of(cls, function: Summed) -> Entry:
        """Measure a function with a remaining diagram; the caller keeps its constant."""
        assert function.diagram is not None
        return cls(replace(function, constant=0), as_bits(function.diagram.scope), n_nodes(function.diagram))

    @property
    def nbytes(self) -> int:
        """Bytes of the diagram."""
        return self.function.nbytes


@dataclass(frozen=True)
class Round:
    """The result of one elimination.

    Parameters
    ----------
    total : int or None
        Least total of the assignments that were not left out; None if none was, or if it did not get so far.
    states : tuple of int or None
        An assignment of that total; None also if memory was too short to find it.
    left_out : int
        No assignment that was left out has a smaller total; ``NOTHING`` if only forbidden ones were.
    edges : int
        Edges of all diagrams that were made, which is what the time goes into.
    complete : bool
        Whether it was not stopped, by the caller or for want of memory; ``left_out`` is a bound anyway.
    """

    total: int | None
    states: States | None
    left_out: int
    edges: int
    complete: bool = True


@dataclass(eq=False)
class DiagramBuckets:
    """Functions of a network, by the variable of theirs that is eliminated first; diagrams once they are needed.

    Variables are numbered by depth: 0 is eliminated last and stands on top of every diagram.

    Parameters
    ----------
    depth : array
        By variable of the network.
    sizes : array
        Domain sizes, by depth.
    base : int
        Sum of all constants, including the constants of the kept messages and the least costs of all tables.
    waiting : list of list of CostTable
        By variable, tables that are not turned into diagrams yet.
    sequence : tuple of int
        In which variables are eliminated: small buckets first, so that their constants help the large ones.
    kept : dict
        By variable, messages that serve every cut-off: nothing that they stand for was left out.
    held : int
        Bytes of all diagrams, including the diagrams of the kept messages.
    waiting_bytes : int
        Bytes that the waiting tables take at most as diagrams.
    """

    depth: Integers
    sizes: Integers
    base: int
    waiting: list[list[CostTable]]
    entries: list[list[Entry]]
    spaces: Spaces
    memory_bytes: int
    sequence: tuple[int, ...] = ()
    kept: dict[int, Entry] = field(default_factory=dict)
    held: int = 0
    waiting_bytes: int = 0

    def lay_out(self, x: int, memory_bytes: int) -> Entry:
        """Turn the next table of a bucket into a diagram, without its least cost.

        Raises
        ------
        NoRoomError
            If it takes more than ``memory_bytes``.
        """
        table = self.waiting[x][0]
        places = self.depth[list(table.scope)]
        by_depth = np.argsort(places)
        costs = table.costs.transpose(by_depth) - table.costs.min()
        allowed = np.isfinite(costs)
        values = np.where(allowed, np.where(allowed, costs, 0).astype(np.int64), FORBIDDEN)
        function = from_dense(places[by_depth], values, self.sizes, limits=Limits(memory_bytes=memory_bytes))
        assert function.constant == 0
        entry = Entry.of(function)
        self.waiting[x].pop(0)
        self.waiting_bytes -= _EDGE_BYTES * table.costs.size
        self.entries[x].append(entry)
        self.held += entry.nbytes
        return entry


def buckets_of(network: CostNetwork, order: Sequence[int], memory_bytes: int) -> DiagramBuckets | None:
    """Put all functions into buckets; None if one of them allows nothing."""
    depth = np.empty(len(network.dims), np.int64)
    depth[list(order)] = np.arange(len(order))[::-1]
    sizes = np.empty(len(network.dims), np.int64)
    sizes[depth] = network.dims
    waiting: list[list[CostTable]] = [[] for _ in sizes]
    scopes: list[list[int]] = [[] for _ in sizes]
    base = network.constant
    for table in network.tables:
        least = float(table.costs.min(initial=math.inf))
        if least == math.inf:
            return None
        base += int(least)
        places = depth[list(table.scope)]
        waiting[places.max()].append(table)
        scopes[places.max()].append(as_bits(places))
    spaces = Spaces(sizes.tolist())
    entries: list[list[Entry]] = [[] for _ in sizes]
    buckets = DiagramBuckets(
        depth, sizes, base, waiting, entries, spaces, memory_bytes, tuple(_small_first(scopes, spaces))
    )
    buckets.waiting_bytes = _EDGE_BYTES * network.cells
    return buckets


def _small_first(scopes: Sequence[Sequence[int]], spaces: Spaces) -> Iterator[int]:
    """Yield variables so that messages precede their use; the smallest ready bucket comes first."""
    unions = [reduce(or_, of_bucket, 0) for of_bucket in scopes]
    parents = [-1] * len(unions)
    waiting = [0] * len(unions)
    for x in reversed(range(len(unions))):
        rest = unions[x] & ~(1 << x)
        if rest:
            parents[x] = rest.bit_length() - 1
            unions[parents[x]] |= rest
            waiting[parents[x]] += 1
    ready = [(spaces.rows(unions[x]), x) for x in range(len(unions)) if unions[x] and not waiting[x]]
    heapify(ready)
    while ready:
        _, x = heappop(ready)
        yield x
        parent = parents[x]
        if parent >= 0:
            waiting[parent] -= 1
            if not waiting[parent]:
                heappush(ready, (spaces.rows(unions[parent]), parent))


@dataclass(eq=False)
class _Begun:
    """A bucket whose functions are being added up: ``base`` is that before it, ``between`` the bytes of sums."""

    base: int
    entries: list[Entry]
    between: int = 0
    join: Join | None = None


class Elimination:
    """Eliminates all variables of buckets once, without changing anything but the messages that are kept.

    Parameters
    ----------
    upper : int
        Assignments that reach this total are pruned.

    Attributes
    ----------
    stopped : bool
        Whether the last run was stopped; the next one goes on with the bucket where that was.
    """

    def __init__(self, buckets: DiagramBuckets, upper: int) -> None:
        self._buckets, self.upper = buckets, upper
        self._stop: Callable[[], bool] = bool
        self.stopped = False
        self._next = 0
        self._entries = [list(entries) for entries in buckets.entries]
        self._pure = [True] * len(buckets.entries)
        self._base, self._held = buckets.base, buckets.held
        self._left_out, self._edges = FAR_INTEGER, 0
        self._unused = 0
        # messages of this elimination only, and buckets whose functions are there just for decoding
        self._own: set[Entry] = set()
        self._begun: _Begun | None = None
        self._done: list[int] | None = []

    @property
    def nbytes(self) -> int:
        """Bytes of all diagrams, including the diagrams of the buckets and of an interrupted sum."""
        begun = None if self._begun is None else self._begun.join
        return self._held + (0 if begun is None else begun.nbytes)

    def rest(self) -> None:
        """Let go of the sum that was stopped; the next run begins it anew."""
        if self._begun is not None:
            self._begun.join = None

    def run(self, stop: Callable[[], bool]) -> Round:
        """Eliminate all variables that are left."""
        self._stop, self.stopped = stop, False
        try:
            while self._next < len(self._buckets.sequence):
                if not self._eliminate(self._buckets.sequence[self._next]):
                    return Round(None, None, self._left_out, self._edges)
                self._next += 1
        except (NoRoomError, DiagramStoppedError) as error:
            # the remaining assignments have no total below the base
            least = min(self._base, self._left_out)
            self.stopped = isinstance(error, DiagramStoppedError)
            return Round(None, None, least, self._edges, complete=False)
        states = None if self._done is None else self._decoded()
        return Round(self._base, states, self._left_out, self._edges)

    def _eliminate(self, x: int) -> bool:
        """Send the message of a bucket; return whether anything is left."""
        kept = self._buckets.kept.get(x)
        if kept is not None:
            self._send(kept, pure=True)
            return True
        if self._stop():
            raise DiagramStoppedError
        begun = self._begun = self._begun or self._first_of(x)
        message = self._message(x, begun)
        self._begun = None
        self._held -= begun.between
        if message is None:
            return False
        kept_bytes = self._buckets.held + self._buckets.waiting_bytes + message.nbytes
        self._pure[x] &= kept_bytes <= self._buckets.memory_bytes // MEMORY_PART
        if self._pure[x]:
            self._buckets.kept[x] = message
            self._buckets.base += self._base - begun.base
            self._buckets.held += message.nbytes
        else:
            self._own.add(message)
        self._send(message, self._pure[x])
        self._retire(x)
        return True

    def _first_of(self, x: int) -> _Begun:
        """Begin with a bucket: only now its functions become diagrams."""
        buckets = self._buckets
        while buckets.waiting[x]:
            try:
                entry = buckets.lay_out(x, buckets.memory_bytes - self._held)
            except NoRoomError:
                if not self._make_room():
                    raise
                continue
            self._entries[x].append(entry)
            self._held += entry.nbytes
            if self._stop():
                raise DiagramStoppedError
        return _Begun(self._base, sorted(self._entries[x], key=_nodes))

    def _retire(self, x: int) -> None:
        """Keep the functions of a bucket that was eliminated for decoding, if there is memory for that."""
        if self._done is None:
            self._drop(x)
        else:
            self._done.append(x)

    def _make_room(self) -> bool:
        """Let go of functions that only serve decoding, and return freed pages; return whether there were any."""
        if not self._done:
            return False
        for y in self._done:
            self._drop(y)
        self._done = None
        return_freed_pages()
        return True

    def _drop(self, x: int) -> None:
        dropped = self._own.intersection(self._entries[x])
        self._held -= sum(entry.nbytes for entry in dropped)
        self._own -= dropped
        self._entries[x] = []

    def _message(self, x: int, begun: _Begun) -> Entry | None:
        """Add all functions up, pair by pair, and take the least over the variable; None if nothing is left."""
        while len(begun.entries) > 2:
            a, b = self._buckets.spaces.closest([entry.scope for entry in begun.entries])
            joined = self._joined(x, begun, [begun.entries[a], begun.entries[b]])
            if joined is None:
                return None
            begun.between += joined.nbytes
            begun.entries = sorted([*(e for i, e in enumerate(begun.entries) if i not in (a, b)), joined], key=_nodes)
        return self._joined(x, begun, begun.entries, minimise=True)

    def _joined(self, x: int, begun: _Begun, entries: list[Entry], minimise: bool = False) -> Entry | None:
        try:
            result = self._join(begun, entries, minimise)
        except NoRoomError:
            if not self._make_room():
                raise
            begun.join = None
            result = self._join(begun, entries, minimise)
        self._freed(begun)
        self._edges += result.edges
        if result.left_out < FAR_INTEGER:
            self._pure[x] = False
            self._left_out = min(self._left_out, self._base + result.left_out)
        if result.diagram is None:
            return None
        self._base += result.constant
        self._held += result.nbytes
        return Entry.of(result)

    def _freed(self, begun: _Begun) -> None:
        """Let go of a join that is complete; many of them leave pages with nothing but holes."""
        assert begun.join is not None
        self._unused += begun.join.nbytes
        begun.join = None
        if (
            self._buckets.memory_bytes < SCARCE_BYTES
            and _DIAGRAM_FREED_PART * self._unused > self._buckets.memory_bytes
        ):
            self._unused = 0
            return_freed_pages()

    def _join(self, begun: _Begun, entries: list[Entry], minimise: bool) -> Summed:
        if begun.join is None:
            functions = [entry.function for entry in entries]
            begun.join = Join(*functions, sizes=self._buckets.sizes, minimise=minimise)
        limits = Limits(self.upper - 1 - self._base, self._buckets.memory_bytes - self._held, self._stop)
        return begun.join.run(limits)

    def _send(self, message: Entry, pure: bool) -> None:
        if message.scope:
            to = message.scope.bit_length() - 1
            self._entries[to].append(message)
            self._pure[to] &= pure

    def _decoded(self) -> States:
        """Choose the best value of one variable after the other, from the top."""
        sizes = self._buckets.sizes
        states = np.zeros(len(sizes), np.int64)
        for x, entries in enumerate(self._entries):
            sums = np.zeros(sizes[x], np.int64)
            for entry in entries:
                add_last_weights(entry.function, sizes, states, sums)
            states[x] = sums.argmin()
        return tuple(states[self._buckets.depth].tolist())


def _nodes(entry: Entry) -> int:
    return entry.nodes
