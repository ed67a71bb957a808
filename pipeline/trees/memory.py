"""Bytes of tables, of workspace, and of live data while steps run; every peak is computed from these.

A cycle of four variables of ten states has two messages of 100 values of 8 bytes. The second step reads the first
message and makes the second, in a workspace of 24,000 bytes: the peak.

>>> from bucketflow.pipeline.plans.problem import Problem
>>> from bucketflow.pipeline.plans.planner import Planner
>>> from bucketflow.pipeline.trees.tree import bucket_tree
>>> from bucketflow.tasks.steps.semiring import MIN_PLUS
>>> dims, scopes = (10,) * 4, ((0, 1), (1, 2), (2, 3), (0, 3))
>>> tree = bucket_tree(dims, scopes, order=(0, 1, 2, 3))
>>> steps = Planner(Problem(dims, scopes, MIN_PLUS, itemsize=8)).of(tree).up
>>> sizing = Sizing(dims, itemsize=8)
>>> [(table_bytes(dims, step.axes, 8), sizing.workspace_bytes(step)) for step in steps]
[(800, 24000), (800, 24000), (8, 2400)]
>>> sweep_peak(steps, sizing, kept=tree.roots)
25600
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf, prod
from operator import itemgetter

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.step import Step, make_step
from ...tasks.steps.streaming import least_bytes
from ...tasks.sweeps.sweep import freed_tables, useful_threads
from .tree import Tree

# Bytes below which workspace is ignored on a device, because a larger part of its memory is reserved.
_MUCH_BYTES = 1 << 26


def table_bytes(sizes: Sequence[int], axes: Collection[int], itemsize: int) -> int:
    """Bytes of a dense table over ``axes``."""
    return prod([sizes[v] for v in axes]) * itemsize


def step_bytes(step: Step, sizes: Sequence[int], itemsize: int) -> int:
    """Bytes that one step reads and writes."""
    return sum(table_bytes(sizes, axes, itemsize) for axes in (*step.input_axes, step.axes))


def leaf_bytes(tree: Tree, sizes: Sequence[int], itemsize: int) -> int:
    """Bytes of all leaf tables together."""
    if sizes == tree.dims:
        return sum(tree.cells[: tree.n_leaves]) * itemsize
    return sum(table_bytes(sizes, scope, itemsize) for scope in tree.leaves)


@dataclass(frozen=True)
class Sizing:
    """The inputs of the byte formulas other than steps: domain sizes, bytes of a value, and the device of the steps.

    Parameters
    ----------
    threads : int
        Threads that share a large step.
    device : bool
        Whether steps run on a GPU.
    """

    sizes: tuple[int, ...]
    itemsize: int
    threads: int = 1
    device: bool = False

    def workspace_bytes(self, step: Step) -> int:
        """Bytes that a step needs besides its tables: on the host, and as temporaries between passes on a device."""
        workspace, cells = self._host_bytes(step), self._joined_cells(step)
        if (len(step.inputs) + 2) * cells * self.itemsize < _MUCH_BYTES:
            return workspace
        if cells != step.lowered.cells:
            step = make_step(step.node, step.inputs, step.input_axes, step.axes, self.sizes, step.lowered.semiring)
        from ...tasks.gpu.tiling.device_lowering import device_step

        return max(workspace, device_step(step.lowered).workspace_cells * self.itemsize)

    def most_workspace_bytes(self, step: Step) -> int:
        """Bytes that a step needs besides its tables at most, which is known before its passes on a device are."""
        return max(self._host_bytes(step), (len(step.inputs) + 2) * self._joined_cells(step) * self.itemsize)

    def least_workspace_bytes(self, cells: int, inputs: int) -> int:
        """Return the minimum workspace bytes of a step with ``cells`` cells, before it is lowered."""
        return least_bytes(cells, inputs, self.itemsize)

    def _host_bytes(self, step: Step) -> int:
        threads = useful_threads(step, self.threads)
        return step.lowered.workspace_bytes + (threads - 1) * step.lowered.thread_bytes

    def _joined_cells(self, step: Step) -> int:
        """Cells that a step sweeps on a device."""
        return prod(self.sizes[v] for v in frozenset().union(*step.input_axes)) if self.device else 0


def sweep_peak(
    steps: Sequence[Step],
    sizing: Sizing,
    kept: Collection[int],
    most: float = inf,
    made_bytes: Mapping[int, int] | None = None,
    freed: Sequence[Sequence[int]] | None = None,
) -> int:
    """Return the peak bytes of the tables of ``steps`` and of their workspace, without the leaves.

    Mirrors :func:`bucketflow.tasks.sweeps.sweep.sweep`: a table is freed after the last step that reads it unless it
    is in ``kept``, even if it is computed again later.

    Parameters
    ----------
    steps : sequence of Step
    sizing : Sizing
        Domain sizes, bytes of a cell, threads, and whether a device sweeps.
    kept : collection of int
        Tables that are never freed.
    most : float
        On a device, if the peak of the tables alone exceeds this number, this peak is returned, because computing the
        workspace takes long.
    made_bytes : mapping of int to int, optional
        Bytes of the tables, if known.
    freed : sequence of sequence of int, optional
        For each step, the tables that are freed after it, if known; ``kept`` then has no effect.
    """
    made: dict[int, int] = {}
    live = peak = 0
    sizes, itemsize, threads = sizing.sizes, sizing.itemsize, sizing.threads
    # the steps that may need most come first
    waiting: list[tuple[int, int, Step]] = []
    for step, gone in zip(steps, freed or freed_tables(steps, kept), strict=True):
        node = step.node
        live -= made.get(node, 0)
        size = table_bytes(sizes, step.axes, itemsize) if made_bytes is None else made_bytes[node]
        made[node] = size
        live += size
        if sizing.device:
            waiting.append((live + sizing.most_workspace_bytes(step), live, step))
            peak = max(peak, live)
        else:
            lowered = step.lowered
            if live + lowered.workspace_bytes + threads * lowered.thread_bytes > peak:
                peak = max(peak, live + sizing.workspace_bytes(step))
        for i in gone:
            live -= made.pop(i, 0)
    if peak > most:
        return peak
    for bound, there, step in sorted(waiting, key=itemgetter(0), reverse=True):
        if bound <= peak:
            break
        peak = max(peak, there + sizing.workspace_bytes(step))
    return peak


def parts_below(tree: Tree, steps: Sequence[Step], cuts: Collection[int]) -> dict[int, list[Step]]:
    """Group the steps by the cut they lie below, in execution order; -1 stands for the roots."""
    head: dict[int, int] = {}
    parts: dict[int, list[Step]] = {}
    for step in reversed(steps):
        head[step.node] = step.node if step.node in cuts else head.get(tree.parent[step.node], -1)
        parts.setdefault(head[step.node], []).append(step)
    return {node: members[::-1] for node, members in reversed(parts.items())}


def partition(
    tree: Tree,
    order: Sequence[int],
    weight: Callable[[int], float],
    limit: float,
    allowed: Callable[[int], bool] = lambda node: True,
) -> frozenset[int]:
    """Choose internal nodes to cut off, ``allowed`` ones, so that each part weighs at most ``limit`` where it can.

    Bottom-up over ``order`` (children first): a part that grows too heavy sheds its heaviest sub-parts. A
    single node heavier than the limit stands alone.
    """
    leaves = len(tree.leaves)
    load: dict[int, float] = {}
    cuts: set[int] = set()
    for node in order:
        below = sorted((c for c in tree.children[node - leaves] if c >= leaves), key=lambda c: load[c])
        total = weight(node) + ordered_sum(load[c] for c in below)
        while below and total > limit:
            heaviest = below.pop()
            if allowed(heaviest):
                cuts.add(heaviest)
                total -= load[heaviest]
        load[node] = total
    return frozenset(cuts)
