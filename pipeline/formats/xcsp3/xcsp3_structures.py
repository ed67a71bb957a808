"""Constraints of XCSP3 on order, schedules, packing and circuits, read from their elements."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from ...errors import shorten
from .. import shared_constraints as shared
from ..constraint_functions import Condition
from ..flatzinc.flatzinc_syntax import Operand
from ..text.xml import Element
from .xcsp3_lists import Xcsp3Lists


@dataclass(frozen=True)
class Kind:
    """A kind of constraint.

    Parameters
    ----------
    add : callable
        Adds a constraint that an element describes.
    children : str
        The names of the element's children.
    """

    add: Callable[[Xcsp3Lists, Element], None]
    children: str


def _lex(reader: Xcsp3Lists, element: Element) -> None:
    operators = element.words("operator") or ["le"]
    name = operators[0] if len(operators) == 1 else ""
    if name not in ("lt", "le", "ge", "gt"):
        raise reader.variables.fail(element, "an operator lt, le, ge or gt", repr(shorten(" ".join(operators))))
    if [*element.every("matrix")]:
        rows = reader.matrix(element)
        groups = [rows, [*map(list, zip(*rows, strict=True))]]
    else:
        groups = [reader.lists(element)]
    for lists in groups:
        shared.add_lex(reader.functions, lists if name[0] == "l" else lists[::-1], strict=name[1] == "t")


def _precedence(reader: Xcsp3Lists, element: Element) -> None:
    operands = reader.operands(reader.one(element))
    given = [*element.every("values")]
    if given:
        values = reader.values(element, "values")
    else:
        values = sorted({value for each in operands for value in shared.values_of(reader.functions, each)})
    if len({*values}) < len(values):
        raise reader.variables.fail(element, "different values", "a value twice")
    covered = any(each.attributes.get("covered") == "true" for each in given)
    shared.add_precedence(reader.functions, operands, values, covered=covered)


def _extreme_place(reader: Xcsp3Lists, element: Element) -> None:
    given = reader.one(element)
    operands, start = reader.operands(given), reader.variables.start_index(given)
    condition = reader.condition(element)
    rank = element.attributes.get("rank", given.attributes.get("rank", "any"))
    if rank not in ("any", "first", "last"):
        raise reader.variables.fail(element, "a rank any, first or last", repr(shorten(rank)))
    _, other = condition.related()
    shared.add_extreme_place(
        reader.functions,
        operands,
        operator.gt if element.tag == "maximumArg" else operator.lt,
        lambda place, right: condition.holds(place + start, right),
        other,
        cast('Literal["any", "first", "last"]', rank),
    )


def _circuit(reader: Xcsp3Lists, element: Element) -> None:
    """Add one circuit of two nodes or more; nodes that are their own successors are not part of it."""
    given = reader.one(element)
    size: Operand | None = None
    if [*element.every("size")]:
        (size,) = reader.given(element, "size", 1)
    start = reader.variables.start_index(given)
    shared.add_circuit(reader.functions, reader.operands(given), start, loops=True, size=size)


def _not_negative(reader: Xcsp3Lists, element: Element, tag: str, count: int) -> list[Operand]:
    found = reader.given(element, tag, count)
    if any(min(shared.values_of(reader.functions, each)) < 0 for each in found):
        raise reader.variables.fail(element, f"<{tag}> of at least 0", "negative ones")
    return found


def _cumulative(reader: Xcsp3Lists, element: Element) -> None:
    origins = reader.given(element, "origins")
    lengths, heights = (_not_negative(reader, element, tag, len(origins)) for tag in ("lengths", "heights"))
    condition = reader.condition(element)
    if condition.operator not in ("le", "lt"):
        raise reader.variables.fail(element, "a condition le or lt", repr(condition.operator))
    if [*element.every("ends")]:
        for start, length, end in zip(origins, lengths, reader.given(element, "ends", len(origins)), strict=True):
            reader.functions.linear([1, 1, -1], [start, length, end], "=", 0)
    shared.add_cumulative(reader.functions, origins, lengths, heights, condition)


def _no_overlap(reader: Xcsp3Lists, element: Element) -> None:
    both: list[list[list[Operand]]] = []
    for tag in ("origins", "lengths"):
        at = next(element.every(tag), element)
        if at.text.startswith("("):
            both.append([reader.operands_of(text.replace(",", " "), at) for text in reader.nested_tuples(at)])
        else:
            both.append([[each] for each in reader.operands(at)])
    origins, lengths = both
    if len({*map(len, (*origins, *lengths))}) != 1 or len(origins) != len(lengths):
        raise reader.variables.fail(
            element, "one origin and one length for each box and axis", "lists of different lengths"
        )
    if any(min(shared.values_of(reader.functions, each)) < 0 for own in lengths for each in own):
        raise reader.variables.fail(element, "<lengths> of at least 0", "negative ones")
    ignored = element.attributes.get("zeroIgnored", "true") == "true"
    shared.add_no_overlap(reader.functions, origins, lengths, zero_ignored=ignored)


def _bin_packing(reader: Xcsp3Lists, element: Element) -> None:
    """Add a condition on each bin; with limits, loads or several conditions, the items are in those bins."""
    given = reader.one(element)
    items, start = reader.operands(given), reader.variables.start_index(given)
    sizes = reader.values(element, "sizes")
    if len(sizes) != len(items):
        raise reader.variables.fail(element, f"{len(items)} sizes", f"{len(sizes)}")
    if [*element.every("condition")]:
        bins = {value for each in items for value in shared.values_of(reader.functions, each)}
        shared.add_bins(reader.functions, items, sizes, dict.fromkeys(bins, reader.condition(element)))
        return
    if [*element.every("conditions")]:
        at = next(element.every("conditions"))
        conditions = [reader.condition_of(f"({text})", at) for text in reader.nested_tuples(at)]
    elif [*element.every("loads")]:
        conditions = [Condition("eq", each) for each in reader.given(element, "loads")]
    else:
        conditions = [Condition("le", each) for each in reader.given(element, "limits")]
    loads = dict(enumerate(conditions, start))
    for each in items:
        reader.functions.relation([each], lambda own: (own >= start) & (own < start + len(loads)))
    shared.add_bins(reader.functions, items, sizes, loads)


def _knapsack(reader: Xcsp3Lists, element: Element) -> None:
    """Compare the weights and the profits of a selection, each with a condition of its own."""
    operands = reader.operands(reader.one(element))
    given = [reader.condition_of(each.text, each) for each in element.every("condition")]
    if [*element.every("limit")]:
        (limit,) = reader.given(element, "limit", 1)
        given.insert(0, Condition("le", limit))
    if len(given) != 2:
        raise reader.variables.fail(element, "a condition for weights and a condition for profits", f"{len(given)}")
    for tag, condition in zip(("weights", "profits"), given, strict=True):
        numbers = reader.values(element, tag)
        if len(numbers) != len(operands):
            raise reader.variables.fail(element, f"{len(operands)} <{tag}>", f"{len(numbers)}")
        shared.add_linear(reader.functions, numbers, operands, condition)


STRUCTURES: Mapping[str, Kind] = {
    "lex": Kind(_lex, "list matrix operator"),
    "precedence": Kind(_precedence, "list values"),
    "minimumArg": Kind(_extreme_place, "list condition"),
    "maximumArg": Kind(_extreme_place, "list condition"),
    "circuit": Kind(_circuit, "list size"),
    "cumulative": Kind(_cumulative, "origins lengths ends heights condition"),
    "noOverlap": Kind(_no_overlap, "origins lengths"),
    "binPacking": Kind(_bin_packing, "list sizes condition conditions limits loads"),
    "knapsack": Kind(_knapsack, "list weights profits limit condition"),
}
