"""The trace of a counting search as a circuit, a decision-DNNF (Huang & Darwiche, The language of search, JAIR 2007).

Each decision is a sum of two products. Products combine decided literals and components. A cached component is its
earlier node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiler.jit import njit
from ..steps.number_limits import LARGEST_INT32
from .count_state import Array

#: Places in ``SearchTrace.counters``.
MADE, USED_CHILDREN, PENDING = range(3)
#: In place of a node that was not made.
NO_NODE = -1
#: Children are int32.
MOST_NODES = LARGEST_INT32 // 2
# Products of more children are trees of such: walks over circuits take nodes of equally many children together.
_WIDEST = 8


class SearchTrace(NamedTuple):
    """A circuit as far as it is made; all arrays are empty where none is asked for.

    Node k is a sum if ``is_sum[k]``, otherwise a product, of ``children[starts[k] : starts[k + 1]]``. Children from 0
    to 2 n - 1 are literals of n variables; from 2 n on, free variables; from 3 n on, nodes. ``pending`` are the
    children of the products on the way down; no two of them share a variable. ``counters`` are the numbers of nodes, of
    their children, and of pending children.
    """

    is_sum: Array
    starts: Array
    children: Array
    pending: Array
    counters: Array

    @property
    def size(self) -> tuple[int, int]:
        """How many nodes and children there are."""
        return int(self.counters[MADE]), int(self.counters[USED_CHILDREN])


def new_trace(variables: int, nodes: int) -> SearchTrace:
    """Return a trace with capacity for ``nodes`` nodes; 0 gives a trace that is not written."""
    size = variables + 2 if nodes else 0
    room = max(nodes, 2 * size + 4) if nodes else 0
    return SearchTrace(
        np.zeros(room, dtype=np.bool_),
        np.zeros(room + 1 if room else 0, dtype=np.int64),
        np.zeros(2 * room, dtype=np.int32),
        np.zeros(size, dtype=np.int32),
        np.zeros(3, dtype=np.int64),
    )


def grown_trace(trace: SearchTrace) -> SearchTrace:
    """Return the same trace with twice the room, for nodes or for children, whichever is short of it."""

    def twice(array: Array) -> Array:
        return np.concatenate([array, np.zeros_like(array)])

    if len(trace.is_sum) < trace.counters[MADE] + len(trace.pending) + 2:
        return trace._replace(is_sum=twice(trace.is_sum), starts=twice(trace.starts))
    return trace._replace(children=twice(trace.children))


@njit(nogil=True)
def is_traced(trace: SearchTrace) -> bool:
    """Whether a trace is written."""
    return len(trace.starts) > 0


@njit(nogil=True)
def lacks_room(trace: SearchTrace) -> bool:
    """Whether a product and a sum more may not find room."""
    longest = len(trace.pending)
    counters = trace.counters
    return bool(
        counters[MADE] + longest + 2 > len(trace.is_sum)
        or counters[USED_CHILDREN] + 2 * longest + 4 > len(trace.children)
    )


@njit(nogil=True)
def push(trace: SearchTrace, child: int) -> None:
    """Let the product that is being made have one more child."""
    counters = trace.counters
    trace.pending[counters[PENDING]] = child
    counters[PENDING] += 1


@njit(nogil=True)
def _node(trace: SearchTrace, is_sum: bool, first: int, last: int) -> int:
    """Write a node of the pending children between two places; return its number as a child."""
    counters = trace.counters
    k, at = counters[MADE], counters[USED_CHILDREN]
    for j in range(first, last):
        trace.children[at] = trace.pending[j]
        at += 1
    trace.is_sum[k] = is_sum
    trace.starts[k + 1] = at
    counters[MADE], counters[USED_CHILDREN] = k + 1, at
    return int(3 * (len(trace.pending) - 2) + k)


@njit(nogil=True)
def add_branch(trace: SearchTrace, first: int, other: int) -> int:
    """Write what is pending from a place on as a product, and the sum of it and of the other branch, if that has one.

    The first child, which is the decision, stays a child of the whole product.

    Returns
    -------
    int
        The number of the sum, or of the product, as a child.
    """
    counters, last = trace.counters, int(trace.counters[PENDING])
    while last - first > _WIDEST:
        at = read = first + 1
        while read < last:
            stop = min(read + _WIDEST, last)
            if stop - read > 1:
                trace.pending[at] = _node(trace, False, read, stop)
            else:
                trace.pending[at] = trace.pending[read]
            at, read = at + 1, stop
        last = at
    made = int(trace.pending[first]) if last - first == 1 else _node(trace, False, first, last)
    if other != -1:
        # the pending array has capacity for two more children
        trace.pending[first], trace.pending[first + 1] = other, made
        made = _node(trace, True, first, first + 2)
    counters[PENDING] = first
    return made
