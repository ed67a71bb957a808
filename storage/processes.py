"""Processes that hold a lock: a record that tells a process from all others, and whether that process is gone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def is_gone(holder: Mapping[str, Any]) -> bool:
    """Whether a process ran where this one does, and is gone.

    Parameters
    ----------
    holder : mapping
        The record that :func:`this_process` made in that process. Other mappings and processes elsewhere are not gone.
    """
    place, pid = holder.get("place"), holder.get("pid")
    if not isinstance(place, str) or not isinstance(pid, int) or place != this_process()["place"]:
        return False
    return _start_of(pid) != holder.get("start")


def this_process() -> dict[str, Any]:
    """Return what tells this process from all others."""
    return {"place": _place(), "pid": os.getpid(), "start": _start_of(os.getpid()), "host": os.uname().nodename}


@cache
def _place() -> str | None:
    """Return what processes that see each other's numbers have in common: the boot and the namespace."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _start_of(pid: int) -> str | None:
    """Return when a process of this machine began, since its number is used again; None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
