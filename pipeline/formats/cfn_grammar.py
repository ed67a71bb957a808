"""The grammar of .cfn files: sections, variables and functions, with costs as written.

Files in use leave out quotes, commas and colons, and repeat names, so commas and colons only separate
here, and the reader walks the tokens instead of asking for strict JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.function import state_dtype
from ..models.model import FORBIDDEN
from .text.tables import cell_count, first_bad_state
from .text.tokens import MAX_DOMAIN, Tokens

# Decimal costs as int64 costs, exactly.

Number = int | Decimal
MAX_DECIMALS = 18
# A cost of 1e18 or more, before scaling, is meant as infinity, unless the file's own bound is higher.
_INFINITE_EXPONENT = 18
_EXACT = Context(prec=80)
_INTEGERS = re.compile(r"[-+0-9]*")


@dataclass(frozen=True, eq=False)
class StoredCosts:
    """The stored costs of a function, ``FORBIDDEN`` where infinite; ``default`` is None for a full table."""

    values: NDArray[np.int64]
    default: int | None


def read_numbers(tokens: Tokens, part: list[str], place: Callable[[int], int]) -> Sequence[Number]:
    """Convert cost tokens, quoted or not, exactly; ``inf`` is a cost."""
    joined = "".join(part)
    if '"' in joined:
        part = [token.strip('"') for token in part]
        joined = "".join(part)
    if _INTEGERS.fullmatch(joined):
        return tokens.converted(part, int, "a cost", place)
    numbers = tokens.converted(part, Decimal, "a cost", place)
    for k, number in enumerate(numbers):
        if number.is_nan():
            raise tokens.fail(place(k), "a cost")
    return numbers


def decimal_places(numbers: Sequence[Number]) -> int:
    """Return how many decimals the numbers need."""
    distinct = {number for number in numbers if isinstance(number, Decimal)}
    return max(map(_places, distinct), default=0)


def _places(number: Decimal) -> int:
    if not number.is_finite() or not number:
        return 0
    _, digits, exponent = number.as_tuple()
    trailing = 0
    while digits[-1 - trailing] == 0:
        trailing += 1
    return max(0, -int(exponent) - trailing)


def scaled(numbers: Sequence[Number], decimals: int, maximize: bool, bound: Number | None = None) -> NDArray[np.int64]:
    """Return numbers as stored costs: scaled, negated if maximised, ``FORBIDDEN`` if forbidden.

    Numbers of 10^18 and more are, unless they are better than the bound of the file.

    Raises
    ------
    ValueError
        If a number does not fit, or is infinitely good.
    """
    factor, sign = 10**decimals, -1 if maximize else 1
    integers = [number for number in numbers if isinstance(number, int)]
    if len(integers) == len(numbers):
        largest = max(map(abs, integers), default=0)
        if largest < 10**_INFINITE_EXPONENT and largest * factor < FORBIDDEN:
            return np.array([number * factor * sign for number in integers], dtype=np.int64)
    return np.array([_stored(number, decimals, sign, bound) for number in numbers], dtype=np.int64)


#: What a model notes where :func:`are_read_as_infinite`.
READ_AS_INFINITE = "are read as infinite, as in other programs: give costs in a smaller unit if they are not"


def are_read_as_infinite(
    numbers: Sequence[Number], default: Number | None, stored: NDArray[np.int64], bound: Number | None
) -> bool:
    """Whether finite numbers of 10^18 and more stand for infinity, where no bound forbids them.

    Parameters
    ----------
    numbers, default
        Costs of a function as the file gives them, and the cost of what it does not list.
    stored : ndarray
        What became of the numbers.
    bound : number, optional
        From where on totals are forbidden.
    """
    if bound is not None:
        return False
    suspects = numbers if (stored == FORBIDDEN).any() else ()
    exact = map(Decimal, suspects if default is None else (*suspects, default))
    return any(number.is_finite() and number.adjusted() >= _INFINITE_EXPONENT for number in exact)


def scaled_array(costs: NDArray[np.int64], decimals: int, maximize: bool) -> NDArray[np.int64]:
    """Return integers, ``FORBIDDEN`` among them, as stored costs.

    Raises
    ------
    ValueError
        If a number does not fit.
    """
    allowed = costs < FORBIDDEN
    factor = 10**decimals
    if int(np.abs(costs[allowed]).max(initial=0)) * factor >= FORBIDDEN:
        raise ValueError(f"costs of at most 18 digits (here with {decimals} decimals)")
    return np.where(allowed, np.where(allowed, costs, 0) * (-factor if maximize else factor), FORBIDDEN)


def scaled_bound(bound: Number, decimals: int, maximize: bool) -> int | None:
    """Return from where on totals are forbidden, as stored; None if nowhere.

    Raises
    ------
    ValueError
        If it does not fit, or forbids everything.
    """
    exact, sign = Decimal(bound), -1 if maximize else 1
    if exact.is_finite() and exact.adjusted() >= _INFINITE_EXPONENT:
        value = sign * int(exact.scaleb(decimals, _EXACT))
        if 0 < value < FORBIDDEN:
            return value
    value = _stored(bound, decimals, sign, None)
    return None if value == FORBIDDEN else value


def _stored(number: Number, decimals: int, sign: int, bound: Number | None) -> int:
    exact = Decimal(number)
    if not exact:
        return 0
    better = bound is not None and (exact > bound if sign < 0 else exact < bound)
    if exact.is_infinite() or (exact.adjusted() >= _INFINITE_EXPONENT and not better):
        if (exact > 0) == (sign > 0):
            return FORBIDDEN
        raise ValueError("a cost that is not infinitely good")
    value = sign * int(exact.scaleb(decimals, _EXACT))
    if abs(value) >= FORBIDDEN:
        raise ValueError(f"costs of at most 18 digits (here with {decimals} decimals)")
    return value


TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]]|[^\s{}\[\],:"]+|"')


@dataclass(frozen=True)
class CfnTable:
    """A cost function as the file gives it.

    Parameters
    ----------
    at : int
        The token that its costs begin with.
    scope : tuple of int
    costs : sequence of numbers
    rows : ndarray, shape (costs, arity), optional
        The states of each cost; None for a full table.
    default : number, optional
        The cost of what is not listed.
    lender : str
        The function whose costs these are, while it is still to come.
    """

    at: int
    scope: tuple[int, ...]
    costs: Sequence[Number]
    rows: NDArray[np.integer[Any]] | None = None
    default: Number | None = None
    lender: str = ""


@dataclass
class Reader:
    """What has been read of a file so far."""

    tokens: Tokens
    name: str = ""
    bound: Number | None = None
    maximize: bool = False
    names: dict[str, int] = field(default_factory=dict)
    dims: list[int] = field(default_factory=list)
    labels: list[dict[str, int] | None] = field(default_factory=list)
    tables: list[CfnTable] = field(default_factory=list)
    borrowers: dict[str, list[int]] = field(default_factory=dict)
    """Tables whose costs are those of a function by name that comes later."""

    def sections(self) -> None:
        """Read the whole file."""
        tokens = self.tokens
        at = tokens.expect(0, "{")
        if tokens.peek(at) in ("{", "["):
            raise tokens.fail(at, "problem, variables or functions", "an object without names, which is not read")
        seen: set[str] = set()
        # Published files lack the last brace, so the end of the file does as well.
        while at < len(tokens) and tokens.items[at] != "}":
            key = self.key(at)
            self._once(key, seen, at)
            if key == "problem":
                at = self.problem(tokens.expect(at + 1, "{"))
            elif key == "variables":
                at = self.variables(at + 1)
            elif key == "functions":
                at = self.functions(at + 1)
            else:
                raise tokens.fail(at, "problem, variables or functions")
        if at + 1 < len(tokens):
            raise tokens.fail(at + 1, "the end of the file")

    def _once(self, key: str, seen: set[str], at: int) -> None:
        if key in seen:
            raise self.tokens.fail(at, f"{key!r} once")
        seen.add(key)

    def key(self, at: int) -> str:
        """Return a name: a word or a string."""
        token = self.tokens.peek(at)
        if token in ("", "{", "}", "[", "]", '"'):
            raise self.tokens.fail(at, "a name")
        return unquote(token).rstrip(": ")

    def problem(self, at: int) -> int:
        """Read the name and the bound."""
        tokens, seen = self.tokens, set[str]()
        while tokens.peek(at) != "}":
            key = self.key(at)
            self._once(key, seen, at)
            if key == "name":
                self.name = self.key(at + 1)
            elif key == "mustbe":
                self._bound(at + 1)
            else:
                raise tokens.fail(at, "name or mustbe")
            at += 2
        return at + 1

    def _bound(self, at: int) -> None:
        text = unquote(self.tokens.peek(at))
        if text[:1] not in ("<", ">"):
            raise self.tokens.fail(at, "a bound such as <10 or >0")
        self.maximize = text[0] == ">"
        self.bound = read_numbers(self.tokens, [text[1:].strip()], lambda _: at)[0]

    def variables(self, at: int) -> int:
        """Read names and domains: a size, or a list of labels; in a list of domains variables have no names."""
        tokens = self.tokens
        if tokens.peek(at) == "[":
            at += 1
            while tokens.peek(at) != "]":
                self.names[f"x{len(self.names)}"] = len(self.names)
                at = self._domain(at)
            return at + 1
        at = tokens.expect(at, "{")
        while tokens.peek(at) != "}":
            name = self.key(at)
            if name in self.names:
                raise tokens.fail(at, "a variable that is not declared yet")
            self.names[name] = len(self.names)
            at = self._domain(at + 1)
        return at + 1

    def _domain(self, at: int) -> int:
        tokens = self.tokens
        if tokens.peek(at) != "[":
            if tokens.peek(at).startswith("-"):
                raise tokens.fail(at, "a domain", f"{tokens.items[at]}, an interval, which is not read")
            self.dims.append(tokens.integer(at, "a domain size", 1, MAX_DOMAIN))
            self.labels.append(None)
            return at + 1
        end = tokens.find("]", at)
        labels = {self.key(k): k - at - 1 for k in range(at + 1, end)}
        if not labels or len(labels) < end - at - 1:
            raise tokens.fail(at, "a list of different labels")
        self.dims.append(len(labels))
        self.labels.append(labels)
        return end + 1

    def functions(self, at: int) -> int:
        """Read all functions; their names are optional and may repeat."""
        tokens = self.tokens
        if tokens.peek(at) not in ("{", "["):
            raise tokens.fail(at, "'{' before the functions")
        closing = "}" if tokens.items[at] == "{" else "]"
        at += 1
        while tokens.peek(at) != closing:
            name = ""
            if tokens.peek(at) != "{":
                name, at = self.key(at), at + 1
            table, at = self._function(tokens.expect(at, "{"))
            self.tables.append(table)
            if table.lender:
                self.borrowers.setdefault(table.lender, []).append(len(self.tables) - 1)
            elif name in self.borrowers:
                self._lend(table, self.borrowers.pop(name))
        for borrowers in self.borrowers.values():
            expected = "a list of costs, or the name of a function with one that comes later in the file"
            raise tokens.fail(self.tables[borrowers[0]].at, expected)
        return at + 1

    def _lend(self, table: CfnTable, borrowers: list[int]) -> None:
        """Give functions that named this one its costs."""
        for k in borrowers:
            borrower = self.tables[k]
            dims, known = ([self.dims[v] for v in scope] for scope in (borrower.scope, table.scope))
            if dims != known:
                raise self.tokens.fail(borrower.at, f"a shared function over domains {dims}", f"domains {known}")
            self.tables[k] = replace(table, scope=borrower.scope)

    def _function(self, at: int) -> tuple[CfnTable, int]:
        tokens = self.tokens
        places: dict[str, int] = {}
        start = at
        while tokens.peek(at) != "}":
            key = self.key(at)
            if key == "type":
                kind = self.key(at + 1)
                raise tokens.fail(at, "costs", f"the global cost function {kind!r}, which is not read")
            if key in places or key not in ("scope", "costs", "defaultcost", "params"):
                raise tokens.fail(at, "scope, costs or defaultcost, once each")
            places[key] = at + 1
            at = self._skip(at + 1)
        if "params" in places:
            raise tokens.fail(places["params"] - 1, "'type' before 'params'")
        if "scope" not in places or not places.keys() & {"costs", "defaultcost"}:
            raise tokens.fail(start, "a function with scope and costs")
        return self._table(places), at + 1

    def _skip(self, at: int) -> int:
        """Return the index behind the value at an index."""
        if self.tokens.peek(at) == "[":
            end = self.tokens.find("]", at)
            if "[" not in self.tokens.items[at + 1 : end]:
                return end + 1
        depth = 0
        while True:
            token = self.tokens.peek(at)
            if token == "":
                raise self.tokens.fail(at, "']' or '}'")
            depth += (token in ("[", "{")) - (token in ("]", "}"))
            at += 1
            if depth <= 0:
                return at

    def _table(self, places: dict[str, int]) -> CfnTable:
        tokens = self.tokens
        scope = self._scope(places["scope"])
        default = None
        if "defaultcost" in places:
            at = places["defaultcost"]
            default = read_numbers(tokens, tokens.items[at : at + 1], lambda _: at)[0]
        if "costs" not in places:
            return CfnTable(places["scope"], scope, [], np.empty((0, len(scope)), dtype=np.uint8), default)
        at = places["costs"]
        if tokens.peek(at) != "[":
            if default is not None:
                raise tokens.fail(places["defaultcost"] - 1, "costs of another function without 'defaultcost'")
            return CfnTable(at, scope, [], lender=self.key(at))
        end = tokens.find("]", at)
        if default is not None:
            return self._tuples(range(at + 1, end), scope, default)
        if cell_count(scope, self.dims) != end - at - 1:
            raise tokens.fail(at, f"{cell_count(scope, self.dims)} costs", f"{end - at - 1} costs")
        costs = read_numbers(tokens, tokens.items[at + 1 : end], lambda k: at + 1 + k)
        return CfnTable(at, scope, costs)

    def _scope(self, at: int) -> tuple[int, ...]:
        tokens = self.tokens
        at = tokens.expect(at, "[")
        end = tokens.find("]", at)
        high = len(self.names) - 1
        scope = []
        for k in range(at, end):
            named = self.names.get(unquote(tokens.items[k]))
            scope.append(tokens.integer(k, "a variable, by name or", 0, high) if named is None else named)
        return tuple(scope)

    def _tuples(self, places: range, scope: tuple[int, ...], default: Number) -> CfnTable:
        tokens, width = self.tokens, len(scope) + 1
        if len(places) % width:
            raise tokens.fail(places.start, f"tuples of {width - 1} states and a cost", f"{len(places)} items")
        dtype = state_dtype([self.dims[v] for v in scope])
        rows = np.empty((len(places) // width, len(scope)), dtype=dtype)
        for j, variable in enumerate(scope):
            rows[:, j] = self._states(places[j::width], variable)
        where = places[width - 1 :: width]
        part = tokens.items[where.start : where.stop : width]
        return CfnTable(places.start, scope, read_numbers(tokens, part, lambda k: where[k]), rows, default)

    def _states(self, places: range, variable: int) -> NDArray[np.int64]:
        tokens, dim = self.tokens, self.dims[variable]
        part = tokens.items[places.start : places.stop : places.step]
        states = _numbers(part) if self.labels[variable] is None else None
        if states is None:
            labels = self.labels[variable] or {}
            known = {token: _state(labels.get(name := unquote(token), name), dim) for token in set(part)}
            states = np.fromiter(map(known.__getitem__, part), dtype=np.int64, count=len(part))
        bad = first_bad_state(states[:, None], np.array([dim], dtype=np.int64))
        if bad is not None:
            raise tokens.fail(places[bad[0]], f"a state of variable {list(self.names)[variable]!r}")
        return states


def _numbers(part: list[str]) -> NDArray[np.int64] | None:
    try:
        return np.fromiter(map(int, part), dtype=np.int64, count=len(part))
    except (ValueError, OverflowError):
        return None


def _state(item: int | str, dim: int) -> int:
    """Return a state index, or -1 for anything else."""
    try:
        state = int(item)
    except ValueError:
        return -1
    return state if 0 <= state < dim else -1


def unquote(token: str) -> str:
    """Return the text of a string token, or a word as it is."""
    if len(token) < 2 or token[0] != '"':
        return token
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1]
