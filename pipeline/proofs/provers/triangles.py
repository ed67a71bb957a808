"""Bounds from triangles: three variables, each pair with a function, shift costs until they agree on the pairs.

Triangles often give good bounds if single variables and pairs give none, as in radio-link problems. The number of
triangles grows with the degree, not with the domains: their costs are never stored as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ....tasks.steps.number_limits import EXACT_INTEGER
from ...cost_networks.cost_network import SWEEPS, CostNetwork, CostTable, States, problem_of, sweeps_at_a_time
from ..limits import Outcome
from ..prover import SearchProver
from ..prover_policy import NOTABLE_SHARE, ProverPolicy
from .clusters import ShiftedBounds, grain_of, greatest

if TYPE_CHECKING:
    from ....tasks.networks.flat import Integers
    from ....tasks.networks.triangles import Triangles

# With more triangles laying them out takes seconds.
_MOST_TRIANGLES: Final = 100_000
# Sweeps are the last if they raised the bound by less than this part of the gap for each sum that they made.
_TRIANGLE_GAP_PER_SUM: Final = 1e-12
# Assignments are decoded, and values forbidden by single variables, after this many times the work of the last
# time.
_TRIANGLE_LOOK_RATIO: Final = 1.5

#: Limit of held values, in grains, so that sums and differences are exact.
_EXACT = EXACT_INTEGER / 4
#: Bytes for each entry that is held, which leaves as much to others; for each triangle; for each cell of a function,
#: which is there three times while single variables have their turn.
_ENTRY_BYTES, _TRIANGLE_BYTES, _CELL_BYTES = 16, 500, 32


Sides = tuple[int, int, int]
"""Three functions, of the variables ``i < j``, ``i < k`` and ``j < k``."""


class TriangleBounds(ShiftedBounds):
    """Sweeps over the triangles of a network that go on where they were stopped."""

    def __init__(self, network: CostNetwork, upper: int | None) -> None:
        super().__init__(network, upper)
        self._held: _Held | None = None
        self._next_look = self._spent = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes that are held between two runs."""
        return 0 if self._held is None else self._held.nbytes

    def rest(self) -> None:
        """Give up what is held."""
        self._held = None

    def narrowed(self) -> CostNetwork | None:
        """Return the network without the entries that no total below the cut-off has, if these are many."""
        return None if self._held is None or self._held.forbidden < NOTABLE_SHARE else self._held.narrowed()

    def run(
        self,
        stop: Callable[[], bool],
        on_bounds: Callable[[int, int | None], None],
        on_states: Callable[[States], None],
    ) -> Outcome:
        """Continue until the proof is complete, the bound stalls, or ``stop`` says so."""
        if self._held is None and not self.done:
            self._held = _held(self.network, self.upper, self.memory_bytes)
            self.hopeless = self._held is None
        while not (self.done or self.hopeless or stop()):
            self._step(on_states)
            on_bounds(self.lower, self.total)
        return self._outcome()

    def _step(self, on_states: Callable[[States], None]) -> None:
        """Sweep a few times, and look at what that brought now and then."""
        held = self._held
        assert held is not None
        before = held.constant
        held.sweep(self.upper)
        self._spent += held.work
        gap = 0.0 if self.upper is None else self.upper - held.constant
        self.hopeless = held.constant - before <= _TRIANGLE_GAP_PER_SUM * held.work * gap or not held.exact
        if held.constant < math.inf and (self.hopeless or self._spent >= self._next_look):
            self._next_look = _TRIANGLE_LOOK_RATIO * self._spent
            self._look(held, on_states)
        self._heard(held.constant)

    def _look(self, held: _Held, on_states: Callable[[States], None]) -> None:
        """Hear what single variables say, and read an assignment off."""
        self._heard(held.single(self.upper))
        if self.done:
            return
        self.offer(held.decoded(), on_states)


class _Held:
    """The functions of a network, and the costs that its triangles hold."""

    def __init__(self, network: CostNetwork, sides: list[Sides], most: float, grain: float) -> None:
        from ....tasks.networks.flat import offsets, take_out
        from ....tasks.networks.reparametrise import Loops
        from ....tasks.networks.triangles import held_cells, triangles_of

        self.network, self.most, self.grain = network, most, grain
        problem = problem_of(network.dims, network.tables, network.constant)
        flat = self.flat = problem.flat
        self.triangles: Triangles = triangles_of(flat, sides)
        self._allowed = int(np.count_nonzero(flat.costs < math.inf))
        self.costs = np.zeros(held_cells(flat, sides))
        self.constant = problem.constant + take_out(flat)
        self.order = np.arange(len(flat.first) - 1)
        edges = flat.edges[:-1]
        least, largest = np.minimum.reduceat(flat.scope, edges), np.maximum.reduceat(flat.scope, edges)
        ends = np.stack([flat.scope == bound[flat.function] for bound in (least, largest)])
        self.loops = Loops(flat, self.order, ends, offsets(flat.dims[flat.scope]))
        sums = np.sqrt(np.prod(np.diff(flat.cells)[self.triangles.sides].astype(np.float64), axis=1))
        self.sums = 3 * int(sums.sum())
        # compiled loops make five sums in the time of a cell
        self.count = sweeps_at_a_time(self.sums / 5)
        self.work = self.sums * self.count

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in (*self.flat, *self.triangles, self.costs))

    @property
    def exact(self) -> bool:
        """Whether everything that is held is small enough for exact sums."""
        largest = np.max(self.costs, where=self.costs < math.inf, initial=0.0)
        return bool(max(largest, -self.costs.min(initial=0.0)) < _EXACT * self.grain)

    @property
    def forbidden(self) -> float:
        """The part of the entries that were forbidden."""
        return (self._allowed - int(np.count_nonzero(self.flat.costs < math.inf))) / max(self._allowed, 1)

    def limit(self, upper: int | None) -> float:
        """Totals above it do not interest."""
        return float(self.most if upper is None else min(self.most, upper - 1))

    def sweep(self, upper: int | None) -> None:
        """Sweep a few times."""
        from ....tasks.networks import triangles

        self.constant = triangles.sweep(
            self.flat, self.triangles, self.costs, self.grain, self.constant, self.limit(upper), self.count
        )

    def single(self, upper: int | None) -> float:
        """Return the bound of single variables on the pairs' costs, and forbid values that then exceed the limit."""
        flat = self.flat
        trial = flat._replace(unary=flat.unary.copy(), costs=flat.costs.copy())
        none, limit = np.zeros(0), self.limit(upper)
        bound, *_ = self.loops.sweep(trial, none, self.grain, self.constant, limit, SWEEPS)
        if bound < math.inf:
            self.loops.forbid_tuples(trial, limit - bound)
            flat.unary[np.isinf(trial.unary)] = math.inf
            flat.costs[np.isinf(trial.costs)] = math.inf
        return float(bound)

    def decoded(self) -> Integers:
        """Read an assignment off."""
        states: Integers = np.full(len(self.order), -1, np.int64)
        self.loops.decode(self.flat, self.order, states)
        return states

    def narrowed(self) -> CostNetwork:
        """Return the network without what was forbidden."""
        flat, dims, tables = self.flat, self.network.dims, []
        larger = [table for table in self.network.tables if len(table.scope) > 1]
        for f, table in enumerate(larger):
            left = flat.costs[flat.cells[f] : flat.cells[f + 1]].reshape(table.costs.shape)
            tables.append(replace(table, costs=np.where(left < math.inf, table.costs, math.inf)))
        for x in range(len(dims)):
            left = flat.unary[flat.first[x] : flat.first[x + 1]]
            tables.append(CostTable((x,), np.where(left < math.inf, 0.0, math.inf)))
        own = [table for table in self.network.tables if len(table.scope) == 1]
        return replace(self.network, tables=(*tables, *own))


def _held(network: CostNetwork, upper: int | None, memory_bytes: float) -> _Held | None:
    """Lay out a network with its triangles; None if there are none, too many, or no room."""
    network = _ascending(network)
    sides, needed = list[Sides](), _CELL_BYTES * network.cells
    for triangle in _triangles(network):
        sides.append(triangle)
        needed += _TRIANGLE_BYTES + _ENTRY_BYTES * sum(network.tables[f].costs.size for f in triangle)
        if len(sides) > _MOST_TRIANGLES or needed > memory_bytes:
            return None
    most = network.constant + greatest(network)
    return _Held(network, sides, most, grain_of(network, upper)) if sides else None


def _ascending(network: CostNetwork) -> CostNetwork:
    """Return the network with one function a pair, in the order of their variables, before all others."""
    pairs: dict[tuple[int, ...], CostTable] = {}
    others = []
    for table in network.tables:
        if len(table.scope) != 2:
            others.append(table)
            continue
        scope = tuple(sorted(table.scope))
        costs = table.costs if table.scope == scope else table.costs.T
        pairs[scope] = CostTable(scope, costs + pairs[scope].costs if scope in pairs else costs)
    return replace(network, tables=(*(pairs[scope] for scope in sorted(pairs)), *others))


def _triangles(network: CostNetwork) -> Iterator[Sides]:
    """The triangles of a network whose functions of pairs are in order."""
    number = {table.scope: f for f, table in enumerate(network.tables) if len(table.scope) == 2}
    above: list[set[int]] = [set() for _ in network.dims]
    for i, j in number:
        above[i].add(j)
    for i, j in number:
        for k in sorted(above[i] & above[j]):
            yield number[i, j], number[i, k], number[j, k]


class TriangleProver(SearchProver[TriangleBounds]):
    """Goes on with triangles, while that pays."""

    def lay_out(self) -> TriangleBounds:
        """Begin to sweep."""
        return TriangleBounds(self.incumbent.small, self.incumbent.upper)

    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        """Go on to sweep, in turns that are long enough."""
        policy = ProverPolicy.current()
        known = self.incumbent
        if seconds < policy.late_from_seconds:
            return None
        before = known.lower, known.upper
        outcome = super().turn(seconds, out_of_time)
        if outcome is not None:
            known.raise_lower(outcome.lower)
        self.hopeless |= known.closed_since(*before) < NOTABLE_SHARE
        return outcome

    def narrowed(self) -> CostNetwork | None:
        """Return the network without what triangles forbade, if that is much."""
        search, self.search = self.search, None
        return None if search is None else search.narrowed()
