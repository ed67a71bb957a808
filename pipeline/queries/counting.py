"""Counting assignments exactly: residues modulo primes, put together by the Chinese remainder theorem.

A first sweep in floating point bounds the count from above, which fixes how many primes prove the answer. Where
finite costs may add up to ``top`` an assignment counts only if its *total* stays below: the count is then
a prefix of the generating polynomial ``sum of z**cost``, read off by evaluating it at roots of unity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.boxes.codecs import Codec, PlainCodec
from ...tasks.gpu.arrays import on_host
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import LARGEST_INT32
from ...tasks.steps.semiring import SUM_PRODUCT, Semiring
from ...tasks.sweeps.scaled import Scaled, SumProduct, measured_each
from ...tasks.sweeps.sweep import Plain
from ..errors import InternalError, ModelError
from ..preprocessing.leaf_groups import Cells, LeafGroup, made_together
from ..preprocessing.leaf_rows import ListedCells
from ..preprocessing.leaf_tables import COST_LIMIT, CostScale, cost_leaf, cost_leaves, indicator_leaves
from ..preprocessing.preprocess import Leaf, Network
from ..trees.tree import Target
from .beliefs import Combiner, Defaults, Sums

if TYPE_CHECKING:
    from ..plans.message_program import DeviceLeaves

# The costs in leaf tables of at most this many cells together are remembered.
_REMEMBERED_CELLS: Final = 1 << 16

Array = NDArray[Any]
Levels = dict[Any, tuple[Array, Array]]

# Primes below 2**31 with roots of unity of a higher order are few.
_MAX_POINTS = 1 << 20
_PRIME_LIMIT = LARGEST_INT32 + 1
# Relative rounding of the floating sweep: 2**-52 for each of up to 2**32 operations on any path.
_SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class CountEstimate(Sums):
    """The number of assignments that no leaf table forbids, as a scaled float.

    ``scale`` is the scale of the costs, None for a probabilistic model.
    """

    network: Network
    scale: CostScale | None
    semiring: Semiring = SUM_PRODUCT

    def algebra(self, sizes: Sequence[int], compiled: bool) -> SumProduct:
        """Return the algebra of scaled tables."""
        return SumProduct(tuple(sizes), compiled)

    def together(self, group: LeafGroup) -> list[Scaled]:
        """Build leaf tables of 0 and 1."""
        if self.scale is None:
            tables = indicator_leaves(self.network, group)
        else:
            tables = cost_leaves(self.network, group, lambda costs: (costs < COST_LIMIT).astype(np.float64))
        return measured_each(group.split(tables))

    def total(self, roots: Sequence[Scaled]) -> float:
        """Return ln of the number of assignments of one slice."""
        return math.fsum(root.log_value() for root in roots)


@dataclass(frozen=True, eq=False)
class CountResidue(Defaults):
    """The generating polynomial modulo one prime at some powers of a root of unity; at 1 it is the plain count.

    Parameters
    ----------
    scale : CostScale or None
        None for a probabilistic model.
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
    scale: CostScale | None
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
        if self.scale is None:
            return self.together(LeafGroup.alone(leaf, axes))[0]
        own = axes if isinstance(axes, ListedCells) else tuple(v for v in axes if v < len(self.network.dims))
        levels, where = self._levels(leaf, own)
        order = len(self.powers)
        values: Array = self.powers[np.multiply.outer(levels // self.unit % order, self.points) % order]
        values[levels >= COST_LIMIT] = 0
        return np.take(values, where, axis=0).reshape(-1)

    def leaves(self, axes: Mapping[int, tuple[int, ...]]) -> dict[int, Array]:
        """Build leaf tables, by node."""
        if self.scale is None:
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
        if key is not None and where.size + sum(known.size for _, known in self.levels.values()) <= _REMEMBERED_CELLS:
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


def spectrum(network: Network, scale: CostScale, total_bound: int, unit: int, used: int) -> Spectrum | None:
    """Return None where no allowed total can reach ``top``, so that every allowed assignment counts.

    Parameters
    ----------
    total_bound : int
        The largest total of the remaining functions that no function forbids by itself.
    unit : int
        A common divisor of their costs.
    used : int
        Cost of the functions that are already fixed.

    Raises
    ------
    ModelError
        If the costs are too fine for this to be feasible.
    """
    if scale.cap is None or total_bound + used < scale.cap:
        return None
    limit = -(-(scale.cap - used) // unit)
    points = total_bound // unit + 1
    if points > _MAX_POINTS:
        raise ModelError(
            f"counting assignments of total cost below top {network.model.top} needs a polynomial of {points} "
            f"coefficients, more than {_MAX_POINTS}: single costs are finite but their sums reach top"
        )
    return Spectrum(unit, points, limit)


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
