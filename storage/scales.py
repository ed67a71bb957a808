"""The scales of a table of probabilities, as Zarr arrays beside it, so that any Zarr reader can use its values.

Each chunk of such a table has a scale of its own, which bucketflow reads from the receipts. Other readers find it in
the array ``NAME_log_scale``. It has one entry a chunk, and the axes along which the table is cut, by the same names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from .chunks import write_chunk
from .files import Place
from .spec import Receipt, TableSpec
from .tables import LOG_SCALE, LOGS, create_table


def write_scales(folder: Place, spec: TableSpec, receipts: Collection[Receipt]) -> None:
    """Write the scales of a table's finished chunks; NaN stands for the others.

    If chunks hold logarithms, the array ``NAME_logs`` is 1 for these chunks and 0 for others.

    Raises
    ------
    StorageError
        If the arrays cannot be written.
    """
    scales, logs = np.full(spec.grid, np.nan), np.zeros(spec.grid, np.int8)
    for receipt in receipts:
        scales[receipt.chunk], logs[receipt.chunk] = receipt.value["log_scale"], receipt.value["logs"]
    _write(folder, spec, LOG_SCALE, scales, "logarithm of the scale of each chunk")
    if logs.any():
        _write(folder, spec, LOGS, logs, "1 for each chunk of logarithms")


def _write(folder: Place, spec: TableSpec, end: str, values: Any, kind: str) -> None:
    axes = [axis for axis, v in enumerate(spec.variables) if v in spec.chunked]
    beside = replace(
        spec,
        name=spec.name + end,
        variables=tuple(spec.variables[axis] for axis in axes),
        labels=tuple(spec.labels[axis] for axis in axes),
        shape=tuple(spec.shape[axis] for axis in axes),
        chunked=frozenset(),
        dtype=values.dtype.name,
        compression="",
        attributes={"kind": kind, "of": spec.name},
    )
    create_table(folder, beside)
    write_chunk(folder, beside, (0,) * len(axes), values.reshape(beside.shape))
