"""From an elimination order to a refined contraction tree.

The order's buckets are joined pairwise. A variable is summed out as soon as no other table has it. The binary tree is
rearranged locally. Steps are then merged if this is cheaper than writing the table between them.

All searches share the trees and forests of a network that do not depend on rates.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ...tasks.steps.axes import bits_of, mask_of
from ...tasks.steps.light_dataclass import dataclass
from ..trees.costs import Rates, least_seconds, step_prices
from ..trees.tree import Sizer, Tree, bucket_tree, build_tree, merged_cliques, sizer_of

if TYPE_CHECKING:
    from .subtree_dp import Binary


@dataclass(frozen=True)
class FunctionGroups:
    """Input functions in groups; the first function of a group represents it, because it includes the scopes of the
    others.

    ``private`` are variables that no other unit has; they are summed out before anything else.
    """

    members: tuple[tuple[int, ...], ...]
    masks: tuple[int, ...]
    private: tuple[int, ...]


@dataclass
class Forest:
    """A binary contraction forest over units; node ``len(units)+j`` joins ``kids[j]``.

    A virtual node is not stored: the step above reads its inputs.
    """

    masks: list[int]
    kids: list[tuple[int, int]]
    virtual: list[bool]


def group_units(n_variables: int, scopes: Sequence[Sequence[int]]) -> FunctionGroups:
    """Attach every function to one whose scope includes its own; functions of no variable are left out."""
    masks = [mask_of(s) for s in scopes]
    holders: list[list[int]] = [[] for _ in range(n_variables)]
    members: dict[int, list[int]] = {}
    for i in sorted(range(len(masks)), key=lambda i: -masks[i].bit_count()):
        if not masks[i]:
            continue
        rarest = min(scopes[i], key=lambda v: len(holders[v]))
        host = next((h for h in holders[rarest] if masks[i] & ~masks[h] == 0), None)
        if host is not None:
            members[host].append(i)
            continue
        members[i] = [i]
        for v in scopes[i]:
            holders[v].append(i)
    private = [mask_of(v for v in scopes[i] if len(holders[v]) == 1) for i in members]
    groups = tuple(tuple(g) for g in members.values())
    return FunctionGroups(groups, tuple(masks[i] & ~p for i, p in zip(members, private, strict=True)), tuple(private))


class _ForestJoiner:
    """Builds a forest by joining tables; a variable is summed out when no other table has it."""

    def __init__(self, units: FunctionGroups, sizer: Sizer, n_variables: int) -> None:
        self.forest = Forest(list(units.masks), [], [False] * len(units.masks))
        self.holders: list[set[int]] = [set() for _ in range(n_variables)]
        self._sizer = sizer
        for i, mask in enumerate(units.masks):
            for v in bits_of(mask):
                self.holders[v].add(i)

    def join(self, tables: Iterable[int]) -> int:
        """Join tables in pairs: the smallest table with the table that gives the smallest result."""
        masks, log = self.forest.masks, self._sizer.log
        left = sorted([(log(masks[i]), i) for i in tables])
        while len(left) > 1:
            _, a = left.pop(0)
            mask = masks[a]
            best, at = (inf, -1), 0
            for position, one in enumerate(left):
                if one[0] > best[0]:
                    break  # a join is no smaller than its parts
                both = log(mask | masks[one[1]]), one[1]
                if both < best:
                    best, at = both, position
                    if best == one:
                        break
            del left[at]
            node = self._join_pair(a, best[1])
            insort(left, (log(masks[node]), node))
        return left[0][1]

    def _join_pair(self, a: int, b: int) -> int:
        forest, holders = self.forest, self.holders
        node, union = len(forest.masks), forest.masks[a] | forest.masks[b]
        keep = union
        for u in bits_of(union):
            holding = holders[u]
            holding.discard(a)
            holding.discard(b)
            if holding:
                holding.add(node)
            else:
                keep ^= 1 << u
        forest.masks.append(keep)
        forest.kids.append((a, b))
        forest.virtual.append(keep == union)
        return node


def pairwise_forest(units: FunctionGroups, sizer: Sizer, n_variables: int, order: Sequence[int]) -> Forest:
    """Join the buckets of an order two tables at a time."""
    joiner = _ForestJoiner(units, sizer, n_variables)
    for v in order:
        if joiner.holders[v]:
            joiner.join(joiner.holders[v])
    return joiner.forest


def split_steps(tree: Tree, units: FunctionGroups, sizer: Sizer) -> Forest:
    """Turn the steps of a tree into joins of two tables; functions go where the one they belong to goes."""
    joiner = _ForestJoiner(units, sizer, len(tree.dims))
    unit_of = {members[0]: u for u, members in enumerate(units.members)}
    table: dict[int, int | None] = {i: unit_of.get(i) for i in range(tree.n_leaves)}
    for j, kids in enumerate(tree.children):
        inputs = [t for t in (table[c] for c in kids) if t is not None]
        table[tree.n_leaves + j] = joiner.join(inputs) if inputs else None
    return joiner.forest


def forest_tree(forest: Forest, units: FunctionGroups, dims: Sequence[int], scopes: Sequence[Sequence[int]]) -> Tree:
    """Turn a binary forest into a tree of k-ary steps: virtual joins dissolve into the step above."""
    n_leaves, first = len(scopes), len(units.members)
    below = {c for pair in forest.kids for c in pair}

    def inputs(node: int) -> list[int]:
        """List what a step reads in place of a node."""
        if node < first:
            return [n_leaves + node] if units.private[node] else list(units.members[node])
        if forest.virtual[node]:
            return [i for c in forest.kids[node - first] for i in inputs(c)]
        return [n_leaves + node]

    kids: dict[int, Sequence[int]] = {}
    for u in range(first):
        if units.private[u] or u not in below:
            kids[n_leaves + u] = units.members[u]
    for j, pair in enumerate(forest.kids):
        if not forest.virtual[first + j]:
            kids[n_leaves + first + j] = [i for c in pair for i in inputs(c)]
    return build_tree(tuple(dims), tuple(tuple(s) for s in scopes), kids)


def merge_steps(tree: Tree, sizer: Sizer, rates: Rates, itemsize: int) -> Tree:
    """Merge a step into the step above it wherever this lowers the predicted seconds.

    ``T = A·B`` and then ``U = T·C`` become ``U = A·B·C``: T is neither written nor read, and the merged step
    eliminates the variables of both.

    Parameters
    ----------
    tree : Tree
    sizer : Sizer
        Cells of sets of variables.
    rates : Rates
    itemsize : int
        Bytes of a cell.
    """
    first = tree.n_leaves
    masks, joined = tree.scope_masks, list(tree.joined_masks)
    kids = [list(c) for c in tree.children]
    step = step_prices(sizer, rates, itemsize)

    def seconds(inputs: list[int], node: int) -> float:
        return step([masks[i] for i in inputs], masks[node])[1]

    price = [seconds(kids[j], first + j) for j in range(len(kids))]
    merged: dict[int, Sequence[int]] = {}
    for j in range(len(kids)):
        refused = set[tuple[float, int, int]]()
        for c in sorted((c for c in kids[j] if c >= first), key=lambda c: -price[c - first]):
            apart, union = price[j] + price[c - first], joined[j] | joined[c - first]
            if least_seconds(sizer.cells(union), rates) >= apart:
                continue
            # Pricing a merge reads all inputs of the step. For similar children, one refusal is enough.
            alike = price[c - first], sizer.cells(union), len(kids[c - first])
            if alike in refused:
                continue
            rest = [i for i in kids[j] if i != c] + kids[c - first]
            together = seconds(rest, first + j)
            if together < apart:
                kids[j], price[j], joined[j] = rest, together, union
                del merged[c]
                refused.clear()
            else:
                refused.add(alike)
        merged[first + j] = kids[j]
    return build_tree(tree.dims, tree.leaves, merged)


class Rearranger:
    """Local search on one binary forest: exact rearrangement of subtrees of growing size.

    Attributes
    ----------
    seconds : float
        Predicted time of the whole forest now.
    changed : bool
        Whether it was rearranged since it was last asked for.
    """

    #: (inputs of a subtree, how it is grown), in the order in which they are tried.
    MOVES = ((6, 0), (8, 1), (8, 2), (9, 0), (10, 1), (9, 2))
    #: Inputs of a subtree and of a random kick, once the moves find no more.
    KICKS = (6, 6)
    MOST_INPUTS = 10
    #: Arrays of a tree that its rearrangement changes.
    CHANGED = ("kids", "parent", "masks", "virtual", "seconds", "reads", "size")

    def __init__(self, forest: Forest, dims: Sequence[int], rates: Rates, itemsize: int, seed: int) -> None:
        from . import local_moves, subtree_dp

        self._kernel, self._price = local_moves, subtree_dp.PRICE
        self.first = len(forest.masks) - len(forest.kids)
        self.tree = _binary(forest, dims, rates, itemsize)
        self._choice = subtree_dp.new_choice(self.MOST_INPUTS, self.tree.masks.shape[1])
        self.seed = seed
        self.changed = True
        self._move = self._vain = 0
        self._rearrange(self.tree, 0, self._price, 0, 0)

    def _rearrange(self, best: Binary, k: int, how: int, kick: int, max_work: int) -> tuple[float, int]:
        marks = self._kernel.new_marks(len(self.tree.kids), self.MOST_INPUTS)
        marks.clean[:] = kick > 0
        saved, work = self._kernel.rearrange(
            self.tree, best, self.first, k, how, kick, self.seed, max_work, marks, self._choice
        )
        return float(saved), int(work)

    @property
    def seconds(self) -> float:
        """Predicted seconds of all steps."""
        return float(self.tree.seconds.sum())

    def run(self, max_work: int) -> int:
        """Rearrange until about ``max_work`` splits have been looked at; return how many were."""
        spent = 0
        if len(self.tree.kids) <= self.first + 1:
            return spent
        self.changed = True
        while spent < max_work and self._vain < len(self.MOVES):
            k, how = self.MOVES[self._move % len(self.MOVES)]
            self.seed += 1
            saved, work = self._rearrange(self.tree, k, how, 0, max_work - spent)
            spent += work + len(self.tree.kids)
            if saved < 1e-3 * self.seconds:
                self._move += 1
                self._vain += 1
            else:
                self._vain = 0
        if spent < max_work:
            self.seed += 1
            k, kick = self.KICKS
            best = self.tree._replace(**{name: getattr(self.tree, name).copy() for name in self.CHANGED})
            spent += self._rearrange(best, k, 0, kick, max_work - spent)[1]
        return spent

    def forest(self) -> Forest:
        """Return the current forest."""
        t = self.tree
        self.changed = False
        data, width = t.masks.tobytes(), t.masks.itemsize * t.masks.shape[1]
        masks = [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]
        kids = [(a, b) for a, b in t.kids[self.first :].tolist()]
        return Forest(masks, kids, t.virtual.tolist())


def _binary(forest: Forest, dims: Sequence[int], rates: Rates, itemsize: int) -> Binary:
    """Lay a forest out in arrays.

    Parameters
    ----------
    rates : Rates
        Rates of a core; the overhead of a step is converted to seconds per cell, for values of ``itemsize`` bytes.

    Returns
    -------
    Binary
        Over n nodes: kids (n, 2) and parent (n,), int64, -1 for none; masks (n, words), uint64; virtual (n,), bool;
        seconds, reads and sizes (n,), float64, not priced yet; log2 of the domain sizes, float64, padded to 64 a word.
    """
    from .subtree_dp import Binary

    n, first = len(forest.masks), len(forest.masks) - len(forest.kids)
    words = len(dims) // 64 + 1
    data = b"".join(m.to_bytes(8 * words, "little") for m in forest.masks)
    kids = np.full((n, 2), -1, dtype=np.int64)
    parent = np.full(n, -1, dtype=np.int64)
    if forest.kids:
        kids[first:] = forest.kids
        parent[kids[first:]] = np.arange(first, n)[:, np.newaxis]
    logs = np.zeros(64 * words)
    # sizes are multiplied by adding their logarithms, which do not overflow
    logs[: len(dims)] = np.log2(np.asarray(dims, dtype=np.float64))
    per = [
        1 / rates.cells_per_second,
        1 / rates.matmul_cells_per_second,
        itemsize / rates.bytes_per_second,
        rates.step_seconds,
        1 + rates.read_share,
    ]
    return Binary(
        kids,
        parent,
        np.frombuffer(data, dtype=np.uint64).reshape(n, words).copy(),
        np.array(forest.virtual, dtype=np.bool_),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n),
        logs,
        np.array(per),
    )


class Starts:
    """Results of a network's orders that do not depend on rates; searches of one network share them."""

    def __init__(self, dims: Sequence[int], scopes: Sequence[Sequence[int]]) -> None:
        self.dims: tuple[int, ...] = tuple(dims)
        self.scopes: tuple[tuple[int, ...], ...] = tuple([tuple(scope) for scope in scopes])
        self.sizer: Sizer = sizer_of(self.dims)
        self._buckets: dict[tuple[int, ...], Tree] = {}
        self._cliques: dict[tuple[int, ...], Tree] = {}
        self._forests: dict[tuple[int, ...], Forest] = {}
        self._trees: dict[tuple[int, ...], Tree] = {}
        self._merged: dict[tuple[tuple[int, ...], Rates, int], Tree] = {}

    @cached_property
    def units(self) -> FunctionGroups:
        """Functions that go together."""
        return group_units(len(self.dims), self.scopes)

    def buckets(self, order: tuple[int, ...]) -> Tree:
        """Return the tree of an order's buckets."""
        if order not in self._buckets:
            self._buckets[order] = bucket_tree(self.dims, self.scopes, order)
        return self._buckets[order]

    def cliques(self, order: tuple[int, ...]) -> Tree:
        """Return the tree of an order's maximal cliques."""
        if order not in self._cliques:
            self._cliques[order] = merged_cliques(self.buckets(order))
        return self._cliques[order]

    def pairwise(self, order: tuple[int, ...]) -> Forest:
        """Return the pairwise forest of an order."""
        if order not in self._forests:
            self._forests[order] = pairwise_forest(self.units, self.sizer, len(self.dims), order)
        return self._forests[order]

    def pairwise_tree(self, order: tuple[int, ...]) -> Tree:
        """Return the tree of the pairwise forest of an order."""
        if order not in self._trees:
            self._trees[order] = forest_tree(self.pairwise(order), self.units, self.dims, self.scopes)
        return self._trees[order]

    def merged(self, order: tuple[int, ...], rates: Rates, itemsize: int) -> Tree:
        """Return the same with steps merged where that is cheaper by some rates."""
        key = order, rates, itemsize
        if key not in self._merged:
            self._merged[key] = merge_steps(self.pairwise_tree(order), self.sizer, rates, itemsize)
        return self._merged[key]
