"""Constraints on lists: lexicographic order, different lists, value precedence, and places of an extreme."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np

from ..flatzinc.flatzinc_functions import FlatZincFunctions
from ..flatzinc.flatzinc_syntax import Operand
from ..global_functions.machine import State
from .operand_machines import read_operands, values_of

Rank = Literal["any", "first", "last"]


def add_lex(functions: FlatZincFunctions, lists: Sequence[Sequence[Operand]], *, strict: bool) -> None:
    """Let each list come before the next one in lexicographic order; equal lists are allowed unless ``strict``.

    A list comes before every longer list that begins with it.
    """
    for first, second in pairwise(lists):
        _compare(functions, first, second, len(first) < len(second) or (len(first) == len(second) and not strict))


def _compare(functions: FlatZincFunctions, first: Sequence[Operand], second: Sequence[Operand], equal: bool) -> None:
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
    functions: FlatZincFunctions, lists: Sequence[Sequence[Operand]], but: Collection[tuple[int, ...]] = ()
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
    functions: FlatZincFunctions, operands: Sequence[Operand], values: Sequence[int], *, covered: bool = False
) -> None:
    """Let each of some different values occur only behind the value before it.

    Parameters
    ----------
    functions : FlatZincFunctions
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
    functions: FlatZincFunctions,
    operands: Sequence[Operand],
    better: Callable[[int, int], bool],
    holds: Callable[[int, int], Any],
    other: Operand,
    rank: Rank,
) -> None:
    """Let the place of an extreme value, counted from 0, satisfy a condition.

    Parameters
    ----------
    functions : FlatZincFunctions
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


def add_member(
    functions: FlatZincFunctions, operands: Sequence[Operand], holds: Callable[[int, int], Any], other: Operand
) -> None:
    """Let some operand satisfy a condition, which is called with the operand's value and the value of ``other``."""

    def step(state: State, place: int, value: int) -> State:
        if place == 0 or state == "found":
            return state if state == "found" else (value,)
        return "found" if holds(value, state[0]) else state

    read_operands(functions, [other, *operands], "", step, lambda state: state == "found")


def add_matrix_element(
    functions: FlatZincFunctions,
    rows: Sequence[Sequence[Operand]],
    at: tuple[Operand, Operand],
    starts: tuple[int, int],
    holds: Callable[..., Any],
    other: Operand,
) -> None:
    """Let the entry of a matrix at a row and a column satisfy a condition.

    Parameters
    ----------
    functions : FlatZincFunctions
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
