"""ln Z as a differentiable function of the logarithms of tables, in the operations of another framework.

The steps of a plan are done in the framework itself, in logarithms, so that it differentiates them, as often as is
asked, compiles them, and keeps its arrays where they are. The derivative by an entry's logarithm is the probability
of its states, also where the entry is 0 (Darwiche, JACM 2003); the derivative by the entry is that over the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step
from ..answering.question import Findings, split_evidence
from ..errors import BudgetError, ModelError, format_bytes
from ..formats.read import GivenModel, given_model
from ..machine.resources import Resources
from ..models.model import Model
from ..options import Options
from ..plans.plan import Plan
from ..plans.planner import Planner
from ..plans.problem import PlanOptions, Problem
from ..trees.costs import Rates

Array = NDArray[Any]
_TAKEN = ("memory", "order", "order_time", "tree", "seed")
# A join, its exponentials and their derivative.
_JOINS = 3


class Framework(Protocol):
    """What is needed of a framework, beside arithmetic on its arrays."""

    @property
    def rates(self) -> Rates:
        """How long its steps take, by which trees are chosen."""
        ...

    def array(self, values: Any) -> Any:
        """Return values as an array of its own."""
        ...

    def arranged(self, values: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
        """Return an array with its axes in another order, and then of another shape."""
        ...

    def log_sum(self, logs: Any, axes: Sequence[int]) -> Any:
        """Return logarithms of sums over some axes; of nothing but zeros -inf, whose derivatives are 0."""
        ...

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is compiled as a whole when it is first called, where the framework compiles."""
        ...

    def gradient(self, function: Callable[[Any], Any], at: list[Any]) -> list[Any]:
        """Return the derivatives of a number by arrays, which can be derived again."""
        ...


@dataclass(frozen=True, eq=False)
class LogPartition:
    """ln Z of a model's functions, or ln P(evidence), as a function of the logarithms of their tables.

    Parameters
    ----------
    model : Model
    plan : Plan
    framework : Framework
    logs, findings : list of arrays of the framework
        Logarithms of the model's own tables, -inf for 0; and of the likelihood of each state of each variable, by the
        evidence it was made with.
    """

    model: Model
    plan: Plan
    framework: Framework
    logs: list[Any]
    findings: list[Any]

    def __call__(self, logs: Sequence[Any] | None = None, evidence: Mapping[str, Any] | None = None) -> Any:
        """Return ln Z.

        Parameters
        ----------
        logs : sequence of arrays, optional
            Logarithms of a table for each function, an axis for each variable of its scope; by default the model's own.
        evidence : mapping of str to array, optional
            Logarithms of likelihoods of a variable's states, in place of what it was made with.
        """
        return self._sum(self._tables(logs), self._findings(evidence))

    def marginals(self, logs: Sequence[Any] | None = None, evidence: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the posterior of each variable, which can be derived in its turn."""
        tables, findings = self._tables(logs), self._findings(evidence)
        return dict(zip(self.model.own_names, self._posteriors(tables, findings), strict=False))

    @cached_property
    def _sum(self) -> Callable[..., Any]:
        return self.framework.compiled(self._value)

    @cached_property
    def _posteriors(self) -> Callable[..., Any]:
        def found(tables: list[Any], findings: list[Any]) -> list[Any]:
            return self.framework.gradient(lambda own: self._value(tables, own), findings)

        return self.framework.compiled(found)

    def _tables(self, logs: Sequence[Any] | None) -> list[Any]:
        tables = [*(self.logs if logs is None else logs)]
        wanted = [tuple([self.model.dims[v] for v in f.scope]) for f in self.model.functions]
        if [tuple(np.shape(table)) for table in tables] != wanted:
            raise ModelError(f"{len(wanted)} tables are expected, of the shapes of the model's functions")
        return tables

    def _findings(self, evidence: Mapping[str, Any] | None) -> list[Any]:
        found = [*self.findings]
        for name, own in (evidence or {}).items():
            if (v := self.model.index.get(name, -1)) < 0 or tuple(np.shape(own)) != (self.model.dims[v],):
                raise ModelError(
                    f"evidence has {name!r}; expected logarithms for all states of a variable of the model"
                )
            found[v] = own
        return found

    def _value(self, tables: list[Any], findings: list[Any]) -> Any:
        """Go up the plan."""
        constants = [t for t, f in zip(tables, self.model.functions, strict=True) if not f.scope]
        leaves = [t for t, f in zip(tables, self.model.functions, strict=True) if f.scope] + findings
        live = dict(enumerate(leaves))
        axes = dict(enumerate(self.plan.tree.leaves))
        for step in self.plan.up:
            live[step.node] = self._joined(step, [live[node] for node in step.inputs], [axes[n] for n in step.inputs])
            axes[step.node] = step.axes
        found = [live[root] for root in self.plan.tree.roots]
        return sum([*constants, *found[1:]], found[0])

    def _joined(self, step: Step, tables: list[Any], scopes: Sequence[tuple[int, ...]]) -> Any:
        """Add up logarithms of tables, and sum out what the step's output lacks."""
        gone = [v for v in dict.fromkeys(v for scope in scopes for v in scope) if v not in step.axes]
        order = (*step.axes, *gone)
        spread = [self._spread(table, scope, order) for scope, table in self._absorbed(tables, scopes)]
        total = sum(spread[1:], spread[0])
        return self.framework.log_sum(total, range(len(step.axes), len(order))) if gone else total

    def _absorbed(self, tables: list[Any], scopes: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], Any]]:
        """Add each table to one that has all of its variables: the way back sums the join for each that is left."""
        found: list[tuple[tuple[int, ...], Any]] = []
        for scope, table in sorted(zip(scopes, tables, strict=True), key=lambda pair: -len(pair[0])):
            host = next((k for k, (own, _) in enumerate(found) if {*scope} <= {*own}), None)
            if host is None:
                found.append((scope, table))
            else:
                own, known = found[host]
                found[host] = own, known + self._spread(table, scope, own)
        return found

    def _spread(self, table: Any, scope: tuple[int, ...], order: Sequence[int]) -> Any:
        """Return a table with an axis for each variable, of one state for those that it lacks."""
        axes = sorted(range(len(scope)), key=lambda k: order.index(scope[k]))
        return self.framework.arranged(table, axes, [self.model.dims[v] if v in scope else 1 for v in order])


def partition_in(
    framework: Framework, model: GivenModel, evidence: Findings, options: Mapping[str, Any]
) -> LogPartition:
    """Plan ln Z of a model for a framework.

    Raises
    ------
    ModelError
        If the model has costs, or an option does not apply.
    BudgetError
        If the tables do not fit ``memory``.
    """
    if given := [name for name in options if name not in _TAKEN]:
        raise ModelError(f"what is derived is computed by another framework, whole; {given[0]!r} does not apply")
    model = given_model(model, options.get("memory"))
    if model.kind == "cost":
        raise ModelError("sums are of probabilities, potentials or clauses, and this model has costs")
    if not model.dims:
        raise ModelError("a model without variables has nothing to sum")
    asked = Options(**options)
    scopes = (*[f.scope for f in model.functions if f.scope], *[(v,) for v in range(len(model.dims))])
    order = _order(model, asked.order)
    planned = PlanOptions(tree=asked.tree, order=order, order_seconds=asked.order_time, seed=asked.seed)
    problem = Problem(model.dims, scopes, SUM_PRODUCT, SUM_PRODUCT.itemsize, model.nbytes)
    plan = Planner(problem, planned, framework.rates).whole()
    itemsize, allowed = SUM_PRODUCT.itemsize, Resources(asked).host_bytes
    kept = sum([step.lowered.out_cells for step in plan.up])
    needed = plan.leaf_bytes + itemsize * (2 * kept + _JOINS * max([s.lowered.cells for s in plan.up], default=0))
    if needed > allowed:
        raise BudgetError(
            f"ln Z and its derivatives need {format_bytes(needed)}, allowed {format_bytes(allowed)}; give more memory"
        )
    with np.errstate(divide="ignore"):
        logs = [framework.array(np.log(f.dense(model.dims))) for f in model.functions]
    return LogPartition(model, plan, framework, logs, [*map(framework.array, _log_findings(model, evidence))])


def _order(model: Model, order: Any) -> Any:
    """Return the name of a heuristic, or variables by their numbers, hidden ones last.

    Raises
    ------
    ModelError
        If names are unknown or missing.
    """
    if isinstance(order, str):
        return order
    if sorted(order) != sorted(model.own_names):
        raise ModelError("an order has to name each variable of the model once")
    return (*[model.index[name] for name in order], *range(len(model.own_names), len(model.dims)))


def _log_findings(model: Model, evidence: Findings) -> list[Array]:
    """Return the logarithm of each state's likelihood, for each variable."""
    hard, soft = split_evidence(model, evidence)
    found = [np.zeros(dim) for dim in model.dims]
    for v, state in hard.items():
        found[v] = np.where(np.arange(model.dims[v]) == state, 0.0, -np.inf)
    with np.errstate(divide="ignore"):
        for v, likelihoods in soft.items():
            found[v] = found[v] + np.log(likelihoods)
    return found
