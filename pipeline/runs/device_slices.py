"""Both sweeps of a slice on the device of whichever process is asked: of this one, or of a GPU worker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ...cluster.pool import present_device
from ...tasks.gpu.memory import portable_errors
from ...tasks.gpu.messages.propagation import DeviceMessages, MessageProgram, one_at_a_time
from ...tasks.sweeps.scaled import Scaled
from ..errors import BudgetError, format_bytes
from ..plans.message_program import DeviceLeaves, constant_values, message_program
from ..plans.plan import Plan
from ..queries.arithmetic import Arithmetic
from ..trees.tree import Target

Array = NDArray[Any]


class DeviceSweeps:
    """A program for every slice of a plan; only the program travels between processes.

    Parameters
    ----------
    plan : Plan
    leaves : mapping of int to table
        Leaf tables with all states.
    arithmetic : Arithmetic
    memory_bytes : int
        Budget on the device.
    """

    def __init__(self, plan: Plan, leaves: Mapping[int, Any], arithmetic: Arithmetic[Any], memory_bytes: int) -> None:
        self._arithmetic, self._memory_bytes = arithmetic, memory_bytes
        self._targets: tuple[Target, ...] = tuple(plan.results)
        self._plan: Plan | None = plan
        self._swept_bytes = 0
        self._program = message_program(plan, arithmetic.device_leaves(leaves), {}, self._targets)
        self._devices: dict[int, DeviceMessages] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_devices": {}, "_plan": None, "_swept_bytes": self._host_bytes}

    @property
    def _host_bytes(self) -> int:
        """Bytes of a slice on the CPU."""
        return self._swept_bytes if self._plan is None else self._plan.swept_bytes

    def swept(self, leaves: Mapping[int, Any]) -> tuple[Any, dict[Target, Any]] | None:
        """Return the total and the table of every target of a slice; None where the CPU has to.

        Raises
        ------
        BudgetError
            If the tables of a slice do not fit the budget.
        DeviceMemoryError
            If the device has less memory than its budget.
        """
        answer = self._answer(leaves)
        if answer is None:
            return None
        tables, total = self._tables(answer), self._total(answer)
        if self._program.law == "sum_product":
            return total, {target: Scaled(table) for target, table in tables.items()}
        return total, tables

    def beliefs(self, leaves: Mapping[int, Any], dims: Sequence[int]) -> tuple[Any, dict[Target, Array]] | None:
        """Return the total and the beliefs, shaped, where one slice is all there is; see :meth:`swept`."""
        answer = self._answer(leaves)
        if answer is None:
            return None
        tables, total = self._tables(answer), self._total(answer)
        if self._arithmetic.joined([total]) is None:
            return total, {}
        if self._program.law != "sum_product":
            return total, self._arithmetic.combiner({}).read(tables, dims)
        # the device has divided them by their sums
        return total, {t: b if len(t) == 1 else b.reshape([dims[v] for v in t]) for t, b in tables.items()}

    def _answer(self, leaves: Mapping[int, Any]) -> Array | None:
        """Return the device's answer; None if it cannot prove that every product stayed in the range of doubles."""
        constants = self._arithmetic.device_leaves(leaves)
        if not constants.natural:
            self._check_host()
            return None
        number = present_device()
        with portable_errors(), one_at_a_time(number):
            device = self._devices.get(number)
            if device is None:
                device = self._devices[number] = checked_device(self._program, constants, self._memory_bytes)
            else:
                device.replace_constants(constant_values(self._program, constants))
            answer = device.run(np.ones(0))
        if answer[-1]:
            self._check_host()
            return None
        return answer

    def _tables(self, answer: Array) -> dict[Target, Array]:
        """Return the table of every target, flat."""
        places = self._program.targets.tolist()
        return {t: answer[a : a + cells] for t, (_, cells, a, _) in zip(self._targets, places, strict=True)}

    def _total(self, answer: Array) -> Any:
        """Return the total as the arithmetic has it."""
        return (
            float(answer[-2]) + self._program.log_scale
            if self._program.law == "sum_product"
            else self._least(answer[-2:-1])
        )

    def _least(self, root: NDArray[np.float64]) -> Any:
        """Return a least total of one cell as the arithmetic has it; None if nothing is possible."""
        return None if root[0] == math.inf else self._arithmetic.total([root])

    def _check_host(self) -> None:
        """Refuse to leave a slice to the CPU where this machine has no memory for it."""
        free = default_memory_bytes()
        if (needed := self._host_bytes) > free:
            raise BudgetError(
                "products leave the range of doubles on the GPU, and on the CPU a slice needs "
                f"{format_bytes(needed)}, but {format_bytes(free)} are free; repeat the query without --gpus"
            )


def checked_device(program: MessageProgram, leaves: DeviceLeaves, memory_bytes: int) -> DeviceMessages:
    """Put a program on the device if one case fits the budget.

    Raises
    ------
    BudgetError
        If it does not.
    """
    check_case(program, memory_bytes)
    return DeviceMessages(program, constant_values(program, leaves))


def check_case(program: MessageProgram, memory_bytes: int) -> None:
    """Refuse a program if a single case, or one group of cases, does not fit the budget."""
    if not program.cases_within(memory_bytes):
        needed = program.case_bytes * program.records.group + program.records.fixed_bytes
        raise BudgetError(
            f"all messages of a propagation need {format_bytes(needed)} on the GPU, "
            f"allowed {format_bytes(memory_bytes)}; leave out --gpus, or ask for fewer variables"
        )
