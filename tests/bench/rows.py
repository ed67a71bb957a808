"""One layer of rows beside sorting what comes out of it: ``python tests/bench/rows.py [--quick] [--gpu]``.

Rates are per CPU-second, or per second of a GPU; best of several runs. An expanded row is a row with one state of the
layer's variable; half of them reach the cut-off. One variable falls out of the key where it says so, so that equal
keys meet. What comes out, in random order, is sorted by NumPy: "keys" alone, and "with costs", as a layer delivers
them. How fast NumPy sorts depends on the processor's instructions: with ``NPY_DISABLE_CPU_FEATURES="AVX512_ICL
X86_V4"`` it is four times as fast on some. On a GPU, "cut" keeps only as many rows as there were; what is sorted there
are the keys that go in.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from kernels import cpu_seconds

from bucketflow.tasks.rows.device_layers import DEVICE, large_blocks, order_of_groups
from bucketflow.tasks.rows.keys import Keys, Words
from bucketflow.tasks.rows.layers import Layer, Rows, Space, next_rows

#: Live variables, their states, variables of a table, tables, and which variable leaves.
CASES = [
    (30, 2, 8, 2, None),
    (30, 2, 14, 2, 0),
    (30, 2, 14, 2, 15),
    (30, 2, 20, 2, 0),
    (8, 40, 3, 3, 2),
    (80, 2, 14, 2, 9),
]


@dataclass(frozen=True)
class Table:
    """A table of a layer."""

    scope: tuple[int, ...]
    costs: Any


def random_layer(rng: np.random.Generator, live: int, d: int, size: int, tables: int, leaves: int | None) -> Layer:
    """Return a layer with so many tables to add, and one less to subtract."""

    def table(last: tuple[int, ...]) -> Table:
        scope = (*sorted(rng.choice(live, size - 1, replace=False).tolist()), *last)
        return Table(scope, rng.integers(0, 1000, d ** len(scope)).astype(np.float64))

    after = tuple(v for v in range(live + 1) if v != leaves)
    added, held = [table((live,)) for _ in range(tables)], [table(()) for _ in range(tables - 1)]
    return Layer(Keys(tuple(range(live)), (d,) * live), Keys(after, (d,) * len(after)), live, d, added, held)


def measure(n: int, live: int, d: int, size: int, tables: int, leaves: int | None) -> None:
    """Print one line."""
    rng = np.random.default_rng(0)
    layer = random_layer(rng, live, d, size, tables, leaves)
    keys = layer.keys.pack(np.unique(rng.integers(0, d, (live, n)), axis=1))
    rows, space = Rows(keys, rng.integers(0, 1000, len(keys)).astype(np.float64)), Space()
    upper = float(np.median(next_rows(rows, layer, math.inf, n * d, space)[0].costs))
    seconds = cpu_seconds(lambda: next_rows(rows, layer, upper, n * d, space))
    found, _, _ = next_rows(rows, layer, upper, n * d, space)
    mixed = rng.permutation(len(found))
    alone, both = (cpu_seconds(run) for run in sorts(found.keys[mixed], found.costs[mixed]))
    print(
        f"{len(keys):>9,} rows of {live} variables of {d}, {tables} tables of {d}^{size}, {leaves!s:>4} leaves: "
        f"{len(keys) * d / seconds / 1e6:5.0f} M expanded/s, {seconds / len(found) * 1e9:5.1f} ns a row out; "
        f"sorted {alone / len(found) * 1e9:5.1f} keys, {both / len(found) * 1e9:5.1f} with costs; "
        f"{seconds / alone:4.2f} and {seconds / both:4.2f} times that",
        flush=True,
    )


def sorts(keys: Words, values: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what sorts keys, and keys with their values, in NumPy."""
    if keys.shape[1] > 1:
        # the last column counts most
        return lambda: keys[np.lexsort(keys.T[::-1])], lambda: taken(np.lexsort(keys.T[::-1]), keys, values)
    word = np.ascontiguousarray(keys[:, 0])
    return lambda: np.sort(word), lambda: taken(np.argsort(word), word, values)


def taken(order: Any, *arrays: Any) -> list[Any]:
    """Return arrays in another order."""
    return [array[order] for array in arrays]


def device_keys(keys: Keys, d: int, n: int) -> Any:
    """Draw distinct random keys on the device, in ascending order."""
    import cupy as cp

    first = cp.random.default_rng(0)
    words = cp.zeros((n, keys.n_words), np.uint64)
    for word, shift, _ in keys.fields.values():
        words[:, word] |= first.integers(0, d, n).astype(np.uint64) << np.uint64(shift)
    _, places = cp.unique(words[:, 0], return_index=True)
    return cp.ascontiguousarray(words[places])


def device_seconds(what: Any) -> float:
    """Return the shortest time of several runs on the device."""
    import cupy as cp

    times = []
    for _ in range(6):
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        what()
        cp.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_device(n: int, live: int, d: int, size: int, tables: int, leaves: int | None) -> None:
    """Print one line about a GPU."""
    import cupy as cp

    rng = np.random.default_rng(0)
    layer = random_layer(rng, live, d, size, tables, leaves)
    with large_blocks():
        keys = device_keys(layer.keys, d, n)
        rows, space = Rows(keys, DEVICE.here(rng.integers(0, 1000, len(keys)).astype(np.float64))), DEVICE.space()
        upper = float(cp.median(DEVICE.next_rows(rows, layer, math.inf, n * d, space, None)[0].costs))
        seconds = device_seconds(lambda: DEVICE.next_rows(rows, layer, upper, n * d, space, None))
        cutting = device_seconds(lambda: DEVICE.next_rows(rows, layer, math.inf, len(keys), space, len(keys) // 4))
        ordering = device_seconds(lambda: order_of_groups(rows, layer))
        mixed = keys[cp.random.permutation(len(keys)), 0]
        sorting, copying = device_seconds(lambda: cp.sort(mixed)), device_seconds(mixed.copy)
    print(
        f"{len(keys):>11,} rows of {live} variables of {d}, {tables} tables of {d}^{size}, {leaves!s:>4} leaves: "
        f"{len(keys) * d / seconds / 1e9:5.2f} G expanded/s, cut {len(keys) * d / cutting / 1e9:5.2f}; "
        f"a row {seconds / len(keys) * 1e9:6.3f} ns, its order {ordering / len(keys) * 1e9:6.3f}; "
        f"cupy.sort {sorting / len(keys) * 1e9:5.3f}, copy {copying / len(keys) * 1e9:5.3f} ns a key",
        flush=True,
    )


def main() -> None:
    """Measure all cases with few rows, which stay in the caches, and with many."""
    if "--gpu" in sys.argv:
        for n in (1_000_000, 10_000_000, 100_000_000):
            for case in CASES:
                measure_device(n if case[1] == 2 else n // 10, *case)
        return
    for n in (10_000,) if "--quick" in sys.argv else (10_000, 1_000_000):
        for case in CASES:
            measure(n, *case)


if __name__ == "__main__":
    main()
