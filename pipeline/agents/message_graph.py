"""The messages of agents as a task graph: a task for each agent's UTIL message, and one for its VALUE message. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..models.dcop import Dcop
from ..plans.task_graph import TaskGraph, TaskNode
from .agent_plan import AgentPlan
from .pseudo_tree import PseudoTree


def message_graph(dcop: Dcop, tree: PseudoTree, plans: Mapping[int, AgentPlan], itemsize: int) -> TaskGraph:
    """Return the tasks of DPOP: UTIL messages from the leaves to the roots, then VALUE messages back.

    Parameters
    ----------
    dcop : Dcop
    tree : PseudoTree
    plans : mapping of int to AgentPlan
    itemsize : int
        Bytes of a cell of a message.
    """
    names, dims = dcop.model.names, dcop.model.dims
    util = {agent: f"util-{dcop.agents[agent].name}.{agent}" for agent in tree.walk}
    value = {agent: f"value-{dcop.agents[agent].name}.{agent}" for agent in tree.walk}
    nodes: dict[str, TaskNode] = {}
    runs: dict[int, int] = {}
    for agent in tree.walk:  # an agent after its parent
        asked = runs[tree.parents[agent]] if plans[agent].context else 1
        runs[agent] = asked * math.prod(dims[v] for v in plans[agent].iterated)

    def named(variables: Iterable[int]) -> tuple[str, ...]:
        return tuple(names[v] for v in variables)

    def add(key: str, **facts: object) -> None:
        needs: tuple[str, ...] = facts["needs"]  # type: ignore[assignment]
        level = 1 + max((nodes[need].level for need in needs), default=-1)
        nodes[key] = TaskNode(key=key, level=level, seconds=None, **facts)  # type: ignore[arg-type]

    for agent in reversed(tree.walk):
        plan = plans[agent]
        add(
            util[agent],
            kind="elimination",
            needs=tuple(util[child] for child in tree.children[agent]),
            functions=len(plan.functions),
            variables=named(plan.separator),
            eliminated=named(plan.owned),
            cells=plan.matched_cells + sum([step.lowered.cells for step in plan.steps]),
            nbytes=itemsize * plan.message_cells,
            place=f"agent {dcop.agents[agent].name}",
            repeats=runs[agent],
            bucket=util[agent],
        )
    for agent in tree.walk:
        parent = tree.parents[agent]
        add(
            value[agent],
            kind="message",
            needs=(util[agent], *([value[parent]] if parent >= 0 else [])),
            functions=len(plans[agent].functions),
            variables=named(plans[agent].owned),
            eliminated=(),
            cells=math.prod(dims[v] for v in plans[agent].owned),
            nbytes=itemsize * len(plans[agent].owned),
            place=f"agent {dcop.agents[agent].name}",
            bucket=util[agent],
        )
    return TaskGraph(nodes, tuple(value.values()))
