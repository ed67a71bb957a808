"""Published layouts of clique tables for propagations on GPUs, as kernels that only the bench uses.

``mapped`` is Zheng and Mengshoel's (2013): for each entry of a separator a list of the clique's entries, in precomputed
arrays that kernels read beside the tables. With Gottoli and Pettenuzzo (2014) cliques of fewer than 5,000 entries stay
with the CPU. ``chunked`` is Bistaffa, Farinelli and Bombieri's (2014): a clique's table is put into an order in which
the entries of a separator's entry lie side by side, so that kernels read no index; where a clique's next message goes
over another separator, its table is put into another order.

Every layout is a list of actions on kernels, NumPy's or CUDA's, so that both go through the same messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from parts.junction import JunctionTree

Array = NDArray[Any]
Kind = Literal["reduction", "scattering", "reordering", "transfer"]

CPU_CELLS = 5000
"""Cliques with fewer entries stay with the CPU (Gottoli and Pettenuzzo 2014)."""

THREADS = 256
CUDA = """
// Of a separator's entry and its k-th clique entry: where it lies.
#ifdef MAPPED
#define PLACE(i) map[i]
#else
#define PLACE(i) (i)
#endif
// message: the separator's entries, then the new ones over the old ones. A team of threads sums for one entry.
extern "C" __global__ void reduce(const double* table, const int* map, double* message, int cells, long long chunk,
                                  int team) {
    __shared__ double sums[256];
    int lane = threadIdx.x % team;
    long long entry = (long long)blockIdx.x * (256 / team) + threadIdx.x / team;
    double sum = 0.0;
    if (entry < cells)
        for (long long k = lane; k < chunk; k += team) sum += table[PLACE(entry * chunk + k)];
    sums[threadIdx.x] = sum;
    for (int half = team / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (lane == 0 && entry < cells) {
        double before = message[entry], now = sums[threadIdx.x];
        message[entry] = now;
        message[cells + entry] = before != 0.0 ? now / before : 0.0;
    }
}
extern "C" __global__ void scatter(double* table, const int* map, const double* message, int cells, long long chunk) {
    long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    if (i < cells * chunk) table[PLACE(i)] *= message[cells + i / chunk];
}
"""


class Kernels(Protocol):
    """Where tables lie, and what is done with them there; a message is the separator, and the new one over the old."""

    def table(self, values: Array) -> Any:
        """Put an array there."""

    def reduction(self, table: Any, index: Any, message: Any) -> Callable[[], object]:
        """Return what sums a flat table to a message; without an index entries lie side by side."""

    def scattering(self, table: Any, index: Any, message: Any) -> Callable[[], object]:
        """Return what multiplies a message's ratios into a flat table."""

    def reordering(self, source: Any, target: Any, shape: Sequence[int], axes: Sequence[int]) -> Callable[[], object]:
        """Return what writes a flat table in another order of its axes."""

    def host(self, table: Any) -> Array:
        """Return an array in the host's memory."""


class HostKernels:
    """NumPy on one core."""

    def table(self, values: Array) -> Array:
        return np.array(values)

    def host(self, table: Array) -> Array:
        return table

    def reduction(self, table: Array, index: Array | None, message: Array) -> Callable[[], object]:
        cells = message.shape[1]

        def reduce() -> None:
            entries = table.reshape(cells, -1) if index is None else table.take(index)
            before = message[0].copy()
            entries.sum(axis=1, out=message[0])
            message[1] = np.divide(message[0], before, out=np.zeros(cells), where=before != 0.0)

        return reduce

    def scattering(self, table: Array, index: Array | None, message: Array) -> Callable[[], object]:
        rows, ratio = table.reshape(message.shape[1], -1), message[1][:, None]

        def scatter() -> None:
            if index is None:
                np.multiply(rows, ratio, out=rows)
            else:
                table[index] *= ratio

        return scatter

    def reordering(
        self, source: Array, target: Array, shape: Sequence[int], axes: Sequence[int]
    ) -> Callable[[], object]:
        return _copying(np, source, target, shape, axes)


class DeviceKernels:
    """CUDA, one launch for each reduction, scattering and reordering, as in the papers."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self._modules = {
            mapped: cupy.RawModule(code=("#define MAPPED\n" if mapped else "") + CUDA) for mapped in (False, True)
        }

    def table(self, values: Array) -> Any:
        return self.cupy.asarray(np.ascontiguousarray(values))

    def host(self, table: Any) -> Array:
        return np.asarray(self.cupy.asnumpy(table))

    def reduction(self, table: Any, index: Any, message: Any) -> Callable[[], object]:
        kernel = self._modules[index is not None].get_function("reduce")
        cells, chunk = _sizes(table, message)
        team = team_of(chunk)
        blocks = -(-cells // (THREADS // team))
        given = (table, self._index(table, index), message, np.int32(cells), np.int64(chunk), np.int32(team))
        return lambda: kernel((blocks,), (THREADS,), given)

    def scattering(self, table: Any, index: Any, message: Any) -> Callable[[], object]:
        kernel = self._modules[index is not None].get_function("scatter")
        cells, chunk = _sizes(table, message)
        given = (table, self._index(table, index), message, np.int32(cells), np.int64(chunk))
        return lambda: kernel((-(-cells * chunk // THREADS),), (THREADS,), given)

    def reordering(self, source: Any, target: Any, shape: Sequence[int], axes: Sequence[int]) -> Callable[[], object]:
        return _copying(self.cupy, source, target, shape, axes)

    @staticmethod
    def _index(table: Any, index: Any) -> Any:
        """A kernel without an index gets some address that it does not read."""
        return table if index is None else index


def team_of(chunk: int) -> int:
    """Threads that sum together for one entry: the power of two from the entries of a chunk on, up to a block."""
    return min(1 << max(chunk - 1, 0).bit_length(), THREADS)


def _sizes(table: Any, message: Any) -> tuple[int, int]:
    cells = message.shape[1]
    return cells, table.size // cells


def _copying(module: Any, source: Any, target: Any, shape: Sequence[int], axes: Sequence[int]) -> Callable[[], object]:
    shape, axes = merged_axes(shape, axes)
    view = source.reshape(shape).transpose(axes)
    place = target.reshape(view.shape)
    return lambda: module.copyto(place, view)


def merged_axes(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Merge axes of a transposition that stay side by side, so that few are left."""
    runs: list[list[int]] = []
    for axis in axes:
        if runs and runs[-1][-1] + 1 == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    ordered = sorted(runs)
    return tuple(math.prod(shape[a] for a in run) for run in ordered), tuple(ordered.index(run) for run in runs)


@dataclass(frozen=True)
class Action:
    """One launch, or one call of NumPy."""

    kind: Kind
    run: Callable[[], object]


@dataclass(frozen=True)
class Layout:
    """A propagation in some layout, which may be run again and again: what is calibrated stays as it is.

    Parameters
    ----------
    actions : tuple of Action
    index_bytes : int
        Of index tables that kernels read.
    table_bytes : int
        Of cliques' tables, with those that another order is written to.
    read : callable
        Returns the clique tables, each with an axis for each variable, ascending.
    """

    actions: tuple[Action, ...]
    index_bytes: int
    table_bytes: int
    read: Callable[[], list[Array]]

    def run(self, kinds: Sequence[Kind] = ()) -> None:
        """Run all actions, or those of some kinds only, whose time is measured."""
        for action in self.actions:
            if not kinds or action.kind in kinds:
                action.run()

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """Kinds of actions that there are."""
        return frozenset(action.kind for action in self.actions)


def index_table(tree: JunctionTree, clique: int, separator: int) -> Array:
    """Return for each separator entry the places of its clique entries, (separator cells, entries of each), int32."""
    scope, kept = tree.cliques[clique], tree.separators[separator]
    places = np.arange(tree.clique_cells[clique], dtype=np.int32).reshape([tree.dims[v] for v in scope])
    return np.ascontiguousarray(places.transpose(_order(scope, kept)).reshape(tree.cells(kept), -1))


def _order(scope: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Axes of a clique with a separator's variables first."""
    return [scope.index(v) for v in kept] + [k for k, v in enumerate(scope) if v not in kept]


def layout_bytes(tree: JunctionTree) -> tuple[int, int]:
    """Bytes of all clique tables, and of all index tables."""
    index = sum(tree.clique_cells[m.source] for m in tree.messages)
    return 8 * sum(tree.clique_cells), 4 * index


def mapped(tree: JunctionTree, tables: Sequence[Array], places: Callable[[int], Kernels]) -> Layout:
    """Return a propagation over index tables.

    Parameters
    ----------
    tree : JunctionTree
    tables : sequence of ndarray
        Initial tables of the cliques.
    places : callable
        Kernels of each clique: those of the device, of the host, or of either by the clique's size.
    """
    held = [places(k).table(table.reshape(-1)) for k, table in enumerate(tables)]
    indices: dict[tuple[int, int], Any] = {}
    messages: dict[tuple[int, int], Any] = {}

    def message(separator: int, kernels: Kernels) -> Any:
        if (separator, id(kernels)) not in messages:
            ones = np.ones((2, tree.cells(tree.separators[separator])))
            messages[separator, id(kernels)] = kernels.table(ones)
        return messages[separator, id(kernels)]

    def index(clique: int, separator: int) -> Any:
        if (clique, separator) not in indices:
            indices[clique, separator] = places(clique).table(index_table(tree, clique, separator))
        return indices[clique, separator]

    actions = []
    for each in tree.messages:
        here, there = places(each.source), places(each.target)
        sent, got = message(each.separator, here), message(each.separator, there)
        reduce = here.reduction(held[each.source], index(each.source, each.separator), sent)
        actions.append(Action("reduction", reduce))
        if sent is not got:
            actions.append(Action("transfer", _moving(sent, got)))
        scatter = there.scattering(held[each.target], index(each.target, each.separator), got)
        actions.append(Action("scattering", scatter))
    shapes = [table.shape for table in tables]
    bytes_of_tables, index_bytes = layout_bytes(tree)

    def read() -> list[Array]:
        return [places(k).host(table).reshape(shapes[k]) for k, table in enumerate(held)]

    return Layout(tuple(actions), index_bytes, bytes_of_tables, read)


def _moving(source: Any, target: Any) -> Callable[[], object]:
    """Copy a message from the device to the host, or back; both wait until it is there."""
    if hasattr(source, "get"):
        return lambda: source.get(out=target)
    return lambda: target.set(source)


def by_size(tree: JunctionTree, host: Kernels, device: Kernels) -> Callable[[int], Kernels]:
    """Return kernels of each clique: the CPU's for small ones."""
    return lambda clique: host if tree.clique_cells[clique] < CPU_CELLS else device


class _Reordered:
    """A clique's table, in the order that its last message needed, and a second place for the next order."""

    def __init__(self, tree: JunctionTree, table: Array, clique: int, first: int | None, kernels: Kernels) -> None:
        self._tree, self._kernels, self.scope = tree, kernels, tree.cliques[clique]
        self.order = self._wanted(first)
        self.started = self.order
        self.places = [kernels.table(table.transpose(self.order).reshape(-1))]
        self.at = 0

    def _wanted(self, separator: int | None) -> list[int]:
        return _order(self.scope, () if separator is None else self._tree.separators[separator])

    def turned(self, separator: int) -> list[Action]:
        """Return what puts the table into the order that a separator needs."""
        wanted = self._wanted(separator)
        if wanted == self.order:
            return []
        if len(self.places) == 1:
            self.places.append(self._kernels.table(np.empty(self._tree.cells(self.scope))))
        shape = [self._tree.dims[self.scope[a]] for a in self.order]
        axes = [self.order.index(a) for a in wanted]
        source, target = self.places[self.at], self.places[1 - self.at]
        self.order, self.at = wanted, 1 - self.at
        return [Action("reordering", self._kernels.reordering(source, target, shape, axes))]

    @property
    def table(self) -> Any:
        """The table where it lies now."""
        return self.places[self.at]

    def read(self) -> Array:
        """Return it with its axes ascending."""
        shape = [self._tree.dims[self.scope[a]] for a in self.order]
        return self._kernels.host(self.table).reshape(shape).transpose(np.argsort(self.order))


def chunked(tree: JunctionTree, tables: Sequence[Array], kernels: Kernels) -> Layout:
    """Return a propagation over tables that are put into the order of each message's separator.

    Messages down go to a clique's neighbours in the other order than those up, so that the tables end in the order in
    which they began, at the same place.
    """
    first: dict[int, int] = {}
    for each in tree.messages:
        first.setdefault(each.source, each.separator)
        first.setdefault(each.target, each.separator)
    held = [_Reordered(tree, table, k, first.get(k), kernels) for k, table in enumerate(tables)]
    sent = {m.separator: kernels.table(np.ones((2, tree.cells(tree.separators[m.separator])))) for m in tree.messages}
    actions: list[Action] = []
    for each in tree.messages:
        source, target, message = held[each.source], held[each.target], sent[each.separator]
        actions += source.turned(each.separator)
        actions.append(Action("reduction", kernels.reduction(source.table, None, message)))
        actions += target.turned(each.separator)
        actions.append(Action("scattering", kernels.scattering(target.table, None, message)))
    assert all(table.at == 0 and table.order == table.started for table in held)
    table_bytes = sum(8 * tree.cells(table.scope) * len(table.places) for table in held)
    return Layout(tuple(actions), 0, table_bytes, lambda: [table.read() for table in held])
