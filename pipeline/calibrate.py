"""What this machine does in a second: measured once with the real kernels, and cached.

Only predictions use it. The search for trees runs on nominal rates, so that a plan depends on its seed and
not on how busy the machine was.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from .. import __version__
from ..tasks.dense import run
from ..tasks.lowering import lower
from ..tasks.semiring import Semiring
from .costs import Rates

_REPEATS = 3


def cached_rates(semiring: Semiring) -> Rates | None:
    """Return the rates that were measured for a semiring on this machine with this version, if any."""
    try:
        stored = json.loads(_path().read_text())[_key(semiring)]
        rates = {f.name: float(stored[f.name]) for f in fields(Rates)}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Rates(**rates) if all(r > 0 for r in rates.values()) else None


def machine_rates(semiring: Semiring) -> Rates:
    """Return this machine's rates for a semiring, measuring them (about a second) if they are not cached."""
    rates = cached_rates(semiring)
    if rates is None:
        rates = measure(semiring)
        _store(semiring, rates)
    return rates


def measure(semiring: Semiring) -> Rates:
    """Measure one core: cached streaming steps, a matrix product, memory traffic, the smallest step."""

    def rate(inputs: list[tuple[int, ...]], output: tuple[int, ...], *sizes: int) -> float:
        return _step_rate(semiring, inputs, output, dict(enumerate(sizes)))

    return Rates(
        cells_per_second=rate([(0, 1, 2), (1, 2)], (0, 2), 64, 4, 256),
        matmul_cells_per_second=rate([(0, 1), (1, 2)], (0, 2), 256, 256, 256),
        bytes_per_second=_copy_rate(),
        step_seconds=4.0 / rate([(0, 1), (1,)], (0,), 2, 2),
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
    source = np.zeros(1 << 23)
    target = np.empty_like(source)
    return 2 * source.nbytes / _best(lambda: np.copyto(target, source))


def _best(action: Callable[[], object]) -> float:
    """Seconds of the fastest repetition, each long enough for the clock."""
    action()
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            action()
        if time.perf_counter() - start > 5e-3:
            break
        count *= 4
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(count):
            action()
        times.append((time.perf_counter() - start) / count)
    return min(times)


def _path() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    machine = f"{platform.node()}-{platform.machine()}-{os.cpu_count()}"
    return Path(base) / "bucketflow" / f"rates-{machine}-{__version__}.json"


def _key(semiring: Semiring) -> str:
    return f"{semiring.name} {semiring.dtype}"


def _store(semiring: Semiring, rates: Rates) -> None:
    """Cache the rates; a read-only home only means that they are measured again."""
    path = _path()
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError):
        stored = {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**stored, _key(semiring): asdict(rates)}))
    except OSError:
        return
