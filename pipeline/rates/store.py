"""Where measured rates are kept: JSON files in the user's cache directory, one for each machine, device and version."""

from __future__ import annotations

import json
import os
import platform
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ... import __version__
from ...storage.cache import cache_folder, write_whole


@cache
def machine() -> str:
    """Return what tells this machine from others that share a home directory."""
    return f"{platform.node()}-{platform.machine()}-{os.cpu_count()}"


def read(name: str) -> dict[str, Any]:
    """Return what was measured under a name with this version, or nothing."""
    path = path_of(name)
    try:
        status = path.stat()
        return dict(_content(path, status.st_ino, status.st_mtime_ns, status.st_size))
    except (OSError, ValueError):
        return {}


@lru_cache(maxsize=8)
def _content(path: Path, *_: int) -> dict[str, Any]:
    """Read a file once for each state of it: every question asks for rates."""
    found = json.loads(path.read_text())
    return found if isinstance(found, dict) else {}


def write(name: str, entries: dict[str, Any]) -> None:
    """Add entries to what was measured; a read-only home only means that they are measured again."""
    write_whole(path_of(name), json.dumps({**read(name), **entries}).encode())


def path_of(name: str) -> Path:
    """Return the file of a name."""
    return _path(cache_folder(), name, __version__)


@lru_cache(maxsize=8)
def _path(folder: Path, name: str, version: str) -> Path:
    plain = "".join(c if c.isalnum() or c in "-." else "_" for c in name)
    return folder / f"rates-{plain}-{version}.json"
