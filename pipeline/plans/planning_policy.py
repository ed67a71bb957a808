"""Tuned numbers of plans. Pure."""

from __future__ import annotations

from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy

# Nominal seconds of a search for a tree whose messages fit memory, where a propagation takes less than the latter
# and was not searched for before: of seven, twice as long found the same for six, and 11% less for 20 ms.
FURTHER_SEARCH_SECONDS: Final = 0.05
# Loading a device's libraries and kernels in this process, in seconds.
DEVICE_LOADING_SECONDS: Final = 1.0


@dataclass(frozen=True)
class PlanningPolicy(Policy):
    """The numbers behind parts for workers and further trees.

    Parameters
    ----------
    sent_bytes : int
        A message between workers; a larger one costs more to send than it saves.
    part_seconds, start_seconds : float
        Seconds to send a part, to schedule its four tasks, to fetch their results, and to start.
    device_start_seconds : float
        Starting processes for the GPUs of this machine.
    device_begin_seconds : float
        Seconds until a further GPU computes that this process has not used before.
    device_join_seconds : float
        Seconds that each question takes longer because a further GPU gets its tables and launches.
    device_step_seconds, device_slice_seconds : float
        Seconds of Python for a step of a slice whose tables have scales, and for a slice of other tables, whose steps
        are one launch: threads share the interpreter, so further GPUs do not divide them.
    device_least_gain : float
        Further GPUs that save less than this share of the time are not used.
    device_group_seconds : float
        Predicted seconds of a group of slices where threads of this process use several GPUs.
    device_link_bytes_per_second : float
        Rate between a GPU and the host, for tables that a part on a GPU leaves for other parts or for the way back.
    submit_seconds : float
        Seconds of a Dask task on its worker, and of its submission by the client.
    """

    sent_bytes: int = 1 << 28
    part_seconds: float = 0.05
    start_seconds: float = 0.5
    device_start_seconds: float = 5.0
    device_begin_seconds: float = 0.2
    device_join_seconds: float = 0.02
    device_step_seconds: float = 3e-5
    device_slice_seconds: float = 1e-4
    device_least_gain: float = 0.1
    device_group_seconds: float = 0.01
    device_link_bytes_per_second: float = 20e9
    submit_seconds: float = 5e-4
