"""The elimination of all cells as a prover: it comes in once it is predicted to take no longer than the rest took."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ...trees.costs import Rates
from ..incumbent import Incumbent
from ..limits import Outcome, PlannedElimination
from ..prover import Prover
from ..prover_policy import LONG_TURN_SECONDS

# Plans take up to this many times less time than the buckets of an order.
_PLANNED_SAVING_RATIO: Final = 30.0


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
            if not known.alone and (seconds < LONG_TURN_SECONDS or self._is_too_large()):
                return None
            self.planned = known.limits.eliminate(known.small, known.upper)
        if self.planned is None:
            self.hopeless = True
            return None
        spent = math.inf if known.alone else max(seconds, known.spent)
        return None if self.planned.seconds > spent else self.planned.run()

    def _is_too_large(self) -> bool:
        """Whether no plan can be expected to take as little as was spent."""
        known = self.incumbent
        return known.cells(known.order) > _PLANNED_SAVING_RATIO * Rates().cells_per_second * known.spent

    def forget(self) -> None:
        """Plan anew."""
        self.planned = None
