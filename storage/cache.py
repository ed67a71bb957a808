"""Where this machine keeps what is made once: measured rates, machine code of compiled loops."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """Return ``BUCKETFLOW_CACHE``, or a folder of the user's cache directory. It may not be there yet."""
    given = os.environ.get("BUCKETFLOW_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "bucketflow"


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file that readers see whole or not at all; return False where that is not possible."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        return False
    return True
