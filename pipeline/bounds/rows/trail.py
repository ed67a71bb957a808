"""Where the rows of layers came from: enough to read an assignment back, in few bytes a row; on the side they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

#: Below this, nothing is forgotten.
_SMALL_BYTES = 1 << 22


@dataclass(frozen=True, eq=False)
class _Step:
    """Origins ``row * d + state`` of the rows of one layer, ``(rows,) uint32``."""

    variable: int
    d: int
    origin: NDArray[np.uint32]


class Trail:
    """The origins of all layers; those that no row of the last layer comes from are forgotten now and then."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._bound_bytes = _SMALL_BYTES
        self.n_bytes = 0

    def add(self, variable: int, d: int, origin: NDArray[np.uint32]) -> None:
        """Take the origins of the next layer, which are copied."""
        self._steps.append(_Step(variable, d, origin.copy()))
        self.n_bytes += origin.nbytes
        if self.n_bytes > self._bound_bytes:
            self.forget()
            self._bound_bytes = max(_SMALL_BYTES, 2 * self.n_bytes)

    def forget(self) -> None:
        """Drop rows that nothing comes from."""
        for i in range(len(self._steps) - 1, 0, -1):
            step, before = self._steps[i], self._steps[i - 1]
            used = np.zeros_like(before.origin, np.bool_)
            used[step.origin // step.d] = True
            if used.all():
                break
            number = np.cumsum(used, dtype=np.uint32) - np.uint32(1)
            row, state = np.divmod(step.origin, np.uint32(step.d))
            self._steps[i] = replace(step, origin=number[row] * np.uint32(step.d) + state)
            self._steps[i - 1] = replace(before, origin=before.origin[used])
        self.n_bytes = sum(step.origin.nbytes for step in self._steps)

    def back(self, row: int) -> Iterator[tuple[int, int]]:
        """Yield the variables and states that led to a row of the last layer, the last one first."""
        for step in reversed(self._steps):
            row, state = divmod(int(step.origin[row]), step.d)
            yield step.variable, state
