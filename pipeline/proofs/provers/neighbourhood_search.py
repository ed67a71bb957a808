"""Better assignments near the best: many variables are free at once, searched for a limited number of nodes.

If domains are large, elimination frees only a few variables that share functions, but the reach of a search depends on
costs instead (Ouali, Allouche, de Givry, Loudni, Lebbah, Loukil and Boizumault, Iterative decomposition guided variable
neighborhood search for graphical model energy minimization, UAI 2017). The number of free variables adapts: it grows
after a complete search without success, and shrinks after an incomplete one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import numpy as np

from ...cost_networks.cost_network import CostNetwork, States
from ..prover_policy import ProverPolicy
from .branch_and_bound import Search, search_bytes

# Neighbourhoods are searched in networks of more assignments than these, in bits.
_NEIGHBOURHOOD_BITS: Final = 384
# Average bits of large domains. Neighbourhoods are searched only if the domains are large.
LARGE_DOMAIN_BITS: Final = 3
# Growth factor of a neighbourhood that was searched completely without success.
_NEIGHBOURHOOD_WIDER_RATIO: Final = 1.05
# A neighbourhood that was not searched to its end is narrowed by this factor.
_NEIGHBOURHOOD_NARROWER_RATIO: Final = 1.1
# A neighbourhood that found something better is narrowed by this factor.
_NEIGHBOURHOOD_AGAIN_RATIO: Final = 2.0
# Nodes of a neighbourhood.
_NEIGHBOURHOOD_NODES: Final = 200
# The network is laid out again, with fewer values, once the gap is at most this fraction of the gap at the last
# layout.
_NEIGHBOURHOOD_AGAIN_SHARE: Final = 0.5


def is_wide(dims: Sequence[int]) -> bool:
    """Whether a search sees only a part of a network of such domains, and an elimination frees few variables."""
    bits = math.fsum(math.log2(d) for d in dims)
    return bits > _NEIGHBOURHOOD_BITS and bits >= LARGE_DOMAIN_BITS * len(dims)


class SearchedNeighbourhoods:
    """Searches neighbourhoods of the best assignment of a network, and goes on where it was stopped.

    Parameters
    ----------
    network : CostNetwork
    states : tuple of int
        An assignment that is not forbidden.
    seed : int
        The same seed searches the same neighbourhoods, however fast.

    Attributes
    ----------
    total, states
        The best assignment so far.
    memory_bytes : float
        Limit of the held memory; a neighbourhood that needs more is skipped.
    """

    def __init__(self, network: CostNetwork, states: States, *, seed: int = 0) -> None:
        self._random, self.memory_bytes = Random(seed), math.inf
        self._begin(network, states)

    def _begin(self, network: CostNetwork, states: States) -> None:
        self.network, self.states, self.total = network, states, int(network.total(states))
        self._least = network.least
        self._search: Search | None = None
        self._laid_out_for = 0
        self._size = float(ProverPolicy.current().neighbourhood_least_variables)
        beside: list[set[int]] = [set() for _ in network.dims]
        for scope in network.scopes:
            for v in scope:
                beside[v].update(scope)
        self._beside = [sorted(others - {v}) for v, others in enumerate(beside)]

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return search_bytes(self.network) if self._search is None else self._search.nbytes

    def offer(self, network: CostNetwork, states: States) -> None:
        """Go on near an assignment, if it is better, in the network that it is of."""
        if network.total(states) >= self.total:
            return
        if network is self.network:
            self.states, self.total = states, int(network.total(states))
        else:
            self._begin(network, states)

    def run(self, stop: Callable[[], bool], on_states: Callable[[States], None]) -> None:
        """Search neighbourhoods until ``stop`` says so, or until the best assignment is proved to be an optimum."""
        while not stop() and self.total > self._least:
            if self.step():
                on_states(self.states)

    def step(self) -> bool:
        """Search one neighbourhood; return whether it has a better assignment."""
        policy = ProverPolicy.current()
        search, n = self._laid_out(), len(self.network.dims)
        free = set(self._ball(min(int(self._size), n)))
        allowed = [np.full(d, v in free) for v, d in enumerate(self.network.dims)]
        for values, state in zip(allowed, self.states, strict=True):
            values[state] = True
        search.memory_bytes = self.memory_bytes
        search.learn(None, self.states)
        ended = search.dive(allowed, self.total, _NEIGHBOURHOOD_NODES)
        found = search.best
        if found is not None:
            self.states, self.total = found, int(self.network.total(found))
            factor = 1 / _NEIGHBOURHOOD_AGAIN_RATIO
        else:
            factor = _NEIGHBOURHOOD_WIDER_RATIO if ended else 1 / _NEIGHBOURHOOD_NARROWER_RATIO
        self._size = min(
            max(float(policy.neighbourhood_least_variables), self._size * factor),
            float(max(n, policy.neighbourhood_least_variables)),
        )
        return found is not None

    def _laid_out(self) -> Search:
        """Return the search. Its root keeps the values of every assignment of at most this total."""
        left = self.total - self._least
        if self._search is None or left < _NEIGHBOURHOOD_AGAIN_SHARE * self._laid_out_for:
            self._search = Search(self.network, range(len(self.network.dims)), self.total + 1)
            self._laid_out_for = left
        return self._search

    def _ball(self, size: int) -> list[int]:
        """Collect variables: repeatedly add a random neighbour of the collected variables."""
        n, ball, seen = len(self.network.dims), list[int](), set[int]()
        near: list[int] = []
        while len(ball) < size:
            if not near:
                x = self._random.randrange(n)
                while x in seen:
                    x = (x + 1) % n
                near.append(x)
                seen.add(x)
            i = self._random.randrange(len(near))
            near[i], near[-1] = near[-1], near[i]
            ball.append(near.pop())
            new = [y for y in self._beside[ball[-1]] if y not in seen]
            seen.update(new)
            near += new
        return ball
