"""Bounds and assignments from clusters of variables that shift costs until they agree on what they share.

Where short cycles are closed by pairs, as in grids, single variables can be consistent with every pair and still with
no assignment; clusters that contain the cycles cannot. Often their bound is the optimum, and then the assignment that
is read off them shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from ...cost_networks.cost_network import CostNetwork, States, problem_of, sweeps_at_a_time, tables_of
from ...cost_networks.reparametrisation import DESCENTS
from ..limits import Outcome
from ..prover import SearchProver
from ..prover_policy import ProverPolicy

if TYPE_CHECKING:
    from ....tasks.networks.clusters import Separators
    from ....tasks.networks.flat import Flat, Integers

# Pairs of neighbours of a variable, on average, beyond which there are too many cycles to look for.
_CLUSTER_PAIRS: Final = 64

Group = frozenset[int]


def neighbours_of(n_variables: int, scopes: Iterable[Sequence[int]]) -> list[set[int]]:
    """Return the neighbours of each variable: the variables that share a scope with it."""
    found: list[set[int]] = [set() for _ in range(n_variables)]
    for scope in scopes:
        for v in scope:
            found[v].update(scope)
    for v, near in enumerate(found):
        near.discard(v)
    return found


def short_cycles(n_variables: int, scopes: Sequence[Sequence[int]], most: int) -> list[Group] | None:
    """Return the cycles of three and of four without a chord that no scope contains; None if there are more."""
    near = neighbours_of(n_variables, scopes)
    if sum(len(around) ** 2 for around in near) > 2 * _CLUSTER_PAIRS * n_variables:
        return None
    covered = {frozenset(three) for scope in scopes for three in combinations(scope, 3)}
    found: list[Group] = []
    for u in range(n_variables):
        for cycle in _cycles_from(u, near):
            if len(cycle) == 4 or cycle not in covered:
                found.append(cycle)
        if len(found) > most:
            return None
    return found


def _cycles_from(u: int, near: Sequence[set[int]]) -> Iterator[Group]:
    """Yield the short cycles in which this variable has the lowest number."""
    for a, b in combinations(sorted(v for v in near[u] if v > u), 2):
        if b in near[a]:
            yield frozenset((u, a, b))
        else:
            for w in sorted(near[a] & near[b]):
                if w > u and w not in near[u]:
                    yield frozenset((u, a, w, b))


def clusters(
    dims: Sequence[int], scopes: Sequence[Sequence[int]], cycles: Sequence[Group], cells: int, *, grown: bool
) -> list[Group]:
    """Return a cluster of at most ``cells`` cells around every variable, and the scopes that no cluster contains.

    A cluster takes the cycles through its variable. If ``grown``, it then takes the cycles that need the fewest
    additional variables.
    """
    through: list[list[int]] = [[] for _ in dims]
    for number, cycle in enumerate(cycles):
        for v in cycle:
            through[v].append(number)
    found = (_around(dims, v, cycles, through, cells, grown) for v in range(len(dims)))
    return without_contained([*found, *map(frozenset, scopes)])


def _around(
    dims: Sequence[int],
    v: int,
    cycles: Sequence[Group],
    through: Sequence[Sequence[int]],
    most: int,
    grown: bool,
) -> Group:
    """Make one cluster of cycles, as long as one fits."""
    inside, cells = {v}, dims[v]
    waiting = dict.fromkeys(through[v])
    while waiting:
        more = {c: len(cycles[c] - inside) for c in waiting}
        cycle = min(waiting, key=more.__getitem__)
        del waiting[cycle]
        added = cycles[cycle] - inside
        size = cells * math.prod([dims[u] for u in added])
        if size > most:
            continue
        inside |= added
        cells = size
        if grown:
            waiting.update(dict.fromkeys(c for u in sorted(added) for c in through[u] if not cycles[c] <= inside))
    return frozenset(inside)


def without_contained(groups: Iterable[Group]) -> list[Group]:
    """Return the groups that no other contains, large ones first."""
    kept: list[Group] = []
    holding: dict[int, set[int]] = {}
    for group in sorted(set(groups), key=lambda g: (-len(g), sorted(g))):
        if not set.intersection(*(holding.get(v, set()) for v in group)):
            for v in group:
                holding.setdefault(v, set()).add(len(kept))
            kept.append(group)
    return kept


def separators(groups: Sequence[Group]) -> list[Group]:
    """Return the separators on which clusters must agree so that any two clusters agree on all common variables.

    Shared variables are left out where larger shares connect all clusters that have them.
    """
    holding: dict[int, set[int]] = {}
    for number, group in enumerate(groups):
        for v in group:
            holding.setdefault(v, set()).add(number)
    shared = {group & groups[other] for i, group in enumerate(groups) for other in _beyond(i, group, holding)}
    return [share for share in shared if not _connected(share, groups, holding)]


def _beyond(i: int, group: Group, holding: dict[int, set[int]]) -> set[int]:
    """The clusters of higher numbers that share a variable with one."""
    return {other for v in group for other in holding[v] if other > i}


def _connected(share: Group, groups: Sequence[Group], holding: dict[int, set[int]]) -> bool:
    """Whether all clusters that contain a share are connected by shares that are larger."""
    waiting = set.intersection(*(holding[v] for v in share))
    reached = [waiting.pop()]
    while reached and waiting:
        group = groups[reached.pop()]
        near = [other for other in waiting if len(group & groups[other]) > len(share)]
        reached += near
        waiting.difference_update(near)
    return not waiting


# Networks with more short cycles for a variable have too many clusters.
_CLUSTER_CYCLES: Final = 8
# A mesh has at least this many short cycles for a variable, on average.
_MESH_LEAST_CYCLES: Final = 0.9
# A mesh has at most this many.
_MESH_MOST_CYCLES: Final = 2
# With more variables making the clusters takes seconds.
_CLUSTER_VARIABLES: Final = 10_000
# Sweeps end a round if they raised the bound by less than this fraction of the round's total rise.
_CLUSTER_STALL_SHARE: Final = 1e-5
# Sweeps also end a round if they raised the bound by less than this fraction of the gap for each cell that they
# touched. A cell takes half a nanosecond.
_CLUSTER_GAP_PER_CELL: Final = 1.5e-9
# Sweeps after which an assignment is read off, besides the last.
_CLUSTER_DECODED_SWEEPS: Final = (1, 3, 10)


# Common parts of bounds by shifted costs: the bound so far, the best assignment, the grain of costs.

#: Costs are multiples of a power of two chosen so that totals have this many bits.
_BITS = 40


class ShiftedBounds:
    """A search for bounds that goes on where it was stopped.

    Parameters
    ----------
    network : CostNetwork
    upper : int, optional
        Only totals below it interest.

    Attributes
    ----------
    memory_bytes
        Limit of the held memory.
    lower : int
        No total is below it, or below the cut-off.
    total, states : optional
        The best assignment that it found.
    done, hopeless : bool
        Whether the proof is complete; whether going on would not help, or what it takes does not fit.
    """

    def __init__(self, network: CostNetwork, upper: int | None) -> None:
        self.network, self.upper = network, upper
        self.memory_bytes: float = 0
        self.lower = network.least
        self.total: int | None = None
        self.states: States | None = None
        self.done = self.hopeless = False

    def learn(self, upper: int | None) -> None:
        """Search only below ``upper`` from now on."""
        if upper is not None and (self.upper is None or upper < self.upper):
            self.upper = upper

    def _outcome(self) -> Outcome:
        """Return the present outcome."""
        if self.done and (self.total is None or (self.upper is not None and self.upper < self.total)):
            return Outcome(self.lower, feasible=False)
        return Outcome(self.lower, self.total, self.states)

    def _heard(self, bound: float) -> None:
        """Take a bound, infinite if nothing is left below the cut-off."""
        if bound == math.inf:
            self.lower, self.done = self.lower if self.upper is None else max(self.lower, self.upper), True
        else:
            self.lower = max(self.lower, math.ceil(bound))
            self.done = self.upper is not None and self.lower >= self.upper

    def offer(self, states: Integers, on_states: Callable[[States], None]) -> bool:
        """Improve an assignment that was read off, one variable at a time; return whether it is the best so far."""
        better = _improved(self.network, states)
        total = self.network.total(better)
        if total >= (math.inf if self.upper is None else self.upper):
            return False
        self.total, self.states, self.upper = int(total), better, int(total)
        on_states(better)
        return True


def _improved(network: CostNetwork, states: Integers) -> States:
    """Improve an assignment one variable at a time, with all others as they are."""
    from ....tasks.networks import srmp

    flat, order = problem_of(network.dims, network.tables, 0.0).flat, np.arange(len(network.dims))
    for way in (order[::-1].copy(), order) * DESCENTS:
        before = states.copy()
        srmp.decode(flat, way, states)
        if (states == before).all():
            break
    return tuple(states.tolist())


def grain_of(network: CostNetwork, upper: int | None) -> float:
    """The power of two that shares of costs are multiples of."""
    most = network.constant + greatest(network)
    most = most if upper is None else min(most, upper)
    return float(2.0 ** -max(0, _BITS - int(max(most - network.least, 0)).bit_length()))


def greatest(network: CostNetwork) -> float:
    """Return an upper limit of the cost of an allowed assignment."""
    tables = (np.where(np.isfinite(table.costs), table.costs, 0.0) for table in network.tables)
    return math.fsum(float(costs.max(initial=0.0)) for costs in tables)


#: Bytes for each cell of a cluster: its cost, twice while clusters are made, and its entries in a few separators.
_CELL_BYTES = 40


def is_mesh(network: CostNetwork) -> bool:
    """Whether there is about a short cycle for each variable, as in a grid: pairs say little there, clusters much."""
    n, scopes = len(network.dims), [s for s in network.scopes if len(s) > 1]
    cycles = short_cycles(n, scopes, _MESH_MOST_CYCLES * n) if n <= _CLUSTER_VARIABLES else None
    return cycles is not None and len(cycles) >= _MESH_LEAST_CYCLES * n


class ClusterBounds(ShiftedBounds):
    """A search for bounds that goes on where it was stopped, with ever larger clusters."""

    def __init__(self, network: CostNetwork, upper: int | None) -> None:
        super().__init__(network, upper)
        self._sizes, self._shifted, self._constant = (
            [*ProverPolicy.current().cluster_cells],
            network,
            float(network.constant),
        )
        self._sharpened: CostNetwork | None = None
        self._grain = 0.0
        self._cycles: Sequence[Group] | None = None
        self._sweeps: _Sweeps | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that are held between two runs."""
        kept = {id(network): network for network in (self._shifted, self._sharpened) if network is not None}
        kept.pop(id(self.network), None)
        swept = 0 if self._sweeps is None else self._sweeps.nbytes
        return swept + sum(8 * network.cells for network in kept.values())

    @property
    def small(self) -> bool:
        """Whether the smallest clusters are being swept."""
        return self._sweeps is not None and len(self._sizes) == len(ProverPolicy.current().cluster_cells)

    @property
    def sharpened(self) -> CostNetwork | None:
        """The network with the costs that the smallest clusters shifted, if those are whole, and made a difference."""
        if self._sweeps is not None and self.small:
            self._sharpened = replace(self._sweeps.shifted(), constant=int(self._sweeps.constant))
        if self._sharpened is None or self._grain < 1.0 or not self._sharper:
            return None
        return replace(self._sharpened, made=self.network.made)

    def rest(self) -> None:
        """Give up what the next run can make again."""
        self._sweeps = None
        if self.hopeless:
            self._shifted, self._constant = self.network, float(self.network.constant)

    @property
    def _sharper(self) -> bool:
        """Whether clusters closed much of the gap."""
        first = self.network.least
        return self.upper is None or self.lower - first >= ProverPolicy.current().cluster_gap_share * (
            self.upper - first
        )

    def run(
        self,
        stop: Callable[[], bool],
        on_bounds: Callable[[int, int | None], None],
        on_states: Callable[[States], None],
    ) -> Outcome:
        """Continue until the proof is complete, larger clusters are needed, or ``stop`` says so."""
        self.hopeless = not self.done and self._sweeps is None and not self._begin()
        while not (self.done or self._sweeps is None or stop()):
            self._step(on_states)
            on_bounds(self.lower, self.total)
        return self._outcome()

    def _begin(self) -> bool:
        """Make the clusters of the next size; return whether there are any, and room for them."""
        policy = ProverPolicy.current()
        dims, scopes = self.network.dims, [s for s in self._shifted.scopes if len(s) > 1]
        if self._cycles is None:
            few = len(dims) <= _CLUSTER_VARIABLES
            self._cycles = (short_cycles(len(dims), scopes, _CLUSTER_CYCLES * len(dims)) if few else None) or ()
        sizes = [math.prod([dims[v] for v in cycle]) for cycle in self._cycles]
        while self._sizes and 2 * sum(size <= self._sizes[0] for size in sizes) < len(sizes):
            del self._sizes[0]
        if not sizes or not self._sizes:
            return False
        groups = clusters(
            dims, scopes, self._cycles, self._sizes[0], grown=len(self._sizes) < len(policy.cluster_cells)
        )
        if _CELL_BYTES * sum(math.prod([dims[v] for v in group]) for group in groups) > self.memory_bytes:
            return False
        if self._grain == 0.0:
            self._grain = grain_of(self.network, self.upper)
        self._sweeps = _Sweeps(self._shifted, self._constant, groups, self._grain)
        self._hear_sweeps(self._sweeps)
        return True

    def _hear_sweeps(self, sweeps: _Sweeps) -> None:
        """Take the bound of clusters, which are of no use to anyone if one of them forbids everything."""
        self._heard(sweeps.constant)
        if sweeps.constant == math.inf:
            self._sweeps = None

    def _step(self, on_states: Callable[[States], None]) -> None:
        """Sweep a few times; larger clusters are next once that raises the bound too little."""
        sweeps = self._sweeps
        assert sweeps is not None
        sweeps.step(self.upper)
        self._hear_sweeps(sweeps)
        if self._sweeps is None:
            return
        stalled = sweeps.stalled(self.upper)
        if stalled or sweeps.chunks in _CLUSTER_DECODED_SWEEPS or self.done:
            stalled &= not self.offer(sweeps.decoded(), on_states)
            self._heard(sweeps.constant)
        if stalled and not self.done:
            self._sizes = self._sizes[1:] if self._sharper else []
            self._shifted, self._constant, self._sweeps = sweeps.shifted(), sweeps.constant, None
            self._sharpened = self._sharpened or replace(self._shifted, constant=int(sweeps.constant))


class EveryClusterBounds(ClusterBounds):
    """The same for enumerating every assignment below the pruning value, which found assignments do not lower."""

    def offer(self, states: Integers, on_states: Callable[[States], None]) -> bool:
        """Take nothing; a search of the sharpened network finds all."""
        return False


class _Sweeps:
    """Clusters of one size, and the costs that were shifted to them."""

    def __init__(self, network: CostNetwork, constant: float, groups: Sequence[Group], grain: float) -> None:
        from ....tasks.networks.clusters import separators_of
        from ....tasks.networks.flat import take_out

        self.dims, self.grain = network.dims, grain
        self.most = constant + greatest(network)
        self.flat = _joined(network, groups)
        scopes = sorted((sorted(group) for group in separators(groups)), key=lambda scope: (scope[-1], scope))
        self.separators: Separators = separators_of(self.flat, scopes)
        self.held = np.zeros(int(self.separators.first[-1]))
        self.constant = self.before = self.start = constant + take_out(self.flat)
        self.chunks = 0
        self.work = 2 * int((np.diff(self.flat.cells)[self.separators.table]).sum())
        self.count = sweeps_at_a_time(self.work)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in (*self.flat, *self.separators, self.held))

    def step(self, upper: int | None) -> None:
        """Sweep a few times."""
        from ....tasks.networks import clusters as agreement

        most = self.most if upper is None else min(self.most, upper - 1)
        self.chunks += 1
        self.before = self.constant
        self.constant = agreement.sweep(
            self.flat, self.separators, self.held, self.grain, self.constant, float(most), self.count
        )

    def stalled(self, upper: int | None) -> bool:
        """Whether the last sweeps raised the bound too little to go on."""
        gap = 0.0 if upper is None else _CLUSTER_GAP_PER_CELL * self.work * self.count * (upper - self.constant)
        return self.constant - self.before <= max(_CLUSTER_STALL_SHARE * (self.constant - self.start), gap)

    def settle(self) -> None:
        """Put all costs into the tables."""
        from ....tasks.networks import clusters as agreement

        agreement.settle(self.flat, self.separators, self.held, math.inf)

    def decoded(self) -> Integers:
        """Read an assignment off."""
        from ....tasks.networks import srmp

        self.settle()
        order = np.arange(len(self.flat.first) - 1)
        states: Integers = np.full(len(order), -1, np.int64)
        srmp.decode(self.flat, order, states)
        return states

    def shifted(self) -> CostNetwork:
        """Return the clusters as functions, without the constant; their costs are multiples of the grain."""
        self.settle()
        return CostNetwork(self.dims, tables_of(self.flat))


def _joined(network: CostNetwork, groups: Sequence[Group]) -> Flat:
    """Return the clusters as tables, each function added to one of them."""
    from ....tasks.networks.flat import flatten

    dims = np.array(network.dims, np.int64)
    scopes = [tuple(sorted(group)) for group in groups]
    holding: dict[int, set[int]] = {}
    for number, scope in enumerate(scopes):
        for v in scope:
            holding.setdefault(v, set()).add(number)
    tables = [np.zeros([network.dims[v] for v in scope]) for scope in scopes]
    for table in network.tables:
        hosts = set.intersection(*(holding[v] for v in table.scope))
        host = min(hosts, key=lambda g: (tables[g].size, g))
        axes = sorted(table.scope)
        costs = table.costs.transpose([table.scope.index(v) for v in axes])
        tables[host] += costs.reshape([network.dims[v] if v in axes else 1 for v in scopes[host]])
    costs = np.concatenate([table.reshape(-1) for table in tables])
    arities = np.array([len(scope) for scope in scopes], np.int64)
    return flatten(dims, np.zeros(int(dims.sum())), costs, arities, np.concatenate([np.array(s) for s in scopes]))


class ClusterProver(SearchProver[ClusterBounds]):
    """Goes on with clusters of the size of the last turn, then with larger ones."""

    def lay_out(self) -> ClusterBounds:
        """Begin with the smallest clusters; others may have the costs that they shift."""
        known = self.incumbent
        known.sharper = bounds = ClusterBounds(known.small, known.upper)
        return bounds

    def leave_memory(self, search: ClusterBounds) -> None:
        """Let go of clusters that can be made again."""
        if self.hopeless or self.incumbent.is_much(search):
            search.rest()

    def forget(self) -> None:
        """Begin anew, with the smallest clusters."""
        super().forget()
        self.incumbent.sharper = None
