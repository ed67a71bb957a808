"""Russian doll search, for functions that only forbid, between variables in an order such as that of time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ..network import CostNetwork, States
from ..outcome import Outcome
from .layout import laid_out, separated

#: Nodes between two looks at the clock are as many as take about so long.
_SECONDS = 0.03
#: Bytes that cells, and tables, take while a search is laid out.
_CELL_BYTES, _TABLE_BYTES = 32, 1200


def doll_bytes(network: CostNetwork) -> int:
    """Bytes that laying a network out takes at most."""
    return _CELL_BYTES * network.cells + _TABLE_BYTES * len(network.tables)


class RussianDolls:
    """A search for the least total below ``upper`` that goes on where it was stopped.

    Variables are decided in the reverse of their order in the network, so that each doll has one more of the first.
    Their order in files is often that of time or place, of which no elimination order knows.

    Attributes
    ----------
    possible : bool
        Whether functions only forbid, once costs of single values are apart.
    lower : int
        No total is below it, or below the cut-off.
    """

    def __init__(self, network: CostNetwork, upper: int | None) -> None:
        self.lower = network.least
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
    def nbytes(self) -> int:
        """Bytes that are held."""
        return sum(array.nbytes for array in self._state) if self.possible else 0

    @property
    def dolls_left(self) -> int:
        """Problems that are not solved yet, the whole one too."""
        return self._doll + 1

    def learn(self, upper: int | None) -> None:
        """Search only below ``upper`` from now on."""
        from ....tasks.search.dolls import UPPER

        if upper is None or (self._upper is not None and self._upper <= upper):
            return
        self._upper = upper
        if self.possible and self._begun:
            self._state.numbers[UPPER] = min(self._state.numbers[UPPER], self._room())

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bounds: Callable[[int], None] = lambda lower: None,
    ) -> Outcome:
        """Go on until the proof is complete or ``stop`` says so; bounds are told after each doll."""
        while self.possible and not (self._finished or stop()):
            if not self._begun:
                self._begin()
            if self._explore():
                self._end()
                on_bounds(self.lower)
        if not self._finished:
            return Outcome(self.lower)
        if self._states is None:
            return Outcome(self.lower, feasible=False)
        return Outcome(self.lower, self.lower, self._states)

    def _room(self) -> int:
        """What a doll must stay below for a total below the cut-off."""
        from ....tasks.search.dolls import FAR

        if self._upper is None:
            return FAR
        return max(self._upper - self._constant, 0)

    def _begin(self) -> None:
        from ....tasks.search.dolls import begin_doll

        begin_doll(self._state, self._doll, self._room())
        self._begun = True

    def _explore(self) -> bool:
        """Explore some nodes; True once the doll is finished."""
        from ....tasks.search.dolls import explore

        start = time.process_time()
        finished = explore(self._state, self._pace)
        taken = time.process_time() - start
        if taken > _SECONDS:
            self._pace = max(1, self._pace // 2)
        elif not finished:
            self._pace *= 2
        return bool(finished)

    def _end(self) -> None:
        """Keep what the doll costs; what reaches the cut-off proves that nothing is below."""
        from ....tasks.search.dolls import UPPER

        least = int(self._state.numbers[UPPER])
        self._state.doll[self._doll] = least
        self._begun = False
        if least >= self._room():
            self._finished = True
            self.lower = self.lower if self._upper is None else max(self.lower, self._upper)
            return
        self.lower = max(self.lower, self._constant + least)
        if self._doll == 0:
            states = np.empty(len(self._order), dtype=np.int64)
            states[list(self._order)] = self._state.best
            self._states, self._finished = tuple(states.tolist()), True
        self._doll -= 1
