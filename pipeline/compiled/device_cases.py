"""Beliefs of a compiled model from GPUs: one question at a time on one of them, cases on any number.

The device proves with the exponents of its tables that no product left the range of doubles. Where it does not, and
for likelihoods that span more than it allows for, there is no answer, and the caller asks the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...cluster.pool import Pool
from ...tasks.gpu.memory import out_of_memory, portable_errors
from ...tasks.gpu.messages.propagation import ONE_AT_A_TIME, DeviceMessages, MessageProgram
from ...tasks.gpu.messages.records import FINDING_EXPONENT
from ...tasks.sweeps.scaled import Scaled
from ..machine.resources import Resources
from ..models.cases import Cases
from ..models.findings import case_likelihoods, likelihoods
from ..plans.message_program import DeviceLeaves, constant_values, message_program, probability_leaves
from ..plans.plan import Plan
from ..preprocessing.preprocess import Network
from ..queries.beliefs import Beliefs
from ..runs.device_slices import check_case
from ..runs.pools import DaskPools
from ..trees.tree import Target
from .case_program import BlockAnswer, ranges
from .compiled_policy import CompiledPolicy

# Many cases on a GPU: of this process, or of the GPU workers of a cluster, which get blocks of cases as tasks.

LEAST_LOG: Final = FINDING_EXPONENT * math.log(2)
"""ln of the least likelihood of which a device proves that products stay in the range of doubles."""


class CaseProgram:
    """What answers blocks of cases on the device of whichever process is asked; only the program travels.

    Parameters
    ----------
    network : Network
    program : MessageProgram
    leaves : DeviceLeaves
        Without findings.
    targets : sequence of Target
        What the program answers.
    memory_bytes : int
        Budget on the device.
    """

    def __init__(
        self,
        network: Network,
        program: MessageProgram,
        leaves: DeviceLeaves,
        targets: Sequence[Target],
        memory_bytes: int,
    ) -> None:
        self.program = program
        self._targets = tuple(targets)
        self._memory_bytes = memory_bytes
        self._constants = constant_values(program, leaves)
        dims = network.model.dims
        self._variables = {v: (local, network.domains[v], dims[v]) for v, local in network.local.items()}
        self._device: DeviceMessages | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_device": None}

    @property
    def most_cases(self) -> int:
        """Cases at once."""
        policy = CompiledPolicy.current()
        program = self.program
        enough = max(policy.device_bytes, program.records.fixed_bytes + program.case_bytes * program.records.group)
        return min(program.cases_within(min(self._memory_bytes, enough)), policy.device_cases)

    def seconds(self, cases: int) -> float:
        """Predict the time of some cases on one device."""
        return cases * self.program.records.factors / CompiledPolicy.current().device_factors_per_second

    def answers(self, cases: Cases, common: Array) -> Iterator[tuple[Cases, BlockAnswer]]:
        """Answer cases block by block; each answer is valid until the next.

        Parameters
        ----------
        cases : Cases
        common : ndarray, (finding cells,)
            Likelihoods that hold in every case.
        """
        for block, (numbers, alone) in self._blocks(cases, common):
            yield block, self._read(numbers, alone)

    def spread(self, cases: Cases, common: Array, pool: Pool) -> Iterator[tuple[Cases, BlockAnswer]]:
        """Do the same on the workers of a pool."""
        shared = pool.put(self)
        blocks = [cases.part(*bounds) for bounds in ranges(cases.count, self._block_size(cases.count, pool.width))]
        found = pool.stream(run_cases, ((shared, block, common) for block in blocks))
        for block, (numbers, alone) in zip(blocks, found, strict=True):
            yield block, self._read(numbers, alone)

    def _block_size(self, cases: int, devices: int) -> int:
        """Choose the cases of a task, in whole groups."""
        policy = CompiledPolicy.current()
        least = int(policy.device_block_seconds / max(self.seconds(1), 1e-9))
        wanted = max(-(-cases // (devices * policy.device_blocks)), least, 1)
        wanted = min(wanted, policy.answer_bytes // (8 * self.program.answer_cells) + 1)
        group = self.program.records.group
        return min(-(-wanted // group) * group, self.most_cases)

    def _blocks(self, cases: Cases, common: Array) -> Iterator[tuple[Cases, tuple[Array, Array]]]:
        """Yield blocks with their numbers, (cases, answer cells), and which of them the CPU has to answer."""
        size, start = self.most_cases, 0
        while start < cases.count:
            block = cases.part(start, min(start + size, cases.count))
            states, weights, alone = self._columns(block)
            try:
                if self._device is None:
                    self._device = DeviceMessages(self.program, self._constants)
                numbers = self._device.run_cases(block.count, common, states, weights)
            except MemoryError as error:
                # others may have taken memory since the budget was made
                group = self.program.records.group
                if not out_of_memory(error) or size <= group:
                    raise
                size = max(size // 2 // group * group, group)
                continue
            yield block, (numbers, alone)
            start += block.count

    def _read(self, numbers: Array, alone: Array) -> BlockAnswer:
        """Name what a device answers."""
        places = zip(self._targets, self.program.targets.tolist(), strict=True)
        beliefs = {target: numbers[:, place : place + cells].T for target, (_, cells, place, _) in places}
        return BlockAnswer(numbers[:, -2] + self.program.log_scale, beliefs, alone | (numbers[:, -1] != 0.0))

    def _columns(self, block: Cases) -> tuple[list[tuple[int, Array]], dict[int, Array], Array]:
        """Return what the cases observe of local variables, and the cases whose likelihoods span too much."""
        states, weights = [], {}
        alone = np.zeros(block.count, dtype=bool)
        for variable, column in block.columns.items():
            if variable not in self._variables:
                continue
            local, domain, dim = self._variables[variable]
            if column.ndim == 2:
                found = case_likelihoods(column, domain)
                weights[local] = np.ascontiguousarray(found.values.T)
                alone |= found.low < LEAST_LOG
            else:
                # a state that the model excludes is none of the remaining ones; the last entry is that of -1
                number = np.full(dim + 1, -2, dtype=np.int32)
                number[domain] = np.arange(len(domain))
                number[-1] = -1
                states.append((local, number[column]))
        return states, weights, alone


def run_cases(program: CaseProgram, cases: Cases, common: Array) -> tuple[Array, Array]:
    """Task: answer a block of cases on this process's device, as numbers."""
    with portable_errors(), ONE_AT_A_TIME:
        parts = [(numbers.copy(), alone) for _, (numbers, alone) in program._blocks(cases, common)]
    return np.concatenate([numbers for numbers, _ in parts]), np.concatenate([alone for _, alone in parts])


Array = NDArray[Any]

_MOST_GROUP_CELLS: Final = 1 << 31


class GpuPropagation:
    """A plan with its leaves, ready for any findings on a GPU.

    Parameters
    ----------
    network : Network
    plan : Plan
        Without slices.
    leaves : mapping of int to Scaled
        Leaf tables without findings.
    hosts : mapping of int to int
        For each local variable the leaf that takes its findings.
    fixed : float
        ln of the functions without variables.
    memory_bytes : int
        Budget on the device.

    Raises
    ------
    BudgetError
        If the tables of one case do not fit the budget.
    """

    def __init__(
        self,
        network: Network,
        plan: Plan,
        leaves: Mapping[int, Scaled],
        hosts: Mapping[int, int],
        fixed: float,
        memory_bytes: int,
    ) -> None:
        self._network, self._plan, self._hosts, self._fixed = network, plan, hosts, fixed
        self._leaves = probability_leaves(leaves)
        self._targets = tuple(plan.results)
        self._program = message_program(plan, self._leaves, hosts, self._targets)
        check_case(self._program, memory_bytes)
        self._free_bytes = memory_bytes - self._program.case_bytes - self._program.records.fixed_bytes
        self._other: tuple[tuple[tuple[Target, ...], int], CaseProgram] | None = None
        places = zip(self._targets, self._program.targets.tolist(), strict=True)
        self._places = {
            target: (place, place + cells, tuple([plan.dims[v] for v in target]))
            for target, (_, cells, place, _) in places
        }

    @cached_property
    def _device(self) -> DeviceMessages:
        return DeviceMessages(self._program, constant_values(self._program, self._leaves))

    def beliefs(self, findings: Mapping[int, Array], targets: Sequence[Target]) -> Beliefs | None:
        """Return the beliefs of some targets under findings by model variable; None where the CPU has to."""
        weights, log_scale = self._likelihoods(findings)
        if weights is None:
            return None
        answer = self._device.run(weights)
        if answer[-1]:
            return None
        total = float(answer[-2]) + self._program.log_scale + log_scale + self._fixed
        if total == -math.inf:
            return Beliefs(None, {})
        places = [(target, *self._places[target]) for target in targets]
        tables = {t: answer[a:b] if len(t) == 1 else answer[a:b].reshape(shape) for t, a, b, shape in places}
        return Beliefs(total, tables)

    def answers(
        self, cases: Cases, findings: Mapping[int, Array], targets: Sequence[Target], resources: Resources
    ) -> Iterator[tuple[Cases, BlockAnswer | None]]:
        """Answer many cases block by block, in their order; None where the CPU has to.

        Blocks are tasks on the GPU workers of a running cluster, or on one process for each of several GPUs where
        starting them takes less than the answer. Every case is computed by the same sums wherever its block goes.

        Parameters
        ----------
        findings : mapping of int to ndarray
            Likelihoods by model variable that hold in all cases.
        """
        common, log_scale = self._likelihoods(findings)
        if common is None:
            yield cases, None
            return
        if not cases.count:
            return
        program = self._program_for(tuple(targets), cases.count)
        several = (
            resources.gpu_count > 1 and program.seconds(cases.count) > CompiledPolicy.current().worker_start_seconds
        )
        if resources.asked.remote or several:
            with DaskPools(resources) as pool:
                yield from _added(program.spread(cases, common, pool), log_scale)
        else:
            yield from _added(program.answers(cases, common), log_scale)

    def _program_for(self, targets: tuple[Target, ...], cases: int) -> CaseProgram:
        """Return a program that answers these targets and no others for many cases; the last one is remembered.

        Cases are computed in groups, as large as there are cases, memory and numbers of 32 bits for.
        """
        asked = group = 1 << min(max(cases, 1).bit_length() - 1, CompiledPolicy.current().group_log2)
        if self._other is None or self._other[0] != (targets, asked):
            self._other = None
            single = self._program
            while group > 1 and group * single.records.slab_cells >= _MOST_GROUP_CELLS:
                group //= 2
            program = message_program(self._plan, self._leaves, self._hosts, targets, group)
            while group > 1 and not program.cases_within(self._free_bytes):
                group //= 2
                program = message_program(self._plan, self._leaves, self._hosts, targets, group)
            check_case(program, self._free_bytes)
            found = CaseProgram(self._network, program, self._leaves, targets, self._free_bytes)
            self._other = (targets, asked), found
        return self._other[1]

    def _likelihoods(self, findings: Mapping[int, Array]) -> tuple[Array | None, float]:
        """Return the likelihoods of all variables side by side, each with maximum 1, and ln of what was taken out;
        None where the CPU has to answer.
        """
        if not self._leaves.natural:
            return None, 0.0
        values = np.ones(self._program.records.finding_cells)
        log_scale = 0.0
        for variable, finding in findings.items():
            local = self._network.local.get(variable)
            if local is None:
                continue
            found = likelihoods(finding, self._network.domains[variable])
            if found.low[0] < LEAST_LOG:
                return None, 0.0
            log_scale += float(found.log_scale[0])
            first, cells = self._program.findings[local]
            values[first : first + cells] = found.values[:, 0]
        return values, log_scale


def _added(
    answers: Iterator[tuple[Cases, BlockAnswer]], log_scale: float
) -> Iterator[tuple[Cases, BlockAnswer | None]]:
    """Add what was taken out of likelihoods to the totals."""
    for block, answer in answers:
        yield block, replace(answer, totals=answer.totals + log_scale)
