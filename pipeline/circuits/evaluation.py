"""Evaluating a circuit for many cases at once: sums, maxima, walks down, and derivatives, layer by layer.

Values are natural logarithms, shape (nodes, cases). All of it is indexing and reductions of one array module, which is
handed in: NumPy, or CuPy with the circuit's layers on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .circuit import CircuitGraph, CircuitLayer

Picker = Callable[[Any], Any]
"""Chooses one child for each row of logarithms, shape (sums, children)."""


def log_values(circuit: CircuitGraph, layers: Sequence[CircuitLayer], leaves: Any, maximum: bool, xp: Any) -> Any:
    """Return the logarithm of each node in each case: sums, or the greatest child in their place.

    Parameters
    ----------
    layers : sequence of CircuitLayer
        Those of the circuit, of the array module.
    leaves : ndarray, shape (leaves, cases)
        Logarithms of all leaves.
    xp : module
        NumPy, or what has its functions.
    """
    values = xp.empty((circuit.nodes, leaves.shape[1]))
    values[: circuit.n_leaves] = leaves
    for layer in layers:
        known = values[layer.children]
        if not layer.is_sum:
            values[layer.nodes] = known.sum(axis=1)
        elif not layer.children.shape[1]:
            values[layer.nodes] = -np.inf
        elif maximum:
            values[layer.nodes] = known.max(axis=1)
        else:
            values[layer.nodes] = log_sums(known, xp)
    return values


def log_sums(logs: Any, xp: Any) -> Any:
    """Return logarithms of sums over the second axis."""
    top = logs.max(axis=1)
    finite = xp.where(top == -np.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        return finite + xp.log(xp.exp(logs - finite[:, np.newaxis]).sum(axis=1))


def flows(circuit: CircuitGraph, layers: Sequence[CircuitLayer], values: Any, xp: Any) -> Any:
    """Return for each node how probable it is that it is part of an assignment, in each case; 0 where none is possible.

    That is the derivative of the logarithm of the root by the logarithm of the node (Darwiche, JACM 2003): of an
    indicator the posterior of its state, of a parameter the derivative times its value.
    """
    found = xp.zeros(values.shape)
    found[circuit.root] = values[circuit.root] > -np.inf
    for layer in reversed(layers):
        nodes, children = layer.nodes, layer.children
        if not children.shape[1]:
            continue
        given = xp.broadcast_to(found[nodes][:, np.newaxis], (*children.shape, values.shape[1]))
        if layer.is_sum:
            own = values[nodes]
            shift = xp.where(own == -np.inf, 0.0, own)
            given = given * xp.exp(values[children] - shift[:, np.newaxis])
        scatter_add(found, children.reshape(-1), given.reshape(-1, values.shape[1]), xp)
    return found


def scatter_add(target: Any, places: Any, added: Any, xp: Any) -> None:
    """Add rows to the rows of a target, of which one may be named several times."""
    if xp is not np:
        xp.add.at(target, places, added)
        return
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    target[ordered[starts]] += np.add.reduceat(added[order], starts, axis=0)


def walk_down(
    circuit: CircuitGraph, layers: Sequence[CircuitLayer], values: Any, columns: int, pick: Picker, xp: Any
) -> Any:
    """Return which indicators are part of one assignment for each column, shape (indicators, columns).

    Parameters
    ----------
    values : ndarray, shape (nodes, columns or 1)
        Logarithms.
    pick : callable
        Chooses a child of each sum.
    """
    active = xp.zeros((circuit.nodes, columns), bool)
    active[circuit.root] = values[circuit.root] > -np.inf
    for layer in reversed(layers):
        rows, cases = xp.nonzero(active[layer.nodes])
        if not len(rows) or not layer.children.shape[1]:
            continue
        children = layer.children[rows]
        if layer.is_sum:
            known = values[children, (cases if values.shape[1] > 1 else xp.zeros_like(cases))[:, np.newaxis]]
            children = children[xp.arange(len(rows)), pick(known)][:, np.newaxis]
        active[children, cases[:, np.newaxis]] = True
    return active[: circuit.n_indicators]


def best(logs: Any) -> Any:
    """Pick the greatest child, the first one among equals."""
    return logs.argmax(axis=1)


def drawn_by(generator: Any, xp: Any) -> Picker:
    """Return what picks a child in proportion to its value, by the greatest of logarithms with Gumbel's noise."""

    def pick(logs: Any) -> Any:
        return (logs + xp.asarray(generator.gumbel(size=logs.shape))).argmax(axis=1)

    return pick
