"""MB-DPOP: messages within a budget, sent again for every assignment of the variables that are cut; exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from ...tasks.steps.semiring import Semiring
from .agent import Knowledge, Message, States, Table, assign, cost_at, util
from .network import STATE_BYTES, Clock, Network, Traffic, going_down, latest
from .plan import AgentPlan
from .pseudo_tree import PseudoTree
from .run import Found, total_of


@dataclass(frozen=True)
class _Answer:
    """A message, and the clock when it was there, from the request on."""

    message: Message
    clock: Clock


@dataclass(eq=False)
class BoundedRun:
    """Agents that answer requests.

    Parameters
    ----------
    tree : PseudoTree
    known : mapping of int to Knowledge
        Their messages are single tables.
    dims : tuple of int
        The model's domain sizes.
    network : Network
    traffic : Traffic
        What is sent is entered here.
    """

    tree: PseudoTree
    known: Mapping[int, Knowledge]
    dims: tuple[int, ...]
    network: Network
    traffic: Traffic
    computing: float = 0.0
    sent: dict[int, _Answer] = field(default_factory=dict)
    last: dict[int, tuple[dict[int, int], _Answer]] = field(default_factory=dict)

    def run(self) -> Found:
        """Run both phases."""
        for agent in reversed(self.tree.walk):
            if not self._plan(agent).context:
                self.sent[agent] = self._answer(agent, {})
                if (parent := self.tree.parents[agent]) >= 0:
                    self.traffic.sent("util", agent, parent, self.sent[agent].message.nbytes)
        up = latest(self.sent[root].clock for root in self.tree.roots)
        total = total_of([self.sent[root].message for root in self.tree.roots], self.known)
        if total is None:
            return Found(None, {}, up, Clock(), self.computing)
        states: dict[int, int] = {}
        down: dict[int, Clock] = {}
        for agent in self.tree.walk:
            above = {v: states[v] for v in self._plan(agent).separator}
            found, down[agent] = self._decided(agent, above)
            states |= found
        plans = {agent: self._plan(agent) for agent in self.tree.walk}
        value = going_down(self.tree, plans, down, self.network, self.traffic)
        return Found(total, states, up, value, self.computing)

    def _plan(self, agent: int) -> AgentPlan:
        return self.known[agent].plan

    def _assignments(self, variables: tuple[int, ...]) -> Iterator[dict[int, int]]:
        for states in product(*(range(self.dims[v]) for v in variables)):
            yield dict(zip(variables, states, strict=True))

    def _answer(self, agent: int, context: States) -> _Answer:
        """Return an agent's message for what its parent fixed, put together from those for what it iterates."""
        plan, knowledge = self._plan(agent), self.known[agent]
        if not plan.iterated:
            message, _, clock = self._computed(agent, context)
            return _Answer(message, clock)
        whole = _Whole(plan, self.dims, knowledge.semiring)
        begin = clock = self._arrived(agent)
        for states in self._assignments(plan.iterated):
            message, _, end = self._computed(agent, {**context, **states})
            whole.add(message, states)
            clock = clock.after(end.seconds - begin.seconds, end.checks - begin.checks)
        return _Answer(whole.message(), clock)

    def _arrived(self, agent: int) -> Clock:
        """When the messages are there that children send once."""
        once = [child for child in self.tree.children[agent] if not self._plan(child).context]
        delay = {child: self.network.delay(self.sent[child].message.nbytes) for child in once}
        return latest(self.sent[child].clock.after(delay[child]) for child in once)

    def _computed(self, agent: int, context: States) -> tuple[Message, Mapping[int, Any], Clock]:
        """Ask the children that need a context, and join what all of them sent."""
        plan = self._plan(agent)
        answers = [self._asked(child, context) for child in self.tree.children[agent]]
        sent = util(self.known[agent], context, *(answer.message for answer in answers))
        self.computing += sent.seconds
        requested = latest(
            answer.clock
            for child, answer in zip(self.tree.children[agent], answers, strict=True)
            if self._plan(child).context
        )
        begin = self._arrived(agent)
        clock = begin.after(requested.seconds + sent.seconds, requested.checks + plan.checks)
        return sent.message, sent.kept, clock

    def _asked(self, child: int, context: States) -> _Answer:
        """Return a child's message: what it sent once, or what it answers to a request; the last answer is kept."""
        plan = self._plan(child)
        if not plan.context:
            return self.sent[child]
        fixed = {v: context[v] for v in plan.context}
        known, answer = self.last.get(child, ({}, None))
        if answer is not None and known == fixed:
            return _Answer(answer.message, Clock())
        answer = self._answer(child, fixed)
        parent, nbytes = self.tree.parents[child], STATE_BYTES * len(fixed)
        self.traffic.sent("context", parent, child, nbytes)
        self.traffic.sent("util", child, parent, answer.message.nbytes)
        delay = self.network.delay(nbytes) + self.network.delay(answer.message.nbytes)
        answer = _Answer(answer.message, answer.clock.after(delay))
        self.last[child] = fixed, answer
        return answer

    def _decided(self, agent: int, above: dict[int, int]) -> tuple[dict[int, int], Clock]:
        """Decide on an agent's variables: those that it iterates by asking again, the rest from its tables."""
        plan, knowledge = self._plan(agent), self.known[agent]
        best: tuple[int, dict[int, int], Mapping[int, Any]] | None = None
        clock = Clock()
        begin = self._arrived(agent)
        for states in self._assignments(tuple(v for v in plan.iterated if v in plan.owned)):
            context = {v: {**above, **states}[v] for v in (*plan.context, *plan.iterated)}
            message, kept, end = self._computed(agent, context)
            clock = clock.after(end.seconds - begin.seconds, end.checks - begin.checks)
            cost = cost_at(message, above, knowledge.semiring)
            if cost is not None and (best is None or cost < best[0]):
                best = cost, states, kept
        assert best is not None
        decided = assign(knowledge, best[2], {**above, **best[1]})
        self.computing += decided.seconds
        return {v: decided.states[v] for v in plan.owned}, clock.after(decided.seconds, plan.value_checks)


class _Whole:
    """A message that is put together from parts, each for one assignment of the variables that an agent iterates."""

    def __init__(self, plan: AgentPlan, dims: tuple[int, ...], semiring: Semiring) -> None:
        scopes = plan.sent
        self.scope = scopes[0] if scopes else ()
        self.sizes = tuple(1 if v in plan.context else dims[v] for v in self.scope)
        self.cells = np.full(self.sizes, semiring.zero, semiring.dtype)
        self.part = tuple(1 if v in (*plan.context, *plan.iterated) else dims[v] for v in self.scope)
        self.semiring = semiring
        self.offset: int | None = None

    def add(self, message: Message, states: States) -> None:
        """Take the least of what is there and a part; the offset becomes the lesser one."""
        if not message.possible:
            return
        if self.offset is None or message.offset < self.offset:
            if self.offset is not None:
                self.cells = self._raised(self.cells, self.offset - message.offset)
            self.offset = message.offset
        cells = message.tables[0].cells if message.tables else np.zeros(1, self.semiring.dtype)
        part = self._raised(cells.reshape(self.part), message.offset - self.offset)
        place = tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in self.scope)
        self.cells[place] = np.minimum(self.cells[place], part)

    def _raised(self, cells: Any, by: int) -> Any:
        return np.where(cells < self.semiring.zero, cells + by, self.semiring.zero).astype(cells.dtype)

    def message(self) -> Message:
        """The whole."""
        offset, possible = self.offset or 0, self.offset is not None
        if not self.scope:
            found = int(self.cells.reshape(-1)[0])
            return Message(offset + (found if possible else 0), (), possible)
        return Message(offset, (Table(self.scope, self.sizes, self.cells.reshape(-1)),), possible)
