"""Every CUDA kernel compiles, with and without the instructions of new devices; needs NVRTC but no GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from bucketflow.tasks.gpu import gather as gpu_gather
from bucketflow.tasks.gpu import kernels as gpu_kernels
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu import stream_launch as gpu_stream
from bucketflow.tasks.gpu.tiling.device_lowering import device_step
from bucketflow.tasks.steps.lowering import Lowered, lower
from bucketflow.tasks.steps.semiring import (
    LOG_SUM,
    MIN_PLUS,
    SUM_PRODUCT,
    Semiring,
    min_plus,
    mod_sum_product,
)

OLDEST, NEWEST = "sm_75", "sm_90"
FAR: tuple[dict[str, int], ...] = ({}, {"FAR": 1})
SEMIRINGS = (
    min_plus("int16", 4),
    min_plus("int32", 2),
    min_plus("int64", 4),
    MIN_PLUS,
    SUM_PRODUCT,
    LOG_SUM,
    mod_sum_product(2**31 - 1),
)


def nvrtc_files() -> Iterator[Path]:
    """Where the package of NVRTC keeps its library."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(folder).glob("**/libnvrtc.so.*"))


@pytest.fixture(scope="module")
def nvrtc() -> ctypes.CDLL:
    path = next(nvrtc_files(), None)
    if path is None:
        pytest.skip("NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
    return ctypes.CDLL(str(path))


@cache
def compile_source(nvrtc: ctypes.CDLL, source: str, architecture: str) -> None:
    """Compile to machine code; fail with the compiler's log."""
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) == 0
    # the assembler reports the same errors without optimization, in half of the time
    options = [*gpu_kernels.COMPILE_OPTIONS, f"--gpu-architecture={architecture}", "--ptxas-options=-O0"]
    status = nvrtc.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    )
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    assert status == 0, log.value.decode()


def steps(semiring: Semiring) -> Iterator[Lowered]:
    """Steps of every kind of pass: streams and buckets of one to many inputs, sums of rows, products, joins."""
    sizes = dict(enumerate((16, 16, 2, 64, 3)))
    scopes = [(0, 1, 2, 3), (0, 2, 3), (1, 2), (3,), (0, 4), (1, 4), (2, 4)]
    for inputs in (1, 3, 7):
        for eliminated in (2, 4):
            output = tuple(v for v in sorted({v for s in scopes[:inputs] for v in s}) if v != eliminated)
            yield lower(scopes[:inputs], output, sizes, semiring.dtype, semiring)
    fours = dict.fromkeys(range(14), 4)
    scopes = [tuple(range(1, 14)), (0, 1, 12, 4), (0, 2, 13), (3, 5, 12), (1, 6), (0, 11), (12, 13)]
    yield lower(scopes, tuple(range(12)), fours, semiring.dtype, semiring)
    yield lower([(0, 1)], (), {0: 1 << 10, 1: 1 << 10}, semiring.dtype, semiring)
    ring = [(v, (v + 1) % 22) for v in range(22)]
    yield lower(ring, tuple(range(22)), dict.fromkeys(range(22), 2), semiring.dtype, semiring)
    for shape in ((1, 33, 65, 17), (4, 64, 96, 64), (300, 16, 16, 16)):
        yield lower([(0, 1, 3), (0, 3, 2)], (0, 1, 2), dict(enumerate(shape)), semiring.dtype, semiring)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The sources that launches ask for, in place of compiled kernels."""
    found: set[str] = set()

    def record(name: str, law: str, dtype: str, entry: str = "", **constants: int) -> SimpleNamespace:
        found.add(gpu_kernels.kernel_source(name, law, dtype, **constants))
        return SimpleNamespace()

    for module in (gpu_stream, gpu, gpu_gather):
        monkeypatch.setattr(module, "kernel", record)
    monkeypatch.setattr(gpu, "block_shared_bytes", lambda: 227 << 10)
    return found


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=lambda s: f"{s.name}-{s.dtype}")
def test_kernels_compile(nvrtc: ctypes.CDLL, sources: set[str], semiring: Semiring) -> None:
    for lowered in steps(semiring):
        gpu.DeviceRun(device_step(lowered), semiring, lowered.out_cells)
    for name in ("stream", "rows", "join", "bucket", "brick"):
        assert any(f" {name}(const" in source for source in sources)
    for source in sources:
        for architecture in (OLDEST, NEWEST) if semiring.dtype == "int16" else (NEWEST,):
            compile_source(nvrtc, source, architecture)


@pytest.mark.parametrize("law", ["sum_product", "min_plus"])
def test_propagation_compiles(nvrtc: ctypes.CDLL, law: str) -> None:
    for architecture in (OLDEST, NEWEST) if law == "min_plus" else (NEWEST,):
        compile_source(nvrtc, gpu_kernels.kernel_source("messages", law, "float64"), architecture)
        compile_source(nvrtc, gpu_kernels.kernel_source("messages", law, "float64", GROUPED=1), architecture)


def test_kernels_of_one_type_compile(nvrtc: ctypes.CDLL) -> None:
    both = [gpu_kernels.kernel_source(name, "min_plus", "float64") for name in ("least", "decode", "small")]
    both += [gpu_kernels.kernel_source(name, "min_plus", "int16", CLAMP=1) for name in ("decode", "small")]
    both += [gpu_kernels.kernel_source(name, "min_plus", "int16") for name in ("gather", "walk")]
    both.append(gpu_kernels.kernel_source("small", "mod_sum_product", "int64"))
    both += [gpu_kernels.kernel_source("reorder", "min_plus", "int16", BYTES=16, ITEMS=4, **far) for far in FAR]
    new = [gpu_kernels.kernel_source("walk", "min_plus", "int32")]
    for dtype in ("int32", "int64"):
        new.append(gpu_kernels.kernel_source("gather", "min_plus", dtype))
        new += [gpu_kernels.kernel_source(name, "min_plus", dtype, CLAMP=1) for name in ("decode", "small")]
    for nbytes, far in product((2, 4, 8), FAR):
        new.append(gpu_kernels.kernel_source("reorder", "min_plus", "int16", BYTES=nbytes, ITEMS=16, **far))
    for source in both:
        compile_source(nvrtc, source, OLDEST)
    for source in both + new:
        compile_source(nvrtc, source, NEWEST)


@pytest.mark.parametrize("words", [(1, 1), (1, 2), (3, 2)])
def test_layers_of_rows_compile(nvrtc: ctypes.CDLL, words: tuple[int, int]) -> None:
    constants = dict(zip(("WORDS", "NEW_WORDS"), words, strict=True))
    for architecture in (OLDEST, NEWEST) if words == (1, 1) else (NEWEST,):
        compile_source(nvrtc, gpu_kernels.kernel_source("layer", "min_plus", "float64", **constants), architecture)


@pytest.mark.parametrize(
    ("semiring", "words"),
    [(min_plus("int16", 4), 1), (SUM_PRODUCT, 3), (mod_sum_product(2**31 - 1), 2)],
    ids=["costs", "sums", "residues"],
)
def test_relations_compile(nvrtc: ctypes.CDLL, semiring: Semiring, words: int) -> None:
    constants = {"WORDS": words, "NEW_WORDS": 1} | ({"CLAMP": 1} if semiring.saturates else {})
    source = gpu_kernels.kernel_source("relations", semiring.name, semiring.dtype, **constants)
    for architecture in (OLDEST, NEWEST) if words == 1 else (NEWEST,):
        compile_source(nvrtc, source, architecture)


def test_sorting_compiles(nvrtc: ctypes.CDLL) -> None:
    for architecture in (OLDEST, NEWEST):
        compile_source(nvrtc, gpu_kernels.kernel_source("radix", "min_plus", "int16"), architecture)
