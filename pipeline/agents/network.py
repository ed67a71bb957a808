"""The network between agents, and how long a run would take where every agent is a computer of its own. Pure.

Agents work in parallel. The simulated time is the longest chain of computations, which are measured, and of messages,
which take the network's latency plus their bytes divided by the bandwidth (Sultanik, Lass & Regli 2008).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal

from ...tasks.steps.light_dataclass import dataclass
from ..errors import ModelError
from .agent import NUMBER_BYTES
from .agent_plan import AgentPlan
from .pseudo_tree import PseudoTree

Phase = Literal["tree", "util", "context", "value"]

#: A variable and its state in a decision.
STATE_BYTES = 2 * NUMBER_BYTES


@dataclass(frozen=True)
class SimulatedNetwork:
    """Links that are all alike.

    Parameters
    ----------
    latency : float
        Seconds that any message takes.
    bandwidth : float
        Bytes a second of a link.
    """

    latency: float = 0.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        latency: Any = self.latency
        bandwidth: Any = self.bandwidth
        if not (isinstance(latency, int | float) and 0 <= latency < math.inf):
            raise ModelError(f"latency is {latency!r}; it must be a number of seconds, 0 or more")
        if not (isinstance(bandwidth, int | float) and bandwidth > 0):
            raise ModelError(f"bandwidth is {bandwidth!r}; it must be bytes a second, more than 0")

    def delay(self, nbytes: int) -> float:
        """Return the seconds that a message takes."""
        return self.latency + nbytes / self.bandwidth


@dataclass
class Traffic:
    """Messages and bytes sent, by phase and by link."""

    messages: dict[Phase, int] = field(default_factory=lambda: defaultdict(int))
    nbytes: dict[Phase, int] = field(default_factory=lambda: defaultdict(int))
    links: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    largest: int = 0

    def sent(self, phase: Phase, sender: int, receiver: int, nbytes: int, count: int = 1) -> None:
        """Count a message, or some that are alike."""
        self.messages[phase] += count
        self.nbytes[phase] += nbytes * count
        self.links[sender, receiver] += nbytes * count
        self.largest = max(self.largest, nbytes)


@dataclass(frozen=True)
class Clock:
    """When something was done: simulated seconds, and constraint checks that are not concurrent."""

    seconds: float = 0.0
    checks: int = 0

    def after(self, seconds: float, checks: int = 0) -> Clock:
        """Return the clock after some work."""
        return Clock(self.seconds + seconds, self.checks + checks)


def latest(clocks: Iterable[Clock]) -> Clock:
    """Return the time at which all of several events have happened."""
    clocks = list(clocks)
    return Clock(max((c.seconds for c in clocks), default=0.0), max((c.checks for c in clocks), default=0))


def building(tree: PseudoTree, network: SimulatedNetwork, traffic: Traffic) -> Clock:
    """Return when the pseudo-tree was built: tokens of a component follow each other."""
    roots: dict[int, int] = {}
    for agent in tree.walk:
        roots[agent] = roots.get(tree.parents[agent], agent)
    seconds: dict[int, float] = defaultdict(float)
    for token in tree.tokens:
        nbytes = NUMBER_BYTES * token.visited
        traffic.sent("tree", token.sender, token.receiver, nbytes)
        seconds[roots[token.sender]] += network.delay(nbytes) if token.waits else 0.0
    return Clock(max(seconds.values(), default=0.0))


def going_up(
    tree: PseudoTree,
    plans: Mapping[int, AgentPlan],
    computed: Mapping[int, tuple[float, int]],
    network: SimulatedNetwork,
    traffic: Traffic,
) -> Clock:
    """Return when all roots have their children's messages joined; ``computed`` has seconds and bytes of each agent."""
    done: dict[int, Clock] = {}
    for agent in reversed(tree.walk):
        arrivals = []
        for child in tree.children[agent]:
            nbytes = computed[child][1]
            traffic.sent("util", child, agent, nbytes)
            arrivals.append(done[child].after(network.delay(nbytes)))
        done[agent] = latest(arrivals).after(computed[agent][0], plans[agent].checks)
    return latest(done[root] for root in tree.roots)


def going_down(
    tree: PseudoTree,
    plans: Mapping[int, AgentPlan],
    computed: Mapping[int, Clock],
    network: SimulatedNetwork,
    traffic: Traffic,
) -> Clock:
    """Return how long deciding takes, from the roots on; ``computed`` has the work of each agent."""
    done: dict[int, Clock] = {}
    for agent in tree.walk:
        begin = Clock()
        if (parent := tree.parents[agent]) >= 0:
            nbytes = STATE_BYTES * len(plans[agent].separator)
            traffic.sent("value", parent, agent, nbytes)
            begin = done[parent].after(network.delay(nbytes))
        done[agent] = begin.after(computed[agent].seconds, computed[agent].checks)
    return latest(done.values())
