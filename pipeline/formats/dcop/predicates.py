"""Constraints of XCSP 2.1 by predicates and functions: expressions, tabulated over the domains of a scope."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, format_count, shorten
from ...models.function import ROWS_PART
from ...models.model import FORBIDDEN
from ..decimal_costs import Number
from ..format_policy import FormatPolicy
from ..text.source import check_deadline
from ..text.tables import MAX_AXES, cell_count
from ..text.xml import Element
from .draft import EXPRESSION_WORK, Draft, Given
from .expression_arithmetic import ExpressionError
from .functional_expressions import ExpressionTerm, Range, parse_functional

# Most parts of the predicates of one constraint that are evaluated; more would take ten seconds or longer.
_PREDICATE_WORK: Final = EXPRESSION_WORK >> 4
# Assignments of the sample that tells whether a predicate holds rarely.
_PREDICATE_SAMPLE: Final = 4096

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True)
class Intension:
    """A predicate (other assignments are forbidden) or a function (its result is the cost)."""

    name: str
    parameters: tuple[str, ...]
    term: ExpressionTerm


@dataclass(frozen=True)
class _Bound:
    """An intension whose parameters are variables of a scope, by place, or numbers."""

    line: int
    intension: Intension
    values: tuple[NDArray[np.int64], ...]
    given: Mapping[str, int | NDArray[np.int64]]

    def costs(self, cells: NDArray[np.int64], dims: Sequence[int]) -> NDArray[np.int64]:
        """Return costs of assignments, numbered with the last variable of the scope fastest."""
        columns: dict[str, NDArray[Any]] = {}
        states = _states(cells, dims)
        own = [values[state] for values, state in zip(self.values, states, strict=True)]
        for parameter, argument in self.given.items():
            columns[parameter] = own[argument] if isinstance(argument, int) else argument
        found = self.intension.term.values(columns, np.ones(len(cells), bool))
        if self.intension.term.kind == "boolean":
            found = np.where(found, 0, FORBIDDEN)
        return np.broadcast_to(found, cells.shape)


def read_intensions(root: Element, draft: Draft) -> dict[str, Intension]:
    """Read all predicates and functions, by name."""
    found: dict[str, Intension] = {}
    for section, tag in (("predicates", "predicate"), ("functions", "function")):
        for element in (each for part in root.every(section) for each in part.every(tag)):
            name = element.attributes.get("name", "")
            if not name or name in found:
                raise draft.fail(element.line, f"a {tag} with a name of its own", repr(shorten(name)))
            found[name] = _intension(name, element, draft)
    return found


def _intension(name: str, element: Element, draft: Draft) -> Intension:
    words = " ".join(element.words("parameters")).split()
    parameters = tuple(words[1::2])
    if len(words) % 2 or set(words[::2]) - {"int"} or len(set(parameters)) < len(parameters):
        raise draft.fail(element.line, "different parameters such as 'int X0 int X1'", repr(shorten(" ".join(words))))
    texts = [text for each in element.every("expression") for text in each.words("functional")]
    if len(texts) != 1:
        others = [each.tag for inside in element.every("expression") for each in inside.children]
        found = f"<{shorten(others[0])}>" if others and not texts else f"{len(texts)} of them"
        raise draft.fail(element.line, "an expression in functional notation", found)
    if (kind := element.attributes.get("return", "int").strip()) != "int":
        raise draft.fail(element.line, "a function that returns int", repr(shorten(kind)))
    try:
        term = parse_functional(texts[0], parameters)
    except ExpressionError as error:
        raise _wrong(draft, element.line, name, error) from None
    wanted = "boolean" if element.tag == "predicate" else "integer"
    if term.kind != wanted:
        raise draft.fail(element.line, f"a {element.tag} of {wanted} values", f"one of {term.kind} values")
    return Intension(name, parameters, term)


def _wrong(draft: Draft, line: int, name: str, error: ExpressionError) -> FormatError:
    return draft.fail(line, f"an expression of {shorten(name)!r} that has a value", str(error))


def tabulated(name: str, element: Element, scope: Sequence[int], intension: Intension, draft: Draft) -> Given:
    """Return the costs of a constraint that refers to an intension, with a default where few differ from it."""
    bound, ranges = _bound(element, intension, draft)
    dims = [draft.dims[v] for v in scope]
    count = cell_count(scope, draft.dims)
    if count * intension.term.size > _PREDICATE_WORK:
        most = _PREDICATE_WORK // intension.term.size
        expected = f"a scope of at most {most:,} assignments for {shorten(intension.name)!r}"
        raise draft.fail(element.line, expected, f"one of {format_count(count)}")
    draft.take_work(element.line, count, intension.term.size)
    try:
        intension.term.bounds(ranges)
        return _table(name, bound, tuple(scope), dims, draft)
    except ExpressionError as error:
        raise _wrong(draft, element.line, intension.name, error) from None


def _bound(element: Element, intension: Intension, draft: Draft) -> tuple[_Bound, dict[str, Range]]:
    """Bind the parameters of an intension to the arguments of a constraint."""
    for each in (each for given in element.every("parameters") for each in given.children):
        raise draft.fail(each.line, "parameters as text", f"the element <{shorten(each.tag)}>, which is not read")
    words = " ".join(element.words("parameters")).split()
    if len(words) != len(intension.parameters):
        expected = f"{len(intension.parameters)} parameters of {shorten(intension.name)!r}"
        raise draft.fail(element.line, expected, f"{len(words)}")
    places = {name: place for place, name in enumerate(element.attributes.get("scope", "").split())}
    values = tuple(_numbers(draft, element, name) for name in places)
    given: dict[str, int | NDArray[np.int64]] = {}
    ranges: dict[str, Range] = {}
    for parameter, word in zip(intension.parameters, words, strict=True):
        if word in places:
            given[parameter] = places[word]
            own = values[places[word]]
            ranges[parameter] = int(own.min()), int(own.max())
        elif _INTEGER.fullmatch(word):
            given[parameter] = np.array(int(word))
            ranges[parameter] = int(word), int(word)
        else:
            raise draft.fail(element.line, "variables of the scope, and numbers", repr(shorten(word)))
    return _Bound(element.line, intension, values, given), ranges


def _numbers(draft: Draft, element: Element, name: str) -> NDArray[np.int64]:
    """Return the values of a variable, which are integers."""
    labels = draft.labels[draft.names[name]]
    if wrong := next((label for label in labels if not _INTEGER.fullmatch(label)), None):
        raise draft.fail(element.line, f"integer values of variable {shorten(name)!r}", repr(shorten(wrong)))
    return np.array([int(label) for label in labels], dtype=np.int64)


def _table(name: str, bound: _Bound, scope: tuple[int, ...], dims: Sequence[int], draft: Draft) -> Given:
    policy = FormatPolicy.current()
    count = cell_count(range(len(dims)), dims)
    default, listed, row_bytes = 0, count, 8 + 4 * len(scope)
    if count > policy.predicate_cells:
        sample = np.arange(_PREDICATE_SAMPLE, dtype=np.int64) * (count // _PREDICATE_SAMPLE)
        seen, often = np.unique(bound.costs(sample, dims), return_counts=True)
        default = int(seen[often.argmax()])
        listed = sum(int((costs != default).sum()) for _, costs in _blocks(bound, dims, count))
    if (count <= policy.predicate_cells or ROWS_PART * row_bytes * listed > 8 * count) and len(scope) <= MAX_AXES:
        draft.source.allowance.take(8 * count, f"a table of {count} costs", for_now=16 * count)
        dense = np.concatenate([costs for _, costs in _blocks(bound, dims, count)])
        return Given(name, bound.line, scope, dense)
    draft.source.allowance.take(row_bytes * listed, f"a table of {listed} tuples", for_now=2 * row_bytes * listed)
    rows, kept = np.empty((listed, len(scope)), np.int32), np.empty(listed, np.int64)
    end = 0
    for cells, costs in _blocks(bound, dims, count):
        differ = costs != default
        begin, end = end, end + int(differ.sum())
        rows[begin:end] = np.stack(_states(cells[differ], dims), axis=1)
        kept[begin:end] = costs[differ]
    return Given(name, bound.line, scope, kept, rows, _default(default, draft))


def _default(cost: int, draft: Draft) -> Number:
    return cost if cost < FORBIDDEN else Decimal(draft.forbidden)


def _blocks(bound: _Bound, dims: Sequence[int], count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Give assignments by number, with their costs."""
    policy = FormatPolicy.current()
    for start in range(0, count, policy.predicate_cells):
        check_deadline()
        cells = np.arange(start, min(start + policy.predicate_cells, count), dtype=np.int64)
        yield cells, bound.costs(cells, dims)


def _states(cells: NDArray[np.int64], dims: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the state of each variable in numbered assignments."""
    found: list[NDArray[np.int64]] = []
    for dim in reversed(dims):
        cells, states = np.divmod(cells, dim)
        found.append(states)
    return found[::-1]
