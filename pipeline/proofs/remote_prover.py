"""A search that helps another one elsewhere: it hears of better totals while it runs, and tells what it finds."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..cost_networks.cost_network import CostNetwork, CostTable, States
from ..orders.depth_first import bucket_cells
from .limits import Limits
from .outcome import Method, Outcome
from .portfolio import Chain
from .turns import Way

#: Bounds alone are told so often at most; assignments always.
_OFTEN_SECONDS = 0.25


@dataclass(frozen=True)
class Part:
    """What a helper searches.

    Parameters
    ----------
    network : CostNetwork
    upper : int or None
        Exclusive; None for no limit.
    method : str
        By which way; "auto" for all of them in turn.
    limits : Limits
        Only memory, seed, pruning, threads and devices.
    seconds : float
        Wall seconds after which it ends with what it knows.
    """

    network: CostNetwork
    upper: int | None
    method: Method | Way
    limits: Limits
    seconds: float = math.inf


class Post(Protocol):
    """What connects a helper with whom it helps."""

    @property
    def alone(self) -> bool:
        """Whether nobody is there any more."""
        ...

    def heard(self) -> int | None:
        """Return the best total that is known."""
        ...

    def tell(self, message: tuple[int, list[int] | None]) -> None:
        """Tell an assignment of the part's network, or None, and a total that none of that is below."""
        ...


@dataclass
class Helper:
    """The search for the least total of a part that is below what others found.

    Parameters
    ----------
    part : Part
    post : Post
    """

    part: Part
    post: Post
    chain: Chain = field(init=False)
    _until: float = field(init=False)
    _told: int | None = None
    _told_at: float = -math.inf

    def __post_init__(self) -> None:
        part = self.part
        self._until = time.monotonic() + part.seconds
        limits = replace(part.limits, stop=self._stop, on_bounds=self._on_bounds)
        self.chain = Chain(part.network, part.upper, part.method, limits)

    def run(self) -> Outcome:
        """Search until the proof is complete, nothing more can be done, the time is over or nobody is there."""
        self.chain.run()
        while not (self.chain.done or self._ended) and self._is_news():
            self.chain.learn(self.post.heard())
            self.chain.go_on()
        return self.chain.outcome()

    @property
    def _ended(self) -> bool:
        return self.post.alone or time.monotonic() >= self._until

    def _is_news(self) -> bool:
        best = self.post.heard()
        return best is not None and (self.chain.upper is None or best < self.chain.upper)

    def _stop(self) -> bool:
        return self._is_news() or self._ended

    def _on_bounds(self, lower: int, total: int | None) -> None:
        now = time.monotonic()
        if total != self._told or now - self._told_at >= _OFTEN_SECONDS:
            states = None if total == self._told or self.chain.best is None else [int(a) for a in self.chain.best]
            self._told, self._told_at = total, now
            self.post.tell((lower, states))


def helped(post: Post, part: Part) -> tuple[Outcome, float]:
    """Task: search a part; return what is known of it, and the seconds that took."""
    start = time.perf_counter()
    outcome = Helper(part, post).run()
    return outcome, time.perf_counter() - start


# Slices of a network: some variables are given one state each, so that every assignment is in exactly one slice.

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
