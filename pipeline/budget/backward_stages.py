"""The way back through the stages of an out-of-core plan: the work of a box of each stage. Pure.

On the way up, a stage reads the tables of the stages below it and writes the table at its head. On the way back it
reads these tables again, with the message from above its head, and writes the message from above to each of them.
Inside a box this is ordinary two-way propagation, with the upward messages recomputed. Only tables between stages are
therefore stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...tasks.steps.step import Step
from ..plans.problem import Problem, sliced_dims
from ..plans.stages import Stage
from ..plans.two_way_steps import StepBuilder, TargetReading
from ..trees.tree import Tree


@dataclass(frozen=True)
class WayBack:
    """The inputs of the stages on the way back.

    Parameters
    ----------
    tree : Tree
    layouts : sequence of tuple of int
    problem : Problem
    readings : tuple of Reading
    result_bytes : int
        Of the beliefs that are put together, in the process that does.
    """

    tree: Tree
    layouts: Sequence[tuple[int, ...]]
    problem: Problem
    readings: tuple[TargetReading, ...]
    result_bytes: int
    _made: dict[tuple[int, frozenset[int], tuple[int, ...]], Stage] = field(default_factory=dict)

    def stage(self, head: int, nodes: Sequence[int], inputs: Iterable[int], boxed: tuple[int, ...]) -> Stage:
        """Lower the way back through a stage for the sizes inside a box, or remember it.

        Parameters
        ----------
        nodes : sequence of int
            The stage's internal nodes, children first.
        inputs : iterable of int
            Heads of the stages below.
        """
        stored = frozenset(inputs)
        key = (head, stored, boxed)
        if key not in self._made:
            self._made[key] = self._lowered(head, nodes, stored, boxed)
        return self._made[key]

    def _lowered(self, head: int, nodes: Sequence[int], stored: frozenset[int], boxed: tuple[int, ...]) -> Stage:
        builder = StepBuilder(self.tree, self.layouts, self.problem)
        builder.sizes, number = sliced_dims(self.tree.dims, boxed), builder.number
        tops = self.tree.roots if head < 0 else (head,)
        if head >= 0:
            builder.above[head] = (number.down(head),) if self.is_joined(head) else ()
            builder.axes[number.down(head)] = self.layouts[head]
        ends = {i for i in stored if self.beyond[i]}
        back = tuple(builder.backward(self.readings_in(head, nodes), tops, ends))
        roots = self.tree.roots if head < 0 else ()
        needed = {i for step in back for i in step.inputs}.union(roots)
        up: list[Step] = []
        for node in reversed(nodes):
            if node in needed:
                up.insert(0, builder.forward(node))
                needed.update(up[0].inputs)
        outputs = {number.down(i): builder.above[i][0] for i in sorted(ends) if builder.above[i]}
        needed.update(outputs.values())
        read = tuple(i for i in (*sorted(stored), *(builder.above[head] if head >= 0 else ())) if i in needed)
        return Stage(head, (*up, *back), boxed, read, outputs, builder.results, roots)

    def readings_in(self, head: int, nodes: Sequence[int]) -> list[TargetReading]:
        """Return the readings of a stage: readings at its joins and of its tables.

        Readings of a head belong to its reader.
        """
        at, below = self._places
        found = {i for node in nodes for i in at.get(node, ()) if node != head or self.readings[i].join}
        for node in nodes if head >= 0 else (*nodes, -1):
            found.update(below.get(node, ()))
        return [self.readings[i] for i in sorted(found)]

    @cached_property
    def _places(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """The readings at each node, and the readings of its children's tables; -1 stands above the roots."""
        at: dict[int, list[int]] = {}
        below: dict[int, list[int]] = {}
        for i, reading in enumerate(self.readings):
            at.setdefault(reading.node, []).append(i)
            if not reading.join:
                below.setdefault(self.tree.parent[reading.node], []).append(i)
        return at, below

    def is_joined(self, node: int) -> bool:
        """Whether anything comes from above a node: it has siblings, or a node above it has."""
        while (parent := self.tree.parent[node]) >= 0:
            if len(self.tree.children[parent - self.tree.n_leaves]) > 1:
                return True
            node = parent
        return False

    @cached_property
    def beyond(self) -> tuple[bool, ...]:
        """Whether anything is read from inside the subtree of a node, its own table aside."""
        own = [False] * len(self.tree.scopes)
        inside = [False] * len(self.tree.scopes)
        for reading in self.readings:
            if reading.join:
                inside[reading.node] = True
            else:
                own[reading.node] = True
        for j, kids in enumerate(self.tree.children):
            if any(own[c] or inside[c] for c in kids):
                inside[self.tree.n_leaves + j] = True
        return tuple(inside)
