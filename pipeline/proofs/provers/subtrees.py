"""The sum of the optima of parts: a minimum of a sum is at least the sum of the minima."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from ...cost_networks.cost_network import CostNetwork, CostTable, States
from ..incumbent import Incumbent
from ..limits import OnBounds, Outcome
from ..prover import SearchProver
from ..prover_policy import ProverPolicy
from .branch_and_bound import Search, search_bytes
from .clusters import is_mesh
from .subtree_agreement import Agreement, Section, cut_parts, search_a_while

# A part is much longer than another where it takes this many times as long.
_SUBTREE_LONGER_RATIO: Final = 2.0
# Subtrees are given up if this many time slices optimised no other part.
_SUBTREE_IDLE_TURNS: Final = 2
# The last open part is much smaller than the whole. It gets this fraction of the time spent so far.
_SUBTREE_LAST_SHARE: Final = 0.65


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

    The part with the least search so far is next. If all parts are optimised and a gap remains, the two easiest parts
    with common variables are merged, which accounts for their disagreement. The last two parts are brought to agreement
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
        return self._agreement is not None and self._agreeing < _SUBTREE_LONGER_RATIO * self._searching

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
        """Stop searching, and release the memory."""
        self.hopeless = True
        self.network, self._agreement = CostNetwork((), (), self.network.constant), None
        for part in self._parts:
            part.tables, part.search = (), None

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bounds: OnBounds = lambda lower, total: None,
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
                on_bounds(self.lower, None)
        if self._proved:
            return Outcome(self.lower if self._upper is None else self._upper, feasible=False)
        return Outcome(self.lower)

    @property
    def _proved(self) -> bool:
        """Whether nothing is below the cut-off."""
        return self._infeasible or (self._upper is not None and self.lower >= self._upper)

    def _room(self, part: _Part) -> int | None:
        """Return the limit of a part's cost for totals below the pruning value."""
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

    def _agree(self, stop: Callable[[], bool], on_bounds: OnBounds, see: Callable[[States], None]) -> None:
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


class SubtreeProver(SearchProver[SubtreeBounds]):
    """Goes on with parts of the bucket tree, unless turns optimised none.

    The parts bound an earlier network, even if it was prepared further, because long searches are not repeated.
    """

    def __init__(self, incumbent: Incumbent) -> None:
        super().__init__(incumbent)
        self._idle = 0

    def lay_out(self) -> SubtreeBounds | None:
        """Cut the bucket tree where it is narrow; None where it is not, or in a mesh."""
        known = self.incumbent
        parts = cut_parts(known.small, known.order)
        if len(parts) == 1 or is_mesh(known.small):
            return None
        return SubtreeBounds(known.small, known.order, parts, known.upper)

    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        """Go on with the parts that were searched the least."""
        known = self.incumbent
        policy = ProverPolicy.current()
        if seconds < policy.late_from_seconds:
            return None
        search = self.search = self.search or self.lay_out()
        if search is None or search.hopeless:
            self.hopeless = True
            return None
        solved, start = search.solved, known.spent

        def hard() -> bool:
            """Whether more than one part is open after as long as a first time slice."""
            return search.parts_left > 1 and not known.alone and known.spent - start > policy.first_turn_seconds

        outcome = super().turn(seconds, lambda: out_of_time() or hard())
        going = solved < search.solved or not search.parts_left or self._one_part_left
        self._idle = 0 if going else self._idle + 1
        if search.hopeless or hard() or self._idle == _SUBTREE_IDLE_TURNS or known.is_much(search):
            self.hopeless = True
            search.give_up()
        return outcome

    def see(self, states: States) -> None:
        """Take an assignment of the network that was cut."""
        if self.search is not None:
            self.incumbent.offer_of(self.search.network, states)

    def foresees_end(self, closing: float) -> bool:
        """Whether only one part is left to search, which is not too hard yet."""
        return self._one_part_left

    @property
    def _one_part_left(self) -> bool:
        if self.search is None or self.search.parts_left > 1:
            return False
        known = self.incumbent
        return self.search.near_end or known.tried.get("subtrees", 0.0) < _SUBTREE_LAST_SHARE * known.spent

    def forget(self) -> None:
        """Go on with the network that was cut."""
