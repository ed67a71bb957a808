"""What an agent does: UTIL from its own tables and its children's messages, VALUE from what its ancestors decided.

A :class:`Knowledge` is all that an agent has before the first message. The functions here take one, and messages, and
nothing else: whatever runs them, in this process or on a worker, an agent sees no function of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.gpu.arrays import on_host
from ...tasks.steps.semiring import Semiring
from ...tasks.steps.views import slice_of
from ...tasks.sweeps.best_states import best_states
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.sweep import restrict
from .matching import matched
from .planning.plan import AgentPlan, Scope

Array = NDArray[Any]
States = Mapping[int, int]
"""States by variable, as the model numbers them."""

#: A variable's number in a message.
VARIABLE_BYTES = 4


@dataclass(frozen=True)
class Knowledge:
    """What one agent knows: its plan, its own tables in ``program``, and what was taken from their entries.

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
class Table:
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
    tables: tuple[Table, ...]
    possible: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of tables, scopes and the offset."""
        scopes = sum(len(table.scope) for table in self.tables)
        return message_bytes(sum(table.cells.nbytes for table in self.tables), scopes)


def message_bytes(cells: int, variables: int) -> int:
    """Return the bytes of a message whose tables have so many bytes of cells, and so many variables together."""
    return 8 + cells + VARIABLE_BYTES * variables


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
            tables.append(Table(scope, tuple(plan.sizes[v] for v in axes), cells))
    kept = {number: made[number] for number in plan.kept}
    return Sent(Message(offset, tuple(tables), possible), kept, knowledge.clock() - start)


def _restricted(table: Table, context: States) -> Array:
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
    """Return what a message says of one assignment of its variables; None if it is forbidden."""
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
