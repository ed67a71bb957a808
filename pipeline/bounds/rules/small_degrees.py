"""Variables with few neighbours are eliminated exactly: their functions are joined and minimised over them."""

from __future__ import annotations

from collections import deque

import numpy as np

from .pool import Pool
from .problem import Problem

#: Tables of variables of two neighbours may become larger than what they replace, up to so many cells.
_SMALL = 1 << 12
#: No joined table is larger.
_LARGEST = 1 << 22


def eliminate(problem: Problem) -> int:
    """Eliminate every variable that leaves no larger table than it takes, or has at most two neighbours.

    Returns
    -------
    int
        How many variables were eliminated; they stay in the arrays, with one value.
    """
    pool = _Eliminating(problem.flat)
    pool.run()
    return pool.leave(problem, "small degree")


class _Eliminating(Pool):
    """Tables are only made of functions that are touched."""

    def run(self) -> None:
        """Eliminate as long as a variable qualifies, those of few functions first."""
        queue = deque(sorted((x for x in range(len(self.dims)) if self.around[x]), key=lambda x: len(self.around[x])))
        waiting = set(queue)
        while queue:
            x = queue.popleft()
            waiting.discard(x)
            scope = self.neighbours(x)
            if scope is not None:
                self.eliminate(x, scope)
                fresh = [v for v in scope if v not in waiting and self.around[v]]
                queue.extend(fresh)
                waiting.update(fresh)

    def neighbours(self, x: int) -> tuple[int, ...] | None:
        """Return who shares functions with a variable that qualifies, else None."""
        if not self.around[x]:
            return None
        largest = max(self.sizes[f] for f in self.around[x])
        found: dict[int, None] = {}
        cells = 1
        for f in self.around[x]:
            for v in self.scopes[f]:
                if v != x and v not in found:
                    found[v] = None
                    cells *= self.dims[v]
            if cells * self.dims[x] > _LARGEST or cells > (max(largest, _SMALL) if len(found) <= 2 else largest):
                return None
        return tuple(sorted(found))

    def eliminate(self, x: int, scope: tuple[int, ...]) -> None:
        """Join the functions of a variable, and take the least over its values."""
        axes = (*scope, x)
        joined = np.zeros([self.dims[v] for v in axes])
        joined += self.unary[self.first[x] : self.first[x + 1]]
        for f in list(self.around[x]):
            joined += self.aligned(f, axes)
            self.drop(f)
        best = joined.argmin(axis=-1)
        self.take_out(x, scope, best)
        self.add(scope, joined.min(axis=-1))
