"""The calibration of a machine as a whole, and what of it a query uses."""

from __future__ import annotations

from typing import Any

from ...cluster.connect import ClusterError
from ...cluster.gpus import count_gpus
from ...tasks.steps.semiring import Semiring
from ..queries.arithmetic import SEMIRINGS
from . import cpu as rate_files
from .cpu import measure_again, removed_launches
from .device import (
    device_name,
    least_device_cells,
    measure_device,
    measure_link,
    summary,
)
from .disk import keep_disk_rate


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
