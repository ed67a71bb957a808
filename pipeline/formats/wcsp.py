"""The .wcsp format: weighted constraint networks with integer costs.

Plain tables are built from the numbers of the whole file: functions of one arity and length together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from itertools import chain, pairwise, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import CELL_BYTES, LARGEST_INT32
from ..errors import BudgetError, FormatError, ModelError, printable, shorten
from ..models.checks import fitting
from ..models.function import FEW, FORBIDDEN, Function, greatest_costs, state_dtype
from ..models.model import Model
from .global_functions.decomposition import Decomposition, GlobalFunctionError, NestedNetwork, add_nested
from .text.source import Source, check_deadline
from .text.tables import (
    Headers,
    TupleTables,
    first_bad_state,
    put,
    read_domains,
    take_function,
    take_functions,
    take_rows,
    tuple_table,
)
from .text.tokens import Tokens, WordStream
from .text.written_words import LONGEST_NAME, WrittenFile, blocks


def read_headers(
    numbers: NDArray[np.int64], at: int, n_functions: int, other: Callable[[int], int]
) -> tuple[Headers, list[int], int]:
    """Return the headers of plain tables, how many were before each other function, and the index behind the last.

    Parameters
    ----------
    numbers : ndarray, shape (words,)
        The whole file.
    at : int
        Where the first function starts.
    n_functions : int
    other : callable
        Reads the function at an index that is no plain table of variables, and returns the index behind it.

    Raises
    ------
    IndexError
        If the file ends before.
    """
    words: Any = numbers.data  # a memoryview, whose items are Python's integers
    starts, breaks = list[int](), list[int]()
    for _ in range(n_functions):
        arity = words[at]
        default_at = at + 1 + arity
        if arity <= 0 or words[default_at] < 0 or (count := words[default_at + 1]) < 0:
            breaks.append(len(starts))
            at = other(at)
            continue
        starts.append(at)
        at = default_at + 2 + count * (arity + 1)
    if at > len(words):
        raise IndexError(at)
    places = np.array(starts, np.int64)
    arities = numbers[places]
    return Headers(places, arities, numbers[places + arities + 2]), breaks, at


@dataclass(frozen=True, eq=False)
class TableBuilder:
    """Build the functions of plain tables.

    Parameters
    ----------
    tokens : Tokens
        Counts memory.
    numbers : ndarray, shape (words,)
        The whole file.
    headers : Headers
    dims : tuple of int
        Domain sizes of all variables.
    top : int
        As the file has it.
    """

    tokens: Tokens
    numbers: NDArray[np.int64]
    headers: Headers
    dims: tuple[int, ...]
    top: int

    def functions(self) -> list[Function | None]:
        """Return the function of each header; None for a table that is irregular and must be read by itself.

        A table is irregular if a variable, state or cost is out of range, or a variable or a tuple occurs twice.
        """
        headers = self.headers
        take_functions(self.tokens, len(headers.starts), int(headers.arities.sum()))
        found: list[Function | None] = [None] * len(headers.starts)
        sizes = np.array(self.dims, np.int64)
        for arity, count, which in headers.groups():
            check_deadline()
            starts = headers.starts[which]
            scopes = self.numbers[starts[:, None] + np.arange(1, arity + 1)]
            ordered = np.sort(scopes, axis=1)
            good = (ordered[:, 0] >= 0) & (ordered[:, -1] < len(sizes)) & (np.diff(ordered) != 0).all(axis=1)
            which, starts, scopes = which[good], starts[good], scopes[good]
            if not which.size:
                continue
            self._build(found, which, starts + arity + 1, scopes, sizes[scopes], count)
        return found

    def _build(
        self,
        found: list[Function | None],
        which: NDArray[np.intp],
        at: NDArray[np.int64],
        scopes: NDArray[np.int64],
        sizes: NDArray[np.int64],
        count: int,
    ) -> None:
        """Build functions of one arity and number of tuples.

        Parameters
        ----------
        found : list
            Gets them.
        which : ndarray, shape (functions,)
            Their places in ``found``.
        at : ndarray, shape (functions,)
            Where their default costs stand.
        scopes, sizes : ndarray, shape (functions, arity)
            Their variables, and the sizes of these.
        count : int
            How many tuples each lists.
        """
        arity = scopes.shape[1]
        length = count * (arity + 1)
        self.tokens.allowance.take(0, f"tables of {count} tuples", for_now=5 * CELL_BYTES * length * len(at))
        if len(at) == 1:
            listed = self.numbers[int(at[0]) + 2 : int(at[0]) + 2 + length]
        else:
            listed = self.numbers[at[:, None] + np.arange(2, 2 + length)]
        tuples = listed.reshape(len(at), count, arity + 1)
        costs, defaults = tuples[:, :, -1], self.numbers[at]
        bad = self._are_odd(costs).any(axis=1) | self._are_odd(defaults)
        highest = min(self.top, FORBIDDEN)
        costs, defaults = np.minimum(costs, highest), np.minimum(defaults, highest)
        tables = TupleTables(self.tokens.allowance, scopes, sizes, tuples[:, :, :-1], costs, defaults)
        put(found, which, tables.functions(bad))

    def _are_odd(self, costs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether costs are none, or from ``FORBIDDEN`` on and below the top."""
        odd: NDArray[np.bool_] = (costs < 0) | ((costs >= FORBIDDEN) & (costs < self.top))
        return odd


_SHARED_WHOLE = 3


@dataclass
class _Shared:
    """A table without its scope, which later functions may reuse, and the function that holds it."""

    dims: tuple[int, ...]
    rows: NDArray[np.integer[Any]]
    values: NDArray[np.int64]
    default: int
    function: Function | None = None

    def over(self, scope: tuple[int, ...], all_dims: tuple[int, ...]) -> Function:
        """Return the table over a scope; all functions that reuse it share one array."""
        if len(set(scope)) < len(scope):
            return tuple_table(scope, all_dims, self.rows, self.values, self.default)
        if self.function is None:
            self.function = tuple_table(scope, all_dims, self.rows, self.values, self.default)
        return self.function.changed(scope=scope)


@dataclass
class _WcspReader:
    tokens: Tokens
    dims: tuple[int, ...] = ()
    file_top: int = 0
    at: int = 0
    depth: int = 0
    shared: list[_Shared] = field(default_factory=list)
    unlike: int = 0
    """How many functions reuse one of another default cost."""

    def __post_init__(self) -> None:
        self.parts = Decomposition([*self.dims], self.highest, self.tokens.allowance)

    @property
    def highest(self) -> int:
        """The stored cost of forbidden assignments."""
        return min(self.file_top, FORBIDDEN)

    def functions_together(self, n_functions: int) -> bool:
        """Read all functions, plain tables by whole arrays. If this fails, return False: then each is read alone."""
        tokens, others = self.tokens, self.parts.functions
        numbers = tokens.numbers(np.int64) if isinstance(tokens, WordStream) else None
        if numbers is None:
            return False
        ends: list[int] = []

        def other(at: int) -> int:
            self.at = at
            self.function()
            ends.append(len(others))
            return self.at

        try:
            tokens.allowance.take(numbers.nbytes, "its numbers")
            headers, breaks, end = read_headers(numbers, self.at, n_functions, other)
            tables = TableBuilder(tokens, numbers, headers, self.dims, self.file_top).functions()
            for k, self.at in [(k, start) for k, start in enumerate(headers.starts.tolist()) if tables[k] is None]:
                self.function()
                tables[k] = others.pop()
        except (IndexError, FormatError, BudgetError):
            return False
        tokens.allowance.taken -= numbers.nbytes
        known = [0, *ends]
        parts = zip(pairwise([0, *breaks, len(tables)]), pairwise([*known, known[-1]]), strict=True)
        self.parts.functions = [f for plain, own in parts for f in (*tables[slice(*plain)], *others[slice(*own)]) if f]
        self.at = end
        return True

    def function(self) -> None:
        """Read one function, from its arity to its last tuple."""
        tokens, start = self.tokens, self.at
        arity = tokens.integer(start, "the number of variables of a function", -len(tokens), len(tokens))
        default_at = start + 1 + abs(arity)
        scope = tokens.integers(start + 1, default_at, "a variable of the scope")
        self._check_scope(scope, start + 1)
        take_function(tokens, abs(arity))
        if tokens.peek(default_at) == "-1" and not tokens.peek(default_at + 1).lstrip("-").isdigit():
            self._global(tuple(scope), default_at, is_shared=arity < 0)
            return
        table = self._table(scope, default_at)
        if arity < 0:
            self.shared.append(table)
        self.parts.functions.append(table.over(tuple(scope), self.dims))

    def _global(self, scope: tuple[int, ...], at: int, is_shared: bool) -> None:
        """Read a global cost function from its -1 to its last parameter, and add what it becomes."""
        from .global_functions.global_kinds import KINDS, NESTED, PAIRS
        from .global_functions.global_params import WordReader

        tokens, name = self.tokens, self.tokens.peek(at + 1)
        shown = f"the global cost function {shorten(name)!r}"
        if name not in KINDS and name not in NESTED:
            raise tokens.fail(at, "a table of costs", f"{shown}, which is not read")
        if is_shared:
            raise tokens.fail(at, "a table of costs in a shared function", shown)
        if name in PAIRS and len(scope) != 2:
            raise tokens.fail(at, "a function of two variables", f"{shown} of {len(scope)}")
        self.parts.what = shown
        try:
            if name in NESTED:
                self._nested(scope, at + 2)
                return
            words = WordReader(tokens, at + 2, len(scope), len(self.dims), self._cost, self.highest)
            given = words.given(name)
            self.at = words.at
            KINDS[name].add(self.parts, scope, given)
        except GlobalFunctionError as error:
            raise tokens.fail(at + 1, error.expected, f"{error.found} in {shown}") from None

    def _nested(self, scope: tuple[int, ...], at: int) -> None:
        """Read bounds and a network within them."""
        from .global_functions.global_kinds import MOST_NESTED

        tokens = self.tokens
        low, high = (tokens.integer(at + k, "a bound of a nested network") for k in range(2))
        _, only_optimum = (tokens.integer(at + k, "0 or 1", 0, 1) for k in (2, 3))
        if self.depth == MOST_NESTED:
            raise tokens.fail(at - 1, f"networks nested in {MOST_NESTED} others at most")
        inner = _read_network(tokens, at + 4, self.depth + 1)
        self.at = inner.at
        if inner.parts.hidden:
            raise GlobalFunctionError("a nested network of tables", "global cost functions of hidden variables")
        functions = tuple(inner.parts.functions)
        add_nested(self.parts, scope, NestedNetwork(inner.dims, functions, inner.file_top, low, high), only_optimum)

    def _check_scope(self, scope: list[int], at: int) -> None:
        for k, variable in enumerate(scope):
            if not 0 <= variable < len(self.dims):
                raise self.tokens.fail(at + k, f"a variable from 0 to {len(self.dims) - 1}")

    def _table(self, scope: list[int], at: int) -> _Shared:
        tokens = self.tokens
        dims = tuple(self.dims[v] for v in scope)
        default = self._cost(at)
        count = tokens.integer(at + 1, "the number of tuples", -len(tokens), len(tokens))
        if count < 0:
            self.at = at + 2
            return self._reuse(dims, default, at, count)
        rows, values = self._tuples(scope, at + 2, count)
        self.at = at + 2 + count * (len(scope) + 1)
        return _Shared(dims, rows, values, default)

    def _reuse(self, dims: tuple[int, ...], default: int, at: int, count: int) -> _Shared:
        """Return a table that was shared before; its default cost is to be said again."""
        if -count > len(self.shared):
            known = f"a number of tuples, or one of {len(self.shared)} shared functions before this one"
            raise self.tokens.fail(at + 1, known)
        table = self.shared[-count - 1]
        if dims != table.dims:
            raise self.tokens.fail(at + 1, f"a shared function over domains {table.dims}", f"domains {dims}")
        if default == table.default or len(table.rows) == prod(dims):
            return table
        self.unlike += 1
        # toulbar2 shares whole tables of up to three variables, and the tuples alone of more
        return table if len(dims) <= _SHARED_WHOLE else replace(table, default=default, function=None)

    def _tuples(self, scope: list[int], at: int, count: int) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        dims, width = [self.dims[v] for v in scope], len(scope) + 1
        stop = at + count * width
        if stop > len(self.tokens):
            raise self.tokens.fail(len(self.tokens), "a tuple and its cost")
        take_rows(self.tokens, count, scope, self.dims)
        table = self.tokens.integer_array(at, stop, "a tuple and its cost").reshape(count, width)
        rows = table[:, :-1]
        bad = first_bad_state(rows, np.array(dims, dtype=np.int64))
        if bad is not None:
            place = at + bad[0] * width + bad[1]
            raise self.tokens.fail(place, f"a state from 0 to {dims[bad[1]] - 1}")
        costs = table[:, -1]
        for k in np.flatnonzero((costs < 0) | (costs >= FORBIDDEN)):
            costs[k] = self._cost(at + int(k) * width + width - 1)
        return rows.astype(state_dtype(dims)), np.minimum(costs, self.highest)

    def _cost(self, at: int) -> int:
        """Read a cost; a forbidden cost becomes the stored cost of forbidden assignments."""
        cost = self.tokens.integer(at, "a cost")
        if FORBIDDEN <= cost < self.file_top:
            raise self.tokens.fail(at, f"a cost below {FORBIDDEN} or of at least the top")
        return min(cost, self.highest)


def read_wcsp(source: Source) -> Model:
    """Read a .wcsp file.

    Costs of at least the top are stored as the top, or as ``FORBIDDEN`` if that is less. Shared functions
    (a negative arity, reused by a negative number of tuples) are expanded. Global cost functions become small
    functions, of hidden variables too where they must; interval domains are domains.

    Raises
    ------
    FormatError
        If the file is malformed, or has a global cost function of an unknown kind.
    BudgetError
        If a global cost function needs too many states.
    """
    _cut_before_minus(source.data)
    tokens = WordStream(source)
    reader = _read_network(tokens, 0)
    if reader.at < len(tokens):
        count = tokens.integer(3, "the number of functions", 0, len(tokens))
        raise tokens.fail(reader.at, f"the end of the file after {count} functions")
    parts, n_vars = reader.parts, len(reader.dims)
    return Model(
        kind="cost",
        names=parts.names([f"x{v}" for v in range(n_vars)]),
        dims=tuple(parts.dims),
        states=(None,) * len(parts.dims),
        functions=fitting("cost", tuple(parts.dims), parts.functions),
        top=reader.file_top,
        name=tokens.peek(0),
        hidden=parts.hidden,
        notes=tuple(_notes(reader)),
    )


def _cut_before_minus(data: bytearray) -> None:
    """Put a space before each minus that is right behind a digit, but in the name: a number ends there, as in C++."""
    name = re.match(rb"\s*\S*", data)
    at = data.find(b"-", name.end() if name else 0)
    while at >= 0:
        if data[at - 1 : at].isdigit():
            data.insert(at, ord(" "))
            at += 1
        at = data.find(b"-", at + 1)


def _read_network(tokens: Tokens, at: int, depth: int = 0) -> _WcspReader:
    """Read a network from its name to its last function."""
    if at >= len(tokens):
        raise tokens.fail(at, "the name of a problem")
    n_vars = tokens.integer(at + 1, "the number of variables", 0, len(tokens))
    tokens.integer(at + 2, "the largest domain size", -LARGEST_INT32 if tokens.peek(at + 2).startswith("-") else 0)
    n_functions = tokens.integer(at + 3, "the number of functions", 0, len(tokens))
    top = tokens.integer(at + 4, "the top cost", 0)
    reader = _WcspReader(tokens, read_domains(tokens, at + 5, n_vars, signed=True), top, at + 5 + n_vars, depth)
    start, taken = reader.at, tokens.allowance.taken
    if n_functions < FEW or not reader.functions_together(n_functions):
        tokens.allowance.taken = taken
        reader = _WcspReader(tokens, reader.dims, top, start, depth)
        for _ in range(n_functions):
            reader.function()
    return reader


def _notes(reader: _WcspReader) -> Iterator[str]:
    """Say where the file contradicts itself."""
    said = abs(reader.tokens.integer(2, "the largest domain size", -LARGEST_INT32))
    largest = max(reader.dims, default=0)
    if reader.unlike:
        yield (
            f"shared functions are reused {reader.unlike} times with another default cost: as in toulbar2, this cost "
            "holds "
            f"for more than {_SHARED_WHOLE} variables, and the shared function's own cost for fewer"
        )
    if said < largest:
        yield f"the header says domains of at most {said} states, one has {largest}, which are all read"


# The WCSP format: integer costs of at least 0, and a top.


def wcsp_file(model: Model) -> WrittenFile:
    """Return the lines of a file, and how its totals differ from the model's.

    Raises
    ------
    ModelError
        If the model has no costs, or costs that are too far from each other.
    """
    stored = _shifted(model)
    names = tuple(f"x{v}" for v in range(len(model.names)))
    return WrittenFile(_lines(stored.model), list(_shift_notes(model, stored)), names)


@dataclass(frozen=True)
class _Shifted:
    """A model of costs of at least 0, and what was subtracted from its totals."""

    model: Model
    shift: int


def _shifted(model: Model) -> _Shifted:
    """Subtract the least negative cost of every function from the function, and the sum of these from the top.

    Raises
    ------
    ModelError
        If the model has no costs, or costs that are too far from each other.
    """
    if model.kind != "cost":
        raise ModelError("the model holds probabilities, and .wcsp holds costs; write .uai")
    lows = [min(low, 0) for low in model.lowest]
    highs = greatest_costs(model.functions, [FORBIDDEN] * len(lows))
    functions = tuple(
        f if low == 0 else _raised(f, high, -low) for f, low, high in zip(model.functions, lows, highs, strict=True)
    )
    shift = sum(lows)
    top = _open_top(functions) if model.top is None else max(model.top - shift, 0)
    return _Shifted(replace(model, functions=functions, top=top), shift)


def _raised(function: Function, high: int, by: int) -> Function:
    """Add a number to all allowed costs; ``high`` is the greatest of them."""
    allowed = function.values < FORBIDDEN
    if high + by >= FORBIDDEN:
        raise ModelError("the model cannot be written as .wcsp: costs of a function are 2**62 or more apart")
    default = function.default if function.rows is None or function.default >= FORBIDDEN else function.default + by
    return function.changed(values=np.where(allowed, function.values + by, FORBIDDEN), default=default)


def _open_top(functions: tuple[Function, ...]) -> int:
    """Return a top that no total reaches."""
    return max(FORBIDDEN, sum(greatest_costs(functions, [FORBIDDEN] * len(functions))) + 1)


def _shift_notes(model: Model, stored: _Shifted) -> Iterator[str]:
    factor = (-1 if model.maximize else 1) * 10**model.decimals
    if stored.shift or factor != 1:
        scaled = "value" if factor == 1 else f"{factor} * value"
        yield f"costs are integers of at least 0: the file's total is {scaled} + {-stored.shift}"


def _lines(model: Model) -> Iterator[str]:
    name = "_".join(printable(model.name, LONGEST_NAME).split()) or "model"
    top = FORBIDDEN if model.top is None else model.top
    yield f"{name} {len(model.dims)} {max(model.dims, default=0)} {len(model.functions)} {top}"
    yield " ".join(map(str, model.dims))
    for f in model.functions:
        yield from _function(f, model.dims, top)


def _function(function: Function, dims: tuple[int, ...], top: int) -> Iterator[str]:
    head = " ".join(map(str, (len(function.scope), *function.scope)))
    if not function.scope:
        yield f"{head} {_written(function.at(()), top)} 0"
    elif function.rows is not None:
        yield f"{head} {_written(function.default, top)} {len(function.rows)}"
        for row, cost in chain.from_iterable(blocks(function.rows, function.values)):
            yield " ".join(map(str, (*row, _written(cost, top))))
    else:
        # Every cell is listed, so that it reads back as a dense function; the default is never used.
        yield f"{head} 0 {function.values.size}"
        states = product(*(range(dims[v]) for v in function.scope))
        costs = chain.from_iterable(blocks(function.values.ravel()))
        for row, (cost,) in zip(states, costs, strict=True):
            yield " ".join(map(str, (*row, _written(cost, top))))


def _written(cost: int | float, top: int) -> int:
    return top if cost >= FORBIDDEN else min(int(cost), top)
