"""Launches of ``cuda/brick.cu``: the kernel for a brick's shape and its arguments."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import numpy as np

from ..steps.semiring import Semiring
from .device_policy import DevicePolicy
from .kernels import Launch, block_shared_bytes, kernel
from .stream_launch import bound_of
from .tiling.brick_cells import MAX_ROWS, SHARED_BYTES
from .tiling.brick_layout import MAX_COPIES, MAX_OUTER, MAX_PLACES, TABLES_BYTES, Brick, residents
from .tiling.passes import BrickPass

_NARROW: Final = "int16"
_MAX_COLUMNS: Final = 8
"""Cells of a vector; as in ``cuda/brick.cu``."""


def brick_launch(each: BrickPass, semiring: Semiring) -> Launch:
    """Prepare a launch of bricks.

    Parameters
    ----------
    each : BrickPass
        Reads, writes and the brick.
    semiring : Semiring

    Returns
    -------
    Launch
        The compiled kernel, its record, and its grid.
    """
    brick = each.brick
    constants = {
        "STEP": step_dtype(len(brick.slices)).itemsize,
        "INPUTS": len(brick.slices),
        "ROWS": brick.rows,
        "COLUMNS": brick.columns,
        "KINDS": sum((s.rows + 2 * s.columns + 4 * s.inner) << 3 * i for i, s in enumerate(brick.slices)),
        "UNITS": sum((s.unit * semiring.itemsize).bit_length() - 1 << 3 * i for i, s in enumerate(brick.slices)),
        "SPREADS": sum((s.spread > 0) << i for i, s in enumerate(brick.slices)),
        "ONCE": sum((s.far_items == 1) << i for i, s in enumerate(brick.slices)),
    }
    narrow = semiring.dtype == _NARROW and brick.columns > 1
    constants["RESIDENT"] = residents(brick, semiring.itemsize)
    shared = brick.shared_cells * semiring.itemsize
    # copying the next slices ahead takes a second set of buffers
    ahead = brick.ahead and 2 * shared <= block_shared_bytes() - TABLES_BYTES
    shared *= 1 + ahead
    flags = {
        "CLAMP": semiring.saturates and not narrow and len(brick.slices) > semiring.max_inputs,
        "NARROW": narrow,
        "SCATTERED": not brick.vectors,
        "FAR_APART": max(piece.reach for piece in brick.slices) >= DevicePolicy.current().far_cells,
        "AHEAD": ahead,
    }
    constants |= {flag: 1 for flag, wanted in flags.items() if wanted}
    compiled = kernel("brick", semiring.name, semiring.dtype, **constants)
    compiled.max_dynamic_shared_size_bytes = max(SHARED_BYTES, shared)
    return Launch(compiled, _record(brick, semiring), (each.reads, each.writes), brick.blocks, brick.threads, shared)


@cache
def step_dtype(inputs: int) -> np.dtype[Any]:
    """Return the memory layout of ``Step`` in ``cuda/brick.cu`` for a number of inputs.

    Parameters
    ----------
    inputs : int
        Number of input tables.
    """
    # wide fields come first, so that C++ and NumPy align them equally
    fields = [
        ("inputs", "u8", inputs),
        ("out", "u8"),
        ("bound", "i8"),
        ("outer_stride", "i8", (inputs + 1, MAX_OUTER)),
        ("out_place", "i8", MAX_PLACES),
        ("out_row", "i8", MAX_ROWS),
        ("out_column", "i8", _MAX_COLUMNS),
        ("source", "i8", (inputs, MAX_COPIES)),
        ("start", "i4", inputs),
        ("row", "i4", inputs),
        ("outer_size", "u4", MAX_OUTER),
        ("place_size", "u2", MAX_PLACES),
        ("target", "u2", (inputs, MAX_COPIES)),
        ("place", "u2", (inputs, MAX_PLACES)),
        ("copy_size", "u2", (inputs, MAX_COPIES)),
        ("near", "u2", inputs),
        ("copies", "u2", inputs),
        ("first", "u2", inputs + 1),
        ("spread", "u2", inputs),
        ("outer_axes", "u4", 2),
        ("place_axes", "u4", 3),
        ("counts", "u4", 3),
        ("shared", "i4"),
    ]
    return np.dtype([(name, kind, shape[0] if shape else ()) for name, kind, *shape in fields], align=True)


def _record(brick: Brick, semiring: Semiring) -> Any:
    """Fill the record that the kernel reads for a brick.

    Parameters
    ----------
    brick : Brick
    semiring : Semiring

    Returns
    -------
    structured scalar of ``step_dtype``
        Strides of device tables in cells; places in shared memory in bytes.
    """
    inputs, size = len(brick.slices), semiring.itemsize
    record = np.zeros((), step_dtype(inputs))
    record["bound"] = bound_of(semiring)
    for i, axis in enumerate((*brick.bricks, *brick.stages)):
        record["outer_size"][i] = axis.size
        record["outer_stride"][:, i] = (*axis.strides, axis.out)
    record["out_place"][: len(brick.out_places)] = brick.out_places
    record["out_row"][: brick.rows] = brick.out_rows
    record["out_column"][: brick.columns] = brick.out_columns
    record["place_size"][: len(brick.places)] = brick.places
    for i, piece in enumerate(brick.slices):
        copies = piece.near + piece.far
        for name in ("source", "target", "size"):
            # targets are offsets in shared memory, which the kernel addresses in bytes
            scale = size if name == "target" else 1
            record["copy_size" if name == "size" else name][i, : len(copies)] = [
                getattr(copy, name) * scale for copy in copies
            ]
        record["place"][i, : len(brick.places)] = [at * size for at in piece.places]
        record["start"][i] = piece.start * size
        record["row"][i] = piece.row * size
        record["near"][i], record["copies"][i] = len(piece.near), len(copies)
        record["spread"][i] = piece.spread * size
    record["outer_axes"] = (len(brick.bricks), len(brick.bricks) + len(brick.stages))
    record["place_axes"] = (*brick.ends, len(brick.places))
    record["first"][1:] = np.cumsum([piece.far_items for piece in brick.slices])
    record["counts"] = (*[math.prod(a.size for a in group) for group in (brick.bricks, brick.stages)], brick.run)
    record["shared"] = brick.shared_cells * size
    return record
