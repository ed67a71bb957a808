"""What is tuned of learnt launches. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class LaunchPolicy(Policy):
    """Whether, and from which gain on, a learnt launch replaces that of the rules.

    Parameters
    ----------
    uses_stored : bool
        Whether stored models are used at all; tests do without, so that no machine's past decides about them.
    least_gain_share : float
        Predicted share of a step's time that another launch must save: about the spread of repeated measurements.
    most_launches : int
        Launches that a model chooses among, those of the rules included: a prediction is made for each.
    remembered_steps : int
        Kinds of steps whose choice is remembered.
    whole_loss_share : float
        Share by which whole models may be slower as was learnt than by the rules before launches are no longer chosen:
        the least of three runs differs by so much from that of three others.
    """

    uses_stored: bool = True
    least_gain_share: float = 0.1
    most_launches: int = 4
    remembered_steps: int = 4096
    whole_loss_share: float = 0.02
