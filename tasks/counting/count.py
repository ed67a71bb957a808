"""Models of clauses, counted or weighed, within memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .components import enter_all, forget
from .count_policy import CountPolicy
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
from .loops import CROWDED, FINISHED, FULL, SHALLOW, begin_branch, count, decide
from .numbers import as_integer


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
        Decisions, components that were known, and known ones that made room for others.
    """

    value: int
    log: float
    nodes: int
    hits: int
    forgotten: int


class Count:
    """A count of models, or a sum of what they weigh, in several orders that take turns until one is through.

    Parameters
    ----------
    orders : sequence of Clauses
        The same clauses and weights, with different ranks.
    memory_bytes : int
        For everything; components that are known make room for others.
    """

    def __init__(self, orders: Sequence[Clauses], memory_bytes: int):
        self.searches = [_Search(clauses, memory_bytes // len(orders)) for clauses in orders]
        self.turn = CountPolicy.current().first_work

    def limit(self, memory_bytes: int) -> None:
        """Go on within so many bytes.

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

    def run(self, most_work: float, stop: Callable[[], bool] = bool) -> Counted | None:
        """Go on until it is counted, so much work was done in all, or it is told to end; None if it was not.

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

    def __init__(self, clauses: Clauses, memory_bytes: int):
        self.clauses, self.memory_bytes = clauses, memory_bytes
        self.state = new_state(clauses)
        longest = len(clauses.rank) + len(clauses.first)
        entries = CountPolicy.current().first_entries
        keys, limbs = (max(most, entries) * 4 for most in (longest, self.state.sums.shape[1]))
        self.known = new_known(entries, keys, limbs, wide=longest > 1 << 16)
        self._check_room()
        self.possible = _begun(clauses, self.state, self.known)
        self.finished = not self.possible

    @property
    def work(self) -> int:
        return int(self.state.counters[WORK])

    def advance(self) -> None:
        """Make some decisions, or room for more."""
        policy = CountPolicy.current()
        status = count(self.clauses, self.state, self.known, int(self.state.counters[NODES]) + policy.turn_nodes)
        if status == CROWDED:
            left = self.memory_bytes - nbytes(self.clauses, self.state)
            self.known = _with_room(self.known, self.state, int(policy.known_share * left))
        elif status in (SHALLOW, FULL):
            self.state = grown(self.state, depth=status == SHALLOW)
            self._check_room()
        self.finished = status == FINISHED

    def limit(self, memory_bytes: int) -> None:
        """Go on within so many bytes."""
        self.memory_bytes = memory_bytes
        self._check_room()

    def _check_room(self) -> None:
        if nbytes(self.clauses, self.state, self.known) > self.memory_bytes:
            raise CountNoRoomError

    def found(self) -> Counted:
        """Return what was counted."""
        return _found(self.clauses, self.state) if self.possible else Counted(0, -math.inf, 0, 0, 0)


def _begun(clauses: Clauses, state: CountState, known: ComponentCache) -> bool:
    """Decide units, and begin with what is left; return whether no clause is violated."""
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
    begin_branch(clauses, state, known, 0)
    return True


def _with_room(known: ComponentCache, state: CountState, memory_bytes: int) -> ComponentCache:
    """Make room for more components: more memory for what is half full, or else half of them are forgotten."""
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
