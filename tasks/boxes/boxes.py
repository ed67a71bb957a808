"""One box of an out-of-core stage: read the input chunks it needs, sweep, write its chunks, leave receipts.

Reading and writing are phases of their own, so that they can go on beside the computation of other boxes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.chunks import damaged, map_chunk, read_chunk, write_chunk
from ...storage.compression import paying
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import create_table, stored_table
from ..steps.semiring import Semiring
from ..sweeps.program import Program
from ..sweeps.scaled import Scaled, joined_scales

Array = NDArray[Any]
T = TypeVar("T")


class Codec(Protocol[T]):
    """How a kind of table goes to disk: its values as an array, the rest into the receipt."""

    def pack(self, table: T) -> tuple[Array, dict[str, Any]]:
        """Return the values and what else has to be kept."""
        ...

    def unpack(self, values: Array, parts: Sequence[tuple[Array, dict[str, Any]]]) -> T:
        """Rebuild a table from its values; ``parts`` are views of them with what was kept for each."""
        ...


class PlainCodec:
    """Bare arrays."""

    def pack(self, table: Array) -> tuple[Array, dict[str, Any]]:
        """Return the array."""
        return table, {}

    def unpack(self, values: Array, parts: Sequence[tuple[Array, dict[str, Any]]]) -> Array:
        """Return the array, flat."""
        return values.reshape(-1)


class ScaledCodec:
    """Probabilities: every chunk has a scale of its own."""

    def pack(self, table: Scaled) -> tuple[Array, dict[str, Any]]:
        """Return the values, with scale and bounds apart."""
        kept = {"log_scale": table.log_scale, "low": table.low, "high": table.high, "logs": table.logs}
        return table.values, kept

    def unpack(self, values: Array, parts: Sequence[tuple[Array, dict[str, Any]]]) -> Scaled:
        """Bring all parts to one scale, in place."""
        return joined_scales(values.reshape(-1), [(view, Scaled(view, **kept)) for view, kept in parts])


@dataclass(frozen=True)
class Box(Generic[T]):
    """What all boxes of a stage share.

    Parameters
    ----------
    folder : Path
        The run directory, as every worker sees it.
    program : Program
        Steps lowered for the sizes inside a box; its leaves have all states.
    sizes : tuple of int
        Domain sizes without boxes.
    inputs : mapping of int to TableSpec
        Tables on disk that the steps read.
    head : int
        The node whose table is written, -1 for the roots.
    output : TableSpec or None
        None for the last stage, whose root tables are single values.
    result : str
        Name of the last stage's results in the ledger.
    codec : Codec
    disk_rate : float, optional
        Bytes per second of a disk that has to be waited for, so that compression may pay and chunks go there at once;
        None where the tables stay in the page cache.
    """

    folder: Path
    program: Program[T]
    sizes: tuple[int, ...]
    inputs: Mapping[int, TableSpec]
    head: int
    output: TableSpec | None
    result: str
    codec: Codec[T]
    disk_rate: float | None = None


def run_box(
    box: Box[T],
    number: int,
    states: Mapping[int, int],
    receipts: Mapping[str, Sequence[Receipt]],
    wanted: Collection[tuple[int, ...]],
    threads: int,
) -> Generator[None, None, list[Receipt]]:
    """Task in three phases: read what a box needs, sweep, write; returns its receipts, which are in the ledger by then.

    Parameters
    ----------
    number : int
        Of the box within its stage.
    states : mapping of int to int
        The variables that the box fixes.
    receipts : mapping
        For each input table the receipts of the chunks that the box needs.
    wanted : collection of tuples of int
        Chunks of the output to write; those that are there from an earlier run stay as they are.
    """
    start = time.perf_counter()
    if box.output is not None and (done := finished(box.folder, box.output, wanted)):
        return done
    tables = {
        node: read_box(box.folder, spec, box.codec, receipts[spec.name], states) for node, spec in box.inputs.items()
    }
    seconds = time.perf_counter() - start
    yield
    start = time.perf_counter()
    leaves = box.program.restricted_leaves(states)
    live = box.program.again(box.program.steps, leaves).run(tables, threads=threads)
    del tables, leaves
    seconds += time.perf_counter() - start
    yield
    start = time.perf_counter() - seconds
    if box.output is None:
        values = packed_roots(box.codec, [live[node] for node in box.program.outputs])
        done = [new_receipt(box.result, (number,), 0, 0, start, {"roots": values})]
    else:
        done = write_box(box.folder, box.output, box.codec, live[box.head], states, wanted, start, box.disk_rate)
    ledger.append(box.folder, done)
    return done


def codec_for(semiring: Semiring) -> Codec[Any]:
    """Return how the tables of a semiring go to disk."""
    return ScaledCodec() if semiring.name == "sum_product" else PlainCodec()


def packed_roots(codec: Codec[T], tables: Sequence[T]) -> list[dict[str, Any]]:
    """Return root tables, of one value each, for a receipt."""
    packed = [codec.pack(table) for table in tables]
    return [{"root": values.reshape(-1)[0].item(), **kept} for values, kept in packed]


def root_table(value: Mapping[str, Any], dtype: str) -> Any:
    """Rebuild a root's table from what its receipt says."""
    entry = np.array([value["root"]], dtype=dtype)
    kept = {name: value[name] for name in ("log_scale", "low", "high", "logs") if name in value}
    return Scaled(entry, **kept) if kept else entry


def finished(folder: Path, spec: TableSpec, wanted: Collection[tuple[int, ...]]) -> list[Receipt]:
    """Return the receipts of a box that was done before, or nothing.

    A task runs again when the worker that did it is lost before its result was fetched.
    """
    if not all((folder / spec.name / spec.file_name(chunk)).exists() for chunk in wanted):
        return []
    found = ledger.load(folder)
    receipts = {chunk: found[spec.name, chunk] for chunk in wanted if (spec.name, chunk) in found}
    if len(receipts) < len(wanted) or damaged(folder, {spec.name: spec}, receipts):
        return []
    return list(receipts.values())


def write_box(
    folder: Path,
    spec: TableSpec,
    codec: Codec[T],
    table: T,
    states: Mapping[int, int],
    wanted: Collection[tuple[int, ...]],
    start: float,
    disk_rate: float | None,
) -> list[Receipt]:
    """Write the wanted ones of the chunks that make up a box of a table; for ``disk_rate`` see :class:`Box`."""
    values, kept = codec.pack(table)
    spec = create_table(folder, spec, str if disk_rate is None else lambda: paying(values, disk_rate))
    view = values.reshape([1 if v in states else n for v, n in zip(spec.variables, spec.shape, strict=True)])
    done = []
    for chunk in spec.chunks_at(states):
        if chunk not in wanted:
            continue
        index = _place(spec, chunk, states)
        nbytes, checksum = write_chunk(folder, spec, chunk, view[index], flushed=disk_rate is not None)
        done.append(new_receipt(spec.name, chunk, nbytes, checksum, start, kept))
    return done


def new_receipt(
    table: str, chunk: tuple[int, ...], nbytes: int, checksum: int, start: float, value: dict[str, Any]
) -> Receipt:
    """Return the receipt of a task that began at ``start`` (``time.perf_counter()``) and ends now."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Receipt(table, chunk, nbytes, checksum, time.perf_counter() - start, peak, value)


def read_box(
    folder: Path, spec: TableSpec, codec: Codec[T], receipts: Sequence[Receipt], states: Mapping[int, int]
) -> T:
    """Read the part of a table that agrees with ``states``; every chunk must be cut along those it has.

    The result has one state for each fixed variable.
    """
    shape = [1 if v in states else n for v, n in zip(spec.variables, spec.shape, strict=True)]
    values = np.empty(shape, dtype=spec.dtype)
    spec = stored_table(folder, spec)
    parts = []
    for receipt in receipts:
        view = values[_place(spec, receipt.chunk, states)]
        read_chunk(folder, spec, receipt, view)
        parts.append((view, receipt.value))
    return codec.unpack(values, parts)


def read_slice(folder: Path, spec: TableSpec, receipts: Sequence[Receipt], states: Mapping[int, int]) -> Array:
    """Read only the cells of a table of costs that agree with ``states``, from memory maps; compressed chunks whole.

    The result is flat and has one state for each fixed variable.
    """
    shape = [1 if v in states else n for v, n in zip(spec.variables, spec.shape, strict=True)]
    values = np.empty(shape, dtype=spec.dtype)
    spec = stored_table(folder, spec)
    inside = tuple(states[v] if v in states and v not in spec.chunked else slice(None) for v in spec.variables)
    for receipt in receipts:
        view = values[_place(spec, receipt.chunk, states)]
        if spec.compression:
            cells = np.empty(spec.chunk_shape, spec.dtype)
            read_chunk(folder, spec, receipt, cells)
        else:
            cells = map_chunk(folder, spec, receipt.chunk)
        view[...] = cells[inside].reshape(view.shape)
    return values.reshape(-1)


def _place(spec: TableSpec, chunk: tuple[int, ...], states: Mapping[int, int]) -> tuple[slice, ...]:
    """Where a chunk lies in a box that fixes ``states``."""
    return tuple(
        slice(c, c + 1) if v in spec.chunked and v not in states else slice(None)
        for v, c in zip(spec.variables, chunk, strict=True)
    )
