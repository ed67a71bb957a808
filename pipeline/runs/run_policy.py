"""Tuned numbers of slices in best-first order, and of pricing joins by samples. Pure."""

from __future__ import annotations

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class SlicePolicy(Policy):
    """The numbers behind slices as tasks and their bounds.

    Parameters
    ----------
    least_seconds : float
        Slices that are predicted to take less together are run in their order.
    bounds_part : int
        Bounds may take 1 / this of the slices' predicted time,
    cell_seconds, device_cell_seconds : float
        at this many seconds per cell, or beside devices, whose slices are short: measured beside two H200, where
        bounds of Promedas_41 took as long as its slices on one card.
    slice_bytes : int
        Maximum numbers of all slices held at a time.
    step_tasks : int
        Most tasks of single steps that a run is cut into: each takes 2 CPU ms.
    """

    least_seconds: float = 0.1
    bounds_part: int = 16
    cell_seconds: float = 5e-9
    device_cell_seconds: float = 1.5e-8
    slice_bytes: int = 5 * 8
    step_tasks: int = 200_000


@dataclass(frozen=True)
class SamplingPolicy(Policy):
    """The numbers behind samples of rows.

    Parameters
    ----------
    most_rows : int
        Maximum rows of a sample: of step tables, and of leaf tables, which are kept whole if possible.
    most_joined : int
        Rows of a join that are made; of more some are drawn.
    """

    most_rows: int = 1 << 11
    most_joined: int = 1 << 13
