"""Requests to agents (MB-DPOP): a message for each context that the parent fixes. Tasks of a pool.

Requests come in batches, and are answered one after another: clocks are those of single requests. If two consecutive
requests fix the same states, the first answer serves both, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...tasks.steps.light_dataclass import dataclass
from .agent import Knowledge, Message, MessageTable, Sent, States, assign, cost_at, util
from .agent_plan import Scope
from .network import STATE_BYTES, Clock, SimulatedNetwork, latest


@dataclass(frozen=True)
class Child:
    """A child, and the variables that its parent's requests fix; none if it sends its message once."""

    agent: int
    context: Scope


@dataclass(frozen=True)
class AgentPlace:
    """The place of an agent: its children, with the children that have answered before, and the costs of messages."""

    agent: int
    children: tuple[Child, ...]
    network: SimulatedNetwork
    answered: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Answers:
    """Answers to a batch of requests.

    Parameters
    ----------
    messages : tuple of Message
    clocks : tuple of Clock
        How long each took, from its request on.
    begin : Clock
        When all messages had arrived that are sent once.
    computing : float
        Seconds that all agents computed for them.
    """

    messages: tuple[Message, ...]
    clocks: tuple[Clock, ...]
    begin: Clock
    computing: float


@dataclass(frozen=True)
class Decision:
    """The decision of an agent, and its cost (None if everything is forbidden); the rest as in :class:`Answers`."""

    cost: int | None
    states: dict[int, int]
    clock: Clock
    computing: float


def distinct(contexts: Sequence[States], variables: Scope) -> tuple[list[dict[int, int]], list[int]]:
    """Return the states of some variables in contexts, those in a row once, and for each context the place of its."""
    found: list[dict[int, int]] = []
    places = []
    for context in contexts:
        fixed = {v: context[v] for v in variables}
        if not found or found[-1] != fixed:
            found.append(fixed)
        places.append(len(found) - 1)
    return found, places


@dataclass
class _Work:
    """An agent's work for contexts, given what its children answered."""

    knowledge: Knowledge
    place: AgentPlace
    below: Sequence[Answers]
    computing: float = 0.0

    def __post_init__(self) -> None:
        for child, answers in zip(self.place.children, self.below, strict=True):
            if self._asked(child):
                self.computing += answers.computing

    def _asked(self, child: Child) -> bool:
        """Whether a child was sent a request for its answer."""
        return bool(child.context) and child.agent not in self.place.answered

    @property
    def begin(self) -> Clock:
        """When everything is there that is sent once."""
        delay = self.place.network.delay
        return latest(
            answers.begin if child.context else arrived(answers).after(delay(answers.messages[0].nbytes))
            for child, answers in zip(self.place.children, self.below, strict=True)
        )

    def sent(self, contexts: Sequence[States]) -> Iterator[tuple[Sent, Clock]]:
        """Join what children answered for each context, and say how long that took from the request on."""
        places = [distinct(contexts, child.context)[1] for child in self.place.children]
        checks = self.knowledge.plan.checks
        for k, context in enumerate(contexts):
            messages = [answers.messages[place[k]] for answers, place in zip(self.below, places, strict=True)]
            sent = util(self.knowledge, context, *messages)
            self.computing += sent.seconds
            waited = latest(
                self._answered(child, answers, place[k])
                for child, answers, place in zip(self.place.children, self.below, places, strict=True)
                if self._asked(child) and (k == 0 or place[k] != place[k - 1])
            )
            yield sent, waited.after(sent.seconds, checks)

    def _answered(self, child: Child, answers: Answers, place: int) -> Clock:
        """How long a child takes from a request to it until its answer is here."""
        delay = self.place.network.delay
        there, back = delay(STATE_BYTES * len(child.context)), delay(answers.messages[place].nbytes)
        return answers.clocks[place].after(there + back)


def arrived(answers: Answers) -> Clock:
    """Return when an agent that gets no requests sent its only message."""
    [clock] = answers.clocks
    return answers.begin.after(clock.seconds, clock.checks)


def answer(knowledge: Knowledge, place: AgentPlace, groups: Sequence[Sequence[States]], *below: Answers) -> Answers:
    """Task: return a message for each group of contexts: the minimum over its contexts.

    Parameters
    ----------
    groups : sequence of sequence of mapping
        For each request, the fixed states together with states of the iterated variables.
    below : Answers
        Of its children, to the contexts in a row.
    """
    work = _Work(knowledge, place, below)
    done = work.sent([context for group in groups for context in group])
    messages, clocks = [], []
    for group in groups:
        parts = [next(done) for _ in group]
        messages.append(
            _least(knowledge, [(sent.message, states) for (sent, _), states in zip(parts, group, strict=True)])
        )
        clocks.append(_total(clock for _, clock in parts))
    return Answers(tuple(messages), tuple(clocks), work.begin, work.computing)


def _total(clocks: Iterator[Clock]) -> Clock:
    total = Clock()
    for clock in clocks:
        total = total.after(clock.seconds, clock.checks)
    return total


def merged(knowledge: Knowledge, one: Answers, other: Answers) -> Answers:
    """Task: merge two answers to one request; each covers a part of the iterated states."""
    least = _least(knowledge, [(one.messages[0], {}), (other.messages[0], {})], whole=True)
    clock = _total(iter((one.clocks[0], other.clocks[0])))
    return Answers((least,), (clock,), latest((one.begin, other.begin)), one.computing + other.computing)


def joined(*parts: Answers) -> Answers:
    """Task: answers to batches of requests as answers to all of them."""
    return Answers(
        tuple(message for part in parts for message in part.messages),
        tuple(clock for part in parts for clock in part.clocks),
        latest(part.begin for part in parts),
        sum(part.computing for part in parts),
    )


def decide(
    knowledge: Knowledge, place: AgentPlace, contexts: Sequence[States], above: States, *below: Answers
) -> Decision:
    """Task: decide an agent's variables; iterated variables by the best of some contexts.

    Parameters
    ----------
    contexts : sequence of mapping
        States of the fixed variables, decided by the ancestors, with states of the iterated variables.
    above : mapping
        States of its separator.
    """
    work = _Work(knowledge, place, below)
    best: tuple[int, States, Mapping[int, Any]] | None = None
    clock = Clock()
    for (sent, took), context in zip(work.sent(contexts), contexts, strict=True):
        clock = clock.after(took.seconds, took.checks)
        cost = cost_at(sent.message, above, knowledge.semiring)
        if cost is not None and (best is None or cost < best[0]):
            best = cost, context, sent.kept
    if best is None:
        return Decision(None, {}, clock, work.computing)
    decided = assign(knowledge, best[2], {**above, **best[1]})
    states = {v: decided.states[v] for v in knowledge.plan.owned}
    clock = clock.after(decided.seconds, knowledge.plan.value_checks)
    return Decision(best[0], states, clock, work.computing + decided.seconds)


def _least(knowledge: Knowledge, parts: Sequence[tuple[Message, States]], whole: bool = False) -> Message:
    """Return the minimum of messages, each at some states of the iterated variables.

    ``whole`` says that parts have cells for all states already.
    """
    plan = knowledge.plan
    if not plan.iterated:
        return parts[0][0]
    scope = plan.sent[0] if plan.sent else ()
    dims = dict(zip(plan.variables, plan.dims, strict=True))
    sizes = tuple(1 if v in plan.context else dims[v] for v in scope)
    shape = sizes if whole else tuple(1 if v in (*plan.context, *plan.iterated) else dims[v] for v in scope)
    zero, dtype = knowledge.semiring.zero, knowledge.semiring.dtype
    possible = [(message, states) for message, states in parts if message.possible]
    offset = min((message.offset for message, _ in possible), default=0)
    cells = np.full(sizes, zero, dtype)
    for message, states in possible:
        given = message.tables[0].cells if message.tables else np.zeros(1, dtype)
        raised = np.where(given < zero, given + (message.offset - offset), zero).astype(dtype).reshape(shape)
        at = tuple(slice(states[v], states[v] + 1) if v in states and not whole else slice(None) for v in scope)
        at = tuple(each if size > 1 else slice(None) for each, size in zip(at, sizes, strict=True))
        cells[at] = np.minimum(cells[at], raised)
    if not scope:
        return Message(offset + (int(cells.reshape(-1)[0]) if possible else 0), (), bool(possible))
    return Message(offset, (MessageTable(scope, sizes, cells.reshape(-1)),), bool(possible))
