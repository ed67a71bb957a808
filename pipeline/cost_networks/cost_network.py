"""A network of integer costs in float64: the input of bounds, diagrams, rows and searches.

float64 holds integers up to 2**53 exactly, and has an infinity for forbidden entries. Kernels therefore need no test
for overflow, and every bound is a sum of integers: a proof. Costs of a cost network are used unchanged. Energies ``-ln
p`` are rounded down to multiples of a unit that is finer than their own rounding errors.

During preparation the network is a :class:`NetworkProblem`: its arrays, the removed parts, and what restores the states
of removed variables.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import ordered_sum
from ..errors import BudgetError, format_bytes
from ..models.model import FORBIDDEN, Function, Model
from ..preprocessing.leaf_groups import LeafGroup
from ..preprocessing.leaf_tables import COST_LIMIT, cost_leaves, cost_scale, energy_leaves, in_scopes
from ..preprocessing.preprocess import Network

if TYPE_CHECKING:
    from ...tasks.networks.flat import Flat


Costs = NDArray[np.float64]
States = tuple[int, ...]

Restore = Callable[[States], States]
"""Turns states of a smaller network's variables into states of the variables it was made from."""

#: Number of copies of the network's tables during preparation, at 8 bytes per cell.
COPIES = 8
#: Totals stay below this, so that a few of them still add up exactly.
LARGEST = 1 << 50
# Cut-offs farther from 0 say no more, and are too large for compiled code and floats.
_FARTHEST = 1 << 58


@dataclass(frozen=True)
class Totals:
    """Which totals assignments can have, if they are not forbidden: ``first``, and from there in steps of ``step``."""

    first: int
    step: int

    def at_least(self, bound: int) -> int:
        """Return the least of them that is not below a bound."""
        return bound + (self.first - bound) % self.step

    def cut_off(self, upper: int) -> int:
        """Return the least cut-off below which there are the same of them as below ``upper``."""
        return self.at_least(upper) - self.step + 1


@dataclass(frozen=True, eq=False)
class CostTable:
    """One function: ``costs`` has an axis a variable of ``scope``, C-ordered; integers in float64, inf = forbidden."""

    scope: tuple[int, ...]
    costs: Costs


@dataclass(frozen=True, eq=False)
class CostNetwork:
    """Functions that add up, over variables 0, 1, …

    Parameters
    ----------
    dims : tuple of int
        Domain sizes.
    tables : tuple of CostTable
        Scopes are of distinct variables, not empty.
    constant : int
        Added to every assignment's total.
    made : tuple of Restore
        How the network was made smaller, oldest first; see :meth:`restored`.
    """

    dims: tuple[int, ...]
    tables: tuple[CostTable, ...]
    constant: int = 0
    made: tuple[Restore, ...] = ()

    @cached_property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Scopes of the tables."""
        return tuple(table.scope for table in self.tables)

    @cached_property
    def least(self) -> int:
        """A total that none is below: the sum of the tables' least entries that are allowed."""
        if not self.tables:
            return self.constant
        sizes = np.array([table.costs.size for table in self.tables], np.intp)
        entries = np.concatenate([table.costs.reshape(-1) for table in self.tables])
        least = np.minimum.reduceat(entries, np.cumsum(sizes) - sizes)
        return self.constant + int(math.fsum(least[least < math.inf]))

    @cached_property
    def totals(self) -> Totals:
        """Return the possible totals: tables add multiples of a common divisor to their least entries."""
        step = 0
        for table in self.tables:
            step = step if step == 1 else _common_divisor(step, table.costs)
        return Totals(self.least, max(step, 1))

    @property
    def cells(self) -> int:
        """Entries of all tables."""
        return sum(table.costs.size for table in self.tables)

    def total(self, states: Sequence[int]) -> float:
        """Return the total of a full assignment; inf if it is forbidden."""
        return self.constant + ordered_sum([t.costs.item(*[states[v] for v in t.scope]) for t in self.tables])

    def restored(self, states: States) -> States:
        """Turn states of the present variables into states of the first network's variables."""
        for restore in reversed(self.made):
            states = restore(states)
        return states

    def smaller(
        self, dims: tuple[int, ...], tables: tuple[CostTable, ...], constant: int, restore: Restore
    ) -> CostNetwork:
        """Return a network that stands for this one; ``restore`` turns its states into states of this one."""
        return CostNetwork(dims, tables, constant, (*self.made, restore))


@dataclass(frozen=True)
class Units:
    """The meaning of a cost network's integers: a total ``t`` stands for costs near ``base + unit * t``.

    Parameters
    ----------
    base : int or float
        Cost, or energy, of total 0.
    unit : int or float
        A power of two; 1 for the costs of a cost network unless they are too large.
    below, above : int
        The true cost of an assignment of total ``t`` lies within ``t - below`` and ``t + above`` units.
    """

    base: int | float
    unit: int | float = 1
    below: int = 0
    above: int = 0

    @property
    def exact(self) -> bool:
        """Whether totals are the costs themselves."""
        return self.below == self.above == 0

    def at_least(self, total: int) -> int | float:
        """Return a cost that no assignment of this total or a larger one is below; energies are rounded downwards."""
        value = self.base + self.unit * (total - self.below)
        return value if isinstance(value, int) else math.nextafter(value, -math.inf)

    def above_total(self, cost: int | float) -> int:
        """Return the least total that only assignments dearer than ``cost`` can have, for the cut-off of a search."""
        difference = cost - self.base
        if abs(difference) >= _FARTHEST * self.unit:
            return _FARTHEST if difference > 0 else -_FARTHEST
        if self.exact:
            return int(cost) - int(self.base) + 1
        return math.floor(difference / self.unit) + self.below + 2


def _common_divisor(divisor: int, costs: Costs) -> int:
    """Return the greatest divisor of ``divisor`` and of the differences of all entries from the least."""
    left = costs[np.isfinite(costs)]
    left -= left.min(initial=math.inf)
    while left.size and divisor != 1:
        divisor = math.gcd(divisor, int(left[0]))
        left = left[np.fmod(left, divisor) != 0] if divisor else left[left != 0]
    return divisor


def cost_network(network: Network, most: float | None = None) -> tuple[CostNetwork, Units]:
    """Turn what is left of a model into integer costs above a base.

    ``network.constants`` (functions whose variables are all fixed) are not part of it.

    Parameters
    ----------
    network : Network
        Of the query "optimum".
    most : float, optional
        Costs (above the base) from which nothing interests: entries of at least that are forbidden, and the unit of
        energies can be finer. It must not be below the optimum.
    """
    return _from_costs(network, most) if network.model.kind == "cost" else _from_energies(network, most)


def check_tables(network: Network, memory_bytes: int) -> None:
    """Refuse functions that list few of their values and do not fit memory as tables of all cells.

    Raises
    ------
    BudgetError
        With both numbers.
    """
    table_bytes = 8 * network.cells
    if table_bytes > 2 * network.model.nbytes and (needed := COPIES * table_bytes) > memory_bytes:
        raise BudgetError(
            f"bounds need {format_bytes(needed)} for functions that take {format_bytes(table_bytes)} as tables of all "
            f"their assignments, allowed {format_bytes(memory_bytes)}; give a larger --memory, or use --method dense"
        )


def has_exact_costs(network: Network) -> bool:
    """Whether one unit of the integers is one of the model's costs, found without a table of all cells."""
    return network.model.kind == "cost" and cost_scale(network).bound < LARGEST


def _from_costs(network: Network, most: float | None) -> tuple[CostNetwork, Units]:
    scale = cost_scale(network)
    bound = scale.bound if most is None else min(scale.bound, int(most))
    unit = max(1, 1 << (bound.bit_length() - LARGEST.bit_length() + 1)) if bound >= LARGEST else 1

    def build(network: Network, group: LeafGroup) -> NDArray[np.float64]:
        return cost_leaves(
            network, group, lambda costs: np.where((costs >= COST_LIMIT) | (costs > bound), np.inf, costs // unit)
        )

    tables = [CostTable(*pair) for pair in zip(network.scopes, in_scopes(network, build), strict=True)]
    units = Units(scale.offset, unit, 0, 0 if unit == 1 else len(tables))
    return CostNetwork(network.dims, tuple(tables)), units


def _from_energies(network: Network, most: float | None) -> tuple[CostNetwork, Units]:
    leaves = in_scopes(network, energy_leaves)
    finite = [energies[np.isfinite(energies)] for energies in leaves]
    lowest = [float(values.min(initial=math.inf)) for values in finite]
    lowest = [low if low < math.inf else 0.0 for low in lowest]
    spans = [float(values.max(initial=low)) - low for values, low in zip(finite, lowest, strict=True)]
    span = math.fsum(spans) if most is None else min(math.fsum(spans), most)
    largest = max((float(np.abs(values).max(initial=0.0)) for values in finite), default=0.0)
    # no finer than the rounding of the logarithms themselves
    finest = max(math.frexp(span)[1], math.frexp(largest)[1] - 2)
    unit = 2.0 ** (finest - LARGEST.bit_length() + 1)
    tables = []
    for scope, energies, low in zip(network.scopes, leaves, lowest, strict=True):
        above = energies - low
        with np.errstate(invalid="ignore"):
            tables.append(CostTable(scope, np.where(above > span, np.inf, np.floor(above / unit))))
    # a logarithm may be wrong by one unit, and rounding down takes away less than another
    units = Units(math.fsum(lowest), unit, len(tables), 2 * len(tables))
    return CostNetwork(network.dims, tuple(tables)), units


def model_of(network: CostNetwork, upper: int | None) -> Model:
    """Return a network as a model of its own, with variables ``"0"``, ``"1"``, …; totals of ``upper`` are forbidden."""
    functions = [Function((), np.asarray(network.constant, dtype=np.int64))]
    for table in network.tables:
        allowed = np.isfinite(table.costs)
        costs = np.where(allowed, table.costs, 0.0).astype(np.int64)
        functions.append(Function(table.scope, np.where(allowed, costs, FORBIDDEN)))
    names = tuple(map(str, range(len(network.dims))))
    return Model("cost", names, network.dims, (None,) * len(names), tuple(functions), top=upper)


#: Sweeps that shift costs between two looks at the clock, and sweeps with one value alone; even, so that the last sweep
#: went backwards.
SWEEPS: Final = 10
# Sweeps between two looks touch at most this many cells.
_SWEEP_CELLS: Final = 20_000_000


def sweeps_at_a_time(cells: float) -> int:
    """Return how many sweeps that touch ``cells`` cells each are between two looks at the clock."""
    return int(max(2, min(SWEEPS, _SWEEP_CELLS // (2 * max(cells, 1)) * 2)))


Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Removed:
    """Numbers removed by one rule.

    Parameters
    ----------
    values, tuples : int
        Values of variables; entries of functions that became forbidden.
    variables, functions : int
        Variables that are in no function any more, and functions.
    """

    values: int = 0
    tuples: int = 0
    variables: int = 0
    functions: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(
            self.values + other.values,
            self.tuples + other.tuples,
            self.variables + other.variables,
            self.functions + other.functions,
        )


@dataclass(eq=False)
class NetworkProblem:
    """The remaining network; rules change it in place.

    Parameters
    ----------
    flat : Flat
        Functions of two variables and more, and unary costs.
    constant : float
        An integer, part of every total; inf once it is proved that no assignment is left.
    made : list of Restore
        How it was made smaller, oldest first.
    removed : dict
        Numbers removed, by the name of the rule.
    folded : bool
        Whether contained scopes were looked for since functions changed.
    """

    flat: Flat
    constant: float
    made: list[Restore] = field(default_factory=list)
    removed: defaultdict[str, Removed] = field(default_factory=lambda: defaultdict(Removed))
    folded: bool = False

    @property
    def feasible(self) -> bool:
        """Whether assignments may be left."""
        return self.constant < math.inf

    def count(self, rule: str, **removed: int) -> None:
        """Note what a rule removed."""
        if any(removed.values()):
            self.removed[rule] += Removed(**removed)

    def restored(self, states: Any) -> States:
        """Turn states of the variables left into states of the first variables."""
        found: States = tuple(int(s) for s in states)
        for restore in reversed(self.made):
            found = restore(found)
        return found


def problem_of(dims: Sequence[int], tables: Sequence[CostTable], constant: float) -> NetworkProblem:
    """Take a network apart: unary functions are added up by variable, the tables of the others put into one array."""
    from ...tasks.networks.flat import flatten, offsets

    sizes = np.array(dims, np.int64)
    first, unary = offsets(sizes), np.zeros(int(sizes.sum()))
    larger = []
    for table in tables:
        if len(table.scope) == 1:
            begin = first[table.scope[0]]
            unary[begin : begin + table.costs.size] += table.costs
        else:
            larger.append(table)
    arities = np.fromiter((len(t.scope) for t in larger), np.int64, len(larger))
    scope = np.fromiter(chain.from_iterable(t.scope for t in larger), np.int64, int(arities.sum()))
    costs = np.concatenate([t.costs.reshape(-1) for t in larger]) if larger else np.empty(0)
    return NetworkProblem(flatten(sizes, unary, costs, arities, scope), constant)


def tables_of(flat: Flat) -> tuple[CostTable, ...]:
    """Return the functions as tables; unary costs are added to the smallest table of their variable."""
    dims = flat.dims.tolist()
    costs, alone = _with_unary(flat)
    scope, edges, cells = flat.scope.tolist(), flat.edges.tolist(), flat.cells.tolist()
    tables = []
    for f in range(flat.n_functions):
        variables = tuple(scope[edges[f] : edges[f + 1]])
        tables.append(CostTable(variables, costs[cells[f] : cells[f + 1]].reshape([dims[v] for v in variables])))
    for x in alone:
        tables.append(CostTable((x,), flat.unary[flat.first[x] : flat.first[x + 1]].copy()))
    return tuple(tables)


def _with_unary(flat: Flat) -> tuple[Costs, list[int]]:
    """Add unary costs to the tables, in a copy; return the variables of none that have some."""
    costs, sizes = flat.costs.copy(), np.diff(flat.cells)
    alone: list[int] = []
    if not len(flat.unary):
        return costs, alone
    for x in np.flatnonzero(np.maximum.reduceat(flat.unary, flat.first[:-1]) > 0):
        edges = flat.incident[flat.around[x] : flat.around[x + 1]]
        if not len(edges):
            alone.append(int(x))
            continue
        edge = edges[np.argmin(sizes[flat.function[edges]])]
        f, own = flat.function[edge], flat.unary[flat.first[x] : flat.first[x + 1]]
        costs[flat.cells[f] : flat.cells[f + 1]].reshape(-1, len(own), flat.stride[edge])[...] += own[:, None]
    return costs, alone
