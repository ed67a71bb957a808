"""The ledger: an append-only record of finished chunks, written before a task counts as done.

Every process appends to a file of its own, so that a chunk finished by a worker counts even if the client
died in the meantime. Presence of a file proves nothing; a receipt and a matching checksum do. Receipts survive the
death of every process at once; they are forced to disk in groups, since all that a power failure can cost is that
what the lost ones stand for is computed again.

Every line ends with a checksum of its own. One that does not match, whether a crash cut it short or somebody changed
it, stands for nothing: what it was for is computed again.

An object store has no files to append to. There each receipt is an object, named after its table and chunk, that is put
if it is absent; the receipt of a chunk that was made again replaces it.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Collection, Iterable
from typing import Any

from .chunks import damaged
from .faults import StorageError, disk_full, file_fault
from .files import Place, ends_a_line, logged_lines, opened
from .object_store import ObjectPath, StaleObjectError, each
from .spec import Key, Receipt, TableSpec

# Lines of JSON that end with their own checksum. Truncated or changed lines are ignored.

_CHECKSUM = b', "crc32c": '


def to_line(record: dict[str, Any]) -> bytes:
    """Return a JSON object on one line. Its last entry is the checksum of the preceding text."""
    import google_crc32c

    text = json.dumps(record).encode()[:-1]
    return text + _CHECKSUM + b"%d}\n" % google_crc32c.value(text)


def from_line(line: bytes) -> dict[str, Any] | None:
    """Read a line; None where it is damaged."""
    import google_crc32c

    text, mark, checksum = line.rpartition(_CHECKSUM)
    if not mark or checksum != b"%d}" % google_crc32c.value(text):
        return None
    try:
        found = json.loads(text + b"}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_lines(path: Place, begins: tuple[bytes, ...] = (b"",)) -> list[dict[str, Any] | None]:
    """Read the lines of a file that begin in one of some ways."""
    return [from_line(line) for line in logged_lines(path) if line.startswith(begins)]


FOLDER = "ledger"


def folder_of(tables: Place) -> Place:
    """Return where the receipts of a folder of tables are: beside it, as nothing but arrays is in a Zarr group.

    Examples
    --------
    >>> folder_of(Path("run/tables")).as_posix()
    'run/ledger/tables'
    """
    return tables.parent / FOLDER / tables.name


SYNC_SECONDS = 1.0
_synced: dict[str, float] = {}


def append(tables: Place, receipts: list[Receipt]) -> None:
    """Append receipts, and force them to disk unless that was done a moment ago.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    import socket

    writer, folder = f"{socket.gethostname()}-{os.getpid()}", folder_of(tables)
    if isinstance(folder, ObjectPath):
        try:
            each(lambda receipt: _put(_object_of(folder, receipt.key), receipt, writer), receipts)
        except OSError as error:
            raise disk_full(error, "") from None
        return
    path = os.path.join(folder, f"{writer}.jsonl")
    lines = b"".join([to_line(receipt.to_record()) for receipt in receipts])
    try:
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) as file:
            if not ends_a_line(file):
                lines = b"\n" + lines
            if file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, "short write")
            if time.monotonic() - _synced.get(path, -SYNC_SECONDS) >= SYNC_SECONDS:
                os.fsync(file.fileno())
                _synced[path] = time.monotonic()
    except OSError as error:
        raise disk_full(error, f"no space left in {folder} for receipts") from None


_WRITER = "writer"


def _object_of(folder: ObjectPath, key: Key) -> ObjectPath:
    """Return where the receipt of a chunk is."""
    table, chunk = key
    return folder / table / ".".join(["c", *map(str, chunk)])


def _put(path: ObjectPath, receipt: Receipt, writer: str) -> None:
    """Put a receipt if it is absent; one that says something else was of a chunk that is replaced by now."""
    line = to_line({**receipt.to_record(), _WRITER: writer}).rstrip()
    try:
        path.create(line)
    except StaleObjectError:
        before = _receipt(from_line(path.read_bytes()))
        if before is None or (before.nbytes, before.checksum, before.value) != (
            receipt.nbytes,
            receipt.checksum,
            receipt.value,
        ):
            path.put(line)


def sync(tables: Place) -> None:
    """Force the receipts of all processes to disk.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    if isinstance(tables, ObjectPath):
        return
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
        return None if record is None else Receipt.from_record({k: v for k, v in record.items() if k != _WRITER})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def load(tables: Place, keys: Iterable[Key | tuple[str, None]] | None = None) -> dict[Key, Receipt]:
    """Return the latest receipt of every chunk, or of some chunks or tables; damaged lines are ignored.

    Raises
    ------
    StorageError
        If a ledger cannot be read.
    """
    if isinstance(tables, ObjectPath):
        return {receipt.key: receipt for _, receipt in _objects(tables, keys)}
    begins = (b"",) if keys is None else tuple([begin_of(*key) for key in keys])
    return {receipt.key: receipt for _, receipt in history(tables, begins)}


def finished(tables: Place, spec: TableSpec, chunks: Collection[tuple[int, ...]]) -> list[Receipt]:
    """Return the receipts of chunks that are all there already, undamaged; or nothing.

    A task runs again when the worker that did it is lost before its result was fetched.
    """
    found = load(tables, [(spec.name, chunk) for chunk in chunks])
    in_files = {key: receipt for key, receipt in found.items() if receipt.nbytes}
    if len(found) < len(chunks) or damaged(tables, {spec.name: spec}, in_files):
        return []
    return list(found.values())


def history(tables: Place, begins: tuple[bytes, ...] = (b"",)) -> list[tuple[str, Receipt]]:
    """Return every receipt with the name of the process that wrote it; damaged lines are ignored.

    In an object store only the latest receipt of each chunk is there.

    Parameters
    ----------
    begins : tuple of bytes
        Only lines of files that begin in one of these ways are looked at.

    Raises
    ------
    StorageError
        If a ledger cannot be read.
    """
    if isinstance(tables, ObjectPath):
        return _objects(tables)
    found = []
    folder = folder_of(tables)
    assert not isinstance(folder, ObjectPath)
    paths = sorted(folder.glob("*.jsonl"), key=lambda p: (p.lstat().st_mtime_ns, p.name))
    for path in paths:
        try:
            lines = read_lines(path, begins)
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {file_fault(error, path)}") from None
        found += [(path.stem, receipt) for receipt in map(_receipt, lines) if receipt is not None]
    return found


def _objects(tables: ObjectPath, keys: Iterable[Key | tuple[str, None]] | None = None) -> list[tuple[str, Receipt]]:
    """Return the receipts of all chunks, or of some chunks or tables, each with who wrote it, in the order of time."""
    folder = folder_of(tables)
    assert isinstance(folder, ObjectPath)

    def read(path: ObjectPath) -> dict[str, Any] | None:
        try:
            return from_line(path.read_bytes())
        except FileNotFoundError:
            return None

    try:
        if keys is None:
            paths = [folder / name for name in folder.sizes()]
        else:
            paths = []
            for table, chunk in keys:
                own = folder / table
                paths += own.iterdir() if chunk is None else [_object_of(folder, (table, chunk))]
        records = each(read, paths)
    except OSError as error:
        raise disk_full(error, "") from None
    found = [(record.get(_WRITER, ""), _receipt(record)) for record in records if record is not None]
    return sorted([(writer, receipt) for writer, receipt in found if receipt is not None], key=lambda w: w[1].ended)
