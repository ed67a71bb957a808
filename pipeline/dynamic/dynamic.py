"""Dynamic networks: the public function, its network and its results. One plan of a slice serves every step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.incremental.kept_tables import loops_are_loaded
from ...tasks.steps.number_limits import SAME_SHARE
from ...tasks.steps.policy import Policy
from ..answering.question import Names, asked_of
from ..api.marginals import in_memory
from ..errors import BudgetError, InternalError, ModelError, checks_keywords, format_bytes, format_count, public
from ..formats.read import GivenModel, given_model
from ..machine.resources import Resources
from ..models.cases import Cases
from ..models.checks import integer
from ..models.frames import imported_pandas
from ..models.model import Model
from ..options import Keywords, Options
from ..orders.effort import BOTH_WAYS_STEP_CELLS
from ..plans.plan import Plan
from ..results.posteriors import CaseMarginals
from ..results.samples import labelled_frame
from .slice_plan import SliceBeliefs, SliceLeaves, SlicePlan, SliceSums, slice_leaves, sums_plan
from .slice_template import Factor, SliceTemplate, Suffixes, template_of
from .walks import (
    ImpossibleError,
    OptimumWalk,
    SliceOptimum,
    StepFindings,
    SumWalk,
    block_steps,
    evidence_by_step,
    optimum_plan,
)


@public
@dataclass(frozen=True, eq=False, repr=False)
class StepMarginals(CaseMarginals):
    """Posteriors of the variables of a slice, at each of some steps: arrays with an axis ``step``.

    Parameters
    ----------
    model : Model
        A slice: names and states.
    tables : dict of str to ndarray, shape (steps, states)
        All zeros for a step that is impossible.
    log10_evidence : ndarray, shape (steps,)
        log10 of the probability of the findings that the step's posteriors are conditioned on; -inf if they are
        impossible.
    impossible_step : int or None
        The first step whose observations are impossible given those before it.
    told : tuple of str
        Notes.

    Examples
    --------
    >>> import bucketflow
    >>> first = bucketflow.Model.build("bayes", {"rain": 2}, [(["rain"], [0.8, 0.2])])
    >>> change = (["rain_prev", "rain"], [[0.9, 0.1], [0.3, 0.7]])
    >>> later = bucketflow.Model.build("bayes", {"rain_prev": 2, "rain": 2}, [(["rain_prev"], [0.5, 0.5]), change])
    >>> found = bucketflow.dynamic(first, later).smoothed({"rain": [None, None, 1]})
    >>> found["rain"].round(3).tolist()
    [[0.552, 0.448], [0.336, 0.664], [0.0, 1.0]]
    """

    impossible_step: int | None = None
    told: tuple[str, ...] = ()
    _ROW: ClassVar[str] = "step"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the caller, one sentence each."""
        return self.told

    def to_frame(self) -> Any:
        """Return a pandas data frame, a row for each step and a column for each state, named ``variable=state``.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        columns = {
            f"{name}={self.model.label(v, s)}": table[:, s]
            for name, table in self.items()
            for v in [self.model.index[name]]
            for s in range(self.model.dims[v])
        }
        return imported_pandas().DataFrame(columns)


@public
@dataclass(frozen=True, eq=False)
class StatePath:
    """The most likely states of all variables at all steps.

    Parameters
    ----------
    model : Model
        A slice: names and states.
    states : ndarray of int, shape (steps, variables)
        State indices; no row where what is observed is impossible.
    log10 : float
        log10 of the joint probability of these states and the findings; -inf if it is 0.
    impossible_step : int or None
        The first step whose observations are impossible given those before it.
    notes : tuple of str

    Examples
    --------
    >>> import bucketflow
    >>> first = bucketflow.Model.build("bayes", {"rain": 2}, [(["rain"], [0.8, 0.2])])
    >>> change = (["rain_prev", "rain"], [[0.9, 0.1], [0.3, 0.7]])
    >>> later = bucketflow.Model.build("bayes", {"rain_prev": 2, "rain": 2}, [(["rain_prev"], [0.5, 0.5]), change])
    >>> bucketflow.dynamic(first, later).path({"rain": [None, None, 1]}).states.tolist()
    [[1], [1], [1]]
    """

    model: Model
    states: Array
    log10: float
    impossible_step: int | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, name: str) -> Array:
        """Return the state indices of one variable, by its name; :meth:`to_frame` has their labels."""
        if name not in self.model.index:
            raise ModelError(f"{name!r} is not a variable of a slice")
        return np.asarray(self.states[:, self.model.index[name]])

    def to_frame(self) -> Any:
        """Return a pandas data frame, a row for each step; states with labels are categories.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        return labelled_frame(self.model, self.states)


# Tuned numbers of dynamic networks. Pure.


@dataclass(frozen=True)
class DynamicPolicy(Policy):
    """Numbers of dynamic networks.

    Parameters
    ----------
    kept_message_bytes : int
        Maximum bytes of kept messages from later steps, unless ``memory`` is given. Beyond this, messages are kept at
        checkpoints, and recomputing the others takes a third more time.
    message_bytes : int
        Bytes of a message in addition to its table: an array, its scale and bounds, measured with 10^5 messages.
    rows : int
        Steps of a block that is answered, and written, at once.
    """

    kept_message_bytes: int = 1 << 26
    message_bytes: int = 400
    rows: int = 1024


Array = NDArray[Any]


@public
@checks_keywords
def dynamic(
    initial: GivenModel,
    transition: GivenModel | None = None,
    *,
    suffixes: Suffixes | None = None,
    **options: Unpack[Keywords],
) -> DynamicNetwork:
    """Make a network that repeats from step to step, of a first slice and a transition.

    Parameters
    ----------
    initial : Model, path or name of an example
        The first slice, a Bayesian or Markov network; or, without a transition, both slices in one.
    transition : Model, path or name of an example, optional
        A slice with the variables of the one before that it depends on.
    suffixes : (str, str), optional
        Suffixes of variable names for the previous step and the current one. By default the first pair that matches:
        ``_0`` and ``_1``, ``_prev`` and none, ``[0]`` and ``[1]``, or ``0`` and ``t``.
    **options
        ``memory``, ``order`` (a rule), ``order_time``, ``tree`` and ``seed``, as in :func:`bucketflow.solve`.

    Raises
    ------
    ModelError
        If variables are not paired, have other states, or depend on later steps.
    BudgetError
        If messages between slices do not fit ``memory``.

    Examples
    --------
    >>> import bucketflow
    >>> first = bucketflow.Model.build("bayes", {"rain": 2}, [(["rain"], [0.8, 0.2])])
    >>> change = (["rain_prev", "rain"], [[0.9, 0.1], [0.3, 0.7]])
    >>> later = bucketflow.Model.build("bayes", {"rain_prev": 2, "rain": 2}, [(["rain_prev"], [0.5, 0.5]), change])
    >>> bucketflow.dynamic(first, later).filtered(steps=3)["rain"].round(3).tolist()
    [[0.8, 0.2], [0.78, 0.22], [0.768, 0.232]]
    """
    chosen = in_memory(**options)
    if chosen.gpus is not None or chosen.workers or chosen.remote:
        raise ModelError(
            "a dynamic network is computed step by step in this process; leave out gpus, workers, scheduler"
        )
    first = given_model(initial, chosen.memory)
    then = None if transition is None else given_model(transition, chosen.memory)
    return DynamicNetwork(template_of(first, then, suffixes), chosen)


@public
@dataclass(frozen=True, eq=False)
class DynamicNetwork:
    """A network of any number of steps; see :func:`bucketflow.dynamic`.

    Evidence is given by step: as columns, a data frame, or a mapping for each step; or as the path of a CSV file with a
    header of names and one row for each step. Blank, None or NaN means unobserved. ``steps`` may exceed the steps with
    evidence.

    Examples
    --------
    >>> import bucketflow
    >>> first = bucketflow.Model.build("bayes", {"rain": 2}, [(["rain"], [0.8, 0.2])])
    >>> change = (["rain_prev", "rain"], [[0.9, 0.1], [0.3, 0.7]])
    >>> later = bucketflow.Model.build("bayes", {"rain_prev": 2, "rain": 2}, [(["rain_prev"], [0.5, 0.5]), change])
    >>> network = bucketflow.dynamic(first, later)
    >>> network.names, network.interface
    (('rain',), ('rain',))
    """

    template: SliceTemplate
    options: Options

    def __post_init__(self) -> None:
        needed, allowed = 2 * 8 * self.template.message_cells, Resources(self.options).memory_bytes
        if needed > allowed:
            size = format_count(self.template.message_cells)
            raise BudgetError(
                f"the {len(self.template.interface)} variables between slices have {size} joint states, whose messages "
                f"need {format_bytes(needed)}, allowed {format_bytes(allowed)}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables of a slice."""
        return self.template.slice.names

    @property
    def interface(self) -> tuple[str, ...]:
        """Names of the variables that the next slice depends on."""
        return tuple([self.names[v] for v in self.template.interface])

    @checks_keywords
    def filtered(
        self, evidence: Any = None, *, steps: int | None = None, lag: int = 0, variables: Names = "all"
    ) -> StepMarginals:
        """Return the posteriors of each step given what is observed up to it, or up to ``lag`` steps later."""
        return _joined([*self.filtered_blocks(evidence, steps=steps, lag=lag, variables=variables)])

    @checks_keywords
    def smoothed(self, evidence: Any = None, *, steps: int | None = None, variables: Names = "all") -> StepMarginals:
        """Return the posteriors of each step given everything that is observed."""
        return _joined([*self.smoothed_blocks(evidence, steps=steps, variables=variables)])

    @checks_keywords
    def path(self, evidence: Any = None, *, steps: int | None = None) -> StatePath:
        """Return the most likely states of all variables at all steps together, given everything that is observed."""
        blocks = [*self.path_blocks(evidence, steps=steps)]
        return replace(blocks[0], states=np.concatenate([block.states for block in blocks]))

    @checks_keywords
    def filtered_blocks(
        self, evidence: Any = None, *, steps: int | None = None, lag: int = 0, variables: Names = "all"
    ) -> Iterator[StepMarginals]:
        """Yield what :meth:`filtered` returns block by block, so that not all of it is in memory."""
        lag = integer(lag, "the lag", 0)
        walk, asked = self._sum_walk(evidence, steps, variables, 2 + lag)
        return self._blocks(walk, walk.filtered(lag), asked)

    @checks_keywords
    def smoothed_blocks(
        self, evidence: Any = None, *, steps: int | None = None, variables: Names = "all"
    ) -> Iterator[StepMarginals]:
        """Yield what :meth:`smoothed` returns block by block."""
        walk, asked = self._sum_walk(evidence, steps, variables, 4)
        tables = sum(plan.kept_bytes for plan in self._sum_plans(asked))
        return self._blocks(walk, walk.smoothed(self._block(walk.findings.count, tables)), asked)

    @checks_keywords
    def path_blocks(self, evidence: Any = None, *, steps: int | None = None) -> Iterator[StatePath]:
        """Yield what :meth:`path` returns block by block; all have its logarithm."""
        cases = evidence_by_step(self.template.slice, evidence, steps)
        findings = StepFindings(self.template.slice, cases)
        plans = self._optimum_plans
        compiled = _compiled(cases.count, 3, sum(plan.cells for plan in plans), sum(len(plan.up) for plan in plans))
        first, later = (SliceOptimum(leaves, plan, compiled) for leaves, plan in zip(self._leaves, plans, strict=True))
        block = self._block(cases.count, sum(plan.kept_bytes for plan in plans))
        return self._path_blocks(OptimumWalk(first, later, findings), block, cases)

    @cached_property
    def _leaves(self) -> tuple[SliceLeaves, SliceLeaves]:
        """Of the first slice, and of every later one."""
        template, n = self.template, len(self.template.slice.dims)
        first = slice_leaves(template.dims[:n], template.initial, template.interface, ())
        return first, slice_leaves(template.dims, template.transition, template.interface, template.past)

    @cached_property
    def _plans(self) -> dict[tuple[int, ...], tuple[SlicePlan, SlicePlan]]:
        """Plans of sums, by the requested variables."""
        return {}

    def _sum_plans(self, asked: tuple[int, ...]) -> tuple[SlicePlan, SlicePlan]:
        if asked not in self._plans:
            first, later = (sums_plan(leaves, asked, Resources(self.options)) for leaves in self._leaves)
            self._plans[asked] = first, later
        return self._plans[asked]

    @cached_property
    def _optimum_plans(self) -> tuple[Plan, Plan]:
        first, later = (optimum_plan(leaves, Resources(self.options)) for leaves in self._leaves)
        return first, later

    def _sum_walk(
        self, evidence: Any, steps: int | None, variables: Names, sweeps: int
    ) -> tuple[SumWalk, tuple[int, ...]]:
        """Build the walk, and return it with the requested variables."""
        model = self.template.slice
        asked = tuple(asked_of(model, variables, (), False).variables)
        cases = evidence_by_step(model, evidence, steps)
        plans = self._sum_plans(asked)
        cells, made = sum(plan.cells for plan in plans), sum(len(plan.steps) for plan in plans)
        compiled = loops_are_loaded() or _compiled(cases.count, sweeps, cells, made)
        first, later = (SliceSums(plan, compiled) for plan in plans)
        return SumWalk(first, later, StepFindings(model, cases)), asked

    def _block(self, count: int, tables: int) -> int:
        """Choose how many steps lie between checkpoints.

        Raises
        ------
        BudgetError
            If even those at every root of all steps do not fit.
        """
        free = max(Resources(self.options).memory_bytes - tables, 0)
        policy = DynamicPolicy.current()
        each = 8 * self.template.message_cells + policy.message_bytes
        kept = free if self.options.memory is not None else min(free, policy.kept_message_bytes)
        block = block_steps(count, each, kept)
        needed = each * min(block + -(-count // block), count)
        if needed > free:
            raise BudgetError(
                f"messages between {count:,} steps need {format_bytes(needed)} at checkpoints, in addition to tables "
                "of "
                f"{format_bytes(tables)} allowed {format_bytes(free)}"
            )
        return block

    def _blocks(self, walk: SumWalk, found: Iterator[SliceBeliefs], asked: Sequence[int]) -> Iterator[StepMarginals]:
        """Collect steps into blocks; impossible steps have zeros."""
        model, count, rows = self.template.slice, walk.findings.count, DynamicPolicy.current().rows
        impossible: int | None = None
        for start in range(0, count, rows):
            size = min(rows, count - start)
            tables = {v: np.zeros((size, model.dims[v])) for v in asked}
            logs = np.full(size, -math.inf)
            try:
                for k, step in enumerate(islice(found, size)):
                    logs[k] = step.log / math.log(10)
                    for v, belief in step.posteriors.items():
                        tables[v][k] = belief
            except ImpossibleError:
                impossible, found = walk.impossible_step(), iter(())
            named = {model.names[v]: table for v, table in tables.items()}
            yield StepMarginals(model, named, logs, impossible, self.template.notes)

    def _path_blocks(self, walk: OptimumWalk, block: int, cases: Cases) -> Iterator[StatePath]:
        model, template = self.template.slice, self.template
        found, total, energy, past = walk.path(block), 0.0, 0.0, np.zeros((0, len(model.dims)), np.int32)
        for start in range(0, cases.count, DynamicPolicy.current().rows):
            try:
                rows = [*islice(found, DynamicPolicy.current().rows)]
            except ImpossibleError:
                sums, _ = self._sum_walk_of(cases)
                yield StatePath(model, past, -math.inf, sums.impossible_step(), template.notes)
                return
            energy = rows[0][0]
            states = np.array([states for _, states in rows], np.int32)
            total += math.fsum(walk.findings.logs_at(start, states)) + _log_of(template, past[-1:], states)
            past = states
            yield StatePath(model, states, -energy / math.log(10), None, template.notes)
        if not abs(total + energy) <= SAME_SHARE * max(1.0, abs(energy)):
            raise InternalError(f"the decoded path has ln {total}, the sweeps gave {-energy}")

    def _sum_walk_of(self, cases: Cases) -> tuple[SumWalk, tuple[int, ...]]:
        columns = {self.names[v]: column for v, column in cases.columns.items()}
        return self._sum_walk(columns or None, cases.count, (), 1)


def _joined(blocks: Sequence[StepMarginals]) -> StepMarginals:
    """Put blocks of steps behind each other."""
    tables = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    logs = np.concatenate([block.log10_evidence for block in blocks])
    return replace(blocks[-1], tables=tables, log10_evidence=logs)


def _compiled(count: int, sweeps: int, cells: int, steps: int) -> bool:
    """Whether compiled loops pay; the overhead of a step without them counts too."""
    return compiler_pays(count * sweeps * (cells + steps * BOTH_WAYS_STEP_CELLS) // 2)


def _log_of(template: SliceTemplate, past: Array, states: Array) -> float:
    """Return ln of the product of the factors of some steps at their states; ``past`` is the step before, if any."""
    whole = np.concatenate([past, states])
    later = np.concatenate([whole[1:], whole[:-1, list(template.interface)]], axis=1)
    logs = [] if len(past) else _logs(template.initial, whole[:1])
    return math.fsum([*logs, *_logs(template.transition, later)])


def _logs(factors: Sequence[Factor], states: Array) -> list[float]:
    """Return ln of the entries of factors at states, shape (rows, variables)."""
    with np.errstate(divide="ignore"):
        return [float(np.log(values[tuple(states[:, scope].T)]).sum()) for scope, values in factors]
