"""The ledger: an append-only record of finished chunks, flushed to disk before a task counts as done.

Every process appends to a file of its own, so that a chunk finished by a worker counts even if the client
died in the meantime. Presence of a file proves nothing; a receipt and a matching checksum do.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from .spec import Receipt

FOLDER = "ledger"


def append(run_folder: Path, receipts: list[Receipt]) -> None:
    """Append receipts and force them to disk."""
    folder = run_folder / FOLDER
    path = folder / f"{socket.gethostname()}-{os.getpid()}.jsonl"
    lines = "".join(json.dumps(r.to_record()) + "\n" for r in receipts)
    with open(path, "ab", buffering=0) as file:
        file.write(lines.encode())
        os.fsync(file.fileno())


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
