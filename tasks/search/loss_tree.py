"""The least loss over an AND/OR tree: a depth-first search with limits that remembers what it learnt of subproblems.

A node decides a variable, or stands for a sum that is looked up. It loses what tables of its ancestors' states and its
own say, and what its children lose; none of that is below 0. What a subproblem loses at least depends on its context
alone (the ancestors that its tables and sums read), and is remembered by these states (Dechter and Mateescu, AND/OR
search spaces for graphical models, AIJ 2007). A node is left as soon as it loses more than its limit: what the best
other state of an ancestor loses, and a little more, so that the best states are searched first in memory that does not
grow with them (Kishimoto and Marinescu, Recursive best-first AND/OR search for optimization in graphical models, UAI
2014; of marginal MAP, Marinescu, Kishimoto and Botea, AAAI 2020).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiler.jit import njit
from ..steps.number_limits import HASH_FACTOR

Array = NDArray[Any]

#: How a search returns: it waits for work outside, or it is finished.
PAUSED, FINISHED, ASKED, CROWDED = range(4)
#: How deep it is, nodes that were looked at, entries that are used, the sum that is asked for, whether the root's loss
#: is exact.
DEPTH, VISITS, ENTRIES, SUM, SOLVED, NUMBERS = range(6)
# A sum that was computed outside took as long as this number of nodes.
_SUM_WORK = 1000


class LossTree(NamedTuple):
    """A pseudo-tree with tables of losses, by nodes in depth-first order, the root first; arrays are of int64.

    Parameters
    ----------
    sizes : ndarray
        States of each node; 1 for the root, 0 for sums.
    children, child : ndarray
        Where the children of each node begin, and these.
    tables, table : ndarray
        Where the tables of each node begin, and where each begins among the losses, the node's own axis last.
    axes, axis : ndarray
        Where the other axes of each table begin; each axis is a node and a stride.
    keys, key : ndarray
        Where the context of each node begins; each of it is a node, a word and a shift.
    losses : ndarray of float64
    """

    sizes: Array
    children: Array
    child: Array
    tables: Array
    table: Array
    axes: Array
    axis: Array
    keys: Array
    key: Array
    losses: Array


class LossMemory(NamedTuple):
    """Known losses of subproblems, by node and states of its context.

    Parameters
    ----------
    owners : ndarray of int64
        One more than the node of each entry; 0 for none.
    words : ndarray of int64
        States of the context, packed: (entries, words).
    least : ndarray of float64
        The least loss of the subproblem.
    solved : ndarray of bool
        Whether it loses exactly that.
    work : ndarray of int64
    """

    owners: Array
    words: Array
    least: Array
    solved: Array
    work: Array


class LossState(NamedTuple):
    """Where a search stands.

    Parameters
    ----------
    states : ndarray of int64
        By node.
    path, begun : ndarray of int64
        Nodes from the root on, and how much work was done before each.
    limits : ndarray of float64
    bases : ndarray of int64
        Room for the places of a node's tables.
    packed : ndarray of int64
        Room for a context.
    numbers : ndarray of int64
        By the names above.
    root : ndarray of float64
        The least loss of the root.
    """

    states: Array
    path: Array
    begun: Array
    limits: Array
    bases: Array
    packed: Array
    numbers: Array
    root: Array


def new_memory(entries: int, words: int) -> LossMemory:
    """Return an empty memory of a power of two entries."""
    return LossMemory(
        owners=np.zeros(entries, dtype=np.int64),
        words=np.zeros((entries, words), dtype=np.int64),
        least=np.zeros(entries),
        solved=np.zeros(entries, dtype=np.bool_),
        work=np.zeros(entries, dtype=np.int64),
    )


def new_loss_state(tree: LossTree, words: int) -> LossState:
    """Return the state of a search at the root."""
    n = len(tree.sizes)
    return LossState(
        states=np.zeros(n, dtype=np.int64),
        path=np.zeros(n + 1, dtype=np.int64),
        begun=np.zeros(n + 1, dtype=np.int64),
        limits=np.full(n + 1, np.inf),
        bases=np.zeros(int(np.diff(tree.tables).max(initial=0)) + 1, dtype=np.int64),
        packed=np.zeros(words, dtype=np.int64),
        numbers=np.zeros(NUMBERS, dtype=np.int64),
        root=np.zeros(1),
    )


@njit(nogil=True)
def _hash(words: Any, owner: int) -> int:
    found = owner
    for k in range(len(words)):
        found = (found ^ words[k]) * HASH_FACTOR
        found ^= (found >> 32) & 0xFFFFFFFF
    return int(found)


@njit(nogil=True)
def _find(tree: LossTree, memory: LossMemory, state: LossState, n: int) -> int:
    """Return the entry of a node at the present states, -1 for none; its context is packed then."""
    words = state.packed
    for k in range(len(words)):
        words[k] = 0
    for k in range(tree.keys[n], tree.keys[n + 1]):
        words[tree.key[k, 1]] |= state.states[tree.key[k, 0]] << tree.key[k, 2]
    mask = len(memory.owners) - 1
    slot = _hash(words, n + 1) & mask
    while memory.owners[slot]:
        if memory.owners[slot] == n + 1:
            same = True
            for k in range(len(words)):
                if memory.words[slot, k] != words[k]:
                    same = False
                    break
            if same:
                return slot
        slot = (slot + 1) & mask
    return -1


@njit(nogil=True)
def _write(memory: LossMemory, numbers: Any, words: Any, owner: int, least: float, solved: bool, work: int) -> None:
    """Write a new entry; there is room."""
    mask = len(memory.owners) - 1
    slot = _hash(words, owner) & mask
    while memory.owners[slot]:
        slot = (slot + 1) & mask
    numbers[ENTRIES] += 1
    memory.owners[slot] = owner
    for k in range(len(words)):
        memory.words[slot, k] = words[k]
    memory.least[slot] = least
    memory.solved[slot] = solved
    memory.work[slot] = work


@njit(nogil=True)
def _keep(tree: LossTree, memory: LossMemory, state: LossState, n: int, least: float, solved: bool, work: int) -> None:
    """Remember what a node loses at least at the present states; that never becomes less."""
    slot = _find(tree, memory, state, n)
    if slot < 0:
        _write(memory, state.numbers, state.packed, n + 1, least, solved, work)
        return
    if not memory.solved[slot]:
        memory.least[slot] = least if solved else max(memory.least[slot], least)
        memory.solved[slot] = solved
    memory.work[slot] += work


@njit(nogil=True)
def _look(tree: LossTree, memory: LossMemory, state: LossState, n: int) -> tuple[float, float, bool]:
    """Take the best known state of a node; return its loss, the loss of the next state, and whether it is exact.

    Losses are lower bounds unless they are exact.

    Parameters
    ----------
    tree : LossTree
    memory : LossMemory
        Read only. A child that it does not know counts as a loss of 0.
    state : LossState
        ``states[n]`` becomes the best known state; ``bases`` and ``packed`` are overwritten.
    n : int
        A node with states; its ancestors are decided in ``state.states``.

    Returns
    -------
    tuple of (float, float, bool)
        The least loss of its states, the second least, and whether the least one is exact.
    """
    first, end = tree.tables[n], tree.tables[n + 1]
    for t in range(first, end):
        at = tree.table[t]
        for a in range(tree.axes[t], tree.axes[t + 1]):
            at += state.states[tree.axis[a, 0]] * tree.axis[a, 1]
        state.bases[t - first] = at
    best, second, solved, chosen = np.inf, np.inf, True, 0
    for x in range(tree.sizes[n]):
        state.states[n] = x
        loss, known = 0.0, True
        for t in range(end - first):
            loss += tree.losses[state.bases[t] + x]
        if loss < np.inf:
            for k in range(tree.children[n], tree.children[n + 1]):
                slot = _find(tree, memory, state, tree.child[k])
                if slot < 0:
                    known = False
                else:
                    loss += memory.least[slot]
                    known = known and memory.solved[slot]
        # Among equal losses an exact one is preferred: it solves the node without further search.
        if loss < best or (loss == best and loss < np.inf and known and not solved):
            second, best, solved, chosen = best, loss, known, x
        elif loss < second:
            second = loss
    state.states[n] = chosen
    return best, second, solved


@njit(nogil=True, cache=True)
def explore(
    tree: LossTree, memory: LossMemory, state: LossState, visits: int, eager: float, told: float, closing: bool
) -> int:
    """Look at ``visits`` nodes, from the current position of the search.

    Parameters
    ----------
    visits : int
    eager : float
        A state is searched until it loses more than the next state by this number.
    told : float
        The loss of the sum that was requested; below 0 if none was.
    closing : bool
        Go back to the root, remembering what is known on the way.

    Returns
    -------
    int
        ``FINISHED`` at the root: it loses no less than its limit, or exactly its reported loss. ``ASKED``: a sum must
        be computed at the present states. ``CROWDED``: half of the memory is used. Otherwise ``PAUSED``.
    """
    numbers = state.numbers
    if told >= 0.0:
        _keep(tree, memory, state, numbers[SUM], told, True, _SUM_WORK)
    while visits > 0 or closing:
        if not closing and 2 * numbers[ENTRIES] > len(memory.owners):
            return CROWDED
        visits -= 1
        numbers[VISITS] += 1
        depth = numbers[DEPTH]
        n = state.path[depth]
        if tree.sizes[n] == 0:
            if not closing and _find(tree, memory, state, n) < 0:
                numbers[SUM] = n
                return ASKED
            numbers[DEPTH] -= 1
            continue
        best, second, solved = _look(tree, memory, state, n)
        if closing or solved or best >= state.limits[depth]:
            _keep(tree, memory, state, n, best, solved, numbers[VISITS] - state.begun[depth])
            if depth == 0:
                numbers[SOLVED] = solved
                state.root[0] = max(state.root[0], best)
                return PAUSED if closing else FINISHED
            numbers[DEPTH] -= 1
            continue
        # The limit of recursive best-first search: below the node's own limit, and not far above the second best state.
        room = min(state.limits[depth], second + eager)
        for k in range(tree.children[n], tree.children[n + 1]):
            slot = _find(tree, memory, state, tree.child[k])
            if slot < 0 or not memory.solved[slot]:
                least = 0.0 if slot < 0 else memory.least[slot]
                numbers[DEPTH] = depth + 1
                state.path[depth + 1] = tree.child[k]
                # ``best`` contains the child's known loss, so that the child may rise by the rest of the node's
                # room.
                state.limits[depth + 1] = least + (room - best)
                state.begun[depth + 1] = numbers[VISITS]
                break
    return PAUSED


@njit(nogil=True, cache=True)
def descend(tree: LossTree, memory: LossMemory, state: LossState) -> None:
    """Take the best states as far as is known, of one node after the other."""
    for n in range(len(tree.sizes)):
        if tree.sizes[n]:
            _look(tree, memory, state, n)


@njit(nogil=True, cache=True)
def move(old: LossMemory, new: LossMemory, state: LossState, work: int) -> None:
    """Write what took more work to another memory."""
    state.numbers[ENTRIES] = 0
    for e in range(len(old.owners)):
        if old.owners[e] and old.work[e] > work:
            _write(new, state.numbers, old.words[e], old.owners[e], old.least[e], old.solved[e], old.work[e])
