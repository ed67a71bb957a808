"""Machines that read operands, which are variables or integers, and products of two operands.

Sums and counts of operands are compared with an operand or a set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import LARGEST_DECIMAL
from ...errors import FormatError
from ...models.model import FORBIDDEN
from ..flatzinc.flatzinc_functions import FlatZincFunctions
from ..flatzinc.flatzinc_syntax import Operand
from ..global_functions.machine import State
from ..xcsp3.xcsp3_machines import Condition

Step = Callable[[State, int, int], State | None]


def values_of(functions: FlatZincFunctions, operand: Operand) -> Sequence[int]:
    """Return the values that an operand may have."""
    return functions.values[operand[0]] if isinstance(operand, tuple) else (operand,)


def read_operands(
    functions: FlatZincFunctions, operands: Sequence[Operand], start: State, step: Step, end: Callable[[State], bool]
) -> None:
    """Allow the values of operands that a machine accepts; it reads integers together with the variable before them.

    Parameters
    ----------
    functions : FlatZincFunctions
    operands : sequence of operand
    start : hashable
    step : callable
        Called with a state, the place of an operand and its value; returns the next state, or None to forbid.
    end : callable
        Called with the last state; returns whether it accepts.

    Raises
    ------
    BudgetError
        If the machine has too many states.
    """
    places = [k for k, each in enumerate(operands) if isinstance(each, tuple)]
    ends = [*places[1:], len(operands)]

    def advanced(state: State | None, low: int, high: int) -> State | None:
        for place in range(low, high):
            if state is None:
                return None
            state = step(state, place, operands[place])  # type: ignore[arg-type]
        return state

    first = advanced(start, 0, places[0] if places else len(operands))
    if first is None:
        functions.parts.forbid()
        return

    def read(state: State, k: int, value: int) -> State | None:
        return advanced(step(state, places[k], value), places[k] + 1, ends[k])

    scope = [operands[place][0] for place in places]  # type: ignore[index]
    functions.machine(scope, first, read, lambda state: 0 if end(state) else FORBIDDEN)


def product_of(functions: FlatZincFunctions, x: Operand, y: Operand) -> Operand:
    """Return a product of two operands: a hidden variable that they decide, unless both are integers.

    Raises
    ------
    FormatError
        If a product may have more than 18 digits.
    """
    if not isinstance(x, tuple) and not isinstance(y, tuple):
        return x * y
    if x == 0 or y == 0:
        return 0
    if x == 1 or y == 1:
        return y if x == 1 else x
    if prod(max(map(abs, values_of(functions, each))) for each in (x, y)) >= LARGEST_DECIMAL:
        parts = functions.parts
        raise FormatError(parts.allowance.path, None, f"products below 10^18 in {parts.what}", "larger ones")
    return computed(functions, [x, y], np.multiply)


def computed(functions: FlatZincFunctions, operands: Sequence[Operand], compute: Callable[..., Any]) -> Operand:
    """Return a function of operands: a hidden variable that they decide, or an integer if it has one value.

    Raises
    ------
    BudgetError
        If the operands have too many joint values.
    """
    found = np.unique(functions.evaluated(operands, compute))
    if len(found) == 1:
        return int(found[0])
    output = functions.hidden(found.tolist())
    functions.result(operands, output, lambda *values: (compute(*values), np.array(True)))
    return output


def add_weighted_sum(
    functions: FlatZincFunctions, terms: Sequence[tuple[int, Sequence[int]]], constant: int, condition: Condition
) -> None:
    """Compare a constant plus what the states of variables add with an operand or a set.

    Parameters
    ----------
    functions : FlatZincFunctions
    terms : sequence of (int, sequence of int)
        Variables, each with the summand of each of its states.
    constant : int
    condition : Condition
    """
    scope, weights = [v for v, _ in terms], [own for _, own in terms]
    operand = condition.operand
    if isinstance(operand, tuple):
        functions.offset(scope, weights, condition.operator, operand, constant)
    elif isinstance(operand, frozenset):
        shifted = frozenset(value - constant for value in operand)
        functions.total(scope, weights, Condition(condition.operator, shifted))
    else:
        functions.total(scope, weights, Condition(condition.operator, operand - constant))


def add_linear(
    functions: FlatZincFunctions, weights: Sequence[int], operands: Sequence[Operand], condition: Condition
) -> None:
    """Compare a weighted sum of operands with an operand or a set."""
    constant = sum(w * each for w, each in zip(weights, operands, strict=True) if not isinstance(each, tuple))
    terms = [
        (each[0], [weight * value for value in functions.values[each[0]]])
        for weight, each in zip(weights, operands, strict=True)
        if isinstance(each, tuple)
    ]
    add_weighted_sum(functions, terms, constant, condition)


def add_count(
    functions: FlatZincFunctions, operands: Sequence[Operand], wanted: Sequence[Operand], condition: Condition
) -> None:
    """Compare how many operands have some of the wanted values with an operand or a set.

    If a wanted value is a variable, a hidden variable for each operand is whether the operand has a wanted value.
    """
    constants = [each for each in wanted if isinstance(each, int)]
    others = [each for each in wanted if isinstance(each, tuple)]

    def hit(value: NDArray[Any], *own: NDArray[Any]) -> Any:
        found = np.isin(value, constants)
        for each in own:
            found = found | (value == each)
        return found.astype(np.int64)

    if others:
        hits = [computed(functions, [each, *others], hit) for each in operands]
        add_linear(functions, [1] * len(hits), hits, condition)
        return
    terms = [
        (each[0], hit(np.array(functions.values[each[0]])).tolist()) for each in operands if isinstance(each, tuple)
    ]
    add_weighted_sum(functions, terms, sum(each in constants for each in operands), condition)
