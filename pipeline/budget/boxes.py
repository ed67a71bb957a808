"""Cutting one stage of a plan out of core into boxes that fit the budget.

A box fixes some variables of the stage's output; inside the box, the stage is an ordinary sweep. Parts without the
fixed variables are read or computed again in every box, so variables that occur in most of the stage are fixed first.

Where no such box fits, or much is done again, boxes may fix variables that the stage eliminates as well: each box
writes its share of the output, which is as large as what it is a share of, and the reader adds the shares up.

The way back passes the stages of an out-of-core plan in the other order.

On the way up, a stage reads the tables of the stages below it and writes the table at its head. On the way back it
reads these tables again, with the message from above its head, and writes the message from above to each of them.
Inside a box this is ordinary two-way propagation, with the upward messages recomputed. Only tables between stages are
therefore stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import log2, prod
from operator import mul
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.axes import bits_of, mask_of
from ...tasks.steps.number_limits import CELL_BYTES, SAME_SHARE, ordered_sum
from ...tasks.steps.step import Step
from ...tasks.sweeps.sweep import freed_tables
from ..errors import BudgetError, enough_bytes, format_bytes, format_count
from ..orders.effort import OUTLINE_SECONDS, TABLE_SECONDS
from ..plans.plan import lowered_step
from ..plans.planner import Planner
from ..plans.problem import Problem, sliced_dims
from ..plans.stages import Stage
from ..plans.two_way_steps import Numbering, StepBuilder, TargetReading
from ..trees.costs import lowered_seconds
from ..trees.memory import Sizing, leaf_bytes, sweep_peak, table_bytes
from ..trees.tree import Tree, elimination_order
from .budget_policy import BudgetPolicy


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


# More boxes than this cost more to keep account of than they save.
_MOST_BOXES: Final = 1 << 16
# Maximum fraction of a stage or a plan that is ignored: this work may be repeated in every box. It decides neither the
# order of a stage's variables nor whether a table is stored.
REPEATED_SHARE: Final = 0.02
# A chunk is 1 / this of the budget, because it is compressed in memory as a whole, and each chunk is a file;
# minimum and maximum bytes of a chunk.
_CHUNK_SHARE: Final = 32

# Bytes of tables inside boxes, and what a box needs at least, before its steps are lowered for its sizes. Pure.
#
# A cycle of four variables of ten states: the first of two messages has 100 values of 8 bytes, and loses its axis of
# ten where boxes fix one of its variables.
#
# >>> from bucketflow.pipeline.trees.tree import bucket_tree
# >>> tables = Tables(bucket_tree((10,) * 4, ((0, 1), (1, 2), (2, 3), (0, 3)), order=(0, 1, 2, 3)), itemsize=8)
# >>> [tables.inside(boxed)[4] for boxed in ((), (1,), (2,))]
# [800, 80, 800]

# Tables are as large as this power of 2 times what there is, at most: sums of more would lose small ones.
_MOST_LOG = 2.0


class Inside(dict[int, int]):
    """Bytes of the tables of a tree inside boxes that fix some variables."""

    def __init__(self, tree: Tree, itemsize: int, boxed: Sequence[int]) -> None:
        super().__init__()
        self._tree, self._itemsize, self._mask = tree, itemsize, mask_of(boxed)
        self._divisors = {0: 1}

    def __missing__(self, node: int) -> int:
        common = self._tree.scope_masks[node] & self._mask
        divisor = self._divisors.get(common)
        if divisor is None:
            divisor = self._divisors[common] = prod([self._tree.dims[v] for v in bits_of(common)])
        size = self[node] = self._tree.cells[node] * self._itemsize // divisor
        return size


@dataclass(frozen=True)
class StageTables:
    """The tables of a tree divided into stages."""

    tree: Tree
    itemsize: int

    def inside(self, boxed: Sequence[int]) -> Inside:
        """Return the bytes of tables inside boxes."""
        return Inside(self.tree, self.itemsize, boxed)

    def leaves_of(self, steps: Sequence[Step]) -> set[int]:
        """Return the leaves that some steps read."""
        first = self.tree.n_leaves
        return {i for step in steps for i in step.inputs if i < first}

    @cached_property
    def _holders(self) -> list[list[int]]:
        """The tables that have a variable."""
        found: list[list[int]] = [[] for _ in self.tree.dims]
        for node, scope in enumerate(self.tree.scopes):
            for v in scope:
                found[v].append(node)
        return found

    @cached_property
    def _logs(self) -> NDArray[np.float64]:
        """log2 of the bytes of each table."""
        return np.array([log2(cells) for cells in self.tree.cells]) + log2(self.itemsize)

    def fewest_boxed(
        self,
        head: int,
        steps: Sequence[Step],
        inputs: Sequence[int],
        candidates: Sequence[int],
        available: int,
    ) -> int:
        """Return how many of the candidates, in their order, boxes have to fix at least, all of them if none fits.

        Parameters
        ----------
        available : int
            Bytes of a box for its inputs, its tables and its output, for any lowering of its steps.
        """
        if not candidates:
            return 0
        nodes, leaves = [step.node for step in steps], self.leaves_of(steps)
        tables = [*nodes, *leaves, *inputs]
        size = self._sizes(tables, candidates, available)
        made, rest = size[: len(nodes)], size[len(nodes) :]
        place = {node: i for i, node in enumerate(nodes)}
        gone = [(i, place[node]) for i, freed in enumerate(freed_tables(steps, ())) for node in freed if node in place]
        # one column per number of fixed candidates: the peak is the running sum of built tables minus freed tables
        freed = np.zeros_like(made)
        at, which = np.array(gone, dtype=np.intp).reshape(-1, 2).T
        np.add.at(freed, at, made[which])
        peak = (np.cumsum(made, axis=0) - np.cumsum(freed, axis=0) + freed).max(axis=0)
        read = rest[len(leaves) :]
        moving = read.sum(axis=0) + 2 * read.max(axis=0, initial=0.0)
        if head >= 0:
            moving = np.maximum(moving, made[place[head]])
        needed = peak + rest.sum(axis=0) + moving
        fits = np.flatnonzero(needed <= available * (1 + SAME_SHARE))
        return int(fits[0]) if len(fits) else len(candidates)

    def _sizes(self, tables: Sequence[int], candidates: Sequence[int], available: int) -> NDArray[np.float64]:
        """Bytes of tables by the number of candidates that are fixed."""
        dims = self.tree.dims
        place = {table: i for i, table in enumerate(tables)}
        logs = np.zeros((len(tables), len(candidates) + 1))
        logs[:, 0] = self._logs[tables]
        for k, v in enumerate(candidates, 1):
            logs[[place[table] for table in self._holders[v] if table in place], k] = -log2(dims[v])
        most = log2(max(available, 1)) + _MOST_LOG
        return np.exp2(np.minimum(np.cumsum(logs, axis=1), most))


@dataclass(frozen=True)
class StageMaker:
    """Makes stages of a tree.

    Parameters
    ----------
    layouts : sequence of tuple of int
        Axis order of every node's table.
    disk_rate : float
        Bytes per second, to weigh reading against computing.
    way_back : WayBack, optional
        Way back, which must fit too if beliefs are requested.
    shares : bool
        Whether boxes may fix variables that their stage eliminates.
    """

    planner: Planner
    tree: Tree
    layouts: Sequence[tuple[int, ...]]
    disk_rate: float
    way_back: WayBack | None = None
    shares: bool = False
    _lowered: dict[tuple[int, int], Step] = field(default_factory=dict)

    @property
    def available(self) -> int:
        """Bytes for the tables of one task."""
        return self.planner.memory_bytes - self.planner.problem.model_bytes - BudgetPolicy.current().margin_bytes

    @property
    def chunk_limit(self) -> int:
        """Bytes that a chunk should not exceed."""
        policy = BudgetPolicy.current()
        low, high = policy.chunk_bytes
        return min(max(self.available // _CHUNK_SHARE, low), high)

    @cached_property
    def rank(self) -> dict[int, int]:
        """Root-most variables first: they stay the longest."""
        return {v: i for i, v in enumerate(reversed(elimination_order(self.tree)))}

    @cached_property
    def tables(self) -> StageTables:
        """The tables of the tree."""
        return StageTables(self.tree, self.planner.problem.itemsize)

    @cached_property
    def whole(self) -> Inside:
        """Bytes of every table."""
        return self.tables.inside(())

    def axes_bytes(self, axes: Collection[int], sizes: Sequence[int]) -> int:
        """Bytes of a table with some axes."""
        return table_bytes(sizes, axes, self.planner.problem.itemsize)

    def step(self, node: int, boxed: Iterable[int] = ()) -> Step:
        """Lower a node's step for the sizes inside a box."""
        mask = self.tree.joined_masks[node - self.tree.n_leaves] & sum(1 << v for v in boxed)
        if (node, mask) not in self._lowered:
            sizes, problem = sliced_dims(self.tree.dims, boxed), self.planner.problem
            inputs = self.tree.children[node - self.tree.n_leaves]
            axes = tuple(self.layouts[i] for i in inputs)
            self._lowered[node, mask] = lowered_step(node, inputs, axes, self.layouts[node], sizes, problem)
        return self._lowered[node, mask]

    def seconds(self, steps: Sequence[Step]) -> float:
        """Predict the computation of one box."""
        return ordered_sum(lowered_seconds(s, self.planner.rates, self.planner.problem.itemsize) for s in steps)

    def stage(self, head: int, nodes: Sequence[int], inputs: tuple[int, ...], preferred: Sequence[int]) -> Stage:
        """Fix variables one by one until a box fits.

        Parameters
        ----------
        preferred : sequence of int
            Variables that the boxes of the reader fix.

        Raises
        ------
        BudgetError
            If the smallest box does not fit.
        """
        candidates = self.candidates(head, nodes, inputs, preferred)
        boxes = list(accumulate([self.tree.dims[v] for v in candidates], mul, initial=1))
        most = next((n for n, count in enumerate(boxes) if count > _MOST_BOXES), len(candidates))
        self.planner.effort.spend(OUTLINE_SECONDS * len(nodes))
        steps, available = [self.step(n) for n in nodes], self.available - self.all_leaves
        fewest = self.tables.fewest_boxed(head, steps, inputs, candidates[:most], available)
        for count in range(fewest, most + 1):
            boxed = tuple(candidates[:count])
            stage = self.boxed_stage(head, nodes, inputs, boxed, self.chunked(head, boxed, preferred))
            if stage.peak_bytes <= self.available:
                return stage
        raise self.refusal(stage)

    def candidates(
        self, head: int, nodes: Sequence[int], inputs: tuple[int, ...], preferred: Sequence[int]
    ) -> list[int]:
        """Return the variables that boxes may fix, with variables of all large tables of the stage first."""
        tree, dims = self.tree, self.tree.dims
        work = {n: self.seconds([self.step(n)]) for n in nodes}
        reading = {i: self.whole[i] / self.disk_rate for i in inputs}
        joined = {n: tree.joined[n - tree.n_leaves] for n in nodes}
        scope = tree.scopes[head] if head >= 0 else frozenset[int]()
        own = frozenset().union(*joined.values()) if head < 0 or self.shares else scope
        total = ordered_sum(work.values()) + ordered_sum(reading.values())

        divided, share = dict.fromkeys(own, 0.0), REPEATED_SHARE
        for each, seconds in ((joined, work), ({i: tree.scopes[i] for i in inputs}, reading)):
            for n, variables in each.items():
                for v in variables & own:
                    divided[v] += seconds[n]
        sharing = 2 * self.whole[head] / self.disk_rate if head >= 0 else 0.0

        def order(v: int) -> tuple[float, bool, bool, int]:
            shared = head >= 0 and v not in scope
            repeated = total - divided[v] + (sharing if shared else 0.0)
            return repeated if repeated > share * total else 0.0, shared, v not in preferred, self.rank[v]

        return sorted((v for v in own if dims[v] > 1), key=order)

    def chunked(self, head: int, boxed: Sequence[int], preferred: Sequence[int]) -> frozenset[int]:
        """Variables along which the output is cut: the writer's, the reader's, and more while chunks are large."""
        if head < 0:
            return frozenset()
        scope = self.tree.scopes[head]
        cut = {*boxed, *(v for v in preferred if v in scope)}
        for v in self.layouts[head]:
            if self.tables.inside(tuple(cut))[head] <= self.chunk_limit:
                break
            cut.add(v)
        return frozenset(v for v in cut if self.tree.dims[v] > 1)

    def boxed_stage(
        self, head: int, nodes: Sequence[int], inputs: tuple[int, ...], boxed: tuple[int, ...], chunked: frozenset[int]
    ) -> Stage:
        """Make the stage with the given boxes, whether or not it fits.

        Parameters
        ----------
        head : int
            Node whose table the stage writes, -1 for the roots.
        nodes : sequence of int
            Its internal nodes, children first.
        inputs : tuple of int
            Heads of the stages that it reads.
        boxed, chunked : collection of int
            Variables that a box fixes, and along which the output is cut.

        Returns
        -------
        Stage
            With the bytes of one box while it computes, while its tables move, and at the worst moment: also while it
            is decoded, or on the way back.
        """
        self.planner.effort.spend(2 * TABLE_SECONDS * len(nodes))
        steps = tuple(self.step(n, boxed) for n in nodes)
        inside = self.tables.inside(boxed)
        read = sum([inside[i] for i in inputs])
        leaves = self.all_leaves + self.leaves_bytes(steps, inside)
        computing = leaves + read + sweep_peak(steps, self.sizing(boxed), ())
        moving, chunk = read + self.transit(inputs, inside), 0
        if head >= 0:
            chunk = self.tables.inside(tuple(chunked))[head]
            moving = max(moving, inside[head] + 2 * chunk)
        peak = computing + moving
        if self.planner.options.decode:
            # decoding knows the states of the scope of the output
            fixed = tuple({*self.tree.scopes[head], *boxed}) if head >= 0 else boxed
            peak = max(peak, self.decoding_peak([self.step(n, fixed) for n in nodes], inputs, boxed, fixed))
        if self.way_back is not None:
            peak += self.way_back.result_bytes
            if peak <= self.available:
                back = self.way_back.stage(head, nodes, inputs, boxed)
                self.planner.effort.spend(2 * TABLE_SECONDS * len(back.steps))
                peak = max(peak, self.back_peak(back))
        return Stage(
            head=head,
            steps=steps,
            boxed=boxed,
            inputs=inputs,
            outputs={head: head} if head >= 0 else {},
            roots=self.tree.roots if head < 0 else (),
            chunked=chunked,
            computing_bytes=computing,
            moving_bytes=moving,
            peak_bytes=peak,
        )

    def sizing(self, fixed: Iterable[int]) -> Sizing:
        """Return the inputs of the byte formulas for steps with some variables fixed."""
        sizes = sliced_dims(self.tree.dims, fixed)
        return Sizing(sizes, self.planner.problem.itemsize, self.planner.options.threads, self.planner.options.device)

    def back_peak(self, stage: Stage) -> int:
        """Return the bytes of a box on the way back: its input tables, its own tables, and one outgoing table."""
        assert self.way_back is not None
        inside, number = self.tables.inside(stage.boxed), Numbering(len(self.tree.scopes))
        read = [inside[number.node(i)] for i in stage.inputs]
        # the message from above is a sum of partial results: one more of them, stored and unpacked
        transit = 2 * max(read, default=0)
        written = 2 * max((inside[number.node(i)] for i in stage.outputs), default=0)
        sizing = self.sizing(stage.boxed)
        found = 3 * found_bytes(stage, sizing.sizes)
        made = sweep_peak(stage.steps, sizing, (*stage.results.values(), *stage.roots))
        leaves = self.all_leaves + self.leaves_bytes(stage.steps, inside)
        return leaves + sum(read) + max(transit, made + max(written, found)) + self.way_back.result_bytes

    def decoding_peak(
        self, steps: Sequence[Step], inputs: tuple[int, ...], boxed: Sequence[int], fixed: Sequence[int]
    ) -> int:
        """Bytes of sweeping a stage again with the variables above it fixed, all messages kept."""
        inside = self.tables.inside(fixed)
        leaves = self.all_leaves + self.leaves_bytes(steps, self.whole) + self.leaves_bytes(steps, inside)
        read = sum([inside[i] for i in inputs]) + self.transit(inputs, self.tables.inside(boxed))
        return leaves + read + sweep_peak(steps, self.sizing(fixed), [s.node for s in steps])

    @cached_property
    def all_leaves(self) -> int:
        """Bytes of the leaves of all stages with all states, which stay as long as the run."""
        return leaf_bytes(self.tree, self.tree.dims, self.planner.problem.itemsize)

    def transit(self, inputs: tuple[int, ...], inside: Inside) -> int:
        """Bytes of a chunk on its way in: as it is stored, and unpacked; a chunk is at most a box of its reader."""
        return 2 * max([inside[i] for i in inputs], default=0)

    def leaves_bytes(self, steps: Sequence[Step], inside: Inside) -> int:
        """Bytes of the leaves that the steps read."""
        return sum([inside[i] for i in self.tables.leaves_of(steps)])

    def refusal(self, stage: Stage) -> BudgetError:
        """Return the error that names the largest step of a stage that does not fit, its smallest box, and the
        available memory.
        """
        margin = BudgetPolicy.current().margin_bytes
        cells = max(self.step(s.node).lowered.cells for s in stage.steps)
        memory, model = self.planner.memory_bytes, self.planner.problem.model_bytes
        least = stage.peak_bytes + model + margin
        if self.available <= 0:
            return BudgetError(
                f"a run with tables on disk needs {enough_bytes(least)} of memory, allowed {format_bytes(memory)}: "
                f"{format_bytes(margin)} in reserve, {format_bytes(model)} for the model, and "
                f"{format_bytes(stage.peak_bytes)} for the smallest box of a step; give --memory of at least "
                f"{enough_bytes(least)}, or another --fit"
            )
        return BudgetError(
            f"the step of {format_count(cells)} cell{'s' if cells > 1 else ''} needs {format_bytes(stage.peak_bytes)} "
            f"for its smallest box, allowed {format_bytes(self.available)}: of {format_bytes(memory)} in all "
            f"the model takes {format_bytes(model)} and a margin {format_bytes(margin)}; try --memory of at "
            f"least {enough_bytes(least)} or a longer --order-time"
        )


def found_bytes(stage: Stage, sizes: Sequence[int]) -> int:
    """Bytes of the weights and beliefs that a box with the given sizes inside finds."""
    return sum(prod(sizes[v] for v in target) + 1 for target in stage.results) * CELL_BYTES
