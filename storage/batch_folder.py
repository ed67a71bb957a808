"""The folder of a batch: its lock, the answers so far, each on a checked line of its own, and runs under way."""

from __future__ import annotations

import time
from typing import Any

from .files import PARTIAL, LineLog, Place, remove_folder, write_all, written_whole
from .ledger import SYNC_SECONDS, read_lines, to_line
from .run_folder import FORMAT, FolderKind, check_format, locked_folder
from .spec import disk_full

_ANSWERS, _PRICES, _RUNS = "answers.jsonl", "prices.jsonl", "runs"
_KIND = FolderKind("the folder of a batch", "for a batch", "in use: the batch is running", _ANSWERS)


class BatchDir:
    """A locked folder of a batch.

    Parameters
    ----------
    path : Place
        Created if it does not exist. A folder with other content is refused.

    Raises
    ------
    StorageError
        If the folder cannot be written, is something else, or is in use.
    """

    def __init__(self, path: Place):
        self.path = path
        self._lock = locked_folder(path, _KIND, lambda p: p.name.endswith(PARTIAL))
        try:
            self._file, self._prices = (LineLog(path / name) for name in (_ANSWERS, _PRICES))
        except OSError as error:
            self._lock.close()
            raise disk_full(error, f"no space left in {path}") from None
        self._synced = 0.0

    def close(self) -> None:
        """Release the lock."""
        self._file.close()
        self._prices.close()
        self._lock.close()

    def answers(self) -> dict[str, dict[str, Any]]:
        """Return the latest answer of every key; damaged lines are ignored.

        Raises
        ------
        OtherFormatError
        """
        return self._latest(_ANSWERS)

    def prices(self) -> dict[str, dict[str, Any]]:
        """Return the latest price of every key; damaged lines are ignored."""
        return self._latest(_PRICES)

    def _latest(self, name: str) -> dict[str, dict[str, Any]]:
        found = {}
        for line in read_lines(self.path / name):
            if line is not None and "key" in line:
                check_format(self.path / name, line.pop("format", 1))
                found[str(line["key"])] = line
        return found

    def append(self, answer: dict[str, Any]) -> None:
        """Keep an answer, forced to disk unless that was done a moment ago.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        self._write_line(self._file, answer, time.monotonic() - self._synced >= SYNC_SECONDS)

    def append_price(self, price: dict[str, Any]) -> None:
        """Keep a price, which is found again if it is lost.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        self._write_line(self._prices, price, False)

    def _write_line(self, log: LineLog, record: dict[str, Any], forced: bool) -> None:
        line = to_line({**record, "format": FORMAT})
        try:
            log.append(line, forced=forced)
            if forced:
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

    def run_folder(self, key: str) -> Place:
        """Return the run directory of a question that is worth one."""
        folder = self.path / _RUNS
        folder.mkdir(exist_ok=True)
        return folder / key[:32]

    def drop_run(self, key: str) -> None:
        """Remove the run directory of a question that is answered."""
        folder = self.path / _RUNS / key[:32]
        if folder.exists():
            remove_folder(folder)
