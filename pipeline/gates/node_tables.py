"""Tables of node numbers by rows: a row for each cell that is not zero; their joins, and what they sum up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .circuit import ranges

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Possible states of some variables, and for each the nodes of its product.

    Parameters
    ----------
    axes : tuple of int
    states : ndarray of int32, shape (rows, axes)
        Distinct rows.
    nodes : ndarray of int64, shape (rows, factors)
        ``NOTHING`` for a factor of 1.
    """

    axes: tuple[int, ...]
    states: Array
    nodes: Array

    def __len__(self) -> int:
        return len(self.states)

    @property
    def nbytes(self) -> int:
        """Bytes of states and nodes."""
        return int(self.states.nbytes + self.nodes.nbytes)


OnJoin = Callable[[int, int], None]
"""Told how many rows a join will have, and the bytes of each."""


def joined(tables: Sequence[NodeTable], dims: Sequence[int], on_join: OnJoin) -> NodeTable:
    """Join tables, each time with the table that adds the fewest states."""
    left = sorted(tables, key=len)
    found = left.pop(0)
    while left:
        known = {*found.axes}

        def growth(table: NodeTable, known: set[int] = known) -> tuple[int, int]:
            return math.prod([dims[v] for v in table.axes if v not in known]), len(table)

        best = min(range(len(left)), key=lambda k: growth(left[k]))
        found = _pair(found, left.pop(best), dims, on_join)
    return found


def _pair(a: NodeTable, b: NodeTable, dims: Sequence[int], on_join: OnJoin) -> NodeTable:
    """Join two tables: a row for each pair that agrees in the variables of both."""
    common = [v for v in a.axes if v in b.axes]
    own = [k for k, v in enumerate(b.axes) if v not in a.axes]
    codes_a, codes_b = codes([columns(a, common), columns(b, common)], [dims[v] for v in common])
    order = np.argsort(codes_b, kind="stable")
    ordered = codes_b[order]
    first, last = (np.searchsorted(ordered, codes_a, side) for side in ("left", "right"))
    counts = last - first
    width = len(a.axes) + len(own), a.nodes.shape[1] + b.nodes.shape[1]
    on_join(int(counts.sum()), 4 * width[0] + 8 * width[1])
    at_a, at_b = np.repeat(np.arange(len(a)), counts), order[ranges(first, last)]
    states = np.concatenate([a.states[at_a], b.states[at_b][:, own]], axis=1)
    nodes = np.concatenate([a.nodes[at_a], b.nodes[at_b]], axis=1)
    return NodeTable((*a.axes, *[b.axes[k] for k in own]), states, nodes)


def columns(table: NodeTable, axes: Sequence[int]) -> Array:
    """Return the states of some axes."""
    return table.states[:, [table.axes.index(v) for v in axes]]


def codes(rows: Sequence[Array], dims: Sequence[int]) -> list[Array]:
    """Return numbers of rows of states, equal for equal rows of all arrays and in their order."""
    if math.prod(dims) < 1 << 62:
        steps = np.array([math.prod(dims[k + 1 :]) for k in range(len(dims))], np.int64)
        return [part.astype(np.int64) @ steps for part in rows]
    _, found = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
    return np.split(found.reshape(-1), np.cumsum([len(part) for part in rows])[:-1])


def grouped(table: NodeTable, gone: int, dims: Sequence[int]) -> tuple[NodeTable, Array]:
    """Sort a table by all variables but one.

    Returns
    -------
    NodeTable
        Of all variables, sorted.
    ndarray of int
        Where the rows begin that agree in the others.
    """
    stays = [v for v in table.axes if v != gone]
    (code,) = codes([columns(table, stays)], [dims[v] for v in stays])
    order = np.argsort(code, kind="stable")
    code = code[order]
    new = np.append(True, code[1:] != code[:-1])[: len(code)]
    return NodeTable(table.axes, table.states[order], table.nodes[order]), np.flatnonzero(new)


def restricted(table: NodeTable, v: int, state: int) -> NodeTable:
    """Return the rows of a table with a variable in a state, without the variable; a table without the variable stays
    unchanged.
    """
    if v not in table.axes:
        return table
    k = table.axes.index(v)
    rows = np.flatnonzero(table.states[:, k] == state)
    return NodeTable(
        (*table.axes[:k], *table.axes[k + 1 :]), np.delete(table.states[rows], k, axis=1), table.nodes[rows]
    )


def united(tables: Sequence[NodeTable]) -> NodeTable:
    """Return the rows of several tables with disjoint rows."""
    axes, width = tables[0].axes, max(table.nodes.shape[1] for table in tables)
    nodes = [np.pad(t.nodes, ((0, 0), (0, width - t.nodes.shape[1])), constant_values=-1) for t in tables]
    return NodeTable(axes, np.concatenate([columns(table, axes) for table in tables]), np.concatenate(nodes))
