"""Local search over binary contraction trees, compiled with Numba.

Subtrees are rearranged exactly, the dearest first, until none gets cheaper (Gray and Kourtis 2021,
Hyper-optimized tensor network contraction); then small random kicks lead out of the local optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.jit import njit
from .greedy_orders import GOLDEN, random_unit
from .subtree_dp import (
    BREADTH,
    LARGEST,
    PRICE,
    RANDOM,
    Binary,
    SubtreeChoice,
    best_splits,
    grow,
    patterns,
    price_tree,
    replace,
)


class Marks(NamedTuple):
    """Marks of the nodes of a tree, and working memory.

    ``clean[i]`` marks that nothing near node i has changed since an unsuccessful attempt. ``changed[i]`` marks that the
    node differs from the last saved state. The rest is working memory: waiting nodes, their ranks, and whether they
    wait or waited, all of shape (n,), and the tables and inner nodes of a subtree.
    """

    clean: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    before: NDArray[np.bool_]
    queued: NDArray[np.bool_]
    queue: NDArray[np.int64]
    rank: NDArray[np.float64]
    frontier: NDArray[np.int64]
    inner: NDArray[np.int64]
    state: NDArray[np.uint64]


def new_marks(n: int, k: int) -> Marks:
    """Return marks of n nodes, none of them clean, with working memory for subtrees of up to k tables."""
    clean, changed, before, queued = np.zeros((4, n), dtype=np.bool_)
    queue, frontier, inner = (np.empty(size, dtype=np.int64) for size in (n, k, k))
    return Marks(clean, changed, before, queued, queue, np.empty(n), frontier, inner, np.empty(1, dtype=np.uint64))


@njit(nogil=True)
def _rearranged(t: Binary, count: int, levels: int, marks: Marks) -> None:
    """Mark the nodes of a subtree that was replaced, and its nearest ancestors as worth looking at again."""
    for i in range(count - 1):
        marks.clean[marks.inner[i]] = False
        marks.changed[marks.inner[i]] = True
    for i in range(count):
        marks.changed[marks.frontier[i]] = True
    node = marks.inner[0]
    for _ in range(levels):
        node = t.parent[node]
        if node < 0:
            return
        marks.clean[node] = False


@njit(nogil=True)
def _dirty(t: Binary, first: int, marks: Marks) -> int:
    """Rank all nodes, and put those that are not clean into the queue, most expensive first; return their number."""
    rank, queue = marks.rank, marks.queue
    count = 0
    for node in range(rank.shape[0]):
        rank[node] = t.seconds[node]
        marks.queued[node] = not marks.clean[node]
        if node >= first and not marks.clean[node]:
            queue[count] = node
            count += 1
    gap = count // 2
    while gap > 0:  # Shell 1959: most queues are short
        for i in range(gap, count):
            node, at = queue[i], i
            while at >= gap and rank[queue[at - gap]] < rank[node]:
                queue[at] = queue[at - gap]
                at -= gap
            queue[at] = node
        gap = 1 if gap == 2 else gap * 5 // 11
    return count


@njit(nogil=True)
def _insert(marks: Marks, at: int, count: int, node: int) -> int:
    """Let a node wait behind place ``at`` of the queue if its turn is still to come; return how many are in it."""
    queue, rank = marks.queue, marks.rank
    if marks.queued[node] or rank[node] >= rank[queue[at]]:
        return count
    low, high = at + 1, count
    while low < high:
        middle = (low + high) // 2
        if rank[queue[middle]] >= rank[node]:
            low = middle + 1
        else:
            high = middle
    for i in range(count, low, -1):
        queue[i] = queue[i - 1]
    queue[low], marks.queued[node] = node, True
    return count + 1


@njit(nogil=True)
def _total(values: NDArray[np.float64]) -> float:
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    return total


@njit(nogil=True)
def _improve(
    t: Binary, first: int, k: int, how: int, seed: int, max_work: int, marks: Marks, choice: SubtreeChoice
) -> tuple[float, int]:
    """Rearrange the subtree below every node that matters once, dearest first; return seconds saved and work.

    Parameters
    ----------
    t : Binary
        Changed in place.
    first : int
        Number of given tables, which are the nodes before the others.
    k, how : int
        Inputs of a subtree, up to 10, and how it is grown: ``BREADTH``, ``LARGEST`` or ``RANDOM``.
    max_work : int
        Splits that are looked at before no further subtree is begun.
    marks : Marks
        Nodes around which nothing changed since an unsuccessful attempt; updated.
    choice : SubtreeChoice
        Room for subtrees of k tables.
    """
    frontier, inner, queue, state = marks.frontier, marks.inner, marks.queue, marks.state
    state[0] = np.uint64(seed * 2 + 1) * GOLDEN
    floor = 1e-6 * _total(t.seconds)
    saved, work = 0.0, 0
    waiting, at = _dirty(t, first, marks), -1
    while at + 1 < waiting and work <= max_work:
        at += 1
        top = queue[at]
        if t.virtual[top] or marks.clean[top]:
            continue
        if t.seconds[top] + t.seconds[t.kids[top, 0]] + t.seconds[t.kids[top, 1]] < floor:
            continue
        count, used = grow(t, first, top, k, how, state, frontier, inner)
        # a random subtree differs next time, so its failure says nothing
        marks.clean[top] = how != RANDOM
        if count < 3:
            continue
        now = 0.0
        for i in range(used):
            now += t.seconds[inner[i]]
        patterns(t, top, frontier, count, choice)
        for i in range(count):
            choice.cost[1 << i], choice.lazy[1 << i] = 0.0, t.virtual[frontier[i]]
            choice.reads[1 << i] = t.reads[frontier[i]]
        work += best_splits(choice, count, now, t.rates) + (count * 2 << count)
        gain = now - choice.cost[(1 << count) - 1]
        if gain > 1e-9 * now:
            saved += gain
            replace(t, frontier, inner, count, choice)
            _rearranged(t, count, k, marks)
            for i in range(used):
                waiting = _insert(marks, at, waiting, inner[i])
            node = t.parent[top]
            for _ in range(k):
                if node < 0:
                    break
                waiting = _insert(marks, at, waiting, node)
                node = t.parent[node]
    return saved, work


@njit(nogil=True)
def _kick(t: Binary, first: int, k: int, state: NDArray[np.uint64], choice: SubtreeChoice, marks: Marks) -> None:
    """Rearrange a small subtree at random; dear steps are likelier to be its top."""
    n, total = t.seconds.shape[0], 0.0
    for i in range(first, n):
        total += np.sqrt(t.seconds[i])
    aim = random_unit(state) * total
    top = first
    for i in range(first, n):
        weight = np.sqrt(t.seconds[i])
        aim -= weight
        if aim <= 0.0 and weight > 0.0:
            top = i
            break
    if t.virtual[top]:
        return
    # numbers that the compiler knows would have it compile a function once for each
    count, _ = grow(t, first, top, k, int(np.int64(RANDOM)), state, marks.frontier, marks.inner)
    for s in range(1, 1 << count):
        low = s & -s
        choice.lazy[s], choice.split[s] = False, low
        if s != low:
            others = s ^ low
            part = low | (others & np.int64(random_unit(state) * (1 << count)))
            choice.split[s] = low if part == s else part
    replace(t, marks.frontier, marks.inner, count, choice)
    _rearranged(t, count, int(np.int64(3)), marks)


@njit(nogil=True)
def _copy(source: Binary, target: Binary, changed: NDArray[np.bool_]) -> None:
    """Copy all that a rearrangement changes, of the nodes where something did."""
    for i in range(changed.shape[0]):
        if changed[i]:
            target.kids[i, 0], target.kids[i, 1] = source.kids[i, 0], source.kids[i, 1]
            target.parent[i] = source.parent[i]
            for w in range(source.masks.shape[1]):
                target.masks[i, w] = source.masks[i, w]
            target.virtual[i] = source.virtual[i]
            target.seconds[i] = source.seconds[i]
            target.reads[i] = source.reads[i]
            target.size[i] = source.size[i]
            changed[i] = False


@njit(cache=True, nogil=True)
def rearrange(
    t: Binary,
    best_tree: Binary,
    first: int,
    k: int,
    how: int,
    kick: int,
    seed: int,
    max_work: int,
    marks: Marks,
    choice: SubtreeChoice,
) -> tuple[float, int]:
    """Price a tree, improve it once, or kick and improve it again and again; return seconds saved and work.

    With kicks this is iterated local search (Lourenço, Martin and Stützle 2003): a result that is not worse is kept,
    and after each kick only the kicked neighbourhood is improved. Everything is in one function, because each compiled
    function takes seconds. Working memory is passed in, because code without allocations compiles in half the time.

    Parameters
    ----------
    t : Binary
        Changed in place; the best tree at the end.
    best_tree : Binary
        A copy of it, changed in place; where it is not kicked any tree.
    first : int
        Number of given tables.
    k, how : int
        Inputs of the subtrees that are improved, up to 10, and how they are grown: ``BREADTH``, ``LARGEST``,
        ``RANDOM``; or ``PRICE`` for a tree that is not priced yet, which is all that is done.
    kick : int
        Inputs of the subtree that is rearranged at random again and again; 0 to improve once.
    seed : int
    max_work : int
        Splits that are looked at before nothing further is begun.
    marks : Marks
        Marks of a tree without clean nodes; with kicks, all nodes are clean at first.
    choice : SubtreeChoice
        Room for subtrees of k and of ``kick`` tables.
    """
    if how == PRICE:
        price_tree(t, first)
        return 0.0, 0
    if kick == 0:
        return _improve(t, first, k, how, seed, max_work, marks, choice)
    n, clean, before = t.kids.shape[0], marks.clean, marks.before
    kicked = np.uint64(seed * 2 + 1) * GOLDEN
    best, work = _total(t.seconds), 0
    while work < max_work:
        marks.state[0] = kicked
        _kick(t, first, kick, marks.state, choice, marks)
        kicked = marks.state[0]
        work += 2 * n
        for turn in range(6):
            for i in range(n):
                before[i] = clean[i]
            saved, more = _improve(t, first, k, LARGEST if turn & 1 else BREADTH, seed, max_work, marks, choice)
            work += more + n
            if saved == 0.0 and turn:
                break
            if saved == 0.0:
                for i in range(n):
                    clean[i] = before[i]
        total = _total(t.seconds)
        # a tree that is not worse is kept, which lets the search cross plateaus
        if total <= best:
            best = total
            _copy(t, best_tree, marks.changed)
        else:
            _copy(best_tree, t, marks.changed)
        for i in range(n):
            clean[i] = True
    return 0.0, work
