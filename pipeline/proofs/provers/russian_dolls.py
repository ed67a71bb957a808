"""Russian doll search, for networks whose functions between variables only forbid, in an order such as time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.compiler.working_time import LOOK_SECONDS
from ...cost_networks.cost_network import CostNetwork, CostTable, States
from ..limits import OnBounds, Outcome
from ..prover import SearchProver
from ..prover_policy import SEARCHED_CELLS, ProverPolicy

# Russian dolls are too hard if none is solved in this many CPU seconds.
_DOLL_SECONDS: Final = 1.0

# Networks whose functions only forbid, apart from costs of single values, as a Russian doll search has them.

#: Costs that add up to at most this stay exact.
_MOST = float(1 << 52)
#: Arrays of the search with one number per variable, all zero before it starts.
_OF_VARIABLES = ("rise", "before", "risen", "marks", "tried", "states", "best")

Costs = NDArray[np.float64]


def separated(network: CostNetwork) -> tuple[list[Costs], list[CostTable], int] | None:
    """Move the costs of single values out of the functions; None if functions keep costs of their own.

    This undoes cost shifts between functions, so that hard functions only forbid again.

    Parameters
    ----------
    network : CostNetwork
    """
    policy = ProverPolicy.current()
    from ....tasks.search.russian_dolls import separate

    if network.cells > SEARCHED_CELLS:
        return None
    unary, tables, soft, most = [np.zeros(d) for d in network.dims], [], 0, 0.0
    n_tables = sum(len(scope) > 1 for scope in network.scopes)
    projected: list[Costs] = [np.zeros(1)]
    for table in network.tables:
        shape = table.costs.shape
        found = np.empty(sum(shape))
        if separate(np.ascontiguousarray(table.costs).reshape(-1), np.array(shape), found):
            rest = np.where(table.costs < np.inf, 0.0, np.inf)
        else:
            soft += 1
            rest, found = _projected(table.costs)
            most += float(rest[np.isfinite(rest)].max(initial=0.0))
        # Russian dolls are only fast if most functions forbid
        if soft > policy.dolls_soft_share * n_tables:
            return None
        start = 0
        for x, d in zip(table.scope, shape, strict=True):
            unary[x] += found[start : start + d]
            start += d
            projected.append(found)
        if len(table.scope) == 1:
            unary[table.scope[0]] += rest
        else:
            tables.append(CostTable(table.scope, rest))
    if most + _greatest(projected) > _MOST:
        return None
    least = [float(costs.min()) if np.isfinite(costs).any() else 0.0 for costs in unary]
    unary = [costs - low for costs, low in zip(unary, least, strict=True)]
    return unary, tables, network.constant + int(math.fsum(least))


def _greatest(parts: list[Costs]) -> float:
    """Return the sum of the largest finite absolute values of some arrays."""
    sizes = np.array([len(part) for part in parts], np.intp)
    entries = np.abs(np.concatenate(parts))
    entries[entries == np.inf] = 0.0
    return math.fsum(np.maximum.reduceat(entries, np.cumsum(sizes) - sizes))


def _projected(costs: Costs) -> tuple[Costs, Costs]:
    """Return a table less what each value costs at least, one axis after the other, and these costs."""
    found = []
    for axis in range(costs.ndim):
        least = costs.min(axis=tuple(other for other in range(costs.ndim) if other != axis), keepdims=True)
        costs = costs - np.where(np.isfinite(least), least, 0.0)
        found.append(least.reshape(-1))
    return costs, np.concatenate(found)


def laid_out(unary: list[Costs], tables: list[CostTable], order: Sequence[int]) -> Any:
    """Return the state of a search that decides variables in an order and has not begun.

    Parameters
    ----------
    unary : list of ndarray
        By variable, the costs of its values, float64.
    tables : list of CostTable
        Functions of two variables, which become rows of entries by value, and wider ones, which keep strides.
    order : sequence of int
        All variables, the first to be decided first (Russian doll search: Verfaillie, Lemaître & Schiex, AAAI 1996).

    Returns
    -------
    DollState
        Flat arrays of int64 for the compiled search, by the places of variables in the order.
    """
    from ....tasks.search.russian_dolls import NUMBERS, DollState
    from ....tasks.search.state import integers, joined_integers

    n, place = len(order), {v: i for i, v in enumerate(order)}
    first = _begins(len(unary[v]) for v in order)
    costs = integers(np.concatenate([unary[v] for v in order]))
    rows: list[list[tuple[int, int]]] = [[] for _ in costs]
    functions: list[list[tuple[tuple[int, ...], tuple[int, ...], int]]] = [[] for _ in order]
    entries, size, changes, saved = [np.zeros(1)], 1, 1, 1
    for table in tables:
        axes = sorted(range(len(table.scope)), key=[place[v] for v in table.scope].__getitem__)
        scope, own = tuple([place[table.scope[axis]] for axis in axes]), table.costs.transpose(axes)
        if own.ndim == 2:
            costly: list[bool] = np.logical_or.reduce(own, axis=1).tolist()
            for a, some in enumerate(costly):
                if some:
                    rows[first[scope[0]] + a].append((scope[1], size + a * own.shape[1]))
        else:
            strides = tuple(np.cumprod(own.shape[:0:-1])[::-1].tolist())
            # a function becomes unary once all but its last variable are decided
            functions[scope[-2]].append((scope, strides, size))
        entries.append(own)
        size, changes, saved = size + own.size, changes + 1, saved + own.shape[-1]
    flat = [function for own in functions for function in own]
    begins = _begins(len(scope) - 1 for scope, _, _ in flat)
    numbers = [(begin, scope[-1], at) for begin, (scope, _, at) in zip(begins, flat, strict=False)]
    axes_of = [pair for scope, strides, _ in flat for pair in zip(scope[:-1], strides, strict=True)]
    return DollState(
        first=first,
        unary=costs,
        rows=_begins(map(len, rows)),
        row=_records([row for own in rows for row in own], 2),
        wide=_begins(map(len, functions)),
        function=_records([*numbers, (len(axes_of), 0, 0)], 3),
        axes=_records(axes_of, 2),
        entries=joined_integers(entries),
        doll=np.zeros(n + 1, dtype=np.int64),
        costs=costs.copy(),
        least=np.minimum.reduceat(costs, first[:-1]),
        trail=np.zeros((changes, 3), dtype=np.int64),
        saved=np.zeros(saved, dtype=np.int64),
        values=np.zeros_like(costs),
        numbers=np.zeros(NUMBERS, dtype=np.int64),
        **{name: np.zeros(n, dtype=np.int64) for name in _OF_VARIABLES},
    )


def _begins(sizes: Any) -> NDArray[np.int64]:
    """Return the start of each part, and the end of the last one."""
    return np.cumsum([0, *sizes], dtype=np.int64)


def _records(rows: Sequence[tuple[int, ...]], size: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, size)


#: Bytes that cells, and tables, take while a search is laid out.
_CELL_BYTES, _TABLE_BYTES = 32, 1200


def doll_bytes(network: CostNetwork) -> int:
    """Bytes that laying a network out takes at most."""
    return _CELL_BYTES * network.cells + _TABLE_BYTES * len(network.tables)


class RussianDolls:
    """A search for the least total below ``upper`` that goes on where it was stopped.

    Variables are decided in the reverse of their order in the network, so each doll has one more of the first
    variables. The order in files is often an order in time or space, which elimination orders ignore.

    Parameters
    ----------
    network : CostNetwork
    upper : int or None
        Exclusive; None for no limit.
    every : bool
        Whether to report every assignment below the pruning value, each once and unordered, instead of the best one.

    Attributes
    ----------
    memory_bytes
        Ignored: all memory is allocated at the start, see :func:`doll_bytes`.
    possible : bool
        Whether functions only forbid, once costs of single values are apart.
    lower : int
        No total is below it, or below the cut-off.
    """

    memory_bytes: float = math.inf

    def __init__(self, network: CostNetwork, upper: int | None, every: bool = False) -> None:
        self.lower, self._every = network.least, every
        self._network, self._upper, self._pace = network, upper, 1
        self._order, self._doll = range(len(network.dims))[::-1], len(network.dims) - 1
        self._states: States | None = None
        self._finished = self._begun = False
        found = separated(network)
        self.possible = found is not None
        if found is None:
            return
        unary, tables, self._constant = found
        self._finished = any(not np.isfinite(costs).any() for costs in unary)
        self._state = laid_out(unary, tables, self._order)

    @property
    def hopeless(self) -> bool:
        """Whether functions have costs of their own."""
        return not self.possible

    @property
    def finished(self) -> bool:
        """Whether nothing below the cut-off is left."""
        return self._finished

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return sum(array.nbytes for array in self._state) if self.possible else 0

    @property
    def dolls_left(self) -> int:
        """Problems that are not solved yet, the whole one too."""
        return self._doll + 1

    def learn(self, upper: int | None) -> None:
        """Search only below ``upper`` from now on."""
        from ....tasks.search.russian_dolls import UPPER

        if upper is None or (self._upper is not None and self._upper <= upper):
            return
        self._upper = upper
        if self.possible and self._begun:
            self._state.numbers[UPPER] = min(self._state.numbers[UPPER], self._room())

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bounds: OnBounds = lambda lower, total: None,
        on_states: Callable[[States], None] = lambda states: None,
    ) -> Outcome:
        """Continue until the proof is complete or ``stop`` says so; bounds are reported after each doll."""
        from ....tasks.search.russian_dolls import FOUND

        while self.possible and not (self._finished or stop()):
            if not self._begun:
                self._begin()
            if self._explore():
                self._end()
                on_bounds(self.lower, None)
            elif self._met:
                self._state.numbers[FOUND] = 0
                on_states(self._best())
        if not self._finished:
            return Outcome(self.lower)
        if self._states is None:
            return Outcome(self.lower, feasible=False)
        return Outcome(self.lower, self.lower, self._states)

    def _room(self) -> int:
        """Return the limit of a doll's cost for totals below the pruning value."""
        from ....tasks.search.state import INF

        if self._upper is None:
            return INF
        return max(self._upper - self._constant, 0)

    def _begin(self) -> None:
        from ....tasks.search.russian_dolls import EVERY, FOUND, UPPER, begin_doll

        begin_doll(self._state, self._doll, self._room())
        self._begun = True
        if self._every and self._doll == 0:
            # the extension of the last doll's best assignment is found again
            numbers = self._state.numbers
            numbers[EVERY], numbers[FOUND], numbers[UPPER] = 1, 0, self._room()

    @property
    def _met(self) -> bool:
        """Whether exploring ended with one of all that are wanted."""
        from ....tasks.search.russian_dolls import EVERY, FOUND

        return bool(self._state.numbers[EVERY] and self._state.numbers[FOUND])

    def _best(self) -> States:
        """The best assignment, or the last one found."""
        states = np.empty(len(self._order), dtype=np.int64)
        states[list(self._order)] = self._state.best
        return tuple(states.tolist())

    def _explore(self) -> bool:
        """Explore some nodes; True once the doll is finished."""
        from ....tasks.search.russian_dolls import explore

        start = time.process_time()
        finished = explore(self._state, self._pace)
        taken = time.process_time() - start
        if taken > LOOK_SECONDS:
            self._pace = max(1, self._pace // 2)
        elif not (finished or self._met):
            self._pace *= 2
        return bool(finished)

    def _end(self) -> None:
        """Store the cost of the doll; a cost that reaches the pruning value proves that no total is below it."""
        from ....tasks.search.russian_dolls import UPPER

        least = int(self._state.numbers[UPPER])
        self._state.doll[self._doll] = least
        self._begun = False
        if least >= self._room():
            self._finished = True
            self.lower = self.lower if self._upper is None else max(self.lower, self._upper)
            return
        self.lower = max(self.lower, self._constant + least)
        if self._doll == 0:
            self._states, self._finished = self._best(), True
        self._doll -= 1


class DollProver(SearchProver[RussianDolls]):
    """Goes on with larger dolls, unless a long turn solved none."""

    tells_its_end = False

    def lay_out(self) -> RussianDolls | None:
        """Lay the network out, if that fits."""
        known = self.incumbent
        return None if doll_bytes(known.small) > known.memory_bytes else RussianDolls(known.small, known.upper)

    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        """Go on with the doll of the last turn."""
        outcome = super().turn(seconds, out_of_time)
        if self.search is None or not (self.hopeless or (seconds >= _DOLL_SECONDS and self._solved_none(self.search))):
            return outcome
        self.hopeless, self.search = True, None
        return outcome

    def teach(self, search: RussianDolls) -> None:
        """Pass on the shared results, and count the dolls before the turn."""
        super().teach(search)
        self._before = search.dolls_left

    def _solved_none(self, search: RussianDolls) -> bool:
        return search.dolls_left == self._before
