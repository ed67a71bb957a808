"""Linear constraints over integers as functions: machines for small domains, arrays of partial sums for wide ones.

A chain over ``x[1], ..., x[n]`` has a hidden variable between two readings. Its states are the partial sums
``w[1](x[1]) + ... + w[k](x[k])`` that do not yet decide the constraint. An equation keeps only the partial sums that
the other side of the chain completes, so two variables of 100,000 values each take one row for each pair that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ...errors import BudgetError
from ...models.function import FORBIDDEN
from ..format_policy import WORD_BYTES, FormatPolicy
from ..global_functions.decomposition import Decomposition
from ..global_functions.machine import Layers, Machine, State
from ..text.tables import tuple_table

# States of a machine that knows the end; no sums, which are numbers.
_HOLDS, _FAILS = "holds", "fails"
RELATIONS = ("<=", ">=", "=", "!=")


def decided(low: int, high: int, relation: str, right: int) -> bool | None:
    """Whether sums from ``low`` to ``high`` all satisfy a relation, or none does; None where both may be."""
    if relation == ">=":
        return True if low >= right else False if high < right else None
    if relation == "<=":
        return True if high <= right else False if low > right else None
    equal = low == high == right or (None if low <= right <= high else False)
    return equal if relation == "=" else None if equal is None else not equal


def linear_machine(weights: Sequence[Sequence[int]], relation: str, right: int, cost: int | None) -> Machine:
    """Return the machine of a linear constraint, which is not decided before something is read.

    A state is the sum so far, or the outcome of the constraint once it is certain.

    Parameters
    ----------
    weights : sequence of sequence of int
        Amount of each state of each variable.
    relation : {"<=", ">=", "=", "!="}
    right : int
    cost : int or None
        Cost of a violation; None if it is forbidden.
    """
    lows, highs = ([*accumulate(map(end, reversed(weights)), initial=0)][::-1] for end in (min, max))

    def step(state: State, place: int, value: int) -> State | None:
        if state in (_HOLDS, _FAILS):
            return state
        total = state + weights[place][value]
        found = decided(total + lows[place + 1], total + highs[place + 1], relation, right)
        if found is None:
            return total
        return _HOLDS if found else None if cost is None else _FAILS

    return Machine.counting(0, step, lambda state: 0 if state == _HOLDS else cost or 0)


MOST_CELLS = 1 << 22
"""Most rows of one function: 50 MB of states, and a second to make them."""
_MOST_SUMS = MOST_CELLS >> 4
"""Most partial sums between two variables. A hidden variable of more states makes no useful model."""
_EXACT = FORBIDDEN >> 1
Ints = NDArray[np.int64]


def add_linear(
    parts: Decomposition,
    scope: Sequence[int],
    sums: Sequence[Sequence[int]],
    relation: str,
    right: int,
    cost: int | None = None,
) -> None:
    """Add a linear constraint that its bounds do not decide.

    Parameters
    ----------
    parts : Decomposition
        Receives the functions.
    scope : sequence of int
        Variables, each once.
    sums : sequence of sequence of int
        Amount of each state of each variable.
    relation : {"<=", ">=", "=", "!="}
    right : int
    cost : int or None
        Cost of a violation; None if it is forbidden.

    Raises
    ------
    BudgetError
        If a function has too many rows, with their number.
    """
    if not is_wide(sums) or not _is_exact(sums, right):
        parts.machine(scope, linear_machine(sums, relation, right, cost))
        return
    order = sorted(range(len(scope)), key=lambda k: len(sums[k]))
    scope, arrays = [scope[k] for k in order], [np.array(sums[k], np.int64) for k in order]
    if len(scope) == 1:
        _, fails = _decided(arrays[0], 0, 0, relation, right)
        parts.table(scope, np.where(fails, FORBIDDEN if cost is None else cost, 0))
    elif relation == "=" and cost is None:
        _EqualSums(parts, scope, arrays, right).add()
    elif relation == "!=" and cost is None and len(scope) == 2:
        rows = equal_pairs(arrays[0], right - arrays[1])
        parts.add(tuple_table(scope, parts.dims, rows, np.full(len(rows), FORBIDDEN), 0))
    else:
        parts.layers(scope, _layers(parts, arrays, relation, right, cost, None))


def add_reified_linear(
    parts: Decomposition,
    scope: Sequence[int],
    sums: Sequence[Sequence[int]],
    relation: str,
    right: int,
    truth: int,
    truths: Sequence[int],
    *,
    both: bool,
) -> bool:
    """Add that a boolean says whether a wide linear constraint holds, and return whether the constraint is wide.

    Parameters
    ----------
    parts, scope, sums, relation, right :
        As in :func:`add_linear`.
    truth : int
        The boolean, which may not be in the scope.
    truths : sequence of int
        0 or 1 for each of its states.
    both : bool
        False if the boolean only implies the constraint.
    """
    if not is_wide(sums) or not _is_exact(sums, right):
        return False
    order = sorted(range(len(scope)), key=lambda k: len(sums[k]))
    arrays = [np.array(sums[k], np.int64) for k in order]
    ends = np.array([[own or not both for own in truths], [not own for own in truths]])
    parts.layers([*(scope[k] for k in order), truth], _layers(parts, arrays, relation, right, None, ends))
    return True


def is_wide(sums: Sequence[Sequence[int]]) -> bool:
    """Whether a machine, which makes one move at a time, would be slow, or could have more states than it may."""
    policy = FormatPolicy.current()
    states, moves, spread, most = 1, 0, 0, 1
    for own in sums:
        moves += states * len(own)
        spread += max(own) - min(own)
        states = min(states * len(own), spread + 1)
        most = max(most, states)
    return most > policy.machine_states or moves > policy.predicate_cells


def _is_exact(sums: Sequence[Sequence[int]], right: int) -> bool:
    return abs(right) + sum(max(map(abs, own)) for own in sums) < _EXACT


def _take(parts: Decomposition, count: int, sums: int, values: int) -> None:
    """Count the memory of the pairs of partial sums and the values of the next variable.

    Raises
    ------
    BudgetError
        If there are too many, with their number.
    """
    pairs = sums * values
    needed = f"{pairs:,} pairs of a partial sum and a value, and at most {MOST_CELLS:,}"
    if sums > _MOST_SUMS:
        needed = f"{sums:,} partial sums between two variables, and at most {_MOST_SUMS:,}"
    if pairs > MOST_CELLS or sums > _MOST_SUMS:
        raise BudgetError(
            f"{parts.allowance.path}: {parts.what} over {count} variables needs {needed} are made; bound its "
            "variables more tightly, or give it as several constraints of fewer variables"
        )
    parts.allowance.take(0, "partial sums of a linear constraint", for_now=WORD_BYTES * pairs)


def _suffixes(arrays: Sequence[Ints]) -> tuple[list[int], list[int]]:
    """Return the least and the greatest sum of the readings from each place on."""
    lows = [*accumulate((int(own.min()) for own in reversed(arrays)), initial=0)][::-1]
    return lows, [*accumulate((int(own.max()) for own in reversed(arrays)), initial=0)][::-1]


def equal_pairs(first: Ints, second: Ints) -> NDArray[np.int32]:
    """Return the index pairs of two arrays with equal values."""
    order = np.argsort(second, kind="stable")
    ordered = second[order]
    starts, ends = np.searchsorted(ordered, first, "left"), np.searchsorted(ordered, first, "right")
    counts = ends - starts
    own = np.repeat(np.arange(len(first)), counts)
    inside = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.column_stack([own, order[starts[own] + inside]]).astype(np.int32)


class _EqualSums:
    """An equation as a chain of the partial sums that both its sides reach.

    Parameters
    ----------
    parts : Decomposition
    scope : sequence of int
        At least two variables, those with few values first.
    arrays : sequence of ndarray, shape (domain size,), int64
    right : int
    """

    def __init__(self, parts: Decomposition, scope: Sequence[int], arrays: Sequence[Ints], right: int) -> None:
        self.parts, self.scope, self.arrays, self.right = parts, scope, arrays, right

    def add(self) -> None:
        """Add the functions."""
        cuts = self._cuts()
        if not all(map(len, cuts)):
            self.parts.forbid()
            return
        # if the cut equals a variable, the variable itself is the link
        first, last = self._direct(self.arrays[0], cuts[0]), self._direct(self.right - self.arrays[-1], cuts[-1])
        links: list[tuple[int, Ints]] = []
        for k, own in enumerate(cuts):
            if k == 0 and first is not None:
                links.append((self.scope[0], first))
            elif k == len(cuts) - 1 and last is not None:
                links.append((self.scope[-1], last))
            else:
                links.append((self.parts.variable(len(own)), np.arange(len(own))))
        if links[0][0] != self.scope[0]:
            self._rows((self.scope[0], links[0][0]), equal_pairs(self.arrays[0], cuts[0]))
        for k, (own, following) in enumerate(pairwise(cuts), 1):
            states, values = self._reaching(own, self.arrays[k], following)
            to = np.searchsorted(following, own[states] + self.arrays[k][values])
            rows = np.column_stack([links[k - 1][1][states], values, links[k][1][to]])
            self._rows((links[k - 1][0], self.scope[k], links[k][0]), rows)
        if links[-1][0] != self.scope[-1]:
            rows = equal_pairs(cuts[-1], self.right - self.arrays[-1])
            rows[:, 0] = links[-1][1][rows[:, 0]]
            self._rows((links[-1][0], self.scope[-1]), rows)

    def _cuts(self) -> list[Ints]:
        """Return the partial sums between every two readings that lead to the right side, in order."""
        lows, highs = _suffixes(self.arrays)
        cuts: list[Ints] = []
        reached = np.zeros(1, np.int64)
        for k, own in enumerate(self.arrays[:-1]):
            _take(self.parts, len(self.scope), len(reached), len(own))
            reached = np.unique(np.add.outer(reached, own))
            left = self.right - reached
            reached = reached[(left >= lows[k + 1]) & (left <= highs[k + 1])]
            cuts.append(reached)
        cuts[-1] = np.intersect1d(cuts[-1], self.right - self.arrays[-1])
        for k in range(len(cuts) - 2, -1, -1):
            states, _ = self._reaching(cuts[k], self.arrays[k + 1], cuts[k + 1])
            cuts[k] = cuts[k][np.unique(states)]
        return cuts

    @staticmethod
    def _reaching(own: Ints, added: Ints, following: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the pairs of a partial sum and a value that lead to a partial sum which remains."""
        if not len(following):
            return np.empty(0, np.intp), np.empty(0, np.intp)
        total = np.add.outer(own, added)
        places = np.searchsorted(following, total).clip(max=len(following) - 1)
        found = np.nonzero(following[places] == total)
        return found[0], found[1]

    @staticmethod
    def _direct(values: Ints, own: Ints) -> Ints | None:
        """Return the state of a variable for each partial sum, if no two states that remain add the same."""
        kept = np.flatnonzero(np.isin(values, own))
        return kept[np.argsort(values[kept])] if len(kept) == len(own) else None

    def _rows(self, scope: tuple[int, ...], rows: NDArray[np.integer]) -> None:
        costs = np.zeros(len(rows), np.int64)
        self.parts.add(tuple_table(scope, self.parts.dims, rows.astype(np.int32), costs, FORBIDDEN))


def _layers(
    parts: Decomposition,
    arrays: Sequence[Ints],
    relation: str,
    right: int,
    cost: int | None,
    ends: NDArray[np.bool_] | None,
) -> Layers:
    """Return the least machine of partial sums, which stops counting once the constraint holds or fails.

    Parameters
    ----------
    parts : Decomposition
    arrays : sequence of ndarray, shape (domain size,), int64
    relation, right, cost :
        As in :func:`add_linear`.
    ends : ndarray of bool, shape (2, states), optional
        The states of a boolean, read last, that are allowed where the constraint holds, and where it fails.
    """
    lows, highs = _suffixes(arrays)
    to, costs = list[Ints](), list[Ints]()
    reached, decided_rows = np.zeros(1, np.int64), False
    for k, own in enumerate(arrays):
        _take(parts, len(arrays), len(reached) + 2 * decided_rows, len(own))
        total = np.add.outer(reached, own)
        holds, fails = _decided(total, lows[k + 1], highs[k + 1], relation, right)
        following = np.unique(total[~(holds | fails)])
        places = np.searchsorted(following, total)
        # decided sums need no further counting: two states stand for all of them
        places[holds], places[fails] = len(following), len(following) + 1
        charged = np.zeros(total.shape, np.int64)
        if ends is None:
            places[fails] = -1 if cost is None else len(following)
            charged[fails] = cost or 0
        if decided_rows:
            decided_to = np.full((2, len(own)), [[len(following)], [len(following) + 1]])
            places, charged = np.vstack([places, decided_to]), np.vstack([charged, np.zeros_like(decided_to)])
        to.append(places)
        costs.append(charged)
        reached, decided_rows = following, True
    if ends is not None:
        to.append(np.where(ends, 0, -1))
        costs.append(np.zeros_like(to[-1]))
    return _merged(to, costs)


def _decided(
    total: Ints, low: int, high: int, relation: str, right: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where a relation holds whatever follows, between two bounds, and where it fails."""
    if relation == "<=":
        return total + high <= right, total + low > right
    if relation == ">=":
        return total + low >= right, total + high < right
    apart = (total + high < right) | (total + low > right)
    equal = (total == right) if low == high == 0 else (total + low == right) & (low == high)
    return (equal, apart) if relation == "=" else (apart, equal)


def _merged(to: Sequence[Ints], costs: Sequence[Ints]) -> Layers:
    """Return the layers with states merged that lead on alike, from the last one backwards."""
    classes = np.zeros(2, np.int64)  # behind the last reading there is one state
    made: list[tuple[Ints, Ints]] = []
    for places, own in zip(reversed(to), reversed(costs), strict=True):
        ahead = np.where(places < 0, -1, classes[places])
        charged = np.where(ahead < 0, 0, own)
        alive = np.flatnonzero((ahead >= 0).any(axis=1))
        numbers: dict[bytes, int] = {}
        firsts = list[int]()
        classes = np.full(len(ahead), -1)
        for state in alive.tolist():
            key = ahead[state].tobytes() + charged[state].tobytes()
            classes[state] = numbers.setdefault(key, len(numbers))
            if len(firsts) < len(numbers):
                firsts.append(state)
        kept = firsts or [0]
        made.append((ahead[kept], charged[kept]))
    made.reverse()
    return Layers(tuple(own for own, _ in made), tuple(own for _, own in made))
