"""Killing a worker in the middle of a run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def killing_one(client: Any, share: float) -> tuple[Callable[[int, int], None], list[int]]:
    """Return a progress callback that kills a worker once past a share of the run, and the list of whom it killed."""
    victim = next(iter(client.run(os.getpid).values()))
    killed: list[int] = []

    def kill_one(done: int, planned: int) -> None:
        if not killed and done > planned * share:
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    return kill_one, killed
