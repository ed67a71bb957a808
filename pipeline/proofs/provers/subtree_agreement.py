"""The least total of two parts, optimised separately: the easy part limits the values of the common variables."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....tasks.compiler.working_time import LOOK_SECONDS
from ...cost_networks.cost_network import CostNetwork, CostTable, States
from ...orders.depth_first import bucket_parents
from ..limits import OnBounds, Outcome
from ..prover_policy import ProverPolicy
from .branch_and_bound import Search, search_bytes
from .clusters import greatest

# The first cut-off goes one part in this many of the way from the bound to the last one.
_AGREEMENT_FIRST_PART: Final = 8
# Networks of more variables have parts too large to be optimised.
_CUT_MOST_VARIABLES: Final = 1000
# A part has at least one in this many of the variables.
_CUT_LEAST_PART: Final = 4
# A part has more than this many times the variables of the separator that cuts it off.
_CUT_SEPARATOR_RATIO: Final = 2

# Searching a part for a while.


def search_a_while(
    search: Search, enough: float = -math.inf, on_states: Callable[[States], None] = lambda states: None
) -> tuple[Outcome, bool]:
    """Continue a search until the time is over, or until it finds a cost of at most ``enough``.

    Returns the outcome, and whether there was too little memory to go on.
    """
    start, asked, ended = time.process_time(), count(), False

    def see(states: States) -> None:
        nonlocal ended
        ended = ended or search.network.total(states) <= enough
        on_states(states)

    def stop() -> bool:
        nonlocal ended
        ended = ended or (next(asked) > 0 and time.process_time() - start > LOOK_SECONDS)
        return ended

    outcome = search.run(stop, on_states=see)
    return outcome, not (ended or outcome.proved)


# Some functions of a network as a network of their own.


@dataclass(frozen=True, eq=False)
class Section:
    """Some functions, with their variables numbered from 0.

    Parameters
    ----------
    network : CostNetwork
        Without a constant.
    variables : tuple of int
        The indices of its variables in the network of the functions.
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


T = TypeVar("T")
Pieces = Generator[None, None, T]
"""Work that may be stopped after each piece."""


class AgreementNoRoomError(Exception):
    """The memory is exhausted, or too many assignments of the common variables remain."""


class Agreement:
    """A search for the least total below ``upper`` that goes on where it was stopped.

    Below a pruning value, the easy part may cost at most the value minus the hard part's least cost. Under this limit
    the common variables often have few values. The easy part's cost for each assignment of these values becomes a
    function of the hard part, and the hard part is searched with it. If the search finds nothing, the bound rises to
    the pruning value, and the next value is higher.

    Parameters
    ----------
    network : CostNetwork
        Assignments are of its variables.
    easy, hard : Section
        Two parts that have all its functions.
    least : tuple of int
        Least cost of each part.
    states : tuple of int
        The best assignment of the hard one.
    upper : int or None
        Exclusive; None for no limit.

    Attributes
    ----------
    memory_bytes : int
        For the searches of both parts.
    lower : int
        No total is below it.
    done, hopeless : bool
        Whether no total is below the pruning value; whether the memory is exhausted or too many common assignments
        remain.
    """

    def __init__(
        self,
        network: CostNetwork,
        easy: Section,
        hard: Section,
        least: tuple[int, int],
        states: States,
        upper: int | None,
    ) -> None:
        self.memory_bytes: float = math.inf
        self.lower = network.constant + sum(least)
        self.done = self.hopeless = False
        # without a pruning value, use a value above every assignment
        self._network, self._upper = network, int(network.constant + greatest(network)) + 1
        self.learn(upper)
        self._easy, self._hard, self._least = easy, hard, least
        self._shared = sorted(set(easy.variables) & set(hard.variables))
        self._in_easy = [easy.variables.index(v) for v in self._shared]
        self._in_hard = [hard.variables.index(v) for v in self._shared]
        self._searches: dict[str, Search] = {}
        self._on_states: Callable[[States], None] = lambda states: None
        self._pieces = self._all(states)

    @property
    def nbytes(self) -> int:
        """Bytes of both searches."""
        return sum(search.nbytes for search in self._searches.values())

    def learn(self, upper: int | None) -> None:
        """Only totals below ``upper`` matter from now on."""
        self._upper = self._upper if upper is None else min(self._upper, upper)

    def run(
        self,
        stop: Callable[[], bool],
        on_bounds: OnBounds,
        on_states: Callable[[States], None],
    ) -> None:
        """Go on until nothing is below the cut-off, nothing more can be done, or ``stop`` says so."""
        self._on_states, lower = on_states, self.lower
        try:
            for _ in self._pieces:
                if self.lower > lower:
                    lower = self.lower
                    on_bounds(lower, None)
                if stop():
                    return
            self.done = True
        except AgreementNoRoomError:
            self.hopeless = True
        self._searches.clear()

    def _all(self, states: States) -> Pieces[None]:
        """Look below one cut-off after the other."""
        yield from self._complete(states)
        step = max(1, (self._upper - self.lower) // _AGREEMENT_FIRST_PART)
        while self.lower < self._upper:
            yield from self._below(min(self.lower + step, self._upper))
            step *= 2
            yield

    def _complete(self, states: States) -> Pieces[None]:
        """Give the easy part the states that the hard one has at its best."""
        allowed = self._only([states[v] for v in self._in_hard])
        found = yield from self._cheapest(allowed, self._upper, self._least[0])
        if found is not None:
            self._see(found[1], states)

    def _below(self, cut_off: int) -> Pieces[None]:
        """Look for the least total below a cut-off, and raise the bound."""
        values = yield from self._values(cut_off)
        sizes = tuple(map(len, values))
        costs, known = np.full(sizes, np.inf), dict[tuple[int, ...], States]()
        for place in np.ndindex(sizes):
            allowed = self._only([own[i] for own, i in zip(values, place, strict=True)])
            found = yield from self._cheapest(allowed, cut_off, self._least[0])
            if found is not None:
                costs[place], known[place] = found
        if known:
            yield from self._search_hard(values, costs, known, cut_off)
        else:
            self._rise(cut_off)

    def _search_hard(
        self,
        values: list[NDArray[np.int64]],
        costs: NDArray[np.float64],
        known: dict[tuple[int, ...], States],
        cut_off: int,
    ) -> Pieces[None]:
        """Search the hard part, with the costs of the easy part at these values of the common variables."""
        own = dict(zip(self._in_hard, values, strict=True))
        network = self._hard.with_values(own, CostTable(tuple(own), costs))
        if search_bytes(network) > self.memory_bytes - self.nbytes:
            raise AgreementNoRoomError
        constant = self._network.constant
        search = self._searches["hard"] = Search(network, self._hard.order, cut_off - constant)

        def see(found: States) -> None:
            states = tuple(int(own[v][a]) if v in own else a for v, a in enumerate(found))
            self._see(known[tuple(found[v] for v in own)], states)

        outcome = yield from self._searched(search, self.lower - constant, see)
        self._rise(cut_off if outcome.total is None else constant + outcome.total)

    def _values(self, cut_off: int) -> Pieces[list[NDArray[np.int64]]]:
        """The values of each shared variable that the easy part can have for totals below a cut-off."""
        policy = ProverPolicy.current()
        left = [np.ones(self._network.dims[v], np.bool_) for v in self._shared]
        unknown = [values.copy() for values in left]
        for i, values in enumerate(left):
            while unknown[i].any():
                allowed = [unknown[i] if j == i else other for j, other in enumerate(left)]
                found = yield from self._cheapest(allowed, cut_off, math.inf)
                if found is None:
                    values &= ~unknown[i]
                    break
                for others, v in zip(unknown, self._in_easy, strict=True):
                    others[found[1][v]] = False
                some = (own & ~others for own, others in zip(left, unknown, strict=True))
                if math.prod(int(np.count_nonzero(own)) for own in some) > policy.agreement_assignments:
                    raise AgreementNoRoomError
        return [np.flatnonzero(values) for values in left]

    def _only(self, states: Sequence[int]) -> list[NDArray[np.bool_]]:
        """Allow shared variables only these."""
        return [np.arange(self._network.dims[v]) == a for v, a in zip(self._shared, states, strict=True)]

    def _cheapest(
        self, allowed: list[NDArray[np.bool_]], upper: int, enough: float
    ) -> Pieces[tuple[int, States] | None]:
        """Return the easy part's least cost and an assignment, for these values of the common variables.

        ``upper`` limits the total, with the least cost of the hard part. Any assignment with a cost of at most
        ``enough`` is returned.
        """
        search = self._searches.get("easy") or self._new_easy()
        own = [np.ones(d, np.bool_) for d in self._easy.network.dims]
        for v, values in zip(self._in_easy, allowed, strict=True):
            own[v] = values
        search.begin_anew(own, self._room(upper))
        yield
        outcome = yield from self._searched(search, enough, lambda states: None)
        return None if outcome.total is None or outcome.states is None else (outcome.total, outcome.states)

    def _new_easy(self) -> Search:
        """Lay out the search that is asked about the easy part."""
        if search_bytes(self._easy.network) > self.memory_bytes - self.nbytes:
            raise AgreementNoRoomError
        search = Search(self._easy.network, self._easy.order, self._room(self._upper))
        self._searches["easy"] = search
        return search

    def _room(self, upper: int) -> int:
        """Return the limit of the easy part's cost for totals below ``upper``."""
        return upper - self._network.constant - self._least[1]

    def _searched(self, search: Search, enough: float, on_states: Callable[[States], None]) -> Pieces[Outcome]:
        """Search until the search is finished, or an assignment costs at most ``enough``."""
        while True:
            search.memory_bytes = self.memory_bytes - (self.nbytes - search.nbytes)
            outcome, full = search_a_while(search, enough, on_states)
            if outcome.proved or (outcome.total is not None and outcome.total <= enough):
                return outcome
            if full:
                raise AgreementNoRoomError
            yield

    def _rise(self, lower: int) -> None:
        """Raise the bound, not above the cut-off."""
        self.lower = max(self.lower, min(lower, self._upper))

    def _see(self, easy: States, hard: States) -> None:
        """Put an assignment together."""
        states = [0] * len(self._network.dims)
        for section, own in ((self._easy, easy), (self._hard, hard)):
            for v, a in zip(section.variables, own, strict=True):
                states[v] = a
        self.learn(int(self._network.total(states)))
        self._on_states(tuple(states))


# Where a bucket tree is cut into a few connected parts that share few variables.


def cut_parts(network: CostNetwork, order: Sequence[int]) -> list[tuple[CostTable, ...]]:
    """Divide the functions among parts of the bucket tree of an order; one part if it has no narrow separators."""
    policy = ProverPolicy.current()
    if not policy.cut_least_variables < len(network.dims) <= _CUT_MOST_VARIABLES:
        return [network.tables]
    parents, contexts = bucket_parents(len(network.dims), network.scopes, order)
    return parts_below(network, order, _narrow(parents, [len(context) for context in contexts], order))


def parts_below(network: CostNetwork, order: Sequence[int], cuts: set[int]) -> list[tuple[CostTable, ...]]:
    """Divide the functions among the parts that remain when the subtrees of these variables are cut off."""
    parents, _ = bucket_parents(len(network.dims), network.scopes, order)
    place = {v: i for i, v in enumerate(order)}
    top = [-1] * len(parents)
    for v in reversed(order):
        top[v] = v if v in cuts else top[parents[v]] if parents[v] >= 0 else -1
    parts: dict[int, list[CostTable]] = {}
    for table in network.tables:
        parts.setdefault(top[min(table.scope, key=place.__getitem__)], []).append(table)
    return [tuple(tables) for tables in parts.values()]


def _narrow(parents: Sequence[int], widths: Sequence[int], order: Sequence[int]) -> set[int]:
    """The variables whose subtrees are cut off: the narrowest separators first, those in the middle among equals."""
    n = len(parents)
    left = [1] * n + [n]  # variables below, without what is cut off; the last is above all trees
    for v in order:
        if parents[v] >= 0:
            left[parents[v]] += left[v]
    cuts: set[int] = set()
    for v in sorted(order, key=lambda v: (widths[v], max(left[v], n - left[v]))):
        above = _path(parents, v, cuts)
        smaller = min(left[v], left[above[-1]] - left[v])
        if _CUT_LEAST_PART * smaller >= n and smaller > _CUT_SEPARATOR_RATIO * widths[v]:
            cuts.add(v)
            for u in above:
                left[u] -= left[v]
    return cuts


def _path(parents: Sequence[int], v: int, cuts: set[int]) -> list[int]:
    """Return the ancestors of a variable within its part; -1 stands above all trees."""
    path = [parents[v]]
    while path[-1] >= 0 and path[-1] not in cuts:
        path.append(parents[path[-1]])
    return path
