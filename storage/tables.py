"""Tables as Zarr v3 arrays: created with their metadata, openable with plain Zarr and xarray.

The metadata are a short JSON file of the published format, so that workers need not import Zarr to write it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .chunks import partial_of
from .compression import BLOSC, CONFIGURATION
from .errors import disk_full
from .spec import TableSpec

_METADATA = "zarr.json"
# All tables of a folder open as one data set.
_GROUP: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": {}}


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
        _publish(folder / _METADATA, _GROUP)
        ours = _publish(path, metadata(chosen))
    except OSError as error:
        raise disk_full(error, f"no space left in {folder} for table {spec.name}") from None
    return chosen if ours else stored_table(folder, spec)


def _publish(path: Path, content: dict[str, Any]) -> bool:
    """Write a file, whole or not at all; False if there was one already, which stays."""
    if path.exists():
        return False
    partial = partial_of(path)
    try:
        partial.write_text(json.dumps(content, indent=2))
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def stored_table(folder: Path, spec: TableSpec) -> TableSpec:
    """Return the table with the compression that its metadata name; raw where there are none any more."""
    try:
        codecs = json.loads((folder / spec.name / _METADATA).read_bytes())["codecs"]
    except (FileNotFoundError, ValueError):
        return spec
    names = [codec["name"] for codec in codecs]
    return replace(spec, compression=BLOSC if BLOSC in names else "")


def metadata(spec: TableSpec) -> dict[str, Any]:
    """Return a table's ``zarr.json``.

    Chunks that were never written read as a fill value that no table holds: -1 for costs and residues,
    NaN for floats.
    """
    dtype = np.dtype(spec.dtype)
    codecs: list[dict[str, Any]] = [{"name": "bytes"}]
    if dtype.itemsize > 1:
        codecs[0]["configuration"] = {"endian": "little"}
    if spec.compression == BLOSC:
        codecs.append({"name": BLOSC, "configuration": {"typesize": dtype.itemsize, **CONFIGURATION}})
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(spec.chunk_shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": "NaN" if dtype.kind == "f" else -1,
        "codecs": codecs,
        "attributes": {},
        "dimension_names": list(spec.labels),
        "storage_transformers": [],
    }


def delete_table(folder: Path, spec: TableSpec) -> None:
    """Remove a table and its chunks."""
    shutil.rmtree(folder / spec.name, ignore_errors=True)
