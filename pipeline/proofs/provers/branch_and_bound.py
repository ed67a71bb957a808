"""Depth-first branch and bound with soft arc consistency, for cliques whose static bounds are weak."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.compiler.compile_beside import Interpreter
from ....tasks.compiler.compile_limits import is_limited
from ....tasks.compiler.working_time import LOOK_SECONDS
from ....tasks.networks.flat import offsets
from ....tasks.search.state import least_costs
from ....tasks.steps.number_limits import ordered_sum
from ...cost_networks.cost_network import CostNetwork, States
from ..limits import Outcome
from ..prover import SearchProver
from ..prover_policy import SEARCHED_CELLS, ProverPolicy

# If costs are fine-grained, moves of a smaller fraction of the open gap are not propagated.
_TINY_MOVE_SHARE: Final = 1e-7
# The part of the tree that was explored is noted once the search took this many times as long as at the last note.
_MARK_RATIO: Final = 1.1
# A search that is expected to end has turns until it took this many times as long as all other work.
_EXPECTED_RATIO: Final = 8.0
# Costs are fine where the cut-off has more units than this.
_COARSE_COSTS: Final = 1e7

Pairs = dict[tuple[int, int], NDArray[np.float64]]

#: Copies of the tables that are in memory while a search is laid out.
_COPIES = 3
#: A longer trail is there beside the one it continues.
_GROWING = 3
#: Bytes of an open node beside its values.
_NODE_BYTES = 192
INTERPRETER = Interpreter("tasks.search.branch_and_bound", replaced={"least_costs": least_costs})


def search_bytes(network: CostNetwork) -> int:
    """Bytes that laying a network out for a search takes at least."""
    return _COPIES * 8 * network.cells


class Search:
    """A search for the least total below ``upper`` that goes on where it was stopped.

    The open node with the least bound is explored depth-first for a while; its unexplored parts become open nodes
    (hybrid best-first search, Allouche, de Givry, Katsirelos, Schiex & Zytnicki, CP 2015). Open nodes, conflict weights
    and good values persist from one :meth:`run` to the next.

    Parameters
    ----------
    order : sequence of int
        Costs are moved towards the variables that come last in it.
    upper : int or None
        Exclusive; None for no limit.

    Attributes
    ----------
    memory_bytes : int
        For the network's copy, the trail and the open nodes.
    seconds : float
        CPU seconds of the search so far.
    lower : int
        No total is below it, or below the cut-off.
    best : tuple of int or None
        The best assignment that the search itself found.
    hopeless : bool
        Never: where memory is used up, it returns unproved, and more memory may be given.
    """

    def __init__(
        self,
        network: CostNetwork,
        order: Sequence[int],
        upper: int | None,
        *,
        memory_bytes: float = math.inf,
    ) -> None:
        from ....tasks.search.state import CONSTANT, INF

        self.network, self.memory_bytes = network, memory_bytes
        self.hopeless = False
        self.best: States | None = None
        self._total: int | None = None
        self._upper = INF if upper is None else upper
        self._state = _laid_out(network, order, upper)
        self.lower = int(self._state.memory[CONSTANT])
        self._root: Any = None
        self._nodes: list[tuple[int, int, bytes, float]] = []
        self._share, self._open_share = 1.0, 0.0
        self.seconds, self._progress = 0.0, list[tuple[float, float]]()
        self._made = self._pace = self._left = 0
        self._finished = self._empty = False

    @property
    def nodes(self) -> int:
        """Decisions that were made."""
        from ....tasks.search.state import NODES

        return int(self._state.memory[NODES])

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        from ....tasks.search.state import nbytes

        return nbytes(self._state) + len(self._nodes) * (_NODE_BYTES + sum(self.network.dims) // 8)

    def learn(self, upper: int | None, states: States | None = None) -> None:
        """Search only below ``upper`` from now on, and try these states first among equals."""
        from ....tasks.search.state import bests

        if upper is not None:
            self._upper = min(self._upper, upper)
        if states is not None:
            bests(self._state)[:] = states

    def begin_anew(self, allowed: Sequence[NDArray[np.bool_]], upper: int | None) -> None:
        """Forget the results, and search only assignments of these values below ``upper`` from now on.

        Parameters
        ----------
        allowed : sequence of NDArray
            By variable, whether each value may be taken.
        upper : int or None
            Not above any cut-off until the first piece was searched, as what reaches that is removed for good.
        """
        from ....tasks.search.branch_and_bound import FINISHED
        from ....tasks.search.state import INF

        if self._root is None:
            self._empty = self._explore() == FINISHED
        self.best, self._total, self._upper = None, None, INF if upper is None else upper
        self._nodes.clear()
        self._share, self._open_share = 1.0, 0.0
        self._left, self._finished, self.lower = ProverPolicy.current().search_nodes, self._empty, int(self._root[0])
        if not self._empty:
            self._call("begin_at", self._state.memory, self._root, np.concatenate(allowed))

    def dive(self, allowed: Sequence[NDArray[np.bool_]], upper: int, nodes: int) -> bool:
        """Start again, and search depth-first for at most ``nodes`` nodes; return whether the search space is
        exhausted.

        The result is ``best``, or None. The searched nodes do not depend on the clock.
        """
        from ....tasks.search.branch_and_bound import FINISHED, FOUND, FULL, explore

        self.begin_anew(allowed, upper)
        left = nodes
        while not self._finished and left > 0:
            before = self.nodes
            code = explore(self._state.memory, self._state.entries, self._upper, left)
            left -= max(1, self.nodes - before)
            if code == FOUND:
                self._find()
            elif code == FINISHED:
                self._finished = True
            elif code == FULL and not self._grow():
                break
        return self._finished

    def _find(self) -> States:
        """Take the assignment that was found; from now on only better ones count."""
        from ....tasks.search.state import bests

        found = tuple(int(a) for a in bests(self._state))
        self.best, self._total = found, int(self.network.total(found))
        self._upper = self._total
        return found

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bounds: Callable[[int, int | None], None] = lambda lower, total: None,
        on_states: Callable[[States], None] = lambda states: None,
    ) -> Outcome:
        """Go on until the proof is complete, memory is used up, or ``stop`` says so.

        Parameters
        ----------
        on_bounds : callable
            Called with the bound on everything open and the best total so far, now and then.
        on_states : callable
            Called with each better assignment.
        """
        from ....tasks.search.branch_and_bound import FINISHED, FOUND, FULL

        while not (self._finished or stop()):
            code = self._explore()
            if code == FULL:
                if not self._grow():
                    break
            elif code == FOUND:
                on_states(self._find())
            elif code == FINISHED or self._left <= 0:
                if code != FINISHED:
                    self._open()
                if not self._begin_next(on_bounds):
                    break
        return self._outcome()

    def _explore(self) -> int:
        """Explore some remaining nodes below the open node; the first call only makes it consistent."""
        policy = ProverPolicy.current()
        from ....tasks.search.branch_and_bound import PAUSED
        from ....tasks.search.state import root_of

        start, nodes = time.process_time(), min(self._pace, self._left)
        code: int = self._call("explore", self._state.memory, self._state.entries, self._upper, nodes)
        self._left -= nodes
        taken = time.process_time() - start
        if self._root is None:
            self._root, self._pace = root_of(self._state), 1
            return code
        self.seconds += taken
        if taken > LOOK_SECONDS:
            self._pace = max(1, self._pace // 2)
        elif code == PAUSED:
            self._pace = min(2 * self._pace, policy.search_nodes)
        return code

    @property
    def closed(self) -> float:
        """Part of the tree that was explored, between 0 and 1; the node that is being explored does not count.

        A decision divides the part of its node in proportion to the numbers of values: a tree whose leaves all had the
        same depth would be closed at a constant rate (Knuth 1975; the weighted backtracks of Kilby, Slaney, Thiébaux &
        Walsh, Estimating search tree size, AAAI 2006).
        """
        return 1.0 - self._open_share - self._share

    @property
    def remaining_seconds(self) -> float:
        """CPU seconds until the proof if the search goes on at the rate of its later half; infinite while unknown."""
        if self._finished:
            return 0.0
        before = [mark for mark in self._progress if mark[0] <= self.seconds / 2]
        if not before:
            return math.inf
        (seconds, closed), (until, now) = before[-1], self._progress[-1]
        return (1.0 - now) * (until - seconds) / (now - closed) if now > closed else math.inf

    def _mark_progress(self) -> None:
        """Note the part of the tree explored so far, at times that grow by a tenth."""
        if not self._progress or self.seconds > _MARK_RATIO * self._progress[-1][0]:
            self._progress.append((self.seconds, self.closed))

    def _outcome(self) -> Outcome:
        if self._finished and (self._total is None or self._total > self._upper):
            return Outcome(self.lower, feasible=False)
        return Outcome(self.lower, self._total, self.best)

    def _grow(self) -> bool:
        """Make room for longer trails; False if that would be too much."""
        from ....tasks.search.state import grown

        if _GROWING * self.nbytes > self.memory_bytes:
            return False
        self._state = grown(self._state)
        return True

    def _open(self) -> None:
        """Close the decisions of a depth-first search, and turn its unexplored branches into open nodes."""
        for bound, mask, part in self._opened():
            share = part * self._share
            heappush(self._nodes, (bound, -self._made, mask, share))
            self._open_share += share
            self._made += 1

    def _opened(self) -> Iterator[tuple[int, bytes, float]]:
        """Take the open nodes of a depth-first search: bound, values, and part of the tree of each."""
        from ....tasks.search.state import DEPTH, ONE

        depth, n_values = int(self._state.memory[DEPTH]), sum(self.network.dims)
        masks = np.empty((depth + 1, n_values), dtype=np.bool_)
        bounds, shares = np.empty((2, depth + 1), dtype=np.int64)
        self._call("take_open", self._state.memory, masks, bounds, shares)
        for mask, bound, share in zip(np.packbits(masks, axis=1), bounds.tolist(), shares.tolist(), strict=True):
            yield bound, mask.tobytes(), share / ONE

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a loop of the search; within a time limit in the interpreter, until it is compiled."""
        from ....tasks.search import branch_and_bound as loops

        loop = getattr(loops, name)
        # the first propagation cannot be interrupted, and takes longer the more cells there are
        if not is_limited() or self.network.cells > SEARCHED_CELLS:
            return loop(*arguments)
        return INTERPRETER.call(loop, *arguments)

    def _begin_next(self, on_bounds: Callable[[int, int | None], None]) -> bool:
        """Begin at the open node of the least bound; False if there is none, or too many."""
        from ....tasks.search.state import INF

        self._share = 0.0
        while self._nodes and self._nodes[0][0] >= self._upper:
            self._open_share -= heappop(self._nodes)[3]
        if not self._nodes:
            self.lower = self._upper if self._upper < INF else self.lower
            self._finished = True
            return False
        if self.nbytes > self.memory_bytes:
            return False
        self._mark_progress()
        bound, _, mask, self._share = heappop(self._nodes)
        self._open_share -= self._share
        self.lower = max(self.lower, min(bound, self._upper))
        on_bounds(self.lower, self._total)
        values = np.unpackbits(np.frombuffer(mask, np.uint8), count=sum(self.network.dims)).view(np.bool_)
        self._call("begin_at", self._state.memory, self._root, values)
        self._left = ProverPolicy.current().search_nodes
        return True


class EverySearch(Search):
    """A search for every assignment below a cut-off, which may fall meanwhile: each is found once."""

    def __init__(
        self, network: CostNetwork, order: Sequence[int], upper: int | None, *, memory_bytes: float = math.inf
    ) -> None:
        from ....tasks.search.state import EVERY

        super().__init__(network, order, upper, memory_bytes=memory_bytes)
        self._state.memory[EVERY] = 1

    @property
    def finished(self) -> bool:
        """Whether nothing below the cut-off is left."""
        return self._finished

    def _find(self) -> States:
        """Take the assignment that was found; others of the same total count, too."""
        from ....tasks.search.state import bests

        return tuple(int(a) for a in bests(self._state))

    def _explore(self) -> int:
        """Explore; a call that finds an assignment ends early, and counts the nodes that it took."""
        from ....tasks.search.branch_and_bound import FOUND

        before, left = self.nodes, self._left
        code = super()._explore()
        if code == FOUND:
            self._left = left - (self.nodes - before)
        return code


def _split(
    network: CostNetwork,
) -> tuple[int, list[NDArray[np.float64]], Pairs, list[tuple[tuple[int, ...], NDArray[np.float64]]], float]:
    """Split costs into a constant, a cost for each value, tables of pairs (ascending) and wider tables, all
    non-negative.

    The last returned number is the sum of the greatest costs of all tables of the network.
    """
    constant, span = network.constant, 0.0
    unary = [np.zeros(d) for d in network.dims]
    pairs: Pairs = {}
    wide = []
    begins = offsets(np.fromiter((table.costs.size for table in network.tables), np.int64, len(network.tables)))
    entries = np.concatenate([np.empty(0), *[table.costs.reshape(-1) for table in network.tables]])
    if network.tables:
        span = ordered_sum(np.maximum.reduceat(np.where(entries < math.inf, entries, 0.0), begins[:-1]).tolist())
        least = np.minimum.reduceat(entries, begins[:-1])
        least[least == math.inf] = 0.0
        constant += int(math.fsum(least))
        entries -= np.repeat(least, np.diff(begins))
    for table, (begin, end) in zip(network.tables, pairwise(begins.tolist()), strict=True):
        costs = entries[begin:end].reshape(table.costs.shape)
        if len(table.scope) == 1:
            unary[table.scope[0]] = unary[table.scope[0]] + costs
        elif len(table.scope) == 2:
            x, y = table.scope
            key, costs = ((x, y), costs) if x < y else ((y, x), costs.T)
            pairs[key] = pairs[key] + costs if key in pairs else costs
        else:
            wide.append((table.scope, costs))
    return constant, unary, pairs, wide, span


def _laid_out(network: CostNetwork, order: Sequence[int], upper: int | None) -> Any:
    """Return the state of a search that has not begun."""
    from ....tasks.search.state import new_state

    constant, unary, pairs, wide, span = _split(network)
    rank = np.empty(len(network.dims), dtype=np.int64)
    rank[list(order)[::-1]] = np.arange(len(network.dims))
    limit = math.inf if upper is None else upper
    tiny = _TINY_MOVE_SHARE * (min(limit, constant + span) - constant) if span > _COARSE_COSTS else 0.0
    return new_state(unary, pairs, wide, constant, rank, int(max(tiny, 0.0)))


class DepthFirstProver(SearchProver[Search]):
    """Goes on with the search of the last turn."""

    tells_its_end = False

    def lay_out(self) -> Search | None:
        """Lay the network out, if that fits."""
        known = self.incumbent
        fits = search_bytes(known.small) <= known.memory_bytes
        return Search(known.small, known.order, known.upper) if fits else None

    def teach(self, search: Search) -> None:
        """Pass on the shared results; values of the best assignment are tried first."""
        search.learn(self.incumbent.upper, self.incumbent.nearby)

    def see(self, states: States) -> None:
        """Take an assignment, which may exclude more totals than its own."""
        self.incumbent.offer(states)
        if self.search is not None:
            self.search.learn(self.incumbent.upper)

    def foresees_end(self, closing: float) -> bool:
        """Whether the search is expected to end soon, in relation to the time that other work took so far."""
        if self.search is None or self.hopeless:
            return False
        # a short run before preparation counts as other work, because this search does not continue it
        own = self.search.seconds
        return own + self.search.remaining_seconds <= _EXPECTED_RATIO * (self.incumbent.spent - own)

    def leave_memory(self, search: Search) -> None:
        """Give up a search that holds too many open nodes."""
        if self.incumbent.is_much(search):
            self.search = None
