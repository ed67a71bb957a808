"""Tuned numbers of compiling. Pure."""

from __future__ import annotations

from ..steps.light_dataclass import dataclass
from ..steps.policy import Policy


@dataclass(frozen=True)
class CompilerPolicy(Policy):
    """The numbers behind what is compiled when.

    Parameters
    ----------
    weight : float
        Weight of compilation time against the time that it saves. Tests that must not depend on compiled code put 0:
        then all loops are compiled immediately.
    """

    weight: float = 1.0
