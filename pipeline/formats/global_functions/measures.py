"""Costs of violations: hard, linear or quadratic in the gap, and the gap between a number and its bound."""

from __future__ import annotations

from collections.abc import Callable

from .decomposition import GlobalFunctionError

COMPARATORS = ("==", "!=", "<", "<=", ">", ">=")


def priced(metric: str, cost: int, gap: Callable[[int], int]) -> Callable[[int], int]:
    """Return a function from a number to the cost of its gap."""
    if metric == "hard":
        return lambda number: cost if gap(number) else 0
    if metric == "quad":
        return lambda number: cost * gap(number) ** 2
    return lambda number: cost * gap(number)


def gap_beyond(low: int, high: int) -> Callable[[int], int]:
    """Return how far a number is outside two bounds."""
    return lambda number: max(0, low - number, number - high)


def gap_of(comparator: str) -> Callable[[int], int]:
    """Return a function from a difference (left side minus right side) to its gap under a comparator.

    Raises
    ------
    GlobalFunctionError
        If it is none.
    """
    gaps: dict[str, Callable[[int], int]] = {
        "==": abs,
        "!=": lambda difference: int(difference == 0),
        "<": lambda difference: max(0, difference + 1),
        "<=": lambda difference: max(0, difference),
        ">": lambda difference: max(0, 1 - difference),
        ">=": lambda difference: max(0, -difference),
    }
    if comparator not in gaps:
        raise GlobalFunctionError(f"a comparator {', '.join(COMPARATORS)}", repr(comparator))
    return gaps[comparator]
