"""The ledger: an append-only record of finished chunks, written before a task counts as done.

Every process appends to a file of its own, so that a chunk finished by a worker counts even if the client
died in the meantime. Presence of a file proves nothing; a receipt and a matching checksum do. Receipts survive the
death of every process at once; they are forced to disk in groups, since all that a power failure can cost is that
what the lost ones stand for is computed again.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from io import FileIO
from pathlib import Path

from .errors import disk_full
from .spec import Receipt

FOLDER = "ledger"

_SYNC_SECONDS = 1.0
_synced: dict[Path, float] = {}


def append(run_folder: Path, receipts: list[Receipt]) -> None:
    """Append receipts, and force them to disk unless that was done a moment ago.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    folder = run_folder / FOLDER
    path = folder / f"{socket.gethostname()}-{os.getpid()}.jsonl"
    lines = "".join(json.dumps(r.to_record()) + "\n" for r in receipts).encode()
    try:
        with open(path, "a+b", buffering=0) as file:
            if not _ends_a_line(file):
                lines = b"\n" + lines
            if file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, "short write")
            if time.monotonic() - _synced.get(path, -_SYNC_SECONDS) >= _SYNC_SECONDS:
                os.fsync(file.fileno())
                _synced[path] = time.monotonic()
    except OSError as error:
        raise disk_full(error, f"no space left in {folder} for receipts") from None


def sync(run_folder: Path) -> None:
    """Force the receipts of all processes to disk.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    for path in (run_folder / FOLDER).glob("*.jsonl"):
        try:
            with open(path, "rb", buffering=0) as file:
                os.fsync(file.fileno())
        except OSError as error:
            raise disk_full(error, f"no space left in {run_folder} for receipts") from None


def _ends_a_line(file: FileIO) -> bool:
    """Whether the file is empty or ends with a whole line; a crashed process of the same number may not have."""
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def load(run_folder: Path) -> dict[tuple[str, tuple[int, ...]], Receipt]:
    """Return the latest receipt of every chunk; a line that a crash cut short is ignored."""
    found: dict[tuple[str, tuple[int, ...]], Receipt] = {}
    paths = sorted((run_folder / FOLDER).glob("*.jsonl"), key=lambda p: (p.stat().st_mtime_ns, p.name))
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                receipt = Receipt.from_record(json.loads(line))
            except (ValueError, TypeError, KeyError):
                continue
            found[receipt.key] = receipt
    return found
