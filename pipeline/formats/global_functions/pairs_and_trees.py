"""Functions in intension of two variables, and spanning trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.function import FORBIDDEN
from .decomposition import Decomposition, GlobalFunctionError
from .machine import Machine, State

Given = dict[str, Any]


def _states(parts: Decomposition, scope: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the states of two variables, to be compared by broadcasting."""
    x, y = (parts.dims[v] for v in scope)
    parts.allowance.take(0, "a function of two variables", for_now=4 * 8 * x * y)
    return np.arange(x, dtype=np.int64)[:, None], np.arange(y, dtype=np.int64)[None, :]


def add_comparison(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge how far two variables miss a comparison; beyond a threshold that is forbidden."""
    x, y = _states(parts, scope)
    cst, kind = given["cst"], given["kind"]
    missed = {
        ">=": y + cst - x,
        ">": y + cst + 1 - x,
        "<=": x - cst - y,
        "<": x - cst + 1 - y,
        "=": np.abs(y + cst - x),
    }[kind]
    parts.table(scope, np.where(missed > max(given["delta"], 0), FORBIDDEN, np.maximum(missed, 0)))


def add_disjunction(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge a penalty where neither of two variables is far enough behind the other."""
    x, y = _states(parts, scope)
    parts.table(scope, np.where((x >= y + given["csty"]) | (y >= x + given["cstx"]), 0, given["penalty"]))


def add_special_disjunction(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid that both variables are below their last states and near each other; charge for the last states."""
    x, y = _states(parts, scope)
    last_x, last_y = given["xinfty"], given["yinfty"]
    apart = (x >= y + given["csty"]) | (y >= x + given["cstx"])
    allowed = (x <= last_x) & (y <= last_y) & (apart | (x >= last_x) | (y >= last_y))
    costs = np.where(x == last_x, given["costx"], 0) + np.where(y == last_y, given["costy"], 0)
    parts.table(scope, np.where(allowed, costs, FORBIDDEN))


def add_tree(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid what is no tree: a variable's state is the place of its parent in the scope, the root's its own.

    A state is, for each variable, where its path leads so far: a variable that has no parent yet, or the root.
    """
    if wide := [v for v in scope if parts.dims[v] > len(scope)]:
        raise GlobalFunctionError(
            f"domains of the {len(scope)} places of the scope", f"one of {parts.dims[wide[0]]} states"
        )
    root = len(scope)

    def step(state: tuple[int, ...], place: int, parent: int) -> State | None:
        top = root if parent == place else state[parent]
        if (parent == place and root in state) or (parent != place and top == place):
            return None
        return tuple([top if own == place else own for own in state])

    parts.machine(scope, Machine.counting(tuple(range(root)), step, lambda _: 0))
