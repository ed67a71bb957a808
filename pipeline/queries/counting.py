"""Count assignments exactly: residues modulo primes, combined by the Chinese remainder theorem.

A first sum in floating point bounds the count from above. The bound gives the number of primes that prove the answer.
If finite costs may add up to ``top``, an assignment counts only if its *total* stays below. The count is then the sum
of the first coefficients of the generating polynomial ``sum of z**cost``, which is evaluated at roots of unity.

:class:`CountPlan` decides how a network is counted. Sweeps and decision diagrams differ only in how they sum tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.boxes.codecs import Codec, PlainCodec
from ...tasks.gpu.arrays import on_host
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.lowering import SMALL_CELLS
from ...tasks.steps.number_limits import LARGEST_INT32, ordered_sum
from ...tasks.steps.semiring import SUM_PRODUCT, Semiring, mod_sum_product
from ...tasks.sweeps.scaled import Scaled, SumProduct, measured_each
from ...tasks.sweeps.sweep import Plain
from ..errors import InternalError, ModelError
from ..models.function import JOINT_CELLS
from ..preprocessing.consistency import allowed
from ..preprocessing.leaf_groups import Cells, LeafGroup, made_together
from ..preprocessing.leaf_rows import ListedCells
from ..preprocessing.leaf_tables import COST_LIMIT, CostScale, cost_leaf, cost_leaves, cost_scale, indicator_leaves
from ..preprocessing.preprocess import Leaf, Network
from ..trees.tree import Target
from .beliefs import Combiner, Defaults, Sums
from .formula import QueryPolicy

if TYPE_CHECKING:
    from ..plans.message_program import DeviceLeaves

Array = NDArray[Any]
Levels = dict[Any, tuple[Array, Array]]

# Primes below 2**31 with roots of unity of a higher order are few.
_MAX_POINTS = 1 << 20
_PRIME_LIMIT = LARGEST_INT32 + 1
# Relative rounding of the sum in floating point: 2**-52 for each of up to 2**32 operations on any path.
_SLACK = 1e-6
# A network of at most 2 to this power assignments is counted by the logarithm of the first sum, because the rounding
# error is far below half a unit.
_LOG_EXACT_BITS: Final = 30


@dataclass(frozen=True, eq=False)
class CountEstimate(Sums):
    """The number of assignments that no leaf table forbids, as a scaled float."""

    network: Network
    semiring: Semiring = SUM_PRODUCT

    def algebra(self, sizes: Sequence[int], compiled: bool) -> SumProduct:
        """Return the algebra of scaled tables."""
        return SumProduct(tuple(sizes), compiled)

    def together(self, group: LeafGroup) -> list[Scaled]:
        """Build leaf tables of 0 and 1."""
        if _has_costs(self.network):
            tables = cost_leaves(self.network, group, lambda costs: (costs < COST_LIMIT).astype(np.float64))
        else:
            tables = indicator_leaves(self.network, group)
        return measured_each(group.split(tables))

    def total(self, roots: Sequence[Scaled]) -> float:
        """Return ln of the number of assignments of one slice."""
        return math.fsum(root.log_value() for root in roots)


@dataclass(frozen=True, eq=False)
class CountResidue(Defaults):
    """The generating polynomial modulo one prime at some powers of a root of unity; at 1 it is the plain count.

    Parameters
    ----------
    unit : int
        A common divisor of the costs.
    powers : ndarray, int64, shape (order,)
        All powers of the root of unity, from 1 on.
    points : ndarray, int64
        The powers of the root at which this is the value; several are the last axis of all tables.
    levels : dict
        The different costs of small leaf tables and which of them each cell has: the same in all sweeps.
    """

    network: Network
    semiring: Semiring
    unit: int
    powers: Array
    points: Array
    levels: Levels = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "levels": {}}

    def algebra(self, sizes: Sequence[int], compiled: bool) -> Plain:
        """Return arithmetic modulo the prime."""
        return Plain(self.semiring, compiled)

    def leaf(self, leaf: Leaf, axes: Cells) -> Array:
        """Build a leaf table of powers of the points, 0 where an assignment is impossible."""
        if not _has_costs(self.network):
            return self.together(LeafGroup.alone(leaf, axes))[0]
        own = axes if isinstance(axes, ListedCells) else tuple(v for v in axes if v < len(self.network.dims))
        levels, where = self._levels(leaf, own)
        order = len(self.powers)
        values: Array = self.powers[np.multiply.outer(levels // self.unit % order, self.points) % order]
        values[levels >= COST_LIMIT] = 0
        return np.take(values, where, axis=0).reshape(-1)

    def leaves(self, axes: Mapping[int, tuple[int, ...]]) -> dict[int, Array]:
        """Build leaf tables, by node."""
        if not _has_costs(self.network):
            return made_together(self.network, axes, self.together)
        return {node: self.leaf(self.network.leaves[node], own) for node, own in axes.items()}

    def together(self, group: LeafGroup) -> list[Array]:
        """Build leaf tables of 0 and 1, of a probabilistic model."""
        return group.split(indicator_leaves(self.network, group).astype(np.int64))

    def _levels(self, leaf: Leaf, own: Cells) -> tuple[Array, Array]:
        """Return the different costs of a leaf table, ascending, and which of them each cell has."""
        key = None if isinstance(own, ListedCells) else (leaf.functions, own)
        if key in self.levels:
            return self.levels[key]
        levels, where = np.unique(cost_leaf(self.network, leaf, own), return_inverse=True)
        if key is not None and where.size + sum(known.size for _, known in self.levels.values()) <= JOINT_CELLS:
            self.levels[key] = levels, where.astype(np.uint16)
        return levels, where

    def total(self, roots: Sequence[Array]) -> list[int]:
        """Return the residues of one slice, one for each point."""
        result = np.ones(len(self.points), np.int64)
        for root in roots:
            result = result * on_host(root) % self.semiring.modulus
        residues: list[int] = result.tolist()
        return residues

    def device_leaves(self, leaves: Mapping[int, Array]) -> DeviceLeaves:
        """Refuse: messages on a device are no residues."""
        raise InternalError("residues cannot be computed on a device")

    @property
    def codec(self) -> Codec[Array]:
        """Bare residues."""
        return PlainCodec(self.semiring)

    def combiner(self, shapes: Mapping[Target, tuple[int, ...]]) -> Combiner:
        """Refuse: beliefs modulo a prime have no meaning."""
        raise InternalError("residues have no beliefs")

    def joined(self, totals: Iterable[list[int]]) -> list[int]:
        """Return the residues of the sum of slices."""
        parts = np.array([*totals], dtype=np.int64)
        residues: list[int] = (parts.sum(axis=0) % self.semiring.modulus).tolist() if len(parts) else []
        return residues


@dataclass(frozen=True)
class Spectrum:
    """Parameters for counting only totals below ``top``: ``points`` evaluations, with costs in steps of ``unit``.

    An assignment counts if its cost above the offset, in units, is below ``limit``.
    """

    unit: int
    points: int
    limit: int


@dataclass(frozen=True, eq=False)
class CountPlan:
    """How the possible assignments of a network are counted. The numbers are decided once, for all engines.

    Parameters
    ----------
    network : Network
        A network of a count.
    """

    network: Network

    @cached_property
    def scale(self) -> CostScale | None:
        """The scale of the costs; None for a probabilistic model."""
        return cost_scale(self.network) if _has_costs(self.network) else None

    @cached_property
    def spectrum(self) -> Spectrum | None:
        """The points of the generating polynomial; None if every assignment counts that no function forbids.

        Raises
        ------
        ModelError
            If the costs are too fine for this to be feasible.
        """
        network, scale = self.network, self.scale
        if scale is None or scale.cap is None or network.fixed is None:
            return None
        most, unit = 0, 0
        for leaf in network.leaves:
            for finite in _finite_costs(network, leaf):
                most += int(finite.max(initial=0))
                unit = math.gcd(unit, int(np.gcd.reduce(finite, axis=None, initial=0)))
        unit, left = max(unit, 1), scale.cap - int(network.fixed)
        if most < left:
            return None
        points = most // unit + 1
        if points > _MAX_POINTS:
            raise ModelError(
                f"counting assignments of total cost below top {network.model.top} needs a polynomial of {points} "
                f"coefficients, more than {_MAX_POINTS}: single costs are finite but their sums reach top"
            )
        return Spectrum(unit, points, -(-left // unit))

    @cached_property
    def sums_all(self) -> bool:
        """Whether every assignment counts that no function forbids by itself."""
        if self.spectrum is not None or self.scale is None:
            return self.spectrum is None
        greatest, lowest = self.network.model.greatest, self.network.model.lowest
        # a leaf table also forbids sums of its functions from COST_LIMIT on
        return all(sum([greatest[f] - lowest[f] for f in leaf.functions]) < COST_LIMIT for leaf in self.network.leaves)

    @property
    def points(self) -> int:
        """Number of points at which the count is evaluated modulo each prime."""
        return self.spectrum.points if self.spectrum else 1

    @cached_property
    def is_small(self) -> bool:
        """Whether the sum in floating point proves any count of the network."""
        return ordered_sum(map(math.log2, self.network.dims)) <= _LOG_EXACT_BITS and self.spectrum is None

    @cached_property
    def most_primes(self) -> int:
        """Number of primes that suffice if all assignments are possible."""
        return most_primes(self._log_assignments)

    @cached_property
    def expected_primes(self) -> int:
        """Expected number of primes, if leaf tables exclude assignments independently."""
        excluded = ordered_sum(_possible_log(self.network, leaf) for leaf in self.network.leaves)
        return most_primes(max(self._log_assignments + excluded, 0.0))

    @property
    def _log_assignments(self) -> float:
        return ordered_sum(map(math.log, self.network.dims))

    def primes(self, log_bound: float) -> list[int]:
        """Return the primes that prove a count whose sum in floating point has the natural logarithm ``log_bound``."""
        return enough_primes(log_bound, self.points)

    def combined(
        self, primes: Sequence[int], log_bound: float, sums: Callable[[CountResidue], list[int]], together: int = 1
    ) -> int:
        """Return the exact count of the network.

        Parameters
        ----------
        primes : sequence of int
            See :meth:`primes`.
        log_bound : float
            Natural logarithm of the sum in floating point, which does not depend on the residues.
        sums : callable
            Returns the sum of a network's tables modulo a prime at each of the points of an arithmetic.
        together : int
            Points of one call.

        Raises
        ------
        InternalError
            If the residues contradict the sum in floating point.
        """
        levels: Levels = {}
        value = combine([(self._residue(prime, sums, together, levels), prime) for prime in primes])
        log = math.log(value) if value else -math.inf
        if log > log_bound + _SLACK or (self.spectrum is None and log < log_bound - _SLACK):
            raise InternalError("the residues of the count contradict each other")
        return value

    def _residue(self, prime: int, sums: Callable[[CountResidue], list[int]], together: int, levels: Levels) -> int:
        """Return the count modulo a prime."""
        points, spectrum = self.points, self.spectrum
        root = root_of_unity(prime, points)
        powers, places = powers_of(root, points, prime), np.arange(points, dtype=np.int64)
        unit = spectrum.unit if spectrum else 1
        every = CountResidue(self.network, mod_sum_product(prime), unit, powers, places, levels)
        values: list[int] = []
        for start in range(0, points, together):
            values += sums(replace(every, points=places[start : start + together]))
        return prefix_sum(values, spectrum.limit, root, prime) if spectrum else values[0]


def _has_costs(network: Network) -> bool:
    return network.model.kind == "cost"


def _finite_costs(network: Network, leaf: Leaf) -> Iterator[NDArray[np.int64]]:
    """Yield the finite costs of a leaf's table; for a large table, the finite costs of each function."""
    if math.prod([network.dims[v] for v in leaf.scope]) < QueryPolicy.current().inspected_cells:
        costs = cost_leaf(network, leaf, leaf.scope)
        yield costs[costs < COST_LIMIT]
        return
    model = network.model
    for f in leaf.functions:
        function = model.functions[f]
        values = function.values if function.rows is None else np.append(function.values, function.default)
        yield values[allowed(model, f, values)] - model.lowest[f]


def _possible_log(network: Network, leaf: Leaf) -> float:
    """Return ln of the fraction of possible cells of a leaf.

    The cells of a small table are counted. The functions of a large table count as independent, which is less precise.
    """
    cells = math.prod([network.dims[v] for v in leaf.scope])
    if len(leaf.functions) > 1 and cells <= SMALL_CELLS:
        table = CountEstimate(network).leaf(leaf, leaf.scope)
        return math.log(max(int(np.count_nonzero(table.values)), 1) / cells)
    model, found = network.model, 0.0
    for f in leaf.functions:
        function = model.functions[f]
        if len(function.scope) > 1:  # functions of one variable are already part of its domain
            cells = math.prod(model.dims[v] for v in function.scope)
            possible = int(np.count_nonzero(allowed(model, f, function.values)))
            if function.rows is not None and bool(allowed(model, f, np.array([function.default]))[0]):
                possible += cells - len(function.values)
            found += math.log(max(possible, 1) / cells)
    return found


def primes(points: int) -> Iterator[int]:
    """Yield primes below 2**31, largest first, that have ``points``-th roots of unity (p ≡ 1 mod points)."""
    for k in range((_PRIME_LIMIT - 2) // points, 0, -1):
        if is_prime(k * points + 1):
            yield k * points + 1


def is_prime(n: int) -> bool:
    """Test primality of ``n`` below 3.4e14 by Miller and Rabin with bases that make it certain."""
    small = (2, 3, 5, 7, 11, 13, 17)
    if n < 2 or any(n % p == 0 for p in small):
        return n in small
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(n, base, odd, twos) for base in small)


def _passes(n: int, base: int, odd: int, twos: int) -> bool:
    x = pow(base, odd, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


def root_of_unity(prime: int, order: int) -> int:
    """Return an element of exactly this multiplicative order modulo ``prime``; ``order`` divides prime - 1."""
    factors = [q for q in range(2, order + 1) if order % q == 0 and is_prime(q)]
    for base in range(2, prime):
        root = pow(base, (prime - 1) // order, prime)
        if all(pow(root, order // q, prime) != 1 for q in factors):
            return root
    return 1


def powers_of(root: int, order: int, prime: int) -> Array:
    """Return the first ``order`` powers of a root modulo a prime below 2**31, from 1 on; int64."""
    powers = np.ones(order, np.int64)
    done = 1
    while done < order:
        more = min(done, order - done)
        powers[done : done + more] = powers[:more] * pow(root, done, prime) % prime
        done += more
    return powers


def prefix_sum(values: Sequence[int], limit: int, root: int, prime: int) -> int:
    """Return the sum of the first ``limit`` coefficients of a polynomial given at all powers of ``root``.

    The coefficients are an inverse transform of the values, so that value ``j`` counts ``1 + s + ... + s**(limit-1)``
    times for ``s = root**-j``, in all over the number of values.
    """
    n = len(values)
    steps = powers_of(pow(root, -1, prime), n, prime)
    # of a step all powers are powers of the root; products of two residues fit 64 bits, as primes are below 2**31
    upto = steps[np.arange(n, dtype=np.int64) * (limit % n) % n]
    series = (upto - 1) * _inverses(steps - 1, prime) % prime
    series[steps == 1] = limit % prime
    total = int((np.array(values, dtype=np.int64) * series % prime).sum())
    return total * pow(n, -1, prime) % prime


def _inverses(residues: Array, prime: int) -> Array:
    """Return the inverses modulo a prime below 2**31, by Fermat; multiples of the prime give 0."""
    base, found = residues % prime, np.ones_like(residues)
    exponent = prime - 2
    while exponent:
        if exponent & 1:
            found = found * base % prime
        base = base * base % prime
        exponent >>= 1
    return found


def combine(residues: Sequence[tuple[int, int]]) -> int:
    """Return the least non-negative integer with the given (residue, prime) pairs."""
    value, modulus = 0, 1
    for residue, prime in residues:
        value += modulus * ((residue - value) * pow(modulus, -1, prime) % prime)
        modulus *= prime
    return value


def most_primes(log_bound: float) -> int:
    """Return how many primes :func:`enough_primes` takes, where all are near their limit; no model has fewer."""
    return math.ceil((log_bound + math.log(2)) / math.log(_PRIME_LIMIT)) + 1


def enough_primes(log_bound: float, points: int) -> list[int]:
    """Return primes whose product exceeds ``exp(log_bound)``, and one more as a check."""
    chosen: list[int] = []
    reached = 0.0
    for prime in primes(points):
        chosen.append(prime)
        if reached > log_bound + _SLACK + math.log(2):
            return chosen
        reached += math.log(prime)
    raise ModelError("the count has too many digits for this version")
