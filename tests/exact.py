"""Answers in exact integers, by enumeration: an oracle that no range of numbers troubles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from bucketflow import Model

# Every finite float64 is a whole number of these.
_UNITS = 1074


def in_units(value: float) -> int:
    """Return a float64 >= 0 in units of 2**-1074."""
    numerator, denominator = float(value).as_integer_ratio()
    return numerator << (_UNITS - (denominator.bit_length() - 1))


class Weights:
    """What every assignment of a probabilistic model weighs, under findings: states or likelihoods by name.

    Attributes
    ----------
    weights : dict of tuple of int to int
        Assignments of positive weight, in units of 2**``exponent``.
    """

    def __init__(self, model: Model, findings: Mapping[str, Any]) -> None:
        self.model = model
        tables = [(f.scope, self._entries(model, f)) for f in model.functions]
        for name, finding in findings.items():
            v = model.index[name]
            likelihoods = [float(s == finding) for s in range(model.dims[v])] if isinstance(finding, int) else finding
            tables.append(((v,), {(s,): in_units(x) for s, x in enumerate(likelihoods)}))
        self.exponent = -_UNITS * len(tables)
        self.weights: dict[tuple[int, ...], int] = {}
        for states in itertools.product(*map(range, model.dims)):
            weight = math.prod(entries[tuple(states[v] for v in scope)] for scope, entries in tables)
            if weight:
                self.weights[states] = weight

    @staticmethod
    def _entries(model: Model, function: Any) -> dict[tuple[int, ...], int]:
        cells = itertools.product(*(range(model.dims[v]) for v in function.scope))
        return {cell: in_units(function.at(cell)) for cell in cells}

    @cached_property
    def log10_sum(self) -> float:
        """log10 of the sum of all weights; -inf for zero."""
        return self.log10(sum(self.weights.values()))

    @cached_property
    def log10_best(self) -> float:
        """log10 of the greatest weight; -inf for zero."""
        return self.log10(max(self.weights.values(), default=0))

    def log10(self, weight: int) -> float:
        """log10 of a weight."""
        return math.log10(weight) + self.exponent * math.log10(2) if weight else -math.inf

    def table(self, scope: Sequence[str], reduce: Callable[..., int]) -> list[float]:
        """Sum or maximum for each joint state of some variables, relative to that of all assignments."""
        index = [self.model.index[name] for name in scope]
        groups: dict[tuple[int, ...], list[int]] = {}
        for states, weight in self.weights.items():
            groups.setdefault(tuple(states[v] for v in index), []).append(weight)
        total = reduce(self.weights.values())
        cells = itertools.product(*(range(self.model.dims[v]) for v in index))
        return [reduce(groups[cell]) / total if cell in groups else 0.0 for cell in cells]


def costs(model: Model, evidence: Mapping[str, int]) -> dict[tuple[int, ...], int]:
    """Return what every assignment costs that is allowed and agrees with the evidence."""
    found = {}
    for states in itertools.product(*map(range, model.dims)):
        if all(states[model.index[name]] == state for name, state in evidence.items()):
            cost = model.cost(states)
            if cost is not None:
                found[states] = cost
    return found
