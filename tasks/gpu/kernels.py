"""CUDA kernels of ``cuda/*.cu``: compiled by NVRTC, in several threads at once, and kept on disk by CuPy."""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from struct import pack_into
from typing import Any, Final

import numpy as np

COMPILE_OPTIONS: Final = ("-std=c++17",)
_LAWS: Final = {"min_plus": 0, "sum_product": 1, "log_sum": 2, "mod_sum_product": 3}
_C_TYPES: Final = {"int16": "short", "int32": "int", "int64": "long long", "float32": "float", "float64": "double"}
_HEADERS: Final = {
    "decode": ("fields.cuh",),
    "layer": ("compact.cuh",),
    "relations": ("compact.cuh",),
    "small": ("fields.cuh",),
}
_ADDRESS: Final = ctypes.c_void_p * 1
ALIGNED: Final = 16
"""Alignment of tables and records for kernels, in bytes."""
_REPEATED_SINGLY: Final = 10
"""Calls before launches become a graph. A graph of 300 launches takes 12 ms to make, and a call saves 1.2 ms of Python
(one H200): 75-26-5 in 8 slices took 79 ms with a graph after three calls, and 66 ms without."""
_COMPILE_SECONDS: Final = {
    **{"messages": 3.1, "relations": 0.7, "product": 0.47, "brick": 0.36, "decode": 0.36, "bucket": 0.28},
    **{"layer": 0.28, "radix": 0.26, "small": 0.18, "reorder": 0.15, "stream": 0.13, "walk": 0.12, "join": 0.09},
    **{"gather": 0.07, "least": 0.05, "rows": 0.05},
}
"""Seconds that NVRTC 12.9 takes for a source, on a core of 2022. Threads compile side by side: the 24 kernels of
linkage_14 are 6.6 s of one core, and took 1.3 s on the 16 cores beside an H200."""


def cupy() -> Any:
    """Return CuPy; importing it takes a second, so it waits until an array asks for it."""
    import cupy

    return cupy


def processors() -> int:
    """Return how many multiprocessors the present device has: for launches whose results do not depend on it."""
    return _processors(cupy().cuda.Device().id)


@cache
def _processors(device: int) -> int:
    return int(cupy().cuda.Device(device).attributes["MultiProcessorCount"])


def block_shared_bytes() -> int:
    """Return the shared memory that a block may request on the present device: nominal before CuPy is loaded."""
    if "cupy" not in sys.modules:
        from .tiling.tiling_policy import NOMINAL

        return NOMINAL.processor_shared_bytes - (1 << 10)  # the driver keeps 1 KiB for each block
    return _block_shared_bytes(cupy().cuda.Device().id)


@cache
def _block_shared_bytes(device: int) -> int:
    return int(cupy().cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])


class Kernel:
    """One kernel with its constants fixed; compiled on its first launch, unless `compile_together` was sooner.

    Parameters
    ----------
    code : str
        Its source.
    entry : str
        The function that is launched.
    seconds : float
        Predicted seconds until the source is compiled.
    """

    def __init__(self, code: str, entry: str, seconds: float = 0.0) -> None:
        self.code, self._entry, self.seconds = code, entry, seconds
        self._functions: dict[int, Any] = {}  # a card each: a function of one is unknown to another
        self._shared_bytes = 0
        self._lock = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        """Whether this process has compiled it, or taken it from the disk, for any card."""
        return bool(self._functions)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """The most shared memory that any launch asks for, beyond what every kernel may; 0 if that is enough."""
        return self._shared_bytes

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, nbytes: int) -> None:
        with self._lock:
            if nbytes <= self._shared_bytes:
                return
            self._shared_bytes = nbytes
            for card, function in self._functions.items():
                with cupy().cuda.Device(card):
                    function.max_dynamic_shared_size_bytes = nbytes

    def load(self) -> Any:
        """Compile (or take from CuPy's cache on disk) and return CuPy's function for the present card."""
        card = cupy().cuda.runtime.getDevice()
        with self._lock:
            if card not in self._functions:
                module = cupy().RawModule(code=self.code, options=COMPILE_OPTIONS)
                function = module.get_function(self._entry)
                if self._shared_bytes:
                    function.max_dynamic_shared_size_bytes = self._shared_bytes
                self._functions[card] = function
                mark(self.code)
        return self._functions[card]

    @property
    def present(self) -> Any:
        """CuPy's function for the card that this thread works on."""
        return self._functions.get(cupy().cuda.runtime.getDevice()) or self.load()

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], shared_mem: int = 0
    ) -> None:
        """Launch on the current stream; a single record as argument goes to the driver at once, without CuPy's ado."""
        if len(arguments) > 1 or type(arguments[0]) is not np.ndarray:
            self.present(grid, block, arguments, shared_mem=shared_mem)
            return
        argument = _ADDRESS(arguments[0].ctypes.data)
        x, y, z = (*grid, 1, 1)[:3]
        self.launch((x, y, z), block[0], ctypes.addressof(argument), shared_mem)

    def launch(self, grid: tuple[int, int, int], threads: int, argument: int, shared_bytes: int = 0) -> None:
        """Launch on the current stream with the record whose address lies at ``argument``."""
        function = self.present
        cuda = cupy().cuda
        stream = cuda.get_current_stream().ptr
        cuda.driver.launchKernel(function.kernel.ptr, *grid, threads, 1, 1, shared_bytes, stream, argument, 0)


class Launch:
    """A launch of a kernel whose only argument is a record: all but the addresses of its tables is fixed.

    Parameters
    ----------
    record : ndarray
        One item, with fields ``inputs`` and ``out`` for addresses.
    tables : tuple of two sequences of int
        Which of a step's tables have their addresses in these fields, by their numbers.
    """

    def __init__(
        self,
        kernel: Kernel,
        record: Any,
        tables: tuple[Sequence[int], Sequence[int]],
        grid: int,
        threads: int,
        shared_bytes: int = 0,
    ) -> None:
        self.kernel: Kernel = kernel
        self.record: Any = record
        self._tables, self._made = tables
        self._grid, self._threads, self._shared_bytes = (grid, 1, 1), threads, shared_bytes
        self._argument = _ADDRESS(record.ctypes.data)
        self._where = ctypes.addressof(self._argument)
        self._inputs, self._outputs = (
            (ctypes.c_uint64 * count).from_address(record.ctypes.data + record.dtype.fields[name][1])
            for name, count in (("inputs", len(self._tables)), ("out", len(self._made)))
        )

    def __call__(self, addresses: Sequence[int]) -> None:
        """Launch on the current stream, given where each of a step's tables lies, its output last."""
        self._inputs[:] = [addresses[i] for i in self._tables]
        self._outputs[:] = [addresses[i] for i in self._made]
        self.kernel.launch(self._grid, self._threads, self._where, self._shared_bytes)

    @property
    def extent(self) -> tuple[int, int, int, int, int]:
        """Blocks along three axes, threads of each, and its bytes of shared memory."""
        return *self._grid, self._threads, self._shared_bytes

    def write(self, room: memoryview, start: int, addresses: Sequence[int]) -> None:
        """Write where tables lie into a copy of the record that begins somewhere in memory of the host."""
        fields = self.record.dtype.fields
        for name, numbers in (("inputs", self._tables), ("out", self._made)):
            pack_into(f"={len(numbers)}Q", room, start + fields[name][1], *[addresses[i] for i in numbers])


def bound_launches(
    launches: Sequence[tuple[Launch, Sequence[int]]], waits: Sequence[Sequence[int]]
) -> Callable[[], None]:
    """Return a function that repeats launches on the present device, with fixed addresses of their tables.

    The records of the launches are side by side in separate memory. After some calls, the launches become a CUDA graph.
    Python and the driver then make a single launch, so threads of several devices do not wait for each other.
    Independent launches of the graph run concurrently.

    Parameters
    ----------
    launches : sequence of (Launch, sequence of int)
        Each launch with the addresses of its step's tables.
    waits : sequence of sequence of int
        For each launch the earlier launches that must end before it begins.
    """
    sizes = [launch.record.nbytes for launch, _ in launches]
    starts = [0, *accumulate(-(-size // ALIGNED) * ALIGNED for size in sizes)]
    records = np.zeros(starts[-1], np.uint8)
    room, first = records.data, records.ctypes.data
    places = np.array([first + start for start in starts[:-1]], np.uint64)
    where, calls = places.ctypes.data, list[tuple[int, ...]]()
    for k, ((launch, addresses), start, size) in enumerate(zip(launches, starts[:-1], sizes, strict=True)):
        records[start : start + size] = launch.record.reshape(1).view(np.uint8)
        launch.write(room, start, addresses)
        calls.append((launch.kernel.present.kernel.ptr, *launch.extent, where + 8 * k))

    graph: Any = None
    repeated = 0

    def launch_one(number: int, stream: int) -> None:
        function, x, y, z, threads, shared, argument = calls[number]
        cupy().cuda.driver.launchKernel(function, x, y, z, threads, 1, 1, shared, stream, argument, 0)

    def launch_all(stream: int) -> None:
        go = cupy().cuda.driver.launchKernel
        for function, x, y, z, threads, shared, argument in calls:
            go(function, x, y, z, threads, 1, 1, shared, stream, argument, 0)

    def repeat() -> None:
        nonlocal graph, repeated
        repeated += 1
        cuda = cupy().cuda
        if graph is None and repeated > _REPEATED_SINGLY and len(calls) > 1:
            graph = _captured(launch_one, waits)
        if graph is None:
            launch_all(cuda.get_current_stream().ptr)
        else:
            graph.launch(cuda.get_current_stream())

    # the driver reads these arrays at each launch, so they must stay in memory
    repeat.held = records, places  # type: ignore[attr-defined]
    return repeat


def _captured(launch: Callable[[int, int], None], waits: Sequence[Sequence[int]]) -> Any:
    """Capture some launches as a CUDA graph; their kernels must be loaded.

    A launch uses the stream of a launch that it waits for, or else a separate stream. Events let streams wait for each
    other. A stream is reused for a launch that waits for all launches of this stream.

    Parameters
    ----------
    launch : callable
        Launches the kernel of a number on a stream.
    waits : sequence of sequence of int
        For each number the earlier launches that must end before it begins.
    """
    cuda = cupy().cuda
    streams = [cuda.Stream(non_blocking=True)]

    def marked(stream: Any) -> Any:
        event = cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    streams[0].begin_capture()
    try:
        first, events, ended = marked(streams[0]), list[Any](), list[int]()
        last: list[int | None] = [None]
        place = list[int]()
        for number, before in enumerate(waits):
            done = 0
            for i in before:
                done |= ended[i] | 1 << i
            own = next((place[i] for i in before if last[place[i]] == i), None)
            if own is None:
                free = (k for k, i in enumerate(last) if i is None or done >> i & 1)
                own = next(free, len(streams))
            if own == len(streams):
                streams.append(cuda.Stream(non_blocking=True))
                last.append(None)
                streams[own].wait_event(first)
            for i in before:
                if place[i] != own:
                    streams[own].wait_event(events[i])
            launch(number, streams[own].ptr)
            events.append(marked(streams[own]))
            ended.append(done)
            place.append(own)
            last[own] = number
        for stream_end in last[1:]:
            if stream_end is not None:
                streams[0].wait_event(events[stream_end])
    finally:
        graph = streams[0].end_capture()
    return graph


@cache
def kernel(name: str, law: str, dtype: str, entry: str = "", **constants: int) -> Kernel:
    """Return one kernel with its constants fixed."""
    return Kernel(kernel_source(name, law, dtype, **constants), entry or name, _COMPILE_SECONDS[name])


def kernel_source(name: str, law: str, dtype: str, **constants: int) -> str:
    """Return the CUDA C++ of one kernel with its constants fixed."""
    define = {"LAW": _LAWS[law], "T": _C_TYPES[dtype], **constants}
    source = [f"#define {key} {value}" for key, value in define.items()]
    return "\n".join(source + [_text(file) for file in ("laws.cuh", *_HEADERS.get(name, ()), f"{name}.cu")])


@cache
def _text(file: str) -> str:
    from importlib.resources import files

    return (files(__package__) / "cuda" / file).read_text()


@cache
def load_compiler() -> None:
    """Begin to load CUDA's compiler, which takes a quarter of a second, on a thread of its own.

    Kernels that are kept on disk need it too: CuPy asks it what it puts before a source.
    """
    module, device = cupy(), cupy().cuda.Device().id

    def load() -> None:
        with suppress(Exception), module.cuda.Device(device):  # callers that need the device get the error
            module.RawModule(code='extern "C" __global__ void nothing() {}', options=COMPILE_OPTIONS).compile()

    threading.Thread(target=load, name="bucketflow loads CUDA's compiler").start()


def compile_seconds(kernels: Iterable[Kernel], enough: float = math.inf) -> float:
    """Predict the seconds until kernels are compiled, without compiling any.

    Kernels that this process has loaded, or that CuPy has stored on disk, take no time.

    Parameters
    ----------
    kernels : iterable of Kernel
    enough : float
        Further kernels are not read once the predicted seconds exceed this number.
    """
    known, total, longest, cores = set[str](), 0.0, 0.0, len(os.sched_getaffinity(0))
    for each in kernels:
        if each.is_loaded or each.code in known:
            continue
        known.add(each.code)
        if not is_marked(each.code):
            total, longest = total + each.seconds, max(longest, each.seconds)
            if longest + (total - longest) / cores > enough:
                break
    return longest + (total - longest) / cores


def compile_together(kernels: Iterable[Kernel]) -> None:
    """Compile kernels that this process has not loaded, in as many threads as there are cores.

    The longest come first, so that none is left to compile alone at the end.
    """
    from concurrent.futures import ThreadPoolExecutor

    waiting = sorted(dict.fromkeys(each for each in kernels if not each.is_loaded), key=lambda each: -len(each.code))
    if len(waiting) < 2:
        return
    cuda = cupy().cuda
    device = cuda.Device().id

    def load(each: Kernel) -> None:
        with cuda.Device(device):
            each.load()

    with ThreadPoolExecutor(min(len(waiting), len(os.sched_getaffinity(0)))) as pool:
        list(pool.map(load, waiting))


# Marks show which kernels were compiled before, so that a plan can be priced before a device is started. CuPy stores
# machine code on disk. The names of its files depend on NVRTC, and loading NVRTC and CuPy takes a second. Therefore
# each compiled source has a mark: an empty file in CuPy's folder. Its name is a digest of the source, the version of
# CuPy, the driver and the models of the GPUs. If a user deletes CuPy's folder, the marks disappear too.

_DRIVER: Final = Path("/proc/driver/nvidia")
_VERSION: Final = re.compile(r"__version__ = '([^']+)'")


def is_marked(source: str) -> bool:
    """Whether a source was compiled for this machine's devices, and its code is still on disk."""
    folder = _folder()
    return folder is not None and (folder / _name(source, _platform(_cupy_version()))).exists()


def mark(source: str) -> None:
    """Note that a source was compiled; nothing happens where CuPy's folder cannot be written to."""
    folder = _folder()
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _name(source, _platform(_cupy_version()))).touch()


def _folder() -> Path | None:
    """Return the folder of marks; None if CuPy keeps no code on disk."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY", "0") not in ("", "0"):
        return None
    given = os.environ.get("CUPY_CACHE_DIR")
    return Path(given or os.path.expanduser("~/.cupy/kernel_cache")) / "bucketflow"


@lru_cache(maxsize=256)  # each join of sparse tables looks at the same sources
def _name(source: str, platform: str) -> str:
    from hashlib import blake2b

    return blake2b(source.encode(), key=platform.encode()[:64], digest_size=16).hexdigest()


@cache
def _platform(version: str) -> str:
    """Return a digest of what machine code depends on besides its source: CuPy, the driver, the models of GPUs."""
    from hashlib import blake2b

    found = [version]
    for path in (_DRIVER / "version", *sorted(_DRIVER.glob("gpus/*/information"))):
        with suppress(OSError):
            lines = path.read_text().splitlines()
            found += [line for line in lines if line.startswith(("Model", "NVRM"))]
    return blake2b("\n".join(found).encode(), digest_size=16).hexdigest()


def _cupy_version() -> str:
    """Return CuPy's version, without importing CuPy."""
    module = sys.modules.get("cupy")
    return _installed_version() if module is None else str(module.__version__)


@cache
def _installed_version() -> str:
    spec = find_spec("cupy")
    if spec is None or spec.origin is None:
        return ""
    for path in Path(spec.origin).parent.glob("_version.*"):
        if found := _VERSION.search(path.read_text()):
            return found[1]
    return ""
