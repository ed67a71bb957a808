"""The memory limit and the memory use of tables of rows, whose sizes are known only when the tables are made."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from math import inf
from typing import Any, Final, TypeVar
from weakref import ref

from ..steps.light_dataclass import dataclass
from ..steps.policy import RowPolicy
from ..steps.semiring import Semiring
from .joins import joined_reduced
from .keys import Keys
from .ordering import TooManyRowsError
from .relation import Dense, Relation, Table
from .row_backend import backend_of

# Words of 8 bytes that a row of a join takes while it is made and sorted, and those for each word of its key.
_WORKING_WORDS: Final = 10
_WORKING_KEY_WORDS: Final = 6
# With room for fewer rows at a time a join is refused.
LEAST_BLOCK_ROWS: Final = 1 << 8

T = TypeVar("T", bound=Any)


class RowsNoRoomError(Exception):
    """A table does not fit: ``needed`` bytes at least, of ``allowed``.

    ``axes`` are the variables of its join; none where fewer rows would not help.
    """

    def __init__(self, axes: tuple[int, ...], needed: int, allowed: int) -> None:
        super().__init__(axes, needed, allowed)
        self.axes: tuple[int, ...] = axes
        self.needed: int = needed
        self.allowed: int = allowed


class TooMuchWorkError(Exception):
    """Steps take more than was allowed."""


class LargeJoinError(Exception):
    """A join has more rows than it was to have where it was asked for."""


def join_row_bytes(inputs: Sequence[Table]) -> int:
    """Return the bytes of a join's row while it is made and sorted: in each stage that makes rows, and once more."""
    dims = {v: d for table in inputs for v, d in table.keys.sizes.items()}
    words = Keys(tuple(dims), tuple(dims.values())).n_words
    known = {v for table in inputs if isinstance(table, Relation) for v in table.keys.variables}
    making = sum(isinstance(table, Relation) or not known.issuperset(table.keys.variables) for table in inputs)
    return making * 8 * (_WORKING_WORDS + _WORKING_KEY_WORDS * words)


def copied_bytes(inputs: Sequence[Table], semiring: Semiring) -> int:
    """Return the bytes of a join besides its inputs: rows in another order and in two layouts, and arrays as rows."""
    rows = [table for table in inputs if isinstance(table, Relation)]
    known = {v for table in rows for v in table.keys.variables}
    arrays = [table for table in inputs if isinstance(table, Dense) and not known.issuperset(table.keys.variables)]
    if len(rows) + len(arrays) < 2:
        return 0
    copies = [table.nbytes + 2 * table.words.nbytes for table in rows]
    turned = [possible(table.values, semiring) * (32 * table.keys.n_words + 2 * table.values.itemsize)
              for table in arrays]  # fmt: skip
    return int(sum(copies) + sum(turned))


def rows_bytes(table: Dense, semiring: Semiring) -> int:
    """Return what the possible entries of an array take as rows."""
    return int(possible(table.values, semiring) * (8 * table.keys.n_words + table.values.itemsize))


def possible(values: Any, semiring: Semiring) -> int:
    """Return how many entries of an array rows would have."""
    zero, arrays = semiring.zero, backend_of(values).arrays
    return int(arrays.count_nonzero(values) if zero == 0 else values.size - arrays.count_nonzero(values == zero))


@dataclass(eq=False)
class MemoryAccount:
    """An account of memory and work.

    Parameters
    ----------
    nbytes : int
        The memory that tables besides the leaves may take together, including the step that makes a table.
    most_work : float
        Rows that all joins may have together; loops over cells count as the rows that take as long.

    Attributes
    ----------
    joined : int
        Rows that joins had.
    largest : (int, int)
        Rows and cells of the table with the most rows that was kept as such.
    tables, dense : int
        Tables that were made, and how many of them are dense.
    beside : int
        Bytes that are taken but belong to no table.
    written : int
        Bytes of tables on disk that were written.
    on_disk : int
        Bytes that tables took there at a time, at most.
    """

    nbytes: int
    most_work: float = inf
    done: float = field(default=0, init=False)
    joined: int = field(default=0, init=False)
    largest: tuple[int, int] = field(default=(0, 1), init=False)
    tables: int = field(default=0, init=False)
    dense: int = field(default=0, init=False)
    beside: int = field(default=0, init=False)
    written: int = field(default=0, init=False)
    on_disk: int = field(default=0, init=False)
    _alive: dict[int, tuple[ref[Any], int]] = field(default_factory=dict, init=False, repr=False)
    _gone: deque[int] = field(default_factory=deque, init=False, repr=False)
    _held: int = field(default=0, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.nbytes, self.most_work)

    @property
    def free(self) -> int:
        """Bytes that are left."""
        while self._gone:  # tables end in any thread, the account is of one
            self._held -= self._gone.popleft()
        return self.nbytes - self._held - self.beside

    def keep(self, table: T) -> T:
        """Enter the bytes of an array or a relation for as long as it is alive."""
        number, nbytes = id(table), table.nbytes
        if number not in self._alive:
            self._alive[number] = ref(table, lambda _: self._drop(number)), nbytes
            self._held += nbytes
        return table

    def _drop(self, number: int) -> None:
        self._gone.append(self._alive.pop(number)[1])

    def made(self, table: Any) -> Any:
        """Enter a table that a step made: a relation, or an array."""
        self.tables += 1
        self.dense += not isinstance(table, Relation)
        if isinstance(table, Relation) and len(table) > self.largest[0]:
            self.largest = len(table), table.cells
        return self.keep(table)

    def elsewhere(self, joined: int, work: float) -> None:
        """Enter what tables took that other accounts were kept of.

        Raises
        ------
        TooMuchWorkError
            If that is more than was allowed.
        """
        self.joined += joined
        self.work(work)

    def take(self, other: MemoryAccount) -> None:
        """Enter what another account has of work and tables.

        Raises
        ------
        TooMuchWorkError
            If that is more than was allowed.
        """
        self.tables, self.dense = self.tables + other.tables, self.dense + other.dense
        self.largest = max(self.largest, other.largest)
        self.elsewhere(other.joined, other.done)

    def stored(self, rows: int, cells: int) -> None:
        """Enter a table that is not in memory."""
        self.tables += 1
        if rows > self.largest[0]:
            self.largest = rows, cells

    def join(self, inputs: float, rows: int) -> None:
        """Record the rows that a join is about to have, each the product of ``inputs`` entries.

        Raises
        ------
        TooMuchWorkError
            If that is more than was allowed.
        """
        self.joined += rows
        self.work(inputs * rows)

    def work(self, rows: float) -> None:
        """Record work that takes as long as a join of ``rows`` rows.

        Raises
        ------
        TooMuchWorkError
            If that is more than was allowed.
        """
        self.done += rows
        if self.done > self.most_work:
            raise TooMuchWorkError

    def block_rows(self, inputs: Sequence[Table]) -> int:
        """Return how many rows of a join may be made at a time, beside its result."""
        return self.free // (2 * join_row_bytes(inputs))

    def joined_reduced(
        self,
        inputs: Sequence[Table],
        axes: Sequence[int],
        semiring: Semiring,
        most_joined: int | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> Relation:
        """Multiply tables and sum out the variables that ``axes`` lack, in blocks that fit in memory beside the result.

        Parameters
        ----------
        most_joined : int, optional
            Rows that the joins of a block may have.
        part : (int, int)
            The number of the range of keys that is joined, and the count of ranges; see :func:`.joins.joined_reduced`.

        Raises
        ------
        NoRoomError
            If the result does not fit.
        LargeJoinError
            If a join would have more rows than ``most_joined``.
        """
        dims = {v: d for table in inputs for v, d in table.keys.sizes.items()}
        free, scope = self.free - copied_bytes(inputs, semiring), tuple(dims)
        block_row = join_row_bytes(inputs)
        out = Keys(tuple(axes), tuple([dims[v] for v in axes])).n_words * 8 + semiring.itemsize
        policy = RowPolicy.current()
        # Half of the free memory is for the rows of a block while it is joined and sorted, half for the result, of
        # which merging makes some copies.
        block, most = free // (2 * block_row), free // (2 * policy.merged_copies * (out + 8))
        if block < LEAST_BLOCK_ROWS:
            needed = 2 * LEAST_BLOCK_ROWS * block_row
            raise RowsNoRoomError(scope if needed <= self.nbytes else (), self.nbytes - free + needed, self.nbytes)
        each = len(inputs) / max(sum(isinstance(table, Relation) for table in inputs), 1)

        def on_join(rows: int) -> None:
            if most_joined is not None and rows > most_joined:
                raise LargeJoinError
            self.join(each, rows)

        try:
            return joined_reduced(inputs, axes, semiring, block, most, on_join, part)
        except TooManyRowsError as error:
            raise RowsNoRoomError(scope, self.nbytes - free + error.rows * out, self.nbytes) from None
