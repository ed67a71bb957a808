"""Elimination of all variables except the outer variables of a question.

The result is a model over the outer variables.

Projected counts and sums maximise over the other variables, so that a table marks the assignments that can be
completed. Marginal MAP sums over the other variables. Each component of the network of other variables leaves one
table. No elimination order that eliminates the outer variables last has smaller tables (Park and Darwiche 2004). The
remaining question is an ordinary count, sum or optimum, open to all engines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ....cluster.pool import SerialPool
from ....tasks.steps.number_limits import CELL_BYTES
from ....tasks.sweeps.scaled import Scaled
from ...errors import BudgetError, InternalError, format_bytes
from ...models.function import FORBIDDEN, Function, dense_function, row_function
from ...models.model import Model
from ...models.query import QUERIES, ValueQuery
from ...options import Options, ProofOptions
from ...preprocessing.leaf_rows import rows_left
from ...preprocessing.leaf_tables import restricted
from ...preprocessing.preprocess import Network, fixed_value
from ...queries.arithmetic import CostOptimum
from ...results.result import Result
from ...runs.run import TABLES
from ..answers import swept_total
from ..placement import temporary_folder
from ..prepared import Prepared
from ..question import Question, question_of
from ..running import run_of
from .request import QueryRequest

Array = NDArray[Any]
Scope = tuple[int, ...]

# A function holds numbers whose natural logarithms are at most so far from 0; others are products of several.
_FAR: Final = 600.0


class OuterFunctions:
    """Functions over the outer variables of a question, which have all of their states again.

    Parameters
    ----------
    question : Question
    network : Network
        The network that remains after preprocessing.
    """

    def __init__(self, question: Question, network: Network) -> None:
        assert question.outer is not None
        self.query, self.network = question.query, network
        self.outer = sorted(question.outer)
        self.place = {v: k for k, v in enumerate(self.outer)}

    def model(self, functions: Iterable[Function]) -> Model:
        """Return the model of these functions over the outer variables, with their names."""
        model, outer = self.network.model, self.outer
        return Model(
            kind="cost" if model.kind == "cost" else "markov",
            names=tuple([model.names[v] for v in outer]),
            dims=tuple([model.dims[v] for v in outer]),
            states=tuple([model.states[v] for v in outer]),
            functions=tuple(functions),
            top=model.top,
            name=model.name,
        )

    def is_inner(self, scope: Iterable[int]) -> bool:
        """Whether one of the network's variables is to be eliminated."""
        return any(self.network.variables[v] not in self.place for v in scope)

    def kept(self, f: int) -> Function:
        """Return a function of the model over outer variables, without other variables that have only one state."""
        network, function = self.network, self.network.model.functions[f]
        if self.place.keys() >= {*function.scope}:
            return function.changed(scope=tuple([self.place[v] for v in function.scope]), child=None)
        if function.rows is None:
            return self.over(*restricted(network, f))
        listed = rows_left(network, f)
        scope = [network.variables[v] for v in listed.axes]
        rows = np.stack([network.domains[v][places] for v, places in zip(scope, listed.states, strict=True)], axis=1)
        return row_function([self.place[v] for v in scope], rows, listed.values, function.default)

    def over(self, axes: Scope, values: Array) -> Function:
        """Return a function from its values at the states that are left, by the network's variables."""
        network, costs = self.network, self.network.model.kind == "cost"
        scope, dtype = [network.variables[v] for v in axes], np.int64 if costs else np.float64
        sizes, domains = [network.model.dims[v] for v in scope], [network.domains[v] for v in scope]
        left = values.reshape([len(domain) for domain in domains])
        if left.shape == tuple(sizes):  # every state is left
            full = left.astype(dtype)
        else:
            full = np.full(sizes, FORBIDDEN if costs else 0.0, dtype=dtype)
            full[np.ix_(*domains)] = left
        return dense_function(tuple([self.place[v] for v in scope]), full)

    def of_logs(self, axes: Scope, logs: Array) -> Iterator[Function]:
        """Yield functions whose product has these natural logarithms; flat, -inf for 0."""
        finite = logs[logs > -math.inf]
        times = max(1, math.ceil(float(np.abs(finite).max(initial=0.0)) / _FAR))
        yield from [self.over(axes, np.exp(logs / times))] * times

    def states(self) -> Iterator[Function]:
        """Yield which states of outer variables are left, where some are not."""
        network, costs = self.network, self.network.model.kind == "cost"
        for v in self.outer:
            if len(domain := network.domains[v]) < (size := network.model.dims[v]):
                values = np.full(size, FORBIDDEN if costs else 0, dtype=np.int64 if costs else np.float64)
                values[domain] = 0 if costs else 1
                yield dense_function((self.place[v],), values)

    def constants(self, kept: Iterable[int], scale: float) -> Iterator[Function]:
        """Yield what all assignments are worth beside ``kept`` functions and tables of this ``scale``, a logarithm."""
        network, fixed = self.network, fixed_value(self.network)
        assert fixed is not None
        if network.model.kind == "cost":
            lowest = network.model.lowest
            yield from _shares(int(fixed) + sum(lowest) - sum([lowest[f] for f in kept]))
        elif self.query == "mmap":
            summed = [len(network.domains[v]) for v in network.free if v not in self.place]
            yield from self.of_logs((), np.array([math.fsum([float(fixed), scale, *map(math.log, summed)])]))
        elif self.query == "partition":
            yield from self.of_logs((), np.array([float(fixed)]))


def _shares(cost: int) -> Iterator[Function]:
    """Yield a cost of all assignments as several that are below what forbids, which it need not be."""
    count = 1 + abs(cost) // (FORBIDDEN - 1)
    share, more = divmod(cost, count)
    yield from [dense_function((), np.array(share + (k < more))) for k in range(count)]


def model_left(prepared: Prepared) -> Model | None:
    """Eliminate the inner variables of a question that is planned.

    Returns
    -------
    Model or None
        Over the outer variables, with their names and all of their states, worth what the question's model is once the
        others are eliminated; None where nothing is possible.

    Raises
    ------
    BudgetError
        If the tables do not fit memory.
    """
    if fixed_value(prepared.network) is None:
        return None
    outer = OuterFunctions(prepared.question, prepared.network)
    return outer.model(_functions(prepared, outer))


def _functions(prepared: Prepared, outer: OuterFunctions) -> Iterator[Function]:
    """Yield the functions that no step read, the tables that steps left, possible states, and the constant factor."""
    leaves = [leaf for leaf in prepared.network.leaves if not outer.is_inner(leaf.scope)]
    kept = [f for leaf in leaves for f in leaf.functions]
    yield from map(outer.kept, kept)
    scale = 0.0
    if _is_in_parts(prepared):
        yield from _of_total(prepared, outer)
    for axes, table in () if _is_in_parts(prepared) else _tables(prepared):
        scale += table.log_scale if isinstance(table, Scaled) else 0.0
        yield from _as_functions(prepared, outer, axes, table)
    yield from outer.states()
    yield from outer.constants(kept, scale)


def _is_in_parts(prepared: Prepared) -> bool:
    """Return whether the plan runs in slices or spills; this needs all outer variables to be observed or fixed."""
    return prepared.plan is not None and (prepared.plan.slices > 1 or prepared.plan.spill is not None)


def _of_total(prepared: Prepared, outer: OuterFunctions) -> Iterator[Function]:
    """Run a plan in slices or boxes, and yield constants of its total value: no variable remains."""
    assert not prepared.problem.last
    with temporary_folder(prepared.plan, prepared.resources) as folder:
        total = swept_total(replace(run_of(prepared, SerialPool()), folder=folder), TABLES)
    if isinstance(prepared.arithmetic, CostOptimum):
        yield outer.over((), np.array(FORBIDDEN if total is None else int(total)))
    elif outer.query == "count":
        yield outer.over((), np.array(float(total is not None)))
    else:
        log = -math.inf if total is None else total if outer.query == "mmap" else -total
        yield from outer.of_logs((), np.array([log]))


def _tables(prepared: Prepared) -> Iterator[tuple[Scope, Any]]:
    """Sweep, and yield the tables that are left with their axes, in local variables; each is let go of then."""
    plan = prepared.plan
    made = () if plan is None else tuple([root for root in plan.tree.roots if root >= plan.tree.n_leaves])
    if plan is None or not made:
        return
    _check_memory(prepared, [plan.layouts[root] for root in made])
    run = run_of(prepared, SerialPool())
    found = run.program(plan.up, made).run(threads=run.threads)
    for root in made:
        yield plan.layouts[root], found.pop(root)


def _check_memory(prepared: Prepared, scopes: Sequence[Scope]) -> None:
    """Refuse tables over all states that do not fit in addition to the swept tables."""
    plan, network = prepared.plan, prepared.network
    assert plan is not None
    cells = [math.prod([network.model.dims[network.variables[v]] for v in scope]) for scope in scopes]
    needed = plan.peak_bytes + CELL_BYTES * sum(cells)
    if needed > (allowed := prepared.memory_bytes):
        gone = len(network.dims) - len(prepared.problem.last)
        raise BudgetError(
            f"the problem that remains once {gone} variables are eliminated needs {format_bytes(needed)}, allowed "
            f"{format_bytes(allowed)}; try a larger --memory"
        )


def _as_functions(prepared: Prepared, outer: OuterFunctions, axes: Scope, table: Any) -> Iterator[Function]:
    """Yield functions of a flat table; their product or sum, with the table's scale, equals the table."""
    arithmetic = prepared.arithmetic
    if isinstance(arithmetic, CostOptimum):
        cap = arithmetic.scale.cap
        least = arithmetic.semiring.zero if cap is None else min(cap, arithmetic.semiring.zero)
        yield outer.over(axes, np.where(table >= least, FORBIDDEN, table.astype(np.int64)))
    elif outer.query == "count":
        yield outer.over(axes, (table < math.inf).astype(np.float64))
    elif isinstance(table, Scaled) and not table.logs:
        yield outer.over(axes, table.values)
    else:
        yield from outer.of_logs(axes, table.values if isinstance(table, Scaled) else -table)


# Tolerated difference between a sum and the maximised value, in log10, relative to their size.
_LOG_TOLERANCE = 1e-8


def answered_left(request: QueryRequest, prepared: Prepared) -> Result:
    """Eliminate the inner variables of a question and answer what is left; an assignment is evaluated independently.

    Raises
    ------
    BudgetError
        If the tables that are left do not fit memory, or no engine answers what is asked of them.
    InternalError
        If the sum with the maximised variables observed differs from the maximised value.
    """
    start = time.perf_counter()
    left, query = model_left(prepared), cast(ValueQuery, request.question.query)
    spent = time.perf_counter() - start
    if left is None:
        nothing = Result(query, "ok", value=0) if query == "count" else Result(query, "infeasible")
        return replace(nothing, plan=prepared.plan, seconds={"plan": prepared.seconds, "run": spent})
    assert request.ask is not None
    found = request.ask(
        question_of(left, QUERIES[query].left or query),
        options_of_left(request.options),
        request.effort,
        request.progress,
    )
    assert isinstance(found, Result)
    seconds = {**found.seconds, "plan": prepared.seconds + found.seconds.get("plan", 0.0)}
    seconds["run"] = spent + found.seconds.get("run", 0.0)
    found = replace(found, query=query, seconds=seconds, plan=found.plan or prepared.plan)
    return evaluated(request, found) if query == "mmap" else found


def options_of_left(options: Options) -> Options:
    """Return how what is left is planned: not in the run directory, nor in an order of all variables."""
    order = options.order if isinstance(options.order, str) else "auto"
    return replace(options.without_folder(), order=order)


def evaluated(request: QueryRequest, found: Result) -> Result:
    """Sum over the others with the maximised variables observed, and say that this is the value.

    Raises
    ------
    InternalError
        If it is another.
    """
    if found.assignment is None or found.log10 is None:
        return found
    again = sum_observed(request, found.assignment)
    value = -math.inf if again.log10 is None else again.log10
    if not abs(value - found.log10) <= _LOG_TOLERANCE * max(1.0, abs(value)):
        raise InternalError(f"the decoded states have log10 {value}, {found.log10} the search reported")
    seconds = {**found.seconds, "check": sum(again.seconds.values())}
    return replace(found, log10=value, seconds=seconds)


def sum_observed(request: QueryRequest, states: Mapping[str, str | int]) -> Result:
    """Return the sum over all other variables, with these states observed.

    Raises
    ------
    BudgetError
        If no engine finds it.
    """
    question = request.question
    observed = replace(question.model, evidence=question.hard).observe(states)
    summed = Question(question.model, "partition", observed, question.soft)
    assert request.ask is not None
    found = request.ask(summed, options_of_left(request.options), ProofOptions(), None)
    assert isinstance(found, Result)
    return found
