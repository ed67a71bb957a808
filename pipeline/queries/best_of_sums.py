"""Marginal MAP: the best states of some variables, by the sum of products over all others (Park and Darwiche 2004)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tasks.steps.semiring import Semiring, min_plus
from ...tasks.sweeps.scaled import QuickSumProduct
from ...tasks.sweeps.sums_then_best import Array, Mixed, SumsThenBest, energies
from .arithmetic import ScaledPartition

ENERGIES: Semiring = min_plus("float64")
"""The semiring of steps that join last variables alone."""


@dataclass(frozen=True, eq=False)
class BestOfSums(ScaledPartition):
    """The best states of ``last`` by the sum over all other variables, as the least energy ``-ln``.

    What runs is a plan of a problem with these ``last`` variables and :data:`ENERGIES` as their semiring.
    """

    last: frozenset[int] = frozenset()
    decodes = True

    def algebra(self, sizes: Sequence[int], compiled: bool) -> SumsThenBest:  # type: ignore[override]
        """Return the algebra of scaled sums and energies."""
        return SumsThenBest(QuickSumProduct(tuple(sizes), compiled), self.last)

    def leaves(self, axes: Mapping[int, tuple[int, ...]]) -> dict[int, Any]:
        """Build leaf tables, by node: energies over last variables alone, values with a scale otherwise."""
        made: dict[int, Mixed] = super().leaves(axes)
        return {node: energies(t) if self.last.issuperset(axes[node]) else t for node, t in made.items()}  # type: ignore[arg-type]

    def total(self, roots: Sequence[Array]) -> float | None:  # type: ignore[override]
        """Return ``-ln`` of the best sum from the root tables, None if all are 0."""
        total = math.fsum(float(root.item()) for root in roots)
        return None if total == math.inf else total
