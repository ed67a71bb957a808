"""Tables larger than memory: ``python tests/bench/outofcore.py [throughput] [bound] [growth] [faults] [rows]``.

throughput: time relative to the same plan in memory, with the page cache holding the tables, and the CPU time that
transfers cost, beside raw writing and reading. bound: planned bytes per second without a page cache, beside the rate
of the disk itself measured in the same folder. growth: time against the size of the largest table at a fixed
budget. faults: what a run survives. rows: what one by rows survives, and marginals. All these by default. gpu: what
one by rows through a GPU survives.

The models are complete graphs of binary costs: their buckets are one large table and ever smaller ones, so work
and bytes are proportional to the largest table; grids with four states have many large tables.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from dask.utils import parse_bytes
from parts.faults import run_faults
from parts.instances import clique_model
from parts.throughput import Case, child, disk_bound, measured_disk, planned, throughput
from rich.console import Console
from rich.table import Table

from bucketflow.pipeline.errors import format_bytes


def growth(folder: Path, log2_cells: int, memory: int) -> list[Table]:
    """Time complete graphs of growing size."""
    table = Table(title=f"Time against the largest table, optimum, {format_bytes(memory)} of memory")
    for heading in ("cells", "bytes moved", "boxes", "s", "ns/cell", "grown by"):
        table.add_column(heading, justify="right")
    table.add_column("log scale", no_wrap=True)
    points = []
    for exponent in range(24, log2_cells + 1):
        case = Case(f"2^{exponent}", clique_model(exponent + 1), "optimum", memory, largest=25)
        found, plan = child(case, folder / f"growth{exponent}"), planned(case)
        assert plan.spill is not None
        _discard(folder / f"growth{exponent}")
        points.append((exponent, found.seconds))
        bar = "█" * max(1, round(4 * (math.log2(found.seconds) + 4)))
        moved = format_bytes(plan.spill.read_bytes + plan.spill.written_bytes)
        rate = f"{found.seconds / 2**exponent * 1e9:.2f}"
        table.add_row(
            f"2^{exponent}",
            moved,
            str(plan.spill.tasks),
            f"{found.seconds:.2f}",
            rate,
            format_bytes(found.grown_bytes),
            bar,
        )
        print(f"\r2^{exponent}: {found.seconds:.2f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    x, y = np.array([p[0] for p in points]), np.log2([p[1] for p in points])
    table.caption = f"time grows as size^{np.polyfit(x, y, 1)[0]:.3f}; above 2^26 as size^{_slope(x, y, 26):.3f}"
    return [table]


def _slope(x: Any, y: Any, start: int) -> float:
    chosen = x >= start
    return float(np.polyfit(x[chosen], y[chosen], 1)[0]) if chosen.sum() > 1 else math.nan


def _discard(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["throughput", "bound", "growth", "faults", "rows"], metavar="PART")
    parser.add_argument("--cells", type=int, default=29, metavar="LOG2", help="largest table of the growth")
    parser.add_argument("--table", type=int, default=26, metavar="LOG2", help="largest table of the throughput")
    parser.add_argument(
        "--memory", type=parse_bytes, default=parse_bytes("512MB"), metavar="SIZE", help="of the growth"
    )
    parser.add_argument(
        "--sample", type=parse_bytes, default=parse_bytes("1GiB"), metavar="SIZE", help="disk's test file"
    )
    parser.add_argument("--faults", type=int, default=50, metavar="N", help="trials")
    parser.add_argument(
        "--first", type=int, default=0, metavar="N", help="number of the first trial: others, other moments"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="kinds of faults at the same time")
    parser.add_argument("--folder", metavar="DIR", help="where tables go")
    return parser.parse_args()


def main() -> None:
    """Run what was asked for and print its tables."""
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 170)
    with TemporaryDirectory(prefix="bucketflow-", dir=options.folder) as place:
        folder = Path(place)
        if "throughput" in options.parts:
            console.print(*throughput(folder, options.table, measured_disk(folder, options.sample)))
        if "bound" in options.parts:
            console.print(*disk_bound(folder, options.table, options.sample))
        if "growth" in options.parts:
            console.print(*growth(folder, options.cells, options.memory))
    cases = {"faults": ["dense"], "rows": ["rows", "marginals by rows"], "gpu": ["rows on a GPU"]}
    for part, kinds in cases.items():
        for kind in kinds if part in options.parts else ():
            console.print(run_faults(options.faults, kind, options.first, options.jobs))


if __name__ == "__main__":
    main()
