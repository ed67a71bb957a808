"""Constraints of XCSP3: extension and intension as tables, the others of the core as machines or decompositions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import prod

import numpy as np

from ...errors import shorten
from ...models.model import FORBIDDEN, Function
from .. import shared_constraints as shared
from ..constraint_functions import RELATIONS, Condition, ConstraintFunctions
from ..flatzinc.flatzinc_syntax import Operand
from ..format_policy import ENTRY_BYTES, WORD_BYTES
from ..linear.wide_sums import MOST_CELLS
from ..text.tables import tuple_table
from ..text.xml import Element
from .xcsp3_lists import NUMBER, Xcsp3Lists, Xcsp3Variables, call_of, words_of
from .xcsp3_structures import STRUCTURES, Kind

_NUMBERED = re.compile(r"%([0-9]{1,9})")
_SOFT = ("reifiedBy", "hreifiedFrom", "hreifiedTo", "violationCost", "violationMeasure", "defaultCost")
_ANYWHERE = ("id", "class", "note", "rank", *_SOFT)
#: The elements where other attributes are read; '' is any element without children, which is a list itself.
_ATTRIBUTES: Mapping[str, Sequence[str]] = {
    "startIndex": ("list", ""),
    "startRowIndex": ("matrix",),
    "startColIndex": ("matrix",),
    "closed": ("values",),
    "covered": ("values",),
    "zeroIgnored": ("noOverlap",),
    "circular": ("slide",),
    "offset": ("list",),
}
_TRUTHS = ("closed", "covered", "zeroIgnored", "circular")


class Xcsp3Constraints(Xcsp3Lists):
    """Adds constraints to the functions of a problem.

    Parameters
    ----------
    variables : Xcsp3Variables
    functions : ConstraintFunctions
    """

    def __init__(self, variables: Xcsp3Variables, functions: ConstraintFunctions) -> None:
        super().__init__(variables, functions)
        self._tables: dict[tuple[str, str, tuple[int, ...]], Function] = {}
        self.kinds: Mapping[str, _Own | Kind] = {
            "extension": _Own(self._extension, "list supports conflicts"),
            "intension": _Own(self._intension, "function"),
            "allDifferent": _Own(self._all_different, "list matrix except"),
            "allEqual": _Own(self._all_equal, "list except"),
            "ordered": _Own(self._ordered, "list lengths operator"),
            "sum": _Own(self._sum, "list coeffs condition"),
            "count": _Own(self._count, "list values condition"),
            "nValues": _Own(self._values, "list except condition"),
            "cardinality": _Own(self._cardinality, "list values occurs"),
            "maximum": _Own(self._extreme, "list condition"),
            "minimum": _Own(self._extreme, "list condition"),
            "element": _Own(self._element, "list matrix index value condition"),
            "channel": _Own(self._channel, "list value"),
            "regular": _Own(self._regular, "list transitions start final"),
            "mdd": _Own(self._mdd, "list transitions"),
            "instantiation": _Own(self._instantiation, "list values"),
            **STRUCTURES,
        }

    def check_attributes(self, element: Element) -> None:
        """Refuse attributes that are not read, because they may change what a constraint means."""
        for name, text in element.attributes.items():
            places = _ATTRIBUTES.get(name, ())
            if name not in _ANYWHERE and element.tag not in places and ("" not in places or element.children):
                found = f"{shorten(name)!r}, which is not read"
                raise self.variables.fail(element, f"attributes of the core in <{element.tag}>", found)
            if name in _TRUTHS and text not in ("true", "false"):
                raise self.variables.fail(element, f"{name} true or false", repr(shorten(text)))
        for child in element.children:
            self.check_attributes(child)

    def section(self, section: Element) -> None:
        """Add all constraints of a section or a block."""
        for element in section.children:
            if element.tag == "block":
                self.section(element)
            elif element.tag == "group":
                self._group(element)
            elif element.tag == "slide":
                self._slide(element)
            else:
                self.constraint(element)

    def constraint(self, element: Element) -> None:
        """Add a constraint."""
        kind = self.kinds.get(element.tag)
        soft = [name for name in _SOFT if name in element.attributes] + [*element.words("cost")]
        if kind is None or soft:
            what = "reified or soft constraint" if kind is not None else "constraint"
            found = f"the {what} {shorten(element.tag)!r}, which is not read"
            raise self.variables.fail(element, f"constraints of the core ({', '.join(self.kinds)}, slide)", found)
        for child in element.children:
            if child.tag not in kind.children.split():
                expected = f"<{'>, <'.join(kind.children.split())}> in <{element.tag}>"
                raise self.variables.fail(child, expected, f"<{shorten(child.tag)}>, which is not read")
        self.functions.parts.what = f"the constraint {element.tag} of line {element.line}"
        if isinstance(kind, Kind):
            kind.add(self, element)
        else:
            kind.add(element)

    def _group(self, group: Element) -> None:
        """Add a constraint once for each list of arguments."""
        template, *all_arguments = group.children or [group]
        if template.tag in ("group", "args"):
            found = "<args>" if group.children else "none"
            raise self.variables.fail(group, "a constraint at the beginning of <group>", found)
        for arguments in all_arguments:
            if arguments.tag != "args":
                raise self.variables.fail(arguments, "<args>", f"<{shorten(arguments.tag)}>")
            expanded: list[str] = []
            for word in words_of(arguments.text):
                expanded += self._expanded(word, arguments)
                self.variables.source.allowance.take(0, "arguments of a group", for_now=WORD_BYTES * len(expanded))
            self.constraint(self._filled(template, expanded, arguments.line))

    def _slide(self, slide: Element) -> None:
        """Add a constraint once for each window of a list."""
        *lists, template = slide.children or [slide]
        if len(lists) != 1 or lists[0].tag != "list":
            raise self.variables.fail(slide, "one list and a constraint in <slide>", f"{len(lists)} elements before it")
        numbered = [int(k) for text in _texts(template) for k in _NUMBERED.findall(text)]
        width = max(numbered, default=-1) + 1
        offset = lists[0].attributes.get("offset", "1")
        counted = re.fullmatch(r"0*[1-9][0-9]{0,8}", offset)
        if not width or any("%..." in text for text in _texts(template)) or not counted:
            raise self.variables.fail(
                slide, "a constraint over %0, %1 and so on, and an offset above 0", "another slide"
            )
        words: list[str] = []
        for word in words_of(lists[0].text):
            words += self._expanded(word, lists[0])
        count = len(words)
        circular = slide.attributes.get("circular") == "true"
        for start in range(0, count if circular else count - width + 1, int(offset)):
            window = [words[(start + k) % count] for k in range(width)]
            self.constraint(self._filled(template, window, slide.line))

    def _filled(self, element: Element, arguments: Sequence[str], line: int) -> Element:
        """Return a copy of an element whose %0, %1 and %... are replaced by arguments."""
        numbered = [int(k) for text in _texts(element) for k in _NUMBERED.findall(text)]
        rest = " ".join(arguments[max(numbered, default=-1) + 1 :])
        largest = max(map(len, [rest, *arguments]))

        def filled(text: str) -> str:
            if "%" not in text:
                return text
            self.variables.source.allowance.take(
                0, "a constraint of a group", for_now=4 * (len(text) + text.count("%") * largest)
            )
            text = text.replace("%...", rest)
            return _NUMBERED.sub(lambda k: arguments[int(k[1])] if int(k[1]) < len(arguments) else k[0], text)

        def copied(each: Element) -> Element:
            return Element(
                each.tag, line, each.attributes, [copied(child) for child in each.children], [filled(each.text)]
            )

        return copied(element)

    def _expanded(self, word: str, at: Element) -> list[str]:
        """Return the variables that a word of arguments means, one by one."""
        if NUMBER.fullmatch(word):
            return [*map(str, self.variables.integers(word, at))]
        if "(" in word or ("[]" not in word and ".." not in word and word not in self.variables.arrays):
            return [word]
        return [self.variables.names[v] for v in self.variables.scope(word, at)]

    def _extension(self, element: Element) -> None:
        """Add the allowed (or forbidden) tuples of a scope, in which * is any value."""
        scope = self.scope(element)
        given = [each for each in element.children if each.tag in ("supports", "conflicts")]
        if len(given) != 1:
            raise self.variables.fail(element, "<supports> or <conflicts>", f"{len(given)} of them")
        key = given[0].tag, given[0].text, tuple([id(self.functions.values[v]) for v in scope])
        distinct = len({*scope}) == len(scope)
        if distinct and key in self._tables:  # constraints of a group share a table
            self.functions.parts.again(self._tables[key], tuple(scope))
            return
        places = [{value: s for s, value in enumerate(self.functions.values[v])} for v in scope]
        if len(scope) == 1 and "(" not in given[0].text:
            tuples = [[value] for value in map(str, self.variables.integers(given[0].text, given[0]))]
        else:
            tuples = [[word.strip() for word in text.split(",")] for text in self.tuples(given[0])]
        parts = self.functions.parts
        rows: list[Sequence[int]] = []
        for words in tuples:
            if len(words) != len(scope):
                raise self.variables.fail(given[0], f"tuples of {len(scope)} values", f"one of {len(words)}")
            rows.extend(self._rows(words, places, given[0], len(rows)))
        allowed = given[0].tag == "supports"
        parts.allowance.take((8 + 4 * len(scope)) * len(rows), f"a table of {len(rows)} tuples")
        array = np.array(rows, np.int32).reshape(len(rows), len(scope))
        costs = np.full(len(rows), 0 if allowed else FORBIDDEN, np.int64)
        parts.add(tuple_table(scope, parts.dims, array, costs, FORBIDDEN if allowed else 0))
        if distinct:
            self._tables[key] = parts.functions[-1]

    def _rows(
        self, words: Sequence[str], places: Sequence[Mapping[int, int]], at: Element, before: int
    ) -> list[tuple[int, ...]]:
        """Return the rows of states that a tuple means: none where a value is none of its variable."""
        own = []
        for word, states in zip(words, places, strict=True):
            values = [*states] if word == "*" else self.variables.integers(word, at)
            own.append([states[value] for value in values if value in states])
        if (count := prod(map(len, own))) > MOST_CELLS:
            raise self.variables.fail(at, f"tuples that stand for at most {MOST_CELLS}", "one of more")
        row_bytes = WORD_BYTES + 8 * len(words)
        self.variables.source.allowance.take(0, "the tuples of a table", for_now=row_bytes * (before + count))
        return [*product(*own)]

    def _intension(self, element: Element) -> None:
        """Forbid where an expression is not true."""
        inside = [*element.every("function")]
        at = inside[0] if inside else element
        self._require(at.text, at)

    def _require(self, text: str, at: Element) -> None:
        """Forbid where an expression is not true; with too many joint values, conjunctions and sums are taken apart."""
        scope, term = self.expression(text, at)
        if prod(len(self.functions.values[v]) for v in scope) > MOST_CELLS:
            name, arguments = call_of(text)
            if name == "and":
                for each in arguments:
                    self._require(each, at)
                return
            members = [word.strip() for word in call_of(arguments[1])[1]] if name == "in" else []
            if members and all(map(NUMBER.fullmatch, members)):
                weights, constant = self.linear(arguments[0], at)
                wanted = frozenset(value - constant for value in self.variables.integers(" ".join(members), at))
                shared.add_linear(self.functions, [*weights.values()], [(v,) for v in weights], Condition("in", wanted))
                return
            if name in RELATIONS and len(arguments) == 2:
                (weights, constant), (others, right) = (self.linear(each, at) for each in arguments)
                for v, weight in others.items():
                    weights[v] = weights.get(v, 0) - weight
                operands: list[Operand] = [(v,) for v in weights]
                shared.add_linear(self.functions, [*weights.values()], operands, Condition(name, right - constant))
                return
        self.functions.allowed(scope, self.tabulated(scope, term, at) != 0)

    def _all_different(self, element: Element) -> None:
        exceptions = next(element.every("except"), None)
        if [*element.every("matrix")]:
            rows = self.matrix(element)
            groups = [*rows, *map(list, zip(*rows, strict=True))]
        elif len([*element.every("list")]) > 1:
            lists = self.lists(element)
            but = (
                [] if exceptions is None else [self._tuple(text, exceptions) for text in self.nested_tuples(exceptions)]
            )
            if any(len(each) != len(lists[0]) for each in but):
                raise self.variables.fail(element, f"exceptions of {len(lists[0])} values", "tuples of another length")
            shared.add_different_lists(self.functions, lists, but)
            return
        else:
            groups = [self.operands(self.one(element))]
        values = frozenset([] if exceptions is None else self.variables.integers(exceptions.text, exceptions))
        for each in groups:
            self.functions.different(each, values)

    def _tuple(self, text: str, at: Element) -> tuple[int, ...]:
        return tuple(self.variables.integers(text.replace(",", " "), at))

    def _all_equal(self, element: Element) -> None:
        but = self.values(element, "except") if [*element.every("except")] else []
        if len([*element.every("list")]) > 1:
            if but:
                raise self.variables.fail(element, "one list where some values are excepted", "several")
            for first, second in pairwise(self.lists(element)):
                for pair in zip(first, second, strict=True):
                    self.functions.relation(pair, np.equal)
            return
        operands = self.operands(self.one(element))
        for pair in combinations(operands, 2) if but else pairwise(operands):
            self.functions.relation(pair, lambda x, y: (x == y) | np.isin(x, but) | np.isin(y, but))

    def _ordered(self, element: Element) -> None:
        operands, operators = self.operands(self.one(element)), element.words("operator")
        operator = operators[0] if operators else "le"
        if operator not in ("lt", "le", "ge", "gt"):
            raise self.variables.fail(element, "an operator lt, le, ge or gt", repr(shorten(operator)))
        count = len(operands) - 1
        lengths: list[Operand] = [0] * count
        if [*element.every("lengths")]:
            lengths = self.given(element, "lengths")[:count]
            if len(lengths) != count:
                raise self.variables.fail(element, f"{count} lengths", f"{len(lengths)}")
        compare, _ = Condition(operator, 0).related()
        for (x, y), length in zip(pairwise(operands), lengths, strict=True):
            self.functions.relation([x, length, y], lambda one, more, other: compare(one + more, other))

    def _sum(self, element: Element) -> None:
        operands = self.operands(self.one(element))
        coefficients: list[Operand] = [1] * len(operands)
        if [*element.every("coeffs")]:
            coefficients = self.given(element, "coeffs")
        if len(coefficients) != len(operands):
            raise self.variables.fail(element, f"{len(operands)} coefficients", f"{len(coefficients)}")
        condition = self.condition(element)
        for k, (x, y) in enumerate(zip(coefficients, operands, strict=True)):
            if isinstance(x, tuple):
                operands[k], coefficients[k] = shared.product_of(self.functions, x, y), 1
        weights = [each for each in coefficients if isinstance(each, int)]
        shared.add_linear(self.functions, weights, operands, condition)

    def _count(self, element: Element) -> None:
        wanted = self.given(element, "values")
        shared.add_count(self.functions, self.operands(self.one(element)), wanted, self.condition(element))

    def _values(self, element: Element) -> None:
        but = {*self.values(element, "except")} if [*element.every("except")] else set()
        start: frozenset[int] = frozenset()

        def step(seen: frozenset[int], value: int) -> frozenset[int]:
            return seen if value in but else seen | {value}

        shared.add_read(self.functions, self.operands(self.one(element)), start, step, len, self.condition(element))

    def _cardinality(self, element: Element) -> None:
        operands, values = self.operands(self.one(element)), self.given(element, "values")
        occurs = [*element.every("occurs")]
        words = [*words_of(occurs[0].text)] if len(occurs) == 1 else []
        ranged = re.compile(r"[+-]?[0-9]+\.\.").match
        words = [word for each in words for word in ([each] if ranged(each) else self._expanded(each, element))]
        if len(words) != len(values):
            raise self.variables.fail(element, f"{len(values)} occurrences", f"{len(words)}")
        if any(each.attributes.get("closed") == "true" for each in element.every("values")):
            for operand in dict.fromkeys(operands):
                shared.add_count(self.functions, [operand], values, Condition("eq", 1))
        for value, word in zip(values, words, strict=True):
            if ".." in word:
                condition = Condition("in", frozenset(self.variables.integers(word, element)))
            else:
                condition = Condition("eq", self.operands_of(word, element)[0])
            shared.add_count(self.functions, operands, [value], condition)

    def _extreme(self, element: Element) -> None:
        choose = max if element.tag == "maximum" else min
        shared.add_extreme(self.functions, self.operands(self.one(element)), choose, self.condition(element))

    def _element(self, element: Element) -> None:
        """Compare the entry of a list or a matrix at an index; without an index, some entry of a list."""
        at = next(element.every("value"), None)
        if at is not None:
            (value,) = self.given(element, "value", 1)
            condition = Condition("eq", value)
        else:
            condition = self.condition(element)
        if {attribute.get("rank", "any") for attribute in self._attributes(element)} != {"any"}:
            raise self.variables.fail(element, "an element of any rank", "one of the first or last rank")
        compare, other = condition.related()
        if [*element.every("matrix")]:
            given = next(element.every("matrix"))
            starts = [each.attributes.get(f"start{which}Index", "0") for each in (given,) for which in ("Row", "Col")]
            if not all(NUMBER.fullmatch(text) for text in starts):
                raise self.variables.fail(given, "integers as startRowIndex and startColIndex", str(starts))
            row, column = self.given(element, "index", 2)
            first, second = map(int, starts)
            shared.add_matrix_element(
                self.functions, self.matrix(element), (row, column), (first, second), compare, other
            )
            return
        if not [*element.every("list")]:
            raise self.variables.fail(element, "a list or a matrix", "none")
        given = self.one(element)
        entries = self.operands(given)
        if not [*element.every("index")]:
            shared.add_member(self.functions, entries, lambda own, right: condition.holds(own, right), other)
            return
        (index,) = self.given(element, "index", 1)
        start = self.variables.start_index(given)
        if all(isinstance(each, int) for each in entries):
            shared.add_matrix_element(self.functions, [entries], (0, index), (0, start), compare, other)
            return
        shared.add_element(self.functions, entries, index, start, condition)

    def _attributes(self, element: Element) -> list[dict[str, str]]:
        return [element.attributes, *(each.attributes for each in element.children)]

    def _channel(self, element: Element) -> None:
        """Let lists be each other's inverses, or a variable be the place of the only 1 in a list."""
        given = [*element.every("list")] or [element]
        if len(given) > 2:
            raise self.variables.fail(element, "one or two lists", f"{len(given)}")
        lists = [[*enumerate(self.operands(each), self.variables.start_index(each))] for each in given]
        if [*element.every("value")]:
            (value,) = self.given(element, "value", 1)
            self.functions.relation([value], lambda at: np.isin(at, [k for k, _ in lists[0]]))
            for k, each in lists[0]:
                self.functions.relation([each, value], lambda own, at, k=k: own == (at == k))
            return
        first, second = lists[0], lists[-1]
        if len(first) > len(second):
            raise self.variables.fail(element, "a second list that is not shorter", f"{len(second)} variables")
        shared.add_inverse(self.functions, first, second, both_ways=len(first) == len(second))

    def _regular(self, element: Element) -> None:
        """Let values be a word of an automaton."""
        starts, finals = element.words("start"), {*" ".join(element.words("final")).split()}
        moves = self._transitions(element)
        if len(starts) != 1:
            raise self.variables.fail(element, "one <start>", f"{len(starts)}")
        self._word(element, starts[0], moves, finals)

    def _mdd(self, element: Element) -> None:
        """Let values be a path of a diagram, from the node that no transition leads to."""
        moves = self._transitions(element)
        reached = {to for ways in moves.values() for to in ways}
        first, ends = {state for state, _ in moves} - reached, reached - {state for state, _ in moves}
        if len(first) != 1:
            raise self.variables.fail(element, "a diagram of one root", f"{len(first)} of them")
        self._word(element, first.pop(), moves, ends)

    def _transitions(self, element: Element) -> dict[tuple[str, int], list[str]]:
        """Return where each state leads with each value."""
        moves: dict[tuple[str, int], list[str]] = {}
        for given in element.every("transitions"):
            for text in self.tuples(given):
                words = [word.strip() for word in text.split(",")]
                if len(words) != 3:
                    raise self.variables.fail(given, "transitions (state,value,state)", repr(shorten(text)))
                values = self.variables.integers(words[1], given)
                self.variables.source.allowance.take(0, "transitions", for_now=ENTRY_BYTES * (len(moves) + len(values)))
                for value in values:
                    moves.setdefault((words[0], value), []).append(words[2])
        return moves

    def _word(
        self, element: Element, start: str, moves: Mapping[tuple[str, int], Sequence[str]], finals: set[str]
    ) -> None:
        """Add a machine of states that may be several at once."""

        def step(states: frozenset[str], _: int, value: int) -> frozenset[str] | None:
            return frozenset(to for state in states for to in moves.get((state, value), ())) or None

        def end(states: frozenset[str]) -> int:
            return 0 if states & finals else FORBIDDEN

        self.functions.machine(self.scope(element), frozenset((start,)), step, end)

    def _instantiation(self, element: Element) -> None:
        operands = self.operands(self.one(element))
        given = next(element.every("values"), element)
        wanted = [
            word for each in words_of(given.text) for word in ([each] if each == "*" else self._expanded(each, given))
        ]
        if len(wanted) != len(operands):
            raise self.variables.fail(element, f"{len(operands)} values", f"{len(wanted)}")
        for each, word in zip(operands, wanted, strict=True):
            if word != "*":
                (value,) = self.variables.integers(word, given)
                self.functions.relation([each], lambda own, value=value: own == value)


@dataclass(frozen=True)
class _Own:
    """A kind of constraint that a method adds, and the names of its children."""

    add: Callable[[Element], None]
    children: str


def _texts(element: Element) -> list[str]:
    return ["".join(element.texts), *(text for child in element.children for text in _texts(child))]
