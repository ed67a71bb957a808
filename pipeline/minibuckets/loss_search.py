"""Marginal MAP by AND/OR search: find the states with the least loss against the bound of mini-buckets.

The value of an assignment is the bound minus the losses of its states. The messages of the mini-buckets give the loss
of each state of a maximised variable, given the states that its tables read. A split sum has a loss too. This loss is
known once all variables that the sum reads are assigned. The sum is then computed exactly (Marinescu, Lee, Dechter and
Ihler, AND/OR search for marginal MAP, JAIR 2018). ``tasks/search/loss_tree.py`` has the compiled search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.working_time import LOOK_SECONDS
from ..orders.depth_first import bucket_parents
from .joins import BucketPolicy
from .mixed_bound import MiniNode, MixedBound

# Maximum number of cached exact sums. With 350 variables they take 50 MB.
_KNOWN_SUMS: Final = 1 << 15

Array = NDArray[Any]


class ExactSums(Protocol):
    """Exact sums over parts of the summed variables; no two parts share a function."""

    @property
    def parts(self) -> Sequence[Collection[int]]:
        """The functions of each part, by their places in the network."""
        ...

    def part(self, number: int, states: Mapping[int, int]) -> float:
        """Return ln of the sum of a part at states of the maximised variables that it reads."""
        ...


@dataclass(frozen=True, eq=False)
class SplitSum:
    """A component of the summed variables with split buckets.

    Parameters
    ----------
    number : int
        Number of the part.
    reads : tuple of int
        Maximised variables that the sum reads.
    messages : tuple of MiniNode
        The nodes whose messages bound the sum, together with ``top``.
    top : float
    """

    number: int
    reads: tuple[int, ...]
    messages: tuple[MiniNode, ...]
    top: float

    def loss(self, states: Mapping[int, int], exact: float) -> float:
        """Return the difference of the bound and the exact sum, as natural logarithms."""
        if exact == -math.inf:
            return math.inf
        above = [float(node.up[tuple([states[v] for v in node.mini.message])]) for node in self.messages]
        return max(self.top + math.fsum(above) - exact, 0.0)


class LossSearch:
    """A search for the states with the least loss, which resumes where it was stopped.

    Parameters
    ----------
    mixed : MixedBound
        The bound after its passes.
    sums : ExactSums or None
        Exact sums; None if they take too long, so that losses of split sums are unknown.
    known : dict
        Cached exact sums of the same network, by part and states. The search adds more.
    memory_bytes : int
        Memory for the cache of the search.

    Attributes
    ----------
    lost : float
        Minimum loss of any state against the bound.
    finished : bool
    """

    def __init__(
        self, mixed: MixedBound, sums: ExactSums | None, known: dict[tuple[int, bytes], float], memory_bytes: int
    ) -> None:
        from ...tasks.search.loss_tree import new_loss_state, new_memory

        self.mixed, self.sums, self._known = mixed, sums, known
        self.lost, self.finished, self._compiled = 0.0, False, False
        self._split = () if sums is None else tuple(_split_sums(mixed, sums))
        self._nodes, self._tree, words = _laid_out(mixed, self._split)
        self._reads = [np.array([self._nodes.index(v) for v in split.reads], dtype=np.int64) for split in self._split]
        self._bytes, self._pace = memory_bytes, 1 << 10
        self._entry_bytes = 8 * words + 33
        # the cache must hold the path to the root, which may have an entry for each node
        entries = max(BucketPolicy.current().first_entries, 4 * len(self._nodes))
        self._memory = new_memory(1 << (entries - 1).bit_length(), words)
        self._state = new_loss_state(self._tree, words)

    def run(self, limit: float, until: float) -> bool:
        """Search until states with a loss below ``limit`` are found or excluded, or until the time ``until``.

        Returns
        -------
        bool
            Whether states with a loss below ``limit`` may exist.
        """
        from ...tasks.search.loss_tree import ASKED, CROWDED, FINISHED, SOLVED, explore

        eager, state = BucketPolicy.current().eager_loss, self._state
        self._begin(limit)
        code, told = -1, -1.0
        while code != FINISHED and time.perf_counter() < until:
            start = time.process_time()
            code = explore(self._tree, self._memory, state, self._pace, eager, told, False)
            told = self._asked() if code == ASKED else -1.0
            if code == ASKED:
                continue
            if code == CROWDED:
                self._grow()
            elif time.process_time() - start < LOOK_SECONDS:
                self._pace *= 2
        if code != FINISHED:
            explore(self._tree, self._memory, state, 0, eager, told, True)
        self.lost = max(self.lost, float(state.root[0]))
        self.finished = code == FINISHED
        return not self.finished or bool(state.numbers[SOLVED])

    def compile(self) -> None:
        """Compile or load all loops of the search.

        Raises
        ------
        NotCompiledError
            If the loops would not be compiled in the remaining time.
        """
        from ...tasks.search.loss_tree import move, new_memory

        if not self._compiled:
            move(self._memory, new_memory(1, self._memory.words.shape[1]), self._state, 1 << 62)
            self.best_states()
            self.run(0.0, 0.0)
        self._compiled = True

    @property
    def bound(self) -> float:
        """Upper bound of the value of every assignment, a natural logarithm."""
        return self.mixed.best - self.lost

    def best_states(self) -> dict[int, int]:
        """Return the states of the maximised variables with the least known loss."""
        from ...tasks.search.loss_tree import descend

        descend(self._tree, self._memory, self._state)
        return {v: int(self._state.states[n]) for n, v in enumerate(self._nodes) if v >= 0}

    def _begin(self, limit: float) -> None:
        from ...tasks.search.loss_tree import DEPTH, SOLVED, VISITS

        numbers = self._state.numbers
        numbers[DEPTH], numbers[SOLVED] = 0, 0
        self._state.limits[0], self._state.begun[0] = limit, numbers[VISITS]

    def _asked(self) -> float:
        """Return the loss of the split sum that the compiled search requests."""
        from ...tasks.search.loss_tree import SUM

        state = self._state
        place = -1 - self._nodes[int(state.numbers[SUM])]
        split, found = self._split[place], state.states[self._reads[place]]
        states = dict(zip(split.reads, found.tolist(), strict=True))
        key = (split.number, found.astype(np.int32).tobytes())
        if (exact := self._known.get(key)) is None:
            assert self.sums is not None
            exact = self.sums.part(split.number, states)
            if len(self._known) < _KNOWN_SUMS:
                self._known[key] = exact
        return split.loss(states, exact)

    def _grow(self) -> None:
        """Double the cache, or drop the half of its entries that took the least work."""
        from ...tasks.search.loss_tree import move, new_memory

        old = self._memory
        entries, words = old.words.shape
        fits = 3 * entries * self._entry_bytes <= self._bytes
        self._memory = new_memory(2 * entries if fits else entries, words)
        move(old, self._memory, self._state, -1 if fits else int(np.median(old.work[old.owners > 0])))


def _split_sums(mixed: MixedBound, sums: ExactSums) -> Iterator[SplitSum]:
    """Yield the parts whose bound is not exact."""
    made = dict(zip(mixed.split.order, mixed.buckets, strict=True))
    scopes = mixed.split.scopes
    for number, leaves in enumerate(sums.parts):
        variables = {v for leaf in leaves for v in scopes[leaf]}
        inner = variables.difference(mixed.maximized)
        if all(len(made[v]) < 2 for v in inner):
            continue
        nodes = [node for v in inner for node in made[v]]
        kept = [node for node in nodes if node.above is None or node.above.mini.variable not in inner]
        top = math.fsum([node.top for node in nodes])
        yield SplitSum(number, tuple(sorted(variables.intersection(mixed.maximized))), tuple(kept), top)


def _laid_out(mixed: MixedBound, split: Sequence[SplitSum]) -> tuple[list[int], Any, int]:
    """Lay the AND/OR search tree out as arrays.

    A node without a variable has a negative number: ``-1 - k`` for split sum ``k``, and the root ``-1 - len(split)``.

    Parameters
    ----------
    mixed : MixedBound
        Messages of the mini-buckets.
    split : sequence of SplitSum
        The sums that were split.

    Returns
    -------
    list of int, LossTree, int
        The variable of each node, the tree of losses, and the words of its longest context.
    """
    from ...tasks.search.loss_tree import LossTree

    dims = mixed.split.dims
    nodes, children = _depth_first(mixed, split)
    place = {v: n for n, v in enumerate(nodes)}
    minis = {v: bucket for v, bucket in zip(mixed.split.order, mixed.buckets, strict=True) if v in mixed.maximized}
    tables = [[*minis.get(v, ())] for v in nodes]
    contexts: list[set[int]] = [set() for _ in nodes]
    # a context holds the ancestors that the subtree depends on: children first
    for n in reversed(range(len(nodes))):
        if -len(split) <= nodes[n] < 0:
            contexts[n] = {place[v] for v in split[-1 - nodes[n]].reads}
        for node in tables[n]:
            contexts[n].update([place[v] for v in node.mini.message])
        contexts[n].update(*[contexts[child] for child in children[n]])
        contexts[n].discard(n)
    sizes = [dims[v] if v >= 0 else int(v < -len(split)) for v in nodes]
    keys, words = [], 1
    for context in contexts:
        found, used = _packed(sorted(context), sizes)
        keys.append(found)
        words = max(words, used)
    flat = [node for own in tables for node in own]
    losses = [_losses(node) for node in flat]
    axes = [_axes(node, place) for node in flat]
    tree = LossTree(
        sizes=np.array(sizes, dtype=np.int64),
        children=_ends(children),
        child=np.array([c for own in children for c in own], dtype=np.int64),
        tables=_ends(tables),
        table=_ends(losses),
        axes=_ends(axes),
        axis=_rows([row for own in axes for row in own], 2),
        keys=_ends(keys),
        key=_rows([row for own in keys for row in own], 3),
        losses=np.concatenate([np.zeros(0), *losses]),
    )
    return nodes, tree, words


def _depth_first(mixed: MixedBound, split: Sequence[SplitSum]) -> tuple[list[int], list[list[int]]]:
    """Return the variables of a pseudo-tree depth first, sums below the last variable that they read, and children."""
    order, maximized = mixed.split.order, mixed.maximized
    rank = {v: k for k, v in enumerate(order)}
    made = sum(map(len, mixed.buckets))
    scopes = mixed.split.scopes[: len(mixed.split.scopes) - made]
    parents, _ = bucket_parents(len(mixed.split.dims), scopes, order)
    root, below = -1 - len(split), dict[int, list[int]]()
    for number, own in enumerate(split):
        below.setdefault(min(own.reads, key=rank.__getitem__, default=root), []).append(-1 - number)
    for v in order:
        if v in maximized:
            below.setdefault(parents[v] if parents[v] >= 0 else root, []).append(v)
    nodes: list[int] = []
    children: list[list[int]] = []
    stack = [(root, -1)]
    while stack:
        v, above = stack.pop()
        if above >= 0:
            children[above].append(len(nodes))
        stack.extend([(u, len(nodes)) for u in reversed(below.get(v, ()))])
        nodes.append(v)
        children.append([])
    return nodes, children


def _losses(node: MiniNode) -> Array:
    """Return the loss of each state of a mini-bucket's variable against its bound, flat; infinite if impossible."""
    with np.errstate(invalid="ignore"):
        lost = (node.up + node.top)[..., None] - node.joined
    found: Array = np.where(np.isneginf(node.joined), np.inf, np.maximum(lost, 0.0)).reshape(-1)
    return found


def _axes(node: MiniNode, place: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return node and stride of all axes but the last."""
    strides = np.cumprod([1, *node.joined.shape[:0:-1]])[:0:-1].tolist()
    return [(place[v], stride) for v, stride in zip(node.mini.message, strides, strict=True)]


def _packed(context: Sequence[int], sizes: Sequence[int]) -> tuple[list[tuple[int, int, int]], int]:
    """Return node, word and shift of each node of a context, and how many words there are."""
    found, word, shift = [], 0, 0
    for n in context:
        bits = max(1, (sizes[n] - 1).bit_length())
        if shift + bits > 62:  # contexts are packed into words of an int64
            word, shift = word + 1, 0
        found.append((n, word, shift))
        shift += bits
    return found, word + 1


def _ends(rows: Sequence[Any]) -> Array:
    """Return the start of each part, and the end of the last one."""
    return np.cumsum([0, *map(len, rows)], dtype=np.int64)


def _rows(rows: Sequence[tuple[int, ...]], size: int) -> Array:
    return np.array(rows, dtype=np.int64).reshape(-1, size)
