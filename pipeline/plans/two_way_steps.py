"""The steps of both sweeps: the messages of a tree in both directions, and the tables that beliefs are read from. Pure.

The backward sweep is the adjoint of the forward one (Darwiche 2003, §4). The message from above a node is combined with
the node's other children, and reduced to the scope of each child:

    down[c] = Σ_{joined \\ scope(c)}  down[parent] ⊗ ∏_{siblings s} up[s]

so that ``up[c] ⊗ down[c]`` is the belief of a table's scope (Shafer and Shenoy 1990). No clique is stored.

Messages to leaves are computed too. The message to a leaf excludes the leaf's own table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf, prod
from typing import Any

from ...tasks.steps.axes import bits_of, mask_of
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.lowering import SMALL_CELLS
from ...tasks.steps.step import Step, make_step
from ..trees.layouts import choose_layouts
from ..trees.tree import Target, Tree, elimination_order
from .problem import Problem

# How the tables of a plan are numbered: nodes of the tree first, then what comes from above each, then the rest.


@dataclass(frozen=True)
class Numbering:
    """The numbers of tables over a tree.

    A node's table, a leaf or what its step makes on the way up, has the number of the node.

    >>> number = Numbering(5)
    >>> number.down(3), number.result(0)
    (8, 10)
    >>> number.is_up(3), number.is_down(8), number.node(8), number.node(3)
    (True, True, 3, 3)

    Parameters
    ----------
    nodes : int
        Of the tree, leaves included.
    """

    nodes: int

    def down(self, node: int) -> int:
        """Return the number of the message from above a node."""
        return self.nodes + node

    def result(self, index: int) -> int:
        """Number of a result or a stored belief."""
        return 2 * self.nodes + index

    def is_up(self, table: int) -> bool:
        """Whether a table is a node's own."""
        return table < self.nodes

    def is_down(self, table: int) -> bool:
        """Whether a table is what comes from above a node."""
        return self.nodes <= table < 2 * self.nodes

    def node(self, table: int) -> int:
        """Return the node of a table that is its own or comes from above it."""
        return table % self.nodes


# A belief of two variables with fewer cells is not stored, because it is read faster from its parts.
_WORTH_STORING = 256


@dataclass(frozen=True)
class TargetReading:
    """Targets that are read from the belief of a node's table, or from the join of a node's inputs."""

    node: int
    join: bool
    targets: tuple[tuple[int, ...], ...]


def table_layouts(tree: Tree) -> tuple[tuple[int, ...], ...]:
    """Choose the axis order of every table; where all are small, reverse elimination order is as good as any."""
    if max(tree.cells, default=1) > SMALL_CELLS:
        return choose_layouts(tree, elimination_order(tree))
    return ordered_layouts(tree)


def ordered_layouts(tree: Tree) -> tuple[tuple[int, ...], ...]:
    """Put the axes of all tables in one order: reverse elimination order, so that what a step eliminates is last."""
    rank, latest = [0] * len(tree.dims), 0
    for joined, scope in zip(tree.joined_masks, tree.scope_masks[tree.n_leaves :], strict=True):
        for v in bits_of(joined & ~scope):
            latest -= 1
            rank[v] = latest
    return tuple([tuple(sorted(scope, key=rank.__getitem__)) for scope in tree.scopes])


def choose_readings(tree: Tree, targets: Sequence[tuple[int, ...]]) -> tuple[TargetReading, ...]:
    """Choose the cheapest place for each target.

    A place is a message joined with the message from above. Variables that only leaves contain are read at the join
    above such a leaf, which saves the message to the leaf.

    Parameters
    ----------
    tree : Tree
    targets : sequence of tuple of int
        Sets of variables whose beliefs are wanted.

    Returns
    -------
    tuple of TargetReading
        A place with the targets that are read there.
    """
    first, parent = tree.n_leaves, tree.parent
    price, place = list(tree.cells), [(node, False) for node in range(len(parent))]
    for leaf in range(first):
        if parent[leaf] >= 0:
            price[leaf], place[leaf] = tree.joined_cells[parent[leaf] - first], (parent[leaf], True)
    # the cheapest place of each variable, and for several variables the cheapest place that contains them all
    best: list[int] = [-1] * len(tree.dims)
    least: list[float] = [inf] * len(tree.dims)
    for node, scope in enumerate(tree.scopes):
        of_node = price[node]
        for v in scope:
            if of_node < least[v]:
                least[v], best[v] = of_node, node
    masks = tree.scope_masks
    holders: dict[int, list[int]] = {target[0]: [] for target in targets if len(target) > 1}
    for v, nodes in holders.items():
        nodes += [node for node, mask in enumerate(masks) if mask >> v & 1]
    found: dict[tuple[int, bool], list[tuple[int, ...]]] = {}
    for target in targets:
        node = best[target[0]]
        if len(target) > 1:
            together = mask_of(target)
            nodes = [each for each in holders[target[0]] if not together & ~masks[each]]
            node = min(nodes, key=price.__getitem__)
        assert node >= 0, "a target that no function contains"
        found.setdefault(place[node], []).append(target)
    return tuple([TargetReading(node, join, tuple(wanted)) for (node, join), wanted in found.items()])


class StepBuilder:
    """Lowers steps, keeping the axes of every table; those in ``lowered`` are not lowered again."""

    def __init__(
        self,
        tree: Tree,
        layouts: Sequence[tuple[int, ...]],
        problem: Problem,
        lowered: dict[tuple[Any, ...], Step] | None = None,
    ) -> None:
        self.tree = tree
        self.problem = problem
        self.sizes = tree.dims
        self.axes: dict[int, tuple[int, ...]] = dict(enumerate(layouts))
        self.results: dict[tuple[int, ...], int] = {}
        self._layouts = layouts
        self.number, self._made = Numbering(len(layouts)), 0
        self._lowered = lowered
        # messages from above each node; a root has none
        self.above: dict[int, tuple[int, ...]] = dict.fromkeys(tree.roots, ())

    def step(self, node: int, inputs: tuple[int, ...], axes: tuple[int, ...]) -> Step:
        """Lower one step."""
        self.axes[node] = axes
        joined = tuple([self.axes[i] for i in inputs])
        key, semiring = (node, inputs, joined, axes), self.problem.semiring
        if self._lowered is None:
            return make_step(*key, self.sizes, semiring)
        if key not in self._lowered:
            self._lowered[key] = make_step(*key, self.sizes, semiring)
        return self._lowered[key]

    def forward(self, node: int) -> Step:
        """The step of an internal node."""
        return self.step(node, self.tree.children[node - self.tree.n_leaves], self._layouts[node])

    def backward(
        self, readings: Sequence[TargetReading], tops: Sequence[int] | None = None, ends: Collection[int] = ()
    ) -> Iterator[Step]:
        """Messages from above, depth first, each subtree with its readings; only what a reading or an end needs.

        Parameters
        ----------
        tops : sequence of int, optional
            Nodes to begin at, with known ``above``; the roots by default.
        ends : collection of int
            Nodes to which messages are made too, each a table in the axes of the node's own.
        """
        tree, first = self.tree, self.tree.n_leaves
        at: dict[int, list[TargetReading]] = {}
        for reading in readings:
            at.setdefault(reading.node, []).append(reading)
        tops = tree.roots if tops is None else tops
        load = self._load({*at, *ends}, frozenset(tops))
        stack = [r for r in tops if r in load]
        while stack:
            node = stack.pop()
            if node not in self.above:
                yield from self._down(node, end=node in ends)
            for reading in at.get(node, ()):
                yield from self._read(reading)
            if node >= first:
                below = [c for c in tree.children[node - first] if c in load]
                # the last to be pushed runs first: small subtrees, so that what they hold is gone soon
                stack += sorted(below, key=lambda c: -load[c])

    def _load(self, wanted: Collection[int], tops: frozenset[int]) -> dict[int, int]:
        """Count the nodes below each node, itself included, that something is wanted at, up to the tops."""
        parent = self.tree.parent
        load = dict.fromkeys(wanted, 1)
        above: set[int] = set()
        for node in wanted:
            while node not in tops and (node := parent[node]) >= 0 and node not in above:
                above.add(node)
        for node in sorted({*wanted, *above}):  # children first
            if node not in tops and (up := parent[node]) >= 0:
                load[up] = load.get(up, 0) + load[node]
        return load

    def _down(self, node: int, *, end: bool) -> Iterator[Step]:
        """Make the message from above a node. An only child uses its parent's message, unless it is an end."""
        parent = self.tree.parent[node]
        siblings = tuple([c for c in self.tree.children[parent - self.tree.n_leaves] if c != node])
        inputs = (*self.above[parent], *siblings)
        self.above[node] = self.above[parent]
        if siblings or (end and inputs):
            self.above[node] = (self.number.down(node),)
            axes = self._layouts[node]
            if node < self.tree.n_leaves or self.problem.last:
                # the message from above lacks a variable that only this node has: of a leaf, or kept to the last
                held = {v for i in inputs for v in self.axes[i]}
                axes = tuple([v for v in axes if v in held])
            yield self.step(self.number.down(node), inputs, axes)

    def _read(self, reading: TargetReading) -> Iterator[Step]:
        tables = self.tree.children[reading.node - self.tree.n_leaves] if reading.join else (reading.node,)
        inputs = (*self.above[reading.node], *tables)
        if len(reading.targets) > 1 < len(inputs):
            union = tuple(dict.fromkeys([v for i in inputs for v in self.axes[i]]))
            cells = prod([self.sizes[v] for v in union])
            if cells <= SMALL_CELLS and (len(reading.targets) > 2 or cells > _WORTH_STORING):
                stored = self._result()
                yield self.step(stored, inputs, union)
                inputs = (stored,)
        for target in reading.targets:
            self.results[target] = self._result()
            yield self.step(self.results[target], inputs, target)

    def _result(self) -> int:
        """Return the number of another result."""
        self._made += 1
        return self.number.result(self._made - 1)


Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LeafMessages:
    """The steps of both sweeps.

    Parameters
    ----------
    tree : Tree
    layouts : tuple of tuple of int
        Axis order of every node's table.
    up, back : tuple of Step
    results : dict of tuple of int to int
        The table of the belief of each target.
    leaving : dict of int to (int, tuple of int) or None
        For some leaves, the table of the message from all other leaves, and its axes: the leaf's axes that occur in
        another table. None for a leaf that nothing is joined to.
    """

    tree: Tree
    layouts: tuple[Axes, ...]
    up: tuple[Step, ...]
    back: tuple[Step, ...]
    results: Mapping[Target, int]
    leaving: Mapping[int, tuple[int, Axes] | None]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        return (*self.up, *self.back)

    def root(self, node: int) -> int:
        """Return the root above a node, itself if there is none."""
        while self.tree.parent[node] >= 0:
            node = self.tree.parent[node]
        return node


def leaf_messages(tree: Tree, problem: Problem, ends: Sequence[int]) -> LeafMessages:
    """Lower both sweeps, with the beliefs of a problem's targets and the messages to some leaves."""
    layouts = table_layouts(tree)
    builder = StepBuilder(tree, layouts, problem)
    up = tuple([builder.forward(node) for node in tree.schedule])
    back = tuple(builder.backward(choose_readings(tree, problem.targets or ()), ends=frozenset(ends)))
    leaving: dict[int, tuple[int, Axes] | None] = {}
    for end in ends:
        tables = builder.above[end]
        leaving[end] = (tables[0], builder.axes[tables[0]]) if tables else None
    return LeafMessages(tree, layouts, up, back, builder.results, leaving)
