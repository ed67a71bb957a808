"""Batches of evidence, in blocks of cases: how a block is answered, and the predicted seconds.

Cases that observe states are answered one after the other, each over the cells that agree with it. Where they have
likelihoods, and where loops are not compiled, one pair of sweeps answers a block of cases, which are the last axis of
every table that they change.

Together, cases share the fixed cost of each step, which is Python's. In return, every step that some case changes is
computed for every case, and no step is a product of matrices. One by one, a case computes only the messages that differ
from the messages of the case before it. The tree of one case lacks the variables that the case observes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from ..orders.depth_first import bucket_parents
from ..orders.effort import BOTH_WAYS_STEP_SECONDS
from ..orders.min_fill import min_fill_order
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
    visit_seconds : float
        Seconds in which the loop for separate trees visits a cell of a clique. A lower number builds separate trees
        where the compiled tree is faster.
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
    visit_seconds: float = 1.5e-9
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


class CaseSteps(NamedTuple):
    """The work of cases over a compiled plan.

    Parameters
    ----------
    steps : tuple of Step
        The steps that a case can change and that an answer needs.
    shared : tuple of int
        Tables of other steps that these steps or an answer need.
    """

    steps: tuple[Step, ...]
    shared: tuple[int, ...]


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
    steps = tuple([step for step in plan.steps if step.node in needed and step.node in varying])
    read = {*plan.tree.roots, *(plan.results[t] for t in targets), *(i for step in steps for i in step.inputs)}
    shared = tuple([step.node for step in plan.steps if step.node in read and step.node not in varying])
    return CaseSteps(steps, shared)


def observing(program: BatchProgram, cells: int) -> BatchProgram:
    """Return a program that answers cases of observed states one by one, in tables of at most some cells."""
    from ...tasks.sweeps.observed_cases import ObservedCases

    plan = program.plan
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


class TogetherSeconds(NamedTuple):
    """Predicted seconds of blocks of cases.

    Parameters
    ----------
    steps : float
        Python's seconds for the steps of all blocks. Threads take turns for them.
    cells : float
        Seconds of one core for all cells. Threads share them.
    """

    steps: float
    cells: float

    @property
    def useful_threads(self) -> int:
        """Return the number of threads that keep Python busy. More threads would only wait for it."""
        return 1 + int(self.cells / self.steps) if self.steps else 1


def together_seconds(steps: Sequence[Step], cases: int, size: int) -> TogetherSeconds:
    """Predict the seconds of some cases in blocks of ``size`` cases.

    The tables of every block are new memory.
    """
    rates = replace(Rates(), step_seconds=0.0)
    seconds = 0.0
    for step in steps:
        work = lowered_work(step.lowered)
        block = work._replace(cells=cases * work.cells, moved_cells=cases * work.moved_cells, matrix=False)
        seconds += step_seconds(block, rates, SUM_PRODUCT.itemsize)
        seconds += cases * work.out_cells * SUM_PRODUCT.itemsize / rates.fresh_bytes_per_second
    return TogetherSeconds(math.ceil(cases / size) * len(steps) * Rates().step_seconds, seconds)


class OwnTree(NamedTuple):
    """The tree of one case without the variables that it observes: predicted seconds, and cells of its tables."""

    seconds: float
    cells: float


def own_tree(dims: Sequence[int], scopes: Sequence[Sequence[int]], observed: Collection[int], seed: int) -> OwnTree:
    """Price a junction tree of one case as the loop of :mod:`~bucketflow.tasks.sweeps.observed_loops` builds it.

    The loop visits the cells of a clique once for each function in it, twice for the message of each child, and three
    times for its own messages and its posterior.
    """
    left = [scope for scope in (tuple([v for v in each if v not in observed]) for each in scopes) if scope]
    order = min_fill_order(dims, left, seed)
    place = {v: i for i, v in enumerate(order)}
    parents, contexts = bucket_parents(len(dims), left, order)
    visits = [3] * len(dims)
    for scope in left:
        visits[min(scope, key=place.__getitem__)] += 1
    for parent in parents:
        if parent >= 0:
            visits[parent] += 2
    cliques = [(v, dims[v] * math.prod([dims[u] for u in contexts[v]])) for v in order if v not in observed]
    visited = math.fsum([float(visits[v] * cells) for v, cells in cliques])
    seconds = visited * CompiledPolicy.current().visit_seconds + len(cliques) * BOTH_WAYS_STEP_SECONDS
    # each clique sends a message without its own variable
    return OwnTree(seconds, math.fsum([float(cells + cells // dims[v]) for v, cells in cliques]))


def alone_seconds(
    steps: Sequence[Step],
    cases: Cases,
    leaves: dict[int, int],
    answers: int,
    compiled: bool,
    threads: int,
    afresh: Callable[[int], float] = lambda _: math.inf,
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
    afresh : callable
        Returns the predicted seconds of the case with some number if the uncompiled model answers it.
    """
    rates = replace(Rates(), step_seconds=0.0)
    priced = {step.node: step_seconds(lowered_work(step.lowered), rates, SUM_PRODUCT.itemsize) for step in steps}
    reading = 0.0 if compiled else answers * BOTH_WAYS_STEP_SECONDS
    some = []
    for k in sampled_cases(cases.count):
        changed = _changed(steps, _changed_leaves(cases, leaves, k))
        seconds = reading + ordered_sum(priced[node] / threads + BOTH_WAYS_STEP_SECONDS for node in changed)
        some.append(min(seconds, afresh(k)))
    return cases.count * (ordered_sum(some) / max(len(some), 1))


def _changed(steps: Sequence[Step], leaves: Collection[int]) -> list[int]:
    """Return the tables that change if some leaves change."""
    changed = set(leaves)
    found = []
    for step in steps:
        if not changed.isdisjoint(step.inputs):
            changed.add(step.node)
            found.append(step.node)
    return found


def sampled_cases(count: int) -> list[int]:
    """Return the numbers of some evenly spaced cases, without the first case if there are others."""
    return [int(k) for k in np.unique(np.linspace(min(1, count - 1), count - 1, count.bit_length(), dtype=int))]


def _changed_leaves(cases: Cases, leaves: dict[int, int], case: int) -> set[int]:
    """Return the leaves in which a case differs from the case before it; of the first case, all leaves."""
    columns = {v: column for v, column in cases.columns.items() if v in leaves}
    return {leaves[v] for v, c in columns.items() if case == 0 or not np.array_equal(c[case], c[case - 1])}
