"""Hidden variables: their states follow from the states of the model's own variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from .function import FORBIDDEN, Function

_UNKNOWN = -1


def completed(functions: Sequence[Function], assignment: Sequence[int], dims: Sequence[int]) -> list[int] | None:
    """Return an assignment with the states of all hidden variables; None where one has no allowed state.

    A hidden variable has the one state that all functions allow whose other variables are known. Where several states
    are left for each hidden variable, the states of one of them are tried: all but one must contradict the functions.

    Parameters
    ----------
    functions : sequence of Function
    assignment : sequence of int
        States of the model's own variables.
    dims : sequence of int
        How many states each variable has; the hidden ones are behind the model's own.

    Raises
    ------
    ModelError
        If a hidden variable does not follow from the others.
    """
    own = len(assignment)
    states = [*assignment, *[_UNKNOWN] * (len(dims) - own)]
    waiting = _follow([function for function in functions if max(function.scope, default=0) >= own], states, dims)
    while waiting:
        if any(_forbids(function, states) for function in functions):
            return None
        tried = next(v for v in waiting[0].scope if states[v] == _UNKNOWN)
        possible = []
        for state in range(dims[tried]):
            following = [*states[:tried], state, *states[tried + 1 :]]
            left = _follow(waiting, following, dims)
            if left is not None and not any(_forbids(function, following) for function in functions):
                possible.append(following)
        if not possible:
            return None
        if len(possible) > 1:
            unknown = states.count(_UNKNOWN)
            raise ModelError(f"the states of {unknown} hidden variables do not follow from the others")
        (states,) = possible
        waiting = _follow(waiting, states, dims)
    return None if waiting is None else [max(state, 0) for state in states]


def _follow(waiting: list[Function], states: list[int], dims: Sequence[int]) -> list[Function] | None:
    """Set the states of hidden variables that the known states determine.

    Parameters
    ----------
    waiting : list of Function
        Functions with unknown states.
    states : list of int
        State of each variable; changed in place.
    dims : sequence of int

    Returns
    -------
    list of Function or None
        Functions that still have unknown states; None if no states satisfy all functions.
    """
    while waiting:
        left = []
        common: dict[int, set[int]] = {}
        for function in waiting:
            unknown = [v for v in function.scope if states[v] == _UNKNOWN]
            allowed = _allowed(function, states, dims) if len(unknown) == 1 else None
            if allowed is None or len(allowed) > 1:
                left += [function] if unknown else []
                if allowed is not None:
                    common[unknown[0]] = common.get(unknown[0], {*allowed}).intersection(allowed)
            elif not allowed:
                return None
            else:
                states[unknown[0]] = allowed[0]
        # functions that each leave several states may leave one together
        several = {v: own for v, own in common.items() if states[v] == _UNKNOWN}
        if not all(several.values()):
            return None
        single = {v: own.pop() for v, own in several.items() if len(own) == 1}
        for v, state in single.items():
            states[v] = state
        if len(left) == len(waiting) and not single:
            return left
        waiting = left
    return []


def _forbids(function: Function, states: Sequence[int]) -> bool:
    """Whether a function forbids states that are all known."""
    own = [states[v] for v in function.scope]
    return _UNKNOWN not in own and not _is_allowed(np.asarray(function.at(own)))


def _allowed(function: Function, states: Sequence[int], dims: Sequence[int]) -> list[int]:
    """Return the allowed states of the one variable of a function that has none yet."""
    known = [(c, states[v]) for c, v in enumerate(function.scope) if states[v] != _UNKNOWN]
    if function.rows is None:
        column = function.values[tuple(slice(None) if states[v] == _UNKNOWN else states[v] for v in function.scope)]
        return [int(state) for state in np.flatnonzero(_is_allowed(column))]
    same = np.all([function.rows[:, c] == state for c, state in known], axis=0)
    (free,) = {*range(len(function.scope))} - {c for c, _ in known}
    listed = _is_allowed(function.values)
    if not _is_allowed(np.asarray(function.default, function.values.dtype)):
        states_left: list[int] = function.rows[same & listed, free].tolist()
        return states_left
    forbidden = {*function.rows[same & ~listed, free].tolist()}
    return [state for state in range(dims[function.scope[free]]) if state not in forbidden]


def _is_allowed(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether costs are allowed, or probabilities are not 0."""
    return np.asarray(values != 0 if values.dtype.kind == "f" else values < FORBIDDEN)
