"""Proving what a circuit is: decomposable, smooth, deterministic; and that it has a model's assignments and values.

A circuit that is all three, of which no assignment violates a function, and that has as many as the model, has just the
model's (Darwiche and Marquis, JAIR 2002).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.solve import solve
from ..errors import ModelError, checks_keywords
from ..models.function import Function
from ..models.model import Model, checked_model
from .circuit import CircuitGraph
from .circuit_model import Circuit
from .circuit_policy import CircuitPolicy

Array = NDArray[Any]
# Of a logarithm's size and of one rounding a variable: sums of both are computed in different orders.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class CircuitReport:
    """What a check found.

    Parameters
    ----------
    faults : tuple of str
        Sentences; none if the circuit is what it should be.
    nodes, edges : int
    log10 : float
        Of the sum over all assignments.
    count : int
        Assignments.
    compared : bool
        Whether they were compared with a model's.
    """

    faults: tuple[str, ...]
    nodes: int
    edges: int
    log10: float
    count: int
    compared: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Return what was found in plain types; null for the logarithm of 0."""
        log10 = self.log10 if math.isfinite(self.log10) else None
        return {**asdict(self), "status": "ok" if self.ok else "wrong", "log10": log10}

    def lines(self) -> list[str]:
        """Return what was found as lines for a person."""
        if self.faults:
            return list(self.faults)
        shown = f"{self.nodes:,} nodes, {self.edges:,} edges, {self.count:,} assignments, log10 {self.log10:.12g}"
        has = "; it has the assignments and the sum of the model" if self.compared else ""
        return [f"smooth, deterministic and decomposable{has}", shown]


@checks_keywords
def check_circuit(found: Circuit, model: Model | None = None) -> CircuitReport:
    """Prove that a circuit is decomposable, smooth and deterministic, and that it has the assignments of a model.

    Parameters
    ----------
    found : Circuit
    model : Model, optional
        What the circuit is to be of: its own evidence holds.
    """
    graph = found.graph
    faults = [*_scope_faults(graph), *_determinism_faults(graph)]
    log10, count = float(found.log10()[0]), found.count()
    if model is not None and not faults:
        faults += _model_faults(found, checked_model(model), log10, count)
    return CircuitReport(tuple(faults), graph.nodes, graph.edges, log10, count, model is not None)


@dataclass
class _Scopes:
    """Sets of variables, each with a number; nodes of a bucket share one."""

    known: dict[int, int] = field(default_factory=lambda: {0: 0})
    masks: list[int] = field(default_factory=lambda: [0])

    def number(self, mask: int) -> int:
        """Return the number of a set."""
        if mask not in self.known:
            self.known[mask] = len(self.masks)
            self.masks.append(mask)
        return self.known[mask]


def _scope_faults(graph: CircuitGraph) -> list[str]:
    """Look for products of nodes that share a variable, and sums of nodes that differ in one."""
    scopes = _Scopes()
    own = np.zeros(graph.nodes, np.int64)
    own[: graph.n_indicators] = [scopes.number(1 << v) for v in graph.indicators[0].tolist()]
    nothing = np.zeros(graph.nodes, np.bool_)  # sums of nothing: 0 whatever the variables
    faults: list[str] = []
    for layer in graph.layers:
        kinds, place = np.unique(own[layer.children], axis=0, return_inverse=True)
        made = []
        for k, kind in enumerate(kinds.tolist()):
            masks = [scopes.masks[scope] for scope in kind]
            union = 0
            for mask in masks:
                union |= mask
            wrong = sum(mask.bit_count() for mask in masks) > union.bit_count()
            if wrong if not layer.is_sum else any(mask != union for mask in masks):
                node = int(layer.nodes[np.flatnonzero(place.reshape(-1) == k)[0]])
                what = "sum of nodes of different variables: not smooth" if layer.is_sum else ""
                faults.append(f"node {node} is a {what or 'product of nodes that share a variable: not decomposable'}")
            made.append(scopes.number(union))
        own[layer.nodes] = np.array(made, np.int64)[place.reshape(-1)] if len(kinds) else 0
        nothing[layer.nodes] = layer.is_sum and not layer.children.shape[1]
    dims = len(graph.variables.dims)
    if not nothing[graph.root] and not faults and scopes.masks[own[graph.root]].bit_count() < dims:
        faults.append(f"the root has {scopes.masks[own[graph.root]].bit_count()} of {dims} variables: not smooth")
    return faults


def _determinism_faults(graph: CircuitGraph) -> list[str]:
    """Look for sums of which two children may hold at once: where no variable tells them apart."""
    implied = _Implied(graph)
    faults = []
    for layer in graph.layers:
        if not layer.is_sum or layer.children.shape[1] < 2:
            continue
        for node in layer.nodes[~implied.told_apart(layer.children)].tolist():
            k = node - graph.n_leaves
            children = graph.gates.children[graph.gates.starts[k] : graph.gates.starts[k + 1]].tolist()
            if not implied.exclude_each_other(children):
                faults.append(f"node {node} is a sum of nodes that may hold together: not deterministic")
    return faults


@dataclass(eq=False)
class _Implied:
    """What nodes imply about variables."""

    graph: CircuitGraph

    def told_apart(self, children: Array) -> Array:
        """Return which rows of nodes differ by the state of one variable that is decided at once in all of them."""
        variable, state = self.graph.decided
        told = np.zeros(len(children), np.bool_)
        for place in range(variable.shape[0]):
            own, states = variable[place][children], np.sort(state[place][children], axis=1)
            same = (own == own[:, :1]).all(axis=1) & (own[:, 0] >= 0)
            told |= same & (states[:, 1:] != states[:, :-1]).all(axis=1)
        return told

    def exclude_each_other(self, nodes: list[int]) -> bool:
        """Whether each two of some nodes imply different states of some variable."""
        states = [self._states[node] for node in nodes]
        return all(
            any(not (a[v] & b[v]) for v in a.keys() & b.keys()) for a, b in combinations(states, 2)
        )  # a state is a bit

    @cached_property
    def _states(self) -> list[dict[int, int]]:
        """For each node the variables of which it implies that they are in some states, as bits."""
        graph, gates = self.graph, self.graph.gates
        found: list[dict[int, int]] = [{v: 1 << state} for v, state in graph.indicators.T.tolist()]
        found += [{}] * len(graph.values)
        starts = gates.starts.tolist()
        for k, is_sum in enumerate(gates.is_sum.tolist()):
            parts = [found[child] for child in gates.children[starts[k] : starts[k + 1]].tolist()]
            own: dict[int, int] = {}
            if not is_sum:
                for part in parts:
                    own.update({v: own.get(v, -1) & bits for v, bits in part.items()})
            elif parts:
                common = set.intersection(*[{*part} for part in parts])
                own = {v: int(np.bitwise_or.reduce([part[v] for part in parts])) for v in common}
            found.append(own)
        return found


def _model_faults(found: Circuit, model: Model, log10: float, count: int) -> list[str]:
    """Compare a circuit, which is known to be one, with a model."""
    known = found.graph.variables
    if model.names != found.model.own_names or model.dims != known.dims[: len(model.dims)]:
        raise ModelError("the circuit has other variables than the model")
    if model.kind == "cost":
        raise ModelError("the model has costs, and circuits have none")
    faults = [*_allowed_faults(found, model), *_value_faults(found, model)]
    given = {model.names[v]: state for v, state in model.evidence.items()}
    whole = Model("markov", model.names, model.dims, model.states, tuple(map(_possible, model.functions)))
    expected = solve(whole, "count", evidence=given).value
    if count != expected:
        faults.append(f"the circuit has {count:,} assignments, the model {expected:,}")
    plain = Model("markov", model.names, model.dims, model.states, model.functions)
    answer = solve(plain, "partition", evidence=given).log10
    if not _is_close(log10, total := -math.inf if answer is None else answer):
        faults.append(f"log10 of the circuit's sum is {log10:.12g}, of the model's {total:.12g}")
    return faults


def _is_close(a: float, b: float) -> bool:
    return a == b or (math.isfinite(a) and math.isfinite(b) and abs(a - b) <= _TOLERANCE * max(1.0, abs(b)))


def _possible(function: Function) -> Function:
    """Return a function that is 1 where it was above 0."""
    default = float(function.default > 0) if function.rows is not None else function.default
    return function.changed(values=(function.values > 0).astype(np.float64), default=default, child=None)


def _allowed_faults(found: Circuit, model: Model) -> list[str]:
    """Look for an assignment of the circuit that a function forbids."""
    faults: list[str] = []
    waiting: list[tuple[int, Array]] = []
    most = 8 * max(1, CircuitPolicy.current().batch_bytes // found.graph.nodes)
    for f, function in enumerate(model.functions):
        zeros = _zeros(function, model) if function.scope else np.zeros((0, 0), np.int64)
        for start in range(0, len(zeros), most):
            part = zeros[start : start + most]
            if sum(len(own) for _, own in waiting) + len(part) > most:
                faults += _violations(found.graph, model, waiting)
                waiting = []
            waiting.append((f, part))
    return faults + _violations(found.graph, model, waiting)


def _zeros(function: Function, model: Model) -> Array:
    """Return the states at which a function is 0, shape (zeros, variables)."""
    if function.rows is not None and function.default != 0:
        rows: Array = function.rows[function.values == 0]
        return rows
    return np.argwhere(function.dense(model.dims) == 0)


def _violations(graph: CircuitGraph, model: Model, zeros: list[tuple[int, Array]]) -> list[str]:
    """Return which of some zeros of functions a circuit allows: each is a case, of which a node's bit says whether it
    is possible.
    """
    count, start = sum(len(own) for _, own in zeros), 0
    variables, states = graph.indicators
    allowed = np.ones((graph.n_leaves, count), np.bool_)
    for f, own in zeros:
        for v, column in zip(model.functions[f].scope, own.T, strict=True):
            leaves = np.flatnonzero(variables == v)
            allowed[leaves, start : start + len(own)] &= states[leaves, np.newaxis] == column
        start += len(own)
    bits = np.empty((graph.nodes, -(-count // 8)), np.uint8)
    bits[: graph.n_leaves] = np.packbits(allowed, axis=1)
    for layer in graph.layers:
        combine = np.bitwise_or if layer.is_sum else np.bitwise_and
        bits[layer.nodes] = combine.reduce(bits[layer.children], axis=1)
    owners = np.repeat(np.arange(len(zeros)), [len(own) for _, own in zeros])
    wrong = np.flatnonzero(np.unpackbits(bits[graph.root])[:count])
    faults = []
    for k in np.unique(owners[wrong], return_index=True)[1].tolist():
        f, own = zeros[owners[wrong[k]]]
        row = own[wrong[k] - np.searchsorted(owners, owners[wrong[k]])]
        scope = model.functions[f].scope
        named = {model.names[v]: model.label(v, int(state)) for v, state in zip(scope, row, strict=True)}
        faults.append(f"the circuit allows {named}, which function {f} forbids")
    return faults


def _value_faults(found: Circuit, model: Model) -> list[str]:
    """Draw assignments from the circuit, and compare what they are worth with the model."""
    if found.log10()[0] == -math.inf:
        return []
    draws = found.sample(CircuitPolicy.current().checked_draws)
    logs = found.log10(dict(zip(model.names, draws.T, strict=True)))
    for states, log10 in zip(draws.tolist(), logs.tolist(), strict=True):
        if not _is_close(log10, expected := model.log10_value(states)):
            return [f"log10 of {model.shown(states)} is {log10:.12g} in the circuit, {expected:.12g} in the model"]
    return []
