"""The ledger: an append-only record of finished chunks, written before a task counts as done.

Every process appends to a file of its own, so that a chunk finished by a worker counts even if the client
died in the meantime. Presence of a file proves nothing; a receipt and a matching checksum do. Receipts survive the
death of every process at once; they are forced to disk in groups, since all that a power failure can cost is that
what the lost ones stand for is computed again.

Every line ends with a checksum of its own. One that does not match, whether a crash cut it short or somebody changed
it, stands for nothing: what it was for is computed again.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Collection, Iterable
from io import FileIO
from pathlib import Path
from typing import Any

import google_crc32c

from .chunks import damaged
from .files import opened, read_whole
from .spec import Key, Receipt, StorageError, TableSpec, disk_full

# Lines of JSON that end with a checksum of their own: one that was cut short or changed stands for nothing.

_CHECKSUM = b', "crc32c": '


def to_line(record: dict[str, Any]) -> bytes:
    """Return a JSON object on a line of its own, whose last entry is the checksum of all that stands before."""
    text = json.dumps(record).encode()[:-1]
    return text + _CHECKSUM + b"%d}\n" % google_crc32c.value(text)


def from_line(line: bytes) -> dict[str, Any] | None:
    """Read a line; None where it is damaged."""
    text, mark, checksum = line.rpartition(_CHECKSUM)
    if not mark or checksum != b"%d}" % google_crc32c.value(text):
        return None
    try:
        found = json.loads(text + b"}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_lines(path: Path, begins: tuple[bytes, ...] = (b"",)) -> list[dict[str, Any] | None]:
    """Read the lines of a file that begin in one of some ways."""
    return [from_line(line) for line in read_whole(path).split(b"\n") if line.startswith(begins)]


def ends_a_line(file: FileIO) -> bool:
    """Whether a file is empty or ends with a whole line; a crashed process may not have finished its own."""
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


FOLDER = "ledger"


def folder_of(tables: Path) -> Path:
    """Return where the receipts of a folder of tables are: beside it, as nothing but arrays is in a Zarr group.

    Examples
    --------
    >>> folder_of(Path("run/tables")).as_posix()
    'run/ledger/tables'
    """
    return tables.parent / FOLDER / tables.name


_SYNC_SECONDS = 1.0
_synced: dict[str, float] = {}


def append(tables: Path, receipts: list[Receipt]) -> None:
    """Append receipts, and force them to disk unless that was done a moment ago.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    import socket

    folder = folder_of(tables)
    path = os.path.join(folder, f"{socket.gethostname()}-{os.getpid()}.jsonl")
    lines = b"".join([to_line(receipt.to_record()) for receipt in receipts])
    try:
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) as file:
            if not ends_a_line(file):
                lines = b"\n" + lines
            if file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, "short write")
            if time.monotonic() - _synced.get(path, -_SYNC_SECONDS) >= _SYNC_SECONDS:
                os.fsync(file.fileno())
                _synced[path] = time.monotonic()
    except OSError as error:
        raise disk_full(error, f"no space left in {folder} for receipts") from None


def sync(tables: Path) -> None:
    """Force the receipts of all processes to disk.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    for path in folder_of(tables).glob("*.jsonl"):
        try:
            with opened(path) as file:
                os.fsync(file.fileno())
        except OSError as error:
            raise disk_full(error, f"no space left in {tables} for receipts") from None


def begin_of(table: str, chunk: tuple[int, ...] | None) -> bytes:
    """Return how the lines of a chunk, or of all chunks of a table, begin, so that others need not be read.

    Examples
    --------
    >>> begin_of("slices", (3, 0))
    b'{"table": "slices", "chunk": [3, 0], '
    >>> begin_of("slices", None)
    b'{"table": "slices", '
    """
    record = {"table": table} if chunk is None else {"table": table, "chunk": chunk}
    return json.dumps(record).encode()[:-1] + b", "


def _receipt(record: dict[str, Any] | None) -> Receipt | None:
    """Read a line of a ledger; None where it is damaged."""
    try:
        return None if record is None else Receipt.from_record(record)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def load(tables: Path, keys: Iterable[Key | tuple[str, None]] | None = None) -> dict[Key, Receipt]:
    """Return the latest receipt of every chunk, or of some chunks or tables; damaged lines are ignored.

    Raises
    ------
    StorageError
        If a ledger cannot be read.
    """
    begins = (b"",) if keys is None else tuple([begin_of(*key) for key in keys])
    return {receipt.key: receipt for _, receipt in history(tables, begins)}


def finished(tables: Path, spec: TableSpec, chunks: Collection[tuple[int, ...]]) -> list[Receipt]:
    """Return the receipts of chunks that are all there already, undamaged; or nothing.

    A task runs again when the worker that did it is lost before its result was fetched.
    """
    found = load(tables, [(spec.name, chunk) for chunk in chunks])
    in_files = {key: receipt for key, receipt in found.items() if receipt.nbytes}
    if len(found) < len(chunks) or damaged(tables, {spec.name: spec}, in_files):
        return []
    return list(found.values())


def history(tables: Path, begins: tuple[bytes, ...] = (b"",)) -> list[tuple[str, Receipt]]:
    """Return every receipt with the name of the process that wrote it; damaged lines are ignored.

    Parameters
    ----------
    begins : tuple of bytes
        Only lines that begin in one of these ways are looked at.

    Raises
    ------
    StorageError
        If a ledger cannot be read.
    """
    found = []
    paths = sorted(folder_of(tables).glob("*.jsonl"), key=lambda p: (p.lstat().st_mtime_ns, p.name))
    for path in paths:
        try:
            lines = read_lines(path, begins)
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}") from None
        found += [(path.stem, receipt) for receipt in map(_receipt, lines) if receipt is not None]
    return found
