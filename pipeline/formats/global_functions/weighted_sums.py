"""Global cost functions of sums: wsum, woverlap, wdiverse, knapsacks and the greatest of some costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from .decomposition import Decomposition, GlobalFunctionError, gap_of, priced
from .machine import Machine, State

Given = dict[str, Any]


def add_sum(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge where the states of all variables do not add up as they should."""
    right, gap = given["to"], gap_of(given["comparator"])
    end = priced(given["metric"], given["cost"], lambda total: gap(total - right))
    parts.machine(scope, Machine.counting(0, lambda total, _, value: total + value, end))


def add_variable_sum(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge where the states of all variables but the last do not add up as the last one says."""
    last = len(scope) - 1
    end = priced(given["metric"], given["cost"], gap_of(given["comparator"]))

    def step(total: int, place: int, value: int) -> State:
        return total - value if place == last else total + value

    parts.machine(scope, Machine.counting(0, step, end))


def add_overlap(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge for how many variables of the first half have the state, not 0, of their partners in the second."""
    half, right, gap = len(scope) // 2, given["to"], gap_of(given["comparator"])
    if len(scope) % 2:
        raise GlobalFunctionError("an even number of variables", f"{len(scope)}")
    end = priced(given["metric"], given["cost"], lambda count: gap(count - right))

    def step(state: tuple[int, int], place: int, value: int) -> State:
        count, first = state
        return (count, value) if place % 2 == 0 else (count + (value == first != 0), 0)

    pairs = [v for k in range(half) for v in (scope[k], scope[k + half])]
    parts.machine(pairs, Machine.counting((0, 0), step, lambda state: end(state[0])))


def add_diverse(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid what differs from an assignment in fewer variables than the distance."""
    values, least = given["values"], given["distance"]
    weights = [{s: int(s != values[k]) for s in range(parts.dims[v])} for k, v in enumerate(scope)]
    _add_at_least(parts, scope, weights, least)


def add_knapsack(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid assignments with a total weight below the capacity.

    Weights belong to state 1 of variables, or to listed states.

    At-most-one constraints of the same list forbid that two of their variables have the states listed.
    """
    if "weights" in given and all(isinstance(weight, int) for weight in given["weights"]):
        if wide := [v for v in scope if parts.dims[v] > 2]:
            raise GlobalFunctionError("a knapsack over variables of two states", f"one of {parts.dims[wide[0]]}")
        weights = [{1: weight} for weight in given["weights"]]
    elif "weights" in given:
        weights = [dict(_distinct(own)) for own in given["weights"]]
    else:
        weights = [{} for _ in scope]
        for variable, value, weight in given["weightedvalues"]:
            k = _place(scope, variable)
            weights[k][value] = weights[k].get(value, 0) + weight
    if "amo" in given and (wide := [v for v in scope if parts.dims[v] > 2]):
        raise GlobalFunctionError("at-most-one constraints of variables of two states", f"one of {parts.dims[wide[0]]}")
    for group in given.get("amo", ()):
        parts.exclusive([scope[_place(scope, v)] for v, _ in group], [{value} for _, value in group])
    _add_at_least(parts, scope, weights, given["capacity"])


def _distinct(pairs: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    if len({value for value, _ in pairs}) < len(pairs):
        raise GlobalFunctionError("each value of a variable once", "a value twice")
    return pairs


def _place(scope: Sequence[int], variable: int) -> int:
    if variable not in scope:
        raise GlobalFunctionError("variables of the scope", f"variable {variable}")
    return scope.index(variable)


def _add_at_least(parts: Decomposition, scope: Sequence[int], weights: Sequence[Mapping[int, int]], least: int) -> None:
    """Forbid smaller totals. A machine's state is a total, or the least total that can no longer be missed."""
    every = [[own.get(s, 0) for s in range(parts.dims[v])] for own, v in zip(weights, scope, strict=True)]
    lows, highs = ([*accumulate(map(end, reversed(every)), initial=0)][::-1] for end in (min, max))

    def step(total: int, place: int, value: int) -> State | None:
        total += every[place][value]
        if total + highs[place + 1] < least:
            return None
        return min(total, least - lows[place + 1])

    start = 0 if scope else min(0, least)
    end = [parts.limit, 0]
    parts.machine(scope, Machine.counting(start, step, lambda total: end[total >= least]))


def add_maximum(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge the greatest cost among the variables' states, at least 0."""
    prices: list[dict[int, int]] = [{} for _ in scope]
    for variable, value, cost in given["tuples"]:
        prices[_place(scope, variable)][value] = cost
    default: int = given["defaultcost"]

    def step(greatest: int, place: int, value: int) -> State:
        return max(greatest, prices[place].get(value, default))

    parts.machine(scope, Machine.counting(0, step, lambda greatest: greatest))
