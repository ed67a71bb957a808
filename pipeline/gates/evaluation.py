"""Evaluating a circuit for many cases at once: sums, maxima, walks down, and derivatives, layer by layer.

Values are natural logarithms, shape (nodes, cases). All of it is indexing and reductions of one array module, which is
handed in: NumPy, or CuPy with the circuit's layers on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Reversible, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.cases import Cases
from ..queries.counting import combine, enough_primes
from .circuit import CircuitGraph, CircuitLayer

# Residues that a pass over the circuit finds together, of four bytes a node each.
_PRIMES_TOGETHER = 6

Array = NDArray[Any]
Picker = Callable[[Any], Any]
"""Chooses one child for each row of logarithms, shape (sums, children)."""


def log_values(circuit: CircuitGraph, layers: Reversible[CircuitLayer], leaves: Any, maximum: Any, xp: Any) -> Any:
    """Return the logarithm of each node in each case: sums, or the greatest child in their place.

    Parameters
    ----------
    layers : reversible of CircuitLayer
        Those of the circuit, of the array module.
    leaves : ndarray, shape (leaves, cases)
        Logarithms of all leaves.
    maximum : bool or ndarray of bool, shape (nodes,)
        Whether, or at which nodes, the greatest child is taken.
    xp : module
        NumPy, or what has its functions.
    """
    values = xp.empty((circuit.nodes, leaves.shape[1]))
    values[: circuit.n_leaves] = leaves
    for layer in layers:
        children = layer.children.T
        if not layer.is_sum:
            values[layer.nodes] = reduced(values, children, xp.add, 0.0)
            continue
        top = reduced(values, children, xp.maximum, -np.inf)
        if maximum is True or len(children) < 2:
            values[layer.nodes] = top
            continue
        total = top + xp.log(_relative(values, children, top, xp))
        values[layer.nodes] = total if maximum is False else xp.where(maximum[layer.nodes, np.newaxis], top, total)
    return values


def above(circuit: CircuitGraph, variables: frozenset[int]) -> Array:
    """Return which nodes stand above a state of some variables, shape (nodes,)."""
    found = np.zeros(circuit.nodes, np.bool_)
    found[: circuit.n_indicators] = [v in variables for v in circuit.indicators[0].tolist()]
    for layer in circuit.layers:
        found[layer.nodes] = found[layer.children].any(axis=1)
    return found


def counted_by_residues(circuit: CircuitGraph) -> int:
    """Return how many assignments a circuit has, exactly, from residues modulo primes: numbers of eight bytes."""
    most = float(np.log(np.array(circuit.variables.dims, float)).sum())  # of all assignments that there are
    primes, found = enough_primes(most, 1), list[tuple[int, int]]()
    while primes:
        part, primes = primes[:_PRIMES_TOGETHER], primes[_PRIMES_TOGETHER:]
        found += zip(_residues(circuit, part), part, strict=True)
    return combine(found)


def _residues(circuit: CircuitGraph, primes: Sequence[int]) -> list[int]:
    """Return the number of assignments modulo some primes below 2**31."""
    values = [np.ones(circuit.nodes, np.uint32) for _ in primes]
    for layer in circuit.layers:
        for own, prime in zip(values, primes, strict=True):
            found = np.full(len(layer.nodes), 0 if layer.is_sum else 1, np.int64)
            for column in layer.children.T:
                found = (found + own[column] if layer.is_sum else found * own[column]) % prime
            own[layer.nodes] = found
    return [int(own[circuit.root]) for own in values]


def reduced(values: Any, children: Any, combine: Any, neutral: float) -> Any:
    """Combine the rows of children, shape (arity, nodes), one child of all nodes after the other."""
    if not len(children):
        return neutral
    found = values[children[0]]
    for own in children[1:]:
        combine(found, values[own], out=found)
    return found


def _relative(values: Any, children: Any, top: Any, xp: Any) -> Any:
    """Return sums of children over the greatest of each; 1 where all are 0."""
    shift = xp.where(top == -np.inf, 0.0, top)
    total = (top == -np.inf).astype(top.dtype)
    for own in children:
        total += xp.exp(values[own] - shift)
    return total


def flows(circuit: CircuitGraph, layers: Reversible[CircuitLayer], values: Any, xp: Any) -> Any:
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
        given = found[nodes]
        if layer.is_sum:
            own = values[nodes]
            shift = xp.where(own == -np.inf, 0.0, own)
        for column in range(children.shape[1]):
            part = given * xp.exp(values[children[:, column]] - shift) if layer.is_sum else given
            scatter_add(found, layer, column, part, xp)
    return found


def scatter_add(target: Any, layer: CircuitLayer, column: int, added: Any, xp: Any) -> None:
    """Add a row for each node of a layer to the row of its child in a column; several nodes may have the same child."""
    if xp is not np:
        xp.add.at(target, layer.children[:, column], added)
        return
    order, starts, children = layer.scatters[column]
    target[children] += added if order is None else np.add.reduceat(added[order], starts, axis=0)


def walk_down(
    circuit: CircuitGraph, layers: Reversible[CircuitLayer], values: Any, columns: int, pick: Picker, xp: Any
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


def log_leaves(circuit: CircuitGraph, cases: Cases) -> Array:
    """Return the logarithms of all leaves in some cases, shape (leaves, cases)."""
    found = np.zeros((circuit.n_leaves, cases.count))
    for v, column in cases.columns.items():
        own = np.flatnonzero(circuit.indicators[0] == v)
        states = circuit.indicators[1, own][:, np.newaxis]
        with np.errstate(divide="ignore"):
            if column.ndim == 1:
                found[own] = np.where((column == states) | (column == -1), 0.0, -np.inf)
            else:
                found[own] = np.log(column.T[states[:, 0]])
    with np.errstate(divide="ignore"):
        found[circuit.n_indicators :] = np.log(circuit.values)[:, np.newaxis]
    return found


def state_flows(circuit: CircuitGraph, v: int, flow: Array) -> Array:
    """Return the flows of a variable's states, shape (cases, states), from the flows of all indicators in each case."""
    found = np.zeros((flow.shape[1], circuit.variables.dims[v]))
    own = np.flatnonzero(circuit.indicators[0] == v)
    found[:, circuit.indicators[1, own]] = flow[own].T
    return found


def states_of(circuit: CircuitGraph, active: Array) -> Array:
    """Return the assignments whose indicators were walked to, shape (columns, variables); -1 where none was."""
    leaves, columns = np.nonzero(active)
    states = np.full((active.shape[1], len(circuit.variables.dims)), -1, np.int64)
    states[columns, circuit.indicators[0, leaves]] = circuit.indicators[1, leaves]
    return states


def best(logs: Any) -> Any:
    """Pick the greatest child, the first one among equals."""
    return logs.argmax(axis=1)


def drawn_by(generator: Any, xp: Any) -> Picker:
    """Return a function that picks a child in proportion to its value, by the maximum of log plus Gumbel noise."""

    def pick(logs: Any) -> Any:
        return (logs + xp.asarray(generator.gumbel(size=logs.shape))).argmax(axis=1)

    return pick
