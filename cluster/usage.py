"""How many workers a cluster has, and the memory of the largest."""

from __future__ import annotations

from typing import Any

_ANSWER_SECONDS = 2.0


def cluster_usage(client: Any) -> tuple[int, int]:
    """Return the number of workers and the largest resident size among them, in bytes; zeros if nobody answers."""
    try:
        known = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWER_SECONDS)
    except Exception:  # a scheduler that is gone ends the run elsewhere, with a sentence
        return 0, 0
    workers = known["workers"].values()
    return len(workers), max((int(worker["metrics"]["memory"]) for worker in workers), default=0)
