"""The scopes of all functions of a model as arrays: where each function has the value of an assignment, found at once.

Most functions are small, and what takes time is each operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .function import Function

Numbers = NDArray[Any]
# No dense function has so many values.
_BEYOND = 1 << 62


@dataclass(frozen=True, eq=False)
class Scopes:
    """The scopes of some functions, one after another, in the narrowest integers: a model keeps them.

    Parameters
    ----------
    starts : ndarray, shape (functions + 1,)
        Where each scope starts.
    variables : ndarray
    steps : ndarray
        How far neighbouring states of each are apart among all values of a function that is dense, or would be;
        ``_BEYOND`` where a function that is stored by rows has more assignments than that.
    dims : ndarray
        The domain sizes of all variables of the model.
    by_rows : ndarray of bool
        Which functions are stored by rows.
    """

    starts: Numbers
    variables: Numbers
    steps: Numbers
    dims: Numbers
    by_rows: NDArray[np.bool_]

    @classmethod
    def of(cls, functions: Sequence[Function], dims: Sequence[int]) -> Scopes:
        """Return the scopes of some functions; ``dims`` are the model's domain sizes."""
        scopes = [function.scope for function in functions]
        arities = np.fromiter(map(len, scopes), np.intp, len(scopes))
        starts = np.concatenate([[0], arities.cumsum()])
        variables = np.fromiter(chain.from_iterable(scopes), np.intp, int(starts[-1]))
        domains = np.array(dims, np.intp)
        sizes = domains[variables]
        steps = np.ones_like(variables)
        widest = math.log2(_BEYOND) / math.log2(max(2, max(dims, default=2)))
        for arity in {len(scope) for scope in scopes if len(scope) > 1}:
            places = starts[:-1][arities == arity, np.newaxis] + np.arange(arity)
            own = sizes[places]
            steps[places[:, :-1]] = own[:, :0:-1].cumprod(axis=1)[:, ::-1]
            if arity >= widest:
                steps[places[own.prod(axis=1, dtype=np.float64) > _BEYOND]] = _BEYOND
        by_rows = np.array([function.rows is not None for function in functions], bool)
        return cls(_narrow(starts), _narrow(variables), _narrow(steps), _narrow(domains), by_rows)

    def cells(self, functions: Numbers) -> NDArray[np.float64]:
        """Return how many assignments each of some scopes has, none of which is empty."""
        first = self.starts[functions]
        return self.steps[first] * self.dims[self.variables[first]].astype(np.float64)

    def entries(self, functions: Numbers) -> tuple[Numbers, Numbers]:
        """Return the places of the variables of some functions, and for each which of these functions has it."""
        first = self.starts[functions]
        counts = self.starts[functions + 1] - first
        ends = counts.cumsum()
        owners = np.repeat(np.arange(len(functions)), counts)
        return np.arange(len(owners)) + (first - ends + counts)[owners], owners

    def values_at(self, functions: Sequence[Function], assignment: Sequence[int]) -> list[Any]:
        """Return the value of each of all functions at an assignment of the model.

        Raises
        ------
        IndexError
            If a variable has no such state.
        """
        given = np.asarray(assignment) if len(assignment) else np.zeros(0, np.intp)
        states = given.astype(np.intp, casting="same_kind")[self.variables]
        if (states < 0).any() or (states >= self.dims[self.variables]).any():
            raise IndexError("an assignment has a state that is not in its variable's domain")
        before = np.concatenate([[0], (states * self.steps).cumsum()])[self.starts]
        places = (before[1:] - before[:-1]).tolist()
        return [
            f.values.item(place) if f.rows is None else f.at([assignment[v] for v in f.scope])
            for f, place in zip(functions, places, strict=True)
        ]


def _narrow(numbers: Numbers) -> Numbers:
    """Return integers of 0 and more in the narrowest signed dtype, which does not turn others into floats."""
    return numbers.astype(np.min_scalar_type(~numbers.max(initial=0)))
