"""Where this machine keeps what is made once: measured rates, machine code of compiled loops."""

from __future__ import annotations

import os
from pathlib import Path

from .files import write_all, written_whole


def cache_folder() -> Path:
    """Return ``BUCKETFLOW_CACHE``, or a folder of the user's cache directory. It may not be there yet."""
    given = os.environ.get("BUCKETFLOW_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "bucketflow"


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file that readers see whole or not at all; return False where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            write_all(file, memoryview(content))
    except OSError:
        return False
    return True
