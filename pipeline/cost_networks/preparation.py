"""Exact preprocessing of a network of integer costs: smaller, with a lower bound, and still with an optimum.

Removed values are dropped, and variables with one value are folded into their functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from ...tasks.steps.light_dataclass import dataclass
from .cost_network import (
    CostNetwork,
    Costs,
    Integers,
    NetworkProblem,
    Removed,
    States,
    problem_of,
    tables_of,
)
from .elimination import eliminate, replace
from .reparametrisation import ShiftLimits, shift

if TYPE_CHECKING:
    from ...tasks.networks.flat import Flat

# Another round of preparation follows if the last round removed this fraction of the values or of the entries.
_WORTHWHILE_SHARE: Final = 0.01

#: Cells to touch by all rounds, a few tenths of a second.
WORK = 400_000_000


@dataclass(frozen=True)
class NetworkSize:
    """How large a network is, and what it says about the least total."""

    variables: int
    values: int
    functions: int
    cells: int
    lower: int


@dataclass(frozen=True)
class Report:
    """What preparation did.

    Parameters
    ----------
    before, after : NetworkSize
        Of the network given and of the one returned.
    removed : dict
        Numbers of removed values, by rule.
    rounds : int
        How often the rules were applied.
    work : int
        Cells touched.
    """

    before: NetworkSize
    after: NetworkSize
    removed: dict[str, Removed]
    rounds: int
    work: int


def removed_by(reports: Iterable[Report]) -> dict[str, Removed]:
    """Return the numbers removed by several preparations, by rule."""
    total: dict[str, Removed] = {}
    for report in reports:
        for rule, removed in report.removed.items():
            total[rule] = total.get(rule, Removed()) + removed
    return total


@dataclass(frozen=True, eq=False)
class PreparedNetwork:
    """A smaller network that stands for another.

    Parameters
    ----------
    network : CostNetwork
        Has an optimum of the one given, if that is below the cut-off; no variables if it is solved. Its assignments
        have the totals of the restored ones, or are forbidden if those are not below the cut-off or above ``total``.
    lower : int
        No assignment (of a total below the cut-off) has a smaller total.
    feasible : bool
        False if it was proved that no assignment is below the cut-off; then the network has no meaning.
    total, states : optional
        The best assignment that was seen, in variables of the network given.
    report : Report
        Report of the preparation, by rule.
    """

    network: CostNetwork
    lower: int
    feasible: bool
    total: int | None
    states: States | None
    report: Report


def prepare(
    network: CostNetwork,
    upper: int | None = None,
    *,
    work: int = WORK,
    stop: Callable[[], bool] = lambda: False,
    keep_all: bool = False,
) -> PreparedNetwork:
    """Make a network smaller without losing all optima, and bound its least total.

    Parameters
    ----------
    network : CostNetwork
        What to solve.
    upper : int, optional
        Only totals below matter.
    work : int
        Cells to touch, about a nanosecond each.
    stop : callable
        Called repeatedly; True ends the preparation early. The result is exact at any time.
    keep_all : bool
        Whether to keep every assignment below the pruning value: each corresponds to one assignment of the result with
        an equal total.
    """
    run = _Rounds(network, math.inf if upper is None else upper - 1, work, stop, keep_all)
    run.all()
    return run.prepared()


class _Rounds:
    """The rules, applied again and again to one problem."""

    def __init__(
        self, network: CostNetwork, most: float, work: int, stop: Callable[[], bool], keep_all: bool = False
    ) -> None:
        self.network, self.most, self.work, self.stop, self.keep_all = network, most, work, stop, keep_all
        self.problem = problem_of(network.dims, network.tables, network.constant)
        self.lower = _sum_of_least(self.problem)
        self.before = _size(network, self.lower)
        self.best: tuple[float, States] | None = None
        self.rounds = self.spent = 0

    def all(self) -> None:
        """Apply the rules as long as they pay."""
        while self.feasible and not self.stop() and self.spent < self.work:
            self.rounds += 1
            self.shrink()
            if not self.feasible or not len(self.problem.flat.unary):
                break
            flat = self.problem.flat
            left = len(flat.unary), int(np.count_nonzero(flat.costs < math.inf))
            self.raise_bound()
            if not self.feasible or not self.paid(*left):
                break
        if self.feasible:
            self.shrink()
        self.finish()

    @property
    def feasible(self) -> bool:
        """Whether an assignment below the cut-off may be left."""
        return self.problem.feasible and self.lower <= self.most

    def paid(self, values: int, cells: int) -> bool:
        """Return whether enough was removed for other rules to find something new."""
        flat = self.problem.flat
        values -= int(np.count_nonzero(flat.unary < math.inf))
        cells -= int(np.count_nonzero(flat.costs < math.inf))
        return values > _WORTHWHILE_SHARE * len(flat.unary) or cells > _WORTHWHILE_SHARE * len(flat.costs)

    def shrink(self) -> None:
        """Remove dominated values, variables determined by others, and variables of small degree, until nothing
        changes.
        """
        eliminated, looked = 0, self.keep_all
        while self.compacted(eliminated):
            eliminated = replace(self.problem) or (0 if self.keep_all else eliminate(self.problem))
            if not eliminated and (looked or not self.dominate()):
                return
            looked = self.keep_all or not eliminated

    def compacted(self, eliminated: int = 0) -> bool:
        """Drop removed values after ``eliminated`` eliminations; return whether other rules may find something."""
        if self.problem.feasible:
            compact(self.problem, eliminated, keep_all=self.keep_all)
        return self.problem.feasible and self.problem.flat.n_functions > 0 and not self.stop()

    def dominate(self) -> int:
        """Remove dominated values; return how many values lost their support or are dominated."""
        from ...tasks.networks.flat import take_out
        from ...tasks.networks.reparametrise import remove_dominated

        problem = self.problem
        problem.constant += take_out(problem.flat)
        if not problem.feasible:
            return 0
        pending = np.ones(len(problem.flat.first) - 1, np.bool_)
        unsupported, dominated, empty, spent = remove_dominated(problem.flat, pending, max(self.work // 4, 1))
        self.spent += spent
        problem.count("arc consistency", values=unsupported)
        problem.count("dominated", values=dominated)
        problem.constant += math.inf if empty else 0.0
        return unsupported + dominated

    def raise_bound(self) -> None:
        """Shift costs; keep the best assignment and the best bound."""
        left = max(self.work - self.spent, 0) // 2
        found = shift(self.problem, ShiftLimits(self.most, left, self.stop, self.keep_all))
        self.spent += found.work
        if found.states is not None and (self.best is None or found.total < self.best[0]):
            self.best = found.total, self.problem.restored(found.states)
            if not self.keep_all:
                self.most = min(self.most, found.total)
        if self.problem.feasible:
            self.lower = max(self.lower, found.lower)

    def finish(self) -> None:
        """Take out what all assignments have; an assignment as cheap as the bound is an optimum."""
        from ...tasks.networks.flat import take_out

        if self.feasible and len(self.problem.flat.unary):
            self.problem.constant += take_out(self.problem.flat)
        if self.problem.feasible:
            self.lower = max(self.lower, self.problem.constant)

    def prepared(self) -> PreparedNetwork:
        """What came out."""
        problem, network = self.problem, self.network
        if not self.feasible:
            lower = self.before.lower if self.most == math.inf else int(self.most) + 1
            return self.result(network, lower, feasible=False)
        dims = tuple(problem.flat.dims.tolist())
        if not dims and (self.best is None or problem.constant < self.best[0]):
            self.best = problem.constant, problem.restored(())
        lower = int(self.lower)
        if self.best is not None and self.best[0] <= lower and not self.keep_all:
            return self.result(CostNetwork((), (), lower, (*network.made, only(self.best[1]))), lower)
        made = (*network.made, *problem.made)
        return self.result(CostNetwork(dims, tables_of(problem.flat), int(problem.constant), made), lower)

    def result(self, after: CostNetwork, lower: int, feasible: bool = True) -> PreparedNetwork:
        """Build the result, with the best assignment seen."""
        total, states = (None, None) if self.best is None else (int(self.best[0]), self.best[1])
        report = Report(self.before, _size(after, lower), dict(self.problem.removed), self.rounds, self.spent)
        return PreparedNetwork(after, lower, feasible, total, states, report)


def _sum_of_least(problem: NetworkProblem) -> float:
    """The bound that a network shows as it is."""
    flat = problem.flat
    tables = np.minimum.reduceat(flat.costs, flat.cells[:-1]) if flat.n_functions else flat.costs
    unary = np.minimum.reduceat(flat.unary, flat.first[:-1]) if len(flat.unary) else flat.unary
    return problem.constant + float(math.fsum(tables)) + float(math.fsum(unary))


def _size(network: CostNetwork, lower: float) -> NetworkSize:
    bound = int(lower) if lower < math.inf else 0
    return NetworkSize(len(network.dims), sum(network.dims), len(network.tables), network.cells, bound)


@dataclass(frozen=True, eq=False)
class KeptValues:
    """Restores states: which variables and which of their values were kept.

    Parameters
    ----------
    states : NDArray
        Of every old variable, the least of the values kept.
    live : NDArray
        Old number of each variable that was kept.
    values, first : NDArray
        Old numbers of the values kept, of every old variable, and where each variable's begin.
    """

    states: Integers
    live: Integers
    values: Integers
    first: Integers

    def __call__(self, states: States) -> States:
        old = self.states.copy()
        old[self.live] = self.values[self.first[self.live] + np.array(states, np.int64)]
        return tuple(old.tolist())


def only(states: States) -> KeptValues:
    """Return an object that restores these states when no variable was kept."""
    values, none = np.array(states, np.int64), np.empty(0, np.int64)
    return KeptValues(values, none, values, np.arange(len(values) + 1))


def compact(problem: NetworkProblem, eliminated: int = 0, *, keep_all: bool = False) -> None:
    """Drop values of infinite unary cost, variables with one value, and functions that others contain.

    Of a variable that is in no function the cheapest value is kept, or all if ``keep_all``. ``eliminated`` variables
    were counted before.
    """
    from ...tasks.networks.flat import offsets

    flat = problem.flat
    keep = np.isfinite(flat.unary)
    if not keep_all:
        _keep_cheapest(flat, keep)
    counts = np.add.reduceat(keep, flat.first[:-1], dtype=np.int64) if len(keep) else np.empty(0, np.int64)
    if (counts == 0).any():
        problem.constant = math.inf
        return
    rebuilt = len(keep) > 0 and not (keep.all() and counts.min() > 1)
    if rebuilt:
        owner = np.repeat(np.arange(len(counts)), flat.dims)
        values = np.flatnonzero(keep) - flat.first[owner[keep]]
        first, live = offsets(counts), np.flatnonzero(counts > 1)
        problem.made.append(KeptValues(values[first[:-1]], live, values, first))
        problem.count("one value left", variables=len(counts) - len(live) - eliminated)
        _rebuild(problem, values, first, flat.unary[keep])
    if rebuilt or not problem.folded:
        _fold(problem)


def _keep_cheapest(flat: Flat, keep: np.ndarray) -> None:
    alone = np.flatnonzero(np.diff(flat.around) == 0)
    for x in alone[np.add.reduceat(keep, flat.first[:-1], dtype=np.int64)[alone] > 1] if len(alone) else ():
        begin, end = flat.first[x], flat.first[x + 1]
        keep[begin:end] &= np.arange(end - begin) == np.argmin(flat.unary[begin:end])


def _rebuild(problem: NetworkProblem, values: Integers, first: Integers, unary: Costs) -> None:
    """Restrict all functions to the kept values.

    Functions without variables go to the constant, and functions of one variable to the unary costs.
    """
    from ...tasks.networks.flat import chosen_parts, flatten, offsets, parts, restrict

    flat, counts = problem.flat, np.diff(first)
    live = counts > 1
    problem.constant += float(unary[first[:-1][~live]].sum())
    costs, sizes = restrict(flat, values, first)
    edge_live = live[flat.scope]
    arities = np.bincount(flat.function[edge_live], minlength=flat.n_functions)
    cells, scope = offsets(sizes), (np.cumsum(live) - 1)[flat.scope[edge_live]]
    problem.constant += float(costs[cells[:-1][arities == 0]].sum())
    unary, edges = unary[np.repeat(live, counts)], offsets(arities)
    new_first = offsets(counts[live])
    ones = np.flatnonzero(arities == 1)
    owners = scope[edges[ones]]
    np.add.at(unary, parts(new_first, owners), costs[parts(cells, ones)])
    more = np.flatnonzero(arities > 1)
    problem.count("contained", functions=flat.n_functions - len(more))
    left = chosen_parts(costs, cells, more), arities[more], chosen_parts(scope, edges, more)
    problem.flat = flatten(counts[live], unary, *left)


def _fold(problem: NetworkProblem) -> None:
    """Add functions to functions that contain their scope, and drop constant functions."""
    from ...tasks.networks.flat import fold_contained, selected

    flat, problem.folded = problem.flat, True
    if not flat.n_functions:
        return
    left = fold_contained(flat)
    problem.count("contained", functions=int(np.count_nonzero(~left)))
    least = np.minimum.reduceat(flat.costs, flat.cells[:-1])
    level = least == np.maximum.reduceat(flat.costs, flat.cells[:-1])
    problem.constant += float(least[level & left].sum())
    problem.count("constant", functions=int(np.count_nonzero(level & left)))
    if not (left & ~level).all():
        problem.flat = selected(flat, np.flatnonzero(left & ~level))
