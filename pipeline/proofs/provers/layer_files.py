"""Sorted rows on disk, piece by piece: each a table of one chunk that is checked when it is read.

In a run directory each layer that is finished has a receipt in a ledger, from which another process goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....storage import ledger
from ....storage.chunks import damaged, read_rows, write_chunk
from ....storage.faults import ChunkLostError, DiskFullError
from ....storage.files import refuse_links
from ....storage.spec import Receipt, TableSpec
from ....tasks.rows.host import HOST
from ....tasks.rows.numpy_rows import comparable
from ...cost_networks.cost_network import CostNetwork, CostTable, Restore, States
from ...cost_networks.elimination import Best, PackedBest
from ...cost_networks.preparation import KeptValues

# The identity of layers on disk, as bytes: the network, its preparation, and the pruning value.

Bytes = NDArray[np.uint8]
Arrays = list[NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Beginning:
    """Where a search layer by layer began.

    Parameters
    ----------
    network : CostNetwork
        It stands for the first one below the cut-off.
    order : tuple of int
    cells : int
        Most cells of a mini-bucket.
    upper : int or None
        The cut-off that mini-buckets were made with; rows at or above it were dropped.
    best : tuple of int or None
        The best assignment of the first network that was known.
    """

    network: CostNetwork
    order: tuple[int, ...]
    cells: int
    upper: int | None
    best: States | None

    def packed(self) -> Bytes | None:
        """Return everything as bytes; None if it is not known how the network was made smaller."""
        network = self.network
        made = [_parts_of(restore) for restore in network.made]
        known = [parts for parts in made if parts is not None]
        if len(known) < len(made):
            return None
        what = {
            "dims": network.dims,
            "scopes": network.scopes,
            "constant": network.constant,
            "made": [(kind, len(arrays)) for kind, arrays in known],
            **{name: getattr(self, name) for name in ("order", "cells", "upper", "best")},
        }
        header = np.frombuffer(json.dumps(what).encode(), np.uint8)
        arrays: Arrays = [header, *(table.costs for table in network.tables)]
        arrays += [each for _, parts in known for each in parts]
        stream = BytesIO()
        np.savez(stream, *arrays)
        return np.frombuffer(stream.getbuffer(), np.uint8)

    @classmethod
    def unpacked(cls, data: NDArray[Any]) -> Beginning:
        """Read what :meth:`packed` returned."""
        with np.load(BytesIO(data.tobytes()), allow_pickle=False) as stored:
            header, *arrays = (stored[f"arr_{i}"] for i in range(len(stored.files)))
        what = json.loads(header.tobytes())
        tables = [CostTable(tuple(scope), arrays.pop(0)) for scope in what["scopes"]]
        made = []
        for kind, count in what["made"]:
            made.append(_restore_of(kind, arrays[:count]))
            del arrays[:count]
        network = CostNetwork(tuple(what["dims"]), tuple(tables), what["constant"], tuple(made))
        best = None if what["best"] is None else tuple(what["best"])
        return cls(network, tuple(what["order"]), what["cells"], what["upper"], best)


def _parts_of(restore: Restore) -> tuple[str, Arrays] | None:
    if isinstance(restore, KeptValues):
        return "kept", [restore.states, restore.live, restore.values, restore.first]
    if isinstance(restore, PackedBest):
        restore = restore.unpacked
    if isinstance(restore, Best):
        return "best", [part for x, scope, best in restore.choices for part in (np.array((x, *scope)), best)]
    return None


def _restore_of(kind: str, arrays: Arrays) -> Restore:
    if kind == "kept":
        return KeptValues(*arrays)
    variables = [tuple(each.tolist()) for each in arrays[::2]]
    return Best(tuple((x, tuple(scope), best) for (x, *scope), best in zip(variables, arrays[1::2], strict=True)))


Numbers = NDArray[np.uint64]

# All pieces are files of this table, in this folder.
_TABLE, _TABLES = "rows", "tables"
# Receipts with these names identify the piece that describes the search's beginning, and the pieces of a layer.
_BEGINNING, _LAYERS = "beginning", "layers"


@dataclass(frozen=True)
class Piece:
    """Rows in one file, ``(rows, columns) uint64``."""

    spec: TableSpec
    receipt: Receipt

    def __len__(self) -> int:
        return self.spec.shape[0]

    @classmethod
    def of(cls, receipt: Receipt) -> Piece:
        """Return the piece that a receipt belongs to."""
        shape, dtype = tuple(receipt.value["shape"]), receipt.value["dtype"]
        return cls(TableSpec(_TABLE, (0, 1), ("row", "column"), shape, frozenset(), dtype), receipt)


@dataclass(frozen=True)
class StoredRows:
    """The rows of a piece, read as they are asked for."""

    folder: Path
    piece: Piece

    def __len__(self) -> int:
        return len(self.piece)

    def __getitem__(self, rows: slice) -> Numbers:
        first, stop, _ = rows.indices(len(self))
        return read_rows(self.folder, self.piece.spec, self.piece.receipt.chunk, first, max(first, stop))

    def all(self) -> Numbers:
        """Return all rows."""
        return self[:]


@dataclass(frozen=True)
class Finished:
    """The stored state of an earlier search.

    Parameters
    ----------
    beginning : Beginning
    pieces : list of Piece
        Rows of the last layer that was finished.
    origins : list of list of Piece
        Where the rows of each layer come from.
    least : float
        The least cost in the last layer.
    upper : float
        The cut-off below which layers were searched in the end.
    best : tuple of int or None
        The last better assignment of the first network that was known to any of the layers.
    """

    beginning: Beginning
    pieces: list[Piece]
    origins: list[list[Piece]]
    least: float
    upper: float
    best: States | None


class RowFiles:
    """Pieces in a folder.

    Parameters
    ----------
    folder : callable
        Makes it, once it is needed.
    disk_bytes : int
        All pieces together take no more.
    lasting : bool
        Whether layers have receipts, for another process.
    """

    def __init__(self, folder: Callable[[], Path], disk_bytes: int, *, lasting: bool = False) -> None:
        self._make, self._disk_bytes, self._lasting = folder, disk_bytes, lasting
        self._folder: Path | None = None
        self._made = 0
        self.nbytes = 0

    @property
    def folder(self) -> Path:
        """Where pieces are."""
        if self._folder is None:
            made = self._make()
            self._folder = made / _TABLES
            (self._folder / _TABLE).mkdir(parents=True, exist_ok=True)
            ledger.folder_of(self._folder).mkdir(parents=True, exist_ok=True)
            refuse_links(made)
        return self._folder

    def begin(self, beginning: Beginning) -> None:
        """Remove what is there; a search begins.

        Raises
        ------
        DiskFullError
            If there is no room.
        """
        self.clear()
        data = beginning.packed() if self._lasting else None
        self._lasting = data is not None
        if data is not None:
            piece = self.write(data.reshape(-1, 1))
            ledger.append(self.folder, [piece.receipt, _told(_BEGINNING, 0, [piece], [])])

    def finish(
        self,
        number: int,
        pieces: list[Piece],
        origins: list[Piece],
        least: float,
        upper: float,
        best: States | None,
    ) -> None:
        """Leave the receipt of a layer, of rows below a cut-off, with the assignment that this comes from if it is new.

        Raises
        ------
        DiskFullError
            If there is no room.
        """
        if self._lasting:
            receipts = [piece.receipt for piece in (*pieces, *origins)]
            known = {"least": least, "upper": upper, "best": best}
            ledger.append(self.folder, [*receipts, _told(_LAYERS, number, pieces, origins, **known)])
            ledger.sync(self.folder)

    def finished(self) -> Finished | None:
        """Return the undamaged state of an earlier search; None without a layer, or if any part is lost.

        Pieces that belong to no finished layer are removed.
        """
        receipts = ledger.load(self.folder)
        layers: list[Receipt] = []
        while layer := receipts.get((_LAYERS, (len(layers),))):
            layers.append(layer)
        begun = receipts.get((_BEGINNING, (0,)))
        if begun is None or not layers:
            return None

        def pieces(told: Receipt, kind: str) -> list[Piece]:
            return [Piece.of(receipts[_TABLE, (number, 0)]) for number in told.value[kind]]

        try:
            (first,), origins = pieces(begun, "pieces"), [pieces(layer, "origins") for layer in layers]
            last = pieces(layers[-1], "pieces")
            self._take([first, *last, *(piece for each in origins for piece in each)])
            stored = self.checked(first).all()
            least, upper = layers[-1].value["least"], layers[-1].value["upper"]
        except (KeyError, ChunkLostError):
            return None
        found = [layer.value["best"] for layer in layers if layer.value["best"] is not None]
        best = tuple(found[-1]) if found else None
        return Finished(Beginning.unpacked(stored[:, 0]), last, origins, least, upper, best)

    def _take(self, pieces: list[Piece]) -> None:
        """Keep pieces that are all undamaged, and nothing else.

        Raises
        ------
        ChunkLostError
            If one is.
        """
        for piece in pieces:
            self.checked(piece)
        names = {piece.spec.file_name(piece.receipt.chunk) for piece in pieces}
        for path in (self.folder / _TABLE).iterdir():
            if path.name not in names:
                path.unlink()
        self.nbytes = sum(piece.receipt.nbytes for piece in pieces)
        self._made = 1 + max(piece.receipt.chunk[0] for piece in pieces)

    def write(self, rows: NDArray[Any]) -> Piece:
        """Write at least one row.

        Raises
        ------
        DiskFullError
            If there is no room for them.
        """
        if self.nbytes + rows.nbytes > self._disk_bytes:
            raise DiskFullError(f"rows need more than {self._disk_bytes} bytes of disk")
        shape = {"shape": list(rows.shape), "dtype": rows.dtype.str}
        chunk, self._made = (self._made, 0), self._made + 1
        piece = Piece.of(Receipt(_TABLE, chunk, rows.nbytes, 0, 0.0, 0, shape))
        nbytes, checksum = write_chunk(self.folder, piece.spec, chunk, rows)
        self.nbytes += nbytes
        return Piece(piece.spec, replace(piece.receipt, checksum=checksum))

    def checked(self, piece: Piece) -> StoredRows:
        """Return rows that are read as they are asked for; all of them are checked before.

        Raises
        ------
        ChunkLostError
            If they are not as they were written.
        """
        if damaged(self.folder, {piece.spec.name: piece.spec}, {piece.receipt.key: piece.receipt}):
            raise ChunkLostError(piece.spec.name, piece.receipt.chunk, "its checksum differs")
        return StoredRows(self.folder, piece)

    def delete(self, piece: Piece) -> None:
        """Remove rows."""
        (self.folder / _TABLE / piece.spec.file_name(piece.receipt.chunk)).unlink(missing_ok=True)
        self.nbytes -= piece.receipt.nbytes

    def clear(self) -> None:
        """Remove all rows, and what is known of them."""
        if self._folder is not None or self._lasting:
            for folder in (ledger.folder_of(self.folder), self.folder / _TABLE):
                for path in folder.iterdir():
                    path.unlink()
        self.nbytes = 0


def _told(name: str, number: int, pieces: list[Piece], origins: list[Piece], **known: Any) -> Receipt:
    """Return a receipt that names pieces, which have their own."""
    told = {
        kind: [piece.receipt.chunk[0] for piece in each] for kind, each in (("pieces", pieces), ("origins", origins))
    }
    return Receipt(name, (number,), 0, 0, 0.0, 0, {**told, **known}, time.time())


# Merging sorted runs on disk, range of keys by range of keys; of equal keys the cheapest row is left.


class SortedRun(Protocol):
    """Rows in the order of distinct keys: ``(rows, words + 2) uint64``, keys, the bits of costs, and origins."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Numbers:
        """Return some that follow each other."""
        ...


def merges(runs: Sequence[SortedRun], words: int, most: int) -> Iterator[Callable[[], Numbers]]:
    """Yield what makes the rows that are left of all runs, in the order of keys, about `most` of them at a time.

    Between two of them nothing is held but where runs are cut.
    """
    total = sum(map(len, runs))
    if total <= most:
        yield partial(_merged, [(run, 0, len(run)) for run in runs], words)
        return
    step = max(1, most // (4 * len(runs)))
    samples = np.sort(np.concatenate([_comparable(run[:][step - 1 :: step], words) for run in runs]))
    keys = np.unique(samples[:: max(1, most // (2 * step))])
    cuts = [[0, *np.searchsorted(_comparable(run[:], words), keys).tolist(), len(run)] for run in runs]
    for ends in pairwise(zip(*cuts, strict=True)):
        parts = [(run, a, b) for run, a, b in zip(runs, *ends, strict=True) if a < b]
        if parts:
            yield partial(_merged, parts, words)


def _merged(parts: Sequence[tuple[SortedRun, int, int]], words: int) -> Numbers:
    """Merge rows of some runs, from first to last place, and keep the cheapest of each key, the first of equals."""
    rows = np.concatenate([run[a:b] for run, a, b in parts])
    keys = np.ascontiguousarray(rows[:, :words])
    order = HOST.order(keys)
    if order is not None:
        rows, keys = rows[order], keys[order]
    heads = HOST.starts(keys)
    if len(heads) == len(rows):
        return rows
    costs = rows[:, words].copy().view(np.float64)
    groups = np.repeat(np.arange(len(heads)), np.diff(heads, append=len(rows)))
    cheapest = np.flatnonzero(costs == np.minimum.reduceat(costs, heads)[groups])
    groups = groups[cheapest]
    first = np.append(True, groups[1:] != groups[:-1])
    left: Numbers = rows[cheapest[first]]
    return left


def _comparable(rows: Numbers, words: int) -> NDArray[Any]:
    """Return the keys of rows, copied, as numbers, or as strings that sort like them."""
    return comparable(np.ascontiguousarray(rows[:, :words]))
