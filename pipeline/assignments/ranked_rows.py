"""What one step of a min-plus sweep eliminated, best first, where some of its tables are rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.best_rows import fixed
from ...tasks.rows.memory_account import RowsNoRoomError
from ...tasks.rows.relation import Relation, to_dense
from ...tasks.steps.semiring import Semiring
from ...tasks.steps.step import Step
from ...tasks.steps.sweep_policy import SweepPolicy
from ...tasks.sweeps.ranked_states import RankedStep, chosen_by

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class RankedRows:
    """A step whose eliminated variables are chosen, best first.

    Parameters
    ----------
    chosen : tuple of int
        The variables that it eliminated.
    tables : tuple of (table, tuple of int)
        What it reads, arrays or rows, with their variables.
    sizes : sequence of int
    semiring : Semiring
        Min-plus.
    """

    chosen: tuple[int, ...]
    tables: tuple[tuple[Any, tuple[int, ...]], ...]
    sizes: Sequence[int]
    semiring: Semiring

    def worth(self, states: Sequence[int] | Array) -> Array:
        """Return what each joint state of the chosen variables is worth, flat; those that are forbidden saturate."""
        shape = [self.sizes[v] for v in self.chosen]
        total: Array = np.zeros(shape, self.semiring.dtype)
        for table, axes in self.tables:
            given = {v: int(states[v]) for v in axes if v not in self.chosen and self.sizes[v] > 1}
            part = fixed(table, axes, self.sizes, given)
            if isinstance(part, Relation):
                part = to_dense(part, self.semiring)
            scope = [v for v in part.keys.variables if v in self.chosen]
            shaped = part.values.reshape([self.sizes[v] for v in scope])
            ordered = shaped.transpose([scope.index(v) for v in self.chosen if v in scope])
            total = total + ordered.reshape([self.sizes[v] if v in scope else 1 for v in self.chosen])
            if self.semiring.saturates:
                total = np.minimum(total, self.semiring.zero)
        return total.reshape(-1)

    def enter(self, number: int, states: Array) -> None:
        """Write the states of a joint state into an assignment."""
        for v in reversed(self.chosen):
            number, states[v] = divmod(number, self.sizes[v])


Choice = RankedStep | RankedRows


def choice_of(step: Step, tables: Sequence[Any], sizes: Sequence[int], semiring: Semiring) -> Choice:
    """Prepare a step of arrays or rows; nothing is copied.

    Raises
    ------
    RowsNoRoomError
        If rows say of more joint states what each is worth than are looked at.
    """
    if not any(isinstance(table, Relation) for table in tables):
        return RankedStep.of(step, tables, sizes, semiring)
    chosen, most = chosen_by(step, sizes), SweepPolicy.current().drawn_cells
    if (states := prod(sizes[v] for v in chosen)) > most:
        raise RowsNoRoomError((), 8 * states, 8 * most)
    return RankedRows(chosen, tuple(zip(tables, step.input_axes, strict=True)), sizes, semiring)
