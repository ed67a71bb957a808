"""Tables larger than memory: ``python tests/bench/outofcore.py [throughput] [growth] [faults]``.

throughput: bytes planned to and from disk per second, beside the rate of the disk itself measured in the same
folder; time relative to the same plan in memory, with the page cache holding the tables; CPU time that the
disk costs, beside raw writing and reading. growth: time against the size of the largest table at a fixed budget.
faults: what a run survives. All three by default.

The models are complete graphs of binary costs: their buckets are one large table and ever smaller ones, so work
and bytes are proportional to the largest table; grids with four states have many large tables.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import google_crc32c
import numpy as np
from dask.utils import parse_bytes
from faults import run_faults
from instances import clique_model, grid_model
from measure import peak_bytes, reset_peak, run_child
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.pipeline.plan import Plan, format_bytes
from bucketflow.storage import ledger
from bucketflow.storage.spec import Receipt

_PIECE = 1 << 24
_GIB = 1 << 30


@dataclass(frozen=True)
class Disk:
    """Rates of a folder's disk, bytes per second, and the CPU seconds that a GiB written and read takes."""

    written: float
    read: float
    cached: float
    cpu_per_gib: float

    def seconds(self, plan: Plan) -> float:
        """Time of the plan's transfers at these rates."""
        assert plan.spill is not None
        return plan.spill.written_bytes / self.written + plan.spill.read_bytes / self.read


def measured_disk(folder: Path, size: int) -> Disk:
    """Write a file and force it to disk, drop it from the page cache, read it, and read it again."""
    piece = memoryview(bytearray(os.urandom(_PIECE)))
    cpu = time.process_time()
    with open(folder / "sample", "w+b", buffering=0) as file:
        written = _seconds(lambda: _write(file, piece, size))
        moved = time.process_time() - cpu
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        read = _seconds(lambda: _read(file, piece))
        cpu = time.process_time()
        cached = _seconds(lambda: _read(file, piece))
        moved += time.process_time() - cpu
    (folder / "sample").unlink()
    return Disk(size / written, size / read, size / cached, moved / (2 * size / _GIB))


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _write(file: Any, piece: memoryview, size: int) -> None:
    for _ in range(size // len(piece)):
        file.write(piece)
    os.fsync(file.fileno())


def _read(file: Any, piece: memoryview) -> None:
    file.seek(0)
    while file.readinto(piece):
        pass


@dataclass(frozen=True)
class Case:
    """A model and how it is asked."""

    name: str
    model: bucketflow.Model
    query: str
    memory: int
    largest: int | None = None
    """Variables of the complete graph that compiles the kernels; None for the model itself."""

    @property
    def options(self) -> dict[str, Any]:
        """Options that give the same tree in every run."""
        return {"tree": "bucket", "order": self.model.names, "threads": 1}


@dataclass(frozen=True)
class Timed:
    """What a child measured."""

    seconds: float
    cpu_seconds: float
    answer: float
    grown_bytes: int
    stages: Mapping[str, tuple[int, int, float]]
    """By kind of stage: boxes, bytes moved, seconds."""


def solved(case: Case, folder: Path | None) -> Timed:
    """Answer a case in memory, or in a folder, after a small model has loaded everything."""
    warm_up(case, folder)
    budget: dict[str, Any] = {} if folder is None else {"fit": "spill", "memory": case.memory}
    planning = time.process_time()
    bucketflow.plan(case.model, case.query, **case.options, **budget)
    planning = time.process_time() - planning
    before = reset_peak()
    cpu = time.process_time()
    result = bucketflow.solve(case.model, case.query, **case.options, **budget, workdir=folder)
    cpu = time.process_time() - cpu - planning
    stages = stage_times(result.plan, folder) if folder is not None and result.plan is not None else {}
    answer = result.log10 if case.query == "partition" else result.value
    grown = peak_bytes() - before
    return Timed(result.seconds["run"] + result.seconds["decode"], cpu, float(answer), grown, stages)


def warm_up(case: Case, folder: Path | None) -> None:
    """Compile the kernels that the case needs: by itself, unless it is a large complete graph."""
    small = case if case.largest is None else Case(case.name, clique_model(case.largest), case.query, case.memory)
    if folder is None:
        bucketflow.solve(small.model, small.query, **small.options)
        return
    with TemporaryDirectory(dir=folder.parent) as place:
        more: dict[str, Any] = {"fit": "spill", "memory": small.memory, "workdir": Path(place) / "run"}
        bucketflow.solve(small.model, small.query, **small.options, **more)


def stage_times(plan: Plan, folder: Path) -> dict[str, tuple[int, int, float]]:
    """Add up the boxes of each kind of stage from the ledger."""
    assert plan.spill is not None
    boxes: dict[str, dict[Any, list[Receipt]]] = defaultdict(lambda: defaultdict(list))
    stages = {f"msg_{s.head}" if s.head >= 0 else "result": s for s in plan.spill.stages}
    for (name, chunk), receipt in ledger.load(folder / "tables").items():
        stage = stages[name]
        wide = [v for v in plan.layouts[stage.head] if plan.spill.dims[v] > 1] if stage.head >= 0 else []
        key = tuple(c for v, c in zip(wide, chunk, strict=False) if v in stage.boxed) if wide else chunk
        boxes[name][key].append(receipt)
    found: dict[str, tuple[int, int, float]] = {}
    for name, stage in stages.items():
        kind = ("read, " if stage.inputs else "") + ("write" if stage.head >= 0 else "total")
        seconds = sum(max(r.seconds for r in receipts) for receipts in boxes[name].values())
        moved = sum(r.nbytes for receipts in boxes[name].values() for r in receipts)
        share = math.prod(plan.spill.dims[v] for v in stage.boxed)
        for i in stage.inputs:
            inside = math.prod(plan.spill.dims[v] for v in plan.layouts[i] if v not in stage.boxed)
            moved += share * inside * plan.spill.itemsize
        n, b, s = found.get(kind, (0, 0, 0.0))
        found[kind] = (n + len(boxes[name]), b + moved, s + seconds)
    return found


def child(case: Case, folder: Path | None) -> Timed:
    """Run a case in a process of its own."""
    outcome = run_child(lambda: solved(case, folder), seconds=600, memory_bytes=1 << 35)
    if outcome.end != "done":
        raise RuntimeError(f"{case.name}: {outcome.end} {outcome.message}")
    found: Timed = outcome.value
    return found


def planned(case: Case) -> Plan:
    """Plan a case out of core."""
    plan = bucketflow.plan(case.model, case.query, fit="spill", memory=case.memory, **case.options)
    assert plan is not None
    return plan


def sized(name: str, model: bucketflow.Model, query: str) -> Case:
    """Give a case a quarter of the memory that it needs without a disk."""
    whole = bucketflow.plan(model, query, memory=1 << 50, **Case(name, model, query, 0).options)
    assert whole is not None
    return Case(name, model, query, whole.peak_bytes // 4 + (1 << 20))


def throughput(folder: Path, log2_cells: int, disk: Disk) -> list[Table]:
    """Time plans out of core and in memory."""
    width = max(8, log2_cells // 2 - 2)
    cases = [
        sized("clique, optimum", clique_model(log2_cells + 1), "optimum"),
        sized("clique, partition", clique_model(log2_cells - 1, "markov"), "partition"),
        sized("grid, optimum", grid_model(width, width, 4), "optimum"),
        sized("grid, partition", grid_model(width, width, 4, "markov"), "partition"),
    ]
    table = Table(title="Out of core beside memory", caption=_caption(disk), caption_justify="left")
    table.add_column("plan", no_wrap=True)
    heads = (
        "table",
        "boxes",
        "moved",
        "in memory s",
        "on disk s",
        "ratio",
        "disk alone s",
        "MB/s",
        "of disk",
        "CPU-s/GiB",
    )
    stages = Table(title="By kind of stage")
    for heading in ("plan", "stage", "boxes", "moved", "s", "MB/s"):
        stages.add_column(heading, no_wrap=True)
    for heading in heads:
        table.add_column(heading, justify="right")
    for k, case in enumerate(cases):
        inside, outside = child(case, None), child(case, folder / f"run{k}")
        table.add_row(case.name, *_cells(case, inside, outside, disk))
        for kind, (boxes, moved, seconds) in outside.stages.items():
            rate = f"{moved / seconds / 1e6:.0f}"
            stages.add_row(case.name, kind, str(boxes), format_bytes(moved), f"{seconds:.2f}", rate)
    return [table, stages]


def _cells(case: Case, inside: Timed, outside: Timed, disk: Disk) -> list[str]:
    plan = planned(case)
    assert plan.spill is not None
    moved = plan.spill.read_bytes + plan.spill.written_bytes
    rate, alone = moved / outside.seconds, disk.seconds(plan)
    wrong = "" if math.isclose(inside.answer, outside.answer, rel_tol=1e-12) else " WRONG"
    return [
        f"2^{math.log2(plan.cost.largest_table_cells):.0f}{wrong}",
        str(plan.spill.tasks),
        format_bytes(moved),
        f"{inside.seconds:.2f}",
        f"{outside.seconds:.2f}",
        f"{outside.seconds / inside.seconds:.2f}",
        f"{alone:.2f}",
        f"{rate / 1e6:.0f}",
        f"{alone / outside.seconds:.0%}",
        f"{(outside.cpu_seconds - inside.cpu_seconds) / (moved / _GIB):.2f}" if moved else "–",
    ]


def _caption(disk: Disk) -> str:
    sample = memoryview(bytearray(_PIECE))
    crc = _PIECE / _seconds(lambda: _ignore(google_crc32c.extend(0, bytes(sample))))
    return (
        f"disk: written and forced {disk.written / 1e6:.0f} MB/s, read uncached {disk.read / 1e6:.0f}, cached "
        f"{disk.cached / 1e6:.0f}, raw {disk.cpu_per_gib:.2f} CPU-s/GiB; checksums {crc / 1e6:.0f} MB/s. "
        "CPU-s/GiB: beyond the run in memory. of disk: time of the transfers alone over all"
    )


def _ignore(_: object) -> None:
    return


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
    parser.add_argument("parts", nargs="*", default=["throughput", "growth", "faults"], metavar="PART")
    parser.add_argument("--cells", type=int, default=29, metavar="LOG2", help="largest table of the growth")
    parser.add_argument("--table", type=int, default=26, metavar="LOG2", help="largest table of the throughput")
    parser.add_argument(
        "--memory", type=parse_bytes, default=parse_bytes("512MB"), metavar="SIZE", help="of the growth"
    )
    parser.add_argument(
        "--sample", type=parse_bytes, default=parse_bytes("1GiB"), metavar="SIZE", help="disk's test file"
    )
    parser.add_argument("--faults", type=int, default=50, metavar="N", help="trials")
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
        if "growth" in options.parts:
            console.print(*growth(folder, options.cells, options.memory))
    if "faults" in options.parts:
        console.print(run_faults(options.faults))


if __name__ == "__main__":
    main()
