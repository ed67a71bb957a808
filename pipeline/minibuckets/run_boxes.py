"""Mini-bucket elimination in boxes, with messages as chunk files, for any sums and any pruning.

Buckets are eliminated one after another, because the contribution of a message to the bound decides how
the message is read. A message is written while it is computed (`MessageFiles`). The receipts of its chunks record their
least entries, and the least of them is subtracted when the chunks are read.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.chunks import write_chunk
from ...storage.files import Place, refuse_links, remove_folder
from ...storage.spec import Key, Receipt
from ...tasks.boxes.box import new_receipt
from ...tasks.boxes.stores import ChunkFiles, Receipts, box_shape, place
from ...tasks.gpu.arrays import on_host
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.semiring import LOG_SUM, MIN_PLUS
from ..cost_networks.cost_network import CostNetwork, States
from ..plans.problem import sliced_dims
from .bucket_elimination import Extent, Rule, Stop
from .joins import BucketTable, Joins
from .least_costs import LeastCosts, MiniBuckets, Reach, Told, beginning, greedy_states
from .log_sums import Account, LogSums
from .message_boxes import NUMBER, TABLE, Boxing, Fixed, states_of
from .partition import MiniBucket, Scope

_TABLES = "tables"
# The receipt of an elimination that is finished.
_FINISHED: Key = ("finished", (0,))


class MessageFiles:
    """The messages of one elimination, in a folder of its own.

    Parameters
    ----------
    parent : Place
        Of folders of eliminations; what others left unfinished there is removed.
    key : str
        Stands for everything that messages depend on.
    boxing : Boxing

    Raises
    ------
    StorageError
        If there are symbolic links.
    """

    def __init__(self, parent: Place, key: str, boxing: Boxing) -> None:
        self.folder, self.specs = parent / key / _TABLES, boxing.specs
        self._held_cells = boxing.held_cells
        self._held: dict[int, Array] = {}
        if not self.folder.is_dir():
            _remove_unfinished(parent)
        for folder in (ledger.folder_of(self.folder), self.folder / TABLE):
            folder.mkdir(parents=True, exist_ok=True)
        refuse_links(parent / key)
        tables = {TABLE: boxing.specs[0]} if boxing.specs else {}
        self.receipts = Receipts(ChunkFiles(self.folder), lambda: tables)
        self.receipts.resume()

    @property
    def finding(self) -> dict[str, Any] | None:
        """The result of the elimination, if it is finished."""
        receipt = self.receipts.get(_FINISHED)
        return None if receipt is None else receipt.value

    def finish(self, finding: dict[str, Any]) -> None:
        """Store the result, and remove all messages."""
        self.receipts.record([Receipt(*_FINISHED, 0, 0, 0.0, 0, finding, time.time())])
        self.receipts.delete(self.receipts.tables().values())
        self._held = {}

    def has(self, message: int, states: FixedStates) -> bool:
        """Whether the part of a message that agrees with some states is there."""
        chunks = self.specs[message].chunks_at({NUMBER: message, **states})
        return all((TABLE, chunk) in self.receipts for chunk in chunks)

    def write(self, message: int, costs: Array, states: FixedStates, shared: float) -> None:
        """Write the missing chunks of one part of a message, and their receipts.

        Raises
        ------
        DiskFullError
            If there is no room.
        """
        start, spec = time.perf_counter(), self.specs[message]
        extent = Extent.of(costs, shared)._asdict()
        at = {NUMBER: message, **states}
        values, receipts = costs.reshape(box_shape(spec, at)), []
        for chunk in spec.chunks_at(at):
            if (TABLE, chunk) not in self.receipts:
                nbytes, checksum = write_chunk(self.folder, spec, chunk, values[place(spec, chunk, at)])
                receipts.append(new_receipt(TABLE, chunk, nbytes, checksum, start, extent))
        self.receipts.record(receipts)
        if not states and costs.size <= self._held_cells:
            self._held[message] = costs

    def read(self, message: int, states: FixedStates) -> Array:
        """Return the part of a message that agrees with some states, flat, as it was made.

        Raises
        ------
        ChunkLostError
            If a chunk is not as it was written.
        """
        spec = self.specs[message]
        if message in self._held:
            where = tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in spec.variables[1:])
            return self._held[message].reshape(spec.shape[1:])[where].flatten()
        at = {NUMBER: message, **states}
        values = np.empty(box_shape(spec, at), spec.dtype)
        self.receipts.store.load(spec, values, self.receipts.at(spec, at), at)
        return values.reshape(-1)

    def extent(self, message: int) -> Extent:
        """Return the stored facts of a message on disk."""
        known = [Extent(**receipt.value) for receipt in self.receipts.at(self.specs[message], {NUMBER: message})]
        return Extent(
            min(each.least for each in known),
            max(each.greatest for each in known),
            max(each.shared for each in known),
        )


def _remove_unfinished(parent: Place) -> None:
    """Remove the messages of eliminations that were given up: for other sizes, or within other memory."""
    for folder in _folders(parent):
        if _FINISHED not in ledger.load(folder / _TABLES, [_FINISHED]):
            remove_folder(folder)


def _folders(parent: Place) -> Iterable[Place]:
    if not parent.is_dir():
        return []
    paths: Iterable[Any] = parent.iterdir()
    return [path for path in paths if path.is_dir() and not (isinstance(path, Path) and path.is_symlink())]


Array = NDArray[np.float64]
# The position of a box: a state for each of its fixed variables.
FixedStates = Mapping[int, int]
Answered = TypeVar("Answered")


@dataclass(eq=False)
class Boxes(Generic[Answered]):
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
    rule: Rule[Answered]
    joins: Joins
    own: Sequence[BucketTable]
    stop: Callable[[], bool]
    known: list[Answered] = field(default_factory=list)
    """Contributions of the finished messages."""
    belows: list[int] = field(default_factory=list)
    """Amounts that all tables, and the messages below them, added to the bound."""

    def __post_init__(self) -> None:
        self.belows = [0] * len(self.own)

    def run(self) -> bool | None:
        """Eliminate all variables; return whether anything is possible, or None if it was stopped."""
        for minis, fixed in zip(self.boxing.split.buckets, self.boxing.fixed, strict=True):
            made = range(len(self.known), len(self.known) + len(minis))
            if not self._complete(minis, fixed, made):
                return None
            extents, rule = [self.files.extent(message) for message in made], self._rule(minis)
            if not self.rule.entered(minis, extents):
                return False
            for mini, extent in zip(minis, extents, strict=True):
                told = rule.told(extent)
                assert told is not None  # the whole bound, which is greater, is below the cut-off
                self.known.append(told)
                self.belows.append(self._below([mini]) + self.rule.below(told))
        return True

    def _rule(self, minis: Sequence[MiniBucket]) -> Rule[Answered]:
        return self.rule.within(self._below(minis))

    def _below(self, minis: Sequence[MiniBucket]) -> int:
        return sum(self.belows[number] for mini in minis for number in mini.tables)

    def _complete(self, minis: Sequence[MiniBucket], fixed: Fixed, made: range) -> bool:
        """Run the missing boxes of a bucket; return False if ``stop`` ended it."""
        for states in states_of(fixed.shared, self.joins.dims):
            if self.stop():
                return False
            if not all(self.files.has(message, states) for message in made):
                self._box(minis, fixed, made, states)
        return True

    def _box(self, minis: Sequence[MiniBucket], fixed: Fixed, made: range, states: FixedStates) -> None:
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
        self, minis: Sequence[MiniBucket], fixed: Fixed, common: Scope, states: FixedStates
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
        return self._rule(minis).agreed(sums)

    def _projected(self, mini: MiniBucket, tables: Sequence[BucketTable], kept: Scope, states: FixedStates) -> Array:
        joins = replace(self.joins, dims=sliced_dims(self.joins.dims, states))
        return on_host(joins.projected(mini.scope, tables, kept))

    def _tables(self, mini: MiniBucket, parts: int, states: FixedStates) -> list[BucketTable]:
        """Read what a mini-bucket joins, at some states."""
        return [self.table(number, _of(states, self.boxing.split.scopes[number]), parts) for number in mini.tables]

    def table(self, number: int, states: FixedStates, parts: int = 1) -> BucketTable:
        """Return a table of the network, or a message, at some states of its variables."""
        scope, message = self.boxing.split.scopes[number], number - len(self.own)
        costs = self._own(number, states) if message < 0 else self.files.read(message, states)
        if message >= 0:
            self.rule.read(costs, self.known[message])
        return BucketTable(scope, self.rule.raised(costs, parts, out=costs))

    def _own(self, number: int, states: FixedStates) -> Array:
        table, dims = self.own[number], self.joins.dims
        where = tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in table.scope)
        part: Array = table.costs.reshape([dims[v] for v in table.scope])[where].flatten()
        return part


@dataclass(frozen=True, eq=False)
class StoredLeastCosts:
    """A table or message of an elimination, flat; its rows are read on demand."""

    boxes: Boxes[Any]
    number: int

    def __getitem__(self, cells: slice) -> Array:
        """Return the costs of all states of the last variable."""
        scope, dims = self.boxes.boxing.split.scopes[self.number], self.boxes.joins.dims
        at = np.unravel_index(cells.start // dims[scope[-1]], [dims[v] for v in scope[:-1]])
        states = dict(zip(scope[:-1], map(int, at), strict=True))
        row: Array = self.boxes.table(self.number, states).costs
        return row


def _of(states: FixedStates, scope: Scope) -> FixedStates:
    return {v: state for v, state in states.items() if v in scope}


# Bounds by mini-buckets whose messages are on disk: the same as in memory, and resumed from chunks that are there.


@dataclass(frozen=True)
class Spilling:
    """Where messages of one elimination are: in boxes, in folders of their own below this one."""

    boxing: Boxing
    folder: Place


@dataclass(frozen=True)
class Found:
    """A lower bound on a network's totals, whether any is possible, and an assignment that was read from messages."""

    lower: int
    feasible: bool
    states: States | None


def least_total(
    network: CostNetwork, spilling: Spilling, upper: int | None, *, joins: Joins, stop: Stop
) -> Found | None:
    """Bound the least total, as :func:`~.least_costs.eliminate` does, and decode; None if it was stopped.

    Parameters
    ----------
    network : CostNetwork
    spilling : Spilling
    upper : int, optional
        A cut-off, as there.
    joins : Joins
        Over all states of every variable.
    stop : callable
        Called before each box; finished boxes stay on disk.
    """
    boxing = spilling.boxing
    tables, reach = beginning(network, boxing.split, upper)
    if not reach.feasible:
        return Found(reach.bound, False, None)
    files = MessageFiles(spilling.folder, _key(MIN_PLUS.name, (reach.lower, reach.upper), tables, boxing), boxing)
    if (known := files.finding) is not None:
        states = known["states"]
        return Found(known["lower"], known["feasible"], None if states is None else tuple(states))

    def attempt() -> Found | None:
        rule = LeastCosts(Reach(reach.lower, reach.upper))
        boxes = Boxes(boxing, files, rule, joins, tables, stop)
        feasible = boxes.run()
        if feasible is None:
            return None
        return Found(rule.reach.bound, feasible, _decoded(boxes, rule.reach) if feasible else None)

    found = files.receipts.until_whole(attempt)
    if found is not None:
        files.finish(vars(found))
    return found


def log_sum(
    tables: Sequence[BucketTable], spilling: Spilling, *, joins: Joins, stop: Stop
) -> tuple[float, float] | None:
    """Bound a sum of products, as :func:`~.log_sums.log_sum_bounds` does; None if it was stopped."""
    boxing = spilling.boxing
    files = MessageFiles(spilling.folder, _key(LOG_SUM.name, (), tables, boxing), boxing)
    if (known := files.finding) is not None:
        return known["lower"], known["upper"]

    def attempt() -> tuple[float, float] | None:
        account = Account(boxing.split, tables)
        possible = Boxes(boxing, files, LogSums(account), joins, tables, stop).run()
        if possible is None:
            return None
        return account.bounds() if possible else (-math.inf, -math.inf)

    found = files.receipts.until_whole(attempt)
    if found is not None:
        files.finish({"lower": found[0], "upper": found[1]})
    return found


def _decoded(boxes: Boxes[Told], reach: Reach) -> States:
    """Read an assignment from messages on disk."""
    split, n = boxes.boxing.split, len(boxes.boxing.split.dims)
    buckets: list[tuple[BucketTable, ...]] = [()] * n
    for v, minis in zip(split.order, split.buckets, strict=True):
        numbers = [number for mini in minis for number in mini.tables]
        buckets[v] = tuple(BucketTable(split.scopes[number], StoredLeastCosts(boxes, number)) for number in numbers)
    empty = ((),) * n
    found = MiniBuckets(
        split.order, reach.lower, True, split.exact, tuple(buckets), empty, (0,) * n, split.cells, split.largest
    )
    return greedy_states(found, split.dims)


def _key(name: str, begun: tuple[int, ...], tables: Sequence[BucketTable], boxing: Boxing) -> str:
    """Return a hash of everything that messages and their chunks depend on."""
    split = boxing.split
    chunks = [sorted(spec.chunked - {NUMBER}) for spec in boxing.specs]
    digest = hashlib.sha256(repr((name, begun, split.dims, split.order, split.scopes, split.buckets)).encode())
    digest.update(repr((boxing.fixed, chunks)).encode())
    for table in tables:
        digest.update(np.ascontiguousarray(table.costs).tobytes())
    return digest.hexdigest()[:32]
