"""Removal of impossible values: states without support, and entries of functions that agree with no entry of another
function.

Exact for every query: a removed value has infinite cost or probability 0 for any values of the other functions.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ..models.function import FEW, Function, highest_costs, occurring_states
from ..models.model import Model
from .preprocessing_policy import PreprocessingPolicy
from .semijoins import Possible, Semijoins, rows_within

Domains = list[NDArray[np.intp]]


@dataclass(frozen=True)
class Pruned:
    """Numbers of states and entries that are part of no assignment, and were removed.

    Parameters
    ----------
    states : int
        States of variables that are not observed.
    entries : int
        Entries of functions, on the states that are left, that the function itself allows.
    """

    states: int = 0
    entries: int = 0


NOTHING = Pruned()


def allowed(model: Model, function: int, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values of a function can be part of a possible assignment."""
    return np.asarray(values < model.limits[function] if model.kind == "cost" else values != 0)


def fixpoint(model: Model, functions: Sequence[int], domains: Domains) -> tuple[bool, dict[int, Possible], Pruned]:
    """Remove states, in place, and entries until nothing falls, or entries cost more than reading all functions does.

    Return whether every variable has a state left, the remaining entries of functions that lost some, and the numbers
    removed.
    """
    whole = sum(map(len, domains))
    supports = _Supports(model, functions, domains)
    feasible = supports.prune(supports.useful())
    semijoins = Semijoins(supports.possible, model.dims, domains)
    while feasible and (losers := semijoins.passed()):
        feasible = supports.prune(losers)
    smaller = {f: supports.possible[f] for f in sorted(semijoins.changed)} if feasible else {}
    return feasible, smaller, Pruned(whole - sum(map(len, domains)), semijoins.pruned)


class _Supports:
    """States that every function supports (arc consistency), with the remaining entries of each function.

    Generalised arc consistency on tables (Mohr & Masini 1988). Functions that exclude nothing are skipped. For
    functions that list a few excluded assignments, only these assignments are stored.
    """

    def __init__(self, model: Model, functions: Sequence[int], domains: Domains):
        self.model, self.domains = model, domains
        self.possible: dict[int, Possible] = {}
        self.excluded: dict[int, NDArray[Any]] = {}
        self.users: dict[int, list[int]] = defaultdict(list)
        for f in _not_all_allowed(model, functions):
            self._enter(f)

    def _enter(self, f: int) -> None:
        model, function = self.model, self.model.functions[f]
        if function.rows is not None and bool(allowed(model, f, np.asarray(function.default))):
            mask = allowed(model, f, function.values)
            if not mask.all():
                self.excluded[f] = function.rows[~mask]
        else:
            known = function.allowed if model.kind != "cost" else allowed(model, f, function.values)
            if known is not None and (function.rows is not None or not known.all()):
                self.possible[f] = Possible.of(function, known)
        if f in self.excluded or f in self.possible:
            for v in function.scope:
                self.users[v].append(f)

    def useful(self) -> Iterable[int]:
        """Yield the functions that may exclude a state now: not those that support every state of whole domains."""
        narrow = {v for v, states in enumerate(self.domains) if len(states) < self.model.dims[v]}
        functions, dims = self.model.functions, self.model.dims
        supporting = _supporting(self.possible) if self.model.kind == "cost" else frozenset()
        for f in self.possible:
            needless = f in supporting if self.model.kind == "cost" else functions[f].supported
            if not needless or not narrow.isdisjoint(functions[f].scope):
                yield f
        for f, rows in self.excluded.items():
            if not _excludes_few(len(rows), [dims[v] for v in functions[f].scope]) or not narrow.isdisjoint(
                functions[f].scope
            ):
                yield f

    def prune(self, first: Iterable[int]) -> bool:
        """Remove states, beginning with some functions; return whether every variable has one left."""
        queue = deque(first)
        waiting = set(queue)
        while queue:
            f = queue.popleft()
            waiting.discard(f)
            scope = self.model.functions[f].scope
            supported = self._supported(f, [self.domains[v] for v in scope])
            if not scope and not supported:
                return False
            for v, states in zip(scope, supported, strict=False):
                if len(states) == len(self.domains[v]):
                    continue
                if len(states) == 0:
                    return False
                self.domains[v] = states
                again = [g for g in self.users[v] if g not in waiting]
                queue.extend(again)
                waiting.update(again)
        return True

    def _supported(self, f: int, domains: Domains) -> Domains:
        if f in self.excluded:
            return _states_not_excluded(self.excluded[f], domains)
        possible = self.possible[f]
        return _row_support(possible.rows, domains) if possible.mask is None else _dense_support(possible.mask, domains)


def _supporting(possible: Mapping[int, Possible]) -> frozenset[int]:
    """Return the small functions that allow every state of each of their variables."""
    by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
    most_cells = PreprocessingPolicy.current().group_cells
    for f, own in possible.items():
        if own.mask is not None and own.mask.ndim and own.mask.size <= most_cells:
            by_shape[own.mask.shape].append(f)
    found: list[int] = []
    for shape, functions in by_shape.items():
        masks, axes = np.array([possible[f].mask for f in functions]), range(1, len(shape) + 1)
        every = np.ones(len(functions), np.bool_)
        for axis in axes:
            occurs = np.logical_or.reduce(masks, axis=tuple([other for other in axes if other != axis]))
            every &= occurs.all(axis=1)
        found += np.array(functions)[every].tolist()
    return frozenset(found)


def _not_all_allowed(model: Model, functions: Sequence[int]) -> Sequence[int]:
    """Return those functions of costs that may exclude something; all others too."""
    if model.kind != "cost" or len(functions) < FEW:
        return functions
    highest = highest_costs([model.functions[f] for f in functions])
    return [f for f, high in zip(functions, highest, strict=True) if high >= model.limits[f]]


def _dense_support(mask: NDArray[np.bool_], domains: Domains) -> Domains:
    """States of each axis that occur in some allowed cell; an empty list if a constant is not allowed."""
    if not domains:
        return [np.zeros(1, dtype=np.intp)] if mask.item() else []
    sizes = [len(d) for d in domains]
    if sizes != list(mask.shape):
        # as np.ix_ does, which takes longer than the selection
        mask = mask[tuple([d.reshape(-1, *[1] * (len(domains) - k)) for k, d in enumerate(domains, 1)])]
    if mask.all():
        return domains
    return [states[occurs] for states, occurs in zip(domains, occurring_states(mask), strict=True)]


def _row_support(rows: NDArray[Any], domains: Domains) -> Domains:
    """States of each column that occur in a row within the domains."""
    if not domains:
        return [np.zeros(1, dtype=np.intp)] if len(rows) else []
    inside = rows_within(rows, domains)
    return [np.flatnonzero(np.bincount(rows[inside, column])) for column in range(len(domains))]


def _excludes_few(rows: int, sizes: Sequence[int]) -> bool:
    """Whether ``rows`` excluded assignments are too few to exclude a state of any variable."""
    return rows < prod(sizes) // max(sizes, default=1)


def _states_not_excluded(rows: NDArray[Any], domains: Domains) -> Domains:
    """States with which some assignment within the domains is not among the rows, which are excluded."""
    if not domains:
        return [np.zeros(1, dtype=np.intp)] if not len(rows) else []
    sizes = [len(d) for d in domains]
    if _excludes_few(len(rows), sizes):
        return domains
    cells = prod(sizes)
    rows = rows[rows_within(rows, domains)]
    counts = [np.bincount(column, minlength=int(d[-1]) + 1)[d] for column, d in zip(rows.T, domains, strict=True)]
    return [d[count < cells // len(d)] for d, count in zip(domains, counts, strict=True)]


# Functions that a count must consider: functions that forbid some assignment of the remaining states.


def excluding(
    model: Model, functions: Sequence[int], smaller: Collection[int], domains: Sequence[NDArray[np.intp]]
) -> tuple[int, ...]:
    """Return the functions that a count needs, all of them where costs that each function allows may reach ``top``.

    An assignment does not count if some function forbids it, or if its costs reach ``top`` together. They cannot if
    even the greatest costs that each function allows do not: then functions that allow every assignment of the states
    that are left say nothing about the count. Where they can, every cost matters.

    Parameters
    ----------
    smaller : collection of int
        Functions that lost entries that are part of no assignment; these functions are needed.
    domains : sequence of ndarray
        The states that are left of each variable of the model.
    """
    needed, above = [], 0
    whole = [len(states) == size for states, size in zip(domains, model.dims, strict=True)]
    for f in functions:
        function = model.functions[f]
        values = _values_within(function, None if all(whole[v] for v in function.scope) else domains)
        mask = allowed(model, f, values)
        if model.top is not None:
            above += int(values[mask].max(initial=model.lowest[f])) - model.lowest[f]
        if f in smaller or not mask.all():
            needed.append(f)
    reaches_top = model.top is not None and sum(model.lowest) + above >= model.top
    return tuple(functions if reaches_top else needed)


def _values_within(function: Function, domains: Sequence[NDArray[np.intp]] | None) -> NDArray[Any]:
    """Return the values of a function that assignments of some states have, or of all: at least those."""
    if domains is None:
        return function.values if function.rows is None else np.append(function.values, function.default)
    states = [domains[v] for v in function.scope]
    if function.rows is None:
        return np.asarray(function.values[np.ix_(*states)])
    listed = function.values[rows_within(function.rows, states)]
    return listed if len(listed) == prod(map(len, states)) else np.append(listed, function.default)
