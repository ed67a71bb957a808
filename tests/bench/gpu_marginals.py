"""Full propagations on a GPU and on one CPU core of the same machine: ``python tests/bench/gpu_marginals.py [NAME …]``.

With ``--counts 1,2,4`` batches and slices on several GPUs instead, used by threads of this process; with ``--cluster``
by worker processes. They have done the same once before the clock starts; efficiency is the time on the first number of
GPUs times it, over the time on N times N.

A propagation starts from findings in the host's memory and ends with all beliefs there. ``device`` is the graph alone
by events of the device, ``run`` the same by the host's clock, ``answer`` with Python's part: findings by name and
marginals by name. ``CPU`` is that of a compiled model whose tables are all computed again, on one thread. The floor
is the bytes of all inputs and outputs of all steps, each counted once, over the bandwidth of a copy. A second table
compares batches of cases.

With ``--one-shot`` whole answers of ``marginals(model, gpus=1)`` instead, in a process that has answered another model.
``first`` plans, ``read again`` finds the plan of a model that was just read again, ``again`` asks the same model.
``wanted`` of the last is three times the kernels and 5 ms.

With ``--launches`` whole propagations by other lengths of items and other lanes than the rules choose: what a learnt
launch could gain at most, if it chose one launch for a whole network.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from gpu import copy_rate, seconds
from marginals import forward_sample, questions
from parts.instances import labels
from parts.needs import cupy, data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.cluster.gpus import gpu_client, visible_gpus
from bucketflow.pipeline.compiled.compiled import Compiled
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.plans import message_program
from bucketflow.pipeline.runs import device_slices
from bucketflow.tasks.gpu.messages import layout
from bucketflow.tasks.gpu.messages.propagation import DeviceMessages, MessageProgram, _Cases, _pinned
from bucketflow.tasks.gpu.messages.tiles import _MESSAGE_SMALL_CELLS, NO_GROUP, tiles_with_lanes

cp = cupy()

NETWORKS = ("water", "barley", "diabetes", "munin3", "link")
BATCHES = {"alarm": (10_000, 10_000), "hailfinder": (10_000, 10_000), "water": (10_000, 1000), "munin3": (1000, 50)}
"""Cases on the GPU, and on the CPU."""
ONE_SHOT = ("hailfinder", "water", "barley", "pigs", "diabetes", "munin3", "link", "munin")
LAUNCHES = "1 graph of 3 kernels"


def load(name: str) -> bucketflow.Model:
    """Read a network."""
    return bucketflow.load(data_folder() / "bn" / f"{name}.bif.gz")


def host_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median wall time, after a warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def moved_bytes(compiled: Compiled) -> int:
    """Bytes of the inputs and outputs of all steps."""
    assert compiled.plan is not None
    return sum(8 * (sum(s.lowered.input_cells) + s.lowered.out_cells) for s in compiled.plan.steps)


def difference(left: Any, right: Any) -> float:
    """Largest difference of two sets of posteriors."""
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


def propagation(name: str, copy: float, table: Table) -> None:
    """Add a network's lines."""
    model = load(name)
    cpu = bucketflow.compile(model, threads=1, memory="8GB")
    start = time.perf_counter()
    gpu = bucketflow.compile(model, gpus=1)
    compiling = time.perf_counter() - start
    device = gpu.device
    assert device is not None
    records = device._program.records
    for scenario in ("prior", "30% leaves"):
        _, now = questions(model, scenario)

        def on_cpu(now: Any = now) -> Any:
            cpu.reset()
            cpu.set_evidence(now)
            return cpu.marginals()

        def on_gpu(now: Any = now) -> Any:
            gpu.set_evidence(now)
            return gpu.marginals()

        expected, found = on_cpu(), on_gpu()
        gap = max(difference(found, expected), abs(found.log10_evidence - expected.log10_evidence))
        likelihoods, _ = device._likelihoods(gpu.findings)
        assert likelihoods is not None
        run = host_seconds(lambda now=likelihoods: device._device.run(now), 50)
        single = device._device._single
        assert single is not None

        def graph(single: Any = single) -> None:
            single.graph.launch(cp.cuda.get_current_stream())

        on_device, answer, host = seconds(graph, 50), host_seconds(on_gpu, 20), host_seconds(on_cpu, 5)
        floor = moved_bytes(gpu) / copy
        cells = [f"{t * 1e3:.3f}" for t in (on_device, run, answer, host)]
        ratios = [f"{host / t:.1f}×" for t in (on_device, run, answer)]
        sizes = [str(records.levels), str(len(records.items)), f"{records.factors:.2g}"]
        table.add_row(
            name, scenario, *cells, *ratios, *sizes, f"{floor * 1e3:.4f}", f"{on_device / floor:.0f}", f"{gap:.1g}"
        )
    print(
        f"{name}: compiled for the GPU in {compiling:.2f} s, {records.slab_cells * 8 / 1e6:.1f} MB a case", flush=True
    )


class Seen(DeviceMessages):
    """The last program of this process, to be timed alone."""

    last: Seen

    def __init__(self, program: MessageProgram, constants: Any) -> None:
        super().__init__(program, constants)
        Seen.last = self

    def kernel_seconds(self) -> float:
        """Return the time of both sweeps by events of the device."""
        cases = _Cases(self.program, self._fixed, 1)
        findings, answer = _pinned((self.program.records.finding_cells,)), _pinned((self.program.answer_cells,))
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            cases.launch(1, findings, answer)
            graph = stream.end_capture()
        return seconds(lambda: graph.launch(cp.cuda.get_current_stream()), 50)


def one_shot(names: list[str]) -> None:
    """Print a line for each network."""
    device_slices.DeviceMessages = Seen  # type: ignore[misc]
    bucketflow.marginals(load("alarm"), gpus=1)
    columns = ("network", "kernels", "wanted", "again", "read again", "first", "planning", "differs")
    table = Table(title="ms per answer of marginals(model, gpus=1)")
    for column in columns:
        table.add_column(column)
    for name in names or ONE_SHOT:
        model, others = load(name), [load(name) for _ in range(3)]
        start = time.perf_counter()
        found = bucketflow.marginals(model, gpus=1)
        first, planning = time.perf_counter() - start, found.seconds["plan"]
        kernels = Seen.last.kernel_seconds()
        again = host_seconds(lambda model=model: bucketflow.marginals(model, gpus=1), 30)
        read = []
        for other in others:
            start = time.perf_counter()
            found = bucketflow.marginals(other, gpus=1)
            read.append(time.perf_counter() - start)
        gap = difference(found, bucketflow.marginals(model, memory="8GB"))
        times = kernels, 3 * kernels + 5e-3, again, float(np.median(read)), first, planning
        table.add_row(name, *(f"{1e3 * t:.2f}" for t in times), f"{gap:.1g}")
        print(name, *(f"{1e3 * t:.2f}" for t in times), f"{gap:.1g}", flush=True)
    Console(width=120).print(table)


LAUNCH_SPACE: dict[str, tuple[float | None, int | None]] = {
    "rules": (None, None),
    **{f"items of {us} µs": (us * 1e-6, None) for us in (2, 4, 8, 16)},
    **{f"{lanes} lanes": (None, lanes) for lanes in (64, 128)},
    **{f"128 lanes, {us} µs": (us * 1e-6, 128) for us in (4, 8)},
    "rules again": (None, None),
}
"""Least seconds of an item and outputs side by side, as the rules choose if None."""


def launches(names: list[str]) -> None:
    """Print the device's milliseconds of a propagation for each launch, and the gains over all networks."""
    rule, tiles = layout._MESSAGE_ITEM_SECONDS, layout.message_tiles
    found: dict[str, list[float]] = {launch: [] for launch in LAUNCH_SPACE}
    for name in names or ONE_SHOT:
        expected = None
        for launch, (item_seconds, lanes) in LAUNCH_SPACE.items():
            message_program._LAID_OUT.forget()
            message_program._PROGRAMS.forget()
            layout._MESSAGE_ITEM_SECONDS = item_seconds or rule  # type: ignore[misc]
            if lanes is not None:

                def wide(axes: Any, seconds: float, group: Any = NO_GROUP, lanes: int = lanes) -> Any:
                    large = group is NO_GROUP and axes.cells * len(axes.strides) > _MESSAGE_SMALL_CELLS
                    return tiles_with_lanes(axes, seconds, lanes) if large else tiles(axes, seconds, group)

                layout.message_tiles = wide
            try:
                gpu = bucketflow.compile(load(name), gpus=1)
                posteriors = gpu.marginals()
            finally:
                layout._MESSAGE_ITEM_SECONDS, layout.message_tiles = rule, tiles  # type: ignore[misc]
            expected = expected or posteriors
            assert difference(posteriors, expected) < 1e-9
            assert gpu.device is not None
            single = gpu.device._device._single
            assert single is not None
            found[launch].append(seconds(lambda s=single: s.graph.launch(cp.cuda.get_current_stream()), 50))
            items = len(gpu.device._program.records.items)
            print(f"{name} {launch}: {1e3 * found[launch][-1]:.3f} ms, {items} items", flush=True)
    for launch, times in found.items():
        gains = np.array(found["rules"]) / times
        mean = float(np.exp(np.log(gains).mean()))
        print(
            f"{launch:20s} gain {sum(found['rules']) / sum(times):.3f} in sum, {mean:.3f} mean, {gains.min():.3f} least"
        )


def random_cases(model: bucketflow.Model, count: int) -> dict[str, Any]:
    """Half of the leaves observed in every case, in states of 30 samples."""
    rng = np.random.default_rng(11)
    parents = {v for f in model.functions for v in f.scope if v != f.child}
    leaves = [v for v in range(len(model.dims)) if v not in parents]
    samples = [forward_sample(model, rng) for _ in range(30)]
    drawn = rng.integers(len(samples), size=count)
    seen = rng.random((count, len(leaves))) < 0.5
    states = {v: np.array([s[v] for s in samples])[drawn] for v in leaves}
    names = [model.names[v] for v in leaves]
    return {name: np.where(seen[:, k], labels(model, name, states[leaves[k]]), None) for k, name in enumerate(names)}


def batch(name: str, counts: tuple[int, int], table: Table) -> None:
    """Add a network's line to the table of batches."""
    model = load(name)
    cases = random_cases(model, counts[0])
    some = {key: column[: counts[1]] for key, column in cases.items()}
    cpu, gpu = bucketflow.compile(model, threads=1, memory="8GB"), bucketflow.compile(model, gpus=1)
    expected, found = cpu.marginals_batch(some), gpu.marginals_batch(cases)
    gap = max(float(np.abs(expected[n] - found[n][: counts[1]]).max()) for n in expected)
    on_gpu = host_seconds(lambda: gpu.marginals_batch(cases), 5)
    on_cpu = host_seconds(lambda: cpu.marginals_batch(some), 2)
    rates = counts[0] / on_gpu, counts[1] / on_cpu
    table.add_row(name, str(counts[0]), *(f"{rate:.0f}" for rate in rates), f"{rates[0] / rates[1]:.1f}×", f"{gap:.1g}")


def grid(side: int, states: int) -> bucketflow.Model:
    """A grid of random functions."""
    rng, at = np.random.default_rng(0), np.arange(side * side).reshape(side, side)
    pairs = [*zip(at[:, :-1].flat, at[:, 1:].flat, strict=True), *zip(at[:-1].flat, at[1:].flat, strict=True)]
    functions = tuple(Function((int(u), int(v)), rng.random((states, states))) for u, v in pairs)
    names = tuple(f"x{v}" for v in range(at.size))
    return bucketflow.Model("markov", names, (states,) * at.size, (None,) * at.size, functions)


def scaling(counts: list[int], cluster: bool) -> None:
    """Print a line for each job and number of GPUs."""
    munin, large = load("munin3"), grid(10, 8)
    cases = random_cases(munin, 8000)

    def batches(client: Any, count: int, asked: Any) -> Callable[[], tuple[float, float]]:
        compiled = bucketflow.compile(munin, client=client, gpus=count)

        def run() -> tuple[float, float]:
            start = time.perf_counter()
            found = compiled.marginals_batch(cases, asked)
            return time.perf_counter() - start, float(found.log10_evidence.sum())

        return run

    def slices(client: Any, count: int, max_marginals: bool) -> Callable[[], tuple[float, float]]:
        def run() -> tuple[float, float]:
            found = bucketflow.marginals(
                large, client=client, gpus=count, gpu_memory="4GB", max_marginals=max_marginals
            )
            assert found.log10_evidence is not None
            return found.seconds["run"], found.log10_evidence

        return run

    jobs: dict[str, Callable[[Any, int], Callable[[], tuple[float, float]]]] = {
        "8000 cases of munin3, all posteriors": lambda client, n: batches(client, n, "all"),
        "8000 cases of munin3, 20 posteriors": lambda client, n: batches(client, n, munin.names[:20]),
        "slices of a 10 x 10 grid of 8 states": lambda client, n: slices(client, n, False),
        "the same, max-marginals": lambda client, n: slices(client, n, True),
    }
    first: dict[str, tuple[float, float]] = {}
    for count in counts:
        with gpu_client(count) if cluster else nullcontext() as client:
            for title, job in jobs.items():
                run = job(client, count)
                times, values = zip(*(run() for _ in range(4)), strict=True)
                seconds = min(times[1:])
                busy, value = first.setdefault(title, (counts[0] * seconds, values[0]))
                print(
                    f"{title:38s} {count} GPUs {seconds:8.3f} s, efficiency {busy / (count * seconds):4.0%}; "
                    f"first run {times[0]:.2f} s, {values[0]!r}{'' if set(values) == {value} else ' DIFFERS'}",
                    flush=True,
                )


def main() -> None:
    """Print both tables, or the lines of several GPUs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--counts")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--one-shot", action="store_true")
    parser.add_argument("--launches", action="store_true")
    chosen = parser.parse_args()
    if chosen.launches:
        launches(chosen.names)
        return
    if chosen.one_shot:
        one_shot(chosen.names)
        return
    if chosen.counts:
        scaling([n for n in map(int, chosen.counts.split(",")) if n <= len(visible_gpus())], chosen.cluster)
        return
    names = chosen.names
    copy = copy_rate()
    cp.get_default_memory_pool().free_all_blocks()
    title = f"{cp.cuda.runtime.getDeviceProperties(0)['name'].decode()}, copy {copy / 1e12:.2f} TB/s; {LAUNCHES}"
    table = Table(title=f"ms per full propagation ({title})")
    for heading in ("network", "evidence", "device", "run", "answer", "CPU"):
        table.add_column(heading, no_wrap=True)
    for heading in ("CPU/device", "CPU/run", "CPU/answer", "levels", "items", "factors", "floor", "× floor", "differs"):
        table.add_column(heading, no_wrap=True)
    batches = Table(title="cases a second, by the host's clock, posteriors of all variables")
    for heading in ("network", "cases", "GPU", "one CPU core", "ratio", "differs"):
        batches.add_column(heading)
    for name in NETWORKS:
        if not names or name in names:
            propagation(name, copy, table)
    console = Console(width=180)
    console.print(table)
    for name, counts in BATCHES.items():
        if not names or name in names:
            batch(name, counts, batches)
    console.print(batches)


if __name__ == "__main__":
    main()
