"""The calibration of a machine as a whole, and what of it a query uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...cluster.connect import ClusterError
from ...cluster.gpu import count_gpus
from ...tasks.steps.semiring import Semiring
from ..queries.arithmetic import SEMIRINGS
from . import store as rate_files
from .cpu import measure_again
from .device import (
    DeviceRates,
    cached_device_rates,
    device_name,
    least_device_cells,
    measure_device,
    measure_link,
    summary,
)
from .disk import keep_disk_rate

if TYPE_CHECKING:
    from ..options import Options


def calibrated() -> dict[str, Any]:
    """Measure everything, cache it and return it as plain figures."""
    found: dict[str, Any] = {
        "cpu": {_title(s): summary(measure_again(s)) for s in SEMIRINGS},
        "disk_bytes_per_second": keep_disk_rate(None),
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
        "kernels": {_title(s): summary(r.rates) for s, r in kernels.items()},
        "least_cells": {_title(s): least_device_cells(s, r) for s, r in kernels.items()},
    }
    return found


def _title(semiring: Semiring) -> str:
    return f"{semiring.name} {semiring.dtype}"


def device_rates(options: Options, semiring: Semiring) -> DeviceRates:
    """Return what is known of the devices that a query would use: measured where they are, or nominal."""
    if options.remote:
        return options.gpu_rates.get(semiring, (DeviceRates(), 0))[0]
    return cached_device_rates(semiring) or DeviceRates()


def least_cells(options: Options, semiring: Semiring) -> int | None:
    """Return from how many cells on a step runs on the device, or None where that was not measured."""
    if options.remote:
        return options.gpu_rates[semiring][1] if semiring in options.gpu_rates else None
    device = cached_device_rates(semiring)
    return None if device is None else least_device_cells(semiring, device)
