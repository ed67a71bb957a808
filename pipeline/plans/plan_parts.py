"""What a plan is divided into for workers, and what follows its sweep where it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...tasks.steps.step import Step

Task = tuple[int, bool]
"""The part that a task belongs to, by its top node or -1 for the roots, and whether it is on the way up."""


@dataclass(frozen=True)
class Parts:
    """One sweep, or both, as tasks: a part goes up when those below it have, and back when those above it have.

    Parameters
    ----------
    makers : mapping of int to (int, bool)
        The task that makes each table.
    heads : tuple of int
        The top node of every part, or -1 for the roots; parts below before those above.
    seconds : float
        Predicted time with enough workers: that of the longest chain of tasks; 0 where nobody asked.
    """

    makers: Mapping[int, Task]
    heads: tuple[int, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Evaluations:
    """The sweeps modulo primes that follow a plan's own, for a count.

    Parameters
    ----------
    points, primes : int
        Where a polynomial is evaluated, and modulo how many primes at most.
    together : int
        Points that one sweep takes.
    steps : tuple of Step
        Of a sweep of several points.
    seconds : float
        Predicted for a sweep of several points.
    share : float
        How many times the plan's own sweep one of a single point takes: its numbers are residues.
    """

    points: int
    primes: int
    together: int = 1
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0
    share: float = 1.0

    @property
    def sweeps(self) -> int:
        """How many sweeps there are."""
        return self.primes * -(-self.points // self.together)
