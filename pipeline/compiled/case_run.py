"""Running a compiled model on many cases: blocks on a pool, and what a block cannot prove, alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from ...cluster.pool import CallThreads
from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.compiler.numba_parts import unknown_numba
from ...tasks.gpu.cold_kernels import AVOIDED_START
from ..answering.question import asked_of
from ..api.marginals import in_memory
from ..errors import ModelError
from ..machine.resources import Resources
from ..models.cases import Cases
from ..models.findings import case_likelihoods, check_log10
from ..options import Where
from ..orders.depth_first import cells_of_buckets
from ..orders.min_fill import min_fill_order
from ..plans.plan import Plan
from ..queries.expansion import expanded, loose_log
from ..results.posteriors import CaseMarginals, adjacent, unanswered
from ..runs.pools import DaskPools, serial_pool
from ..trees.costs import Rates
from ..trees.tree import Target
from .case_program import (
    OBSERVED_BLOCK_CASES,
    BatchProgram,
    BlockAnswer,
    CompiledPolicy,
    Observation,
    alone_seconds,
    batch_program,
    block_size,
    cases_of_block,
    observing,
    ranges,
    run_block,
    split_steps_of_cases,
    together_seconds,
    useful_cells,
)
from .state import CompiledState

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
    chosen = Resources(in_memory(**options) if options else compiled.options)
    if chosen.asked.gpus is not None and compiled.options.gpus is None:
        raise ModelError("batches run on GPUs only if the model is compiled for GPUs: compile(model, gpus=…)")
    if compiled.device is None:
        yield from _blocks_here(runner, chosen)
        return
    where = chosen if chosen.asked.gpus is not None else Resources(compiled.options)
    with compiled.lock:  # the answerer of many cases serves one caller at a time
        avoids = not where.asked.remote and _cores_end_first(runner)
        spread = None if avoids else compiled.device.answers(cases, others, runner.targets, where)
    if spread is not None:
        yield from map(runner.completed, spread(runner.dressed))
    else:
        yield from _counted(_blocks_here(runner, where.without_devices()))


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

        By the predicted times, a batch never takes longer than its cases one after the other.
        """
        compiled, cases = self.compiled, self.cases
        self.size = max(cases.count, 1)
        with compiled.lock:  # of one plan
            compiled.turn_to_better()
            plan = compiled.plan
            observations = self._observations
            observed = plan is not None and self._may_have_own_trees(plan, observations)
            may_be_alone = not (observed or resources.distributed or compiled.device is not None)
            if plan is not None and may_be_alone and self._is_quicker_alone(plan, observations, resources.threads):
                self.size = min(self.size, OBSERVED_BLOCK_CASES)
                return
            tables = compiled.shared_tables(self.findings)
        if plan is None or tables is None:
            return
        leaves = {node: tables[node] for node in range(plan.tree.n_leaves)}
        several = compiler_pays(plan.cells * cases.count)
        if any(table.logs for table in tables.values()):
            return
        self.program = batch_program(plan, leaves, tables, observations, self.targets, several)
        free = max(resources.memory_bytes - plan.kept_bytes, 0)
        if observed:
            self.program = observing(self.program, free, resources.threads)
        threads = 1 if resources.distributed else resources.threads
        self.size = block_size(self.program, cases.count, free, threads)

    def blocks_at_once(self, resources: Resources, blocks: int) -> int:
        """Return the number of threads that answer blocks concurrently: 1 if the threads share each block."""
        program = self.program
        if program is None or program.observed is not None or blocks == 1 or resources.threads == 1:
            return 1
        free = max(resources.memory_bytes - program.plan.kept_bytes, 0)
        # results wait in memory for the results of earlier blocks
        room = free // (CallThreads.results_ahead * program.block_bytes(self.size))
        return max(1, min(resources.threads, blocks, room))

    @property
    def _observations(self) -> list[Observation]:
        """The observed variables that the reduced network contains."""
        local, hosts = self.network.local, self.compiled.skeleton.hosts
        columns = sorted(self.cases.columns)
        return [Observation(local[v], hosts[local[v]], self.network.domains[v]) for v in columns if v in local]

    def _may_have_own_trees(self, plan: Plan, observations: Sequence[Observation]) -> bool:
        """Whether the case with the most observations has a separate tree that is small enough to save time."""
        cases, policy = self.cases, CompiledPolicy.current()
        if plan.cells * cases.count < policy.observing_cells or unknown_numba():
            return False
        if any(column.ndim > 1 for column in cases.columns.values()):
            return False
        observed = np.zeros(cases.count, np.int64)
        for column in cases.columns.values():
            observed += column >= 0
        states = cases.findings(int(observed.argmax()))
        fixed = {o.variable for o in observations if self.network.variables[o.variable] in states}
        dims = [1 if v in fixed else dim for v, dim in enumerate(plan.tree.dims)]
        scopes = plan.layouts[: plan.tree.n_leaves]
        cliques = cells_of_buckets(dims, scopes, min_fill_order(dims, scopes, self.compiled.options.seed))
        # each clique sends a message without its own variable
        return sum(cells + cells / dim for cells, dim in zip(cliques, dims, strict=True)) <= useful_cells(plan)

    def _is_quicker_alone(self, plan: Plan, observations: Sequence[Observation], threads: int) -> bool:
        """Whether the cases are predicted to take less time one after the other than together."""
        compiled, count = self.compiled, self.cases.count
        steps = split_steps_of_cases(plan, observations, self.targets).steps
        together = together_seconds(steps, count, cases_of_block(steps), threads)
        leaves = {self.network.variables[o.variable]: o.leaf for o in observations}
        has_loops, own_threads = compiled.has_loops, plan.kept_threads
        return alone_seconds(steps, self.cases, leaves, len(self.targets), has_loops, own_threads) < together

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
        self._direct = {v for v in variables if v in local and len(self.network.domains[v]) == dims[v]}
        # answers side by side, in the order of the arrays that they go to
        self._ordered = sorted(variables, key=lambda v: (dims[v], v not in self._direct))
        self.arrays = adjacent(self.model, self._ordered, cases.count) if whole else {}

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
        names = self.model.names
        asked = asked_of(self.model, [names[v] for v in self.variables], (), False)
        for case in np.flatnonzero(block.alone):
            found = self.compiled.asked_alone(cases, int(case), asked, self.findings)
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
