"""The .cfn format of toulbar2: cost function networks in (relaxed) JSON."""

from __future__ import annotations

import re

from ...models.model import FORBIDDEN, Function, Model
from ..text.source import Source
from ..text.tables import full_table, tuple_table
from ..text.tokens import Tokens
from .costs import MAX_DECIMALS, CostTable, decimal_places, scaled
from .grammar import TOKEN, Reader, Table

# A decimal number in a list, and the cost that is made of it.
_NUMBER_BYTES = 136
_COMMENT = re.compile(rb'("(?:[^"\\\n]|\\.)*")|(?m:^[ \t]*#[^\n]*)|(?<!\S)//[^\n]*')


def read_cfn(source: Source) -> Model:
    """Read a .cfn file.

    Costs are scaled to integers exactly. A ``mustbe`` bound is strict, and limits the total only.

    Raises
    ------
    FormatError
        If the file is malformed, has global cost functions or interval domains, or costs too long for
        64-bit integers.
    """
    if b"#" in source.data or b"//" in source.data:
        source.blank(_COMMENT)
    tokens = Tokens(source, TOKEN, _NUMBER_BYTES)
    reader = Reader(tokens)
    reader.sections()
    functions, top, decimals = _functions(reader)
    return Model(
        kind="cost",
        names=tuple(reader.names),
        dims=tuple(reader.dims),
        states=tuple(None if labels is None else tuple(labels) for labels in reader.labels),
        functions=functions,
        top=top,
        decimals=decimals,
        maximize=reader.maximize,
        name=reader.name or source.stem,
    )


def _functions(reader: Reader) -> tuple[tuple[Function, ...], int | None, int]:
    """Return the functions in stored costs, the top and the number of decimals."""
    tokens = reader.tokens
    bounds = [] if reader.bound is None else [reader.bound]
    defaults = [table.default for table in reader.tables if table.default is not None]
    decimals = max(decimal_places(part) for part in (bounds, defaults, *(t.costs for t in reader.tables)))
    if decimals > MAX_DECIMALS:
        raise tokens.fail(0, f"at most {MAX_DECIMALS} decimals", f"{decimals} decimals")
    at = 0
    known: dict[int, CostTable] = {}  # by identity: a shared function is one list of costs
    try:
        for table in reader.tables:
            at = table.at
            if id(table.costs) not in known:
                known[id(table.costs)] = _stored(table, decimals, reader.maximize)
        bound = int(scaled(bounds, decimals, reader.maximize)[0]) if bounds else None
    except ValueError as error:
        raise tokens.fail(at, str(error), "others") from None
    functions: list[Function] = []
    built: dict[int, Function] = {}
    for table in reader.tables:
        costs = known[id(table.costs)]
        distinct = len(set(table.scope)) == len(table.scope)
        if distinct and id(costs) in built:
            functions.append(built[id(costs)].changed(scope=table.scope))
        else:
            functions.append(_function(table, costs, reader))
        if distinct:
            built[id(costs)] = functions[-1]
    return tuple(functions), None if bound == FORBIDDEN else bound, decimals


def _function(table: Table, costs: CostTable, reader: Reader) -> Function:
    if table.rows is None:
        return full_table(table.scope, reader.dims, costs.values, reader.tokens, table.at)
    return tuple_table(table.scope, reader.dims, table.rows, costs.values, costs.default or 0)


def _stored(table: Table, decimals: int, maximize: bool) -> CostTable:
    values = scaled(table.costs, decimals, maximize)
    default = None if table.default is None else int(scaled([table.default], decimals, maximize)[0])
    return CostTable(values, default)
