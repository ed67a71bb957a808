"""Local search over binary contraction trees, compiled with Numba.

Subtrees are rearranged exactly, the dearest first, until none gets cheaper (Gray and Kourtis 2021,
Hyper-optimized tensor network contraction); then small random kicks lead out of the local optimum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...tasks.machine_code import njit
from .greedy_orders import random_unit
from .subtrees import (
    BREADTH,
    LARGEST,
    RANDOM,
    Binary,
    Choice,
    best_splits,
    grow,
    new_choice,
    patterns,
    replace,
)


@njit(cache=True, nogil=True)
def _soil(t: Binary, node: int, levels: int, clean: NDArray[np.bool_]) -> None:
    """Mark the nearest ancestors as worth looking at again."""
    for _ in range(levels):
        node = t.parent[node]
        if node < 0:
            return
        clean[node] = False


@njit(cache=True, nogil=True)
def improve(
    t: Binary,
    first: int,
    k: int,
    how: int,
    seed: int,
    max_work: int,
    clean: NDArray[np.bool_],
) -> tuple[float, int]:
    """Rearrange the subtree below every node that matters once, dearest first; return seconds saved and work.

    ``clean[i]`` tells that nothing near node i has changed since it was last looked at in vain.
    """
    choice = new_choice(k)
    state = np.array([seed * 2 + 1], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    frontier, inner = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int64)
    floor = 1e-6 * np.sum(t.seconds)
    saved, work = 0.0, 0
    for top in np.argsort(-t.seconds[first:]) + first:
        if t.virtual[top] or clean[top]:
            continue
        if t.seconds[top] + t.seconds[t.kids[top, 0]] + t.seconds[t.kids[top, 1]] < floor:
            continue
        count, used = grow(t, first, top, k, how, state, frontier, inner)
        clean[top] = how != RANDOM
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
            for i in range(used):
                clean[inner[i]] = False
            _soil(t, top, k, clean)
        if work > max_work:
            break
    return saved, work


@njit(cache=True, nogil=True)
def _kick(t: Binary, first: int, k: int, state: NDArray[np.uint64], choice: Choice, clean: NDArray[np.bool_]) -> None:
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
    count, used = grow(t, first, top, k, RANDOM, state, frontier, inner)
    for s in range(1, 1 << count):
        low = s & -s
        choice.lazy[s], choice.split[s] = False, low
        if s != low:
            others = s ^ low
            part = low | (others & np.int64(random_unit(state) * (1 << count)))
            choice.split[s] = low if part == s else part
    replace(t, frontier, inner, count, choice)
    for i in range(used):
        clean[inner[i]] = False
    _soil(t, top, 3, clean)


@njit(cache=True, nogil=True)
def _copy(source: Binary, target: Binary) -> None:
    """Copy all that a rearrangement changes."""
    target.kids[:] = source.kids
    target.parent[:] = source.parent
    target.masks[:] = source.masks
    target.virtual[:] = source.virtual
    target.seconds[:] = source.seconds
    target.reads[:] = source.reads
    target.size[:] = source.size


@njit(cache=True, nogil=True)
def iterate(t: Binary, first: int, k: int, kick: int, seed: int, max_work: int) -> int:
    """Kick and improve again and again, keeping what is not worse (iterated local search); return the work."""
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
    clean = np.ones(n, dtype=np.bool_)
    choice = new_choice(kick)
    best, work = np.sum(t.seconds), 0
    while work < max_work:
        _kick(t, first, kick, state, choice, clean)
        work += n * (4 + t.masks.shape[1] // 4)
        for turn in range(6):
            how = LARGEST if turn & 1 else BREADTH
            before = clean.copy()
            saved, more = improve(t, first, k, how, seed, max_work, clean)
            work += more + 4 * n
            if saved == 0.0 and turn:
                break
            if saved == 0.0:
                clean[:] = before
        total = np.sum(t.seconds)
        if total <= best:
            best = total
            _copy(t, best_tree)
        else:
            _copy(best_tree, t)
        clean[:] = True
    _copy(best_tree, t)
    return work
