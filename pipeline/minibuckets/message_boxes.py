"""How mini-buckets whose messages leave memory are done in boxes: from sizes alone.

A box fixes states of some variables, reads what its tables have there, and writes what the messages have there. The
mini-buckets of a bucket that was split are compared on the variables they share, so that their boxes first fix
variables of these; each may fix more of its own. A message is cut into chunks along what its writer or its reader
fixes: both touch whole chunks only. Readers are planned before writers, which prefer to fix the same variables.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, product
from typing import Final

from ...storage.spec import TableSpec
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import CELL_BYTES
from ..errors import BudgetError, format_bytes
from .partition import MiniBucket, Partition, Scope

# Small messages are cached in at most 1 / this of the memory, to avoid reading them again.
_HELD_PART: Final = 8
# Memory factor of a message while it is made: the message and the compared values in it.
_MESSAGE_COPIES: Final = 2

#: All messages are files of this table. Its first axis, treated as a variable, is the number of the message.
TABLE, NUMBER = "messages", -1
_DTYPE = "float64"


@dataclass(frozen=True)
class Fixed:
    """Variables that the boxes of a bucket fix.

    Parameters
    ----------
    shared : tuple of int
        Variables that all its mini-buckets have.
    own : tuple of tuple of int
        For each mini-bucket further variables, which not all have.
    """

    shared: tuple[int, ...]
    own: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Boxing:
    """Boxes of all buckets, and the messages between them.

    Parameters
    ----------
    split : Partition
    fixed : tuple of Fixed
        For each place of the order.
    specs : tuple of TableSpec
        The messages, in the order they are made; chunks are named by number and coordinates.
    held_cells : int
        Messages with at most this many cells are also cached in memory.
    peak_bytes : int
        Memory of the network's tables, messages that are kept, and the largest box.
    disk_bytes, read_bytes : int
        Of all messages, and what boxes read of them.
    """

    split: Partition
    fixed: tuple[Fixed, ...]
    specs: tuple[TableSpec, ...]
    held_cells: int
    peak_bytes: int
    disk_bytes: int
    read_bytes: int


def boxed(split: Partition, memory_bytes: int) -> Boxing:
    """Choose boxes that fit memory.

    Raises
    ------
    BudgetError
        If a bucket does not fit even in its smallest boxes; the message gives both numbers.
    """
    return _Boxes(split, memory_bytes).plan()


def states_of(variables: Sequence[int], dims: Sequence[int]) -> Iterator[dict[int, int]]:
    """Yield all states of some variables; the last one varies fastest."""
    for states in product(*(range(dims[v]) for v in variables)):
        yield dict(zip(variables, states, strict=True))


class _Boxes:
    """The choice, from the last bucket to the first."""

    def __init__(self, split: Partition, memory_bytes: int) -> None:
        self.split, self.memory_bytes = split, memory_bytes
        self.first = len(split.scopes) - sum(map(len, split.buckets))
        self.cells = [self.size(scope) for scope in split.scopes]
        self.held_cells, held = self.small()
        self.standing = sum(self.cells[: self.first]) + held
        self.chunked: list[set[int]] = [set() for _ in split.scopes]
        self.peak = self.read = 0

    def size(self, scope: Iterable[int], fixed: Collection[int] = ()) -> int:
        """Return the number of cells over some variables, with ``fixed`` ones left out."""
        return math.prod([self.split.dims[v] for v in scope if v not in fixed])

    def small(self) -> tuple[int, int]:
        """The largest size so that messages up to it fit their share of memory, and the cells of these."""
        room = self.memory_bytes // (_HELD_PART * CELL_BYTES)
        sizes = sorted(self.cells[self.first :])
        ends = [i for i, after in enumerate([*sizes[1:], math.inf]) if after > sizes[i]] if sizes else []
        totals = list(accumulate(sizes))
        fitting = [(sizes[i], totals[i]) for i in ends if totals[i] <= room]
        return max(fitting, default=(0, 0))

    def plan(self) -> Boxing:
        """Choose for every bucket."""
        made, fixed = len(self.split.scopes), []
        for minis in reversed(self.split.buckets):
            made -= len(minis)
            fixed.append(self.bucket(minis, range(made, made + len(minis))))
        messages = range(self.first, len(self.cells))
        return Boxing(
            self.split,
            tuple(reversed(fixed)),
            tuple(self.spec(number) for number in messages),
            self.held_cells,
            CELL_BYTES * (self.standing + self.peak),
            CELL_BYTES * sum(self.cells[number] for number in messages),
            CELL_BYTES * self.read,
        )

    def spec(self, number: int) -> TableSpec:
        """The table of messages, in the shape of one of them."""
        scope = self.split.scopes[number]
        shape = (len(self.cells) - self.first, *(self.split.dims[v] for v in scope))
        variables, cut = (NUMBER, *scope), frozenset((NUMBER, *self.chunked[number]))
        return TableSpec(TABLE, variables, tuple(map(str, variables)), shape, cut, _DTYPE)

    def bucket(self, minis: Sequence[MiniBucket], made: range) -> Fixed:
        """Choose what the boxes of a bucket fix, and cut its tables so."""
        if not minis:
            return Fixed((), ())
        shared, own = self.chosen(minis, made)
        passes = 2 if len(minis) > 1 else 1
        for mini, number, more in zip(minis, made, own, strict=True):
            fixed = {*shared, *more}
            for table in (*mini.tables, number):
                self.chunked[table] |= fixed.intersection(self.split.scopes[table])
            for table in mini.tables:
                if table >= self.first and self.cells[table] > self.held_cells:
                    again = self.size(fixed.difference(self.split.scopes[table]))
                    self.read += passes * again * self.cells[table]
        return Fixed(tuple(shared), tuple(map(tuple, own)))

    def chosen(self, minis: Sequence[MiniBucket], made: range) -> tuple[list[int], list[list[int]]]:
        """Fix variable after variable until the largest box fits."""
        common = self.split.shared(minis)
        cut = set[int]().union(*(self.chunked[number] for number in made))
        shared: list[int] = []
        own: list[list[int]] = [[] for _ in minis]
        while True:
            needs = [self.need(mini, {*shared, *more}) for mini, more in zip(minis, own, strict=True)]
            beside = (2 * len(minis) + 4) * self.size(common, shared) if len(minis) > 1 else 0
            if CELL_BYTES * (self.standing + beside + max(needs)) <= self.memory_bytes:
                self.peak = max(self.peak, beside + max(needs))
                return shared, own
            largest = needs.index(max(needs))
            if free := self.free(common, minis[0].variable, shared):
                shared.append(_preferred(free, cut))
            elif free := self.free(minis[largest].message, minis[0].variable, (*common, *own[largest])):
                own[largest].append(_preferred(free, cut))
            else:
                raise self.refusal(CELL_BYTES * (self.standing + beside + max(needs)))

    def need(self, mini: MiniBucket, fixed: Collection[int]) -> int:
        """Cells that a box of a mini-bucket reads and makes."""
        read = sum(self.size(self.split.scopes[table], fixed) for table in mini.tables)
        return read + _MESSAGE_COPIES * self.size(mini.message, fixed)

    def free(self, scope: Scope, variable: int, fixed: Collection[int]) -> list[int]:
        """Return the variables that can also be fixed, the last eliminated first."""
        return [v for v in scope if v != variable and v not in fixed and self.split.dims[v] > 1]

    def refusal(self, needed: int) -> BudgetError:
        there = format_bytes(max(self.memory_bytes, 0))
        return BudgetError(
            f"mini-buckets of {self.split.largest} cells take {format_bytes(needed)} even in their smallest boxes, "
            f"more than the {there} of memory; give a smaller --z or a larger --memory"
        )


def _preferred(free: Sequence[int], cut: Collection[int]) -> int:
    return next((v for v in free if v in cut), free[0])
