"""Tables larger than a device beside the link and the disk: ``python tests/bench/gpu_spill.py [host] [disk]``.

The model is a complete graph of binary costs: every stage reads one table and writes one of half the size. ``host``
keeps the tables in page-locked memory, ``disk`` in chunk files. The least possible time of a stage is that of the
longer of its transfers at the rate that the link, or the disk, has in the same run.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cupy as cp
import numpy as np
from instances import clique_model

from bucketflow.pipeline import api, device_spill
from bucketflow.pipeline.device import SLOTS
from bucketflow.pipeline.memory import table_bytes
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plan import sliced_dims
from bucketflow.pipeline.stages import Spill, Stage
from bucketflow.tasks.device_memory import Pinned

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


def disk_rates(folder: Path, files: int = 32, nbytes: int = 1 << 27) -> tuple[float, float]:
    """Bytes per second of writing files of a chunk's size with several threads, and of reading them."""
    piece = np.random.default_rng(0).integers(0, 255, nbytes, np.uint8)

    def write(number: int) -> None:
        with open(folder / f"sample{number}", "wb", buffering=0) as file:
            data = memoryview(piece)
            while data:
                data = data[file.write(data) :]

    def read(number: int) -> None:
        target = np.empty(nbytes, np.uint8)
        with open(folder / f"sample{number}", "rb", buffering=0) as file:
            done = 0
            while done < nbytes:
                done += file.readinto(memoryview(target)[done:])

    with ThreadPoolExecutor(SLOTS) as threads:
        os.sync()
        written = timed(lambda: (list(threads.map(write, range(files))), os.sync()))
        drop_cache(folder)
        read_back = timed(lambda: list(threads.map(read, range(files))))
    for path in folder.glob("sample*"):
        path.unlink()
    return files * nbytes / written, files * nbytes / read_back


def drop_cache(folder: Path) -> None:
    """Make the next reads of all files below a folder come from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def moved(spill: Spill, scopes: Any, stage: Stage) -> tuple[int, int]:
    """Bytes that all boxes of a stage read and write."""
    inside = sliced_dims(spill.dims, stage.boxed)
    read = spill.boxes(stage) * sum(table_bytes(inside, scopes[i], spill.itemsize) for i in stage.inputs)
    return read, table_bytes(spill.dims, scopes[stage.head], spill.itemsize) if stage.head >= 0 else 0


class Clock:
    """When the last box of each stage was done; with a folder, what is there is on disk by then and not cached."""

    def __init__(self, spill: Spill, folder: Path | None) -> None:
        self.folder = folder
        self.left = {index: spill.boxes(stage) for index, stage in enumerate(spill.stages)}
        self.marks = [time.perf_counter()]

    def __call__(self, index: int) -> None:
        """Take note of a finished box."""
        self.left[index] -= 1
        if self.left[index]:
            return
        if self.folder is not None:
            os.sync()
            drop_cache(self.folder)
        self.marks.append(time.perf_counter())


def run(
    variables: int, options: dict[str, Any], folder: Path | None, least: tuple[float, float], *, shown: bool = True
) -> None:
    """Answer once and print its stages; ``least`` are bytes per second of reading and of writing."""
    model = clique_model(variables)
    prepared = api.prepare(model, "optimum", None, Options(tree="bucket", order=model.names, fit="spill", **options))
    plan = prepared.plan
    assert plan is not None
    assert plan.spill is not None
    clock = Clock(plan.spill, folder)
    if folder is not None:
        folder.mkdir()
    original = device_spill.OnDevice.report
    device_spill.OnDevice.report = lambda _, task: clock(task[0])
    try:
        clock.marks[0] = start = time.perf_counter()
        result = api._answered(prepared, Options(**options), None, folder, [])
        whole = time.perf_counter() - start
    finally:
        device_spill.OnDevice.report = original
    if not shown:
        return
    ideal_sum = time_sum = 0.0
    for stage, (begin, end) in zip(plan.spill.stages, pairwise(clock.marks), strict=True):
        read, written = moved(plan.spill, plan.tree.scopes, stage)
        transfers = (read / least[0], written / least[1])
        ideal = max(transfers) if folder is None else sum(transfers)
        ideal_sum, time_sum = ideal_sum + ideal, time_sum + end - begin
        print(
            f"   {plan.spill.boxes(stage):4d} boxes, {read / GIB:6.2f} GiB read, {written / GIB:6.2f} GiB written, "
            f"{end - begin:7.3f} s, {(read + written) / (end - begin) / 1e9:6.1f} GB/s, {ideal / (end - begin):4.0%}"
        )
    print(
        f"   all stages {time_sum:.3f} s, {ideal_sum / time_sum:.0%} of what the transfers allow; run and decode "
        f"{whole:.3f} s, value {result.value}, device budget {options['gpu_memory']}, planned peak "
        f"{plan.peak_bytes / 1e9:.2f} GB, pool {cp.cuda.MemoryAsyncPool().total_bytes() / 1e9:.2f} GB",
        flush=True,
    )


def main() -> None:
    """Print both kinds of runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=["host", "disk"])
    parser.add_argument("--variables", type=int, default=33)
    parser.add_argument("--disk-variables", type=int, default=33)
    parser.add_argument("--gpu-memory", default="3GB")
    parser.add_argument("--memory", default="60GB")
    chosen = parser.parse_args()
    options: dict[str, Any] = {"gpus": 1, "gpu_memory": chosen.gpu_memory, "memory": chosen.memory}
    up, down, both = link_rates()
    print(f"link: {up / 1e9:.1f} GB/s to the device, {down / 1e9:.1f} GB/s from it, {both / 1e9:.1f} GB/s together")
    if "host" in chosen.kinds:
        memory = Kept()
        device_spill.Pinned = lambda limit_bytes: memory
        for title in ("first run, which locks the pages", "again", "again"):
            print(f"host-resident, {title}:")
            run(chosen.variables, options, None, (up, down))
        print(f"   page-locked {memory.held_bytes / GIB:.1f} GiB")
    if "disk" in chosen.kinds:
        with TemporaryDirectory(prefix="bucketflow-") as name:
            read, written = disk_rates(Path(name))[::-1]
            print(f"disk: {written / 1e9:.2f} GB/s written, {read / 1e9:.2f} GB/s read")
            print("disk-resident:")
            small = {**options, "gpu_memory": "50MB"}
            run(26, small, Path(name) / "first", (read, written), shown=False)
            run(chosen.disk_variables, options, Path(name) / "run", (read, written))


if __name__ == "__main__":
    main()
