"""The rates of this machine's cores and disk: measured once with the real kernels, and cached.

Only predictions use them. The search for trees runs on nominal rates, so that a plan depends on its seed and not on how
busy the machine was. The rate of a disk is a sample, or what a calibration stored.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from ...cluster.version import __version__
from ...storage.faults import disk_full
from ...storage.files import PARTIAL, SAMPLE_BYTES, Place, cache_folder, write_all, write_whole
from ...storage.object_store import ObjectPath
from ...tasks.compiler.code_cache import cpu_model, is_compiled
from ...tasks.cpu.dense import run
from ...tasks.steps.lowering import lower
from ...tasks.steps.semiring import Semiring
from ..budget.budget_policy import DISK_RATE
from ..errors import TUNE_REMOVED
from ..plans.prediction import rates_key
from ..trees.costs import Rates

# Where measured rates are kept: JSON files in the user's cache directory. Each model of processor or device, and each
# version, has its own.


@cache
def machine() -> str:
    """Return the model and number of this machine's processors; machines of the same kind share their rates."""
    return f"{cpu_model()}-{platform.machine()}-{os.cpu_count()}"


def read(name: str) -> dict[str, Any]:
    """Return the measurements stored under a name by this version, or {}."""
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
    """Add entries to the stored measurements. With a read-only home they are measured again each time."""
    write_whole(path_of(name), json.dumps({**read(name), **entries}).encode())


def path_of(name: str) -> Path:
    """Return the file of a name."""
    return _path(cache_folder(), name, __version__)


@lru_cache(maxsize=8)
def _path(folder: Path, name: str, version: str) -> Path:
    plain = "".join(c if c.isalnum() or c in "-." else "_" for c in name)
    return folder / f"rates-{plain}-{version}.json"


def removed_launches(name: str) -> str:
    """Return a sentence about launches that ``bucketflow tune`` stored under a name; "" if there are none."""
    if read(name).get("launches") is None:
        return ""
    return f"the launches stored in {path_of(name)} are not used: {TUNE_REMOVED}"


# Measurements of one kind, of which the fastest counts.
REPEATS = 3
# The first look-up of this machine's rates takes 4 ms; compiling the loops that measure them a good part of 10 s.
_SHORT_SECONDS, _LONG_SECONDS = 4e-3, 10.0
# Limits for the measured cost of an additional table, relative to a pass of its own; a busy machine can measure
# nonsense.
_SHARES = (0.05, 0.5)
# Fields that earlier calibrations did not measure.
_LATER = ("read_share", "fresh_bytes_per_second")
# Caches in which there was code of loops.
_SEEN: set[Path] = set()


def cached_rates(semiring: Semiring) -> Rates | None:
    """Return the rates that were measured for a semiring on this machine with this version, if any."""
    return rates_of(read(machine()).get(rates_key(semiring)))


def rates_of(stored: Any) -> Rates | None:
    """Return the rates in a cache entry, or None if the entry is invalid."""
    try:
        rates = {f.name: float(stored[f.name]) for f in fields(Rates) if f.name in stored or f.name not in _LATER}
    except (ValueError, KeyError, TypeError):
        return None
    return Rates(**rates) if all(r > 0 for r in rates.values()) else None


def machine_rates(semiring: Semiring) -> Rates:
    """Return this machine's rates for a semiring, measuring them (about a second) if they are not cached."""
    rates = cached_rates(semiring)
    return measure_again(semiring) if rates is None else rates


def is_worth_measuring(seconds: float) -> bool:
    """Return whether the machine's rates matter for a plan with these nominal seconds."""
    if seconds < _SHORT_SECONDS:
        return False
    return seconds >= _LONG_SECONDS or _loops_are_kept()


def _loops_are_kept() -> bool:
    """Return whether there is code of streaming loops, which is looked for until it was found once."""
    folder = cache_folder()
    if folder not in _SEEN and is_compiled("tasks.cpu.stream_loops", "stream"):
        _SEEN.add(folder)
    return folder in _SEEN


def measure_again(semiring: Semiring) -> Rates:
    """Measure this machine's rates for a semiring and cache them."""
    rates = measure(semiring)
    write(machine(), {rates_key(semiring): asdict(rates)})
    return rates


def measure(semiring: Semiring) -> Rates:
    """Measure one core: cached streaming steps of few and more tables, a product, memory traffic, the smallest step."""

    def rate(inputs: list[tuple[int, ...]], output: tuple[int, ...], *sizes: int) -> float:
        return _step_rate(semiring, inputs, output, dict(enumerate(sizes)))

    sizes = (64, 4, 256)
    two = rate([(0, 1, 2), (1, 2)], (0, 2), *sizes)
    full = [rate([(0, 1, 2)] * inputs, (0, 2), *sizes) for inputs in (2, 6)]
    return Rates(
        cells_per_second=two,
        matmul_cells_per_second=rate([(0, 1), (1, 2)], (0, 2), 256, 256, 256),
        bytes_per_second=_copy_rate(),
        step_seconds=4.0 / rate([(0, 1), (1,)], (0,), 2, 2),
        read_share=min(max((full[0] / full[1] - 1) / 4, _SHARES[0]), _SHARES[1]),
        fresh_bytes_per_second=_fresh_rate(),
    )


def _step_rate(
    semiring: Semiring, inputs: list[tuple[int, ...]], output: tuple[int, ...], sizes: dict[int, int]
) -> float:
    """Return cells per second of one step."""
    lowered = lower(inputs, output, sizes, semiring.dtype, semiring)
    tables = [np.ones(int(np.prod([sizes[v] for v in axes])), dtype=semiring.dtype) for axes in inputs]
    return lowered.cells / _best(lambda: run(lowered, tables))


def _copy_rate() -> float:
    """Return bytes read plus written per second by a copy that does not fit the caches."""
    source = np.ones(1 << 23)  # unwritten pages would all map to one page, in a cache
    target = np.empty_like(source)
    return 2 * source.nbytes / _best(lambda: np.copyto(target, source))


def _fresh_rate() -> float:
    """Return bytes per second of filling memory that the process did not have before."""
    size = 1 << 25  # the allocator returns a block of this size each time
    return size / _best(lambda: np.empty(size, np.uint8).fill(1))


def _best(action: Callable[[], object]) -> float:
    """CPU seconds of the fastest repetition, each long enough for the clock: others may run on the same core."""
    action()
    count = 1
    while True:
        start = time.thread_time()
        for _ in range(count):
            action()
        if time.thread_time() - start > 5e-3:
            break
        count *= 4
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        for _ in range(count):
            action()
        times.append((time.thread_time() - start) / count)
    return min(times)


# Rounds of a sample. The fastest round counts: other processes delay some of the rounds.
_SAMPLE_ROUNDS = 8


def measured_disk_rate(path: Place | None) -> float:
    """Return bytes per second of writing and reading back a sample, forced to disk; a guess if that fails.

    Taken from the calibration where there is one for the file system.
    """
    if isinstance(path, ObjectPath):
        return sampled_store_rate(path)
    folder = path if path is not None and path.is_dir() else _temporary_folder()
    stored = read(machine()).get(_disk_key(folder))
    if isinstance(stored, float) and stored > 0:
        return stored
    try:
        return sampled_rate(folder)
    except OSError:
        return DISK_RATE  # the disk is full, or cannot be written


def keep_disk_rate(path: Path | None) -> float:
    """Measure the disk of a folder, of that for temporary files by default, and keep its rate for later plans."""
    folder = path or _temporary_folder()
    try:
        rate = sampled_rate(folder)
    except OSError:
        return DISK_RATE  # the disk is full, or cannot be written
    write(machine(), {_disk_key(folder): rate})
    return rate


def _temporary_folder() -> Path:
    from tempfile import gettempdir

    return Path(gettempdir())


def _disk_key(folder: Path) -> str:
    return f"disk {platform.node()} {folder.stat().st_dev}"


@lru_cache(maxsize=16)
def sampled_rate(folder: Path) -> float:
    """Measure the disk of a folder, once in a process: that takes longer than planning what is small."""
    content = os.urandom(SAMPLE_BYTES)
    return 2 * len(content) / min(sample_seconds(folder, content) for _ in range(_SAMPLE_ROUNDS))


def sample_seconds(folder: Path, content: bytes) -> float:
    """Return the seconds of writing a file, forced to disk, and reading it back."""
    from tempfile import TemporaryFile

    with TemporaryFile(dir=folder, buffering=0) as file:
        start = time.perf_counter()
        write_all(file, memoryview(content))
        os.fsync(file.fileno())
        file.seek(0)
        while file.read(len(content)):
            pass
        return time.perf_counter() - start


@lru_cache(maxsize=16)
def sampled_store_rate(folder: ObjectPath) -> float:
    """Measure an object store, once in a process: bytes per second of putting and getting an object.

    Raises
    ------
    UnreachableError
        If the store does not answer.
    """
    path = folder / f"sample-{uuid4().hex}{PARTIAL}"
    content = os.urandom(SAMPLE_BYTES)
    try:
        start = time.perf_counter()
        path.put(content)
        path.read_bytes()
        seconds = time.perf_counter() - start
        path.unlink()
    except OSError as error:
        raise disk_full(error, "") from None
    return 2 * len(content) / seconds
