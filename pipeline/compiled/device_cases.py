"""Beliefs of a compiled model from GPUs: one question at a time on one of them, cases on any number.

The device proves with the exponents of its tables that no product left the range of doubles. Where it does not, and
for likelihoods that span more than it allows for, there is no answer, and the caller asks the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ...cluster.pool import DeviceThreads, Pool, begun_devices, present_device
from ...tasks.gpu.cold_kernels import cores_end_first
from ...tasks.gpu.memory import out_of_memory, portable_errors
from ...tasks.gpu.messages import propagation
from ...tasks.gpu.messages.propagation import DeviceMessages, MessageProgram, one_at_a_time
from ...tasks.gpu.messages.records import FINDING_EXPONENT
from ...tasks.steps.number_limits import LARGEST_INT32
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
from .case_program import BlockAnswer, CompiledPolicy, ranges

# Cases at once on a device: enough for every step to fill it, and few enough that their tables are soon allocated.
_DEVICE_CASES: Final = 1 << 14
# Blocks per device with several devices, so that all end at about the same time.
_DEVICE_BLOCKS: Final = 4
# log2 of the most cases that a device computes together.
_GROUP_LOG2: Final = 4

# Many cases on a GPU: of this process, or of the GPU workers of a cluster, which get blocks of cases as tasks.

Array = NDArray[Any]
T = TypeVar("T")
Read = Callable[[Cases, BlockAnswer | None], T]
"""Converts a block of cases with its answer; the answer is None if the CPU must compute it."""

LEAST_LOG: Final = FINDING_EXPONENT * math.log(2)
"""ln of the least likelihood for which a device proves that products stay in the range of doubles."""


class CaseProgram:
    """Answers blocks of cases on the device of the present process; only the program is sent.

    Parameters
    ----------
    network : Network
    program : MessageProgram
    leaves : DeviceLeaves
        Without findings.
    targets : sequence of Target
        The targets that the program answers.
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
        self._devices: dict[int, DeviceMessages] = {}
        self._found_room: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_devices": {}}

    @property
    def most_cases(self) -> int:
        """Maximum number of cases that are answered together."""
        policy = CompiledPolicy.current()
        program = self.program
        enough = max(policy.device_bytes, program.records.fixed_bytes + program.case_bytes * program.records.group)
        return min(program.cases_within(min(self._memory_bytes, enough)), _DEVICE_CASES)

    def seconds(self, cases: int) -> float:
        """Predict the time of some cases on one device."""
        return cases * self.program.records.factors / CompiledPolicy.current().device_factors_per_second

    def devices(self, cases: int, most: int, begun: int) -> int:
        """Return the number of this process's devices, at most ``most``, with which some cases are predicted to end
        first.

        Parameters
        ----------
        begun : int
            Devices that were used before; others have to be started.
        """
        start = CompiledPolicy.current().device_start_seconds

        def seconds(devices: int) -> float:
            blocks = -(-cases // self._block_size(cases, devices))
            reading = blocks * self._reading_seconds
            return self.seconds(cases) / min(devices, blocks) + reading + (start if devices > begun else 0.0)

        return min(range(1, most + 1), key=seconds)

    @property
    def _reading_seconds(self) -> float:
        """Seconds to name the answers of a block; threads do this one at a time."""
        return CompiledPolicy.current().device_reading_seconds * len(self._targets)

    def spread(self, cases: Cases, common: Array, pool: Pool, read: Read[T]) -> Iterator[T]:
        """Answer cases block by block, in their order, on the devices of a pool.

        Parameters
        ----------
        cases : Cases
        common : ndarray, (finding cells,)
            Likelihoods that hold in every case.
        pool : Pool
        read : callable
            Converts a block's answer; threads with devices in this process do this too.
        """
        devices = pool.devices if isinstance(pool, DeviceThreads) else pool.width
        blocks = [cases.part(*bounds) for bounds in ranges(cases.count, self._block_size(cases.count, devices))]
        if isinstance(pool, DeviceThreads):

            def answer(block: Cases) -> T:
                return read(block, self._read(*run_cases(self, block, common)))

            yield from pool.stream(answer, ((block,) for block in blocks))
            return
        shared = pool.put(self)
        found = pool.stream(run_cases, ((shared, block, common) for block in blocks))
        for block, (numbers, alone) in zip(blocks, found, strict=True):
            yield read(block, self._read(numbers, alone))

    def _block_size(self, cases: int, devices: int) -> int:
        """Choose the cases of a task, in whole groups."""
        policy = CompiledPolicy.current()
        shortest = max(policy.device_block_seconds, devices * self._reading_seconds)
        least = int(shortest / max(self.seconds(1), 1e-9))
        wanted = max(-(-cases // (devices * _DEVICE_BLOCKS)), least, 1)
        wanted = min(wanted, policy.answer_bytes // (8 * self.program.answer_cells) + 1)
        group = self.program.records.group
        return min(-(-wanted // group) * group, self.most_cases)

    def answered(self, cases: Cases, common: Array) -> tuple[Array, Array]:
        """Return the numbers of cases, (cases, answer cells), and which of them the CPU has to answer."""
        states, weights, alone = self._columns(cases)
        numbers = np.empty((cases.count, self.program.answer_cells))
        size, start = self._found_room or self.most_cases, 0
        while start < cases.count:
            part = slice(start, min(start + size, cases.count))
            theirs = states[0], states[1][:, part]
            try:
                with one_at_a_time(present_device()):
                    numbers[part] = self._device.run_cases(
                        part.stop - start, common, theirs, {v: values[part] for v, values in weights.items()}
                    )
            except MemoryError as error:
                # others may have taken memory since the budget was made
                group = self.program.records.group
                if not out_of_memory(error) or size <= group:
                    raise
                self._found_room = size = max(size // 2 // group * group, group)
                continue
            start = part.stop
        return numbers, alone

    @property
    def _device(self) -> DeviceMessages:
        """The program on the device of this thread."""
        number = present_device()
        if number not in self._devices:
            self._devices[number] = DeviceMessages(self.program, self._constants)
        return self._devices[number]

    def _read(self, numbers: Array, alone: Array) -> BlockAnswer:
        """Name what a device answers."""
        cells = [(place, place + n) for _, n, place, _ in self.program.targets.tolist()]
        beliefs = {target: numbers[:, a:b].T for target, (a, b) in zip(self._targets, cells, strict=True)}
        places = {target: a for target, (a, _) in zip(self._targets, cells, strict=True)}
        alone = alone | (numbers[:, -1] != 0.0)
        return BlockAnswer(numbers[:, -2] + self.program.log_scale, beliefs, alone, numbers, places)

    def _columns(self, block: Cases) -> tuple[tuple[list[int], Array], dict[int, Array], Array]:
        """Return the observations of local variables in the cases, and the cases whose likelihoods range too far."""
        here = {v: column for v, column in block.columns.items() if v in self._variables}
        hard = [v for v, column in here.items() if column.ndim == 1]
        states = np.array([here[v] for v in hard], dtype=np.int32).reshape(len(hard), block.count)
        for row, v in zip(states, hard, strict=True):
            _, domain, dim = self._variables[v]
            if len(domain) < dim:
                # an excluded state of the model is not among the remaining states; the last entry belongs to -1
                number = np.full(dim + 1, -2, dtype=np.int32)
                number[domain] = np.arange(len(domain))
                number[-1] = -1
                row[:] = number[row]
        weights, alone = {}, np.zeros(block.count, dtype=bool)
        for v, column in here.items():
            if column.ndim > 1:
                found = case_likelihoods(column, self._variables[v][1])
                weights[self._variables[v][0]] = np.ascontiguousarray(found.values.T)
                alone |= found.low < LEAST_LOG
        return ([self._variables[v][0] for v in hard], states), weights, alone


def run_cases(program: CaseProgram, cases: Cases, common: Array) -> tuple[Array, Array]:
    """Task: answer a block of cases on this process's device, as numbers."""
    with portable_errors():
        return program.answered(cases, common)


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

    def cores_end_first(self, cores: float, cases: int = 1) -> bool:
        """Return whether the cores answer some cases before the device has compiled its kernels.

        Parameters
        ----------
        cores : float
            Predicted seconds on the cores.
        cases : int
        """
        if self._plan.kept_bytes > default_memory_bytes():
            return False
        return cores_end_first(propagation.propagation_kernels(self._program.law, cases), cores)

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
    ) -> Callable[[Read[T]], Iterator[T]]:
        """Return a function that answers many cases block by block, in order, and converts each block.

        The answer of a block is None if the CPU must compute it. Blocks are tasks on the GPU workers of a running
        cluster, or of threads for each GPU here; unused GPUs are started if the answer takes longer than their start.
        Every case is computed by the same sums on any device.

        Parameters
        ----------
        findings : mapping of int to ndarray
            Likelihoods by model variable that hold in all cases.
        """
        common, log_scale = self._likelihoods(findings)
        if common is None or not cases.count:
            return lambda read: iter([read(cases, None)] if cases.count else [])
        likelihoods, program = common, self._program_for(tuple(targets), cases.count)

        def spread(read: Read[T]) -> Iterator[T]:
            def added(block: Cases, answer: BlockAnswer | None) -> T:
                assert answer is not None
                return read(block, replace(answer, totals=answer.totals + log_scale))

            with self._pool(resources, program, cases.count) as pool:
                yield from program.spread(cases, likelihoods, pool, added)

        return spread

    def _pool(self, resources: Resources, program: CaseProgram, cases: int) -> AbstractContextManager[Pool]:
        """Return the workers of a cluster, or threads for as many devices here as pay."""
        if resources.asked.remote:
            return DaskPools(resources)
        return nullcontext(DeviceThreads(program.devices(cases, resources.gpu_count, begun_devices())))

    def _program_for(self, targets: tuple[Target, ...], cases: int) -> CaseProgram:
        """Return a program that answers these targets and no others for many cases; the last one is remembered.

        Cases are computed in groups, as large as there are cases, memory and numbers of 32 bits for. From half of the
        largest group on, batches of all sizes share one program, which takes longer to make than a group to compute.
        """
        several = max(cases, 1).bit_length() - 1
        asked = group = 1 << (_GROUP_LOG2 if several >= _GROUP_LOG2 - 1 else several)
        if self._other is None or self._other[0] != (targets, asked):
            self._other = None
            single = self._program
            while group > 1 and group * single.records.slab_cells > LARGEST_INT32:
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
        """Return the likelihoods of all variables, concatenated and each with maximum 1, and ln of the removed scale;
        None if the CPU must answer.
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
