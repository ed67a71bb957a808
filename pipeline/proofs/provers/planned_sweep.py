"""The elimination of all cells as a prover: it comes in once it is predicted to take no longer than the rest took."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..incumbent import Incumbent
from ..limits import Outcome, PlannedElimination
from ..prover import Prover
from ..prover_policy import ProverPolicy


class DenseProver(Prover):
    """Sweeps every cell of the network that preparation left, by a plan that is made once."""

    nbytes = 0

    def __init__(self, incumbent: Incumbent) -> None:
        super().__init__(incumbent)
        self.planned: PlannedElimination | None = None

    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        """Sweep every cell, if that is predicted to take no longer than all the rest did."""
        known = self.incumbent
        if self.planned is None:
            if not known.alone and (seconds < ProverPolicy.current().planning_from_seconds or self._is_too_large()):
                return None
            self.planned = known.limits.eliminate(known.small, known.upper)
        if self.planned is None:
            self.hopeless = True
            return None
        spent = math.inf if known.alone else max(seconds, known.spent)
        return None if self.planned.seconds > spent else self.planned.run()

    def _is_too_large(self) -> bool:
        """Whether no plan can be expected to take as little as was spent."""
        policy = ProverPolicy.current()
        known = self.incumbent
        return policy.bucket_cell_seconds * known.cells(known.order) > policy.planned_saving_ratio * known.spent

    def forget(self) -> None:
        """Plan anew."""
        self.planned = None
