"""Sources of draws: the stored tables of a sweep, or the circuit of a search, whose engines take turns as for sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import SweepPolicy
from ...tasks.sweeps.scaled import LOWEST, from_logs
from ...tasks.sweeps.table_packs import ScaledPack
from ..answering.engines.circuit_engine import CircuitEngine
from ..answering.engines.engine import Engine, Stop, TurnEnded
from ..answering.engines.engine_options import SWEEP, EngineLimits, Estimate, strategy_of
from ..answering.engines.request import QueryRequest
from ..answering.engines.strategy_policy import POLICY, StrategyPolicy
from ..answering.engines.sweep_engine import SweepEngine
from ..answering.engines.walk import walk
from ..answering.prepared import Prepared
from ..answering.question import Question
from ..gates.circuit import CircuitGraph, CircuitPolicy
from ..gates.evaluation import drawn_by, log_leaves, log_values, states_of, walk_down
from ..models.cases import Cases
from ..options import Options
from ..preprocessing.leaf_groups import LeafGroup
from ..preprocessing.leaf_tables import COST_LIMIT, cost_leaves
from ..queries.arithmetic import ScaledPartition
from ..results.proof import Tried

# Arithmetic of sweeps that store all tables: sums of products, sums of Boltzmann weights, and minimal costs.


@dataclass(frozen=True, eq=False)
class KeptSums(ScaledPartition):
    """Sums of products whose tables all stay."""

    keeps = True


@dataclass(frozen=True, eq=False)
class BoltzmannSums(KeptSums):
    """Sums of ``exp(-weight * cost)`` over what no function forbids by itself.

    Parameters
    ----------
    weight : float
        Of one stored unit of cost; 0 for all that is possible alike.
    """

    weight: float = 0.0

    def packed(self, group: LeafGroup) -> ScaledPack:
        """Build leaf tables of weights. Weights of costs above a function's least cost are never rounded to 0."""

        def logs(costs: NDArray[Any]) -> NDArray[Any]:
            return np.where(costs < COST_LIMIT, -self.weight * costs, -math.inf)

        with np.errstate(over="ignore"):
            tables = group.split(cost_leaves(self.network, group, logs))
        made = [from_logs(table, 0.0, LOWEST) for table in tables]
        return ScaledPack.of(dict(zip(group.nodes, made, strict=True)))


# Draws below a cost, by rejection from a colder distribution: at which temperature most are kept.
#
# The goal is to draw from the weights ``exp(-w * cost)`` of assignments below a cost. Draws of a larger weight ``v``
# are accepted with probability ``exp((v - w) * (cost - last))``, where ``last`` is the greatest allowed cost.
# Accepted draws have the distribution of ``w`` (von Neumann 1951). A larger ``v`` puts more draws below the cost, but
# lowers the acceptance of each draw. The number of accepted draws is greatest where the mean cost is about ``last``;
# bisection finds this ``v``.

# Sweeps at colder and colder temperatures, each four times as cold, until draws are below the cost in the mean, and
# between the last two of them.
_TEMPERING_SWEEPS: Final = 20
_HALVING_SWEEPS: Final = 2

Array = NDArray[Any]


def kept_shares(totals: Array, weight: float, wanted: float, last: int) -> Array:
    """Return with which probability each draw is kept.

    Parameters
    ----------
    totals : ndarray of int64
        Costs of the draws.
    weight, wanted : float
        The weight of the draws, and the target weight, which is at most as large.
    last : int
        The greatest cost allowed.
    """
    over = totals - last  # as integers: floats do not hold costs above 2**53
    return np.where(over <= 0, np.exp((weight - wanted) * np.minimum(over, 0).astype(np.float64)), 0.0)


def colder_weight(wanted: float, last: int, scale: float, totals_of: Callable[[float], Array]) -> tuple[float, bool]:
    """Return a weight from whose draws many are kept, and whether any draw was below the cost.

    Parameters
    ----------
    wanted : float
    last : int
        The greatest cost allowed.
    scale : float
        The greatest cost that is possible, above the least one: where a search for weights begins.
    totals_of : callable
        Returns costs of some draws of a weight; each call is a sweep.
    """
    policy = SweepPolicy.current()
    best, share = wanted, -1.0

    def is_below(weight: float) -> bool:
        """Whether a weight's draws are below the cost in the mean; the best weight so far is remembered."""
        nonlocal best, share
        totals = totals_of(weight)
        kept = float(kept_shares(totals, weight, wanted, last).mean())
        if kept > share:
            best, share = weight, kept
        return float(totals.mean()) <= last

    if is_below(wanted) or share >= policy.enough_kept:
        return best, share > 0
    warm, cold = wanted, max(2.0 * wanted, 1.0 / max(scale, 1.0))
    for _ in range(_TEMPERING_SWEEPS):
        if is_below(cold):
            break
        warm, cold = cold, 4.0 * cold
    for _ in range(_HALVING_SWEEPS):
        middle = sqrt(warm * cold) if warm > 0 else cold / 2
        if is_below(middle):
            cold = middle
        else:
            warm = middle
    return best, share > 0


# Maximum number of draws made together from a circuit; large circuits make fewer together. The number depends on the
# circuit only, so that draw ``i`` does not depend on the total number of draws.
_TOGETHER: Final = 256


@dataclass(frozen=True)
class DrawSource:
    """The source of draws: a sweep, or a circuit.

    Parameters
    ----------
    prepared : Prepared or None
        A sweep, planned; None where it is a circuit.
    circuit : CircuitGraph or None
    tried : tuple of Tried
        The engines that took turns, and the reason why each ended.
    notes : tuple of str
    """

    prepared: Prepared | None
    circuit: CircuitGraph | None = None
    tried: tuple[Tried, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _KeptSweep(SweepEngine):
    """A sweep whose tables are kept, as far as it is planned."""

    planned: Callable[[], Prepared] | None = None

    def plan(self) -> Prepared:
        """Plan it, once."""
        assert self.planned is not None
        return self.planned()

    def run(self, seconds: float, stop: Stop = bool) -> Any:
        """Return the plan; the caller that draws runs the sweep."""
        return DrawSource(self.plan())


@dataclass
class _DrawnCircuit(CircuitEngine):
    """A circuit that is drawn from."""

    def run(self, seconds: float, stop: Stop = bool) -> Any:
        """Go on with the circuit."""
        made = self.made(seconds, stop)
        return made if isinstance(made, TurnEnded) else DrawSource(None, made)


def draw_source(
    question: Question, options: Options, planned: Callable[[], Prepared], policy: StrategyPolicy = POLICY
) -> DrawSource:
    """Choose what draws of probabilities are taken from.

    Parameters
    ----------
    question : Question
        Of the partition function.
    options : Options
        Its memory budget excludes the memory of the draws.
    planned : callable
        Returns the sweep, planned once.
    policy : StrategyPolicy

    Raises
    ------
    BudgetError
        If nothing fits.
    """
    request = QueryRequest(question, options, policy=policy)
    engines: dict[str, Engine] = {"circuit": _DrawnCircuit(request), SWEEP: _KeptSweep(request, planned=planned)}
    estimates: dict[str, Callable[[], Estimate]] = {name: engine.estimate for name, engine in engines.items()}
    engine_limits = request.engine_limits if options.gpus is None else EngineLimits(SWEEP)
    return cast(DrawSource, walk(strategy_of(question.query, engine_limits, estimates, policy), engines, request))


def drawn_from_circuit(circuit: CircuitGraph, n: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield ``n`` independent assignments in blocks of shape (draws, variables). The same seed gives the same draws."""
    values = log_values(circuit, circuit.layers, log_leaves(circuit, Cases(1, {})), False, np)
    together = max(1, min(_TOGETHER, CircuitPolicy.current().batch_bytes // (8 * circuit.nodes)))
    for block in range(0, -(-n // together)):
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, block], np.uint64)))
        active = walk_down(circuit, circuit.layers, values, together, drawn_by(generator, np), np)
        yield states_of(circuit, active)[: n - block * together]
