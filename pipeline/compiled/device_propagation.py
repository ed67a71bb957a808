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

from ...tasks.gpu.messages.run import DeviceMessages
from ...tasks.sweeps.scaled import Scaled
from ..evidence.cases import Cases
from ..evidence.likelihoods import likelihoods
from ..planning.message_program import constant_values, message_program, probability_leaves
from ..plans.plan import Plan
from ..preprocessing.preprocess import Network
from ..queries.beliefs import Beliefs
from ..resources import Resources
from ..runs.device_sweeps import check_case
from ..runs.pools import DaskPools
from ..trees.tree import Target
from .batch_program import BlockAnswer
from .device_batches import LEAST_LOG, CaseProgram

Array = NDArray[Any]

_MOST_GROUP: Final = 4
"""log2 of the cases in a group."""
_MOST_GROUP_CELLS: Final = 1 << 31
# Workers of this machine take some seconds to start.
_STARTING_SECONDS: Final = 5.0


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
        several = resources.gpu_count > 1 and program.seconds(cases.count) > _STARTING_SECONDS
        if resources.asked.remote or several:
            with DaskPools(resources) as pool:
                yield from _added(program.spread(cases, common, pool), log_scale)
        else:
            yield from _added(program.answers(cases, common), log_scale)

    def _program_for(self, targets: tuple[Target, ...], cases: int) -> CaseProgram:
        """Return a program that answers these targets and no others for many cases; the last one is remembered.

        Cases are computed in groups, as large as there are cases, memory and numbers of 32 bits for.
        """
        asked = group = 1 << min(max(cases, 1).bit_length() - 1, _MOST_GROUP)
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
