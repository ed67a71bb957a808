"""Constraints that XCSP3, FlatZinc and CPMpy share, decomposed into tables: lists, circuits, schedules, packing.

Most constraints become machines (finite automata), which read the operands in turn. An operand is a variable or an
integer. Sums and counts are compared with an operand or with a set of integers.

In a circuit every node has a successor, and the nodes that are not their own successors form one circuit. Up to a dozen
nodes, a machine reads one successor after another. Its state is the first node of the path that ends in each node whose
successor is not read yet (Held and Karp, 1962, keep the same paths). Beyond, each node has a hidden variable for its
position in the circuit (Miller, Tucker and Zemlin, 1960), which the successors decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations, pairwise
from math import comb, factorial, prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import LARGEST_DECIMAL
from ..errors import FormatError
from ..models.model import FORBIDDEN
from .constraint_functions import Condition, ConstraintFunctions
from .flatzinc.flatzinc_syntax import Operand
from .format_policy import FormatPolicy
from .global_functions.machine import State
from .text.tables import tuple_table

Step = Callable[[State, int, int], State | None]


def values_of(functions: ConstraintFunctions, operand: Operand) -> Sequence[int]:
    """Return the values that an operand may have."""
    return functions.values[operand[0]] if isinstance(operand, tuple) else (operand,)


def read_operands(
    functions: ConstraintFunctions, operands: Sequence[Operand], start: State, step: Step, end: Callable[[State], bool]
) -> None:
    """Allow the values of operands that a machine accepts; a step reads a variable and the integers after it.

    Parameters
    ----------
    functions : ConstraintFunctions
    operands : sequence of operand
    start : hashable
    step : callable
        Called with a state, the place of an operand and its value; returns the next state, or None to forbid.
    end : callable
        Called with the last state; returns whether it accepts.

    Raises
    ------
    BudgetError
        If the machine has too many states.
    """
    places = [k for k, each in enumerate(operands) if isinstance(each, tuple)]
    ends = [*places[1:], len(operands)]

    def advanced(state: State | None, low: int, high: int) -> State | None:
        for place in range(low, high):
            if state is None:
                return None
            state = step(state, place, operands[place])  # type: ignore[arg-type]
        return state

    first = advanced(start, 0, places[0] if places else len(operands))
    if first is None:
        functions.parts.forbid()
        return

    def read(state: State, k: int, value: int) -> State | None:
        return advanced(step(state, places[k], value), places[k] + 1, ends[k])

    scope = [operands[place][0] for place in places]  # type: ignore[index]
    functions.machine(scope, first, read, lambda state: 0 if end(state) else FORBIDDEN)


def product_of(functions: ConstraintFunctions, x: Operand, y: Operand) -> Operand:
    """Return the product of two operands: an integer, or a hidden variable that the operands determine.

    Raises
    ------
    FormatError
        If a product may have more than 18 digits.
    """
    if not isinstance(x, tuple) and not isinstance(y, tuple):
        return x * y
    if x == 0 or y == 0:
        return 0
    if x == 1 or y == 1:
        return y if x == 1 else x
    if prod(max(map(abs, values_of(functions, each))) for each in (x, y)) >= LARGEST_DECIMAL:
        parts = functions.parts
        raise FormatError(parts.allowance.path, None, f"products below 10^18 in {parts.what}", "larger ones")
    return computed(functions, [x, y], np.multiply)


def computed(functions: ConstraintFunctions, operands: Sequence[Operand], compute: Callable[..., Any]) -> Operand:
    """Return a function of operands: an integer if it has one value, else a hidden variable that they determine.

    Raises
    ------
    BudgetError
        If the operands have too many joint values.
    """
    found = np.unique(functions.evaluated(operands, compute))
    if len(found) == 1:
        return int(found[0])
    output = functions.hidden(found.tolist())
    functions.result(operands, output, lambda *values: (compute(*values), np.array(True)))
    return output


def add_weighted_sum(
    functions: ConstraintFunctions, terms: Sequence[tuple[int, Sequence[int]]], constant: int, condition: Condition
) -> None:
    """Compare a sum of a constant and terms of variables with an operand or a set.

    Parameters
    ----------
    functions : ConstraintFunctions
    terms : sequence of (int, sequence of int)
        Variables, each with the summand of each of its states.
    constant : int
    condition : Condition
    """
    right: int | frozenset[int]
    if isinstance(condition.operand, tuple):
        (number,) = condition.operand
        terms, right = [*terms, (number, [-value for value in functions.values[number]])], -constant
    elif isinstance(condition.operand, frozenset):
        right = frozenset(value - constant for value in condition.operand)
    else:
        right = condition.operand - constant
    functions.total([v for v, _ in terms], [own for _, own in terms], Condition(condition.operator, right))


def add_sum_of(
    functions: ConstraintFunctions,
    operands: Sequence[Operand],
    amount: Callable[[int, int], int],
    condition: Condition,
) -> None:
    """Compare a sum of one amount for each operand with an operand or a set.

    Parameters
    ----------
    functions : ConstraintFunctions
    operands : sequence of operand
    amount : callable
        Called with the place of an operand and its value; returns its summand.
    condition : Condition
    """
    terms: list[tuple[int, Sequence[int]]] = []
    constant = 0
    for place, each in enumerate(operands):
        if isinstance(each, tuple):
            terms.append((each[0], [amount(place, value) for value in functions.values[each[0]]]))
        else:
            constant += amount(place, each)
    add_weighted_sum(functions, terms, constant, condition)


def add_linear(
    functions: ConstraintFunctions, weights: Sequence[int], operands: Sequence[Operand], condition: Condition
) -> None:
    """Compare a weighted sum of operands with an operand or a set."""
    add_sum_of(functions, operands, lambda place, value: weights[place] * value, condition)


def add_count(
    functions: ConstraintFunctions, operands: Sequence[Operand], wanted: Sequence[Operand], condition: Condition
) -> None:
    """Compare the number of operands that have a wanted value with an operand or a set.

    If a wanted value is a variable, each operand gets a hidden variable: whether the operand has a wanted value.
    """
    constants = [each for each in wanted if isinstance(each, int)]
    others = [each for each in wanted if isinstance(each, tuple)]

    def hit(value: NDArray[Any], *own: NDArray[Any]) -> Any:
        found = np.isin(value, constants)
        for each in own:
            found = found | (value == each)
        return found.astype(np.int64)

    if others:
        hits = [computed(functions, [each, *others], hit) for each in operands]
        add_linear(functions, [1] * len(hits), hits, condition)
        return
    counted = {*constants}
    add_sum_of(functions, operands, lambda _, value: int(value in counted), condition)


Rank = Literal["any", "first", "last"]


def add_lex(functions: ConstraintFunctions, lists: Sequence[Sequence[Operand]], *, strict: bool) -> None:
    """Let each list come before the next one in lexicographic order; equal lists are allowed unless ``strict``.

    A list comes before every longer list that begins with it.
    """
    for first, second in pairwise(lists):
        _compare(functions, first, second, len(first) < len(second) or (len(first) == len(second) and not strict))


def _compare(functions: ConstraintFunctions, first: Sequence[Operand], second: Sequence[Operand], equal: bool) -> None:
    """Let a list come before another list, or let the second list begin with the first one if ``equal``."""
    pairs = [*zip(first, second, strict=False)]

    def step(state: State, place: int, value: int) -> State | None:
        if state == "less":
            return state
        if place % 2 == 0:
            return ("compare", value)
        known = state[1]
        return "less" if known < value else "equal" if known == value else None

    read_operands(functions, [each for pair in pairs for each in pair], "equal", step, lambda s: equal or s == "less")


def add_different_lists(
    functions: ConstraintFunctions, lists: Sequence[Sequence[Operand]], but: Collection[tuple[int, ...]] = ()
) -> None:
    """Let every two lists of one length differ somewhere, unless both are one of the lists of integers in ``but``."""
    excepted = [*but]

    def step(state: State, place: int, value: int) -> State:
        if state == "differ":
            return state
        if place % 2 == 0:
            return (*state, value)
        *left, known = state
        if known != value:
            return "differ"
        return tuple([k for k in left if excepted[k][place // 2] == value])

    start = tuple(range(len(excepted)))
    for first, second in combinations(lists, 2):
        interleaved = [each for pair in zip(first, second, strict=True) for each in pair]
        read_operands(functions, interleaved, start, step, lambda state: state == "differ" or bool(state))


def add_precedence(
    functions: ConstraintFunctions, operands: Sequence[Operand], values: Sequence[int], *, covered: bool = False
) -> None:
    """Let each value occur only after the previous value of the list has occurred.

    Parameters
    ----------
    functions : ConstraintFunctions
    operands : sequence of operand
    values : sequence of int
    covered : bool
        Whether all values occur.
    """
    order = {value: k for k, value in enumerate(values)}

    def step(reached: int, _: int, value: int) -> int | None:
        k = order.get(value, -1)
        return None if k > reached else reached + (k == reached)

    read_operands(functions, operands, 0, step, lambda reached: not covered or reached == len(values))


def add_extreme_place(
    functions: ConstraintFunctions,
    operands: Sequence[Operand],
    better: Callable[[int, int], bool],
    holds: Callable[[int, int], Any],
    other: Operand,
    rank: Rank,
) -> None:
    """Let the place of an extreme value, counted from 0, satisfy a condition.

    Parameters
    ----------
    functions : ConstraintFunctions
    operands : sequence of operand
    better : callable
        Called with two values; returns whether the first one is more extreme.
    holds : callable
        Called with a place and the value of ``other``; returns whether the condition holds.
    other : operand
    rank : {"any", "first", "last"}
        If several places have the extreme value: whether some place, the first or the last one satisfies the condition.
    """

    def step(state: State, place: int, value: int) -> State:
        if place == 0:
            return (value, None, False)
        right, best, fits = state
        own = bool(holds(place - 1, right))
        if best is None or better(value, best):
            return (right, value, own)
        if value != best or rank == "first":
            return state
        return (right, best, own if rank == "last" else fits or own)

    read_operands(functions, [other, *operands], ("",), step, lambda state: bool(state[2]))


def add_read(
    functions: ConstraintFunctions,
    operands: Sequence[Operand],
    start: State,
    step: Callable[[State, int], State],
    number: Callable[[State], int],
    condition: Condition,
) -> None:
    """Compare a number that is known behind the last operand with an operand or a set.

    Parameters
    ----------
    functions : ConstraintFunctions
    operands : sequence of operand
    start : hashable
    step : callable
        Called with a state and the value of the next operand; returns the next state.
    number : callable
        Called with the last state.
    condition : Condition
    """
    _, other = condition.related()

    def read(state: State, place: int, value: int) -> State:
        return step(state, value) if place < len(operands) else condition.holds(number(state), value)

    read_operands(functions, [*operands, other], start, read, bool)


def add_extreme(
    functions: ConstraintFunctions,
    operands: Sequence[Operand],
    choose: Callable[[int, int], int],
    condition: Condition,
) -> None:
    """Compare the greatest, or the least, of some operands with an operand or a set."""

    def step(state: State, value: int) -> State:
        return value if state == "none" else choose(state, value)

    add_read(functions, operands, "none", step, lambda state: state, condition)


def add_element(
    functions: ConstraintFunctions, operands: Sequence[Operand], index: Operand, start: int, condition: Condition
) -> None:
    """Compare the operand at an index, counted from ``start``; operands of other places may have any value."""
    _, other = condition.related()

    def read(state: State, place: int, value: int) -> State | None:
        if place == 0:
            return ("at", value - start) if 0 <= value - start < len(operands) else None
        if place > len(operands):
            return condition.holds(state[1], value)
        return ("is", value) if state == ("at", place - 1) else state

    read_operands(functions, [index, *operands, other], "", read, bool)


def add_member(
    functions: ConstraintFunctions, operands: Sequence[Operand], holds: Callable[[int, int], Any], other: Operand
) -> None:
    """Let at least one operand satisfy a condition of its value and the value of ``other``."""

    def step(state: State, place: int, value: int) -> State:
        if place == 0 or state == "found":
            return state if state == "found" else (value,)
        return "found" if holds(value, state[0]) else state

    read_operands(functions, [other, *operands], "", step, lambda state: state == "found")


def add_inverse(
    functions: ConstraintFunctions,
    first: Sequence[tuple[int, Operand]],
    second: Sequence[tuple[int, Operand]],
    *,
    both_ways: bool = True,
) -> None:
    """Let two lists be inverse to each other, or only the second to the first; a list has pairs of place and operand.

    Parameters
    ----------
    functions : ConstraintFunctions
    first, second : sequence of (int, operand)
    both_ways : bool
        Whether the second list also has only places of the first one.
    """
    for own, other in ((first, second), (second, first))[: 1 + both_ways]:
        for _, each in own:
            functions.relation([each], lambda to, other=other: np.isin(to, [k for k, _ in other]))
    for i, x in first:
        for j, y in second:
            functions.relation(
                [x, y], lambda to, back, i=i, j=j: ((to == j) == (back == i)) | ((to != j) & (not both_ways))
            )


def add_matrix_element(
    functions: ConstraintFunctions,
    rows: Sequence[Sequence[Operand]],
    at: tuple[Operand, Operand],
    starts: tuple[int, int],
    holds: Callable[..., Any],
    other: Operand,
) -> None:
    """Let the entry of a matrix at a row and a column satisfy a condition.

    Parameters
    ----------
    functions : ConstraintFunctions
    rows : sequence of sequence of operand
    at : pair of operand
        Row and column.
    starts : pair of int
        The numbers of the first row and the first column.
    holds : callable
        Called with the entry and the value of ``other`` as arrays.
    other : operand
    """
    heights, widths = (
        range(start, start + size) for start, size in zip(starts, (len(rows), len(rows[0])), strict=True)
    )
    for own, inside in zip(at, (heights, widths), strict=True):
        functions.relation([own], lambda k, inside=inside: (k >= inside.start) & (k < inside.stop))
    if all(isinstance(each, int) for row in rows for each in row):
        table = np.array(rows, np.int64)

        def constant(i: Any, j: Any, right: Any) -> Any:
            entry = table[
                np.clip(i - heights.start, 0, len(heights) - 1), np.clip(j - widths.start, 0, len(widths) - 1)
            ]
            return holds(entry, right)

        functions.relation([*at, other], constant)
        return
    # an entry that is a variable takes part only if its place is chosen
    for i in {*heights}.intersection(values_of(functions, at[0])):
        for j in {*widths}.intersection(values_of(functions, at[1])):
            functions.relation(
                [*at, rows[i - heights.start][j - widths.start], other],
                lambda row, column, own, right, i=i, j=j: (row != i) | (column != j) | holds(own, right),
            )


_CLOSED = "closed"


def add_circuit(
    functions: ConstraintFunctions,
    successors: Sequence[Operand],
    start: int,
    *,
    loops: bool,
    empty: bool = False,
    size: Operand | None = None,
) -> None:
    """Let successors form one circuit.

    Parameters
    ----------
    functions : ConstraintFunctions
    successors : sequence of operand
        The successor of each node.
    start : int
        The number of the first node.
    loops : bool
        Whether nodes may be their own successors, and are then not part of the circuit.
    empty : bool
        With loops, whether all nodes may be their own successors.
    size : operand, optional
        How many nodes are part of the circuit.

    Raises
    ------
    BudgetError
        If the tables of positions take too much memory.
    """
    count = len(successors)
    if size is not None:
        add_sum_of(functions, successors, lambda place, to: int(to != start + place), Condition("eq", size))
    if _paths(count) <= FormatPolicy.current().machine_states:
        _add_machine(functions, successors, start, loops, empty)
    else:
        _add_positions(functions, successors, start, loops, empty)


def _paths(count: int) -> int:
    """Return the maximum number of states of the machine between two nodes."""
    ways = [
        sum(comb(count - k, j) * comb(k, j) * factorial(j) for j in range(min(k, count - k) + 1)) for k in range(count)
    ]
    return max(ways, default=1)


def _add_machine(
    functions: ConstraintFunctions, successors: Sequence[Operand], start: int, loops: bool, empty: bool
) -> None:
    count = len(successors)

    def step(heads: State, place: int, value: int) -> State | None:
        """Read the successor of a node; ``heads`` has the first node of the path to each node from there on."""
        to = value - start
        if heads == _CLOSED:
            return heads if to == place else None
        head, *behind = heads
        if to == place and (loops or count == 1):
            return tuple(behind) if head == place else None
        if to == head:  # the path becomes a circuit, and no other path may be begun
            alone = all(own == k for k, own in enumerate(behind, place + 1))
            return _CLOSED if alone and (loops or not behind) else None
        if to not in behind:
            return None
        behind[behind.index(to)] = head
        return tuple(behind)

    def end(heads: State) -> bool:
        return heads == _CLOSED or empty or (count == 1 and not loops)

    read_operands(functions, successors, tuple(range(count)), step, end)


def _add_positions(
    functions: ConstraintFunctions, successors: Sequence[Operand], start: int, loops: bool, empty: bool
) -> None:
    """Give the first node of the circuit position 1, each other node one more than its predecessor, and nodes outside
    position 0.

    Parameters
    ----------
    functions : ConstraintFunctions
    successors : sequence of operand
    start : int
        Number of the first node.
    loops : bool
        Whether a node may be its own successor, and so outside the circuit.
    empty : bool
        Whether the circuit may be empty.
    """
    count = len(successors)
    nodes = range(start, start + count)
    for k, each in zip(nodes, successors, strict=True):
        functions.relation([each], lambda to, k=k: (to >= nodes.start) & (to < nodes.stop) & (loops | (to != k)))
    functions.different(successors, frozenset())
    positions = [functions.hidden(range(count + 1)) for _ in nodes]
    first: Operand = start
    if loops:
        first = functions.hidden(nodes if not empty else range(start, start + count + 1))

        def step(found: int, place: int, value: int) -> int | None:
            if place == count:
                return found if value == found else None
            return start + place if found == nodes.stop and value != start + place else found

        read_operands(functions, [*successors, first], nodes.stop, step, lambda _: True)
    ends = np.indices((count + 1, count + 1)).reshape(2, -1).T
    # only an edge back to the first node breaks the count
    wrong = ends[(ends[:, 1] != ends[:, 0] + 1) & (ends[:, 1] != 1)]
    for k, x, position in zip(nodes, successors, positions, strict=True):
        functions.relation([x, position], lambda to, own, k=k: (to == k) == (own == 0))
        functions.relation([first, position], lambda one, own, k=k: (one == k) == (own == 1))
        for to in {*nodes}.intersection(values_of(functions, x)) - {k}:
            other = positions[to - start]
            if isinstance(x, tuple):
                state = functions.values[x[0]].index(to)
                rows = np.column_stack([np.full(len(wrong), state), wrong]).astype(np.int32)
                scope = [x[0], position[0], other[0]]
            else:
                rows, scope = wrong.astype(np.int32), [position[0], other[0]]
            functions.parts.add(tuple_table(scope, functions.parts.dims, rows, np.full(len(rows), FORBIDDEN), 0))


def add_cumulative(
    functions: ConstraintFunctions,
    starts: Sequence[Operand],
    lengths: Sequence[Operand],
    heights: Sequence[Operand],
    condition: Condition,
) -> None:
    """Limit the total height of the tasks that run concurrently.

    The total height rises only at the start of a task. One sum for each possible start is therefore enough, plus the
    empty sum. The use of a task with several variables is a hidden variable that these variables determine.

    Parameters
    ----------
    functions : ConstraintFunctions
    starts, lengths, heights : sequence of operand
        Of each task; no length or height is negative.
    condition : Condition
        Less than a limit, or at most a limit.
    """
    tasks = [
        (start, length, height)
        for start, length, height in zip(starts, lengths, heights, strict=True)
        if max(values_of(functions, length)) > 0 and max(values_of(functions, height)) > 0
    ]
    add_weighted_sum(functions, [], 0, condition)
    times = sorted({time for start, *_ in tasks for time in values_of(functions, start)})
    functions.parts.allowance.take(0, "the times of a cumulative constraint", for_now=64 * len(times) * len(tasks))
    for time in times:
        terms: list[tuple[int, Sequence[int]]] = []
        constant = 0
        for task in tasks:
            start, length = (values_of(functions, each) for each in task[:2])
            if min(start) > time or max(start) + max(length) <= time:
                continue

            def taken(start: Any, length: Any, height: Any, time: int = time) -> Any:
                return np.where((start <= time) & (time < start + length), height, 0)

            variables = list(dict.fromkeys(each for each in task if isinstance(each, tuple)))
            # a use that one variable decides needs no hidden variable
            if len(variables) == 1:
                terms.append((variables[0][0], functions.evaluated(task, taken).tolist()))
            else:
                use = computed(functions, task, taken)
                if isinstance(use, tuple):
                    terms.append((use[0], functions.values[use[0]]))
                else:
                    constant += use
        add_weighted_sum(functions, terms, constant, condition)


def add_no_overlap(
    functions: ConstraintFunctions,
    origins: Sequence[Sequence[Operand]],
    lengths: Sequence[Sequence[Operand]],
    *,
    zero_ignored: bool,
) -> None:
    """Let no two boxes overlap: along some axis, one box ends before the other box begins.

    Parameters
    ----------
    functions : ConstraintFunctions
    origins, lengths : sequence of sequence of operand
        Of each box along each axis; tasks have one axis.
    zero_ignored : bool
        Whether boxes of length 0 along some axis may be anywhere.
    """
    boxes = [*zip(origins, lengths, strict=True)]
    for (first, sizes), (second, others) in combinations(boxes, 2):
        width = len(first)
        operands = [*first, *sizes, *second, *others]
        if zero_ignored and any(each == 0 for each in (*sizes, *others)):
            continue
        scope = dict.fromkeys(each for each in operands if isinstance(each, tuple))
        if prod(len(functions.values[each[0]]) for each in scope) <= FormatPolicy.current().predicate_cells:
            functions.relation(operands, lambda *all_, width=width: _apart(all_, width, zero_ignored))
            continue
        # a table of both boxes would be too large: one boolean says which box comes first along which axis
        literals: list[tuple[Operand, bool]] = []
        for start, size, other in (*zip(first, sizes, second, strict=True), *zip(second, others, first, strict=True)):
            before = functions.hidden((0, 1))
            functions.told_linear([1, 1, -1], [start, size, other], "<=", 0, before, both=True)
            literals.append((before, True))
        for size in (*sizes, *others) if zero_ignored else ():
            if isinstance(size, tuple) and 0 in functions.values[size[0]]:
                empty = functions.hidden((0, 1))
                functions.relation([size, empty], lambda own, told: (own == 0) == (told == 1))
                literals.append((empty, True))
        functions.clause(literals)


def _apart(values: Sequence[Any], width: int, zero_ignored: bool) -> Any:
    """Return an array of truth values: whether two boxes do not overlap."""
    first, sizes, second, others = (values[k * width : (k + 1) * width] for k in range(4))
    found: Any = np.array(False)
    for start, size, other, length in zip(first, sizes, second, others, strict=True):
        found = found | (start + size <= other) | (other + length <= start)
        if zero_ignored:
            found = found | (size == 0) | (length == 0)
    return found


def add_bins(
    functions: ConstraintFunctions, items: Sequence[Operand], sizes: Sequence[int], loads: dict[int, Condition]
) -> None:
    """Let the sizes of the items in each bin add up to a number that satisfies a condition.

    Parameters
    ----------
    functions : ConstraintFunctions
    items : sequence of operand
        The bin of each item.
    sizes : sequence of int
    loads : dict of int to Condition
        Bins, each with the condition on its load.
    """
    for number, condition in loads.items():

        def load(k: int, value: int, number: int = number) -> int:
            return sizes[k] * (value == number)

        add_sum_of(functions, items, load, condition)
