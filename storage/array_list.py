"""The arrays in a run directory, listed from their metadata, files and receipts alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from . import ledger
from .files import Place, file_bytes, read_whole
from .tables import LOG_SCALE, LOGS


@dataclass(frozen=True)
class StoredArray:
    """An array of a run directory.

    Parameters
    ----------
    group, name : str
        The folder that Zarr opens, and the array in it.
    step : int or None
        The step whose table it is, if it is one's.
    variables : tuple of str
        Names of its dimensions.
    shape, chunk_shape : tuple of int
    dtype : str
    chunks, chunks_done : int
        All of them, and those with a receipt.
    bytes_on_disk : int
        Of its chunk files.
    ratio : float or None
        How many times smaller they are than their values; None where there are none.
    """

    group: str
    name: str
    step: int | None
    variables: tuple[str, ...]
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: str
    chunks: int
    chunks_done: int
    bytes_on_disk: int
    ratio: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def stored_arrays(run: Place) -> list[StoredArray]:
    """List the arrays of a run directory, by group and name.

    Raises
    ------
    StorageError
        If a ledger cannot be read.
    """
    found: list[StoredArray] = []
    groups: list[Any] = sorted(path.parent for path in run.glob("*/zarr.json"))
    for group in groups:
        done = Counter(table for table, _ in ledger.load(group))
        found += _arrays(group, done)
    return found


def _arrays(group: Place, done: Counter[str]) -> Iterator[StoredArray]:
    """Yield a description of each array of a group, and skip arrays that are being removed.

    Parameters
    ----------
    group : Place
        A folder of Zarr arrays.
    done : Counter
        Number of finished chunks, by table.
    """
    paths: list[Any] = sorted(group.glob("*/zarr.json"))
    for path in paths:
        try:
            told = json.loads(read_whole(path))
            shape, chunk = tuple(told["shape"]), tuple(told["chunk_grid"]["configuration"]["chunk_shape"])
            attributes, dtype = told.get("attributes", {}), np.dtype(told["data_type"])
            names = tuple(map(str, told.get("dimension_names") or ()))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue  # an array that is removed meanwhile, or damaged: its chunks are computed again
        if path.parent.name.endswith((LOG_SCALE, LOGS)):
            continue  # it describes another array
        table, nbytes = path.parent, file_bytes(path.parent, "c*")
        files = sum(1 for _ in table.glob("c*"))
        yield StoredArray(
            group=group.name,
            name=table.name,
            step=attributes.get("step"),
            variables=names,
            shape=shape,
            chunk_shape=chunk,
            dtype=dtype.name,
            chunks=prod(-(-n // c) for n, c in zip(shape, chunk, strict=True)),
            chunks_done=done[table.name],
            bytes_on_disk=nbytes,
            ratio=round(files * prod(chunk) * dtype.itemsize / nbytes, 3) if nbytes else None,
        )
