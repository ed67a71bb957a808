"""Pseudo-trees of agents: every function lies on one branch. Pure.

A depth-first walk of the graph of agents gives a pseudo-tree (Petcu & Faltings, IJCAI 2005): agents pass a token that
names the visited agents, and each agent knows only its own neighbours. An elimination order also gives a pseudo-tree.
Its edges need not be edges of the graph, and its separators are as small as the order is good.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, get_args

from ...tasks.steps.light_dataclass import dataclass
from ..errors import ModelError, shorten
from ..models.dcop import Dcop
from ..orders.depth_first import bucket_parents
from ..orders.tree_search import TreeSearch
from ..trees.tree import elimination_order

Heuristic = Literal["planned", "most-connected", "max-degree", "most-constrained", "given"]
"""Whom the token visits first: who has most neighbours that were visited, then fewest at all; who has most neighbours;
who has fewest joint states; who comes first in the file. ``planned`` is the tree of an elimination order, for which no
token is passed."""

CHEAPEST = "cheapest"
"""The tree of all these on which agents go through the fewest joint states."""
HEURISTICS = get_args(Heuristic)


@dataclass(frozen=True)
class Token:
    """A message of the walk: from whom to whom, and how many agents it names as visited.

    A question to several agents, or an answer, may name one number instead; ``waits`` marks the message that the walk
    waits for.
    """

    sender: int
    receiver: int
    visited: int
    waits: bool = True


@dataclass(frozen=True)
class PseudoTree:
    """Agents that own variables, as a forest.

    Parameters
    ----------
    parents : tuple of int
        By agent; -1 for roots, and for agents without variables.
    walk : tuple of int
        Agents that own variables, parents before their children.
    tokens : tuple of Token
        Messages sent to build the tree.
    heuristic : str
        How it was found; ``"named"`` where agents were named.
    """

    parents: tuple[int, ...]
    walk: tuple[int, ...]
    tokens: tuple[Token, ...] = ()
    heuristic: str = "named"

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each agent, in the order of the walk."""
        found: list[list[int]] = [[] for _ in self.parents]
        for agent in self.walk:
            if self.parents[agent] >= 0:
                found[self.parents[agent]].append(agent)
        return tuple(map(tuple, found))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Edges between each agent and its root."""
        found = [0] * len(self.parents)
        for agent in self.walk:
            if self.parents[agent] >= 0:
                found[agent] = found[self.parents[agent]] + 1
        return tuple(found)

    @property
    def roots(self) -> tuple[int, ...]:
        """Agents without a parent."""
        return tuple(agent for agent in self.walk if self.parents[agent] < 0)

    @property
    def depth(self) -> int:
        """Edges of the longest branch."""
        return max((self.depths[agent] for agent in self.walk), default=0)


def pseudo_parents(dcop: Dcop, tree: PseudoTree) -> dict[int, tuple[int, ...]]:
    """Return for each agent the ancestors beside its parent that it shares a function with, the nearest first."""
    depths = tree.depths
    found = {}
    for agent, around in enumerate(neighbours(dcop)):
        above = [other for other in around if depths[other] < depths[agent] and other != tree.parents[agent]]
        found[agent] = tuple(sorted(above, key=lambda other: -depths[other]))
    return {agent: found[agent] for agent in tree.walk}


def agent_scopes(dcop: Dcop) -> list[tuple[int, ...]]:
    """Return for each function the agents that own its variables."""
    return [tuple(dict.fromkeys(dcop.owners[v] for v in function.scope)) for function in dcop.model.functions]


def neighbours(dcop: Dcop) -> list[set[int]]:
    """Return the neighbours of each agent: the agents that share a function with it."""
    found: list[set[int]] = [set() for _ in dcop.agents]
    for scope in agent_scopes(dcop):
        for agent in scope:
            found[agent].update(scope)
    return [around - {agent} for agent, around in enumerate(found)]


def pseudo_tree(dcop: Dcop, order: str | Sequence[str], *, seed: int = 0) -> PseudoTree:
    """Build a pseudo-tree.

    Parameters
    ----------
    dcop : Dcop
    order : str or sequence of str
        One of ``HEURISTICS``, or names of all agents that own variables, those to be visited first in front.
    seed : int
        Of the search for an elimination order.

    Raises
    ------
    ModelError
        If the order is no heuristic, or does not name the agents.
    """
    graph = neighbours(dcop)
    if order == "planned":
        tree = _eliminated(dcop, seed)
    else:
        asks = order == "most-connected"
        tree = _walked(graph, _ranks(dcop, graph, order), [bool(own) for own in dcop.owned], asks)
    return replace(tree, heuristic=order) if order in HEURISTICS else tree  # type: ignore[arg-type]


def next_hop(around: Sequence[int], visited: set[int], connected: Mapping[int, int] | None = None) -> int | None:
    """Return the decision of an agent with the token: the best unvisited neighbour, or None to return the token to its
    parent.

    With ``connected``, the neighbours' answers, it is the first of the neighbours with the most visited neighbours.
    """
    left = [agent for agent in around if agent not in visited]
    if not left or connected is None:
        return left[0] if left else None
    return max(left, key=lambda agent: connected.get(agent, 0))


def _asked(current: int, around: Sequence[int], visited: set[int], named: int) -> list[Token]:
    """Ask neighbours how many of theirs were visited, if there is a choice; they answer at the same time."""
    left = [agent for agent in around if agent not in visited]
    if len(left) < 2:
        return []
    asked = [Token(current, other, named, other == left[0]) for other in left]
    return [*asked, *(Token(other, current, 1, other == left[0]) for other in left)]


def _walked(graph: Sequence[set[int]], ranks: Sequence[int], owns: Sequence[bool], asks: bool = False) -> PseudoTree:
    """Walk depth first through every component, as a token that agents pass on, from the agent of the lowest rank.

    Parameters
    ----------
    graph : sequence of set of int
        Neighbors of each agent.
    ranks : sequence of int
        Preference of each agent; the lowest rank goes first.
    owns : sequence of bool
        Whether an agent owns variables.
    asks : bool
        Whether an agent asks its neighbors how many visited neighbors they have, and prefers the most.
    """
    around = [sorted(each, key=ranks.__getitem__) for each in graph]
    parents, walk, tokens = [-1] * len(graph), list[int](), list[Token]()
    visited: set[int] = set()
    for root in sorted(range(len(graph)), key=ranks.__getitem__):
        if not owns[root] or root in visited:
            continue
        current, before = root, len(visited)
        visited.add(root)
        walk.append(root)
        while True:
            connected = None
            if asks:
                tokens += _asked(current, around[current], visited, len(visited) - before)
                connected = {other: len(graph[other] & visited) for other in around[current]}
            chosen = next_hop(around[current], visited, connected)
            if chosen is None and current == root:
                break
            # without an unvisited neighbor the token goes back to the parent
            receiver = parents[current] if chosen is None else chosen
            tokens.append(Token(current, receiver, len(visited) - before))
            if chosen is not None:
                parents[chosen] = current
                visited.add(chosen)
                walk.append(chosen)
            current = receiver
    return PseudoTree(tuple(parents), tuple(walk), tuple(tokens))


def _ranks(dcop: Dcop, graph: Sequence[set[int]], order: str | Sequence[str]) -> list[int]:
    """Return each agent's rank in the token's preference."""
    agents = range(len(graph))
    if order == "given":
        return list(agents)
    if order == "max-degree":
        return _places(sorted(agents, key=lambda agent: (-len(graph[agent]), agent)))
    if order == "most-connected":
        return _places(sorted(agents, key=lambda agent: (len(graph[agent]), agent)))
    if order == "most-constrained":
        states = [math.prod(dcop.model.dims[v] for v in own) for own in dcop.owned]
        return _places(sorted(agents, key=lambda agent: (states[agent], -len(graph[agent]), agent)))
    return _places(_named(dcop, order))


def _places(agents: Sequence[int]) -> list[int]:
    places = [0] * len(agents)
    for place, agent in enumerate(agents):
        places[agent] = place
    return places


def _named(dcop: Dcop, order: str | Sequence[str]) -> list[int]:
    index = {agent.name: k for k, agent in enumerate(dcop.agents)}
    if isinstance(order, str) and order not in index:
        raise ModelError(f"unknown order {order!r}; one of {', '.join((CHEAPEST, *HEURISTICS))}, or names of agents")
    names = [order] if isinstance(order, str) else list(order)
    if unknown := [name for name in names if name not in index]:
        raise ModelError(f"the order names {shorten(unknown[0])!r}, which is not an agent of the problem")
    if len(set(names)) < len(names):
        raise ModelError("the order names an agent twice")
    named = [index[name] for name in names]
    rest = [agent for agent in range(len(dcop.agents)) if agent not in set(named)]
    if missing := [agent for agent in rest if dcop.owned[agent]]:
        raise ModelError(f"the order does not name the agent {dcop.agents[missing[0]].name!r}")
    return [*named, *rest]


def _eliminated(dcop: Dcop, seed: int) -> PseudoTree:
    """The tree of a good elimination order of agents, each as large as its joint states."""
    owners = [agent for agent, own in enumerate(dcop.owned) if own]
    local = {agent: k for k, agent in enumerate(owners)}
    dims = [math.prod(dcop.model.dims[v] for v in dcop.owned[agent]) for agent in owners]
    scopes = [tuple(local[agent] for agent in scope) for scope in agent_scopes(dcop) if scope]
    order = elimination_order(TreeSearch(dims, scopes, tree="bucket", seed=seed).cheapest())
    above, _ = bucket_parents(len(dims), scopes, order)
    parents = [-1] * len(dcop.agents)
    for k, parent in enumerate(above):
        parents[owners[k]] = -1 if parent < 0 else owners[parent]
    return PseudoTree(tuple(parents), tuple(owners[k] for k in reversed(order)))
