"""A cost network nested in another one, with a total that must stay between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...models.function import FORBIDDEN, Function, greatest_costs, least_costs
from .decomposition import Decomposition, GlobalFunctionError
from .machine import Machine, State


@dataclass(frozen=True)
class NestedNetwork:
    """A network over the variables of a scope, in that order.

    Parameters
    ----------
    dims : tuple of int
    functions : tuple of Function
        In stored costs.
    top : int or None
        Totals of at least this are forbidden.
    low, high : int
        A total is at least ``low`` and less than ``high``.
    """

    dims: tuple[int, ...]
    functions: tuple[Function, ...]
    top: int | None
    low: int
    high: int


def add_nested(parts: Decomposition, scope: tuple[int, ...], nested: NestedNetwork, only_optimum: int) -> None:
    """Forbid what the nested network forbids, or where its total is not within the bounds.

    A state is the total of the functions that were read whole, and the states of variables that others still need.

    Raises
    ------
    GlobalFunctionError
        If the network is not over the scope, or only its optimum is meant.
    """
    dims = tuple(parts.dims[v] for v in scope)
    if nested.dims != dims:
        raise GlobalFunctionError(f"a nested network over domains {dims}", f"domains {nested.dims}")
    if only_optimum:
        raise GlobalFunctionError("a nested network without strong duality", "strongduality 1, which is not read")
    parts.machine(scope, _machine(nested))


def _machine(nested: NestedNetwork) -> Machine:
    """Build the machine that reads the variables of a nested network in order and adds up its costs.

    Parameters
    ----------
    nested : NestedNetwork
        A cost network whose total must lie within bounds.
    """
    functions, size = nested.functions, len(nested.dims)
    ends = [max(f.scope, default=0) for f in functions]
    reads = [[k for k, end in enumerate(ends) if end == place] for place in range(size)]
    needed = [
        sorted({v for k, end in enumerate(ends) if end > place for v in functions[k].scope if v <= place})
        for place in range(size)
    ]
    limits = [FORBIDDEN] * len(functions)
    low_rest, high_rest = (
        _rests([[costs[k] for k in own] for own in reads])
        for costs in (least_costs(functions), greatest_costs(functions, limits, least_costs(functions)))
    )
    high = nested.high if nested.top is None else min(nested.high, nested.top)

    def step(state: tuple[int, tuple[int, ...]], place: int, value: int) -> State | None:
        total, kept = state
        states = dict(zip(needed[place - 1] if place else (), kept, strict=True))
        states[place] = value
        for k in reads[place]:
            cost = int(functions[k].at([states[v] for v in functions[k].scope]))
            if cost >= FORBIDDEN:
                return None
            total += cost
        # a state from which the bounds cannot be met is dropped
        if total + low_rest[place] >= high or total + high_rest[place] < nested.low:
            return None
        return total, tuple([states[v] for v in needed[place]])

    return Machine.counting((0, ()), step, lambda _: 0, work=1 + len(functions))


def _rests(costs: Sequence[Sequence[int]]) -> list[int]:
    """Return for each place what all functions behind it cost together."""
    return [*accumulate(map(sum, reversed(costs)), initial=0)][::-1][1:]
