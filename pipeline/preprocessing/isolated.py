"""Isolated variables: those that share no function with another variable are eliminated without a plan.

The optimum fixes each of them to its best state. The partition function takes the sum over their states as a constant.
Each would otherwise be a step of its own, and a tree has a bit set of all variables for each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .leaf_groups import LeafGroup, made_together
from .leaf_tables import cost_leaves, energy_leaves
from .preprocess import Leaf, Network
from .preprocessing_policy import PreprocessingPolicy

Array = NDArray[Any]


def without_isolated(network: Network) -> Network:
    """Eliminate the isolated variables of a network for an optimum or a partition function.

    Parameters
    ----------
    network : Network

    Returns
    -------
    Network
        The same network if it has fewer isolated variables than a plan handles easily.
    """
    # a leaf of one variable is contained in no other leaf
    isolated = [node for node, leaf in enumerate(network.leaves) if len(leaf.scope) == 1]
    if not network.feasible or len(isolated) < PreprocessingPolicy.current().isolated_variables:
        return network
    leaves = [network.leaves[node] for node in isolated]
    variables = [network.variables[leaf.scope[0]] for leaf in leaves]
    build = cost_leaves if network.model.kind == "cost" else energy_leaves
    tables = _by_size(network, isolated, build)
    removed = set(variables)
    remaining = tuple([v for v in network.variables if v not in removed])
    local = {v: i for i, v in enumerate(remaining)}
    kept = tuple(
        [
            Leaf(tuple([local[network.variables[u]] for u in leaf.scope]), leaf.functions)
            for leaf in network.leaves
            if len(leaf.scope) > 1
        ]
    )
    found = replace(network, variables=remaining, leaves=kept)
    if network.query == "partition":
        logs = [log for _, energies in tables for log in _log_sums(energies).tolist()]
        return replace(found, summed=math.fsum(logs), isolated=frozenset(variables))
    domains = [*network.domains]
    for places, energies in tables:
        for k, state in zip(places, energies.argmin(axis=1).tolist(), strict=True):
            domains[variables[k]] = domains[variables[k]][state : state + 1]
    functions = [f for leaf in leaves for f in leaf.functions]
    return replace(found, domains=tuple(domains), constants=(*network.constants, *functions))


def _by_size(
    network: Network, nodes: list[int], build: Callable[[Network, LeafGroup], Array]
) -> list[tuple[list[int], Array]]:
    """Build the tables of some leaves of one variable.

    Returns
    -------
    list of tuple
        For each number of states: positions among ``nodes``, and an array of shape (tables, states).
    """
    axes = {node: network.leaves[node].scope for node in nodes}
    tables = made_together(network, axes, lambda group: group.split(build(network, group)))
    places: dict[int, list[int]] = {}
    for k, node in enumerate(nodes):
        places.setdefault(len(tables[node]), []).append(k)
    return [(some, np.stack([tables[nodes[k]] for k in some])) for some in places.values()]


def _log_sums(energies: Array) -> Array:
    """Return the natural logarithm of the sum of ``exp(-energies)`` along the last axis."""
    least = energies.min(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(least - energies).sum(axis=1)) - least[:, 0])
