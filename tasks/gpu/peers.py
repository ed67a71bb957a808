"""Several cards of one host in one process: the present card, and copies between cards.

If cards reach each other's memory (NVLink, or PCIe with peer access), a card reads single cells of another's table in
place, with any strides. Otherwise the driver copies whole chunks through the host.
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


def all_reach(cards: int) -> bool:
    """Whether each of the first cards may read the memory of all others in place."""
    return all(reaches(card, other) for card in range(cards) for other in range(cards))


def copy_from(card: int, chunk: Any, place: tuple[slice, ...], target: Any) -> None:
    """Start the copy of a part of a table of some card into one of the present card, on the current stream.

    Parameters
    ----------
    card : int
        Where ``chunk`` lies.
    chunk : device array
        C-contiguous.
    place : tuple of slice
        Which part is copied.
    target : device array
        Of the shape of that part.
    """
    here = present_card()
    cells = chunk[place]
    if reaches(here, card) and not (cells.flags.c_contiguous and target.flags.c_contiguous):
        target[...] = _seen(cells, here).reshape(target.shape)
        return
    if cells.flags.c_contiguous and target.flags.c_contiguous:
        _copied(cells, card, target, here)
        return
    whole = arrays.empty(chunk.size, chunk.dtype.name).reshape(chunk.shape)
    _copied(chunk, card, whole, here)
    target[...] = whole[place].reshape(target.shape)


def copy_to(card: int, source: Any, target: Any) -> None:
    """Start the copy of a contiguous table of the present card into one of a card, on the current stream."""
    cuda, here = cupy().cuda, present_card()
    stream = cuda.get_current_stream().ptr
    cuda.runtime.memcpyPeerAsync(target.data.ptr, card, source.data.ptr, here, source.nbytes, stream)


def _copied(source: Any, card: int, target: Any, here: int) -> None:
    """Copy between contiguous tables of two cards, or of one."""
    cuda = cupy().cuda
    stream = cuda.get_current_stream().ptr
    cuda.runtime.memcpyPeerAsync(target.data.ptr, here, source.data.ptr, card, source.nbytes, stream)


def _seen(table: Any, here: int) -> Any:
    """Return another card's table as an array that this card reads in place; CuPy would refuse or copy it otherwise."""
    cp = cupy()
    reach = table.itemsize + sum((n - 1) * s for n, s in zip(table.shape, table.strides, strict=True))
    there = cp.cuda.UnownedMemory(table.data.ptr, reach, table, here)
    return cp.ndarray(table.shape, table.dtype, cp.cuda.MemoryPointer(there, 0), table.strides)
