"""Tables as Zarr v3 arrays: created here with their metadata, openable with plain Zarr and xarray."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from .spec import TableSpec


def create_table(folder: Path, spec: TableSpec) -> None:
    """Write the metadata of a table unless it is there.

    Chunks that were never written read as a fill value that no table holds: -1 for costs and residues,
    NaN for floats.
    """
    path = folder / spec.name
    if (path / "zarr.json").exists():
        return
    import zarr

    zarr.create_array(
        store=str(path),
        shape=spec.shape,
        chunks=spec.chunk_shape,
        dtype=spec.dtype,
        compressors=None,
        fill_value=np.nan if np.dtype(spec.dtype).kind == "f" else -1,
        dimension_names=spec.labels,
        chunk_key_encoding={"name": "default", "separator": "."},
        zarr_format=3,
        overwrite=True,
    )


def delete_table(folder: Path, spec: TableSpec) -> None:
    """Remove a table and its chunks."""
    shutil.rmtree(folder / spec.name, ignore_errors=True)
