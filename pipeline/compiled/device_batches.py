"""Many cases on a GPU: of this process, or of the GPU workers of a cluster, which get blocks of cases as tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...cluster.pool import Pool
from ...tasks.gpu.memory import out_of_memory, portable_errors
from ...tasks.gpu.messages.records import FINDING_EXPONENT
from ...tasks.gpu.messages.run import ONE_AT_A_TIME, DeviceMessages, MessageProgram
from ..evidence.cases import Cases
from ..evidence.likelihoods import case_likelihoods
from ..planning.message_program import DeviceLeaves, constant_values
from ..preprocessing.preprocess import Network
from ..trees.tree import Target
from .batch_program import BlockAnswer, ranges

Array = NDArray[Any]

LEAST_LOG: Final = FINDING_EXPONENT * math.log(2)
"""ln of the least likelihood of which a device proves that products stay in the range of doubles."""

# Cases at once: enough for every step to fill the device, and few enough that their slabs are soon allocated.
_MOST_CASES: Final = 1 << 14
_MOST_BYTES: Final = 8 << 30
# Of a batch over several devices: enough blocks for all to end together, none too short for its way there and back.
_BLOCKS_OF_A_DEVICE: Final = 4
_LEAST_SECONDS: Final = 0.01
_FACTORS_PER_SECOND: Final = 3e11
# Several answers for each device may be on their way or wait for those before them.
_ANSWER_BYTES: Final = 1 << 27


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
        program = self.program
        enough = max(_MOST_BYTES, program.records.fixed_bytes + program.case_bytes * program.records.group)
        return min(program.cases_within(min(self._memory_bytes, enough)), _MOST_CASES)

    def seconds(self, cases: int) -> float:
        """Predict the time of some cases on one device."""
        return cases * self.program.records.factors / _FACTORS_PER_SECOND

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
        least = int(_LEAST_SECONDS / max(self.seconds(1), 1e-9))
        wanted = max(-(-cases // (devices * _BLOCKS_OF_A_DEVICE)), least, 1)
        wanted = min(wanted, _ANSWER_BYTES // (8 * self.program.answer_cells) + 1)
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
