"""The work of an agent:

UTIL from its own tables and its children's messages, VALUE from the decisions of its ancestors.

A :class:`Knowledge` is all that an agent has before the first message. The functions here take a knowledge and
messages, and nothing else. Whether they run in this process or on a worker, an agent never sees a function of another
agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.gpu.arrays import on_host
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.semiring import Semiring, min_plus
from ...tasks.steps.views import slice_of
from ...tasks.sweeps.best_states import best_states
from ...tasks.sweeps.device_sweep import DevicePlain
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.sweep import Algebra, Plain, restrict, useful_threads
from ..minibuckets.least_costs import shifts
from ..models.dcop import Dcop
from ..models.model import Model
from ..preprocessing.leaf_tables import integer_dtype, model_scale
from ..queries.arithmetic import MAX_INPUTS
from .agent_plan import WORK, AgentPlan, Scope

# ADPOP's split buckets: as in mini-bucket elimination, the parts of a bucket first agree on their common variables,
# here within one agent. The parts divide the sum of their minima, by
# :func:`bucketflow.pipeline.minibuckets.least_costs.shifts`. Shares are lifted to be at least 0, and a message removes
# the lift again, so that forbidden entries stay forbidden. Entries above any possible total are forbidden too.


def matched(
    plan: AgentPlan, tables: Mapping[int, Any], semiring: Semiring, most: int, algebra: Algebra[Any], threads: int
) -> dict[int, Any]:
    """Run an agent's steps, with matching in every split bucket; return the tables of the steps.

    Parameters
    ----------
    plan : AgentPlan
        Its steps are lowered for ``WORK``.
    tables : mapping
        Own tables and tables of messages, by number, over ``semiring``.
    most : int
        Upper limit of any total.
    algebra : Algebra
        Over ``WORK``.
    """
    live = {number: _widened(table, semiring) for number, table in tables.items()}
    made: dict[int, Any] = {}
    steps = iter(plan.steps)
    for bucket, matching in zip(plan.buckets, plan.matchings, strict=True):
        lifts = [0] * len(bucket)
        if matching is not None:
            minima = [algebra.step(s, [live[t] for t in s.inputs], useful_threads(s, threads)) for s in matching.minima]
            shares, lifts = _shares(minima, most)
            live |= zip(matching.shares, shares, strict=True)
        for _, lift in zip(bucket, lifts, strict=True):
            step = next(steps)
            found = algebra.step(step, [live[t] for t in step.inputs], useful_threads(step, threads))
            live[step.node] = _kept_to(found, lift, most)
            made[step.node] = _narrowed(live[step.node], semiring)
    return made


def _shares(minima: Sequence[Any], most: int) -> tuple[list[Any], list[int]]:
    """Return the share of each part of a bucket, at least 0, and its lift."""
    exact = [np.where(on_host(each) >= WORK.zero, np.inf, on_host(each).astype(np.float64)) for each in minima]
    shares, lifts = [], []
    for shift in shifts(exact, most + 1):
        allowed = np.isfinite(shift)
        lifts.append(-int(min(shift[allowed].min(initial=0.0), 0.0)))
        shares.append(np.where(allowed, np.where(allowed, shift, 0.0) + lifts[-1], WORK.zero).astype(WORK.dtype))
    return shares, lifts


def _kept_to(cells: Any, lift: int, most: int) -> Any:
    """Subtract a lift from a table; entries above any possible total become forbidden."""
    return np.where(cells - lift > most, WORK.zero, cells - lift)


def _widened(table: Any, semiring: Semiring) -> Any:
    return np.where(table >= semiring.zero, WORK.zero, table.astype(WORK.dtype))


def _narrowed(table: Any, semiring: Semiring) -> Any:
    table = on_host(table)
    return np.where(table >= WORK.zero, semiring.zero, table).astype(semiring.dtype)


Array = NDArray[Any]
States = Mapping[int, int]
"""States by variable, as the model numbers them."""

#: The number of a variable, a state or an agent in a message.
NUMBER_BYTES = 4


@dataclass(frozen=True)
class Knowledge:
    """The knowledge of one agent: its plan, its own tables in ``program``, and the amounts subtracted from their
    entries.

    ``most`` is what no total is more than, which all know. ``clock`` measures its work: the time of its thread where it
    has only one, which other processes do not lengthen.
    """

    plan: AgentPlan
    program: Program[Array]
    semiring: Semiring
    offset: int
    most: int
    threads: int = 1
    clock: Callable[[], float] = thread_time


@dataclass(frozen=True)
class MessageTable:
    """A table of a message: its variables, how many states of each it has, and its cells, C-ordered."""

    scope: Scope
    sizes: tuple[int, ...]
    cells: Array


@dataclass(frozen=True)
class Message:
    """UTIL: the least cost of everything below, above ``offset``, for the states of the separator; unless
    ``possible``, all of it is forbidden.
    """

    offset: int
    tables: tuple[MessageTable, ...]
    possible: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of tables, scopes and the offset."""
        scopes = sum(len(table.scope) for table in self.tables)
        return message_bytes(sum(table.cells.nbytes for table in self.tables), scopes)


def message_bytes(cells: int, variables: int) -> int:
    """Return the bytes of a message with tables of ``cells`` bytes over ``variables`` variables in total."""
    return 8 + cells + NUMBER_BYTES * variables


@dataclass(frozen=True)
class Sent:
    """A message that an agent sends, the tables that it keeps to decide, and how long it computed."""

    message: Message
    kept: Mapping[int, Any]
    seconds: float


@dataclass(frozen=True)
class Decided:
    """States of an agent's own variables and of its separator, and how long it computed."""

    states: dict[int, int]
    seconds: float


def util(knowledge: Knowledge, context: States, *messages: Message) -> Sent:
    """Join an agent's tables with its children's messages and eliminate its own variables.

    Parameters
    ----------
    knowledge : Knowledge
    context : mapping of int to int
        States of the variables that are fixed for now.
    messages : Message
        Of its children, in the order of its plan.
    """
    start = knowledge.clock()
    plan, program = knowledge.plan, knowledge.program
    local = {place: context[v] for place, v in enumerate(plan.variables) if v in context}
    given = program.leaves_at(local, program.leaves)
    for (_, numbers), message in zip(plan.incoming, messages, strict=True):
        for number, table in zip(numbers, message.tables, strict=True):
            given[number] = _restricted(table, context)
    if plan.matchings:
        made = given | matched(plan, given, knowledge.semiring, knowledge.most, program.algebra, knowledge.threads)
    else:
        made = program.run(given, keep=plan.kept, threads=knowledge.threads)
    offset = knowledge.offset + sum(message.offset for message in messages)
    possible = all(message.possible for message in messages)
    tables = []
    for number in plan.outgoing:
        cells, least = _lowered(on_host(made[number]).reshape(-1), knowledge.semiring)
        offset, possible = offset + (least or 0), possible and least is not None
        if axes := plan.axes[number]:
            scope = tuple(plan.variables[v] for v in axes)
            tables.append(MessageTable(scope, tuple(plan.sizes[v] for v in axes), cells))
    kept = {number: made[number] for number in plan.kept}
    return Sent(Message(offset, tuple(tables), possible), kept, knowledge.clock() - start)


def _restricted(table: MessageTable, context: States) -> Array:
    """Return the cells of a table for the states that are fixed."""
    places = range(len(table.scope))
    states = {place: context[v] for place, v in enumerate(table.scope) if v in context and table.sizes[place] > 1}
    return restrict(table.cells, places, table.sizes, states)


def _lowered(cells: Array, semiring: Semiring) -> tuple[Array, int | None]:
    """Return a table with 0 as its least entry, and what that was; None where all is forbidden."""
    least = int(cells.min())
    if least == 0 or least >= semiring.zero:
        return cells, None if least else 0
    lowered = np.subtract(cells, least)
    np.copyto(lowered, semiring.zero, where=cells >= semiring.zero)
    return lowered, least


def assign(knowledge: Knowledge, kept: Mapping[int, Any], above: States) -> Decided:
    """Decide on an agent's own variables, the last eliminated first, given the states of its separator.

    Parameters
    ----------
    kept : mapping
        Tables of :func:`util`, by number.
    above : mapping of int to int
        States of the separator, and of own variables that are fixed.
    """
    start = knowledge.clock()
    plan, states = knowledge.plan, {}
    for place, v in enumerate(plan.variables):
        if v in above:
            states[place] = above[v]
    for place, bucket in reversed(list(enumerate(plan.buckets, start=1))):
        own = len(plan.variables) - place
        if own in states:
            continue
        tables = [table for mini in bucket for table in mini.tables]
        slices = [slice_of(kept[table], plan.axes[table], plan.sizes, states) for table in tables]
        states[own] = best_states(slices, plan.sizes, knowledge.semiring).get(own, 0)
    return Decided({plan.variables[place]: state for place, state in states.items()}, knowledge.clock() - start)


def cost_at(message: Message, states: States, semiring: Semiring) -> int | None:
    """Return the cost of one assignment of a message's variables; None if it is forbidden."""
    total = message.offset
    if not message.possible:
        return None
    for table in message.tables:
        place = 0
        for v, size in zip(table.scope, table.sizes, strict=True):
            place = place * size + (states[v] if size > 1 else 0)
        if (cost := int(table.cells[place])) >= semiring.zero:
            return None
        total += cost
    return total


# Knowledge of every agent at the beginning: its functions as tables of costs, in a common integer range.


def most_of(model: Model) -> int:
    """Return the upper limit of totals, above the least costs of all functions, on which all agents agree.

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
