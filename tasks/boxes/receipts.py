"""Receipts of the chunks in a store: taken over, verified, forgotten once a chunk is lost, and tried again.

A receipt records that a chunk was written. A store reports whether the chunk still exists. Runners of dense, sparse and
mini-bucket boxes handle lost chunks in different forms; all recompute them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from ...storage.spec import ChunkLostError, Key, Receipt, StorageError, TableSpec
from .stores import Store

R = TypeVar("R")

# A chunk that is lost again and again is a broken disk.
_ATTEMPTS: Final = 5


class Receipts(dict[Key, Receipt]):
    """The receipts of the chunks in a store, by table and chunk.

    Parameters
    ----------
    store : Store
    tables : callable
        Returns the tables that are in files by now, by name.

    Attributes
    ----------
    nbytes : int
        Bytes of all chunks.
    """

    def __init__(self, store: Store, tables: Callable[[], Mapping[str, TableSpec]]) -> None:
        super().__init__()
        self.store, self.tables = store, tables
        self.nbytes = 0
        self._unverified: set[Key] = set()

    def resume(self) -> None:
        """Take over what an earlier run finished and is still there in full length; contents are verified later."""
        tables = self.tables()
        known = self.store.known(tables).values()
        self.clear()
        self.nbytes = 0
        self.take(receipt for receipt in known if receipt.table in tables or not receipt.nbytes)
        self._unverified = {*self}

    def take(self, receipts: Iterable[Receipt]) -> None:
        """Keep receipts without the seconds of steps, which take most of the memory and are read from the ledger."""
        for receipt in receipts:
            self.forget([receipt.key])
            self[receipt.key] = replace(receipt, steps={}) if receipt.steps else receipt
            self.nbytes += receipt.nbytes

    def record(self, receipts: list[Receipt]) -> None:
        """Make receipts count, and keep them."""
        self.store.record(receipts)
        self.take(receipts)

    def forget(self, lost: Iterable[Key]) -> None:
        """Drop the receipts of lost chunks."""
        for key in lost:
            receipt = self.pop(key, None)
            self.nbytes -= receipt.nbytes if receipt else 0

    def at(self, spec: TableSpec, states: Mapping[int, int]) -> list[Receipt]:
        """Return the receipts of the chunks of a table that agree with some states.

        Raises
        ------
        ChunkLostError
            If one is not there.
        """
        keys = [(spec.name, chunk) for chunk in spec.chunks_at(states)]
        for key in keys:
            if key not in self:
                raise ChunkLostError(*key, "it was not written")
        return [self[key] for key in keys]

    def verify(self) -> list[Key]:
        """Read every chunk, and forget lost chunks; return their keys."""
        lost = self.store.damaged(self.tables(), self)
        self._unverified.clear()
        self.forget(lost)
        return lost

    def lost_of_earlier(self, tables: Mapping[str, TableSpec]) -> list[Key]:
        """Read the chunks of some tables from an earlier run, once; return the keys of lost chunks."""
        found = {key: self[key] for key in self._unverified if key in self and key[0] in tables}
        lost = self.store.damaged(tables, found)
        self._unverified.clear()
        return lost

    def delete(self, specs: Collection[TableSpec]) -> None:
        """Delete tables; first, force the receipts of their dependents to disk."""
        self.store.sync()
        for spec in specs:
            self.store.delete(spec)
        names = {spec.name for spec in specs}
        self.forget([key for key in self if key[0] in names])

    def until_whole(
        self,
        attempt: Callable[[], R],
        repair: Callable[[], object] = lambda: None,
        is_right: Callable[[R], bool] = lambda _: True,
    ) -> R:
        """Attempt something until no chunk that it needs is lost; once one is, all others are verified too.

        Parameters
        ----------
        attempt : callable
            Reads chunks, and may make missing ones.
        repair : callable
            Makes the chunks that were lost, before the next attempt.
        is_right : callable
            Whether the result can be correct. If not, chunks are verified, because partial reads have no checksum.

        Raises
        ------
        StorageError
            If chunks are lost again and again.
        """
        for _ in range(_ATTEMPTS):
            try:
                found = attempt()
            except ChunkLostError as error:
                self.forget([(error.table, error.chunk)])
                self.verify()
            else:
                if is_right(found) or not self.verify():
                    return found
            repair()
        raise StorageError(f"chunks of {self.store.folder} are lost as fast as they are written")
