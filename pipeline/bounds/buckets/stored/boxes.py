"""Mini-bucket elimination in boxes, whose messages are chunk files: whatever is added up, and whatever is cut off.

Buckets follow each other, as what a message tells the bound says how it is read. A message is written as it is made:
the least entry of its chunks is known by their receipts, and taken away when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .....storage.errors import ChunkLostError
from .....tasks.gpu.arrays import on_host
from ....errors import InternalError
from ....plans.problem import sliced_dims
from ..joins import BucketTable, Joins
from ..partition import MiniBucket, Scope
from .boxing import Boxing, Fixed, states_of
from .message_files import Extent, MessageFiles, States

Array = NDArray[np.float64]
R = TypeVar("R")
Told = TypeVar("Told")

# A chunk that is lost again and again is a broken disk.
_ATTEMPTS = 5


class Rule(Protocol[Told]):
    """How the mini-buckets of a bucket agree, what its messages tell the bound, and how they are read then."""

    def agreed(self, sums: Sequence[Array]) -> tuple[list[Array], float]:
        """Return what to add to each mini-bucket so that they agree, and how large what was compared is."""
        ...

    def added(self, total: Array, share: Array) -> Array:
        """Return what parts of a mini-bucket that fix states of a variable are together."""
        ...

    def written(self, costs: Array, parts: int) -> None:
        """Make of a projection of one of several mini-buckets a message, in place."""
        ...

    def told(self, minis: Sequence[MiniBucket], extents: Sequence[Extent]) -> list[Told] | None:
        """Take account of a bucket's messages; None if nothing is possible."""
        ...

    def read(self, costs: Array, told: Told | None, parts: int) -> None:
        """Turn a message, or a table of the network, into what one of several mini-buckets joins, in place."""
        ...


@dataclass(eq=False)
class Boxes(Generic[Told]):
    """One elimination.

    Parameters
    ----------
    boxing : Boxing
    files : MessageFiles
    rule : Rule
    joins : Joins
    own : sequence of BucketTable
        Tables of the network.
    stop : callable
        Asked before each box.
    """

    boxing: Boxing
    files: MessageFiles
    rule: Rule[Told]
    joins: Joins
    own: Sequence[BucketTable]
    stop: Callable[[], bool]
    known: list[Told] = field(default_factory=list)
    """What the messages told that were read so far."""

    def run(self) -> bool | None:
        """Eliminate all variables; return whether anything is possible, or None if it was stopped."""
        for minis, fixed in zip(self.boxing.split.buckets, self.boxing.fixed, strict=True):
            made = range(len(self.known), len(self.known) + len(minis))
            if not self._complete(minis, fixed, made):
                return None
            told = self.rule.told(minis, [self.files.extent(message) for message in made])
            if told is None:
                return False
            self.known += told
        return True

    def _complete(self, minis: Sequence[MiniBucket], fixed: Fixed, made: range) -> bool:
        """Run the boxes of a bucket that lack; return False if it was stopped."""
        for states in states_of(fixed.shared, self.joins.dims):
            if self.stop():
                return False
            if not all(self.files.has(message, states) for message in made):
                self._box(minis, fixed, made, states)
        return True

    def _box(self, minis: Sequence[MiniBucket], fixed: Fixed, made: range, states: States) -> None:
        """Write what the messages of a bucket have at some states."""
        common = self.boxing.split.shared(minis)
        shifts, size = self._agreed(minis, fixed, common, states) if len(minis) > 1 else ([], 0.0)
        for mini, own, message in zip(minis, fixed.own, made, strict=True):
            added = [BucketTable(common, shifts[message - made.start])] if shifts else []
            for more in states_of(own, self.joins.dims):
                at = {**states, **more}
                if not self.files.has(message, _of(at, mini.message)):
                    costs = self._projected(mini, [*self._tables(mini, len(minis), at), *added], mini.message, at)
                    self.rule.written(costs, len(minis))
                    self.files.write(message, costs, at, size)

    def _agreed(
        self, minis: Sequence[MiniBucket], fixed: Fixed, common: Scope, states: States
    ) -> tuple[list[Array], float]:
        """Compare mini-buckets on what they share."""
        sums = []
        for mini, own in zip(minis, fixed.own, strict=True):
            total: Array | None = None
            for more in states_of(own, self.joins.dims):
                at = {**states, **more}
                share = self._projected(mini, self._tables(mini, len(minis), at), common, at)
                total = share if total is None else self.rule.added(total, share)
            assert total is not None
            sums.append(total)
        return self.rule.agreed(sums)

    def _projected(self, mini: MiniBucket, tables: Sequence[BucketTable], kept: Scope, states: States) -> Array:
        joins = replace(self.joins, dims=sliced_dims(self.joins.dims, states))
        return on_host(joins.projected(mini.scope, tables, kept))

    def _tables(self, mini: MiniBucket, parts: int, states: States) -> list[BucketTable]:
        """Read what a mini-bucket joins, at some states."""
        return [self.table(number, _of(states, self.boxing.split.scopes[number]), parts) for number in mini.tables]

    def table(self, number: int, states: States, parts: int = 1) -> BucketTable:
        """Return a table of the network, or a message, at some states of its variables."""
        scope, message = self.boxing.split.scopes[number], number - len(self.own)
        costs = self._own(number, states) if message < 0 else self.files.read(message, states)
        self.rule.read(costs, None if message < 0 else self.known[message], parts)
        return BucketTable(scope, costs)

    def _own(self, number: int, states: States) -> Array:
        table, dims = self.own[number], self.joins.dims
        where = tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in table.scope)
        part: Array = table.costs.reshape([dims[v] for v in table.scope])[where].flatten()
        return part


@dataclass(frozen=True, eq=False)
class StoredCosts:
    """A table or message of an elimination, flat, of which rows are read as they are asked for."""

    boxes: Boxes[Any]
    number: int

    def __getitem__(self, cells: slice) -> Array:
        """Return the costs of all states of the last variable."""
        scope, dims = self.boxes.boxing.split.scopes[self.number], self.boxes.joins.dims
        at = np.unravel_index(cells.start // dims[scope[-1]], [dims[v] for v in scope[:-1]])
        states = dict(zip(scope[:-1], map(int, at), strict=True))
        row: Array = self.boxes.table(self.number, states).costs
        return row


def unless_lost(files: MessageFiles, attempt: Callable[[], R]) -> R:
    """Try until no chunk is lost: once one turns out to be, all are verified, and what lacks is made again."""
    for _ in range(_ATTEMPTS):
        try:
            return attempt()
        except ChunkLostError:
            files.verify()
    raise InternalError(f"chunks of {files.folder} are lost as fast as they are written")


def _of(states: States, scope: Scope) -> States:
    return {v: state for v, state in states.items() if v in scope}
