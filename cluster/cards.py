"""Cards of this machine by the memory that they have free, as the driver's management library (NVML) tells it.

CUDA asks each card only within a context, which takes seconds and hundreds of megabytes there; NVML takes neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL, Structure, byref, c_int, c_ulonglong, create_string_buffer
from ctypes import c_uint as number
from ctypes import c_void_p as handle
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, Final

LIBRARY: Final = "libnvidia-ml.so.1"
DRIVER: Final = "libcuda.so.1"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Card:
    """A card that this process may use.

    Parameters
    ----------
    uuid : str
    model : str
    free_bytes : int
    """

    uuid: str
    model: str
    free_bytes: int


class _Memory(Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _NvmlError(Exception):
    """A call failed."""


@contextmanager
def _nvml() -> Iterator[Any]:
    library = CDLL(LIBRARY)

    def call(name: str, *args: Any) -> None:
        if getattr(library, f"nvml{name}")(*args) != 0:
            raise _NvmlError(name)

    call("Init_v2")
    try:
        yield call
    finally:
        library.nvmlShutdown()


def cards() -> list[Card]:
    """Return the cards of this machine whose device files are there, by their number; none without the library."""
    try:
        with _nvml() as call:
            count = number()
            call("DeviceGetCount_v2", byref(count))
            found = [_card(call, at) for at in range(count.value)]
    except (OSError, AttributeError, _NvmlError):
        return []
    return [card for card, minor in found if Path(f"/dev/nvidia{minor}").exists()]


def _card(call: Any, at: int) -> tuple[Card, int]:
    device, minor, memory = handle(), number(), _Memory()
    uuid, model = create_string_buffer(96), create_string_buffer(96)  # the longest texts of NVML
    call("DeviceGetHandleByIndex_v2", number(at), byref(device))
    call("DeviceGetMinorNumber", device, byref(minor))
    call("DeviceGetUUID", device, uuid, number(len(uuid)))
    call("DeviceGetName", device, model, number(len(model)))
    call("DeviceGetMemoryInfo", device, byref(memory))
    return Card(uuid.value.decode(), model.value.decode(), int(memory.free)), int(minor.value)


def most_free_first(there: list[Card], visible: str | None, by_bus: bool) -> str | None:
    """Return a value for ``CUDA_VISIBLE_DEVICES`` with the card with most free memory first; None to leave it
    unchanged.

    Parameters
    ----------
    there : list of Card
        By their number on the bus.
    visible : str, optional
        The present value of the variable.
    by_bus : bool
        Whether CUDA numbers cards by the bus, and not the fastest first, which is the same for cards of one model.
    """
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        by_name = {**{card.uuid: card for card in there}, **{str(at): card for at, card in enumerate(there)}}
        if not {*names} <= {*by_name}:  # parts of a card, names that are cut short
            return None
        numbered = any(name.isdigit() for name in names)
        if numbered and not by_bus and len({card.model for card in there}) > 1:
            return None
        there = [by_name[name] for name in names]
    best = sorted(there, key=lambda card: -card.free_bytes)
    if len(there) < 2 or best[0].free_bytes == there[0].free_bytes:
        return None
    return ",".join(card.uuid for card in best)


def take_most_free() -> None:
    """Let CUDA number the cards by their free memory in this process; only of use before it is loaded."""
    by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    order = most_free_first(cards(), os.environ.get(VISIBLE), by_bus)
    if order is not None:
        os.environ[VISIBLE] = order


def begin_driver() -> Thread | None:
    """Start CUDA's driver and the context of its first card in a thread, for a process that will surely use them.

    That takes a third of a second, in which Python imports what it needs. Returns the thread; None where there is
    nothing to start.
    """
    if find_spec("cupy") is None or not any(Path("/dev").glob("nvidia[0-9]*")):
        return None
    take_most_free()
    thread = Thread(target=_start_driver, name="bucketflow starts CUDA's driver")
    thread.start()
    return thread


def _start_driver() -> bool:
    """Start the driver. Failures are reported later, when a device is requested."""
    try:
        driver = CDLL(DRIVER)
    except OSError:
        return False
    device, context = c_int(), handle()
    if driver.cuInit(0) or driver.cuDeviceGet(byref(device), 0):
        return False
    return bool(driver.cuDevicePrimaryCtxRetain(byref(context), device) == 0)
