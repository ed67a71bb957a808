"""How bounds closed on an optimum, as part of an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..text import shown_number
from .figures import plain_number

#: Ways are named that took more than this part of all.
_NOTABLE = 0.01


@dataclass(frozen=True)
class Proof:
    """How bounds closed on an optimum.

    Parameters
    ----------
    method : str
        What completed the proof; "none" where it is not complete.
    lower, upper : int, float, Decimal or None
        What the optimum lies between: costs, or log10 of a probability.
    gap : float or None
        Their difference as a part of the larger one.
    tried : mapping of str to float
        CPU seconds by method.
    removed : mapping of str to mapping
        What preparation removed, by rule.
    least_total, unit
        The proved bound in integers, and what one is worth.
    sweep_cells : float or None
        About how many cells sweeping the whole would take, where that was weighed.
    gap_given : float or None
        The gap that was enough.
    history : sequence of (float, number or None, number or None)
        Both bounds by seconds, as they closed; not every step of many.
    """

    method: str
    lower: Any
    upper: Any
    gap: float | None
    tried: Mapping[str, float]
    removed: Mapping[str, Mapping[str, int]]
    least_total: int
    unit: int | float
    sweep_cells: float | None = None
    gap_given: float | None = None
    history: Sequence[tuple[float, Any, Any]] = field(default=(), repr=False)

    @property
    def reason(self) -> str:
        """Which way proved it, after which others that took notable time, and why it was not just swept: one line."""
        least = _NOTABLE * sum(self.tried.values())
        others = [method for method, seconds in self.tried.items() if seconds > least and method != self.method]
        tried = " and ".join(filter(None, (", ".join(others[:-1]), *others[-1:])))
        if self.method == "none":
            way = f"not proved by {tried}" if tried else "not proved"
        else:
            way = f"proved by {self.method}" + (f" after {tried}" if tried else "")
        if self.sweep_cells is None:
            return way
        return f"{way}; sweeping every cell would take some 2^{math.log2(max(self.sweep_cells, 1)):.0f} cells"

    @property
    def close(self) -> bool:
        """Whether the bounds are as close as was asked: equal, if nothing was."""
        return self.lower == self.upper or (
            self.gap is not None and self.gap_given is not None and self.gap <= self.gap_given
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {
            **vars(self),
            "lower": plain_number(self.lower),
            "upper": plain_number(self.upper),
            "history": [(t, plain_number(lower), plain_number(upper)) for t, lower, upper in self.history],
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return how bounds closed, as labelled lines."""
        tried = ", ".join(f"{method} {seconds:.2f} s" for method, seconds in self.tried.items())
        rows = [("method", self.reason), ("tried", tried)]
        if self.lower != self.upper:
            gap = "" if self.gap is None else f", gap {self.gap:.3g}"
            rows.append(("bounds", f"{shown_number(self.lower)} … {shown_number(self.upper)}{gap}"))
        removed = removed_texts(self.removed)
        return rows + ([("removed", "; ".join(removed))] if removed else [])


def removed_texts(removed: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a text for each rule of preparation that removed something."""
    counted = {rule: [f"{count:,} {what}" for what, count in by.items() if count] for rule, by in removed.items()}
    return [f"{rule} {', '.join(counts)}" for rule, counts in counted.items() if counts]
