"""Better plans for a compiled model: searched for in a thread beside its answers, taken once they have paid.

A tree is planned in proportion to one propagation, but a compiled model may run thousands. The search therefore
continues beside the propagations, for as long as they took themselves. Without knowing the number of future requests,
this rule is never far from the best choice (Karlin, Manasse, Rudolph and Sleator 1988, Competitive snoopy caching).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import thread_time
from typing import Final

from ...tasks.compiler.compile_limits import compiled_until
from ..answering.engines.engine import Racer, Stop
from ..orders.depth_first import loops_are_ready
from ..orders.effort import BOTH_WAYS_STEP_SECONDS
from ..orders.two_way_search import tree_for_both_ways
from ..plans.plan import Plan
from ..plans.planner import Planner
from ..trees.costs import Rates, steps_cost
from .case_program import CompiledPolicy

# again whenever the total has grown by this factor, until a search took this long. On large networks, the better
# trees are 2 to 3 times faster.
_SEARCHING_GROWTH: Final = 4.0


@dataclass(frozen=True)
class FoundPlan:
    """The result of a search.

    Parameters
    ----------
    plan : Plan
    seconds : float
        CPU seconds that the search took.
    """

    plan: Plan
    seconds: float


Find = Callable[[float, Stop], FoundPlan | None]
"""Searches for a plan for about the given seconds, or until its second argument returns True.

Returns None if no search is possible.
"""


def propagation_seconds(plan: Plan) -> float:
    """Price both passes of a plan as its tree was priced: by rates that are the same on every machine."""
    rates = replace(Rates(), step_seconds=BOTH_WAYS_STEP_SECONDS)
    return steps_cost(plan.steps, plan.tree, rates, plan.itemsize).seconds


class BetterPlans:
    """The search for better plans of a compiled model, with the account of whether it has paid.

    Seconds of propagations are priced, not measured, so that the time of a plan change depends only on the requests.

    Parameters
    ----------
    find : callable
    memory_bytes : int
        Both plans' tables have to fit while one replaces the other.

    Attributes
    ----------
    seconds : float
        The price of all propagations so far.
    """

    def __init__(self, find: Find, memory_bytes: int) -> None:
        self.find: Find = find
        self.memory_bytes: int = memory_bytes
        self.seconds: float = 0.0
        self._due = CompiledPolicy.current().searching_seconds
        self._racer: Racer[FoundPlan | None] | None = None
        self._found: FoundPlan | None = None
        self._priced: tuple[Plan | None, float] = None, 0.0

    def after(self, plan: Plan, steps_run: int) -> Plan | None:
        """Enter that steps of the present plan were run; return a plan that is better, and has paid.

        It pays once what it had saved in all propagations so far is more than its search and its own first one take.
        """
        if self._priced[0] is not plan:
            self._priced = plan, propagation_seconds(plan)
        each = self._priced[1]
        self.seconds += each * steps_run / len(plan.steps)
        if self._racer is not None and self._racer.ended.is_set():
            self._collect(plan, each)
        if self._racer is None and self._found is None:
            self._begin()
        found = self._found
        if found is None:
            return None
        better = propagation_seconds(found.plan)
        if self.seconds * (1 - better / each) <= found.seconds + better:
            return None
        self._found = None
        return found.plan

    def wait(self) -> None:
        """Wait until no search runs; its result is taken over after the next propagation."""
        if self._racer is not None:
            self._racer.ended.wait()

    def close(self) -> None:
        """End a search that runs; none is begun any more."""
        self._due = float("inf")
        if self._racer is not None:
            self._racer.close()

    def close_unless_worthwhile(self, seconds: float) -> None:
        """End the search if all propagations are predicted to take only a few times as long as the longest search."""
        if seconds < _SEARCHING_GROWTH * CompiledPolicy.current().longest_search_seconds:
            self.close()

    def _begin(self) -> None:
        """Search for as long as propagations took, if that is longer by far than it was searched for before."""
        policy = CompiledPolicy.current()
        if self.seconds < self._due:
            return
        seconds = min(self.seconds, policy.longest_search_seconds)
        last = seconds >= policy.longest_search_seconds
        self._due = float("inf") if last else _SEARCHING_GROWTH * self.seconds
        find = self.find
        self._racer = Racer(lambda stop: find(seconds, stop))
        # at the end of the process, or of the model
        weakref.finalize(self, self._racer.close)

    def _collect(self, plan: Plan, each: float) -> None:
        """Take over the result of a search. A failed search is reported, and is the last one."""
        racer, self._racer = self._racer, None
        assert racer is not None
        try:
            found = racer.outcome()
        except Exception as error:
            self._due = float("inf")
            logging.getLogger(__name__).warning("bucketflow: the search for a better plan failed: %s", error)
            return
        if (
            found is not None
            and 1 - propagation_seconds(found.plan) / each >= CompiledPolicy.current().least_saved
            and plan.kept_bytes + found.plan.kept_bytes <= self.memory_bytes
        ):
            self._found = found


def searches_of(planner: Planner, memory_bytes: int) -> BetterPlans | None:
    """Return the search for better plans; None if an order, a tree or a search time was requested."""
    options = planner.options
    if options.device or options.order_seconds is not None or options.tree != "refined":
        return None
    if not isinstance(options.order, str):
        return None

    def find(seconds: float, stop: Stop) -> FoundPlan | None:
        """Search for ``seconds``, among trees that need no compilation."""
        if not loops_are_ready():
            return None
        begin = thread_time()
        with compiled_until(0.0):
            plan = planner.of(tree_for_both_ways(replace(planner.search, seconds=seconds, ended=stop)))
        return FoundPlan(plan, thread_time() - begin)

    return BetterPlans(find, memory_bytes)
