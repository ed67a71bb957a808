"""Optima of models that are too much to sweep: proved by bounds, or bracketed by them in the time there is."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ....cluster.budget import peak_rss_bytes
from ...bounds.network import CostNetwork, States, Units, cost_network, model_of
from ...bounds.outcome import Outcome
from ...bounds.prepare import removed_by
from ...errors import BudgetError, InternalError
from ...models.preprocess import Network
from ...options import Effort, Options
from ...resources import Resources
from ...results.bounds import Bounds, Number
from ...results.result import Proof, Result
from ..answers import fixed_value
from ..placement import temporary_folder
from ..prepared import Prepared, prepare
from ..questions import Question, question_of
from ..running import Progress, answer, answered
from .directory import kept
from .interval import optimum_bounds
from .sums import summed
from .sweeping import COPIES, is_swept, sweep_cells
from .watching import Watch, Watcher

if TYPE_CHECKING:
    from ...bounds.chain import Chain

# An order for a sweep is searched for this part of what was spent already.
_ORDER_SHARE = 0.2
# Where nothing fits memory and no time was given, bounds are tried for so many CPU seconds.
_PATIENCE = 60.0


def solved(
    question: Question, options: Options, effort: Effort, progress: Progress | None, watch: Watch | None = None
) -> Result:
    """Answer a question about one value; optima whose sweep would take long by way of bounds, which can be watched.

    Raises
    ------
    BudgetError
        If no plan fits memory, and bounds did not prove an optimum in a minute where no time was given.
    """
    if question.query != "optimum":
        effort.refuse_for(question.query)
        return summed(question, options, effort, progress)
    task = None if is_swept(question, options, effort) else Task.of(question, options, effort)
    if task is None:
        found = answer(question, options, progress)
        assert isinstance(found, Result)
        return found
    if watch is not None:
        task.watched(watch)

    def go_on(known: dict[str, Any] | None) -> Result:
        if known is not None:
            task.take(known)
        found = task.result(progress)
        if found.proof is not None:
            logging.getLogger(__name__).info(found.proof.reason)
        return found

    return kept(question, options.folder, go_on)


@dataclass
class Task:
    """A question with its network of integer costs."""

    question: Question
    options: Options
    effort: Effort
    resources: Resources
    network: Network
    fixed: float | int
    costs: CostNetwork
    units: Units
    chain: Chain
    started: float

    @classmethod
    def of(cls, question: Question, options: Options, effort: Effort) -> Task:
        """Turn what is left of the model into integer costs."""
        from ...bounds.chain import Chain
        from ...bounds.limits import Limits

        started = time.perf_counter()
        resources = Resources(replace(options, workdir=None))
        network, _ = question.reduced
        fixed = fixed_value(network)
        assert fixed is not None
        costs, units = cost_network(network)
        memory_bytes = max(resources.host_bytes - question.model.nbytes - COPIES * 8 * costs.cells, 0)
        device_bytes = resources.memory_bytes if resources.gpu_count and not options.remote else None
        limits = Limits(memory_bytes, seed=options.seed, prune=effort.prune, device_bytes=device_bytes)
        chain = Chain(costs, _cut_off(question, effort, units, fixed), effort.method, limits)
        task = cls(question, options, effort, resources, network, fixed, costs, units, chain, started)
        chain.limits = replace(limits, eliminate=task.elimination, stop=task.enough)
        return task

    def watched(self, watch: Watch) -> None:
        """Tell bounds that improved, and what is tried."""
        limits, watcher = self.chain.limits, Watcher(watch, self.between)

        def improved(lower: int, total: int | None) -> None:
            limits.on_bounds(lower, total)
            watcher.improved(lower, total, self.chain.best)

        self.chain.limits = replace(limits, on_bounds=improved, on_way=watcher.begins)

    @cached_property
    def sweep_cells(self) -> float:
        """About what sweeping the whole would take."""
        return sweep_cells(self.network, self.options.seed)

    def elimination(self, network: CostNetwork, upper: int | None) -> _Elimination | None:
        """Plan to sweep every cell of a smaller network; None if that does not fit."""
        seconds = _ORDER_SHARE * self.chain.spent
        resources = Resources(replace(self.resources.asked, order_time=seconds))
        try:
            prepared = prepare(question_of(model_of(network, upper), "optimum"), resources)
        except BudgetError:
            return None
        return _Elimination(network, prepared)

    def enough(self) -> bool:
        """Whether to end with the bounds there are."""
        seconds = time.perf_counter() - self.started
        if self.effort.time is not None and seconds >= self.effort.time:
            return True
        if self.effort.gap is not None and self.gap() <= self.effort.gap:
            return True
        hopeless = self.chain.dense is None and "dense" in self.chain.hopeless
        return self.effort.time is None and hopeless and self.chain.spent > _PATIENCE

    def gap(self) -> float:
        """Difference of the bounds, as a part of the larger one."""
        chain = self.chain
        if chain.total is None:
            return math.inf
        ends = [float(self._cost(total)) for total in (chain.lower, chain.total)]
        return 0.0 if chain.done or ends[0] >= ends[1] else (ends[1] - ends[0]) / max(abs(ends[0]), abs(ends[1]))

    def _cost(self, total: int) -> float | int:
        sign = 1 if self.question.model.kind == "cost" else -1
        return self.units.base + self.units.unit * total + sign * self.fixed

    def take(self, known: dict[str, Any]) -> None:
        """Begin with the assignment and the bound of an earlier run, as far as they are confirmed."""
        local = self._local(known.get("assignment"))
        if local is not None:
            self.chain.improve(local)
        proof = known.get("proof") or {}
        if (
            proof.get("least_total") is not None
            and proof.get("unit") == self.units.unit
            and not self.effort.upper_bound
        ):
            self.chain.lower = max(self.chain.lower, int(proof["least_total"]))

    def _local(self, assignment: dict[str, Any] | None) -> tuple[int, ...] | None:
        """Turn named states into places among those that are left; None if they do not fit."""
        model, network = self.question.model, self.network
        if assignment is None or set(assignment) != set(model.names):
            return None
        places = [int(network.places[v][model.state_index(v, assignment[model.names[v]])]) for v in network.variables]
        return None if min(places, default=0) < 0 else tuple(places)

    def result(self, progress: Progress | None) -> Result:
        """Run the chain; where it ends without a proof and no bounds were asked for, refuse."""
        interrupted = False
        try:
            self.chain.run()
        except KeyboardInterrupt:
            if self.chain.total is None:
                raise
            interrupted = True
        outcome = self.chain.outcome()
        if not outcome.proved and not (self.effort.limited or interrupted):
            return self._unproved(progress)
        return self._dressed(outcome)

    def _unproved(self, progress: Progress | None) -> Result:
        """Sweep if anything fits, or refuse with what is known."""
        if self.effort.method == "auto":
            try:
                found = answer(self.question, replace(self.options, workdir=None), progress)
                assert isinstance(found, Result)
                return found
            except BudgetError as error:
                raise BudgetError(
                    f"{error}; {self._known()}; run with --time to get the best in a given time"
                ) from None
        raise BudgetError(f"the method {self.effort.method!r} does not fit memory; {self._known()}; give more --memory")

    def _known(self) -> str:
        found = self._bounds(self.chain.outcome())
        return f"the optimum lies between {found.lower} and {found.upper}"

    def _bounds(self, outcome: Outcome) -> Bounds:
        return self.between(outcome.lower, outcome.states, closed=outcome.proved)

    def between(self, lower: int, states: States | None, *, closed: bool) -> Bounds:
        """Return what a least total and an assignment of the network of costs say about the optimum."""
        return optimum_bounds(self.network, self.fixed, self.units.at_least(lower), states, closed=closed)

    def _dressed(self, outcome: Outcome) -> Result:
        chain = self.chain
        notes: tuple[str, ...] = ()
        if not outcome.feasible:
            asked = self.effort.upper_bound
            if asked is not None:
                notes = (f"no assignment is as good as {asked}, the bound that was given",)
            found = Bounds("optimum", "infeasible")
        else:
            found = self._bounds(outcome)
        status: Literal["optimal", "bounded", "infeasible"] = found.status
        lower, upper = (None, None) if status == "infeasible" else (found.lower, found.upper)
        if status == "optimal":
            best: Number | None = found.value if found.log10 is None else found.log10
            lower = upper = best
        proof = Proof(
            chain.way or "none",
            lower,
            upper,
            self.gap() if outcome.states is not None and math.isfinite(self.gap()) else None,
            {way: round(seconds, 3) for way, seconds in chain.tried.items()},
            {rule: vars(what) for rule, what in removed_by(chain.reports).items()},
            outcome.lower,
            self.units.unit,
            sweep_cells=self.sweep_cells,
        )
        elapsed = time.perf_counter() - self.started
        return Result(
            "optimum",
            status,
            found.value,
            found.log10,
            found.assignment,
            seconds={"plan": 0.0, "run": elapsed, "decode": 0.0},
            peak_rss_bytes=peak_rss_bytes(),
            notes=notes,
            proof=proof,
        )


def _cut_off(question: Question, effort: Effort, units: Units, fixed: float | int) -> int | None:
    """The least total that does not interest: what is forbidden, or worse than the bound that was given."""
    model, ends = question.model, []
    if model.top is not None:
        ends.append(units.above_total(model.top - int(fixed) - 1))
    if effort.upper_bound is not None:
        given = Decimal(str(effort.upper_bound))
        if model.kind == "cost":
            cost = math.floor((-given if model.maximize else given).scaleb(model.decimals))
            ends.append(units.above_total(cost - int(fixed)))
        else:
            ends.append(units.above_total(float(-given) * math.log(10) + fixed))
    return min(ends, default=None)


@dataclass(frozen=True)
class _Elimination:
    """A plan that sweeps every cell of a network."""

    network: CostNetwork
    prepared: Prepared

    @property
    def seconds(self) -> float:
        """Predicted."""
        return self.prepared.plan.seconds if self.prepared.plan else 0.0

    def run(self) -> Outcome:
        """Run the plan."""
        with temporary_folder(self.prepared.plan, self.prepared.resources) as folder:
            found = answered(self.prepared, None, folder, [])
        assert isinstance(found, Result)
        if found.assignment is None:
            return Outcome(self.network.constant, feasible=False)
        states = tuple(int(found.assignment[str(v)]) for v in range(len(self.network.dims)))
        total = self.network.total(states)
        if total != found.value:
            raise InternalError(f"an assignment of total {total} was swept as {found.value}")
        return Outcome(int(total), int(total), states)
