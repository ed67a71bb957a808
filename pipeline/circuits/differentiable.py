"""ln Z as a differentiable function of the logarithms of tables, in the operations of another framework.

The framework itself runs the steps of a plan, in logarithms. It can therefore differentiate them repeatedly, compile
them, and keep its arrays on its devices. The derivative by an entry's logarithm is the probability of its states, also
if the entry is 0 (Darwiche, JACM 2003). The derivative by the entry is this probability divided by the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, combinations
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import SUM_PRODUCT
from ..answering.question import Findings
from ..errors import BudgetError, ModelError, format_bytes
from ..formats.read import GivenModel, given_model, split_evidence
from ..machine.resources import Resources
from ..models.model import Model
from ..options import Options
from ..plans.plan import Plan
from ..plans.planner import Planner
from ..plans.problem import PlanOptions, Problem
from ..trees.costs import Rates
from ..trees.tree import bucket_tree

# Orders for machines that do many equal steps at once: rounds of variables that no function or join has together.
#
# Multiple elimination (Liu 1985, "Modification of the minimum-degree algorithm by multiple elimination") bounded by the
# size of a join: the shallower a tree is to be, the larger are its joins.
#
# >>> independent_rounds((2,) * 7, [(v, v + 1) for v in range(6)], most_cells=8)
# (0, 6, 2, 4, 1, 5, 3)
# >>> independent_rounds((2,) * 7, [(v, v + 1) for v in range(6)], most_cells=4)
# (0, 6, 1, 5, 2, 4, 3)


def independent_rounds(dims: Sequence[int], scopes: Iterable[Sequence[int]], most_cells: int) -> tuple[int, ...]:
    """Return all variables in the order of rounds, with smaller joins first in each round.

    Parameters
    ----------
    dims : sequence of int
    scopes : iterable of sequences of int
    most_cells : int
        A variable whose join has more waits, unless all that are left have.
    """
    near: list[set[int]] = [set() for _ in dims]
    for scope in scopes:
        for u, v in combinations(scope, 2):
            near[u].add(v)
            near[v].add(u)
    left, order = {*range(len(dims))}, list[int]()
    while left:
        cells = {v: dims[v] * prod([dims[u] for u in near[v]]) for v in left}
        least = max(most_cells, min(cells.values()))
        taken = set[int]()
        for v in sorted(left, key=lambda v: (cells[v], v)):
            if cells[v] <= least and near[v].isdisjoint(taken):
                taken.add(v)
                order.append(v)
        for v in taken:
            for u in near[v]:
                near[u] |= near[v] - {u}
                near[u].discard(v)
        left -= taken
    return tuple(order)


# Joins of orders that are compared for a device grow by this factor.
_WIDER_JOINS: Final = 4
# Number of consecutive orders without improvement that ends the comparison.
_WORSE_ORDERS: Final = 3

Array = NDArray[Any]
Places = tuple[int, ...]
_TAKEN = ("memory", "order", "order_time", "tree", "seed")
# A join, its exponentials and their derivative.
_JOINS = 3


class Framework(Protocol):
    """Operations needed from a framework, in addition to arithmetic on its arrays."""

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
        """Return logarithms of sums over some axes; a sum of zeros gives -inf with derivatives 0."""
        ...

    @property
    def together_rates(self) -> Rates | None:
        """How long equal steps take that are done as one; None where they are better done one after the other."""
        ...

    def together(self, function: Callable[..., Any], columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the results of a function for the first arrays of all columns, for the second arrays, and so on."""
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
            Logarithms of likelihoods of a variable's states, replacing the original evidence.
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
                    f"evidence has {name!r}; expected one logarithm for each state of a variable of the model"
                )
            found[v] = own
        return found

    def _value(self, tables: list[Any], findings: list[Any]) -> Any:
        """Go up the plan."""
        constants = [t for t, f in zip(tables, self.model.functions, strict=True) if not f.scope]
        leaves = [t for t, f in zip(tables, self.model.functions, strict=True) if f.scope] + findings
        live = dict(enumerate(leaves))
        for join in self._joins:
            columns = [
                [self.framework.arranged(live[own[k].node], own[k].axes, join.shape_of(places)) for own in join.inputs]
                for k, places in enumerate(join.places)
            ]
            made = self.framework.together(partial(self._joined, join), columns)
            live.update(zip(join.nodes, made, strict=True))
        found = [live[root] for root in self.plan.tree.roots]
        return sum([*constants, *found[1:]], found[0])

    @cached_property
    def _joins(self) -> list[EqualJoins]:
        """The steps of the plan in an order in which they can be done; equal ones are one where that is faster."""
        return joins_of(self.plan, together=self.framework.together_rates is not None)

    def _joined(self, join: EqualJoins, *tables: Any) -> Any:
        """Add up logarithms of tables, and sum out the variables that the join's output does not have."""
        spread = [
            self._spread(join, table, places, range(len(join.shape))) for places, table in self._absorbed(join, tables)
        ]
        total = sum(spread[1:], spread[0])
        gone = range(join.kept, len(join.shape))
        return self.framework.log_sum(total, gone) if gone else total

    def _absorbed(self, join: EqualJoins, tables: Sequence[Any]) -> list[tuple[Places, Any]]:
        """Add each table to a table with all its variables, because the way back sums the join once per remaining
        table.
        """
        found: list[tuple[Places, Any]] = []
        for places, table in zip(join.places, tables, strict=True):
            host = next((k for k, (own, _) in enumerate(found) if {*places} <= {*own}), None)
            if host is None:
                found.append((places, table))
            else:
                own, known = found[host]
                found[host] = own, known + self._spread(join, table, places, own)
        return found

    def _spread(self, join: EqualJoins, table: Any, places: Places, wanted: Sequence[int]) -> Any:
        """Return a table with one axis for each wanted variable, of length 1 for missing variables."""
        shape = [join.shape[place] if place in places else 1 for place in wanted]
        return self.framework.arranged(table, range(len(places)), shape)


class JoinInput(NamedTuple):
    """A table that a join reads, and its axes in the order of the join's variables."""

    node: int
    axes: tuple[int, ...]


@dataclass(frozen=True)
class EqualJoins:
    """Independent steps that join tables of the same shape.

    Parameters
    ----------
    nodes : list of int
        What they make.
    inputs : list of list of JoinInput
        The inputs of each step.
    places : tuple of tuple of int
        Of each table that one reads the variables, by their places in the join, ascending; the widest table first.
    shape : tuple of int
        Sizes of the join's variables, kept variables first.
    kept : int
    """

    nodes: list[int]
    inputs: list[list[JoinInput]]
    places: tuple[Places, ...]
    shape: tuple[int, ...]
    kept: int

    @property
    def cells(self) -> int:
        """Cells of all joins."""
        return len(self.nodes) * prod(self.shape)

    def shape_of(self, places: Places) -> list[int]:
        """Return the sizes of some of the variables."""
        return [self.shape[place] for place in places]


def joins_of(plan: Plan, *, together: bool) -> list[EqualJoins]:
    """Return the steps up in an order in which they can be done, each alone or equal ones together."""
    axes, level, found = dict(enumerate(plan.tree.leaves)), dict[int, int](), dict[Any, EqualJoins]()
    for step in plan.up:
        axes[step.node] = step.axes
        level[step.node] = 1 + max([level.get(node, 0) for node in step.inputs])
        place = {v: k for k, v in enumerate(dict.fromkeys((*step.axes, *chain(*[axes[n] for n in step.inputs]))))}
        read = []
        for node in step.inputs:
            own = axes[node]
            order = sorted(range(len(own)), key=[place[v] for v in own].__getitem__)
            read.append((tuple([place[own[k]] for k in order]), JoinInput(node, tuple(order))))
        read.sort(key=lambda own: (-len(own[0]), own[0]))
        places, shape = tuple([own for own, _ in read]), tuple([plan.tree.dims[v] for v in place])
        key = (level[step.node], places, shape, len(step.axes)) if together else step.node
        join = found.setdefault(key, EqualJoins([], [], places, shape, len(step.axes)))
        join.nodes.append(step.node)
        join.inputs.append([own for _, own in read])
    return sorted(found.values(), key=lambda join: level[join.nodes[0]]) if together else [*found.values()]


def partition_in(
    framework: Framework, model: GivenModel, evidence: Findings, options: Mapping[str, Any]
) -> LogPartition:
    """Plan ln Z of a model as a differentiable function of a framework.

    Parameters
    ----------
    framework : Framework
        JAX or PyTorch, with its arrays and rates.
    model : GivenModel
    evidence : Findings
    options : mapping
        ``memory``, ``order``, ``order_time``, ``tree`` and ``seed``.
    """
    if given := [name for name in options if name not in _TAKEN]:
        raise ModelError(f"derivatives are computed by the other framework as a whole; {given[0]!r} does not apply")
    model = given_model(model, options.get("memory"))
    if model.kind == "cost":
        raise ModelError("sums need probabilities, potentials or clauses, but this model has costs")
    if not model.dims:
        raise ModelError("a model without variables has nothing to sum")
    asked = Options(**options)
    scopes = (*[f.scope for f in model.functions if f.scope], *[(v,) for v in range(len(model.dims))])
    order = _order(model, asked.order)
    planned = PlanOptions(tree=asked.tree, order=order, order_seconds=asked.order_time, seed=asked.seed)
    problem = Problem(model.dims, scopes, SUM_PRODUCT, SUM_PRODUCT.itemsize, model.nbytes)
    plan = Planner(problem, planned, framework.rates).whole()
    allowed = Resources(asked).host_bytes
    if asked.order == "auto":
        # gradients keep all joins, so a shallower tree may be faster than the tree with the fewest cells
        plan = _shallower(plan, problem, planned, framework, allowed)
    needed = _bytes(plan, joins_of(plan, together=framework.together_rates is not None))
    if needed > allowed:
        raise BudgetError(
            f"ln Z and its derivatives need {format_bytes(needed)}, allowed {format_bytes(allowed)}; give more memory"
        )
    with np.errstate(divide="ignore"):
        logs = [framework.array(np.log(f.dense(model.dims))) for f in model.functions]
    return LogPartition(model, plan, framework, logs, [*map(framework.array, _log_findings(model, evidence))])


def _bytes(plan: Plan, joins: list[EqualJoins]) -> int:
    """Return the bytes that ln Z and its derivatives need: all tables twice, and the largest joins."""
    kept = sum([step.lowered.out_cells for step in plan.up])
    return plan.leaf_bytes + SUM_PRODUCT.itemsize * (2 * kept + _JOINS * max([each.cells for each in joins], default=0))


def _shallower(plan: Plan, problem: Problem, options: PlanOptions, framework: Framework, allowed: int) -> Plan:
    """Return a plan of few different steps with larger joins, where that is predicted to take less and fits."""
    rates = framework.together_rates
    most = max([step.lowered.cells for step in plan.up], default=0)
    if rates is None or not most:
        return plan

    def seconds(joins: list[EqualJoins]) -> float:
        return rates.step_seconds * len(joins) + sum([each.cells for each in joins]) / rates.cells_per_second

    best, least, worse = plan, seconds(joins_of(plan, together=True)), 0
    while worse < _WORSE_ORDERS:
        order = independent_rounds(problem.dims, problem.scopes, most)
        tree = bucket_tree(problem.dims, problem.scopes, order)
        tried = Planner(problem, replace(options, tree="bucket", order=order), framework.rates).of(tree)
        joins = joins_of(tried, together=True)
        taken = seconds(joins)
        if taken < least and _bytes(tried, joins) <= allowed:
            best, least, worse = tried, taken, 0
        else:
            worse += 1
        most *= _WIDER_JOINS
    return best


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
        raise ModelError("an order must name each variable of the model exactly once")
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
