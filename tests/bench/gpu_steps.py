"""Random steps on a GPU beside lower bounds of their time: ``python tests/bench/gpu_steps.py [--count N] [--seed S]
[--largest L]``.

Steps are drawn by family: two to 64 inputs, domains of 2 to 44 states alone and mixed, a separate order of axes for
every input, inputs without most of the axes, and outputs with a short innermost axis. Each step has a floor, a lower
bound of its time. The floor is the larger of two quotients: its cells over the arithmetic rate, and its bytes over the
copy rate, both measured in the same run. It counts one operation for each cell, and sums of products at the rate of
matrix units. A step of many inputs can therefore not reach it. If a step is no product, it has a second floor: the
operations of its best known join tree, without matrix units.

The line of a family states the ratio of measured time and floor, in geometric mean and at most, and the number of steps
that were predicted within a factor of two. Below are the slowest steps with their passes and axes. ``--passes`` adds
the time of each pass, the time of copying its tables, and its predicted time. A step runs as a graph. With
``--in-turn``, each pass waits for the pass before it. ``--plan`` needs no GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from math import log2, prod
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

from bucketflow.pipeline.plans.prediction import step_seconds
from bucketflow.pipeline.trees.costs import gpu_rates
from bucketflow.tasks.gpu.tiling.device_lowering import device_step
from bucketflow.tasks.gpu.tiling.pass_axes import as_axes
from bucketflow.tasks.steps.lowering import Lowered
from bucketflow.tasks.steps.semiring import SUM_PRODUCT, min_plus
from bucketflow.tasks.steps.step import Step

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.drawn_steps import STEP_FAMILIES, StepFamily, drawn_steps

SEMIRINGS: Final = {
    "int16": min_plus("int16", 4),
    "int32": min_plus("int32", 4),
    "float64": min_plus("float64", 4),
    "sum": SUM_PRODUCT,
}
#: Tables of one step take no more of the device.
MOST_BYTES = 40 << 30


def drawn(family: StepFamily, least_log2: float, largest_log2: float, seed: int) -> Iterator[tuple[str, Step]]:
    """Draw steps of a family, and in which semiring each is, without end."""
    names = {semiring: name for name, semiring in SEMIRINGS.items()}
    for step in drawn_steps(family, least_log2, largest_log2, seed, list(names), MOST_BYTES):
        yield names[step.lowered.semiring], step


@dataclass(frozen=True)
class Timed:
    """A step, and what it took beside its floor and what was predicted."""

    dtype: str
    step: Step
    seconds: float
    floor: float
    tree_floor: float
    predicted: float

    @property
    def slower(self) -> float:
        """How many times the floor it took."""
        return self.seconds / self.floor

    @property
    def slower_than_tree(self) -> float:
        """Ratio of the measured time and the floor of the best known join tree."""
        return self.seconds / self.tree_floor


def tree_operations(step: Lowered) -> int:
    """Return the operations of the best known join tree of a step.

    A join of two tables is one operation for each cell of the join. The last join and the elimination together count
    once. Two trees are compared: one first joins the pair with the smallest join, the other joins the pair whose join
    adds the fewest cells to its tables.
    """
    axes = as_axes(step.axes)
    scopes = [frozenset(i for i, a in enumerate(axes) if a.strides[t]) for t in range(len(step.input_cells))]

    def cells(scope: frozenset[int]) -> int:
        return prod([axes[i].size for i in scope])

    def joined(added: bool) -> int:
        left, total = list(dict.fromkeys(scopes)), sum([cells(s) for s in scopes]) - sum(map(cells, {*scopes}))
        while len(left) > 2:
            one, other = min(
                combinations(left, 2),
                key=lambda two: cells(two[0] | two[1]) - added * (cells(two[0]) + cells(two[1])),
            )
            left = [s for s in left if s not in (one, other)]
            both = one | other
            total += cells(both) * (1 + (both in left))  # tables of the same scope are joined too
            left = [*(s for s in left if s != both), both]
        return total

    return step.cells + min(joined(False), joined(True))


def predicted(lowered: Lowered) -> float:
    """Return what plans say that a step takes."""
    return step_seconds(lowered, gpu_rates(lowered.semiring), lowered.semiring.itemsize)


def prepared(steps: Sequence[Step]) -> list[tuple[float, Callable[..., float]]]:
    """Lower and compile steps on all cores; return for each what is predicted, and what measures it."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        passes = list(pool.map(device_step, [step.lowered for step in steps], chunksize=1))
        seconds = list(pool.map(predicted, [step.lowered for step in steps], chunksize=1))
    import gpu

    from bucketflow.tasks.gpu.kernels import compile_together

    runs = [
        gpu.gpu.DeviceRun(made, step.lowered.semiring, step.lowered.out_cells)
        for made, step in zip(passes, steps, strict=True)
    ]
    compile_together([each for run in runs for each in run.kernels])
    return [
        (each, partial(gpu.time_run, run, step.lowered, 3))
        for each, run, step in zip(seconds, runs, steps, strict=True)
    ]


def pass_times(step: Lowered, repeats: int = 3) -> list[tuple[Any, float]]:
    """Return the passes of a step, one after the other, and the median seconds of each."""
    import gpu
    import numpy as np

    passes = device_step(step).passes
    run = gpu.gpu.DeviceRun(device_step(step), step.semiring, step.out_cells)
    tables, out = gpu.tables_of(step), gpu.cp.empty(step.out_cells, step.semiring.dtype)
    block = gpu.cp.empty(max(1, run.workspace_bytes), "u1")
    places = [place * step.semiring.itemsize for place in device_step(step).places]
    addresses = [*[t.data.ptr for t in tables], *[block.data.ptr + at for at in places], out.data.ptr]
    seconds = []
    for _ in range(repeats + 1):
        events = [gpu.cp.cuda.Event() for _ in range(len(passes) + 1)]
        events[0].record()
        for launch, after in zip(run.launches, events[1:], strict=True):
            launch(addresses)
            after.record()
        events[-1].synchronize()
        seconds.append([gpu.cp.cuda.get_elapsed_time(one, other) / 1e3 for one, other in pairwise(events)])
    return list(zip(passes, np.median(seconds[1:], axis=0).tolist(), strict=True))


def print_passes(step: Lowered, copy: float) -> None:
    """Print what each pass of a step takes, beside copying its tables, and what is predicted of it."""
    from bucketflow.tasks.gpu.tiling.pass_prices import passes_seconds

    made, itemsize = device_step(step), step.semiring.itemsize
    cells = [*step.input_cells, *made.temporaries, step.out_cells]
    for each, seconds in pass_times(step):
        moved = sum(cells[t] for t in (*each.reads, *each.writes)) * itemsize / copy
        foreseen = passes_seconds([each], step.input_cells, made.temporaries, step.out_cells, step.semiring)
        print(
            f"      {type(each).__name__:12s} {seconds * 1e3:8.3f} ms, {moved * 1e3:8.3f} ms of copying, "
            f"{foreseen * 1e3:8.3f} ms predicted, of {' '.join(f'2^{log2(cells[t]):.1f}' for t in each.reads)}"
        )


def moved_bytes(step: Lowered) -> int:
    """Return bytes of all tables of a step, each counted once."""
    return (sum(step.input_cells) + step.out_cells) * step.semiring.itemsize


def print_family(name: str, found: Sequence[Timed], shown: int, copy: float | None = None) -> None:
    """Print how the steps of a family compare with their floors, and the slowest; with a copy's rate, by passes."""
    from gpu_runs import described

    ratios, trees = [each.slower for each in found], [each.slower_than_tree for each in found]
    within = sum(0.5 <= each.seconds / each.predicted <= 2 for each in found)
    print(
        f"{name:28s} {len(found):3d} steps, {geometric_mean(ratios):5.2f} x floor in geometric mean, "
        f"{max(ratios):5.1f} at most, {sum(r > 4 for r in ratios):3d} above 4; of the join tree "
        f"{geometric_mean(trees):5.2f}, {max(trees):5.1f} and {sum(r > 4 for r in trees):3d}; "
        f"{within:3d} predicted within 2",
        flush=True,
    )
    for each in sorted(found, key=lambda one: -one.slower)[:shown]:
        if each.slower > 4:
            print(
                f"   {each.dtype:7s} 2^{log2(each.step.lowered.cells):.1f} {each.seconds * 1e3:8.2f} ms, "
                f"{each.slower:5.1f} x floor, {each.slower_than_tree:5.1f} x join tree, "
                f"{each.seconds / each.predicted:5.1f} x predicted  "
                f"{described(each.step)}"
            )
            if copy is not None:
                print_passes(each.step.lowered, copy)


def main() -> None:
    """Draw, run and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="those whose names begin so")
    parser.add_argument("--count", type=int, default=8, help="steps of each family")
    parser.add_argument("--seed", type=int, nargs="+", default=[0], dest="seeds", help="one or several")
    parser.add_argument("--least", type=float, default=26.0, help="log2 of the fewest cells")
    parser.add_argument("--largest", type=float, default=31.0, help="log2 of the most cells")
    parser.add_argument("--shown", type=int, default=3, help="slow steps of a family to print")
    parser.add_argument("--passes", action="store_true", help="time each pass of the slow steps")
    parser.add_argument("--in-turn", action="store_true", help="run the passes of a step one after another")
    parser.add_argument("--plan", action="store_true", help="lower only")
    chosen = parser.parse_args()
    names = [name for name in STEP_FAMILIES if not chosen.families or name.startswith(tuple(chosen.families))]
    steps = {(seed, name): _first(name, seed, chosen) for seed in chosen.seeds for name in names}
    if chosen.plan:
        from gpu_runs import described

        for (_, name), each in steps.items():
            for dtype, step in each:
                share = tree_operations(step.lowered) / step.lowered.cells
                print(f"{name:28s} {dtype:7s} 2^{log2(step.lowered.cells):.1f}  {share:.2f}  {described(step)}")
        return
    from gpu_runs import measured_ceilings

    ceilings = measured_ceilings()
    print(f"copy {ceilings.copy / 1e12:.2f} TB/s", flush=True)
    ready = iter(prepared([step for each in steps.values() for _, step in each]))
    everything: dict[int, list[Timed]] = {seed: [] for seed in chosen.seeds}
    for (seed, name), each in steps.items():
        found = []
        for dtype, step in each:
            copied, lowered = moved_bytes(step.lowered) / ceilings.copy, step.lowered
            plain = lowered.cells / ceilings.cells[dtype]
            tree = plain if lowered.product is not None else tree_operations(lowered) / ceilings.joined[dtype]
            floors = max(plain, copied), max(tree, copied)
            seconds, measure = next(ready)
            found.append(Timed(dtype, step, measure(in_turn=chosen.in_turn), *floors, seconds))
        print_family(name, found, chosen.shown, ceilings.copy if chosen.passes else None)
        everything[seed] += found
    for seed, found in everything.items():
        print_family(f"all of seed {seed}", found, 0)


def _first(name: str, seed: int, chosen: argparse.Namespace) -> list[tuple[str, Step]]:
    """Draw as many steps of a family as were asked for."""
    steps = drawn(STEP_FAMILIES[name], chosen.least, chosen.largest, seed)
    return [next(steps) for _ in range(chosen.count)]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
