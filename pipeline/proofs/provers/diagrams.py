"""Bounded bucket elimination on decision diagrams: assignments that reach a pruning value are removed, and the value
grows.

A pruning value with a remaining solution yields an optimum. A pruning value without one proves a lower bound. The last
elimination costs most, and its cost grows fast with the distance between the pruning value and the optimum. Steps
therefore double while eliminations are quick, and then follow the measured costs. The total of a known assignment is
the last pruning value. It is used as soon as its predicted cost is not much higher than the cost of a lower value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from ....tasks.compiler.working_time import working_seconds
from ....tasks.cpu.threads import return_freed_pages
from ....tasks.diagrams.min_plus import NoRoomError
from ....tasks.steps.number_limits import FAR_INTEGER
from ...cost_networks.cost_network import CostNetwork, States
from ..limits import OnBounds, Outcome
from ..prover import SearchProver
from ..prover_policy import SCARCE_BYTES, ProverPolicy
from .diagram_buckets import DiagramBuckets, Elimination, Round, buckets_of

# The first step goes one part in this many of the way from the lower bound to the cut-off.
_DIAGRAM_FIRST_PART: Final = 32
# Expected cost of the next diagram, in multiples of the last. The last cut-off comes next if it costs no more.
_DIAGRAM_COST_RATIO: Final = 4.0
# If other provers closed at least 1 / this of the gap, growth is estimated from the first elimination on.
_DIAGRAM_FAR_PART: Final = 3
# As if an elimination without any gap had made this many edges.
_DIAGRAM_FEWEST_EDGES: Final = 50_000
# Many small arrays leave about one part in this many of the memory between them.
_DIAGRAM_LOST_PART: Final = 8
# Diagrams go on at once if they are expected to complete the proof in this share of the time that was spent.
_DIAGRAM_SOON_SHARE: Final = 0.5

#: Of the growth of seconds, so that they stay finite.
_MOST_EXPONENT = 100.0


class Deepening:
    """Eliminations with growing pruning values, and the bounds proved so far.

    An interrupted elimination resumes in the next run.

    Parameters
    ----------
    network : CostNetwork
        The larger its constant is compared with its tables, the more is left out.
    order : sequence of int
        All variables, the first to be eliminated first.
    upper : int, optional
        Only assignments with a smaller total are of interest.
    lower : int, optional
        A known lower bound.
    memory_bytes : int
        Memory for diagrams and for the work on them.
    """

    def __init__(
        self, network: CostNetwork, order: Sequence[int], upper: int | None, lower: int | None, *, memory_bytes: int
    ) -> None:
        self._network, self._upper = network, upper
        self._best: tuple[int, States] | None = None
        self._running: Elimination | None = None
        self._buckets: DiagramBuckets | None = None
        self._no_room = False
        try:
            self._buckets = buckets_of(network, order, memory_bytes)
        except NoRoomError:
            self._no_room = True
        base = network.constant if self._buckets is None else self._buckets.base
        self._lower = base if lower is None else max(lower, base)
        self._steps = DiagramSteps(base, self._lower, upper)
        # CPU seconds that the elimination took so far which runs, or was stopped
        self._taken = 0.0

    @property
    def seconds_left(self) -> float:
        """CPU seconds that completing the proof is expected to take; inf where that is not known."""
        if self._upper is None or self._lower >= self._upper:
            return math.inf
        ahead = [self._steps.next(self._lower, self._upper) if self._running is None else self._running.upper]
        ahead += [self._upper] if ahead[0] < self._upper else []
        left = math.fsum(map(self._steps.seconds, ahead)) - self._taken
        return left if left > 0.0 else self._taken

    @property
    def nbytes(self) -> int:
        """Bytes held between two runs."""
        held = 0 if self._buckets is None else self._buckets.held
        return held if self._running is None else self._running.nbytes

    @property
    def memory_bytes(self) -> float:
        """Memory for diagrams and for the work on them from now on."""
        return 0 if self._buckets is None else self._buckets.memory_bytes

    @memory_bytes.setter
    def memory_bytes(self, memory_bytes: float) -> None:
        if self._buckets is not None:
            self._buckets.memory_bytes = int(memory_bytes)

    @property
    def hopeless(self) -> bool:
        """Whether even the functions do not fit as diagrams."""
        return self._no_room

    def rest(self) -> None:
        """Release memory that only saves time in the next run."""
        if self._running is not None:
            self._running.rest()

    def begin_anew(self) -> None:
        """Give up the interrupted elimination; the measured growth is kept."""
        self._running, self._taken = None, 0.0

    def learn(self, upper: int | None, lower: int | None = None) -> None:
        """Take over what was proved and found elsewhere."""
        self._lower = self._lower if lower is None else max(self._lower, lower)
        if upper is None or (self._upper is not None and self._upper <= upper):
            return
        self._upper, self._best = upper, None
        if self._running is not None:
            self._running.upper = min(self._running.upper, upper)

    def run(
        self,
        stop: Callable[[], bool] = bool,
        on_bounds: OnBounds = lambda lower, total: None,
        on_states: Callable[[States], None] = lambda states: None,
    ) -> Outcome:
        """Eliminate by decision diagrams with growing cut-offs until the bounds meet or the time slice ends.

        Parameters
        ----------
        stop : callable
            Returns True once the time slice ends.
        on_bounds : callable
            Receives the lower bound and the best total.
        on_states : callable
            Receives a better assignment.
        """
        if self._no_room:
            return self._outcome()
        while self._buckets is not None and (self._upper is None or self._lower < self._upper):
            known = self._lower, self._upper
            cut_off, found = self._eliminated(self._buckets, stop)
            if self._learn(found) and self._best is not None:
                on_states(self._best[1])
            on_bounds(self._lower, self._best[0] if self._best else None)
            if not found.complete and self._running is None and self._steps.too_far(cut_off):
                continue
            undecoded = found.states is None and found.total is not None and found.total < cut_off
            if not found.complete or (undecoded and found.total == cut_off - 1):
                return self._outcome()
            if found.total is None and found.left_out >= FAR_INTEGER:
                break  # only what is forbidden was left out
            if (self._lower, self._upper) == known:
                return self._outcome()  # costs that are not whole: the next elimination would find the same
            self._steps.learn(cut_off, found.edges, self._taken)
            self._taken = 0.0
        return self._finished()

    def _eliminated(self, buckets: DiagramBuckets, stop: Callable[[], bool]) -> tuple[int, Round]:
        """Go on with the elimination that was stopped, if something may be below its cut-off, or begin the next."""
        running = self._running
        if running is None or running.upper <= self._lower:
            running = Elimination(buckets, self._steps.next(self._lower, self._upper))
            self._taken = 0.0
        start = working_seconds()
        found = running.run(stop)
        self._taken += working_seconds() - start
        self._running = running if running.stopped else None
        return running.upper, found

    def _learn(self, found: Round) -> bool:
        """Raise the lower bound, keep a better assignment; where only its total is known, look for it next.

        Returns whether there is a better one.
        """
        lowest = found.left_out if found.total is None else min(found.left_out, found.total)
        if lowest < FAR_INTEGER:
            self._lower = max(self._lower, lowest)
        if found.total is None or (self._upper is not None and found.total >= self._upper):
            return False
        self._upper = found.total + 1
        if found.states is not None:
            self._best = int(self._network.total(found.states)), found.states
            self._upper = self._best[0]
        return found.states is not None

    def _outcome(self) -> Outcome:
        if self._best is None:
            return Outcome(self._lower)
        return Outcome(min(self._lower, self._best[0]), *self._best)

    def _finished(self) -> Outcome:
        if self._best is None:
            return Outcome(self._lower if self._upper is None else self._upper, feasible=False)
        return Outcome(self._best[0], *self._best)


class DiagramSteps:
    """By how much the cut-off grows.

    Parameters
    ----------
    base, lower : int
        Minimum sum of all function costs, and the proved bound at the start of the first elimination.
    upper : int or None
        The last cut-off.
    """

    def __init__(self, base: int, lower: int, upper: int | None) -> None:
        gap = max(64, abs(lower) // 4) if upper is None else upper - lower
        self._step = max(1.0, gap / _DIAGRAM_FIRST_PART)
        # of the last elimination: cut-off, edges, seconds; how edges grow with a cut-off, None while that says nothing
        self._before: tuple[int, int, float] | None = None
        self._growth: float | None = None
        # how far the last elimination went beyond the one before; the cut-off that would have come without the last
        self._span, self._target = 0, 0
        self.may_go_straight = True
        if _DIAGRAM_FAR_PART * (lower - base) >= gap:
            # others proved so much that the first elimination may be dear
            self._before = base, _DIAGRAM_FEWEST_EDGES, 0.0

    def next(self, lower: int, upper: int | None) -> int:
        """Return the next cut-off, above ``lower``."""
        target = lower + max(1, int(self._step))
        self._target = target if upper is None else min(target, upper)
        return self._target if upper is None or not self.goes_straight(upper - self._target) else upper

    def goes_straight(self, further: int) -> bool:
        """Whether an elimination with a pruning value higher by ``further`` is worthwhile, by the recently measured
        growth.
        """
        if self._growth is None or not self.may_go_straight:
            return False
        return further <= self._span and self._growth * further <= math.log(_DIAGRAM_COST_RATIO)

    def too_far(self, upper: int) -> bool:
        """Whether a cut-off that there was no room for had been gone to straight, which is not done again then."""
        was = self.may_go_straight and self._target < upper
        self.may_go_straight &= not was
        return was

    def seconds(self, upper: int) -> float:
        """CPU seconds that an elimination below ``upper`` is expected to take, inf where that is not known."""
        if self._before is None or self._growth is None:
            return math.inf
        return self._before[2] * math.exp(min(self._growth * max(0, upper - self._before[0]), _MOST_EXPONENT))

    def learn(self, upper: int, edges: int, seconds: float) -> None:
        """Double the step, or less if eliminations become dear."""
        policy = ProverPolicy.current()
        step, before, edges = 2 * self._step, self._before, max(1, edges)
        if before is not None and upper > before[0] and edges > policy.diagram_quick_edges:
            # edges grow exponentially, until nearly all are there
            self._span = upper - before[0]
            self._growth = max(0.0, math.log(edges / before[1]) / self._span)
            if self._growth > 0.0:
                step = min(step, max(self._step / 2, math.log(_DIAGRAM_COST_RATIO) / self._growth))
        self._step = step
        self._before = upper, edges, seconds


class DiagramProver(SearchProver[Deepening]):
    """Goes on with the eliminations of the last turn."""

    tells_its_end, follows_order = False, True

    def lay_out(self) -> Deepening:
        """Turn the functions into diagrams."""
        known = self.incumbent
        return Deepening(known.small, known.order, known.upper, known.lower, memory_bytes=self.room)

    @property
    def room(self) -> int:
        """Bytes that diagrams may take."""
        return super().room - super().room // _DIAGRAM_LOST_PART

    def teach(self, search: Deepening) -> None:
        """Pass on the shared bounds and assignments."""
        known = self.incumbent
        if known.limits.memory_bytes < SCARCE_BYTES:
            return_freed_pages()
        search.learn(known.upper, known.lower)

    def foresees_end(self, closing: float) -> bool:
        """Whether the eliminations that are left are expected to take little beside what was spent."""
        return self.search is not None and self.search.seconds_left <= _DIAGRAM_SOON_SHARE * self.incumbent.spent

    def leave_memory(self, search: Deepening) -> None:
        """Let go of as much of the diagrams as others need, unless the proof is soon complete."""
        if self.foresees_end(0.0):
            return
        for give_up in (search.rest, search.begin_anew):
            if self.incumbent.is_much(search):
                give_up()
        if self.incumbent.is_much(search):
            self.search = None
