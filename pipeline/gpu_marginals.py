"""Beliefs from a GPU: of a compiled model, of many cases, and of a single question.

The device proves with the exponents of its tables that no product left the range of doubles. Where it does not, and
for likelihoods that span more than it allows for, there is no answer, and the caller asks the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..tasks.device_memory import out_of_memory
from ..tasks.gpu_messages import DeviceMessages, MessageProgram
from ..tasks.message_records import FINDING_EXPONENT
from ..tasks.scaled import Scaled
from .batches import BlockAnswer
from .cases import Cases
from .combine import Beliefs, SumCombiner, Target, place
from .device_messages import constant_values, message_program
from .errors import BudgetError
from .marginal_slices import Slices
from .plan import format_bytes
from .reduce import Network
from .twoway import TwoWay

Array = NDArray[Any]

_LEAST_LIKELIHOOD: Final = 2.0**FINDING_EXPONENT
# Cases at once: enough for every step to fill the device, and few enough that their slabs are soon allocated.
_MOST_CASES: Final = 1 << 14
_MOST_BYTES: Final = 8 << 30
_MOST_GROUP: Final = 4
"""log2 of the cases in a group."""
_MOST_GROUP_CELLS: Final = 1 << 31


class GpuPropagation:
    """A plan with its leaves on a GPU, ready for any findings.

    Parameters
    ----------
    network : Network
    plan : TwoWay
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
        plan: TwoWay,
        leaves: Mapping[int, Scaled],
        hosts: Mapping[int, int],
        fixed: float,
        memory_bytes: int,
    ) -> None:
        self._network, self._plan, self._leaves, self._hosts = network, plan, leaves, hosts
        self._fixed = fixed
        self._targets = tuple(plan.results)
        self._program = message_program(plan, leaves, hosts, self._targets)
        self._device = checked_device(self._program, leaves, memory_bytes)
        self._free_bytes = memory_bytes - self._program.case_bytes - self._program.records.fixed_bytes
        self._other: tuple[tuple[tuple[Target, ...], int], DeviceMessages] | None = None
        places = zip(self._targets, self._program.targets.tolist(), strict=True)
        self._places = {
            target: (place, place + cells, tuple([plan.dims[v] for v in target]))
            for target, (_, cells, place, _) in places
        }

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
        self, cases: Cases, findings: Mapping[int, Array], targets: Sequence[Target]
    ) -> Iterator[tuple[Cases, BlockAnswer | None]]:
        """Answer many cases block by block; ``findings`` hold in all of them. None where the CPU has to."""
        common, log_scale = self._likelihoods(findings)
        if common is None:
            yield cases, None
            return
        device = self._device_for(tuple(targets), cases.count)
        program = device.program
        enough = max(_MOST_BYTES, program.records.fixed_bytes + program.case_bytes * program.records.group)
        size = min(program.cases_within(min(self._free_bytes, enough)), _MOST_CASES, cases.count)
        if size == 0 and cases.count:
            raise _too_large(program, self._free_bytes)
        places = program.targets.tolist()
        start = 0
        while start < cases.count:
            block = cases.part(start, min(start + size, cases.count))
            states, weights, alone = self._columns(block)
            try:
                answer = device.run_cases(block.count, common, states, weights)
            except MemoryError as error:
                # others may have taken memory since the budget was made
                group = program.records.group
                if not out_of_memory(error) or size <= group:
                    raise
                size = max(size // 2 // group * group, group)
                continue
            beliefs = {
                target: answer[:, place : place + cells].T
                for target, (_, cells, place, _) in zip(targets, places, strict=True)
            }
            totals = answer[:, -2] + (program.log_scale + log_scale)
            yield block, BlockAnswer(totals, beliefs, alone | (answer[:, -1] != 0.0))
            start += block.count

    def _device_for(self, targets: tuple[Target, ...], cases: int) -> DeviceMessages:
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
            self._other = (targets, asked), checked_device(program, self._leaves, self._free_bytes)
        return self._other[1]

    def _likelihoods(self, findings: Mapping[int, Array]) -> tuple[Array | None, float]:
        """Return the likelihoods of all variables side by side, each with maximum 1, and ln of what was taken out."""
        values = np.ones(self._program.records.finding_cells)
        log_scale = 0.0
        for variable, finding in findings.items():
            local = self._network.local.get(variable)
            if local is None:
                continue
            weights = finding[self._network.domains[variable]]
            top = float(weights.max())
            if 0.0 < top != 1.0:
                weights = weights / top
                log_scale += math.log(top)
            if _endangered(weights).any():
                return None, 0.0
            first, cells = self._program.findings[local]
            values[first : first + cells] = weights
        return values, log_scale

    def _columns(self, block: Cases) -> tuple[list[tuple[int, Array]], dict[int, Array], Array]:
        """Return what the cases observe of local variables, and the cases whose likelihoods span too much."""
        states, weights = [], {}
        alone = np.zeros(block.count, dtype=bool)
        for variable, column in block.columns.items():
            local, domain = self._network.local.get(variable), self._network.domains[variable]
            if local is None:
                continue
            if column.ndim == 2:
                top = column.max(axis=1, keepdims=True)
                weights[local] = (column / np.where(top > 0.0, top, 1.0))[:, domain]
                alone |= _endangered(weights[local]).any(axis=1)
            else:
                # a state that the model excludes is none of the remaining ones; the last entry is that of -1
                number = np.full(self._network.model.dims[variable] + 1, -2, dtype=np.int32)
                number[domain] = np.arange(len(domain))
                number[-1] = -1
                states.append((local, number[column]))
        return states, weights, alone


def _endangered(weights: Array) -> Array:
    return np.asarray((weights > 0.0) & (weights < _LEAST_LIKELIHOOD))


def checked_device(program: MessageProgram, leaves: Mapping[int, Scaled], memory_bytes: int) -> DeviceMessages:
    """Put a program on the device if one case fits the budget."""
    if not program.cases_within(memory_bytes):
        raise _too_large(program, memory_bytes)
    return DeviceMessages(program, constant_values(program, leaves))


def _too_large(program: MessageProgram, memory_bytes: int) -> BudgetError:
    needed = program.case_bytes + program.records.fixed_bytes
    return BudgetError(
        f"all messages of a propagation need {format_bytes(needed)} on the GPU, allowed {format_bytes(memory_bytes)}; "
        "ask without --gpus, or for fewer variables"
    )


def propagate_on_gpu(plan: TwoWay, slices: Slices[Scaled], memory_bytes: int) -> Beliefs:
    """Run both sweeps of every slice and add the slices; the total is without functions of no variable."""
    sweeps, targets = slices.sweeps, list(plan.results)
    program = message_program(plan, sweeps.leaves, {}, targets)
    device: DeviceMessages | None = None
    combiner = SumCombiner(slices.shapes)
    for states in map(slices.states, range(slices.slices)):
        leaves = {
            node: sweeps.algebra.restrict(table, sweeps.leaf_axes[node], sweeps.dims, states)
            for node, table in sweeps.leaves.items()
        }
        if device is None:
            device = checked_device(program, leaves, memory_bytes)
        else:
            device.replace_constants(constant_values(program, leaves))
        answer = device.run(np.ones(0))
        if answer[-1]:
            tables = sweeps.run(states)
            total = math.fsum(tables[root].log_value() for root in plan.tree.roots)
            beliefs = {target: tables[node] for target, node in plan.results.items()}
        else:
            total = float(answer[-2]) + program.log_scale
            beliefs = {
                target: Scaled(answer[start : start + cells])
                for target, (_, cells, start, _) in zip(targets, program.targets.tolist(), strict=True)
            }
        found = combiner.read(beliefs, plan.tree.dims)
        combiner.add(total, {target: (table, place(target, states)) for target, table in found.items()})
    return combiner.beliefs()
