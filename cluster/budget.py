"""What this machine can give: memory that is free for tables, and what the process has used."""

from __future__ import annotations

import resource
from pathlib import Path

# Left to the interpreter, the libraries and everyone else when no budget is given.
_SHARE = 0.8


def default_memory_bytes() -> int:
    """Return most of the memory that is available now, within the limit of the process's control group."""
    import psutil

    available = int(psutil.virtual_memory().available)
    limit, used = _read_int("/sys/fs/cgroup/memory.max"), _read_int("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        available = min(available, max(limit - used, 0))
    return int(available * _SHARE)


def _read_int(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def peak_rss_bytes() -> int:
    """Return the largest resident size that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
