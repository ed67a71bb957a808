"""Components of the open part of a formula, and the cache of counted components."""

from __future__ import annotations

from ..compiler.jit import njit
from ..steps.number_limits import HASH_FACTOR
from .count_state import (
    ENTRIES,
    ENTRY_NODE,
    FORGOTTEN,
    HITS,
    KEY,
    KEYS,
    LIMB,
    LIMBS,
    N_CLAUSES,
    N_LIMBS,
    N_VARIABLES,
    NODE,
    NODES,
    PARTS,
    STAMP,
    USED,
    WORK,
    Array,
    Clauses,
    ComponentCache,
    CountState,
)


@njit(nogil=True)
def _sort(numbers: Array, first: int, count: int) -> None:
    """Sort some of an array's numbers in place (Shell 1959): a few, for which NumPy's sort takes seconds to compile."""
    gap = count // 2
    while gap > 0:
        for i in range(first + gap, first + count):
            number, at = numbers[i], i
            while at >= first + gap and numbers[at - gap] > number:
                numbers[at] = numbers[at - gap]
                at -= gap
            numbers[at] = number
        gap = 1 if gap == 2 else gap * 5 // 11


@njit(nogil=True)
def component(clauses: Clauses, state: CountState, variable: int) -> int:
    """Write the component of an open variable behind the last part; return its number of clauses.

    The variables are ascending, and so are the clauses that lost literals. All other clauses of the component follow
    from the variables, so they need not be stored: all of their variables belong to the component.

    Parameters
    ----------
    clauses : Clauses
    state : CountState
        Receives the part: ``store[part_first:part_middle]`` are variables, ``store[part_middle:part_first + 1]``
        clauses.
    variable : int
        An open variable.
    """
    counters, value, store, members = state.counters, state.value, state.store, state.members
    p, stamp, n_clauses = counters[PARTS], counters[STAMP], 0
    first = state.part_first[p]
    state.seen[variable] = stamp
    members[0] = variable
    at, end, short = 0, 1, 0
    while at < end:
        u = members[at]
        at += 1
        counters[WORK] += clauses.uses_first[2 * u + 2] - clauses.uses_first[2 * u]
        for k in range(clauses.uses_first[2 * u], clauses.uses_first[2 * u + 2]):
            c = clauses.uses[k]
            if state.n_true[c] or state.seen_clause[c] == stamp:
                continue
            state.seen_clause[c] = stamp
            n_clauses += 1
            if state.n_false[c]:
                # behind all variables that there can be
                store[first + len(value) + short] = c
                short += 1
            for j in range(clauses.first[c], clauses.first[c + 1]):
                w = clauses.literals[j] >> 1
                if value[w] == -1 and state.seen[w] != stamp:
                    state.seen[w] = stamp
                    members[end] = w
                    end += 1
    middle = first + end
    _sort(members, 0, end)
    for k in range(end):
        store[first + k] = members[k]
    _sort(store, first + len(value), short)
    for k in range(short):
        store[middle + k] = store[first + len(value) + k]
    state.part_middle[p] = middle
    state.part_first[p + 1] = middle + short
    return n_clauses


@njit(nogil=True)
def hash_of(state: CountState, p: int) -> int:
    """Return the hash of a part, int64."""
    found = state.part_middle[p] - state.part_first[p]
    for k in range(state.part_first[p], state.part_first[p + 1]):
        found = (found ^ state.store[k]) * HASH_FACTOR
        found ^= (found >> 32) & 0xFFFFFFFF
    return int(found)


@njit(nogil=True)
def find(state: CountState, known: ComponentCache, p: int, hashed: int) -> int:
    """Return the entry of a part that was counted before, or -1."""
    mask = len(known.slots) - 1
    n_variables = state.part_middle[p] - state.part_first[p]
    n_clauses = state.part_first[p + 1] - state.part_middle[p]
    slot = hashed & mask
    while known.slots[slot]:
        e = known.slots[slot] - 1
        slot = (slot + 1) & mask
        entry = known.entries[e]
        if known.hashes[e] != hashed or entry[N_VARIABLES] != n_variables or entry[N_CLAUSES] != n_clauses:
            continue
        same = True
        for k in range(n_variables + n_clauses):
            if known.keys[entry[KEY] + k] != state.store[state.part_first[p] + k]:
                same = False
                break
        if same:
            entry[USED] = state.counters[NODES]
            state.counters[HITS] += 1
            return int(e)
    return -1


@njit(nogil=True)
def is_crowded(state: CountState, known: ComponentCache) -> bool:
    """Whether one more component may not find room."""
    counters = state.counters
    longest = len(state.value) + len(state.n_true)
    return bool(
        counters[ENTRIES] == len(known.entries)
        or counters[KEYS] + longest > len(known.keys)
        or counters[LIMBS] + state.sums.shape[1] > len(known.limbs)
    )


@njit(nogil=True)
def remember(state: CountState, known: ComponentCache, p: int, f: int) -> None:
    """Cache the count of a component, the sum of a frame; the caller ensures room."""
    counters = state.counters
    length = state.part_first[p + 1] - state.part_first[p]
    n_limbs = state.lengths[f, 0]
    e = counters[ENTRIES]
    entry = known.entries[e]
    entry[KEY], entry[LIMB], entry[N_LIMBS], entry[USED] = counters[KEYS], counters[LIMBS], n_limbs, counters[NODES]
    entry[N_VARIABLES] = state.part_middle[p] - state.part_first[p]
    entry[N_CLAUSES] = state.part_first[p + 1] - state.part_middle[p]
    for k in range(length):
        known.keys[counters[KEYS] + k] = state.store[state.part_first[p] + k]
    for k in range(n_limbs):
        known.limbs[counters[LIMBS] + k] = state.sums[f, k]
    known.floats[e, 0], known.floats[e, 1] = state.float_sums[f, 0], state.float_sums[f, 1]
    known.hashes[e] = hash_of(state, p)
    if len(entry) > ENTRY_NODE:
        entry[ENTRY_NODE] = state.frames[f, NODE]
    counters[ENTRIES] += 1
    counters[KEYS] += length
    counters[LIMBS] += n_limbs
    _enter(known, e)


@njit(nogil=True)
def _enter(known: ComponentCache, e: int) -> None:
    mask = len(known.slots) - 1
    slot = known.hashes[e] & mask
    while known.slots[slot]:
        slot = (slot + 1) & mask
    known.slots[slot] = e + 1


@njit(nogil=True)
def _median(entries: Array, count: int, most: int) -> int:
    """Return when half of the entries were used last: the least such number, between 0 and ``most``, by bisection."""
    low, high = 0, most
    while low < high:
        middle, fewer = (low + high) // 2, 0
        for e in range(count):
            fewer += entries[e, USED] <= middle
        if 2 * fewer >= count:
            high = middle
        else:
            low = middle + 1
    return low


@njit(nogil=True, cache=True)
def forget(state: CountState, known: ComponentCache) -> None:
    """Forget the half of the entries that were of no use for longest."""
    counters, entries = state.counters, known.entries
    count = counters[ENTRIES]
    limit = _median(entries, count, counters[NODES])
    kept = keys = limbs = 0
    for e in range(count):
        entry = entries[e]
        if entry[USED] <= limit:
            continue
        length = entry[N_VARIABLES] + entry[N_CLAUSES]
        for k in range(length):
            known.keys[keys + k] = known.keys[entry[KEY] + k]
        for k in range(entry[N_LIMBS]):
            known.limbs[limbs + k] = known.limbs[entry[LIMB] + k]
        for k in range(entries.shape[1]):
            entries[kept, k] = entry[k]
        entries[kept, KEY], entries[kept, LIMB] = keys, limbs
        known.floats[kept, 0], known.floats[kept, 1] = known.floats[e, 0], known.floats[e, 1]
        known.hashes[kept] = known.hashes[e]
        kept, keys, limbs = kept + 1, keys + length, limbs + entries[kept, N_LIMBS]
    counters[ENTRIES], counters[KEYS], counters[LIMBS] = kept, keys, limbs
    counters[FORGOTTEN] += count - kept
    enter_all(state, known)


@njit(nogil=True, cache=True)
def enter_all(state: CountState, known: ComponentCache) -> None:
    """Fill the slots anew."""
    for slot in range(len(known.slots)):
        known.slots[slot] = 0
    for e in range(state.counters[ENTRIES]):
        _enter(known, e)
