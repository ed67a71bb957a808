"""Memory of this machine: free memory for tables, and memory used by the process."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from io import DEFAULT_BUFFER_SIZE
from pathlib import Path, PurePosixPath
from typing import Final

# Python with NumPy, and with compiled code too: resident bytes that are no tables, which no budget counts.
PROCESS_BYTES = 50_000_000
COMPILED_PROCESS_BYTES = 200_000_000
# Left to everyone else when no budget is given.
_SHARE = 0.8
# Of the memory limit of a Dask worker. Above 0.6 Dask moves results to disk, above 0.8 the worker starts no tasks, and
# above 0.95 its nanny kills it.
_LIMIT_SHARE = 0.6
# Where little is free, small models that need no compiled code still get this much of it.
_LEAST_SHARE = 0.25

_AVAILABLE = re.compile(r"MemAvailable:\s+(\d+) kB")

# For each version of control groups: the limit, the usage, and the entry of memory.stat for reclaimable memory.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def default_memory_bytes(root: Path = Path("/")) -> int:
    """Return most of the memory that is available now, within the limits of control groups and of a Dask worker.

    Parameters
    ----------
    root : path
        Where ``proc`` and ``sys`` are.
    """
    return min([shared_bytes(available_bytes(root)), *_task_bytes_of_dask()])


def available_bytes(root: Path = Path("/")) -> int:
    """Return the memory that is available now, within the limits of the process's control groups."""
    return min([_free_bytes(root), *_left_in_groups(root)])


def shared_bytes(available: int) -> int:
    """Return the part of available memory that tables may take; other programs keep the rest."""
    return max(int(available * _SHARE) - COMPILED_PROCESS_BYTES, int(available * _LEAST_SHARE))


def limited_bytes(limit: int) -> int:
    """Return the part of a Dask worker's memory limit that the tables of all its tasks may take."""
    return max(int(limit * _LIMIT_SHARE) - COMPILED_PROCESS_BYTES, int(limit * _LIMIT_SHARE * _LEAST_SHARE))


def limited_task_bytes(limit: int, threads: int) -> int:
    """Return the part of a Dask worker's memory limit that the tables of each task may take, with a task a thread."""
    return limited_bytes(limit) // threads


def _task_bytes_of_dask() -> Iterator[int]:
    """Bytes for a task of each Dask worker of this process that has a memory limit; none if Dask is not in use."""
    module = sys.modules.get("distributed.worker")
    for worker in tuple(module.Worker._instances) if module else ():
        if worker.status.name in ("closing", "closed", "failed"):
            continue
        if limit := getattr(worker.memory_manager, "memory_limit", None):
            yield limited_task_bytes(int(limit), worker.state.nthreads)


def _free_bytes(root: Path) -> int:
    """Return the available memory, as the kernel reports it in a file.

    Otherwise psutil reports it, which is slow to import.
    """
    found = _AVAILABLE.search(_text(f"{root}/proc/meminfo"))
    if found:
        return int(found[1]) * 1024
    import psutil

    return int(psutil.virtual_memory().available)


def _left_in_groups(root: Path) -> Iterator[int]:
    """Bytes that each control group around this process leaves, from its own to the outermost.

    Containers and batch systems limit memory by them; of nested groups the least counts.
    """
    for version, group in _memory_groups(root, _text(f"{root}/proc/self/cgroup")):
        if (left := _left(group, version)) is not None:
            yield left


def _left(group: str, version: int) -> int | None:
    """Return the remaining memory of a group. Its cached file pages count as free, because the kernel reclaims them."""
    limit_file, usage_file, entry = _FILES[version]
    limit = _read_int(f"{group}/{limit_file}")
    if limit is None or limit >= sys.maxsize // 2:  # version 1 writes about the largest number if there is none
        return None
    used = _read_int(f"{group}/{usage_file}")
    if used is None:
        return None
    return max(limit - max(used - _stat(group, entry), 0), 0)


@lru_cache(maxsize=8)
def _memory_groups(root: Path, own: str) -> tuple[tuple[int, str], ...]:
    """Return version and folder of each control group that counts the memory of a process, given the list of its own
    groups.
    """
    groups = [
        (version, str(group))
        for version, folder, mount in _mounted_groups(root, _group_paths(own))
        for group in (folder, *folder.parents)
        if group.is_relative_to(mount)
    ]
    return tuple(groups)


def _mounted_groups(root: Path, paths: Mapping[int, str]) -> Iterator[tuple[int, Path, Path]]:
    """Version, folder and mount point of a process's own groups."""
    for line in _text(f"{root}/proc/self/mountinfo").splitlines():
        fields, _, kind = line.partition(" - ")
        version = _version(*kind.split())
        if version in paths:
            inside, mounted = fields.split()[3:5]
            mount, path = root / mounted.lstrip("/"), PurePosixPath(paths[version])
            # In a container the mount may show a part of the tree only, with the paths of all of it.
            yield version, mount / (path.relative_to(inside) if path.is_relative_to(inside) else ""), mount


def _version(kind: str = "", _device: str = "", options: str = "") -> int:
    """The version of control groups with memory that a file system shows; 0 for none."""
    return 2 if kind == "cgroup2" else int(kind == "cgroup" and "memory" in options.split(","))


def _group_paths(own: str) -> dict[int, str]:
    """The process's own group, for each version of control groups that counts its memory."""
    found = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            found[1 if controllers else 2] = path
    return found


def _text(path: str) -> str:
    """Return the content of a kernel file, or "" if there is none; a file object would take as long as the read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return b"".join(iter(lambda: os.read(file, DEFAULT_BUFFER_SIZE), b"")).decode(errors="surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(file)


def _read_int(path: str) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None


def _stat(group: str, entry: str) -> int:
    try:
        entries = dict(line.split(maxsplit=1) for line in _text(f"{group}/memory.stat").splitlines())
        return int(entries.get(entry, 0))
    except ValueError:
        return 0


def peak_rss_bytes() -> int:
    """Return the largest resident size that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# Parameters of mallopt. By themselves both thresholds grow to these bytes; a process with MALLOC_TRIM_THRESHOLD_ in its
# environment, such as a worker of Dask, keeps the first thresholds, and gets every table as fresh pages.
_THRESHOLDS: Final = {-3: 32 << 20, -1: 64 << 20}


def keep_freed_blocks() -> None:
    """Let the C library of a worker keep freed blocks for later tables, as it does in other processes."""
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        for parameter, nbytes in _THRESHOLDS.items():
            library.mallopt(parameter, nbytes)
