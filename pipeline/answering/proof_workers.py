"""Workers that help a portfolio: provers, and slices of its network, best bound first; all share the best total.

The portfolio itself runs as it would alone. It takes over results of workers between its own steps. A lost worker or a
lost cluster therefore changes only the time.
"""

from __future__ import annotations

import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import product
from typing import Any, Protocol

from ...cluster.address import ClusterError
from ...cluster.crew import WorkerCrew
from ...cluster.dask_pool import DaskPool
from ...cluster.driver import leave_slot
from ...cluster.pool import Pool
from ...tasks.steps.policy import Policy
from ..cost_networks.cost_network import CostNetwork
from ..machine.resources import Resources
from ..proofs.limits import Outcome, ProofLimits
from ..proofs.portfolio import Portfolio
from ..proofs.remote_prover import REPORT_SECONDS, Subproblem, helped, restricted, sliced_variables
from ..results.proof import DaskWork
from ..runs.pools import DaskPools, not_sent, workers_of

#: Provers that run on one worker each for the whole network, if there are enough workers; the other workers take
#: slices.
_PROVERS = ("rows", "search", "diagram")
#: Slices for each worker, and for a slice whose turn would take longer than ``_LONG_SECONDS``.
_SLICES = 8
#: Seconds of a slice's first turn; each turn takes twice as long as the one before.
_SLICE_SECONDS, _LONG_SECONDS = 2.0, 8.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class HelperPolicy(Policy):
    """When workers help to prove an optimum.

    Parameters
    ----------
    worth_seconds, started_seconds : float
        CPU seconds of a portfolio after which workers help: workers that run, and workers that must be started, which
        need about as long themselves.
    """

    worth_seconds: float = 1.0
    started_seconds: float = 3.0


class WorkerGroup(Protocol):
    """Workers that run parts of a search."""

    @property
    def slots(self) -> int:
        """Number of tasks that run concurrently."""
        ...

    @property
    def at_work(self) -> int:
        """Number of tasks that have not ended."""
        ...

    def start(self, key: Any, function: Any, *args: Any) -> None:
        """Start a task."""
        ...

    def say(self, word: Any) -> None:
        """Send a message to all tasks."""
        ...

    def heard(self) -> list[Any]:
        """Return the new reports."""
        ...

    def ended(self) -> list[tuple[Any, Any]]:
        """Return the tasks that ended, with their outcomes."""
        ...

    def close(self) -> None:
        """End all tasks."""
        ...


@dataclass(order=True)
class Slice:
    """A slice that is open, by the states that variables have in it: no total of it is below ``lower``."""

    lower: float
    number: int
    states: dict[int, int] = field(compare=False)
    seconds: float = field(default=_SLICE_SECONDS, compare=False)

    @property
    def was_run(self) -> bool:
        """Whether the slice had a turn."""
        return self.seconds > _SLICE_SECONDS


class _Opening:
    """A pool that is opened while this thread does other things."""

    def __init__(self, resources: Resources) -> None:
        self._opened, self._thread = ExitStack(), ThreadPoolExecutor(1)
        self._pool = self._thread.submit(self._opened.enter_context, DaskPools(resources))

    def pool(self) -> Pool | None:
        """Return it, once it is there; raise what opening it raised."""
        return self._pool.result() if self._pool.done() else None

    def close(self) -> None:
        """Close the pool in the thread that opened it, as Dask's clients require.

        A pool that is being opened is awaited.
        """
        with self._thread:
            self._thread.submit(self._opened.close).result()
        if (error := self._pool.exception()) is not None:
            _LOG.warning("no slices were run on workers: %s", error)


@dataclass
class ProofWorkers:
    """The work on workers for one portfolio.

    Parameters
    ----------
    portfolio : Portfolio
    resources : Resources

    Attributes
    ----------
    turns, unrun : int
        Turns of slices that were run, and slices that were closed without any.
    """

    portfolio: Portfolio
    resources: Resources
    group: WorkerGroup | None = None
    turns: int = 0
    unrun: int = 0
    closed: bool = False
    swept: DaskWork | None = None
    """Tasks of a sweep of the remaining problem, if there was one."""
    _pool: DaskPool | None = None
    _slots: int = 0
    _opening: _Opening | None = None
    _given: dict[int, CostNetwork] = field(default_factory=dict)
    _provers: dict[int, str] = field(default_factory=dict)
    _running: dict[int, Slice] = field(default_factory=dict)
    _open: list[Slice] = field(default_factory=list)
    _base: tuple[CostNetwork, tuple[int, ...]] | None = None
    _sliced: bool = False
    _made: int = 0
    _looked_at: float = 0.0

    def look(self) -> None:
        """Take over what workers found, and give them more to do; begin once that pays."""
        now = time.monotonic()
        if self.closed or now - self._looked_at < REPORT_SECONDS:
            return
        try:
            if self.group is not None:
                self._exchange(self.group)
            elif self._opening is not None:
                self._begin(self._opening)
            elif self._is_worth_it:
                leave_slot()
                self._opening = _Opening(self.resources)
        except (ClusterError, OSError, TimeoutError) as error:
            _LOG.warning("no more slices are run on workers: %s", error)
            self.close()
        self._looked_at = time.monotonic()

    @property
    def work(self) -> DaskWork:
        """The tasks sent to workers, or the reason why none were sent."""
        asked, swept = self.resources.asked, self.swept
        sent = (self._pool.sent if self._pool else 0) + (swept.tasks if swept else 0)
        if not sent:
            why = f"the bounds met before workers were due to help, after {self._worth_seconds:g} CPU seconds on"
            return not_sent(asked, why)
        return DaskWork(sent, max(self._slots, swept.workers if swept else 0), workers_of(asked))

    def close(self) -> None:
        """Let everybody end."""
        self.closed = True
        if self.group is not None:
            self._drop()
            if self.turns or self.unrun:
                _LOG.info("workers ran slices %d times; %d slices were never run", self.turns, self.unrun)
            self.group.close()
            self.group = None
        if self._opening is not None:
            self._opening.close()
            self._opening = None

    @property
    def _worth_seconds(self) -> float:
        policy = HelperPolicy.current()
        return policy.worth_seconds if self.resources.asked.remote else policy.started_seconds

    @property
    def _is_worth_it(self) -> bool:
        known = self.portfolio.incumbent
        return known.spent >= self._worth_seconds and bool(known.order) and not known.done

    def _begin(self, opening: _Opening) -> None:
        """Send each worker a part once the pool is open; until then the portfolio continues alone."""
        pool = opening.pool()
        if pool is None:
            return
        if not isinstance(pool, DaskPool):
            raise ClusterError("there are no workers")
        self._pool, self._slots = pool, len(pool.slots())
        self.start(WorkerCrew(pool))

    def start(self, group: WorkerGroup) -> None:
        """Send provers, and the first slices."""
        known = self.portfolio.incumbent
        small = known.small
        self.group, self._base = group, (small, known.order or tuple(range(len(small.dims))))
        if self.portfolio.method == "auto":
            for name in (_PROVERS[:1] if self.resources.gpu_count else _PROVERS)[: group.slots]:
                self._provers[self._made] = name
                self._send(group, small, name, math.inf)
        self._fill(group)

    def _send(self, group: WorkerGroup, network: CostNetwork, method: str, seconds: float) -> None:
        asked, number = self.portfolio.incumbent.limits, self._made
        memory_bytes = min(asked.memory_bytes, self.resources.task_bytes)
        limits = ProofLimits(memory_bytes, asked.seed + number, asked.prune, device_bytes=self.resources.device_budget)
        self._made += 1
        self._given[number] = network
        sub = Subproblem(replace(network, made=()), self.portfolio.incumbent.upper, method, limits, seconds)
        group.start(number, _reported, number, sub)

    def _fill(self, group: WorkerGroup) -> None:
        """Give slices to idle workers, slices with the least bounds first."""
        if self._sliced and not self._open:
            return
        for _ in range(group.slots - group.at_work):
            if not self._sliced:
                self._slice(Slice(-math.inf, 0, {}), _SLICES * group.slots)
                self._sliced = True
            found = self._next()
            if found is None:
                return
            self._running[self._made] = found
            self.turns += 1
            self._send(group, self._network(found), self.portfolio.method, found.seconds)

    def _network(self, found: Slice) -> CostNetwork:
        assert self._base is not None
        return restricted(self._base[0], found.states)

    def _slice(self, found: Slice, count: int) -> bool:
        """Open the slices of a slice; False if that has one assignment that matters."""
        assert self._base is not None
        variables = sliced_variables(self._network(found), self._base[1], count)
        for number, chosen in enumerate(product(*(range(self._base[0].dims[v]) for v in variables))):
            part = Slice(found.lower, number, found.states | dict(zip(variables, chosen, strict=True)))
            part.lower = max(part.lower, self._network(part).least)
            self._open.append(part)
        heapify(self._open)
        return bool(variables)

    def _next(self) -> Slice | None:
        """Return the open slice with the least bound, and close slices that hold nothing better than the incumbent."""
        upper = math.inf if self.portfolio.incumbent.upper is None else self.portfolio.incumbent.upper
        while self._open:
            found = heappop(self._open)
            if found.lower >= upper:
                self.unrun += not found.was_run
                self._drop()
            elif found.seconds <= _LONG_SECONDS or not self._slice(found, _SLICES):
                return found
        return None

    def _drop(self) -> None:
        """Leave the open slices."""
        self.unrun += sum(not each.was_run for each in self._open)
        self._open.clear()

    def _exchange(self, group: WorkerGroup) -> None:
        for number, lower, states in group.heard():
            self._hear(number, lower, states)
        for number, result in [] if self.closed else group.ended():
            if isinstance(result, BaseException):
                self._failed(number, result)
            else:
                self._ended(number, *result)
        if not (self.portfolio.incumbent.done or self.closed):
            self._fill(group)
            self._conclude()
        if not self.closed:
            group.say(self.portfolio.incumbent.upper)

    def _hear(self, number: int, lower: float, states: list[int] | None) -> None:
        """Take a bound and an assignment of a part."""
        if number not in self._given:
            return
        found = None if states is None else self._given[number].restored(tuple(states))
        if number in self._running:
            self._running[number].lower = max(self._running[number].lower, lower)
            lower = -math.inf
        incumbent = self.portfolio.incumbent
        incumbent.take(max(lower, incumbent.lower), found, self._provers.get(number, "slices"))

    def _ended(self, number: int, outcome: Outcome, seconds: float) -> None:
        tried, name = self.portfolio.incumbent.tried, self._provers.get(number, "slices")
        tried[f"{name} on workers"] = tried.get(f"{name} on workers", 0.0) + seconds
        lower = outcome.lower if outcome.feasible or self.portfolio.incumbent.upper is not None else math.inf
        self._hear(number, lower, None if outcome.states is None else list(outcome.states))
        again = self._running.pop(number, None)
        del self._given[number]
        if again is not None and not outcome.proved:
            heappush(self._open, replace(again, number=number, seconds=2 * again.seconds))

    def _failed(self, number: int, error: BaseException) -> None:
        """Give up a prover that failed; without a slice nothing is known of all of them."""
        _LOG.warning("%s failed on a worker: %r", self._provers.get(number, "a slice"), error)
        del self._given[number]
        if number not in self._provers:
            self.close()

    def _conclude(self) -> None:
        """Take the bound that all slices have together."""
        if not self._sliced:
            return
        waiting = [each.lower for each in (*self._open[:1], *self._running.values())]
        upper = self.portfolio.incumbent.upper
        lower = min(waiting, default=math.inf)
        if upper is not None:
            lower = min(lower, upper)
        self.portfolio.incumbent.take(max(lower, self.portfolio.incumbent.lower), None, "slices")


def _reported(member: Any, number: int, subproblem: Subproblem) -> tuple[Outcome, float]:
    """Task: search a subproblem, and mark reports with its number."""
    return helped(_CrewChannel(member, number), subproblem)


@dataclass
class _CrewChannel:
    """A member of a crew that marks its reports with the number of their subproblem."""

    member: Any
    number: int

    @property
    def closed(self) -> bool:
        """Whether the crew has ended."""
        self.member.heard()
        return bool(self.member.alone)

    def poll(self) -> int | None:
        """Return the best total that is known."""
        best: int | None = self.member.heard()
        return best

    def report(self, lower: int, states: list[int] | None) -> None:
        """Send what was proved and found."""
        self.member.tell((self.number, lower, states))
