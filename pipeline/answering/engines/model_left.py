"""Eliminating all variables but those that a question is about: what is left is a model over these, asked again.

Projected counts and sums maximise over the other variables, so that a table says what can be completed; marginal MAP
sums over them. Each part of the network that shares none of the other variables leaves one table. No elimination order
that keeps to the variables in question has smaller ones (Park and Darwiche 2004), and what is left is an ordinary
count, sum or optimum, for all engines that there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....cluster.pool import SerialPool
from ....tasks.sweeps.scaled import Scaled
from ...errors import BudgetError, format_bytes
from ...models.function import FORBIDDEN, Function, dense_function, row_function
from ...models.model import Model
from ...preprocessing.leaf_rows import rows_left
from ...preprocessing.leaf_tables import restricted
from ...preprocessing.preprocess import fixed_value
from ...queries.arithmetic import CostOptimum
from ..prepared import Prepared
from ..running import run_of

Array = NDArray[Any]
Scope = tuple[int, ...]

# A function holds numbers whose natural logarithms are at most so far from 0; others are products of several.
_FAR: Final = 600.0
_ITEM_BYTES: Final = 8


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
    question, network = prepared.question, prepared.network
    assert question.outer is not None
    if fixed_value(network) is None:
        return None
    model, outer = network.model, sorted(question.outer)
    place = {v: k for k, v in enumerate(outer)}
    functions = [*_Left(prepared, place).functions()]
    return Model(
        kind="cost" if model.kind == "cost" else "markov",
        names=tuple([model.names[v] for v in outer]),
        dims=tuple([model.dims[v] for v in outer]),
        states=tuple([model.states[v] for v in outer]),
        functions=tuple(functions),
        top=model.top,
        name=model.name,
    )


class _Left:
    """The functions that are left, over the outer variables by their ``place``."""

    def __init__(self, prepared: Prepared, place: dict[int, int]) -> None:
        self.prepared, self.network, self.place = prepared, prepared.network, place
        self.query = prepared.question.query
        plan = prepared.plan
        roots = () if plan is None else plan.tree.roots
        leaves = range(len(self.network.leaves))
        #: leaves that no step reads: of outer variables alone
        untouched = leaves if plan is None else [root for root in roots if root in leaves]
        self.kept = [f for leaf in untouched for f in self.network.leaves[leaf].functions]
        self.made = () if plan is None else tuple([root for root in roots if root >= plan.tree.n_leaves])

    def functions(self) -> Iterator[Function]:
        """Yield those that no step read, what steps left, states that are possible, and what is the same for all."""
        model, network = self.network.model, self.network
        yield from map(self._kept, self.kept)
        scale = 0.0
        for axes, table in self._tables():
            scope = tuple([network.variables[v] for v in axes])
            if isinstance(table, Scaled):
                scale += table.log_scale
            yield from self._as_functions(scope, table)
        for v in self.place:
            if len(network.domains[v]) < model.dims[v]:
                yield self._over((v,), np.full(len(network.domains[v]), 0 if model.kind == "cost" else 1))
        yield from self._constants(scale)

    def _kept(self, f: int) -> Function:
        """Return a function of the model over outer variables, without those of one state that it may have."""
        network, function = self.network, self.network.model.functions[f]
        if self.place.keys() >= {*function.scope}:
            return function.changed(scope=tuple([self.place[v] for v in function.scope]), child=None)
        if function.rows is None:
            axes, values = restricted(network, f)
            return self._over(tuple([network.variables[v] for v in axes]), values)
        listed = rows_left(network, f)
        scope = [network.variables[v] for v in listed.axes]
        rows = np.stack([network.domains[v][places] for v, places in zip(scope, listed.states, strict=True)], axis=1)
        return row_function([self.place[v] for v in scope], rows, listed.values, function.default)

    def _tables(self) -> Iterator[tuple[Scope, Any]]:
        """Sweep, and yield the tables that are left with their axes, in local variables; each is let go of then."""
        plan = self.prepared.plan
        if plan is None or not self.made:
            return
        self._check_memory()
        run = run_of(self.prepared, SerialPool())
        found = run.program(plan.up, self.made).run(threads=run.threads)
        for root in self.made:
            yield plan.layouts[root], found.pop(root)

    def _check_memory(self) -> None:
        """Refuse tables over all states that do not fit beside those that were swept."""
        plan, dims = self.prepared.plan, self.network.model.dims
        assert plan is not None
        scopes = [[self.network.variables[v] for v in plan.layouts[root]] for root in self.made]
        needed = plan.peak_bytes + _ITEM_BYTES * sum(math.prod([dims[v] for v in scope]) for scope in scopes)
        if needed > (allowed := self.prepared.memory_bytes):
            gone = len(self.network.dims) - len(self.prepared.problem.last)
            raise BudgetError(
                f"what is left once {gone} variables are eliminated needs {format_bytes(needed)}, allowed "
                f"{format_bytes(allowed)}; try a larger --memory"
            )

    def _as_functions(self, scope: Scope, table: Any) -> Iterator[Function]:
        """Yield functions of a table that is flat, whose product or sum is worth what it says beside its scale."""
        arithmetic = self.prepared.arithmetic
        if isinstance(arithmetic, CostOptimum):
            cap = arithmetic.scale.cap
            least = arithmetic.semiring.zero if cap is None else min(cap, arithmetic.semiring.zero)
            yield self._over(scope, np.where(table >= least, FORBIDDEN, table.astype(np.int64)))
        elif self.query == "count":
            yield self._over(scope, (table < math.inf).astype(np.float64))
        elif isinstance(table, Scaled) and not table.logs:
            yield self._over(scope, table.values)
        else:
            yield from self._of_logs(scope, table.values if isinstance(table, Scaled) else -table)

    def _of_logs(self, scope: Scope, logs: Array) -> Iterator[Function]:
        finite = logs[logs > -math.inf]
        times = max(1, math.ceil(float(np.abs(finite).max(initial=0.0)) / _FAR))
        function = self._over(scope, np.exp(logs / times))
        yield from [function] * times

    def _over(self, scope: Scope, values: Array) -> Function:
        """Return a function over all states of variables, from its values at those that are left."""
        network, costs = self.network, self.network.model.kind == "cost"
        dims = [network.model.dims[v] for v in scope]
        domains = [network.domains[v] for v in scope]
        full = np.full(dims, FORBIDDEN if costs else 0.0, dtype=np.int64 if costs else np.float64)
        full[np.ix_(*domains)] = values.reshape([len(domain) for domain in domains])
        return dense_function(tuple([self.place[v] for v in scope]), full)

    def _constants(self, scale: float) -> Iterator[Function]:
        """Yield what all assignments are worth beside the other functions; ``scale`` is a natural logarithm."""
        network, fixed = self.network, fixed_value(self.network)
        assert fixed is not None
        if network.model.kind == "cost":
            lowest = network.model.lowest
            cost = int(fixed) + sum(lowest) - sum([lowest[f] for f in self.kept])
            yield dense_function((), np.array(cost, dtype=np.int64))
        elif self.query == "mmap":
            summed = [len(network.domains[v]) for v in network.free if v not in self.place]
            yield from self._of_logs((), np.array([math.fsum([float(fixed), scale, *map(math.log, summed)])]))
        elif self.query == "partition":
            yield from self._of_logs((), np.array([float(fixed)]))
