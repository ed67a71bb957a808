"""Running agents: each a task that gets messages, in this process or on workers, and what they find together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...cluster.pool import Pool, TaskLabel
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.sweeps.program import pick
from ..plans.task_graph import ascii_name
from .agent import Decided, Knowledge, Message, Sent, assign, cost_at, util
from .network import Clock, SimulatedNetwork, Traffic, going_down, going_up
from .pseudo_tree import PseudoTree

_COLLECT: Final = TaskLabel("collect", "agents")


@dataclass(frozen=True)
class AgentLabels:
    """Labels of the tasks of agents.

    Parameters
    ----------
    names : sequence of str
        By agent; numbers if there are none.
    """

    names: Sequence[str] = ()

    def of(self, verb: str, agent: int, receiver: int = -1) -> TaskLabel:
        """Return the label of a task: ``message-ann_to_bob.3``, with the number of the agent."""
        words = [ascii_name(self.names[i]) if self.names else "agent" for i in (agent, receiver) if i >= 0]
        return TaskLabel(f"{verb}-{'_to_'.join(words)}.{agent}", "agents")


@dataclass(frozen=True)
class AgentsAnswer:
    """What agents found.

    Parameters
    ----------
    total : int or None
        The least cost, or a bound that no assignment is below; None if everything is forbidden.
    states : dict of int to int
        By variable.
    util, value : Clock
        How long both phases would take, agents working at the same time.
    computing : float
        Seconds that all agents computed together.
    """

    total: int | None
    states: dict[int, int]
    util: Clock
    value: Clock
    computing: float


def run_agents(
    tree: PseudoTree,
    known: Mapping[int, Knowledge],
    pool: Pool,
    network: SimulatedNetwork,
    traffic: Traffic,
    labels: AgentLabels,
) -> AgentsAnswer:
    """Send UTIL messages from the leaves to the roots, and VALUE messages back (DPOP; Petcu & Faltings, IJCAI 2005).

    Parameters
    ----------
    tree : PseudoTree
    known : mapping of int to Knowledge
        Knowledge of each agent, by agent.
    pool : Pool
        Where agents compute; messages stay there.
    network : SimulatedNetwork
    traffic : Traffic
        Counts messages and bytes.
    labels : AgentLabels

    Returns
    -------
    AgentsAnswer
        The total, the states by variable (none if nothing is possible), simulated clocks, and CPU seconds.
    """
    plans = {agent: knowledge.plan for agent, knowledge in known.items()}
    given = {agent: pool.put(knowledge, labels.of("load", agent)) for agent, knowledge in known.items()}
    sent: dict[int, Any] = {}
    messages: dict[int, Any] = {}
    # each message is a task whose inputs are the messages of the children, so subtrees run concurrently
    for agent in reversed(tree.walk):
        below = [messages[child] for child in tree.children[agent]]
        parent = tree.parents[agent]
        sent[agent] = pool.submit(util, given[agent], {}, *below, label=labels.of("message", agent, parent))
        messages[agent] = pool.submit(message_of, sent[agent], label=labels.of("send", agent, parent))
    reports = {
        agent: pool.submit(report_of, handle, label=labels.of("collect", agent)) for agent, handle in sent.items()
    }
    up = gathered(pool, reports)
    util_clock = going_up(tree, plans, up, network, traffic)
    total = total_of(list(gathered(pool, {root: messages[root] for root in tree.roots}).values()), known)
    computing = sum(seconds for seconds, _ in up.values())
    if total is None:
        return AgentsAnswer(None, {}, util_clock, Clock(), computing)
    decided: dict[int, Any] = {}
    for agent in tree.walk:
        parent = tree.parents[agent]
        above: Any = {}
        if parent >= 0:
            label = labels.of("send", parent, agent)
            above = pool.submit(known_of, decided[parent], plans[agent].separator, label=label)
        decided[agent] = pool.submit(decide, given[agent], sent[agent], above, label=labels.of("decide", agent))
    outcomes: dict[int, Decided] = gathered(pool, decided)
    states = {v: outcomes[agent].states[v] for agent in tree.walk for v in plans[agent].owned}
    down = {agent: Clock(outcome.seconds, plans[agent].value_checks) for agent, outcome in outcomes.items()}
    value_clock = going_down(tree, plans, down, network, traffic)
    return AgentsAnswer(
        total, states, util_clock, value_clock, computing + sum(clock.seconds for clock in down.values())
    )


def gathered(pool: Pool, handles: Mapping[int, Any]) -> dict[int, Any]:
    """Fetch the results of all agents at once."""
    return dict(zip(handles, pool.get(pool.submit(together, *handles.values(), label=_COLLECT)), strict=True))


def total_of(messages: list[Message], known: Mapping[int, Knowledge]) -> int | None:
    """Return the least cost of all that roots found; None if one of them forbids everything."""
    semiring = next(iter(known.values())).semiring
    totals = [cost_at(message, {}, semiring) for message in messages]
    return None if None in totals else sum(total for total in totals if total is not None)


def together(*parts: Any) -> tuple[Any, ...]:
    """Task: small results as one."""
    return parts


def message_of(sent: Sent) -> Message:
    """Task: return the message alone, which travels to the parent; the kept tables do not."""
    return sent.message


def report_of(sent: Sent) -> tuple[float, int]:
    """Task: how long an agent computed, and the bytes of its message."""
    return sent.seconds, sent.message.nbytes


def decide(knowledge: Knowledge, sent: Sent, above: Mapping[int, int]) -> Decided:
    """Task: decide where the tables are that were kept."""
    return assign(knowledge, sent.kept, above)


def known_of(decided: Decided, variables: tuple[int, ...]) -> dict[int, int]:
    """Task: return the states of a child's separator."""
    return pick(decided.states, variables)
