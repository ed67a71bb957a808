"""Sources of draws: the stored tables of a sweep, or the circuit of a search, whose engines take turns as for sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..answering.engines.asking import Asking
from ..answering.engines.circuit_engine import CircuitEngine
from ..answering.engines.engine import Engine, Stop, Unfinished
from ..answering.engines.offers import SWEEP, Bid, Wishes, strategy_of
from ..answering.engines.strategy_policy import POLICY, StrategyPolicy
from ..answering.engines.sweep_engine import SweepEngine
from ..answering.engines.walk import walk
from ..answering.prepared import Prepared
from ..answering.question import Question
from ..gates.circuit import CircuitGraph
from ..gates.circuit_policy import CircuitPolicy
from ..gates.evaluation import drawn_by, log_leaves, log_values, states_of, walk_down
from ..models.cases import Cases
from ..options import Options
from ..results.proof import Tried

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
        return made if isinstance(made, Unfinished) else DrawSource(None, made)


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
    asking = Asking(question, options, policy=policy)
    engines: dict[str, Engine] = {"circuit": _DrawnCircuit(asking), SWEEP: _KeptSweep(asking, planned=planned)}
    bids: dict[str, Callable[[], Bid]] = {name: engine.bid for name, engine in engines.items()}
    wishes = asking.wishes if options.gpus is None else Wishes(SWEEP)
    return cast(DrawSource, walk(strategy_of(question.query, wishes, bids, policy), engines, asking))


def drawn_from_circuit(circuit: CircuitGraph, n: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield ``n`` independent assignments in blocks of shape (draws, variables). The same seed gives the same draws."""
    values = log_values(circuit, circuit.layers, log_leaves(circuit, Cases(1, {})), False, np)
    together = max(1, min(_TOGETHER, CircuitPolicy.current().batch_bytes // (8 * circuit.nodes)))
    for block in range(0, -(-n // together)):
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, block], np.uint64)))
        active = walk_down(circuit, circuit.layers, values, together, drawn_by(generator, np), np)
        yield states_of(circuit, active)[: n - block * together]
