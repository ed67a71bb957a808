"""Random problems of agents: costs on graphs, graph colouring, meetings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, checks_keywords, public
from .checks import integer
from .dcop import Agent, Dcop, one_agent_each
from .model import FORBIDDEN, Function, Model

# Graphs of variables: random of a density, square grids, scale-free. Pure.

Edge = tuple[int, int]


def random_graph(nodes: int, density: float, rng: np.random.Generator) -> list[Edge]:
    """Return a part of all edges, chosen at random; connected if they are enough to connect all nodes."""
    count = round(density * nodes * (nodes - 1) / 2)
    order = rng.permutation(nodes).tolist()
    tree = [_edge(order[k], order[int(rng.integers(k))]) for k in range(1, nodes)]
    known = set(tree[:count])
    rest = [edge for edge in combinations(range(nodes), 2) if edge not in known]
    more = rng.choice(len(rest), count - len(known), replace=False).tolist() if count > len(known) else []
    return sorted([*known, *(rest[k] for k in more)])


def grid_graph(nodes: int) -> list[Edge]:
    """Return a square grid, row by row; the last row may be shorter."""
    side = isqrt(nodes - 1) + 1 if nodes else 0
    across = [(k, k + 1) for k in range(nodes - 1) if (k + 1) % side]
    return sorted([*across, *((k, k + side) for k in range(nodes - side))])


def scale_free_graph(nodes: int, links: int, rng: np.random.Generator) -> list[Edge]:
    """Return a graph in which every new node is linked to some others, by chance in proportion to their degrees.

    Barabási & Albert, Science 1999; it begins with ``links`` nodes that are all connected.
    """
    edges = list(combinations(range(min(links, nodes)), 2))
    ends = [node for edge in edges for node in edge] or [0]
    for node in range(max(min(links, nodes), 1), nodes):
        chosen: set[int] = set()
        while len(chosen) < min(links, node):
            chosen.add(ends[int(rng.integers(len(ends)))])
        edges += [(other, node) for other in sorted(chosen)]
        ends += [end for other in sorted(chosen) for end in (other, node)]
    return edges


def _edge(one: int, other: int) -> Edge:
    return (one, other) if one < other else (other, one)


Kind = Literal["random", "grid", "scale-free", "coloring", "meetings"]
KINDS = get_args(Kind)

_LIMITS = {"variables": 100_000, "domain": 10_000, "cost": 10**12, "links": 1000, "agents": 100_000}


@dataclass(frozen=True, kw_only=True)
class DcopShape:
    """How large and how hard a problem is; see :func:`generate`."""

    variables: int = 10
    domain: int = 5
    density: float = 0.3
    tightness: float = 0.0
    cost: int = 100
    links: int = 2
    agents: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in _LIMITS.items():
            integer(getattr(self, name), name, 1, most + 1)
        for name in ("density", "tightness"):
            part = getattr(self, name)
            if not (isinstance(part, int | float) and 0 <= part <= 1):
                raise ModelError(f"{name} is {part!r}; expected a fraction from 0 to 1")
        integer(self.seed, "seed")


@public
@checks_keywords
def generate(
    kind: Kind,
    *,
    variables: int = 10,
    domain: int = 5,
    density: float = 0.3,
    tightness: float = 0.0,
    cost: int = 100,
    links: int = 2,
    agents: int = 5,
    seed: int = 0,
) -> Dcop:
    """Make a random distributed problem; the same arguments give the same one.

    Parameters
    ----------
    kind : {"random", "grid", "scale-free", "coloring", "meetings"}
        Costs between pairs of a random graph, a square grid or a scale-free graph (Barabási & Albert); a random graph
        whose neighbours pay for equal colours; meetings whose participants agree on a time that each has a cost for,
        and none has two at the same time (a variable for each participant, private events as values).
    variables : int
        \\|X\\|; of ``meetings`` their number.
    domain : int
        \\|D\\|: states, colours, times.
    density : float
        p1: the part of all pairs that are connected (``random``, ``coloring``); of all agents, but at least two, that
        take part in a meeting.
    tightness : float
        p2: the part of a function's assignments that are forbidden; of an agent's times (``meetings``).
    cost : int
        Costs are chosen from 0 to this; a conflict of ``coloring`` costs 1 to this.
    links : int
        Links of each new node of ``scale-free``.
    agents : int
        Of ``meetings``; elsewhere every variable has one of its own.
    seed : int

    Raises
    ------
    ModelError
        If an argument is out of its range.

    Examples
    --------
    >>> import bucketflow
    >>> problem = bucketflow.generate("grid", variables=9, seed=1)
    >>> len(problem.model.variables)
    9
    """
    if kind not in KINDS:
        raise ModelError(f"unknown kind {kind!r}; one of {', '.join(KINDS)}")
    shape = DcopShape(
        variables=variables,
        domain=domain,
        density=density,
        tightness=tightness,
        cost=cost,
        links=links,
        agents=agents,
        seed=seed,
    )
    # one generator for all draws: equal arguments give equal problems
    rng = np.random.default_rng(seed)
    return _meetings(shape, rng) if kind == "meetings" else _on_graph(kind, shape, rng)


def _on_graph(kind: Kind, shape: DcopShape, rng: np.random.Generator) -> Dcop:
    edges = _edges(kind, shape, rng)
    table: Callable[[DcopShape, np.random.Generator], NDArray[np.int64]] = _conflict if kind == "coloring" else _costs
    functions = tuple(Function(edge, table(shape, rng)) for edge in edges)
    names = tuple(f"x{k}" for k in range(shape.variables))
    name = f"{kind}_{shape.variables}_{shape.domain}_{shape.seed}"
    return one_agent_each(_model(shape, names, functions, name))


def _edges(kind: Kind, shape: DcopShape, rng: np.random.Generator) -> Sequence[Edge]:
    if kind == "grid":
        return grid_graph(shape.variables)
    if kind == "scale-free":
        return scale_free_graph(shape.variables, shape.links, rng)
    return random_graph(shape.variables, shape.density, rng)


def _costs(shape: DcopShape, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return random costs of a pair; a fraction of them is forbidden."""
    costs = rng.integers(0, shape.cost, (shape.domain, shape.domain), endpoint=True)
    forbidden = rng.choice(costs.size, int(shape.tightness * costs.size), replace=False)
    costs.reshape(-1)[forbidden] = FORBIDDEN
    return costs


def _conflict(shape: DcopShape, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the costs of a pair of colours; only equal colours cost anything."""
    return np.eye(shape.domain, dtype=np.int64) * int(rng.integers(1, shape.cost, endpoint=True))


def _meetings(shape: DcopShape, rng: np.random.Generator) -> Dcop:
    """Generate a meeting problem, private events as values (Maheswaran et al., AAMAS 2004): one variable per
    participant.

    Parameters
    ----------
    shape : DcopShape
    rng : Generator
    """
    attending = min(shape.agents, max(2, round(shape.density * shape.agents)))
    present = [sorted(rng.choice(shape.agents, attending, replace=False).tolist()) for _ in range(shape.variables)]
    owners = tuple(agent for group in present for agent in group)
    names = tuple(f"m{meeting}_a{agent}" for meeting, group in enumerate(present) for agent in group)
    index = {name: v for v, name in enumerate(names)}
    equal = np.where(np.eye(shape.domain, dtype=bool), 0, FORBIDDEN)
    functions, titles = [], []
    for meeting, group in enumerate(present):
        first, *rest = (index[f"m{meeting}_a{agent}"] for agent in group)
        functions += [Function((first, other), equal) for other in rest]
        titles += [f"same_{names[first]}_{names[other]}" for other in rest]
    own: dict[int, list[int]] = {}
    for v, agent in reversed(list(enumerate(owners))):
        own.setdefault(agent, []).append(v)
    for v, agent in enumerate(owners):
        functions.append(Function((v,), _times(shape, rng)))
        titles.append(f"times_{names[v]}")
        own[agent].pop()
        later = own[agent][::-1]
        # an agent cannot attend two meetings at one time
        functions += [Function((v, u), np.where(equal == 0, FORBIDDEN, 0)) for u in later]
        titles += [f"apart_{names[v]}_{names[u]}" for u in later]
    name = f"meetings_{shape.variables}_{shape.agents}_{shape.seed}"
    model = _model(shape, names, tuple(functions), name)
    return Dcop(model, tuple(Agent(f"a{k}") for k in range(shape.agents)), owners, tuple(titles))


def _model(shape: DcopShape, names: tuple[str, ...], functions: tuple[Function, ...], name: str) -> Model:
    """Costs of variables that all have the same states, numbers from 0."""
    states = tuple(map(str, range(shape.domain)))
    return Model("cost", names, (shape.domain,) * len(names), (states,) * len(names), functions, name=name)


def _times(shape: DcopShape, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the cost of each time for one participant; a fraction of the times is forbidden."""
    costs = rng.integers(0, shape.cost, shape.domain, endpoint=True)
    costs[rng.choice(shape.domain, int(shape.tightness * shape.domain), replace=False)] = FORBIDDEN
    return costs
