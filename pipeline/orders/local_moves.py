"""Local search over binary contraction trees, compiled with Numba.

Subtrees are rearranged exactly, the dearest first, until none gets cheaper (Gray and Kourtis 2021,
Hyper-optimized tensor network contraction); then small random kicks lead out of the local optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.jit import njit
from .greedy_orders import random_unit
from .subtree_dp import (
    BREADTH,
    LARGEST,
    RANDOM,
    Binary,
    SubtreeChoice,
    best_splits,
    grow,
    new_choice,
    patterns,
    replace,
)


class Marks(NamedTuple):
    """What is known of the nodes of a tree.

    ``clean[i]`` tells that nothing near node i has changed since it was last looked at in vain, ``changed[i]`` that
    the node is not what it was when this was last taken back.
    """

    clean: NDArray[np.bool_]
    changed: NDArray[np.bool_]


@njit(cache=True, nogil=True)
def _rearranged(
    t: Binary, frontier: NDArray[np.int64], inner: NDArray[np.int64], count: int, levels: int, marks: Marks
) -> None:
    """Mark the nodes of a subtree that was replaced, and its nearest ancestors as worth looking at again."""
    for i in range(count - 1):
        marks.clean[inner[i]] = False
        marks.changed[inner[i]] = True
    for i in range(count):
        marks.changed[frontier[i]] = True
    node = inner[0]
    for _ in range(levels):
        node = t.parent[node]
        if node < 0:
            return
        marks.clean[node] = False


@njit(cache=True, nogil=True)
def _dirty(marks: Marks, first: int, rank: NDArray[np.float64], queue: NDArray[np.int64]) -> int:
    """Put the nodes that are not clean into a queue, dearest first; return how many there are."""
    count = 0
    for node in range(first, len(rank)):
        if not marks.clean[node]:
            queue[count] = node
            count += 1
    queue[:count] = queue[:count][np.argsort(-rank[queue[:count]])]
    return count


@njit(cache=True, nogil=True)
def _insert(
    queue: NDArray[np.int64], at: int, count: int, node: int, rank: NDArray[np.float64], queued: NDArray[np.bool_]
) -> int:
    """Let a node wait behind place ``at`` of a queue if its turn is still to come; return how many are in it."""
    if queued[node] or rank[node] >= rank[queue[at]]:
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
    queue[low], queued[node] = node, True
    return count + 1


@njit(cache=True, nogil=True)
def improve(t: Binary, first: int, k: int, how: int, seed: int, max_work: int, marks: Marks) -> tuple[float, int]:
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
        Nodes around which nothing changed since they were looked at in vain; updated.
    """
    choice = new_choice(k)
    state = np.array([seed * 2 + 1], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    frontier, inner = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int64)
    floor = 1e-6 * np.sum(t.seconds)
    saved, work = 0.0, 0
    rank, queued, queue = t.seconds.copy(), ~marks.clean, np.empty(len(t.seconds), dtype=np.int64)
    waiting, at = _dirty(marks, first, rank, queue), -1
    while at + 1 < waiting and work <= max_work:
        at += 1
        top = queue[at]
        if t.virtual[top] or marks.clean[top]:
            continue
        if t.seconds[top] + t.seconds[t.kids[top, 0]] + t.seconds[t.kids[top, 1]] < floor:
            continue
        count, used = grow(t, first, top, k, how, state, frontier, inner)
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
            _rearranged(t, frontier, inner, count, k, marks)
            for i in range(used):
                waiting = _insert(queue, at, waiting, inner[i], rank, queued)
            node = t.parent[top]
            for _ in range(k):
                if node < 0:
                    break
                waiting = _insert(queue, at, waiting, node, rank, queued)
                node = t.parent[node]
    return saved, work


@njit(cache=True, nogil=True)
def _kick(t: Binary, first: int, k: int, state: NDArray[np.uint64], choice: SubtreeChoice, marks: Marks) -> None:
    """Rearrange a small subtree at random; dear steps are likelier to be its top."""
    weight = np.sqrt(t.seconds[first:])
    aim = random_unit(state) * weight.sum()
    top = first
    for i in range(len(weight)):
        aim -= weight[i]
        if aim <= 0.0 and weight[i] > 0.0:
            top = first + i
            break
    if t.virtual[top]:
        return
    frontier, inner = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int64)
    count, _ = grow(t, first, top, k, RANDOM, state, frontier, inner)
    for s in range(1, 1 << count):
        low = s & -s
        choice.lazy[s], choice.split[s] = False, low
        if s != low:
            others = s ^ low
            part = low | (others & np.int64(random_unit(state) * (1 << count)))
            choice.split[s] = low if part == s else part
    replace(t, frontier, inner, count, choice)
    _rearranged(t, frontier, inner, count, 3, marks)


@njit(cache=True, nogil=True)
def _copy(source: Binary, target: Binary, changed: NDArray[np.bool_]) -> None:
    """Copy all that a rearrangement changes, of the nodes where something did."""
    for i in range(len(changed)):
        if changed[i]:
            target.kids[i] = source.kids[i]
            target.parent[i] = source.parent[i]
            target.masks[i] = source.masks[i]
            target.virtual[i] = source.virtual[i]
            target.seconds[i] = source.seconds[i]
            target.reads[i] = source.reads[i]
            target.size[i] = source.size[i]
            changed[i] = False


@njit(cache=True, nogil=True)
def iterate(t: Binary, first: int, k: int, kick: int, seed: int, max_work: int) -> int:
    """Kick and improve again and again, keeping what is not worse; return the work.

    Iterated local search (Lourenço, Martin and Stützle 2003). After each kick only what is near it is improved.

    Parameters
    ----------
    t : Binary
        Changed in place; the best tree at the end.
    first : int
        Number of given tables.
    k, kick : int
        Inputs of the subtrees that are improved, and of the one that is rearranged at random.
    max_work : int
        Splits that are looked at before no further kick is made.
    """
    n = t.kids.shape[0]
    state = np.array([seed * 2 + 1], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    best_tree = Binary(
        t.kids.copy(),
        t.parent.copy(),
        t.masks.copy(),
        t.virtual.copy(),
        t.seconds.copy(),
        t.reads.copy(),
        t.size.copy(),
        t.logs,
        t.rates,
    )
    marks = Marks(np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_))
    clean = marks.clean
    choice = new_choice(kick)
    best, work = np.sum(t.seconds), 0
    while work < max_work:
        _kick(t, first, kick, state, choice, marks)
        work += 2 * n
        for turn in range(6):
            how = LARGEST if turn & 1 else BREADTH
            before = clean.copy()
            saved, more = improve(t, first, k, how, seed, max_work, marks)
            work += more + n
            if saved == 0.0 and turn:
                break
            if saved == 0.0:
                clean[:] = before
        total = np.sum(t.seconds)
        if total <= best:
            best = total
            _copy(t, best_tree, marks.changed)
        else:
            _copy(best_tree, t, marks.changed)
        clean[:] = True
    return work
