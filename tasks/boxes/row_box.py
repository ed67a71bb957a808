"""One box of a step by rows: read the rows of its inputs within ranges, join, reduce, write a sorted run.

The number of rows of a box is known only when it is computed: a box that does not fit raises an error, and is cut into
smaller ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import field
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.spec import Receipt
from ..gpu import arrays
from ..gpu.memory import is_short, own_stream
from ..rows.keys import Keys
from ..rows.memory_account import MemoryAccount, RowsNoRoomError, possible
from ..rows.ordering import Ranges, concatenated, forget_layouts, part_of, put_back, shifted
from ..rows.relation import Relation, Table, empty
from ..steps.caches import REMEMBERED, Memo
from ..steps.light_dataclass import dataclass
from ..steps.policy import INPUT_PART, MOST_CHUNK_BYTES, BoxPolicy
from ..steps.semiring import LOG_SUM, Semiring
from ..steps.step import Step, make_step
from ..sweeps.sweep import Algebra
from .box import new_receipt
from .device_stores import BufferedFiles
from .sorted_runs import RowRun, blocks_of, keys_name, values_name
from .stores import ChunkFiles, Key, Store

# Chunks of rows are 1 / this of a task's memory on the host.
_CHUNK_PART: Final = 64

T = TypeVar("T")
R = TypeVar("R")
Path = tuple[int, ...]
"""A box: which part of the whole step it is, which part of that, and so on."""


# One thread at a time copies what boxes share to a device.
_PLACING: Final = Lock()


class TooMuchToReadError(RowsNoRoomError):
    """The inputs of a box do not fit."""


class RowsAlgebra(Algebra[T], Protocol[T]):
    """The operations that boxes need from an algebra of sparse tables."""

    def in_room(self, room: MemoryAccount) -> Self:
        """Return the algebra with another account."""
        ...

    def keyed(self, table: T, axes: Sequence[int]) -> tuple[Table, dict[str, Any]]:
        """Return a table with its variables, and what belongs to its values besides."""
        ...

    def restored(self, values: NDArray[Any], kept: Mapping[str, Any]) -> T:
        """Return a dense array with the facts of its values."""
        ...

    def within(self, table: T, axes: Sequence[int], ranges: Ranges) -> T:
        """Return the part of a table within ranges; states count from the start of each range."""
        ...

    def united(self, parts: Sequence[tuple[Relation, Mapping[str, Any]]]) -> T:
        """Return the sum of runs, each with the facts of its values."""
        ...

    def made(self, step: Step, table: T) -> T:
        """Return the table of a step, computed elsewhere, in its stored form."""
        ...


@dataclass(frozen=True)
class RowBoxes(Generic[T]):
    """Data shared by all boxes of a step.

    Parameters
    ----------
    step : Step
    algebra : RowsAlgebra
    semiring : Semiring
        Of the values, unless they are logarithms.
    sizes : tuple of int
        Domain sizes of all variables.
    store : ChunkFiles
    held : mapping of int to table
        Inputs that are in memory.
    stored : mapping of int to sequence of RowRun
        Inputs that are on disk.
    name : str
        Of the table that the boxes write.
    nbytes : int
        Memory limit of a box; device memory if it runs there.
    device : bool
        Whether boxes run on a device: the algebra is one for it, ``held`` is on the host.
    """

    step: Step
    algebra: RowsAlgebra[T]
    semiring: Semiring
    sizes: tuple[int, ...]
    store: ChunkFiles
    held: Mapping[int, T]
    stored: Mapping[int, Sequence[RowRun]]
    name: str
    nbytes: int
    device: bool = False

    @property
    def read_bytes(self) -> int:
        """Maximum bytes that a box may read."""
        policy = BoxPolicy.current()
        return self.nbytes // (policy.device_input_part if self.device else INPUT_PART)

    @property
    def keys(self) -> Keys:
        """Layout of the table that the boxes write."""
        return Keys(self.step.axes, tuple([self.sizes[v] for v in self.step.axes]))

    @property
    def axes(self) -> dict[int, tuple[int, ...]]:
        """Variables of the inputs."""
        return dict(zip(self.step.inputs, self.step.input_axes, strict=True))

    def placed(self) -> Mapping[int, T]:
        """Return the inputs that are in memory where boxes run; large ones go to the device once."""
        if not self.device:
            return self.held
        with _PLACING:
            return self._placed

    @cached_property
    def _placed(self) -> Mapping[int, T]:
        from ..gpu.kernels import cupy
        from ..rows.device_algebra import has_many_rows, large_there

        found = large_there(self.held, has_many_rows)
        cupy().cuda.get_current_stream().synchronize()  # other threads read them on their own streams
        return found

    @cached_property
    def _lowered(self) -> Memo[Step]:
        return Memo(REMEMBERED)  # one entry for each size of a box; few sizes are in use at a time

    def step_of(self, sizes: tuple[int, ...]) -> Step:
        """Return the step for the sizes of a box: most boxes of a step are of the same ones."""
        own, found = self.step, self._lowered.get(sizes)
        if found is None:
            found = make_step(own.node, own.inputs, own.input_axes, own.axes, sizes, self.semiring, keep=False)
            self._lowered.put(sizes, found, size=1)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in {"_placed", "_lowered"}}


def run_row_box(boxes: RowBoxes[Any], path: Path, ranges: Ranges, threads: int) -> list[Receipt]:
    """Task: run a box, and return its receipts, which are already in the ledger, with the box's receipt last.

    Raises
    ------
    NoRoomError
        If it does not fit.
    ChunkLostError
        If a chunk of its inputs is missing or damaged.
    """
    there, before = box_there(boxes.store, boxes.name, boxes.keys, path, ranges)
    if (boxes.name, path) in there:
        return [*there.values()]
    box = _Box(boxes, path, ranges, there, before)

    def done() -> list[Receipt]:
        with own_stream() if boxes.device else nullcontext():
            return box.written(box.made(boxes.store, threads))

    return _within_memory(boxes, done)


def row_box_phases(
    boxes: RowBoxes[Any], path: Path, ranges: Ranges, threads: int
) -> Generator[None, None, list[Receipt]]:
    """Task: do a box on the device of this process, as :func:`run_row_box` does, in phases.

    The first begins to read, so that threads read what the next box needs while this one is joined. The second joins
    and writes. Another thread that wrote meanwhile would take the interpreter's lock from the launches of the next box:
    1.6 GB of rows in 100 boxes took 0.44 s so on an H200, and 0.33 s in one thread.
    """
    from ..rows.device_algebra import entries, table_here

    there, before = box_there(boxes.store, boxes.name, boxes.keys, path, ranges)
    if (boxes.name, path) in there:
        return [*there.values()]
    box = _Box(boxes, path, ranges, there, before)
    with closing(box.begun()) as store:
        yield

        def done() -> list[Receipt]:
            with own_stream():
                made = box.made(store, threads)
                # NumPy writes a result that fits one chunk sooner than a dozen launches do
                few = entries(made).nbytes <= boxes.nbytes // BoxPolicy.current().device_chunk_part
                return box.written(table_here(made) if few else made)

        return _within_memory(boxes, done)


def _within_memory(boxes: RowBoxes[Any], do: Callable[[], R]) -> R:
    """Do something of a box; see :func:`run_row_box`."""
    try:
        return do()
    except RowsNoRoomError as error:
        failure = type(error)(*error.args)
    except MemoryError as error:
        if not is_short(error):
            raise
        variables = tuple(dict.fromkeys(v for axes in boxes.step.input_axes for v in axes))
        failure = RowsNoRoomError(variables, 2 * boxes.nbytes, boxes.nbytes)
    finally:
        if not boxes.device:  # boxes of a device wait for Python, and most have the same layouts
            forget_layouts()
    if boxes.device:
        arrays.free_pools()
    raise failure  # here, where no traceback keeps tables alive


def box_there(
    store: Store, table: str, keys: Keys, path: Path, ranges: Ranges | None = None
) -> tuple[dict[Key, Receipt], RowRun | None]:
    """Return the receipts of undamaged chunks of a box that was done before, and the run that they are of.

    If all chunks are undamaged the box's own receipt is there too, last.

    Parameters
    ----------
    ranges : mapping, optional
        The ranges of the box; by default any ranges.
    """
    folder, key, name = store.folder, (table, path), _run_name(table, path)
    if folder is None or not (folder / keys_name(name)).exists():
        return {}, None
    receipts = ledger.load(folder, [key, (keys_name(name), None), (values_name(name), None)])
    if key not in receipts or "rows" not in receipts[key].value:
        return {}, None
    if ranges is not None and not is_within(receipts[key], ranges):
        return {}, None
    run = run_of(receipts[key], keys)
    chunks = {one: receipts[one] for n in range(run.chunks) for one in run.keys_of(n) if one in receipts}
    for lost in store.damaged({spec.name: spec for spec in run.specs}, chunks):
        del chunks[lost]
    own = {key: receipts[key]} if run.with_receipts(chunks) is not None else {}
    return chunks | own, run


@dataclass
class _Box(Generic[T]):
    """A box under way: its earlier chunks, and the work of its join."""

    boxes: RowBoxes[T]
    path: Path
    ranges: Ranges
    there: Mapping[Key, Receipt]
    before: RowRun | None
    start: float = field(default_factory=time.perf_counter)
    work: dict[str, Any] = field(default_factory=dict)

    def begun(self) -> ChunkFiles:
        """Begin to read the inputs, unless they are more than a box may read; return where they are loaded from.

        Chunks whole lie in the host's memory: those beyond twice what a box may read are read when they are loaded.
        """
        files, nbytes, whole, store = [], 0, 0, self.boxes.store
        assert isinstance(store, BufferedFiles)
        for runs in self.boxes.stored.values():
            for run in runs:
                chunks = run.chunks_within(self.ranges)
                # at both ends, only a part of a chunk is within the ranges
                each = run.chunk_rows * run.row_bytes
                nbytes += max(len(chunks) - 2, 0) * each
                whole += len(chunks) * each
                if whole <= 2 * self.boxes.read_bytes:
                    files += [
                        (spec, [run.receipts[chunk][which] for chunk in chunks]) for which, spec in enumerate(run.specs)
                    ]
        return store.begun(files if nbytes <= self.boxes.read_bytes else ())

    def made(self, store: ChunkFiles, threads: int) -> T:
        """Read the inputs and join them."""
        boxes, ranges = self.boxes, self.ranges
        limit = boxes.read_bytes
        tables, read, held = {}, 0, boxes.placed()
        for node, axes in boxes.axes.items():
            if node in held:
                table = held[node]
            else:
                runs = boxes.stored[node]
                table, nbytes = read_table(
                    store, boxes.algebra, runs, ranges, limit - read, there=boxes.device, from_start=True
                )
                read += nbytes
            tables[node] = boxes.algebra.within(table, axes, ranges) if node in held else table
            del table
        # the host copies the rows that it reads; a device changes them in place, and stores no copies of parts
        room = MemoryAccount(boxes.nbytes - (read if boxes.device else 2 * read))
        sizes = sizes_within(boxes.sizes, ranges)
        step = boxes.step_of(sizes)
        made = boxes.algebra.resized(sizes).in_room(room).step(step, [tables[i] for i in step.inputs], threads)
        self.work = {"joined": room.joined, "work": room.done, "dense": room.dense}
        return made

    def written(self, made: T) -> list[Receipt]:
        """Write what the join made."""
        return stored_run(self.boxes, self.path, made, self.start, self.work, self.there, self.ranges, self.before)


def sizes_within(sizes: Sequence[int], ranges: Ranges) -> tuple[int, ...]:
    """Return domain sizes within ranges."""
    own = (ranges.get(v, (0, d)) for v, d in enumerate(sizes))
    return tuple([stop - first for first, stop in own])


def read_table(
    store: ChunkFiles,
    algebra: RowsAlgebra[T],
    runs: Sequence[RowRun],
    ranges: Ranges,
    limit: int,
    *,
    there: bool = False,
    from_start: bool = False,
) -> tuple[T, int]:
    """Read the rows of all runs within ranges, on the device or the host, and merge them; returns their bytes too.

    Parameters
    ----------
    store : ChunkFiles
        Where the chunks of the runs are.
    algebra : RowsAlgebra
        Adds up the runs.
    runs : sequence of RowRun
        One at least; all of one table.
    ranges : mapping of int to range of states
        For some variables, the states that are read.
    limit : int
        Bytes of rows that may be read.
    there : bool
        Whether rows are brought to the device.
    from_start : bool
        Whether states are counted from the start of each range.

    Returns
    -------
    table, nbytes : table of the algebra, int
        The table, and the bytes of rows that were read for it.

    Raises
    ------
    TooMuchToReadError
        If they take more than the limit.
    ChunkLostError
        If a chunk is missing or damaged.
    """
    parts: list[tuple[Relation, Mapping[str, Any]]] = []
    nbytes = 0
    for run in runs:
        found: list[Relation] = []
        # two more chunks at the ends, which are only partly within the ranges
        together = limit // (run.chunk_rows * run.row_bytes) + 2 if there else 1
        for part in run.read(store, ranges, there=there, together=together):
            nbytes += part.nbytes
            if nbytes > limit:
                raise TooMuchToReadError(run.keys.variables, nbytes, limit)
            found.append(part)
        if found:
            whole = concatenated(found)
            parts.append((shifted(whole, ranges) if from_start else whole, run.kept))
    if not parts:
        run = runs[0]
        like = arrays.empty(0, run.dtype) if there else np.zeros(0, run.dtype)
        parts = [(empty(part_of(run.keys, ranges) if from_start else run.keys, like), run.kept)]
    return algebra.united(parts), nbytes


def chunk_bytes(nbytes: int, *, device: bool) -> int:
    """Return the size of chunks for a task's memory limit."""
    policy = BoxPolicy.current()
    part = policy.device_chunk_part if device else _CHUNK_PART
    return min(max(nbytes // part, policy.least_chunk_bytes), MOST_CHUNK_BYTES)


def even_chunks(rows: int, most: int) -> int:
    """Return the rows per chunk so that no chunk exceeds ``most`` and the last one needs little filling."""
    chunks = max(1, -(-rows // max(1, most)))
    return max(1, -(-rows // chunks))


def most_stored_bytes(rows: int, keys: Keys, itemsize: int) -> int:
    """Return the maximum bytes of ``rows`` rows in chunk files, for any number of runs."""
    key_bytes = 8 * keys.n_words
    filled = rows + rows // max(1, BoxPolicy.current().least_chunk_bytes // (key_bytes + itemsize))
    # keys that compression does not shrink have additional headers: at most one byte for every 128
    return filled * (key_bytes + itemsize) + filled * key_bytes // 128


def stored_run(
    boxes: RowBoxes[Any],
    path: Path,
    table: Any,
    start: float,
    work: Mapping[str, Any],
    there: Mapping[Key, Receipt] = MappingProxyType({}),
    ranges: Ranges = MappingProxyType({}),
    before: RowRun | None = None,
) -> list[Receipt]:
    """Write a table as a sorted run; returns the receipts of its chunks and, last, of the box, which are recorded.

    Parameters
    ----------
    there : mapping of Key to Receipt
        Of chunks that are there, undamaged.
    ranges : mapping
        Those that the table is within; its states count from there.
    before : RowRun, optional
        Existing chunks of the run. The memory limit, which determines their rows, or the scale of the values may have
        changed; then all chunks are written.
    """
    keys = boxes.keys
    bare, kept = boxes.algebra.resized(sizes_within(boxes.sizes, ranges)).keyed(table, boxes.step.axes)
    semiring = LOG_SUM if kept.get("logs") else boxes.semiring
    rows = len(bare) if isinstance(bare, Relation) else possible(bare.values, semiring)
    dtype = bare.values.dtype
    if before is None or (before.rows, before.dtype, before.kept) != (rows, dtype.name, kept):
        # Chunks of another size, dtype or scale cannot stand beside new ones in one run.
        there = {}
        most = chunk_bytes(boxes.nbytes, device=boxes.device)
        chunk_rows = even_chunks(rows, most // (8 * keys.n_words + dtype.itemsize))
    else:
        chunk_rows = before.chunk_rows
    run = RowRun(_run_name(boxes.name, path), keys, rows, chunk_rows, dtype.name, kept)
    blocks = (put_back(block, keys, ranges) for block in blocks_of(bare, semiring))
    receipts = [*run.write(boxes.store, blocks, there)]
    value = {"rows": rows, "chunk_rows": run.chunk_rows, "dtype": run.dtype, "kept": kept, **work}
    value["nbytes"], value["within"] = boxes.nbytes, told_ranges(ranges)
    receipts.append(new_receipt(boxes.name, path, 0, 0, start, value))
    boxes.store.record(receipts)
    return receipts


def _run_name(table: str, path: Path) -> str:
    return "_".join([table, *map(str, path)])


def told_ranges(ranges: Ranges) -> str:
    """Return ranges as receipts have them.

    Examples
    --------
    >>> told_ranges({7: (0, 3), 2: (4, 5)})
    '2:4-5 7:0-3'
    """
    return " ".join([f"{v}:{first}-{stop}" for v, (first, stop) in sorted(ranges.items())])


def is_within(receipt: Receipt, ranges: Ranges) -> bool:
    """Whether a receipt is of a box that has these ranges.

    A table that was deleted and made again may be cut otherwise: of its first boxes, the receipts are in the ledger.
    """
    told = told_ranges(ranges)
    return bool(receipt.value.get("within", told) == told)


def run_of(receipt: Receipt, keys: Keys, ranges: Ranges = MappingProxyType({})) -> RowRun:
    """Return the run of a box, which was cut to ranges, without the receipts of its chunks."""
    value = receipt.value
    how = value["rows"], value["chunk_rows"], value["dtype"], value["kept"]
    return RowRun(
        _run_name(receipt.table, receipt.chunk), keys, *how, ranges={v: ranges[v] for v in ranges if v in keys.sizes}
    )


def known_run(
    receipt: Receipt, keys: Keys, receipts: Mapping[Key, Receipt], ranges: Ranges = MappingProxyType({})
) -> RowRun | None:
    """Return the run of a box that is done; None if some chunk of it has no receipt."""
    return run_of(receipt, keys, ranges).with_receipts(receipts)
