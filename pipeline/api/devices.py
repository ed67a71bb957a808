"""What a query knows of the devices that it would use: their rates, and what is around them."""

from __future__ import annotations

from functools import partial

from ...tasks.steps.semiring import Semiring
from ..budget.device_fit import Around
from ..options import Options
from ..rates.device import DeviceRates, cached_device_rates, least_device_cells
from ..rates.disk import measured_disk_rate


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


def around_device(options: Options, link_rate: float) -> Around:
    """What is there for tables that leave a device; they are files where others have to see them."""
    files = options.folder is not None or options.remote
    rate = partial(measured_disk_rate, options.folder)
    return Around(options.host_bytes, files, options.disk_bytes, rate, link_rate)
