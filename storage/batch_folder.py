"""The folder of a batch: its lock, the answers so far, each on a checked line of its own, and runs under way."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from .files import PARTIAL, opened, write_all, written_whole
from .ledger import ends_a_line, read_lines, to_line
from .run_folder import FORMAT, FolderKind, check_format, locked_folder
from .spec import disk_full

_ANSWERS, _RUNS = "answers.jsonl", "runs"
_KIND = FolderKind("the folder of a batch", "for a batch", "in use: the batch is running", _ANSWERS)
_SYNC_SECONDS = 1.0


class BatchDir:
    """A locked folder of a batch.

    Parameters
    ----------
    path : Path
        Created if it does not exist. A folder with other content is refused.

    Raises
    ------
    StorageError
        If the folder cannot be written, is something else, or is in use.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock = locked_folder(path, _KIND, lambda p: p.name.endswith(PARTIAL))
        try:
            self._file = opened(path / _ANSWERS, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            self._lock.close()
            raise disk_full(error, f"no space left in {path}") from None
        self._synced = 0.0

    def close(self) -> None:
        """Release the lock."""
        self._file.close()
        self._lock.close()

    def answers(self) -> dict[str, dict[str, Any]]:
        """Return the latest answer of every key; damaged lines are ignored.

        Raises
        ------
        OtherFormatError
        """
        found = {}
        for line in read_lines(self.path / _ANSWERS):
            if line is not None and "key" in line:
                check_format(self.path / _ANSWERS, line.pop("format", 1))
                found[str(line["key"])] = line
        return found

    def append(self, answer: dict[str, Any]) -> None:
        """Keep an answer, forced to disk unless that was done a moment ago.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        line = to_line({**answer, "format": FORMAT})
        try:
            write_all(self._file, memoryview(line if ends_a_line(self._file) else b"\n" + line))
            if time.monotonic() - self._synced >= _SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            raise disk_full(error, f"no space left in {self.path}") from None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        try:
            with written_whole(self.path / name) as file:
                write_all(file, memoryview(content))
        except OSError as error:
            raise disk_full(error, f"no space left in {self.path}") from None

    def run_folder(self, key: str) -> Path:
        """Return the run directory of a question that is worth one."""
        folder = self.path / _RUNS
        folder.mkdir(exist_ok=True)
        return folder / key[:32]

    def drop_run(self, key: str) -> None:
        """Remove the run directory of a question that is answered."""
        folder = self.path / _RUNS / key[:32]
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
