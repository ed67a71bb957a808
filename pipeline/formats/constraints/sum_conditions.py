"""Sums and counts that are compared with an operand or a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..flatzinc.flatzinc_functions import FlatZincFunctions
from ..flatzinc.flatzinc_syntax import Operand
from ..xcsp3.xcsp3_machines import Condition
from .operand_machines import computed


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
