"""What is tuned of compiling, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.policy import Policy


@dataclass(frozen=True)
class CompilerPolicy(Policy):
    """The numbers behind what is compiled when.

    Parameters
    ----------
    weight : float
        What compiling is weighed by against what it saves. Tests that have to do the same whatever is compiled put 0:
        all that may be compiled is compiled then.
    """

    weight: float = 1.0
