"""Tables larger than a device beside the link and the disk: ``python tests/bench/gpu_spill.py [host] [disk]``.

The model is a complete graph of binary costs: every stage reads one table and writes one of half the size. All large
tables are stored, which the planner would not do for such a model. ``host`` keeps them in page-locked memory, ``disk``
in chunk files that are forced to disk and out of the page cache. The least possible time is what the transfers take at
the rates that the link has in the same run: the longer of both ways, or both at what the link moves in both ways at
once, which may be little more than one way alone; or of both one after the other at the disk's rates.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from parts.instances import clique_model
from parts.needs import cupy

from bucketflow.pipeline.answering.prepared import prepare
from bucketflow.pipeline.answering.question import Question
from bucketflow.pipeline.answering.running import answered
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.budget.device_fit import SLOTS
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.problem import sliced_dims
from bucketflow.pipeline.plans.stages import Stage
from bucketflow.pipeline.results.result import Result
from bucketflow.pipeline.runs import dense_boxes as box_decoding
from bucketflow.pipeline.runs.dense_boxes import ends, swept_roots
from bucketflow.pipeline.trees.memory import table_bytes
from bucketflow.storage.chunks import write_chunk
from bucketflow.storage.spec import TableSpec
from bucketflow.tasks.boxes import device_stores
from bucketflow.tasks.gpu import memory as gpu_memory
from bucketflow.tasks.gpu.memory import Pinned

cp = cupy()

GIB = 1 << 30


class Kept(Pinned):
    """Page-locked memory that later runs use again."""

    def release(self) -> None:
        """Keep all."""


def timed(work: Callable[[], object]) -> float:
    """Seconds of some work on the host."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def link_rates(nbytes: int = GIB) -> tuple[float, float, float]:
    """Bytes per second to the device, from it, and in both directions together."""
    there = [cp.empty(nbytes, np.uint8) for _ in range(2)]
    here = [cp.cuda.PinnedMemory(nbytes) for _ in range(2)]
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]

    def copy(kinds: tuple[int, ...]) -> None:
        for _ in range(4):
            for kind in kinds:
                ends = (there[kind - 1].data.ptr, here[kind - 1].ptr)
                target, source = ends if kind == 1 else ends[::-1]
                cp.cuda.runtime.memcpyAsync(target, source, nbytes, kind, streams[kind - 1].ptr)
        cp.cuda.Device().synchronize()

    copy((1, 2))
    up, down, both = (4 * nbytes / timed(lambda kinds=kinds: copy(kinds)) for kinds in ((1,), (2,), (1, 2)))
    return up, down, 2 * both


def disk_rates(folder: Path, files: int = 96, nbytes: int = 1 << 26) -> tuple[float, float]:
    """Bytes per second of writing files of a chunk's size with several threads, and of reading them."""
    piece = np.random.default_rng(0).integers(0, 255, nbytes, np.uint8)

    def write(number: int) -> None:
        with open(folder / f"sample{number}", "wb", buffering=0) as file:
            data = memoryview(piece)
            while data:
                data = data[file.write(data) :]
        force(folder / f"sample{number}")

    def read(number: int) -> None:
        target = np.empty(nbytes, np.uint8)
        with open(folder / f"sample{number}", "rb", buffering=0) as file:
            done = 0
            while done < nbytes:
                done += file.readinto(memoryview(target)[done:])

    with ThreadPoolExecutor(SLOTS) as threads:
        written = timed(lambda: list(threads.map(write, range(files))))
        read_back = timed(lambda: list(threads.map(read, range(files))))
    for path in folder.glob("sample*"):
        path.unlink()
    return files * nbytes / written, files * nbytes / read_back


def force(path: Path) -> None:
    """Force a file to disk and out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def forced_chunk(folder: Path, spec: TableSpec, chunk: tuple[int, ...], values: Any) -> tuple[int, int]:
    """Write a chunk so that whoever reads it has to wait for the disk."""
    found = write_chunk(folder, spec, chunk, values)
    force(folder / spec.name / spec.file_name(chunk))
    return found


class Sweep:
    """Runs sweeps stage by stage or in their own order, and takes the time without planning and decoding."""

    by_stage = True
    seconds: list[float]

    def __init__(self) -> None:
        box_decoding.swept_roots = lambda boxes: self.stages(boxes) if self.by_stage else self.whole(boxes)

    def whole(self, boxes: Any) -> Any:
        """Run all."""
        start = time.perf_counter()
        found = swept_roots(boxes)
        self.seconds = [time.perf_counter() - start]
        return found

    def stages(self, boxes: Any) -> Any:
        """Run one stage after the other; each waits for all boxes of the one before."""
        boxes.resume()
        boxes.demanded()
        self.seconds = []
        for index, stage in enumerate(boxes.spill.stages):
            if stage.head >= 0:
                boxes.store.create(boxes.specs[stage.head])
            start = time.perf_counter()
            lost, larger = boxes.attempt({(index, box): set() for box in range(boxes.spill.boxes(stage))})
            assert not lost
            assert not larger
            self.seconds.append(time.perf_counter() - start)
        return [roots for _, roots in ends(boxes)]


def moved(plan: Plan, stage: Stage) -> tuple[int, int]:
    """Bytes that all boxes of a stage read and write."""
    spilled = plan.spill
    assert spilled is not None
    inside = sliced_dims(spilled.dims, stage.boxed)
    read = sum(table_bytes(inside, plan.tree.scopes[i], plan.itemsize) for i in stage.inputs)
    written = table_bytes(spilled.dims, plan.tree.scopes[stage.head], plan.itemsize) if stage.head >= 0 else 0
    return spilled.boxes(stage) * read, written


def run(
    sweep: Sweep, variables: int, options: dict[str, Any], folder: Path | None, least: Callable[[int, int], float]
) -> None:
    """Answer once and print what was moved; ``least`` says how long bytes take at least to be read and written."""
    model = clique_model(variables)
    asked = Options(tree="bucket", order=model.names, fit="spill", **options)
    prepared = prepare(Question(model, "optimum"), Resources(asked))
    plan = prepared.plan
    assert plan is not None
    spilled = plan.spill
    assert spilled is not None
    if folder is not None:
        folder.mkdir()
    start = time.perf_counter()
    result = answered(prepared, None, folder, [])
    assert isinstance(result, Result)
    whole = time.perf_counter() - start
    if sweep.by_stage:
        rows = [(spilled.boxes(s), *moved(plan, s)) for s in spilled.stages]
    else:
        rows = [(spilled.tasks, spilled.read_bytes, spilled.written_bytes)]
    for (boxes, read, written), seconds in zip(rows, sweep.seconds, strict=True):
        print(
            f"   {boxes:4d} boxes, {read / GIB:6.2f} GiB read, {written / GIB:6.2f} GiB written, {seconds:7.3f} s, "
            f"{(read + written) / seconds / 1e9:6.1f} GB/s, "
            f"{least(read, written) / seconds:4.0%} of what the transfers allow"
        )
    print(
        f"   with decoding {whole:.3f} s, value {result.value}, device budget {options['gpu_memory']}, planned peak "
        f"{plan.peak_bytes / 1e9:.2f} GB, held {cp.cuda.MemoryAsyncPool().total_bytes() / 1e9:.2f} GB",
        flush=True,
    )


@BudgetPolicy.using(stored_runs=())
def main() -> None:
    """Print both kinds of runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=["host", "disk"])
    parser.add_argument("--variables", type=int, default=34)
    parser.add_argument("--disk-variables", type=int, default=33)
    parser.add_argument("--gpu-memory", default="12GB")
    parser.add_argument("--memory", default="60GB")
    chosen = parser.parse_args()
    options: dict[str, Any] = {"gpus": 1, "gpu_memory": chosen.gpu_memory, "memory": chosen.memory}
    sweep = Sweep()
    device_stores.write_chunk = forced_chunk
    up, down, both = link_rates()

    def through_link(read: int, written: int) -> float:
        return max(read / up, written / down, (read + written) / both)

    print(f"link: {up / 1e9:.1f} GB/s to the device, {down / 1e9:.1f} GB/s from it, {both / 1e9:.1f} GB/s together")
    if "host" in chosen.kinds:
        memory = Kept()
        gpu_memory.Pinned = lambda limit_bytes: memory
        runs = ((True, "first run, which locks the pages"), (True, "again"), (False, "in its own order"))
        for sweep.by_stage, title in runs:
            print(f"host-resident, {title}:")
            run(sweep, chosen.variables, options, None, through_link)
        print(f"   page-locked {memory.held_bytes / GIB:.1f} GiB")
    if "disk" in chosen.kinds:
        with TemporaryDirectory(prefix="bucketflow-") as name:
            to_disk, from_disk = disk_rates(Path(name))
            print(f"disk: {to_disk / 1e9:.2f} GB/s written, {from_disk / 1e9:.2f} GB/s read")

            def through_disk(read: int, written: int) -> float:
                return read / from_disk + written / to_disk

            sweep.by_stage = False
            run(sweep, 27, {**options, "gpu_memory": "100MB"}, Path(name) / "first", through_disk)
            print("disk-resident:")
            run(sweep, chosen.disk_variables, options, Path(name) / "run", through_disk)


if __name__ == "__main__":
    main()
