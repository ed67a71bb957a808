"""Memory-bounded messages: which variables are cut where a message would be larger than its budget. Pure.

Agents whose messages are too large form clusters, with the agent above that joins what they send. In a cluster some
variables are fixed, one assignment after the other, so that every message fits: those that most of its separators have
(MB-DPOP; Petcu & Faltings, IJCAI 2007). An agent in a cluster sends a message for each request, which fixes the cut
variables of its separator; whose variable is cut goes through its states itself, or the agent on top of the cluster
does, where it belongs to an ancestor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from ..errors import BudgetError, format_bytes, format_count
from ..models.dcop import Dcop
from .agent_plan import AgentPlan, FixedVariables, Scope
from .agent_policy import AgentPolicy
from .pseudo_tree import PseudoTree


def cuts(dcop: Dcop, tree: PseudoTree, plans: Mapping[int, AgentPlan], cells: int) -> dict[int, FixedVariables]:
    """Return what agents fix so that no message has more than ``cells`` cells; agents that fix nothing are left out."""
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
    """Choose variables whose removal leaves no separator with too many cells: what most of the large ones have."""
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
    policy = AgentPolicy.current()
    runs: dict[int, int] = {}
    for agent in tree.walk:
        asked = runs[tree.parents[agent]] if plans[agent].context else 1
        runs[agent] = asked * math.prod(dcop.model.dims[v] for v in plans[agent].iterated)
    if (total := sum(runs.values())) > policy.most_runs:
        raise BudgetError(
            f"with messages of at most {format_bytes(nbytes)} agents would send {format_count(total)} of them, more "
            f"than {format_count(policy.most_runs)}; give a larger --memory, or --z for bounds"
        )
