"""The best assignments in order without stored tables: a search pruned by the value of the last requested assignment.

Any engine proves the optimum first. A best-first search then reports every assignment below a pruning value. This value
decreases to the value of the M-th best assignment found so far. An assignment gets its rank once no open node can have
a better value.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from itertools import count
from typing import Any, Final

import numpy as np

from ...tasks.steps.number_limits import CELL_BYTES
from ..cost_networks.cost_network import CostNetwork, Costs, CostTable, States, cost_network
from ..cost_networks.preparation import PreparedNetwork, prepare
from ..errors import BudgetError, InternalError, format_bytes
from ..orders.depth_first import depth_first_order
from ..preprocessing.preprocess import Network, full_states
from ..proofs.prover_policy import MEMORY_PART, ProverPolicy
from ..proofs.provers.branch_and_bound import EverySearch, search_bytes
from ..proofs.provers.clusters import EveryClusterBounds, is_mesh
from ..proofs.provers.russian_dolls import RussianDolls, doll_bytes
from ..queries.arithmetic import CostOptimum, EnergyOptimum

# Clusters of a mesh shift costs before a search for at most this part of its time; 0.1 to 0.6 s on UAI grids.
_CLUSTERS_SHARE: Final = 0.25
# Before a search, the neighbours (one variable changed) of this many best assignments are evaluated.
_NEAR_MOST: Final = 32

# Bytes of a stored assignment, without the bytes of its states.
_HELD_BYTES = 400


class _Neighbours:
    """The neighbours of an assignment, which differ from it in one variable, by the change of the total.

    The neighbours of similar assignments have mostly the same changes. Only variables that share a table with a changed
    variable are evaluated again.
    """

    def __init__(self, costs: CostNetwork) -> None:
        self._dims = costs.dims
        self._tables = defaultdict[int, list[CostTable]](list)
        for table in costs.tables:
            for v in table.scope:
                self._tables[v].append(table)
        self._states: States = ()
        self._costs: list[Costs] = []

    def best(self, states: States, most: int) -> list[tuple[float, States]]:
        """Return the neighbours with the smallest changes, the smallest change first."""
        self._turn_to(states)
        found = list[tuple[float, int, int]]()
        for v, costs in enumerate(self._costs):
            own = costs[states[v]]
            found += [(costs[a] - own, v, a) for a in np.flatnonzero(costs < math.inf).tolist() if a != states[v]]
        return [(change, (*states[:v], a, *states[v + 1 :])) for change, v, a in nsmallest(most, found)]

    def _turn_to(self, states: States) -> None:
        """Move to an assignment: add up the tables of each variable, for each of its states, with all other states
        fixed.
        """
        if self._costs:
            other = [v for v, (old, new) in enumerate(zip(self._states, states, strict=True)) if old != new]
            moved: Iterable[int] = {u for v in other for table in self._tables[v] for u in table.scope}
        else:
            self._costs, moved = [np.zeros(dim) for dim in self._dims], range(len(self._dims))
        for v in moved:
            costs = np.zeros(self._dims[v])
            for table in self._tables[v]:
                costs += table.costs[tuple([slice(None) if u == v else states[u] for u in table.scope])]
            self._costs[v] = costs
        self._states = states


@dataclass
class SearchedRanking:
    """Assignments of local variables in the order of their values, from a search.

    Parameters
    ----------
    arithmetic : CostOptimum or EnergyOptimum
        The arithmetic of the network.
    fixed : int or float
        Value of the functions that are constant under the evidence.
    optimum : tuple of int
        Local states of an optimal assignment.
    most : int or None
        Maximum number of assignments; None for all.
    memory_bytes : int
        Memory for the search and for the assignments found.
    seconds : float
        Wall seconds of the search.
    seed : int

    Attributes
    ----------
    best : int or float
        The value of the optimum.
    why_open : str
        Why the search ended before all requested assignments had a rank; empty if it did not.
    """

    arithmetic: CostOptimum | EnergyOptimum
    fixed: Any
    optimum: States
    most: int | None
    memory_bytes: int
    seconds: float
    seed: int = 0
    _limit: Any = math.inf
    _found: list[tuple[Any, int, States]] = field(default_factory=list)
    _worths: dict[States, Any] = field(default_factory=dict)
    _listed: set[States] = field(default_factory=set)
    _least: list[Any] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _searches: list[EverySearch | RussianDolls] = field(default_factory=list)
    _restored: Callable[[States], States] = tuple
    _spent: float = 0.0
    _finished: bool = False
    _optima: list[States] | None = None

    def __post_init__(self) -> None:
        self.network: Network = self.arithmetic.network
        self.costs, self.units = cost_network(self.network)
        self.best: Any = self.worth(self.optimum)
        self.why_open = ""
        self._turn_seconds = ProverPolicy.current().first_turn_seconds
        if self.best is None:
            raise InternalError("the optimum is forbidden")

    @property
    def open_from(self) -> Any:
        """A proved lower bound on the value of the next assignment."""
        if self._finished:
            return math.inf
        return max([self.best, *(self._at_least(search.lower) for search in self._searches)])

    @property
    def next_known(self) -> Any:
        """The value of the best assignment without a proved rank; None if there is none."""
        return self._found[0][0] if self._found else None

    def worth(self, states: States) -> Any:
        """Return the exact value of an assignment without the constant functions; None if it is forbidden."""
        if self.units.exact:
            total = self.costs.total(states)
            return int(total) if total < math.inf else None
        model, full = self.network.model, self._full(states)
        if isinstance(self.arithmetic, CostOptimum):
            cost = model.cost(full)
            return None if cost is None else cost - self.fixed - self._offset
        log10 = model.log10_value(full)
        return None if log10 == -math.inf else float(self.fixed) - log10 * math.log(10)

    def ranked(self, limit: Any = math.inf) -> Iterator[tuple[Any, Mapping[int, int]]]:
        """Yield the value and the states of one assignment after another, up to a value, while time remains.

        Yields
        ------
        int or float
        mapping of int to int
            A state of each local variable.

        Raises
        ------
        BudgetError
            If the assignments that wait for their ranks do not fit in memory.
        """
        if self._optima is not None and limit == self.best:
            yield from [(self.best, dict(enumerate(states))) for states in self._optima[: self.most]]
            return
        if self.most == 0:
            return
        self._begin(limit)
        while self.most is None or len(self._listed) < self.most:
            if self._is_ready():
                worth, _, states = heappop(self._found)
                key = self._key(states)
                if key not in self._listed:
                    self._listed.add(key)
                    yield worth, dict(enumerate(states))
            elif self._finished or not self._go_on():
                return

    def optimal_count(self, most: int) -> int | None:
        """Return the number of optimal assignments; None if it exceeds ``most``, or if the time ends first."""
        if not self.units.exact:
            return None
        all_best = SearchedRanking(
            self.arithmetic, self.fixed, self.optimum, most + 1, self.memory_bytes, self.seconds, self.seed
        )
        found = [tuple(states.values()) for _, states in all_best.ranked(self.best)]
        self._spent += all_best._spent
        if all_best.why_open or len(found) > most:
            return None
        self._optima = found
        return len(found)

    # Before the search.

    def _begin(self, limit: Any) -> None:
        """Evaluate neighbours of the optimum, which give a first pruning value, and prepare the search below this
        value.
        """
        self._limit = limit
        self._take(self.optimum)
        if self.most is not None:
            self._look_near(self.most)
        if self._cut is not None and self._cut <= self.best:
            return  # all requested assignments are known, because enough of them are optimal
        started, upper = time.perf_counter(), self._upper
        prepared = self._prepared(upper)
        network, self._restored = prepared.network, prepared.network.restored
        if not prepared.feasible:
            self._finished = True
        elif not network.dims:
            self._take(self._restored(()))
            self._finished = True
        else:
            self._lay_out(network, upper)
        self._spent += time.perf_counter() - started

    def _prepared(self, upper: int | None) -> PreparedNetwork:
        """Make the network smaller. Clusters of a mesh then shift costs, and their far better bound makes it smaller
        again.
        """
        prepared = prepare(self.costs, upper, keep_all=True)
        network = prepared.network
        if upper is None or not (prepared.feasible and network.dims and is_mesh(network)):
            return prepared
        until = time.perf_counter() + _CLUSTERS_SHARE * self.seconds
        bounds = EveryClusterBounds(network, upper)
        bounds.memory_bytes = self.memory_bytes
        bounds.run(lambda: time.perf_counter() >= until, lambda lower, total: None, lambda states: None)
        sharp = bounds.sharpened
        if sharp is None or search_bytes(sharp) > self.memory_bytes:
            return prepared
        return prepare(sharp, upper, keep_all=True)

    def _lay_out(self, network: CostNetwork, upper: int | None) -> None:
        """Lay out a tree search. Below a pruning value, add Russian dolls if they are possible and fit in memory."""
        nbytes = search_bytes(network)
        self._need(nbytes, "the tables of a search")
        order = depth_first_order(network.dims, network.scopes, seed=self.seed)
        self._searches = [EverySearch(network, order, upper)]
        if upper is not None and nbytes + doll_bytes(network) <= self.memory_bytes:
            dolls = RussianDolls(network, upper, every=True)
            self._searches += [dolls] if dolls.possible else []

    def _look_near(self, most: int) -> None:
        """Evaluate the neighbours of the best assignments, to get a first pruning value."""
        looked, near = set[States](), _Neighbours(self.costs)
        for _ in range(min(most, _NEAR_MOST)):
            left = [entry for entry in self._found if entry[2] not in looked]
            if not left or (self._cut is not None and self._cut <= self.best):
                return
            worth, _, states = min(left)
            looked.add(states)
            for change, neighbour in near.best(states, most):
                # changes of integer costs are exact
                if self.units.exact and self._cut is not None and worth + change >= self._cut:
                    break
                self._take(neighbour)

    # The search.

    def _go_on(self) -> bool:
        """Search in growing time slices until one more assignment has a rank; return False if time or memory ends
        first.
        """
        if not self._searches:
            return False
        now = started = time.perf_counter()
        until, idle = started + self.seconds - self._spent, 0
        while not (self._finished or self._is_ready() or idle == len(self._searches) or now >= until):
            search = self._searches[0]
            end = until if len(self._searches) == 1 else min(until, now + self._turn_seconds)
            others = sum(other.nbytes for other in self._searches[1:])
            search.memory_bytes = max(self.memory_bytes - self._held_bytes - others, 0)
            search.learn(self._upper)
            search.run(partial(self._is_ready_or_late, end), on_states=self._met)
            self._finished = search.finished
            now = time.perf_counter()
            if not (self._finished or self._is_ready()):
                # a search that ends early has no memory to continue
                idle = idle + 1 if now < end else 0
                self._turn_seconds *= 1 if idle else 2
                self._searches.append(self._searches.pop(0))
        self._spent += now - started
        if self._finished or self._is_ready():
            return True
        self.why_open = "the time was over" if now >= until else "memory was used up"
        return False

    def _met(self, states: States) -> None:
        """Take an assignment from the search, and update the search's pruning value."""
        if self._take(self._restored(states)):
            self._searches[0].learn(self._upper)

    def _is_ready(self) -> bool:
        """Whether no open node can be better than the best unlisted assignment."""
        return bool(self._found) and bool(self._found[0][0] <= self.open_from)

    def _is_ready_or_late(self, end: float) -> bool:
        return self._is_ready() or time.perf_counter() >= end

    def _take(self, states: States) -> bool:
        """Store an assignment if it is allowed and may be among the requested ones; return whether it is new."""
        worth = self.worth(states)
        if worth is None or worth > self._limit or (self._cut is not None and worth >= self._cut):
            return False
        key = self._key(states)
        before = self._worths.get(key, math.inf)
        if before <= worth:
            return False
        self._worths[key] = worth
        heappush(self._found, (worth, next(self._numbers), states))
        if self.most is not None:
            if before < math.inf:  # the same assignment, with other states of hidden variables
                self._least.remove(-before)
                heapify(self._least)
            (heapreplace if len(self._least) >= self.most else heappush)(self._least, -worth)
            if len(self._found) > 2 * self.most + 64:
                self._forget(self.most)
        self._need(MEMORY_PART * self._held_bytes, "assignments that are not ranked yet")
        return True

    def _forget(self, most: int) -> None:
        """Drop assignments beyond the requested number."""
        self._found = nsmallest(most, self._found)
        held = {self._key(states) for _, _, states in self._found} | self._listed
        self._worths = {key: worth for key, worth in self._worths.items() if key in held}

    # The pruning value.

    @property
    def _cut(self) -> Any:
        """The worth from which nothing more is asked for; None where that is not known."""
        return -self._least[0] if self.most is not None and len(self._least) >= self.most else None

    @property
    def _upper(self) -> int | None:
        """The pruning value as a total: exclusive, and at most the limit."""
        uppers = [] if self._limit == math.inf else [self.units.above_total(self._limit + self._offset)]
        if self._cut is not None:
            # of exact costs nothing is looked for that is worth just as much
            above = self.units.above_total(self._cut + self._offset)
            uppers.append(above - 1 if self.units.exact else above)
        return min(uppers, default=None)

    def _at_least(self, total: int) -> Any:
        """Return a lower limit of the value of an assignment with this total or a larger one."""
        return self.units.at_least(total) - self._offset

    @property
    def _offset(self) -> int:
        """Constant part of the network's costs."""
        return self.arithmetic.scale.offset if isinstance(self.arithmetic, CostOptimum) else 0

    def _full(self, states: States) -> list[int]:
        return full_states(self.network, dict(enumerate(states)))

    def _key(self, states: States) -> States:
        """Return the key that identifies an assignment: the states of the model's own variables."""
        model = self.network.model
        return tuple(self._full(states)[: len(model.own_names)]) if model.hidden else states

    @property
    def _held_bytes(self) -> int:
        """Bytes of the assignments found so far."""
        return len(self._worths) * (_HELD_BYTES + 2 * CELL_BYTES * len(self.network.model.dims))

    def _need(self, nbytes: int, what: str) -> None:
        if nbytes > self.memory_bytes:
            raise BudgetError(
                f"{what} take {format_bytes(nbytes)}, allowed {format_bytes(self.memory_bytes)}; give more memory, or "
                "ask for fewer"
            )
