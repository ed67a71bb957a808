"""Decoding: from the kept tables of a sweep to an assignment, one slice per step (DESIGN §10).

The backward sweep of elimination (value assignment, Dechter 1999 §3): from the roots down, the variables
that a step eliminated take the states that attain its output at the states already chosen above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tasks.dense import run
from ..tasks.lowering import lower
from ..tasks.semiring import Semiring
from ..tasks.sweep import Step, on_host, restrict

Array = NDArray[Any]

# Up to so many joint states are compared at once; more are first minimised down to some of the variables.
_JOINT_STATES = 1 << 12


def decode(
    steps: Sequence[Step],
    tables: Mapping[int, Array],
    sizes: Sequence[int],
    semiring: Semiring,
    assignment: dict[int, int],
    compiled: bool = True,
) -> None:
    """Extend ``assignment`` (variable → state), in place, to every variable that ``steps`` eliminated.

    Parameters
    ----------
    steps : sequence of Step
        In execution order.
    tables : mapping
        The table of every input of every step.
    sizes : sequence of int
        Domain sizes; a variable that was fixed before the sweep has one state and must be in ``assignment``.
    semiring : Semiring
        Min-plus, of the tables' dtype.
    compiled : bool
        Whether large slices may use compiled kernels.
    """
    for step in reversed(steps):
        scopes = [[v for v in axes if v not in assignment] for axes in step.input_axes]
        if not any(scopes):
            continue
        slices = [
            _near(restrict(tables[node], axes, sizes, assignment))
            for node, axes in zip(step.inputs, step.input_axes, strict=True)
        ]
        while any(scopes):
            _fix_some(slices, scopes, sizes, semiring, assignment, compiled)


def _fix_some(
    slices: list[Array],
    scopes: list[list[int]],
    sizes: Sequence[int],
    semiring: Semiring,
    assignment: dict[int, int],
    compiled: bool,
) -> None:
    """Fix some of the scopes' variables at a best joint state, and restrict the slices to it, in place."""
    chosen = _chosen(scopes, sizes)
    if all(v in chosen for scope in scopes for v in scope):
        totals = _totals(slices, scopes, chosen, sizes, semiring)
    else:
        axes = [tuple(scope) for scope in scopes]
        lowered = lower(axes, tuple(chosen), dict(enumerate(sizes)), semiring.dtype, semiring)
        totals = on_host(run(lowered, slices, compiled=compiled))
    code = int(totals.argmin())
    for v in reversed(chosen):
        code, assignment[v] = divmod(code, sizes[v])
    for i, scope in enumerate(scopes):
        slices[i] = _near(restrict(slices[i], scope, sizes, assignment))
        scopes[i] = [v for v in scope if v not in assignment]


def _near(array: Array) -> Array:
    """Bring a slice to the host, unless it is on a device and large enough to be swept there."""
    return on_host(array) if array.size <= _JOINT_STATES else array


def _chosen(scopes: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[int]:
    """Choose variables of at most ``_JOINT_STATES`` joint states, at least one.

    All that are left if they are few, otherwise the last axes of the largest slice, along which it is swept
    fastest.
    """
    every = list(dict.fromkeys(v for scope in scopes for v in scope))
    if prod(sizes[v] for v in every) <= _JOINT_STATES:
        return every
    largest = max(scopes, key=lambda scope: prod(sizes[v] for v in scope))
    start = len(largest) - 1
    while start > 0 and prod(sizes[v] for v in largest[start - 1 :]) <= _JOINT_STATES:
        start -= 1
    return list(largest[start:])


def _totals(
    slices: Sequence[Array],
    scopes: Sequence[Sequence[int]],
    chosen: Sequence[int],
    sizes: Sequence[int],
    semiring: Semiring,
) -> Array:
    """Sum the slices over the joint states of ``chosen``, flat, saturating like the sweep."""
    position = {v: i for i, v in enumerate(chosen)}
    total: Array = np.zeros([sizes[v] for v in chosen], dtype=semiring.dtype)
    for values, scope in zip(slices, scopes, strict=True):
        order = sorted(range(len(scope)), key=lambda i: position[scope[i]])
        shape = [1] * len(chosen)
        for v in scope:
            shape[position[v]] = sizes[v]
        total += values.reshape([sizes[v] for v in scope]).transpose(order).reshape(shape)
        np.minimum(total, semiring.zero, out=total)
    return total.reshape(-1)
