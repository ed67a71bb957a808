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
from ..tasks.semiring import min_plus
from .costs import Rates

_REPEATS = 3


def cached_rates() -> Rates | None:
    """Return the rates that were measured on this machine with this version, if any."""
    try:
        stored = json.loads(_path().read_text())
        rates = {f.name: float(stored[f.name]) for f in fields(Rates)}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Rates(**rates) if all(r > 0 for r in rates.values()) else None


def machine_rates() -> Rates:
    """Return this machine's rates, measuring them (about a second) if they are not cached."""
    rates = cached_rates()
    if rates is None:
        rates = measure()
        _store(rates)
    return rates


def measure() -> Rates:
    """Measure one core: cached streaming steps, a tropical product, memory traffic, the smallest step."""
    return Rates(
        cells_per_second=_step_rate([(0, 1, 2), (1, 2)], (0, 2), {0: 64, 1: 4, 2: 256}),
        matmul_cells_per_second=_step_rate([(0, 1), (1, 2)], (0, 2), {0: 256, 1: 256, 2: 256}),
        bytes_per_second=_copy_rate(),
        step_seconds=1.0 / _step_rate([(0, 1), (1,)], (0,), {0: 2, 1: 2}, cells=1),
    )


def _step_rate(
    inputs: list[tuple[int, ...]], output: tuple[int, ...], sizes: dict[int, int], cells: int | None = None
) -> float:
    """Return cells per second of one step on int32."""
    semiring = min_plus("int32", 4)
    lowered = lower(inputs, output, sizes, "int32", semiring)
    tables = [np.zeros(int(np.prod([sizes[v] for v in axes])), dtype=np.int32) for axes in inputs]
    work = lowered.cells if cells is None else cells
    return work / _best(lambda: run(lowered, tables))


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


def _store(rates: Rates) -> None:
    """Cache the rates; a read-only home only means that they are measured again."""
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(rates)))
    except OSError:
        return
