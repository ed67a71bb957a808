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

from ..tasks.sweep import Step, gather

# The joint states of one step's variables are searched in pieces of this many.
_PIECE = 1 << 16


def decode(
    steps: Sequence[Step], tables: Mapping[int, NDArray[Any]], sizes: Sequence[int], assignment: dict[int, int]
) -> None:
    """Extend ``assignment`` (variable → state), in place, to every variable that ``steps`` eliminated.

    Parameters
    ----------
    steps : sequence of Step
        In execution order.
    tables : mapping
        The table of every input of every step, min-plus.
    sizes : sequence of int
        Domain sizes; a variable that was fixed before the sweep has one state and must be in ``assignment``.
    """
    for step in reversed(steps):
        new = [v for v in dict.fromkeys(v for axes in step.input_axes for v in axes) if v not in assignment]
        if new:
            _choose(step, tables, sizes, new, assignment)


def _choose(
    step: Step, tables: Mapping[int, NDArray[Any]], sizes: Sequence[int], new: list[int], assignment: dict[int, int]
) -> None:
    """Pick the joint state of ``new`` of least total; the first of equals."""
    outer, inner = _split(new, sizes)
    best: tuple[float, int, int] | None = None
    for code in range(prod(sizes[v] for v in outer)):
        states = {**assignment, **_joint_state(code, outer, sizes)}
        total = _totals(step, tables, sizes, states, inner)
        index = int(total.argmin())
        if best is None or total[index] < best[0]:
            best = total[index], code, index
    assert best is not None
    assignment.update(_joint_state(best[1], outer, sizes))
    assignment.update(_joint_state(best[2], inner, sizes))


def _split(new: list[int], sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Split variables into those looped over and those gathered at once, the latter bounded in size."""
    cut = len(new)
    while cut > 0 and prod(sizes[v] for v in new[cut - 1 :]) <= _PIECE:
        cut -= 1
    cut = min(cut, len(new) - 1)
    return new[:cut], new[cut:]


def _totals(
    step: Step, tables: Mapping[int, NDArray[Any]], sizes: Sequence[int], states: Mapping[int, int], over: list[int]
) -> NDArray[Any]:
    """Sum the inputs over the joint states of ``over``, flat; wide enough that nothing saturates."""
    total: NDArray[Any] = np.zeros((1,) * len(over), dtype=np.int64)
    for node, axes in zip(step.inputs, step.input_axes, strict=True):
        values = gather(tables[node], axes, sizes, states, over)
        total = total + (values.astype(np.int64) if values.dtype.kind == "i" else values)
    return np.broadcast_to(total, [sizes[v] for v in over]).reshape(-1)


def _joint_state(code: int, variables: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """Decode a mixed-radix number into states, the last variable least significant."""
    states = {}
    for v in reversed(variables):
        code, states[v] = divmod(code, sizes[v])
    return states
