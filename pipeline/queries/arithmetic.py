"""The three questions as values: how each turns a network into tables, and root tables into an answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...tasks.boxes.codecs import Codec
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import EXACT_INTEGER
from ...tasks.steps.semiring import SUM_PRODUCT, Semiring, min_plus
from ...tasks.sweeps.scaled import QuickSumProduct, Scaled, SumProduct
from ...tasks.sweeps.sweep import Algebra, Plain
from ...tasks.sweeps.table_packs import ScaledPack, ScaledTables
from ..errors import InternalError
from ..preprocessing.leaf_groups import Cells, LeafGroup, groups
from ..preprocessing.leaf_tables import (
    CostScale,
    cost_leaves,
    cost_scale,
    energy_leaves,
    integer_dtype,
    probability_leaves,
)
from ..preprocessing.preprocess import Leaf, Network
from ..results.result import Result
from ..trees.tree import Target
from .beliefs import Combiner, Least, Sums

if TYPE_CHECKING:
    from ..plans.message_program import DeviceLeaves

Array = NDArray[Any]
T = TypeVar("T")

#: Two logarithms of the same probability that are summed in different orders differ by less than this, relative to
#: their size. Each of thousands of additions rounds by 1e-16.
LOG_TOLERANCE = 1e-10
# Inputs that may be added before a kernel clamps to the saturating infinity: more would need wider integers.
MAX_INPUTS = 4

SEMIRINGS = (*(min_plus(dtype, MAX_INPUTS) for dtype in ("int16", "int32", "int64")), min_plus("float64"), SUM_PRODUCT)
"""Semirings of the queries."""


class Arithmetic(Protocol[T]):
    """The computation of a query.

    ``semiring`` is what the plan is lowered for, ``algebra`` what runs its steps.
    """

    @property
    def semiring(self) -> Semiring:
        """The semiring of the kernels."""
        ...

    @property
    def network(self) -> Network:
        """The network that remains of the model."""
        ...

    @property
    def decodes(self) -> bool:
        """Whether an assignment has the value, and is to be found."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether many assignments are to be found, for which all tables of the sweep stay."""
        ...

    def algebra(self, sizes: Sequence[int], compiled: bool) -> Algebra[T]:
        """Return the algebra for a plan with the given domain sizes."""
        ...

    def leaf(self, leaf: Leaf, axes: Cells) -> T:
        """Build a leaf table, or some of its cells."""
        ...

    def leaves(self, axes: Mapping[int, tuple[int, ...]]) -> Mapping[int, T]:
        """Build leaf tables, by node."""
        ...

    def total(self, roots: Sequence[T]) -> Any:
        """Return the value of one slice from its root tables."""
        ...

    def checked(self, states: Sequence[int], fixed: Any, total: Any) -> Result:
        """Evaluate an assignment on the model and compare it with the value of the sweep and of ``fixed`` functions.

        Raises
        ------
        InternalError
            If they differ.
        """
        ...

    def device_leaves(self, leaves: Mapping[int, T]) -> DeviceLeaves:
        """Return leaf tables as propagations on a device have them."""
        ...

    @property
    def codec(self) -> Codec[T]:
        """How tables are stored."""
        ...

    def combiner(self, shapes: Mapping[Target, tuple[int, ...]]) -> Combiner:
        """Return a combiner of beliefs of parts of all assignments; ``shapes`` are the shapes over all states."""
        ...

    def joined(self, totals: Iterable[Any]) -> Any:
        """Return the total of the values of parts; None if no assignment is possible."""
        ...

    def shifted(self, total: Any, fixed: Any) -> Any:
        """Return a value combined with the value of the functions without variables: a cost, or a natural logarithm."""
        ...

    @property
    def fits_doubles(self) -> bool:
        """Whether doubles hold every total that is allowed; larger ones stay larger when they are rounded."""
        ...


@dataclass(frozen=True, eq=False)
class CostOptimum(Least):
    """Minimum cost, in integers."""

    network: Network
    scale: CostScale
    semiring: Semiring

    def algebra(self, sizes: Sequence[int], compiled: bool) -> Plain:
        """Return min-plus on saturating integers."""
        return Plain(self.semiring, compiled)

    def together(self, group: LeafGroup) -> list[Array]:
        """Build leaf tables with forbidden entries at the saturating infinity."""
        semiring = self.semiring
        return group.split(
            cost_leaves(self.network, group, lambda costs: np.minimum(costs, semiring.zero).astype(semiring.dtype))
        )

    def total(self, roots: Sequence[Array]) -> int | None:
        """Return the cost of one slice from its root tables, None if it is infeasible."""
        values = [int(root.item()) for root in roots]
        if any(v >= self.semiring.zero for v in values):
            return None
        total = sum(values)
        return None if self.scale.cap is not None and total >= self.scale.cap else total

    @property
    def fits_doubles(self) -> bool:
        """Whether doubles hold every total that is allowed; larger ones stay larger when they are rounded."""
        return self.scale.bound < EXACT_INTEGER

    def checked(self, states: Sequence[int], fixed: int, total: int) -> Result:
        """Compare costs, exactly."""
        model, expected = self.network.model, int(total) + int(fixed) + self.scale.offset
        if model.top is not None and expected >= model.top:
            return Result("optimum", "infeasible")
        cost = model.cost(states)
        if cost != expected:
            raise InternalError(f"the decoded assignment costs {cost}, the sweep gave {expected}")
        return Result("optimum", "optimal", value=model.objective(cost), assignment=model.shown(states))


@dataclass(frozen=True, eq=False)
class EnergyOptimum(Least):
    """Most probable explanation, as the minimum of ``-ln p`` in float64."""

    network: Network
    semiring: Semiring = min_plus("float64")

    def algebra(self, sizes: Sequence[int], compiled: bool) -> Plain:
        """Return min-plus on floats."""
        return Plain(self.semiring, compiled)

    def together(self, group: LeafGroup) -> list[Array]:
        """Build leaf tables of ``-ln p``."""
        return group.split(energy_leaves(self.network, group))

    def total(self, roots: Sequence[Array]) -> float | None:
        """Return the energy of one slice from its root tables, None if it has probability 0."""
        total = math.fsum(float(root.item()) for root in roots)
        return None if total == math.inf else total

    def shifted(self, total: float, fixed: float) -> float:
        """Subtract a logarithm from an energy."""
        return total - fixed

    def checked(self, states: Sequence[int], fixed: float, total: float) -> Result:
        """Compare log10 of probabilities, within rounding."""
        found, expected = self.network.model.log10_value(states), (float(fixed) - total) / math.log(10)
        if not abs(found - expected) <= LOG_TOLERANCE * max(1.0, abs(found)):
            raise InternalError(f"the decoded assignment has log10 {found}, the sweep gave {expected}")
        return Result("optimum", "optimal", log10=found, assignment=self.network.model.shown(states))


@dataclass(frozen=True, eq=False)
class ScaledPartition(Sums):
    """Sum of products, with scales."""

    network: Network
    semiring: Semiring = SUM_PRODUCT

    def algebra(self, sizes: Sequence[int], compiled: bool) -> SumProduct:
        """Return the algebra of scaled tables."""
        return QuickSumProduct(tuple(sizes), compiled)

    def packed(self, group: LeafGroup) -> ScaledPack:
        """Build leaf tables with bounds, side by side."""
        return probability_leaves(self.network, group)

    def together(self, group: LeafGroup) -> list[Scaled]:
        """Build leaf tables with bounds."""
        return self.packed(group).tables()

    def leaves(self, axes: Mapping[int, tuple[int, ...]]) -> ScaledTables:
        """Build leaf tables, by node, small ones side by side."""
        packs = [self.packed(group) for group in groups(self.network, axes)]
        return ScaledTables(packs, tuple(axes))

    def total(self, roots: Sequence[Scaled]) -> float:
        """Return ln of the sum of one slice from its root tables; -inf for 0."""
        return math.fsum(root.log_value() for root in roots)


def optimum_arithmetic(network: Network) -> CostOptimum | EnergyOptimum:
    """Choose integers for costs, energies for probabilities."""
    if network.model.kind != "cost":
        return EnergyOptimum(network)
    scale = cost_scale(network)
    return CostOptimum(network, scale, min_plus(integer_dtype(scale.bound, MAX_INPUTS), MAX_INPUTS))


def arithmetic_for(network: Network) -> Arithmetic[Any]:
    """Return the arithmetic of the network's query; a count begins with its estimate."""
    if network.query == "optimum":
        return optimum_arithmetic(network)
    if network.query == "partition":
        return ScaledPartition(network)
    from .counting import CountEstimate

    return CountEstimate(network)
