"""MB-DPOP: messages within a budget, sent again for every assignment of the variables that are cut; exact."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import islice, product
from typing import Any, TypeVar

from ...cluster.pool import Pool
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy
from .agent import Knowledge, Message, States, message_bytes
from .agent_plan import AgentPlan, Scope
from .agent_tasks import AgentLabels, AgentsAnswer, gathered, total_of
from .network import STATE_BYTES, Clock, SimulatedNetwork, Traffic, going_down, latest
from .pseudo_tree import PseudoTree
from .requests import AgentPlace, Answers, Child, Decision, answer, arrived, decide, distinct, joined, merged


@dataclass(frozen=True)
class AgentPolicy(Policy):
    """Numbers of agents that no protocol fixes.

    Parameters
    ----------
    batch_requests : int
        Most requests of a batch.
    batch_bytes : int
        Most bytes of the answers to a batch.
    easy_states : int
        If a walk finds a tree with at most this many joint states, no elimination order is searched for, because
        computing the states takes no longer than the search.
    """

    batch_requests: int = 256
    batch_bytes: int = 1 << 22
    easy_states: int = 1 << 22


Each = TypeVar("Each")


@dataclass(frozen=True)
class _Once:
    """Report of an agent that gets no requests: its message, the time when it was sent, and its seconds."""

    message: Message
    clock: Clock
    computing: float


@dataclass(eq=False)
class BoundedRun:
    """Agents that answer requests, batches of them as tasks.

    Parameters
    ----------
    tree : PseudoTree
    known : mapping of int to Knowledge
        Their messages are single tables.
    pool : Pool
    network : Network
    traffic : Traffic
        Account of the messages sent.
    labels : AgentLabels
    """

    tree: PseudoTree
    known: Mapping[int, Knowledge]
    pool: Pool
    network: SimulatedNetwork
    traffic: Traffic
    labels: AgentLabels
    sent: dict[int, Any] = field(default_factory=dict)
    last: dict[int, tuple[Sequence[States], Any]] = field(default_factory=dict)

    def run(self) -> AgentsAnswer:
        """Run the UTIL phase with bounded messages (MB-DPOP; Petcu and Faltings, IJCAI 2007), then the VALUE phase.

        Returns
        -------
        AgentsAnswer
            The total, the states by variable, the simulated clocks of both phases, and CPU seconds.
        """
        for agent in reversed(self.tree.walk):
            # agents below a cut variable answer later, once for each context
            if not self._plan(agent).context:
                self.sent[agent] = self._answers(agent, [{}])
        once: dict[int, _Once] = gathered(
            self.pool,
            {
                agent: self.pool.submit(told, answers, label=self.labels.of("collect", agent))
                for agent, answers in self.sent.items()
            },
        )
        for agent, each in once.items():
            if (parent := self.tree.parents[agent]) >= 0:
                self.traffic.sent("util", agent, parent, each.message.nbytes)
        up = latest(once[root].clock for root in self.tree.roots)
        computing = sum(each.computing for each in once.values())
        total = total_of([once[root].message for root in self.tree.roots], self.known)
        if total is None:
            return AgentsAnswer(None, {}, up, Clock(), computing)
        decided = self._decided()
        states = {v: state for best in decided.values() for v, state in best.states.items()}
        plans = {agent: self._plan(agent) for agent in self.tree.walk}
        down = {agent: best.clock for agent, best in decided.items()}
        value = going_down(self.tree, plans, down, self.network, self.traffic)
        return AgentsAnswer(total, states, up, value, computing + sum(best.computing for best in decided.values()))

    def _plan(self, agent: int) -> AgentPlan:
        return self.known[agent].plan

    @cached_property
    def _given(self) -> dict[int, Any]:
        """Return the handles of the agents' knowledge for tasks."""
        return {
            agent: self.pool.put(knowledge, self.labels.of("load", agent)) for agent, knowledge in self.known.items()
        }

    @cached_property
    def _places(self) -> dict[int, AgentPlace]:
        found = {}
        for agent in self.tree.walk:
            children = tuple(Child(child, self._plan(child).context) for child in self.tree.children[agent])
            found[agent] = AgentPlace(agent, children, self.network)
        return found

    @cached_property
    def _batch(self) -> int:
        """How many requests are answered together."""
        policy = AgentPolicy.current()
        nbytes = sum(known.plan.message_cells * known.semiring.itemsize for known in self.known.values())
        return max(1, min(policy.batch_requests, policy.batch_bytes // max(nbytes, 1)))

    def _assignments(self, agent: int, variables: Scope) -> Iterator[dict[int, int]]:
        plan = self._plan(agent)
        dims = dict(zip(plan.variables, plan.dims, strict=True))
        for states in product(*(range(dims[v]) for v in variables)):
            yield dict(zip(variables, states, strict=True))

    def _answers(self, agent: int, requests: Sequence[States]) -> Any:
        """Request an agent's messages; variables that it iterates make several contexts of a request."""
        plan = self._plan(agent)
        dims = dict(zip(plan.variables, plan.dims, strict=True))
        count = math.prod(dims[v] for v in plan.iterated)
        answers = []
        for some in _batched(requests, max(1, self._batch // count)):
            whole = None
            for states in _batched(self._assignments(agent, plan.iterated), self._batch):
                part = self._answered(agent, [[{**request, **each} for each in states] for request in some])
                if whole is not None:
                    part = self.pool.submit(
                        merged, self._given[agent], whole, part, label=self.labels.of("merge", agent)
                    )
                whole = part
            answers.append(whole)
        if len(answers) == 1:
            return answers[0]
        return self.pool.submit(joined, *answers, label=self.labels.of("merge", agent))

    def _answered(self, agent: int, groups: Sequence[Sequence[States]]) -> Any:
        place, below = self._below(agent, [context for group in groups for context in group])
        return self._submit_answer(agent, place, groups, below)

    def _submit_answer(
        self, agent: int, place: AgentPlace, groups: Sequence[Sequence[States]], below: list[Any]
    ) -> Any:
        label = self.labels.of("message", agent, self.tree.parents[agent])
        return self.pool.submit(answer, self._given[agent], place, groups, *below, label=label)

    def _below(self, agent: int, contexts: Sequence[States]) -> tuple[AgentPlace, list[Any]]:
        """Send requests to the agents below whose messages depend on the contexts, lowest first; return the children's
        answers.

        An agent with the same request as before is not asked again: its parent keeps its last answers.

        Parameters
        ----------
        agent : int
        contexts : sequence of States
            Assignments of the cut variables that the agent is asked for.
        """
        asked: dict[int, Sequence[States]] = {agent: contexts}
        answered: dict[int, set[int]] = {}
        order, waiting = list[int](), [agent]
        while waiting:
            parent = waiting.pop()
            order.append(parent)
            answered[parent] = set()
            for child in self.tree.children[parent]:
                if not (fixed := self._plan(child).context):
                    continue
                asked[child], _ = distinct(asked[parent], fixed)
                if self.last.get(child, ((), None))[0] == asked[child]:
                    answered[parent].add(child)
                else:
                    self._count(parent, child, len(asked[child]))
                    # an iterating agent asks its own subtree, context by context
                    (order if self._plan(child).iterated else waiting).append(child)
        for each in reversed(order[1:]):
            if self._plan(each).iterated:
                self.last[each] = asked[each], self._answers(each, asked[each])
            else:
                groups = [[context] for context in asked[each]]
                place, below = self._kept(each, answered[each])
                self.last[each] = asked[each], self._submit_answer(each, place, groups, below)
        return self._kept(agent, answered[agent])

    def _kept(self, agent: int, answered: set[int]) -> tuple[AgentPlace, list[Any]]:
        """Return the place of an agent, with the children that were not asked again and the last answers."""
        children = self.tree.children[agent]
        below = [self.last[child][1] if self._plan(child).context else self.sent[child] for child in children]
        return replace(self._places[agent], answered=frozenset(answered)), below

    def _count(self, parent: int, child: int, requests: int) -> None:
        """Count requests, and the messages that answer them; a message's size does not depend on its content."""
        known = self.known[child]
        plan = known.plan
        self.traffic.sent("context", parent, child, STATE_BYTES * len(plan.context), requests)
        scope = plan.sent[0] if plan.sent else ()
        cells = math.prod(
            dim for v, dim in zip(plan.variables, plan.dims, strict=True) if v in scope and v not in plan.context
        )
        nbytes = message_bytes(cells * known.semiring.itemsize if scope else 0, len(scope))
        self.traffic.sent("util", child, parent, nbytes, requests)

    def _decided(self) -> dict[int, Decision]:
        """Let all agents decide, agents of one depth in parallel."""
        states: dict[int, int] = {}
        decided: dict[int, Decision] = {}
        levels: dict[int, list[int]] = {}
        for agent in self.tree.walk:
            levels.setdefault(self.tree.depths[agent], []).append(agent)
        for _, agents in sorted(levels.items()):
            asked = {agent: self._deciding(agent, states) for agent in agents}
            found: dict[int, Decision] = gathered(self.pool, asked)
            decided |= found
            states |= {v: state for best in found.values() for v, state in best.states.items()}
        return decided

    def _deciding(self, agent: int, states: States) -> Any:
        """Let an agent decide: its own iterated variables by new requests, the others from its tables."""
        plan = self._plan(agent)
        above = {v: states[v] for v in plan.separator}
        best = None
        for some in _batched(self._assignments(agent, tuple(v for v in plan.iterated if v in plan.owned)), self._batch):
            contexts = [{v: {**above, **each}[v] for v in (*plan.context, *plan.iterated)} for each in some]
            place, below = self._below(agent, contexts)
            label = self.labels.of("decide", agent)
            part = self.pool.submit(decide, self._given[agent], place, contexts, above, *below, label=label)
            best = part if best is None else self.pool.submit(better, best, part, label=self.labels.of("merge", agent))
        return best


def _batched(items: Iterable[Each], count: int) -> Iterator[list[Each]]:
    """Give items in lists of at most ``count``."""
    waiting = iter(items)
    while some := list(islice(waiting, count)):
        yield some


def told(answers: Answers) -> _Once:
    """Task: return the report of an agent that gets no requests."""
    return _Once(answers.messages[0], arrived(answers), answers.computing)


def better(one: Decision, other: Decision) -> Decision:
    """Task: the better of two decisions, the first where they are equal; both took their time."""
    first = one.cost is not None and (other.cost is None or one.cost <= other.cost)
    chosen = one if first else other
    clock = one.clock.after(other.clock.seconds, other.clock.checks)
    return Decision(chosen.cost, chosen.states, clock, one.computing + other.computing)
