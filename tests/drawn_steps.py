"""Random steps by families of models, for tests and benchmarks of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Final

import numpy as np

from bucketflow.tasks.steps.semiring import Semiring
from bucketflow.tasks.steps.step import Step, make_step


@dataclass(frozen=True)
class StepFamily:
    """Common properties of a family's steps.

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
        Whether each table has its own order of axes; otherwise the output's order, with eliminated axes last.
    one_has_all : bool
        Whether one input has all axes.
    """

    sizes: tuple[int, ...]
    inputs: tuple[int, int] = (2, 4)
    eliminated: tuple[int, int] = (1, 2)
    share: tuple[float, float] = (0.3, 0.9)
    shuffled: bool = True
    one_has_all: bool = False


STEP_FAMILIES: Final = {
    "binary, few inputs": StepFamily((2,)),
    "binary, 5 to 8 inputs": StepFamily((2,), inputs=(5, 8)),
    "binary, 9 to 64 inputs": StepFamily((2,), inputs=(9, 64), share=(0.1, 0.6)),
    "binary, ordered": StepFamily((2,), inputs=(2, 8), shuffled=False),
    "binary, many eliminated": StepFamily((2,), inputs=(2, 6), eliminated=(4, 10)),
    "3 and 4 states": StepFamily((3, 4), inputs=(2, 8)),
    "4 states, 9 to 40 inputs": StepFamily((4,), inputs=(9, 40), share=(0.1, 0.5)),
    "mixed, few inputs": StepFamily((2, 3, 4, 5, 7, 11, 44)),
    "mixed, 5 to 8 inputs": StepFamily((2, 3, 5, 16, 44), inputs=(5, 8)),
    "mixed, one has all axes": StepFamily((2, 3, 4, 7, 16), inputs=(2, 6), one_has_all=True),
    "16 to 44 states": StepFamily((16, 22, 36, 44), inputs=(2, 6)),
    "tiny inputs": StepFamily((2, 4, 8), inputs=(6, 20), share=(0.05, 0.3)),
}
"""Two to 64 inputs, domains of 2 to 44 states alone and mixed, axes in every order, short and broadcast inputs."""


def drawn_steps(
    family: StepFamily,
    least_log2: float,
    largest_log2: float,
    seed: int,
    semirings: Sequence[Semiring],
    most_bytes: int,
) -> Iterator[Step]:
    """Yield random steps of a family endlessly: within limits of cells and table bytes, in one of the semirings."""
    rng = np.random.default_rng(seed)
    while True:
        goal, dims = rng.uniform(least_log2, largest_log2), list[int]()
        while sum(map(log2, dims)) < goal:
            dims.append(int(rng.choice(family.sizes)))
        semiring = semirings[int(rng.integers(len(semirings)))]
        step = _drawn_step(family, dims, semiring, rng, most_bytes)
        if step is not None and sum(map(log2, dims)) <= largest_log2 + 1.0:
            yield step


def _drawn_step(
    family: StepFamily, dims: Sequence[int], semiring: Semiring, rng: np.random.Generator, most_bytes: int
) -> Step | None:
    """Draw the scopes of one step; None where its tables are too large together."""
    axes = len(dims)
    gone = int(rng.integers(family.eliminated[0], max(min(family.eliminated[1], axes - 1), family.eliminated[0]) + 1))
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
    if cells * semiring.itemsize > most_bytes:
        return None
    return make_step(axes, tuple(range(len(scopes))), tuple(map(tuple, scopes)), output, tuple(dims), semiring)
