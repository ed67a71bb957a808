"""Global cost functions of how often values occur: alldifferent, global cardinality, same and among."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..format_policy import FormatPolicy
from .decomposition import Decomposition, GlobalFunctionError, gap_beyond, priced
from .machine import Machine, Moves, State, TooManyStatesError

Given = dict[str, Any]


@dataclass(frozen=True)
class ValueCount:
    """The charge of a function for the occurrences of one value.

    Parameters
    ----------
    value : int
    step : callable
        Called with the number (or numbers) so far and the place of a variable that has the value; returns the next, and
        what it costs at once.
    price : callable
        Called with the number at the end; returns a cost.
    start : state
        The number before any.
    """

    value: int
    step: Callable[[Any, int], tuple[Any, int]]
    price: Callable[[Any], int]
    start: Any = 0

    def machine(self) -> Machine:
        """Return the machine that counts this value alone."""

        def moves(state: State, place: int, value: int) -> Moves:
            return (self.step(state, place) if value == self.value else (state, 0),)

        return Machine({self.start: 0}, moves, self.price)


def number_of(value: int, most: int, price: Callable[[int], int]) -> ValueCount:
    """Charge for how many variables have a value, of ``most``.

    It is counted up to where each further one costs as much as the next; these are charged at once.
    """
    prices = [price(number) for number in range(most + 1)]
    step = _step_of(prices)
    return ValueCount(value, lambda number, _: step(number), prices.__getitem__)


def _step_of(prices: Sequence[int]) -> Callable[[int], tuple[int, int]]:
    """Return how to count on: a number, up to where prices rise evenly, and what one more costs at once."""
    rises = [after - before for before, after in pairwise(prices)]
    last = max(rises[-1:], default=0)
    enough = len(rises)
    while last >= 0 and enough and rises[enough - 1] == last:
        enough -= 1
    return lambda number: (number, last) if number == enough else (number + 1, 0)


def add_counts(parts: Decomposition, scope: Sequence[int], counts: Sequence[ValueCount]) -> None:
    """Charge for the occurrences of several values: by one machine if it is small, or by one machine per value."""
    if not counts:
        return
    places = {count.value: k for k, count in enumerate(counts)}

    def moves(state: State, place: int, value: int) -> Moves:
        if (k := places.get(value)) is None:
            return ((state, 0),)
        number, cost = counts[k].step(state[k], place)
        return (((*state[:k], number, *state[k + 1 :]), cost),)

    def end(state: State) -> int:
        return sum(count.price(own) for count, own in zip(counts, state, strict=True))

    joint = Machine({tuple(count.start for count in counts): 0}, moves, end)
    try:
        parts.layers(scope, parts.minimal(scope, joint, FormatPolicy.current().joint_machine_states))
    except TooManyStatesError:
        for count in counts:
            parts.machine(scope, count.machine())


def _every_value(parts: Decomposition, scope: Sequence[int]) -> range:
    return range(max((parts.dims[v] for v in scope), default=0))


def add_alldifferent(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge for variables of one state: each beyond the first, each pair (dec, decbi), or by value (quad, hard).

    Hard functions and pairwise violations become functions of two variables each.
    """
    metric, cost = given["metric"], given["cost"]
    if cost >= parts.limit or metric in ("dec", "decbi"):
        parts.unequal(scope, cost)
        return
    price = priced(metric, cost, gap_beyond(0, 1))
    add_counts(parts, scope, [number_of(v, len(scope), price) for v in _every_value(parts, scope)])


def add_excepted_alldifferent(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid equal states of variables, except for excepted states, and charge for unused states.

    toulbar2's moved costs (deltacosts) are charged if no variable has the state. An excepted state has one copy for
    each variable, and each unused copy is charged.
    """
    excepted, prices = {*given["exceptedvalues"]}, dict[int, int]()
    for value, cost in given["deltacosts"]:
        prices[value] = prices.get(value, 0) + cost
    states = [v for v in _every_value(parts, scope) if v not in excepted]
    if len(states) == len(_every_value(parts, scope)):
        parts.unequal(scope, parts.limit)
    else:
        for state in states:
            parts.exclusive(scope, [{state}] * len(scope))

    def price(value: int) -> Callable[[int], int]:
        copies = len(scope) if value in excepted else 1
        return lambda number: prices[value] * max(0, copies - number)

    add_counts(parts, scope, [number_of(value, len(scope), price(value)) for value in prices])


def add_limited_cardinality(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid values that occur too rarely or too often.

    Costs that toulbar2 moved into the function (deltacosts) are refused, because toulbar2 charges them per use or per
    free place, depending on the bounds.
    """
    if given["deltacosts"]:
        raise GlobalFunctionError("no deltacosts", f"{len(given['deltacosts'])} of them")
    add_cardinality(parts, scope, {**given, "metric": "hard", "cost": parts.limit, "by_value": True})


def _bounds(given: Given) -> dict[int, tuple[int, ...]]:
    bounds: dict[int, tuple[int, ...]] = {}
    for value, low, high, *weights in given["bounds"]:
        if low > high:
            raise GlobalFunctionError("a lower bound up to the upper one", f"{low} to {high} of value {value}")
        if value in bounds:
            raise GlobalFunctionError("bounds of each value once", f"value {value} twice")
        bounds[value] = low, high, *weights
    return bounds


def add_cardinality(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge for values that occur too rarely or too often; values without bounds are free."""
    metric, cost, bounds = given["metric"], given["cost"], _bounds(given)
    if metric == "var" and not given.get("by_value"):
        _add_least_changes(parts, scope, cost, bounds)
    elif metric == "wdec":
        add_counts(parts, scope, [number_of(v, len(scope), _weighted(*own)) for v, own in bounds.items()])
    else:
        prices = {v: priced(metric, cost, gap_beyond(low, high)) for v, (low, high) in bounds.items()}
        add_counts(parts, scope, [number_of(v, len(scope), price) for v, price in prices.items()])


def _weighted(low: int, high: int, shortage: int, excess: int) -> Callable[[int], int]:
    return lambda count: max(0, low - count) * shortage + max(0, count - high) * excess


def _add_least_changes(
    parts: Decomposition, scope: Sequence[int], cost: int, bounds: dict[int, tuple[int, ...]]
) -> None:
    """Charge for the least number of variables to change: the greater of the total shortage and the total excess.

    Source: van Hoeve, Pesant and Rousseau, On global warming: flow-based soft global constraints, 2006, section 4.
    """
    free = any(value not in bounds for value in _every_value(parts, scope))
    bounded = {v: own for v, own in bounds.items() if v in _every_value(parts, scope)}
    if sum(low for low, _ in bounds.values()) > len(scope) or (
        not free and sum(high for _, high in bounded.values()) < len(scope)
    ):
        parts.forbid()
        return
    absent = sum(low for v, (low, _) in bounds.items() if v not in bounded)

    def charge(counts: Sequence[int]) -> int:
        pairs = [*zip(counts, bounded.values(), strict=True)]
        missing = absent + sum(max(0, low - n) for n, (low, _) in pairs)
        return max(missing, sum(max(0, n - high) for n, (_, high) in pairs)) * cost

    places = {value: k for k, value in enumerate(bounded)}

    def step(state: tuple[int, ...], place: int, value: int) -> State:
        k = places.get(value)
        return state if k is None else (*state[:k], state[k] + 1, *state[k + 1 :])

    joint = Machine.counting((0,) * len(bounded), step, charge)
    try:
        parts.layers(scope, parts.minimal(scope, joint, FormatPolicy.current().joint_machine_states))
    except TooManyStatesError:
        _add_counted_changes(parts, scope, cost, bounded, absent)


def _add_counted_changes(
    parts: Decomposition, scope: Sequence[int], cost: int, bounds: dict[int, tuple[int, ...]], absent: int
) -> None:
    """The same with a hidden variable for the number of each value, which a second machine sums."""
    numbers = [count_variable(parts, scope, value) for value in bounds]
    own = [*bounds.values()]

    def step(state: tuple[int, int], place: int, n: int) -> State:
        low, high = own[place]
        return state[0] + max(0, low - n), state[1] + max(0, n - high)

    parts.machine(numbers, Machine.counting((absent, 0), step, lambda state: max(state) * cost))


def count_variable(parts: Decomposition, scope: Sequence[int], value: int) -> int:
    """Return a hidden variable whose state says how many variables have a value."""
    number = parts.variable(len(scope) + 1)

    def step(count: int, place: int, state: int) -> State | None:
        if place == len(scope):
            return count if count == state else None
        return count + (state == value)

    parts.machine((*scope, number), Machine.counting(0, step, lambda _: 0))
    return number


def add_same(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge where one half of the scope is no permutation of the other, by value."""
    metric, cost = given["metric"], given["cost"]
    half = _half(scope)
    bounds = _bounds(given) if "bounds" in given else {}
    if not bounds:
        add_counts(parts, scope, [
            ValueCount(v, lambda n, place: (n + (1 if place < half else -1), 0), priced(metric, cost, abs))
            for v in _every_value(parts, scope)
        ])  # fmt: skip
        return
    same = priced(metric, cost, abs)

    def both(low: int, high: int) -> Callable[[tuple[int, int]], int]:
        each = priced(metric, cost, gap_beyond(low, high))
        return lambda n: same(n[0] - n[1]) + each(n[0]) + each(n[1])

    add_counts(parts, scope, [
        ValueCount(v, lambda n, place: ((n[0] + (place < half), n[1] + (place >= half)), 0),
                   both(*bounds.get(v, (0, len(scope)))), (0, 0))
        for v in _every_value(parts, scope)
    ])  # fmt: skip


def _half(scope: Sequence[int]) -> int:
    if len(scope) % 2:
        raise GlobalFunctionError("an even number of variables", f"{len(scope)}")
    return len(scope) // 2


def add_soft_same(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge for each variable of one list whose state does not occur in the other list."""
    first, second = given["vars1"], given["vars2"]
    if len(first) != len(second):
        raise GlobalFunctionError("two lists of as many variables", f"{len(first)} and {len(second)}")
    if {*first, *second} != {*scope}:
        raise GlobalFunctionError("two lists of the variables of the scope", "lists of other variables")
    both, cost = (*first, *second), given["cost"]
    add_counts(parts, both, [
        ValueCount(v, lambda n, place: (n + (1 if place < len(first) else -1), 0), lambda n: max(0, n) * cost)
        for v in _every_value(parts, both)
    ])  # fmt: skip


def add_among(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge where fewer or more variables than the bounds have one of some values."""
    values, low, high = {*given["values"]}, given["min"], given["max"]
    price = priced(given["metric"], given["cost"], gap_beyond(low, high))
    step = _step_of([price(number) for number in range(len(scope) + 1)])

    def moves(number: State, place: int, value: int) -> Moves:
        return (step(number) if value in values else (number, 0),)

    parts.machine(scope, Machine({0: 0}, moves, price))


def add_variable_among(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge where another number of variables than the last one's state has one of some values."""
    values, cost = {*given["values"]}, given["cost"]

    def step(n: int, place: int, value: int) -> State:
        return n - value if place == len(scope) - 1 else n + (value in values)

    parts.machine(scope, Machine.counting(0, step, lambda gap: cost if gap else 0))


def add_clique(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid that two variables have one of their values, by pairs of variables."""
    if given["rhs"] != 1:
        raise GlobalFunctionError("a clique of right-hand side 1", str(given["rhs"]))
    parts.exclusive(scope, [{*values} for values in given["values"]])
