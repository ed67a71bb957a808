"""Lines of JSON that end with a checksum of their own: one that was cut short or changed stands for nothing."""

from __future__ import annotations

import json
import os
from io import FileIO
from pathlib import Path
from typing import Any

import google_crc32c

from .files import read_whole

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
