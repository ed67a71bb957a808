"""From a model to a circuit: up the tree that a sweep would go, with numbers of nodes in place of values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import SUM_PRODUCT
from ..answering.prepared import local_order
from ..errors import BudgetError, format_bytes
from ..machine.resources import Resources
from ..models.model import Model
from ..options import Options
from ..orders.tree_search import TreeSearch
from ..preprocessing.preprocess import Network
from ..trees.tree import Tree
from .circuit import CircuitGraph, CircuitVariables
from .circuit_policy import CircuitPolicy
from .gate_store import EDGE_BYTES, GATE_BYTES, NOTHING, WORK_BYTES, GateStore, reachable
from .node_tables import NodeTable, columns, grouped, joined

Array = NDArray[Any]


@dataclass(eq=False)
class CircuitMaking:
    """A circuit while it is made.

    Parameters
    ----------
    network : Network
        All of a model that evidence leaves, nothing summed out before.
    options : Options
    """

    network: Network
    options: Options
    parameters: list[tuple[int, Array, Array]] = field(default_factory=list)

    @property
    def model(self) -> Model:
        """The model, as preprocessing left it."""
        return self.network.model

    @cached_property
    def tree(self) -> Tree:
        """The tree that is gone up."""
        asked, network = self.options, self.network
        order: Any = asked.order if isinstance(asked.order, str) else local_order(network, asked.order)
        longest = CircuitPolicy.current().search_seconds
        search = TreeSearch(
            *(network.dims, network.scopes),
            tree="bucket",
            order=order,
            seconds=asked.order_time,
            seed=asked.seed,
            itemsize=SUM_PRODUCT.itemsize,
            longest=longest,
        )
        return search.cheapest()

    @cached_property
    def expected_bytes(self) -> int:
        """What the circuit takes at most: a product for each cell that is joined, and a sum for each that stays."""
        tree, total = self.tree, 0
        for kids, cells, gone in zip(tree.children, tree.joined_cells, tree.eliminated, strict=True):
            factors = sum([1 if kid >= tree.n_leaves else len(self.network.leaves[kid].functions) for kid in kids])
            total += cells * (EDGE_BYTES * (factors + len(gone) + 1) + 2 * GATE_BYTES)
        return total

    @cached_property
    def indicators(self) -> tuple[Array, list[Array]]:
        """Variable and state of each indicator; for each variable the leaves of the states that are left."""
        domains = self.network.domains
        variables = np.repeat(np.arange(len(domains)), [len(domain) for domain in domains])
        ends = np.cumsum([len(domain) for domain in domains])
        numbers = np.split(np.arange(len(variables)), ends[:-1])
        return np.stack([variables, np.concatenate(domains)]), numbers

    def made(self) -> CircuitGraph:
        """Return the circuit.

        Raises
        ------
        BudgetError
            If it does not fit memory.
        """
        network = self.network
        tables = [self._function_table(f) for f in range(len(self.model.functions))] if network.feasible else []
        first = self._first_parameter + sum(len(values) for *_, values in self.parameters)
        store = GateStore(first, Resources(self.options).host_bytes, self.expected_bytes)
        store.held_bytes = sum(table.nbytes for table in tables)
        if not network.feasible or (roots := self._swept(store, tables)) is None:
            store.end_impossible()
        else:
            store.end(np.array([*roots, *self._apart(store, tables)], np.int64))
        return self._without_waste(store)

    @property
    def _first_parameter(self) -> int:
        return int(self.indicators[0].shape[1])

    def _function_table(self, f: int) -> NodeTable:
        """Return what a function allows, with a leaf for each entry; none where all that is allowed is worth 1."""
        scope, states, entries, values = entries_left(self.network, f)
        nodes = np.full((len(values), 1), NOTHING, np.int64)
        if len(values) and not (values == 1.0).all():
            start = self._first_parameter + sum(len(known) for *_, known in self.parameters)
            nodes[:, 0] = np.arange(start, start + len(values))
            self.parameters.append((f, entries, values))
        return NodeTable(scope, states, nodes)

    def _swept(self, store: GateStore, tables: list[NodeTable]) -> list[int] | None:
        """Go up the tree; return the nodes of its roots, or None where nothing is possible."""
        tree, leaves = self.tree, self.network.leaves
        messages: dict[int, NodeTable] = {}
        for node in tree.schedule:
            inputs: list[NodeTable] = []
            for kid in tree.children[node - tree.n_leaves]:
                inputs += [messages.pop(kid)] if kid in messages else [tables[f] for f in leaves[kid].functions]
            where = f"with bucket {node - tree.n_leaves + 1:,} of {len(tree.children):,}"
            messages[node] = made = self._bucket(store, inputs, tree.eliminated[node - tree.n_leaves], where)
            if not len(made):
                return None
            store.held_bytes += made.nbytes - sum(table.nbytes for table in inputs)
        return [node for root in tree.roots for node in messages[root].nodes[0].tolist() if node != NOTHING]

    def _bucket(self, store: GateStore, inputs: list[NodeTable], gone: frozenset[int], where: str) -> NodeTable:
        """Sum out variables one after the other, each time the one whose tables join to the fewest cells."""

        def joins(v: int) -> list[NodeTable]:
            return [table for table in left if v in table.axes]

        def cells(v: int) -> tuple[int, int]:
            return math.prod([dims[u] for u in {u for table in joins(v) for u in table.axes}]), v

        def priced(rows: int, row_bytes: int) -> None:
            store.take_room(rows, row_bytes + (8 + WORK_BYTES) * (len(left) + 1), where)

        dims, left, waiting = self.network.dims, inputs, set(gone)
        while waiting:
            v = min(waiting, key=cells)
            waiting.remove(v)
            own = joins(v)
            left = [table for table in left if v not in table.axes]
            left.append(self._summed_out(store, joined(own, dims, priced), v))
        return joined(left, dims, priced)

    def _summed_out(self, store: GateStore, table: NodeTable, v: int) -> NodeTable:
        """Make a product for each row, with the indicator of the variable's state, and sums of these."""
        table, starts = grouped(table, v, self.network.dims)
        indicators = self.indicators[1][self.network.variables[v]][columns(table, [v])]
        sums = store.sums(starts, store.products(np.concatenate([table.nodes, indicators], axis=1)))
        axes = tuple([u for u in table.axes if u != v])
        return NodeTable(axes, columns(table, axes)[starts], sums[:, np.newaxis])

    def _apart(self, store: GateStore, tables: list[NodeTable]) -> Iterator[int]:
        """Yield what is multiplied at the root: variables of one state, those without a function, and constants."""
        network = self.network
        free = {*network.free}
        for v, numbers in enumerate(self.indicators[1]):
            if len(numbers) == 1:
                yield int(numbers[0])
            elif v in free:
                yield int(store.sums(np.zeros(1, np.int64), numbers)[0])
        for f in network.constants:
            yield from [int(node) for node in tables[f].nodes[:, 0] if node != NOTHING]

    def _without_waste(self, store: GateStore) -> CircuitGraph:
        """Return the circuit of what its root is made of."""
        gates, left = reachable(store.gates(), store.first)
        indicators = self.indicators[0]
        split = np.searchsorted(left, self._first_parameter)
        functions = np.repeat([f for f, *_ in self.parameters], [len(values) for *_, values in self.parameters])
        parts = [functions, *[np.concatenate([[], *[p[k] for p in self.parameters]]) for k in (1, 2)]]
        known, entries, values = (part[left[split:] - self._first_parameter] for part in parts)
        model = self.model
        variables = CircuitVariables(model.names, model.dims, model.states, model.hidden)
        parameters = np.stack([known, entries]).astype(np.int64)
        return CircuitGraph(
            variables, indicators[:, left[:split]], parameters, values.astype(np.float64), gates, model.name
        )


def entries_left(network: Network, f: int) -> tuple[tuple[int, ...], Array, Array, Array]:
    """Return the entries of a function that are above 0 on the states that are left.

    Returns
    -------
    scope : tuple of int
        Local variables, those with several states left.
    states : ndarray of int32, shape (entries, variables)
        Places among the states that are left.
    entries : ndarray of int64
        Numbers in C order among all entries of the function.
    values : ndarray of float
    """
    model = network.model
    function, dims = model.functions[f], [model.dims[v] for v in model.functions[f].scope]
    if function.rows is not None and function.default == 0:
        at, values = function.rows.astype(np.int64), function.values
    else:
        if math.prod(dims) > (most := 1 << 28):
            raise BudgetError(
                f"function {f} has {math.prod(dims):,} entries that are above 0 or may be, a circuit takes "
                f"{most:,} of one function at most, in {format_bytes(8 * most)}"
            )
        table = function.dense(model.dims)
        at = np.argwhere(table > 0)
        values = table[tuple(at.T)] if dims else table.reshape(-1)[: len(at)]
    if math.prod(dims) >= 1 << 62:
        raise BudgetError(f"function {f} has {math.prod(dims):.3g} entries, more than a circuit has numbers for")
    places = (
        np.stack([network.places[v][at[:, k]] for k, v in enumerate(function.scope)], axis=1, dtype=np.int32)
        if function.scope
        else np.zeros((len(at), 0), np.int32)
    )
    inside = (places >= 0).all(axis=1) & (values > 0)
    wide = [k for k, v in enumerate(function.scope) if len(network.domains[v]) > 1]
    steps = np.array([math.prod(dims[k + 1 :]) for k in range(len(dims))], np.int64)
    scope = tuple([network.local[function.scope[k]] for k in wide])
    return scope, places[inside][:, wide], (at @ steps)[inside], values[inside]
