"""The .bif format (Bayesian interchange format 0.15, as bnlearn writes it)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..models.model import Function, Model
from .text.source import Source
from .text.tables import full_table
from .text.tokens import Tokens

# Commas only separate. A word may hold '<', '-', '/' and anything else that is not punctuation.
_TOKEN = re.compile(r'"[^"\n]*"|[(){}\[\];|]|[^\s(){}\[\];|,"]+|"')
# A float in a list, and in the table that is made of it.
_NUMBER_BYTES = 48
_COMMENT = re.compile(rb'("[^"\n]*")|/\*.*?(?:\*/|\Z)|(?<!\S)//[^\n]*', re.DOTALL)
# A `default` row may stand for this many entries, or else for three times as many as are written out.
_FREE_DEFAULT_CELLS = 1024


@dataclass
class _ProbabilityBlock:
    """One probability block: where it stands, and which tokens are its rows."""

    at: int
    scope: list[int]
    rows: dict[tuple[int, ...], int] = field(default_factory=dict)
    table: int | None = None
    default: int | None = None


@dataclass
class _BifReader:
    tokens: Tokens
    names: dict[str, int] = field(default_factory=dict)
    states: list[dict[str, int]] = field(default_factory=list)

    def variable(self, at: int) -> int:
        """Read a variable block and return the index behind it."""
        tokens = self.tokens
        name = tokens.peek(at + 1).strip('"')
        if name in self.names:
            raise tokens.fail(at + 1, "a variable that is not declared yet")
        at = tokens.expect(at + 2, "{")
        labels: dict[str, int] | None = None
        while tokens.peek(at) != "}":
            if tokens.peek(at) == "type" and labels is None:
                labels, at = self._labels(at + 1)
            elif tokens.peek(at) == "property":
                at = tokens.find(";", at) + 1
            else:
                raise tokens.fail(at, "one 'type' or a 'property' of the variable")
        if labels is None:
            raise tokens.fail(at, f"the type of variable {name!r}")
        self.names[name] = len(self.names)
        self.states.append(labels)
        return at + 1

    def _labels(self, at: int) -> tuple[dict[str, int], int]:
        tokens = self.tokens
        at = tokens.expect(at, "discrete", " (the only type that is read)")
        at = tokens.expect(at, "[")
        count = tokens.integer(at, "the number of states", 1, len(tokens))
        at = tokens.expect(tokens.expect(at + 1, "]"), "{")
        end = tokens.find("}", at)
        labels = [label.strip('"') for label in tokens.items[at:end]]
        if len(labels) != count:
            raise tokens.fail(end, f"{count} states", f"{len(labels)} states")
        index = {label: k for k, label in enumerate(labels)}
        if len(index) < count:
            raise tokens.fail(at, "different states", "a state named twice")
        return index, tokens.expect(end + 1, ";")

    def block_header(self, at: int) -> tuple[_ProbabilityBlock, int]:
        """Read ``probability ( X | A, B )``; the scope is (A, B, X)."""
        tokens = self.tokens
        start = tokens.expect(at + 1, "(")
        end = tokens.find(")", start)
        words = tokens.items[start:end]
        if len(words) == 0 or (len(words) > 1 and words[1] != "|"):
            raise tokens.fail(min(start + 1, end), "one variable, then '|' and its parents")
        places = [*range(start + 2, end), start]
        scope = []
        for place in places:
            name = tokens.items[place].strip('"')
            if name not in self.names:
                raise tokens.fail(place, "a declared variable")
            if self.names[name] in scope:
                raise tokens.fail(place, "different variables")
            scope.append(self.names[name])
        return _ProbabilityBlock(at, scope), tokens.expect(end + 1, "{")

    def function(self, at: int) -> Function:
        """Read a probability block into a dense function."""
        tokens = self.tokens
        block, at = self.block_header(at)
        parents = block.scope[:-1]
        while (word := tokens.peek(at)) != "}":
            if word == "(":
                at = self._row(block, at)
            elif word == "table" and block.table is None and not parents:
                block.table = at + 1
                at = self._numbers_end(block, at + 1) + 1
            elif word == "default" and block.default is None:
                block.default = at + 1
                at = self._numbers_end(block, at + 1) + 1
            elif word == "property" and tokens.peek(at + 1) != "function":
                at = tokens.find(";", at) + 1
            elif word == "property":
                raise tokens.fail(at, "a full table", f"a compact one ('function {tokens.peek(at + 2)}')")
            else:
                raise tokens.fail(at, "a row of probabilities, such as (a, b) 0.1, 0.9;")
        return self._filled(block)

    def _row(self, block: _ProbabilityBlock, at: int) -> int:
        tokens, parents = self.tokens, block.scope[:-1]
        close = tokens.find(")", at)
        labels = tokens.items[at + 1 : close]
        if len(labels) != len(parents):
            raise tokens.fail(at, f"{len(parents)} parent states", f"{len(labels)} states")
        try:
            key = tuple([self.states[v][s] for v, s in zip(parents, labels, strict=True)])
        except KeyError:
            key = self._key_slowly(parents, at + 1)
        if block.rows.setdefault(key, close + 1) != close + 1:
            raise tokens.fail(at, "a parent configuration that has no row yet")
        return self._numbers_end(block, close + 1) + 1

    def _key_slowly(self, parents: list[int], at: int) -> tuple[int, ...]:
        key = []
        for k, v in enumerate(parents):
            state = self.states[v].get(self.tokens.items[at + k].strip('"'))
            if state is None:
                raise self.tokens.fail(at + k, f"a state of variable {list(self.names)[v]!r}")
            key.append(state)
        return tuple(key)

    def _numbers_end(self, block: _ProbabilityBlock, at: int) -> int:
        count = len(self.states[block.scope[-1]])
        if self.tokens.peek(at + count) != ";":
            end = self.tokens.find(";", at)
            raise self.tokens.fail(at, f"{count} probabilities", f"{end - at} values")
        return at + count

    def _filled(self, block: _ProbabilityBlock) -> Function:
        tokens = self.tokens
        dims = [len(labels) for labels in self.states]
        shape = [dims[v] for v in block.scope]
        rows = dict(block.rows)
        if block.table is not None:
            rows[()] = block.table
        configurations = math.prod(shape[:-1])
        if len(rows) < configurations and block.default is None:
            found = f"{len(rows)} rows"
            raise tokens.fail(block.at, f"{configurations} rows, one for each parent configuration", found)
        values = self._values(list(rows.values()), shape[-1])
        order = _ravel(list(rows), shape[:-1])
        if len(rows) < configurations:
            self._check_default(block, configurations * shape[-1], values.size)
            default = self._values([block.default or 0], shape[-1])
            table = np.repeat(default, configurations, axis=0)
        else:
            table = np.empty((configurations, shape[-1]))
        table[order] = values
        return full_table(block.scope, dims, table.ravel(), tokens, block.at, child=block.scope[-1])

    def _check_default(self, block: _ProbabilityBlock, cells: int, listed: int) -> None:
        if cells > max(4 * listed, _FREE_DEFAULT_CELLS):
            expected = f"at least a quarter of the {cells} probabilities beside a default"
            raise self.tokens.fail(block.at, expected, f"{listed}")

    def _values(self, starts: list[int], width: int) -> NDArray[np.float64]:
        part: list[str] = []
        for start in starts:
            part += self.tokens.items[start : start + width]
        values = self.tokens.probabilities(part, lambda k: starts[k // width] + k % width)
        return values.reshape(len(starts), width)


def read_bif(source: Source) -> Model:
    """Read a .bif file; the scope of each function is (parents..., child).

    Raises
    ------
    FormatError
        If the file is malformed, has compact distributions (``property function``), or a ``table``
        for a variable with parents, whose order programs do not agree on.
    """
    tokens = Tokens(source.blank(_COMMENT), _TOKEN, _NUMBER_BYTES)
    reader = _BifReader(tokens)
    blocks: list[int] = []
    name, at = "", 0
    while at < len(tokens):
        word = tokens.items[at]
        if word == "network" and at == 0:
            opening = tokens.find("{", at)
            name = " ".join(tokens.items[1:opening]).strip('"')
            at = _block_end(tokens, opening) + 1
        elif word == "variable":
            at = reader.variable(at)
        elif word == "probability":
            blocks.append(at)
            at = _block_end(tokens, tokens.find("{", at)) + 1
        else:
            raise tokens.fail(at, "a variable or probability block")
    if not reader.names:
        raise tokens.fail(len(tokens), "a network with variables")
    return _model(reader, blocks, name or source.stem)


def _model(reader: _BifReader, blocks: list[int], name: str) -> Model:
    functions: list[Function] = []
    done: set[int | None] = set()
    for at in blocks:
        functions.append(reader.function(at))
        child = functions[-1].child
        if child in done:
            raise reader.tokens.fail(at, "one probability block for each variable")
        done.add(child)
    missing = [variable for variable, v in reader.names.items() if v not in done]
    if missing:
        raise reader.tokens.fail(len(reader.tokens), f"a probability block for {missing[0]!r}")
    names = tuple(reader.names)
    dims = tuple(len(labels) for labels in reader.states)
    states = tuple(tuple(labels) for labels in reader.states)
    return Model("bayes", names, dims, states, tuple(functions), name=name)


def _ravel(keys: list[tuple[int, ...]], shape: list[int]) -> NDArray[np.int64]:
    """Return the mixed-radix number of each key."""
    order = np.zeros(len(keys), dtype=np.int64)
    columns = np.array(keys, dtype=np.int64).reshape(len(keys), len(shape))
    for column, size in zip(columns.T, shape, strict=True):
        order = order * size + column
    return order


def _block_end(tokens: Tokens, opening: int) -> int:
    """Return the index of the closing brace; a property is free text, which may hold braces."""
    at, end = opening, tokens.find("}", opening)
    while True:
        try:
            at = tokens.items.index("property", at, end)
        except ValueError:
            return end
        at = tokens.find(";", at)
        end = max(end, tokens.find("}", at))
