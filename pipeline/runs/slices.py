"""Propagation in slices as tasks: groups of slices, each with a receipt where there is a run directory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...cluster.pool import Pool
from ...storage import ledger
from ...storage.chunks import damaged, read_chunk, write_chunk
from ...storage.errors import ChunkLostError
from ...storage.spec import Receipt, TableSpec
from ...storage.tables import create_table
from ...tasks.boxes.boxes import new_receipt
from ...tasks.sweeps.program import Program
from ..models.preprocess import Network
from ..plans.plan import Plan, sliced_dims
from ..queries.arithmetic import Arithmetic
from ..queries.beliefs import Beliefs, merge, place
from ..trees.tree import Target
from .forward import TASK_SECONDS
from .pools import open_tables

if TYPE_CHECKING:
    from .device_sweeps import DeviceSweeps

Array = NDArray[Any]
T = TypeVar("T")

# Where a run directory keeps what its tasks wrote.
TABLES = "tables"
# Both sweeps of large tables on a GPU, beside one core of the same machine.
_CORES_OF_A_DEVICE = 100
_TASKS_FOR_DEVICES = 64


@dataclass(frozen=True)
class Slices(Generic[T]):
    """What all groups of slices share.

    Parameters
    ----------
    program : Program
        Both sweeps.
    results : mapping of tuple of int to int
        The table that answers each target.
    roots : tuple of int
    sliced : tuple of int
        Variables that are conditioned on; the last one varies fastest.
    size : int
        Slices in a group.
    arithmetic : Arithmetic
    folder : Path or None
        Where the beliefs of finished groups go, if anywhere.
    device : DeviceSweeps or None
        What sweeps a slice on a device, if one is to be used.
    """

    program: Program[T]
    results: Mapping[Target, int]
    roots: tuple[int, ...]
    sliced: tuple[int, ...]
    size: int
    arithmetic: Arithmetic[T]
    folder: Path | None = None
    device: DeviceSweeps | None = None

    @property
    def slices(self) -> int:
        """Number of slices."""
        return prod(self.program.dims[v] for v in self.sliced)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return -(-self.slices // self.size)

    @cached_property
    def shapes(self) -> dict[Target, tuple[int, ...]]:
        """Shape of every belief."""
        return {target: tuple(self.program.dims[v] for v in target) for target in self.results}

    @cached_property
    def table(self) -> TableSpec:
        """The array of what the groups found: all beliefs one after the other, one chunk a group."""
        cells = max(1, sum(prod(shape) for shape in self.shapes.values()))
        dtype = self.arithmetic.codec.belief_dtype
        return TableSpec("slices", (0, 1), ("group", "cell"), (self.groups, cells), frozenset((0,)), dtype)

    def states(self, index: int) -> dict[int, int]:
        """States of the sliced variables in one slice."""
        if not self.sliced:
            return {}
        found = np.unravel_index(index, [self.program.dims[v] for v in self.sliced])
        return {v: int(state) for v, state in zip(self.sliced, found, strict=True)}


def group_size(plan: Plan) -> int:
    """Slices in a task: as many as are worth the overhead of one, and few enough that several devices end together.

    How many devices there are makes no difference, so that sums are the same on any number of them.
    """
    worth = math.ceil(TASK_SECONDS * plan.slices / max(run_seconds(plan), 1e-9))
    even = -(-plan.slices // _TASKS_FOR_DEVICES) if plan.device else plan.slices
    return max(1, min(worth, even))


def run_seconds(plan: Plan) -> float:
    """Predict how long a plan takes where it runs: on one core, or on a device."""
    return plan.seconds / (_CORES_OF_A_DEVICE if plan.device else 1)


def run_group(slices: Slices[Any], number: int, threads: int) -> Beliefs:
    """Task: both sweeps of each slice of a group."""
    if slices.slices == 1:
        return _whole(slices, *_swept(slices, {}, threads))
    combiner = slices.arithmetic.combiner(slices.shapes)
    dims = sliced_dims(slices.program.dims, slices.sliced)
    for index in range(number * slices.size, min((number + 1) * slices.size, slices.slices)):
        states = slices.states(index)
        total, tables = _swept(slices, states, threads)
        found = combiner.read(tables, dims)
        combiner.add(total, {target: (table, place(target, states)) for target, table in found.items()})
    return combiner.beliefs()


def _swept(slices: Slices[T], states: Mapping[int, int], threads: int) -> tuple[Any, dict[Target, T]]:
    """Sweep one slice, on the CPU what the device cannot prove; return its total and the tables of all targets."""
    if slices.device is not None:
        found = slices.device.swept(slices.program.restricted_leaves(states))
        if found is not None:
            return found
    (tables,) = slices.program.run_slices([states], threads=threads)
    return _read(slices, tables)


def _read(slices: Slices[T], tables: Mapping[int, T]) -> tuple[Any, dict[Target, T]]:
    total = slices.arithmetic.total([tables[r] for r in slices.roots])
    return total, {target: tables[node] for target, node in slices.results.items()}


def whole_beliefs(slices: Slices[T], tables: Mapping[int, T]) -> Beliefs:
    """Read the beliefs from roots and results where one slice is all there is."""
    return _whole(slices, *_read(slices, tables))


def _whole(slices: Slices[T], total: Any, tables: Mapping[Target, T]) -> Beliefs:
    if total in (None, -math.inf):
        return Beliefs(None, {})
    return Beliefs(total, slices.arithmetic.combiner({}).read(tables, slices.program.dims))


def store_group(slices: Slices[Any], number: int, threads: int) -> Receipt:
    """Task: run a group and leave its beliefs and its receipt in the run directory."""
    assert slices.folder is not None
    start = time.perf_counter()
    beliefs = run_group(slices, number, threads)
    values = np.zeros(slices.table.shape[1], slices.table.dtype)
    if beliefs.total is not None and slices.shapes:
        np.concatenate([beliefs.tables[target].reshape(-1) for target in slices.shapes], out=values)
    chunk = (number, 0)
    nbytes, checksum = write_chunk(slices.folder, slices.table, chunk, values)
    receipt = new_receipt(slices.table.name, chunk, nbytes, checksum, start, {"total": beliefs.total})
    ledger.append(slices.folder, [receipt])
    return receipt


def stored_group(slices: Slices[Any], receipt: Receipt) -> Beliefs:
    """Read what a group found."""
    assert slices.folder is not None
    total = receipt.value["total"]
    if total is None:
        return Beliefs(None, {})
    values = np.empty(slices.table.shape[1], slices.table.dtype)
    read_chunk(slices.folder, slices.table, receipt, values)
    tables, start = {}, 0
    for target, shape in slices.shapes.items():
        tables[target] = values[start : start + prod(shape)].reshape(shape)
        start += prod(shape)
    return Beliefs(total, tables)


def sweep_slices(
    slices: Slices[Any], pool: Pool, threads: int, report: Callable[[int, int], None] | None = None
) -> Beliefs:
    """Run every group that is not finished yet and add up what all found, in the order of their numbers.

    Parameters
    ----------
    report : callable, optional
        Called with the groups done and the groups there are.
    """
    found = _in_memory(slices, pool, threads) if slices.folder is None else _stored(slices, pool, threads)
    combiner = slices.arithmetic.combiner(slices.shapes if slices.groups > 1 else {})
    beliefs = Beliefs(None, {})
    for done, beliefs in enumerate(found, 1):
        if slices.groups > 1:
            merge(combiner, beliefs)
        if report is not None:
            report(done, slices.groups)
    return combiner.beliefs() if slices.groups > 1 else beliefs


def _in_memory(slices: Slices[Any], pool: Pool, threads: int) -> Iterator[Beliefs]:
    shared = pool.put(slices)
    return pool.stream(run_group, ((shared, number, threads) for number in range(slices.groups)))


def _stored(slices: Slices[Any], pool: Pool, threads: int) -> Iterator[Beliefs]:
    """Yield the beliefs of all groups; those with a receipt and an undamaged chunk are only read."""
    assert slices.folder is not None
    open_tables(pool, slices.folder)
    create_table(slices.folder, slices.table)
    receipts = {key[1][0]: receipt for key, receipt in ledger.load(slices.folder).items()}
    for lost in damaged(slices.folder, {slices.table.name: slices.table}, receipts):
        del receipts[lost.chunk[0]]
    missing = [number for number in range(slices.groups) if number not in receipts]
    shared = pool.put(slices) if missing else None
    stream = pool.stream(store_group, ((shared, number, threads) for number in missing))
    for number in range(slices.groups):
        receipt = receipts[number] if number in receipts else next(stream)
        try:
            yield stored_group(slices, receipt)
        except ChunkLostError:
            # damaged since it was verified or written
            yield stored_group(slices, store_group(slices, number, threads))
    ledger.sync(slices.folder)


def build_sweeps(network: Network, plan: Plan, arithmetic: Arithmetic[Any], compiled: bool) -> Program[Any]:
    """Build the leaf tables and put both sweeps together."""
    axes = {node: plan.layouts[node] for node in range(plan.tree.n_leaves)}
    leaves = {node: arithmetic.leaf(network.leaves[node], a) for node, a in axes.items()}
    algebra = arithmetic.algebra(plan.tree.dims, compiled)
    return Program(plan.steps, leaves, axes, plan.outputs, plan.dims, algebra)
