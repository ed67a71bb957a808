"""Optima by bounded rows: beams find assignments, mini-buckets and beams grow until nothing need be cut."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ....tasks.compiler.code_cache import Patience
from ....tasks.gpu.arrays import free_pools
from ....tasks.gpu.memory import out_of_memory
from ....tasks.rows.device_layers import DEVICE
from ....tasks.rows.layers import host
from ...cost_networks.cost_network import CostNetwork, States
from ...cost_networks.preparation import prepare
from ...minibuckets.least_costs import MiniBuckets, eliminate
from ...minibuckets.partition import Partition, Size, partition
from ...orders.depth_first import depth_first_order
from ..incumbent import Incumbent
from ..limits import OnBounds, Outcome
from ..prover import SearchProver
from ..prover_policy import ProverPolicy
from .layered_search import LayeredSearch, Stop

if TYPE_CHECKING:
    from .layer_files import Finished, RowFiles
    from .stored_layers import StoredLayers

# Share of a device's memory that mini-buckets may take: the closer their bounds, the fewer rows are beside them.
_DEVICE_BOUNDS_SHARE: Final = 0.75
# Layers are shared by no more threads than have this much memory each, a few times what one needs beside its rows.
_THREAD_BYTES: Final = 1 << 22
# Mini-buckets of a search on disk take one part in this many of the memory, so that they can stay while others have
# their turn.
_STORED_BOUNDS_PART: Final = 6
# log2 of the cells of such mini-buckets, the first that fit.
_STORED_BOUNDS_BITS: Final = (
    28,
    26,
    24,
    22,
    20,
    18,
    16,
    14,
    12,
    10,
    8,
    6,
    4,
)
# Seconds that NumPy takes for a cell of a join.
_JOIN_CELL_SECONDS: Final = 5e-9


class LayerRound(NamedTuple):
    """Cells of the largest mini-bucket, and rows of the widest layer."""

    cells: int
    width: int


#: Larger mini-buckets gain more than wider layers until they take longer.
ROUNDS = (
    LayerRound(1 << 12, 300),
    LayerRound(1 << 14, 3_000),
    LayerRound(1 << 17, 10_000),
    LayerRound(1 << 19, 50_000),
    LayerRound(1 << 20, 200_000),
    LayerRound(1 << 22, 300_000),
    LayerRound(1 << 22, 1_000_000),
    LayerRound(1 << 24, 3_000_000),
    LayerRound(1 << 26, 10_000_000),
    LayerRound(1 << 28, 30_000_000),
)
#: Where there is a device, rounds begin there as soon as it is faster.
DEVICE_ROUNDS = (
    *ROUNDS[:4],
    LayerRound(1 << 22, 1_000_000),
    *ROUNDS[7:],
    LayerRound(1 << 30, 100_000_000),
)

_LOG = logging.getLogger(__name__)
_PATIENCE = Patience("tasks.cpu.stream_loops", "stream")


def _bucket_bytes(memory_bytes: int, on_device: bool) -> int:
    """Return the memory limit of larger mini-buckets; beyond it, layers become wider instead."""
    return int(memory_bytes * _DEVICE_BOUNDS_SHARE) if on_device else memory_bytes // 2


class RowSearch:
    """A search for an optimum with ever larger mini-buckets and ever wider layers; it goes on where it was stopped.

    Values excluded by a found assignment are removed from the network before the next round. With ``files``, layers are
    stored on disk once no round is left, and no row is cut. With ``finished`` layers in ``files``, the search continues
    from these, with their network and order. ``best`` returns the best assignment of the first network, for the
    continued search.

    Parameters
    ----------
    network : CostNetwork
    order : sequence of int, optional
        Elimination order; see :func:`.depth_first.depth_first_order`. Without one the network is first made smaller
        by the cut-off, and then ordered.
    upper : int, optional
        Only totals below it interest.
    device_bytes : callable, optional
        Rounds with many rows run on the GPU, within this memory.
    rounds : sequence of LayerRound
        Sizes that are tried, one after the other.
    threads : int
        Share large joins and layers.

    Attributes
    ----------
    memory_bytes : int
        Mini-buckets and rows take no more.
    lower : int
        No total is below it, or below the cut-off.
    total, states : optional
        The best assignment that the search itself found.
    done, hopeless : bool
        Whether the proof is complete; whether no round is left, or no memory for the next.
    """

    def __init__(
        self,
        network: CostNetwork,
        order: Sequence[int] | None,
        upper: int | None,
        *,
        device_bytes: Callable[[], int] | None = None,
        rounds: Sequence[LayerRound],
        threads: int = 1,
        files: Callable[[], RowFiles] | None = None,
        finished: Finished | None = None,
        best: Callable[[], States | None] = lambda: None,
    ) -> None:
        """Prepare a search by layers of sparse partial assignments; nothing is computed yet.

        Parameters
        ----------
        network : CostNetwork
        order : sequence of int or None
            Order of the variables; None if none is known.
        upper : int or None
            Cut-off: totals of this or more are pruned.
        device_bytes : callable, optional
            Free memory of the device, if there is one.
        rounds : sequence of LayerRound
            Sizes of the layers and mini-buckets to try.
        threads : int
        files : callable, optional
            Opens files for layers on disk.
        finished : Finished, optional
            Layers of an earlier run.
        best : callable
            Returns the best known assignment.
        """
        self.network, self.order, self.upper = network, tuple(order or ()), upper
        self.memory_bytes, self.lower = 0, network.least
        self.total: int | None = None
        self.states: States | None = None
        self.done = self.hopeless = False
        self._device_bytes, self._threads, self._files = device_bytes, threads, files
        self._rounds = [*rounds]
        # how often the network had been made smaller when it was given
        self._given = len(network.made)
        self._ordered = order is not None
        self._split: Partition | None = None
        self._found: MiniBuckets | None = None
        self._layers: LayeredSearch | None = None
        self._stored: StoredLayers | None = None
        self._finished, self._best = finished, best
        self._to_disk = finished is not None
        self._stop: Stop = bool
        self._on_states: Callable[[States], None] = lambda states: None

    @property
    def rounds_left(self) -> int:
        """How many rounds are not done."""
        return len(self._rounds)

    @property
    def nbytes(self) -> int:
        """Bytes of host memory that are held between two runs."""
        if self._split is None or self._found is None or (self._device_bytes is not None and self._stored is None):
            return 0
        return self._split.kept_bytes + (0 if self._layers is None else self._layers.nbytes)

    def rest(self) -> None:
        """Give up what the next run can make again."""
        if self._finished is not None and self._stored is not None:
            # there are more layers now, and earlier pieces are gone
            self._finished = self._stored.files.finished()
        self._split, self._found, self._layers, self._stored = None, None, None, None

    def learn(self, upper: int | None) -> None:
        """Search only below ``upper`` from now on."""
        if upper is not None and (self.upper is None or upper < self.upper):
            self.upper = upper
        for search in (self._layers, self._stored):
            if search is not None and self.upper is not None:
                search.upper = min(search.upper, self.upper)

    def run(self, stop: Stop, on_bounds: OnBounds, on_states: Callable[[States], None]) -> Outcome:
        """Continue until the proof is complete, no round is left, or ``stop`` says so."""
        self._stop, self._on_states = stop, on_states
        self._limit()
        if not self._ordered:
            self.fix()
        while not (self.done or self.hopeless or self._to_disk) and self._round(self._rounds[0]):
            del self._rounds[0]
            on_bounds(self.lower, self.total)
            self.hopeless = not self._rounds
        self._to_disk |= self.hopeless and self._files is not None
        if self._to_disk and not self.done:
            self._go_on_disk()
        if self.done and (self.total is None or (self.upper is not None and self.upper < self.total)):
            return Outcome(self.lower, feasible=False)
        return Outcome(self.lower, self.total, self.states)

    def _limit(self) -> None:
        """Go on with as much memory as there is now."""
        if self._split is None:
            return
        left = max(0, self.memory_bytes - self._split.kept_bytes)
        if self._stored is not None:
            self._stored.memory_bytes = left
        if self._layers is not None and self._device_bytes is None:
            self._layers.memory_bytes = left

    def _round(self, sizes: LayerRound) -> bool:
        """Go on with a round; False if it was stopped, or if there is no memory for it."""
        start = time.perf_counter()
        try:
            outcome = self._outcome(sizes)
        except MemoryError as error:
            if not out_of_memory(error):
                raise
            self.rest()
            free_pools()
            self.hopeless = True
            return False
        if outcome is None:
            return False
        self._take(outcome)
        stopped = self._layers is not None and self._layers.stopped
        self._tell(sizes, time.perf_counter() - start, stopped=stopped)
        if stopped:
            return False
        self._layers = None
        if outcome.total is not None and not self.done:
            self.fix()
        return True

    def _tell(self, sizes: LayerRound, seconds: float, *, stopped: bool) -> None:
        """Log what a round did."""
        assert self._split is not None
        _LOG.info(
            "layers of up to %d rows beside mini-buckets of up to %d cells, %s after %.2f s: at least %d, at most %s",
            *(sizes.width, self._split.largest, "stopped" if stopped else "done" if self.done else "cut", seconds),
            *(self.lower, self.upper),
        )

    def _outcome(self, sizes: LayerRound) -> Outcome | None:
        """Search the layers of a round, or go on with them; None if it was stopped before."""
        if self._layers is None:
            self._layers = self._layered(sizes)
        return None if self._layers is None else self._layers.run(self._stop)

    def _layered(self, sizes: LayerRound) -> LayeredSearch | None:
        """Build mini-buckets, unless they equal the last round's, and return a search of the layers."""
        policy = ProverPolicy.current()
        there = self._device_bytes if sizes.width >= policy.device_least_rows else None
        memory_bytes = self.memory_bytes if there is None else there()
        split = partition(self.network.dims, self.network.scopes, self.order, Size(cells=sizes.cells))
        if split.kept_bytes > _bucket_bytes(memory_bytes, there is not None) and self._split is not None:
            # wider layers are what is left
            split = self._split
        if split.kept_bytes > memory_bytes:
            self.hopeless = True
            return None
        if self._split is None or self._found is None or split.buckets != self._split.buckets:
            self._eliminate(split, None if there is None else policy.device_least_join_cells, self.upper)
        if self._found is None:
            return None
        left = memory_bytes - split.kept_bytes
        threads = max(1, min(self._threads, left // _THREAD_BYTES))
        side = host(threads) if there is None else DEVICE
        return LayeredSearch(self.network, self._found, self.upper, memory_bytes=left, width=sizes.width, side=side)

    def _go_on_disk(self) -> None:
        """Search layers on disk, without cutting rows."""
        from ....storage.faults import StorageError

        try:
            self._stored = self._stored or self._on_disk()
            if self._stored is not None:
                self._take(self._stored.run(self._stop))
        except StorageError:
            self._stored, self.hopeless = None, True
            return
        stopped = self._split is not None if self._stored is None else self._stored.stopped
        self.hopeless = not (self.done or stopped)

    def _on_disk(self) -> StoredLayers | None:
        """Begin a search with layers on disk, or continue the one of an earlier run.

        Returns
        -------
        StoredLayers or None
            None if it was stopped, or if there is no memory for the mini-buckets.
        """
        from .layer_files import Beginning
        from .stored_layers import StoredLayers

        assert self._files is not None
        self.rest()
        begun = Beginning(self.network, self.order, 0, self.upper, self._best())
        cells, split = self._stored_split(0 if self._finished is None else self._finished.beginning.cells)
        if self._finished is not None and split is None:
            # there is less memory than it began with
            self._finished = None
            cells, split = self._stored_split(0)
        if self._finished is not None:
            begun = self._finished.beginning
        if split is not None:
            # the costs of rows so far refer to mini-buckets of the same pruning value
            self._eliminate(split, None, begun.upper)
        if split is None or self._found is None:
            return None
        files, left = self._files(), self.memory_bytes - split.kept_bytes
        if self._finished is None:
            files.begin(replace(begun, cells=cells))
        side = host(max(1, min(self._threads, left // _THREAD_BYTES)))
        _LOG.info("layers of rows continue on disk, beside mini-buckets of up to %d cells", split.largest)
        return StoredLayers(
            *(self.network, self._found, self.upper),
            memory_bytes=left,
            files=files,
            side=side,
            finished=self._finished,
            best=self._best,
        )

    def _stored_split(self, cells: int) -> tuple[int, Partition | None]:
        """Return mini-buckets of a size, or of the largest that leaves memory to others; None where none does."""
        sizes = [cells] if cells else [1 << bits for bits in _STORED_BOUNDS_BITS]
        most = self.memory_bytes if cells else self.memory_bytes // _STORED_BOUNDS_PART
        for size in sizes:
            split = partition(self.network.dims, self.network.scopes, self.order, Size(cells=size))
            if split.kept_bytes <= most:
                return size, split
        return 0, None

    def _eliminate(self, split: Partition, device_cells: int | None, upper: int | None) -> None:
        """Make mini-buckets for a cut-off; there are none if that was stopped."""
        self._found, self._split = None, split
        self._found = eliminate(
            *(self.network, split),
            upper=upper,
            threads=self._threads,
            compiled=_PATIENCE.ends(split.cells * _JOIN_CELL_SECONDS),
            device_cells=device_cells,
            stop=self._stop,
        )

    def _take(self, outcome: Outcome) -> None:
        """Take over what a round proved; without an assignment it is about those below the cut-off alone."""
        self._found_better(outcome.total, outcome.states)
        if not outcome.feasible:
            self.done = True
            self.lower = self.lower if self.upper is None else max(self.lower, self.upper)
        else:
            self.lower = max(self.lower, outcome.lower)
            self.done = outcome.proved

    def _found_better(self, total: int | None, states: States | None) -> None:
        """Keep an assignment below the cut-off, which it lowers."""
        if total is not None and states is not None and (self.upper is None or total < self.upper):
            for restore in reversed(self.network.made[self._given :]):
                states = restore(states)
            self.total, self.states, self.upper = total, states, total
            self._on_states(states)

    def fix(self) -> None:
        """Remove what cannot be in a better assignment."""
        prepared = prepare(self.network, self.upper, work=ProverPolicy.current().glances[0][0], stop=self._stop)
        self._found_better(prepared.total, prepared.states)
        if self.upper is None:
            self.lower = max(self.lower, prepared.lower)
        else:
            self.lower = max(self.lower, min(self.upper, prepared.lower if prepared.feasible else self.upper))
        self.done = self.lower == self.upper or not prepared.feasible
        smaller = sum(prepared.network.dims) < sum(self.network.dims)
        if not self.done and smaller:
            self.network = prepared.network
            self.rest()
        if not self.done and (smaller or not self._ordered):
            self.order = depth_first_order(
                self.network.dims, self.network.scopes, seconds=ProverPolicy.current().order_seconds
            )
            self._ordered = True


class RowProver(SearchProver[RowSearch]):
    """Goes on with the round of the last turn."""

    follows_order = True

    def __init__(self, incumbent: Incumbent) -> None:
        super().__init__(incumbent)
        self._rounds_left = 0

    def lay_out(self) -> RowSearch:
        """Begin with the first round, or with the one where a search of the network before ended."""
        known, limits = self.incumbent, self.incumbent.limits
        rounds = ROUNDS if limits.device_bytes is None else DEVICE_ROUNDS
        finished = self._finished()
        network = known.sharpened if finished is None else known.small
        return RowSearch(
            *(network, known.order if network is known.small else None, known.upper),
            rounds=rounds[-self._rounds_left :],
            device_bytes=limits.device_bytes,
            threads=limits.threads,
            files=limits.files,
            finished=finished,
            best=lambda: known.best,
        )

    def _finished(self) -> Finished | None:
        """Return layers that an earlier search finished, once, if they are of the present network and order."""
        known = self.incumbent
        finished, known.finished = known.finished, None
        if finished is None:
            return None
        begun = finished.beginning
        return finished if begun.network is known.small and begun.order == known.order else None

    def leave_memory(self, search: RowSearch) -> None:
        """Let go of mini-buckets and rows that can be made again."""
        self._rounds_left = search.rounds_left
        if self.hopeless or self.incumbent.is_much(search):
            search.rest()
