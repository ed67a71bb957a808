"""The choice of the pseudo-tree: the requested one, or the cheapest. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..models.dcop import Dcop
from .agent_plan import joint_states
from .agent_policy import AgentPolicy
from .pseudo_tree import CHEAPEST, HEURISTICS, PseudoTree, pseudo_tree


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
