"""Building a circuit: from buckets or from a search, which take turns until one of them completes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import SUM_PRODUCT
from ..answering.prepared import local_order
from ..errors import BudgetError, ModelError, format_bytes
from ..gates.circuit import CircuitGraph, CircuitPolicy
from ..gates.circuit_leaves import CircuitMaker, NodeTable, columns, grouped, joined, restricted, united
from ..gates.gate_store import EDGE_BYTES, GATE_BYTES, NOTHING, GateStore, JoinTooLargeError, StoredGates, TurnOver
from ..gates.traced_circuit import TracedCircuit
from ..machine.resources import Resources
from ..models.model import Model
from ..options import Options
from ..orders.min_fill import min_fill_order
from ..orders.tree_search import TreeSearch
from ..preprocessing.preprocess import reduce_model
from ..preprocessing.preprocessing_policy import PreprocessingPolicy
from ..preprocessing.wide_tables import with_links
from ..trees.tree import Tree, bucket_tree

# Nominal seconds of the search for a tree, which is made once for all evaluations.
_SEARCH_SECONDS: Final = 10.0
# Nominal seconds for each byte of a circuit. A byte of sparse tables has five times as many, because a circuit
# takes several times the bytes of the rows.
_CIRCUIT_BYTE_SECONDS: Final = 5e-9

Array = NDArray[Any]
# Nominal seconds of a row increase by this many bytes for each additional factor.
_WORKED_BYTES = 32


@dataclass(eq=False)
class BucketCircuit(CircuitMaker):
    """A circuit while it is made from buckets."""

    method: ClassVar[str] = "buckets"

    def __post_init__(self) -> None:
        self._messages: dict[int, NodeTable] = {}
        self._done = 0

    @property
    def suits(self) -> bool:
        """Whether it has turns where no method is named: always."""
        return True

    @cached_property
    def tree(self) -> Tree:
        """The tree that is gone up."""
        asked, network = self.options, self.network
        order: Any = asked.order if isinstance(asked.order, str) else local_order(network, asked.order)
        longest = _SEARCH_SECONDS
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
    def _first_tree(self) -> Tree:
        network = self.network
        return bucket_tree(
            network.dims, network.scopes, min_fill_order(network.dims, network.scopes, self.options.seed)
        )

    @property
    def most_bytes(self) -> int:
        """Return the maximum bytes of the circuit: a product for each joined cell, and a sum for each remaining cell.

        By the tree that is gone up, or by a first one while that is not searched yet.
        """
        return sum(self._most_by_bucket(self.__dict__.get("tree", None) or self._first_tree))

    def _most_by_bucket(self, tree: Tree) -> list[int]:
        """Return the same for each bucket of a tree."""
        found = list[int]()
        for kids, cells, gone in zip(tree.children, tree.joined_cells, tree.eliminated, strict=True):
            factors = sum([1 if kid >= tree.n_leaves else len(self.network.leaves[kid].functions) for kid in kids])
            found.append(cells * (EDGE_BYTES * (factors + len(gone) + 1) + 2 * GATE_BYTES))
        return found

    @property
    def most_seconds(self) -> float:
        """How long it takes at most, on a nominal core."""
        return self.most_bytes * _CIRCUIT_BYTE_SECONDS

    @cached_property
    def tables(self) -> list[NodeTable]:
        """Return the allowed entries of each function."""
        return [self.leaves.table(f) for f in range(len(self.network.model.functions))] if self.network.feasible else []

    @cached_property
    def _store(self) -> GateStore:
        tables, _ = self.tables, self.tree  # tables make leaves, and by the tree is known what is needed at most
        store = GateStore(self.leaves.count, Resources(self.options).host_bytes, self.most_bytes, disk=self.disk)
        store.held_bytes = sum(table.nbytes for table in tables)
        return store

    @property
    def held_bytes(self) -> int:
        """Bytes held now."""
        return self._store.held_bytes if "_store" in self.__dict__ else 0

    def run(self, seconds: float = math.inf) -> CircuitGraph | None:
        """Continue until the circuit is built, or ``seconds`` nominal seconds are used in total.

        Return None if it is not complete.

        Raises
        ------
        BudgetError
            If it does not fit memory.
        """
        if "tree" not in self.__dict__ and seconds < min(self.most_seconds, _SEARCH_SECONDS):
            return None  # no turn in which a tree would be searched for longer
        network, store = self.network, self._store
        store.turn_seconds, store.reserved_bytes = seconds, self.reserved_bytes
        try:
            roots = self._swept(store) if network.feasible else None
        except TurnOver:
            return None
        if roots is None:
            store.end_impossible()
        else:
            constants = [self.tables[f] for f in network.constants]
            store.end(np.array([*roots, *self.leaves.apart(store, constants)], np.int64))
        return self.leaves.graph(store)

    def _swept(self, store: GateStore) -> list[int] | None:
        """Go up the tree from where it was left; return the nodes of its roots, or None where nothing is possible."""
        tree, tables, messages = self.tree, self.tables, self._messages
        most = self._most_by_bucket(tree)
        for node in tree.schedule[self._done :]:
            inputs: list[NodeTable] = []
            kids = tree.children[node - tree.n_leaves]
            for kid in kids:
                inputs += (
                    [messages[kid]] if kid in messages else [tables[f] for f in self.network.leaves[kid].functions]
                )
            where = f"with bucket {node - tree.n_leaves + 1:,} of {len(tree.children):,}"
            messages[node] = made = self._bucket_in_parts(store, inputs, tree.eliminated[node - tree.n_leaves], where)
            if not len(made):
                return None
            for kid in kids:
                messages.pop(kid, None)
            store.held_bytes += made.nbytes - sum(table.nbytes for table in inputs)
            self._done += 1
            store.made_share += most[node - tree.n_leaves] / max(sum(most), 1)
        return [node for root in tree.roots for node in messages[root].nodes[0].tolist() if node != NOTHING]

    def _bucket_in_parts(
        self, store: GateStore, inputs: list[NodeTable], gone: frozenset[int], where: str
    ) -> NodeTable:
        """Sum variables out; where a join does not fit, for each state of one of the others apart."""
        try:
            return self._bucket(store, inputs, gone, where)
        except JoinTooLargeError:
            dims, stays = self.network.dims, {v for table in inputs for v in table.axes} - gone
            if not stays:
                raise
        v, made = max(stays, key=lambda v: (dims[v], v)), list[NodeTable]()
        for state in range(dims[v]):
            part = self._bucket_in_parts(store, [restricted(table, v, state) for table in inputs], gone, where)
            column = np.full((len(part), 1), state, np.int32)
            made.append(NodeTable((*part.axes, v), np.concatenate([part.states, column], axis=1), part.nodes))
        return united(made)

    def _bucket(self, store: GateStore, inputs: list[NodeTable], gone: frozenset[int], where: str) -> NodeTable:
        """Sum out variables one after the other, each time the one whose tables join to the fewest cells."""

        def joins(v: int) -> list[NodeTable]:
            return [table for table in left if v in table.axes]

        def cells(v: int) -> tuple[int, int]:
            return math.prod([dims[u] for u in {u for table in joins(v) for u in table.axes}]), v

        def priced(rows: int, row_bytes: int) -> None:
            store.take_room(rows, row_bytes, row_bytes + _WORKED_BYTES * (len(left) + 1), where)

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
        indicators = self.leaves.indicators[1][self.network.variables[v]][columns(table, [v])]
        sums = store.sums(starts, store.products(np.concatenate([table.nodes, indicators], axis=1)))
        axes = tuple([u for u in table.axes if u != v])
        return NodeTable(axes, columns(table, axes)[starts], sums[:, np.newaxis])


CircuitMethod = Literal["auto", "buckets", "search"]


@dataclass(frozen=True)
class CircuitOrigin:
    """The source of a circuit, and its predicted costs.

    Parameters
    ----------
    method : {"buckets", "search"}
    most_bytes : int
        Predicted bytes and seconds for all cells of the buckets.
    most_seconds : float
        How long they would take, on a nominal core.
    decisions : int
        Of the search, as far as it went.
    """

    method: str
    most_bytes: int
    most_seconds: float
    decisions: int = 0

    def __str__(self) -> str:
        made = (
            "made from buckets" if self.method == "buckets" else f"made from a search of {self.decisions:,} decisions"
        )
        return f"{made}; {price(self.most_bytes, self.most_seconds)}"


def price(most_bytes: int, most_seconds: float) -> str:
    """Return a text about the costs of the buckets' cells."""
    return f"dense buckets would take {format_bytes(most_bytes)} and {most_seconds:.3g} s"


def made_circuit(
    model: Model,
    evidence: Mapping[int, int],
    options: Options,
    method: CircuitMethod,
    report: Callable[[str], None] | None,
    folder: Path | None = None,
) -> tuple[CircuitGraph, CircuitOrigin]:
    """Build a circuit: buckets and a search take turns, each twice as long as the last.

    So neither takes longer than four times what it takes alone. Turns end by nominal seconds, not by a clock: the
    circuit is the same on any machine.

    Parameters
    ----------
    model : Model
    evidence : mapping
        The state of each observed variable.
    options : Options
    method : {"auto", "buckets", "search"}
        The search has no turn by itself where a model is neither clauses nor mostly zero.
    report : callable or None
        Told what buckets take at most, in a sentence, once a turn was not enough.
    folder : Path, optional
        Where gates go that do not fit memory.

    Raises
    ------
    ModelError
        If the search is asked for a model that makes too many clauses.
    BudgetError
        If the circuit does not fit in memory from any source.
    """
    every = range(len(model.dims))
    linked = with_links(model, PreprocessingPolicy.current().chained_cells)
    disks = [None if folder is None else StoredGates(folder / method) for method in ("buckets", "search")]
    buckets = BucketCircuit(reduce_model(linked, "partition", evidence, every), options, disks[0])
    search = TracedCircuit(reduce_model(model, "partition", evidence, every), options, disks[1])
    if method == "search" and search.formula is None:
        raise ModelError("a search cannot build a circuit of this model: its functions give too many clauses")
    ways: list[CircuitMaker] = [way for way in (buckets, search) if method in ("auto", way.method)]
    seconds, refusals = CircuitPolicy.current().first_turn_seconds, list[str]()
    if buckets.most_seconds > seconds:  # before an order is searched for them
        ways.reverse()
    while ways:
        for way in tuple(ways):
            if method == "auto" and not way.suits:
                continue
            way.reserved_bytes = sum(other.held_bytes for other in ways if other is not way)
            try:
                found = way.run(seconds)
            except BudgetError as error:
                ways.remove(way)
                refusals.append(f"by {way.method}: {error}")
                continue
            if found is not None:
                scopes = _scopes_of(model, way.network.model, np.unique(found.parameters[0]).tolist())
                origin = CircuitOrigin(way.method, buckets.most_bytes, buckets.most_seconds, search.decisions)
                return replace(found, scopes=scopes), origin
        ways = [way for way in ways if way.suits or method != "auto"]
        if report is not None:
            report(price(buckets.most_bytes, buckets.most_seconds))
            report = None
        seconds = 2 * seconds if len(ways) > 1 else math.inf
    raise BudgetError("; ".join(refusals))


def _scopes_of(model: Model, linked: Model, functions: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the scopes of functions that no chain stands for."""
    own, known = model.functions, linked.functions
    return {f: own[f].scope for f in functions if f < len(own) and own[f].scope == known[f].scope}
