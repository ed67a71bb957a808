"""FlatZinc's constraints of scheduling, packing, order and circuits; places are counted from 1."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from ..constraints.operand_machines import add_linear, values_of
from ..constraints.schedules import add_bins, add_cumulative, add_no_overlap
from ..constraints.sequences import add_extreme_place, add_member, add_precedence
from ..constraints.successors import add_circuit
from ..xcsp3.xcsp3_machines import Condition
from .flatzinc_functions import FlatZincFunctions
from .flatzinc_syntax import Operand

Operands = list[Operand]


def _cumulative(
    functions: FlatZincFunctions, starts: Operands, lengths: Operands, heights: Operands, limit: Any
) -> None:
    for each in (*lengths, *heights):
        functions.linear([1], [each], ">=", 0)
    add_cumulative(functions, starts, lengths, heights, Condition("le", limit))


def _disjunctive(strict: bool) -> Callable[..., None]:
    def add(functions: FlatZincFunctions, starts: Operands, lengths: Operands) -> None:
        boxes = [[each] for each in starts], [[each] for each in lengths]
        add_no_overlap(functions, *boxes, zero_ignored=not strict)

    return add


def _boxes(strict: bool) -> Callable[..., None]:
    def add(functions: FlatZincFunctions, x: Operands, y: Operands, widths: Operands, heights: Operands) -> None:
        origins, lengths = ([[*pair] for pair in zip(*both, strict=True)] for both in ((x, y), (widths, heights)))
        add_no_overlap(functions, origins, lengths, zero_ignored=not strict)

    return add


def _circuit(loops: bool) -> Callable[..., None]:
    def add(functions: FlatZincFunctions, successors: Operands) -> None:
        if successors:
            add_circuit(functions, successors, 1, loops=loops, empty=loops)

    return add


def _bins(functions: FlatZincFunctions, limit: int, items: Operands, sizes: list[int]) -> None:
    bins = {value for each in items for value in values_of(functions, each)}
    add_bins(functions, items, sizes, dict.fromkeys(bins, Condition("le", limit)))


def _numbered_bins(compare: str) -> Callable[..., None]:
    """Return a constraint on the loads of bins 1, 2 and so on, where each item is in a bin."""

    def add(functions: FlatZincFunctions, loads: Operands, items: Operands, sizes: list[int]) -> None:
        for each in items:
            functions.relation([each], lambda own: (own >= 1) & (own <= len(loads)))
        add_bins(functions, items, sizes, {k: Condition(compare, each) for k, each in enumerate(loads, 1)})

    return add


def _extreme_place(better: Callable[[int, int], bool]) -> Callable[..., None]:
    def add(functions: FlatZincFunctions, operands: Operands, place: Operand) -> None:
        add_extreme_place(functions, operands, better, lambda k, wanted: k + 1 == wanted, place, "first")

    return add


def _precedence(functions: FlatZincFunctions, values: list[int], operands: Operands) -> None:
    if len({*values}) == len(values):
        add_precedence(functions, operands, values)
        return
    for pair in pairwise(values):
        if pair[0] != pair[1]:
            add_precedence(functions, operands, pair)


def _positive_precedence(functions: FlatZincFunctions, operands: Operands) -> None:
    for each in operands:
        functions.relation([each], lambda own: own <= len(operands))
    add_precedence(functions, operands, range(1, len(operands) + 1))


def _knapsack(
    functions: FlatZincFunctions, weights: list[int], profits: list[int], items: Operands, weight: Any, profit: Any
) -> None:
    for each in items:
        functions.linear([1], [each], ">=", 0)
    add_linear(functions, weights, items, Condition("eq", weight))
    add_linear(functions, profits, items, Condition("eq", profit))


def _sliding_sum(functions: FlatZincFunctions, low: int, high: int, width: int, operands: Operands) -> None:
    for start in range(len(operands) - width + 1):
        window = operands[start : start + max(width, 0)]
        for relation, right in ((">=", low), ("<=", high)):
            functions.linear([1] * len(window), window, relation, right)


def _symmetric(functions: FlatZincFunctions, operands: Operands) -> None:
    for each in operands:
        functions.relation([each], lambda own: (own >= 1) & (own <= len(operands)))
    for i, x in enumerate(operands, 1):
        for j, y in enumerate(operands[i:], i + 1):
            functions.relation([x, y], lambda to, back, i=i, j=j: (to == j) == (back == i))


#: By name: the letters of the arguments, the places of the arguments that are lists of one length, and the handler.
STRUCTURES: Mapping[str, tuple[str, tuple[int, ...], Callable[..., None]]] = {
    "cumulative": ("IIIi", (0, 1, 2), _cumulative),
    "disjunctive": ("II", (0, 1), _disjunctive(strict=False)),
    "disjunctive_strict": ("II", (0, 1), _disjunctive(strict=True)),
    "diffn": ("IIII", (0, 1, 2, 3), _boxes(strict=True)),
    "diffn_nonstrict": ("IIII", (0, 1, 2, 3), _boxes(strict=False)),
    "circuit": ("I", (), _circuit(loops=False)),
    "subcircuit": ("I", (), _circuit(loops=True)),
    "bin_packing": ("cIC", (1, 2), _bins),
    "bin_packing_capa": ("CIC", (1, 2), _numbered_bins("le")),
    "bin_packing_load": ("IIC", (1, 2), _numbered_bins("eq")),
    "value_precede": ("ccI", (), lambda functions, first, second, own: _precedence(functions, [first, second], own)),
    "value_precede_chain": ("CI", (), _precedence),
    "seq_precede_chain": ("I", (), _positive_precedence),
    **dict.fromkeys(("arg_max", "maximum_arg"), ("Ii", (), _extreme_place(operator.gt))),
    **dict.fromkeys(("arg_min", "minimum_arg"), ("Ii", (), _extreme_place(operator.lt))),
    "knapsack": ("CCIii", (0, 1, 2), _knapsack),
    "sliding_sum": ("cccI", (), _sliding_sum),
    "member": ("Ii", (), lambda functions, own, other: add_member(functions, own, operator.eq, other)),
    "symmetric_all_different": ("I", (), _symmetric),
}
