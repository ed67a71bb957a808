"""Variables that another one determines are replaced by it, as a function of two allows one state for each of its own.

Frequencies of the two directions of a link, say, differ by a constant. No table becomes larger by it, and no width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..network import Costs
from .pool import Pool
from .problem import Problem


def replace(problem: Problem) -> int:
    """Replace every variable that one of as few states determines.

    Returns
    -------
    int
        How many variables were replaced; they stay in the arrays, with one value.
    """
    flat = problem.flat
    if not flat.n_functions:
        return 0
    allowed = np.add.reduceat(np.isfinite(flat.costs), flat.cells[:-1], dtype=np.int64)
    arities = np.diff(flat.edges)
    firsts = flat.edges[:-1]
    most = flat.dims[flat.scope[firsts]]
    pairs = arities == 2
    most[pairs] = np.minimum(most[pairs], flat.dims[flat.scope[firsts[pairs] + 1]])
    few = np.flatnonzero(pairs & (allowed <= most)).tolist()
    if not few:
        return 0
    pool = _Replacing(flat)
    pool.run(few)
    return pool.leave(problem, "determined")


class _Replacing(Pool):
    """Replaces variables of functions of two."""

    def run(self, few: list[int]) -> None:
        """Look at some functions of two, and at what becomes one of two."""
        while few:
            f = few.pop()
            if f not in self.scopes:
                continue
            for x, y in (self.scopes[f], self.scopes[f][::-1]):
                states = self.determined(f, x, y)
                if states is not None:
                    few += self.replace(f, x, y, states)
                    break

    def determined(self, f: int, x: int, y: int) -> NDArray[np.intp] | None:
        """Return the state of ``y`` for each of ``x``, any where there is none, or None."""
        if self.dims[x] > self.dims[y]:
            return None
        allowed = np.isfinite(self.aligned(f, (x, y)))
        return None if (allowed.sum(axis=1) > 1).any() else allowed.argmax(axis=1)

    def replace(self, f: int, x: int, y: int, states: NDArray[np.intp]) -> list[int]:
        """Put ``x`` in the place of ``y`` everywhere; return the functions of two that this makes."""
        made = len(self.sizes)
        own = self.unary[self.first[y] : self.first[y + 1]]
        self.add((x,), self.aligned(f, (x, y))[np.arange(self.dims[x]), states] + own[states])
        self.drop(f)
        for g in list(self.around[y]):
            others = tuple(v for v in self.scopes[g] if v not in (x, y))
            self.add((*others, x), self.with_states(g, others, x, y, states))
            self.drop(g)
        self.take_out(y, (x,), states)
        return [g for g in range(made, len(self.sizes)) if len(self.scopes[g]) == 2]

    def with_states(self, g: int, others: tuple[int, ...], x: int, y: int, states: NDArray[np.intp]) -> Costs:
        """Return a function of ``y`` as one of others and ``x``."""
        table = self.aligned(g, (*others, x, y))
        own = np.arange(self.dims[x]) if x in self.scopes[g] else np.zeros(self.dims[x], np.intp)
        costs: Costs = table[..., own, states]
        return costs
