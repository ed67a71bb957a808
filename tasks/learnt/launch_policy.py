"""Tuned parameters of learnt launches. Pure."""

from __future__ import annotations

from ..steps.light_dataclass import dataclass
from ..steps.policy import Policy


@dataclass(frozen=True)
class LaunchPolicy(Policy):
    """Whether a learnt launch replaces the rules' launch, and from which predicted gain on.

    Parameters
    ----------
    uses_stored : bool
        Whether stored models are used at all; tests do without, so that no machine's past decides about them.
    """

    uses_stored: bool = True
