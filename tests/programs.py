"""Programs that tests run on either side."""

from __future__ import annotations

from typing import Any

import numpy as np

from bucketflow.tasks.steps.semiring import Semiring
from bucketflow.tasks.steps.step import Step, make_step
from bucketflow.tasks.sweeps.program import Program
from bucketflow.tasks.sweeps.sweep import Plain


def chain_program(semiring: Semiring, length: int = 6, states: int = 8) -> Program[Any]:
    """Tables over a cycle of variables and a first one, of which each step eliminates one; the last step is small."""
    sizes = dict.fromkeys(range(length + 2), states)
    axes = {v: (v, v + 1, length + 1) for v in range(length)}
    steps, below, table = list[Step](), (0, 1, length + 1), 0
    for v in range(length - 1):
        out = (v + 2, length + 1)
        node = length + v
        steps.append(make_step(node, (table, v + 1), (below, axes[v + 1]), out, sizes, semiring))
        table, below = node, out
    rng = np.random.default_rng(length)
    leaves = {v: rng.integers(0, 100, states**3).astype(semiring.dtype) for v in axes}
    return Program(tuple(steps), leaves, axes, (table,), tuple(sizes.values()), Plain(semiring))


def branch_program(semiring: Semiring, seed: int) -> Program[Any]:
    """A step of 16 cells, and one of 64 that reads its table."""
    sizes = dict.fromkeys(range(4), 4)
    small = make_step(2, (0,), ((0, 1),), (1,), sizes, semiring)
    large = make_step(3, (2, 1), ((1,), (1, 2, 3)), (3,), sizes, semiring)
    rng, axes = np.random.default_rng(seed), {0: (0, 1), 1: (1, 2, 3)}
    leaves = {n: rng.integers(0, 99, 4 ** len(scope)).astype(semiring.dtype) for n, scope in axes.items()}
    return Program((small, large), leaves, axes, (3,), (4, 4, 4, 4), Plain(semiring))
