"""Metadata of arrays are what Zarr itself writes, though Zarr is asked once of all that are alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bucketflow.storage.spec import TableSpec
from bucketflow.storage.tables import create_table


@pytest.mark.parametrize("compression", ["", "blosc"])
@pytest.mark.parametrize("dtype", ["int16", "int64", "float64", "uint64"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 7, 2)])
def test_zarr_reads_what_was_asked(tmp_path: Path, shape: tuple[int, ...], dtype: str, compression: str) -> None:
    for name, sizes in (("a", shape), ("b", tuple([n + 1 for n in shape]))):
        labels = tuple([f"x{v}" for v in range(len(sizes))])
        spec = TableSpec(
            name, tuple(range(len(sizes))), labels, sizes, frozenset({0} if sizes else ()), dtype, compression
        )
        create_table(tmp_path, spec, lambda: compression)
        array: Any = zarr.open_array(tmp_path / name, mode="r")
        assert (array.shape, array.chunks, array.dtype) == (sizes, spec.chunk_shape, np.dtype(dtype))
        assert (array.metadata.dimension_names or ()) == labels
        assert dict(array.attrs) == dict(spec.attributes)
        assert ("blosc" in json.dumps([codec.to_dict() for codec in array.metadata.codecs])) == (compression == "blosc")
