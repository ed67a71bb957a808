"""Circuits from clauses: the trace of a counting search, written as a decision-DNNF.

Sums are decisions. Products are implied literals and independent components. A cached component is one node with two
parents (Huang & Darwiche, The language of search, JAIR 2007; Lagniez & Marquis, An improved decision-DNNF compiler,
IJCAI 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetError, InternalError, format_bytes
from ..machine.resources import Resources
from ..queries.formula import SEARCHED_PER_SECOND, Formula, UnfitError, formula_of, formula_orders, has_mixed_tables
from .circuit import CircuitGraph, CircuitPolicy, pieces, ranges
from .circuit_leaves import CircuitMaker, NodeTable, is_constraint
from .gate_store import EDGE_BYTES, GATE_BYTES, NOTHING, STORED_GATE_BYTES, GateStore, StoredGates, stored_bytes

if TYPE_CHECKING:
    from ...tasks.counting.count import Count, Counted
    from ...tasks.counting.loops import SearchTrace

Array = NDArray[Any]
# Bytes of a trace node while its gates go to disk: its number, its depth, and its place in their order.
_STORED_NODE_BYTES = STORED_GATE_BYTES + 40


@dataclass(eq=False)
class TracedCircuit(CircuitMaker):
    """A circuit while the search that it is made from goes on.

    Parameters
    ----------
    outer : frozenset of int
        The network's variables that are decided before all others, so that no sum above a state of one of them is over
        states of others.
    """

    outer: frozenset[int] = frozenset()
    method: ClassVar[str] = "search"

    def __post_init__(self) -> None:
        self._of_literal: dict[int, list[int]] = {}

    @cached_property
    def formula(self) -> Formula | None:
        """The model as clauses with a variable for each entry that weighs; None where these are too many."""
        network = self.network
        if not network.feasible:
            impossible = Formula(network.dims)
            impossible.add(())
            return impossible
        try:
            made = formula_of(replace(network, query="count"), network.model)
            for f in [f for leaf in network.leaves for f in leaf.functions]:
                self._weigh(made, f)
        except UnfitError:
            return None
        return made

    @property
    def suits(self) -> bool:
        """Whether the model is clauses, or mostly zero."""
        return self._is_sparse

    @cached_property
    def _is_sparse(self) -> bool:
        network = self.network
        mixed = network.feasible and has_mixed_tables(network, network.model)
        return not mixed and self.formula is not None

    def _weigh(self, made: Formula, f: int) -> None:
        """Let each entry of a function that is more than a constraint have a literal, and that its parameter."""
        function = self.network.model.functions[f]
        if is_constraint(function):
            return
        if function.rows is not None and function.default != 0.0:
            raise UnfitError
        table = self.leaves.table(f)
        if not len(table) or table.nodes[0, 0] == NOTHING:
            return
        rows = table.states.tolist(), table.nodes[:, 0].tolist(), self.leaves.parameters[-1][2].tolist()
        for states, node, value in zip(*rows, strict=True):
            literal = made.weigh(table.axes, states, value, table.axes[0])
            if literal is None:
                raise UnfitError
            self._of_literal.setdefault(literal, []).append(node)

    @cached_property
    def _constants(self) -> list[NodeTable]:
        functions = self.network.model.functions
        return [self.leaves.table(f) for f in self.network.constants if not is_constraint(functions[f])]

    @cached_property
    def _count(self) -> Count:
        from ...tasks.counting.count import Count

        assert self.formula is not None
        orders = formula_orders(self.formula, self.network, self.options.seed, True, self.outer)
        return Count(orders, self._allowed_bytes, traced=True)

    @property
    def _allowed_bytes(self) -> int:
        return max(Resources(self.options).host_bytes - self.reserved_bytes, 0)

    @property
    def _began(self) -> bool:
        return "_count" in self.__dict__

    @property
    def decisions(self) -> int:
        """How many decisions the search that is furthest has made."""
        return max(search.nodes for search in self._count.searches) if self._began else 0

    @property
    def held_bytes(self) -> int:
        """Bytes held now."""
        return self._count.held_bytes if self._began else 0

    def run(self, seconds: float = math.inf) -> CircuitGraph | None:
        """Continue until the search ends, or ``seconds`` nominal seconds are used in total.

        Return None if it is not complete.

        Raises
        ------
        BudgetError
            If the circuit, or what the search knows, does not fit memory.
        """
        from ...tasks.counting.count import CountNoRoomError

        most = seconds * SEARCHED_PER_SECOND
        try:
            self._count.limit(self._allowed_bytes)
            while (found := self._count.run(min(most, self._count.work + self._checked_work))) is None:
                self._check_room()
                if self._count.work >= most:
                    return None
        except CountNoRoomError:
            raise self._refusal() from None
        self._check_room()
        return self._graph(found)

    @property
    def _checked_work(self) -> float:
        """Work of the search between two checks of the circuit's size."""
        return SEARCHED_PER_SECOND / 8

    @property
    def needed_bytes(self) -> int:
        """Bytes of the circuit, by its trace so far, while it is put together."""
        return max([self._bytes_of(*size) for size in self._count.trace_sizes]) if self._began else 0

    def _bytes_of(self, nodes: int, edges: int) -> int:
        """Return the bytes of a circuit while it is put together, using the disk, if given, when memory does not
        suffice.
        """
        whole = GATE_BYTES * nodes + EDGE_BYTES * edges
        if self.disk is None:
            return whole
        return min(whole, _STORED_NODE_BYTES * nodes + EDGE_BYTES * CircuitPolicy.current().stored_edges)

    def _check_room(self) -> None:
        if self.needed_bytes > self._allowed_bytes:
            raise self._refusal()

    def _refusal(self) -> BudgetError:
        return BudgetError(
            f"the circuit needs more than {format_bytes(self.needed_bytes)} after {self.decisions:,} decisions of the "
            f"search, in addition to the search's own memory, allowed {format_bytes(self._allowed_bytes)}; give more "
            "memory"
        )

    def _graph(self, found: Counted) -> CircuitGraph:
        """Put the circuit together of a trace."""
        from ...tasks.counting.loops import NO_NODE

        constants = self._constants  # which may make leaves
        store = GateStore(self.leaves.count, self._allowed_bytes)
        if found.trace is not None and self.disk is not None:
            nodes, edges = found.trace.size
            if GATE_BYTES * nodes + EDGE_BYTES * edges > self._allowed_bytes:
                self.disk.verify_room(stored_bytes(nodes, edges), 1.0)
                store.disk = self.disk
        if found.trace is None or found.root == NO_NODE:
            store.end_impossible()
            return self.leaves.graph(store)
        root = int(self._numbers(store, found.trace)[found.root])
        store.end(np.array([*[root] * (root != NOTHING), *self.leaves.apart(store, constants)], np.int64))
        return self.leaves.graph(store)

    def _numbers(self, store: GateStore, trace: SearchTrace) -> Array:
        """Build the gates of a trace; return the node of each child, or ``NOTHING`` for 1."""
        nodes = trace.size[0]
        literals = self._literals(store)
        pairs = literals.reshape(-1, 2)
        both = np.flatnonzero((pairs != NOTHING).all(axis=1))
        either = np.full(len(pairs), NOTHING, np.int64)
        either[both] = store.sums(2 * np.arange(len(both)), pairs[both].reshape(-1))
        numbers = np.concatenate([literals, either, np.arange(store.next, store.next + nodes)])
        making = _TraceGates(trace, numbers, store.next)
        if store.disk is None:
            counts, left = making.collapsed(0, nodes)
            store.add(trace.is_sum[:nodes], counts, left)
        else:
            making.store(store, store.disk)
        return numbers

    def _literals(self, store: GateStore) -> Array:
        """Return the node of each literal: its state's indicator and its weight.

        Return ``NOTHING`` for a literal that negates one of several states, or an entry.
        """
        formula, network = self.formula, self.network
        assert formula is not None
        parts: list[list[int]] = [[] for _ in range(2 * len(formula.owners))]
        for v in range(len(formula.dims)):
            for state, leaf in enumerate(self.leaves.indicators[1][network.variables[v]].tolist()):
                parts[formula.literal(v, state)].append(leaf)
        for literal, weights in self._of_literal.items():
            parts[literal] += weights
        rows = np.full((len(parts), max(map(len, parts), default=1)), NOTHING, np.int64)
        for literal, own in enumerate(parts):
            rows[literal, : len(own)] = own
        return store.products(rows)


@dataclass(frozen=True, eq=False)
class _TraceGates:
    """The gates of a trace.

    Parameters
    ----------
    trace : SearchTrace
    numbers : ndarray of int64
        The node of each child: literals are known, nodes are filled in; changed in place.
    first : int
        The number of the first gate.
    """

    trace: SearchTrace
    numbers: Array
    first: int

    @property
    def inner(self) -> Array:
        """The numbers of the nodes, a view."""
        return self.numbers[len(self.numbers) - self.trace.size[0] :]

    def collapsed(self, start: int, stop: int) -> tuple[Array, Array]:
        """Find the numbers of some nodes behind known ones: a product of nothing is nothing, of one child that child.

        Returns
        -------
        ndarray of int
            How many children each has.
        ndarray of int64
            What they are.
        """
        trace, inner, own = self.trace, self.inner[start:stop], np.arange(self.first + start, self.first + stop)
        arities = np.diff(trace.starts[start : stop + 1])
        children = trace.children[trace.starts[start] : trace.starts[stop]].astype(np.int64)
        owners = np.repeat(np.arange(stop - start), arities)
        while True:
            left = self.numbers[children]
            there = left != NOTHING
            left = left[there]
            counts = np.bincount(owners[there], minlength=stop - start)
            is_child = counts == 1
            made = np.where(counts > 0, own, NOTHING)
            made[is_child] = left[(counts.cumsum() - counts)[is_child]]
            if (made == inner).all():
                break
            inner[:] = made
        if (counts[trace.is_sum[start:stop]] != 2).any():
            raise InternalError("a decision of the search has an empty branch")
        return counts, left

    def store(self, store: GateStore, disk: StoredGates) -> None:
        """Write gates to disk, gates of one depth together, and number them in this order; only some edges are in
        memory at a time.
        """
        (nodes, _), starts, most = self.trace.size, self.trace.starts, CircuitPolicy.current().stored_edges
        depth = np.zeros(nodes, np.int32)
        for piece in pieces(starts[: nodes + 1], most):
            counts, left = self.collapsed(piece.start, piece.stop)
            depth[piece] = self._depths(counts, left, depth, piece.start)
        kept = np.flatnonzero(self.inner == np.arange(self.first, self.first + nodes))
        kept = kept[np.argsort(depth[kept], kind="stable")]
        places = np.full(nodes, NOTHING, np.int64)
        places[kept] = np.arange(self.first, self.first + len(kept))
        gates = self.numbers >= self.first
        self.numbers[gates] = places[self.numbers[gates] - self.first]
        ends = np.flatnonzero(np.diff(depth[kept])) + 1
        for level in np.split(kept, ends):
            for part in np.array_split(level, max(1, -(-int((starts[level + 1] - starts[level]).sum()) // most))):
                left = self.numbers[self.trace.children[ranges(starts[part], starts[part + 1])]]
                owners = np.repeat(np.arange(len(part)), starts[part + 1] - starts[part])[left != NOTHING]
                counts = np.bincount(owners, minlength=len(part))
                store.add(self.trace.is_sum[part], counts, left[left != NOTHING])
                store.store_blocks(disk)

    def _depths(self, counts: Array, left: Array, depth: Array, start: int) -> Array:
        """Return the depth of some nodes, from the depths of earlier nodes."""
        owners, gate = np.repeat(np.arange(len(counts)), counts), left >= self.first
        owners, below = owners[gate], left[gate] - self.first
        found, before = np.zeros(len(counts), np.int32), below < start
        np.maximum.at(found, owners[before], depth[below[before]] + 1)
        owners, below = owners[~before], below[~before] - start
        waiting = np.bincount(owners, minlength=len(counts))
        order = np.argsort(below, kind="stable")
        parents, begins = owners[order], np.searchsorted(below[order], np.arange(len(counts) + 1))
        ready = np.flatnonzero(waiting == 0)
        while len(ready):
            told = parents[ranges(begins[ready], begins[ready + 1])]
            np.maximum.at(found, told, np.repeat(found[ready] + 1, begins[ready + 1] - begins[ready]))
            np.subtract.at(waiting, told, 1)
            told = np.unique(told)
            ready = told[waiting[told] == 0]
        return found
