"""A stand-in for CuPy without a GPU: device tables are a kind of NumPy array, and steps run on the CPU.

It shows that tables are where the code says they are: what mixes host and device tables fails. It says nothing about
kernels, streams or speed.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from bucketflow.cluster import gpus as cluster_gpu
from bucketflow.cluster import pool
from bucketflow.cluster.pool import DeviceThreads
from bucketflow.tasks.cpu import dense
from bucketflow.tasks.cpu.numpy_blocks import join, reduce
from bucketflow.tasks.gpu import arrays
from bucketflow.tasks.gpu import decoding as gpu_decoding
from bucketflow.tasks.gpu import gather as gpu_gather
from bucketflow.tasks.gpu import kernels as gpu_kernels
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu import recorded as gpu_recorded
from bucketflow.tasks.gpu import small_steps as gpu_small_steps
from bucketflow.tasks.gpu.device_policy import DevicePolicy
from bucketflow.tasks.gpu.messages import propagation
from bucketflow.tasks.rows import device as relations_device
from bucketflow.tasks.rows import device_algebra as rows_device
from bucketflow.tasks.rows.host import HOST
from bucketflow.tasks.rows.numpy_rows import ANY_ORDER
from bucketflow.tasks.steps.lowering import Lowered
from bucketflow.tasks.steps.semiring import Semiring
from bucketflow.tasks.steps.views import TableSlice
from bucketflow.tasks.sweeps import conditional_draws
from bucketflow.tasks.sweeps import device_sweep as gpu_sweep
from bucketflow.tasks.sweeps.conditional_draws import inverse, uniform_numbers


class OutOfMemoryError(MemoryError):
    """What CuPy raises."""

    __module__ = "cupy.cuda.memory"


class _Memory:
    """A place in a table's memory."""

    def __init__(self, table: np.ndarray, at: int = 0) -> None:
        self.table, self.at = table, at
        self.ptr = table.ctypes.data + at

    def __add__(self, nbytes: int) -> _Memory:
        return _Memory(self.table, self.at + nbytes)


class DeviceArray(np.ndarray):
    """A device table."""

    __module__ = "cupy"

    card: int | None = None

    def __new__(cls, cells: Any, dtype: str, memptr: _Memory, strides: Any = None) -> DeviceArray:
        return super().__new__(cls, cells, dtype, memptr.table, memptr.at, strides)

    def __array_finalize__(self, origin: Any) -> None:
        self.card = getattr(origin, "card", None)

    @property
    def data(self) -> Any:
        return _Memory(self)

    @property
    def device(self) -> Any:
        return types.SimpleNamespace(id=self.card or 0)

    def get(self) -> np.ndarray:
        return np.array(self, subok=False)

    def set(self, values: np.ndarray) -> None:
        self[...] = values


_PRESENT = threading.local()


def _present() -> int:
    """The card that this thread works on."""
    return getattr(_PRESENT, "card", 0)


def _there(values: Any) -> DeviceArray:
    table = np.ascontiguousarray(values).view(DeviceArray)
    table.card = _present()
    return table


class _Arrays:
    """NumPy with what CuPy takes, arrays of the device, and gives."""

    def __getattr__(self, name: str) -> Any:
        return partial(_called_there, getattr(np, name))

    asarray = staticmethod(_there)


def _called_there(function: Any, *args: Any, **options: Any) -> Any:
    for arg in args:
        for one in arg if isinstance(arg, list) else [arg]:
            assert type(one) is not np.ndarray, "an array of the host"
    return _as_there(function(*args, **options))


def _as_there(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(map(_as_there, found))
    return _there(found) if isinstance(found, np.ndarray) else found


def _cards(given: Any) -> Iterator[int]:
    if isinstance(given, tuple | list):
        for one in given:
            yield from _cards(one)
    elif isinstance(given, DeviceArray) and given.card is not None:
        yield given.card


def _as_here(given: Any) -> Any:
    if isinstance(given, tuple | list):
        return tuple(map(_as_here, given))
    return given.view(np.ndarray) if isinstance(given, np.ndarray) else given


class StandInRows:
    """Operations on rows of the device, done by the host's."""

    arrays = _Arrays()

    def block_rows(self, budget_rows: int) -> int:
        return budget_rows

    def index(self, words: Any, keys: Any, ascending: bool) -> Any:
        assert isinstance(words, DeviceArray)
        found = HOST.index(_as_here(words), keys, ascending)
        return types.SimpleNamespace(find=partial(self.called, found.find))

    def product_sums(
        self, rows: Any, factor: Any, mask: np.ndarray, moves: Any, semiring: Semiring, most: int
    ) -> tuple[Any, Any] | None:
        if semiring.name not in ANY_ORDER:
            return None
        moved = np.zeros_like(mask)
        for word, bits, *_ in moves[0]:
            moved[int(word)] |= bits
        assert not (moved & ~mask).any()
        words, values = rows if factor is None else self.multiplied(*rows, *factor, semiring)
        words, none = self.repacked(words, *moves), np.zeros(moves[1], np.uint64)
        found: tuple[Any, Any] = self.gathered(words, values, semiring, none, none)
        assert len(found[1]) <= most
        return found

    def called(self, function: Callable[..., Any], *args: Any) -> Any:
        first = args[0]
        while isinstance(first, tuple | list):
            first = first[0]
        assert isinstance(first, DeviceArray)
        assert {*_cards(args)} <= {_present()}, "rows of another card"
        return _as_there(function(*map(_as_here, args)))

    def __getattr__(self, name: str) -> Any:
        return partial(self.called, getattr(HOST, name))


class _Stream:
    ptr = 0

    def __init__(self, non_blocking: bool = False) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


class _Event:
    def __init__(self, disable_timing: bool = False) -> None:
        pass

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


class _Device:
    id: int
    pci_bus_id: str
    use: Callable[[], None]

    def __init__(self, on: Any) -> None:
        self._on = on

    def __enter__(self) -> None:
        self._on.__enter__()

    def __exit__(self, *details: object) -> None:
        self._on.__exit__(*details)


def _memcpy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
    assert kind in (1, 2)
    ctypes.memmove(target, source, nbytes)


def _at(place: int, cells: int, dtype: str) -> np.ndarray:
    """A table that lies somewhere."""
    nbytes = cells * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_ubyte * nbytes).from_address(place), dtype)


class _Unowned(_Memory):
    """Memory that somebody else holds, seen from a card."""

    def __init__(self, ptr: int, nbytes: int, owner: Any, card: int) -> None:
        super().__init__(np.frombuffer((ctypes.c_ubyte * nbytes).from_address(ptr), np.uint8))
        self.owner = owner


class SmallLaunch:
    """What ``cuda/small.cu`` does, with its records."""

    def __init__(self, semiring: Semiring, record: np.ndarray, _: Any, grid: int, threads: int) -> None:
        assert threads == 256
        assert record["bound"] == (semiring.zero if semiring.saturates else semiring.modulus)
        self.semiring, self.items = semiring, range(int(record["first"]), int(record["first"]) + grid)

    def run(self, places: Sequence[int], on_step: Callable[[], object]) -> None:
        """Run the steps whose items these are; ``places`` are those of lists."""
        tables, shapes, sizes, strides, steps = places
        for item in self.items:
            (step,) = _at(steps + 4 * item, 1, "i4").tolist()
            itemsize = gpu_small_steps._SHAPE.itemsize
            (d,) = _at(shapes + itemsize * step, itemsize, "u1").view(gpu_small_steps._SHAPE)
            items = -(-int(d["cells"] * d["lanes"]) // 256)
            assert d["lanes"] in (1, 2, 4, 8, 16, 32, 64, 128, 256)
            assert 0 <= item - d["item"] < items
            assert items <= len(self.items)
            if item > d["item"]:
                continue  # the first item does all
            on_step()
            axes, inputs, summed = int(d["axes"]), int(d["inputs"]), int(d["summed"])
            shape = _at(sizes + 4 * int(d["axis"]), axes, "i4").tolist()
            assert np.prod(shape[:summed]) == d["depth"]
            assert np.prod(shape[summed:]) == d["cells"]
            where = _at(tables + 8 * int(d["table"]), inputs + 1, "u8").tolist()
            apart = _at(strides + 4 * int(d["stride"]), axes * (inputs + 1), "i4").reshape(inputs + 1, axes).tolist()
            dtype = self.semiring.dtype
            wide = [(n - 1, s) for n, s in zip(shape, apart[-1], strict=True)]
            assert 1 + sum(n * s for n, s in wide) == d["cells"]
            views = [
                np.lib.stride_tricks.as_strided(
                    _at(place, 1 + sum((n - 1) * s for n, s in zip(shape, own, strict=True)), dtype),
                    shape,
                    [s * np.dtype(dtype).itemsize for s in own],
                )
                for place, own in zip(where, apart, strict=True)
            ]
            joined = np.empty(shape, dtype)
            join(self.semiring, views[:-1], joined)
            out = _at(where[-1], int(d["cells"]), dtype).reshape(shape[summed:])
            assert not any(apart[-1][:summed])
            reduce(self.semiring, joined, tuple(range(summed)), out)


class StandIn:
    """The device: how much memory it has, which tables it refuses, and how often.

    Parameters
    ----------
    cards : int
        How many such devices there are.
    """

    def __init__(self, cards: int = 1) -> None:
        self.cards = cards
        self.held, self.peaks = [0] * cards, [0] * cards
        self._counting = threading.Lock()
        self.total_bytes = 1 << 34
        self.largest_table_bytes = 1 << 62
        self.patience = 1 << 62
        self.refused = 0
        self.on_step: Callable[[], object] = tuple

    def empty(self, cells: int, dtype: str, alone: bool = False) -> DeviceArray:
        """Allocate."""
        values = np.empty(cells, dtype)
        if values.nbytes > self.largest_table_bytes and self.refused < self.patience:
            self.refused += not alone  # what has no room in one piece is tried again, table by table
            raise OutOfMemoryError(f"cannot allocate {values.nbytes} bytes")
        card = self.present()
        self._count(card, values.nbytes)
        weakref.finalize(values, self._count, card, -values.nbytes)
        table = values.view(DeviceArray)
        table.card = card
        return table

    def present(self) -> int:
        """Return the card that this thread works on."""
        return _present()

    def use(self, card: int) -> None:
        """Let this thread work on a card."""
        assert 0 <= card < self.cards
        _PRESENT.card = card

    def _count(self, card: int, nbytes: int) -> None:
        with self._counting:
            self.held[card] += nbytes
            self.peaks[card] = max(self.peaks[card], self.held[card])

    @contextmanager
    def _on(self, card: int) -> Iterator[None]:
        before = self.present()
        self.use(card)
        try:
            yield
        finally:
            self.use(before)

    def _device(self, card: int | None = None) -> Any:
        chosen = self.present() if card is None else card
        device = _Device(self._on(chosen))
        device.id, device.pci_bus_id, device.use = chosen, str(chosen), lambda: self.use(chosen)
        return device

    def prepare(self, lowered: Lowered) -> Callable[..., Any]:
        """Run a step of device tables, or of host tables that are copied first."""

        def run(tables: Sequence[Any], out: Any = None, workspace: Any = None) -> Any:
            self.on_step()
            assert {getattr(t, "card", None) for t in tables} <= {None, self.present()}, "a table of another card"
            result = self.empty(lowered.out_cells, lowered.semiring.dtype) if out is None else out
            result[...] = dense.run(lowered, [np.asarray(t).view(np.ndarray) for t in tables], compiled=False)
            return result

        made: Any = run
        made.cells, made.semiring = lowered.out_cells, lowered.semiring
        made.out_bytes, made.workspace_bytes = lowered.out_cells * lowered.semiring.itemsize, 0
        made.waits = ((),)
        made.kernels = ()  # none has to be compiled
        made.repeats, made.bound = True, lambda inputs, out, _: [(lowered, [*inputs, out])]
        return run

    def bound_launches(
        self, launches: Sequence[tuple[Lowered, Sequence[int]]], waits: Sequence[Sequence[int]]
    ) -> Callable[[], None]:
        """Run steps of device tables that lie at some places."""
        assert len(waits) == len(launches)
        assert all(list(before) == [k - 1] for k, before in enumerate(waits) if k)

        def repeat() -> None:
            for lowered, places in launches:
                if isinstance(lowered, SmallLaunch):
                    lowered.run(places, self.on_step)
                    continue
                self.on_step()
                cells = [*lowered.input_cells, lowered.out_cells]
                *inputs, out = (_at(place, n, lowered.semiring.dtype) for place, n in zip(places, cells, strict=True))
                out[...] = dense.run(lowered, inputs, compiled=False)

        return repeat

    def module(self) -> types.ModuleType:
        """Return what ``import cupy`` gives."""
        cupy: Any = types.ModuleType("cupy")
        cupy.__version__ = "0"
        runtime = types.SimpleNamespace(
            memcpyAsync=_memcpy,
            memcpyDeviceToHost=2,
            memcpyHostToDevice=1,
            hostRegister=lambda pointer, nbytes, flags: None,
            hostUnregister=lambda pointer: None,
            getDevice=self.present,
            free=lambda pointer: None,
            deviceCanAccessPeer=lambda card, other: True,
            deviceEnablePeerAccess=lambda other: None,
            memcpyPeerAsync=lambda to, _, source, __, nbytes, ___: ctypes.memmove(to, source, nbytes),
            getDeviceCount=lambda: self.cards,
            getDeviceProperties=lambda _: {"name": b"stand-in"},
            runtimeGetVersion=lambda: 0,
            memGetInfo=lambda: (self.total_bytes, self.total_bytes),
            CUDARuntimeError=RuntimeError,
        )
        cupy.cuda = types.SimpleNamespace(
            Device=self._device,
            UnownedMemory=_Unowned,
            MemoryPointer=lambda memory, at: memory + at if at else memory,
            Stream=_Stream,
            Event=_Event,
            get_current_stream=_Stream,
            alloc_pinned_memory=bytearray,
            runtime=runtime,
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        )
        cupy.asarray = _there
        cupy.ascontiguousarray = _there
        cupy.ndarray = DeviceArray
        return cupy


@contextmanager
def device(patch: pytest.MonkeyPatch, least_cells: int = 64, cards: int = 1) -> Iterator[StandIn]:
    """Use the stand-in; steps of ``least_cells`` and more run on it."""
    there = StandIn(cards)
    arrays.reaches.cache_clear()
    patch.setitem(sys.modules, "cupy", there.module())
    patch.setattr(gpu, "prepare", there.prepare)
    patch.setattr(gpu_recorded, "bound_launches", there.bound_launches)
    patch.setattr(gpu_small_steps, "Launch", SmallLaunch)
    patch.setattr(gpu_small_steps, "small_kernel", lambda semiring: semiring)
    patch.setattr(arrays, "empty", there.empty)
    patch.setattr(arrays, "free_pools", lambda: None)
    patch.setattr(gpu_kernels, "load_compiler", lambda: None)
    patch.setattr(gpu_sweep, "compile_together", lambda _: None)
    patch.setattr(rows_device, "compile_together", lambda _: None)
    patch.setattr(rows_device, "free_pools", lambda: None)
    patch.setattr(rows_device, "join_kernels", lambda *_: [])
    patch.setattr(relations_device, "DEVICE", StandInRows())
    patch.setattr(gpu_gather, "gather_slices", _gather)
    patch.setattr(gpu_decoding, "processors", lambda: 2)
    patch.setattr(gpu_decoding, "decode_kernel", _decode_kernel)
    patch.setattr(gpu_sweep, "decode_kernel", _decode_kernel)
    patch.setattr(conditional_draws, "walk_kernel", _walk_kernel)
    patch.setattr(propagation, "propagation_kernels", lambda *_: [])
    for name in ("gather_kernel", "small_kernel"):
        patch.setattr(gpu_sweep, name, lambda _: types.SimpleNamespace(is_loaded=True))
    patch.setattr(
        gpu_gather,
        "extremes_above",
        lambda values, limit: (
            float(values.min(where=values > limit, initial=np.inf)),
            float(values.max(where=values > limit, initial=-np.inf)),
        ),
    )
    patch.setattr(cluster_gpu, "visible_gpus", lambda: [str(card) for card in range(cards)])
    with DevicePolicy.using(step_least_cells=least_cells):
        yield there


def _read(record: np.ndarray, name: str, dtype: str, first: int, last: int) -> np.ndarray:
    """What lies at the address in a field of a record."""
    item = np.dtype(dtype).itemsize
    there = (ctypes.c_ubyte * (item * (last - first))).from_address(int(record[name]) + item * first)
    return np.ctypeslib.as_array(there).view(dtype)


def _decode_kernel(semiring: Semiring) -> Callable[..., None]:
    """What ``cuda/decode.cu`` does, with its records."""

    def launch(grid: tuple[int], block: tuple[int], arguments: tuple[np.ndarray]) -> None:
        (record,) = arguments

        def ints(name: str, first: int, last: int) -> list[int]:
            dtype = {"tables": "u8", "joint": "i8"}.get(name, "i4")
            return [int(n) for n in _read(record, name, dtype, first, last)]

        begin, end = int(record["first"]), int(record["last"])
        assert 0 < grid[0] <= end - begin
        taken = _read(record, "taken", "u4", 0, 1)
        assert taken[0] == 0
        taken += np.uint32(end - begin + grid[0])
        for item, step in enumerate(ints("item_step", begin, end), begin):
            if item + 1 < ints("first_item", step + 1, step + 2)[0]:
                continue  # the last item of a step compares what all of them found
            first, last = ints("first_input", step, step + 2)
            found = ints("found", *ints("first_found", step, step + 2))
            sizes = [ints("sizes", v, v + 1)[0] for v in found]
            assert [np.prod(sizes)] == ints("joint", step, step + 1)
            assert (last - first) * (len(found) + 1) <= record["line"]
            total = np.zeros(sizes, semiring.dtype)
            for i in range(first, last):
                (at,), stride, strides = ints("tables", i, i + 1), total.itemsize, [0] * len(sizes)
                for v in reversed(ints("axes", *ints("first_axis", i, i + 2))):
                    size = sizes[~v] if v < 0 else ints("sizes", v, v + 1)[0]
                    if v < 0:
                        strides[~v] = stride
                    elif size > 1:
                        (state,) = ints("states", v, v + 1)
                        assert 0 <= state < size
                        at += state * stride
                    stride *= size
                reach = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
                cells = (ctypes.c_ubyte * (reach + total.itemsize)).from_address(at)
                total += np.ndarray(sizes, semiring.dtype, cells, 0, strides)
                if semiring.saturates:
                    np.minimum(total, semiring.zero, out=total)
            for v, state in zip(found, np.unravel_index(int(total.argmin()), total.shape), strict=True):
                _read(record, "states", "i4", v, v + 1)[0] = state

    launch.is_loaded = True  # type: ignore[attr-defined]
    return launch


def _walk_kernel(dtype: str, entry: str) -> Callable[..., None]:
    """What ``cuda/walk.cu`` does, with its records."""

    def launch(grid: tuple[int, ...], block: tuple[int], arguments: tuple[np.ndarray]) -> None:
        (record,) = arguments
        draws, begun, count, width = (int(record[name]) for name in ("draws", "begun", "count", "width"))
        found = _read(record, "found", dtype, 0, draws * count).reshape(count, draws)
        if entry == "turn":
            assert (grid[0] - 1) * 32 < draws <= grid[0] * 32
            assert (grid[1] - 1) * 32 < width <= grid[1] * 32
            columns = _read(record, "columns", "i4", 0, width)
            _read(record, "out", dtype, 0, draws * width).reshape(draws, width)[...] = found[columns].T
            return
        assert draws % 4 == begun % 4 == 0
        assert draws <= 4 * grid[0] * block[0]
        itemsize = conditional_draws._CONDITIONAL.itemsize
        records = _read(record, "conditionals", "u1", 0, itemsize * count).view(conditional_draws._CONDITIONAL)
        for own in records:
            row, states = np.zeros(draws, np.intp), int(own["states"])
            span = int(own["first_given"]), int(own["first_given"] + own["given"])
            slots, strides = _read(record, "slots", "i4", *span), _read(record, "strides", "i8", *span)
            for slot, stride in zip(slots, strides, strict=True):
                row += found[slot].astype(np.intp) * stride
            first = int(own["first_sum"])
            sums = _read(record, "sums", "f8", first, first + states * (int(row.max()) + 1)).reshape(-1, states)
            numbers = uniform_numbers(int(record["seed"]), int(own["stream"]), begun, begun + draws)
            found[own["slot"]] = inverse(sums, row, numbers)

    launch.is_loaded = True  # type: ignore[attr-defined]
    return launch


class RealDevice:
    """A GPU that can be told to refuse some large tables."""

    def __init__(self) -> None:
        self.largest_table_bytes = 1 << 62
        self.patience = 1 << 62
        self.refused = 0
        self._empty = arrays.empty

    def empty(self, cells: int, dtype: str, alone: bool = False) -> Any:
        """Allocate."""
        nbytes = cells * np.dtype(dtype).itemsize
        if nbytes > self.largest_table_bytes and self.refused < self.patience:
            self.refused += not alone
            import cupy

            raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0)
        return self._empty(cells, dtype, alone)

    def held_bytes(self) -> int:
        """What the pools have taken from the device."""
        import cupy

        pools = (cupy.get_default_memory_pool(), cupy.cuda.MemoryAsyncPool())
        return sum(pool.total_bytes() for pool in pools)


@contextmanager
def real_device(patch: pytest.MonkeyPatch, least_cells: int = 64) -> Iterator[RealDevice]:
    """Use the GPU of this machine, as if all kernels were compiled; skips where there is none."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    there = RealDevice()
    patch.setattr(arrays, "empty", there.empty)
    patch.setattr(gpu_kernels, "is_marked", lambda _: True)
    with DevicePolicy.using(step_least_cells=least_cells):
        yield there


def _gather(slices: Sequence[TableSlice], targets: Sequence[int]) -> None:
    for each, target in zip(slices, targets, strict=True):
        cells = np.ascontiguousarray(each.view())
        ctypes.memmove(target, cells.ctypes.data, cells.nbytes)


def imagine_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads work on devices that need not be there."""

    def begin(_: DeviceThreads, place: int) -> None:
        pool._HERE.number = place
        pool._BEGUN.add(place)

    monkeypatch.setattr(DeviceThreads, "begin", begin)
