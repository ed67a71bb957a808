"""Diagrams of tables, sums of diagrams, and least values over a last variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import loops
from .loops import FORBIDDEN, Diagram, Pairing, States

Integers = NDArray[np.int64]

#: Budget that leaves out nothing but what is forbidden.
UNLIMITED = FORBIDDEN - 1
#: Least value of what was left out, if nothing was.
NOTHING = 1 << 62
#: Edges between two looks at the clock.
QUOTA = 1 << 20

#: A state that becomes a node: its number and weight, those of the level below, and a table of nodes that grows.
_MERGED_BYTES = 72


class NoRoomError(Exception):
    """A diagram would not fit into the memory, or the work, that it may take."""


class StoppedError(Exception):
    """Whoever asked for a diagram does not want it any more."""


@dataclass(frozen=True, eq=False)
class Summed:
    """A function as a diagram and a constant.

    Parameters
    ----------
    diagram : Diagram or None
        None if nothing is left within the budget. The least of its entries is 0.
    constant : int
        Added to all entries.
    left_out : int
        What was left out had at least this value; ``NOTHING`` if nothing was but what is forbidden.
    edges : int
        Edges that were looked at to make it.
    """

    diagram: Diagram | None
    constant: int
    left_out: int = NOTHING
    edges: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return 0 if self.diagram is None else diagram_bytes(self.diagram)


@dataclass(frozen=True)
class Limits:
    """What a join may use: a value its entries must not exceed, bytes, and until when."""

    budget: int = UNLIMITED
    memory_bytes: int = 1 << 62
    stop: Callable[[], bool] = bool


def diagram_bytes(diagram: Diagram) -> int:
    """Bytes of a diagram's arrays."""
    return sum(int(array.nbytes) for array in diagram)


def n_nodes(diagram: Diagram) -> int:
    """How many nodes a diagram has."""
    return int(diagram.nodes[:-1].sum())


def one_node() -> Diagram:
    """Return the diagram of a function without variables."""
    none = np.zeros(0, np.int64)
    return Diagram(none, np.ones(1, np.int64), none, np.zeros(0, np.int32), none)


def join(
    a: Summed, b: Summed | None = None, *, sizes: Integers, minimise: bool = False, limits: Limits | None = None
) -> Summed:
    """Add two functions up, or take one; with ``minimise`` the least over the last variable.

    Entries above the budget are left out if that is seen: each entry that is there is right, and each that is
    within the budget is there.

    Parameters
    ----------
    a, b : Summed
        Of which nothing was left out.
    sizes : array
        Domain sizes by variable.

    Raises
    ------
    NoRoomError
        If it takes more memory than allowed.
    StoppedError
        If it was told to stop.
    """
    limits = limits or Limits()
    constant = a.constant + (0 if b is None else b.constant)
    limits = Limits(min(limits.budget - constant, UNLIMITED), limits.memory_bytes, limits.stop)
    first, second = a.diagram, one_node() if b is None else b.diagram
    assert first is not None
    assert second is not None
    pairing = loops.align(first.scope, second.scope, sizes)
    states, counts, low = _expanded(first, second, pairing, minimise, limits)
    edges = int(counts[loops.EDGES])
    diagram, least = _merged(pairing, states, counts, low, limits)
    left_out = int(counts[loops.LEFT_OUT])
    return Summed(diagram, constant + least, left_out + constant if left_out < NOTHING else NOTHING, edges)


def _expanded(
    a: Diagram, b: Diagram, pairing: Pairing, minimise: bool, limits: Limits
) -> tuple[States, Integers, Integers]:
    """Reach all states; return them, the counts, and the least sums from the states of the lowest level on."""
    last = len(pairing.scope) - minimise
    room = 64 * len(pairing.scope)
    states = States(np.empty(room, np.int32), np.empty(room, np.int64), np.zeros(room, np.int64), np.zeros(1, np.int64))
    counts = np.array([0, 1, 0, 0, NOTHING, 0])
    while True:
        states = loops.expand(
            a, b, pairing, states, counts, last, limits.budget, limits.memory_bytes, QUOTA, loops.SCATTER
        )
        if counts[loops.EXHAUSTED]:
            raise NoRoomError
        if counts[loops.LEVEL] == last:
            break
        if limits.stop():
            raise StoppedError
    if minimise:
        return states, counts, loops.minimise_last(a, b, pairing, states, counts, limits.budget)
    return states, counts, np.zeros(counts[loops.FRONT], np.int64)


def _merged(
    pairing: Pairing, states: States, counts: Integers, low: Integers, limits: Limits
) -> tuple[Diagram | None, int]:
    """Merge all states into nodes; return the diagram and the least entry, or None if there is none."""
    levels = int(counts[loops.LEVEL])
    widest = int(np.diff(pairing.states[: levels + 1]).max(initial=len(low)))
    held = 12 * len(states.child) + 8 * len(states.reach)
    if held + _MERGED_BYTES * widest > limits.memory_bytes:
        raise NoRoomError
    nodes = np.ones(levels + 1, np.int64)
    ids = np.zeros(len(low), np.int32)
    while counts[loops.LEVEL] and len(low):
        ids, low = loops.merge(pairing, states, nodes, ids, low, counts, limits.budget, QUOTA, loops.SCATTER)
        if counts[loops.LEVEL] and limits.stop():
            raise StoppedError
    if not len(low) or low[0] >= FORBIDDEN:
        return None, 0
    if held + 12 * int((nodes[:-1] * pairing.sizes[: len(nodes) - 1]).sum()) > limits.memory_bytes:
        raise NoRoomError
    return loops.packed(pairing, states, nodes), int(low[0])


def levels_of(scope: Integers, shape: Sequence[int]) -> tuple[Pairing, NDArray[np.int32]]:
    """Return levels on which no two rows of a table have met yet, and the child of each edge."""
    rows = np.cumprod([1, *shape])
    begins = np.concatenate([[0], np.cumsum(rows[1:])])
    above = np.concatenate([[0], np.cumsum(rows)])
    child = np.concatenate([np.arange(count, dtype=np.int32) for count in rows[1:]])
    return Pairing(scope, np.array(shape), scope, scope, begins, above), child


def from_dense(scope: Integers, values: Integers, sizes: Integers, *, limits: Limits | None = None) -> Summed:
    """Turn a table into a diagram.

    Parameters
    ----------
    scope : array
        Ascending variables.
    values : array
        An axis a variable, C-ordered; at least ``FORBIDDEN`` is forbidden. May be negative.

    Raises
    ------
    NoRoomError
        If it takes more memory than allowed.
    """
    limits = limits or Limits()
    if 24 * 2 * values.size > limits.memory_bytes:
        raise NoRoomError
    pairing, child = levels_of(scope, values.shape)
    weight, reach = np.zeros(len(child), np.int64), np.zeros(pairing.edges[-1] + 1, np.int64)
    states = States(child, weight, reach, scope)
    counts = np.array([len(scope), values.size, 0, 0, NOTHING, 0])
    lowest = min(0, int(values.min()))
    low = np.where(values < FORBIDDEN, values - lowest, FORBIDDEN).reshape(-1)
    diagram, least = _merged(pairing, states, counts, low, Limits())
    return Summed(diagram, least + lowest)


def add_last_weights(function: Summed, sizes: Integers, states: Integers, sums: Integers) -> None:
    """Add to ``sums`` a function's entries by its last variable, where the others have the ``states`` given."""
    assert function.diagram is not None
    loops.last_weights(function.diagram, sizes, states, sums)


def table(function: Summed, sizes: Integers) -> Integers:
    """Return all entries, an axis a variable; at least ``FORBIDDEN`` where forbidden."""
    diagram = function.diagram
    assert diagram is not None
    nodes, sums = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for i, v in enumerate(diagram.scope):
        edges = diagram.start[i] + nodes[:, None] * sizes[v] + np.arange(sizes[v])
        sums = np.minimum(sums[:, None] + diagram.weight[edges], FORBIDDEN).reshape(-1)
        nodes = diagram.child[edges].astype(np.int64).reshape(-1)
    sums = np.where(sums < FORBIDDEN, sums + function.constant, FORBIDDEN)
    return sums.reshape([sizes[v] for v in diagram.scope])
