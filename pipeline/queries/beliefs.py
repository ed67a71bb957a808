"""Requested beliefs, and the combination of beliefs of parts (slices, boxes) into beliefs of all assignments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...tasks.boxes.codecs import Codec, PlainCodec, ScaledCodec
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import FAR_INTEGER
from ...tasks.steps.semiring import Semiring
from ...tasks.sweeps.scaled import LOOSE, LOWEST, Scaled, above_least, normalised
from ..errors import InternalError
from ..preprocessing.leaf_groups import Cells, LeafGroup, made_together
from ..preprocessing.preprocess import Leaf, Network
from ..results.result import Result
from ..trees.tree import Target

if TYPE_CHECKING:
    from ..plans.message_program import DeviceLeaves


@dataclass(frozen=True)
class BeliefRequest:
    """The requested beliefs, as indices of the model's variables and functions."""

    variables: tuple[int, ...]
    joints: tuple[tuple[int, ...], ...]
    families: tuple[int, ...]

    @property
    def involved(self) -> frozenset[int]:
        """All variables that some answer names."""
        return frozenset((*self.variables, *(v for joint in self.joints for v in joint)))


def local_part(network: Network, variables: Iterable[int]) -> Target:
    """Return the ascending local indices of the variables that remain in the network."""
    local = network.local
    return tuple(sorted([local[v] for v in variables if v in local]))


def local_targets(network: Network, asked: BeliefRequest) -> list[Target]:
    """Return the targets to read from the tree: the remaining parts of the requested sets."""
    sets = [(v,) for v in asked.variables] + list(asked.joints)
    targets = (local_part(network, variables) for variables in sets)
    return list(dict.fromkeys(t for t in targets if t))


Array = NDArray[Any]
Where = tuple[slice, ...]


@dataclass(frozen=True)
class Beliefs:
    """The result of a propagation.

    Parameters
    ----------
    total : float or int or None
        ln of the sum over all assignments, or the least energy or cost; None if nothing is possible.
    tables : dict of tuple of int to ndarray
        For each target its belief over the remaining states, shaped: probabilities that sum to 1, or what is above
        the least energy (inf where nothing is possible) or cost (int64, ``UNREACHABLE``).
    """

    total: Any
    tables: dict[Target, Array]


class Combiner(Protocol):
    """Reads the beliefs of one part, and adds them to the beliefs of other parts."""

    def read(self, tables: Mapping[Target, Any], dims: Sequence[int]) -> dict[Target, Array]:
        """Return tables as the numbers that :meth:`add` takes, shaped."""
        ...

    def add(self, total: Any, tables: Mapping[Target, tuple[Array, Where]]) -> None:
        """Add one part: its total and, for each target, a table as read and where it belongs."""
        ...

    def beliefs(self) -> Beliefs:
        """Return the combined beliefs of all parts."""
        ...


class SumCombiner:
    """Probabilities, each part weighing as much as its sum."""

    def __init__(self, shapes: Mapping[Target, tuple[int, ...]]) -> None:
        self._tables = {target: np.zeros(shape) for target, shape in shapes.items()}
        self._totals: list[float] = []
        self._top = -math.inf

    def read(self, tables: Mapping[Target, Scaled], dims: Sequence[int]) -> dict[Target, Array]:
        """Return probabilities."""
        return posteriors(tables, dims)

    def add(self, total: float | None, tables: Mapping[Target, tuple[Array, Where]]) -> None:
        """Add one part with ln of its sum."""
        if total is None or total == -math.inf:
            return
        self._totals.append(total)
        if total > self._top:
            for table in self._tables.values():
                table *= math.exp(self._top - total)
            self._top = total
        weight = math.exp(total - self._top)
        for target, (belief, where) in tables.items():
            part = self._tables[target][where]
            part += (weight * belief).reshape(part.shape)

    def beliefs(self) -> Beliefs:
        """Return the mixture of all parts."""
        if not self._totals:
            return Beliefs(None, {})
        return Beliefs(log_sum(self._totals), {target: table / table.sum() for target, table in self._tables.items()})


class LeastCombiner:
    """Least energies, or least costs in integers."""

    def __init__(self, shapes: Mapping[Target, tuple[int, ...]], semiring: Semiring) -> None:
        self._infinity, self._exact = semiring.zero, semiring.saturates
        self._beyond = FAR_INTEGER if self._exact else math.inf
        self._tables = {target: np.full(shape, self._beyond) for target, shape in shapes.items()}
        self._best: Any = math.inf

    def read(self, tables: Mapping[Target, Array], dims: Sequence[int]) -> dict[Target, Array]:
        """Return the tables minus the least value."""
        return {target: self._above(table).reshape([dims[v] for v in target]) for target, table in tables.items()}

    def _above(self, table: Array) -> Array:
        """Return a table above its least entry; a device holds integers in doubles."""
        above = above_least(table, self._infinity)[1]
        if self._exact and above.dtype.kind == "f":
            return np.where(above < math.inf, above, FAR_INTEGER).astype(np.int64)
        return above

    def add(self, total: Any, tables: Mapping[Target, tuple[Array, Where]]) -> None:
        """Add one part with its least value, None if it allows nothing."""
        if total is None:
            return
        self._best = min(self._best, total)
        for target, (above, where) in tables.items():
            part = self._tables[target][where]
            np.minimum(part, (above + total).reshape(part.shape), out=part)

    def beliefs(self) -> Beliefs:
        """Return the minimum over all parts, minus the least value of all."""
        if self._best == math.inf:
            return Beliefs(None, {})
        beyond, best = self._beyond, self._best
        return Beliefs(best, {t: np.where(table < beyond, table - best, beyond) for t, table in self._tables.items()})


class Defaults:
    """Default behaviour of arithmetics.

    They travel without their network, which only leaf tables need; those are built before.
    """

    decodes = False
    keeps = False
    network: Any

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "network": None}

    def together(self, group: LeafGroup) -> list[Any]:
        """Build the leaf tables of a group."""
        raise NotImplementedError

    def leaf(self, leaf: Leaf, axes: Cells) -> Any:
        """Build a leaf table, or some of its cells."""
        return self.together(LeafGroup.alone(leaf, axes))[0]

    def leaves(self, axes: Mapping[int, tuple[int, ...]]) -> Mapping[int, Any]:
        """Build leaf tables, by node, small ones together."""
        return made_together(self.network, axes, self.together)

    @property
    def fits_doubles(self) -> bool:
        """Whether doubles hold every total that is allowed."""
        return True

    def shifted(self, total: Any, fixed: Any) -> Any:
        """Add costs, or logarithms."""
        return total + fixed

    def checked(self, states: Sequence[int], fixed: Any, total: Any) -> Result:
        """Refuse: only least values have an assignment."""
        raise InternalError("only an optimum has an assignment")


class Sums(Defaults):
    """How the parts of a query add up whose values are sums, as natural logarithms, of scaled tables."""

    def device_leaves(self, leaves: Mapping[int, Scaled]) -> DeviceLeaves:
        """Return leaf tables as a device has them."""
        from ..plans.message_program import probability_leaves

        return probability_leaves(leaves)

    @property
    def codec(self) -> Codec[Scaled]:
        """Values with a scale."""
        return ScaledCodec()

    def combiner(self, shapes: Mapping[Target, tuple[int, ...]]) -> SumCombiner:
        """Return a combiner that adds up beliefs of the given shapes."""
        return SumCombiner(shapes)

    def joined(self, totals: Iterable[float]) -> float | None:
        """Return ln of the sum of parts, None if that is 0."""
        total = log_sum(list(totals))
        return None if total == -math.inf else total


class Least(Defaults):
    """How the parts of a query add up whose values are least costs or energies."""

    semiring: Semiring
    decodes = True

    def device_leaves(self, leaves: Mapping[int, Array]) -> DeviceLeaves:
        """Return leaf tables as a device has them."""
        from ..plans.message_program import cost_leaves

        return cost_leaves(leaves, self.semiring)

    @property
    def codec(self) -> Codec[Array]:
        """Bare values."""
        return PlainCodec(self.semiring)

    def combiner(self, shapes: Mapping[Target, tuple[int, ...]]) -> LeastCombiner:
        """Return a combiner that takes the minimum of beliefs of the given shapes."""
        return LeastCombiner(shapes, self.semiring)

    def joined(self, totals: Iterable[Any]) -> Any:
        """Return the least of the parts' values, None if nothing is possible."""
        return min((total for total in totals if total is not None), default=None)


def log_sum(values: Sequence[float]) -> float:
    """Return ln of the sum of ``exp(values)``, summed exactly; -inf for an empty or all-zero sum."""
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def posteriors(beliefs: Mapping[Target, Scaled], dims: Sequence[int]) -> dict[Target, Array]:
    """Normalise and shape beliefs; those whose sum is surely in range all at once."""
    near = {t: b for t, b in beliefs.items() if not b.logs and b.low >= LOWEST and b.high <= LOOSE}
    found = {t: normalised(b).reshape([dims[v] for v in t]) for t, b in beliefs.items() if t not in near}
    if near:
        sizes = [b.values.size for b in near.values()]
        ends = list(accumulate(sizes))
        starts = [0, *ends[:-1]]
        flat = np.concatenate([b.values for b in near.values()])
        totals = np.add.reduceat(flat, starts)
        totals[totals == 0.0] = 1.0
        flat /= np.repeat(totals, sizes)
        for target, start, end in zip(near, starts, ends, strict=True):
            table = flat[start:end]
            found[target] = table if len(target) == 1 else table.reshape([dims[v] for v in target])
    return found


def merge(combiner: Combiner, beliefs: Beliefs) -> None:
    """Add beliefs over all states."""
    everywhere = {target: (table, (slice(None),) * table.ndim) for target, table in beliefs.tables.items()}
    combiner.add(beliefs.total, everywhere)


def place(target: Target, states: Mapping[int, int]) -> Where:
    """Where a part that fixes some states belongs in the table of a target."""
    return tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in target)
