"""The leaves of a circuit that is being built, and the further factors of its root.

Tables of node numbers have a row for each cell that is not zero.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetError, format_bytes
from ..models.function import Function
from ..options import Options
from ..preprocessing.preprocess import Network
from .circuit import CircuitGraph, CircuitVariables, ranges
from .gate_store import NOTHING, GateStore, StoredGates


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Possible states of some variables, and for each the nodes of its product.

    Parameters
    ----------
    axes : tuple of int
    states : ndarray of int32, shape (rows, axes)
        Distinct rows.
    nodes : ndarray of int64, shape (rows, factors)
        ``NOTHING`` for a factor of 1.
    """

    axes: tuple[int, ...]
    states: Array
    nodes: Array

    def __len__(self) -> int:
        return len(self.states)

    @property
    def nbytes(self) -> int:
        """Bytes of states and nodes."""
        return int(self.states.nbytes + self.nodes.nbytes)


OnJoin = Callable[[int, int], None]
"""Told how many rows a join will have, and the bytes of each."""


def joined(tables: Sequence[NodeTable], dims: Sequence[int], on_join: OnJoin) -> NodeTable:
    """Join tables, each time with the table that adds the fewest states."""
    left = sorted(tables, key=len)
    found = left.pop(0)
    while left:
        known = {*found.axes}

        def growth(table: NodeTable, known: set[int] = known) -> tuple[int, int]:
            return math.prod([dims[v] for v in table.axes if v not in known]), len(table)

        best = min(range(len(left)), key=lambda k: growth(left[k]))
        found = _pair(found, left.pop(best), dims, on_join)
    return found


def _pair(a: NodeTable, b: NodeTable, dims: Sequence[int], on_join: OnJoin) -> NodeTable:
    """Join two tables: a row for each pair that agrees in the variables of both."""
    common = [v for v in a.axes if v in b.axes]
    own = [k for k, v in enumerate(b.axes) if v not in a.axes]
    codes_a, codes_b = codes([columns(a, common), columns(b, common)], [dims[v] for v in common])
    order = np.argsort(codes_b, kind="stable")
    ordered = codes_b[order]
    first, last = (np.searchsorted(ordered, codes_a, side) for side in ("left", "right"))
    counts = last - first
    width = len(a.axes) + len(own), a.nodes.shape[1] + b.nodes.shape[1]
    on_join(int(counts.sum()), 4 * width[0] + 8 * width[1])
    at_a, at_b = np.repeat(np.arange(len(a)), counts), order[ranges(first, last)]
    states = np.concatenate([a.states[at_a], b.states[at_b][:, own]], axis=1)
    nodes = np.concatenate([a.nodes[at_a], b.nodes[at_b]], axis=1)
    return NodeTable((*a.axes, *[b.axes[k] for k in own]), states, nodes)


def columns(table: NodeTable, axes: Sequence[int]) -> Array:
    """Return the states of some axes."""
    return table.states[:, [table.axes.index(v) for v in axes]]


def codes(rows: Sequence[Array], dims: Sequence[int]) -> list[Array]:
    """Return numbers of rows of states, equal for equal rows of all arrays and in their order."""
    if math.prod(dims) < 1 << 62:
        steps = np.array([math.prod(dims[k + 1 :]) for k in range(len(dims))], np.int64)
        return [part.astype(np.int64) @ steps for part in rows]
    _, found = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
    return np.split(found.reshape(-1), np.cumsum([len(part) for part in rows])[:-1])


def grouped(table: NodeTable, gone: int, dims: Sequence[int]) -> tuple[NodeTable, Array]:
    """Sort a table by all variables but one.

    Returns
    -------
    NodeTable
        Of all variables, sorted.
    ndarray of int
        Where the rows begin that agree in the others.
    """
    stays = [v for v in table.axes if v != gone]
    (code,) = codes([columns(table, stays)], [dims[v] for v in stays])
    order = np.argsort(code, kind="stable")
    code = code[order]
    new = np.append(True, code[1:] != code[:-1])[: len(code)]
    return NodeTable(table.axes, table.states[order], table.nodes[order]), np.flatnonzero(new)


def restricted(table: NodeTable, v: int, state: int) -> NodeTable:
    """Return the rows of a table with a variable in a state, without the variable; a table without the variable stays
    unchanged.
    """
    if v not in table.axes:
        return table
    k = table.axes.index(v)
    rows = np.flatnonzero(table.states[:, k] == state)
    return NodeTable(
        (*table.axes[:k], *table.axes[k + 1 :]), np.delete(table.states[rows], k, axis=1), table.nodes[rows]
    )


def united(tables: Sequence[NodeTable]) -> NodeTable:
    """Return the rows of several tables with disjoint rows."""
    axes, width = tables[0].axes, max(table.nodes.shape[1] for table in tables)
    nodes = [np.pad(t.nodes, ((0, 0), (0, width - t.nodes.shape[1])), constant_values=-1) for t in tables]
    return NodeTable(axes, np.concatenate([columns(table, axes) for table in tables]), np.concatenate(nodes))


def is_constraint(function: Function) -> bool:
    """Whether all entries of a function are 0 or 1."""
    listed = function.values if function.rows is None else np.append(function.values, function.default)
    return bool(np.isin(listed, (0.0, 1.0)).all())


def entries_left(network: Network, f: int) -> tuple[tuple[int, ...], Array, Array, Array]:
    """Return the entries of a function that are above 0 on the remaining states.

    Parameters
    ----------
    network : Network
        The model under hard evidence, with the remaining states of each variable.
    f : int
        Number of the function.

    Raises
    ------
    BudgetError
        If the function has too many entries.
    """
    model = network.model
    function, dims = model.functions[f], [model.dims[v] for v in model.functions[f].scope]
    if function.rows is not None and function.default == 0:
        at, values = function.rows.astype(np.int64), function.values
    else:
        if math.prod(dims) > (most := 1 << 28):
            raise BudgetError(
                f"function {f} has {math.prod(dims):,} entries that are or may be above 0; a circuit allows "
                f"{most:,} entries of one function, in {format_bytes(8 * most)}"
            )
        table = function.dense(model.dims)
        at = np.argwhere(table > 0)
        values = table[tuple(at.T)] if dims else table.reshape(-1)[: len(at)]
    # entries are numbered by 64-bit integers
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


Array = NDArray[Any]


@dataclass(eq=False)
class CircuitLeaves:
    """Leaves: indicators of all states that are left, then parameters, a function after the other.

    Parameters
    ----------
    network : Network
        All of a model that evidence leaves, nothing summed out before.
    parameters : list of tuple
        A function, the numbers of its entries, and their values.
    """

    network: Network
    parameters: list[tuple[int, Array, Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.count: int = self.first_parameter
        """How many leaves there are by now."""

    @cached_property
    def indicators(self) -> tuple[Array, list[Array]]:
        """Variable and state of each indicator; for each variable the leaves of the states that are left."""
        domains = self.network.domains
        variables = np.repeat(np.arange(len(domains)), [len(domain) for domain in domains])
        ends = np.cumsum([len(domain) for domain in domains])
        numbers = np.split(np.arange(len(variables)), ends)[:-1]
        return np.stack([variables, np.concatenate([np.zeros(0, np.int64), *domains])]), numbers

    @property
    def first_parameter(self) -> int:
        """The number of the first parameter."""
        return int(self.indicators[0].shape[1])

    def table(self, f: int) -> NodeTable:
        """Return the allowed entries of a function, with one leaf for each entry; no leaves if all allowed values are
        1.
        """
        scope, states, entries, values = entries_left(self.network, f)
        nodes = np.full((len(values), 1), NOTHING, np.int64)
        if len(values) and not (values == 1.0).all():
            nodes[:, 0] = np.arange(self.count, self.count + len(values))
            self.parameters.append((f, entries, values))
            self.count += len(values)
        return NodeTable(scope, states, nodes)

    def apart(self, store: GateStore, constants: list[NodeTable]) -> Iterator[int]:
        """Yield what is multiplied at the root: variables of one state, those without a function, and constants."""
        free = {*self.network.free}
        for v, numbers in enumerate(self.indicators[1]):
            if len(numbers) == 1:
                yield int(numbers[0])
            elif v in free:
                yield int(store.sums(np.zeros(1, np.int64), numbers)[0])
        for table in constants:
            yield from [int(node) for node in table.nodes[:, 0] if node != NOTHING]

    def graph(self, store: GateStore) -> CircuitGraph:
        """Return the circuit below its root."""
        gates, left, pieces = store.reachable()
        indicators = self.indicators[0]
        split = np.searchsorted(left, self.first_parameter)
        functions = np.repeat([f for f, *_ in self.parameters], [len(values) for *_, values in self.parameters])
        parts = [functions, *[np.concatenate([[], *[p[k] for p in self.parameters]]) for k in (1, 2)]]
        known, entries, values = (part[left[split:] - self.first_parameter] for part in parts)
        model = self.network.model
        variables = CircuitVariables(model.names, model.dims, model.states, model.hidden)
        parameters = np.stack([known, entries]).astype(np.int64)
        indicators, values = indicators[:, left[:split]], values.astype(np.float64)
        return CircuitGraph(variables, indicators, parameters, values, gates, model.name, parts=pieces)


@dataclass(eq=False)
class CircuitMaker(ABC):
    """A circuit while it is made.

    Parameters
    ----------
    network : Network
        All of a model that evidence leaves, nothing summed out before.
    options : Options
    disk : StoredGates, optional
        Where gates go that do not fit memory.
    reserved_bytes : int
        Of memory, for others.
    """

    network: Network
    options: Options
    disk: StoredGates | None = None
    reserved_bytes: int = 0
    method: ClassVar[str]

    @cached_property
    def leaves(self) -> CircuitLeaves:
        """The leaves of the circuit."""
        return CircuitLeaves(self.network)

    @property
    @abstractmethod
    def suits(self) -> bool:
        """Whether it has turns where no method is named."""

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Bytes held now."""

    @abstractmethod
    def run(self, seconds: float = math.inf) -> CircuitGraph | None:
        """Continue until the circuit is built, or ``seconds`` nominal seconds are used in total.

        Return None if it is not complete.

        Raises
        ------
        BudgetError
            If it does not fit memory.
        """
