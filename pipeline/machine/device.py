"""The rates of a GPU, and the cells from which it beats the CPU: measured with the real kernels, and cached.

As on the CPU, the search for trees uses nominal rates. Measured rates decide the method for a plan that does not fit,
the place of its steps, and the predicted time. `calibrated` measures the CPU, the disk and the GPU of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any, Final

import numpy as np

from ...cluster.connect import ClusterError
from ...cluster.gpus import count_gpus
from ...tasks.gpu import arrays
from ...tasks.gpu import launch as gpu
from ...tasks.gpu.kernels import cupy
from ...tasks.gpu.memory import Pinned, own_stream, to_device, to_host
from ...tasks.steps.lowering import Lowered, lower
from ...tasks.steps.semiring import Semiring
from ...tasks.sweeps.device_sweep import LEAST_CELLS
from ..budget.device_fit import LINK_BYTES_PER_SECOND
from ..plans.prediction import rates_key
from ..queries.arithmetic import SEMIRINGS
from ..trees.costs import KernelRates, Rates, gpu_rates
from . import rates as rate_files
from .rates import _best, cached_rates, keep_disk_rate, measure_again, removed_launches

_REPEATS: Final = 5
_LINK_SAMPLE: Final = 1 << 28
_UPLOADED: Final = 1 << 12
_MEASURED: Final = (
    "cells_per_second",
    "matmul_cells_per_second",
    "bytes_per_second",
    "step_seconds",
    "moved_cell_seconds",
)
# By how much a measured share of a time may be away from the nominal one.
_TIMES: Final = 4


@dataclass(frozen=True)
class DeviceRates:
    """A device's calibration.

    Parameters
    ----------
    rates : Rates
        Of steps whose tables are there; ``step_seconds`` is what a launch costs the thread that makes it.
    link_bytes_per_second : float
        Between page-locked host memory and the device, in the slower direction.
    upload_seconds : float
        Of the smallest copy to the device.
    """

    rates: Rates
    link_bytes_per_second: float = LINK_BYTES_PER_SECOND
    upload_seconds: float = 20e-6


def nominal_device_rates(semiring: Semiring) -> DeviceRates:
    """Return the assumed rates of a device that was not measured."""
    return DeviceRates(gpu_rates(semiring))


def device_name() -> str:
    """Return the name of the current device, with its machine and its libraries: rates are stored under it."""
    cp = cupy()
    return _device_name(cp, cp.cuda.Device().id)


@cache
def _device_name(cp: Any, number: int) -> str:
    name = model_name(number)
    return f"{rate_files.machine()}-{name}-cupy{cp.__version__}-cuda{cp.cuda.runtime.runtimeGetVersion()}"


def model_name(number: int = 0) -> str:
    """Return the name that the maker of a device gave it, which takes the driver a millisecond."""
    name: str = cupy().cuda.runtime.getDeviceProperties(number)["name"].decode()
    return name


def cached_device_rates(semiring: Semiring) -> DeviceRates | None:
    """Return the measured rates of a semiring on this device with these libraries, or None."""
    stored: Any = rate_files.read(device_name()).get(rates_key(semiring))
    try:
        measured = {name: float(stored["rates"][name]) for name in _MEASURED}
        link, latency = float(stored["link_bytes_per_second"]), float(stored["upload_seconds"])
    except (ValueError, KeyError, TypeError):
        return None
    usable = link > 0 and latency > 0 and all(rate > 0 for rate in measured.values())
    return DeviceRates(replace(gpu_rates(semiring), **measured), link, latency) if usable else None


def known_device_rates() -> dict[Semiring, tuple[DeviceRates, int]]:
    """Return the measured rates of this process's device, and the cells from which it beats the CPU beside it."""
    known = {semiring: cached_device_rates(semiring) for semiring in SEMIRINGS}
    return {s: (rates, least_device_cells(s, rates)) for s, rates in known.items() if rates is not None}


def measure_device(semiring: Semiring, link: float, latency: float) -> DeviceRates:
    """Measure a semiring's steps on the current device and cache them with the link's figures."""
    small = lower([(0, 1), (1,)], (0,), {0: 64, 1: 2}, semiring.dtype, semiring)
    run, tables = gpu.prepare(small), _tables(small)
    rates = replace(
        _kernel_rates(semiring, partial(_seconds_of_step, semiring)), step_seconds=_best(lambda: run(tables))
    )
    arrays.free_pools()
    figures = {name: getattr(rates, name) for name in _MEASURED}
    stored = {"rates": figures, "link_bytes_per_second": link, "upload_seconds": latency}
    rate_files.write(device_name(), {rates_key(semiring): stored})
    return DeviceRates(rates, link, latency)


def _kernel_rates(semiring: Semiring, seconds: Callable[..., tuple[Lowered, float]]) -> KernelRates:
    """Measure copies, products, eliminations with short loops and with long ones; the rest is nominal.

    Parameters
    ----------
    seconds : callable
        Times the step of given scopes and sizes that eliminates variable 1.
    """
    nominal = gpu_rates(semiring)
    copy, copied = seconds([(0, 1, 2), (1, 2)], (1 << 17, 2, 256))
    product, multiplied = seconds([(0, 1), (1, 2)], (4096, 1024, 4096))
    short, moved = seconds([(0, 1), (1, 2)], (4096, 4, 16384))
    long, swept = seconds([(0, 1), (1, 2), (0, 2)], (4096, 64, 4096))
    moving = (moved - short.cells / nominal.cells_per_second) / _moved(short)
    moving = min(max(moving, nominal.moved_cell_seconds / _TIMES), nominal.moved_cell_seconds * _TIMES)
    sweeping = max(swept - _moved(long) * moving, swept / _TIMES)
    return replace(
        nominal,
        cells_per_second=long.cells / sweeping,
        matmul_cells_per_second=product.cells / multiplied,
        bytes_per_second=_moved(copy) * semiring.itemsize / copied,
        moved_cell_seconds=moving,
    )


def measure_link() -> tuple[float, float]:
    """Return bytes per second to the device or from it, whichever is less, and the seconds of a small upload."""
    memory = Pinned()
    here = memory.take(_LINK_SAMPLE)
    here.fill(1)
    there = arrays.empty(_LINK_SAMPLE, "uint8")
    seconds = []
    with own_stream() as stream:
        for copy in (lambda: to_device(here, there), lambda: to_host(there, here)):
            seconds.append(_on_device(copy, stream))
    small = np.zeros(_UPLOADED, np.uint8)

    def send() -> None:
        arrays.upload([small])
        cupy().cuda.get_current_stream().synchronize()

    return _LINK_SAMPLE / max(seconds), _best(send)


def least_device_cells(semiring: Semiring, device: DeviceRates) -> int:
    """Return from how many cells on a step on host tables is done sooner on the device: a power of two.

    There it takes an upload, a launch and the way of as many values over the link; here it takes the CPU's rate. The
    nominal threshold where the CPU was not measured.
    """
    here = cached_rates(semiring)
    if here is None:
        return LEAST_CELLS
    cells = 1
    while cells < 1 << 40:
        there = device.upload_seconds + device.rates.step_seconds + cells / device.rates.cells_per_second
        there += cells * semiring.itemsize / device.link_bytes_per_second
        if here.step_seconds + cells / here.cells_per_second > there:
            break
        cells *= 2
    return cells


def _moved(step: Lowered) -> int:
    """Cells of all tables."""
    return sum(step.input_cells) + step.out_cells


def _seconds_of_step(
    semiring: Semiring, scopes: Sequence[tuple[int, ...]], sizes: tuple[int, ...]
) -> tuple[Lowered, float]:
    """Return a step that eliminates variable 1, and what it takes by the device's clock."""
    step = lower(list(scopes), (0, 2), dict(enumerate(sizes)), semiring.dtype, semiring)
    run, tables = gpu.prepare(step), _tables(step)
    out = arrays.empty(step.out_cells, semiring.dtype)
    return step, _on_device(lambda: run(tables, out), cupy().cuda.get_current_stream())


def _tables(step: Lowered) -> list[Any]:
    """Draw small values for every input, on the device."""
    pattern = np.random.default_rng(0).integers(1, 100, 1 << 16).astype(step.semiring.dtype)
    return [cupy().asarray(np.resize(pattern, cells)) for cells in step.input_cells]


def _on_device(work: Callable[[], object], stream: Any) -> float:
    """Median seconds of some work on a stream, by the device's clock."""
    cuda = cupy().cuda
    work()
    times = []
    for _ in range(_REPEATS):
        begin, end = cuda.Event(), cuda.Event()
        begin.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        times.append(cuda.get_elapsed_time(begin, end) / 1e3)
    return float(np.median(times))


def summary(rates: Rates) -> dict[str, float]:
    """Return rates as plain figures."""
    return {f.name: getattr(rates, f.name) for f in fields(Rates)}


def calibrated() -> dict[str, Any]:
    """Measure everything, cache it and return it as plain figures."""
    found: dict[str, Any] = {
        "cpu": {_title(s): summary(measure_again(s)) for s in SEMIRINGS},
        "disk_bytes_per_second": keep_disk_rate(None),
        "launches": removed_launches(rate_files.machine()),
        "cache": str(rate_files.path_of(rate_files.machine())),
        "gpu": None,
    }
    try:
        count_gpus(1)
    except ClusterError as missing:
        return {**found, "gpu_missing": str(missing)}
    link, latency = measure_link()
    kernels = {s: measure_device(s, link, latency) for s in SEMIRINGS}
    found["gpu"] = {
        "name": device_name(),
        "link_bytes_per_second": link,
        "upload_seconds": latency,
        "launches": removed_launches(device_name()),
        "kernels": {_title(s): summary(r.rates) for s, r in kernels.items()},
        "least_cells": {_title(s): least_device_cells(s, r) for s, r in kernels.items()},
    }
    return found


def _title(semiring: Semiring) -> str:
    return f"{semiring.name} {semiring.dtype}"
