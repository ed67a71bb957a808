"""A distributed problem from planning and cutting messages to the answer of its agents."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from time import perf_counter
from typing import Final

import numpy as np

from ...cluster.pool import Pool, SerialPool
from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.cpu.dense import run
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.lowering import Lowered
from ...tasks.steps.semiring import Semiring
from ...tasks.sweeps.device_sweep import DevicePlaces, DevicePlain
from ...tasks.sweeps.sweep import Plain
from ..cost_networks.cost_network import LARGEST
from ..errors import BudgetError, ModelError, format_bytes, format_count
from ..models.checks import integer
from ..models.dcop import Dcop
from .agent import Knowledge, assign, knowledge_of, most_of, own_cells, semiring_of, util
from .agent_plan import WORK, AgentPlan, FixedVariables, Scope, joint_states, plan_agents
from .agent_tasks import AgentLabels, AgentsAnswer, run_agents
from .bounded import AgentPolicy, BoundedRun
from .network import Clock, SimulatedNetwork, Traffic, building
from .pseudo_tree import CHEAPEST, HEURISTICS, PseudoTree, pseudo_tree

# The choice of the pseudo-tree: the requested one, or the cheapest. Pure.


def chosen_tree(dcop: Dcop, order: str | Sequence[str] = CHEAPEST, *, seed: int = 0) -> PseudoTree:
    """Return the tree of an order.

    For ``"cheapest"``, return the tree with the fewest joint states, and the shallowest among equals.

    A good elimination order is searched for only where the trees that a token finds are not easy.

    Raises
    ------
    ModelError
        If the order is no heuristic, or does not name the agents.
    """
    if order != CHEAPEST:
        return pseudo_tree(dcop, order, seed=seed)
    best, least = None, (math.inf, 0)
    for heuristic in (*(each for each in HEURISTICS if each != "planned"), "planned"):
        if heuristic == "planned" and least[0] <= AgentPolicy.current().easy_states:
            break
        tree = pseudo_tree(dcop, heuristic, seed=seed)
        price = joint_states(dcop, tree, least[0]), tree.depth
        if best is None or price < least:
            best, least = tree, price
    assert best is not None
    return best


# Most messages of one run: more would take days.
_MOST_RUNS: Final = 10**8


def cuts(dcop: Dcop, tree: PseudoTree, plans: Mapping[int, AgentPlan], cells: int) -> dict[int, FixedVariables]:
    """Return the variables that agents fix so that no message has more than ``cells`` cells, without agents that fix
    none.

    Agents with too large messages form clusters, together with the agent above that joins their messages. In a cluster
    some variables are fixed, one assignment after another, so that every message fits: variables that occur in most of
    its separators (MB-DPOP; Petcu & Faltings, IJCAI 2007). An agent in a cluster sends one message for each request; a
    request fixes the cut variables of its separator. An agent iterates its own cut variables. If a cut variable belongs
    to an ancestor, the top agent of the cluster iterates it.
    """
    large = {agent for agent, plan in plans.items() if plan.message_cells > cells}
    fixed: dict[int, FixedVariables] = {}
    for top in tree.walk:
        below = [child for child in tree.children[top] if child in large]
        if top in large or not below:
            continue
        cluster = _cluster(below, tree, large)
        cut = _cut(dcop.model.dims, [plans[agent].separator for agent in cluster], cells)
        for agent in (top, *cluster):
            context = tuple(v for v in plans[agent].separator if v in cut) if agent in large else ()
            asked = {v for child in tree.children[agent] if child in large for v in plans[child].separator if v in cut}
            iterated = tuple(v for v in plans[agent].variables if v in asked and v not in context)
            fixed[agent] = FixedVariables(context, iterated)
    return fixed


def _cluster(below: Sequence[int], tree: PseudoTree, large: set[int]) -> list[int]:
    """Return the agents with large messages that hang together below one."""
    found, waiting = [], list(below)
    while waiting:
        found.append(waiting.pop())
        waiting += [child for child in tree.children[found[-1]] if child in large]
    return found


def _cut(dims: Sequence[int], separators: Sequence[Scope], cells: int) -> set[int]:
    """Choose variables whose removal leaves no separator with too many cells: repeatedly the most frequent one in large
    separators.
    """
    cut: set[int] = set()
    while True:
        large = [each for each in separators if math.prod(dims[v] for v in each if v not in cut) > cells]
        if not large:
            return cut
        counts = Counter(v for each in large for v in each if v not in cut and dims[v] > 1)
        cut.add(max(counts, key=lambda v: (counts[v], dims[v], -v)))


def check_runs(dcop: Dcop, tree: PseudoTree, plans: Mapping[int, AgentPlan], nbytes: int) -> None:
    """Refuse a run in which agents would send too many messages.

    Raises
    ------
    BudgetError
        With the number of messages, and the budget of each.
    """
    runs: dict[int, int] = {}
    for agent in tree.walk:
        asked = runs[tree.parents[agent]] if plans[agent].context else 1
        runs[agent] = asked * math.prod(dcop.model.dims[v] for v in plans[agent].iterated)
    if (total := sum(runs.values())) > _MOST_RUNS:
        raise BudgetError(
            f"with messages of at most {format_bytes(nbytes)} agents would send {format_count(total)} of them, more "
            f"than {format_count(_MOST_RUNS)}; give a larger --memory, or --z for bounds"
        )


@dataclass(frozen=True)
class AgentOptions:
    """How agents work.

    Parameters
    ----------
    order : str or sequence of str
        See :func:`.solving.chosen_tree`.
    z : int, optional
        Most variables of a mini-bucket.
    message_bytes : int, optional
        The budget of a message.
    seed, threads : int
        Of the search for a planned tree; threads of each agent.
    device : bool
        Whether large steps run on a GPU.
    network : Network
    """

    order: str | Sequence[str] = CHEAPEST
    z: int | None = None
    message_bytes: int | None = None
    seed: int = 0
    threads: int = 1
    device: bool = False
    network: SimulatedNetwork = field(default_factory=SimulatedNetwork)

    def __post_init__(self) -> None:
        if self.z is not None and integer(self.z, "z", None) < 1:
            raise ModelError(f"z is {self.z}; a mini-bucket has at least 1 variable")
        if self.z is not None and self.message_bytes is not None:
            raise ModelError(
                "z limits messages by splitting them, memory by sending parts of them repeatedly; give "
                "only one of the two"
            )


@dataclass(frozen=True)
class Planned:
    """A distributed problem whose agents are planned."""

    dcop: Dcop
    asked: AgentOptions
    tree: PseudoTree
    plans: Mapping[int, AgentPlan]
    semiring: Semiring
    most: int

    @property
    def bounded(self) -> bool:
        """Whether agents answer requests for messages at given states."""
        return any(plan.iterated for plan in self.plans.values())

    @property
    def exact(self) -> bool:
        """Whether what agents find is the optimum."""
        return all(plan.exact for plan in self.plans.values())

    @property
    def joined_cells(self) -> int:
        """Cells of all joins, each counted once, and of the matchings."""
        plans = self.plans.values()
        return sum(plan.matched_cells + sum([step.lowered.cells for step in plan.steps]) for plan in plans)

    @property
    def table_bytes(self) -> int:
        """Bytes of all tables in one process: functions, step tables, and the largest step table again with a mask of
        forbidden entries. If parts of buckets are matched, also the working memory of the largest agent.
        """
        made = [plan.made_cells for plan in self.plans.values()]
        own = sum(own_cells(self.dcop, plan) for plan in self.plans.values())
        working = WORK.itemsize * max(plan.matched_cells for plan in self.plans.values())
        return (own + sum(made) + max(made)) * self.semiring.itemsize + max(made) + working


@dataclass(frozen=True)
class Ran:
    """The answer of the agents, the messages sent, and the wall seconds in this process."""

    found: AgentsAnswer
    building: Clock
    traffic: Traffic
    seconds: float


def plan_dcop(dcop: Dcop, asked: AgentOptions, available_bytes: float) -> Planned:
    """Plan all agents.

    Raises
    ------
    ModelError
        If the order does not fit the problem, or costs add up to too much.
    BudgetError
        If the tables of all agents need more than ``available_bytes``, or messages of the budget take too many.
    """
    most = most_of(dcop.model)
    semiring = semiring_of(most)
    tree = chosen_tree(dcop, asked.order, seed=asked.seed)
    single = asked.message_bytes is not None
    # shares of larger totals are not exact in the floating-point numbers that they are computed in
    plans = plan_agents(dcop, tree, semiring, z=asked.z, single=single, matched=most <= LARGEST)
    if asked.message_bytes is not None:
        fixed = cuts(dcop, tree, plans, max(1, asked.message_bytes // semiring.itemsize))
        if fixed:
            plans = plan_agents(dcop, tree, semiring, fixed=fixed, single=single)
            check_runs(dcop, tree, plans, asked.message_bytes)
    planned = Planned(dcop, asked, tree, plans, semiring, most)
    check_tables_fit(planned, available_bytes)
    return planned


def check_tables_fit(planned: Planned, available_bytes: float) -> None:
    """Refuse a plan whose tables do not fit in memory.

    Raises
    ------
    BudgetError
        If they do not fit. The message states both numbers and the largest message.
    """
    if planned.table_bytes <= available_bytes:
        return
    plans = planned.plans
    agent = max(plans, key=lambda each: plans[each].message_cells)
    largest = plans[agent].message_cells * planned.semiring.itemsize
    raise BudgetError(
        f"the tables of all agents need {format_bytes(planned.table_bytes)}, of which a message of agent "
        f"{planned.dcop.agents[agent].name!r} takes {format_bytes(largest)}; {format_bytes(int(available_bytes))} are "
        f"free: limit the bytes of a message with --memory, {_narrower(planned.tree)}"
    )


def _narrower(tree: PseudoTree) -> str:
    """Return further advice: bounds, and the cheapest tree unless it is in use."""
    known = tree.heuristic == "planned"
    return "or use --z for bounds" if known else f"use --z for bounds, or --order {CHEAPEST} for a narrower tree"


def run_dcop(planned: Planned, pool: Pool, algebra: Plain | None = None) -> Ran:
    """Let agents work, and simulate their network; ``algebra`` runs their steps, by default the dense engine."""
    traffic, labels = Traffic(), AgentLabels([agent.name for agent in planned.dcop.agents])
    network = planned.asked.network
    built = building(planned.tree, network, traffic)
    algebra = algebra or _algebra(planned)
    known = knowledge(planned, algebra)
    # this process does not use the devices of other processes
    if isinstance(pool, SerialPool) or not planned.asked.device:
        _warm(planned, known, algebra.compiled)
    start = perf_counter()
    if planned.bounded:
        found = BoundedRun(planned.tree, known, pool, network, traffic, labels).run()
    else:
        found = run_agents(planned.tree, known, pool, network, traffic, labels)
    return Ran(found, built, traffic, perf_counter() - start)


def knowledge(planned: Planned, algebra: Plain | None = None) -> dict[int, Knowledge]:
    """Return the knowledge of each agent."""
    dcop, semiring, threads = planned.dcop, planned.semiring, planned.asked.threads
    made = algebra or _algebra(planned)
    return {
        agent: knowledge_of(dcop, plan, semiring, planned.most, made, threads) for agent, plan in planned.plans.items()
    }


def _algebra(planned: Planned) -> Plain:
    """Return the algebra that runs the steps of all agents: on a device, or with compiled kernels if they pay."""
    if planned.asked.device:
        return DevicePlain(planned.semiring, places=DevicePlaces())
    cells = sum(step.lowered.cells for plan in planned.plans.values() for step in plan.steps)
    return Plain(planned.semiring, compiler_pays(cells))


def _warm(planned: Planned, known: Mapping[int, Knowledge], compiled: bool) -> None:
    """Load what the first agent would load: kernels, on the smallest step of each kind, and modules, by one leaf."""
    smallest: dict[str, Lowered] = {}
    for lowered in (step.lowered for plan in planned.plans.values() for step in plan.steps):
        if lowered.regime not in smallest or lowered.cells < smallest[lowered.regime].cells:
            smallest[lowered.regime] = lowered
    for lowered in smallest.values():
        tables = [np.zeros(cells, lowered.semiring.dtype) for cells in lowered.input_cells]
        run(lowered, tables, compiled=compiled)
    leaf = min(known.values(), key=lambda each: (len(each.plan.incoming), each.plan.checks))
    if not leaf.plan.incoming:
        states = dict.fromkeys(leaf.plan.variables[: -leaf.plan.own], 0)
        fixed = dict.fromkeys((*leaf.plan.context, *leaf.plan.iterated), 0)
        assign(leaf, util(leaf, fixed).kept, {**states, **fixed})
