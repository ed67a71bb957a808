"""The best of sums: scaled sums of products up to the last variables, then least energies over these.

An energy is ``-ln`` of a value. A table over last variables alone is kept as energies from when it is made, so that the
steps above, and whoever decodes them, see what an optimum sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.dense import run
from ..steps.step import Step
from .scaled import Scaled, SumProduct
from .sweep import restrict

Array = NDArray[Any]
Mixed = Scaled | Array
"""Values with a scale or, over last variables alone, energies."""


def energies(table: Scaled) -> Array:
    """Return ``-ln`` of the values of a table, ``inf`` for 0: float64, flat, in the same order."""
    with np.errstate(divide="ignore"):
        logs = table.values if table.logs else np.log(table.values)
    found: Array = -(logs + table.log_scale)
    return found


@dataclass(frozen=True)
class SumsThenBest:
    """The algebra of steps that sum, and of those above them that minimise energies.

    Parameters
    ----------
    sums : SumProduct
        Of the steps that sum.
    last : frozenset of int
        The variables that are minimised over.
    """

    sums: SumProduct
    last: frozenset[int]

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels may be used."""
        return self.sums.compiled

    def step(self, step: Step, tables: Sequence[Mixed], threads: int) -> Mixed:
        """Return the output table of ``step``: energies where only last variables are left."""
        if step.lowered.semiring.name == "min_plus":
            return run(step.lowered, tables, threads=threads, compiled=self.compiled)  # type: ignore[arg-type]
        made = self.sums.step(step, tables, threads)  # type: ignore[arg-type]
        return energies(made) if self.last.issuperset(step.axes) else made

    def restrict(self, table: Mixed, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> Mixed:
        """Return the table with some variables fixed."""
        if isinstance(table, Scaled):
            return self.sums.restrict(table, axes, sizes, states)
        return restrict(table, axes, sizes, states)

    def resized(self, sizes: tuple[int, ...]) -> SumsThenBest:
        """Return the algebra for tables over other domain sizes."""
        return replace(self, sums=self.sums.resized(sizes))
