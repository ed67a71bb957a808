"""Tuned numbers of rewriting trees. Pure."""

from __future__ import annotations

from ...records import dataclass
from ...tasks.steps.policy import Policy
from ...tasks.sweeps.best_states import JOINT_STATES


@dataclass(frozen=True)
class TreePolicy(Policy):
    """The numbers behind steps that are joined beforehand, or left for later.

    Parameters
    ----------
    join_share : int
        A join that saves reading its inputs may have at most 1 / this of the step's cells.
    cached_cells : int
        Lowering joins inputs by itself if the joins stay in the caches, at most this many cells;
    many_inputs : int
        and at most this many of them are cheap.
    joined_step_cells : int
        Below, a further step costs about what it saves.
    later_joint_cells : int
        Fewer joint states are decoded before a further step would be planned.
    later_rows : int
        A step that is left for later handles at least this many times the rows that it leaves,
    joint_states : int
        and at most this many joint states, which are compared together.
    """

    join_share: int = 64
    cached_cells: int = 1 << 16
    many_inputs: int = 8
    joined_step_cells: int = 1 << 22
    later_joint_cells: int = 1 << 16
    later_rows: int = 1 << 4
    joint_states: int = JOINT_STATES
