"""Proof that a circuit is decomposable, smooth and deterministic, and that it has a model's assignments and values.

A circuit with these three properties has exactly the assignments of a model under two conditions: no assignment of the
circuit violates a function, and the circuit has as many assignments as the model (Darwiche and Marquis, JAIR 2002).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, combinations
from operator import mul
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import SAME_SHARE
from ..api.solve import solve
from ..errors import BudgetError, ModelError, checks_keywords, counted, logarithm, public
from ..gates.circuit import CircuitGraph, CircuitPolicy
from ..models.bayesian_networks import NUMBERED_ROWS_RATIO
from ..models.cases import Cases
from ..models.function import Function
from ..models.model import Model, checked_model
from .circuit_model import Circuit

# Number of assignments that a check draws from a circuit and evaluates on the model together.
_CHECKED_DRAWS: Final = 16

Array = NDArray[Any]
Box = tuple[Array, ...]
"""For each variable of a scope, a mask of the states that the box contains."""


@dataclass(frozen=True)
class CircuitReport:
    """The result of a check.

    Parameters
    ----------
    faults : tuple of str
        A sentence for each fault; empty if the circuit passed the check.
    nodes, edges : int
    log10 : float
        Of the sum over all assignments.
    count : int
        Assignments.
    compared : bool
        Whether the assignments and the sum were compared with a model.
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
        """Return the result in plain types, with null for the logarithm of 0."""
        log10 = self.log10 if math.isfinite(self.log10) else None
        return {**asdict(self), "status": "ok" if self.ok else "wrong", "log10": log10}

    def lines(self) -> list[str]:
        """Return the result as printable lines."""
        if self.faults:
            return list(self.faults)
        sizes = (self.nodes, "node"), (self.edges, "edge"), (self.count, "assignment")
        shown = f"{', '.join(counted(*size) for size in sizes)}, log10 {logarithm(self.log10)}"
        has = "; its assignments and its sum equal the model's" if self.compared else ""
        return [f"smooth, deterministic and decomposable{has}", shown]


@public
@checks_keywords
def check_circuit(found: Circuit, model: Model | None = None) -> CircuitReport:
    """Prove that a circuit is decomposable, smooth and deterministic, and that it has the assignments of a model.

    Parameters
    ----------
    found : Circuit
    model : Model, optional
        The model to compare with; its own evidence holds.

    Examples
    --------
    >>> import bucketflow
    >>> bucketflow.check_circuit(bucketflow.circuit("diagnosis")).ok
    True
    """
    graph = found.graph
    faults = [*_scope_faults(graph), *_determinism_faults(graph)]
    log10, count = float(found.log10()[0]), found.count()
    if model is not None and not faults:
        faults += _model_faults(found, checked_model(model), log10, count)
    return CircuitReport(tuple(faults), graph.nodes, graph.edges, log10, count, model is not None)


@dataclass
class _Scopes:
    """Numbered sets of variables; many nodes of a circuit have the same set."""

    known: dict[int, int] = field(default_factory=lambda: {0: 0})
    masks: list[int] = field(default_factory=lambda: [0])

    def number(self, mask: int) -> int:
        """Return the number of a set."""
        if mask not in self.known:
            self.known[mask] = len(self.masks)
            self.masks.append(mask)
        return self.known[mask]


def _scope_faults(graph: CircuitGraph) -> list[str]:
    """Find products of nodes that share a variable, and sums of nodes over different variables.

    Parameters
    ----------
    graph : CircuitGraph

    Returns
    -------
    list of str
        A sentence for each kind of fault: a product that is not decomposable, or a sum that is not smooth.
    """
    scopes = _Scopes()
    own = np.zeros(graph.nodes, np.int64)
    own[: graph.n_indicators] = [scopes.number(1 << v) for v in graph.indicators[0].tolist()]
    nothing = np.zeros(graph.nodes, np.bool_)  # sums of nothing: 0 whatever the variables
    faults: list[str] = []
    for layer in graph.layers:
        kinds, place = _kinds_of(own[layer.children], len(scopes.masks))
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


def _kinds_of(rows: Array, most: int) -> tuple[Array, Array]:
    """Return the distinct rows, and for each given row the index of its distinct row; numbers are below ``most``.

    The rows are compared column by column, with a table of the combinations so far: rows are many, but few differ.
    """
    place, kinds = np.zeros(len(rows), np.int64), np.zeros((min(len(rows), 1), 0), np.int64)
    for column in rows.T:
        codes = place * most + column
        if len(kinds) * most <= NUMBERED_ROWS_RATIO * len(rows):
            there = np.zeros(len(kinds) * most, np.bool_)
            there[codes] = True
            known = np.flatnonzero(there)
            numbers = np.cumsum(there) - 1
            place = numbers[codes]
        else:
            known, place = np.unique(codes, return_inverse=True)
        kinds = np.concatenate([kinds[known // most], (known % most)[:, np.newaxis]], axis=1)
    return kinds, place


def _determinism_faults(graph: CircuitGraph) -> list[str]:
    """Find sums with two children that may be true together, because no variable distinguishes them."""
    gates = graph.gates
    left = np.flatnonzero(gates.is_sum & (gates.arities > 1) & (graph.decisions < 0))
    owners, pairs = [], [np.zeros((0, 2), np.int64)]
    for k in left.tolist():
        pairs.append(np.array(list(combinations(gates.children[gates.starts[k] : gates.starts[k + 1]].tolist(), 2))))
        owners += [k + graph.n_leaves] * len(pairs[-1])
    wrong = np.array(owners, np.int64)[~_exclude_each_other(graph, np.concatenate(pairs))]
    what = "is a sum of nodes that may be true together: not deterministic"
    return [f"node {node} {what}" for node in np.unique(wrong).tolist()]


def _exclude_each_other(graph: CircuitGraph, pairs: Array) -> Array:
    """Return which pairs of nodes, shape (pairs, 2), imply different states of some variable.

    Each state of each variable is a case, in which only this state of the variable is allowed. Two nodes exclude each
    other if, for some variable, no case leaves both possible. The cases of some variables are evaluated together.
    """
    found = np.zeros(len(pairs), np.bool_)
    order = np.lexsort(graph.indicators[::-1])
    variables = graph.indicators[0, order]
    cuts = np.flatnonzero(np.append(True, variables[1:] != variables[:-1])) if len(order) else order
    ends = np.append(cuts[1:], len(order))
    most, at = 8 * max(1, CircuitPolicy.current().batch_bytes // graph.nodes), 0
    while at < len(cuts) and not found.all():
        last = max(at + 1, int(np.searchsorted(ends, cuts[at] + most, "right")))
        own = order[cuts[at] : ends[last - 1]]
        allowed = np.ones((graph.n_leaves, len(own)), np.bool_)
        for v, first, end in zip(variables[cuts[at:last]], cuts[at:last], ends[at:last], strict=True):
            allowed[np.flatnonzero(graph.indicators[0] == v), first - cuts[at] : end - cuts[at]] = False
        allowed[own, np.arange(len(own))] = True
        bits = _possible_bits(graph, allowed)
        waiting = np.flatnonzero(~found)
        both = np.unpackbits(bits[pairs[waiting, 0]] & bits[pairs[waiting, 1]], axis=1, count=len(own))
        found[waiting] = ~np.logical_or.reduceat(both, cuts[at:last] - cuts[at], axis=1).all(axis=1)
        at = last
    return found


def _possible_bits(graph: CircuitGraph, allowed: Array) -> Array:
    """Return for each node the cases in which it is possible, as bits, given the cases of the leaves; shape (nodes,
    bytes).
    """
    bits = np.empty((graph.nodes, -(-allowed.shape[1] // 8)), np.uint8)
    bits[: graph.n_leaves] = np.packbits(allowed, axis=1)
    for layer in graph.layers:
        combine = np.bitwise_or if layer.is_sum else np.bitwise_and
        bits[layer.nodes] = combine.reduce(bits[layer.children], axis=1)
    return bits


def _model_faults(found: Circuit, model: Model, log10: float, count: int) -> list[str]:
    """Compare a circuit with a model, after the check of its structure found no fault."""
    known = found.graph.variables
    if model.names != found.model.own_names or model.dims != known.dims[: len(model.dims)]:
        raise ModelError("the circuit and the model have different variables")
    if model.kind == "cost":
        raise ModelError("the model has costs, and circuits have none")
    faults = [*_allowed_faults(found, model), *_value_faults(found, model)]
    given = model.named(model.evidence)
    whole = Model("markov", model.names, model.dims, model.states, tuple(map(_possible, model.functions)))
    expected = solve(whole, "count", evidence=given).value
    if count != expected:
        faults.append(f"the circuit has {count:,} assignments, the model {expected:,}")
    plain = Model("markov", model.names, model.dims, model.states, model.functions)
    answer = solve(plain, "partition", evidence=given).log10
    if not _is_close(log10, total := -math.inf if answer is None else answer):
        faults.append(f"log10 of the circuit's sum is {logarithm(log10)}, of the model's {logarithm(total)}")
    return faults


def _is_close(a: float, b: float) -> bool:
    return a == b or (math.isfinite(a) and math.isfinite(b) and abs(a - b) <= SAME_SHARE * max(1.0, abs(b)))


def _possible(function: Function) -> Function:
    """Return a function that is 1 where it was above 0."""
    default = float(function.default > 0) if function.rows is not None else function.default
    return function.changed(values=(function.values > 0).astype(np.float64), default=default, child=None)


def _allowed_faults(found: Circuit, model: Model) -> list[str]:
    """Look for an assignment of the circuit that a function forbids."""
    faults: list[str] = []
    waiting: list[tuple[int, list[Box]]] = []
    most = 8 * max(1, CircuitPolicy.current().batch_bytes // found.graph.nodes)
    for f, function in enumerate(model.functions):
        zeros = zero_boxes(function, model.dims) if function.scope else []
        for start in range(0, len(zeros), most):
            part = zeros[start : start + most]
            if sum(len(own) for _, own in waiting) + len(part) > most:
                faults += _violations(found.graph, model, waiting, most)
                waiting = []
            waiting.append((f, part))
    return faults + _violations(found.graph, model, waiting, most)


def zero_boxes(function: Function, dims: Sequence[int]) -> list[Box]:
    """Return disjoint boxes that cover the zeros of a function; a box has a set of states for each variable.

    States of a variable with the same zeros over the following variables form one set. The variables are taken in both
    directions, and the direction with fewer boxes is used.

    Raises
    ------
    BudgetError
        If there are too many boxes.
    """
    sizes = tuple([dims[v] for v in function.scope])
    if function.rows is None:
        rows, zeros_listed = np.argwhere(function.values == 0), True
    else:
        zeros_listed = function.default != 0
        rows = function.rows[(function.values == 0) == zeros_listed]
        rows = rows[np.lexsort(rows.T[::-1])]
    most = CircuitPolicy.current().box_entries // max(len(sizes), 1)
    boxes = _boxes(rows, sizes, zeros_listed, most)
    if boxes is not None and len(boxes) < 2:
        return boxes
    turned = rows[np.lexsort(rows.T), ::-1]
    others = _boxes(turned, sizes[::-1], zeros_listed, most if boxes is None else len(boxes) - 1)
    if others is not None:
        return [box[::-1] for box in others]
    if boxes is None:
        raise BudgetError(
            f"{len(rows):,} assignments that a function of {len(sizes):,} variables lists leave zeros in more than "
            f"{most:,} boxes, which are not looked for in a circuit"
        )
    return boxes


def _boxes(rows: Array, sizes: tuple[int, ...], inside: bool, most: int) -> list[Box] | None:
    """Cover the listed rows, or the unlisted rows, by disjoint boxes: products of sets of states.

    Parameters
    ----------
    rows : int array, shape (rows, variables)
        Distinct rows of states, sorted.
    sizes : tuple of int
        Number of states of each variable.
    inside : bool
        Whether the boxes cover the listed rows; otherwise they cover all unlisted rows.
    most : int
        Most boxes.

    Returns
    -------
    list of tuple of bool arrays, or None
        For each box the states of each variable that it contains; None above the limit.
    """
    every = [np.ones(size, np.bool_) for size in sizes]
    cells = [*accumulate(reversed(sizes), mul, initial=1)][::-1]
    found: list[Box] = []
    waiting: list[tuple[Box, Array]] = [((), rows)]
    while waiting:
        before, rows = waiting.pop()
        first = len(before)
        if len(rows) == (cells[first] if inside else 0):
            found.append((*before, *every[first:]))
        elif first < len(sizes) and len(rows):
            differ = (rows != rows[0]).any(axis=0)
            if differ[0]:
                parts = _split(rows, sizes[first], inside)
                waiting += [((*before, states), rest) for states, rest in reversed(parts)]
                continue
            # clauses may have thousands of variables in one state
            equal = int(differ.argmax()) if differ.any() else len(sizes) - first
            single = [np.arange(sizes[first + k]) == rows[0, k] for k in range(equal)]
            if not inside:
                other = [k for k in range(equal) if sizes[first + k] > 1]
                found += [(*before, *single[:k], ~single[k], *every[first + k + 1 :]) for k in other]
            waiting.append(((*before, *single), rows[:, equal:]))
        if len(found) > most:
            return None
    return found


def _split(rows: Array, size: int, inside: bool) -> list[tuple[Array, Array]]:
    """Return sets of states of the first variable, each with the rows that follow all states of the set."""
    groups: dict[bytes | None, tuple[Array, Array]] = {}
    for own in np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1):
        rest = np.ascontiguousarray(own[:, 1:])
        groups.setdefault(rest.tobytes(), (np.zeros(size, np.bool_), rest))[0][own[0, 0]] = True
    if not inside and (unlisted := ~np.logical_or.reduce([states for states, _ in groups.values()])).any():
        groups[None] = unlisted, rows[:0, 1:]
    return [*groups.values()]


def _violations(graph: CircuitGraph, model: Model, zeros: list[tuple[int, list[Box]]], most: int) -> list[str]:
    """Return which zeros of functions a circuit allows, at most one per function.

    Each box of zeros is a case. If the root is possible in a case, the circuit allows an assignment of this box.
    """
    variables, states = graph.indicators
    boxes = [(f, box) for f, own in zeros for box in own]
    allowed = np.ones((graph.n_leaves, len(boxes)), np.bool_)
    start = 0
    for f, own in zeros:
        for k, v in enumerate(model.functions[f].scope):
            leaves = np.flatnonzero(variables == v)
            allowed[leaves, start : start + len(own)] &= np.array([box[k] for box in own])[:, states[leaves]].T
        start += len(own)
    bits = _possible_bits(graph, allowed)
    wrong = [boxes[k] for k in np.flatnonzero(np.unpackbits(bits[graph.root])[: len(boxes)]).tolist()]
    faults = []
    for f, box in dict(reversed(wrong)).items():
        scope = model.functions[f].scope
        chosen = zip(scope, _allowed_in(graph, scope, box), strict=True)
        named = {model.names[v]: model.label(v, state) for v, state in chosen}
        faults.append(f"the circuit allows {named}, which function {f} forbids")
    return faults[::-1]


def _allowed_in(graph: CircuitGraph, scope: tuple[int, ...], box: Box) -> list[int]:
    """Return an assignment of a box that the circuit allows; there is at least one."""
    variables, states = graph.indicators
    found = list[int]()
    for k, own in enumerate(box):
        choices = np.flatnonzero(own)
        allowed = np.ones((graph.n_leaves, len(choices)), np.bool_)
        for j, v in enumerate(scope):
            leaves = np.flatnonzero(variables == v)
            given = choices if j == k else found[j] if j < k else None
            within = box[j][states[leaves]][:, np.newaxis] if given is None else states[leaves, np.newaxis] == given
            allowed[leaves] &= within
        bits = np.unpackbits(_possible_bits(graph, allowed)[graph.root])[: len(choices)]
        found.append(int(choices[np.argmax(bits)]))
    return found


def _value_faults(found: Circuit, model: Model) -> list[str]:
    """Draw assignments from the circuit, and compare their values with their values in the model."""
    if found.log10()[0] == -math.inf:
        return []
    policy = CircuitPolicy.current()
    # in a large circuit, each draw takes a pass of its own; two draws also find faults that spare the first draw
    fit = max(policy.batch_bytes // (8 * found.graph.nodes), 2)
    draws = found.sample(min(fit, _CHECKED_DRAWS))
    logs = found.log10(Cases(len(draws), dict(enumerate(draws.T))))
    for states, log10 in zip(draws.tolist(), logs.tolist(), strict=True):
        if not _is_close(log10, expected := model.log10_value(states)):
            both = f"{logarithm(log10)} in the circuit, {logarithm(expected)} in the model"
            return [f"log10 of {model.shown(states)} is {both}"]
    return []
