"""Bounds on the answers of queries, one elimination after another: the improvement by each elimination."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field

from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.gpu.cold_kernels import AVOIDED_START
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import OUTWARD_SHARE, ordered_sum
from ...tasks.steps.semiring import LOG_SUM, MIN_PLUS, Semiring
from ..cost_networks.cost_network import CostTable, States, Units, cost_network
from ..cost_networks.preparation import prepare
from ..preprocessing.leaf_tables import energy_leaves, in_scopes
from ..preprocessing.preprocess import Leaf, Network
from .bucket_elimination import MessageWorkers, Name, WorkerPool
from .joins import BucketTable, Joins, ordered, runs_on_cores
from .least_costs import eliminate, greedy_states
from .log_sums import log_sum_bounds
from .message_boxes import Boxing
from .partition import Partition
from .run_boxes import Found, Spilling, least_total, log_sum

Stop = Callable[[], bool]


@dataclass(frozen=True)
class RoundMeans:
    """Resources of an elimination: threads, the GPU for joins of at least ``device_cells`` cells, and workers.

    ``pool_of`` returns the pool of workers for an elimination, or None if this process computes the messages.
    ``on_cores`` collects the eliminations that do not use the GPU because its kernels are not compiled.
    """

    threads: int = 1
    device_cells: int | None = None
    pool_of: Callable[[Partition], WorkerPool | None] = lambda _: None
    on_cores: list[Partition] = field(default_factory=list, compare=False)

    @contextmanager
    def placed(self, split: Partition, semiring: Semiring) -> Iterator[int | None]:
        """Yield the minimum cells of joins on the GPU for an elimination; None if the cores end before the compilation.

        In this case the seconds of the block count towards compiling.
        """
        least = self.device_cells
        here = least is not None and runs_on_cores(split, semiring, least)
        if here:
            self.on_cores.append(split)
        with AVOIDED_START.counted(here):
            yield None if here else least

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about eliminations that did not use the GPU."""
        why = "eliminations ran on the CPU, because this takes less time than compiling the kernels of a device"
        return (f"{len(self.on_cores):,} {why}",) if self.on_cores else ()

    def workers(self, split: Partition, name: Name) -> MessageWorkers | None:
        """Return the workers for an elimination, if it pays to use them."""
        pool = self.pool_of(split)
        return None if pool is None else MessageWorkers(pool, name)

    def joins(self, semiring: Semiring, boxing: Boxing, device_cells: int | None) -> Joins:
        """How tables are joined in boxes."""
        compiled = compiler_pays(boxing.split.cells)
        return Joins(boxing.split.dims, semiring, self.threads, compiled, device_cells)


class OptimumBounds:
    """Bounds on the least total of a network, and the best assignment found.

    Attributes
    ----------
    lower : int
        No assignment that is allowed has a smaller total.
    cutoff : int or None
        Only smaller totals interest: just above the next below the best, or below the least that is forbidden.
    total, states : optional
        The best assignment, in the network's variables.
    costs : CostNetwork
        The costs that mini-buckets work on.
    possible : bool
        False once it is proved that everything is forbidden.
    """

    def __init__(self, network: Network, forbidden: int | None, means: RoundMeans) -> None:
        """Start from the least costs of all functions; true costs of ``forbidden`` or more are not allowed."""
        self.means, self._network = means, network
        self.units: Units
        self.given, self.units = cost_network(network)
        self.costs = self.given
        above = None if forbidden is None else self.units.above_total(forbidden - 1)
        self.cutoff = None if above is None else self.given.totals.cut_off(above)
        self.lower = self.costs.constant
        self.total: int | None = None
        self.states: States | None = None
        self.possible = True

    @property
    def closed(self) -> bool:
        """Whether nothing is left to find."""
        return not self.possible or (self.states is not None and self.cutoff is not None and self.cutoff <= self.lower)

    def name(self, v: int) -> str:
        """Return the name of a variable of the costs; variables of the prepared costs have numbers only."""
        return variable_name(self._network, v) if self.costs is self.given else f"v{v}"

    def prepare(self, stop: Stop) -> None:
        """Make the network smaller and shift its costs, which raises the bound."""
        found = prepare(self.given, self.cutoff, stop=stop)
        self.costs = found.network
        if found.states is not None:
            self._take(found.states)
        self.possible = found.feasible or self.states is not None
        if found.feasible:
            self._raise(found.lower)
        elif self.cutoff is not None:
            self._raise(self.cutoff)

    def attempt(
        self, split: Partition, keep: bool, stop: Stop | None, spilling: Spilling | None = None
    ) -> Found | None:
        """Eliminate once, and decode if tables may be kept or are on disk; return None if it was stopped.

        Several threads may do so at the same time; `take` takes over their results afterwards.
        """
        return self._in_memory(split, keep, stop) if spilling is None else self._on_disk(spilling, stop)

    def take(self, found: Found) -> None:
        """Take over the result of an elimination. It also holds for a smaller pruning value than it began with."""
        self.learn(found.lower, found.states, found.feasible)

    def learn(self, lower: int, states: States | None, feasible: bool) -> None:
        """Take over a bound on the prepared costs, an assignment of them, and whether an assignment is below the
        pruning value.
        """
        self.possible = feasible or self.states is not None
        self._raise(lower)
        if states is not None:
            self._take(self.costs.restored(states))

    def _raise(self, lower: int) -> None:
        """Take over a bound, which holds for totals below the pruning value; the next possible total is a bound too."""
        lower = lower if self.cutoff is None else min(lower, self.cutoff)
        self.lower = max(self.lower, self.given.totals.at_least(lower))

    def _in_memory(self, split: Partition, keep: bool, stop: Stop | None) -> Found | None:
        with self.means.placed(split, MIN_PLUS) as device_cells:
            found = eliminate(
                self.costs,
                split,
                upper=self.cutoff,
                keep=keep,
                threads=self.means.threads,
                compiled=compiler_pays(split.cells),
                device_cells=device_cells,
                stop=stop,
                workers=self.means.workers(split, self.name),
            )
        if found is None:
            return None
        states = greedy_states(found, self.costs.dims) if keep and found.feasible else None
        return Found(found.lower, found.feasible, states)

    def _on_disk(self, spilling: Spilling, stop: Stop | None) -> Found | None:
        with self.means.placed(spilling.boxing.split, MIN_PLUS) as device_cells:
            joins = self.means.joins(MIN_PLUS, spilling.boxing, device_cells)
            return least_total(self.costs, spilling, self.cutoff, joins=joins, stop=stop or bool)

    def _take(self, states: States) -> None:
        """Remember an assignment if it is better than what is known."""
        total = self.given.total(states)
        if total < math.inf and (self.cutoff is None or total < self.cutoff):
            self.total, self.states = int(total), states
            self.cutoff = self.given.totals.cut_off(self.total)

    def least_cost(self) -> int | float:
        """No allowed assignment costs less; rounded downwards."""
        return self.units.at_least(self.lower)


@dataclass(frozen=True)
class FoundSum:
    """Natural logarithms that bound a sum, and what was found of its largest product, where that was looked for."""

    lower: float
    upper: float
    best: Found | None


class SumBounds:
    """Bounds on the logarithm of a sum of products over all assignments.

    Attributes
    ----------
    lower, upper : float
        Natural logarithms. The lower bound is at least the value of the best assignment found.
    """

    def __init__(self, network: Network, means: RoundMeans) -> None:
        leaves = zip(network.scopes, in_scopes(network, energy_leaves), strict=True)
        self.tables = [CostTable(scope, -energies) for scope, energies in leaves]
        self.best = OptimumBounds(network, None, means)
        self.means, self._network = means, network
        self.lower, self.upper = -math.inf, math.inf
        self.slack = OUTWARD_SHARE * ordered_sum(_logarithms_size(network, leaf) for leaf in network.leaves)

    def name(self, v: int) -> str:
        """Return the name of a variable."""
        return variable_name(self._network, v)

    @property
    def closed(self) -> bool:
        """Whether nothing is possible."""
        return self.upper == -math.inf

    def attempt(
        self, split: Partition, keep: bool, stop: Stop | None, spilling: Spilling | None = None
    ) -> FoundSum | None:
        """Eliminate once, and look for a good assignment; return None if it was stopped."""
        found = self._bounds(split, stop, spilling)
        if found is None:
            return None
        decodes = (keep or spilling is not None) and not split.exact
        return FoundSum(*found, self.best.attempt(split, keep, stop, spilling) if decodes else None)

    def take(self, found: FoundSum) -> None:
        """Take over the result of an elimination."""
        self.lower = max(self.lower, found.lower - self.slack)
        self.upper = min(self.upper, found.upper + self.slack)
        if found.best is not None:
            self.best.take(found.best)
            if self.best.states is not None:
                self.lower = max(self.lower, -self._energy())

    def _bounds(self, split: Partition, stop: Stop | None, spilling: Spilling | None) -> tuple[float, float] | None:
        tables = [BucketTable(s, ordered(t, s)) for t, s in zip(self.tables, split.scopes, strict=False)]
        means = self.means
        with means.placed(split, LOG_SUM) as device_cells:
            if spilling is not None:
                joins = means.joins(LOG_SUM, spilling.boxing, device_cells)
                return log_sum(tables, spilling, joins=joins, stop=stop or bool)
            workers = means.workers(split, self.name)
            return log_sum_bounds(
                tables, split, threads=means.threads, device_cells=device_cells, stop=stop, workers=workers
            )

    def _energy(self) -> float:
        """Return the energy of the best assignment, rounded upwards."""
        assert self.best.total is not None
        units = self.best.units
        energy = units.base + units.unit * (self.best.total + units.above)
        return energy + OUTWARD_SHARE * abs(energy)


def variable_name(network: Network, v: int) -> str:
    """Return the name of a variable of a network."""
    return network.model.names[network.variables[v]]


def _logarithms_size(network: Network, leaf: Leaf) -> float:
    """Return how large the logarithms are that a leaf's table adds up, for each addition."""
    functions = [network.model.functions[f] for f in leaf.functions]
    return len(functions) * ordered_sum(max(abs(math.log(p)) for p in function.positive) for function in functions)
