"""What marginals are asked of: variables, joints and families, and what of them is left to read from a tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..preprocessing.preprocess import Network
from ..trees.tree import Target


@dataclass(frozen=True)
class BeliefRequest:
    """What is wanted, as indices of the model's variables and functions."""

    variables: tuple[int, ...]
    joints: tuple[tuple[int, ...], ...]
    families: tuple[int, ...]

    @property
    def involved(self) -> frozenset[int]:
        """All variables that some answer names."""
        return frozenset((*self.variables, *(v for joint in self.joints for v in joint)))


def local_part(network: Network, variables: Iterable[int]) -> Target:
    """Local indices, ascending, of those variables that are still in the network."""
    local = network.local
    return tuple(sorted([local[v] for v in variables if v in local]))


def local_targets(network: Network, asked: BeliefRequest) -> list[Target]:
    """What has to be read from the tree: the parts of the asked sets that are left in the network."""
    sets = [(v,) for v in asked.variables] + list(asked.joints)
    targets = (local_part(network, variables) for variables in sets)
    return list(dict.fromkeys(t for t in targets if t))
