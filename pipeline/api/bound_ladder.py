"""Rounds of bounds: mini-buckets that grow while time and memory allow, then triangles and other orders."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...cluster.pool import DeviceThreads, Pool, SerialPool
from ...storage.files import Place, file_bytes, free_bytes
from ...storage.run_folder import MESSAGES
from ...tasks.compiler.compile_limits import NotCompiledError
from ...tasks.steps.light_dataclass import dataclass
from ..answering.prepared import local_order
from ..errors import BudgetError, format_bytes
from ..machine.resources import Resources
from ..minibuckets.joins import BucketPolicy
from ..minibuckets.partition import Partition, Size, partition
from ..minibuckets.rounds import OptimumBounds, Stop
from ..options import Options
from ..orders.depth_first import depth_first_order, rearranged
from ..orders.min_fill import min_fill_order
from ..orders.tree_search import TreeSearch
from ..preprocessing.preprocess import Network
from ..results.bounds import BoundRound, Bounds, Number
from ..trees.tree import elimination_order

if TYPE_CHECKING:
    from ..minibuckets.run_boxes import Spilling
    from ..proofs.provers.triangles import TriangleBounds

# Safety factor on the predicted seconds of a round, because the prediction follows the fastest round so far.
_OPTIMISM: Final = 1.5
# Triangles get 1 / this of the remaining time, and then all of it if they raised the bound.
_TRIANGLE_PART: Final = 4.0

Rounds = Iterator[BoundRound]


class BoundedQuestion(Protocol):
    """A query to bound: its network, and the bounds so far."""

    network: Network

    @property
    def dims(self) -> tuple[int, ...]:
        """Domain sizes of the variables to eliminate."""
        ...

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Scopes of the functions to eliminate."""
        ...

    @property
    def closed(self) -> bool:
        """Whether no further round can improve the bounds."""
        ...

    def name(self, v: int) -> str:
        """Return the name of a variable to eliminate."""
        ...

    def attempt(self, split: Partition, keep: bool, stop: Stop | None, spilling: Spilling | None = None) -> Any:
        """Eliminate once, or return None if stopped; several threads may do so concurrently."""
        ...

    def take(self, found: Any) -> None:
        """Take over the result of an elimination."""
        ...

    def interval(self) -> tuple[Number | None, Number | None]:
        """Return the lower and the upper bound; None for an unknown bound."""
        ...

    def found(self) -> Bounds:
        """Return the bounds so far."""
        ...


# Where messages of mini-buckets may be: in memory, or in a run directory that holds all of them.


@dataclass(frozen=True)
class MessagePlace:
    """The place of messages: in memory if ``keep``, or on disk if ``spilling``; otherwise no message is stored."""

    keep: bool
    spilling: Spilling | None = None

    @property
    def disk_bytes(self) -> int:
        """Bytes of messages on disk."""
        return 0 if self.spilling is None else self.spilling.boxing.disk_bytes

    @property
    def seconds(self) -> float:
        """Predicted seconds to write and read the messages."""
        from ..budget.budget_policy import DISK_RATE

        return 0.0 if self.spilling is None else (self.disk_bytes + self.spilling.boxing.read_bytes) / DISK_RATE


@dataclass(frozen=True)
class Room:
    """Memory and disk that messages may use.

    Parameters
    ----------
    resources : Resources
    beside : int
        Bytes of the model.
    """

    resources: Resources
    beside: int

    def keeps(self, split: Partition) -> bool:
        """Whether memory holds all messages of an elimination."""
        return split.kept_bytes + self.beside <= self.resources.memory_bytes

    def place(self, split: Partition, needed: bool) -> MessagePlace | None:
        """Return where the messages of an elimination can be; None if nowhere and it is not needed.

        Raises
        ------
        BudgetError
            If nowhere and it is needed, with both numbers.
        """
        memory = self.resources.memory_bytes
        if self.keeps(split):
            return MessagePlace(True)
        refusal = None
        if (folder := self.resources.asked.folder) is not None:
            try:
                return MessagePlace(False, self._spilling(split, folder / MESSAGES))
            except BudgetError as error:
                refusal = error
        if refusal is not None and needed:
            raise refusal
        if split.live_bytes + self.beside <= memory:
            return MessagePlace(False)
        if needed:
            raise self._refusal(split)
        return None

    def _spilling(self, split: Partition, folder: Place) -> Spilling:
        from ..minibuckets.message_boxes import boxed
        from ..minibuckets.run_boxes import Spilling

        boxing = boxed(split, self.resources.memory_bytes - self.beside)
        asked = self.resources.asked.disk_bytes
        there = free_bytes(folder) + file_bytes(folder, "c.*") if asked is None else asked
        if boxing.disk_bytes > there:
            raise BudgetError(
                f"messages of mini-buckets of {split.largest} cells take {format_bytes(boxing.disk_bytes)} of disk, "
                f"more than the {format_bytes(there)} there are; give a smaller --z, a larger --memory or --disk, or "
                "another --workdir"
            )
        return Spilling(boxing, folder)

    def _refusal(self, split: Partition) -> BudgetError:
        wanted, there = format_bytes(split.live_bytes + self.beside), format_bytes(self.resources.memory_bytes)
        return BudgetError(
            f"mini-buckets of {split.largest} cells take {wanted}, more than the {there} of memory; give a smaller "
            "--z, a larger --memory, a --workdir for messages on disk, or --time without --z: mini-buckets grow while "
            "they fit"
        )


def _searched(network: Network, order: Any, asked: Options) -> tuple[int, ...]:
    """Return the requested elimination order, which is a name or a list of variables."""
    search = TreeSearch(network.dims, network.scopes, "bucket", order, asked.order_time, asked.seed)
    tree = search.cheapest()
    return rearranged(network.dims, network.scopes, elimination_order(tree))


@dataclass
class RoundPace:
    """Predicts the seconds of eliminations, from their cells and from the fastest round so far, because the first round
    may load libraries.
    """

    factor: float = 1.0
    measured: bool = field(default=False)

    def seconds(self, split: Partition, query: str) -> float:
        """Predict an elimination."""
        return self.factor * self._nominal(split, query)

    def learn(self, split: Partition, query: str, seconds: float) -> None:
        """Learn from the seconds of a finished round."""
        found = seconds / self._nominal(split, query)
        self.factor, self.measured = min(self.factor, found) if self.measured else found, True

    def _nominal(self, split: Partition, query: str) -> float:
        policy = BucketPolicy.current()
        return policy.bucket_seconds * sum(map(len, split.buckets)) + policy.cell_seconds * split.cells


@dataclass
class Ladder:
    """Rounds of mini-buckets of growing size, while memory and time allow, then of triangles and other orders.

    Parameters
    ----------
    question : BoundedQuestion
    resources : Resources
    start : float
        Start of the query, by ``perf_counter``.
    limit : float
        Seconds for all rounds together.
    """

    question: BoundedQuestion
    resources: Resources
    start: float
    limit: float
    pace: RoundPace = field(default_factory=RoundPace)
    last: Partition | None = None
    """Mini-buckets of the last elimination that was not stopped."""

    def order(self) -> tuple[int, ...]:
        """Find an elimination order. If the problem is not easy, it is prepared first."""
        asked, network = self.resources.asked, self.question.network
        if asked.order != "auto" or asked.order_time is not None:
            order: Any = asked.order if isinstance(asked.order, str) else local_order(network, asked.order)
            return _searched(network, order, asked)
        quick = rearranged(network.dims, network.scopes, min_fill_order(network.dims, network.scopes, asked.seed))
        if partition(network.dims, network.scopes, quick, Size()).cells <= BucketPolicy.current().easy_cells:
            return quick
        if isinstance(self.question, OptimumBounds):
            with suppress(NotCompiledError):
                self.question.prepare(self._is_late)
        return depth_first_order(self.question.dims, self.question.scopes, seed=asked.seed)

    def climb(self, order: tuple[int, ...], z: int | None) -> Rounds:
        """Run rounds of growing mini-buckets, or a single round if ``z`` is given."""
        if self.question.closed:
            return
        if not self.question.scopes:
            self.question.take(self.question.attempt(partition((), (), (), Size()), True, None))
            return
        if z is not None:
            size = Size(variables=z)
            yield from self._grow([(size, self._split(order, size))], needed=True)
            return
        sizes = self._sizes(order)
        small, begun = self._small(sizes)
        done = yield from self._grow(chain(small[begun:], sizes), needed=not begun)
        if done is None and begun:
            done = yield from self._grow(small[:begun], needed=True)
        if done is not None and not self.question.closed and not done[1].exact:
            yield from self._otherwise(order, done[0])

    def _split(self, order: tuple[int, ...], size: Size) -> Partition:
        return partition(self.question.dims, self.question.scopes, order, size)

    def _sizes(self, order: tuple[int, ...]) -> Iterator[tuple[Size, Partition]]:
        """Yield partitions of growing sizes, each larger than the last."""
        cells = 0
        for bits in (4, 8, 12, *range(14, 62, 2)):
            size = Size(cells=1 << bits)
            split = self._split(order, size)
            if split.cells != cells:
                yield size, split
            if split.exact:
                return
            cells = split.cells

    def _small(self, sizes: Iterator[tuple[Size, Partition]]) -> tuple[list[tuple[Size, Partition]], int]:
        """Return the first sizes, and the index of the first round: the largest size within its time and memory.

        Any size that takes no longer than the smallest size, which has the most mini-buckets, is as good a start.
        """
        found, begun = [next(sizes)], 0
        left = self._end - perf_counter()
        most = max(self._seconds(found[0][1]), left / BucketPolicy.current().first_part)
        for each in sizes:
            found.append(each)
            if left <= 0 or self._seconds(each[1]) > most or not self.room.keeps(each[1]):
                break
            begun = len(found) - 1
        return found, begun

    def _seconds(self, split: Partition) -> float:
        return self.pace.seconds(split, self.question.network.query)

    def _grow(
        self, splits: Iterable[tuple[Size, Partition]], needed: bool
    ) -> Generator[BoundRound, None, tuple[Size, Partition] | None]:
        """Run rounds in order while the next round fits; return size and partition of the last round, None without one.

        If ``needed``, the first round must fit, and it runs to its end.
        """
        done = None
        for size, split in splits:
            place = self.room.place(split, needed)
            late = done is not None and self._would_be_late(self._seconds(split) + (place.seconds if place else 0.0))
            if place is None or late:
                break
            found = self._round(size, split, place, must=needed)
            if found is None:
                break
            yield found
            done, needed = (size, split), False
            if split.exact or self.question.closed:
                break
        return done

    def _round(self, size: Size, split: Partition, place: MessagePlace, must: bool = False) -> BoundRound | None:
        """Eliminate once; None if it was stopped."""
        found = self._attempt(split, place, None if must else self._is_late)
        return None if found is None else self._taken(size, split, place, found)

    def _attempt(self, split: Partition, place: MessagePlace, stop: Stop | None) -> tuple[Any, float] | None:
        """Eliminate once, and return the result and the seconds, or None if the elimination was stopped."""
        start = perf_counter()
        try:
            found = self.question.attempt(split, place.keep, stop, place.spilling)
        except NotCompiledError:
            return None
        return None if found is None else (found, perf_counter() - start)

    def _taken(
        self, size: Size, split: Partition, place: MessagePlace, found: tuple[Any, float], way: str = ""
    ) -> BoundRound:
        """Take over the result of an elimination, and return its round."""
        self.question.take(found[0])
        self.last = split
        self.pace.learn(split, self.question.network.query, found[1])
        interval = self.question.interval()
        asked = size.variables, size.cells, split.cells, split.largest, split.exact
        return BoundRound(*asked, *interval, found[1], disk_bytes=place.disk_bytes, way=way)

    def _otherwise(self, order: tuple[int, ...], size: Size) -> Rounds:
        """Use the remaining time if no larger mini-bucket fits: triangles for an optimum, then other orders.

        Triangles first get a part of this time, and then all of it if they raised the bound.
        """
        if isinstance(self.question, OptimumBounds):
            yield from self._triangles()
        if self.resources.asked.order == "auto" and not self.question.closed:
            yield from self._other_orders(order, size)

    def _triangles(self) -> Rounds:
        """Let triangles of functions agree, which needs no large table; the best bound for interfering radio links."""
        question = self.question
        assert isinstance(question, OptimumBounds)
        from ..proofs.provers.triangles import TriangleBounds

        search = TriangleBounds(question.costs, question.cutoff)
        search.memory_bytes = self.resources.memory_bytes - self.room.beside
        part = (self._end - perf_counter()) / _TRIANGLE_PART
        for end in (perf_counter() + part, self._end):
            start, before = perf_counter(), question.lower
            if start >= end or search.done or search.hopeless or not self._agree(search, end):
                return
            if search.nbytes:
                interval = question.interval()
                yield BoundRound(None, None, 0, 0, False, *interval, perf_counter() - start, way="triangles")
            if question.closed or question.lower == before:
                return

    def _agree(self, search: TriangleBounds, end: float) -> bool:
        """Let triangles shift costs until ``end``; return False if their loops cannot be compiled in time."""
        assert isinstance(self.question, OptimumBounds)
        try:
            found = search.run(lambda: perf_counter() > end, lambda *_: None, lambda _: None)
        except NotCompiledError:
            return False
        self.question.learn(found.lower, found.states, found.feasible)
        return True

    def _other_orders(self, order: tuple[int, ...], size: Size) -> Rounds:
        """Run mini-buckets of one size along random elimination orders, because bounds differ between orders.

        Several GPUs run concurrently, each with an order of its own.
        """
        place, sent = MessagePlace(True), list[Partition]()

        def attempt(split: Partition) -> tuple[Any, float] | None:
            return self._attempt(split, place, lambda: self._is_late() or self.question.closed)

        def calls() -> Iterator[tuple[Partition]]:
            for split in self._other_splits(order, size):
                sent.append(split)
                yield (split,)

        for number, found in enumerate(self._devices(size, order).stream(attempt, calls())):
            if found is None:
                return
            yield self._taken(size, sent[number], place, found, "another order")
            if self.question.closed:
                return

    def _other_splits(self, order: tuple[int, ...], size: Size) -> Iterator[Partition]:
        """Yield the partitions of other orders while memory and time allow."""
        seed, known = self.resources.asked.seed, {order}
        for number in range(BucketPolicy.current().other_orders):
            if self._is_late():
                return
            found = min_fill_order(self.question.dims, self.question.scopes, seed + number)
            split = self._split(found, size)
            if found in known or not self.room.keeps(split):
                continue
            known.add(found)
            if self._would_be_late(self._seconds(split)):
                return
            yield split

    def _devices(self, size: Size, order: tuple[int, ...]) -> Pool:
        """Return the GPUs for elimination orders: as many as this machine's memory can store messages for."""
        held = self._split(order, size).kept_bytes + self.room.beside
        count = min(self.resources.gpu_count, self.resources.host_bytes // max(held, 1))
        return DeviceThreads(count, at_a_time=1) if count > 1 else SerialPool()

    @property
    def _end(self) -> float:
        return self.start + self.limit

    def _is_late(self) -> bool:
        return perf_counter() > self._end

    def _would_be_late(self, seconds: float) -> bool:
        return perf_counter() + _OPTIMISM * seconds > self._end

    @property
    def room(self) -> Room:
        """Memory and disk that messages may use."""
        return Room(self.resources, self.question.network.model.nbytes)
