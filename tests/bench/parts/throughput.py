"""Time of plans out of core beside the same plans in memory, and beside the disk itself; parts of ``outofcore.py``."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import google_crc32c
from parts.instances import clique_model, grid_model
from parts.measure import peak_bytes, reset_peak, run_child
from rich.table import Table

import bucketflow
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.errors import format_bytes
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.runs import dense_boxes as outofcore
from bucketflow.storage import ledger
from bucketflow.storage.spec import Receipt
from bucketflow.tasks.boxes import stores

_PIECE = 1 << 24
_GIB = 1 << 30
_ROUNDS = 3
_DROP_SECONDS = 0.02


@dataclass(frozen=True)
class Disk:
    """Rates of a folder's disk, bytes per second, and the CPU seconds that a GiB written and read takes."""

    written: float
    read: float
    cached: float
    cpu_per_gib: float
    checksums: float


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
    data = bytes(piece)
    checksums = len(data) / _seconds(lambda: _ignore(google_crc32c.extend(0, data)))
    return Disk(size / written, size / read, size / cached, moved / (2 * size / _GIB), checksums)


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
    packed: bool = True
    """Whether tables may be compressed."""

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
    stored_bytes: int
    stages: Mapping[str, tuple[int, int, float]]
    """By kind of stage: boxes, bytes moved, seconds."""


def solved(case: Case, folder: Path | None, waiting: bool) -> Timed:
    """Answer a case in memory, or in a folder, after a small model has loaded everything."""
    warm_up(case, folder)
    if folder is None or not waiting:
        return timed(case, folder)
    outofcore.default_memory_bytes = lambda: 0
    if not case.packed:
        stores.paying = lambda values, rate: ""
    start = time.perf_counter()
    with without_page_cache(folder):
        found = timed(case, folder)
        planning = time.perf_counter() - start - found.seconds
    return replace(found, seconds=time.perf_counter() - start - planning)


def timed(case: Case, folder: Path | None) -> Timed:
    """Answer a case, and look at what it left."""
    budget: dict[str, Any] = {} if folder is None else {"fit": "spill", "memory": case.memory}
    planning = time.process_time()
    bucketflow.plan(case.model, case.query, **case.options, **budget)
    planning = time.process_time() - planning
    before = reset_peak()
    cpu = time.process_time()
    result = bucketflow.solve(case.model, case.query, **case.options, **budget, workdir=folder)
    cpu = time.process_time() - cpu - planning
    stages, stored = {}, 0
    if folder is not None and result.plan is not None:
        stages = stage_times(result.plan, folder)
        stored = sum(receipt.nbytes for receipt in ledger.load(folder / "tables").values())
    answer = result.log10 if case.query == "partition" else result.value
    grown = peak_bytes() - before
    return Timed(result.seconds["run"] + result.seconds.get("decode", 0.0), cpu, float(answer), grown, stored, stages)


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
    done: dict[str, dict[Any, list[Receipt]]] = defaultdict(lambda: defaultdict(list))
    stages = {f"msg_{s.head}" if s.head >= 0 else "result": s for s in plan.spill.stages}
    for (name, chunk), receipt in ledger.load(folder / "tables").items():
        stage = stages[name]
        wide = [v for v in plan.layouts[stage.head] if plan.spill.dims[v] > 1] if stage.head >= 0 else []
        key = tuple(c for v, c in zip(wide, chunk, strict=False) if v in stage.boxed) if wide else chunk
        done[name][key].append(receipt)
    found: dict[str, tuple[int, int, float]] = {}
    for name, stage in stages.items():
        kind = ("read, " if stage.inputs else "") + ("write" if stage.head >= 0 else "total")
        seconds = sum(max(r.seconds for r in receipts) for receipts in done[name].values())
        moved = sum(r.nbytes for receipts in done[name].values() for r in receipts)
        share = math.prod(plan.spill.dims[v] for v in stage.boxed)
        for i in stage.inputs:
            inside = math.prod(plan.spill.dims[v] for v in plan.layouts[i] if v not in stage.boxed)
            moved += share * inside * plan.spill.itemsize
        n, b, s = found.get(kind, (0, 0, 0.0))
        found[kind] = (n + len(done[name]), b + moved, s + seconds)
    return found


def child(case: Case, folder: Path | None, *, waiting: bool = False) -> Timed:
    """Run a case in a process of its own, ``waiting`` for the disk if asked for."""
    outcome = run_child(lambda: solved(case, folder, waiting), seconds=600, memory_bytes=1 << 35)
    if outcome.end != "done":
        raise RuntimeError(f"{case.name}: {outcome.end} {outcome.message}")
    found: Timed = outcome.value
    return found


def planned(case: Case) -> Plan:
    """Plan a case out of core."""
    plan = bucketflow.plan(case.model, case.query, fit="spill", memory=case.memory, **case.options)
    assert plan is not None
    return plan


def sized(name: str, model: bucketflow.Model, query: str, share: int = 4) -> Case:
    """Give a case a part of the memory that it needs without a disk."""
    whole = bucketflow.plan(model, query, memory=1 << 50, **Case(name, model, query, 0).options)
    assert whole is not None
    return Case(name, model, query, whole.peak_bytes // share + (1 << 20))


def cases_of(log2_cells: int) -> list[Case]:
    """Two kinds of models, two semirings; complete graphs need no table on disk, however small the budget."""
    width = max(8, log2_cells // 2 - 2)
    return [
        sized("clique, optimum", clique_model(log2_cells + 1), "optimum"),
        sized("clique, partition", clique_model(log2_cells - 1, "markov"), "partition"),
        sized("grid, optimum", grid_model(width, width, 4), "optimum"),
        sized("grid, partition", grid_model(width, width, 4, "markov"), "partition"),
    ]


def throughput(folder: Path, log2_cells: int, disk: Disk) -> list[Table]:
    """Time plans out of core and in memory, in turns, while the page cache holds the tables."""
    title = f"Out of core beside memory, tables in the page cache, best of {_ROUNDS}"
    table = Table(title=title, caption=_caption(disk), caption_justify="left")
    table.add_column("plan", no_wrap=True)
    for heading in (
        "table",
        "budget",
        "boxes",
        "moved",
        "in memory s",
        "on disk s",
        "ratio",
        "CPU s",
        "ratio",
        "CPU-s/GiB",
    ):
        table.add_column(heading, justify="right")
    stages = Table(title="By kind of stage")
    for heading in ("plan", "stage", "boxes", "moved", "s", "MB/s"):
        stages.add_column(heading, no_wrap=True)
    for k, case in enumerate(cases_of(log2_cells)):
        runs = [(child(case, None), child(case, folder / f"run{k}.{i}")) for i in range(_ROUNDS)]
        inside, outside = (min(found, key=lambda timed: timed.seconds) for found in zip(*runs, strict=True))
        inside_cpu, outside_cpu = (min(t.cpu_seconds for t in found) for found in zip(*runs, strict=True))
        plan = planned(case)
        assert plan.spill is not None
        moved = plan.spill.read_bytes + plan.spill.written_bytes
        table.add_row(
            case.name + ("" if math.isclose(inside.answer, outside.answer, rel_tol=1e-12) else " WRONG"),
            f"2^{math.log2(plan.cost.largest_table_cells):.0f}",
            format_bytes(case.memory),
            str(plan.spill.tasks),
            format_bytes(moved),
            f"{inside.seconds:.2f}",
            f"{outside.seconds:.2f}",
            f"{outside.seconds / inside.seconds:.2f}",
            f"{outside_cpu:.2f}",
            f"{outside_cpu / inside_cpu:.2f}",
            f"{(outside_cpu - inside_cpu) / (moved / _GIB):.2f}" if moved else "–",
        )
        for kind, (number, moved, seconds) in outside.stages.items():
            rate = f"{moved / seconds / 1e6:.0f}"
            stages.add_row(case.name, kind, str(number), format_bytes(moved), f"{seconds:.2f}", rate)
    return [table, stages]


@BudgetPolicy.using(stored_runs=())
def disk_bound(folder: Path, log2_cells: int, sample: int) -> list[Table]:
    """Time plans out of core whose chunks are dropped from the page cache, until all is on the disk.

    Every large table is stored, or computing would take longer than the transfers. The disk is measured before
    and after each; the better rates count.
    """
    table = Table(title="Out of core, waiting for the disk")
    table.add_column("plan", no_wrap=True)
    for heading in ("stored as", "moved", "stored", "s", "CPU s", "disk MB/s", "disk alone s", "of the disk's rate"):
        table.add_column(heading, justify="right")
    width = max(8, log2_cells // 2 - 2)
    cases = (
        sized("grid, optimum", grid_model(width, width, 4), "optimum", 32),
        sized("grid, partition", grid_model(width, width, 4, "markov"), "partition", 2),
    )
    for k, case in enumerate(cases):
        for packed in (False, True):
            run = folder / f"bound{k}.{packed}"
            before = measured_disk(folder, sample)
            found = child(replace(case, packed=packed), run, waiting=True)
            plan = planned(case)
            assert plan.spill is not None
            share = found.stored_bytes / plan.spill.written_bytes if packed else 1.0
            after = measured_disk(folder, sample)
            written, read = max(before.written, after.written), max(before.read, after.read)
            alone = plan.spill.written_bytes / written + plan.spill.read_bytes / read
            table.add_row(
                case.name,
                "chosen" if packed else "raw",
                format_bytes(plan.spill.read_bytes + plan.spill.written_bytes),
                f"{share:.0%}",
                f"{found.seconds:.2f}",
                f"{found.cpu_seconds:.2f}",
                f"{written / 1e6:.0f} / {read / 1e6:.0f}",
                f"{alone:.2f}",
                f"{alone / found.seconds:.0%}",
            )
    return [table]


@contextmanager
def without_page_cache(folder: Path) -> Iterator[None]:
    """Drop the chunks below a folder from the page cache over and over; at the end wait for what is not on disk yet."""
    ended = threading.Event()

    def drop() -> None:
        while not ended.wait(_DROP_SECONDS):
            for path in folder.glob("tables/msg_*/c.*"):
                with suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    dropping = threading.Thread(target=drop)
    dropping.start()
    try:
        yield
    finally:
        ended.set()
        dropping.join()
        os.sync()


def _caption(disk: Disk) -> str:
    return (
        f"disk: written and forced {disk.written / 1e6:.0f} MB/s, read uncached {disk.read / 1e6:.0f}, cached "
        f"{disk.cached / 1e6:.0f}, raw {disk.cpu_per_gib:.2f} CPU-s/GiB; checksums {disk.checksums / 1e6:.0f} MB/s. "
        "CPU-s/GiB: beyond the run in memory. Disk alone: time of the planned bytes at these rates"
    )


def _ignore(_: object) -> None:
    return
