"""Several cards of one host in one process: the present card, and copies between cards.

If cards reach each other's memory (NVLink, or PCIe with peer access), a copy does not pass through the host.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final

from . import arrays
from .kernels import cupy

_ALREADY: Final = "PeerAccessAlreadyEnabled"


def on_card(card: int) -> AbstractContextManager[Any]:
    """Do what follows in this thread on a card."""
    device: AbstractContextManager[Any] = cupy().cuda.Device(card)
    return device


def present_card() -> int:
    """Return the card that this thread works on."""
    return int(cupy().cuda.runtime.getDevice())


def card_of(table: Any) -> int:
    """Return the card that a device table lies on."""
    return int(table.device.id)


def brought(table: Any) -> Any:
    """Return a table on the present card: the table itself, or a copy of a finished table on another card."""
    if not arrays.is_device(table):
        return table
    card = card_of(table)
    if card == present_card():
        return table
    here, found = present_card(), arrays.empty(table.size, table.dtype.name, alone=True).reshape(table.shape)
    if table.size:
        reaches(here, card)  # where it does, the copy does not pass through the host
        with on_card(card):
            copy_to(here, cupy().ascontiguousarray(table), found)
            cupy().cuda.get_current_stream().synchronize()
    return found


@cache
def reaches(card: int, other: int) -> bool:
    """Whether a card may read another's memory in place, which it is allowed to at the first call."""
    if card == other:
        return True
    runtime = cupy().cuda.runtime
    if not runtime.deviceCanAccessPeer(card, other):
        return False
    try:
        with on_card(card):
            runtime.deviceEnablePeerAccess(other)
    except runtime.CUDARuntimeError as error:
        return _ALREADY in str(error)
    return True


def copy_to(card: int, source: Any, target: Any) -> None:
    """Start the copy of a contiguous table of the present card into one of a card, on the current stream."""
    cuda, here = cupy().cuda, present_card()
    stream = cuda.get_current_stream().ptr
    cuda.runtime.memcpyPeerAsync(target.data.ptr, card, source.data.ptr, here, source.nbytes, stream)
