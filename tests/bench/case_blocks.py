"""Cases a second on one GPU by the cases of a launch, and what a further card costs to start here.

Run with ``python tests/bench/case_blocks.py [NAME …]``. Blocks of a batch are as large as it takes to fill a card,
and no larger, as several cards share them.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
from parts.needs import cupy, data_folder

import bucketflow
from bucketflow.cluster.gpus import visible_gpus
from bucketflow.pipeline.compiled.device_cases import constant_values
from bucketflow.tasks.gpu.messages.propagation import DeviceMessages

NETWORKS = ("alarm", "munin3", "diabetes")
NOTHING: Any = ([], np.zeros((0, 0), np.int32))
CASES = (1, 16, 32, 64, 128, 256, 512)


def program_of(name: str) -> tuple[Any, Any]:
    """Return the program of a network's batches, and its constants."""
    compiled = bucketflow.compile(bucketflow.load(data_folder() / "bn" / f"{name}.bif.gz"), gpus=1)
    device = compiled.device
    assert device is not None
    cases = device._program_for(device._targets, 2_000)
    return cases.program, constant_values(cases.program, device._leaves)


def rates(name: str, program: Any, constants: Any) -> None:
    """Print a line of a network."""
    device, common = DeviceMessages(program, constants), np.ones(program.records.finding_cells)
    figures = []
    for cases in CASES:
        device.run_cases(cases, common, NOTHING, {})
        start, repeats = time.perf_counter(), 0
        while time.perf_counter() - start < 0.2:
            device.run_cases(cases, common, NOTHING, {})
            repeats += 1
        took = (time.perf_counter() - start) / repeats
        factors = cases * program.records.factors / took
        figures.append(f"{cases}: {took * 1e3:.2f} ms, {cases / took:,.0f} cases and {factors:.2g} factors a second")
    print(f"{name:10s} {program.records.slab_cells * 8 / 1e6:.1f} MB a case, group {program.records.group}", flush=True)
    print("\n".join(f"   {figure}" for figure in figures), flush=True)


def begin(number: int, program: Any, constants: Any) -> None:
    """Print what a card needs until it has answered once, from a thread of its own."""
    cp, start = cupy(), time.perf_counter()
    with cp.cuda.Device(number):
        cp.zeros(1)
        there = time.perf_counter()
        answer = DeviceMessages(program, constants).run_cases(16, np.ones(program.records.finding_cells), NOTHING, {})
        seconds = time.perf_counter()
    print(
        f"card {number}: context {there - start:.2f} s, program and a first launch {seconds - there:.2f} s, "
        f"failed {answer[:, -1].max():.0f}",
        flush=True,
    )


def main() -> None:
    """Print a line for each network, then one for each further card."""
    cupy()
    made = {name: program_of(name) for name in sys.argv[1:] or NETWORKS}
    for name, (program, constants) in made.items():
        rates(name, program, constants)
    program, constants = next(iter(made.values()))
    further = [threading.Thread(target=begin, args=(k, program, constants)) for k in range(1, len(visible_gpus()))]
    for thread in further:
        thread.start()
    for thread in further:
        thread.join()


if __name__ == "__main__":
    main()
