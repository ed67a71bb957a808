"""Messages of mini-buckets in chunk files: each chunk counts by its receipt in a ledger, from which runs go on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.chunks import write_chunk
from ...storage.files import Place, refuse_links, remove_folder
from ...storage.spec import Key, Receipt
from ...tasks.boxes.box import new_receipt
from ...tasks.boxes.receipts import Receipts
from ...tasks.boxes.stores import ChunkFiles, box_shape, place
from .bucket_elimination import Extent
from .message_boxes import NUMBER, TABLE, Boxing

Array = NDArray[np.float64]
States = Mapping[int, int]

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

    def has(self, message: int, states: States) -> bool:
        """Whether the part of a message that agrees with some states is there."""
        chunks = self.specs[message].chunks_at({NUMBER: message, **states})
        return all((TABLE, chunk) in self.receipts for chunk in chunks)

    def write(self, message: int, costs: Array, states: States, shared: float) -> None:
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

    def read(self, message: int, states: States) -> Array:
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
