"""Rows in blocks that fit a cache or a budget, cut where that does not change what is summed with what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ..rows.keys import Words
from ..steps.semiring import Semiring
from .ordering import concatenated, merged
from .relation import Relation
from .sides.sides import side_of

#: Rows from the end of a block in which the last group is likely to begin.
_TAIL: Final = 64


class TooManyRowsError(Exception):
    """A result has more rows than there is room for; ``rows`` were found so far, ``most`` were allowed."""

    def __init__(self, rows: int, most: int) -> None:
        super().__init__(f"{rows} rows, {most} are allowed")
        self.rows, self.most = rows, most


def row_blocks(words: Any, group: Words, block: int, most: int) -> Iterator[tuple[int, int, bool]]:
    """Cut rows into (first, last + 1, whether a group begins there) of about `block` rows.

    Rows that agree in the bits of `group` are neighbours and stay together, unless they are more than `most`: these
    are cut after as many.
    """
    rows, start, begins = len(words), 0, True
    while start < rows:
        reach = block if group.any() else most
        edge = _edge(words, group, start, start + reach)
        while edge == start and reach < most:
            reach = min(2 * reach, most)
            edge = _edge(words, group, start, start + reach)
        stop = edge if edge > start else start + reach
        yield start, stop, begins
        start, begins = stop, edge > start


def _edge(words: Any, group: Words, start: int, stop: int) -> int:
    """Return the last place between two where a group begins or all ends; the first place, if there is none."""
    if stop >= len(words):
        return len(words)
    tail = _TAIL
    while True:
        low = max(start, stop - tail)
        if last := int(side_of(words).starts(words[low : stop + 1], group)[-1]):
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
    bounds = side_of(words).arrays.append(ends[side_of(words).starts(words, group)[1:] - 1], total)
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
    arrays = side_of(numbers).arrays
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
