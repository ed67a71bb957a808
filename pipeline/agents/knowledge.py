"""What every agent knows at the beginning: its functions as tables of costs, all in one range of integers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.semiring import Semiring, min_plus
from ...tasks.sweeps.device_sweep import DevicePlain
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.sweep import Plain
from ..models.dcop import Dcop
from ..models.model import Model
from ..preprocessing.leaf_tables import integer_dtype, model_scale
from ..queries.arithmetic import MAX_INPUTS
from .agent import Knowledge
from .planning.plan import WORK, AgentPlan

Array = NDArray[Any]


def most_of(model: Model) -> int:
    """Return what no total is more than, above the least costs of all functions, which all agents agree on.

    Raises
    ------
    ModelError
        If totals may exceed 2**61.
    """
    return model_scale(model, range(len(model.functions))).bound


def semiring_of(most: int) -> Semiring:
    """Return the semiring of the narrowest integers that no total overflows."""
    return min_plus(integer_dtype(most, MAX_INPUTS), MAX_INPUTS)


def knowledge_of(
    dcop: Dcop, plan: AgentPlan, semiring: Semiring, most: int, algebra: Plain, threads: int = 1
) -> Knowledge:
    """Give an agent its own functions, each with 0 as its least cost, and nothing else."""
    leaves = {number: own_table(dcop.model, f, plan, semiring) for number, f in enumerate(plan.functions)}
    for number, v in enumerate(plan.observed, start=len(leaves)):
        states = np.full(dcop.model.dims[v], semiring.zero, semiring.dtype)
        states[dcop.model.evidence[v]] = 0
        leaves[number] = states
    axes: Mapping[int, tuple[int, ...]] = {number: plan.axes[number] for number in leaves}
    own = replace(algebra, semiring=WORK) if plan.matchings else algebra
    program = Program(plan.steps, leaves, axes, plan.outgoing, plan.dims, own)
    offset = sum(dcop.model.lowest[f] for f in plan.functions)
    clock = perf_counter if threads > 1 or isinstance(algebra, DevicePlain) else thread_time
    return Knowledge(plan, program, semiring, offset, most, threads, clock)


def own_table(model: Model, f: int, plan: AgentPlan, semiring: Semiring) -> Array:
    """Return a function's costs above its least, flat, in the order of an agent's axes."""
    function = model.functions[f]
    values = function.dense(model.dims)
    allowed = values < model.limits[f]
    costs = np.where(allowed, np.where(allowed, values, 0) - model.lowest[f], semiring.zero).astype(semiring.dtype)
    places = {v: place for place, v in enumerate(plan.variables)}
    axes = sorted(range(len(function.scope)), key=lambda axis: places[function.scope[axis]])
    return np.ascontiguousarray(costs.transpose(axes)).reshape(-1)


def constant_of(model: Model) -> int | None:
    """Return the cost of all functions without variables; None if one of them forbids everything."""
    total = 0
    for function, limit in zip(model.functions, model.limits, strict=True):
        if not function.scope:
            cost = int(function.at(()))
            if cost >= limit:
                return None
            total += cost
    return total


def own_cells(dcop: Dcop, plan: AgentPlan) -> int:
    """Return how many cells the tables of an agent's own functions have."""
    return sum(math.prod(dcop.model.dims[v] for v in dcop.model.functions[f].scope) for f in plan.functions)
