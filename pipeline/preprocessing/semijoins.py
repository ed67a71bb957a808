"""Entries of functions that agree with none of another, by semijoins over the variables that functions share.

Pairwise consistency (Beeri, Fagin, Maier & Yannakakis 1983). Over a single variable that is what arc consistency does,
so only sets of at least two variables are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ..models.function import FORBIDDEN, Function
from .preprocessing_policy import PreprocessingPolicy

if TYPE_CHECKING:
    from ...tasks.rows.relation import Relation

# Maximum pairs of variables of a function that are indexed to find functions that share them.
_OWN_PAIRS: Final = 1 << 6

Scope = tuple[int, ...]
Domains = Sequence[NDArray[np.intp]]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Possible:
    """The allowed entries of a single function: a mask over the states of the model, or rows.

    Parameters
    ----------
    function : Function
    mask : ndarray of bool, optional
        None for a function by rows.
    places : ndarray of int
        Which rows of the function are allowed.
    """

    function: Function
    mask: Mask | None
    places: NDArray[np.intp]

    @classmethod
    def of(cls, function: Function, allowed: Mask) -> Possible:
        """Return the allowed entries among a function's values; its default is not allowed."""
        if function.rows is None:
            return cls(function, allowed, np.zeros(0, dtype=np.intp))
        return cls(function, None, np.flatnonzero(allowed))

    @property
    def rows(self) -> NDArray[Any]:
        """The rows that are allowed."""
        rows = self.function.rows
        assert rows is not None
        return rows if len(self.places) == len(rows) else rows[self.places]

    @property
    def size(self) -> int:
        """Entries to look at."""
        return len(self.places) if self.mask is None else self.mask.size

    @property
    def count(self) -> int:
        """Entries that are allowed."""
        return len(self.places) if self.mask is None else int(np.count_nonzero(self.mask))

    def within(self, domains: Domains) -> Possible:
        """Leave out what has states that are not in the domains."""
        if self.mask is None:
            return replace(self, places=self.places[rows_within(self.rows, domains)])
        mask = self.mask
        for axis, states in enumerate(domains):
            if len(states) < mask.shape[axis]:
                left = np.zeros(mask.shape[axis], dtype=bool)
                left[states] = True
                mask = mask & left.reshape([-1 if a == axis else 1 for a in range(mask.ndim)])
        return replace(self, mask=mask)

    @property
    def _columns(self) -> Sequence[NDArray[Any]]:
        """The states of every row, or of every entry that a mask allows, variable by variable."""
        return [*(self.rows.T if self.mask is None else np.nonzero(self.mask))]

    def numbers(self, shared: Shared) -> NDArray[np.int64]:
        """Number the shared part of every row."""
        columns = self._columns
        total = np.zeros(len(columns[0]), dtype=np.int64)
        for v, size in zip(shared.scope, shared.sizes, strict=True):
            total *= size
            total += columns[self.function.scope.index(v)]
        return total

    def table(self, shared: Shared) -> Mask:
        """Return which shared parts are allowed, one cell each."""
        if self.mask is None:
            table = np.zeros(shared.cells, dtype=bool)
            table[self.numbers(shared)] = True
            return table
        own = self.function.scope
        kept = [v for v in own if v in shared.scope]
        table = np.asarray(self.mask.any(axis=tuple(axis for axis, v in enumerate(own) if v not in kept)))
        return table.transpose([kept.index(v) for v in shared.scope]).reshape(-1)

    def agreeing(self, shared: Shared, table: Mask) -> Possible:
        """Leave out entries whose shared part a table excludes."""
        if self.mask is None:
            return replace(self, places=self.places[table[self.numbers(shared)]])
        own = self.function.scope
        kept = [v for v in own if v in shared.scope]
        cells = table.reshape(shared.sizes).transpose([shared.scope.index(v) for v in kept])
        shape = [size if v in kept else 1 for v, size in zip(own, self.mask.shape, strict=True)]
        return replace(self, mask=self.mask & cells.reshape(shape))

    def ordered(self, shared: Shared) -> Relation:
        """Return the shared part of every entry, in order, with the number of the entry."""
        from ...tasks.rows.host import HOST
        from ...tasks.rows.keys import Keys
        from ...tasks.rows.relation import Relation

        columns, keys = self._columns, Keys(shared.scope, shared.sizes)
        words = keys.packed([columns[self.function.scope.index(v)] for v in shared.scope], len(columns[0]))
        order = HOST.order(words)
        return Relation(keys, words, np.arange(len(words))) if order is None else Relation(keys, words[order], order)

    def kept(self, entries: Relation) -> Possible:
        """Leave out entries that are not among some of :meth:`ordered`."""
        numbers = np.sort(entries.values)
        if self.mask is None:
            return replace(self, places=self.places[numbers])
        mask = np.zeros_like(self.mask)
        mask.reshape(-1)[np.flatnonzero(self.mask)[numbers]] = True
        return replace(self, mask=mask)

    def made(self, kind: str) -> Function:
        """Return the function without what is not possible."""
        if self.mask is None:
            return self.function.changed(rows=self.rows, values=self.function.values[self.places])
        nothing = FORBIDDEN if kind == "cost" else 0
        return self.function.changed(values=np.where(self.mask, self.function.values, nothing))


@dataclass(frozen=True)
class Shared:
    """Variables that functions share, and their domain sizes in the model."""

    scope: Scope
    sizes: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Joint states."""
        return prod(self.sizes)

    @property
    def tabled(self) -> bool:
        """Whether what is possible is a table."""
        return self.cells <= PreprocessingPolicy.current().semijoin_table_cells

    def agreed(self, functions: Sequence[Possible]) -> list[Possible]:
        """Return functions without the entries whose shared part is not possible for all of them."""
        if self.tabled:
            table = np.logical_and.reduce([function.table(self) for function in functions])
            return [function.agreeing(self, table) for function in functions]
        from ...tasks.rows.joins import semijoin

        entries = [function.ordered(self) for function in functions]
        possible = reduce(semijoin, entries)
        return [function.kept(semijoin(own, possible)) for function, own in zip(functions, entries, strict=True)]


class Semijoins:
    """Functions that are made to agree with each other, pass by pass.

    Parameters
    ----------
    possible : dict
        The allowed entries of each function, by its number; entries are removed in place.
    dims : sequence of int
        Domain sizes of the model.
    domains : sequence of ndarray
        States that are left, which others remove in place.
    """

    def __init__(self, possible: dict[int, Possible], dims: Sequence[int], domains: Domains):
        policy = PreprocessingPolicy.current()
        self.possible, self.dims, self.domains = possible, dims, domains
        self.changed: set[int] = set()
        self.pruned = 0
        self._sizes = list(dims)
        self._work = policy.semijoin_entries + policy.semijoin_passes * sum(p.size for p in possible.values())
        self._members: dict[Shared, list[int]] = {}
        self._shared: dict[int, list[Shared]] = defaultdict(list)
        self._waiting: dict[Shared, None] | None = None

    def passed(self) -> set[int]:
        """Reduce functions until they agree or the work limit is reached; return the functions that lost entries."""
        if self._waiting is None:
            self._find_shared()
            self._waiting = dict.fromkeys(sorted(self._members, key=self._effort))
        self._narrow()
        losers: set[int] = set()
        while self._waiting and self._work > 0:
            shared = next(iter(self._waiting))
            del self._waiting[shared]
            for f in self._reduced(shared):
                losers.add(f)
                self._waiting.update(dict.fromkeys(other for other in self._shared[f] if other != shared))
        self.changed |= losers
        return losers

    def _find_shared(self) -> None:
        """Find sets of at least two variables that functions share."""
        by_pair = self._by_pair()
        for pair, functions in by_pair.items():
            if len(functions) > PreprocessingPolicy.current().most_sharing_functions:
                self._members.setdefault(self._shared_of(pair), [])
                continue
            for f, g in combinations(functions, 2):
                other = set(self.possible[g].function.scope)
                common = [v for v in self.possible[f].function.scope if v in other and len(self.domains[v]) > 1]
                self._members.setdefault(self._shared_of(sorted(common)), [])
        for shared, members in self._members.items():
            scope = set(shared.scope)
            members += [f for f in by_pair[shared.scope[:2]] if scope.issubset(self.possible[f].function.scope)]
            for f in members:
                self._shared[f].append(shared)

    def _by_pair(self) -> dict[tuple[int, ...], list[int]]:
        """Return the functions that have each pair of variables, where several do; wide functions may be left out."""
        by_pair: dict[tuple[int, ...], list[int]] = defaultdict(list)
        left = PreprocessingPolicy.current().semijoin_entries + _OWN_PAIRS * len(self.possible)
        for f in sorted(self.possible, key=lambda f: len(self.possible[f].function.scope)):
            scope = sorted([v for v in self.possible[f].function.scope if len(self.domains[v]) > 1])
            left -= len(scope) * (len(scope) - 1) // 2
            if left < 0:
                break
            for pair in combinations(scope, 2):
                by_pair[pair].append(f)
        return {pair: functions for pair, functions in by_pair.items() if len(functions) > 1}

    def _shared_of(self, scope: Sequence[int]) -> Shared:
        """Return variables as a set of shared ones."""
        return Shared(tuple(scope), tuple([self.dims[v] for v in scope]))

    def _effort(self, shared: Shared) -> int:
        return sum(self.possible[f].size for f in self._members[shared])

    def _narrow(self) -> None:
        """Leave out entries with states that were removed meanwhile."""
        assert self._waiting is not None
        narrowed = {v for v, states in enumerate(self.domains) if len(states) < self._sizes[v]}
        self._sizes = [len(states) for states in self.domains]
        for f in self._shared:
            scope = self.possible[f].function.scope
            if not narrowed.isdisjoint(scope):
                self._work -= self.possible[f].size
                self.possible[f] = self.possible[f].within([self.domains[v] for v in scope])
                self._waiting.update(dict.fromkeys(self._shared[f]))

    def _reduced(self, shared: Shared) -> list[int]:
        """Make all functions agree over shared variables; return the functions that lost entries."""
        members = self._members[shared]
        self._work -= 2 * self._effort(shared)
        losers = []
        for f, after in zip(members, shared.agreed([self.possible[f] for f in members]), strict=True):
            before = self.possible[f]
            if lost := before.count - after.count:
                self.possible[f] = after
                self.pruned += lost
                losers.append(f)
        return losers


def rows_within(rows: NDArray[Any], domains: Domains) -> Mask:
    """Return which rows have only states of the domains."""
    inside = np.ones(len(rows), dtype=bool)
    if len(rows):
        for column, states in zip(rows.T, domains, strict=True):
            left = np.zeros(max(int(column.max()), int(states[-1])) + 1, dtype=bool)
            left[states] = True
            inside &= left[column]
    return inside
