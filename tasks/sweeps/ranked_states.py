"""What one step of a min-plus sweep eliminated, best first: how much worse each joint state is, given those above.

A step's inputs, at the states chosen above it, add up to what each joint state of the eliminated variables is worth at
best; its output is the least of these. So each choice is priced exactly before it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.semiring import Semiring
from ..steps.step import Step

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class RankedStep:
    """A step whose eliminated variables are chosen, best first.

    Parameters
    ----------
    chosen : tuple of int
        The variables that it eliminated.
    shape : tuple of int
        States of each.
    tables : tuple of ndarray
        What it reads, an axis for each variable, those of one state among them.
    indices : tuple of tuple
        For each table and axis the variable whose state is taken, or a slice of all states.
    spreads : tuple of tuple
        For each table how what is left of it is indexed to have an axis for each of ``chosen``.
    orders : tuple of tuple of int
        For each table how its axes of ``chosen`` are put in that order.
    semiring : Semiring
        Min-plus.
    """

    chosen: tuple[int, ...]
    shape: tuple[int, ...]
    tables: tuple[Array, ...]
    indices: tuple[tuple[Any, ...], ...]
    orders: tuple[tuple[int, ...], ...]
    spreads: tuple[tuple[Any, ...], ...]
    semiring: Semiring

    @classmethod
    def of(cls, step: Step, tables: Sequence[Array], sizes: Sequence[int], semiring: Semiring) -> RankedStep:
        """Prepare a step; of the flat ``tables`` that it reads nothing is copied."""
        chosen = chosen_by(step, sizes)
        shaped, indices, orders, spreads = [], [], [], []
        for table, axes in zip(tables, step.input_axes, strict=True):
            shaped.append(table.reshape([sizes[v] for v in axes]))
            indices.append(tuple(slice(None) if v in chosen else v if sizes[v] > 1 else None for v in axes))
            left = [v for v in axes if v in chosen]
            orders.append(tuple(left.index(v) for v in chosen if v in left))
            spreads.append(tuple(slice(None) if v in left else None for v in chosen))
        shape = tuple(sizes[v] for v in chosen)
        return cls(chosen, shape, tuple(shaped), tuple(indices), tuple(orders), tuple(spreads), semiring)

    @classmethod
    def free(cls, variable: int, size: int, semiring: Semiring) -> RankedStep:
        """Return the choice of a variable of which any state will do."""
        nothing = np.zeros(size, semiring.dtype)
        return cls((variable,), (size,), (nothing,), ((slice(None),),), ((0,),), ((slice(None),),), semiring)

    def worth(self, states: Sequence[int] | Array) -> Array:
        """Return what each joint state of the chosen variables is worth, flat; those that are forbidden saturate."""
        total: Array | None = None
        for table, index, order, spread in zip(self.tables, self.indices, self.orders, self.spreads, strict=True):
            at = tuple([states[i] if type(i) is int else 0 if i is None else i for i in index])
            part = table[at].transpose(order)[spread]
            total = part if total is None else total + part
            if self.semiring.saturates:
                total = np.minimum(total, self.semiring.zero)
        assert total is not None
        return np.broadcast_to(total, self.shape).reshape(-1)

    @property
    def cells(self) -> int:
        """Joint states."""
        return prod(self.shape)

    def enter(self, number: int, states: Array) -> None:
        """Write the states of a joint state into an assignment."""
        for v, size in zip(reversed(self.chosen), reversed(self.shape), strict=True):
            number, states[v] = divmod(number, size)


def chosen_by(step: Step, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the variables of several states that a step eliminated."""
    kept = {*step.axes}
    return tuple(dict.fromkeys(v for scope in step.input_axes for v in scope if v not in kept and sizes[v] > 1))


def two_best(worth: Array) -> tuple[int, int]:
    """Return the best joint state and the second, the first of equals; -1 where there is one only."""
    first = int(worth.argmin())
    parts = ((worth[:first], 0), (worth[first + 1 :], first + 1))
    others = [int(part.argmin()) + start for part, start in parts if len(part)]
    return first, min(others, key=lambda place: worth[place], default=-1)


def ranked(worth: Array, rank: int) -> int:
    """Return the joint state of a rank, counted from 0: by worth, the first of equals in C order."""
    limit = np.partition(worth, rank)[rank]
    places = np.flatnonzero(worth <= limit)
    return int(places[np.argsort(worth[places], kind="stable")[rank]])


def optimal_counts(
    step: Step, tables: Mapping[int, Array], counts: Mapping[int, Array], sizes: Sequence[int], semiring: Semiring
) -> Array:
    """Return for each entry of a step's output how many assignments below attain it; 0 where it is forbidden.

    Parameters
    ----------
    tables : mapping of int to ndarray
        Min-plus tables of integers, the step's own among them.
    counts : mapping of int to ndarray
        What this returned for those inputs that are messages.

    Returns
    -------
    ndarray, float64, flat
    """
    scope = list(dict.fromkeys([*step.axes, *(v for axes in step.input_axes for v in axes)]))
    shape = [sizes[v] for v in scope]
    total: Array = np.zeros(shape, semiring.dtype)
    times: Array = np.ones(shape)
    for node, axes in zip(step.inputs, step.input_axes, strict=True):
        total = np.minimum(total + _spread(tables[node], axes, scope, sizes), semiring.zero)
        if node in counts:
            times *= _spread(counts[node], axes, scope, sizes)
    best = _spread(tables[step.node], step.axes, scope, sizes)
    times[(total != best) | (total >= semiring.zero)] = 0.0
    return np.asarray(times.sum(axis=tuple(range(len(step.axes), len(scope)))).reshape(-1))


def _spread(table: Array, axes: Sequence[int], scope: Sequence[int], sizes: Sequence[int]) -> Array:
    """Return a flat table with an axis for each variable of a scope; one cell along those it lacks."""
    places = [axes.index(v) for v in scope if v in axes]
    shaped = table.reshape([sizes[v] for v in axes]).transpose(places)
    return shaped.reshape([sizes[v] if v in axes else 1 for v in scope])
