"""Running a compiled model on many cases: blocks on a pool, and what a block cannot prove, alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from ...cluster.pool import CallThreads
from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.compiler.numba_parts import unknown_numba
from ...tasks.gpu.cold_kernels import AVOIDED_START
from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step
from ..answering.question import asked_of
from ..errors import ModelError
from ..machine.resources import Resources
from ..models.cases import Cases
from ..models.findings import case_likelihoods, check_log10
from ..options import Where
from ..orders.effort import FUNCTION_SECONDS
from ..plans.plan import Plan
from ..queries.expansion import expanded, loose_log
from ..results.posteriors import CaseMarginals, adjacent, unanswered
from ..runs.pools import DaskPools, serial_pool
from ..trees.costs import Rates
from ..trees.tree import Target
from .better_plans import propagation_seconds
from .case_program import (
    OBSERVED_BLOCK_CASES,
    BatchProgram,
    BlockAnswer,
    CompiledPolicy,
    Observation,
    alone_seconds,
    block_size,
    cases_of_block,
    observing,
    own_tree,
    ranges,
    run_block,
    sampled_cases,
    split_steps_of_cases,
    together_seconds,
)
from .state import WORTH_COMPARING, CompiledState

Array = NDArray[Any]
B = TypeVar("B")
"""What a runner makes of a block of cases."""


def answered_cases(
    compiled: CompiledState,
    findings: Mapping[int, Array],
    cases: Cases,
    variables: Sequence[int],
    **options: Unpack[Where],
) -> CaseMarginals:
    """Return the results of `answer_cases` as one; blocks are written into place as they come."""
    runner = _PosteriorRunner(compiled, findings, cases, variables, whole=True)
    whole = unanswered(compiled.model, variables, cases.count, runner.arrays)
    if cases.count:
        for block in answered_blocks(runner, options):
            start = block.cases.first - cases.first
            whole.log10_evidence[start : start + block.cases.count] = block.answers.log10_evidence
    return whole


def answer_cases(
    compiled: CompiledState,
    findings: Mapping[int, Array],
    cases: Cases,
    variables: Sequence[int],
    **options: Unpack[Where],
) -> Iterator[CaseMarginals]:
    """Yield the posteriors block by block, in order.

    Findings hold in every case, except findings on variables that the cases observe. The findings of the compiled model
    may be changed meanwhile.
    """
    runner = _PosteriorRunner(compiled, findings, cases, variables, whole=False)
    return (block.answers for block in answered_blocks(runner, options))


def answered_blocks(runner: CaseRunner[B], options: Where) -> Iterator[B]:
    """Answer the cases of a runner block by block, in order, on the CPU, on GPUs or on a cluster."""
    compiled, cases, others = runner.compiled, runner.cases, runner.findings
    given: Any = {name: value for name, value in options.items() if value is not None}
    chosen = Resources(replace(compiled.options, **given) if given else compiled.options)
    if chosen.asked.gpus is not None and compiled.options.gpus is None:
        raise ModelError("batches run on GPUs only if the model is compiled for GPUs: compile(model, gpus=…)")
    if compiled.device is None:
        yield from _blocks_here(runner, chosen)
        return
    with compiled.lock:  # the answerer of many cases serves one caller at a time
        avoids = not chosen.asked.remote and _cores_end_first(runner)
        spread = None if avoids else compiled.device.answers(cases, others, runner.targets, chosen)
    if spread is not None:
        yield from map(runner.completed, spread(runner.dressed))
    else:
        yield from _counted(_blocks_here(runner, chosen.without_devices()))


def _blocks_here(runner: CaseRunner[B], chosen: Resources) -> Iterator[B]:
    """Answer the cases of a runner block by block, on the CPU or on the workers of a cluster."""
    runner.plan_blocks(chosen)
    program, size = runner.program, runner.size
    blocks = [runner.cases.part(*bounds) for bounds in ranges(runner.cases.count, size)]
    if program is None:
        yield from (runner.completed(runner.dressed(block, None)) for block in blocks)
        return
    if chosen.distributed and len(blocks) > 1:
        with DaskPools(chosen) as pool:
            shared = pool.put(program)
            calls = ((shared, runner.local_evidence(block), block.count, 1) for block in blocks)
            for block, answer in zip(blocks, pool.stream(run_block, calls), strict=True):
                yield runner.completed(runner.dressed(block, answer))
        return
    threads = runner.blocks_at_once(chosen, len(blocks))

    def dressed(block: Cases) -> B:
        answer = run_block(program, runner.local_evidence(block), block.count, chosen.threads // threads)
        return runner.dressed(block, answer)

    with serial_pool(chosen) if threads == 1 else nullcontext(CallThreads(threads)) as pool:
        yield from map(runner.completed, pool.stream(dressed, ((block,) for block in blocks)))


def _counted(blocks: Iterator[B]) -> Iterator[B]:
    """Yield blocks, and count the seconds of each block towards compiling the kernels of a device."""
    while True:
        with AVOIDED_START.counted():
            block = next(blocks, None)
        if block is None:
            return
        yield block


def _cores_end_first(runner: CaseRunner[Any]) -> bool:
    """Return whether the CPU answers all cases before the kernels of a device are compiled."""
    compiled, count = runner.compiled, runner.cases.count
    assert compiled.device is not None
    assert compiled.plan is not None
    return count > 0 and compiled.device.cores_end_first(compiled.plan.cells * count / Rates().cells_per_second, count)


class OwnTrees(NamedTuple):
    """Separate trees of cases: predicted seconds of all cases, and the most cells of a tree."""

    seconds: float
    most_cells: int


@dataclass(frozen=True, eq=False)
class _Block:
    """Some cases, their results, and the cases to be computed alone."""

    cases: Cases
    answers: CaseMarginals
    alone: Array


class CaseRunner(ABC, Generic[B]):
    """One batch over a compiled model. A subclass says which tables it reads, and what it makes of a block's answer.

    Parameters
    ----------
    compiled : CompiledState
    findings : mapping of int to ndarray
        Likelihoods by variable that hold in every case, except on variables that the cases observe.
    cases : Cases
    """

    def __init__(self, compiled: CompiledState, findings: Mapping[int, Array], cases: Cases) -> None:
        self.compiled, self.cases = compiled, cases
        self.findings = {v: f for v, f in findings.items() if v not in cases.columns}
        self.model, self.network = compiled.model, compiled.skeleton.network
        self.program: BatchProgram | None = None
        self._useful_threads = 1
        self._outside: dict[int, ByState] = {}

    @property
    @abstractmethod
    def targets(self) -> list[Target]:
        """The sets of local variables whose tables are read."""

    @abstractmethod
    def dressed(self, block: Cases, answer: BlockAnswer | None) -> B:
        """Convert a block's answer; threads do so at the same time. Without an answer each case is computed alone."""

    @abstractmethod
    def completed(self, block: B) -> B:
        """Compute alone the cases that an answer leaves open; the blocks come in order."""

    def plan_blocks(self, resources: Resources) -> None:
        """Choose the steps and the size of blocks for the CPU; without steps, each case is computed alone.

        No other way to answer the cases is predicted to take fewer seconds of one core. Answers therefore have the
        same bits with any number of threads.
        """
        compiled, cases = self.compiled, self.cases
        self.size = max(cases.count, 1)
        with compiled.lock:  # of one plan
            compiled.turn_to_better()
            plan = compiled.plan
            if plan is None:
                return
            observations = self._observations
            steps, shared = split_steps_of_cases(plan, observations, self.targets)
            free, threads = max(resources.memory_bytes - plan.kept_bytes, 0), resources.threads
            together = together_seconds(steps, cases.count, cases_of_block(steps))
            best = together.steps + together.cells
            own = self._own_trees(plan, observations, free, threads)
            if own is not None and own.seconds >= best:
                own = None
            best = best if own is None else own.seconds
            here = not (resources.distributed or compiled.device is not None)
            if here and self.is_quicker_alone(plan, observations, steps, best):
                self.size = min(self.size, OBSERVED_BLOCK_CASES)
                return
            tables = compiled.shared_tables(self.findings, ())
            if tables is None:
                return
            several, targets = compiler_pays(plan.cells * cases.count), tuple(self.targets)
            program = BatchProgram(plan, tables, {}, tuple(observations), steps, targets, several)
            if own is not None:
                program = observing(program, own.most_cells)
            if program.observed is None:
                made = compiled.shared_tables(self.findings, shared) or {}
                program = replace(program, shared={node: made[node] for node in shared})
        if any(table.logs for table in (*program.leaves.values(), *program.shared.values())):
            return
        self.program, self._useful_threads = program, together.useful_threads
        self.size = block_size(program, cases.count, free, 1 if resources.distributed else threads)

    def blocks_at_once(self, resources: Resources, blocks: int) -> int:
        """Return the number of threads that answer blocks concurrently: 1 if the threads share each block."""
        program = self.program
        if program is None or program.observed is not None or blocks == 1 or resources.threads == 1:
            return 1
        free = max(resources.memory_bytes - program.plan.kept_bytes, 0)
        # results wait in memory for the results of earlier blocks
        room = free // (CallThreads.results_ahead * program.block_bytes(self.size))
        return max(1, min(resources.threads, blocks, room, self._useful_threads))

    @property
    def _observations(self) -> list[Observation]:
        """The observed variables that the reduced network contains."""
        local, hosts = self.network.local, self.compiled.skeleton.hosts
        columns = sorted(self.cases.columns)
        return [Observation(local[v], hosts[local[v]], self.network.domains[v]) for v in columns if v in local]

    def _own_trees(
        self, plan: Plan, observations: Sequence[Observation], free_bytes: int, threads: int
    ) -> OwnTrees | None:
        """Price a separate tree for each case, which lacks the variables that the case observes; None without trees."""
        cases, policy, network = self.cases, CompiledPolicy.current(), self.network
        if plan.cells * cases.count < policy.observing_cells or unknown_numba():
            return None
        if len(plan.tree.dims) > policy.observed_variables or any(c.ndim > 1 for c in cases.columns.values()):
            return None
        dims, scopes, seed = plan.tree.dims, plan.layouts[: plan.tree.n_leaves], self.compiled.options.seed
        trees = []
        for k in sampled_cases(cases.count):
            states = cases.findings(k)
            observed = {o.variable for o in observations if network.variables[o.variable] in states}
            trees.append(own_tree(dims, scopes, observed, seed))
        # a case whose tree has more cells is answered over the compiled tree
        compiled_seconds = propagation_seconds(plan)
        cell_seconds = max(tree.seconds / max(tree.cells, 1.0) for tree in trees)
        room = free_bytes // (SUM_PRODUCT.itemsize * (threads + 1))
        most_cells = room if not cell_seconds else min(room, int(compiled_seconds / cell_seconds))
        seconds = [tree.seconds if tree.cells <= most_cells else compiled_seconds for tree in trees]
        mean = ordered_sum(seconds) / len(seconds)
        return OwnTrees(cases.count * mean, most_cells) if most_cells else None

    def is_quicker_alone(
        self, plan: Plan, observations: Sequence[Observation], steps: Sequence[Step], seconds: float
    ) -> bool:
        """Return whether the cases are predicted to take less than some seconds one after the other.

        If compiled loops are predicted to pay for such cases, they are loaded.
        """
        compiled, cases = self.compiled, self.cases
        leaves = {self.network.variables[o.variable]: o.leaf for o in observations}
        priced = partial(alone_seconds, steps, cases, leaves, len(self.targets), compiled.has_loops, 1)
        kept = priced()
        planning = CompiledPolicy.current().afresh_seconds + FUNCTION_SECONDS * len(self.model.names)
        samples = int(min(kept, seconds) / (WORTH_COMPARING * planning))

        def afresh(case: int) -> float:
            """Price a case with a plan of its own, for as many cases as are worth planning."""
            nonlocal samples
            samples -= 1
            return self.afresh_seconds(case) + planning if samples >= 0 else math.inf

        alone = priced(afresh) if samples else kept
        if alone >= seconds:
            return False
        if alone == kept:
            compiled.load_loops(kept)
        return True

    def afresh_seconds(self, case: int) -> float:
        """Predict the propagation of a case by the uncompiled model; infinity if that does not answer a case."""
        return math.inf

    def local_evidence(self, block: Cases) -> dict[int, Array]:
        """Columns of the variables that are left in the network."""
        local = self.network.local
        return {local[v]: column for v, column in block.columns.items() if v in local}

    def logs(self, block: Cases, answer: BlockAnswer | None) -> tuple[Array, Array]:
        """Return ln of the probability of each case, and which cases must be computed alone; they have -inf."""
        if answer is None:
            return np.full(block.count, -math.inf), np.ones(block.count, dtype=bool)
        return np.where(answer.endangered, -math.inf, answer.totals + self._constants(block)), answer.endangered

    def _constants(self, block: Cases) -> Array:
        """Return ln of the factors outside the tree: constants, variables without functions, likelihood scales."""
        skeleton = self.compiled.skeleton
        assert skeleton.fixed is not None
        total = np.full(block.count, skeleton.fixed)
        total += loose_log(self.network, self.findings)
        for v, column in block.columns.items():
            local = v in self.network.local
            if column.ndim == 2:  # likelihoods have axes of cases and states, states have an axis of cases
                found = case_likelihoods(column, self.network.domains[v])
                total += found.log_scale if local else found.log_means
            elif not local:
                total += self._by_state(v).log_means[column]
        return total

    def _by_state(self, variable: int) -> ByState:
        """Return the effect of observing each state of a variable outside the tree; the last entry is for no
        observation (-1).
        """
        if variable not in self._outside:
            states, dim = self.network.domains[variable], self.model.dims[variable]
            found = case_likelihoods(np.r_[np.arange(dim), -1], states)
            shares = np.zeros((dim + 1, dim))
            shares[:, states] = found.shares.T
            self._outside[variable] = ByState(found.log_means, shares)
        return self._outside[variable]


@dataclass(frozen=True, eq=False)
class ByState:
    """For each state of a variable that is observed: ln of its mean, and the posteriors of all states."""

    log_means: Array
    shares: Array


class _PosteriorRunner(CaseRunner[_Block]):
    """Posteriors of variables; with ``whole`` they go to arrays of all cases."""

    def __init__(
        self,
        compiled: CompiledState,
        findings: Mapping[int, Array],
        cases: Cases,
        variables: Sequence[int],
        *,
        whole: bool,
    ) -> None:
        super().__init__(compiled, findings, cases)
        self.variables, local, dims = tuple(variables), self.network.local, self.model.dims
        self._asked = asked_of(self.model, [self.model.names[v] for v in variables], (), False)
        self._direct = {v for v in variables if v in local and len(self.network.domains[v]) == dims[v]}
        # answers side by side, in the order of the arrays that they go to
        self._ordered = sorted(variables, key=lambda v: (dims[v], v not in self._direct))
        self.arrays = adjacent(self.model, self._ordered, cases.count) if whole else {}

    def afresh_seconds(self, case: int) -> float:
        """Predict the propagation of a case by the uncompiled model."""
        return self.compiled.afresh_seconds(self._asked, {**self.findings, **self.compiled.vectors(self.cases, case)})

    @property
    def targets(self) -> list[Target]:
        """The requested variables that are left in the network."""
        local = self.network.local
        return [(local[v],) for v in self._ordered if v in local]

    def dressed(self, block: Cases, answer: BlockAnswer | None) -> _Block:
        """Turn a block's answer into posteriors over all states; threads do so at the same time."""
        logs, alone = self.logs(block, answer)
        logs = logs / math.log(10)
        part = slice(block.first - self.cases.first, block.first - self.cases.first + block.count)
        if self.arrays and answer is not None:
            for group, array in self.arrays.items():
                self._fill(group, array[:, part], block, answer)
        impossible = np.flatnonzero(~np.isfinite(logs))
        if not self.arrays:
            tables = {v: self._own_table(v, block, answer) for v in self.variables}
        elif len(impossible) or alone.any():
            tables = {v: a[part] for group, array in self.arrays.items() for v, a in zip(group, array, strict=True)}
        else:  # a thousand views take longer than their cells
            tables = {}
        for table in tables.values() if answer is not None and len(impossible) else ():
            table[impossible] = 0.0
        return _Block(
            block, CaseMarginals(self.model, {self.model.names[v]: t for v, t in tables.items()}, logs), alone
        )

    def _fill(self, group: Sequence[int], array: Array, block: Cases, answer: BlockAnswer) -> None:
        """Write the posteriors of variables with equally many states, (variables, cases, states).

        Variables all of whose states remain come first; if their answers lie side by side, one copy moves them all.
        """
        direct = [(self.network.local[v],) for v in group if v in self._direct]
        states = array.shape[-1]
        first = answer.places.get(direct[0]) if direct else None
        together = 0
        if (
            answer.rows is not None
            and first is not None
            and answer.places[direct[-1]] == first + (len(direct) - 1) * states
        ):
            together = len(direct)
            rows = answer.rows[:, first : first + together * states]
            array[:together] = rows.reshape(block.count, together, states).transpose(1, 0, 2)
        for v, table in zip(group[together:], array[together:], strict=True):
            table[...] = self._table(v, block, answer)

    def _own_table(self, variable: int, block: Cases, answer: BlockAnswer | None) -> Array:
        """Return a variable's posteriors, (cases, states), in an array whose states are adjacent."""
        if answer is None:
            return np.zeros((block.count, self.model.dims[variable]))
        table = self._table(variable, block, answer)
        return table if table.strides[-1] == table.itemsize else np.ascontiguousarray(table)

    def completed(self, block: _Block) -> _Block:
        """Compute alone what an answer leaves open, and check it."""
        cases, answers = block.cases, block.answers
        logs = answers.log10_evidence
        for case in np.flatnonzero(block.alone):
            found = self.compiled.asked_alone(cases, int(case), self._asked, self.findings)
            assert found.log10_evidence is not None
            logs[case] = found.log10_evidence
            for name, table in answers.items():
                table[case] = found.get(name, 0.0)
        soft = [column for column in cases.columns.values() if column.ndim == 2]
        check_log10(self.model, float(logs.max(initial=-math.inf)), [*self.compiled.findings.values(), *soft])
        return block

    def _table(self, variable: int, block: Cases, answer: BlockAnswer) -> Array:
        """Return a variable's posteriors, (cases, states), in an array that the answer or the caller owns."""
        states, dim = self.network.domains[variable], self.model.dims[variable]
        if variable in self.network.local:
            found = answer.beliefs[(self.network.local[variable],)].T
            if len(states) == dim:
                return found
        elif variable not in block.columns:
            return np.tile(
                expanded(self.network, (variable,), {}, self.findings, max_marginals=False), (block.count, 1)
            )
        elif block.columns[variable].ndim == 2:
            found = case_likelihoods(block.columns[variable], states).shares.T
        else:
            return np.asarray(self._by_state(variable).shares[block.columns[variable]])
        table = np.zeros((block.count, dim))
        table[:, states] = found
        return table
