"""Dense elimination of what preprocessing left: the plan is made again, as there is less to eliminate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.cpu.compiler import compiler_pays
from ...tasks.steps.semiring import Semiring, min_plus
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.sweep import Plain
from ..budget.fit import fitted
from ..errors import BudgetError, InternalError
from ..models.leaf_tables import integer_dtype
from ..plans.plan import Plan, PlanOptions, Problem
from ..plans.planner import lowered_step
from ..queries.arithmetic import MAX_INPUTS
from ..queries.decode import decode
from ..trees.costs import Rates
from .network import CostNetwork, CostTable, States
from .outcome import Outcome

Array = NDArray[Any]


@dataclass(frozen=True)
class DensePlan:
    """How a network is eliminated densely, and in which numbers."""

    plan: Plan
    semiring: Semiring
    lowest: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """Predicted."""
        return self.plan.seconds


def plan_dense(
    network: CostNetwork, upper: int | None, *, memory_bytes: int, threads: int = 1, seed: int = 0
) -> DensePlan | None:
    """Plan the elimination of a network in memory, in slices if need be; None if no plan fits ``memory_bytes``.

    Only totals below ``upper`` are looked for, so that narrower integers may do.
    """
    finite = [table.costs[np.isfinite(table.costs)] for table in network.tables]
    lowest = [int(values.min(initial=np.inf)) if values.size else 0 for values in finite]
    bound = sum(int(values.max(initial=low)) - low for values, low in zip(finite, lowest, strict=True))
    if upper is not None:
        bound = max(0, min(bound, upper - network.constant - sum(lowest)))
    semiring = min_plus(integer_dtype(bound, MAX_INPUTS), MAX_INPUTS)
    problem = Problem(network.dims, network.scopes, semiring, semiring.itemsize, network.cells * 8)
    options = PlanOptions(memory_bytes=memory_bytes, decode=True, threads=threads, seed=seed)
    try:
        prices = fitted(problem, options, Rates(), "slice", 0, lambda: 0.0)
    except BudgetError:
        return None
    return DensePlan(prices.chosen, semiring, tuple(lowest))


def solve_dense(
    network: CostNetwork,
    upper: int | None,
    dense: DensePlan,
    *,
    threads: int = 1,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Find the least total below ``upper`` by sweeping every cell of ``dense.plan``.

    Stopped before the last slice it has proved nothing, but may have an assignment.
    """
    plan, floor = dense.plan, network.constant + sum(dense.lowest)
    program = _program(network, dense, upper)
    best, best_states, complete = math.inf if upper is None else upper, None, True
    for states in _slices(plan):
        if stop():
            complete = False
            break
        total = floor + _swept(program, dense.semiring, states, threads)
        if total < best:
            best, best_states = total, states
    if best_states is None:
        return Outcome(floor if upper is None or not complete else upper, feasible=not complete)
    best = int(best)
    found = _decoded(program, dense, best_states, threads)
    total = network.total(found)
    if total != best:
        raise InternalError(f"the decoded assignment has total {total}, the sweep found {best}")
    return Outcome(best if complete else floor, best, found)


def _program(network: CostNetwork, dense: DensePlan, upper: int | None) -> Program[Array]:
    plan = dense.plan
    axes = {i: plan.layouts[i] for i in range(len(network.tables))}
    leaves = {
        i: _leaf(table, axes[i], low, dense.semiring)
        for i, (table, low) in enumerate(zip(network.tables, dense.lowest, strict=True))
    }
    algebra = Plain(dense.semiring, compiler_pays(plan.cells))
    return Program(plan.steps, leaves, axes, plan.tree.roots, plan.dims, algebra, plan.variant_from)


def _leaf(table: CostTable, axes: tuple[int, ...], low: int, semiring: Semiring) -> Array:
    values = np.minimum(table.costs - low, semiring.zero).astype(semiring.dtype)
    return np.ascontiguousarray(values.transpose([table.scope.index(v) for v in axes])).reshape(-1)


def _slices(plan: Plan) -> Iterator[dict[int, int]]:
    for index in np.ndindex(*(plan.dims[v] for v in plan.sliced)):
        yield dict(zip(plan.sliced, index, strict=True))


def _swept(program: Program[Array], semiring: Semiring, states: dict[int, int], threads: int) -> float:
    """Return the least total of a slice above the floor; inf if it is forbidden."""
    (roots,) = program.run_slices([states], threads=threads, shared=program.shared)
    values = [int(root.item()) for root in roots.values()]
    return math.inf if any(v >= semiring.zero for v in values) else sum(values)


def _decoded(program: Program[Array], dense: DensePlan, states: dict[int, int], threads: int) -> States:
    """Sweep a slice again with its tables kept, and follow them back."""
    plan = dense.plan
    sizes = [1 if v in states else d for v, d in enumerate(plan.dims)]
    problem = Problem(plan.dims, (), dense.semiring, dense.semiring.itemsize)
    steps = tuple(lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in program.steps)
    leaves = program.restricted_leaves(states)
    tables = leaves | replace(program, steps=steps, leaves=leaves, variant_from=0).run(
        keep=[s.node for s in steps], threads=threads
    )
    found = dict(states)
    decode(steps, tables, sizes, dense.semiring, found, program.algebra.compiled)
    return tuple(found.get(v, 0) for v in range(len(plan.dims)))
