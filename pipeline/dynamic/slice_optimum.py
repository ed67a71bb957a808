"""The best states of one slice, computed repeatedly: the best value of the slices from it on, and the states that reach
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import min_plus
from ...tasks.sweeps.sweep import Plain, sweep
from ..machine.resources import Resources
from ..plans.plan import Plan
from ..plans.problem import Problem
from ..queries.decode import decode
from .slice_plan import SliceLeaves, planner_of_slice, verify_memory

Array = NDArray[Any]
_ENERGIES = min_plus("float64")


@dataclass(frozen=True, eq=False)
class EnergyMessage:
    """The least energy of the slices from one on, for each state of the interface before it.

    Parameters
    ----------
    table : ndarray, float64
        Over the interface's variables, an axis for each; the least is 0.
    energy : float
        What was subtracted.
    """

    table: Array
    energy: float


def optimum_plan(leaves: SliceLeaves, resources: Resources) -> Plan:
    """Plan the optimum of a slice, which keeps the interface before it.

    Raises
    ------
    BudgetError
        If its tables do not fit memory.
    """
    scopes = leaves.scopes[: leaves.after + 1] + tuple([(v,) for v in leaves.past])
    last = frozenset(leaves.past)
    problem = Problem(leaves.dims, scopes, _ENERGIES, 8, last=last, keeps_last=bool(last))
    planner = planner_of_slice(problem, resources)
    plan = planner.of(planner.tree())
    verify_memory(plan.kept_bytes, resources)
    return plan


class SliceOptimum:
    """The leaf tables of a slice, for one walk along the steps.

    Parameters
    ----------
    leaves : SliceLeaves
    plan : Plan
    compiled : bool
        Whether compiled loops run the steps.
    """

    def __init__(self, leaves: SliceLeaves, plan: Plan, compiled: bool) -> None:
        self.leaves, self.plan = leaves, plan
        with np.errstate(divide="ignore"):
            self._leaves = {k: -np.log(table) for k, table in leaves.tables(plan.layouts).items()}
        self._algebra = Plain(_ENERGIES, compiled)
        self._freed = [()] * len(plan.up)
        kept = plan.tree.roots
        self._roots = [root for root in kept if not leaves.after < root < plan.tree.n_leaves]

    def swept(self, findings: Mapping[int, Array], after: EnergyMessage | None) -> dict[int, Array]:
        """Return all tables of a sweep.

        Parameters
        ----------
        findings : mapping of int to ndarray
            An energy for each state of the variables that are observed.
        after : EnergyMessage or None
            None in the last slice.
        """
        leaves = self._leaves | {self.leaves.finding(v): energies for v, energies in findings.items()}
        if after is not None:
            layout, interface = self.plan.layouts[self.leaves.after], self.leaves.interface
            moved = np.transpose(after.table, [interface.index(v) for v in layout])
            leaves[self.leaves.after] = np.ascontiguousarray(moved).reshape(-1)
        return sweep(self.plan.up, leaves, self._algebra, self._freed)

    def message(self, tables: Mapping[int, Array], after: EnergyMessage | None) -> EnergyMessage | None:
        """Return the message to the previous interface from the tables of a sweep, or the total; None if impossible."""
        past, dims = self.leaves.past, self.leaves.dims
        total = np.zeros([dims[v] for v in past])
        for root in self._roots:
            axes = self.plan.layouts[root]
            shaped = tables[root].reshape([dims[v] for v in axes])
            ordered = np.transpose(shaped, sorted(range(len(axes)), key=axes.__getitem__))
            total = total + ordered.reshape([dims[v] if v in axes else 1 for v in past])
        least = float(total.min()) - self.leaves.log_constant
        if least == math.inf:
            return None
        energy = least + (0.0 if after is None else after.energy)
        return EnergyMessage(total - total.min(), energy)

    def decoded(self, tables: Mapping[int, Array], past: Sequence[int]) -> list[int]:
        """Return the best states of the slice's variables, given the states of the previous interface."""
        assignment = dict(zip(self.leaves.past, past, strict=True))
        decode(self.plan.up, tables, self.leaves.dims, _ENERGIES, assignment, self._algebra.compiled)
        return [assignment[v] for v in range(self.leaves.variables)]
