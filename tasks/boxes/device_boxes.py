"""One box of an out-of-core stage on a device: its inputs go there, the sweep runs, its chunks come back.

Several threads do this at the same time, so that reading, copying in, computing, copying out and writing overlap
(Bistaffa et al. 2016 §V-B). A box that the device has no memory for is done in parts, which fix further variables.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...storage.spec import Receipt, TableSpec
from ..gpu import arrays
from ..gpu.arrays import is_device
from ..gpu.kernels import cupy
from ..gpu.memory import DeviceMemoryError, is_short, own_stream, to_device, to_host
from ..steps.step import make_step
from ..sweeps.device_sweep import Places
from ..sweeps.program import Program
from ..sweeps.scaled import SumProduct
from .boxes import Box, _place, new_receipt, packed_roots
from .device_stores import Store

Array = NDArray[Any]
Chunk = tuple[int, ...]
T = TypeVar("T")
Piece = tuple[Array, dict[str, Any]]


@dataclass(frozen=True)
class DeviceBox(Box[T]):
    """What all boxes of a stage share, and where its tables are."""

    store: Store = field(kw_only=True)


def run_device_box(
    box: DeviceBox[T],
    number: int,
    states: Mapping[int, int],
    receipts: Mapping[str, Sequence[Receipt]],
    wanted: Collection[Chunk],
    threads: int,
    also: Sequence[int] = (),
) -> list[Receipt]:
    """Task: do one box on this thread's stream and return its receipts; see :func:`boxes.run_box`.

    Parameters
    ----------
    also : sequence of int
        Further variables that are fixed, one state after the other, because the whole box does not fit the device:
        of the output, or of the steps of the last stage, whose parts each leave their roots.

    Raises
    ------
    DeviceMemoryError
        If a part does not fit the device.
    """
    start = time.perf_counter()
    if box.output is not None and (done := box.store.finished(box.output, wanted)):
        return done
    failure = ""
    try:
        with own_stream():
            if box.output is None:
                roots = _rooted(box, states, receipts, threads, also)
                found = {"roots": roots[0]} if not also else {"parts": roots, "also": list(also)}
                done = [new_receipt(box.result, (number,), 0, 0, start, found)]
            else:
                done = _written(box, box.output, states, receipts, wanted, threads, also, start)
    except MemoryError as error:
        if not is_short(error):
            raise
        failure = str(error)
    if failure:  # raised here, where no traceback keeps tables of the device alive
        arrays.free_pools()
        raise DeviceMemoryError(failure)
    box.store.record(done)
    return done


def _rooted(
    box: DeviceBox[T],
    states: Mapping[int, int],
    receipts: Mapping[str, Sequence[Receipt]],
    threads: int,
    also: Sequence[int],
) -> list[list[dict[str, Any]]]:
    """Sweep a box of the last stage part by part; return the roots of each, as a receipt has them."""
    roots = []
    for part in _parts(states, also, box.sizes):
        live = _swept(box, part, receipts, threads, cut=bool(also))
        roots.append(packed_roots(box.codec, [live[node] for node in box.program.outputs]))
    return roots


def _written(
    box: DeviceBox[T],
    spec: TableSpec,
    states: Mapping[int, int],
    receipts: Mapping[str, Sequence[Receipt]],
    wanted: Collection[Chunk],
    threads: int,
    also: Sequence[int],
    start: float,
) -> list[Receipt]:
    """Compute the box part by part and store its chunks."""
    rooms: dict[Chunk, Array] = {}
    done = []
    try:
        pieces = _computed(box, spec, states, receipts, wanted, threads, also, rooms)
        for chunk, found in pieces.items():
            kept = _together(box, rooms[chunk], found)
            nbytes, checksum = box.store.put(spec, chunk, rooms.pop(chunk))
            done.append(new_receipt(spec.name, chunk, nbytes, checksum, start, kept))
    finally:
        for room in rooms.values():
            box.store.discard(room)
    return done


def _computed(
    box: DeviceBox[T],
    spec: TableSpec,
    states: Mapping[int, int],
    receipts: Mapping[str, Sequence[Receipt]],
    wanted: Collection[Chunk],
    threads: int,
    also: Sequence[int],
    rooms: dict[Chunk, Array],
) -> dict[Chunk, list[Piece]]:
    """Fill ``rooms`` with the wanted chunks; return the pieces of each and what has to be kept beside them."""
    pieces: dict[Chunk, list[Piece]] = {}
    for part in _parts(states, also, box.sizes):
        values, kept = box.codec.pack(_swept(box, part, receipts, threads, cut=bool(also))[box.head])
        view = values.reshape([1 if v in part else n for v, n in zip(spec.variables, spec.shape, strict=True)])
        for chunk in spec.chunks_at(part):
            if chunk not in wanted:
                continue
            if chunk not in rooms:
                rooms[chunk] = box.store.room(spec)
            piece = rooms[chunk][_within(spec, part)]
            _fetch(view[_place(spec, chunk, part)], piece)
            pieces.setdefault(chunk, []).append((piece, kept))
        cupy().cuda.get_current_stream().synchronize()
        del values, view
    return pieces


def _together(box: DeviceBox[T], room: Array, pieces: list[Piece]) -> dict[str, Any]:
    """Bring the parts of a chunk to one scale; return what has to be kept beside its values."""
    if len(pieces) == 1:
        return pieces[0][1]
    values, kept = box.codec.pack(box.codec.unpack(room, pieces))
    if values is not room:
        room[...] = values.reshape(room.shape)
    return kept


def _within(spec: TableSpec, part: Mapping[int, int]) -> tuple[slice, ...]:
    """Where a part lies in a chunk."""
    return tuple(
        slice(part[v], part[v] + 1) if v in part and v not in spec.chunked else slice(None) for v in spec.variables
    )


def _parts(states: Mapping[int, int], also: Sequence[int], sizes: Sequence[int]) -> Iterator[dict[int, int]]:
    for more in product(*(range(sizes[v]) for v in also)):
        yield {**states, **dict(zip(also, more, strict=True))}


def _lowered(box: DeviceBox[T], part: Mapping[int, int]) -> Program[T]:
    """Lower the steps for what a part leaves open."""
    sizes = tuple(1 if v in part else n for v, n in enumerate(box.sizes))
    program = box.program
    algebra: Any = program.algebra
    steps = tuple(make_step(s.node, s.inputs, s.input_axes, s.axes, sizes, s.lowered.semiring) for s in program.steps)
    if isinstance(algebra, SumProduct):
        algebra = replace(algebra, sizes=sizes)
    return replace(program, steps=steps, algebra=algebra)


def _swept(
    box: DeviceBox[T],
    part: Mapping[int, int],
    receipts: Mapping[str, Sequence[Receipt]],
    threads: int,
    *,
    cut: bool,
) -> dict[int, T]:
    """Bring the inputs where they are read, and sweep; ``cut``: the steps were lowered for more than this part."""
    program = _lowered(box, part) if cut else box.program
    places = getattr(program.algebra, "places", None)
    there = places.device_nodes(program.steps) if isinstance(places, Places) else frozenset()
    read_there = {i for step in program.steps if step.node in there for i in step.inputs}
    tables = {}
    for node, spec in box.inputs.items():
        tables[node] = _loaded(box, spec, receipts[spec.name], part, node in read_there)
    return program.again(program.steps, program.restricted_leaves(part)).run(tables, threads=threads)


def _loaded(
    box: DeviceBox[T],
    spec: TableSpec,
    receipts: Sequence[Receipt],
    part: Mapping[int, int],
    there: bool,
) -> T:
    """Copy the part of a table that agrees with ``part`` to the device, or to fresh host memory."""
    shape = [1 if v in part else n for v, n in zip(spec.variables, spec.shape, strict=True)]
    cells = int(np.prod(shape, dtype=np.int64))
    values = (arrays.empty(cells, spec.dtype) if there else np.empty(cells, spec.dtype)).reshape(shape)
    found = []
    inside = _within(spec, part)
    wanted = set(spec.chunks_at(part))
    with ExitStack() as reading:
        for receipt in receipts:
            if receipt.chunk in wanted:
                view = values[_place(spec, receipt.chunk, part)]
                _send(reading.enter_context(box.store.reading(spec, receipt))[inside], view)
                found.append((view, receipt.value))
        cupy().cuda.get_current_stream().synchronize()
    return box.codec.unpack(values, found)


def _send(source: Array, target: Any) -> None:
    """Copy host values to a table on either side."""
    if not is_device(target):
        target[...] = source.reshape(target.shape)
        return
    source = np.ascontiguousarray(source)
    if target.flags.c_contiguous:
        to_device(source, target)
        return
    there = arrays.empty(target.size, target.dtype.name)
    to_device(source, there)
    target[...] = there.reshape(target.shape)


def _fetch(source: Any, target: Array) -> None:
    """Copy values of either side to a place in host memory."""
    if not is_device(source):
        target[...] = source.reshape(target.shape)
        return
    source = cupy().ascontiguousarray(source)
    if target.flags.c_contiguous:
        to_host(source, target)
    else:
        target[...] = source.get().reshape(target.shape)
