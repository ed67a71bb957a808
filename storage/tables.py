"""Tables as Zarr v3 arrays: Zarr describes them, so that plain Zarr and xarray open what is written chunk by chunk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .codecs import BLOSC, configuration
from .files import opened, partial_of, read_whole, write_all
from .spec import TableSpec, disk_full

_METADATA = "zarr.json"


def create_table(folder: Path, spec: TableSpec, compression: Callable[[], str] = str) -> TableSpec:
    """Write the metadata of a table unless they are there; return how its chunks are stored.

    Several workers may come here at the same time: the first one decides.

    Parameters
    ----------
    compression : callable
        Chooses how to store the chunks of a new table.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    path = folder / spec.name / _METADATA
    if path.exists():
        return stored_table(folder, spec)
    chosen = replace(spec, compression=compression())
    try:
        path.parent.mkdir(exist_ok=True)
        if not (folder / _METADATA).exists():
            _publish(folder / _METADATA, group_metadata())
        ours = _publish(path, array_metadata(chosen))
    except OSError as error:
        raise disk_full(error, f"no space left in {folder} for table {spec.name}") from None
    return chosen if ours else stored_table(folder, spec)


def _publish(path: Path, content: bytes) -> bool:
    """Write a file, whole or not at all; False if there was one already, which stays."""
    partial = partial_of(path)
    partial.unlink(missing_ok=True)
    try:
        with opened(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            write_all(file, memoryview(content))
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def stored_table(folder: Path, spec: TableSpec) -> TableSpec:
    """Return the table with the compression that its metadata name; raw where there are none any more."""
    names = _codecs(folder / spec.name)
    return replace(spec, compression=BLOSC if names is not None and BLOSC in names else "")


def _codecs(table: Path) -> list[str] | None:
    """Return the names of a table's codecs; None if its metadata are missing or damaged."""
    try:
        return [codec["name"] for codec in json.loads(read_whole(table / _METADATA))["codecs"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def drop_damaged_tables(folder: Path) -> None:
    """Remove the tables whose metadata do not say how their chunks are stored: these have to be computed again."""
    for table in folder.iterdir():
        if any(table.glob("c.*")) and _codecs(table) not in (["bytes"], ["bytes", BLOSC]):
            shutil.rmtree(table, ignore_errors=True)


def group_metadata() -> bytes:
    """Return the ``zarr.json`` of a folder of tables: all open as one data set."""
    from zarr import create_group

    return _described(lambda store: create_group(store=store, zarr_format=3))


def array_metadata(spec: TableSpec) -> bytes:
    """Return a table's ``zarr.json``.

    Chunks that were never written read as a fill value that no table holds: -1 for costs and residues,
    NaN for floats, ones for packed keys.
    """
    from zarr import create_array
    from zarr.codecs import BloscCodec

    dtype = np.dtype(spec.dtype)
    codec = BloscCodec(typesize=dtype.itemsize, **configuration(dtype))
    return _described(
        lambda store: create_array(
            store=store,
            shape=spec.shape,
            chunks=spec.chunk_shape,
            dtype=spec.dtype,
            compressors=codec if spec.compression == BLOSC else None,
            fill_value=np.nan if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind == "u" else -1,
            dimension_names=spec.labels,
            chunk_key_encoding={"name": "default", "separator": "."},
            zarr_format=3,
        )
    )


def _described(create: Callable[[Any], object]) -> bytes:
    """Let Zarr create something in memory; return the metadata, for a file that is published whole."""
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {}
    create(MemoryStore(files))
    return bytes(files[_METADATA].to_bytes())


def delete_table(folder: Path, spec: TableSpec) -> None:
    """Remove a table and its chunks."""
    shutil.rmtree(folder / spec.name, ignore_errors=True)
