"""Batches of evidence, in blocks of cases: how a block is answered, and the predicted seconds.

Cases that observe states are answered one after the other, each over the cells that agree with it. Where they have
likelihoods, and where loops are not compiled, one pair of sweeps answers a block of cases, which are the last axis of
every table that they change.

Together, cases share the fixed cost of each step, which is Python's. In return, every step that some case changes is
computed for every case, and no step is a product of matrices. One by one, a case computes only the messages that differ
from the messages of the case before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.caches import Remembered
from ...tasks.steps.lowering import lower
from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.policy import Policy
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step
from ...tasks.sweeps.case_batches import CaseProduct, CaseTable, for_all_cases, log_totals, posteriors
from ...tasks.sweeps.scaled import LOWEST, Scaled
from ...tasks.sweeps.sweep import freed_tables, sweep
from ..models.cases import Cases
from ..models.findings import case_likelihoods
from ..orders.effort import BOTH_WAYS_STEP_SECONDS
from ..plans.plan import Plan
from ..trees.costs import Rates, lowered_work, step_seconds
from ..trees.memory import Sizing, sweep_peak
from ..trees.tree import Target

if TYPE_CHECKING:
    from ...tasks.sweeps.observed_cases import ObservedCases


@dataclass(frozen=True)
class CompiledPolicy(Policy):
    """Numbers of compiled models; numbers of devices are measured with ``tests/bench/gpu_marginals.py``.

    Parameters
    ----------
    block_cells : int
        Approximate cells that a block of cases sweeps. Fewer cells do not hide the fixed cost of a step, and more cells
        leave the cache.
    observing_cells : int
        Cells of a batch over the compiled tree from which cases with observed states get separate trees. The loop for
        separate trees takes some seconds to compile, once.
    observed_saving : int
        Minimum ratio of cells between the compiled tree and a case's separate tree, whose cells are visited by several
        passes. Cases with a smaller ratio are answered over the compiled tree.
    least_observed_cells : int
        Cells that the separate tree of a case may always have.
    observed_variables : int
        Maximum variables of a model whose cases have separate trees. The time of finding an order is quadratic in them.
    device_bytes : int
        Maximum bytes of the tables of a group of cases on a device.
    device_block_seconds : float
        Minimum seconds of a block, because it is sent to a worker and its answers are sent back.
    device_factors_per_second : float
        Factors that a device multiplies in a second.
    answer_bytes : int
        Maximum bytes of the answers of a block. The answers of several blocks for each device are in memory together.
    device_start_seconds : float
        Approximate seconds until a further device is ready for its first cases. With a lower number, short batches
        start devices that take longer than they save.
    device_reading_seconds : float
        Python's seconds for the answer of one variable in a block. Devices share the interpreter, so they do not save
        this time.
    joint_states : int
        Maximum states of a joint that was not requested when the model was compiled.
    loading_seconds : float
        Seconds of computing after which compiled loops are loaded for small models too.
    searching_seconds : float
        Predicted total seconds of propagations after which a background search for a better tree begins. It takes as
        long.
    longest_search_seconds : float
        Maximum seconds of a background search. Searches repeat, each longer than the last, until a search takes this
        long. On large networks, the better trees are 2 to 3 times faster.
    least_saved : float
        Minimum fraction of a propagation that a new plan must save to replace the old plan.
    afresh_seconds : float
        Seconds of a question without a compiled model, in addition to its propagation: evidence, reduction and plan of
        a network of about ten variables.
    """

    block_cells: int = 1 << 25
    observing_cells: int = 1 << 30
    observed_saving: int = 8
    least_observed_cells: int = 1 << 16
    observed_variables: int = 4096
    device_bytes: int = 8 << 30
    device_block_seconds: float = 0.02
    device_factors_per_second: float = 5e11
    answer_bytes: int = 1 << 27
    device_start_seconds: float = 0.5
    device_reading_seconds: float = 8e-6
    joint_states: int = 1 << 20
    loading_seconds: float = 0.5
    searching_seconds: float = 0.5
    longest_search_seconds: float = 3.0
    least_saved: float = 0.05
    afresh_seconds: float = 0.01


# Most cases of a block.
_BLOCK_CASES: Final = 8192
# Number of these cases in a block per thread: few enough that an interruption is noticed soon, and that a cluster
# has work for every worker.
OBSERVED_BLOCK_CASES: Final = 128

# All blocks but the last have the same number of cases, and iterations of learning repeat the same program.
_LOWERED: Final[Remembered[tuple[Step, ...]]] = Remembered(8)

Array = NDArray[Any]


@dataclass(frozen=True)
class Observation:
    """A local variable that some case observes: the leaf that takes it, and its remaining states."""

    variable: int
    leaf: int
    states: Array


@dataclass(frozen=True, eq=False)
class BatchProgram:
    """Data that a worker needs to answer any block of cases.

    Parameters
    ----------
    plan : Plan
    leaves : mapping of int to Scaled
        Leaf tables with the findings that all cases share.
    shared : mapping of int to Scaled
        Tables made by steps that no case changes.
    observations : tuple of Observation
    steps : tuple of Step
        The steps that a case can change and that an answer needs, without the axis of cases.
    targets : tuple of Target
    compiled : bool
    observed : ObservedCases or None
        That answers where all observe states.
    """

    plan: Plan
    leaves: Mapping[int, Scaled]
    shared: Mapping[int, Scaled]
    observations: tuple[Observation, ...]
    steps: tuple[Step, ...]
    targets: tuple[Target, ...]
    compiled: bool
    observed: ObservedCases | None = None

    @property
    def varying(self) -> frozenset[int]:
        """Tables with an axis of cases."""
        return frozenset((*(o.leaf for o in self.observations), *(step.node for step in self.steps)))

    def block_steps(self, cases: int) -> tuple[Step, ...]:
        """Lower the steps for a number of cases, once for all programs over the same plan."""
        varying = self.varying

        def lowered() -> tuple[Step, ...]:
            axis = len(self.plan.tree.dims)
            sizes = dict(enumerate((*self.plan.tree.dims, cases)))
            return tuple(_with_cases(step, varying, axis, sizes) for step in self.steps)

        parts = self.plan.tree, self.plan.up, self.plan.back
        return _LOWERED.of(parts, (cases, varying, tuple([step.node for step in self.steps])), lowered)

    def block_bytes(self, cases: int) -> int:
        """Peak bytes of the tables of one block, its leaves and workspace included."""
        steps, itemsize = self.block_steps(cases), SUM_PRODUCT.itemsize
        leaves = {o.leaf for o in self.observations}
        held = (
            2 * itemsize * cases * sum(math.prod(self.plan.tree.dims[v] for v in self.plan.layouts[i]) for i in leaves)
        )
        answers = sum(math.prod(self.plan.tree.dims[v] for v in t) for t in self.targets)
        sizes = (*self.plan.tree.dims, cases)
        peak = sweep_peak(steps, Sizing(sizes, itemsize), self.kept)
        return held + 2 * itemsize * cases * answers + peak

    @property
    def kept(self) -> frozenset[int]:
        """Tables that a block returns."""
        return frozenset((*self.plan.tree.roots, *(self.plan.results[t] for t in self.targets)))

    def run(self, evidence: Mapping[int, Array], cases: int, threads: int = 1) -> BlockAnswer:
        """Answer one block: local variable → (cases,) states of the model or (cases, states) likelihoods."""
        if self.observed is not None:
            return self._run_observed(self.observed, evidence, cases, threads)
        algebra = CaseProduct((*self.plan.tree.dims, cases), self.compiled)
        steps = self.block_steps(cases)
        tables = {node: for_all_cases(t) for node, t in {**self.leaves, **self.shared}.items()}
        tables |= self._observed_leaves(evidence, algebra.endangered)
        freed = freed_tables(steps, self.kept)
        made = sweep(steps, tables, algebra, freed, threads=threads)
        totals = np.zeros(cases)
        for root in self.plan.tree.roots:
            totals = totals + log_totals(made[root])
        beliefs = {t: posteriors(made[self.plan.results[t]], cases) for t in self.targets}
        return BlockAnswer(totals, beliefs, algebra.endangered)

    def _run_observed(
        self, program: ObservedCases, evidence: Mapping[int, Array], cases: int, threads: int
    ) -> BlockAnswer:
        """Answer one block of observed states."""
        states = np.full((cases, len(self.plan.tree.dims)), -1, np.int64)
        for o in self.observations:
            column = evidence[o.variable]
            place = np.minimum(np.searchsorted(o.states, column), len(o.states) - 1)
            found = np.where(o.states[place] == column, place, -2)
            states[:, o.variable] = np.where(column < 0, -1, found)
        answers, totals, left = program.answer(states, threads)
        beliefs = {t: answers[:, a:b].T for t, (a, b) in zip(self.targets, pairwise(program.ends), strict=True)}
        return BlockAnswer(totals, beliefs, left)

    def _observed_leaves(self, evidence: Mapping[int, Array], endangered: Array) -> dict[int, CaseTable]:
        """Multiply the findings of every case into the leaves that take them.

        A case whose products leave the range of natural numbers is marked in ``endangered``, and has zeros.
        """
        dims, cases = self.plan.tree.dims, len(endangered)
        values = {o.leaf: self.leaves[o.leaf].values[:, None] for o in self.observations}
        lows = {leaf: np.full(cases, self.leaves[leaf].low, np.float64) for leaf in values}
        for o in self.observations:
            axes = self.plan.layouts[o.leaf]
            found = case_likelihoods(evidence[o.variable], o.states)
            after = math.prod([dims[v] for v in axes[axes.index(o.variable) + 1 :]])
            split = values[o.leaf].reshape(-1, len(o.states), after, values[o.leaf].shape[-1])
            values[o.leaf] = (split * found.values[:, None, :]).reshape(-1, cases)
            lows[o.leaf] += found.low
        return {leaf: self._leaf_of_cases(leaf, values[leaf], lows[leaf], endangered) for leaf in values}

    def _leaf_of_cases(self, leaf: int, values: Array, lows: Array, endangered: Array) -> CaseTable:
        lost = lows < LOWEST
        if lost.any():
            endangered |= lost
            values[:, lost] = 0.0
        scale = np.full(len(lows), self.leaves[leaf].log_scale)
        return CaseTable(values.reshape(-1), scale, float(lows[~lost].min(initial=0.0)), 0.0, True)


@dataclass(frozen=True)
class BlockAnswer:
    """Results of a block over the remaining states.

    Parameters
    ----------
    totals : ndarray, (cases,)
        ln of the totals.
    beliefs : dict of Target to ndarray, (cells, cases)
        Posteriors.
    endangered : ndarray of bool, (cases,)
        The cases that must be computed alone.
    rows : ndarray, (cases, all cells), optional
        The posteriors of all targets side by side.
    places : mapping of Target to int
        For each target its first cell in a row.
    """

    totals: Array
    beliefs: dict[Target, Array]
    endangered: Array
    rows: Array | None = None
    places: Mapping[Target, int] = field(default_factory=dict)


def batch_program(
    plan: Plan,
    leaves: Mapping[int, Scaled],
    tables: Mapping[int, Scaled],
    observations: Sequence[Observation],
    targets: Sequence[Target],
    compiled: bool,
) -> BatchProgram:
    """Split the steps into steps that a case can change, and the other steps, whose tables are in ``tables``."""
    steps, varying, needed = split_steps_of_cases(plan, observations, targets)
    read = {i for step in steps for i in step.inputs} | needed
    shared = {i: table for i, table in tables.items() if i in read and i not in varying and i not in leaves}
    return BatchProgram(plan, leaves, shared, tuple(observations), steps, tuple(targets), compiled)


class CaseSteps(NamedTuple):
    """Return the steps that a case can change and an answer needs, and all tables that a case changes or an answer
    needs.
    """

    steps: tuple[Step, ...]
    varying: set[int]
    needed: set[int]


def split_steps_of_cases(plan: Plan, observations: Sequence[Observation], targets: Sequence[Target]) -> CaseSteps:
    """Return the steps that cases of some observations run for some targets."""
    varying = {o.leaf for o in observations}
    for step in plan.steps:
        if not varying.isdisjoint(step.inputs):
            varying.add(step.node)
    needed = {*plan.tree.roots, *(plan.results[t] for t in targets)}
    for step in reversed(plan.steps):
        if step.node in needed:
            needed.update(step.inputs)
    steps = tuple(step for step in plan.steps if step.node in needed and step.node in varying)
    return CaseSteps(steps, varying, needed)


def useful_cells(plan: Plan) -> int:
    """Return the maximum cells of a case's own tree: a tree with more cells takes longer than the compiled tree."""
    policy = CompiledPolicy.current()
    return max(plan.cells // policy.observed_saving, policy.least_observed_cells)


def observing(program: BatchProgram, memory_bytes: int, threads: int) -> BatchProgram:
    """Return a program that answers cases of observed states one by one, where there is memory for their tables."""
    from ...tasks.sweeps.observed_cases import ObservedCases

    plan, policy = program.plan, CompiledPolicy.current()
    cells = min(useful_cells(plan), memory_bytes // (SUM_PRODUCT.itemsize * (threads + 1)))
    if len(plan.tree.dims) > policy.observed_variables or cells < 1:
        return program
    layouts = plan.layouts[: plan.tree.n_leaves]
    observed = ObservedCases(plan.tree.dims, layouts, program.leaves, program.targets, cells)
    return replace(program, observed=observed) if observed.possible else program


def block_size(program: BatchProgram, most: int, memory_bytes: int, threads: int) -> int:
    """Return the number of cases, at most ``most``, answered together with ``threads`` threads."""
    if program.observed is not None:
        answers = 2 * SUM_PRODUCT.itemsize * (program.observed.ends[-1] + len(program.plan.tree.dims))
        return max(1, min(OBSERVED_BLOCK_CASES * threads, memory_bytes // answers, most))
    cases = max(1, min(most, cases_of_block(program.steps)))
    while cases > 1 and program.block_bytes(cases) > memory_bytes:
        cases //= 2
    return cases


def cases_of_block(steps: Sequence[Step]) -> int:
    """Return the number of cases whose tables stay in the cache together; some, to share the cost of a step."""
    cells = sum(step.lowered.cells for step in steps)
    return max(16, min(_BLOCK_CASES, CompiledPolicy.current().block_cells // max(cells, 1)))


def ranges(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut a number of cases into blocks of equal size, the last one smaller."""
    for start in range(0, total, size):
        yield start, min(start + size, total)


def run_block(program: BatchProgram, evidence: Mapping[int, Array], cases: int, threads: int) -> BlockAnswer:
    """Task: answer one block."""
    return program.run(evidence, cases, threads)


def _with_cases(step: Step, varying: Collection[int], axis: int, sizes: Mapping[int, int]) -> Step:
    """Add the axis of cases to a step, last in every table that has it."""
    pairs = zip(step.inputs, step.input_axes, strict=True)
    input_axes = tuple((*axes, axis) if i in varying else axes for i, axes in pairs)
    axes = (*step.axes, axis)
    lowered = lower(input_axes, axes, sizes, SUM_PRODUCT.dtype, SUM_PRODUCT)
    return Step(step.node, step.inputs, input_axes, axes, lowered)


def together_seconds(steps: Sequence[Step], cases: int, size: int, threads: int) -> float:
    """Predict the seconds of some cases in blocks of ``size`` cases, in ``threads`` threads.

    The tables of every block are new memory.
    """
    rates = replace(Rates(), step_seconds=0.0)
    seconds = 0.0
    for step in steps:
        work = lowered_work(step.lowered)
        block = work._replace(cells=cases * work.cells, moved_cells=cases * work.moved_cells, matrix=False)
        seconds += step_seconds(block, rates, SUM_PRODUCT.itemsize)
        seconds += cases * work.out_cells * SUM_PRODUCT.itemsize / rates.fresh_bytes_per_second
    blocks = math.ceil(cases / size)
    return seconds / threads + math.ceil(blocks / threads) * len(steps) * Rates().step_seconds


def alone_seconds(
    steps: Sequence[Step], cases: Cases, leaves: dict[int, int], answers: int, compiled: bool, threads: int
) -> float:
    """Predict the seconds of some cases one after the other.

    Parameters
    ----------
    steps : sequence of Step
        The steps that a case can change and that an answer needs.
    cases : Cases
    leaves : dict of int to int
        For each observed variable of the tree, the leaf that contains its findings.
    answers : int
        Number of tables that are read for each case. Without compiled loops, reading takes as long as a step.
    compiled : bool
        Whether compiled loops run the steps.
    threads : int
    """
    rates = replace(Rates(), step_seconds=0.0)
    priced = {step.node: step_seconds(lowered_work(step.lowered), rates, SUM_PRODUCT.itemsize) for step in steps}
    some = [
        ordered_sum(priced[node] / threads + BOTH_WAYS_STEP_SECONDS for node in changed)
        for changed in (_changed(steps, each) for each in _sampled_changes(cases, leaves))
    ]
    reading = 0.0 if compiled else answers * BOTH_WAYS_STEP_SECONDS
    return cases.count * (ordered_sum(some) / max(len(some), 1) + reading)


def _changed(steps: Sequence[Step], leaves: Collection[int]) -> list[int]:
    """Return the tables that change if some leaves change."""
    changed = set(leaves)
    found = []
    for step in steps:
        if not changed.isdisjoint(step.inputs):
            changed.add(step.node)
            found.append(step.node)
    return found


def _sampled_changes(cases: Cases, leaves: dict[int, int]) -> Iterator[set[int]]:
    """Yield the leaves in which a case differs from the case before it, for a sample of evenly spaced cases."""
    columns = {v: column for v, column in cases.columns.items() if v in leaves}
    if cases.count == 1:
        yield {*leaves.values()}
        return
    for k in np.unique(np.linspace(1, cases.count - 1, cases.count.bit_length(), dtype=int)):
        yield {leaves[v] for v, column in columns.items() if not np.array_equal(column[k], column[k - 1])}
