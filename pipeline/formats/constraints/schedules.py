"""Scheduling and packing: cumulative resources, boxes that do not overlap, and loads of bins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from ..flatzinc.flatzinc_functions import FlatZincFunctions, Literal
from ..flatzinc.flatzinc_syntax import Operand
from ..format_policy import FormatPolicy
from ..xcsp3.xcsp3_machines import Condition
from .operand_machines import add_weighted_sum, computed, values_of


def add_cumulative(
    functions: FlatZincFunctions,
    starts: Sequence[Operand],
    lengths: Sequence[Operand],
    heights: Sequence[Operand],
    condition: Condition,
) -> None:
    """Limit the total height of the tasks that run at any time.

    The heights change only where a task starts or ends, and rise only where one starts. So one sum for each possible
    start is enough, plus the empty sum. The use of a task with several variables is a hidden variable that they decide.

    Parameters
    ----------
    functions : FlatZincFunctions
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
    functions: FlatZincFunctions,
    origins: Sequence[Sequence[Operand]],
    lengths: Sequence[Sequence[Operand]],
    *,
    zero_ignored: bool,
) -> None:
    """Let no two boxes overlap: along some axis the one ends before the other begins.

    Parameters
    ----------
    functions : FlatZincFunctions
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
        literals: list[Literal] = []
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
    """Return where two boxes do not overlap, as an array."""
    first, sizes, second, others = (values[k * width : (k + 1) * width] for k in range(4))
    found: Any = np.array(False)
    for start, size, other, length in zip(first, sizes, second, others, strict=True):
        found = found | (start + size <= other) | (other + length <= start)
        if zero_ignored:
            found = found | (size == 0) | (length == 0)
    return found


def add_bins(
    functions: FlatZincFunctions, items: Sequence[Operand], sizes: Sequence[int], loads: dict[int, Condition]
) -> None:
    """Let the sizes of the items in each bin add up to a number that satisfies a condition.

    Parameters
    ----------
    functions : FlatZincFunctions
    items : sequence of operand
        The bin of each item.
    sizes : sequence of int
    loads : dict of int to Condition
        Bins, each with the condition on its load.
    """
    for number, condition in loads.items():
        constant = sum(size for size, each in zip(sizes, items, strict=True) if each == number)
        terms = [
            (each[0], [size * (value == number) for value in functions.values[each[0]]])
            for size, each in zip(sizes, items, strict=True)
            if isinstance(each, tuple)
        ]
        add_weighted_sum(functions, terms, constant, condition)
