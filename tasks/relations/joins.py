"""Joins of relations: their size before they are made, in blocks, with variables summed out as blocks are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows.keys import Keys
from ..steps.semiring import Semiring
from .ordering import layout, merged, reduced, reordered, repacked, without_zeros
from .relation import Dense, Relation, Table, dims_of, empty, from_dense, offsets_of
from .sides import side_of


class TooManyRowsError(Exception):
    """A result has more rows than there is room for; ``rows`` were found so far, ``most`` were allowed."""

    def __init__(self, rows: int, most: int) -> None:
        super().__init__(f"{rows} rows, {most} are allowed")
        self.rows, self.most = rows, most


def _ignored(_: int) -> None:
    """Tell nobody."""


def shared(a: Keys, b: Keys) -> tuple[int, ...]:
    """Return the variables of both, in the order of `a`."""
    return tuple([v for v in a.variables if v in b.fields])


def semijoin(a: Relation, b: Relation) -> Relation:
    """Return the rows of `a` that agree with some row of `b` in the variables of both."""
    common = shared(a.keys, b.keys)
    those = layout(b, common)
    words, holds = repacked(b, those)
    side = side_of(words)
    if not holds and (order := side.order(words)) is not None:
        words = words[order]
    words = words[side.starts(words)]
    found = side.places(repacked(a, layout(a, common))[0], words) >= 0
    return a if bool(found.all()) else a.rows(found)


@dataclass(frozen=True, eq=False)
class _Matches:
    """Which rows of `right` every row of `left` meets: ``counts`` of them from ``first`` on; -1 where none.

    Outputs of row i end before ``ends[i]``.
    """

    left: Relation
    right: Relation
    first: Any
    ends: Any

    @property
    def size(self) -> int:
        """Rows of the join."""
        return int(self.ends[-1]) if len(self.ends) else 0


def _matches(a: Relation, b: Relation) -> _Matches:
    common = shared(a.keys, b.keys)
    right = reordered(b, (*common, *[v for v in b.keys.variables if v not in a.keys.fields]))
    words = repacked(right, layout(right, common))[0]
    side = side_of(words)
    starts = side.starts(words)
    places = side.places(repacked(a, layout(a, common))[0], words[starts])
    lengths = side.arrays.concatenate([side.arrays.diff(starts, append=len(words)), [0]])
    return _Matches(a, right, starts[places] if len(starts) else places, side.arrays.cumsum(lengths[places]))


def join_size(a: Relation, b: Relation) -> int:
    """Return how many rows the join of two relations has, before products that are zero fall away."""
    return _matches(a, b).size


def join(a: Relation, b: Relation, semiring: Semiring) -> Relation:
    """Return the products of all rows that agree in the variables of both.

    Variables are those of `a`, then those that only `b` has.
    """
    found = _matches(a, b)
    return _made(found, 0, found.size, semiring)


def _made(found: _Matches, first: int, last: int, semiring: Semiring) -> Relation:
    """Return rows `first` to `last` of a join."""
    a, b = found.left, found.right
    side = side_of(a.words)
    rows, within = side.spread(found.ends, first, last)
    others = found.first[rows] + within
    dims = dims_of(a.keys) | dims_of(b.keys)
    target = Keys(tuple(dims), tuple(dims.values()))
    words = side.repacked(a.words[rows], a.keys.moves(target), target.n_words)
    own = layout(b, [v for v in b.keys.variables if v not in a.keys.fields])
    words |= side.repacked(b.words[others], own_moves(b.keys, own, target), target.n_words)
    return without_zeros(Relation(target, words, side.product(a.values[rows], b.values[others], semiring)), semiring)


def own_moves(keys: Keys, own: Keys, target: Keys) -> Any:
    """Return how the fields of some variables of `keys` move to `target`, where the others become 0."""
    rest = Keys(target.variables, target.dims)
    moves = keys.moves(rest)
    mask = ~keys.mask(own.variables)
    kept = [(word, bits & mask[word], right, to, left) for word, bits, right, to, left in moves if bits & mask[word]]
    return np.array(kept, np.uint64).reshape(-1, 5)


def joined_reduced(
    inputs: Sequence[Table],
    scope: Sequence[int],
    semiring: Semiring,
    budget_rows: int = 1 << 24,
    most_rows: int | None = None,
    on_join: Callable[[int], None] = _ignored,
) -> Relation:
    """Multiply tables and sum out what `scope` lacks, without ever having the whole join.

    Parameters
    ----------
    inputs : sequence of Relation or Dense
        At least one Relation. A dense table whose variables all stand in relations is read in place; others are
        turned to rows.
    scope : sequence of int
        Variables of the result, in its order; every one is in some input.
    semiring : Semiring
    budget_rows : int
        Rows of the join that are alive at a time.
    most_rows : int, optional
        Rows that the result may have.
    on_join : callable, optional
        Told how many rows a part of a join has before it is made; what it raises ends the join.

    Raises
    ------
    TooManyRowsError
        If the result has more than `most_rows`.
    ValueError
        If no input is a Relation.
    """
    first, others = _chain(inputs, semiring)
    found: list[Relation] = []
    for part in _parts(first, others, semiring, budget_rows, on_join):
        found.append(reduced(part, scope, semiring))
        if sum(map(len, found)) > max(budget_rows, 2 * len(found[0])):
            found = [merged(found, semiring)]
        if most_rows is not None and len(found[0]) > most_rows:
            raise TooManyRowsError(len(found[0]), most_rows)
    if not found:
        dims = {v: d for table in inputs for v, d in dims_of(table.keys).items()}
        return empty(Keys(tuple(scope), tuple([dims[v] for v in scope])), first.values)
    total = merged(found, semiring)
    if most_rows is not None and len(total) > most_rows:
        raise TooManyRowsError(len(total), most_rows)
    return total


def _chain(inputs: Sequence[Table], semiring: Semiring) -> tuple[Relation, list[Table]]:
    """Return the relation to begin with and what it meets, one after the other: what adds the least comes first."""
    relations = [table for table in inputs if isinstance(table, Relation)]
    if not relations:
        raise ValueError("a join of rows needs rows")
    first = max(relations, key=len)
    rest: list[Table] = [table for table in inputs if table is not first]
    known, chain = set(first.keys.variables), []
    while rest:
        best = min(rest, key=lambda table: _cells_beyond(table, known))
        rest.remove(best)
        covered = known.issuperset(best.keys.variables)
        chain.append(best if covered or isinstance(best, Relation) else from_dense(best, semiring))
        known.update(best.keys.variables)
    return first, chain


def _cells_beyond(table: Table, known: set[int]) -> tuple[int, int]:
    """Return how many states the variables of a table have that are not known yet, and its rows."""
    beyond = 1
    for v, d in dims_of(table.keys).items():
        beyond *= 1 if v in known else d
    return beyond, len(table)


def _parts(
    first: Relation, others: Sequence[Table], semiring: Semiring, budget_rows: int, on_join: Callable[[int], None]
) -> Iterator[Relation]:
    """Yield the join of a relation with others in parts of at most so many rows."""
    if not others or not len(first):
        if len(first):
            yield first
        return
    table, rest = others[0], others[1:]
    if isinstance(table, Dense):
        values = side_of(first.words).product(first.values, table.values[offsets_of(first, table)], semiring)
        product = without_zeros(Relation(first.keys, first.words, values), semiring)
        yield from _parts(product, rest, semiring, budget_rows, on_join)
        return
    found = _matches(first, table)
    for start in range(0, found.size, budget_rows):
        end = min(start + budget_rows, found.size)
        on_join(end - start)
        yield from _parts(_made(found, start, end, semiring), rest, semiring, budget_rows, on_join)
