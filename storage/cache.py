"""Where this machine keeps what is made once: measured rates, machine code of compiled loops."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from .files import write_all, written_whole


def cache_folder() -> Path:
    """Return ``BUCKETFLOW_CACHE``, or a folder of the user's cache directory. It may not be there yet."""
    return _folder(*map(os.environ.get, ("BUCKETFLOW_CACHE", "XDG_CACHE_HOME", "HOME")))


@lru_cache(maxsize=8)
def _folder(given: str | None, cache: str | None, _home: str | None) -> Path:
    """Find the folder once for what the environment says: every question asks for measured rates."""
    if given:
        return Path(given)
    return Path(cache or Path("~/.cache").expanduser()) / "bucketflow"


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file that readers see whole or not at all; return False where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            write_all(file, memoryview(content))
    except OSError:
        return False
    return True
