"""Data of a count: clauses, decisions, components on the way down, and cached components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Places in ``State.counters``.
DEPTH, TRAIL, PARTS, STAMP, NODES, ENTRIES, KEYS, LIMBS, HITS, FORGOTTEN, WORK = range(11)
#: Columns of ``State.frames``.
PART, VARIABLE, BRANCH, MARK, NEXT, FIRST, LAST, SIGN, PENDED, NODE = range(10)
#: Columns of ``Known.entries``; the last one is there where the search is traced.
KEY, N_VARIABLES, N_CLAUSES, LIMB, N_LIMBS, USED, ENTRY_NODE = range(7)


class Clauses(NamedTuple):
    """Clauses over variables 0, 1, …; literal ``2 v`` says that v holds, ``2 v + 1`` that it does not.

    Clause c has the literals ``literals[first[c] : first[c + 1]]``; those with literal l are ``uses[uses_first[l] :
    uses_first[l + 1]]``. The variable with the highest sum of ``rank`` and number of clauses is decided first.
    ``weights`` of literals multiply; empty where models are counted. Of variables with a 1 in ``hidden`` only some
    value is needed: assignments that differ in these alone are one, and they are decided last. Empty where there are
    none.
    """

    first: Array
    literals: Array
    uses_first: Array
    uses: Array
    rank: Array
    weights: Array
    hidden: Array


class CountState(NamedTuple):
    """The decisions, and the components on the way down.

    ``value`` is 1, 0 or -1 (open) for each variable. ``trail`` is the order of decisions. ``n_true`` and ``n_false``
    count literals of each clause. Part p is a component: ``store[part_first[p] : part_middle[p]]`` are its variables,
    and from there to ``part_first[p + 1]`` the clauses that lost literals. A frame is a component that is being
    counted. It holds its part, its variable, the branch (0, 1, or 2 when both are done), the trail before the branch,
    the next part of the branch, and its first and last part. For a hidden variable it holds the literal that goes
    first, plus 2 if the other need not be tried. For a trace it holds the start of its pending children, and the node
    of its first branch, or -1. ``sums`` and ``products`` are the counts of a frame and of its branch, in limbs
    (``lengths`` of both), or as floats.
    """

    value: Array
    trail: Array
    n_true: Array
    n_false: Array
    seen: Array
    seen_clause: Array
    members: Array
    store: Array
    part_first: Array
    part_middle: Array
    frames: Array
    sums: Array
    products: Array
    lengths: Array
    float_sums: Array
    float_products: Array
    scratch: Array
    counters: Array


class ComponentCache(NamedTuple):
    """Components that were counted, found by the hash of their variables and of the clauses that lost literals.

    ``slots`` holds numbers of entries (from 1), probed in order; entries say where keys and limbs are.
    """

    slots: Array
    hashes: Array
    entries: Array
    floats: Array
    keys: Array
    limbs: Array


def clauses_of(
    n: int,
    clauses: Sequence[Sequence[int]],
    rank: Array,
    weights: Array | None = None,
    hidden: Array | None = None,
) -> Clauses:
    """Lay clauses out.

    Parameters
    ----------
    n : int
        Variables.
    clauses : sequence of sequence of int
        Literals: ``2 v`` and ``2 v + 1``; none twice in a clause.
    rank : ndarray, shape (n,)
    weights : ndarray of float, shape (2 n,), optional
        Positive; 1 for hidden variables.
    hidden : ndarray of bool, shape (n,), optional
        Variables for which some value suffices.
    """
    lengths = np.fromiter(map(len, clauses), dtype=np.int64, count=len(clauses))
    literals = np.fromiter((x for clause in clauses for x in clause), dtype=np.int32, count=int(lengths.sum()))
    owners = np.repeat(np.arange(len(clauses), dtype=np.int32), lengths)
    first = np.concatenate([[0], np.cumsum(lengths)])
    uses_first = np.concatenate([[0], np.cumsum(np.bincount(literals, minlength=2 * n))])
    uses = owners[np.argsort(literals, kind="stable")]
    made = np.zeros(0) if weights is None else np.asarray(weights, dtype=np.float64)
    ranks, needed = np.array(rank, dtype=np.float64), np.zeros(0 if hidden is None else n, dtype=np.int8)
    if hidden is not None:
        needed[:] = hidden
        ranks[~np.asarray(hidden)] += decided_first(ranks, len(clauses))
    return Clauses(first, literals, uses_first, uses, ranks, made, needed)


def decided_first(rank: Array, clauses: int) -> float:
    """Return the amount added to the ranks of variables that are decided before all others."""
    # above what ranks and numbers of clauses add up to
    return 2.0 * (float(rank.max(initial=0.0)) + clauses) + 1.0


def new_state(clauses: Clauses) -> CountState:
    """Return the state of a count that has not begun, with room for 64 decisions.

    Parameters
    ----------
    clauses : Clauses
    """
    n, m = len(clauses.rank), len(clauses.first) - 1
    # an exact count has at most n bits beside its scale, 31 in a limb; a weighted sum is a float
    limbs = 1 if len(clauses.weights) else n // 31 + 3
    depth = 64

    def numbers(*shape: int) -> Array:
        return np.zeros(shape, dtype=np.int64)

    return CountState(
        np.full(n, -1, dtype=np.int8),
        np.zeros(n, dtype=np.int32),
        np.zeros(m, dtype=np.int32),
        np.zeros(m, dtype=np.int32),
        numbers(n),
        numbers(m),
        np.zeros(n, dtype=np.int32),
        np.zeros(8 * (n + m) + 64, dtype=np.int32),
        numbers(2 * n + 4),
        numbers(2 * n + 4),
        numbers(depth, 10),
        numbers(depth, limbs),
        numbers(depth, limbs),
        numbers(depth, 2),
        np.zeros((depth, 2)),
        np.zeros((depth, 2)),
        numbers(2 * limbs + 2),
        numbers(11),
    )


def new_known(entries: int, keys: int, limbs: int, wide: bool, traced: bool = False) -> ComponentCache:
    """Return a cache with capacity for components, for variables and clauses of their keys, and for limbs of their
    counts.
    """
    slots = 1 << (2 * entries - 1).bit_length()
    return ComponentCache(
        np.zeros(slots, dtype=np.int32),
        np.zeros(entries, dtype=np.int64),
        np.zeros((entries, ENTRY_NODE + traced), dtype=np.int64),
        np.zeros((entries, 2)),
        np.zeros(keys, dtype=np.uint32 if wide else np.uint16),
        np.zeros(limbs, dtype=np.int32),
    )


def grown(state: CountState, depth: bool) -> CountState:
    """Return the same state with twice the capacity for frames, or for the contents of parts."""

    def twice(array: Array) -> Array:
        return np.concatenate([array, np.zeros_like(array)])

    if not depth:
        return state._replace(store=twice(state.store))
    names = ["frames", "sums", "products", "lengths", "float_sums", "float_products"]
    return state._replace(**{name: twice(getattr(state, name)) for name in names})


def nbytes(*parts: NamedTuple) -> int:
    """Bytes of all arrays."""
    return sum(array.nbytes for part in parts for array in part)
