"""Conditions for a Bayesian network: one distribution per variable, rows that sum to 1, and no cycle."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.keys import Keys
from ...tasks.steps.light_dataclass import dataclass
from ..errors import MOST_NAMED, ModelError, shorten
from .function import JOINT_CELLS, Function, joined, runs

# Rows are told apart by a table of their numbers where these reach at most this many times the rows, and sorted
# elsewhere.
NUMBERED_ROWS_RATIO: Final = 8

# Rows sum to 1 within a millionth, as floats add it up.
EVEN = 1e-6 + 1e-12

Numbers = NDArray[np.float64]
States = Sequence[Sequence[str] | None]


@dataclass(frozen=True)
class Fault:
    """A fault of a network: the expected property and the property found.

    Parameters
    ----------
    function : int or None
        The function that is to blame; None where one is missing.
    expected, found : str
    """

    function: int | None
    expected: str
    found: str


def check_network(functions: Sequence[Function], names: Sequence[str], dims: Sequence[int], states: States) -> None:
    """Refuse functions that are no Bayesian network.

    Raises
    ------
    ModelError
        If a variable has no distribution or two, a row does not sum to 1, or there is a cycle.
    """
    fault = network_fault(functions, names, dims, states)
    if fault is not None:
        place = "" if fault.function is None else f" (function {fault.function})"
        child = "; the child is the last variable of a scope" if fault.expected == _ONE else ""
        raise ModelError(
            f"a Bayesian network has {fault.expected}, not {fault.found}{place}{child}; check=False accepts it "
            "unchanged"
        )


def network_fault(
    functions: Sequence[Function], names: Sequence[str], dims: Sequence[int], states: States
) -> Fault | None:
    """Return the fault that keeps functions from being a Bayesian network, or None."""
    if (fault := children_fault(functions, names)) is not None:
        return fault
    uneven = spread_of(functions, dims).uneven
    return row_fault(functions, uneven[0], names, dims, states) if uneven else cycle_fault(functions, names)


def children_fault(functions: Sequence[Function], names: Sequence[str]) -> Fault | None:
    """Return which variable has no distribution or two, or which function is no distribution; None if all is well."""
    children = [function.child for function in functions]
    if len(children) == len(names) == len(set(children)) and None not in children:
        return None
    if None in children:
        return Fault(children.index(None), "distributions of one variable each", "a function without variables")
    first: dict[int | None, int] = {}
    missing = [shorten(name) for v, name in enumerate(names) if v not in set(children)]
    for f, child in enumerate(children):
        if first.setdefault(child, f) != f:
            without = f", and none of {missing[0]!r}" if missing else ""
            return Fault(f, _ONE, f"two of {shorten(names[child or 0])!r}{without}")
    return Fault(None, _ONE, f"none of {missing[0]!r}")


_ONE = "one distribution of each variable"


def modes_along(functions: Sequence[Function], dims: Sequence[int], known: Mapping[int, int]) -> dict[int, int]:
    """Return the most probable state of each variable given the states of its parents. Known states stay fixed."""
    own = {function.child: function for function in functions}
    order = TopologicalSorter({v: _parents(function) for v, function in own.items()}).static_order()
    states = dict(known)
    for v in order:
        if v is not None and v not in states:
            function = own[v]
            table = function.dense(dims)
            at = tuple([slice(None) if u == v else states[u] for u in function.scope])
            states[v] = int(np.argmax(table[at]))
    return states


def cycle_fault(functions: Sequence[Function], names: Sequence[str]) -> Fault | None:
    """Return a cycle of a network with one distribution of each variable, or None."""
    known: set[int | None] = set()
    for function in functions:  # most files name parents first
        if len(function.scope) == 1 or known.issuperset(_parents(function)):
            known.add(function.child)
    if len(known) == len(names):
        return None
    scopes: list[tuple[int, ...]] = [()] * len(names)
    for function in functions:
        if function.child not in known:
            scopes[function.child or 0] = function.scope
    cycle = _cycle(scopes)
    if not cycle:
        return None
    shown = [shorten(names[v]) for v in cycle]
    if len(shown) > MOST_NAMED:
        shown = [*shown[: MOST_NAMED - 2], "…", shown[-1]]
    at = next(f for f, function in enumerate(functions) if function.child == cycle[-1])
    return Fault(at, "no cycle", f"the cycle {' → '.join(shown)}")


def _cycle(scopes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return a cycle of variables, parents first, where each has a scope of itself and its parents; or nothing.

    Depth-first: a variable is open while its ancestors are gone through.
    """
    state, (new, is_open, done) = bytearray(len(scopes)), range(3)
    for start in range(len(scopes)):
        stack = [start]
        while stack:
            v = stack[-1]
            if state[v] != new:
                state[stack.pop()] = done
                continue
            state[v] = is_open
            for parent in scopes[v]:
                if state[parent] == new:
                    stack.append(parent)
                elif state[parent] == is_open and parent != v:
                    below = [*dict.fromkeys(u for u in reversed(stack) if state[u] == is_open)]
                    return [parent, *below[: below.index(parent) + 1]]
    return []


def _parents(function: Function) -> tuple[int, ...]:
    scope, child = function.scope, function.child
    return scope[:-1] if child == scope[-1] else tuple([v for v in scope if v != child])


@dataclass(frozen=True)
class SumSpread:
    """Sums of the rows of distributions.

    Parameters
    ----------
    low, high : ndarray, shape (functions,)
        The least and the greatest row sum of each function. Functions that were found even together share one pair.
    least, most : float
        Of all sums that are not 1; infinite where there is none.
    """

    low: Numbers
    high: Numbers
    least: float
    most: float

    @property
    def uneven(self) -> list[int]:
        """Distributions with a row that does not sum to 1."""
        found: list[int] = np.flatnonzero((self.low < 1 - EVEN) | (self.high > 1 + EVEN)).tolist()
        return found


def spread_of(functions: Sequence[Function], dims: Sequence[int]) -> SumSpread:
    """Return the range of the row sums of all conditional distributions.

    Parameters
    ----------
    functions : sequence of Function
        Conditional distributions with their child variable.
    dims : sequence of int
        Number of states, by variable.

    Returns
    -------
    SumSpread
        Least and greatest row sum of each function, and of all rows that do not sum to 1.
    """
    plain: defaultdict[int, list[int]] = defaultdict(list)
    low, high = np.ones((2, len(functions)))
    uneven: list[Numbers] = []
    for f, function in enumerate(functions):
        child = function.child
        if child == function.scope[-1] and function.rows is None:
            plain[dims[child]].append(f)
        else:
            sums = row_sums(function, dims)
            low[f], high[f] = sums.min(initial=math.inf), sums.max(initial=-math.inf)
            uneven.append(sums[np.abs(sums - 1) > EVEN])
    for width, those in plain.items():
        # networks have thousands of small tables: those of one width are summed by one matrix product
        for some in _parts(functions, those):
            values = [functions[f].values for f in some]
            sums = (joined(values) if len(values) > 1 else values[0]).reshape(-1, width) @ np.ones(width)
            if sums.max() > 1 + EVEN or sums.min() < 1 - EVEN:
                ends = np.array([table.size // width for table in values]).cumsum()
                starts = np.concatenate([[0], ends[:-1]])
                low[some], high[some] = np.minimum.reduceat(sums, starts), np.maximum.reduceat(sums, starts)
                uneven.append(sums[np.abs(sums - 1) > EVEN])
    if not uneven:
        return SumSpread(low, high, math.inf, -math.inf)
    found = np.concatenate(uneven)
    return SumSpread(low, high, found.min(initial=math.inf), found.max(initial=-math.inf))


def _parts(functions: Sequence[Function], those: list[int]) -> Iterator[list[int]]:
    """Cut the numbers of functions into parts that are small together."""
    sizes = [functions[f].values.size for f in those]
    if sum(sizes) <= JOINT_CELLS:
        yield those
        return
    for part in runs(np.arange(len(those)), np.array(sizes), JOINT_CELLS):
        yield [those[k] for k in part.tolist()]


def row_sums(function: Function, dims: Sequence[int]) -> Numbers:
    """Sum a distribution over its child, for each configuration of the parents.

    For a sparse function, return the sums of the listed parent configurations, in no order, and one more sum if some
    configurations are not listed.
    """
    axis = function.scope.index(function.child or 0)
    if function.rows is None:
        sums: Numbers = np.asarray(function.values.sum(axis=axis), np.float64)
        return sums
    shape = [dims[v] for v in function.scope]
    group, count = _configurations(function, axis, shape)
    width = shape[axis]
    sums = np.bincount(group, weights=function.values, minlength=count).astype(np.float64)
    sums = sums + function.default * (width - np.bincount(group, minlength=count))
    unlisted = count < math.prod(shape) // width
    return np.append(sums, function.default * width) if unlisted else sums


def _configurations(function: Function, axis: int, shape: Sequence[int]) -> tuple[NDArray[np.intp], int]:
    """Number the parent configurations of the listed rows from 0.

    Return the number of each row, and the number of configurations.
    """
    assert function.rows is not None
    others, sizes = np.delete(function.rows, axis, axis=1), np.delete(shape, axis).tolist()
    cells = math.prod(sizes)
    if cells <= NUMBERED_ROWS_RATIO * len(others):
        numbers = np.zeros(len(others), np.intp)
        for column, size in zip(others.T, sizes, strict=True):
            numbers = numbers * size + column
        return numbers, cells
    keys = Keys(tuple(range(others.shape[1])), tuple(sizes)).pack(others.T)
    order = np.lexsort(keys.T[::-1])
    new = np.append(True, (keys[order[1:]] != keys[order[:-1]]).any(axis=1))[: len(order)]
    group = np.empty(len(order), np.intp)
    group[order] = new.cumsum() - 1
    return group, int(np.count_nonzero(new))


def row_fault(
    functions: Sequence[Function], f: int, names: Sequence[str], dims: Sequence[int], states: States
) -> Fault:
    """Say which row of a distribution is furthest from 1."""
    function = functions[f]
    at, total = _worst_row(function, dims)
    given = [f"{shorten(names[v])} = {_label(states[v], s)}" for v, s in at.items()]
    row = f" at {', '.join(given)}" if given else ""
    found = f"probabilities of {shorten(names[function.child or 0])!r}{row} that sum to {total:.9g}"
    return Fault(f, "rows of probabilities that sum to 1", found)


def _label(labels: Sequence[str] | None, state: int) -> str:
    return str(state) if labels is None else repr(shorten(labels[state]))


def _worst_row(function: Function, dims: Sequence[int]) -> tuple[dict[int, int], float]:
    """Return the parents' states and the sum of the row furthest from 1; without states if it is not listed."""
    parents, sums = _parents(function), row_sums(function, dims)
    place, sizes = int(np.abs(sums - 1).argmax()), [dims[v] for v in parents]
    states: Any = ()
    if function.rows is None or len(sums) == math.prod(sizes):
        states = np.unravel_index(place, sizes)
    else:
        axis = function.scope.index(function.child or 0)
        group, _ = _configurations(function, axis, [dims[v] for v in function.scope])
        if (listed := np.flatnonzero(group == place)).size:
            states = np.delete(function.rows[listed[0]], axis)
    return dict(zip(parents, map(int, states), strict=False)), float(sums.flat[place])


def normalised(function: Function, dims: Sequence[int]) -> Function:
    """Return a distribution with each row divided by its sum. No sum may be 0."""
    axis = function.scope.index(function.child or 0)
    if function.rows is None:
        return function.changed(values=function.values / function.values.sum(axis=axis, keepdims=True))
    if function.default:
        return normalised(Function(function.scope, function.dense(dims), child=function.child), dims)
    group, count = _configurations(function, axis, [dims[v] for v in function.scope])
    sums = np.bincount(group, weights=function.values, minlength=count)
    return function.changed(values=function.values / sums[group])


def rounding(values: NDArray[Any], width: int) -> float:
    """Return the tolerance of the sum of ``width`` probabilities, given the number of digits that they are printed
    with.
    """
    numbers = values[(values > 0) & (values < 1)]
    large = numbers[numbers >= _LARGE]
    digits = _digits(large)
    if digits < _LEAST_DIGITS:
        digits = _digits(numbers)
    return max(min(width / 2 * 10.0**-digits, MOST_ROUNDED), EVEN) if digits >= _LEAST_DIGITS else EVEN


# Larger probabilities have all their digits after the point, whatever a file counts. A single digit is not a rounded
# number.
_LARGE, _LEAST_DIGITS, _MOST_DIGITS, MOST_ROUNDED = 0.1, 2, 17, 0.02


def _digits(numbers: Numbers) -> int:
    """Return the fewest decimals that hold all of some numbers; 0 of none."""
    if not numbers.size:
        return 0
    for digits in range(1, _MOST_DIGITS):
        numbers = numbers[np.round(numbers, digits) != numbers]
        if not numbers.size:
            return digits
    return _MOST_DIGITS
