"""What is tuned of dynamic networks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class DynamicPolicy(Policy):
    """Numbers of dynamic networks.

    Parameters
    ----------
    kept_message_bytes : int
        Messages from later steps are all kept up to so many bytes, unless ``memory`` says otherwise; beyond, at
        checkpoints. Making them again takes a third more time.
    rows : int
        Steps of a block that is answered, and written, at once.
    step_cells : int
        What a step of a plan costs besides its loops without compiled code, in cells: some 15 microseconds.
    """

    kept_message_bytes: int = 1 << 26
    rows: int = 1024
    step_cells: int = 3000
