"""The GPU that launches are laid out for: one value, so that what is planned is the same on every machine. Pure."""

from __future__ import annotations

from typing import Final

from ...steps.light_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Numbers of a device that tilings assume: the numbers of an H200, where devices differ in more than speed.

    Attributes
    ----------
    processors
        Multiprocessors of the device.
    warp
        Threads of a warp, which run in step.
    resident_threads
        Threads that a multiprocessor holds at a time.
    registers
        32-bit registers of a multiprocessor, which the threads it holds share.
    usual_shared_bytes
        Shared memory of a block that every kernel may use without asking.
    most_shared_bytes
        Shared memory of a block that a kernel may ask for: less than the 227 KiB of data-centre GPUs since 2022.
    processor_shared_bytes
        Bytes of shared memory of a multiprocessor, which its resident blocks share: the size of data-centre GPUs since
        2022.
    bank_row_bytes
        Bytes of one row of all banks of shared memory: cells that far apart collide.
    line_bytes
        Bytes of a cache line.
    sector_bytes
        Bytes of the device's memory that are read or written at least.
    vector_bytes
        Bytes of the widest load or store of a thread.
    cached_bytes
        Bytes of tables that stay in the second-level cache of the device.
    """

    processors: int = 132
    warp: int = 32
    resident_threads: int = 2048
    registers: int = 1 << 16
    usual_shared_bytes: int = 48 << 10
    most_shared_bytes: int = 200_000
    processor_shared_bytes: int = 228 << 10
    bank_row_bytes: int = 128
    line_bytes: int = 128
    sector_bytes: int = 32
    vector_bytes: int = 16
    cached_bytes: int = 1 << 25


NOMINAL: Final = DeviceLimits()
"""The limits from which all tilings take their numbers, on every device, so that plans and sums do not depend on it."""
