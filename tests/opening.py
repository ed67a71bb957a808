"""Opening the stores of runs as anyone would."""

from __future__ import annotations

import warnings
from pathlib import Path

import zarr


def opened(tables: Path) -> tuple[zarr.Group, dict[str, zarr.Array]]:
    """Open a group as anyone would; whatever Zarr warns of is an error, but for what its versions deprecate."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("default", category)
        group = zarr.open_group(str(tables), mode="r")
        return group, dict(group.arrays())
