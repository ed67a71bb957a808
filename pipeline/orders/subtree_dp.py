"""Exact re-arrangement of small subtrees of a binary contraction tree, compiled with Numba.

A subtree of k tables is replaced by the cheapest binary tree over the same k tables, by dynamic programming over all
3^k / 2 splits (Lam, Sadayappan and Wenger 1997, On optimizing a class of multi-dimensional loops with reductions for
parallel execution). The cost of a split needs only three numbers. For a set S of the tables, let touched(S) be the log2
size over the variables of its tables, and private(S) the log2 size over the variables that occur neither in another
table nor above the subtree. Joining A and B to S sweeps 2^(touched(S) - private(A) - private(B)) cells.

A join that eliminates nothing need not be written: it may stay *virtual*, its inputs being read by the
step above. So a chain of virtual joins is one step with many inputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.jit import njit
from ...tasks.steps.lowering import SMALL_CELLS
from ...tasks.steps.products import LEAST
from .greedy_orders import random_unit, trailing_zeros

_ONE = np.uint64(1)
_HUGE_LOG = 900.0
_SHORT, _LONG, _DEPTH = min(LEAST[:2]), max(LEAST[:2]), LEAST[2]

#: Ways to grow a subtree from its top; the last one only prices a tree.
BREADTH, LARGEST, RANDOM, PRICE = range(4)


class Binary(NamedTuple):
    """A binary contraction tree as arrays over its nodes; the tables 0..first-1 are given.

    ``masks`` are the scopes as bit sets. ``seconds`` is the predicted time of each step (0 if virtual). ``reads`` is
    the number of cells that a step reads when the node is its input. ``logs`` are the log2 domain sizes. ``rates`` are
    the seconds per cell, per cell of a product, per cell moved and per step, and the extra cost of reading three tables
    instead of two.
    """

    kids: NDArray[np.int64]
    parent: NDArray[np.int64]
    masks: NDArray[np.uint64]
    virtual: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    reads: NDArray[np.float64]
    size: NDArray[np.float64]
    logs: NDArray[np.float64]
    rates: NDArray[np.float64]


class SubtreeChoice(NamedTuple):
    """Tables of the dynamic programme, indexed by sets of subtree inputs as bit patterns; and working memory for a
    tree.

    ``sets`` is by inner nodes of a subtree, ``above`` as long as a bit set of variables.
    """

    private: NDArray[np.float64]
    shared: NDArray[np.float64]
    shrink: NDArray[np.float64]
    size: NDArray[np.float64]
    cost: NDArray[np.float64]
    reads: NDArray[np.float64]
    lazy: NDArray[np.bool_]
    split: NDArray[np.int64]
    sets: NDArray[np.int64]
    above: NDArray[np.uint64]


@njit(cache=True, nogil=True, inline="always")
def split_seconds(
    cells: float, left: float, right: float, out: float, moved: float, plain: bool, rates: NDArray[np.float64]
) -> float:
    """Predict a step of two inputs, stored tables if ``plain``, else of three or more."""
    arithmetic = cells * rates[0]
    if not plain:
        arithmetic *= rates[4]
    elif cells > SMALL_CELLS and cells >= max(_DEPTH * out, _SHORT * max(left, right), _LONG * min(left, right)):
        arithmetic = cells * rates[1] + moved * rates[0]
    seconds: float = rates[3] + max(arithmetic, moved * rates[2])
    return seconds


@njit(nogil=True)
def log_size(masks: NDArray[np.uint64], a: int, b: int, logs: NDArray[np.float64]) -> float:
    """Sum the log2 domain sizes of two bit sets together, 1000 at most."""
    total = 0.0
    for w in range(masks.shape[1]):
        bits = masks[a, w] | masks[b, w]
        while bits:
            total += logs[w * 64 + np.int64(trailing_zeros(bits))]
            bits &= bits - _ONE
    return min(total, 1000.0)


@njit(nogil=True)
def _price(t: Binary, i: int) -> None:
    """Predict the step of node i from its children; ``virtual`` is already decided."""
    a, b = t.kids[i, 0], t.kids[i, 1]
    t.size[i] = np.exp2(log_size(t.masks, i, i, t.logs))
    moved = t.reads[a] + t.reads[b]
    if t.virtual[i]:
        t.seconds[i], t.reads[i] = 0.0, moved
        return
    cells = np.exp2(log_size(t.masks, a, b, t.logs))
    plain = not (t.virtual[a] or t.virtual[b])
    t.seconds[i] = split_seconds(cells, t.size[a], t.size[b], t.size[i], moved + t.size[i], plain, t.rates)
    t.reads[i] = t.size[i]


@njit(nogil=True)
def price_tree(t: Binary, first: int) -> None:
    """Price every node, children first; joins that eliminate nothing start virtual."""
    for i in range(t.kids.shape[0]):
        if i < first:
            t.size[i] = np.exp2(log_size(t.masks, i, i, t.logs))
            t.reads[i] = t.size[i]
            continue
        t.virtual[i] = t.parent[i] >= 0
        for w in range(t.masks.shape[1]):
            if t.masks[i, w] != t.masks[t.kids[i, 0], w] | t.masks[t.kids[i, 1], w]:
                t.virtual[i] = False
        _price(t, i)


@njit(nogil=True)
def grow(
    t: Binary,
    first: int,
    top: int,
    k: int,
    how: int,
    state: NDArray[np.uint64],
    frontier: NDArray[np.int64],
    inner: NDArray[np.int64],
) -> tuple[int, int]:
    """Collect up to ``k`` tables below ``top``; return the numbers of tables and of inner nodes.

    Parameters
    ----------
    first : int
        Number of given tables.
    how : int
        Which table is replaced by its two inputs next: ``BREADTH`` the first, ``LARGEST`` the largest, ``RANDOM`` any;
        virtual ones, which are not stored, always.
    state : ndarray, shape (1,), uint64
        Of the random numbers.
    frontier, inner : ndarray, shape (k,), int64
        Receive the tables, and the nodes between them and ``top``, which is the first.
    """
    frontier[0], frontier[1] = t.kids[top, 0], t.kids[top, 1]
    inner[0] = top
    count, used = 2, 1
    while count < k:
        at, best = -1, -1.0
        for i in range(count):
            node = frontier[i]
            if node < first:
                continue
            if t.virtual[node]:
                at = i
                break
            rating = 1.0 / (1.0 + i)
            if how == LARGEST:
                rating = t.seconds[node]
            elif how == RANDOM:
                rating = random_unit(state)
            if rating > best:
                at, best = i, rating
        if at < 0:
            break
        node = frontier[at]
        inner[used] = node
        used += 1
        if how == BREADTH:
            # a queue: the children go behind the others
            for i in range(at, count - 1):
                frontier[i] = frontier[i + 1]
            frontier[count - 1] = t.kids[node, 0]
        else:
            frontier[at] = t.kids[node, 0]
        frontier[count] = t.kids[node, 1]
        count += 1
    return count, used


@njit(nogil=True)
def patterns(t: Binary, top: int, frontier: NDArray[np.int64], count: int, choice: SubtreeChoice) -> None:
    """Sum the log2 sizes of variables by the set of tables that contain them.

    Parameters
    ----------
    t : Binary
    top : int
        The node above all tables.
    frontier : int64 array, shape (count,)
        The tables.
    count : int
    choice : SubtreeChoice
        ``private[s]`` and ``shared[s]`` receive the log2 size of all variables that occur only in tables of the set
        ``s``: variables that are eliminated below ``top``, and variables of its scope.
    """
    private, shared = choice.private, choice.shared
    for s in range(1 << count):
        private[s], shared[s] = 0.0, 0.0
    for w in range(t.masks.shape[1]):
        union = np.uint64(0)
        for i in range(count):
            union |= t.masks[frontier[i], w]
        while union:
            bit = trailing_zeros(union)
            union &= union - _ONE
            pattern = 0
            for i in range(count):
                if (t.masks[frontier[i], w] >> bit) & _ONE:
                    pattern |= 1 << i
            weight = t.logs[w * 64 + np.int64(bit)]
            if (t.masks[top, w] >> bit) & _ONE:
                shared[pattern] += weight
            else:
                private[pattern] += weight
    for i in range(count):
        # sums over subsets, one bit at a time (zeta transform)
        for s in range(1 << count):
            if s >> i & 1:
                private[s] += private[s ^ (1 << i)]
                shared[s] += shared[s ^ (1 << i)]


@njit(nogil=True)
def best_splits(choice: SubtreeChoice, count: int, bound: float, rates: NDArray[np.float64]) -> int:
    """Fill the tables of the dynamic programme over sets of tables; return the splits looked at.

    ``cost``, ``reads`` and ``lazy`` of the single tables are given. The programme tries all splits of a set into two
    (as in Selinger et al. 1979 for joins): 3^count in all, without the splits that cannot be better than ``bound``.

    Parameters
    ----------
    choice : SubtreeChoice
        Arrays over the 2^count sets; changed in place.
    bound : float
        Seconds that the subtree takes now.
    rates : ndarray, shape (5,), float64
        As in :class:`Binary`.
    """
    private, shared, size, shrink = choice.private, choice.shared, choice.size, choice.shrink
    cost, reads, lazy, split = choice.cost, choice.reads, choice.lazy, choice.split
    full = (1 << count) - 1
    total = private[full] + shared[full]
    huge = total > _HUGE_LOG
    for s in range(full + 1):
        shrink[s] = np.exp2(-private[s])
    work = 0
    for s in range(1, full + 1):
        rest = full ^ s
        touched = total - private[rest] - shared[rest]
        size[s] = np.exp2(min(touched - private[s], 1000.0))
        low = s & -s
        others = s ^ low
        if others == 0:
            continue
        cost[s], reads[s], lazy[s], split[s] = np.inf, size[s], False, 0
        if size[s] * rates[2] > bound and s != full:
            continue
        swept = 0.0 if huge else np.exp2(touched)
        cheapest, least, least_reads, least_split = bound, bound, 0.0, 0
        part = others
        while part:
            part = (part - 1) & others
            a, b = part | low, others ^ part
            work += 1
            before = cost[a] + cost[b]
            if before >= cheapest:
                continue
            if huge:
                cells = np.exp2(min(touched - private[a] - private[b], 1000.0))
            else:
                cells = swept * shrink[a] * shrink[b]
            moved = reads[a] + reads[b]
            plain = not (lazy[a] or lazy[b])
            price = before + split_seconds(cells, size[a], size[b], size[s], moved + size[s], plain, rates)
            if price < cheapest:
                cheapest, split[s] = price, a
            # nothing eliminated: the join may stay virtual
            if private[s] - private[a] - private[b] < 1e-9 and before + moved * rates[2] < least:
                least, least_reads, least_split = before + moved * rates[2], moved, a
        if cheapest < bound:
            cost[s] = cheapest
        if s != full and least < cheapest + size[s] * rates[2]:
            cost[s], reads[s], lazy[s] = least - least_reads * rates[2], least_reads, True
            split[s] = least_split
    return work


@njit(nogil=True)
def replace(
    t: Binary, frontier: NDArray[np.int64], inner: NDArray[np.int64], count: int, choice: SubtreeChoice
) -> None:
    """Write the best splits into the tree, reusing the ids of the inner nodes.

    Parameters
    ----------
    t : Binary
        Changed in place: kids, parents, scopes, and what is priced of them.
    frontier, inner : ndarray, shape (count,) and (count - 1,), int64
        The tables, and the nodes above them; ``inner[0]`` is the top.
    choice : SubtreeChoice
        Of :func:`best_splits`, for the same tables.
    """
    sets, above = choice.sets, choice.above
    for w in range(t.masks.shape[1]):
        above[w] = t.masks[inner[0], w]
    sets[0] = (1 << count) - 1
    used = 1
    for i in range(count - 1):
        s, node = sets[i], inner[i]
        for side in range(2):
            part = choice.split[s] if side == 0 else s ^ choice.split[s]
            if part & (part - 1) == 0:
                child = frontier[np.int64(trailing_zeros(np.uint64(part)))]
            else:
                child = inner[used]
                sets[used] = part
                used += 1
            t.kids[node, side] = child
            t.parent[child] = node
        for w in range(t.masks.shape[1]):
            inside, outside = np.uint64(0), above[w]
            for f in range(count):
                if s >> f & 1:
                    inside |= t.masks[frontier[f], w]
                else:
                    outside |= t.masks[frontier[f], w]
            # a variable stays in scope if tables on both sides have it
            t.masks[node, w] = inside & outside
        t.virtual[node] = choice.lazy[s]
    for i in range(count - 2, -1, -1):
        _price(t, inner[i])


def new_choice(k: int, words: int) -> SubtreeChoice:
    """Allocate the tables for up to ``k`` inputs, with bit sets of ``words`` words."""
    n = 1 << k
    private, shared, shrink, size, cost, reads = np.empty((6, n))
    lazy, split = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.int64)
    sets, above = np.empty(k, dtype=np.int64), np.empty(words, dtype=np.uint64)
    return SubtreeChoice(private, shared, shrink, size, cost, reads, lazy, split, sets, above)
