"""Tuned numbers of dynamic networks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class DynamicPolicy(Policy):
    """Numbers of dynamic networks.

    Parameters
    ----------
    kept_message_bytes : int
        Maximum bytes of kept messages from later steps, unless ``memory`` is given. Beyond this, messages are kept at
        checkpoints, and recomputing the others takes a third more time.
    message_bytes : int
        Bytes of a message in addition to its table: an array, its scale and bounds, measured with 10^5 messages.
    rows : int
        Steps of a block that is answered, and written, at once.
    step_cells : int
        Cost of a plan's step without compiled code in addition to its loops, in cells: about 15 microseconds.
    """

    kept_message_bytes: int = 1 << 26
    message_bytes: int = 400
    rows: int = 1024
    step_cells: int = 3000
