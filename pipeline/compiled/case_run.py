"""Running a compiled model on many cases: blocks on a pool, and what a block cannot prove, alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ...cluster.pool import Pool, SerialPool
from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.compiler.numba_parts import unknown_numba
from ..api.marginals import in_memory
from ..errors import ModelError
from ..machine.resources import Resources
from ..models.cases import CaseMarginals, Cases
from ..models.findings import case_likelihoods, check_log10
from ..options import Where
from ..queries.expansion import expanded, loose_log
from ..runs.pools import DaskPools, serial_pool
from ..trees.tree import Target
from .case_program import (
    BatchProgram,
    BlockAnswer,
    Observation,
    batch_program,
    block_size,
    observing,
    ranges,
    run_block,
)
from .compiled_policy import CompiledPolicy
from .state import CompiledState

Array = NDArray[Any]

# Likelihoods are by case and state, states by case.
_SOFT_AXES = 2


def answer_cases(
    compiled: CompiledState,
    findings: Mapping[int, Array],
    cases: Cases,
    variables: Sequence[int],
    **options: Unpack[Where],
) -> Iterator[CaseMarginals]:
    """Yield the posteriors block by block, in order.

    Findings hold in every case, except those on variables that the cases observe; those of the compiled model may be
    changed meanwhile.
    """
    chosen = Resources(in_memory(**options) if options else compiled.options)
    if chosen.asked.gpus is not None and compiled.options.gpus is None:
        raise ModelError("batches run on GPUs if the model is compiled for them: compile(model, gpus=…)")
    others = {v: f for v, f in findings.items() if v not in cases.columns}
    runner = _Runner(compiled, others, tuple(variables))
    if compiled.device is not None:
        where = chosen if chosen.asked.gpus is not None else Resources(compiled.options)
        yield from runner.from_device(compiled.device.answers(cases, others, runner.targets, where))
        return
    runner.plan_blocks(cases, chosen)
    program, size = runner.program, runner.size
    blocks = [cases.part(*bounds) for bounds in ranges(cases.count, size)]
    if program is None:
        yield from (runner.dressed(block, None) for block in blocks)
        return
    with _pool(chosen, len(blocks)) as pool:
        shared = pool.put(program)
        threads = chosen.threads if isinstance(pool, SerialPool) else 1
        calls = ((shared, runner.local_evidence(block), block.count, threads) for block in blocks)
        for block, answer in zip(blocks, pool.stream(run_block, calls), strict=True):
            yield runner.dressed(block, answer)


def _pool(resources: Resources, blocks: int) -> AbstractContextManager[Pool]:
    return DaskPools(resources) if resources.distributed and blocks > 1 else serial_pool(resources)


class _Runner:
    """One batch over a compiled model."""

    def __init__(self, compiled: CompiledState, findings: Mapping[int, Array], variables: tuple[int, ...]) -> None:
        self.compiled, self.findings = compiled, findings
        self.variables = variables
        self.model, self.network = compiled.model, compiled.skeleton.network
        self.program: BatchProgram | None = None

    @property
    def targets(self) -> list[Target]:
        """The asked variables that are left in the network."""
        local = self.network.local
        return [(local[v],) for v in self.variables if v in local]

    def plan_blocks(self, cases: Cases, resources: Resources) -> None:
        """Choose the steps and the size of blocks for the CPU."""
        compiled = self.compiled
        self.size = max(cases.count, 1)
        with compiled.lock:  # of one plan
            tables = compiled.shared_tables(self.findings)
            plan = compiled.plan
        if plan is None or tables is None:
            return
        local, hosts = self.network.local, compiled.skeleton.hosts
        observations = [
            Observation(local[v], hosts[local[v]], self.network.domains[v]) for v in sorted(cases.columns) if v in local
        ]
        leaves = {node: tables[node] for node in range(plan.tree.n_leaves)}
        several = compiler_pays(plan.cells * cases.count)
        if any(table.logs for table in tables.values()):
            return
        self.program = batch_program(plan, leaves, tables, observations, self.targets, several)
        free = max(resources.memory_bytes - plan.kept_bytes, 0)
        large = plan.cells * cases.count >= CompiledPolicy.current().observing_cells and not unknown_numba()
        if large and all(column.ndim == 1 for column in cases.columns.values()):
            self.program = observing(self.program, free, resources.threads)
        self.size = block_size(self.program, free)

    def local_evidence(self, block: Cases) -> dict[int, Array]:
        """Columns of the variables that are left in the network."""
        local = self.network.local
        return {local[v]: column for v, column in block.columns.items() if v in local}

    def from_device(self, answers: Iterator[tuple[Cases, BlockAnswer | None]]) -> Iterator[CaseMarginals]:
        """Turn a device's answers into posteriors; each is read before another thread may ask the same program."""
        while True:
            with self.compiled.lock:
                found = next(answers, None)
                if found is None:
                    return
                posteriors = self.dressed(*found)
            yield posteriors

    def dressed(self, block: Cases, answer: BlockAnswer | None) -> CaseMarginals:
        """Turn a block's answer into posteriors over all states, and compute alone what it leaves open."""
        tables = {v: np.zeros((block.count, self.model.dims[v])) for v in self.variables}
        logs = np.full(block.count, -math.inf)
        alone = np.ones(block.count, dtype=bool) if answer is None else answer.endangered
        if answer is not None:
            totals = answer.totals + self._constants(block)
            logs = np.where(alone, -math.inf, totals / math.log(10))
            for v in self.variables:
                self._fill(tables[v], v, block, answer)
                tables[v][~np.isfinite(logs)] = 0.0
        for case in np.flatnonzero(alone):
            found = self.compiled.asked_alone(block, int(case), self.variables, self.findings)
            assert found.log10_evidence is not None
            logs[case] = found.log10_evidence
            for v in self.variables:
                tables[v][case] = found.get(self.model.names[v], 0.0)
        soft = [column for column in block.columns.values() if column.ndim == _SOFT_AXES]
        check_log10(self.model, float(logs.max(initial=-math.inf)), [*self.compiled.findings.values(), *soft])
        return CaseMarginals(self.model, {self.model.names[v]: t for v, t in tables.items()}, logs)

    def _constants(self, block: Cases) -> Array:
        """ln of what stands outside the tree: constants, variables without functions, scales of likelihoods."""
        skeleton = self.compiled.skeleton
        assert skeleton.fixed is not None
        total = np.full(block.count, skeleton.fixed)
        total += loose_log(self.network, self.findings)
        for v, column in block.columns.items():
            found = case_likelihoods(column, self.network.domains[v])
            total += found.log_scale if v in self.network.local else found.log_means
        return total

    def _fill(self, table: Array, variable: int, block: Cases, answer: BlockAnswer) -> None:
        """Write a variable's posteriors, (cases, states)."""
        states = self.network.domains[variable]
        target: Target = (self.network.local[variable],) if variable in self.network.local else ()
        if target:
            table[:, states] = answer.beliefs[target].T
        elif variable in block.columns:
            table[:, states] = case_likelihoods(block.columns[variable], states).shares.T
        else:
            table[:] = expanded(self.network, (variable,), {}, self.findings, maximum=False)
