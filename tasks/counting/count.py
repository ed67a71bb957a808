"""Models of clauses, counted or weighed, within memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..steps.policy import Policy
from .components import enter_all, forget
from .count_state import (
    DEPTH,
    ENTRIES,
    FIRST,
    FORGOTTEN,
    HITS,
    KEYS,
    LAST,
    LIMBS,
    NEXT,
    NODE,
    NODES,
    PARTS,
    WORK,
    Array,
    Clauses,
    ComponentCache,
    CountState,
    grown,
    nbytes,
    new_known,
    new_state,
)
from .loops import (
    CROWDED,
    FINISHED,
    FULL,
    LONG,
    MOST_NODES,
    NO_NODE,
    SHALLOW,
    SearchTrace,
    as_integer,
    begin_branch,
    count,
    decide,
    grown_trace,
    new_trace,
)


@dataclass(frozen=True)
class CountPolicy(Policy):
    """The numbers behind turns and memory of a count.

    Parameters
    ----------
    first_entries : int
        Initial capacity of the cache, which doubles as it fills.
    """

    first_entries: int = 1 << 14


# Nodes between two checks: some milliseconds.
_TURN_NODES: Final = 1 << 8
# Work of an order before the next order's turn; each round doubles it.
_FIRST_WORK: Final = 1 << 21
# Maximum fraction of the memory for cached components, because the decisions may need more.
_KNOWN_SHARE: Final = 0.75
# Maximum fraction of the memory for cached components if the search is traced, because the trace needs memory too.
_TRACED_KNOWN_SHARE: Final = _KNOWN_SHARE / 2


class CountNoRoomError(Exception):
    """A count does not fit its memory."""


@dataclass(frozen=True)
class Counted:
    """What was counted.

    Parameters
    ----------
    value : int
        The number of models; 0 where weights were given.
    log : float
        Natural logarithm of the sum of weights, -inf for 0.
    nodes, hits, forgotten : int
        Numbers of decisions, of cached components, and of cached components that were dropped.
    trace : SearchTrace or None
        The trace of the search, if requested.
    root : int
        Of the trace, as a child; -1 where there is no model.
    """

    value: int
    log: float
    nodes: int
    hits: int
    forgotten: int
    trace: SearchTrace | None = None
    root: int = NO_NODE


class Count:
    """A count of models, or a sum of their weights, in several orders that take turns until one ends.

    Parameters
    ----------
    orders : sequence of Clauses
        The same clauses and weights, with different ranks.
    memory_bytes : int
        For everything; components that are known make room for others.
    traced : bool
        Whether the search is written down as a circuit; of clauses without hidden variables.
    """

    def __init__(self, orders: Sequence[Clauses], memory_bytes: int, traced: bool = False):
        self.searches = [_Search(clauses, memory_bytes // len(orders), traced) for clauses in orders]
        self.turn = _FIRST_WORK

    def limit(self, memory_bytes: int) -> None:
        """Continue within ``memory_bytes`` bytes.

        Raises
        ------
        NoRoomError
            If more are held already.
        """
        for search in self.searches:
            search.limit(memory_bytes // len(self.searches))

    @property
    def work(self) -> int:
        """Uses of literals that were looked at so far, some nanoseconds each."""
        return sum(search.work for search in self.searches)

    @property
    def held_bytes(self) -> int:
        """Bytes held now."""
        return sum(search.held_bytes for search in self.searches)

    @property
    def trace_sizes(self) -> list[tuple[int, int]]:
        """How many nodes and children the trace of each order has so far."""
        return [search.trace.size for search in self.searches]

    def run(self, most_work: float, stop: Callable[[], bool] = bool) -> Counted | None:
        """Continue until the count is complete, ``most_work`` is done in total, or ``stop`` says so.

        Return None if it is incomplete.

        Raises
        ------
        NoRoomError
            If even what is decided does not fit memory.
        """
        while True:
            for search in self.searches:
                until = search.work + self.turn
                while not search.finished and search.work < until:
                    if self.work >= most_work or stop():
                        return None
                    search.advance()
                if search.finished:
                    return search.found()
            self.turn *= 2


class _Search:
    """A depth-first search in one order."""

    def __init__(self, clauses: Clauses, memory_bytes: int, traced: bool):
        self.clauses, self.memory_bytes = clauses, memory_bytes
        self.state = new_state(clauses)
        longest = len(clauses.rank) + len(clauses.first)
        entries = CountPolicy.current().first_entries
        keys, limbs = (max(most, entries) * 4 for most in (longest, self.state.sums.shape[1]))
        self.known = new_known(entries, keys, limbs, wide=longest > 1 << 16, traced=traced)
        self.trace = new_trace(len(clauses.rank), entries if traced else 0)
        self._check_room()
        self.possible = _begun(clauses, self.state, self.known, self.trace)
        self.finished = not self.possible

    @property
    def work(self) -> int:
        return int(self.state.counters[WORK])

    @property
    def nodes(self) -> int:
        """Decisions so far."""
        return int(self.state.counters[NODES])

    @property
    def held_bytes(self) -> int:
        """Bytes of all arrays."""
        return nbytes(self.clauses, self.state, self.known, self.trace)

    def advance(self) -> None:
        """Make some decisions, or room for more."""
        status = count(self.clauses, self.state, self.known, self.trace, self.nodes + _TURN_NODES)
        if status == CROWDED:
            left = self.memory_bytes - nbytes(self.clauses, self.state, self.trace)
            share = _TRACED_KNOWN_SHARE if len(self.trace.starts) else _KNOWN_SHARE
            self.known = _with_room(self.known, self.state, int(share * left))
        elif status in (SHALLOW, FULL):
            self.state = grown(self.state, depth=status == SHALLOW)
            self._check_room()
        elif status == LONG:
            self.trace = grown_trace(self.trace)
            self._check_room()
        self.finished = status == FINISHED

    def limit(self, memory_bytes: int) -> None:
        """Continue within ``memory_bytes`` bytes."""
        self.memory_bytes = memory_bytes
        self._check_room()

    def _check_room(self) -> None:
        if self.held_bytes > self.memory_bytes or len(self.trace.is_sum) > MOST_NODES:
            raise CountNoRoomError

    def found(self) -> Counted:
        """Return the count."""
        found = _found(self.clauses, self.state) if self.possible else Counted(0, -math.inf, 0, 0, 0)
        if not len(self.trace.starts):
            return found
        return replace(found, trace=self.trace, root=int(self.state.frames[0, NODE]) if self.possible else NO_NODE)


def _begun(clauses: Clauses, state: CountState, known: ComponentCache, trace: SearchTrace) -> bool:
    """Decide unit clauses, and begin with the rest; return whether no clause is violated."""
    lengths = np.diff(clauses.first)
    if len(lengths) and lengths.min() == 0:
        return False
    for c in np.flatnonzero(lengths == 1):
        literal = int(clauses.literals[clauses.first[c]])
        known_value = int(state.value[literal >> 1])
        if known_value == literal & 1 or (known_value == -1 and not decide(clauses, state, literal)):
            return False
    n = len(clauses.rank)
    state.store[:n] = np.arange(n)
    state.part_middle[0] = state.part_first[1] = n
    state.counters[PARTS] = state.counters[DEPTH] = 1
    state.frames[0, [NEXT, FIRST, LAST]] = 1
    state.frames[0, NODE] = NO_NODE
    begin_branch(clauses, state, known, trace, 0)
    return True


def _with_room(known: ComponentCache, state: CountState, memory_bytes: int) -> ComponentCache:
    """Make room for more components: double a half-full cache, or drop half of the components."""
    counters = state.counters
    changes: dict[str, Array] = {}
    for used, names in ((ENTRIES, ("hashes", "entries", "floats")), (KEYS, ("keys",)), (LIMBS, ("limbs",))):
        arrays = {name: getattr(known, name) for name in names}
        if 2 * counters[used] > len(arrays[names[0]]):
            changes |= {name: np.concatenate([array, np.zeros_like(array)]) for name, array in arrays.items()}
    larger = known._replace(**changes)
    if "entries" in changes:
        larger = larger._replace(slots=np.zeros(2 * len(known.slots), dtype=np.int32))
    if nbytes(known, larger) > memory_bytes:
        forget(state, known)
        return known
    if "entries" in changes:
        enter_all(state, larger)
    return larger


def _found(clauses: Clauses, state: CountState) -> Counted:
    counters = state.counters
    figures = int(counters[NODES]), int(counters[HITS]), int(counters[FORGOTTEN])
    if len(clauses.weights):
        mantissa, exponent = state.float_sums[0].tolist()
        return Counted(0, math.log(mantissa) + exponent * math.log(2) if mantissa else -math.inf, *figures)
    value = as_integer(state.sums[0, : state.lengths[0, 0]])
    return Counted(value, math.log(value) if value else -math.inf, *figures)
