"""Speed of one layer of rows beside sorting the same keys and memcpy: ``python tests/bench/rows.py [--quick]``.

Rates are per CPU-second, best of several runs. An expanded row is a row with one state of the layer's variable; half
of them reach the cut-off. One variable falls out of the key where it says so, so that equal keys meet.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from kernels import cpu_seconds

from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.rows import Layer, Rows, Space, next_rows

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
    mixed = keys[rng.permutation(len(keys)), 0]
    sorting, copying = cpu_seconds(lambda: np.sort(mixed)), cpu_seconds(mixed.copy)
    print(
        f"{len(keys):>9,} rows of {live} variables of {d}, {tables} tables of {d}^{size}, {leaves!s:>4} leaves: "
        f"{len(keys) * d / seconds / 1e6:5.0f} M expanded/s, {seconds / len(keys) * 1e9:5.1f} ns a row; "
        f"np.sort {sorting / len(keys) * 1e9:5.1f}, memcpy {copying / len(keys) * 1e9:4.1f} ns a key"
    )


def main() -> None:
    """Measure all cases with few rows, which stay in the caches, and with many."""
    for n in (10_000,) if "--quick" in sys.argv else (10_000, 1_000_000):
        for case in CASES:
            measure(n, *case)


if __name__ == "__main__":
    main()
