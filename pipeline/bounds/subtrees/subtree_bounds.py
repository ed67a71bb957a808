"""The sum of the optima of parts: a minimum of a sum is at least the sum of the minima."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, count

from ..network import CostNetwork, CostTable
from ..outcome import Outcome
from ..search import Search, search_bytes

#: CPU seconds that a part is searched before another may have its turn.
_SECONDS = 0.05


@dataclass(eq=False)
class _Part:
    """Functions of their own, over variables that other parts may share."""

    tables: tuple[CostTable, ...]
    lower: int = 0
    seconds: float = 0.0
    nodes: int = 0
    solved: bool = False
    search: Search | None = None
    variables: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.variables = frozenset(v for table in self.tables for v in table.scope)


class SubtreeBounds:
    """A bound on the least total below ``upper`` that rises as parts are searched, and goes on where it was stopped.

    What was searched the least is next. Where all parts are optimised and a gap is left, the two that were easiest of
    those that share variables become one, which counts what they disagree on.

    Parameters
    ----------
    order : sequence of int
        Of the network's variables; parts are searched in it too.
    parts : sequence of tuple of CostTable
        Each function of the network is in one of them.
    upper : int or None
        Exclusive; None for no limit.

    Attributes
    ----------
    memory_bytes : int
        For the searches of all parts.
    solved : int
        How many parts were optimised, merged ones too.
    hopeless : bool
        Whether it was given up, memory is used up, or only the whole network is left, which others search.
    """

    def __init__(
        self,
        network: CostNetwork,
        order: Sequence[int],
        parts: Sequence[tuple[CostTable, ...]],
        upper: int | None,
    ) -> None:
        self.memory_bytes: float = math.inf
        self.solved, self.hopeless = 0, False
        self._network, self._order, self._upper = network, order, upper
        self._parts = [_Part(tables) for tables in parts]
        for part in self._parts:
            part.lower = CostNetwork(network.dims, part.tables).least
        self._infeasible = False

    @property
    def lower(self) -> int:
        """No total is below it."""
        return self._network.constant + sum(part.lower for part in self._parts)

    @property
    def parts_left(self) -> int:
        """Parts that are not optimised yet."""
        return sum(not part.solved for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes that are held, with the network's, as others may go on with a smaller one."""
        return 8 * self._network.cells + sum(part.search.nbytes for part in self._parts if part.search is not None)

    def learn(self, upper: int | None) -> None:
        """Only totals below ``upper`` matter from now on."""
        if upper is not None:
            self._upper = upper if self._upper is None else min(self._upper, upper)

    def give_up(self) -> None:
        """Search no more, and let go of what that takes."""
        self.hopeless = True
        self._network = CostNetwork((), (), self._network.constant)
        for part in self._parts:
            part.tables, part.search = (), None

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bounds: Callable[[int], None] = lambda lower: None,
    ) -> Outcome:
        """Go on until nothing can be below the cut-off, nothing more can be done, or ``stop`` says so."""
        while not (self._proved or self.hopeless or stop()):
            left = [part for part in self._parts if not part.solved]
            if left:
                self._go_on(min(left, key=lambda part: (part.seconds, len(part.variables))))
                if not self._proved:
                    on_bounds(self.lower)
            else:
                self._merge()
        if self._proved:
            return Outcome(self.lower if self._upper is None else self._upper, feasible=False)
        return Outcome(self.lower)

    @property
    def _proved(self) -> bool:
        """Whether nothing is below the cut-off."""
        return self._infeasible or (self._upper is not None and self.lower >= self._upper)

    def _room(self, part: _Part) -> int | None:
        """What a part must stay below for a total below the cut-off."""
        return None if self._upper is None else self._upper - self.lower + part.lower

    def _go_on(self, part: _Part) -> None:
        """Search a part for a while."""
        start = time.process_time()
        search = part.search or self._search(part)
        if search is None:
            self.give_up()
            return
        search.memory_bytes = self.memory_bytes - (self.nbytes - search.nbytes)
        search.learn(self._room(part))
        asked, late = count(), False

        def pause() -> bool:
            nonlocal late
            late = next(asked) > 0 and time.process_time() - start > _SECONDS
            return late

        outcome = search.run(pause)
        part.lower = max(part.lower, outcome.lower)
        part.seconds += time.process_time() - start
        if outcome.proved:
            self._infeasible = self._infeasible or not outcome.feasible
            part.solved, part.nodes, part.search = True, search.nodes, None
            self.solved += 1
        elif not late:
            self.give_up()  # for want of memory

    def _search(self, part: _Part) -> Search | None:
        """Begin to search a part, unless that would take too much memory."""
        variables = sorted(part.variables)
        place = {v: i for i, v in enumerate(variables)}
        tables = tuple(CostTable(tuple(place[v] for v in table.scope), table.costs) for table in part.tables)
        network = CostNetwork(tuple(self._network.dims[v] for v in variables), tables)
        if search_bytes(network) > self.memory_bytes - self.nbytes:
            return None
        order = [place[v] for v in self._order if v in place]
        part.search = Search(network, order, self._room(part))
        return part.search

    def _merge(self) -> None:
        """Make one part of two."""
        pairs = [pair for pair in combinations(self._parts, 2) if pair[0].variables & pair[1].variables]
        if len(self._parts) <= 2 or not pairs:
            self.give_up()
            return
        one, other = min(pairs, key=lambda pair: pair[0].nodes + pair[1].nodes)
        merged = _Part(one.tables + other.tables, one.lower + other.lower)
        self._parts = [part for part in self._parts if part not in (one, other)] + [merged]
