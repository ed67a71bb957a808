"""Preprocessing: the network that remains to eliminate for one query under its evidence.

It works on scopes and domains: condition on the evidence, drop the barren variables of Bayesian networks, remove states
without support, omit functions that exclude nothing from a count, and group each function with a function whose scope
contains it. The tables of the groups are built later, in the layout and dtype of the plan.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.keys import Keys
from ...tasks.steps.caches import REMEMBERED
from ...tasks.steps.light_dataclass import dataclass
from ..errors import NOISE_DIGITS
from ..models.model import Function, Model
from ..models.query import Query as Query
from .consistency import NOTHING, Pruned, excluding, fixpoint
from .semijoins import Possible


@dataclass(frozen=True)
class Leaf:
    """One table to be: the combination of some of the model's functions.

    ``scope`` holds local variables, ascending; ``functions`` the indices of the model's functions.
    """

    scope: tuple[int, ...]
    functions: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StatesLeft:
    """The states that are left of all variables of a model, as arrays.

    Parameters
    ----------
    states : ndarray of intp
        Remaining states of all variables, one variable after another.
    starts : ndarray of intp
        Start of each variable's states.
    counts : ndarray of intp
        How many each has.
    variables : ndarray of intp
        Model index of each local variable.
    local : ndarray of intp
        Local index of each variable, -1 for removed variables.
    """

    states: NDArray[np.intp]
    starts: NDArray[np.intp]
    counts: NDArray[np.intp]
    variables: NDArray[np.intp]
    local: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Network:
    """The part of a model that a query still has to eliminate.

    Parameters
    ----------
    model : Model
    query : {"optimum", "partition", "count"}
    domains : tuple of ndarray
        For each variable of the model the states that are still possible, ascending; one state = fixed.
    variables : tuple of int
        Model index of each local variable (those with several states and at least one function).
    leaves : tuple of Leaf
        Scopes are local; no scope contains another.
    constants : tuple of int
        Functions whose variables are all fixed.
    feasible : bool
        False when preprocessing already found that no assignment is possible.
    barren : frozenset of int
        Variables of the model that were summed out to 1.
    fallen : Pruned
        What was found to be part of no assignment; entries that fell are not in the model any more.
    isolated : frozenset of int
        Variables of the model that were summed out because they share no function with another variable.
    summed : float
        Natural logarithm of the product of their sums.
    """

    model: Model
    query: Query
    domains: tuple[NDArray[np.intp], ...]
    variables: tuple[int, ...]
    leaves: tuple[Leaf, ...]
    constants: tuple[int, ...]
    feasible: bool
    barren: frozenset[int] = frozenset()
    pruned: Pruned = NOTHING
    isolated: frozenset[int] = frozenset()
    summed: float = 0.0

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Number of remaining states of each local variable."""
        return tuple(len(self.domains[v]) for v in self.variables)

    @cached_property
    def local(self) -> dict[int, int]:
        """Local index of each remaining variable of the model."""
        return {v: i for i, v in enumerate(self.variables)}

    @cached_property
    def left(self) -> StatesLeft:
        """The states that are left, as arrays."""
        counts = np.array([len(domain) for domain in self.domains], np.intp)
        variables = np.array(self.variables, np.intp)
        local = np.full(len(counts), -1, np.intp)
        local[variables] = np.arange(len(variables))
        states = np.concatenate([np.zeros(0, np.intp), *self.domains])
        return StatesLeft(states, counts.cumsum() - counts, counts, variables, local)

    @cached_property
    def whole(self) -> frozenset[int]:
        """Variables of the model that are left with all their states."""
        dims = self.model.dims
        return frozenset([v for v in self.variables if len(self.domains[v]) == dims[v]])

    @cached_property
    def places(self) -> tuple[NDArray[np.intp], ...]:
        """For each variable of the model, the index of each state among the remaining states; -1 for removed states."""
        places = []
        for dim, domain in zip(self.model.dims, self.domains, strict=True):
            place = np.full(dim, -1, dtype=np.intp)
            place[domain] = np.arange(len(domain))
            places.append(place)
        return tuple(places)

    @cached_property
    def fixed(self) -> float | int | None:
        """The functions whose variables are all fixed or summed out, combined; None if that is impossible already.

        A cost above the sum of the functions' least costs, or a natural logarithm.
        """
        if not self.feasible:
            return None
        model, domains = self.model, self.domains
        values = [model.functions[f].at([int(domains[v][0]) for v in model.functions[f].scope]) for f in self.constants]
        if model.kind == "cost":
            above = [int(v) - model.lowest[f] for f, v in zip(self.constants, values, strict=True)]
            forbidden = any(v >= model.limits[f] for f, v in zip(self.constants, values, strict=True))
            return None if forbidden or _reaches_top(model, sum(above)) else sum(above)
        return None if 0.0 in values else math.fsum([self.summed, *[math.log(v) for v in values]])

    def uniform(self, outside: Sequence[int]) -> dict[int, NDArray[np.float64]]:
        """Return for some variables of the model that are not left: every state that is possible equally likely."""
        sizes = np.array([self.model.dims[v] for v in outside], np.int64)
        flat = np.repeat(1.0 / sizes, sizes)
        tables, start = dict[int, NDArray[np.float64]](), 0
        for v, size in zip(outside, sizes.tolist(), strict=True):
            tables[v] = table = flat[start : start + size]
            if len(self.domains[v]) < size:
                table[:] = 0.0
                table[self.domains[v]] = 1.0 / len(self.domains[v])
            start += size
        return tables

    @cached_property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Scopes of the leaves, in local variables."""
        return tuple(leaf.scope for leaf in self.leaves)

    @cached_property
    def cells(self) -> int:
        """Cells of the tables of all leaves, dense."""
        return sum(prod([self.dims[v] for v in scope]) for scope in self.scopes)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Variables of the model with several states and no function: any state will do."""
        used = {*self.variables, *self.barren, *self.isolated}
        return tuple(v for v, d in enumerate(self.domains) if len(d) > 1 and v not in used)

    @cached_property
    def free_states(self) -> int:
        """Number of joint states of the free variables."""
        return prod(len(self.domains[v]) for v in self.free)


def reduce_model(
    model: Model, query: Query, evidence: Mapping[int, int], asked: Collection[int] = frozenset()
) -> Network:
    """Preprocess ``model`` for ``query`` given evidence (variable index → state index).

    The variables in ``asked`` are never barren: their marginals are wanted.
    """
    functions, barren = _relevant(model, query, {*evidence, *asked})
    left = _left(model, tuple(functions), evidence)
    domains, pruned = left.domains, left.pruned
    if not left.feasible:
        return Network(model, query, domains, (), (), (), False, pruned=pruned)
    if query == "count" and len(needed := excluding(model, functions, left.smaller, domains)) < len(functions):
        left = _grouped(model, needed, left)
    smaller = {f: possible.made(model.kind) for f, possible in left.smaller.items()}
    model = model.with_functions(smaller) if smaller else model
    return Network(model, query, domains, left.variables, left.leaves, left.constants, True, barren, pruned)


@dataclass(frozen=True, eq=False)
class _Left:
    """The remaining network of some functions under evidence: see :class:`Network`.

    It depends only on which entries are forbidden, so that other values are read again for each question.
    """

    feasible: bool
    domains: tuple[NDArray[np.intp], ...]
    smaller: Mapping[int, Possible]
    pruned: Pruned
    variables: tuple[int, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    constants: tuple[int, ...] = ()


# Cached results for small models, because computing them takes as long as propagating or as an easy proof.
_SMALL_BYTES = 1 << 22
_remembered: WeakKeyDictionary[Model, dict[Any, _Left]] = WeakKeyDictionary()


def _left(model: Model, functions: tuple[int, ...], evidence: Mapping[int, int]) -> _Left:
    """Return the remaining network.

    For a small model, the results of the last few findings are cached.
    """
    key = functions, frozenset(evidence.items())
    if (found := _remembered.get(model, {}).get(key)) is not None:
        return found
    found = _reduced(model, functions, evidence)
    if model.nbytes <= _SMALL_BYTES:
        before = _remembered.setdefault(model, {})
        before[key] = found
        for oldest in [*before][:-REMEMBERED]:
            before.pop(oldest, None)
    return found


def _states(model: Model, evidence: Mapping[int, int]) -> list[NDArray[np.intp]]:
    """Return the states of each variable: the observed state, or all of them."""
    return [
        np.array([evidence[v]], dtype=np.intp) if v in evidence else np.arange(d, dtype=np.intp)
        for v, d in enumerate(model.dims)
    ]


def unreduced(model: Model, query: Query, evidence: Mapping[int, int]) -> Network:
    """Return the whole model under evidence as a network, without a search for impossible states."""
    functions = range(len(model.functions))
    left = _grouped(model, functions, _Left(True, tuple(_states(model, evidence)), {}, NOTHING))
    return Network(model, query, left.domains, left.variables, left.leaves, left.constants, True)


def _reduced(model: Model, functions: tuple[int, ...], evidence: Mapping[int, int]) -> _Left:
    domains = _states(model, evidence)
    feasible, smaller, pruned = fixpoint(model, functions, domains)
    if not feasible:
        return _Left(False, tuple(domains), {}, pruned)
    return _grouped(model, functions, _Left(True, tuple(domains), smaller, pruned))


def _grouped(model: Model, functions: Sequence[int], left: _Left) -> _Left:
    """Return the remaining network of some of the functions, with their groups."""
    single = {v for v, domain in enumerate(left.domains) if len(domain) == 1}
    whole = {f: model.functions[f].scope for f in functions}
    scopes = {
        f: scope if single.isdisjoint(scope) else tuple([v for v in scope if v not in single])
        for f, scope in whole.items()
    }
    constants = tuple(f for f in functions if not scopes[f])
    variables = tuple(sorted({v for s in scopes.values() for v in s}))
    local = {v: i for i, v in enumerate(variables)}
    groups = absorb({f: tuple(sorted([local[v] for v in s])) for f, s in scopes.items() if s})
    return replace(left, variables=variables, leaves=groups, constants=constants)


def _relevant(model: Model, query: Query, needed: Collection[int]) -> tuple[list[int], frozenset[int]]:
    """Return the relevant functions, and the barren variables: variables of a Bayesian network that sum to 1.

    A barren variable is neither observed nor asked for, and occurs only in its own conditional distribution, so
    summing it out leaves 1 (Shachter 1986).

    Parameters
    ----------
    model : Model
    query : str
    needed : collection of int
        Variables that are observed or asked for.

    Returns
    -------
    list of int, frozenset of int
        Relevant functions, barren variables.
    """
    keep = set(range(len(model.functions)))
    if model.kind != "bayes" or query != "partition":
        return sorted(keep), frozenset()
    barren: set[int] = set()
    users: dict[int, set[int]] = defaultdict(set)
    for f in keep:
        for v in model.functions[f].scope:
            users[v].add(f)
    queue = deque(v for v in range(len(model.dims)) if len(users[v]) == 1)
    while queue:
        variable = queue.popleft()
        if variable in needed or len(users[variable]) != 1:
            continue
        (f,) = users[variable]
        function = model.functions[f]
        # a distribution whose rows do not sum to 1 is kept, because the answer is for the model as written
        if function.child != variable or not _is_normalised(function, model.dims):
            continue
        keep.discard(f)
        barren.add(variable)
        for v in function.scope:
            users[v].discard(f)
            if len(users[v]) == 1:
                queue.append(v)
    return sorted(keep), frozenset(barren)


def _is_normalised(function: Function, dims: Sequence[int]) -> bool:
    """Whether all rows of a conditional distribution sum to 1.

    A decimal row that is normalised in the file is within a few ulps; a file that rounds its rows is not.
    """
    assert function.child is not None
    child = function.scope.index(function.child)
    if function.rows is None:
        sums = np.asarray(function.values, dtype=np.float64).sum(axis=child)
    else:
        sums = _row_sums(function, child, [dims[v] for v in function.scope])
    return bool(np.all(np.abs(sums - 1.0) <= 10.0**-NOISE_DIGITS))


def _row_sums(function: Function, child: int, shape: Sequence[int]) -> NDArray[np.float64]:
    """Sum a function by rows over one of its variables; states of the others that no row lists have one sum."""
    assert function.rows is not None
    others = np.delete(function.rows, child, axis=1)
    keys = Keys(tuple(range(others.shape[1])), tuple(np.delete(shape, child).tolist())).pack(others.T)
    order = np.lexsort(keys.T[::-1])
    new = np.append(True, (keys[order[1:]] != keys[order[:-1]]).any(axis=1))[: len(order)]
    group = np.cumsum(new) - 1
    listed = np.bincount(group, weights=function.values[order])
    sums = listed + function.default * (shape[child] - np.bincount(group))
    unlisted = len(sums) < prod(shape) // shape[child]
    return np.append(sums, function.default * shape[child]) if unlisted else np.asarray(sums)


def absorb(scopes: Mapping[int, tuple[int, ...]]) -> tuple[Leaf, ...]:
    """Group every function with one whose scope contains its own; the smallest such scope wins.

    Parameters
    ----------
    scopes : mapping
        Function → non-empty scope, ascending.
    """
    members: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for f, scope in scopes.items():
        members[scope].append(f)
    # scopes ascend by length, so the last update of a variable comes from one of its longest scopes
    longest: dict[int, int] = {}
    for scope in sorted(members, key=len):
        longest.update(dict.fromkeys(scope, len(scope)))
    inside = [scope for scope in members if len(scope) < min(map(longest.__getitem__, scope))]
    if inside:
        hosts: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        of_some = frozenset(chain.from_iterable(inside))
        for scope in members:
            for v in of_some.intersection(scope):
                hosts[v].append(scope)
        for scope in sorted(inside, key=len, reverse=True):
            own, near = frozenset(scope), min((hosts[v] for v in scope), key=len)
            containing = [host for host in near if host in members and own < frozenset(host)]
            if containing:
                members[min(containing, key=lambda host: (len(host), host))] += members.pop(scope)
    leaves = [Leaf(scope, tuple(sorted(functions))) for scope, functions in members.items()]
    return tuple(sorted(leaves, key=lambda leaf: leaf.functions[0]))


def components(n_variables: int, scopes: Sequence[Sequence[int]]) -> int:
    """Count the connected components among the variables that some scope contains."""
    parent = list(range(n_variables))

    def find(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    for scope in scopes:
        for v in scope[1:]:
            parent[find(v)] = find(scope[0])
    return len({find(v) for scope in scopes for v in scope})


def with_joints(network: Network, targets: Sequence[tuple[int, ...]]) -> Network:
    """Add a table of ones over every target that no leaf contains, so that some clique does."""
    scopes = defaultdict[int, list[set[int]]](list)
    for scope in network.scopes:
        own = set(scope)
        for v in scope:
            scopes[v].append(own)
    several = [set(t) for t in dict.fromkeys(targets) if len(t) > 1]
    few = [min([scopes[v] for v in t], key=len) for t in several]
    extra = [tuple(sorted(t)) for t, near in zip(several, few, strict=True) if not any(map(t.issubset, near))]
    return replace(network, leaves=(*network.leaves, *(Leaf(t, ()) for t in extra))) if extra else network


# Results of preprocessing: the value of the fixed part, and the states of removed variables.


def fixed_value(network: Network) -> float | int | None:
    """Return :attr:`Network.fixed`."""
    return network.fixed


def _reaches_top(model: Model, above: int) -> bool:
    """Whether a cost above the least costs of all functions brings the total to ``top``."""
    return model.top is not None and sum(model.lowest) + above >= model.top


def local_places(network: Network, states: Sequence[int]) -> tuple[int, ...]:
    """Turn states of the model's variables into indices among the remaining states, by local variable; -1 for a removed
    state.
    """
    return tuple([int(network.places[v][states[v]]) for v in network.variables])


def full_states(network: Network, states: Mapping[int, int]) -> list[int]:
    """Turn states of the variables that were left into states of the model's; those without a function take any."""
    left = network.left
    full = left.states[left.starts]
    variables = left.variables[np.fromiter(states, np.intp, len(states))]
    full[variables] = left.states[left.starts[variables] + np.fromiter(states.values(), np.intp, len(states))]
    found: list[int] = full.tolist()
    return found
