"""Diagrams of tables, sums of diagrams, and least values over a last variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..steps.number_limits import FAR_INTEGER
from .diagram import (
    EDGES,
    EXHAUSTED,
    FORBIDDEN,
    FRONT,
    LEFT_OUT,
    LEVEL,
    Diagram,
    Merging,
    Pairing,
    States,
    align,
    last_weights,
    packed,
    turn,
)
from .min_plus_loops import expand, merge, minimise_last

Integers = NDArray[np.int64]

#: Budget that leaves out nothing but what is forbidden.
UNLIMITED = FORBIDDEN - 1
#: Bytes of a state that becomes a node: its number and weight, those of the level below, and a growing table of nodes.
_MERGED_BYTES = 72


class NoRoomError(Exception):
    """A diagram would not fit into the memory, or the work, that it may take."""


class DiagramStoppedError(Exception):
    """The caller no longer needs the requested diagram."""


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
        Lower bound of the pruned entries; ``NOTHING`` if only forbidden entries were pruned.
    edges : int
        Edges that were looked at to make it.
    """

    diagram: Diagram | None
    constant: int
    left_out: int = FAR_INTEGER
    edges: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return 0 if self.diagram is None else diagram_bytes(self.diagram)


@dataclass(frozen=True)
class Limits:
    """Limits of a join: the maximum value of its entries, its bytes, and a stop function."""

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
        The second function, with no pruned entries.
    sizes : array
        Domain sizes by variable.

    Raises
    ------
    NoRoomError
        If it takes more memory than allowed.
    StoppedError
        If ``stop`` ended it.
    """
    return Join(a, b, sizes=sizes, minimise=minimise).run(limits or Limits())


class Join:
    """A sum under construction; an interrupted sum continues in the next run.

    Parameters
    ----------
    a, b, sizes, minimise
        Of :func:`join`.
    """

    def __init__(self, a: Summed, b: Summed | None = None, *, sizes: Integers, minimise: bool = False) -> None:
        self._constant = a.constant + (0 if b is None else b.constant)
        first, second = a.diagram, one_node() if b is None else b.diagram
        assert first is not None
        assert second is not None
        self._a, self._b, self._minimise = first, second, minimise
        self._pairing = align(first.scope, second.scope, sizes)
        self._counts = _counts(0, 1)
        self._merge: _Merge | None = None
        room = 64 * len(self._pairing.scope)
        child, weight, reach = np.empty(room, np.int32), np.empty(room, np.int64), np.zeros(room, np.int64)
        self._states = _states(child, weight, reach, np.zeros(1, np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes held between two runs."""
        return _bytes(self._states) if self._merge is None else self._merge.nbytes

    def run(self, limits: Limits) -> Summed:
        """Continue; the budget may be less than in the last run.

        Raises
        ------
        NoRoomError, StoppedError
            As :func:`join` does.
        """
        limits = Limits(min(limits.budget - self._constant, UNLIMITED), limits.memory_bytes, limits.stop)
        if self._merge is None:
            low = self._expanded(limits)
            self._merge = _Merge(self._pairing, self._states, self._counts, low, limits)
        diagram, least = self._merge.run(limits)
        left_out, edges = int(self._counts[LEFT_OUT]), int(self._counts[EDGES])
        constant = self._constant
        return Summed(diagram, constant + least, left_out + constant if left_out < FAR_INTEGER else FAR_INTEGER, edges)

    def _expanded(self, limits: Limits) -> Integers:
        """Reach all states; return the least sums from the states of the lowest level on."""
        a, b, pairing, counts = self._a, self._b, self._pairing, self._counts
        last = len(pairing.scope) - self._minimise
        room = limits.memory_bytes
        while True:
            self._states = expand(a, b, pairing, self._states, counts, last, limits.budget, room, *turn())
            if counts[EXHAUSTED]:
                raise NoRoomError
            if counts[LEVEL] == last:
                break
            if limits.stop():
                raise DiagramStoppedError
        if self._minimise:
            least: Integers = minimise_last(a, b, pairing, self._states, counts, limits.budget)
            return least
        return np.zeros(counts[FRONT], np.int64)


class _Merge:
    """States being turned into nodes; an interrupted merge continues in the next run.

    Parameters
    ----------
    low : array
        Least sums from the states of the lowest level on.
    """

    def __init__(self, pairing: Pairing, states: States, counts: Integers, low: Integers, limits: Limits) -> None:
        self._pairing, self._states, self._counts = pairing, states, counts
        levels = int(counts[LEVEL])
        widest = int(np.diff(pairing.states[: levels + 1]).max(initial=len(low)))
        self._held = 12 * len(states.child) + 8 * len(states.reach)
        if self._held + _MERGED_BYTES * widest > limits.memory_bytes:
            raise NoRoomError
        self._nodes = np.ones(levels + 1, np.int64)
        ids = np.zeros(len(low), np.int32)
        self._merging = Merging(ids, low, ids, low, np.zeros(0, np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes held between two runs."""
        return _bytes(self._states) + _bytes(self._merging)

    def run(self, limits: Limits) -> tuple[Diagram | None, int]:
        """Merge all states into nodes; return the diagram and the least entry, or None if there is none."""
        pairing, states, nodes, counts = self._pairing, self._states, self._nodes, self._counts
        while counts[LEVEL] and len(self._merging.low):
            self._merging = merge(pairing, states, nodes, self._merging, counts, limits.budget, *turn())
            if counts[LEVEL] and limits.stop():
                raise DiagramStoppedError
        low = self._merging.low
        if not len(low) or low[0] >= FORBIDDEN:
            return None, 0
        if self._held + 12 * int((nodes[:-1] * pairing.sizes[: len(nodes) - 1]).sum()) > limits.memory_bytes:
            raise NoRoomError
        return packed(pairing, states, nodes), int(low[0])


def _counts(level: int, front: int) -> Integers:
    """Return the counts of loops that continue with a level of ``front`` states."""
    counts = np.zeros(8, np.int64)
    counts[LEVEL], counts[FRONT], counts[LEFT_OUT] = level, front, FAR_INTEGER
    return counts


def _states(child: NDArray[np.int32], weight: Integers, reach: Integers, pairs: Integers) -> States:
    """Return states with no known states of the next level."""
    return States(child, weight, reach, pairs, pairs, np.zeros(0, np.int32))


def _bytes(arrays: States | Merging) -> int:
    """Return the bytes of arrays, counting shared arrays once."""
    return sum(int(array.nbytes) for array in {id(array): array for array in arrays}.values())


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
    states = _states(child, weight, reach, scope)
    lowest = min(0, int(values.min()))
    low = np.where(values < FORBIDDEN, values - lowest, FORBIDDEN).reshape(-1)
    everything = Limits()
    diagram, least = _Merge(pairing, states, _counts(len(scope), values.size), low, everything).run(everything)
    return Summed(diagram, least + lowest)


def add_last_weights(function: Summed, sizes: Integers, states: Integers, sums: Integers) -> None:
    """Add to ``sums`` a function's entries by its last variable, where the others have the ``states`` given."""
    assert function.diagram is not None
    last_weights(function.diagram, sizes, states, sums)


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
