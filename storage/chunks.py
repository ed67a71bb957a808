"""Chunk files: written whole or not at all, read straight into arrays, checked against their receipts.

An uncompressed Zarr v3 array is a folder of raw chunk files, so the hot path needs no Zarr: it writes and
reads them directly, and any Zarr reader can open the result.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from .errors import ChunkLostError, DiskFullError
from .spec import Receipt, TableSpec

Array = NDArray[Any]

PARTIAL = ".partial"
_PIECE = 1 << 18


def write_chunk(folder: Path, spec: TableSpec, chunk: tuple[int, ...], values: Array) -> tuple[int, int]:
    """Write a chunk's file and return its length and checksum.

    Raises
    ------
    DiskFullError
        If no space is left; nothing of the chunk remains.
    """
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
    path = folder / spec.name / spec.file_name(chunk)
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with open(partial, "wb", buffering=0) as file:
            written = 0
            while written < len(data):
                written += file.write(data[written:])
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"no space left in {folder} for {len(data)} bytes of table {spec.name}") from None
        raise
    return len(data), checksum(data)


def checksum(data: memoryview) -> int:
    """CRC-32C of some bytes, in pieces since the library takes ``bytes`` only."""
    value = 0
    for start in range(0, len(data), _PIECE):
        value = google_crc32c.extend(value, bytes(data[start : start + _PIECE]))
    return int(value)


def read_chunk(folder: Path, spec: TableSpec, receipt: Receipt, out: Array) -> None:
    """Read a chunk's file into a C-contiguous array.

    Raises
    ------
    ChunkLostError
        If the file is missing, has another length, or its checksum is not the receipt's.
    """
    data = out.reshape(-1).view(np.uint8).data
    try:
        with open(folder / spec.name / spec.file_name(receipt.chunk), "rb", buffering=0) as file:
            done = 0
            while done < len(data):
                count = file.readinto(data[done:])
                if not count:
                    raise ChunkLostError(spec.name, receipt.chunk, f"it ends after {done} bytes")
                done += count
    except FileNotFoundError:
        raise ChunkLostError(spec.name, receipt.chunk, "its file is missing") from None
    if checksum(data) != receipt.checksum:
        raise ChunkLostError(spec.name, receipt.chunk, "its checksum differs")


def map_chunk(folder: Path, spec: TableSpec, chunk: tuple[int, ...]) -> Array:
    """Return a chunk as a read-only memory map, of which only what is used is read.

    Raises
    ------
    ChunkLostError
        If the file is missing or has another length.
    """
    path = folder / spec.name / spec.file_name(chunk)
    try:
        mapped = np.memmap(path, dtype=spec.dtype, mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise ChunkLostError(spec.name, chunk, str(error)) from None
    if mapped.size != int(np.prod(spec.chunk_shape, dtype=np.int64)):
        raise ChunkLostError(spec.name, chunk, f"it has {mapped.nbytes} bytes")
    return mapped.reshape(spec.chunk_shape)


def damaged(folder: Path, specs: Mapping[str, TableSpec], receipts: Mapping[Any, Receipt]) -> list[Receipt]:
    """Return the receipts that their chunk files do not match; reads every file once."""
    found = lost_files(folder, specs, receipts)
    lost = {receipt.key for receipt in found}
    for receipt in receipts.values():
        spec = specs.get(receipt.table)
        if spec is None or receipt.key in lost:
            continue
        values = map_chunk(folder, spec, receipt.chunk).reshape(-1)
        if checksum(values.view(np.uint8).data) != receipt.checksum:
            found.append(receipt)
    return found


def lost_files(folder: Path, specs: Mapping[str, TableSpec], receipts: Mapping[Any, Receipt]) -> list[Receipt]:
    """Return the receipts whose chunk file is missing or has another length (a cheap check on resuming)."""
    lost = []
    for receipt in receipts.values():
        spec = specs.get(receipt.table)
        if spec is None:
            continue
        try:
            size = (folder / spec.name / spec.file_name(receipt.chunk)).stat().st_size
        except FileNotFoundError:
            size = -1
        if size != receipt.nbytes:
            lost.append(receipt)
    return lost
