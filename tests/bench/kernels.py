"""Speed of dense steps beside memcpy and NumPy broadcasting: ``python tests/bench/kernels.py [--quick]``.

Rates are per CPU-second, best of several runs. A cell is one cell of the join; bytes are those of the inputs
and the output, each counted once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from bucketflow.tasks.cpu.dense import run
from bucketflow.tasks.steps.lowering import Lowered, lower
from bucketflow.tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT, Semiring, min_plus, mod_sum_product

SEMIRINGS = {
    "min-plus int16": min_plus("int16"),
    "min-plus int32": min_plus("int32"),
    "min-plus float64": MIN_PLUS,
    "sum-product float64": SUM_PRODUCT,
}


def cpu_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the least CPU time of several runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def tables_of(step: Lowered, seed: int = 0) -> list[np.ndarray]:
    """Draw small values for every input."""
    rng = np.random.default_rng(seed)
    pattern = rng.integers(1, 100, 4099).astype(step.semiring.dtype)
    return [np.resize(pattern, cells) for cells in step.input_cells]


def copy_rate(size_bytes: int) -> float:
    """Bytes read and written by a copy per CPU-second, in GB/s."""
    source = np.ones(size_bytes // 8)
    target = np.ones(size_bytes // 8)
    loops = max(1, 2**26 // size_bytes)
    return loops * 2 * size_bytes / cpu_seconds(lambda: [np.copyto(target, source) for _ in range(loops)]) / 1e9


def read_rate(size_bytes: int) -> float:
    """Bytes read by a maximum over int32 per CPU-second, in GB/s: what a step that only reads could reach."""
    source = np.ones(size_bytes // 4, np.int32)
    loops = max(1, 2**26 // size_bytes)
    return loops * size_bytes / cpu_seconds(lambda: [source.max() for _ in range(loops)]) / 1e9


def streaming_step(semiring: Semiring, eliminated: int, inputs: int, cells: int) -> Lowered:
    """Build a step over a table (outer, middle, eliminated, row) and up to three smaller ones."""
    row, middle = 256, 16
    sizes = {0: max(1, cells // (row * middle * eliminated)), 1: middle, 2: eliminated, 3: row}
    scopes = [(0, 1, 2, 3), (0, 2, 3), (1, 2), (3,)][:inputs]
    return lower(scopes, (0, 1, 3), sizes, semiring.dtype, semiring)


def report(name: str, step: Lowered, repeats: int = 5) -> None:
    """Time a step in all its forms and print one line."""
    tables = tables_of(step)
    out = np.zeros(step.out_cells, step.semiring.dtype)
    run(step, tables, out)
    loops = max(1, 2**22 // step.cells)
    seconds = cpu_seconds(lambda: [run(step, tables, out) for _ in range(loops)], repeats) / loops
    moved = (sum(step.input_cells) + step.out_cells) * step.semiring.itemsize
    numpy_seconds = float("nan")
    if step.cells <= 2**25:
        numpy_seconds = cpu_seconds(lambda: run(step, tables, out, compiled=False), 2)
    print(
        f"{name:44s} {step.regime:9s} {step.cells / seconds / 1e9:7.2f} Gcells/s {moved / seconds / 1e9:7.2f} GB/s"
        f"   NumPy {step.cells / numpy_seconds / 1e9:5.2f} Gcells/s"
    )


def streaming(cells: int, label: str, eliminated: tuple[int, ...], inputs: tuple[int, ...]) -> None:
    """Print the streaming regime at one size of tables."""
    for name, semiring in SEMIRINGS.items():
        size_bytes = cells * semiring.itemsize
        print(
            f"-- streaming, {label}, {size_bytes >> 10} KiB: "
            f"memcpy {copy_rate(size_bytes):.1f} GB/s, read {read_rate(size_bytes):.1f} GB/s"
        )
        for k in eliminated:
            for n in inputs:
                report(f"{name}, {k} eliminated, {n} inputs", streaming_step(semiring, k, n, cells), 3)


def products(shapes: tuple[tuple[int, int, int, int], ...]) -> None:
    """Print the matrix regime over (batch, rows, depth, columns)."""
    print("-- matrix")
    for name, semiring in {**SEMIRINGS, "residues int64": mod_sum_product(2**31 - 1)}.items():
        for shape in shapes:
            sizes = dict(enumerate(shape))
            step = lower([(0, 1, 2), (0, 2, 3)], (0, 1, 3), sizes, semiring.dtype, semiring)
            report(f"{name}, {'x'.join(map(str, shape))}", step, 3)


def main() -> None:
    """Print all tables; ``--quick`` leaves out the tables larger than caches."""
    quick = "--quick" in sys.argv[1:]
    streaming(2**19, "in cache", (2, 3, 4, 8, 44), (1, 2, 3, 4))
    if not quick:
        streaming(2**27, "in memory", (2, 8), (1, 2, 4))
    products(((1, 512, 512, 512), (64, 64, 64, 64), (200, 32, 44, 44), (1, 4096, 32, 64)))


if __name__ == "__main__":
    main()
