"""Tuned parameters of learnt launches. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class LaunchPolicy(Policy):
    """Whether a learnt launch replaces the rules' launch, and from which predicted gain on.

    Parameters
    ----------
    uses_stored : bool
        Whether stored models are used at all; tests do without, so that no machine's past decides about them.
    least_gain_share : float
        Predicted share of a step's time that another launch must save: about the spread of repeated measurements.
    most_launches : int
        Launches among which a model chooses, the rules' launches included: a prediction is made for each.
    remembered_steps : int
        Kinds of steps whose choice is remembered.
    whole_loss_share : float
        If whole models run slower with learnt launches than with the rules by more than this share, launches are no
        longer chosen. The best of three runs differs by about this share from the best of three other runs.
    """

    uses_stored: bool = True
    least_gain_share: float = 0.1
    most_launches: int = 4
    remembered_steps: int = 4096
    whole_loss_share: float = 0.02
