"""Constraints of XCSP3: extension and intension as tables, the others of the core as machines or pairs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...errors import BudgetError, format_count, shorten
from ...models.model import FORBIDDEN
from ..dcop.expression_arithmetic import ExpressionError
from ..dcop.functional_expressions import ExpressionTerm, parse_functional
from ..text.tables import tuple_table
from ..text.xml import Element
from .xcsp3_machines import Condition, Xcsp3Functions
from .xcsp3_variables import Xcsp3Variables

_MOST_CELLS = 1 << 22
_TUPLE = re.compile(r"\(([^()]*)\)")
_CONDITION = re.compile(r"\(\s*([a-z]+)\s*,\s*(.*?)\s*\)", re.DOTALL)
_SET = re.compile(r"\{\s*(.*?)\s*\}", re.DOTALL)
_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\[\d+\])*(?!\w|\s*\()")
_NUMBERED = re.compile(r"%(\d{1,9})")
_WORD_BYTES = 64
_MOVE_BYTES = 256
_OPERATORS = ("lt", "le", "ge", "gt", "eq", "ne")


class Xcsp3Constraints:
    """Adds constraints to the functions of a problem.

    Parameters
    ----------
    variables : Xcsp3Variables
    functions : Xcsp3Functions
    """

    def __init__(self, variables: Xcsp3Variables, functions: Xcsp3Functions) -> None:
        self.variables, self.functions = variables, functions
        self.kinds: Mapping[str, Callable[[Element], None]] = {
            "extension": self._extension,
            "intension": self._intension,
            "allDifferent": self._all_different,
            "allEqual": self._all_equal,
            "ordered": self._ordered,
            "sum": self._sum,
            "count": self._count,
            "nValues": self._values,
            "cardinality": self._cardinality,
            "maximum": self._extreme,
            "minimum": self._extreme,
            "element": self._element,
            "channel": self._channel,
            "regular": self._regular,
            "mdd": self._mdd,
            "instantiation": self._instantiation,
        }

    def section(self, section: Element) -> None:
        """Add all constraints of a section or a block."""
        for element in section.children:
            if element.tag == "block":
                self.section(element)
            elif element.tag == "group":
                self._group(element)
            else:
                self.constraint(element)

    def constraint(self, element: Element) -> None:
        """Add a constraint."""
        add = self.kinds.get(element.tag)
        if add is None or "reifiedBy" in element.attributes:
            what = "reified constraint" if add is not None else "constraint"
            found = f"the {what} {shorten(element.tag)!r}, which is not read"
            raise self.variables.fail(element, f"constraints of the core ({', '.join(self.kinds)})", found)
        self.functions.parts.what = f"the constraint {element.tag} of line {element.line}"
        add(element)

    def _group(self, group: Element) -> None:
        """Add a constraint once for each list of arguments."""
        template, *all_arguments = group.children or [group]
        for arguments in all_arguments:
            if arguments.tag != "args":
                raise self.variables.fail(arguments, "<args>", f"<{shorten(arguments.tag)}>")
            expanded: list[str] = []
            for word in arguments.text.split():
                expanded += self._expanded(word, arguments)
                self.variables.source.allowance.take(0, "arguments of a group", for_now=_WORD_BYTES * len(expanded))
            self.constraint(self._filled(template, expanded, arguments.line))

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
        if "[]" not in word and ".." not in word and word not in self.variables.arrays:
            return [word]
        if word[0].isdigit() or word[0] in "+-":
            return [*map(str, self.variables.integers(word, at))]
        return [self.variables.names[v] for v in self.variables.scope(word, at)]

    def scope(self, element: Element, tag: str = "list") -> list[int]:
        """Return the variables of an element, or of its one list."""
        lists = [*element.every(tag)]
        if len(lists) > 1 or [*element.every("matrix")]:
            raise self.variables.fail(element, "one list of variables", "several, or a matrix, which is not read")
        at = lists[0] if lists else element
        found = self.variables.scope(at.text, at)
        if not found:
            raise self.variables.fail(at, "a list of variables", "none")
        return found

    def condition(self, element: Element) -> Condition:
        """Return the condition of an element: an operator, and an integer, a variable, a range or a set."""
        given = [*element.every("condition")]
        match = _CONDITION.fullmatch(given[0].text) if len(given) == 1 else None
        if match is None:
            raise self.variables.fail(element, "a condition such as (le,10)", f"{len(given)} of them")
        operator, text, at = match[1], match[2], given[0]
        if operator in ("in", "notin"):
            inside = _SET.fullmatch(text)
            words = inside[1].replace(",", " ") if inside else text
            return Condition(operator, frozenset(self.variables.integers(words, at)))
        if operator not in _OPERATORS:
            raise self.variables.fail(at, f"an operator {', '.join(_OPERATORS)}, in, notin", repr(shorten(operator)))
        return Condition(operator, self.variables.operand(text, at))

    def values(self, element: Element, tag: str) -> list[int]:
        """Return the integers of an element of a name."""
        given = [*element.every(tag)]
        if len(given) != 1:
            raise self.variables.fail(element, f"one <{tag}>", f"{len(given)}")
        return self.variables.integers(given[0].text, given[0])

    def _extension(self, element: Element) -> None:
        """Add the allowed (or forbidden) tuples of a scope, in which * is any value."""
        scope = self.scope(element)
        given = [each for each in element.children if each.tag in ("supports", "conflicts")]
        if len(given) != 1:
            raise self.variables.fail(element, "<supports> or <conflicts>", f"{len(given)} of them")
        places = [{value: s for s, value in enumerate(self.functions.values[v])} for v in scope]
        if len(scope) == 1 and "(" not in given[0].text:
            tuples = [[value] for value in map(str, self.variables.integers(given[0].text, given[0]))]
        else:
            tuples = [[word.strip() for word in text.split(",")] for text in _TUPLE.findall(given[0].text)]
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

    def _rows(
        self, words: Sequence[str], places: Sequence[Mapping[int, int]], at: Element, before: int
    ) -> list[tuple[int, ...]]:
        """Return the rows of states that a tuple means: none where a value is none of its variable."""
        own = []
        for word, states in zip(words, places, strict=True):
            values = [*states] if word == "*" else self.variables.integers(word, at)
            own.append([states[value] for value in values if value in states])
        if (count := prod(map(len, own))) > _MOST_CELLS:
            raise self.variables.fail(at, f"tuples that stand for at most {_MOST_CELLS}", "one of more")
        row_bytes = _WORD_BYTES + 8 * len(words)
        self.variables.source.allowance.take(0, "the tuples of a table", for_now=row_bytes * (before + count))
        return [*product(*own)]

    def expression(self, text: str, at: Element) -> tuple[list[int], ExpressionTerm]:
        """Return the scope of an expression and its term, whose parameters are numbers of places in the scope."""
        words = dict.fromkeys(word for word in _REFERENCE.findall(text) if word not in ("true", "false"))
        scope = [self.variables.scope(word, at) for word in words]
        if any(len(each) != 1 for each in scope):
            raise self.variables.fail(at, "variables in an expression", "an array")
        names = {word: f"P{k}" for k, word in enumerate(words)}
        plain = _REFERENCE.sub(lambda found: names.get(found[0], found[0]), text)
        try:
            return [each[0] for each in scope], parse_functional(plain, [*names.values()], mixed=True)
        except ExpressionError as error:
            raise self.variables.fail(at, "an expression such as eq(x,add(y,1))", str(error)) from None

    def tabulated(self, scope: Sequence[int], term: ExpressionTerm, at: Element) -> NDArray[np.int64]:
        """Return what an expression is for all values of a scope, an axis for each of its variables."""
        sizes = [len(self.functions.values[v]) for v in scope]
        if prod(sizes) > _MOST_CELLS:
            raise BudgetError(
                f"{self.variables.source.path}:{at.line}: an expression has {format_count(prod(sizes))} joint values, "
                f"and at most {format_count(_MOST_CELLS)} are tried; give it as a sum, or as several expressions"
            )
        self.functions.parts.allowance.take(0, "a table of an expression", for_now=24 * term.size * prod(sizes))
        grids = np.meshgrid(*(np.array(self.functions.values[v]) for v in scope), indexing="ij")
        columns = {f"P{k}": grid.reshape(-1) for k, grid in enumerate(grids)}
        try:
            term.bounds({name: (int(c.min()), int(c.max())) for name, c in columns.items()})
            found_values = term.values(columns, np.ones(prod(sizes), bool))
        except ExpressionError as error:
            raise self.variables.fail(at, "an expression that has a value", str(error)) from None
        return np.broadcast_to(found_values, (prod(sizes),)).astype(np.int64).reshape(sizes)

    def _intension(self, element: Element) -> None:
        """Forbid where an expression is not true."""
        inside = [*element.every("function")]
        at = inside[0] if inside else element
        scope, term = self.expression(at.text, at)
        self.functions.allowed(scope, self.tabulated(scope, term, at) != 0)

    def _all_different(self, element: Element) -> None:
        but = self.values(element, "except") if [*element.every("except")] else []
        self.functions.different(self.scope(element), frozenset(but))

    def _all_equal(self, element: Element) -> None:
        scope = self.scope(element)
        for x, y in pairwise(scope):
            self.functions.table([x, y], lambda one, other: one == other)

    def _ordered(self, element: Element) -> None:
        scope, operators = self.scope(element), element.words("operator")
        operator = operators[0] if operators else "le"
        if operator not in ("lt", "le", "ge", "gt") or [*element.every("lengths")]:
            raise self.variables.fail(element, "an operator lt, le, ge or gt, without lengths", repr(shorten(operator)))
        for x, y in pairwise(scope):
            self.functions.table([x, y], lambda one, other: Condition(operator, (0,)).holds(one, other))

    def _sum(self, element: Element) -> None:
        scope = self.scope(element)
        values = self.functions.values
        coefficients: list[int] = [1] * len(scope)
        if [*element.every("coeffs")]:
            coefficients = self.values(element, "coeffs")
        if len(coefficients) != len(scope):
            raise self.variables.fail(element, f"{len(scope)} coefficients", f"{len(coefficients)}")
        weights = [[c * value for value in values[v]] for c, v in zip(coefficients, scope, strict=True)]
        self.functions.total(scope, weights, self.condition(element))

    def _count(self, element: Element) -> None:
        self._counted(self.scope(element), {*self.values(element, "values")}, self.condition(element))

    def _counted(self, scope: Sequence[int], values: set[int], condition: Condition) -> None:
        weights = [[int(value in values) for value in self.functions.values[v]] for v in scope]
        self.functions.total(scope, weights, condition)

    def _values(self, element: Element) -> None:
        but = {*self.values(element, "except")} if [*element.every("except")] else set()
        self.functions.conditioned(
            self.scope(element),
            frozenset(),
            lambda seen, value: seen if value in but else seen | {value},
            len,
            self.condition(element),
        )

    def _cardinality(self, element: Element) -> None:
        scope, values = self.scope(element), self.values(element, "values")
        occurs = [*element.every("occurs")]
        words = occurs[0].text.split() if len(occurs) == 1 else []
        is_number = re.compile(r"[+-]?\d").match
        words = [word for each in words for word in ([each] if is_number(each) else self._expanded(each, element))]
        if len(words) != len(values):
            raise self.variables.fail(element, f"{len(values)} occurrences", f"{len(words)}")
        given = [each for each in element.every("values") if each.attributes.get("closed") == "true"]
        if given:
            for v in dict.fromkeys(scope):
                self.functions.table([v], lambda value: value in values)
        for value, word in zip(values, words, strict=True):
            if ".." in word:
                condition = Condition("in", frozenset(self.variables.integers(word, element)))
            else:
                condition = Condition("eq", self.variables.operand(word, element))
            self._counted(scope, {value}, condition)

    def _extreme(self, element: Element) -> None:
        choose = max if element.tag == "maximum" else min

        def step(state: int | None, value: int) -> int:
            return value if state is None else choose(state, value)

        self.functions.conditioned(self.scope(element), None, step, lambda state: state, self.condition(element))

    def _element(self, element: Element) -> None:
        lists = [*element.every("list")]
        start = lists[0].attributes.get("startIndex", "0") if lists else "0"
        if start != "0" or [*element.every("matrix")] or not [*element.every("index")]:
            raise self.variables.fail(element, "a list from index 0, and an index", "another element constraint")
        (index,) = self.scope(element, "index")
        values = element.words("value")
        at = next(element.every("value"), element)
        condition = Condition("eq", self.variables.operand(values[0], at)) if values else self.condition(element)
        words = lists[0].text.split() if lists else []
        if words and all(re.fullmatch(r"[+-]?\d+(?:\.\.[+-]?\d+|x\d+)?", word) for word in words):
            numbers = self.variables.integers(lists[0].text, lists[0])
            operand = condition.operand
            scope = [index, *(operand if isinstance(operand, tuple) and operand[0] != index else ())]
            same = len(scope) == 1
            self.functions.table(
                scope,
                lambda at, other=0: 0 <= at < len(numbers) and condition.holds(numbers[at], at if same else other),
            )
            return
        self.functions.element(self.scope(element), index, condition)

    def _channel(self, element: Element) -> None:
        lists = [self.variables.scope(each.text, each) for each in element.every("list")] or [self.scope(element)]
        if any(each.attributes.get("startIndex", "0") != "0" for each in element.every("list")) or len(lists) > 2:
            raise self.variables.fail(element, "one or two lists from index 0", "others")
        if [*element.every("value")]:
            (value,) = self.scope(element, "value")
            self.functions.table([value], lambda at: 0 <= at < len(lists[0]))
            for k, v in enumerate(lists[0]):
                self.functions.table([v, value], lambda own, at, k=k: own == int(at == k))
            return
        first, second = lists[0], lists[-1]
        if len(first) > len(second):
            raise self.variables.fail(element, "a second list that is not shorter", f"{len(second)} variables")
        for x in first:
            self.functions.table([x], lambda value: 0 <= value < len(second))
        for y in second if len(second) == len(first) else []:
            self.functions.table([y], lambda value: 0 <= value < len(first))
        both_ways = len(first) == len(second)
        for i, x in enumerate(first):
            for j, y in enumerate(second):
                self.functions.table(
                    [x, y], lambda one, other, i=i, j=j: (one == j) == (other == i) or (one != j and not both_ways)
                )

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
            for text in _TUPLE.findall(given.text):
                words = [word.strip() for word in text.split(",")]
                if len(words) != 3:
                    raise self.variables.fail(given, "transitions (state,value,state)", repr(shorten(text)))
                values = self.variables.integers(words[1], given)
                self.variables.source.allowance.take(0, "transitions", for_now=_MOVE_BYTES * (len(moves) + len(values)))
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
        scope, values = self.scope(element), self.values(element, "values")
        if len(values) != len(scope):
            raise self.variables.fail(element, f"{len(scope)} values", f"{len(values)}")
        for v, value in zip(scope, values, strict=True):
            self.functions.table([v], lambda own, value=value: own == value)


def _texts(element: Element) -> list[str]:
    return ["".join(element.texts), *(text for child in element.children for text in _texts(child))]
