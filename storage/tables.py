"""Tables as Zarr v3 arrays: Zarr describes them, so that plain Zarr and xarray open what is written chunk by chunk.

The arrays in a run directory are listed from their metadata, files and receipts alone.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from . import ledger
from .chunks import BLOSC, configuration
from .faults import StoreError, disk_full
from .files import Place, file_bytes, opened, own_name, read_whole, remove_folder, write_all, written_whole
from .object_store import ObjectPath, StaleObjectError, each
from .spec import TableSpec

_METADATA = "zarr.json"
#: Ends of the names of arrays beside a table of probabilities: the scale of each chunk, and whether it holds logs.
LOG_SCALE, LOGS = "_log_scale", "_logs"


def create_table(folder: Place, spec: TableSpec, compression: Callable[[], str] = str) -> TableSpec:
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
    if isinstance(folder, ObjectPath):
        return _create_object(folder, spec, compression)
    if os.path.exists(os.path.join(folder, spec.name, _METADATA)):
        return stored_table(folder, spec)
    chosen = replace(spec, compression=compression())
    try:
        ours = _publish(folder, spec.name, array_metadata(chosen))
    except OSError as error:
        raise disk_full(error, f"no space left in {folder} for table {spec.name}") from None
    return chosen if ours else stored_table(folder, spec)


def _create_object(folder: ObjectPath, spec: TableSpec, compression: Callable[[], str]) -> TableSpec:
    """Put the metadata of a table if they are absent; return how its chunks are stored."""
    metadata = folder / spec.name / _METADATA
    try:
        if (codecs := _codecs(folder / spec.name)) is not None:
            return _with_codecs(spec, codecs)
        chosen = replace(spec, compression=compression())
        metadata.create(array_metadata(chosen))
    except StaleObjectError:
        return stored_table(folder, spec)
    except OSError as error:
        raise disk_full(error, "") from None
    return chosen


def create_group(folder: Place, attributes: Mapping[str, Any]) -> None:
    """Make a folder that any Zarr reader opens as a group, unless it is there.

    Raises
    ------
    DiskFullError
        If no space is left.
    """
    metadata = {"attributes": attributes, "zarr_format": 3, "node_type": "group"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _METADATA).exists():
            with written_whole(folder / _METADATA) as file:
                write_all(file, memoryview(json.dumps(metadata, indent=1).encode()))
    except OSError as error:
        raise disk_full(error, f"no space left in {folder}") from None


def _publish(folder: Path, name: str, metadata: bytes) -> bool:
    """Make the folder of an array, with its metadata or not at all; False if there was one already, which stays.

    It is made beside the group: half an array in it would be none to a reader.
    """
    import shutil

    made = _beside(folder, name)
    try:
        try:
            os.mkdir(made)
        except FileExistsError:
            shutil.rmtree(made)
            os.mkdir(made)
        with opened(os.path.join(made, _METADATA), os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            write_all(file, memoryview(metadata))
        os.rename(made, os.path.join(folder, name))
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def _beside(folder: Path, name: str) -> str:
    """Return where this thread makes or removes an array of a group."""
    return os.path.join(folder.parent, own_name(f".{folder.name}.{name}"))


def stored_table(folder: Place, spec: TableSpec) -> TableSpec:
    """Return the table with the compression that its metadata name; raw where there are none any more."""
    names = _codecs(folder / spec.name if isinstance(folder, ObjectPath) else os.path.join(folder, spec.name))
    return _with_codecs(spec, names)


def _with_codecs(spec: TableSpec, names: Sequence[str] | None) -> TableSpec:
    compression = BLOSC if names is not None and BLOSC in names else ""
    return spec if spec.compression == compression else replace(spec, compression=compression)


def _codecs(table: str | Place) -> Sequence[str] | None:
    """Return the names of a table's codecs; None if its metadata are missing or damaged."""
    try:
        if isinstance(table, ObjectPath):
            return _listed_codecs((table / _METADATA).read_bytes())
        path = os.path.join(table, _METADATA)  # asked for every chunk; objects take longer
        found = os.stat(path)
        return _codecs_of(path, found.st_ino, found.st_size, found.st_mtime_ns)
    except StoreError as error:
        raise disk_full(error, "") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


@lru_cache(1 << 4)
def _codecs_of(path: str, *_version: int) -> tuple[str, ...]:
    """Return the names of the codecs that metadata list; read once for all chunks, of several runs of rows in turn."""
    return _listed_codecs(read_whole(path))


def _listed_codecs(metadata: bytes) -> tuple[str, ...]:
    return tuple([codec["name"] for codec in json.loads(metadata)["codecs"]])


def drop_damaged_tables(folder: Place) -> None:
    """Remove the tables whose metadata do not say how their chunks are stored: these have to be computed again."""
    known = ("bytes",), ("bytes", BLOSC)
    if isinstance(folder, ObjectPath):
        held = sorted({path.split("/")[0] for path in folder.sizes() if "/c." in path})
        for name, codecs in zip(held, each(lambda name: _codecs(folder / name), held), strict=True):
            if codecs not in known:
                remove_folder(folder / name)
        return
    for table in folder.iterdir():
        if any(table.glob("c.*")) and _codecs(table) not in known:
            remove_folder(table)


def array_metadata(spec: TableSpec) -> bytes:
    """Return a table's ``zarr.json``.

    Chunks that were never written read as a fill value that no table holds: -1 for costs and residues,
    NaN for floats, ones for packed keys.
    """
    described = _array_of(np.dtype(spec.dtype), len(spec.shape), spec.compression)
    grid = described["chunk_grid"]
    own: dict[str, Any] = {
        "shape": [*spec.shape],
        "chunk_grid": {**grid, "configuration": {**grid["configuration"], "chunk_shape": [*spec.chunk_shape]}},
        "attributes": dict(spec.attributes),
        "dimension_names": [*spec.labels],
    }
    return json.dumps(described | own).encode()  # on one line: Python's own loops, not C, would indent it


@cache
def _array_of(dtype: np.dtype[Any], dimensions: int, compression: str) -> dict[str, Any]:
    """Return Zarr's metadata of an array of one cell, which is not changed.

    The result is cached per kind of array, because it takes milliseconds.
    """
    from zarr import create_array
    from zarr.codecs import BloscCodec

    codec = BloscCodec(typesize=dtype.itemsize, **configuration(dtype))
    described = _described(
        lambda store: create_array(
            store=store,
            shape=(1,) * dimensions,
            chunks=(1,) * dimensions,
            dtype=dtype,
            compressors=codec if compression == BLOSC else None,
            fill_value=np.nan if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind == "u" else -1,
            dimension_names=("",) * dimensions,
            attributes={},
            chunk_key_encoding={"name": "default", "separator": "."},
            zarr_format=3,
        )
    )
    found: dict[str, Any] = json.loads(described)
    return found


def _described(create: Callable[[Any], object]) -> bytes:
    """Let Zarr create something in memory; return the metadata, for a file that is published whole."""
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {}
    create(MemoryStore(files))
    return bytes(files[_METADATA].to_bytes())


def delete_table(folder: Place, spec: TableSpec) -> None:
    """Remove a table, its chunks and its scales: first from the group, where half a table would be none to a reader."""
    scales = (LOG_SCALE, LOGS) if np.dtype(spec.dtype).kind == "f" else ()
    for end in ("", *scales):
        _delete_array(folder, spec.name + end)


def _delete_array(folder: Place, name: str) -> None:
    import shutil

    if isinstance(folder, ObjectPath):
        try:
            (folder / name / _METADATA).unlink()
            (folder / name).remove_all()
        except OSError as error:
            raise disk_full(error, "") from None
        return
    table, gone = os.path.join(folder, name), _beside(folder, name)
    with suppress(FileNotFoundError):
        try:
            os.rename(table, gone)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            shutil.rmtree(gone)
            os.rename(table, gone)
        shutil.rmtree(gone, ignore_errors=True)


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
    groups: list[Any] = sorted(path.parent for path in run.glob(f"*/{_METADATA}"))
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
    paths: list[Any] = sorted(group.glob(f"*/{_METADATA}"))
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
