"""Some functions of a network as a network of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..network import CostNetwork, CostTable


@dataclass(frozen=True, eq=False)
class Section:
    """Some functions, with their variables numbered from 0.

    Parameters
    ----------
    network : CostNetwork
        Without a constant.
    variables : tuple of int
        What its variables are in the network that the functions are of.
    order : tuple of int
        Of its own variables.
    """

    network: CostNetwork
    variables: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, network: CostNetwork, tables: Sequence[CostTable], order: Sequence[int]) -> Section:
        """Take these functions of a network, and an order of its variables."""
        variables = sorted({v for table in tables for v in table.scope})
        place = {v: i for i, v in enumerate(variables)}
        own = tuple(CostTable(tuple(place[v] for v in table.scope), table.costs) for table in tables)
        dims = tuple(network.dims[v] for v in variables)
        return cls(CostNetwork(dims, own), tuple(variables), tuple(place[v] for v in order if v in place))

    def with_values(self, values: Mapping[int, NDArray[np.int64]], *more: CostTable) -> CostNetwork:
        """Return the functions with only these values of some of the own variables, and with more functions."""
        dims = tuple(len(values[v]) if v in values else d for v, d in enumerate(self.network.dims))
        tables = []
        for table in self.network.tables:
            costs = table.costs
            for axis, v in enumerate(table.scope):
                if v in values:
                    costs = np.take(costs, values[v], axis)
            tables.append(CostTable(table.scope, costs))
        return CostNetwork(dims, (*tables, *more))
