"""Kernels without a GPU: what CuPy and the driver are asked for, when, and with which arguments."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from bucketflow.tasks.gpu import arrays as device_arrays
from bucketflow.tasks.gpu import gather as gpu_gather
from bucketflow.tasks.gpu import kernels as gpu_kernels
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu.tiling.device_lowering import device_step
from bucketflow.tasks.steps.lowering import lower
from bucketflow.tasks.steps.semiring import min_plus
from bucketflow.tasks.steps.views import slice_of
from tests.device_stand_in import DeviceArray

SEMIRING = min_plus("int32", 4)


class Driver:
    """Notes what is compiled, and the bytes of the record of every launch."""

    def __init__(self) -> None:
        self.compiled: list[tuple[str, str, int]] = []
        self.launched: list[tuple[tuple[int, ...], bytes]] = []
        self.record_bytes = 0
        self.shared: dict[str, int] = {}

    def module(self) -> ModuleType:
        cupy: Any = ModuleType("cupy")
        cupy.RawModule = self.raw_module
        cupy.ndarray = DeviceArray
        cupy.asarray = lambda values: values.view(DeviceArray)

        class Device:
            id = 3
            attributes: ClassVar = {"MultiProcessorCount": 10, "MaxSharedMemoryPerBlockOptin": 227 << 10}

            def __init__(self, number: int = 3) -> None:
                assert number == 3

            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None: ...

        cupy.cuda = SimpleNamespace(
            Device=Device,
            driver=SimpleNamespace(launchKernel=self.launch),
            runtime=SimpleNamespace(getDevice=lambda: 3),
            get_current_stream=lambda: SimpleNamespace(ptr=77),
        )
        return cupy

    def raw_module(self, code: str, options: tuple[str, ...]) -> Any:
        assert options == gpu_kernels.COMPILE_OPTIONS

        def get_function(entry: str) -> Any:
            self.compiled.append((code, entry, threading.get_ident()))
            return SimpleNamespace(kernel=SimpleNamespace(ptr=len(self.compiled)))

        return SimpleNamespace(get_function=get_function)

    def launch(self, function: int, *numbers: int) -> None:
        *shape, params, extra = numbers
        assert extra == 0
        (address,) = (ctypes.c_void_p * 1).from_address(params)
        self.launched.append(((function, *shape), ctypes.string_at(address, self.record_bytes)))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    there = Driver()
    monkeypatch.setitem(sys.modules, "cupy", there.module())
    monkeypatch.setattr(gpu_kernels, "WAITING", set())
    for kept in (gpu_kernels.kernel, gpu_kernels._processors, gpu.prepared_launch):
        kept.cache_clear()
    yield there
    for kept in (gpu_kernels.kernel, gpu_kernels._processors, gpu.prepared_launch):
        kept.cache_clear()


def test_waiting_kernels_are_compiled_once_each(driver: Driver) -> None:
    kernels = [gpu_kernels.kernel("rows", "min_plus", dtype) for dtype in ("int16", "int32", "int64", "float64")]
    assert kernels[1] is gpu_kernels.kernel("rows", "min_plus", "int32")
    assert not driver.compiled
    gpu_kernels.compile_waiting()
    assert len({code for code, _, _ in driver.compiled}) == len(driver.compiled) == 4
    assert all(thread != threading.get_ident() for _, _, thread in driver.compiled)
    gpu_kernels.compile_waiting()
    for each in kernels:
        each.load()
    assert len(driver.compiled) == 4


def test_a_single_kernel_is_compiled_where_it_is_launched(driver: Driver) -> None:
    driver.record_bytes = 8
    record = np.array((5, 6), [("a", "u4"), ("b", "u4")])
    one = gpu_kernels.kernel("rows", "min_plus", "int32")
    gpu_kernels.compile_waiting()
    assert not driver.compiled
    one((9,), (256,), (record,))
    one((2, 4), (128,), (record,), shared_mem=512)
    assert [entry for _, entry, _ in driver.compiled] == ["rows"]
    assert driver.launched == [
        ((1, 9, 1, 1, 256, 1, 1, 0, 77), record.tobytes()),
        ((1, 2, 4, 1, 128, 1, 1, 512, 77), record.tobytes()),
    ]


def test_slices_are_copied_by_as_many_blocks_as_the_device_has_places_for(driver: Driver) -> None:
    for cells, blocks in ((100, 1), (100_000, 160)):
        table = np.zeros(2 * cells, np.int32).view(DeviceArray)
        gpu_gather.gather_slices([slice_of(table, (0, 1), (2, cells), {0: 1})], [table.ctypes.data])
        assert driver.launched.pop()[0][1:5] == (blocks, 1, 1, 256)


def test_shared_memory_is_what_the_greediest_launch_asks_for(driver: Driver) -> None:
    one = gpu_kernels.kernel("rows", "min_plus", "int32")
    one.max_dynamic_shared_size_bytes = 50_000
    one.max_dynamic_shared_size_bytes = 40_000
    function = one.load()
    assert function.max_dynamic_shared_size_bytes == 50_000
    one.max_dynamic_shared_size_bytes = 60_000
    assert function.max_dynamic_shared_size_bytes == 60_000


def test_temporaries_of_a_step_lie_apart_in_one_block(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[DeviceArray] = []

    def empty(cells: int, dtype: str) -> DeviceArray:
        taken.append(np.empty(cells, dtype).view(DeviceArray))
        return taken[-1]

    monkeypatch.setattr(device_arrays, "empty", empty)
    sizes = dict.fromkeys(range(22), 2)
    step = lower([tuple(range(22)), *((v, v + 1, v + 7) for v in range(12))], (0, 1), sizes, "int32", SEMIRING)
    device = device_step(step)
    assert device.temporaries
    run = gpu.prepare(step)
    seen: list[list[int]] = []
    monkeypatch.setattr(run, "launches", [seen.append])
    tables = [np.zeros(cells, "int32").view(DeviceArray) for cells in step.input_cells]
    result = run(tables)
    (addresses,) = seen
    assert addresses[: len(tables)] == [table.data.ptr for table in tables]
    assert addresses[-1] == result.data.ptr
    places = addresses[len(tables) : -1]
    assert len(taken) == 2
    spans = sorted((at, at + 4 * cells) for at, cells in zip(places, device.temporaries, strict=True))
    block = taken[0]
    assert block.data.ptr <= spans[0][0]
    assert spans[-1][1] <= block.data.ptr + block.nbytes
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all((start - block.data.ptr) % 256 == 0 for start, _ in spans)
