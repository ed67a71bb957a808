"""Bounded rows whose layers are on disk: none is cut, so that what is left in the end is the optimum.

A layer is expanded piece by piece, and each piece yields a sorted run. If variables leave the keys, runs are merged
range by range. The origins of all rows stay on disk too, and another process can reuse a finished layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

import numpy as np

from ....tasks.rows.layers import Layer, Operations, Rows, first_rows
from ...cost_networks.cost_network import CostNetwork, States
from ...minibuckets.least_costs import MiniBuckets
from ..limits import Outcome
from .layer_files import Finished, Numbers, Piece, RowFiles, merges
from .layered_search import MOST_CELLS, Stop, layers

# Copies of the rows of a piece that are in memory while it is expanded or merged, about.
_PIECE_COPIES: Final = 4


class StoredLayers:
    """A search layer by layer, on disk, that goes on where it was stopped.

    Parameters
    ----------
    network : CostNetwork
    found : MiniBuckets
        Of this network, with its buckets and messages.
    upper : int or None
        Only totals below it interest.
    memory_bytes : int
        For the pieces that are worked on, beside the tables of `found`; it may change between runs.
    files : RowFiles
        In which a search has begun.
    side : Operations
        Of this host.
    finished : Finished, optional
        Layers of the same network, order and mini-buckets that are there.
    best : callable
        Return the best assignment of the first network, for the search that goes on.

    Attributes
    ----------
    upper : float
        It may fall.
    stopped : bool
        Whether ``stop`` ended the run, which may be continued.
    """

    def __init__(
        self,
        network: CostNetwork,
        found: MiniBuckets,
        upper: int | None,
        *,
        memory_bytes: int,
        files: RowFiles,
        side: Operations,
        finished: Finished | None = None,
        best: Callable[[], States | None] = lambda: None,
    ) -> None:
        self.network, self.found, self.files, self.side = network, found, files, side
        self.upper = math.inf if upper is None else float(upper)
        self.memory_bytes, self.stopped = memory_bytes, False
        self._best, self._told = best, self.upper if finished is None else finished.upper
        self._trail: list[tuple[int, int, list[Piece]]] = []
        if finished is None:
            first = first_rows(found.lower)
            self._pieces, self._least = [files.write(_table(first.keys, first.costs))], float(found.lower)
        else:
            self._pieces, self._least = finished.pieces, finished.least
        self._work = self._steps([] if finished is None else finished.origins)

    def run(self, stop: Stop) -> Outcome:
        """Continue to the last layer, or until ``stop`` says so.

        Raises
        ------
        StorageError
            If there is no room on the disk, or what was written there is damaged.
        """
        if not self.found.feasible:
            return Outcome(self.found.lower, feasible=False)
        self.stopped = False
        for _ in self._work:
            if stop():
                self.stopped = True
                return Outcome(max(self.found.lower, int(min(self._least, self.upper))))
        if not self._pieces:
            return Outcome(self.found.lower if self.upper == math.inf else int(self.upper), feasible=False)
        states = self._states()
        total = int(self.network.total(states))
        return Outcome(total, total, states)

    def _steps(self, finished: list[list[Piece]]) -> Iterator[None]:
        """Process all unfinished layers; the clock may be checked at each yield."""
        for number, layer in enumerate(layers(self.network, self.found, self.side)):
            if number < len(finished):
                self._trail.append((layer.variable, layer.d, finished[number]))
                continue
            runs: list[Piece] = []
            for piece, offset in [*zip(self._pieces, _offsets(self._pieces), strict=True)]:
                table = self.files.checked(piece)
                size = self._size(layer)
                for first in range(0, len(piece), size):
                    self._expand(layer, table[first : first + size], offset + first, runs)
                    yield
            origins: list[Piece] = []
            pieces: list[Piece] = []
            yield from self._merge(layer, runs, pieces, origins)
            self._finish(number, pieces, origins)
            for piece in (*self._pieces, *runs):
                self.files.delete(piece)
            self._pieces = pieces
            self._trail.append((layer.variable, layer.d, origins))
            if not pieces:
                return

    def _finish(self, number: int, pieces: list[Piece], origins: list[Piece]) -> None:
        """Write the receipt of a layer, with the pruning value that a continued search needs."""
        best = self._best() if self.upper < self._told else None
        self._told = self.upper
        self.files.finish(number, pieces, origins, self._least, self.upper, best)

    def _size(self, layer: Layer) -> int:
        """Rows that are expanded at a time."""
        words = max(layer.keys.n_words, layer.next_keys.n_words)
        row_bytes = self.side.row_bytes(words) + 8 * _PIECE_COPIES * (words + 2)
        left = self.memory_bytes - self.side.least_room(layer) * self.side.row_bytes(words)
        return max(1, min(left // (row_bytes * (1 + layer.d)), MOST_CELLS // layer.d))

    def _expand(self, layer: Layer, table: Numbers, first: int, runs: list[Piece]) -> None:
        """Expand some rows of a piece, which leave a run of keys, costs and origins."""
        words = layer.keys.n_words
        rows = Rows(np.ascontiguousarray(table[:, :words]), table[:, words].copy().view(np.float64))
        most = len(rows) * layer.d
        found, origin, _ = self.side.next_rows(rows, layer, self.upper, most, self.side.space(), 0)
        if len(found):
            origins = origin.astype(np.uint64) + np.uint64(first * layer.d)
            runs.append(self.files.write(_table(found.keys, found.costs, origins)))

    def _merge(self, layer: Layer, runs: list[Piece], pieces: list[Piece], origins: list[Piece]) -> Iterator[None]:
        """Write the rows of the next layer, and where they came from."""
        words = layer.next_keys.n_words
        tables = [self.files.checked(run) for run in runs]
        most = max(1, self.memory_bytes // (8 * _PIECE_COPIES * (words + 2)))
        together = layer.leaving and len(runs) > 1
        least = math.inf
        # where nothing leaves, runs follow each other
        for merge in merges(tables, words, most) if together else [table.all for table in tables]:
            least = min(least, self._write(merge(), words, pieces, origins))
            yield
        self._least = least

    def _write(self, rows: Numbers, words: int, pieces: list[Piece], origins: list[Piece]) -> float:
        """Write rows of the next layer, and where they came from; return the least cost."""
        pieces.append(self.files.write(np.ascontiguousarray(rows[:, : words + 1])))
        origins.append(self.files.write(np.ascontiguousarray(rows[:, words + 1 :])))
        return float(rows[:, words].copy().view(np.float64).min())

    def _states(self) -> States:
        """Go back from the one row of no variables."""
        states = [0] * len(self.network.dims)
        row = 0
        for variable, d, origins in reversed(self._trail):
            for piece, offset in zip(origins, _offsets(origins), strict=True):
                if offset <= row < offset + len(piece):
                    ((origin,),) = self.files.checked(piece)[row - offset : row - offset + 1].tolist()
                    row, states[variable] = divmod(origin, d)
                    break
        return tuple(states)


def _table(keys: Numbers, costs: np.ndarray, *columns: Numbers) -> Numbers:
    """Put keys, the bits of costs, and more columns beside each other."""
    return np.column_stack([keys, costs.view(np.uint64), *columns])


def _offsets(pieces: list[Piece]) -> list[int]:
    return [*accumulate(map(len, pieces), initial=0)][:-1]
