"""Optima of models that are too much to sweep: proved by bounds, or bracketed by them in the time there is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

from ...cluster.memory import peak_rss_bytes
from ...tasks.compiler.compile_limits import NotCompiledError
from ...tasks.cpu.threads import return_freed_pages, return_large_blocks
from ...tasks.gpu.memory import LongStepError
from ...tasks.steps.light_dataclass import dataclass
from ..cost_networks.cost_network import COPIES, CostNetwork, States, Units, check_tables, cost_network, model_of
from ..errors import BudgetError, InternalError
from ..machine.resources import Resources
from ..options import Options, ProofOptions
from ..orders.depth_first import sweep_cells
from ..preprocessing.preprocess import Network, fixed_value, full_states, local_places
from ..proofs.limits import Outcome
from ..proofs.prover_policy import SCARCE_BYTES
from ..results.bounds import Bounds, Number, relative_gap
from ..results.proof import Proof
from ..results.remaining_time import OnProgress
from ..results.result import Result
from .bound_listeners import History, Point, Watcher
from .cut_offs import cut_off, is_as_good, optimum_bounds
from .engines.strategy_policy import POLICY, StrategyPolicy
from .question import Question, question_of, soon_swept_cells

if TYPE_CHECKING:
    from ..proofs.incumbent import Incumbent
    from ..proofs.portfolio import Portfolio
    from ..proofs.provers.layer_files import Finished, RowFiles
    from .prepared import Prepared
    from .proof_workers import ProofWorkers
    from .run_folder import RunFolder

# Advice if costs are too large for exact bounds.
_EXACT = "only a sweep over every cell (--method dense, without --time and --gap) is exact"


WholeSweep = Callable[[Callable[[], bool]], Result | None]
"""Sweeps every cell of the question until its argument returns True.

Returns None if the sweep does not fit, or was ended.
"""


@dataclass
class Task:
    """A question with its network of integer costs."""

    question: Question
    options: Options
    effort: ProofOptions
    resources: Resources
    network: Network
    fixed: float | int
    costs: CostNetwork
    units: Units
    portfolio: Portfolio
    started: float
    folder: RunFolder | None = None
    proof_workers: ProofWorkers | None = None
    ended: bool = False
    stop: Callable[[], bool] = bool
    sweep: WholeSweep | None = None
    history: History = field(default_factory=History)
    allowed: tuple[int, States] | None = None

    @classmethod
    def of(
        cls,
        question: Question,
        options: Options,
        effort: ProofOptions,
        started: float,
        folder: RunFolder | None = None,
        policy: StrategyPolicy = POLICY,
        network: Network | None = None,
    ) -> Task:
        """Turn the preprocessed model into integer costs, and create the portfolio of provers for them.

        Parameters
        ----------
        question : Question
        options : Options
        effort : ProofOptions
            Method, time, gap and known upper bound.
        started : float
            ``time.perf_counter()`` at the beginning of the question.
        folder : RunFolder, optional
            Holds the bounds and the assignment of earlier runs.
        policy : StrategyPolicy
        network : Network, optional
            The network to search; by default the network that remains after preprocessing.

        Raises
        ------
        BudgetError
            If the cost tables do not fit in memory.
        """
        from ..proofs.limits import ProofLimits
        from ..proofs.portfolio import Portfolio

        resources = Resources(options.without_folder())
        network = network or question.reduced[0]
        fixed = fixed_value(network)
        assert fixed is not None
        check_tables(network, resources.host_bytes)
        costs, units = cost_network(network)
        memory_bytes = max(resources.host_bytes - question.model.nbytes - COPIES * 8 * costs.cells, 0)
        # the C library keeps freed pages, which count towards the limit of a small memory
        if memory_bytes < SCARCE_BYTES:
            return_large_blocks()
            return_freed_pages()
        limits = ProofLimits(
            memory_bytes,
            seed=options.seed,
            prune=effort.prune,
            device_bytes=None if resources.distributed else resources.device_budget,
            threads=resources.threads,
            swept_cells=soon_swept_cells(question, options, policy.soon_cells),
        )
        portfolio = Portfolio(costs, cut_off(question.model, effort, units, fixed), effort.method, limits)
        task = cls(question, options, effort, resources, network, fixed, costs, units, portfolio, started, folder)
        if resources.distributed and effort.method != "dense":
            from .proof_workers import ProofWorkers

            task.proof_workers = ProofWorkers(portfolio, resources)
        if task.in_units:
            limits = task.known.limits = replace(limits, on_states=task.weigh)
        known = folder.bounds() if folder else None
        if known is not None:
            task.take(known)
        task.known.limits = replace(limits, eliminate=task.elimination, stop=task.enough, on_bounds=task.improved)
        return task

    def watched(self, report: OnProgress | None) -> Task:
        """Report bounds that improved, and what is tried."""
        if report is None:
            return self
        limits, watcher = self.known.limits, Watcher(report, self.between)

        def improved(lower: int, total: int | None) -> None:
            limits.on_bounds(lower, total)
            watcher.improved(lower, total, self.known.best)

        self.known.limits = replace(limits, on_bounds=improved, on_prover=watcher.begins)
        return self

    @property
    def known(self) -> Incumbent:
        """The incumbent and the bounds of the optimum."""
        return self.portfolio.incumbent

    @cached_property
    def sweep_cells(self) -> float | None:
        """About what sweeping the whole would take, where that was weighed; its order may take as long as a proof."""
        weighed = self.effort.method == "auto" and not self.effort.limited
        return sweep_cells(self.network.dims, self.network.scopes, self.options.seed) if weighed else None

    def elimination(self, network: CostNetwork, upper: int | None) -> _Elimination | None:
        """Plan to sweep every cell of a smaller network; None if that does not fit."""
        from .prepared import prepare

        resources = Resources(replace(self.resources.asked, order_time=None, representation="dense"))
        question = question_of(model_of(network, upper), "optimum")

        def planned(where: Resources, most_seconds: float) -> _Elimination | None:
            try:
                prepared = prepare(question, where)
            except (BudgetError, NotCompiledError):
                return None
            found = _Elimination(network, prepared, self.enough, self.proof_workers)
            return found if found.seconds <= most_seconds else None

        if resources.device_sleeps:
            # planning for a device starts it
            here = planned(resources.without_devices(), min(self.left, POLICY.device_start_seconds))
            if here is not None:
                return here
        there = planned(resources, self.left)
        if there is None or not (compiling := there.compile_seconds):
            return there
        here = planned(resources.without_devices(), min(self.left, there.seconds + compiling))
        return here or (there if math.isfinite(compiling) else None)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        given = math.inf if self.effort.time is None else self.effort.time
        return given - (time.perf_counter() - self.started)

    @property
    def in_units(self) -> bool:
        """Whether costs are counted in units, so that an assignment that seems allowed may reach ``top``."""
        return self.question.model.kind == "cost" and not self.units.exact

    def weigh(self, states: States) -> None:
        """Store an assignment if its costs are allowed, as good as requested, and the least so far."""
        model, given = self.question.model, self.effort.upper_bound
        cost = model.cost(full_states(self.network, dict(enumerate(states))))
        if cost is None or (self.allowed is not None and self.allowed[0] <= cost):
            return
        if given is None or is_as_good(model.objective(cost), model, given):
            self.allowed = cost, states

    def improved(self, lower: int, total: int | None) -> None:
        """Keep bounds that improved."""
        self.history.add(lower, total)
        if self.folder is not None:
            self.folder.improve(lambda: self._dressed(self.known.outcome()))

    def enough(self) -> bool:
        """Return whether the present bounds suffice; once they do, they always do.

        Results of helpers are taken over first.
        """
        if self.proof_workers is not None and not self.ended:
            self.proof_workers.look()
        self.ended = self.ended or self.known.done or self.stop() or self._is_enough()
        return self.ended

    def _is_enough(self) -> bool:
        if self.left <= 0:
            return True
        if self.effort.gap is not None and self.gap() <= self.effort.gap:
            return True
        hopeless = "dense" in self.portfolio.turns.hopeless
        return self.effort.time is None and hopeless and self.known.spent > POLICY.patience_seconds

    def gap(self) -> float:
        """Difference of the bounds, as a part of the larger one."""
        known = self.known
        if self.in_units and not known.done:
            return math.inf if self.allowed is None else relative_gap(self._cost(known.lower), self.allowed[0])
        if known.total is None:
            return math.inf
        return 0.0 if known.done else relative_gap(self._cost(known.lower), self._cost(known.total))

    def _cost(self, total: int) -> float | int:
        sign = 1 if self.question.model.kind == "cost" else -1
        return self.units.base + self.units.unit * total + sign * self.fixed

    def take(self, known: Mapping[str, Any]) -> None:
        """Begin with the assignment and the bound of an earlier run, as far as they are confirmed."""
        local = self._local(known.get("assignment"))
        if local is not None:
            self.known.improve(local)
        incumbent, proof = self.known, known.get("proof") or {}
        self.history.earlier = [(t, lower, upper) for t, lower, upper in proof.get("history", ())]
        if proof.get("least_total") is not None and proof.get("unit") == self.units.unit:
            incumbent.lower = max(incumbent.lower, incumbent.at_least(int(proof["least_total"])))

    def _local(self, assignment: dict[str, Any] | None) -> tuple[int, ...] | None:
        """Turn named states into indices among the remaining states; return None if they do not fit."""
        model, network = self.question.model, self.network
        if assignment is None or set(assignment) != set(model.own_names):
            return None
        states = model.completed([model.state_index(v, assignment[name]) for v, name in enumerate(model.own_names)])
        if states is None:
            return None
        places = local_places(network, states)
        return None if min(places, default=0) < 0 else places

    def result(self) -> Result | None:
        """Run the portfolio; None where it ends without a proof, and no bounds were asked for."""
        try:
            self.run_portfolio()
            if not self.effort.limited and not self.known.outcome().proved:
                return None
        except KeyboardInterrupt:
            if self.known.total is None:
                raise
            return self._dressed(self.known.outcome())
        found = self._dressed(self.known.outcome())
        if self._units_hide(found):
            found = self._swept_exactly() or found
        note = None if found.status != "bounded" or (found.proof and found.proof.close) else self._why_open()
        return found if note is None else replace(found, notes=(*found.notes, note))

    def _units_hide(self, found: Result) -> bool:
        """Whether bounds are through, and units hide if anything is allowed, or the optimum that was asked for."""
        outcome = self.known.outcome()
        if self.in_units and outcome.proved and outcome.feasible and self.allowed is None:
            return True
        may_sweep = self.in_units and self.effort.method in ("auto", "dense") and self.effort.upper_bound is None
        is_open = found.status == "bounded" and not (found.proof and found.proof.close)
        return is_open and may_sweep and self.known.done and not self.known.uncompiled

    def _swept_exactly(self) -> Result | None:
        """Sweep every cell in the remaining time; return None if no sweep fits or ends in time."""
        if self.sweep is None:
            return None
        found = self.sweep(lambda: self.left <= 0)
        note = f"for costs this large, bounds are computed in units of {self.units.unit}, so every cell was swept"
        return found and replace(found, notes=(*found.notes, note))

    def _why_open(self) -> str | None:
        """Why bounds did not close; None where the time was over."""
        if self.known.uncompiled:
            provers = ", ".join(self.known.uncompiled)
            return (
                f"the loops of {provers} are not compiled, and compiling them would have exceeded the time; "
                "`bucketflow warm` compiles all loops once"
            )
        if self.known.pending:
            return (
                f"the loops of {', '.join(self.known.pending)} were still being compiled when the time ended; "
                "repeat the query soon to use them"
            )
        if self.known.done:
            return f"for costs this large, bounds are computed in units of {self.units.unit}; {_EXACT}"
        if self.effort.time is not None:
            return None
        return "the search ended without a proof because the memory was full; give a larger --memory, or --time"

    def search_shortly(self, seconds: float) -> Result | None:
        """Search the unprepared network for some CPU seconds; return None unless this proves the optimum."""
        self.portfolio.search_shortly(seconds)
        found = self._dressed(self.known.outcome()) if self.known.done else None
        return None if found is None or found.status == "bounded" or self._units_hide(found) else found

    def run_portfolio(self) -> None:
        """Run the portfolio, with room on disk for layers that exceed memory."""
        with ExitStack() as stack:
            stack.callback(self.portfolio.close)
            if self.proof_workers is not None:
                stack.callback(self.proof_workers.close)
            files = cache(lambda: self._row_files(stack))
            self.known.limits = replace(self.known.limits, files=files, finished=lambda: self._finished(files))
            self.portfolio.run()

    def _row_files(self, stack: ExitStack) -> RowFiles:
        from .run_folder import row_files

        return row_files(self.options, stack)

    def _finished(self, files: Callable[[], RowFiles]) -> Finished | None:
        if self.options.folder is None:
            return None
        from .run_folder import finished_layers

        return finished_layers(self.options.folder, files)

    def kept_result(self) -> Result | None:
        """Return the result, and store the bounds in the run directory in any case."""
        if self.folder is None:
            return self.result()
        found = None
        try:
            found = self.result()
            return found
        finally:
            self.folder.write(found or self._dressed(self.known.outcome()), final=self.is_final(found))

    def is_final(self, found: Result | None) -> bool:
        """Whether an answer is the optimum, and not that none is as good as a bound that was given."""
        if found is None or found.status == "bounded":
            return False
        return found.status == "optimal" or self.effort.upper_bound is None

    @property
    def interval(self) -> str:
        """The known interval of the optimum, in words."""
        found = self._bounds(self.known.outcome())
        if found.lower is None or found.upper is None:
            bound = f"at least {found.lower}" if found.upper is None else f"at most {found.upper}"
            return f"the optimum is {bound}, but no assignment with this value is known"
        return f"the optimum lies between {found.lower} and {found.upper}"

    def _bounds(self, outcome: Outcome) -> Bounds:
        states = outcome.states if not self.in_units else self.allowed and self.allowed[1]
        return self.between(outcome.lower, states, closed=outcome.proved)

    def between(self, lower: int, states: States | None, *, closed: bool) -> Bounds:
        """Return the bounds on the optimum that follow from a least total and an assignment of the cost network."""
        least, exact = self.units.at_least(lower), not self.in_units
        return optimum_bounds(self.network, self.fixed, least, states, closed=closed, exact=exact)

    def _history(self, outcome: Outcome) -> list[Point]:
        if outcome.feasible:
            self.history.add(outcome.lower, outcome.total)
        return self.history.points(lambda least: self.between(least, None, closed=False))

    def _dressed(self, outcome: Outcome) -> Result:
        """Return the bounds of the provers as a result: in the units of the model, with the proof and its history.

        Parameters
        ----------
        outcome : Outcome
            Feasibility and bounds, in integer units.
        """
        from ..cost_networks.preparation import removed_by

        known = self.known
        found = self._bounds(outcome) if outcome.feasible else Bounds("optimum", "infeasible")
        status: Literal["optimal", "bounded", "infeasible"] = found.status
        lower, upper = (None, None) if status == "infeasible" else (found.lower, found.upper)
        if status == "optimal":
            best: Number | None = found.value if found.log10 is None else found.log10
            # the shown bounds equal the shown value, whatever rounding its units took
            lower = upper = best
        proof = Proof(
            known.prover or "none",
            lower,
            upper,
            None if lower is None or upper is None else relative_gap(lower, upper),
            {name: round(seconds, 3) for name, seconds in known.tried.items()},
            {rule: vars(what) for rule, what in removed_by(known.reports).items()},
            outcome.lower,
            self.units.unit,
            sweep_cells=self.sweep_cells,
            gap_given=self.effort.gap,
            history=self._history(outcome),
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
            notes=self.question.model.notes,
            proof=proof,
            dask=self.proof_workers.work if self.proof_workers else None,
        )


class _EnoughError(Exception):
    """The time is over, or the bounds are close enough."""


@dataclass(frozen=True)
class _Elimination:
    """A plan that sweeps every cell of a network."""

    network: CostNetwork
    prepared: Prepared
    enough: Callable[[], bool]
    proof_workers: ProofWorkers | None = None

    @property
    def seconds(self) -> float:
        """Predicted."""
        return self.prepared.plan.seconds if self.prepared.plan else 0.0

    @property
    def compile_seconds(self) -> float:
        """Predicted seconds until the kernels of a device are compiled; infinite if a step cannot be launched."""
        from .placement import compile_seconds_of

        plan, resources = self.prepared.plan, self.prepared.resources
        if plan is None or not plan.device or resources.distributed:
            return 0.0
        try:
            return compile_seconds_of(plan, self.prepared.problem.semiring, resources)
        except LongStepError:
            return math.inf

    def run(self) -> Outcome | None:
        """Run the plan, on all workers if there are any; None if that was ended."""
        from .placement import temporary_folder
        from .running import answered

        if self.proof_workers is not None:
            self.proof_workers.close()
        try:
            with temporary_folder(self.prepared.plan, self.prepared.resources) as folder:
                found = answered(self.prepared, self._look, folder, [])
        except _EnoughError:
            return None
        assert isinstance(found, Result)
        if self.proof_workers is not None:
            self.proof_workers.swept = found.dask
        if found.assignment is None:
            return Outcome(self.network.constant, feasible=False)
        states = tuple(int(found.assignment[str(v)]) for v in range(len(self.network.dims)))
        total = self.network.total(states)
        if total != found.value:
            raise InternalError(f"an assignment of total {total} has the value {found.value}")
        return Outcome(int(total), int(total), states)

    def _look(self, _: object) -> None:
        if self.enough():
            raise _EnoughError
