"""Contraction trees: which functions are combined where, and which variables disappear there.

A bucket tree (Dechter 1999, Bucket elimination), a junction tree (Lauritzen and Spiegelhalter 1988) and a
contraction tree are the same structure; they differ only in how many inputs a node combines at once.

A cycle of four variables, eliminated in their order: the leaves are nodes 0 to 3, and node 4 combines the two functions
of variable 0 into a table over its neighbours. The last two variables go together.

>>> tree = bucket_tree((2, 2, 2, 2), [(0, 1), (1, 2), (2, 3), (0, 3)], order=(0, 1, 2, 3))
>>> tree.children
((0, 3), (1, 4), (2, 5))
>>> [sorted(scope) for scope in tree.scopes[4:]]
[[1, 3], [2, 3], []]
>>> [sorted(gone) for gone in tree.eliminated], tree.joined_cells
([[0], [1], [2, 3]], (8, 8, 4))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from math import log2, prod
from typing import Any

from ...tasks.steps.axes import REMEMBERED_SIZES, Sizes, alike, bits_of, mask_key, mask_of
from ...tasks.steps.caches import REMEMBERED
from ...tasks.steps.light_dataclass import dataclass

Target = tuple[int, ...]
"""Variables, ascending, of a requested joint belief."""


@dataclass(frozen=True)
class Tree:
    """A contraction forest: nodes 0..n_leaves-1 are the input functions, the others combine their children.

    A variable is eliminated at the lowest node whose subtree holds every function that has it.

    Parameters
    ----------
    dims : tuple of int
        Domain sizes by variable index.
    leaves : tuple of tuple of int
        Scopes of the input functions, each of distinct variables.
    children : tuple of tuple of int
        Node ``n_leaves + j`` combines the nodes ``children[j]`` (at least one); children precede parents.
    last : frozenset of int
        Variables that are eliminated after all others: only where a node joins no other variables.
    """

    dims: tuple[int, ...]
    leaves: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    last: frozenset[int] = frozenset()

    def resized(self, dims: tuple[int, ...]) -> Tree:
        """Return the same tree over variables of other sizes; results that depend only on scopes are reused."""
        tree = Tree(dims, self.leaves, self.children, self.last)
        for name in ("_masks", "scopes", "joined", "eliminated", "parent"):
            tree.__dict__[name] = getattr(self, name)
        fixed = [v for v, (old, new) in enumerate(zip(self.dims, dims, strict=True)) if old != new]
        if all(dims[v] == 1 for v in fixed):
            for name, masks in (("cells", self.scope_masks), ("joined_cells", self.joined_masks)):
                tree.__dict__[name] = cells_beside(getattr(self, name), masks, self.dims, fixed)
        return tree

    @property
    def n_leaves(self) -> int:
        """Number of input functions."""
        return len(self.leaves)

    @cached_property
    def scope_masks(self) -> tuple[int, ...]:
        """Scope of every node's table, as a bit set."""
        return self._masks[0]

    @cached_property
    def joined_masks(self) -> tuple[int, ...]:
        """Union of the children's scopes of every internal node, as a bit set."""
        return self._masks[1]

    @cached_property
    def scopes(self) -> tuple[frozenset[int], ...]:
        """Scope of the table that each node outputs."""
        return tuple([frozenset(bits_of(m)) for m in self.scope_masks])

    @cached_property
    def joined(self) -> tuple[frozenset[int], ...]:
        """For each internal node the union of its children's scopes: the variables that are swept."""
        return tuple([frozenset(bits_of(m)) for m in self.joined_masks])

    @cached_property
    def eliminated(self) -> tuple[frozenset[int], ...]:
        """For each internal node the variables that disappear there."""
        own = self.scope_masks[self.n_leaves :]
        return tuple([frozenset(bits_of(j & ~s)) for j, s in zip(self.joined_masks, own, strict=True)])

    @cached_property
    def is_acyclic(self) -> bool:
        """Whether each join has the variables of one of its inputs, so that no tree sweeps fewer cells.

        Some elimination order gives such buckets if, and only if, the scopes of the functions form an acyclic
        hypergraph (Beeri, Fagin, Maier and Yannakakis 1983, On the desirability of acyclic database schemes).
        """
        masks = self.scope_masks
        return all(
            any(masks[c] == join for c in kids) for kids, join in zip(self.children, self.joined_masks, strict=True)
        )

    @cached_property
    def parent(self) -> tuple[int, ...]:
        """Parent of each node, -1 for roots."""
        parent = [-1] * (self.n_leaves + len(self.children))
        for j, kids in enumerate(self.children):
            for c in kids:
                parent[c] = self.n_leaves + j
        return tuple(parent)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Nodes without a parent, in increasing order."""
        return tuple(i for i, p in enumerate(self.parent) if p < 0)

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """Cells of the table that each node outputs."""
        return tuple(map(sizer_of(self.dims).cells, self.scope_masks))

    @cached_property
    def joined_cells(self) -> tuple[int, ...]:
        """Cells that each internal node sweeps."""
        return tuple(map(sizer_of(self.dims).cells, self.joined_masks))

    @cached_property
    def schedule(self) -> tuple[int, ...]:
        """The internal nodes in a depth-first post-order that keeps the peak of live cells low.

        Children run in decreasing order of (peak - result), which is optimal among depth-first orders
        (Liu 1986, On the storage requirement in the out-of-core multifrontal method). Leaves are always there
        and cost nothing.
        """
        first = self.n_leaves
        result = self.cells[first:]
        peak: list[int] = []
        sequence: list[list[int]] = []
        for j, kids in enumerate(self.children):
            inner = [c - first for c in kids if c >= first]
            if len(inner) > 1:
                inner.sort(key=lambda c: result[c] - peak[c])
            held = highest = 0
            for c in inner:
                highest = max(highest, held + peak[c])
                held += result[c]
            peak.append(max(highest, held + result[j]))
            sequence.append(inner)
        out: list[int] = []
        tops = sorted((r - first for r in self.roots if r >= first), key=lambda r: -peak[r])
        stack = [(r, False) for r in reversed(tops)]
        while stack:
            j, ready = stack.pop()
            if ready or not sequence[j]:
                out.append(first + j)
            else:
                stack.append((j, True))
                # postorder without recursion, as trees are deep
                stack += [(c, False) for c in reversed(sequence[j])]
        return tuple(out)

    @cached_property
    def _masks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Scopes and joins: a table keeps the variables that some leaf outside its subtree has.

        The ``last`` variables stay in a table as long as it has other variables too. Each table counts the leaves below
        it by variable: bit sets of whole subtrees would need memory quadratic in the number of variables.
        """
        last = self.last
        everywhere: dict[int, int] = {}
        for leaf in self.leaves:
            for v in leaf:
                everywhere[v] = everywhere.get(v, 0) + 1
        inside: list[dict[int, int] | None] = [dict.fromkeys(leaf, 1) for leaf in self.leaves]
        scopes, joined = [*_leaf_masks(self.leaves)], []
        for kids in self.children:
            union = 0
            counts: dict[int, int] = {}
            for c in kids:
                union |= scopes[c]
                below = inside[c]
                inside[c] = None
                # the smaller dictionary is added to the larger one
                counts = _added(counts, below) if below else counts
            joined.append(union)
            gone = [v for v, count in counts.items() if count == everywhere[v]]
            if last and not last.issuperset(counts):
                gone = [v for v in gone if v not in last]
            for v in gone:
                del counts[v]
            scopes.append(union & ~mask_of(gone))
            inside.append(counts)
        return tuple(scopes), tuple(joined)


def _added(counts: dict[int, int], more: dict[int, int]) -> dict[int, int]:
    """Return the sums of counts by variable; the larger dictionary is changed."""
    if len(more) > len(counts):
        counts, more = more, counts
    for v, count in more.items():
        counts[v] = counts.get(v, 0) + count
    return counts


@lru_cache(maxsize=4)
def _leaf_masks(leaves: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Return the scopes of the leaves as bit sets; all trees of a network have the same."""
    return tuple([mask_of(leaf) for leaf in leaves])


def bucket_tree(dims: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int]) -> Tree:
    """Build the tree of bucket elimination: one node per variable, which combines its whole bucket (Dechter 1999).

    Variables without functions get no node. A variable that only occurs together with an earlier one is eliminated
    with it.

    Parameters
    ----------
    dims : sequence of int
        Number of states, by variable.
    scopes : sequence of sequence of int
        Variables of each function.
    order : sequence of int
        Elimination order.
    """
    masks = [mask_of(scope) for scope in scopes]
    # in the order in which they were made
    holders: list[dict[int, None]] = [{} for _ in dims]
    for i, scope in enumerate(scopes):
        for v in scope:
            holders[v][i] = None
    children: list[tuple[int, ...]] = []
    for v in order:
        kids = tuple(holders[v])
        if not kids:
            continue
        union = 0
        for i in kids:
            union |= masks[i]
            for u in bits_of(masks[i]):
                del holders[u][i]
        node = len(masks)
        message = 0
        for u in bits_of(union):
            if holders[u]:
                message |= 1 << u
                holders[u][node] = None
        masks.append(message)
        children.append(kids)
    return Tree(tuple(dims), tuple(tuple(s) for s in scopes), tuple(children))


def junction_tree(dims: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int]) -> Tree:
    """Build the tree of maximal cliques of an order."""
    return merged_cliques(bucket_tree(dims, scopes, order))


def merged_cliques(tree: Tree) -> Tree:
    """Merge each bucket of a tree that lies within the clique of a child with that child.

    Merging never raises the number of cells: the larger clique is swept anyway and the message between the
    two is never written (Kask, Dechter, Larrosa, Dechter 2005, Unifying tree decompositions).
    """
    first = tree.n_leaves
    kids = [list(c) for c in tree.children]
    joined = list(tree.joined_masks)
    gone = [False] * len(kids)
    for j in range(len(kids)):
        for c in [c for c in kids[j] if c >= first]:
            if joined[j] & ~joined[c - first] == 0:
                kids[j].remove(c)
                kids[j] += kids[c - first]
                joined[j] |= joined[c - first]
                gone[c - first] = True
    return build_tree(tree.dims, tree.leaves, {first + j: kids[j] for j in range(len(kids)) if not gone[j]})


def build_tree(
    dims: tuple[int, ...],
    leaves: tuple[tuple[int, ...], ...],
    kids: dict[int, Sequence[int]],
    last: frozenset[int] = frozenset(),
) -> Tree:
    """Number the internal nodes of ``kids`` (any ids >= the number of leaves) children first."""
    named: dict[int, int] = {}
    children: list[tuple[int, ...]] = []
    below = set(chain.from_iterable(kids.values()))
    stack = [node for node in reversed(kids) if node not in below]
    while stack:
        node = stack.pop()
        if node >= 0:
            stack.append(~node)  # once its inputs have their numbers
            stack += [c for c in reversed(kids[node]) if c in kids]
            continue
        named[~node] = len(leaves) + len(children)
        children.append(tuple(sorted([named.get(c, c) for c in kids[~node]])))
    return Tree(dims, leaves, tuple(children), last)


def elimination_order(tree: Tree) -> tuple[int, ...]:
    """Return the variables in the post-order of the tree, each exactly once; unused variables come last.

    Variables eliminated in the same node are grouped by the children that contain them, so that variables that always
    occur together are adjacent axes of every table.
    """
    order: list[int] = []
    first = tree.n_leaves
    for node in tree.schedule:
        kids, gone = tree.children[node - first], tree.eliminated[node - first]
        if len(gone) < 2:
            order += gone
            continue

        def pattern(v: int, kids: tuple[int, ...] = kids) -> int:
            return mask_of(i for i, c in enumerate(kids) if tree.scope_masks[c] >> v & 1)

        order += sorted(gone, key=lambda v: (pattern(v), v))
    seen = set(order)
    order += [v for v in range(len(tree.dims)) if v not in seen]
    return tuple(sorted(order, key=tree.last.__contains__) if tree.last else order)


# Sizes of sets of variables.


class Sizer:
    """Sizes of sets of variables given as bit sets."""

    def __init__(self, dims: Sequence[int]) -> None:
        self._classes = [(log2(d), mask) for d, mask in alike(dims).items() if d > 1]
        self.wide: int = sum(mask for _, mask in self._classes)
        """The variables of more than one state."""
        self.cells: Callable[[int], int] = Sizes(dims).__getitem__
        """Returns the exact size."""
        self._logs: dict[Hashable, float] = {}
        self._prices: dict[Hashable, dict[Any, Any]] = {}

    def log(self, mask: int) -> float:
        """Return the log2 size, counted once."""
        key = mask_key(mask)
        size = self._logs.get(key)
        return self._counted(mask, key) if size is None else size

    def _counted(self, mask: int, key: Hashable) -> float:
        if len(self._logs) >= REMEMBERED_SIZES:
            self._logs.clear()
        size = 0.0
        for each, members in self._classes:
            size += each * (mask & members).bit_count()
        self._logs[key] = size
        return size

    def prices(self, by: Hashable) -> dict[Any, Any]:
        """Return the prices of steps that are known by some rates; trees of one network have most steps in common."""
        if len(self._prices) >= REMEMBERED:
            self._prices.clear()
        found = self._prices.setdefault(by, {})
        if len(found) >= REMEMBERED_SIZES:
            found.clear()
        return found


def cells_beside(
    cells: Sequence[int], masks: Sequence[int], dims: Sequence[int], fixed: Collection[int]
) -> tuple[int, ...]:
    """Return the cells of tables (scopes as bit sets) if some variables are fixed.

    >>> cells_beside([6, 12], [0b11, 0b101], [2, 3, 6], [0])
    (3, 6)
    """
    within = mask_of(fixed)
    divisors = {0: 1}
    found = []
    for count, mask in zip(cells, masks, strict=True):
        inside = mask & within
        divisor = divisors.get(inside)
        if divisor is None:
            divisors[inside] = divisor = prod([dims[v] for v in bits_of(inside)])
        found.append(count // divisor)
    return tuple(found)


@lru_cache(maxsize=4)
def sizer_of(dims: tuple[int, ...]) -> Sizer:
    """Return the sizes of a network, which the prices of all its trees share: most of their tables are the same."""
    return Sizer(dims)
