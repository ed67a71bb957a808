"""Slices of a network: some variables are given one state each, so that every assignment is in exactly one slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..network import CostNetwork, CostTable, States
from ..order import bucket_cells

#: So many variables, those in most functions, are compared for the next one that is given a state.
_CANDIDATES = 12


def restricted(network: CostNetwork, states: Mapping[int, int]) -> CostNetwork:
    """Return the network in which some variables have one state each; restored, their states are those."""
    dims = tuple(1 if v in states else d for v, d in enumerate(network.dims))
    tables = []
    for table in network.tables:
        places = tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in table.scope)
        tables.append(CostTable(table.scope, table.costs[places].copy()))
    return network.smaller(dims, tuple(tables), network.constant, _Given(tuple(states.items())))


class _Given:
    """Puts given states where a slice has its only ones."""

    def __init__(self, states: tuple[tuple[int, int], ...]) -> None:
        self._states = dict(states)

    def __call__(self, states: States) -> States:
        return tuple(self._states.get(v, a) for v, a in enumerate(states))


def sliced_variables(network: CostNetwork, order: Sequence[int], count: int) -> tuple[int, ...]:
    """Choose variables that have so many states together, or all there are, each where it leaves least to eliminate."""
    dims, chosen, made = list(network.dims), [], 1
    uses = [sum(v in scope for scope in network.scopes) for v in range(len(dims))]
    while made < count:
        left = sorted((v for v, d in enumerate(dims) if d > 1 and uses[v]), key=lambda v: -uses[v])[:_CANDIDATES]
        if not left:
            break
        best = min(left, key=lambda v: bucket_cells([*dims[:v], 1, *dims[v + 1 :]], network.scopes, order) * dims[v])
        chosen.append(best)
        made *= dims[best]
        dims[best] = 1
    return tuple(chosen)
