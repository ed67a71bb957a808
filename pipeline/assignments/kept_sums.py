"""Arithmetic of sweeps that store all tables: sums of products, sums of Boltzmann weights, and minimal costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...records import dataclass
from ...tasks.sweeps.scaled import LOWEST, from_logs
from ...tasks.sweeps.table_packs import ScaledPack
from ..preprocessing.leaf_groups import LeafGroup
from ..preprocessing.leaf_tables import COST_LIMIT, cost_leaves
from ..queries.arithmetic import ScaledPartition


@dataclass(frozen=True, eq=False)
class KeptSums(ScaledPartition):
    """Sums of products whose tables all stay."""

    keeps = True


@dataclass(frozen=True, eq=False)
class BoltzmannSums(KeptSums):
    """Sums of ``exp(-weight * cost)`` over what no function forbids by itself.

    Parameters
    ----------
    weight : float
        Of one stored unit of cost; 0 for all that is possible alike.
    """

    weight: float = 0.0

    def packed(self, group: LeafGroup) -> ScaledPack:
        """Build leaf tables of weights. Weights of costs above a function's least cost are never rounded to 0."""

        def logs(costs: NDArray[Any]) -> NDArray[Any]:
            return np.where(costs < COST_LIMIT, -self.weight * costs, -math.inf)

        with np.errstate(over="ignore"):
            tables = group.split(cost_leaves(self.network, group, logs))
        made = [from_logs(table, 0.0, LOWEST) for table in tables]
        return ScaledPack.of(dict(zip(group.nodes, made, strict=True)))
