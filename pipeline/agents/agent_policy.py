"""Tuned numbers of distributed elimination. Pure."""

from __future__ import annotations

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class AgentPolicy(Policy):
    """Numbers of agents that no protocol fixes.

    Parameters
    ----------
    batch_requests : int
        Most requests of a batch.
    batch_bytes : int
        Most bytes of the answers to a batch.
    matched_total : int
        Shares of totals up to here are exact in the floating-point numbers that they are computed in; larger
        totals are not matched.
    easy_states : int
        If a walk finds a tree with at most this many joint states, no elimination order is searched for, because
        computing the states takes no longer than the search.
    """

    batch_requests: int = 256
    batch_bytes: int = 1 << 22
    matched_total: int = 1 << 50
    easy_states: int = 1 << 22
