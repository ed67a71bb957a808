"""Bounds on an optimum while they close, in the model's own values, for whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...bounds.network import States
from ...results.bounds import Bounds, Number

OnBounds = Callable[[Number | None, Number | None], None]
"""Called with both bounds on an optimum, None where one is not known yet."""

Watch = Callable[[Number | None, Number | None, str], None]
"""Called with both bounds on an optimum, and what is tried to close them."""


class Between(Protocol):
    """Says what a least total and an assignment mean for the optimum."""

    def __call__(self, lower: int, states: States | None, *, closed: bool) -> Bounds:
        """Return both bounds; one is None without an assignment."""
        ...


@dataclass
class Watcher:
    """Tells a watcher both bounds whenever one improved, and when something else is tried.

    Parameters
    ----------
    watch : Watch
    between : Between
    """

    watch: Watch
    between: Between
    way: str = "preparation"
    _told: tuple[int, int | None] | None = None
    _ends: tuple[Number | None, Number | None] = (None, None)
    _value: tuple[int | None, Number | None] = (None, None)

    def improved(self, lower: int, total: int | None, states: States | None) -> None:
        """Tell bounds that are new; an assignment is evaluated once."""
        if (lower, total) == self._told:
            return
        if total != self._value[0]:
            best = self.between(lower, states, closed=False)
            self._value = total, best.value if best.log10 is None else best.log10
        found, value = self.between(lower, None, closed=False), self._value[1]
        self._ends = (value, found.upper) if found.lower is None else (found.lower, value)
        self._told = lower, total
        self._tell()

    def begins(self, way: str) -> None:
        """Tell what is tried now."""
        self.way = way
        self._tell()

    def _tell(self) -> None:
        self.watch(*self._ends, self.way)
