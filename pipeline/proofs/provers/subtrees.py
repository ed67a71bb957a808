"""The sum of the optima of parts: a minimum of a sum is at least the sum of the minima."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from ...cost_networks.cost_network import CostNetwork, CostTable, States
from ..outcome import Outcome
from .branch_and_bound import Search, search_bytes
from .subtree_agreement import Agreement, Section, search_a_while

#: So many times as long is much longer.
_MUCH_LONGER = 2.0


@dataclass(eq=False)
class _Part:
    """Functions of their own, over variables that other parts may share."""

    tables: tuple[CostTable, ...]
    lower: int = 0
    seconds: float = 0.0
    nodes: int = 0
    solved: bool = False
    states: States | None = None
    search: Search | None = None
    variables: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.variables = frozenset(v for table in self.tables for v in table.scope)


class SubtreeBounds:
    """A bound on the least total below ``upper`` that rises as parts are searched, and goes on where it was stopped.

    What was searched the least is next. Where all parts are optimised and a gap is left, the two that were easiest of
    those that share variables become one, which counts what they disagree on. The last two are brought to agree
    (:class:`.subtree_agreement.Agreement`), which ends with an optimum.

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
        Whether it was given up, memory is used up, the last two parts share too much to agree, or there was only one.
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
        self.network, self._order, self._upper = network, order, upper
        self._agreement: Agreement | None = None
        self._searching = self._agreeing = 0.0
        self._parts = [_Part(tables) for tables in parts]
        for part in self._parts:
            part.lower = CostNetwork(network.dims, part.tables).least
        self._infeasible = False

    @property
    def lower(self) -> int:
        """No total is below it."""
        if self._agreement is not None:
            return self._agreement.lower
        return self.network.constant + sum(part.lower for part in self._parts)

    @property
    def parts_left(self) -> int:
        """Parts that are not optimised yet."""
        return sum(not part.solved for part in self._parts)

    @property
    def near_end(self) -> bool:
        """Whether all parts are optimised, and bringing the last two to agree did not take much longer than that."""
        return self._agreement is not None and self._agreeing < _MUCH_LONGER * self._searching

    @property
    def nbytes(self) -> int:
        """Bytes that are held, with the network's, as others may go on with a smaller one."""
        searches = [part.search for part in self._parts] if self._agreement is None else [self._agreement]
        return 8 * self.network.cells + sum(search.nbytes for search in searches if search is not None)

    def learn(self, upper: int | None) -> None:
        """Only totals below ``upper`` matter from now on."""
        if upper is not None:
            self._upper = upper if self._upper is None else min(self._upper, upper)

    def give_up(self) -> None:
        """Search no more, and let go of what that takes."""
        self.hopeless = True
        self.network, self._agreement = CostNetwork((), (), self.network.constant), None
        for part in self._parts:
            part.tables, part.search = (), None

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bounds: Callable[[int], None] = lambda lower: None,
        on_states: Callable[[States], None] = lambda states: None,
    ) -> Outcome:
        """Go on until nothing can be below the cut-off, nothing more can be done, or ``stop`` says so."""

        def see(states: States) -> None:
            self.learn(int(self.network.total(states)))
            on_states(states)

        while not (self._proved or self.hopeless or stop()):
            left = [part for part in self._parts if not part.solved]
            if left:
                self._go_on(min(left, key=lambda part: (part.seconds, len(part.variables))))
            elif self._agreement is None:
                self._merge()
            else:
                self._agree(stop, on_bounds, see)
            if not self._proved:
                on_bounds(self.lower)
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
        outcome, full = search_a_while(search)
        part.lower = max(part.lower, outcome.lower)
        part.seconds += time.process_time() - start
        self._searching += time.process_time() - start
        if outcome.proved:
            self._infeasible = self._infeasible or not outcome.feasible
            part.solved, part.nodes, part.states, part.search = True, search.nodes, outcome.states, None
            self.solved += 1
        elif full:
            self.give_up()

    def _search(self, part: _Part) -> Search | None:
        """Begin to search a part, unless that would take too much memory."""
        section = self._section(part)
        if search_bytes(section.network) > self.memory_bytes - self.nbytes:
            return None
        part.search = Search(section.network, section.order, self._room(part))
        return part.search

    def _section(self, part: _Part) -> Section:
        return Section.of(self.network, part.tables, self._order)

    def _merge(self) -> None:
        """Make one part of two, or bring the last two to agree."""
        if len(self._parts) < 2:
            self.give_up()
            return
        if len(self._parts) == 2:
            self._agreement = self._agreement_of(*sorted(self._parts, key=lambda part: part.nodes))
            return
        pairs = list(combinations(self._parts, 2))
        sharing = [pair for pair in pairs if pair[0].variables & pair[1].variables]
        one, other = min(sharing or pairs, key=lambda pair: pair[0].nodes + pair[1].nodes)
        merged = _Part(one.tables + other.tables, one.lower + other.lower)
        self._parts = [part for part in self._parts if part not in (one, other)] + [merged]

    def _agreement_of(self, easy: _Part, hard: _Part) -> Agreement:
        assert hard.states is not None
        least = easy.lower, hard.lower
        return Agreement(self.network, self._section(easy), self._section(hard), least, hard.states, self._upper)

    def _agree(self, stop: Callable[[], bool], on_bounds: Callable[[int], None], see: Callable[[States], None]) -> None:
        """Go on bringing the last two parts to agree."""
        agreement = self._agreement
        assert agreement is not None
        agreement.memory_bytes = self.memory_bytes - (self.nbytes - agreement.nbytes)
        agreement.learn(self._upper)
        start = time.process_time()
        agreement.run(stop, on_bounds, see)
        self._agreeing += time.process_time() - start
        self._infeasible = self._infeasible or agreement.done
        if agreement.hopeless:
            self.give_up()
