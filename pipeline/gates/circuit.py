"""A circuit as a value: leaves, then products and sums, each after what it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Reversible
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.policy import Policy
from ..errors import counted


@dataclass(frozen=True)
class CircuitPolicy(Policy):
    """Tuned numbers of circuits.

    Parameters
    ----------
    first_turn_seconds : float
        Nominal seconds of the first turn of buckets, and of the search behind it; then twice as many.
    batch_bytes : int
        Values of all nodes for the cases that are evaluated together. 1,000 cases of insurance took 3.8, 1.1, 1.0 and
        0.9 CPU-s for sums with 1, 4, 64 and 256 MiB, and 10.8, 4.2, 3.7 and 4.2 for marginals.
    stored_edges : int
        Edges of gates that are read together if a circuit is in a file: about 40 MB with the derived data.
    disk_margin : float
        A circuit is refused before writing if its predicted size is this many times the free disk. The prediction
        extrapolates the size per cell so far, and later buckets may have fewer possible cells.
    box_entries : int
        Sets of states in the boxes of a function's zeros: 256 MB of references.
    """

    first_turn_seconds: float = 0.25
    batch_bytes: int = 1 << 26
    stored_edges: int = 1 << 20
    disk_margin: float = 2.0
    box_entries: int = 1 << 25


Array = NDArray[Any]
# A piece of gates in files with more runs of one kind is sorted by kind; runs are read as they stand.
_MOST_RUNS = 64


@dataclass(frozen=True, eq=False)
class Gates:
    """The products and sums of a circuit.

    Parameters
    ----------
    is_sum : ndarray of bool, shape (gates,)
        Whether each is a sum; the others are products.
    starts : ndarray of int64, shape (gates + 1,)
        Where the children of each begin.
    children : ndarray of int32 or int64
        Numbered nodes, leaves first; each has a smaller number than its parents. A product without children is 1, and a
        sum without children is 0.
    """

    is_sum: Array
    starts: Array
    children: Array

    def __len__(self) -> int:
        return len(self.is_sum)

    @property
    def arities(self) -> Array:
        """How many children each has."""
        return np.diff(self.starts)


@dataclass(frozen=True, eq=False)
class CircuitLayer:
    """Nodes of one kind, as many children each, that are made of earlier layers alone.

    Parameters
    ----------
    is_sum : bool
    nodes : ndarray of int, shape (nodes,)
    children : ndarray of int, shape (nodes, arity)
    """

    is_sum: bool
    nodes: Any
    children: Any

    @cached_property
    def scatters(self) -> list[tuple[Array | None, Array, Array]]:
        """For each column of children how rows of nodes are added to theirs: in which order, from where, to which.

        None in place of an order where no child comes twice.
        """
        made: list[tuple[Array | None, Array, Array]] = []
        for column in self.children.T:
            order = np.argsort(column, kind="stable")
            ordered = column[order]
            starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
            once = len(starts) == len(column)
            made.append((None, starts, column) if once else (order, starts, ordered[starts]))
        return made


@dataclass(frozen=True, eq=False)
class CircuitVariables:
    """The variables of a circuit.

    Parameters
    ----------
    names : tuple of str
        Those of the model first; hidden ones, which follow from the others, behind.
    dims : tuple of int
    labels : tuple
        For each variable its states' labels, or None.
    hidden : int
    """

    names: tuple[str, ...]
    dims: tuple[int, ...]
    labels: tuple[tuple[str, ...] | None, ...]
    hidden: int = 0


@dataclass(frozen=True, eq=False)
class CircuitGraph:
    """A smooth, deterministic, decomposable circuit; its last node is the root.

    Parameters
    ----------
    variables : CircuitVariables
    indicators : ndarray of int, shape (2, indicators)
        Variable and state of each of the first leaves.
    parameters : ndarray of int, shape (2, parameters)
        Function and entry, counted in C order, of each leaf behind them. Functions from the number of the model's own
        on are parts of wide ones.
    values : ndarray of float, shape (parameters,)
    gates : Gates
    source : str
        The model's name.
    scopes : dict
        The variables of each function of the model's own that has parameters.
    parts : ndarray of int64, shape (parts + 1,), optional
        For gates in files: the start of each piece and the end. No gate of a piece has a child in the same piece.
    """

    variables: CircuitVariables
    indicators: Array
    parameters: Array
    values: Array
    gates: Gates
    source: str = ""
    scopes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    parts: Array | None = None

    @property
    def n_indicators(self) -> int:
        """How many leaves say that a variable is in a state."""
        return int(self.indicators.shape[1])

    @property
    def n_leaves(self) -> int:
        """How many leaves there are."""
        return self.n_indicators + len(self.values)

    @property
    def nodes(self) -> int:
        """How many nodes there are, leaves among them."""
        return self.n_leaves + len(self.gates)

    @property
    def edges(self) -> int:
        """How many children all nodes have together."""
        return len(self.gates.children)

    @property
    def root(self) -> int:
        """The number of the root."""
        return self.nodes - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        gates = self.gates
        arrays = self.indicators, self.parameters, self.values, gates.is_sum, gates.starts, gates.children
        return sum(array.nbytes for array in arrays)

    @cached_property
    def layers(self) -> Reversible[CircuitLayer]:
        """Gates by depth, kind and number of children (as KLay has them: Maene et al., ICLR 2025).

        Of gates in files by piece in place of depth, read when their turn comes.
        """
        if self.parts is not None:
            return PartLayers(self)
        return tuple(layers_of(self.gates, depths_of(self.gates, self.n_leaves), self.n_leaves))

    @cached_property
    def decisions(self) -> Array:
        """Return for each gate the variable of which its children decide different states; -1 if there is none, and for
        products.

        An indicator decides at once, and a product with indicators among its children.
        """
        found = np.full(len(self.gates), -1, np.int32)
        for layer in self.layers:
            if layer.is_sum and layer.children.shape[1] > 1:
                places, decided = self._decided(layer.children.reshape(-1))
                found[layer.nodes - self.n_leaves] = self._told_apart(layer.children.shape, places, decided)
        return found

    def _decided(self, nodes: Array) -> tuple[Array, Array]:
        """Return the indicators that nodes decide: the place of a node among them, and a leaf, for each."""
        gates, first = self.gates, self.n_leaves
        leaves, inner = np.flatnonzero(nodes < self.n_indicators), np.flatnonzero(nodes >= first)
        inner = inner[~gates.is_sum[nodes[inner] - first]]
        numbers = nodes[inner] - first
        starts, ends = gates.starts[numbers], gates.starts[numbers + 1]
        children = gates.children[ranges(starts, ends)]
        direct = children < self.n_indicators
        places = np.concatenate([leaves, np.repeat(inner, ends - starts)[direct]])
        return places, np.concatenate([nodes[leaves], children[direct]])

    def _told_apart(self, shape: tuple[int, int], places: Array, decided: Array) -> Array:
        """Return for each row of children a variable that all of them decide, each another state; -1 for none.

        Parameters
        ----------
        places : ndarray of int
            Places among the children of all rows.
        decided : ndarray of int
            The indicator that the child at each place decides.
        """
        found = self._told_by_first(shape, places, decided)
        left = (found < 0)[places // shape[1]]  # gates whose children decide several variables, or different ones
        places, decided = places[left], decided[left]
        if not len(decided):
            return found
        variables, states = self.indicators[:, decided]
        key = places // shape[1] * len(self.variables.dims) + variables
        once = _distinct_pairs(key, states) & _distinct_pairs(key, places)
        keys, counts = np.unique(key, return_counts=True)
        told = keys[(counts == shape[1]) & np.logical_and.reduceat(once, np.append(0, counts.cumsum()[:-1]))]
        found[told[::-1] // len(self.variables.dims)] = told[::-1] % len(self.variables.dims)
        return found

    def _told_by_first(self, shape: tuple[int, int], places: Array, decided: Array) -> Array:
        """Return the same, as far as it is seen by the first indicator that each child decides."""
        first = np.full(shape, -1, np.int64)
        first.reshape(-1)[places[::-1]] = decided[::-1]
        whole = np.flatnonzero((first >= 0).all(axis=1))
        variables, states = self.indicators[:, first[whole]]
        states = np.sort(states, axis=1)
        told = (variables == variables[:, :1]).all(axis=1) & (states[:, 1:] != states[:, :-1]).all(axis=1)
        found = np.full(shape[0], -1, np.int64)
        found[whole[told]] = variables[told, 0]
        return found

    def __repr__(self) -> str:
        named = f" of {self.source!r}" if self.source else ""
        sizes = (len(self.variables.dims), "variable"), (self.nodes, "node"), (self.edges, "edge")
        return f"<circuit{named}: {', '.join(counted(*size) for size in sizes)}>"


@dataclass(frozen=True, eq=False)
class PartLayers:
    """Layers of a circuit whose gates are in files, made each time they are asked for, piece by piece.

    Parameters
    ----------
    graph : CircuitGraph
    """

    graph: CircuitGraph

    def __iter__(self) -> Iterator[CircuitLayer]:
        """Yield layers, each after the layers of its children."""
        for part in range(len(self._parts) - 1):
            yield from self._layers(part)

    def __reversed__(self) -> Iterator[CircuitLayer]:
        """Yield the last layer first."""
        for part in reversed(range(len(self._parts) - 1)):
            yield from reversed(self._layers(part))

    @property
    def _parts(self) -> Array:
        assert self.graph.parts is not None
        return self.graph.parts

    def _layers(self, part: int) -> list[CircuitLayer]:
        first, stop = self._parts[part : part + 2].tolist()
        starts = np.array(self.graph.gates.starts[first : stop + 1])
        children = np.array(self.graph.gates.children[starts[0] : starts[-1]])
        own = Gates(np.array(self.graph.gates.is_sum[first:stop]), starts - starts[0], children)
        kinds = 2 * own.arities + own.is_sum
        cuts = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(own)]
        if len(cuts) > _MOST_RUNS:
            return layers_of(own, np.zeros(len(own), np.int64), self.graph.n_leaves + first)
        begin = self.graph.n_leaves + first
        return [
            CircuitLayer(
                bool(own.is_sum[run]),
                np.arange(begin + run, begin + end),
                children[own.starts[run] : own.starts[end]].reshape(end - run, -1),
            )
            for run, end in pairwise(cuts)
        ]


def layers_of(gates: Gates, depth: Array, first: int) -> list[CircuitLayer]:
    """Return gates by depth, kind and number of children; the first of them has a number."""
    order = np.lexsort((gates.arities, gates.is_sum, depth))
    keys = np.stack([depth, gates.is_sum, gates.arities])[:, order]
    cuts = np.flatnonzero((np.diff(keys, axis=1) != 0).any(axis=0)) + 1
    made = []
    for part in np.split(order, cuts) if len(order) else ():
        arity = int(gates.arities[part[0]])
        children = gates.children[gates.starts[part][:, np.newaxis] + np.arange(arity)]
        made.append(CircuitLayer(bool(gates.is_sum[part[0]]), part + first, children))
    return made


def _distinct_pairs(key: Array, other: Array) -> Array:
    """Return in the order of keys which pairs with them differ from the one before."""
    order = np.lexsort((other, key))
    pairs = np.stack([key[order], other[order]])
    return np.append(True, (pairs[:, 1:] != pairs[:, :-1]).any(axis=0))


def depths_of(gates: Gates, first: int) -> Array:
    """Return how many gates lie below each gate on the longest way to a leaf.

    Parameters
    ----------
    gates : Gates
    first : int
        The number of the first gate.
    """
    count = len(gates)
    inner = gates.children >= first
    owners = np.repeat(np.arange(count), gates.arities)[inner]
    below = gates.children[inner].astype(np.int64) - first
    waiting = np.bincount(owners, minlength=count)
    order = np.argsort(below, kind="stable")
    parents, starts = owners[order], np.searchsorted(below[order], np.arange(count + 1))
    depth = np.zeros(count, np.int64)
    ready, level = np.flatnonzero(waiting == 0), 0
    while len(ready):
        depth[ready] = level
        told = parents[ranges(starts[ready], starts[ready + 1])]
        np.subtract.at(waiting, told, 1)
        told = np.unique(told)
        ready, level = told[waiting[told] == 0], level + 1
    return depth


def pieces(starts: Array, most: int) -> Iterator[slice]:
    """Yield ranges of gates with at most ``most`` children and gates together; at least one gate each."""
    start = 0
    while start < len(starts) - 1:
        window = starts[start : start + most + 1]
        stop = start + max(1, int(np.searchsorted(window, window[0] + most, "right")) - 1)
        yield slice(start, stop)
        start = stop


def ranges(starts: Array, ends: Array) -> Array:
    """Return the numbers of several ranges, concatenated."""
    counts = ends - starts
    places: Array = np.arange(counts.sum()) + np.repeat(starts - (counts.cumsum() - counts), counts)
    return places
