"""Rows in the order that is asked for: keys in another layout, sorting, runs of equal keys, merging."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import dropwhile, takewhile
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..steps.caches import Memo
from ..steps.light_dataclass import dataclass
from ..steps.semiring import Semiring
from .keys import Keys, Words
from .relation import Dense, Relation, Table
from .row_backend import backend_of

# At most this number of runs is merged pairwise; for more runs, sorting their rows together is faster.
_MERGED_RUNS: Final = 16

#: Layouts, and moves of keys between layouts: the same for all slices of a plan. Not counted in the memory limit of a
#: run.
LAYOUTS: Final[Memo[Any]] = Memo(8 << 20)
#: Bytes of a layout, and of each of its variables.
_LAYOUT_BYTES, _VARIABLE_BYTES = 1 << 10, 200


def layout(keys: Keys, variables: Sequence[int]) -> Keys:
    """Return the layout of some of the variables of other keys in this order."""
    asked = "layout", keys, tuple(variables)
    found: Keys = LAYOUTS.get(asked) or _kept(asked, Keys(asked[2], tuple([keys.sizes[v] for v in variables])))
    return found


def joined(a: Keys, b: Keys) -> Keys:
    """Return the layout of a join."""
    asked = "joined", a, b
    found: Keys | None = LAYOUTS.get(asked)
    if found is None:
        dims = a.sizes | b.sizes
        found = _kept(asked, Keys(tuple(dims), tuple(dims.values())))
    return found


def _kept(asked: tuple[Any, ...], found: Any) -> Any:
    """Keep a result under its question: a name, and layouts or variables."""
    variables = [part.variables if isinstance(part, Keys) else part for part in (*asked[1:], found)]
    return LAYOUTS.put(asked, found, sum([_LAYOUT_BYTES + _VARIABLE_BYTES * len(part) for part in variables]))


def forget_layouts() -> None:
    """Drop what is kept of layouts: tables within ranges are each met once."""
    LAYOUTS.forget()


def order_holds(keys: Keys, target: Keys) -> bool:
    """Whether rows in ascending order of some keys are always in ascending order of other keys too."""
    theirs = target.varying
    return keys.varying[: len(theirs)] == theirs


class Disorder(NamedTuple):
    """Bits by which rows must be sorted; see :meth:`.row_backend.RowBackend.gathered`."""

    group: Words
    mask: Words


def disorder(order: Sequence[int], target: Keys) -> Disorder:
    """Return the sorting that rows in ascending order of some variables need to be in the order of other keys."""
    asked = "disorder", tuple(order), target
    found: Disorder = LAYOUTS.get(asked) or _kept(asked, _disorder(order, target))
    return found


def _disorder(order: Sequence[int], target: Keys) -> Disorder:
    order = [v for v in order if target.sizes.get(v, 2) > 1]
    wanted = target.varying
    common = len([*takewhile(lambda pair: pair[0] == pair[1], zip(order, wanted, strict=False))])
    done = common
    while [v for v in order if v not in wanted[:done]][: len(wanted) - done] != wanted[done:]:
        done += 1
    return Disorder(_bits(target, wanted[:common]), _bits(target, wanted[common:done]))


def _bits(keys: Keys, variables: Sequence[int]) -> Words:
    """Return a key with ones in the fields of some variables alone."""
    return np.invert(keys.mask(variables))


def repacked(relation: Relation, target: Keys) -> tuple[Any, bool]:
    """Return the keys of all rows in another layout, ``(rows, words) uint64``, and whether they are surely ascending.

    Variables that `target` lacks are dropped: equal keys may then occur more than once.
    """
    return moved(relation.words, relation.keys, target), order_holds(relation.keys, target)


def moved(words: Any, keys: Keys, target: Keys) -> Any:
    """Return keys in another layout; variables that `keys` lacks become 0."""
    if target == keys:
        return words
    asked = "moves", keys, target
    moves = LAYOUTS.get(asked)
    if moves is None:
        moves = _kept(asked, keys.moves(target))
    if target.n_words == keys.n_words and target.fields.keys() >= keys.fields.keys() and stay(moves):
        return words
    return backend_of(words).repacked(words, moves, target.n_words)


def stay(moves: Words) -> bool:
    """Whether no field of a key moves; see :meth:`.rows.keys.Keys.moves`.

    Examples
    --------
    >>> stay(np.array([(0, 255, 0, 0, 0), (1, 15, 0, 1, 0)], np.uint64))
    True
    """
    return all(word == to and right == left == 0 for word, _, right, to, left in moves.tolist())


def reordered(relation: Relation, variables: Sequence[int]) -> Relation:
    """Return the same table with its variables in another order."""
    target = layout(relation.keys, variables)
    words, holds = repacked(relation, target)
    if holds:
        return Relation(target, words, relation.values)
    missing = disorder(relation.keys.variables, target)
    return Relation(target, *backend_of(words).gathered(words, relation.values, None, *missing))


def gathered(keys: Keys, words: Any, values: Any, semiring: Semiring) -> Relation:
    """Return the table of rows in any order; rows with equal keys are summed in this order, and zeros are dropped."""
    return Relation(keys, *backend_of(words).gathered(words, values, semiring, *disorder((), keys)))


def merged(parts: Sequence[Relation], semiring: Semiring) -> Relation:
    """Return the sum of relations of one layout; equal keys are summed in the order of the parts.

    Raises
    ------
    ValueError
        If there are no parts.
    """
    if not parts:
        raise ValueError("nothing to merge")
    if len(parts) == 1:
        return parts[0]
    backend, keys = backend_of(parts[0].words), parts[0].keys
    if len(parts) > _MERGED_RUNS:
        whole = concatenated(parts)
        return gathered(keys, whole.words, whole.values, semiring)
    in_order = np.zeros(keys.n_words, np.uint64)
    words, values = backend.merged([(part.words, part.values) for part in parts])
    return Relation(keys, *backend.gathered(words, values, semiring, in_order, in_order))


def concatenated(parts: Sequence[Relation]) -> Relation:
    """Return the rows of relations of one layout, one after the other."""
    if len(parts) == 1:
        return parts[0]
    arrays = backend_of(parts[0].words).arrays
    words = arrays.concatenate([part.words for part in parts])
    return Relation(parts[0].keys, words, arrays.concatenate([part.values for part in parts]))


# Rows in blocks that fit a cache or a budget, cut between groups of rows that are summed together.

#: Rows from the end of a block in which the last group is likely to begin.
_TAIL: Final = 64


class TooManyRowsError(Exception):
    """A result has more rows than there is room for; ``rows`` were found so far, ``most`` were allowed."""

    def __init__(self, rows: int, most: int) -> None:
        super().__init__(rows, most)
        self.rows, self.most = rows, most

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.most} are allowed"


def row_blocks(words: Any, group: Words, block: int, most: int) -> Iterator[tuple[int, int, bool]]:
    """Cut rows into (first, last + 1, whether a group begins there) of about `block` rows.

    Rows that agree in the bits of `group` are neighbours and stay together, unless they are more than `most`: these
    are cut after as many.
    """
    rows, start, begins = len(words), 0, True
    while start < rows:
        reach = block if group.any() else most
        edge = group_edge(words, group, start, start + reach)
        while edge == start and reach < most:
            reach = min(2 * reach, most)
            edge = group_edge(words, group, start, start + reach)
        stop = edge if edge > start else start + reach
        yield start, stop, begins
        start, begins = stop, edge > start


def group_edge(words: Any, group: Words, start: int, stop: int) -> int:
    """Return the last place between two where a group begins or all ends; the first place, if there is none."""
    if stop >= len(words):
        return len(words)
    tail = _TAIL
    while True:
        low = max(start, stop - tail)
        if last := int(backend_of(words).starts(words[low : stop + 1], group)[-1]):
            return low + last
        if low == start:
            return start
        tail *= _TAIL


def output_blocks(ends: Any, words: Any, group: Words, block: int, most: int) -> Iterator[tuple[int, int, bool]]:
    """Cut what rows make into (first output, last + 1, whether a group begins there) as :func:`row_blocks` does.

    Parameters
    ----------
    ends : (rows,) int64
        Outputs of row i end before this.
    """
    total = int(ends[-1]) if len(ends) else 0
    if total <= block:
        if total:
            yield 0, total, True
        return
    bounds = backend_of(words).arrays.append(ends[backend_of(words).starts(words, group)[1:] - 1], total)
    start, begins = 0, True
    while start < total:
        last = _above(bounds, start + block)
        stop = int(bounds[last - 1]) if last else start
        if stop <= start:
            stop = int(bounds[_above(bounds, start)])
        yield start, min(stop, start + most), begins
        begins = stop <= start + most
        start = min(stop, start + most)


def _above(numbers: Any, limit: int) -> int:
    """Return the place of the first of ascending numbers that is above a limit."""
    arrays = backend_of(numbers).arrays
    return int(arrays.searchsorted(numbers, arrays.asarray([limit]), side="right")[0])


class Assembly:
    """Sorted runs, most of which begin behind the end of those before, become one relation.

    Parameters
    ----------
    budget_rows : int
        More rows than this, and than the result has, are not held unmerged.
    most_rows : int, optional
        Rows that the result may have.

    Raises
    ------
    TooManyRowsError
        By :meth:`add` and :meth:`finish`.
    """

    def __init__(self, semiring: Semiring, budget_rows: int, most_rows: int | None) -> None:
        self._semiring, self._budget_rows, self._most_rows = semiring, budget_rows, most_rows
        self._done: list[Relation] = []
        self._open: list[Relation] = []
        self._done_rows = 0

    def add(self, run: Relation, follows: bool) -> None:
        """Take the next run; `follows` says that it begins behind the end of all before."""
        if follows:
            self._close()
        self._open.append(run)
        if len(self._open) > 1 and sum(map(len, self._open)) > max(self._budget_rows, 2 * len(self._open[0])):
            self._open = [merged(self._open, self._semiring)]
        self._check(self._done_rows + len(self._open[0]))

    def finish(self) -> Relation | None:
        """Return all rows; None if there was no run."""
        self._close()
        self._check(self._done_rows)
        return concatenated(self._done) if self._done else None

    def _close(self) -> None:
        if self._open:
            self._done.append(merged(self._open, self._semiring))
            self._done_rows += len(self._done[-1])
            self._open = []

    def _check(self, rows: int) -> None:
        if self._most_rows is not None and rows > self._most_rows:
            raise TooManyRowsError(rows, self._most_rows)


# Rows within ranges of states, and what runs of such rows are together.

Ranges = Mapping[int, tuple[int, int]]
"""For some variables the first state and the one behind the last; others may have any."""


def inside(keys: Keys, words: Any, ranges: Ranges) -> Any:
    """Return which keys have all states within ranges, ``(rows,) bool``."""
    fields = [(*keys.fields[v][:2], (1 << keys.fields[v][2]) - 1, *ranges[v]) for v in ranges if v in keys.fields]
    return backend_of(words).inside(words, np.array(fields, np.uint64).reshape(-1, 5))


def where_inside(keys: Keys, words: Any, ranges: Ranges) -> Any:
    """Return where the rows within ranges lie whose keys ascend: from one to another, or what :func:`inside` does."""
    return KeysWithin(keys, ranges).where(words)


@dataclass(frozen=True)
class KeysWithin:
    """Keys of one layout within ranges, for many reads of a table: where they may lie is found once.

    Parameters
    ----------
    keys : Keys
    ranges : mapping
    """

    keys: Keys
    ranges: Ranges

    @cached_property
    def ends(self) -> tuple[Words, Words]:
        """Keys between which all lie."""
        return ends(self.keys, self.ranges)

    @cached_property
    def follow(self) -> bool:
        """Whether all keys between two that are within ranges are within them, too."""
        sizes = self.keys.sizes
        widths = [(stop - first, d) for v, d in sizes.items() for first, stop in [self.ranges.get(v, (0, d))]]
        behind = [*dropwhile(lambda one: one[0] == 1, widths)]
        return all(width == size for width, size in behind[1:])

    def where(self, words: Any) -> Any:
        """Return where the rows lie whose keys ascend: from one to another, or what :func:`inside` does."""
        if self.ranges.keys().isdisjoint(self.keys.fields):
            return slice(0, len(words))
        if self.follow:
            return slice(*backend_of(words).between(words, *self.ends))
        return inside(self.keys, words, self.ranges)


def chosen_rows(relation: Relation, chosen: Any) -> Relation:
    """Return rows that :func:`where_inside` chose; few of many are copied, so that they hold no memory of others."""
    rows = relation.rows(chosen)
    if not isinstance(chosen, slice) or 2 * len(rows) > len(relation):
        return rows
    return replace(rows, words=rows.words.copy(), values=rows.values.copy())


def within(table: Table, ranges: Ranges) -> Table:
    """Return the part of a table within ranges, with its states counted from their start."""
    keys, arrays = part_of(table.keys, ranges), backend_of(table.values).arrays
    if keys == table.keys:
        return table
    if isinstance(table, Dense):
        place = tuple([slice(*ranges.get(v, (0, d))) for v, d in table.keys.sizes.items()])
        return Dense(keys, arrays.ascontiguousarray(table.values.reshape(table.keys.dims)[place]).reshape(-1))
    rows = chosen_rows(table, where_inside(table.keys, table.words, ranges))
    words = rows.words - arrays.asarray(_origin(table.keys, ranges))
    return Relation(keys, moved(words, table.keys, keys), rows.values)


def shifted(part: Relation, ranges: Ranges) -> Relation:
    """Return rows within ranges with states counted from the start of each range; their keys are changed **in place**.

    Parameters
    ----------
    part : Relation
        Rows that are all within the ranges, and that no other code holds.
    ranges : mapping
    """
    keys, words = part_of(part.keys, ranges), part.words
    if keys == part.keys:
        return part
    for word, first in enumerate(_origin(part.keys, ranges)[0].tolist()):
        if first:
            column = words[:, word]
            column -= np.uint64(first)
    return Relation(keys, moved(words, part.keys, keys), part.values)


def put_back(part: Relation, keys: Keys, ranges: Ranges) -> Relation:
    """Return rows of :func:`within` with the states of the whole table, whose keys are given."""
    if part.keys == keys:
        return part
    origin = backend_of(part.words).arrays.asarray(_origin(keys, ranges))
    return replace(part, keys=keys, words=moved(part.words, part.keys, keys) + origin)


def part_of(keys: Keys, ranges: Ranges) -> Keys:
    """Return the layout of a table within ranges: most boxes of a step have the same one."""
    own = [ranges.get(v, (0, d)) for v, d in keys.sizes.items()]
    asked = "part", keys.variables, tuple([stop - first for first, stop in own])
    found: Keys = LAYOUTS.get(asked) or _kept(asked, Keys(keys.variables, asked[2]))
    return found


def _origin(keys: Keys, ranges: Ranges) -> Words:
    """Return the key of the first states of ranges."""
    return keys.of([ranges.get(v, (0, d))[0] for v, d in keys.sizes.items()])


def ends(keys: Keys, ranges: Ranges) -> tuple[Words, Words]:
    """Return keys, ``(1, words)`` each, between which all rows within ranges are, both included."""
    own = [ranges.get(v, (0, d)) for v, d in zip(keys.variables, keys.dims, strict=True)]
    return keys.of([first for first, _ in own]), keys.of([stop - 1 for _, stop in own])


def next_inside(keys: Keys, words: Words, ranges: Ranges) -> tuple[Words, NDArray[np.bool_]]:
    """Return for each key the least one within ranges that is not below it, and whether there is any.

    The states before the first state outside its range stay. If this state is above its range, the last of the states
    before it that can grow is increased. All states behind it become the first of their ranges.
    """
    low, high = (keys.unpack(end) for end in ends(keys, ranges))
    states, places = keys.unpack(words), np.arange(len(keys.variables))[:, None]
    below, above = states < low, states > high
    first = np.where(below | above, places, len(places)).min(axis=0, initial=len(places))
    grows = (above & (places == first)).any(axis=0)
    last = np.where((states < high) & (places < first), places, -1).max(axis=0, initial=-1)
    change = np.where(grows, last, first)
    found = np.where(places < change, states, np.where(grows & (places == change), states + 1, low))
    return keys.pack(found), ~grows | (last >= 0)


def union(runs: Sequence[Relation], semiring: Semiring) -> Relation:
    """Return the sum of sorted runs of one layout; runs that follow each other are only concatenated.

    Raises
    ------
    ValueError
        If there are no runs.
    """
    if not runs:
        raise ValueError("nothing to unite")
    some = [run for run in runs if len(run)]
    if len(some) < 2:
        return (some or runs)[0]
    parts = sorted(some, key=lambda run: run.words[0].tolist())
    chains: list[tuple[list[Relation], list[int]]] = []
    for part in parts:
        first, last = part.words[[0, -1]].tolist()
        for chain, end in chains:
            if end < first:
                chain.append(part)
                end[:] = last
                break
        else:
            chains.append(([part], last))
    return merged([concatenated(chain) for chain, _ in chains], semiring)
