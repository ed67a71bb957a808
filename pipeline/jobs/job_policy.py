"""Tuned numbers of jobs: how often they are polled. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class JobPolicy(Policy):
    """Seconds and beats of a run that a cluster drives.

    Parameters
    ----------
    takeover_seconds : float
        A worker that lost its scheduler may hold a run for this long after another worker was given its task.
    asked_beats : int
        The cluster is asked at every such beat.
    logged_beats : int
        The log gets a line at every such beat.
    first_pause_seconds : float
        First pause between two looks at a run directory.
    longest_pause_seconds : float
        Longest pause between two looks.
    """

    takeover_seconds: float = 60.0
    asked_beats: int = 5
    logged_beats: int = 10
    first_pause_seconds: float = 0.02
    longest_pause_seconds: float = 1.0
