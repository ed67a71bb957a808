"""Recomputing messages to save memory: which messages are dropped, and the memory needed. Pure.

The tree is cut; only the tables at the cuts stay while the parts below them are dropped. To decode an assignment each
part is swept again with the variables above it fixed. On the way back each part makes its upward messages again
before the messages from above go through it: that costs at most one more forward sweep.

A grid of 3 x 12 variables of eight states: kept for decoding, its messages need 229,888 bytes. Within 170,000 the
tree is cut at some tables, and each part is swept a second time.

>>> from bucketflow.pipeline.plans.planner import Planner
>>> from bucketflow.pipeline.trees.tree import bucket_tree
>>> from bucketflow.tasks.steps.semiring import MIN_PLUS
>>> scopes = [(v, v + 1) for v in range(36) if v % 3 < 2] + [(v, v + 3) for v in range(33)]
>>> tree = bucket_tree((8,) * 36, scopes, order=range(36))
>>> plan = Planner(Problem(tree.dims, tree.leaves, MIN_PLUS, itemsize=8)).of(tree)
>>> for available in 1 << 20, 170_000:
...     cuts, peak = cuts_for_decoding(tree, plan.up, Sizing(tree.dims, itemsize=8), available)
...     len(cuts), peak
(0, 229888)
(4, 165376)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Any, Final

from ...tasks.steps.step import Step
from ..trees.memory import Sizing, partition, parts_below, sweep_peak
from ..trees.tree import Target, Tree, sizer_of
from .plan import Plan
from .problem import Problem, sliced_dims
from .two_way_steps import StepBuilder, TargetReading, choose_readings

# The search ends after this many cuts that need more memory than earlier cuts.
_WORSE: Final = 2


def cuts_for_decoding(tree: Tree, steps: Sequence[Step], sizing: Sizing, available: int) -> tuple[frozenset[int], int]:
    """Where to drop messages, and the peak of messages and workspace that follows.

    Keeping all messages makes the decoding free. Where they do not fit, the tree is cut and each part swept
    again, conditioned on the variables above it, which costs at most as much as the first sweep.
    """
    order = [s.node for s in steps]
    made = _made_bytes(tree, order, sizing.itemsize)
    everything = sweep_peak(steps, sizing, order, made_bytes=made)
    best: tuple[frozenset[int], int] = (frozenset(), everything)
    for cuts in _halved_parts(tree, order, made, everything, max(made.values(), default=inf)):
        if best[1] <= available:
            break
        best = min(best, (cuts, recomputing_peak(tree, steps, sizing, cuts, best[1])), key=lambda choice: choice[1])
    return best


def _halved_parts(
    tree: Tree, order: Sequence[int], size: Mapping[int, int] | Sequence[int], everything: int, least: float
) -> Iterator[frozenset[int]]:
    """Yield cuts into parts with half of all bytes, a quarter, and so on, down to parts of ``least`` bytes.

    Smaller parts need less memory, until the tables at their cuts need more.
    """
    limit, found = everything / 2, frozenset[int]()
    while limit >= least:
        before, found = found, partition(tree, order, size.__getitem__, limit)
        limit /= 2
        if found != before:
            yield found


def _made_bytes(tree: Tree, nodes: Iterable[int], itemsize: int, fixed: int = 0) -> dict[int, int]:
    """Return the bytes of the tables of nodes, with the variables of a bit set fixed."""
    cells, masks = sizer_of(tree.dims).cells, tree.scope_masks
    return {node: cells(masks[node] & ~fixed) * itemsize for node in nodes}


def recomputing_peak(tree: Tree, steps: Sequence[Step], sizing: Sizing, cuts: frozenset[int], most: float = inf) -> int:
    """Peak of sweeping part by part, keeping the tables at the cuts, and then each part again to decode it.

    Where that is more than ``most``, only some of the parts are looked at.
    """
    itemsize, masks = sizing.itemsize, tree.scope_masks
    made = _made_bytes(tree, [s.node for s in steps], itemsize)
    held = sum(made[node] for node in cuts)
    peak = 0
    for head, part in parts_below(tree, steps, cuts).items():
        fixed = masks[head] if head >= 0 else 0
        inner = replace(sizing, sizes=sliced_dims(sizing.sizes, tree.scopes[head] if head >= 0 else ()))
        nodes = [s.node for s in part]
        read = _made_bytes(tree, {i for s in part for i in s.inputs}, itemsize, fixed)
        copies = sum([read[i] for s in part for i in s.inputs])
        again = copies + sweep_peak(part, inner, nodes, made_bytes=_made_bytes(tree, nodes, itemsize, fixed))
        peak = max(peak, held + again)
        if peak <= most:
            peak = max(peak, held + sweep_peak(part, sizing, (), made_bytes=made))
        if peak > most:
            break
    return peak


class BothWaysBytes:
    """Lower limits of the memory of both sweeps over a tree, for any cuts, before a step is lowered.

    All upward messages that the way back reads exist when it begins. In a cut tree, the messages of a part exist when
    the way back through this part begins, beside the tables at the cuts and the messages to the cuts that are still to
    be read.

    Parameters
    ----------
    order : sequence of int
        The internal nodes as they are swept.
    targets : sequence of tuple of int
        Variables whose joint beliefs are read.
    itemsize : int
        Bytes of a value.
    """

    def __init__(self, tree: Tree, order: Sequence[int], targets: Sequence[Target], itemsize: int) -> None:
        self.readings: tuple[TargetReading, ...] = choose_readings(tree, targets)
        first, n = tree.n_leaves, len(tree.parent)
        self._tree, self._order = tree, order
        self._bytes = [cells * itemsize for cells in tree.cells]
        below, here, joined = [0] * n, [0] * n, [False] * n
        for reading in self.readings:
            below[reading.node] += 1
            here[reading.node] += not reading.join
            joined[reading.node] |= reading.join
        # whether the way back reads a table, whether it enters below, and whether others come from above with it
        self._read, self._shared = [False] * n, [False] * n
        for node, kids in enumerate(tree.children, first):
            entered = sum([below[c] > 0 for c in kids])
            below[node] += sum([below[c] for c in kids])
            for c in kids:
                self._read[c] = joined[node] or here[c] > 0 or entered > (below[c] > 0)
                self._shared[c] = len(kids) > 1
        self._entered = [inside > own for inside, own in zip(below, here, strict=True)]

    def fitting(self, available: int) -> Iterator[frozenset[int]]:
        """Yield cuts with which both sweeps may fit in ``available`` bytes: no cuts first, then cuts into smaller and
        smaller parts.
        """
        if self.least() <= available:
            yield frozenset()
        for cuts, least in self._halved:
            if least <= available:
                yield cuts

    @cached_property
    def _halved(self) -> tuple[tuple[frozenset[int], int], ...]:
        """Cuts into parts with half of all message bytes, a quarter, and so on, with a lower limit of their memory."""
        sizes = [self._bytes[node] for node in self._order]
        found: dict[frozenset[int], int] = {}
        # parts below the largest table may still need less: a large table is a part of its own
        for cuts in _halved_parts(self._tree, self._order, self._bytes, sum(sizes), min(sizes, default=inf)):
            least = [*found.values()]
            if len(least) > _WORSE and min(least[-_WORSE:]) > min(least):
                break
            found[cuts] = self.least(cuts)
        return tuple(found.items())

    def least(self, cuts: Collection[int] = ()) -> int:
        """Return the bytes of the messages that are there together at least, with some internal nodes cut off."""
        parent, size = self._tree.parent, self._bytes
        part = [0] * (len(parent) + 1)  # the last one is above the roots
        inside = [0]  # bytes of each part, those above first
        changes: list[tuple[int, int]] = []
        for node in reversed(self._order):
            outer = part[parent[node]]
            if node not in cuts:
                part[node] = outer
                if self._read[node]:
                    inside[outer] += size[node]
                continue
            part[node] = own = len(inside)
            inside.append(0)
            if self._read[node]:  # until the way back has passed the part above
                changes += (0, size[node]), (outer + 1, -size[node])
            if self._entered[node] and self._shared[node]:  # from above, until it goes through the part itself
                changes += (outer + 1, size[node]), (own + 1, -size[node])
        beside = [0] * (len(inside) + 1)
        for at, change in changes:
            beside[at] += change
        return max([own + held for own, held in zip(inside, accumulate(beside), strict=False)])


def remade(
    plan: Plan,
    problem: Problem,
    readings: Sequence[TargetReading],
    choices: Iterable[frozenset[int]],
    sizing: Sizing,
    available: int,
) -> Plan | None:
    """Return a plan of both ways that makes messages again, by the first cuts with which it fits; None if none does.

    Parameters
    ----------
    plan : Plan
        Only its steps up are read.
    choices : iterable of frozenset of int
        Nodes at which the tree may be cut.
    available : int
        Bytes for messages and workspace.
    """
    lowered: dict[tuple[Any, ...], Step] = {}
    for cuts in filter(None, choices):
        again = with_parts_again(plan, problem, readings, cuts, lowered)
        peak = sweep_peak(again.steps, sizing, again.outputs)
        if peak <= available:
            return replace(again, peak_bytes=plan.model_bytes + plan.leaf_bytes + peak)
    return None


def with_parts_again(
    plan: Plan,
    problem: Problem,
    wanted: Sequence[TargetReading],
    cuts: frozenset[int],
    lowered: dict[tuple[Any, ...], Step] | None = None,
) -> Plan:
    """Return a plan of both ways that keeps only the tables at the cuts and makes the parts below them again."""
    builder = StepBuilder(plan.tree, plan.layouts, problem, lowered)
    back = tuple(_back_through(plan, wanted, builder, cuts))
    return replace(plan, back=back, cuts=cuts, results=builder.results, variant_from=0)


def _back_through(
    plan: Plan, wanted: Sequence[TargetReading], builder: StepBuilder, cuts: Collection[int]
) -> Iterator[Step]:
    """Yield the backward steps part by part, those at the roots first, each after its upward steps."""
    tree = plan.tree
    parts = parts_below(tree, plan.up, cuts)
    parts = {**parts, -1: parts.pop(-1, [])}
    home = {s.node: head for head, part in parts.items() for s in part}
    readings: dict[int, list[TargetReading]] = {head: [] for head in parts}
    for reading in wanted:
        node = reading.node if reading.join else tree.parent[reading.node]
        readings[home.get(node, -1)].append(reading)
    asked = _asked(tree, parts, home, readings)
    for head in reversed(parts):
        if head not in asked:
            continue
        below = [i for s in parts[head] for i in s.inputs if i in asked]
        back = list(builder.backward(readings[head], None if head < 0 else (head,), below))
        if head >= 0:
            yield from _needed(parts[head], back)
        yield from back


def _asked(
    tree: Tree, parts: dict[int, list[Step]], home: dict[int, int], readings: dict[int, list[TargetReading]]
) -> set[int]:
    """Return the heads of the parts that something is read from, in them or below them."""
    asked = {-1}
    for head in parts:
        while head not in asked and (readings[head] or any(i in asked for s in parts[head] for i in s.inputs)):
            asked.add(head)
    return asked


def _needed(part: Sequence[Step], back: Sequence[Step]) -> list[Step]:
    """Return the upward steps of a part that its backward steps read, directly or not."""
    needed = {i for step in back for i in step.inputs}
    found = []
    for step in reversed(part):
        if step.node in needed:
            found.append(step)
            needed.update(step.inputs)
    return found[::-1]
