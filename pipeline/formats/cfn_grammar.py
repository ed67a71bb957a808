"""The grammar of .cfn files: sections, variables and functions, with costs as written.

Real files omit quotes, commas and colons, and repeat names. Commas and colons are therefore only separators, and the
reader walks over tokens instead of parsing strict JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import LARGEST_INT32
from ..models.function import state_dtype
from .decimal_costs import Number, read_numbers
from .global_functions.global_kinds import KINDS, MOST_NESTED, NESTED, PAIRS
from .global_functions.global_params import ParamReader, skipped
from .text.source import check_deadline
from .text.tables import MAX_AXES, cell_count, first_bad_state
from .text.tokens import Tokens, has_plain_digits, unquote

TOKEN = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|[{}\[\]]|[^\s{}\[\],:"]+|"')
# Tokens that are no name, and keys as tokens.
_NAMELESS = frozenset(("", "{", "}", "[", "]", '"'))
_SCOPE, _COSTS, _DEFAULT = ((key, f'"{key}"') for key in ("scope", "costs", "defaultcost"))


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
        Cost of tuples that are not listed.
    lender : str
        The function whose costs these are, while it is still to come.
    """

    at: int
    scope: tuple[int, ...]
    costs: Sequence[Number]
    rows: NDArray[np.integer[Any]] | None = None
    default: Number | None = None
    lender: str = ""


@dataclass(frozen=True)
class CfnGlobal:
    """A global cost function as the file gives it.

    Parameters
    ----------
    at : int
        The token of its kind.
    kind : str
    scope : tuple of int
    given : dict
        Its parameters, with costs as the file has them.
    nested : Reader, optional
        The network of a nested one.
    """

    at: int
    kind: str
    scope: tuple[int, ...]
    given: dict[str, Any]
    nested: Reader | None = None


@dataclass
class RegularTables:
    """Tables in the shape that programs write, ``{"scope": [...], "costs": [...]}``, which are built together.

    A table lists a cost for each assignment, or a ``"defaultcost"`` between scope and costs, and tuples. Its tokens are
    neither checked nor converted yet. All lists follow the order of the file.
    """

    scopes: list[tuple[int, ...]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """For each table its number of costs if it lists all, or -1."""
    full: list[str] = field(default_factory=list)
    """The tokens of all costs of the tables that list all."""
    listed: list[str] = field(default_factory=list)
    """The tokens of the others: for each table its default cost, its tuples and their costs."""
    starts: list[int] = field(default_factory=list)
    """Where each of the others begins in ``listed``."""


@dataclass
class Reader:
    """The parts of a file read so far.

    Parameters
    ----------
    tokens : Tokens
    regular : RegularTables, optional
        Gets the tables in regular shape. If None, the grammar reads every table. Only the grammar knows what is wrong
        with a file.
    """

    tokens: Tokens
    regular: RegularTables | None = None
    name: str = ""
    bound: Number | None = None
    maximize: bool = False
    names: dict[str, int] = field(default_factory=dict)
    dims: list[int] = field(default_factory=list)
    labels: list[dict[str, int] | None] = field(default_factory=list)
    tables: list[CfnTable | CfnGlobal | None] = field(default_factory=list)
    """In the order of the file; None is the next one of the regular tables."""
    borrowers: dict[str, list[int]] = field(default_factory=dict)
    """Tables that use the costs of a named function defined later."""
    depth: int = 0
    """In how many networks this one is nested."""

    def sections(self) -> None:
        """Read the whole file."""
        at = self.network(0)
        if at < len(self.tokens):
            raise self.tokens.fail(at, "the end of the file")

    def network(self, at: int) -> int:
        """Read a network from its first brace, and return the index behind it."""
        tokens = self.tokens
        at = tokens.expect(at, "{")
        if tokens.peek(at) in ("{", "["):
            raise tokens.fail(at, "problem, variables or functions", "an object without names, which is not read")
        seen: set[str] = set()
        # Some published files omit the last brace, so the end of the file is accepted instead.
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
        if at >= len(tokens) and "functions" not in seen:
            raise tokens.fail(at, "the section 'functions', or '}'")
        return at + 1

    def _once(self, key: str, seen: set[str], at: int) -> None:
        if key in seen:
            raise self.tokens.fail(at, f"{key!r} once")
        seen.add(key)

    def key(self, at: int) -> str:
        """Return a name: a word or a string."""
        token = self.tokens.peek(at)
        if token in _NAMELESS:
            raise self.tokens.fail(at, "a name")
        return _name(token)

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
            # an interval has a negative size; its states are its numbers from 0
            interval = tokens.peek(at).startswith("-")
            low, high = (-LARGEST_INT32, -1) if interval else (1, LARGEST_INT32)
            self.dims.append(abs(tokens.integer(at, "a domain size", low, high)))
            self.labels.append(None)
            return at + 1
        end = tokens.find("]", at)
        part = tokens.items[at + 1 : end]
        for k, token in enumerate(part, at + 1):
            if token in _NAMELESS:
                raise tokens.fail(k, "a name")
        labels = {_name(token): k for k, token in enumerate(part)}
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
        known = {} if self.regular is None else self._known()
        while tokens.peek(at) != closing:
            if self.regular is not None and not self.borrowers:
                behind = self._regular(at, self.regular, known)
                if behind > at:
                    at = behind
                    continue
            name = ""
            if tokens.peek(at) != "{":
                name, at = self.key(at), at + 1
            table, at = self._function(tokens.expect(at, "{"))
            self.tables.append(table)
            if isinstance(table, CfnGlobal):
                continue
            if table.lender:
                self.borrowers.setdefault(table.lender, []).append(len(self.tables) - 1)
            elif name in self.borrowers:
                self._lend(table, self.borrowers.pop(name))
        for borrowers in self.borrowers.values():
            expected = "a list of costs, or the name of a later function with a list of costs"
            borrower = self.tables[borrowers[0]]
            raise tokens.fail(0 if borrower is None else borrower.at, expected)
        return at + 1

    def _known(self) -> dict[str, int]:
        """Return tokens that stand for variables in a scope."""
        known = {name: v for name, v in self.names.items() if name[:1] != '"'}
        known |= {f'"{name}"': v for name, v in self.names.items() if not {*name} & {"\\", '"'}}
        for v in range(len(self.names)):
            known.setdefault(str(v), v)
        return known

    def _regular(self, at: int, regular: RegularTables, known: dict[str, int]) -> int:
        """Read tables from an index on as long as their shape is regular, and return the index behind the last one."""
        items, dims, labels = self.tokens.items, self.dims, self.labels
        try:
            while True:
                check_deadline()
                start = at
                if items[at] != "{":
                    if items[at] in _NAMELESS:
                        return at
                    start = at + 1
                if items[start] != "{" or items[start + 1] not in _SCOPE or items[start + 2] != "[":
                    return at
                end = items.index("]", start + 3)
                scope = tuple([known[token] for token in items[start + 3 : end]])
                first = end + 3
                if is_listed := items[end + 1] in _DEFAULT:
                    first = end + 5
                if items[first - 2] not in _COSTS or items[first - 1] != "[":
                    return at
                stop = items.index("]", first)
                count = stop - first
                if items[stop + 1] != "}" or (len(scope) > 1 and len({*scope}) < len(scope)) or len(scope) > MAX_AXES:
                    return at
                if is_listed:
                    if not scope or count % (len(scope) + 1) or any(labels[v] is not None for v in scope):
                        return at
                    regular.starts.append(len(regular.listed))
                    regular.listed.append(items[end + 2])
                    regular.listed += items[first:stop]
                elif count == math.prod([dims[v] for v in scope]):
                    regular.full += items[first:stop]
                else:
                    return at
                regular.scopes.append(scope)
                regular.counts.append(-1 if is_listed else count)
                self.tables.append(None)
                at = stop + 2
        except (IndexError, KeyError, ValueError):  # the file ends, an unknown variable, no bracket
            return at

    def _lend(self, table: CfnTable, borrowers: list[int]) -> None:
        """Give functions that named this one its costs."""
        for k in borrowers:
            borrower = self.tables[k]
            assert isinstance(borrower, CfnTable)
            dims, known = ([self.dims[v] for v in scope] for scope in (borrower.scope, table.scope))
            if dims != known:
                raise self.tokens.fail(borrower.at, f"a shared function over domains {dims}", f"domains {known}")
            self.tables[k] = replace(table, scope=borrower.scope)

    def _function(self, at: int) -> tuple[CfnTable | CfnGlobal, int]:
        tokens = self.tokens
        places: dict[str, int] = {}
        start = at
        while tokens.peek(at) != "}":
            key = self.key(at)
            if key in places or key not in ("scope", "costs", "defaultcost", "type", "params"):
                raise tokens.fail(at, "scope, costs or defaultcost, once each")
            places[key] = at + 1
            at = self._skip(at + 1)
        if "type" in places:
            return self._global(places, start), at + 1
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
        return skipped(self.tokens, at)

    def _global(self, places: dict[str, int], start: int) -> CfnGlobal:
        """Read a global cost function."""
        tokens, at = self.tokens, places["type"]
        kind = self.key(at)
        if kind not in KINDS and kind not in NESTED:
            raise tokens.fail(at - 1, "costs", f"the global cost function {kind!r}, which is not read")
        if extra := places.keys() - {"type", "scope", "params"}:
            raise tokens.fail(places[min(extra)] - 1, f"scope, type and params of the global cost function {kind!r}")
        if missing := {"scope", "params"} - places.keys():
            raise tokens.fail(at, f"{max(missing)!r} of the global cost function {kind!r}", "none")
        scope = self._scope(places["scope"])
        if kind in PAIRS and len(scope) != 2:
            raise tokens.fail(at, "a function of two variables", f"the global cost function {kind!r} of {len(scope)}")
        given = ParamReader(tokens, len(scope), self.names).given(kind, places["params"])
        if kind not in NESTED:
            return CfnGlobal(at, kind, scope, given)
        if self.depth == MOST_NESTED:
            raise tokens.fail(at, f"networks nested in {MOST_NESTED} others at most")
        nested = Reader(tokens, None if self.regular is None else RegularTables(), depth=self.depth + 1)
        nested.network(given["cfn"])
        return CfnGlobal(at, kind, scope, given, nested)

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


def _name(token: str) -> str:
    return unquote(token).rstrip(": ")


def _numbers(part: list[str]) -> NDArray[np.int64] | None:
    try:
        whole = has_plain_digits("".join(part))
        return np.fromiter(map(int, part), dtype=np.int64, count=len(part)) if whole else None
    except (ValueError, OverflowError):
        return None


def _state(item: int | str, dim: int) -> int:
    """Return a state index, or -1 for anything else."""
    try:
        state = int(item) if has_plain_digits(str(item)) else -1
    except ValueError:
        return -1
    return state if 0 <= state < dim else -1
