"""One box of a stage: read the tables it needs, sweep, write the tables it makes and what it finds, leave receipts.

A variable that a box fixes and the table's reader does not know must be summed (or minimised) over all boxes. Every box
writes its partial result, and the reader adds the partial results as it reads them. Similarly, a box that does not fit
in a device's memory runs in parts that fix further variables: tables without these variables are added up, and the
others are put side by side. `TableArchive` keeps whole tables that a user asked to keep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...storage.spec import Receipt, TableSpec
from ..gpu import arrays
from ..gpu.memory import DeviceMemoryError, is_short, own_stream
from ..steps.light_dataclass import dataclass
from ..steps.number_limits import CELL_BYTES
from ..steps.policy import MOST_CHUNK_BYTES
from ..steps.step import Step, make_step
from ..sweeps.program import Program
from ..sweeps.sweep import Spent, timed_steps
from .codecs import Codec, packed_roots
from .stores import Chunk, ChunkFiles, Store, box_shape, place

Array = NDArray[Any]
T = TypeVar("T")
States = Mapping[int, int]
Receipts = Mapping[str, Sequence[Receipt]]
Wanted = Mapping[str, Collection[Chunk]]


@dataclass(frozen=True)
class Box(Generic[T]):
    """Data shared by all boxes of a stage.

    Parameters
    ----------
    program : Program
        Steps lowered for the sizes inside a box; leaves with all states. Its outputs are what is needed at the end:
        results, roots, and the tables that are written after the sweep. Others are written as they are made.
    store : Store
    codec : Codec
    inputs : mapping of int to TableSpec
        Stored tables, by the number under which the steps read them.
    shared : mapping of int to tuple of int
        Of an input the variables whose shares are to be added up; none for most.
    outputs : mapping of int to tuple of TableSpec
        Stored tables that a table of the steps, or an input, is written to.
    results : tuple of int
        Tables that are beliefs.
    roots : tuple of int
        Tables of the value of everything; none in most stages.
    found : TableSpec or None
        The array of the boxes' results: the weights and beliefs of each box. Roots go into the receipt.
    overlaps : bool
        Whether boxes read and write while others compute.
    device : bool
        Whether the program runs on a device.
    """

    program: Program[T]
    store: Store
    codec: Codec[T]
    inputs: Mapping[int, TableSpec]
    shared: Mapping[int, tuple[int, ...]]
    outputs: Mapping[int, tuple[TableSpec, ...]]
    results: tuple[int, ...]
    roots: tuple[int, ...]
    found: TableSpec | None
    overlaps: bool = False
    device: bool = False

    def finds(self, wanted: Wanted) -> bool:
        """Whether what a box finds is wanted."""
        return self.found is not None and self.found.name in wanted


def run_box(
    box: Box[T], number: int, states: States, receipts: Receipts, wanted: Wanted, threads: int, also: Sequence[int] = ()
) -> Generator[None, None, list[Receipt]]:
    """Task in three phases: read what a box needs, sweep, write; returns its receipts, which are in the ledger by then.

    Where boxes do not overlap, everything happens in the second phase.

    Parameters
    ----------
    number : int
        Of the box within its stage.
    states : mapping of int to int
        The variables that the box fixes.
    receipts : mapping
        For each input table the receipts of the chunks that the box needs.
    wanted : mapping
        For each table, the chunks to write; existing chunks of an earlier run are kept.
    also : sequence of int
        Further variables that are fixed, one state after the other, because the whole box does not fit the device.

    Raises
    ------
    DeviceMemoryError
        If a part does not fit the device.
    """
    start = time.perf_counter()
    if done := _finished(box, wanted):
        return done
    left = Left(box, number, states, wanted, tuple(also), start)
    if box.device:
        yield
        _on_device(left, receipts, threads)
        return left.recorded()
    if not box.overlaps:
        yield
        left.start = time.perf_counter()
    tables = {node: read_part(box, node, receipts, states, there=False) for node in box.inputs}
    seconds = time.perf_counter() - left.start
    if box.overlaps:
        yield
    start = time.perf_counter()
    live = _swept(left, box.program, tables, states, threads)
    del tables
    seconds += time.perf_counter() - start
    if box.overlaps:
        yield
    # The receipt counts the three phases, not the time in which the box waited between them.
    left.start = time.perf_counter() - seconds
    left.end(live, states)
    return left.recorded()


def _finished(box: Box[T], wanted: Wanted) -> list[Receipt]:
    """Return the receipts of a box that was done before, or nothing."""
    found: list[Receipt] = []
    specs = (*(spec for specs in box.outputs.values() for spec in specs), box.found)
    for spec in specs:
        if spec is not None and spec.name in wanted:
            in_files = spec is not box.found or bool(box.results)  # roots are in receipts alone
            receipts = box.store.finished(spec, wanted[spec.name], in_files)
            if not receipts:
                return []
            found += receipts
    return found


def _on_device(left: Left[Any], receipts: Receipts, threads: int) -> None:
    """Do a box part by part on this thread's stream."""
    failure = ""
    try:
        with own_stream():
            for part in left.parts():
                _part_there(left, part, receipts, threads)
    except MemoryError as error:
        if not is_short(error):
            raise
        failure = str(error)
    if failure:  # raised here, where no traceback keeps tables of the device alive
        arrays.free_pools()
        raise DeviceMemoryError(failure)


def _part_there(left: Left[T], part: States, receipts: Receipts, threads: int) -> None:
    """Bring the inputs to the device or host that reads them, sweep, and take the results."""
    box = left.box
    program = _lowered(box.program, part) if left.also else box.program
    places = program.algebra.places  # type: ignore[attr-defined]
    there = places.device_nodes(program.steps)
    read_there = {i for step in program.steps if step.node in there for i in step.inputs}
    tables = {node: read_part(box, node, receipts, part, there=node in read_there) for node in box.inputs}
    left.end(_swept(left, program, tables, part, threads), part)


def _lowered(program: Program[T], part: States) -> Program[T]:
    """Lower the steps for the variables that a part leaves free."""
    sizes = tuple(1 if v in part else n for v, n in enumerate(program.dims))
    steps = tuple(make_step(s.node, s.inputs, s.input_axes, s.axes, sizes, s.lowered.semiring) for s in program.steps)
    return replace(program, steps=steps, algebra=program.algebra.resized(sizes))


def read_part(box: Box[T], node: int, receipts: Receipts, states: States, *, there: bool) -> T:
    """Read the part of an input that agrees with ``states``, adding up its shares, to the host or to a device."""
    shared, spec = box.shared.get(node, ()), box.inputs[node]

    def read(at: States) -> T:
        return read_chunks(box, spec, receipts[spec.name], at, there)

    total = added_shares(box.codec, shared, box.program.dims, states, read)
    return box.codec.settled(total) if shared else total


def added_shares(
    codec: Codec[T], shared: Sequence[int], sizes: Sequence[int], states: States, read: Callable[[States], T]
) -> T:
    """Add up the shares of a table, one for each joint state of some variables; without any it has one share."""
    total = None
    for combination in product(*(range(sizes[v]) for v in shared)):
        share = read({**states, **dict(zip(shared, combination, strict=True))})
        total = share if total is None else codec.added(total, share)
        del share  # the next input needs this memory
    assert total is not None
    return total


def read_chunks(box: Box[T], spec: TableSpec, receipts: Sequence[Receipt], states: States, there: bool) -> T:
    """Read the part of a table that agrees with ``states``."""
    shape = box_shape(spec, states)
    values = (arrays.empty(prod(shape), spec.dtype) if there else np.empty(prod(shape), spec.dtype)).reshape(shape)
    chunks = set(spec.chunks_at(states))
    read = [receipt for receipt in receipts if receipt.chunk in chunks]
    box.store.load(spec, values, read, states)
    return box.codec.unpack(values, [(values[place(spec, r.chunk, states)], r.value) for r in read])


def _swept(left: Left[T], program: Program[T], tables: Mapping[int, T], states: States, threads: int) -> dict[int, T]:
    """Run the steps of a box; tables that are not needed at the end are written as they are made."""
    later = set(program.outputs)
    for node in tables.keys() - later:
        left.take(node, tables[node], states)

    def made(step: Step, table: T) -> None:
        if step.node not in later:
            left.take(step.node, table, states)

    leaves = program.restricted_leaves(states)
    with timed_steps() as left.spent:
        return program.again(program.steps, leaves).run(tables, threads=threads, on_table=made)


@dataclass
class Left(Generic[T]):
    """The results of a box: chunks of stored tables, its beliefs, its roots, and their receipts.

    Parameters
    ----------
    also : tuple of int
        Variables that the parts of the box fix besides ``states``.
    start : float
        When the box began, by ``time.perf_counter()``.
    pieces : dict
        For each belief, and each table of a box in parts, the sums so far, by the states of the variables of ``also``
        in it.
    roots : list
        Of each part.
    spent : dict
        Seconds of the steps of the last part.
    """

    box: Box[T]
    number: int
    states: States
    wanted: Wanted
    also: tuple[int, ...]
    start: float
    done: list[Receipt] = field(default_factory=list)
    pieces: dict[int, dict[Chunk, T]] = field(default_factory=dict)
    roots: list[list[dict[str, Any]]] = field(default_factory=list)
    spent: Spent = field(default_factory=dict)

    def parts(self) -> Iterator[dict[int, int]]:
        """Yield what each part of the box fixes; the last variable varies fastest."""
        for more in product(*(range(self.box.program.dims[v]) for v in self.also)):
            yield {**self.states, **dict(zip(self.also, more, strict=True))}

    def take(self, node: int, table: T, part: States) -> None:
        """Store a table that is wanted, or keep it until it is whole."""
        specs = self._specs(node)
        if node in self.box.results or (specs and self.also):
            self._keep(node, table, part)
            return
        for spec in specs:
            self._save(spec, table)

    def end(self, live: Mapping[int, T], part: States) -> None:
        """Take the remaining tables at the end of a part."""
        for node, table in live.items():
            self.take(node, table, part)
        if self.box.roots:
            self.roots.append(packed_roots(self.box.codec, [live[node] for node in self.box.roots]))

    def recorded(self) -> list[Receipt]:
        """Put together what parts made, write what was found, and make all receipts count."""
        box = self.box
        for node in self.pieces.keys() - set(box.results):
            table = self._whole(node)
            for spec in self._specs(node):
                self._save(spec, table)
        if box.finds(self.wanted):
            self._find()
        if self.done:
            self.done[0] = replace(self.done[0], steps=told_steps(self.spent))
        box.store.record(self.done)
        return self.done

    def _specs(self, node: int) -> list[TableSpec]:
        return [spec for spec in self.box.outputs.get(node, ()) if spec.name in self.wanted]

    def _axes(self, node: int) -> tuple[int, ...]:
        """Axes of a table that is put together."""
        if node in self.box.outputs:
            return self.box.outputs[node][0].variables
        return next(step.axes for step in self.box.program.steps if step.node == node)

    def _keep(self, node: int, table: T, part: States) -> None:
        """Keep a part of a table on the host, added to the parts with the same place."""
        if self.box.device:
            from ..sweeps.device_sweep import fetch

            table = fetch(table)
        codec, axes = self.box.codec, self._axes(node)
        own, at = self.pieces.setdefault(node, {}), tuple(part[v] for v in self.also if v in axes)
        own[at] = codec.settled(codec.added(own[at], table)) if at in own else table

    def _whole(self, node: int) -> T:
        """Put the parts of a table side by side."""
        pieces, axes, dims = self.pieces[node], self._axes(node), self.box.program.dims
        if len(pieces) == 1:
            return next(iter(pieces.values()))
        cut = [v for v in self.also if v in axes]
        packed = {at: self.box.codec.pack(piece) for at, piece in pieces.items()}
        dtype = next(iter(packed.values()))[0].dtype
        values = np.empty([1 if v in self.states else dims[v] for v in axes], dtype)
        found = []
        for at, (cells, kept) in packed.items():
            states = dict(zip(cut, at, strict=True))
            view = values[tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in axes)]
            view[...] = cells.reshape(view.shape)
            found.append((view, kept))
        return self.box.codec.unpack(values, found)

    def _save(self, spec: TableSpec, table: T) -> None:
        """Store the wanted ones of the chunks that make up the box of a table."""
        values, kept = self.box.codec.pack(table)
        chunks = [chunk for chunk in spec.chunks_at(self.states) if chunk in self.wanted[spec.name]]
        view = values.reshape(box_shape(spec, self.states))
        for chunk, nbytes, checksum in self.box.store.save(spec, view, chunks, self.states):
            self.done.append(new_receipt(spec.name, chunk, nbytes, checksum, self.start, kept))

    def _find(self) -> None:
        """Write the weights and the beliefs of a box; the receipt holds the roots of its parts."""
        box, spec, chunk = self.box, self.box.found, (self.number, 0)
        assert spec is not None
        nbytes = checksum = 0
        if box.results:
            weights, beliefs = zip(*(box.codec.weighed(self._whole(node)) for node in box.results), strict=True)
            values = np.zeros(spec.shape[1], spec.dtype)
            np.concatenate([weights, *(table.reshape(-1) for table in beliefs)], out=values)
            where = {spec.variables[0]: self.number}
            ((_, nbytes, checksum),) = box.store.save(spec, values.reshape(1, -1), [chunk], where)
        value = {"parts": self.roots, "also": list(self.also)} if self.roots else {}
        self.done.append(new_receipt(spec.name, chunk, nbytes, checksum, self.start, value))


def told_steps(spent: Spent) -> dict[str, tuple[float, int]]:
    """Return the seconds of steps in the form of a receipt."""
    return {str(node): (round(seconds, 7), times) for node, (seconds, times) in spent.items()}


def new_receipt(
    table: str, chunk: tuple[int, ...], nbytes: int, checksum: int, start: float, value: dict[str, Any]
) -> Receipt:
    """Return the receipt of a task that began at ``start`` (``time.perf_counter()``) and ends now."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Receipt(table, chunk, nbytes, checksum, time.perf_counter() - start, peak, value, time.time())


@dataclass(frozen=True)
class TableArchive(Generic[T]):
    """Writes the tables that steps make to a store, each an array of its own.

    Parameters
    ----------
    store : ChunkFiles
    codec : Codec
        How tables are stored.
    sizes : tuple of int
        Domain sizes.
    least_bytes : int
        Smaller tables are not kept.
    names : callable
        Returns the names of some variables.
    told_of : callable
        Returns the attributes of an array, from the number of its table and its axes.
    """

    store: ChunkFiles
    codec: Codec[T]
    sizes: tuple[int, ...]
    least_bytes: int
    names: Callable[[Sequence[int]], tuple[str, ...]]
    told_of: Callable[[int, Sequence[int]], Mapping[str, Any]]

    def keep(self, step: Step, table: T) -> None:
        """Write the table of a step, unless it is small, with its receipts.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        start = time.perf_counter()
        values, kept = self.codec.pack(table)
        if values.nbytes < self.least_bytes:
            return
        spec = self.spec(step, values.dtype.name, kept)
        shaped = values.reshape(spec.shape)
        # the table of an earlier run may have had another scale
        self.store.delete(spec)
        written = self.store.save(spec, shaped, list(spec.chunks_at({})), {})
        self.store.record([new_receipt(spec.name, *one, start, {**kept}) for one in written])

    def spec(self, step: Step, dtype: str, kept: Mapping[str, Any]) -> TableSpec:
        """Return the array of a table, cut along its first variables into chunks that are read at once."""
        axes = tuple([v for v in step.axes if self.sizes[v] > 1])
        shape = tuple([self.sizes[v] for v in axes])
        cut = 0
        # Zarr reads whole chunks
        while cut < len(shape) and CELL_BYTES * prod(shape[cut:]) > MOST_CHUNK_BYTES:
            cut += 1
        told = {**self.told_of(step.node, axes), **kept}
        return TableSpec(f"table_{step.node}", axes, self.names(axes), shape, frozenset(axes[:cut]), dtype, "", told)
