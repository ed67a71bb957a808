"""Where measured rates are kept: JSON files in the user's cache directory, one for each machine, device and version."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

from ... import __version__


def machine() -> str:
    """Return what tells this machine from others that share a home directory."""
    return f"{platform.node()}-{platform.machine()}-{os.cpu_count()}"


def read(name: str) -> dict[str, Any]:
    """Return what was measured under a name with this version, or nothing."""
    try:
        found = json.loads(path_of(name).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(name: str, entries: dict[str, Any]) -> None:
    """Add entries to what was measured; a read-only home only means that they are measured again."""
    path = path_of(name)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps({**read(name), **entries}))
        os.replace(partial, path)
    except OSError:
        return


def path_of(name: str) -> Path:
    """Return the file of a name."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    plain = "".join(c if c.isalnum() or c in "-." else "_" for c in name)
    return Path(base) / "bucketflow" / f"rates-{plain}-{__version__}.json"
