"""The division of a plan into parts for workers, and the later sweeps of a count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...tasks.steps.light_dataclass import dataclass

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
        Predicted seconds with enough workers: the longest chain of tasks; 0 if this was not requested.
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
        Steps of a sweep of several points.
    seconds : float
        Predicted seconds of a sweep of several points.
    share : float
        How many times the plan's own sweep one of a single point takes: its numbers are residues.
    expected : int, optional
        Primes that are expected: the first sweep says how many there are, at most ``primes``.
    """

    points: int
    primes: int
    together: int = 1
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0
    share: float = 1.0
    expected: int | None = None

    @property
    def likely(self) -> Evaluations:
        """The expected numbers, which plans are priced by."""
        return self if self.expected is None else replace(self, primes=self.expected, expected=None)

    @property
    def sweeps(self) -> int:
        """How many sweeps there are at most."""
        return self.primes * -(-self.points // self.together)
