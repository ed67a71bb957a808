"""Joins of relations: their size before they are made, in blocks, with variables summed out as blocks are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from math import prod
from typing import Any, Final

import numpy as np

from ..steps.light_dataclass import dataclass
from ..steps.semiring import Semiring
from .keys import Keys, Words
from .ordering import (
    Assembly,
    TooManyRowsError,
    disorder,
    group_edge,
    joined,
    layout,
    moved,
    order_holds,
    output_blocks,
    reordered,
    row_blocks,
)
from .relation import Dense, Relation, Table, empty, from_dense, gathers
from .row_backend import backend_of

# Rows that are only multiplied with arrays, and summed in their order: this many fit in the memory of one sorted
# row.
_ROWS_IN_PLACE: Final = 4


def _ignored(_: int) -> None:
    """Tell nobody."""


def shared(a: Keys, b: Keys) -> tuple[int, ...]:
    """Return the variables of both, in the order of `a`."""
    return tuple([v for v in a.variables if v in b.fields])


def semijoin(a: Relation, b: Relation) -> Relation:
    """Return the rows of `a` that agree with some row of `b` in the variables of both."""
    found = _Meeting(a.keys, a.keys.varying, b, a.keys).counts(a.words) > 0
    return a if bool(found.all()) else a.rows(found)


class _Meeting:
    """How rows meet those of another relation.

    Parameters
    ----------
    keys : Keys
        Layout of the joined rows of `right`.
    order : sequence of int
        Variables by which the joined rows are sorted, without variables of one state; after the join, :attr:`order` is
        the order of the result.
    right : Relation
    target : Keys
        Layout of the outcome.
    """

    def __init__(self, keys: Keys, order: Sequence[int], right: Relation, target: Keys) -> None:
        common = shared(keys, right.keys)
        self.keys, self.target = keys, target
        self._common = layout(keys, common)
        own = [v for v in right.keys.variables if v not in keys.fields]
        self._right = reordered(right, (*common, *own))
        self.order = (*order, *layout(right.keys, own).varying)
        words = moved(self._right.words, self._right.keys, self._common)
        wanted = self._common.varying
        self._index = backend_of(words).index(words, self._common, [*order][: len(wanted)] == wanted)
        self._words = moved(self._right.words, self._right.keys, target)

    def counts(self, words: Any) -> Any:
        """Return how many rows each key meets."""
        return self._index.find(moved(words, self.keys, self._common))[1]

    def find(self, words: Any) -> tuple[Any, Any]:
        """Return the first row that each key meets, and where its outputs end."""
        first, counts = self._index.find(moved(words, self.keys, self._common))
        return first, backend_of(words).arrays.cumsum(counts)

    def made(
        self,
        words: Any,
        values: Any,
        matches: Any,
        spans: Iterable[tuple[int, int, bool]],
        semiring: Semiring,
        summed: bool = False,
    ) -> Iterator[tuple[Any, Any, bool]]:
        """Yield keys, in the layout of the target, and values of some outputs, and what the span says of them.

        ``summed``: they ascend, and equal ones are summed.
        """
        backend, both = backend_of(words), (moved(words, self.keys, self.target), self._words)
        more = any(v not in self.keys.fields for v in self.target.varying)
        for start, stop, begins in spans:
            given = matches, (start, stop), both, (values, self._right.values), semiring
            most = stop - start if more else len(words)
            yield *(backend.expanded_sums(*given, most) if summed else backend.expanded(*given)), begins


@dataclass(frozen=True, eq=False)
class _DenseFactor:
    """A dense table that rows are multiplied with, which have all its variables."""

    keys: Keys
    table: Dense

    def product(self, words: Any, values: Any, semiring: Semiring) -> tuple[Any, Any]:
        """Return the rows whose products are not zero, and these."""
        return backend_of(words).multiplied(words, values, self.parts, self.table.values, semiring)

    @cached_property
    def parts(self) -> Words:
        """Where the entry of a key stands in the table."""
        return gathers(self.keys, self.table)


@dataclass(frozen=True)
class _JoinMaking:
    """How joins are made: the products, the rows of a block, the function to call, and whether the last is summed."""

    semiring: Semiring
    budget_rows: int
    on_join: Callable[[int], None]
    summed: bool


@dataclass(frozen=True, eq=False)
class _Chain:
    """The tables that rows meet, one after the other, in blocks that are cut between states of the first variables.

    Parameters
    ----------
    first : Relation
    stages : sequence of _Meeting or _Factor
    keys : Keys
        Layout at the end.
    order : tuple of int
        Variables by which rows are sorted at the end, with the variables that left the keys; none of one state.
    scope : Keys
        Layout of the result.
    """

    first: Relation
    stages: Sequence[_Meeting | _DenseFactor]
    keys: Keys
    order: tuple[int, ...]
    scope: Keys

    @cached_property
    def _groups(self) -> list[Words]:
        """The bits that stay together, of the keys that each stage takes and of the first."""
        grouping = leading(self.first.keys, self.scope)
        return [np.invert(keys.mask(grouping)) for keys in (*[stage.keys for stage in self.stages], self.first.keys)]

    def within(self, part: tuple[int, int]) -> _Chain:
        """Return one of several similar ranges of the keys of the first rows; the rows of a group stay together."""
        words, (number, parts) = self.first.words, part
        ends = [group_edge(words, self._groups[-1], 0, len(words) * at // parts) for at in (number, number + 1)]
        return replace(self, first=self.first.rows(slice(*ends)))

    def blocks(self, making: _JoinMaking) -> Iterator[tuple[Any, Any, bool]]:
        """Yield words, values, and whether groups begin behind those before."""
        words, values = self.first.words, self.first.values
        sizes = backend_of(words).block_rows(making.budget_rows), making.budget_rows
        for start, stop, begins in row_blocks(words, self._groups[-1], *sizes):
            yield from self._from(0, (words[start:stop], values[start:stop], begins), making)

    def _from(self, at: int, block: tuple[Any, Any, bool], making: _JoinMaking) -> Iterator[tuple[Any, Any, bool]]:
        words, values, follows = block
        # not one inside the other: there may be thousands
        stage: _Meeting | _DenseFactor | None = None
        while at < len(self.stages) and isinstance(stage := self.stages[at], _DenseFactor):
            words, values = stage.product(words, values, making.semiring)
            at += 1
        if not isinstance(stage, _Meeting):
            yield words, values, follows
            return
        matches = stage.find(words)
        making.on_join(int(matches[1][-1]) if len(words) else 0)
        sizes = backend_of(words).block_rows(making.budget_rows), making.budget_rows
        spans = output_blocks(matches[1], words, self._groups[at], *sizes)
        summed = making.summed and at + 1 == len(self.stages)
        for more, products, begins in stage.made(words, values, matches, spans, making.semiring, summed):
            yield from self._from(at + 1, (more, products, begins and follows), making)
            follows = True


def leading(keys: Keys, scope: Keys) -> list[int]:
    """Return the variables with which both layouts begin, without variables of one state."""
    pairs = zip(keys.varying, scope.varying, strict=False)
    return [v for v, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def joined_reduced(
    inputs: Sequence[Table],
    scope: Sequence[int],
    semiring: Semiring,
    budget_rows: int = 1 << 24,
    most_rows: int | None = None,
    on_join: Callable[[int], None] = _ignored,
    part: tuple[int, int] = (0, 1),
) -> Relation:
    """Multiply tables and sum out the variables that `scope` lacks, without holding the whole join in memory.

    Parameters
    ----------
    inputs : sequence of Relation or Dense
        At least one Relation. A dense table whose variables all stand in relations is read in place; others are
        turned to rows.
    scope : sequence of int
        Variables of the result, in its order; every one is in some input.
    semiring : Semiring
    budget_rows : int
        Rows of the join that are alive at a time; sums of floats may depend on it where a result's row is the sum of
        more.
    most_rows : int, optional
        Rows that the result may have.
    on_join : callable, optional
        Called with the number of rows of a part of a join before the part is made; an exception from it ends the join.
    part : (int, int)
        A number, and of how many: which range of keys of the table that the join begins with is done. The results of
        all ranges, one after the other, are what the whole join gives.

    Raises
    ------
    TooManyRowsError
        If the result has more than `most_rows`, or had where residues add up to zero later.
    ValueError
        If no input is a Relation.
    """
    dims = {v: d for table in inputs for v, d in table.keys.sizes.items()}
    target = Keys(tuple(scope), tuple([dims[v] for v in scope]))
    chain = _chain(inputs, target, semiring)
    return _assembled(chain if part == (0, 1) else chain.within(part), semiring, budget_rows, most_rows, on_join)


def _assembled(
    chain: _Chain,
    semiring: Semiring,
    budget_rows: int,
    most_rows: int | None = None,
    on_join: Callable[[int], None] = _ignored,
) -> Relation:
    """Return the sum of a chain's blocks."""
    missing = disorder(chain.order, chain.scope)
    if not missing.mask.any() and all(isinstance(stage, _DenseFactor) for stage in chain.stages):
        budget_rows *= _ROWS_IN_PLACE
        summed_in_place = _summed_in_place(chain, semiring, budget_rows)
        if summed_in_place is not None:
            if most_rows is not None and len(summed_in_place) > most_rows:
                raise TooManyRowsError(len(summed_in_place), most_rows)
            return summed_in_place
    assembly = Assembly(semiring, budget_rows, most_rows)
    summed = isinstance(chain.stages[-1] if chain.stages else None, _Meeting) and not missing.mask.any()
    for words, values, follows in chain.blocks(_JoinMaking(semiring, budget_rows, on_join, summed)):
        found = words, values
        if not summed:
            words = moved(words, chain.keys, chain.scope)
            found = backend_of(words).gathered(words, values, semiring, *missing)
        assembly.add(Relation(chain.scope, *found), follows)
    return assembly.finish() or empty(chain.scope, chain.first.values)


def _summed_in_place(chain: _Chain, semiring: Semiring, budget_rows: int) -> Relation | None:
    """Return the sum of rows that are multiplied with at most one array, in one launch; None if it is not for them.

    Parameters
    ----------
    chain : _Chain
        Without other rows; its scope is the beginning of its order.
    semiring : Semiring
    budget_rows : int
        Rows that the result may have, at most.
    """
    first, factors = chain.first, [stage for stage in chain.stages if isinstance(stage, _DenseFactor)]
    most = min(len(first), prod(chain.scope.dims))
    if len(factors) > 1 or not 0 < most <= budget_rows:
        return None
    mask = np.invert(first.keys.mask(chain.scope.varying))
    moves = first.keys.moves(chain.scope), chain.scope.n_words
    factor = (factors[0].parts, factors[0].table.values) if factors else None
    found = backend_of(first.words).product_sums((first.words, first.values), factor, mask, moves, semiring, most)
    return None if found is None else Relation(chain.scope, *found)


def least_row(inputs: Sequence[Table], scope: Keys, semiring: Semiring, budget_rows: int) -> dict[int, int] | None:
    """Return the states of the row of a join with the least value, the first one in the order of a layout of all.

    Parameters
    ----------
    inputs : sequence of Relation or Dense
        As for :func:`joined_reduced`, of the host.
    scope : Keys
        All variables of several states.
    semiring : Semiring
        Min-plus.
    budget_rows : int
        Rows of the join that are alive at a time.

    Returns
    -------
    dict of int to int or None
        None where no row has a value.
    """
    chain = _chain(inputs, scope, semiring)
    best: tuple[float, list[int]] | None = None
    for words, values, _ in chain.blocks(_JoinMaking(semiring, budget_rows, _ignored, summed=False)):
        if not len(values) or (best is not None and (values.min() > best[0])):
            continue
        found = moved(words[values == values.min()], chain.keys, scope)
        for word in range(scope.n_words):
            found = found[found[:, word] == found[:, word].min()]
        row = float(values.min()), found[0].tolist()
        best = row if best is None else min(best, row)
    if best is None:
        return None
    states = scope.unpack(np.array([best[1]], np.uint64))[:, 0].tolist()
    return dict(zip(scope.variables, states, strict=True))


def _chain(inputs: Sequence[Table], scope: Keys, semiring: Semiring) -> _Chain:
    """Return the table to begin with and the tables that it meets: the table that adds the fewest rows comes first."""
    first, rest = _driver(inputs, scope)
    known, tables = set(first.keys.variables), list[Table]()
    while rest:
        best = min(rest, key=lambda table: _growth(table, known))
        rest.remove(best)
        covered = known.issuperset(best.keys.variables)
        tables.append(best if covered or isinstance(best, Relation) else from_dense(best, semiring))
        known.update(best.keys.variables)
    keys, order = first.keys, tuple(first.keys.varying)
    stages: list[_Meeting | _DenseFactor] = []
    for at, table in enumerate(tables, start=1):
        if isinstance(table, Dense):
            stages.append(_DenseFactor(keys, table))
            continue
        needed = {*scope.variables, *(v for later in tables[at:] for v in later.keys.variables)}
        both = joined(keys, table.keys)
        target = scope if at == len(tables) else layout(both, [v for v in both.variables if v in needed])
        stages.append(meeting := _Meeting(keys, order, table, target))
        keys, order = target, meeting.order
    return _Chain(first, stages, keys, order, scope)


def _driver(inputs: Sequence[Table], scope: Keys) -> tuple[Relation, list[Table]]:
    """Return the relation whose order is most like the order of the result, and the other tables."""
    relations = [table for table in inputs if isinstance(table, Relation)]
    if not relations:
        raise ValueError("a join of rows needs rows")
    first = max(relations, key=lambda table: _likeness(table, relations, scope))
    rest = [table for table in inputs if table is not first]
    joins = any(isinstance(table, Relation) or not {*table.keys.fields} <= {*first.keys.fields} for table in rest)
    if joins and scope.varying and not leading(first.keys, scope) and scope.varying[0] in first.keys.fields:
        own = [v for v in scope.variables if v in first.keys.fields]
        first = reordered(first, (*own, *[v for v in first.keys.variables if v not in scope.fields]))
    return first, rest


def _likeness(table: Relation, relations: Sequence[Relation], scope: Keys) -> tuple[int, bool, int]:
    """Return how much of the result's order a relation has, and the cost that beginning with it saves in reads and
    sorts.

    Other relations are sorted where what they share with it does not come first in its order.
    """
    rows = len(table)
    for other in relations:
        if other is not table and not order_holds(other.keys, layout(other.keys, shared(table.keys, other.keys))):
            rows += len(other)
    begins = not {*scope.varying[:1]}.isdisjoint(table.keys.fields)
    return len(leading(table.keys, scope)), begins, -rows


def _growth(table: Table, known: set[int]) -> tuple[int, int]:
    """Return how many states the variables of a table have that are not known yet, and its rows."""
    return prod([d for v, d in table.keys.sizes.items() if v not in known]), len(table)
