"""Random steps on a GPU beside their floors: ``python tests/bench/gpu_steps.py [--count N] [--seed S] [--largest L]``.

Steps are drawn by family: two to 64 inputs, domains of 2 to 44 states alone and mixed, axes of every input in an order
of their own, inputs without most of the axes, and outputs whose innermost axis is short. The floor of a step is the
larger of its cells over the arithmetic rate and its bytes over the copy rate, both measured in the same run. A line
for each family says how many times its floor a step takes, in geometric mean and at most, and how many were predicted
within a factor of two; below are the slowest steps, by which passes they run, and their axes. ``--plan`` needs no GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2, prod
from pathlib import Path
from statistics import geometric_mean
from typing import Final

import numpy as np

from bucketflow.pipeline.trees.costs import gpu_rates, lowered_seconds
from bucketflow.tasks.steps.lowering import Lowered
from bucketflow.tasks.steps.semiring import SUM_PRODUCT, Semiring, min_plus
from bucketflow.tasks.steps.step import Step, make_step

SEMIRINGS: Final = {
    "int16": min_plus("int16", 4),
    "int32": min_plus("int32", 4),
    "float64": min_plus("float64", 4),
    "sum": SUM_PRODUCT,
}
#: Tables of one step take no more of the device.
MOST_BYTES = 40 << 30


@dataclass(frozen=True)
class Family:
    """What steps of a family have in common.

    Parameters
    ----------
    sizes : tuple of int
        Domain sizes that are drawn from.
    inputs : tuple of int
        Fewest and most inputs.
    eliminated : tuple of int
        Fewest and most axes that are eliminated.
    share : tuple of float
        Least and largest share of the axes that an input has.
    shuffled : bool
        Whether each table has its axes in an order of its own; else in that of the output, eliminated ones last.
    one_has_all : bool
        Whether one input has all axes.
    """

    sizes: tuple[int, ...]
    inputs: tuple[int, int] = (2, 4)
    eliminated: tuple[int, int] = (1, 2)
    share: tuple[float, float] = (0.3, 0.9)
    shuffled: bool = True
    one_has_all: bool = False


FAMILIES: Final = {
    "binary, few inputs": Family((2,)),
    "binary, 5 to 8 inputs": Family((2,), inputs=(5, 8)),
    "binary, 9 to 64 inputs": Family((2,), inputs=(9, 64), share=(0.1, 0.6)),
    "binary, ordered": Family((2,), inputs=(2, 8), shuffled=False),
    "binary, many eliminated": Family((2,), inputs=(2, 6), eliminated=(4, 10)),
    "3 and 4 states": Family((3, 4), inputs=(2, 8)),
    "4 states, 9 to 40 inputs": Family((4,), inputs=(9, 40), share=(0.1, 0.5)),
    "mixed, few inputs": Family((2, 3, 4, 5, 7, 11, 44)),
    "mixed, 5 to 8 inputs": Family((2, 3, 5, 16, 44), inputs=(5, 8)),
    "mixed, one has all axes": Family((2, 3, 4, 7, 16), inputs=(2, 6), one_has_all=True),
    "16 to 44 states": Family((16, 22, 36, 44), inputs=(2, 6)),
    "tiny inputs": Family((2, 4, 8), inputs=(6, 20), share=(0.05, 0.3)),
}


def drawn(family: Family, least_log2: float, largest_log2: float, seed: int) -> Iterator[tuple[str, Step]]:
    """Draw steps of a family, and in which semiring each is, without end."""
    rng = np.random.default_rng(seed)
    names = list(SEMIRINGS)
    while True:
        goal, dims = rng.uniform(least_log2, largest_log2), list[int]()
        while sum(map(log2, dims)) < goal:
            dims.append(int(rng.choice(family.sizes)))
        name = names[int(rng.integers(len(names)))]
        step = _step(family, dims, SEMIRINGS[name], rng)
        if step is not None and sum(map(log2, dims)) <= largest_log2 + 1.0:
            yield name, step


def _step(family: Family, dims: Sequence[int], semiring: Semiring, rng: np.random.Generator) -> Step | None:
    """Draw the scopes of one step; None where its tables are too large together."""
    axes = len(dims)
    gone = int(rng.integers(family.eliminated[0], min(family.eliminated[1], axes - 1) + 1))
    output = tuple(map(int, rng.permutation(axes)[gone:]))
    order = [*output, *(v for v in range(axes) if v not in output)]
    scopes = []
    for number in range(int(rng.integers(family.inputs[0], family.inputs[1] + 1))):
        share = 1.0 if family.one_has_all and not number else rng.uniform(*family.share)
        chosen = [int(v) for v in rng.permutation(axes)[: max(1, round(share * axes))]]
        scopes.append(chosen if family.shuffled else sorted(chosen, key=order.index))
    for v in set(range(axes)).difference(*scopes):
        scopes[int(rng.integers(len(scopes)))].append(v)
    cells = sum(prod(dims[v] for v in scope) for scope in (*scopes, output))
    if cells * semiring.itemsize > MOST_BYTES:
        return None
    return make_step(axes, tuple(range(len(scopes))), tuple(map(tuple, scopes)), output, tuple(dims), semiring)


@dataclass(frozen=True)
class Timed:
    """A step, and what it took beside its floor and what was predicted."""

    dtype: str
    step: Step
    seconds: float
    floor: float
    predicted: float

    @property
    def slower(self) -> float:
        """How many times the floor it took."""
        return self.seconds / self.floor


def timed(dtype: str, step: Step, floor: float) -> Timed:
    """Run a step on tables of its own."""
    import gpu

    lowered = step.lowered
    predicted = lowered_seconds(step, gpu_rates(lowered.semiring), lowered.semiring.itemsize)
    return Timed(dtype, step, gpu.time_step(lowered, 3), floor, predicted)


def moved_bytes(step: Lowered) -> int:
    """Return bytes of all tables of a step, each counted once."""
    return (sum(step.input_cells) + step.out_cells) * step.semiring.itemsize


def print_family(name: str, found: Sequence[Timed], shown: int) -> None:
    """Print how the steps of a family compare with their floors, and the slowest ones."""
    from gpu_runs import described

    ratios = [each.slower for each in found]
    within = sum(0.5 <= each.seconds / each.predicted <= 2 for each in found)
    print(
        f"{name:28s} {len(found):3d} steps, {geometric_mean(ratios):5.2f} x floor in geometric mean, "
        f"{max(ratios):5.1f} at most, {sum(r > 4 for r in ratios):3d} above 4; {within:3d} predicted within 2",
        flush=True,
    )
    for each in sorted(found, key=lambda one: -one.slower)[:shown]:
        if each.slower > 4:
            print(
                f"   {each.dtype:7s} 2^{log2(each.step.lowered.cells):.1f} {each.seconds * 1e3:8.2f} ms, "
                f"{each.slower:5.1f} x floor, {each.seconds / each.predicted:5.1f} x predicted  "
                f"{described(each.step)}"
            )


def main() -> None:
    """Draw, run and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="those whose names begin so")
    parser.add_argument("--count", type=int, default=8, help="steps of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=26.0, help="log2 of the fewest cells")
    parser.add_argument("--largest", type=float, default=31.0, help="log2 of the most cells")
    parser.add_argument("--shown", type=int, default=3, help="slow steps of a family to print")
    parser.add_argument("--plan", action="store_true", help="lower only")
    chosen = parser.parse_args()
    names = [name for name in FAMILIES if not chosen.families or name.startswith(tuple(chosen.families))]
    if chosen.plan:
        from gpu_runs import described

        for name in names:
            for dtype, step in _first(name, chosen):
                print(f"{name:28s} {dtype:7s} 2^{log2(step.lowered.cells):.1f}  {described(step)}")
        return
    from gpu_runs import measured_ceilings

    ceilings = measured_ceilings()
    print(f"copy {ceilings.copy / 1e12:.2f} TB/s", flush=True)
    everything = list[Timed]()
    for name in names:
        found = []
        for dtype, step in _first(name, chosen):
            floor = max(step.lowered.cells / ceilings.cells[dtype], moved_bytes(step.lowered) / ceilings.copy)
            found.append(timed(dtype, step, floor))
        print_family(name, found, chosen.shown)
        everything += found
    print_family("all", everything, 0)


def _first(name: str, chosen: argparse.Namespace) -> list[tuple[str, Step]]:
    """Draw as many steps of a family as were asked for."""
    steps = drawn(FAMILIES[name], chosen.least, chosen.largest, chosen.seed)
    return [next(steps) for _ in range(chosen.count)]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
