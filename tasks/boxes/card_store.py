"""Tables spread over the memory of several cards of one host; each chunk lies on the card that made it, if possible."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...storage.spec import Receipt, TableSpec
from ..gpu import arrays, peers
from ..gpu.arrays import is_device
from ..gpu.kernels import cupy
from ..gpu.memory import DeviceMemoryError, to_device
from .stores import Chunk, Key, ProcessStore, Written, place, within

Array = NDArray[Any]


class CardTables(ProcessStore):
    """Chunks in the memory of cards; a box reads what it needs from the cards where it lies.

    Parameters
    ----------
    cards : int
        Numbered from 0 on, as CUDA does in this process.
    card_bytes : int
        Maximum bytes of the chunks on one card.
    """

    def __init__(self, cards: int, card_bytes: int) -> None:
        self.cards = cards
        self.card_bytes = card_bytes
        self.held = [0] * cards
        """Bytes of chunks on each card."""
        self.peaks = [0] * cards
        """The most that it was."""
        self.link_bytes = 0
        """Bytes that cards read from and wrote to other cards."""
        self._chunks: dict[Key, tuple[int, Any]] = {}
        self._lock = threading.Lock()

    def delete(self, spec: TableSpec) -> None:
        """Give back the memory of a table."""
        with self._lock:
            keys = [key for key in self._chunks if key[0] == spec.name]
            cards = {self._chunks[key][0] for key in keys}
            for key in keys:
                self._drop(key)
        self._give_back(cards)

    def nearest(self, keys: Iterable[Key]) -> int | None:
        """Return the card where most bytes of some chunks lie, None for no chunks."""
        there: Counter[int] = Counter()
        for key in keys:
            card, cells = self._chunks[key]
            there[card] += cells.nbytes
        return max(there, key=lambda card: (there[card], -card), default=None)

    def load(
        self, spec: TableSpec, values: Any, receipts: Sequence[Receipt], states: Mapping[int, int], first: int = 0
    ) -> None:
        """Copy parts of chunks from wherever they lie to this thread's card, or to the host."""
        if not is_device(values):
            for receipt in receipts:
                out = values[place(spec, receipt.chunk, states, first)]
                out[...] = self.chunk(spec, receipt)[within(spec, states)].reshape(out.shape)
            return
        here, moved = peers.present_card(), 0
        for receipt in receipts:
            card, cells = self._chunks[receipt.key]
            out = values[place(spec, receipt.chunk, states, first)]
            peers.copy_from(card, cells, within(spec, states), out)
            moved += out.nbytes if card != here else 0
        _wait()
        with self._lock:
            self.link_bytes += moved

    def save(
        self, spec: TableSpec, values: Any, chunks: Collection[Chunk], states: Mapping[int, int]
    ) -> Iterable[Written]:
        """Keep the chunks, on this thread's card while it has room for them, otherwise where most is free."""
        for chunk in chunks:
            cells = values[place(spec, chunk, states)].reshape(spec.chunk_shape)
            self._keep(spec, chunk, cells)
            yield chunk, cells.nbytes, 0

    def _keep(self, spec: TableSpec, chunk: Chunk, cells: Any) -> None:
        """Copy a chunk to where it stays."""
        nbytes = prod(spec.chunk_shape) * np.dtype(spec.dtype).itemsize
        here, key = peers.present_card(), (spec.name, chunk)
        card = self._take(key, nbytes, here)
        try:
            with peers.on_card(card):
                kept = arrays.empty(prod(spec.chunk_shape), spec.dtype, alone=True).reshape(spec.chunk_shape)
            if is_device(cells):
                peers.copy_to(card, cupy().ascontiguousarray(cells), kept)
            else:
                with peers.on_card(card):
                    to_device(np.ascontiguousarray(cells), kept)
                    _wait()
            _wait()
        except BaseException:
            with self._lock:
                self.held[card] -= nbytes
            raise
        with self._lock:
            self._chunks[key] = card, kept
            self.link_bytes += nbytes if card != here else 0

    def _take(self, key: Key, nbytes: int, here: int) -> int:
        """Choose a card for a chunk, and count it there."""
        with self._lock:
            if key in self._chunks:  # of a task that did not come to its end
                self._drop(key)
            least = min(range(self.cards), key=lambda card: (self.held[card], card))
            card = here if self.held[here] + nbytes <= self.card_bytes else least
            if self.held[card] + nbytes > self.card_bytes:
                raise DeviceMemoryError(f"no card has {nbytes:,} bytes left for a chunk of {key[0]}")
            self.held[card] += nbytes
            self.peaks[card] = max(self.peaks[card], self.held[card])
        return card

    def _drop(self, key: Key) -> None:
        card, cells = self._chunks.pop(key)
        self.held[card] -= cells.nbytes

    def _give_back(self, cards: Iterable[int]) -> None:
        for card in cards:
            with peers.on_card(card):
                arrays.free_pools()

    def chunk(self, spec: TableSpec, receipt: Receipt) -> Array:
        """Return a copy of the chunk on the host."""
        card, cells = self._chunks[receipt.key]
        with peers.on_card(card):
            return arrays.on_host(cells)

    def close(self) -> None:
        """Free everything."""
        with self._lock:
            for key in [*self._chunks]:
                self._drop(key)
        self._give_back(range(self.cards))


def _wait() -> None:
    """Wait for the copies of this thread."""
    cupy().cuda.get_current_stream().synchronize()
