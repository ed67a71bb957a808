"""The nodes of a count: a variable is decided both ways, the rest of its component splits into components, and counts
multiply.

Depth-first search with components and a cache (Sang et al., Combining component caching and clause learning for
effective model counting, SAT 2004; Thurley, sharpSAT, SAT 2006), without learning. The next variable has the highest
rank and the most unsatisfied clauses. Ranks from an elimination order split components along its tree (Korhonen &
Järvisalo, Integrating tree decompositions into decision heuristics, CP 2021). Hidden variables are decided after all
others of their component, which then counts as 1 if it is satisfiable (Lagniez & Marquis, A recursive algorithm for
projected model counting, AAAI 2019).

The trace of a search is a circuit, a decision-DNNF (Huang & Darwiche, The language of search, JAIR 2007). Each decision
is a sum of two products. Products combine decided literals and components. A cached component is its earlier node.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..compiler.jit import njit
from ..steps.number_limits import LARGEST_INT32
from .components import component, find, hash_of, is_crowded, remember
from .count_state import (
    BRANCH,
    DEPTH,
    ENTRY_NODE,
    FIRST,
    LAST,
    LIMB,
    MARK,
    N_LIMBS,
    NEXT,
    NODE,
    NODES,
    PART,
    PARTS,
    PENDED,
    SIGN,
    STAMP,
    TRAIL,
    VARIABLE,
    Array,
    Clauses,
    ComponentCache,
    CountState,
)

#: Places in ``SearchTrace.counters``.
MADE, USED_CHILDREN, PENDING = range(3)
#: In place of a node that was not made.
NO_NODE = -1
#: Children are int32.
MOST_NODES = LARGEST_INT32 // 2
# Products of more children are trees of such: walks over circuits take nodes of equally many children together.
_WIDEST = 8


class SearchTrace(NamedTuple):
    """A circuit as far as it is made; all arrays are empty where none is asked for.

    Node k is a sum if ``is_sum[k]``, otherwise a product, of ``children[starts[k] : starts[k + 1]]``. Children from 0
    to 2 n - 1 are literals of n variables; from 2 n on, free variables; from 3 n on, nodes. ``pending`` are the
    children of the products on the way down; no two of them share a variable. ``counters`` are the numbers of nodes, of
    their children, and of pending children.
    """

    is_sum: Array
    starts: Array
    children: Array
    pending: Array
    counters: Array

    @property
    def size(self) -> tuple[int, int]:
        """How many nodes and children there are."""
        return int(self.counters[MADE]), int(self.counters[USED_CHILDREN])


def new_trace(variables: int, nodes: int) -> SearchTrace:
    """Return a trace with capacity for ``nodes`` nodes; 0 gives a trace that is not written."""
    size = variables + 2 if nodes else 0
    room = max(nodes, 2 * size + 4) if nodes else 0
    return SearchTrace(
        np.zeros(room, dtype=np.bool_),
        np.zeros(room + 1 if room else 0, dtype=np.int64),
        np.zeros(2 * room, dtype=np.int32),
        np.zeros(size, dtype=np.int32),
        np.zeros(3, dtype=np.int64),
    )


def grown_trace(trace: SearchTrace) -> SearchTrace:
    """Return the same trace with twice the room, for nodes or for children, whichever is short of it."""

    def twice(array: Array) -> Array:
        return np.concatenate([array, np.zeros_like(array)])

    if len(trace.is_sum) < trace.counters[MADE] + len(trace.pending) + 2:
        return trace._replace(is_sum=twice(trace.is_sum), starts=twice(trace.starts))
    return trace._replace(children=twice(trace.children))


@njit(nogil=True)
def is_traced(trace: SearchTrace) -> bool:
    """Whether a trace is written."""
    return len(trace.starts) > 0


@njit(nogil=True)
def lacks_room(trace: SearchTrace) -> bool:
    """Whether a product and a sum more may not find room."""
    longest = len(trace.pending)
    counters = trace.counters
    return bool(
        counters[MADE] + longest + 2 > len(trace.is_sum)
        or counters[USED_CHILDREN] + 2 * longest + 4 > len(trace.children)
    )


@njit(nogil=True)
def push(trace: SearchTrace, child: int) -> None:
    """Let the product that is being made have one more child."""
    counters = trace.counters
    trace.pending[counters[PENDING]] = child
    counters[PENDING] += 1


@njit(nogil=True)
def _node(trace: SearchTrace, is_sum: bool, first: int, last: int) -> int:
    """Write a node of the pending children between two places; return its number as a child."""
    counters = trace.counters
    k, at = counters[MADE], counters[USED_CHILDREN]
    for j in range(first, last):
        trace.children[at] = trace.pending[j]
        at += 1
    trace.is_sum[k] = is_sum
    trace.starts[k + 1] = at
    counters[MADE], counters[USED_CHILDREN] = k + 1, at
    return int(3 * (len(trace.pending) - 2) + k)


@njit(nogil=True)
def add_branch(trace: SearchTrace, first: int, other: int) -> int:
    """Write what is pending from a place on as a product, and the sum of it and of the other branch, if that has one.

    The first child, which is the decision, stays a child of the whole product.

    Returns
    -------
    int
        The number of the sum, or of the product, as a child.
    """
    counters, last = trace.counters, int(trace.counters[PENDING])
    while last - first > _WIDEST:
        at = read = first + 1
        while read < last:
            stop = min(read + _WIDEST, last)
            if stop - read > 1:
                trace.pending[at] = _node(trace, False, read, stop)
            else:
                trace.pending[at] = trace.pending[read]
            at, read = at + 1, stop
        last = at
    made = int(trace.pending[first]) if last - first == 1 else _node(trace, False, first, last)
    if other != -1:
        # the pending array has capacity for two more children
        trace.pending[first], trace.pending[first + 1] = other, made
        made = _node(trace, True, first, first + 2)
    counters[PENDING] = first
    return made


# Deciding literals of clauses: units follow, conflicts end a branch, everything is undone.


@njit(nogil=True, cache=True)
def decide(clauses: Clauses, state: CountState, literal: int) -> bool:
    """Let a literal of an open variable hold, and what follows; return whether no clause is violated.

    Unit propagation: an unsatisfied clause with a single open literal also decides this literal.

    Parameters
    ----------
    literal : int
        ``2 * variable``, plus 1 if negated. All implied literals are in ``state.trail``, up to ``counters[TRAIL]``,
        even if a clause is violated.
    """
    counters, trail, value = state.counters, state.trail, state.value
    at = counters[TRAIL]
    value[literal >> 1] = 1 - (literal & 1)
    trail[at] = literal
    end = at + 1
    while at < end:
        literal = trail[at]
        at += 1
        for k in range(clauses.uses_first[literal], clauses.uses_first[literal + 1]):
            state.n_true[clauses.uses[k]] += 1
        broken = False
        for k in range(clauses.uses_first[literal ^ 1], clauses.uses_first[(literal ^ 1) + 1]):
            c = clauses.uses[k]
            state.n_false[c] += 1
            if state.n_true[c]:
                continue
            open_literals = clauses.first[c + 1] - clauses.first[c] - state.n_false[c]
            if open_literals <= 1:
                unit = _open(clauses, state, c)
                if unit == -2:
                    broken = True
                elif unit >= 0:
                    value[unit >> 1] = 1 - (unit & 1)
                    trail[end] = unit
                    end += 1
        # the counters of all literals up to here were raised, so backtracking lowers exactly these
        if broken:
            counters[TRAIL] = at
            for k in range(at, end):
                value[trail[k] >> 1] = -1
            return False
    counters[TRAIL] = end
    return True


@njit(nogil=True)
def _open(clauses: Clauses, state: CountState, c: int) -> int:
    """Return the open literal of a clause; -1 where one holds already, -2 where none can."""
    for k in range(clauses.first[c], clauses.first[c + 1]):
        literal = clauses.literals[k]
        known = state.value[literal >> 1]
        if known == -1:
            return int(literal)
        if known == 1 - (literal & 1):
            return -1
    return -2


@njit(nogil=True)
def undo(clauses: Clauses, state: CountState, mark: int) -> None:
    """Undo the decisions beyond a length of the trail."""
    for at in range(state.counters[TRAIL] - 1, mark - 1, -1):
        literal = state.trail[at]
        for k in range(clauses.uses_first[literal], clauses.uses_first[literal + 1]):
            state.n_true[clauses.uses[k]] -= 1
        for k in range(clauses.uses_first[literal ^ 1], clauses.uses_first[(literal ^ 1) + 1]):
            state.n_false[clauses.uses[k]] -= 1
        state.value[literal >> 1] = -1
    state.counters[TRAIL] = mark


FINISHED, PAUSED, SHALLOW, FULL, CROWDED, LONG = range(6)


@njit(nogil=True, cache=True)
def count(clauses: Clauses, state: CountState, known: ComponentCache, trace: SearchTrace, most_nodes: int) -> int:
    """Count until the search ends, reaches ``most_nodes``, or needs more room; the next call continues.

    Parameters
    ----------
    clauses : Clauses
    state : CountState
        Frames, trail and parts; changed in place.
    known : ComponentCache
        Counts of components that were counted before.
    trace : SearchTrace
        Receives the circuit of the search, if there is one.
    most_nodes : int
        Number of nodes at which to pause.
    """
    counters, frames = state.counters, state.frames
    room = len(state.store) - 2 * len(state.value) - len(state.n_true)
    while True:
        if counters[NODES] >= most_nodes:
            return PAUSED
        if counters[DEPTH] == len(frames):
            return SHALLOW
        if state.part_first[counters[PARTS]] > room:
            return FULL
        if is_crowded(state, known):
            return CROWDED
        if is_traced(trace) and lacks_room(trace):
            return LONG
        f = counters[DEPTH] - 1
        if frames[f, NEXT] < frames[f, LAST] and not _is_zero(clauses, state, f):
            frames[f, NEXT] += 1
            f = _down(clauses, state, frames[f, NEXT] - 1)
            frames[f, PENDED], frames[f, NODE] = trace.counters[PENDING], -1
        else:
            _end_branch(clauses, state, trace, f)
            if f == 0:
                return FINISHED
        frames[f, BRANCH] += 1
        # both values of the decision are summed, or the first one settles the component
        if frames[f, BRANCH] == 2 or _is_settled(clauses, state, f):
            remember(state, known, frames[f, PART], f)
            counters[DEPTH] = f
            _times_sum(clauses, state, f - 1, f)
            if is_traced(trace):
                push(trace, frames[f, NODE])
            continue
        counters[NODES] += 1
        if decide(clauses, state, 2 * frames[f, VARIABLE] + (frames[f, BRANCH] ^ (frames[f, SIGN] & 1))):
            begin_branch(clauses, state, known, trace, f)
        else:
            _set_zero(state, f)


@njit(nogil=True)
def _sign(clauses: Clauses, state: CountState, variable: int) -> int:
    """Return the first literal of a hidden variable, the one with most open clauses, plus 2 if it has all of them."""
    if not len(clauses.hidden) or not clauses.hidden[variable]:
        return 0
    holds = fails = 0
    for k in range(clauses.uses_first[2 * variable], clauses.uses_first[2 * variable + 1]):
        holds += state.n_true[clauses.uses[k]] == 0
    for k in range(clauses.uses_first[2 * variable + 1], clauses.uses_first[2 * variable + 2]):
        fails += state.n_true[clauses.uses[k]] == 0
    return (1 if fails > holds else 0) + (2 if holds == 0 or fails == 0 else 0)


@njit(nogil=True)
def _is_settled(clauses: Clauses, state: CountState, f: int) -> bool:
    """Whether a component of hidden variables alone has the one value that is needed of it."""
    frame = state.frames[f]
    if not len(clauses.hidden) or not clauses.hidden[frame[VARIABLE]]:
        return False
    if frame[BRANCH] == 1 and frame[SIGN] & 2:
        return True
    return bool(state.float_sums[f, 0] != 0.0 if len(clauses.weights) else state.lengths[f, 0] != 0)


@njit(nogil=True)
def _down(clauses: Clauses, state: CountState, p: int) -> int:
    """Begin to count a component; return its frame."""
    counters = state.counters
    best, best_score = -1, -1.0
    for k in range(state.part_first[p], state.part_middle[p]):
        v = state.store[k]
        score = clauses.rank[v]
        for j in range(clauses.uses_first[2 * v], clauses.uses_first[2 * v + 2]):
            if not state.n_true[clauses.uses[j]]:
                score += 1.0
        if score > best_score:
            best, best_score = v, score
    f = counters[DEPTH]
    counters[DEPTH] = f + 1
    frame = state.frames[f]
    frame[PART], frame[VARIABLE], frame[BRANCH], frame[MARK] = p, best, -1, counters[TRAIL]
    frame[NEXT] = frame[FIRST] = frame[LAST] = counters[PARTS]
    frame[SIGN] = _sign(clauses, state, best)
    state.lengths[f, 0] = 0
    state.float_sums[f, 0] = state.float_sums[f, 1] = 0.0
    return int(f)


@njit(nogil=True, cache=True)
def begin_branch(clauses: Clauses, state: CountState, known: ComponentCache, trace: SearchTrace, f: int) -> None:
    """Multiply the decisions, the free variables and the cached components; other components become parts to count.

    Parameters
    ----------
    f : int
        The frame with the literal just decided. Its product becomes the product of all known factors; parts to count
        are recorded in it.
    """
    counters, frame = state.counters, state.frames[f]
    weighted, traced = len(clauses.weights) > 0, is_traced(trace)
    state.products[f, 0] = state.lengths[f, 1] = 1
    state.float_products[f, 0], state.float_products[f, 1] = 0.5, 1.0
    if weighted:
        for k in range(frame[MARK], counters[TRAIL]):
            scale(state.float_products[f], clauses.weights[state.trail[k]], 0)
    if traced:
        for k in range(frame[MARK], counters[TRAIL]):
            push(trace, state.trail[k])
    counters[STAMP] += 1
    free = 0
    for k in range(state.part_first[frame[PART]], state.part_middle[frame[PART]]):
        u = state.store[k]
        if state.value[u] != -1 or state.seen[u] == counters[STAMP]:
            continue
        # a variable without clauses doubles the count, unless it is hidden by the projection
        if not component(clauses, state, u):
            if len(clauses.hidden) and clauses.hidden[u]:
                continue
            free += 1
            if traced:
                push(trace, 2 * len(state.value) + u)
            if weighted:
                scale(state.float_products[f], clauses.weights[2 * u] + clauses.weights[2 * u + 1], 0)
            continue
        p = counters[PARTS]
        e = find(state, known, p, hash_of(state, p))
        if e >= 0 and traced:
            push(trace, known.entries[e, ENTRY_NODE])
        if e < 0:
            counters[PARTS] = p + 1
        elif weighted:
            scale(state.float_products[f], known.floats[e, 0], int(known.floats[e, 1]))
        else:
            entry = known.entries[e]
            limbs = known.limbs[entry[LIMB] : entry[LIMB] + entry[N_LIMBS]]
            _times(state, f, limbs, entry[N_LIMBS])
        if _is_zero(clauses, state, f):
            break
    frame[LAST] = counters[PARTS]
    if not weighted:
        state.lengths[f, 1] = double(state.products[f], state.lengths[f, 1], free)


@njit(nogil=True)
def _end_branch(clauses: Clauses, state: CountState, trace: SearchTrace, f: int) -> None:
    """Add what was counted of a branch, and take its decisions back."""
    frame = state.frames[f]
    if frame[BRANCH] >= 0:
        if is_traced(trace):
            if not _is_zero(clauses, state, f):
                frame[NODE] = add_branch(trace, frame[PENDED], frame[NODE])
            trace.counters[PENDING] = frame[PENDED]
        if len(clauses.weights):
            accumulate(state.float_sums[f], state.float_products[f])
        else:
            state.lengths[f, 0] = add(state.sums[f], state.lengths[f, 0], state.products[f], state.lengths[f, 1])
    undo(clauses, state, frame[MARK])
    state.counters[PARTS] = frame[FIRST]
    frame[NEXT] = frame[LAST] = frame[FIRST]


@njit(nogil=True)
def _times(state: CountState, f: int, limbs: Array, length: int) -> None:
    state.lengths[f, 1] = multiply(state.products[f], state.lengths[f, 1], limbs, length, state.scratch)


@njit(nogil=True)
def _times_sum(clauses: Clauses, state: CountState, f: int, g: int) -> None:
    """Multiply the branch of a frame by the sum of another."""
    if len(clauses.weights):
        scale(state.float_products[f], state.float_sums[g, 0], int(state.float_sums[g, 1]))
    else:
        _times(state, f, state.sums[g], state.lengths[g, 0])


@njit(nogil=True)
def _is_zero(clauses: Clauses, state: CountState, f: int) -> bool:
    return bool(state.float_products[f, 0] == 0.0 if len(clauses.weights) else state.lengths[f, 1] == 0)


@njit(nogil=True)
def _set_zero(state: CountState, f: int) -> None:
    state.lengths[f, 1] = 0
    state.float_products[f, 0] = state.float_products[f, 1] = 0.0
    state.frames[f, NEXT] = state.frames[f, LAST] = state.frames[f, FIRST]


# Natural numbers of any size as limbs of 31 bits in int64, the lowest first; floats as mantissa and exponent.

#: A product of two limbs and two more still fits int64.
LIMB_BITS = 31
_ONES = (1 << LIMB_BITS) - 1


@njit(nogil=True)
def multiply(number: Array, length: int, factor: Array, n_factor: int, scratch: Array) -> int:
    """Multiply a number, in place; return its length, which is 0 for 0."""
    if length == 0 or n_factor == 0:
        return 0
    for i in range(length + n_factor):
        scratch[i] = 0
    for i in range(length):
        carry = 0
        for j in range(n_factor):
            whole = scratch[i + j] + number[i] * factor[j] + carry
            scratch[i + j] = whole & _ONES
            carry = whole >> LIMB_BITS
        scratch[i + n_factor] = carry
    length += n_factor
    if scratch[length - 1] == 0:
        length -= 1
    for i in range(length):
        number[i] = scratch[i]
    return length


@njit(nogil=True)
def add(number: Array, length: int, other: Array, n_other: int) -> int:
    """Add to a number, in place; return its length."""
    if length < n_other:
        for i in range(length, n_other):
            number[i] = 0
        length = n_other
    carry = 0
    for i in range(length):
        if carry == 0 and i >= n_other:
            break
        whole = number[i] + carry + (other[i] if i < n_other else 0)
        number[i] = whole & _ONES
        carry = whole >> LIMB_BITS
    if carry:
        number[length] = carry
        length += 1
    return length


@njit(nogil=True)
def double(number: Array, length: int, times: int) -> int:
    """Multiply a number by a power of two, in place; return its length."""
    if length == 0:
        return 0
    limbs, bits = times // LIMB_BITS, times % LIMB_BITS
    carry = 0
    for i in range(length):
        whole = (number[i] << bits) | carry
        number[i] = whole & _ONES
        carry = whole >> LIMB_BITS
    if carry:
        number[length] = carry
        length += 1
    if limbs:
        for i in range(length - 1, -1, -1):
            number[i + limbs] = number[i]
        for i in range(limbs):
            number[i] = 0
    return length + limbs


@njit(nogil=True)
def scale(number: Array, mantissa: float, exponent: int) -> None:
    """Multiply a float, in place: mantissa (0, or 0.5 to 1) and exponent, an integer."""
    found, shift = math.frexp(number[0] * mantissa)
    number[0] = found
    number[1] = number[1] + exponent + shift if found else 0.0


@njit(nogil=True)
def accumulate(number: Array, other: Array) -> None:
    """Add to a float, in place."""
    if other[0] == 0.0:
        return
    if number[0] == 0.0:
        number[0], number[1] = other[0], other[1]
        return
    highest = max(number[1], other[1])
    least = -1100.0
    low = math.ldexp(number[0], int(max(number[1] - highest, least)))
    found, shift = math.frexp(low + math.ldexp(other[0], int(max(other[1] - highest, least))))
    number[0], number[1] = found, highest + shift


def as_integer(limbs: Array) -> int:
    """Return a number as Python has it."""
    return sum(int(limb) << LIMB_BITS * k for k, limb in enumerate(limbs.tolist()))
