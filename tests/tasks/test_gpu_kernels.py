"""Kernels without a GPU: what CuPy and the driver are asked for, when, and with which arguments."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from bucketflow.tasks.gpu import arrays as device_arrays
from bucketflow.tasks.gpu import decoding
from bucketflow.tasks.gpu import gather as gpu_gather
from bucketflow.tasks.gpu import kernels as gpu_kernels
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu.memory import LongStepError
from bucketflow.tasks.gpu.messages.propagation import propagation_kernels
from bucketflow.tasks.gpu.tiling import buckets, product_tiles, streams
from bucketflow.tasks.gpu.tiling.device_lowering import device_step
from bucketflow.tasks.rows.device_algebra import DeviceChoice
from bucketflow.tasks.rows.memory_account import MemoryAccount
from bucketflow.tasks.rows.relation import Relation
from bucketflow.tasks.steps.lowering import lower
from bucketflow.tasks.steps.policy import RowPolicy
from bucketflow.tasks.steps.semiring import min_plus
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.steps.views import slice_of
from bucketflow.tasks.sweeps.device_sweep import DevicePlaces
from tests.device_stand_in import DeviceArray
from tests.policies import InForce

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
        cupy.__version__ = "1"
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
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Driver]:
    there = Driver()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setitem(sys.modules, "cupy", there.module())
    for kept in (gpu_kernels.kernel, gpu_kernels._processors, gpu.prepare):
        kept.cache_clear()
    yield there
    for kept in (gpu_kernels.kernel, gpu_kernels._processors, gpu.prepare):
        kept.cache_clear()


def test_kernels_are_compiled_once_each(driver: Driver) -> None:
    kernels = [gpu_kernels.kernel("rows", "min_plus", dtype) for dtype in ("int16", "int32", "int64", "float64")]
    assert kernels[1] is gpu_kernels.kernel("rows", "min_plus", "int32")
    assert not driver.compiled
    gpu_kernels.compile_together([*kernels, kernels[0]])
    assert len({code for code, _, _ in driver.compiled}) == len(driver.compiled) == 4
    assert all(thread != threading.get_ident() for _, _, thread in driver.compiled)
    gpu_kernels.compile_together(kernels)
    for each in kernels:
        each.load()
    assert len(driver.compiled) == 4


def test_kernels_that_were_compiled_take_no_time(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark in CuPy's folder stands for what another process compiled, for one version of CuPy."""
    one, other = (gpu_kernels.kernel("rows", "min_plus", dtype) for dtype in ("int16", "int32"))
    assert gpu_kernels.compile_seconds([one]) == one.seconds > 0.0
    for cores in (1, 2):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert gpu_kernels.compile_seconds([one, one, other]) == one.seconds + other.seconds / cores
    one.load()
    assert gpu_kernels.compile_seconds([one, other]) == other.seconds
    gpu_kernels.kernel.cache_clear()
    again = gpu_kernels.kernel("rows", "min_plus", "int16")
    assert again is not one
    assert gpu_kernels.compile_seconds([again]) == 0.0
    monkeypatch.setattr(sys.modules["cupy"], "__version__", "2")
    assert gpu_kernels.compile_seconds([again]) == again.seconds


@pytest.mark.parametrize("change", ["removed", "in memory"])
def test_marks_last_as_long_as_the_code(change: str, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_kernels.kernel("rows", "min_plus", "int16").load()
    gpu_kernels.kernel.cache_clear()
    if change == "removed":
        shutil.rmtree(os.environ["CUPY_CACHE_DIR"])
    else:
        monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    again = gpu_kernels.kernel("rows", "min_plus", "int16")
    assert gpu_kernels.compile_seconds([again]) == again.seconds


def test_entries_of_one_source_are_compiled_once(driver: Driver) -> None:
    kernels = propagation_kernels("sum_product")
    assert len(kernels) == 3
    assert gpu_kernels.compile_seconds(kernels) == kernels[0].seconds


def test_a_folder_that_cannot_be_written_to_keeps_no_marks(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("")
    gpu_kernels.kernel("rows", "min_plus", "int16").load()
    gpu_kernels.kernel.cache_clear()
    again = gpu_kernels.kernel("rows", "min_plus", "int16")
    assert gpu_kernels.compile_seconds([again]) == again.seconds


def test_before_cupy_is_loaded_kernels_are_known(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    """They are the kernels that a device of nominal size launches."""
    sizes = {0: 64, 1: 8, 2: 64}
    lowered = lower([(0, 1), (1, 2)], (0, 2), sizes, SEMIRING.dtype, SEMIRING)
    there = {each.code for each in gpu.step_kernels(lowered)}
    monkeypatch.delitem(sys.modules, "cupy")
    assert {each.code for each in gpu.step_kernels(lowered)} == there
    assert gpu_kernels.compile_seconds(gpu.step_kernels(lowered)) > 0.0


def test_every_source_has_its_seconds() -> None:
    folder = Path(gpu_kernels.__file__).parent / "cuda"
    assert {path.stem for path in folder.glob("*.cu")} == set(gpu_kernels._COMPILE_SECONDS)


# Numbers that records and launches share with kernels. Only a GPU would show that they differ.
SHARED = {
    "brick": {"THREADS": streams.THREADS},
    "bucket": {
        "AXES": buckets.AXES,
        "TABLES": buckets.TABLES,
        "ENTRIES": buckets.ENTRIES,
        "GROUPS": buckets.GROUPS,
        "STATES": buckets.STATES,
        "TURNS": buckets.TURNS,
        "THREADS": streams.THREADS,
    },
    "decode": {"THREADS": streams.THREADS, "LINES": decoding._SHARED_LINES},
    "gather": {"AXES": streams.AXES, "THREADS": streams.THREADS},
    "join": {
        "AXES": buckets.ALL_JOIN_AXES,
        "TABLES": buckets.TABLES,
        "ENTRIES": buckets.ENTRIES,
        "JOINS": buckets.JOINS,
        "THREADS": streams.THREADS,
    },
    "product": {"AXES": streams.AXES, "PAD": product_tiles.PAD, "SPAN": product_tiles.SPAN},
    "reorder": {"AXES": streams.AXES, "THREADS": streams.THREADS},
    "rows": {"THREADS": streams.THREADS},
    "stream": {"AXES": streams.AXES, "THREADS": streams.THREADS, "DEEP": streams.DEEP_STATES},
}


@pytest.mark.parametrize("source", SHARED)
def test_numbers_are_those_of_the_kernels(source: str) -> None:
    text = (Path(gpu_kernels.__file__).parent / "cuda" / f"{source}.cu").read_text()
    found = {name: int(number) for name, number in re.findall(r"constexpr int (\w+) = (\d+);", text)}
    assert {name: found[name] for name in SHARED[source]} == SHARED[source]


def test_a_step_of_too_many_parts_is_refused(driver: Driver) -> None:
    lowered = lower([(0, 1), (1, 2)], (0, 2), {0: 1 << 25, 1: 8, 2: 1 << 25}, SEMIRING.dtype, SEMIRING)
    with pytest.raises(LongStepError, match=r"more parts than a launch on a GPU counts \(2\^32\); leave out --gpus"):
        gpu.DeviceRun(device_step(lowered), SEMIRING, lowered.out_cells)


@pytest.mark.parametrize("bits", [12, 25])
def test_loops_of_too_many_parts_are_joined_by_rows(bits: int, driver: Driver, in_force: InForce) -> None:
    """A launch counts 2^32 parts; beyond, tables are joined although a row is said to take as long as all cells."""
    in_force(RowPolicy, cells_of_a_row=1 << 60)
    sizes = (1 << bits, 8, 1 << bits)
    step = make_step(2, (0, 1), ((0, 1), (1, 2)), (0, 2), sizes, SEMIRING)
    choice = DeviceChoice(SEMIRING, sizes, MemoryAccount(1 << 60), places=DevicePlaces(1))
    keys = [choice.keys(axes) for axes in step.input_axes]
    tables = [Relation(each, np.zeros((1, each.n_words), np.uint64), np.zeros(1, np.int32)) for each in keys]
    assert choice.is_swept(step, tables) == (bits == 12)
    assert (choice.kernels(step) is None) == (bits == 25)


def test_a_single_kernel_is_compiled_where_it_is_launched(driver: Driver) -> None:
    driver.record_bytes = 8
    record = np.array((5, 6), [("a", "u4"), ("b", "u4")])
    one = gpu_kernels.kernel("rows", "min_plus", "int32")
    gpu_kernels.compile_together([one])
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
