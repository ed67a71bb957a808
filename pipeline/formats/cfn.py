"""The .cfn format of toulbar2: cost function networks in (relaxed) JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import CELL_BYTES, LARGEST_DECIMAL, LARGEST_DECIMALS
from ..errors import BudgetError, FormatError, ModelError
from ..models.function import many_functions
from ..models.model import FORBIDDEN, Function, Model
from .cfn_grammar import TOKEN, CfnGlobal, CfnTable, Reader, RegularTables
from .decimal_costs import (
    BEYOND,
    READ_AS_INFINITE,
    CostCells,
    IrregularError,
    Number,
    StoredCosts,
    are_read_as_infinite,
    decimal_places,
    scaled,
    scaled_bound,
)
from .format_policy import STATE_BYTES
from .global_functions.decomposition import Decomposition, GlobalFunctionError, NestedNetwork, add_nested
from .global_functions.global_kinds import COMPARISONS, KINDS
from .global_functions.global_params import costs_of, with_stored
from .text.source import Source
from .text.tables import Headers, TupleTables, full_table, put, tuple_table
from .text.tokens import Tokens
from .text.written_words import (
    WrittenFile,
    blocks,
    cost_text,
    counted,
    highest_costs,
    infinite_cost,
    kept_names,
    written_top,
)

_COMMENT = re.compile(rb'("(?:[^"\\\n]|\\.)*")|(?m:^[ \t]*#[^\n]*)|(?<!\S)//[^\n]*')


def read_cfn(source: Source) -> Model:
    """Read a .cfn file.

    Costs are scaled to integers exactly. A ``mustbe`` bound is strict, and limits the total only. Global cost
    functions become small functions, of hidden variables too where they must; interval domains are domains.

    Raises
    ------
    FormatError
        If the file is malformed, has a global cost function of an unknown kind, or costs too long for 64-bit
        integers.
    BudgetError
        If a global cost function needs too many states.
    """
    if b"#" in source.data or b"//" in source.data:
        source.blank(_COMMENT)
    tokens = Tokens(source, TOKEN, STATE_BYTES)
    reader, read = _network(tokens)
    parts = read.parts
    labels = [None if labels is None else tuple(labels) for labels in reader.labels]
    return parts.model(
        [*reader.names],
        labels,
        top=read.top,
        decimals=read.decimals,
        maximize=reader.maximize,
        name=reader.name or source.stem,
        notes=read.notes,
    )


def _network(tokens: Tokens) -> tuple[Reader, _Read]:
    """Read the file, with regular tables together. If this fails, the grammar reads all: it knows what is wrong."""
    taken = tokens.allowance.taken
    with suppress(FormatError, BudgetError, IrregularError):
        return _parsed(Reader(tokens, RegularTables()))
    tokens.allowance.taken = taken
    return _parsed(Reader(tokens))


def _parsed(reader: Reader) -> tuple[Reader, _Read]:
    reader.sections()
    return reader, _functions(reader)


@dataclass(frozen=True)
class _Read:
    """The functions of a network in stored costs, the top, the number of decimals, and notes."""

    parts: Decomposition
    top: int | None
    decimals: int
    notes: tuple[str, ...]


def _functions(reader: Reader) -> _Read:
    """Build all functions with integer costs; functions that share their costs share one array.

    Parameters
    ----------
    reader : Reader
        The parsed file.
    """
    tokens = reader.tokens
    tables = [table for table in reader.tables if isinstance(table, CfnTable)]
    cells = _cells(reader)
    decimals = _decimals(reader, tables, cells)
    regular = _regular_functions(reader, cells, decimals)
    at, infinite = 0, regular.infinite
    known: dict[int, StoredCosts] = {}  # by identity: a shared function is one list of costs
    try:
        for table in tables:
            at = table.at
            if id(table.costs) not in known:
                stored = known[id(table.costs)] = _stored(table, decimals, reader)
                infinite = infinite or are_read_as_infinite(table.costs, table.default, stored.values, reader.bound)
        bound = None if reader.bound is None else scaled_bound(reader.bound, decimals, reader.maximize)
    except ValueError as error:
        raise tokens.fail(at, str(error), BEYOND) from None
    givens = {id(f): _stored_given(f, decimals, reader) for f in reader.tables if isinstance(f, CfnGlobal)}
    limit = FORBIDDEN if regular.lowest < 0 else _limit(bound, known.values(), reader)
    parts = Decomposition([*reader.dims], limit, tokens.allowance)
    built: dict[int, Function] = {}
    regular_functions = iter(regular.functions)
    for function in reader.tables:
        if function is None:
            parts.functions.append(next(regular_functions))
            continue
        if isinstance(function, CfnGlobal):
            _add_global(parts, function, givens[id(function)], reader, decimals)
            continue
        table = function
        costs = known[id(table.costs)]
        distinct = len(set(table.scope)) == len(table.scope)
        if distinct and id(costs) in built:
            parts.functions.append(built[id(costs)].changed(scope=table.scope))
        else:
            parts.functions.append(_function(table, costs, reader))
        if distinct:
            built[id(costs)] = parts.functions[-1]
    notes: tuple[str, ...] = (f"costs of 10^18 and more {READ_AS_INFINITE}",) if infinite else ()
    exponent = Decimal(0 if reader.bound is None else reader.bound).as_tuple().exponent
    if reader.bound is not None and isinstance(exponent, int) and (written := max(-exponent, 0)) < decimals:
        notes += (
            "costs with more decimals than 'mustbe' are read exactly, but toulbar2 truncates them "
            f"({decimals} decimals, {written} in 'mustbe')",
        )
    return _Read(parts, bound, decimals, notes)


@dataclass(frozen=True)
class _Regular:
    """Functions of the regular tables, their lowest cost or 0, and whether finite costs are read as infinite."""

    functions: Sequence[Function]
    lowest: int
    infinite: bool


def _cells(reader: Reader) -> tuple[CostCells, ...]:
    """Return the converted tokens of the tables that list all costs, and of the tables that list tuples."""
    regular = reader.regular
    if regular is None or not regular.scopes:
        return ()
    cells = tuple([CostCells.of(words, reader.tokens.allowance) for words in (regular.full, regular.listed)])
    regular.full, regular.listed = [], []
    return cells


def _regular_functions(reader: Reader, cells: tuple[CostCells, ...], decimals: int) -> _Regular:
    """Build the functions of the regular tables.

    Raises
    ------
    IrregularError
        If a number or a state is out of range, or a tuple is listed twice.
    """
    regular = reader.regular
    if regular is None or not cells:
        return _Regular((), 0, False)
    (full, has_infinite), (listed, lists_infinite) = (
        part.scaled(decimals, reader.maximize, reader.bound) for part in cells
    )
    full.flags.writeable = False
    others, lowest = _listed_functions(reader, regular, cells[1].states, listed)
    scopes = [scope for scope, count in zip(regular.scopes, regular.counts, strict=True) if count >= 0]
    counts = [count for count in regular.counts if count >= 0]
    dims = reader.dims
    values = (
        full[end - count : end].reshape([dims[v] for v in scope])
        for scope, count, end in zip(scopes, counts, accumulate(counts), strict=True)
    )
    wholes, listing = iter(many_functions(scopes, values)), iter(others)
    functions = [next(listing if count < 0 else wholes) for count in regular.counts]
    return _Regular(functions, min(lowest, int(full.min(initial=0))), has_infinite or lists_infinite)


def _listed_functions(
    reader: Reader, regular: RegularTables, states: NDArray[np.int64], costs: NDArray[np.int64]
) -> tuple[list[Function], int]:
    """Return the functions of the regular tables that list tuples, and their lowest cost, or 0.

    Parameters
    ----------
    reader : Reader
    regular : RegularTables
    states, costs : ndarray of int64
        The listed tokens as states and as stored costs.

    Raises
    ------
    IrregularError
        If a state is out of range, or a tuple is listed twice.
    """
    if not regular.starts:
        return [], 0
    scopes = [scope for scope, count in zip(regular.scopes, regular.counts, strict=True) if count < 0]
    starts, arities = np.array(regular.starts, np.int64), np.fromiter(map(len, scopes), np.int64, len(scopes))
    headers = Headers(starts, arities, (np.diff(starts, append=len(costs)) - 1) // (arities + 1))
    found: list[Function | None] = [None] * len(scopes)
    dims, allowance = np.array(reader.dims, np.int64), reader.tokens.allowance
    lowest = int(costs[starts].min(initial=0))
    for arity, count, which in headers.groups():
        width = arity + 1
        allowance.take(0, f"tables of {count} tuples", for_now=6 * CELL_BYTES * count * width * len(which))
        at = starts[which]
        places = (at[:, None] + np.arange(1, 1 + count * width)).reshape(len(at), count, width)
        own = np.array([scopes[k] for k in which.tolist()], np.int64)
        tables = TupleTables(allowance, own, dims[own], states[places[:, :, :-1]], costs[places[:, :, -1]], costs[at])
        lowest = min(lowest, int(tables.costs.min(initial=0)))
        put(found, which, tables.functions(np.zeros(len(at), bool), unique=True))
    functions = [function for function in found if function is not None]
    if len(functions) < len(found):
        raise IrregularError
    return functions, lowest


def _decimals(reader: Reader, tables: Sequence[CfnTable], cells: Sequence[CostCells]) -> int:
    """Return how many decimals the costs of a network need."""
    bounds = [] if reader.bound is None else [reader.bound]
    defaults = [table.default for table in tables if table.default is not None]
    prices = [p.number for f in reader.tables if isinstance(f, CfnGlobal) and not f.nested for p in costs_of(f.given)]
    decimals = max(decimal_places(part) for part in (bounds, defaults, prices, *(t.costs for t in tables)))
    decimals = max([decimals, *(part.decimals for part in cells)])
    if decimals > LARGEST_DECIMALS:
        raise reader.tokens.fail(0, f"at most {LARGEST_DECIMALS} decimals", f"{decimals} decimals")
    return decimals


def _stored_given(function: CfnGlobal, decimals: int, reader: Reader) -> dict[str, Any]:
    """Return the parameters of a global cost function in stored costs; the parameters of a nested network stay
    unchanged.
    """

    def stored(number: Number) -> int:
        return int(scaled([number], decimals, reader.maximize, reader.bound)[0])

    try:
        given: dict[str, Any] = function.given if function.nested else with_stored(function.given, stored)
    except GlobalFunctionError as error:
        raise reader.tokens.fail(function.at, error.expected, error.found) from None
    except ValueError as error:
        raise reader.tokens.fail(function.at, str(error), BEYOND) from None
    return given


def _limit(bound: int | None, known: Iterable[StoredCosts], reader: Reader) -> int:
    """Return from which cost of one function on no total is allowed, as no other function costs less than 0."""
    if bound is None:
        return FORBIDDEN
    lows = [min(costs.default or 0, int(costs.values.min(initial=0))) for costs in known]
    sign = -1 if reader.maximize else 1
    signed = (p for f in reader.tables if isinstance(f, CfnGlobal) and not f.nested for p in costs_of(f.given))
    if min(lows, default=0) < 0 or any(p.signed and p.number * sign < 0 for p in signed):
        return FORBIDDEN
    return min(bound, FORBIDDEN)


def _add_global(
    parts: Decomposition, function: CfnGlobal, given: dict[str, Any], reader: Reader, decimals: int
) -> None:
    """Add what a global cost function becomes."""
    parts.what = f"the global cost function {function.kind!r}"
    try:
        if function.nested:
            add_nested(parts, function.scope, _nested(function, function.nested), given["strongduality"])
        elif function.kind in COMPARISONS and given["delta"] > 0 and (reader.maximize or decimals):
            raise GlobalFunctionError(
                "whole costs that are minimised, because the missed distance is a cost", "decimals or utilities"
            )
        else:
            KINDS[function.kind].add(parts, function.scope, given)
    except GlobalFunctionError as error:
        raise reader.tokens.fail(function.at, error.expected, f"{error.found} in {parts.what}") from None


def _nested(function: CfnGlobal, inner: Reader) -> NestedNetwork:
    """Return a nested network, with bounds in its stored costs: from ``lb`` on, and less than ``ub``."""
    read = _functions(inner)
    if inner.maximize:
        raise GlobalFunctionError("a nested network whose costs are minimised", "one whose utilities are maximised")
    if read.parts.hidden:
        raise GlobalFunctionError("a nested network of tables", "global cost functions of hidden variables")
    low, high = (
        FORBIDDEN if Decimal(price.number).is_infinite() else math.ceil(Decimal(price.number).scaleb(read.decimals))
        for price in (function.given["lb"], function.given["ub"])
    )
    return NestedNetwork(tuple(inner.dims), tuple(read.parts.functions), read.top, low, high)


def _function(table: CfnTable, costs: StoredCosts, reader: Reader) -> Function:
    if table.rows is None:
        return full_table(table.scope, reader.dims, costs.values, reader.tokens, table.at)
    function = tuple_table(table.scope, reader.dims, table.rows, costs.values, costs.default or 0)
    if len(function.scope) == len(table.scope) and _lists_twice(table.rows, function):
        raise reader.tokens.fail(table.at, "each tuple once", "one of them twice")
    return function


def _lists_twice(rows: NDArray[np.integer[Any]], function: Function) -> bool:
    """Whether some rows are equal; a function may hold each row only once."""
    if function.rows is not None:
        return len(function.rows) < len(rows)
    listed = np.zeros(function.values.shape, dtype=bool)
    listed[tuple(rows.T)] = True
    return int(np.count_nonzero(listed)) < len(rows)


def _stored(table: CfnTable, decimals: int, reader: Reader) -> StoredCosts:
    values = scaled(table.costs, decimals, reader.maximize, reader.bound)
    default = (
        None if table.default is None else int(scaled([table.default], decimals, reader.maximize, reader.bound)[0])
    )
    return StoredCosts(values, default)


# The CFN format, as toulbar2 reads it: names, labels, exact costs, a bound.

# A value that begins with a digit would be a place in its domain.
_WORD = re.compile(r"[^\W\d][\w.+-]*")


@dataclass(frozen=True, eq=False)
class _File:
    """A model as it is written: names, values (None if they count from 0), the total from which assignments are
    forbidden, and the cost for forbidding.
    """

    model: Model
    names: tuple[str, ...]
    labels: tuple[tuple[str, ...] | None, ...]
    top: int | None
    forbidden: str


def cfn_file(model: Model) -> WrittenFile:
    """Return the lines of a file, the names of its variables, and what it does not keep.

    Raises
    ------
    ModelError
        If the model has no costs, or costs that are infinite to the format.
    """
    if model.kind != "cost":
        raise ModelError("the model holds probabilities, and .cfn holds costs; write .uai")
    notes: list[str] = []
    names = kept_names(model.names, _is_plain, "x", "variables", notes)
    labels = tuple(map(_labels, model.states))
    marked = sum(new is not None and new != old for new, old in zip(labels, model.states, strict=True))
    if marked:
        notes.append(f"values of {marked} variables begin with v in the file, which takes numbers for places")
    if unfit := sum(new is None and not counted(old) for new, old in zip(labels, model.states, strict=True)):
        notes.append(
            f"values of {unfit} variables are not kept, because some are not plain words: they are numbered from 0"
        )
    top = _top(model)
    return WrittenFile(_lines(_File(model, names, labels, top, _forbidden(model, top))), notes, names)


def _is_plain(word: str) -> bool:
    return _WORD.fullmatch(word) is not None


def _labels(states: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return labels that the format can hold; None for none."""
    if states is None or counted(states):
        return None
    marked = tuple(f"v{label}" for label in states)
    return next((labels for labels in (states, marked) if all(map(_is_plain, labels))), None)


def _top(model: Model) -> int | None:
    """Return where totals are forbidden: the model's top, or what no total reaches; None if only infinity is.

    Raises
    ------
    ModelError
        If a cost, or a top that totals may reach, is too large.
    """
    infinite, open_top = infinite_cost(model), sum(highest_costs(model, ".cfn")) + 1
    if (top := written_top(model, ".cfn")) is not None:
        return top
    if model.top is not None and model.top < open_top:
        raise ModelError(f"the model cannot be written as .cfn, where a top of {LARGEST_DECIMAL} and more is infinite")
    return open_top if open_top < min(infinite, FORBIDDEN) else None


def _lines(file: _File) -> Iterator[str]:
    model, sign = file.model, ">" if file.model.maximize else "<"
    bound = cost_text(model, FORBIDDEN if file.top is None else file.top, "inf")
    yield f'{{"problem": {{"name": {_word(model.name)}, "mustbe": "{sign}{bound}"}},'
    yield '"variables": {'
    last = len(file.names) - 1
    for v, (name, labels) in enumerate(zip(file.names, file.labels, strict=True)):
        domain = model.dims[v] if labels is None else json.dumps(labels, ensure_ascii=False)
        yield f'"{name}": {domain}{"," if v < last else ""}'
    yield "},"
    yield '"functions": {'
    for k, function in enumerate(model.functions):
        yield from _function_lines(file, k, function)
    yield "}}"


def _function_lines(file: _File, k: int, function: Function) -> Iterator[str]:
    """Return the lines of a function, one unless it lists very many costs."""
    model = file.model
    limit = FORBIDDEN if file.top is not None else model.limits[k]  # without a top nothing else forbids such costs

    def written(cost: int) -> str:
        return file.forbidden if cost >= limit else cost_text(model, cost, "inf")

    line = f'"c{k}": {{"scope": {json.dumps([file.names[v] for v in function.scope], ensure_ascii=False)}, '
    if function.rows is None:
        line += '"costs": ['
        listed = (", ".join(written(cost) for (cost,) in some) for some in blocks(function.values.ravel()))
    else:
        line += f'"defaultcost": {written(int(function.default))}, "costs": ['
        listed = (
            ", ".join(f"{', '.join(map(str, row))}, {written(cost)}" for row, cost in some)
            for some in blocks(function.rows, function.values)
        )
    first = True
    for some in listed:
        if not first:
            yield f"{line},"
            line = ""
        line, first = line + some, False
    yield f"{line}]}}{',' if k < len(model.functions) - 1 else ''}"


def _forbidden(model: Model, top: int | None) -> str:
    """What forbids: infinity; where utilities are maximised toulbar2 reads no such, but what brings any total down."""
    if not model.maximize or top is None:
        return cost_text(model, FORBIDDEN, "inf")
    return cost_text(model, max(top, 0) - sum(min(low, 0) for low in model.lowest), "inf")


def _word(text: str) -> str:
    words = "_".join(re.findall(r"[\w.+-]+", text))
    return json.dumps(words or "model", ensure_ascii=False)
