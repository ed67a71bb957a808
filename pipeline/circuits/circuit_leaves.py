"""The leaves of a circuit that is being made, and what its root multiplies beside the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..preprocessing.preprocess import Network
from .circuit import CircuitGraph, CircuitVariables
from .entries import entries_left
from .gate_store import NOTHING, GateStore, reachable
from .node_tables import NodeTable

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

    @property
    def count(self) -> int:
        """How many leaves there are by now."""
        return self.first_parameter + sum(len(values) for *_, values in self.parameters)

    def table(self, f: int) -> NodeTable:
        """Return what a function allows, with a leaf for each entry; none where all that is allowed is worth 1."""
        scope, states, entries, values = entries_left(self.network, f)
        nodes = np.full((len(values), 1), NOTHING, np.int64)
        if len(values) and not (values == 1.0).all():
            nodes[:, 0] = np.arange(self.count, self.count + len(values))
            self.parameters.append((f, entries, values))
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
        """Return the circuit of what its root is made of."""
        gates, left = reachable(store.gates(), store.first)
        indicators = self.indicators[0]
        split = np.searchsorted(left, self.first_parameter)
        functions = np.repeat([f for f, *_ in self.parameters], [len(values) for *_, values in self.parameters])
        parts = [functions, *[np.concatenate([[], *[p[k] for p in self.parameters]]) for k in (1, 2)]]
        known, entries, values = (part[left[split:] - self.first_parameter] for part in parts)
        model = self.network.model
        variables = CircuitVariables(model.names, model.dims, model.states, model.hidden)
        parameters = np.stack([known, entries]).astype(np.int64)
        return CircuitGraph(
            variables, indicators[:, left[:split]], parameters, values.astype(np.float64), gates, model.name
        )
