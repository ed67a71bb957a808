"""Shifts costs to raise the lower bound, forbids what cannot stay below a cut-off, and reads an assignment off."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import EXACT_INTEGER
from .cost_network import SWEEPS, Integers, NetworkProblem, sweeps_at_a_time

if TYPE_CHECKING:
    from ...tasks.networks.flat import Flat

# Rounds of improving an assignment, both ways.
DESCENTS: Final = 5
# Sweeps that raise the bound by less than this fraction of the total rise are the last.
_STALLED_SHARE: Final = 5e-4

#: Every number stays below this, so that sums and differences of two are exact.
_EXACT = EXACT_INTEGER / 2
#: Fractions of small costs are multiples of a power of two chosen so that totals have this many bits.
_BITS = 46


@dataclass(frozen=True)
class ShiftLimits:
    """The limits of cost shifting in one round.

    Parameters
    ----------
    total : float
        Totals above this integer do not matter.
    work : int
        Cells to touch.
    stop : callable
        Asked now and then whether to end.
    keep_all : bool
        Whether all totals up to the limit matter, even after a better one is found.
    """

    total: float
    work: int
    stop: Callable[[], bool]
    keep_all: bool = False


@dataclass(frozen=True)
class Shifted:
    """What shifting found: a bound that may exceed the constant, an assignment and its total, the cells touched."""

    lower: int
    total: float
    states: Integers | None
    work: int


def shift(problem: NetworkProblem, limits: ShiftLimits) -> Shifted:
    """Move costs into the constant as far as that goes, and forbid what exceeds the limit with them.

    Totals of all assignments stay the same, but those above the limit may become infinite. If nothing is left below
    it, the constant of the problem becomes infinite.
    """
    from ...tasks.networks.flat import take_out

    flat = problem.flat
    problem.constant += take_out(flat)
    most = min(limits.total, problem.constant + _largest_sum(flat)) if problem.feasible else 0.0
    if not problem.feasible or problem.constant > most:
        problem.constant = math.inf
        return Shifted(0, math.inf, None, 0)
    if not flat.n_functions or _span(most, problem.constant) >= _EXACT:
        return Shifted(int(problem.constant), math.inf, None, 0)
    allowed = _allowed(flat)
    found = _Sweeps(problem, most, limits).run()
    if problem.feasible:
        problem.count("reduced costs", tuples=allowed - _allowed(problem.flat))
    return found


def _span(most: float, constant: float) -> float:
    """The largest number, in absolute value, that sums from the constant up to the limit contain."""
    return max(abs(most), abs(constant), most - constant)


def _allowed(flat: Flat) -> int:
    return int(np.count_nonzero(flat.costs < math.inf))


def _largest_sum(flat: Flat) -> float:
    """The sum of the largest finite costs: no allowed assignment adds more."""
    tables = np.maximum.reduceat(np.where(flat.costs < math.inf, flat.costs, 0.0), flat.cells[:-1])
    unary = np.maximum.reduceat(np.where(flat.unary < math.inf, flat.unary, 0.0), flat.first[:-1])
    return math.fsum(tables) + math.fsum(unary)


class _Sweeps:
    """Sweeps over one problem: first with shares of small costs, then with the same shifts made whole."""

    def __init__(self, problem: NetworkProblem, most: float, limits: ShiftLimits) -> None:
        from ...tasks.networks.flat import offsets
        from ...tasks.networks.reparametrise import Loops

        self.problem, self.most, self.limits, self.work = problem, most, limits, 0
        flat = problem.flat
        n = len(flat.first) - 1
        self.order = np.arange(n)
        edges = flat.edges[:-1]
        least, largest = np.minimum.reduceat(flat.scope, edges), np.maximum.reduceat(flat.scope, edges)
        ends = [flat.scope == bound[flat.function] for bound in (least, largest)]
        counts = flat.dims[flat.scope]
        self.loops = Loops(flat, self.order, np.stack(ends), offsets(counts))
        self.shifts = np.zeros(int(counts.sum()))
        self.sweep_work = 2 * int(np.diff(flat.cells) @ np.diff(flat.edges))
        self.total, self.states = math.inf, np.zeros(0, np.int64)
        self.lower = math.ceil(problem.constant)

    def run(self) -> Shifted:
        """Sweep until it stalls; leave whole costs in the problem."""
        problem, flat = self.problem, self.problem.flat
        bits = max(0, _BITS - int(_span(self.most, problem.constant)).bit_length())
        if bits == 0:
            problem.constant = self.probed(flat, self.sweep(flat, problem.constant, 1.0), 1.0)
            return self.found(problem.constant)
        fine, grain = _copied(flat), 2.0**-bits
        bound = self.probed(fine, self.sweep(fine, problem.constant, grain), grain)
        if bound < math.inf:
            self.make_whole(fine)
        else:
            problem.constant = math.inf
        return self.found(bound)

    def found(self, bound: float) -> Shifted:
        """Return the result of the sweeps."""
        lower = 0 if bound == math.inf else math.ceil(bound)
        return Shifted(max(lower, self.lower), self.total, self.states if self.total < math.inf else None, self.work)

    def sweep(self, flat: Flat, constant: float, grain: float, share: float = 1.0) -> float:
        """Sweep until the bound stalls or the work is done; return the bound."""
        start, count, chunks = constant, self.chunk(), 0
        shifts = self.shifts if grain < 1 else self.shifts[:0]
        while constant < math.inf:
            before = constant
            constant, unsupported, dear = self.loops.sweep(flat, shifts, grain, constant, self.most, count)
            chunks += 1
            self.work += (count + 2) * self.sweep_work
            self.problem.count("arc consistency", values=unsupported)
            self.problem.count("reduced costs", values=dear)
            if constant == math.inf:
                break
            dear = self.loops.forbid_tuples(flat, self.most - constant)
            least = _STALLED_SHARE * (constant - start)
            stalled = constant - before <= least and not (unsupported or dear)
            if stalled or chunks in (1, 10):
                self.decode(flat, constant)
            if stalled or self.work > self.limits.work * share or self.limits.stop():
                break
        return constant

    def probed(self, flat: Flat, constant: float, grain: float) -> float:
        """Sweep with each value alone, if affordable, and forbid values without a total below the limit; return the
        bound.

        The least bound of a variable's values holds for all assignments.
        """
        cost, budget = SWEEPS * self.sweep_work * len(flat.unary), self.limits.work
        if cost > budget // 4 or constant == math.inf or self.most - constant < 1:
            return constant
        probe, gone = _Probe(flat, self, constant, grain), 0
        for x in range(len(self.order)):
            if self.limits.stop() or self.work > 2 * budget:
                break
            least, forbidden = probe.variable(x)
            gone += forbidden
            if least == math.inf:
                return math.inf
            self.lower = max(self.lower, math.ceil(least))
        self.problem.count("probed", values=gone)
        return self.sweep(flat, constant, grain, 2.0) if gone else constant

    def chunk(self) -> int:
        """How many sweeps to do at a time, an even number."""
        return sweeps_at_a_time(self.sweep_work)

    def decode(self, flat: Flat, constant: float) -> None:
        """Read an assignment off and improve it one variable at a time; none above it is of interest."""
        states = np.full(len(self.order), -1, np.int64)
        self.loops.decode(flat, self.order, states)
        total = self.total_of(flat, constant, states)
        for order in (self.order[::-1], self.order) * DESCENTS:
            self.loops.decode(flat, order, states)
            before, total = total, self.total_of(flat, constant, states)
            self.work += 2 * self.sweep_work
            if (total >= before and before < math.inf) or self.work > self.limits.work:
                break
        if total < self.total and total <= self.most:
            self.total, self.states = total, states
            self.most = self.most if self.limits.keep_all else total

    def total_of(self, flat: Flat, constant: float, states: Integers) -> float:
        """The total of an assignment."""
        from ...tasks.networks.flat import entries_of

        costs = flat.costs[entries_of(flat, states)]
        return constant + float(flat.unary[flat.first[:-1] + states].sum()) + float(costs.sum())

    def make_whole(self, fine: Flat) -> None:
        """Repeat the shifts, rounded to integers, on the problem, and sweep with integers from there."""
        from ...tasks.networks.flat import take_out

        problem, flat = self.problem, self.problem.flat
        before = problem.constant
        unary, costs = flat.unary.copy(), flat.costs.copy()
        whole = np.where(np.isfinite(self.shifts), np.rint(self.shifts), 0.0)
        self.loops.shift_back(flat, whole)
        problem.constant += take_out(flat)
        if problem.constant <= before:
            problem.constant = before
            flat.unary[:], flat.costs[:] = unary, costs
        flat.unary[np.isinf(fine.unary)] = math.inf
        flat.costs[np.isinf(fine.costs)] = math.inf
        problem.constant += take_out(flat)
        problem.constant = self.sweep(flat, problem.constant, 1.0, 1.25)


class _Probe:
    """Bounds with a single value of a variable. Values whose bound exceeds the limit are forbidden permanently."""

    def __init__(self, flat: Flat, sweeps: _Sweeps, constant: float, grain: float) -> None:
        self.flat, self.sweeps, self.constant, self.grain = flat, sweeps, constant, grain
        self.trial = _copied(flat)

    def variable(self, x: int) -> tuple[float, int]:
        """Probe the values of a variable; return the least bound of one, and how many were forbidden."""
        begin, end = int(self.flat.first[x]), int(self.flat.first[x + 1])
        least, gone = math.inf, 0
        for p in range(begin, end):
            if self.flat.unary[p] == math.inf:
                continue
            bound = self.alone(begin, end, p)
            least = min(least, bound)
            if bound == math.inf:
                self.flat.unary[p] = math.inf
                gone += 1
        return least, gone

    def alone(self, begin: int, end: int, p: int) -> float:
        """The bound where a variable takes one value."""
        flat, trial, sweeps = self.flat, self.trial, self.sweeps
        trial.unary[:], trial.costs[:] = flat.unary, flat.costs
        trial.unary[begin:end] = math.inf
        trial.unary[p] = flat.unary[p]
        sweeps.work += (SWEEPS + 1) * sweeps.sweep_work
        none = sweeps.shifts[:0]
        bound, *_ = sweeps.loops.sweep(trial, none, self.grain, self.constant, sweeps.most, SWEEPS)
        return float(bound)


def _copied(flat: Flat) -> Flat:
    """The same functions with costs of their own."""
    return flat._replace(unary=flat.unary.copy(), costs=flat.costs.copy())
