"""Marginals, draws and marginal MAP from a circuit: the search that counts the clauses of a model, written out."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....cluster.memory import peak_rss_bytes
from ...gates.circuit import CircuitGraph, CircuitPolicy
from ...gates.evaluation import above, best, flows, log_leaves, log_values, state_flows, states_of, walk_down
from ...gates.traced_circuit import TracedCircuit
from ...models.cases import Cases
from ...preprocessing.preprocess import reduce_model
from ...results.posteriors import Marginals
from ...results.result import Result
from ..running import Answer
from .engine import Stop, TurnEnded
from .engine_options import Certainty, Estimate
from .model_left import evaluated
from .request import QueryRequest
from .sum_engines import late_after, searching_price


@dataclass
class CircuitEngine:
    """A circuit of a model that consists of clauses or is mostly zero, built in turns.

    Parameters
    ----------
    request : QueryRequest
    worked : float
        Nominal seconds of the turns so far.
    """

    request: QueryRequest
    worked: float = 0.0

    @cached_property
    def making(self) -> TracedCircuit:
        """The circuit as far as it is made, of all variables, with all evidence in it."""
        question = self.request.question
        network = reduce_model(question.weighted, "partition", question.hard, range(len(question.model.dims)))
        outer = question.outer or frozenset()
        first = frozenset([local for v, local in network.local.items() if v in outer])
        return TracedCircuit(network, self.request.options, outer=first)

    def estimate(self) -> Estimate:
        """Return the price of compiling loops, or the reason why the engine cannot answer."""
        question = self.request.question
        if question.asked is not None and (question.asked.joints or question.asked.families):
            return "a circuit gives only marginals of single variables"
        if self.request.folder is not None:
            return "a circuit is built in memory, and stores nothing in a run directory"
        if question.model.kind == "cost" or question.model.summed:
            return "a circuit is built only from probabilities, over all variables"
        return searching_price() if self.making.suits else "the model neither consists of clauses nor is mostly zero"

    def better_price(self, aim: Certainty) -> Estimate:
        """Return the same: nobody knows more."""
        return self.estimate()

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Go on with the circuit, and sum it up once each way."""
        made = self.made(seconds, stop)
        return made if isinstance(made, TurnEnded) else self._marginals(made)

    def made(self, seconds: float, stop: Stop) -> CircuitGraph | TurnEnded:
        """Go on with the circuit.

        Raises
        ------
        BudgetError
            If it does not fit memory.
        """
        late, end = late_after(seconds, stop), self.worked + seconds
        self.making.reserved_bytes = self.request.reserved_bytes
        while self.worked < end:
            self.worked = min(end, self.worked + CircuitPolicy.current().first_turn_seconds)
            found = self.making.run(self.worked)
            if found is not None:
                return found
            if late():
                break
        return TurnEnded("its work was done")

    def _marginals(self, made: CircuitGraph) -> Marginals:
        """Evaluate the circuit upwards, and propagate the flow of each state downwards."""
        began, model, asked = time.perf_counter(), self.request.question.model, self.request.question.asked
        assert asked is not None
        values = log_values(made, made.layers, log_leaves(made, Cases(1, {})), False, np)
        log = float(values[made.root, 0])
        if log == -math.inf:
            return Marginals(model, "infeasible", log10_evidence=-math.inf)
        flow = flows(made, made.layers, values, np)[: made.n_indicators]
        return Marginals(
            model,
            "ok",
            tables={model.names[v]: state_flows(made, v, flow)[0] for v in asked.variables},
            log10_evidence=log / math.log(10),
            seconds={"plan": began - self.request.started, "run": time.perf_counter() - began},
            peak_rss_bytes=peak_rss_bytes(),
        )


@dataclass
class MaximizedCircuit(CircuitEngine):
    """Marginal MAP: outer variables are decided before all others, and the best of their states are taken.

    A component that the search meets again has the same best states, because it shares no variable with the rest of the
    problem.
    """

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Go on with the circuit, and read the best states from it."""
        made = self.made(seconds, stop)
        return made if isinstance(made, TurnEnded) else self._best(made)

    def _best(self, made: CircuitGraph) -> Result:
        """Return the best states of the outer variables. Their sum is computed again without the circuit."""
        began, question = time.perf_counter(), self.request.question
        assert question.outer is not None
        model = question.model
        values = log_values(made, made.layers, log_leaves(made, Cases(1, {})), above(made, question.outer), np)
        log = float(values[made.root, 0])
        if log == -math.inf:
            return Result("mmap", "infeasible")
        states = states_of(made, walk_down(made, made.layers, values, 1, best, np))[0]
        found = Result(
            "mmap",
            "optimal",
            log10=log / math.log(10),
            assignment={model.names[v]: model.label(v, int(states[v])) for v in sorted(question.outer)},
            seconds={"plan": began - self.request.started, "run": time.perf_counter() - began},
            peak_rss_bytes=peak_rss_bytes(),
        )
        return evaluated(self.request, found)


class OuterCircuitEngine(MaximizedCircuit):
    """The same in turns with a sweep; where a time is given, bounds have a look first, and then ask for it."""

    def estimate(self) -> Estimate:
        """Return the price of compiling loops, or the reason why the engine cannot answer."""
        return (
            ("bounds are tried first, because a time was given")
            if self.request.effort.time is not None
            else super().estimate()
        )
