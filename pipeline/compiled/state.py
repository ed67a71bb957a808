"""The state of a compiled model: its findings, and the messages that are up to date under them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes, peak_rss_bytes
from ...cluster.pool import begin_beside
from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.compiler.numba_parts import unknown_numba
from ...tasks.gpu.cold_kernels import AVOIDED_START
from ...tasks.incremental.kept_tables import Incremental, KeptTables, loops_are_loaded
from ...tasks.steps.step import Step
from ...tasks.sweeps.scaled import QuickSumProduct, Scaled, normalised, weighted
from ...tasks.sweeps.sweep import sweep
from ..answering.answer_question import solved
from ..answering.question import Names, asked_of, is_every
from ..errors import ModelError
from ..machine.resources import Resources
from ..models.cases import Cases
from ..models.findings import (
    Finding,
    check_log10,
    findings_of,
    likelihood,
    same_finding,
    state_vector,
    variable_index,
)
from ..models.model import Model
from ..options import Options
from ..plans.plan import Plan
from ..queries.arithmetic import ScaledPartition
from ..queries.beliefs import BeliefRequest, Beliefs, local_part, local_targets, posteriors
from ..queries.expansion import dressed, expanded, loose_log
from ..results.posteriors import Marginals
from ..trees.tree import Target
from .better_plans import BetterPlans, propagation_seconds, searches_of
from .case_program import CompiledPolicy
from .structure import JointPaths, Skeleton, check_memory, far_pairs_fit, fresh_plan, fresh_question, paths_of

if TYPE_CHECKING:
    from .device_cases import GpuPropagation

# A fresh question is planned for comparison only if the compiled model takes this many times as long: a plan
# that is not used then costs a tenth of the answer.
WORTH_COMPARING: Final = 10
_COLD: Final = "the CPU answered, because this takes less time than compiling the kernels of a device"

Array = NDArray[Any]
State = TypeVar("State", bound="CompiledState")
Asking = ParamSpec("Asking")
T = TypeVar("T")


def one_at_a_time(
    method: Callable[Concatenate[State, Asking], T],
) -> Callable[Concatenate[State, Asking], T]:
    """Let threads that share a compiled model take turns."""

    @wraps(method)
    def alone(self: State, /, *args: Asking.args, **options: Asking.kwargs) -> T:
        with self.lock:
            self.turn_to_better()
            return method(self, *args, **options)

    return alone


class _PlanPaths(NamedTuple):
    """The paths of a plan, and the free bytes for the tables of a joint."""

    plan: Plan
    paths: JointPaths
    free_bytes: int


class AloneBeliefs(NamedTuple):
    """Beliefs of one case, and its findings as likelihoods by variable."""

    beliefs: Beliefs
    findings: Mapping[int, Array]


class CompiledState:
    """A model with its tree, plan and messages, one question at a time.

    An exception, for example Ctrl-C, may leave the tables half changed. The tables therefore count as unsound from
    before a change (:meth:`_tables_under`) until it is complete, which an exception prevents. Unsound tables are
    discarded before the next use. All other changes replace whole objects.

    Attributes
    ----------
    findings : mapping of int to ndarray
        Likelihoods by variable; a change replaces the mapping.
    lock : threading.RLock
        Held by the thread that asks or changes anything.
    better : BetterPlans or None
        Searches for better plans beside the answers, where it is asked to.
    expected : int
        Number of further questions that the caller expects to ask; 0 if it is unknown.
    """

    def __init__(self, skeleton: Skeleton, options: Options, *, background: bool = False) -> None:
        """Compute the leaf tables without findings, and prepare the device if there is one.

        Parameters
        ----------
        skeleton : Skeleton
            Model, network, plan and request.
        options : Options
        background : bool
            Whether to search for a better tree beside the answers.
        """
        self.skeleton: Skeleton = skeleton
        self.options = options
        self.resources: Resources = Resources(options)
        self.lock = threading.RLock()
        self.findings: Mapping[int, Array] = {}
        self._partition = ScaledPartition(skeleton.network)
        self._hosts = skeleton.hosts
        self._base: Mapping[int, Scaled] = {}
        self._tables: KeptTables | None = None
        self._entered: Mapping[int, Array] = {}
        self._sound = True
        self._next: tuple[Skeleton, Mapping[int, Scaled], KeptTables] | None = None
        self._share_run = 1.0
        self.expected: int = 0
        self._last_seconds = 0.0
        self._priced: tuple[Plan | None, float] = None, 0.0
        self._fresh_seconds: dict[Hashable, float] = {}
        self._paths: _PlanPaths | None = None
        self.device: GpuPropagation | None = None
        self._notes: tuple[str, ...] = ()
        self.better: BetterPlans | None = None
        plan = skeleton.plan
        if plan is not None and skeleton.fixed is not None:
            self._base = self._leaves_of(plan)
            # a single question ends before loops are loaded; later ones turn to them, see _change_pace
            many_cells = plan.seconds > CompiledPolicy.current().loading_seconds
            self._keep_tables(many_cells or loops_are_loaded())
            if background and skeleton.planner is not None:
                self.better = searches_of(skeleton.planner, self.resources.memory_bytes)
            if self.resources.gpu_count:
                from .device_cases import GpuPropagation

                self.device = GpuPropagation(
                    skeleton.network, plan, self._base, self._hosts, skeleton.fixed, self.resources.memory_bytes
                )
                if not self.resources.asked.remote:  # a compiled model is for many questions
                    begin_beside(self.resources.gpu_count)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without tables, which are made again: compiled loops know theirs by address."""
        return _again, (type(self), self.skeleton, self.options, self.findings)

    @property
    def model(self) -> Model:
        """The model."""
        return self.skeleton.model

    @property
    def plan(self) -> Plan | None:
        """The plan of both sweeps; None where preprocessing left nothing to eliminate."""
        return self.skeleton.plan

    @property
    def computed(self) -> int:
        """Number of steps that were run so far."""
        return 0 if self._tables is None else self._tables.computed

    @property
    def has_loops(self) -> bool:
        """Whether compiled loops run the steps of a propagation."""
        return self._tables is not None and self._tables.compiled

    @one_at_a_time
    def set_evidence(self, evidence: Mapping[str, Finding] | None) -> None:
        """Replace all findings."""
        self.findings = {} if evidence is None else findings_of(self.model, evidence)

    @one_at_a_time
    def add(self, name: str, finding: Finding) -> None:
        """Add a finding, or replace the one on that variable."""
        self.findings = {**self.findings, **findings_of(self.model, {name: finding})}

    @one_at_a_time
    def clear(self, *names: str) -> None:
        """Take back the findings on some variables; all findings without names."""
        cleared = {variable_index(self.model, n) for n in names} if names else self.findings.keys()
        self.findings = {v: f for v, f in self.findings.items() if v not in cleared}

    @one_at_a_time
    def reset(self) -> None:
        """Forget all findings and messages; the plan stays."""
        self.findings = {}
        self._sound = False
        self._forget_tables()
        self._sound = True

    @one_at_a_time
    def marginals(self, variables: Names = "all") -> Marginals:
        """Return the posteriors under the present findings; ``"all"`` includes what was compiled in."""
        return self._marginals(variables, self.findings)

    def _marginals(self, variables: Names, findings: Mapping[int, Array]) -> Marginals:
        skeleton = self.skeleton
        if is_every(variables):
            return self._answered(skeleton.asked, skeleton.targets, findings)
        asked = asked_of(self.model, variables, (), False)
        return self._answered(asked, local_targets(skeleton.network, asked), findings)

    def _answered(self, asked: BeliefRequest, targets: list[Target], findings: Mapping[int, Array]) -> Marginals:
        """Answer a request, whose targets were compiled in."""
        start, skeleton = time.perf_counter(), self.skeleton
        if self._is_quicker_afresh(asked, findings):
            found = solved(fresh_question(self.model, findings, asked), self.options)
            assert isinstance(found, Marginals)
            return found
        beliefs = self._beliefs(targets, findings)
        found = dressed(self.model, skeleton.network, self._partition, asked, beliefs, findings)
        check_log10(self.model, found.log10_evidence, findings.values())
        seconds = {"run": time.perf_counter() - start}
        return replace(
            found,
            plan=skeleton.plan,
            seconds=seconds,
            peak_rss_bytes=peak_rss_bytes(),
            notes=(*self.model.notes, *self._notes),
        )

    def _is_quicker_afresh(self, asked: BeliefRequest, findings: Mapping[int, Array]) -> bool:
        """Return whether the uncompiled model is predicted to answer sooner."""
        plan = self.plan
        if plan is None or findings is self._entered:
            return False
        return self.afresh_seconds(asked, findings, self._share_run) < self._share_run * self._priced_seconds(plan)

    def afresh_seconds(self, asked: BeliefRequest, findings: Mapping[int, Array], share_run: float = 1.0) -> float:
        """Predict the seconds of a question to the uncompiled model; infinity if comparing would take too long.

        Evidence can make a model much smaller, for example a symptom that is absent in a noisy-OR. The plan of a
        compiled model has no evidence. Questions that observe the same variables are compared once.

        Parameters
        ----------
        asked : BeliefRequest
        findings : mapping of int to ndarray
        share_run : float
            Fraction of a propagation that the compiled model would run.
        """
        plan, beside = self.plan, CompiledPolicy.current().afresh_seconds
        if plan is None or self.device is not None or self._tables is None:
            return math.inf
        if share_run * self._priced_seconds(plan) < WORTH_COMPARING * beside:
            return math.inf
        question = fresh_question(self.model, findings, asked)
        observed = frozenset(question.hard), frozenset(question.soft), asked
        if observed not in self._fresh_seconds:
            fresh = fresh_plan(question, self.options)
            self._fresh_seconds[observed] = beside + (0.0 if fresh is None else propagation_seconds(fresh))
        return self._fresh_seconds[observed]

    def _priced_seconds(self, plan: Plan) -> float:
        """Return the price of a propagation by a plan, computed once."""
        if self._priced[0] is not plan:
            self._priced = plan, propagation_seconds(plan)
        return self._priced[1]

    @one_at_a_time
    def partition(self) -> float:
        """Return log10 of the probability of the findings; -inf if they are impossible."""
        network, findings = self.skeleton.network, self.findings
        beliefs = self._beliefs([], findings)
        found = dressed(self.model, network, self._partition, BeliefRequest((), (), ()), beliefs, findings)
        assert found.log10_evidence is not None
        check_log10(self.model, found.log10_evidence, findings.values())
        return found.log10_evidence

    @one_at_a_time
    def current_tables(self) -> dict[int, Scaled]:
        """Return the messages that are up to date, leaves not among them; they may change with the next question."""
        if self._tables is None:
            return {}
        found = self._tables_under(self.findings).current()
        self._sound = True
        return found

    @one_at_a_time
    def restore(self, findings: Mapping[int, Array], tables: Mapping[int, Scaled]) -> None:
        """Enter findings with messages that were computed under them."""
        self.findings = dict(findings)
        if self._tables is not None:
            self._tables_under(self.findings).restore(tables)
            self._sound = True

    @one_at_a_time
    def shared_tables(self, findings: Mapping[int, Array], nodes: Sequence[int]) -> dict[int, Scaled] | None:
        """Return all leaves under some findings, and the tables of some steps; None if the model keeps no tables."""
        plan = self.plan
        if plan is None or self._tables is None:
            return None
        tables = self._tables_under(findings)
        tables.refresh(nodes, plan.kept_threads)
        found = tables.copies((*self._base, *nodes))
        self._sound = True
        return found

    @one_at_a_time
    def asked_alone(self, cases: Cases, case: int, asked: BeliefRequest, findings: Mapping[int, Array]) -> Marginals:
        """Answer a request about one case separately, with findings on variables that the case does not observe."""
        targets = local_targets(self.skeleton.network, asked)
        return self._answered(asked, targets, {**findings, **self.vectors(cases, case)})

    @one_at_a_time
    def beliefs_alone(self, cases: Cases, case: int, targets: Sequence[Target]) -> AloneBeliefs:
        """Compute the beliefs of some targets in one case by itself."""
        found = self.vectors(cases, case)
        return AloneBeliefs(self._beliefs([*targets], found), found)

    def vectors(self, cases: Cases, case: int) -> dict[int, Array]:
        """Return the findings of one case as likelihoods by variable."""
        return {
            v: state_vector(self.model, v, f) if isinstance(f, int) else likelihood(self.model, v, f)
            for v, f in cases.findings(case).items()
        }

    def turn_to_better(self) -> None:
        """Switch to the better plan, with its own tables; the caller holds the lock.

        An exception that comes in between leaves it to be taken whole by the next question.
        """
        if self._next is not None:
            self._sound = False
            self.skeleton, self._base, self._tables = self._next
            self._entered = {}
            self._next, self._sound = None, True

    def _look_for_better(self, steps_run: int) -> None:
        """Record the work of an answer, and build the tables of a better plan, if there is one and its joints fit."""
        if self.better is None or self._tables is None or self.plan is None:
            return
        plan = self.better.after(self.plan, steps_run)
        if plan is None:
            return
        skeleton = replace(self.skeleton, plan=plan)
        if far_pairs_fit(skeleton, self.resources.memory_bytes):
            base = self._leaves_of(plan)
            self._next = skeleton, base, kept_tables(plan, base, self._tables.compiled)

    def _leaves_of(self, plan: Plan) -> Mapping[int, Scaled]:
        """Make the leaf tables that a plan reads."""
        return self._partition.leaves(dict(enumerate(plan.layouts[: plan.tree.n_leaves])))

    def _tables_under(self, findings: Mapping[int, Array]) -> KeptTables:
        """Return the tables for a change, with some findings in their leaves; unsound until the caller is done."""
        assert self._tables is not None
        sound, self._sound = self._sound, False
        if not sound:
            self._forget_tables()
        self._enter(findings)
        return self._tables

    def _keep_tables(self, compiled: bool) -> None:
        """Keep new tables, in compiled loops or as NumPy goes."""
        assert self.plan is not None
        self._sound = False
        self._tables, self._entered = kept_tables(self.plan, self._base, compiled), {}
        self._sound = True

    def _forget_tables(self) -> None:
        if self._tables is not None:
            self._tables.reset(self._base)
        self._entered = {}

    def _beliefs(self, targets: list[Target], findings: Mapping[int, Array]) -> Beliefs:
        """Return the beliefs of some targets: from the device, or from the CPU if it ends before the kernels are
        compiled.
        """
        skeleton = self.skeleton
        if skeleton.fixed is None or skeleton.plan is None or self._tables is None:
            return Beliefs(skeleton.fixed, {})
        plan, avoided = skeleton.plan, False
        if self.device is not None:
            avoided = not self.options.remote and self.device.cores_end_first(self._predicted_seconds(plan))
            self._notes = (_COLD,) if avoided else ()
            on_device = None if avoided or self.options.remote else self.device.beliefs(findings, targets)
            if on_device is not None:
                return on_device
            check_memory(plan, default_memory_bytes())
        with AVOIDED_START.counted(avoided):
            return self._beliefs_here(plan, targets, findings)

    def _predicted_seconds(self, plan: Plan) -> float:
        """Return the predicted seconds of the next questions on the CPU."""
        return self._share_run * self._priced_seconds(plan) * max(self.expected, 1)

    def _beliefs_here(self, plan: Plan, targets: list[Target], findings: Mapping[int, Array]) -> Beliefs:
        """Update the tables on the CPU that some targets need, and read the targets."""
        assert self.skeleton.fixed is not None
        tables, threads = self._tables_under(findings), plan.kept_threads
        before, seconds = tables.computed, tables.seconds
        tables.refresh(plan.tree.roots, threads)
        total = self._partition.total([tables.table(r) for r in plan.tree.roots])
        found: dict[Target, Array] = {}
        if total != -math.inf:
            direct = {target: plan.results[target] for target in targets if target in plan.results}
            tables.refresh(tuple(direct.values()), threads)
            found = self._read(direct)
            found.update({target: self._joint_table(target) for target in targets if target not in direct})
            self._change_pace(tables.seconds - seconds if before else 0.0)
        self.expected = max(self.expected - 1, 0)
        self._sound = True
        self._share_run = (tables.computed - before) / len(plan.steps)
        self._look_for_better(tables.computed - before)
        return Beliefs(None if total == -math.inf else self.skeleton.fixed + total, found)

    def _read(self, nodes: Mapping[Target, int]) -> dict[Target, Array]:
        """Normalise and shape the tables of some targets."""
        plan, tables = self.plan, self._tables
        assert plan is not None
        assert tables is not None
        flat = tables.posteriors(tuple(nodes.values()))
        if flat is None:
            return posteriors({target: tables.table(node) for target, node in nodes.items()}, plan.dims)
        return {
            target: table if len(target) == 1 else table.reshape([plan.dims[v] for v in target])
            for target, table in zip(nodes, flat, strict=True)
        }

    def _plan_paths(self) -> _PlanPaths:
        """Return the paths of the current plan."""
        plan = self.plan
        assert plan is not None
        if self._paths is None or self._paths.plan is not plan:
            self._paths = _PlanPaths(plan, paths_of(plan), self.resources.memory_bytes - plan.kept_bytes)
        return self._paths

    def _joint_here(self, variables: tuple[int, ...], findings: Mapping[int, Array]) -> Array | None:
        """Return the joint of variables of the model, an axis for each in this order; None if its tables do not fit.

        Raises
        ------
        ModelError
            If the findings are impossible.
        """
        network, asked = self.skeleton.network, BeliefRequest((), (variables,), ())
        target = local_part(network, variables)
        if not target or not (self._is_read(target) or self._joint_fits(target)):
            return None
        if self._is_quicker_afresh(asked, findings):
            found = self._answered(asked, [target], findings)
            (table,) = found.joints.values() if found.status == "ok" else (None,)
        else:
            beliefs = self._beliefs([target], findings)
            total = -math.inf if beliefs.total is None else beliefs.total + loose_log(network, findings)
            check_log10(self.model, total / math.log(10), findings.values())
            possible = total > -math.inf
            table = expanded(network, variables, beliefs.tables, findings, max_marginals=False) if possible else None
        if table is None:
            raise ModelError("the findings are impossible: no distribution exists under them")
        return np.ascontiguousarray(table)

    def _is_read(self, target: Target) -> bool:
        """Return whether the plan has a table of some local variables."""
        return self.plan is not None and target in self.plan.results

    def _joint_fits(self, target: Target) -> bool:
        """Return whether the steps for the joint of some local variables can run, and their tables fit in memory."""
        if self.plan is None or self.device is not None or self._tables is None:
            return False
        paths = self._plan_paths()
        return paths.paths.joint(target).nbytes <= paths.free_bytes

    def _joint_table(self, target: Target) -> Array:
        """Return the joint of some local variables, computed along the paths between them."""
        plan, tables, path = self.plan, self._tables, self._plan_paths().paths.joint(target)
        assert plan is not None
        assert tables is not None
        # these tables include all that the path reads
        tables.refresh((plan.results[(path.own,)],), plan.kept_threads)
        compiled = compiler_pays(sum([step.lowered.cells for step in path.steps]))
        algebra = QuickSumProduct(plan.tree.dims, compiled)
        given = {node: tables.table(node) for node in path.read}
        made = sweep(path.steps, given, algebra, path.freed, threads=plan.kept_threads)[path.table]
        values = normalised(made).reshape([plan.dims[v] for v in path.axes])
        rest = tuple([v for v in target if v not in path.axes])
        if rest:  # variables of other trees of the forest, which are independent
            values = np.multiply.outer(values, self._joint_table(rest))
        axes = *path.axes, *rest
        return np.ascontiguousarray(values.transpose([axes.index(v) for v in target]))

    def expect(self, questions: int) -> None:
        """Set the number of further questions; load compiled loops now if these are predicted to take as long."""
        self.expected = questions
        if self.plan is not None:
            self.load_loops(self.plan.seconds * questions)

    def _change_pace(self, again: float) -> None:
        """Turn to compiled loops once as much time was spent without them as it takes to load them, or as soon as the
        expected questions would take as long.

        Parameters
        ----------
        again : float
            Seconds of the last question; 0 if it was the first one, which computes all tables.
        """
        # the shorter of two questions, because one may be delayed by chance
        again, self._last_seconds = min(again, self._last_seconds), again
        self.load_loops(max(self._tables.seconds if self._tables else 0.0, again * self.expected))

    def load_loops(self, seconds: float) -> None:
        """Turn to compiled loops if propagations without them took, or will take, longer than loading.

        Parameters
        ----------
        seconds : float
            Seconds of the propagations.
        """
        tables, plan = self._tables, self.plan
        if tables is None or plan is None or tables.compiled:
            return
        if seconds > CompiledPolicy.current().loading_seconds:
            self._tables = kept_tables(plan, tables.copies(self._base), True)
            self._tables.restore(tables.current())

    def _enter(self, findings: Mapping[int, Array]) -> None:
        """Rebuild the leaves with findings that differ from the entered ones."""
        if findings is self._entered or self._tables is None:
            return
        before, local = self._entered, self.skeleton.network.local
        changed = [v for v in {**before, **findings} if not same_finding(before.get(v), findings.get(v))]
        for leaf in {self._hosts[local[v]] for v in changed if v in local}:
            self._tables.set_leaf(leaf, self._leaf(leaf, findings))
        self._entered = findings

    def _leaf(self, leaf: int, findings: Mapping[int, Array]) -> Scaled:
        """Multiply a leaf table by the findings that it hosts."""
        assert self.plan is not None
        network, axes = self.skeleton.network, self.plan.layouts[leaf]
        found = {}
        for axis, v in enumerate(axes):
            variable = network.variables[v]
            if self._hosts[v] == leaf and variable in findings:
                found[axis] = findings[variable][network.domains[variable]]
        return weighted(self._base[leaf], [network.dims[v] for v in axes], found) if found else self._base[leaf]


def _again(kind: type[State], skeleton: Skeleton, options: Options, findings: Mapping[int, Array]) -> State:
    """Return a compiled model with findings and without messages."""
    found = kind(skeleton, options)
    found.findings = findings
    return found


def kept_tables(plan: Plan, leaves: Mapping[int, Scaled], compiled: bool) -> KeptTables:
    """Keep all tables of a plan, in compiled loops or as NumPy goes."""
    return kept_steps(plan.steps, len(plan.up), leaves, plan.tree.dims, compiled, plan.kept_threads)


def kept_steps(
    steps: Sequence[Step],
    scaled_steps: int,
    leaves: Mapping[int, Scaled],
    dims: tuple[int, ...],
    compiled: bool,
    threads: int = 1,
) -> KeptTables:
    """Keep all tables of some steps; only the first ``scaled_steps`` keep their scale."""
    if compiled and not unknown_numba():
        from ...tasks.incremental.packed import Packed

        return Packed(steps, scaled_steps, leaves, QuickSumProduct(dims, True), threads)
    # one propagation may pay for the kernels of large steps, and not for the loops over all small ones
    large_steps = compiler_pays(sum([step.lowered.cells for step in steps]))
    return Incremental(steps, scaled_steps, leaves, QuickSumProduct(dims, large_steps))
