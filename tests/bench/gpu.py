"""GPU kernels beside ceilings measured in the same run: ``python tests/bench/gpu.py [--quick]``.

Bytes are those of the inputs and the output, each counted once; a cell is one cell of the join. Times are medians
of device events.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from parts.needs import cupy

from bucketflow.tasks.gpu import kernels
from bucketflow.tasks.gpu import launch as gpu
from bucketflow.tasks.gpu.kernels import bound_launches, processors
from bucketflow.tasks.steps.lowering import Lowered, lower
from bucketflow.tasks.steps.semiring import LOG_SUM, MIN_PLUS, SUM_PRODUCT, min_plus

cp = cupy()

SEMIRINGS = {
    "min-plus int16": min_plus("int16", 4),
    "min-plus int32": min_plus("int32", 4),
    "min-plus float64": MIN_PLUS,
    "sum-product float64": SUM_PRODUCT,
}

REGISTERS = """
typedef {type} Word;
extern "C" __global__ void __launch_bounds__(128) registers(Word* out, int rounds) {{
    Word acc[{tall}][8], a[{tall}], b[8];
    for (int j = 0; j < 8; j++) b[j] = blockIdx.x * 3 + j;
    for (int i = 0; i < {tall}; i++) {{
        a[i] = threadIdx.x + i;
        for (int j = 0; j < 8; j++) acc[i][j] = 1 << 13;
    }}
    for (int r = 0; r < rounds; r++) {{
#pragma unroll
        for (int i = 0; i < {tall}; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) acc[i][j] = {work};
#pragma unroll
        for (int i = 0; i < {tall}; i++) a[i] += 1;
    }}
    Word total = acc[0][0];
    for (int i = 0; i < {tall}; i++)
        for (int j = 0; j < 8; j++) total = min(total, acc[i][j]);
    if (total == (Word)-12345) out[0] = total;
}}
"""

REGISTER_KERNELS = {
    "int16": ("unsigned", "__viaddmin_s16x2(a[i], b[j], acc[i][j])", 2),
    "int32": ("int", "__viaddmin_s32(a[i], b[j], acc[i][j])", 1),
    "float32": ("float", "min(a[i] + b[j], acc[i][j])", 1),
    "float64": ("double", "a[i] + b[j] < acc[i][j] ? a[i] + b[j] : acc[i][j]", 1),
    "sum": ("double", "acc[i][j] + a[i] * b[j]", 1),
}


def seconds(work: Callable[[], object], repeats: int = 7, warm_ups: int = 1) -> float:
    """Return the median time of a run on the device, after some uncounted runs."""
    for _ in range(warm_ups):
        work()
    times = []
    for _ in range(repeats):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, stop) / 1e3)
    return float(np.median(times))


def copy_rate() -> float:
    """Bytes read and written per second by a large copy on the device."""
    source = cp.ones(1 << 29)
    target = cp.empty_like(source)
    return 2 * source.nbytes / seconds(lambda: cp.copyto(target, source))


def register_rate(dtype: str) -> float:
    """Cells per second of arithmetic in registers, without matrix units."""
    kind, work, lanes = REGISTER_KERNELS[dtype]
    tall = 4 if kind == "double" else 8  # as many warps as have their sums in registers
    kernel = cp.RawKernel(REGISTERS.format(type=kind, work=work, tall=tall), "registers")
    out, rounds, blocks = cp.zeros(1, np.float64), 4096, processors() * 16
    time = seconds(lambda: kernel((blocks,), (128,), (out, np.int32(rounds))))
    return blocks * 128 * rounds * tall * 8 * lanes / time


def matmul_rate() -> float:
    """Multiply-adds per second of cuBLAS in float64."""
    a = cp.random.random((4096, 4096))
    out = cp.empty_like(a)
    return 4096**3 / seconds(lambda: cp.matmul(a, a, out=out))


def matmul_seconds(batch: int, rows: int, depth: int, columns: int, transposed: bool) -> float:
    """Seconds of cuBLAS (strided batches) on a shape in float64."""
    left = cp.random.random((batch, rows, depth))
    right = cp.random.random((batch, columns, depth) if transposed else (batch, depth, columns))
    right = right.transpose(0, 2, 1) if transposed else right
    out = cp.empty((batch, rows, columns))
    return seconds(lambda: cp.matmul(left, right, out=out))


def tables_of(step: Lowered) -> list[Any]:
    """Draw small values for every input."""
    pattern = cp.asarray(np.random.default_rng(0).integers(1, 100, 1 << 20).astype(step.semiring.dtype))
    return [cp.resize(pattern, cells) for cells in step.input_cells]


def time_step(step: Lowered, repeats: int = 7) -> float:
    """Seconds of one step on tables of its own."""
    return time_run(gpu.prepare(step), step, repeats)


def time_run(prepared: gpu.DeviceRun, step: Lowered, repeats: int = 7, *, in_turn: bool = False) -> float:
    """Seconds of the launches of one step on separate tables, as the graph of a repeated sweep runs them.

    With ``in_turn`` each launch of the graph waits for the launch before it.
    """
    tables = tables_of(step)
    out = cp.empty(step.out_cells, step.semiring.dtype)
    if not prepared.repeats:
        return seconds(lambda: prepared(tables, out), repeats)
    room = cp.empty(prepared.workspace_bytes, np.uint8)
    places = [table.data.ptr for table in tables]
    waits = [range(max(k - 1, 0), k) for k in range(len(prepared.waits))] if in_turn else prepared.waits
    run = bound_launches(prepared.bound(places, out.data.ptr, room.data.ptr), waits)
    return seconds(run, repeats, kernels._REPEATED_SINGLY + 1)


def streaming(cells: int, copy: float) -> None:
    """Print streaming steps on tables of ``cells`` cells."""
    cases: list[tuple[str, list[tuple[int, ...]], tuple[int, ...], dict[int, int]]] = []
    for k in (2, 3, 4, 8, 44):
        row, middle = 256, 16
        sizes = {0: max(1, cells // (row * middle * k)), 1: middle, 2: k, 3: row}
        scopes = [(0, 1, 2, 3), (0, 2, 3), (1, 2), (3,)]
        cases += [(f"{k} eliminated, {n} inputs", scopes[:n], (0, 1, 3), sizes) for n in (1, 2, 4)]
    whole = {0: cells // 4096, 1: 64, 2: 64}
    cases += [
        ("join of 2", [(0, 1, 2), (0, 1)], (0, 1, 2), whole),
        ("two large, 2 eliminated", [(0, 1, 2), (0, 1, 2)], (0, 2), {0: cells // 512, 1: 2, 2: 256}),
        ("row of 243", [(0, 1, 2), (1, 2)], (0, 2), {0: cells // 486, 1: 2, 2: 243}),
        ("row of 44", [(0, 1, 2), (1, 2)], (0, 2), {0: cells // 1936, 1: 44, 2: 44}),
        ("eliminated last (2)", [(0, 1), (1,)], (0,), {0: cells // 2, 1: 2}),
        ("eliminated last (16)", [(0, 1), (1,)], (0,), {0: cells // 16, 1: 16}),
        ("transposition", [(0, 1)], (1, 0), {0: 1 << 13, 1: cells >> 13}),
        ("transposed, 2 eliminated", [(0, 1, 2)], (1, 0), {0: 1 << 13, 1: cells >> 14, 2: 2}),
        ("total", [(0,)], (), {0: cells}),
        ("to 64 cells", [(0, 1)], (1,), {0: cells // 64, 1: 64}),
    ]
    for name, semiring in SEMIRINGS.items():
        for label, scopes, output, sizes in cases:
            step = lower(scopes, output, sizes, semiring.dtype, semiring)
            if step.product is not None:
                continue
            time = time_step(step)
            moved = (sum(step.input_cells) + step.out_cells) * semiring.itemsize
            print(f"{name:20s} {label:26s} {moved / time / 1e12:6.2f} TB/s {moved / time / copy:5.0%} of copy")
        cp.get_default_memory_pool().free_all_blocks()


def products(rates: dict[str, float]) -> None:
    """Print matrix-like steps over (batch, rows, depth, columns); sums of products beside cuBLAS."""
    shapes = (
        (1, 8192, 2048, 8192),
        (64, 512, 512, 512),
        (1, 44**2, 44, 44**2 * 8),
        (44, 44**2, 44, 44**2),
        (4096, 64, 64, 64),
        (256, 32, 32, 8192),
        (256, 16, 128, 8192),
        (44**2, 44, 44, 44),
        (1 << 16, 16, 16, 32),
    )
    for name, semiring in SEMIRINGS.items():
        ceiling = rates["cublas" if semiring.name == "sum_product" else semiring.dtype]
        for shape in shapes:
            for layout, scopes in (("", [(0, 1, 2), (0, 2, 3)]), ("right transposed", [(0, 1, 2), (0, 3, 2)])):
                step = lower(scopes, (0, 1, 3), dict(enumerate(shape)), semiring.dtype, semiring)
                time = time_step(step)
                label = "x".join(map(str, shape)) + " " + layout
                rate = step.cells / time
                moved = (sum(step.input_cells) + step.out_cells) * semiring.itemsize / time
                beside = ""
                if semiring is SUM_PRODUCT:
                    other = matmul_seconds(*shape, bool(layout))
                    beside = f", {other / time:.0%} of cuBLAS ({other * 1e3:.3f} ms)"
                print(
                    f"{name:20s} {label:36s} {time * 1e3:8.3f} ms {rate / 1e12:6.2f} Tcells/s {rate / ceiling:5.0%} "
                    f"of ceiling, {moved / 1e12:5.2f} TB/s{beside}",
                    flush=True,
                )


def main() -> None:
    """Print ceilings and kernels."""
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    copy = copy_rate()
    rates = {dtype: register_rate(dtype) for dtype in REGISTER_KERNELS} | {"cublas": matmul_rate()}
    print(f"{device}: copy {copy / 1e12:.2f} TB/s; registers and cuBLAS, Tcells/s: ", end="")
    print(", ".join(f"{name} {rate / 1e12:.1f}" for name, rate in rates.items()), flush=True)
    streaming(1 << (26 if "--quick" in sys.argv else 29), copy)
    products(rates)
    step = lower([(0, 1), (1,)], (0,), {0: 64, 1: 2}, "int32", SEMIRINGS["min-plus int32"])
    prepared, tables = gpu.prepare(step), tables_of(step)
    import time

    start = time.perf_counter()
    for _ in range(1000):
        prepared(tables)
    cp.cuda.Device().synchronize()
    print(f"smallest step {(time.perf_counter() - start) * 1e3:.1f} us, with LOG_SUM over {LOG_SUM.dtype}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
