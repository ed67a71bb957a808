"""Variables of XCSP3 in arrays, and the lists, matrices, conditions and expressions of its constraints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...errors import BudgetError, FormatError, format_count, shorten
from ...models.model import FORBIDDEN
from ..constraint_functions import Condition, ConstraintFunctions
from ..dcop.expression_arithmetic import ExpressionError
from ..dcop.functional_expressions import ExpressionTerm, parse_functional
from ..flatzinc.flatzinc_syntax import Operand
from ..format_policy import ENTRY_BYTES, OBJECT_BYTES, STATE_BYTES, WORD_BYTES
from ..linear.wide_sums import MOST_CELLS
from ..text.source import Source
from ..text.tables import tuple_table
from ..text.xml import Element

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_RANGE = re.compile(r"([+-]?[0-9]{1,18})\.\.([+-]?[0-9]{1,18})")
_REPEATED = re.compile(r"([+-]?[0-9]{1,18})x([0-9]{1,9})")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)((?:\[[^\]]*\])*)")
_INDICES = re.compile(r"\[([^\]]*)\]")
_SIZE = re.compile(r"[0-9]{1,9}")


class Xcsp3Variables:
    """The variables of a file: their names and values, in order.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.index: dict[str, int] = {}
        self.names: list[str] = []
        self.values: list[tuple[int, ...]] = []
        self.arrays: dict[str, tuple[range, ...]] = {}
        self._own_cells: dict[str, Mapping[tuple[int, ...], int]] = {}

    def fail(self, at: Element, expected: str, found: str) -> FormatError:
        """Return the error at an element."""
        return FormatError(self.source.path, at.line, expected, found)

    def refuse_mixed(self, element: Element) -> None:
        """Refuse text beside the children of an element, which no constraint would read."""
        if not element.children:
            return
        if element.text:
            raise self.fail(element, f"no text beside <{element.children[0].tag}>", repr(shorten(element.text)))
        for child in element.children:
            self.refuse_mixed(child)

    def read(self, section: Element) -> None:
        """Read the section of variables."""
        for element in section.children:
            if element.tag not in ("var", "array"):
                raise self.fail(element, "<var> or <array>", f"<{shorten(element.tag)}>, which is not read")
            name = element.attributes.get("id", "")
            if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in self.index or name in self.arrays:
                raise self.fail(element, "a variable with a name of its own", repr(shorten(name)))
            if (kind := element.attributes.get("type", "integer")) != "integer":
                raise self.fail(element, "integer variables", f"one of type {shorten(kind)!r}, which is not read")
            if element.tag == "var":
                self._add(element, name, self._domain(element, element))
            else:
                self._array(element, name)

    def _domain(self, element: Element, at: Element) -> tuple[int, ...]:
        """Return the values of a domain; it may refer to the domain of another variable."""
        if (other := element.attributes.get("as")) is not None:
            if other in self.index:
                return self.values[self.index[other]]
            if self._own_cells.get(other):
                return self.values[next(iter(self._own_cells[other].values()))]
            raise self.fail(at, "a variable that is declared before", repr(shorten(other)))
        values: set[int] = set()
        for word in element.text.split():
            low, high = self._ends(word, at)
            self.source.allowance.take(STATE_BYTES * (high - low + 1), f"{format_count(high - low + 1)} values")
            values.update(range(low, high + 1))
        if not values:
            raise self.fail(at, "a domain with values", "none")
        return tuple(sorted(values))

    def _ends(self, word: str, at: Element) -> tuple[int, int]:
        if _INTEGER.fullmatch(word):
            return int(word), int(word)
        if (found := _RANGE.fullmatch(word)) and int(found[1]) <= int(found[2]):
            return int(found[1]), int(found[2])
        raise self.fail(at, "integers, such as 1 or 3..7", repr(shorten(word)))

    def _add(self, at: Element, name: str, values: tuple[int, ...]) -> None:
        self.source.allowance.take(OBJECT_BYTES + len(name), "its variables")
        if self.index.setdefault(name, len(self.values)) != len(self.values):
            raise self.fail(at, "one domain of each variable", f"another of {shorten(name)!r}")
        self.names.append(name)
        self.values.append(values)

    def _array(self, element: Element, name: str) -> None:
        """Read an array with one domain, or with domains for parts of it; a cell without a domain is no variable."""
        sizes = _INDICES.findall(element.attributes.get("size", ""))
        start = self.start_index(element)
        if not sizes or not all(map(_SIZE.fullmatch, sizes)):
            text = element.attributes.get("size", "")
            raise self.fail(element, "an array of sizes such as [3][4], of at most 9 digits", repr(shorten(text)))
        self.arrays[name] = shape = tuple([range(start, start + int(size)) for size in sizes])
        parts = [*element.every("domain")]
        domains = [(f"{name}{'[]' * len(shape)}", self._domain(element, element))] if not parts else []
        for part in parts:
            own_values = self._domain(part, part)
            for word in part.attributes.get("for", "").split():
                word = word if word != "others" else f"{name}{'[]' * len(shape)}"
                domains.append((word, own_values))
        cells: dict[tuple[int, ...], tuple[int, ...]] = {}
        for word, values in domains:
            found = _VARIABLE.fullmatch(word)
            if found is None or found[1] != name:
                raise self.fail(element, f"variables of {name!r}", repr(shorten(word)))
            ranges = self._ranges(shape, found[2], element)
            count = prod(map(len, ranges))
            what = f"{format_count(count)} variables of the array {shorten(name)!r}"
            cell_bytes = ENTRY_BYTES + OBJECT_BYTES + 16 * len(shape)
            self.source.allowance.take(0, what, for_now=cell_bytes * (count + len(cells)))
            for cell in product(*ranges):
                cells.setdefault(cell, values)
        own: dict[tuple[int, ...], int] = {}
        for cell in sorted(cells):
            own[cell] = len(self.values)
            self._add(element, f"{name}{''.join(f'[{k}]' for k in cell)}", cells[cell])
        self._own_cells[name] = own

    def start_index(self, element: Element) -> int:
        """Return the first index of an array or a list: 0, unless the element says otherwise."""
        text = element.attributes.get("startIndex", "0")
        if not _INTEGER.fullmatch(text):
            raise self.fail(element, "an integer as startIndex", repr(shorten(text)))
        return int(text)

    def _ranges(self, shape: Sequence[range], brackets: str, at: Element) -> list[range]:
        """Return the indices of each axis of an array that brackets such as [2][][0..3] mean."""
        inside = _INDICES.findall(brackets)
        if len(inside) != len(shape):
            raise self.fail(at, f"{len(shape)} indices", repr(shorten(brackets)))
        ranges = []
        for text, own in zip(inside, shape, strict=True):
            low, high = (own.start, own.stop - 1) if not text else self._ends(text, at)
            if low < own.start or high >= own.stop:
                raise self.fail(at, f"an index from {own.start} to {own.stop - 1}", repr(shorten(text)))
            ranges.append(range(low, high + 1))
        return ranges

    def cells(self, name: str, brackets: str, at: Element) -> list[tuple[tuple[int, ...], int]]:
        """Return the cells of an array that brackets mean, each with its variable; cells without one are left out.

        Raises
        ------
        FormatError
            If there is no such array, or the brackets do not fit it.
        """
        if name not in self.arrays:
            raise self.fail(at, "a variable of the problem", repr(shorten(name + brackets)))
        shape, own = self.arrays[name], self._own_cells.get(name, {})
        ranges = self._ranges(shape, brackets or "[]" * len(shape), at)
        if not brackets.strip("[]"):
            return [*own.items()]
        if prod(map(len, ranges)) > len(own):  # most cells have no variable
            return [(c, v) for c, v in own.items() if all(k in r for k, r in zip(c, ranges, strict=True))]
        return [(cell, own[cell]) for cell in product(*ranges) if cell in own]

    def indices(self, name: str, brackets: str, at: Element) -> list[int]:
        """Return the variables that a word means, by index."""
        if not brackets and name in self.index:
            return [self.index[name]]
        found = [v for _, v in self.cells(name, brackets, at)]
        if not found and brackets and "[]" not in brackets and ".." not in brackets:
            raise self.fail(at, "a variable of the problem", repr(shorten(name + brackets)))
        return found

    def scope(self, text: str, at: Element) -> list[int]:
        """Return the variables of a list."""
        found: list[int] = []
        for word in text.split():
            match = _VARIABLE.fullmatch(word)
            if match is None:
                raise self.fail(at, "a variable, such as x or y[2][]", repr(shorten(word)))
            found.extend(self.indices(match[1], match[2], at))
            self.source.allowance.take(0, "a list of variables", for_now=WORD_BYTES * len(found))
        return found

    def integers(self, text: str, at: Element) -> list[int]:
        """Return the integers of a list; 3..5 stands for three integers, and 2x4 for four times 2."""
        found: list[int] = []
        for word in text.split():
            if repeated := _REPEATED.fullmatch(word):
                low = high = int(repeated[1])
                count = int(repeated[2])
            else:
                low, high = self._ends(word, at)
                count = high - low + 1
            self.source.allowance.take(0, "a list of integers", for_now=WORD_BYTES * (len(found) + count))
            found.extend(range(low, high + 1) if low < high else [low] * count)
        return found


_TUPLE = re.compile(r"\(([^()]*)\)")
NUMBER = re.compile(r"[+-]?[0-9]+(?:\.\.[+-]?[0-9]+|x[0-9]+)?")
_CONDITION = re.compile(r"\(\s*([a-z]+)\s*,\s*(.*?)\s*\)", re.DOTALL)
_SET = re.compile(r"\{\s*(.*?)\s*\}", re.DOTALL)
_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\[-?[0-9]+\])*(?!\w|\s*\()")
_OPERATORS = ("lt", "le", "ge", "gt", "eq", "ne")


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a list; an expression is a word, without its blanks."""
    if "(" not in text:
        yield from text.split()
        return
    depth, word = 0, ""
    for sign in f"{text} ":
        depth += (sign == "(") - (sign == ")")
        if sign.isspace() and depth == 0:
            if word:
                yield word
            word = ""
        elif not sign.isspace():
            word += sign


def call_of(text: str) -> tuple[str, list[str]]:
    """Return the operator of an expression and its arguments; no operator of a variable or an integer."""
    name, opening, inside = text.strip().partition("(")
    if not opening:
        return "", []
    arguments, depth, start = list[str](), 0, 0
    for k, sign in enumerate(inside):
        if depth == 0 and sign in ",)":
            arguments.append(inside[start:k])
            start = k + 1
        depth += (sign == "(") - (sign == ")")
    return name.strip(), arguments


class Xcsp3Lists:
    """Reads what constraints are given.

    Parameters
    ----------
    variables : Xcsp3Variables
    functions : ConstraintFunctions
    """

    def __init__(self, variables: Xcsp3Variables, functions: ConstraintFunctions) -> None:
        self.variables, self.functions = variables, functions
        self._hidden: dict[str | int, tuple[int]] = {}

    def scope(self, element: Element, tag: str = "list") -> list[int]:
        """Return the variables of an element, or of its one list; expressions and integers become hidden variables."""
        at = self.one(element, tag)
        return [self.variable(each) for each in self.operands(at)]

    def one(self, element: Element, tag: str = "list") -> Element:
        """Return the one child of a name, or the element itself if it has no children."""
        lists = [*element.every(tag)]
        if len(lists) > 1 or [*element.every("matrix")]:
            raise self.variables.fail(element, "one list of variables", "several, or a matrix, which is not read")
        return lists[0] if lists else element

    def operands(self, at: Element) -> list[Operand]:
        """Return the variables and integers of a list; expressions become hidden variables."""
        found = self.operands_of(at.text, at)
        if not found:
            raise self.variables.fail(at, "a list of variables", "none")
        return found

    def operands_of(self, text: str, at: Element) -> list[Operand]:
        """Return the variables and integers of a text; expressions become hidden variables."""
        found: list[Operand] = []
        for word in words_of(text):
            if "(" in word:
                found.append(self.view(word, at))
            elif NUMBER.fullmatch(word):
                found += self.variables.integers(word, at)
            else:
                found += [(v,) for v in self.variables.scope(word, at)]
            self.variables.source.allowance.take(0, "a list of variables", for_now=WORD_BYTES * len(found))
        return found

    def variable(self, operand: Operand) -> int:
        """Return an operand as a variable; an integer becomes a hidden variable of one state."""
        if isinstance(operand, tuple):
            return operand[0]
        if operand not in self._hidden:
            self._hidden[operand] = self.functions.hidden([operand])
        return self._hidden[operand][0]

    def view(self, text: str, at: Element) -> Operand:
        """Return an expression as a hidden variable that its variables decide; without variables it is an integer."""
        if text in self._hidden:
            return self._hidden[text]
        scope, term = self.expression(text, at)
        numbers = self.tabulated(scope, term, at)
        values, states = np.unique(numbers, return_inverse=True)
        if not scope:
            return int(values[0])
        self._hidden[text] = output = self.functions.hidden(values.tolist())
        parts = self.functions.parts
        places = np.indices(numbers.shape).reshape(len(scope), -1)
        rows = np.column_stack([*places, states.reshape(-1)]).astype(np.int32)
        parts.add(tuple_table([*scope, output[0]], parts.dims, rows, np.zeros(len(rows), np.int64), FORBIDDEN))
        return output

    def linear(self, text: str, at: Element) -> tuple[dict[int, int], int]:
        """Return an expression as a sum: weights of variables, hidden ones among them, and a constant."""
        name, arguments = call_of(text)
        if name not in ("add", "sub", "neg", "mul"):
            (operand,) = self.operands_of("".join(text.split()), at)
            return ({operand[0]: 1}, 0) if isinstance(operand, tuple) else ({}, operand)
        sums = [self.linear(each, at) for each in arguments]
        if name == "mul":
            factor = prod(constant for weights, constant in sums if not weights)
            others = [each for each in sums if each[0]]
            if len(others) > 1:
                operand = self.view("".join(text.split()), at)
                return ({operand[0]: 1}, 0) if isinstance(operand, tuple) else ({}, operand)
            factors, sums = [factor], others or [({}, 1)]
        else:
            factors = [-1 if name == "neg" or (name == "sub" and k) else 1 for k in range(len(sums))]
        found, total = dict[int, int](), 0
        for factor, (weights, constant) in zip(factors, sums, strict=True):
            total += factor * constant
            for v, weight in weights.items():
                found[v] = found.get(v, 0) + factor * weight
        return found, total

    def lists(self, element: Element, tag: str = "list") -> list[list[Operand]]:
        """Return the lists of an element, all of one length."""
        found = [self.operands(each) for each in element.every(tag)]
        if len(found) < 2 or len({*map(len, found)}) > 1 or not found[0]:
            raise self.variables.fail(element, "two lists or more, of one length", f"lengths {[*map(len, found)]}")
        return found

    def matrix(self, element: Element) -> list[list[Operand]]:
        """Return the rows of a matrix: (x,y)(z,w), or an array with two free indices, such as m[][] or m[3][][0..2]."""
        at = next(element.every("matrix"))
        if at.text.startswith("("):
            rows = [self.operands_of(text.replace(",", " "), at) for text in self.nested_tuples(at)]
        else:
            found = _VARIABLE.fullmatch(at.text)
            if found is None:
                raise self.variables.fail(at, "a matrix such as m[][] or (x,y)(z,w)", repr(shorten(at.text)))
            inside = _INDICES.findall(found[2]) or [""] * len(self.variables.arrays.get(found[1], ()))
            free = [axis for axis, text in enumerate(inside) if not text or ".." in text]
            if len(free) != 2:
                raise self.variables.fail(at, "a matrix with two free indices", repr(shorten(at.text)))
            by_row: dict[int, list[Operand]] = {}
            for cell, v in self.variables.cells(found[1], found[2], at):
                by_row.setdefault(cell[free[0]], []).append((v,))
            rows = [*by_row.values()]
        if len({*map(len, rows)}) != 1 or not rows[0]:
            raise self.variables.fail(at, "a matrix whose rows have one length", f"lengths {[*map(len, rows)]}")
        return rows

    def tuples(self, at: Element) -> list[str]:
        """Return the insides of (...)(...), which have no parentheses themselves."""
        pieces = _TUPLE.split(at.text)
        if rest := "".join(pieces[::2]).strip():
            raise self.variables.fail(at, "tuples such as (1,2)(3,4)", repr(shorten(rest)))
        return pieces[1::2]

    def nested_tuples(self, at: Element) -> list[str]:
        """Return the insides of (...)(...), which may have parentheses themselves."""
        found, depth, start = [], 0, 0
        for k, sign in enumerate(at.text):
            if depth == 0 and sign != "(" and not sign.isspace():
                raise self.variables.fail(at, "tuples such as (1,2)(3,4)", repr(shorten(at.text[k:])))
            if sign == "(":
                start = k + 1 if depth == 0 else start
                depth += 1
            elif sign == ")":
                depth -= 1
                if depth == 0:
                    found.append(at.text[start:k])
        if depth:
            raise self.variables.fail(at, "tuples such as (1,2)(3,4)", f"{shorten(at.text[start - 1 :])!r} without ')'")
        return found

    def condition(self, element: Element) -> Condition:
        """Return the condition of an element: an operator, and an integer, a variable, a range or a set."""
        given = [*element.every("condition")]
        if len(given) != 1:
            raise self.variables.fail(element, "a condition such as (le,10)", f"{len(given)} of them")
        return self.condition_of(given[0].text, given[0])

    def condition_of(self, text: str, at: Element) -> Condition:
        """Return the condition of a text such as (le,10)."""
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise self.variables.fail(at, "a condition such as (le,10)", repr(shorten(text)))
        operator, text = match[1], match[2]
        if operator in ("in", "notin"):
            inside = _SET.fullmatch(text)
            words = inside[1].replace(",", " ") if inside else text
            return Condition(operator, frozenset(self.variables.integers(words, at)))
        if operator not in _OPERATORS:
            raise self.variables.fail(at, f"an operator {', '.join(_OPERATORS)}, in, notin", repr(shorten(operator)))
        operands = self.operands_of(text, at)
        if len(operands) != 1:
            raise self.variables.fail(at, "an integer or one variable", repr(shorten(text)))
        return Condition(operator, operands[0])

    def values(self, element: Element, tag: str) -> list[int]:
        """Return the integers of an element of a name."""
        given = [*element.every(tag)]
        if len(given) != 1:
            raise self.variables.fail(element, f"one <{tag}>", f"{len(given)}")
        return self.variables.integers(given[0].text, given[0])

    def given(self, element: Element, tag: str, count: int | None = None) -> list[Operand]:
        """Return the variables and integers of the one child of a name; there must be ``count`` of them."""
        lists = [*element.every(tag)]
        if len(lists) != 1:
            raise self.variables.fail(element, f"one <{tag}>", f"{len(lists)}")
        found = self.operands(lists[0])
        if count is not None and len(found) != count:
            raise self.variables.fail(lists[0], f"{count} entries of <{tag}>", f"{len(found)}")
        return found

    def expression(self, text: str, at: Element) -> tuple[list[int], ExpressionTerm]:
        """Return the scope of an expression and its term, with parameters numbered by their place in the scope."""
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
        """Return the values of an expression for all assignments of a scope, with one axis for each variable."""
        sizes = [len(self.functions.values[v]) for v in scope]
        if prod(sizes) > MOST_CELLS:
            raise BudgetError(
                f"{self.variables.source.path}:{at.line}: an expression has {format_count(prod(sizes))} joint values, "
                f"and at most {format_count(MOST_CELLS)} are tried; give it as a sum, or as several expressions"
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
