"""Good assignments without a proof: annealing, then neighbourhoods that are solved exactly, again and again."""

from __future__ import annotations

import math
from bisect import bisect, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ...cost_networks.cost_network import CostNetwork, States, problem_of
from ..incumbent import Incumbent
from ..limits import Outcome
from ..prover import Prover
from ..prover_policy import LONG_TURN_SECONDS, MEMORY_PART, NOTABLE_SHARE, SMALLER_RATIO
from .branch_and_bound import search_bytes
from .neighbourhood_search import SearchedNeighbourhoods, is_wide

if TYPE_CHECKING:
    from ....tasks.networks.flat import Flat
    from ....tasks.search.annealing import Place
    from ....tasks.search.neighbourhood_optima import Buckets
    from ....tasks.search.neighbourhoods import Free

# Variables to look at, and log2 of the cells of a bucket, of larger and larger neighbourhoods.
_LOCAL_LEVELS: Final = ((8, 8.0), (32, 12.0), (128, 15.0), (512, 17.0), (2048, 19.0))
# Cells of all buckets of a neighbourhood, at most.
_LOCAL_MOST_CELLS: Final = 1 << 21
# With memory for fewer cells there is no local search.
_LOCAL_LEAST_CELLS: Final = 1 << 12
# Work of the shortest episode for each value of a variable (work is about nanoseconds).
_LOCAL_WORK_PER_VALUE: Final = 1000
# Work between two looks at the clock.
_LOCAL_BATCH_WORK: Final = 5_000_000
# Penalty of a forbidden entry at first, in the largest cost allowed.
_LOCAL_FIRST_PENALTY: Final = 2.0
# The penalty grows by this factor while assignments with a forbidden entry seem best.
_LOCAL_PENALTY_RATIO: Final = 4.0
# Neighbourhoods are searched where there is memory for this many times what a search is laid out in.
_NEIGHBOURHOOD_COPIES: Final = 2

#: Sums of costs are exact below this.
_EXACT = float(1 << 53)


def improve(
    network: CostNetwork,
    states: States | None,
    *,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
    most_work: int | None = None,
    memory_bytes: int = 1 << 28,
) -> tuple[int, States] | None:
    """Search for an assignment of a smaller total than a given one.

    Parameters
    ----------
    network : CostNetwork
        With at least one variable.
    states : tuple of int, optional
        Where to begin.
    seed : int
        The same seed looks at the same assignments, however fast.
    stop : callable
        Whether to end.
    most_work : int, optional
        Where to end, in about nanoseconds; None for no end of its own.
    memory_bytes : int
        Smaller neighbourhoods if there is less; no search if there is too little.

    Returns
    -------
    tuple or None
        The least total seen and its states; None if every assignment, given or found, was forbidden.
    """
    search = LocalSearch(network, states, seed=seed, memory_bytes=memory_bytes)
    while search.possible and not stop() and (most_work is None or search.work < most_work):
        search.step()
    return search.best


@dataclass
class _Kind:
    """A way to begin an episode: how often it was used, the work spent, how often it led to a better assignment."""

    begin: Callable[[int], Iterator[None]]
    episodes: int = 0
    work: int = 0
    better: int = 0


class LocalSearch:
    """A local search that can be continued.

    Episodes restart at or near the best assignment, are annealed, and end with growing neighbourhoods that are solved
    exactly. A forbidden value has a high finite cost, which rises while the best assignment contains one.

    Parameters
    ----------
    network, states, seed, memory_bytes
        See :func:`improve`.

    Attributes
    ----------
    best : tuple or None
        The least total seen and its states, None while all were forbidden.
    work : int
        About nanoseconds.
    """

    def __init__(
        self, network: CostNetwork, states: States | None, *, seed: int = 0, memory_bytes: int = 1 << 28
    ) -> None:
        self.network, self.work = network, 0
        self.best: tuple[int, States] | None = None
        self._random = Random(seed)
        self._most_cells = min(_LOCAL_MOST_CELLS, (memory_bytes - 3 * 8 * network.cells) // 16)
        self._given = problem_of(network.dims, network.tables, 0.0).flat
        self._begin_with(states or self._anywhere(), seed)
        self._kinds = tuple(map(_Kind, (self._begin_anywhere, self._begin_warm, self._begin_best)))
        self._annealed: list[float] = []
        self._steps = self._episodes()

    @property
    def possible(self) -> bool:
        """Whether there is memory for it."""
        return self._most_cells >= _LOCAL_LEAST_CELLS

    @property
    def nbytes(self) -> int:
        """Of its copies of the network, which it holds while it rests."""
        return 2 * 8 * self.network.cells

    def rest(self) -> None:
        """Give up working memory until the next step."""
        self.__dict__.pop("_free", None)
        self.__dict__.pop("_buckets", None)

    def step(self) -> None:
        """Search for a few milliseconds."""
        try:
            next(self._steps)
        except BaseException:
            # after an exception, for example for a loop not compiled in time, the old steps cannot continue
            self._steps = self._episodes()
            raise

    def offer(self, states: States) -> None:
        """Go on from an assignment that was found elsewhere, if it is better."""
        if self.best is None or self.network.total(states) < self.best[0]:
            self._go(states)
            self._take()
            self._steps = self._episodes()

    def _begin_with(self, states: States, seed: int) -> None:
        from ....tasks.search.annealing import place_of

        costs = (c[np.isfinite(c)].max(initial=0.5) for c in (self._given.costs, self._given.unary))
        self._cap = _LOCAL_FIRST_PENALTY * max(costs)
        self._flat = self._capped()
        self._place: Place = place_of(self._flat, states, seed)
        self._kept: NDArray[np.int64] = self._place.states.copy()
        self._least = math.inf
        self._take()

    def _capped(self) -> Flat:
        """The network with high finite costs for forbidden values."""
        given = self._given
        return given._replace(costs=np.minimum(given.costs, self._cap), unary=np.minimum(given.unary, self._cap))

    def _anywhere(self) -> States:
        return tuple(self._random.randrange(d) for d in self.network.dims)

    def _go(self, states: States | NDArray[np.int64]) -> None:
        from ....tasks.search.annealing import place_of

        moved = place_of(self._flat, states, 0)
        self._place.states[:] = moved.states
        self._place.at[:] = moved.at

    def _take(self) -> float:
        """Keep the assignment if it is the best so far; return its total, forbidden values at high finite costs."""
        from ....tasks.search.annealing import total

        now = float(total(self._flat, self._place))
        if now < self._least:
            self._least, self._kept = now, self._place.states.copy()
        if self.best is None or now + self.network.constant < self.best[0]:
            states = tuple(self._place.states.tolist())
            true = self.network.total(states)
            if true < (math.inf if self.best is None else self.best[0]):
                self.best = int(true), states
        return now

    def _episodes(self) -> Iterator[None]:
        shortest = _LOCAL_WORK_PER_VALUE * sum(self.network.dims)
        yield from self._resolve(shortest)
        while True:
            kind = min(self._kinds, key=lambda kind: kind.work / (1 + kind.better))
            kind.episodes += 1
            before, least = self.work, self._least
            yield from kind.begin(shortest * _luby(kind.episodes))
            kind.work += self.work - before
            kind.better += self._least < least
            self._mind_forbidden()

    def _mind_forbidden(self) -> None:
        """Let forbidden entries cost more where the best assignment has some."""
        cap = _LOCAL_PENALTY_RATIO * self._cap
        if self.network.total(self._kept.tolist()) == math.inf and cap * (self._given.n_functions + 1) < _EXACT:
            self._cap, self._least = cap, math.inf
            self._flat = self._capped()
            self._annealed.clear()
            self._go(self._kept)
            self._take()

    def _begin_anywhere(self, length: int) -> Iterator[None]:
        """Anneal from random states; go on where the result is among the better ones."""
        self._go(self._anywhere())
        hot = 10.0 ** -self._random.uniform(0.5, 2)
        yield from self._anneal(hot, hot / 10 ** self._random.uniform(1, 2), length)
        now = self._take()
        rank = bisect(self._annealed, now)
        insort(self._annealed, now)
        if rank <= len(self._annealed) // 4:
            yield from self._resolve(length)

    def _begin_warm(self, length: int) -> Iterator[None]:
        """Anneal from the best assignment, from a lower temperature."""
        self._go(self._kept)
        hot = 10.0 ** -self._random.uniform(1, 3)
        yield from self._anneal(hot, hot / 10, length)
        yield from self._resolve(length)

    def _begin_best(self, length: int) -> Iterator[None]:
        """Go on from the best assignment."""
        self._go(self._kept)
        yield from self._resolve(length)

    @cached_property
    def _unit(self) -> float:
        """A temperature that all is possible at."""
        from ....tasks.search.annealing import costs_of_values, typical_step

        return typical_step(self._flat, costs_of_values(self._flat, self._place), self._place.states)

    def _anneal(self, hot: float, cold: float, length: int) -> Iterator[None]:
        from ....tasks.search.annealing import anneal, costs_of_values, descend

        values = costs_of_values(self._flat, self._place)
        parts = -(-length // _LOCAL_BATCH_WORK)
        for part in range(parts):
            begin, end = (self._unit * hot * (cold / hot) ** (p / parts) for p in (part, part + 1))
            self.work += anneal(self._flat, self._place, values, begin, end, -(-length // parts))
            yield
        descend(self._flat, self._place, values)

    def _resolve(self, length: int) -> Iterator[None]:
        """Solve larger and larger neighbourhoods, each size while it helps."""
        before = self._take()
        for size, bits in _LOCAL_LEVELS:
            while True:
                yield from self._resolve_some(size, bits, length // 2)
                now = self._take()
                if now >= before:
                    break
                before = now

    def _resolve_some(self, size: int, bits: float, length: int) -> Iterator[None]:
        from ....tasks.search.neighbourhood_optima import resolve

        bits = min(bits, math.log2(self._most_cells))
        limits = (size, bits, float(self._most_cells))
        while length > 0:
            done = resolve(self._flat, self._place, self._free, self._buckets, limits, min(_LOCAL_BATCH_WORK, length))
            self.work += done
            length -= done
            yield

    @cached_property
    def _free(self) -> Free:
        from ....tasks.search.neighbourhoods import no_variables

        return no_variables(self._flat)

    @cached_property
    def _buckets(self) -> Buckets:
        from ....tasks.search.neighbourhood_optima import buckets_for

        bits = min(_LOCAL_LEVELS[-1][1], math.log2(self._most_cells))
        return buckets_for(len(self._free.order), max(self.network.dims), bits, self._most_cells)


def _luby(n: int) -> int:
    """1, 1, 2, 1, 1, 2, 4, …: as many short episodes as long ones, by work."""
    while n & (n + 1):
        n -= (1 << (n.bit_length() - 1)) - 1
    return (n + 1) >> 1


class LocalProver(Prover):
    """Looks for better assignments: by a local search, or near the best one where domains are wide."""

    def __init__(self, incumbent: Incumbent) -> None:
        super().__init__(incumbent)
        self.local: LocalSearch | None = None
        self.near: SearchedNeighbourhoods | None = None
        if not incumbent.alone:
            incumbent.listeners.append(self._hear)

    def _hear(self, network: CostNetwork, states: States) -> None:
        """Take an assignment of a network that preparation made, to search near it where that suits."""
        room = self.incumbent.memory_bytes
        if self.near is not None:
            self.near.offer(network, states)
        elif is_wide(network.dims) and _NEIGHBOURHOOD_COPIES * search_bytes(network) <= room:
            self.near = SearchedNeighbourhoods(network, states, seed=self.incumbent.limits.seed)

    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        """Look for a better assignment. If one is known, do so only after the other provers had a turn."""
        if self.near is not None:
            self._search_near(self.near, out_of_time)
        elif seconds < LONG_TURN_SECONDS and self.incumbent.nearby is not None:
            return None
        else:
            self._search_on(out_of_time)
        return Outcome(self.incumbent.lower)

    def _search_on(self, out_of_time: Callable[[], bool]) -> None:
        """Go on with the local search."""
        known = self.incumbent
        if self.local is None or SMALLER_RATIO * known.small.cells < self.local.network.cells:
            memory_bytes = known.limits.memory_bytes // MEMORY_PART
            self.local = LocalSearch(known.small, known.nearby, seed=known.limits.seed, memory_bytes=memory_bytes)
        elif known.nearby is not None and self.local.network is known.small:
            self.local.offer(known.nearby)
        while self.local.possible and not out_of_time():
            self.local.step()
        self.local.rest()
        self.hopeless = not self.local.possible
        if self.local.best is not None:
            known.offer_of(self.local.network, self.local.best[1])

    def _search_near(self, near: SearchedNeighbourhoods, out_of_time: Callable[[], bool]) -> None:
        """Look for a better assignment near the best, in the network that it was found in."""
        known, network = self.incumbent, near.network

        def see(states: States) -> None:
            if network is known.small:
                known.nearby = states
            known.improve(network.restored(states))

        near.memory_bytes = known.memory_bytes + near.nbytes
        near.run(out_of_time, see)
        if known.is_much(near):
            self.near = None

    def foresees_end(self, closing: float) -> bool:
        """Whether continuing finds so much better assignments that the following provers become faster."""
        return self.near is not None and closing >= NOTABLE_SHARE

    @property
    def nbytes(self) -> int:
        """Bytes that are held between two turns."""
        return sum(search.nbytes for search in (self.local, self.near) if search is not None)

    def forget(self) -> None:
        """Continue in the network of the best assignment; the best assignment of a smaller network is taken up in a
        turn.
        """
