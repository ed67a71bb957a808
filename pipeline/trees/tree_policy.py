"""What is tuned of rewriting trees, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy
from ...tasks.sweeps.best_states import JOINT_STATES


@dataclass(frozen=True)
class TreePolicy(Policy):
    """The numbers behind steps that are joined beforehand, or left for later.

    Parameters
    ----------
    join_share : int
        A join that saves reading its inputs may have one part of so many of the cells of the step.
    few_inputs : int
        A step whose inputs are joined beforehand reads so many at last.
    cached_cells : int
        Lowering joins inputs by itself as long as the joins stay in the caches, which are so many cells;
    many_inputs : int
        up to so many of those cost little.
    joined_step_cells : int
        Below, a further step costs about what it saves.
    later_joint_cells : int
        Fewer joint states are decoded before a further step would be planned.
    later_rows : int
        A step that is left for later has the best of so many times the rows that it leaves, at least,
    joint_states : int
        and of so many joint states at most, which are compared at once.
    """

    join_share: int = 64
    few_inputs: int = 3
    cached_cells: int = 1 << 16
    many_inputs: int = 8
    joined_step_cells: int = 1 << 22
    later_joint_cells: int = 1 << 16
    later_rows: int = 1 << 4
    joint_states: int = JOINT_STATES
