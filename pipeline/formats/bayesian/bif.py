"""The .bif format (Bayesian interchange format 0.15, as bnlearn writes it) and the similar .dsc of Microsoft's tools.

A .dsc file gives the states of parents by number.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import shorten
from ...models.model import Function, Model
from ..format_policy import WORD_BYTES
from ..text.source import Source
from ..text.tables import full_table
from ..text.tokens import Tokens
from .network_draft import Properties, checked, is_rounded, listed

# A `default` row may stand for this many entries, or else for three times as many as are written out.
_DEFAULT_CELLS: Final = 1024

# Commas only separate. A word may hold '<', '-', '/' and anything else that is not punctuation. Comments may stand
# directly behind a word, but not within an address.
_TOKEN = re.compile(r'"[^"\n]*"|[(){}\[\];|]|[^\s(){}\[\];|,"]+|"')
_COMMENT = re.compile(rb'("[^"\n]*")|/\*.*?(?:\*/|\Z)|//(?<!://)[^\n]*', re.DOTALL)
_CELL = re.compile(r'(?:"[^"\n]*"|[^,"])+')


@dataclass
class ProbabilityBlock:
    """One probability block: where it stands, and which tokens are its rows."""

    at: int
    scope: list[int]
    rows: dict[tuple[int, ...], int] = field(default_factory=dict)
    table: int | None = None
    default: int | None = None


@dataclass
class BifReader:
    tokens: Tokens
    names: dict[str, int] = field(default_factory=dict)
    states: list[dict[str, int]] = field(default_factory=list)
    properties: Properties = field(default_factory=Properties)
    slowest: list[str] = field(default_factory=list)
    # How messages call a variable and the parts of its block after its type, and the words that begin these parts.
    WHAT: ClassVar[str] = "variable"
    OTHERS: ClassVar[str] = " or a 'property'"
    PROPERTIES: ClassVar[tuple[str, ...]] = ("property",)

    def network(self, opening: int) -> int:
        """Read what stands in the block of the network and return the index behind it."""
        tokens, at = self.tokens, opening + 1
        while tokens.peek(at) != "}":
            if tokens.peek(at) != "property":
                raise tokens.fail(at, "a property of the network")
            at = self._property(at)
        return at + 1

    def _property(self, at: int, variable: str = "") -> int:
        """Read a property, note what it may mean, and return the index behind it."""
        tokens = self.tokens
        end = tokens.find(";", at)
        if (found := self.properties.add(" ".join(tokens.items[at + 1 : end]), variable)) is not None:
            raise tokens.fail(at, "one network", found)
        return end + 1

    def variable(self, at: int) -> int:
        """Read a variable block and return the index behind it."""
        tokens = self.tokens
        name = tokens.peek(at + 1).strip('"')
        if name in self.names:
            raise tokens.fail(at + 1, f"a {self.WHAT} that is not declared yet")
        at = tokens.expect(at + 2, "{")
        labels: dict[str, int] | None = None
        while (word := tokens.peek(at)) != "}":
            if word == "type" and labels is None:
                labels, at = self._labels(at + 1)
            elif word in self.PROPERTIES:
                at = self._property(at, name)
            else:
                raise tokens.fail(at, f"one 'type'{self.OTHERS} of the {self.WHAT}")
        if labels is None:
            raise tokens.fail(at, f"the type of {self.WHAT} {name!r}")
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
            labels = _cells(tokens.between(at - 1, end), labels, count)
        if len(labels) != count:
            raise tokens.fail(end, f"{count} states", f"{len(labels)} states")
        index = {label: k for k, label in enumerate(labels)}
        if len(index) < count:
            raise tokens.fail(at, "different states", "a state named twice")
        return index, tokens.expect(end + 1, ";")

    def block_header(self, at: int) -> tuple[ProbabilityBlock, int]:
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
        return ProbabilityBlock(at, scope), tokens.expect(end + 1, "{")

    def function(self, at: int) -> Function:
        """Read a probability block into a dense function."""
        tokens = self.tokens
        block, at = self.block_header(at)
        while (word := tokens.peek(at)) != "}":
            if word == "(" and block.table is None:
                at = self._row(block, at)
            elif word == "table" and block.table is None and not block.rows:
                block.table = at + 1
                at = self._numbers_end(at + 1, self._cells(block)) + 1
            elif word == "default" and block.default is None:
                block.default = at + 1
                at = self._numbers_end(at + 1, len(self.states[block.scope[-1]])) + 1
            elif word == "property" and tokens.peek(at + 1) != "function":
                at = self._property(at)
            elif word == "property":
                raise tokens.fail(at, "a full table", f"a compact one ('function {tokens.peek(at + 2)}')")
            else:
                raise tokens.fail(at, "a row of probabilities, such as (a, b) 0.1, 0.9;")
        return self._filled(block) if block.table is None else self._table(block)

    def _cells(self, block: ProbabilityBlock) -> int:
        return math.prod([len(self.states[v]) for v in block.scope])

    def _row(self, block: ProbabilityBlock, at: int) -> int:
        tokens = self.tokens
        close = tokens.find(")", at)
        key = self._key(block.scope[:-1], at, close)
        if block.rows.setdefault(key, close + 1) != close + 1:
            raise tokens.fail(at, "a parent configuration that has no row yet")
        return self._numbers_end(close + 1, len(self.states[block.scope[-1]])) + 1

    def _key(self, parents: list[int], at: int, close: int) -> tuple[int, ...]:
        """Return the parents' states between two parentheses."""
        tokens = self.tokens
        labels = tokens.items[at + 1 : close]
        if len(labels) != len(parents):
            labels = _cells(tokens.between(at, close), labels, len(parents))
        if len(labels) != len(parents):
            raise tokens.fail(at, f"{len(parents)} parent states", f"{len(labels)} states")
        try:
            return tuple([self.states[v][s] for v, s in zip(parents, labels, strict=True)])
        except KeyError:
            return self._key_slowly(parents, labels, at + 1)

    def _key_slowly(self, parents: list[int], labels: list[str], at: int) -> tuple[int, ...]:
        key = []
        for k, (v, label) in enumerate(zip(parents, labels, strict=True)):
            state = self.states[v].get(label.strip('"'))
            if state is None:
                what = f"a state of variable {list(self.names)[v]!r}"
                raise self.tokens.fail(at + k, what, repr(shorten(label.strip('"'))))
            key.append(state)
        return tuple(key)

    def _numbers_end(self, at: int, count: int) -> int:
        if self.tokens.peek(at + count) != ";":
            end = self.tokens.find(";", at)
            raise self.tokens.fail(at, f"{count} probabilities", f"{end - at} values")
        return at + count

    def _filled(self, block: ProbabilityBlock) -> Function:
        tokens = self.tokens
        dims = [len(labels) for labels in self.states]
        shape = [dims[v] for v in block.scope]
        rows = block.rows
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

    def _table(self, block: ProbabilityBlock) -> Function:
        """Read a whole table: programs do not agree on its order, but rows sum to 1 in the right one."""
        tokens, scope, dims = self.tokens, block.scope, [len(labels) for labels in self.states]
        shape = [dims[v] for v in scope]
        values = self._values([block.table or 0], math.prod(shape)).reshape(-1)
        slowest = np.moveaxis(values.reshape([shape[-1], *shape[:-1]]), 0, -1).ravel()
        tables = [values] if np.array_equal(values, slowest) else [values, slowest]
        made = [full_table(scope, dims, table, tokens, block.at, child=scope[-1]) for table in tables]
        if len(made) > 1:
            fitting = [k for k, function in enumerate(made) if is_rounded(function, dims)]
            if len(fitting) != 1:
                found = "a table whose rows do so in both orders" if fitting else "a table whose rows do so in neither"
                raise tokens.fail(block.at, "rows, or a table whose rows sum to 1 in one order only", found)
            made = [made[fitting[0]]]
            if fitting == [1]:
                self.slowest.append(list(self.names)[scope[-1]])
        return made[0]

    def notes(self) -> tuple[str, ...]:
        """Return notes about content of the file that answers do not show."""
        notes = self.properties.notes()
        if not self.slowest:
            return notes
        names = listed(self.slowest)
        return (*notes, f"tables of {names} list their own states slowest: only so do rows sum to 1")

    def _check_default(self, block: ProbabilityBlock, cells: int, listed: int) -> None:
        if cells > max(4 * listed, _DEFAULT_CELLS):
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

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Raises
    ------
    FormatError
        If the file is malformed, is no Bayesian network, or has compact distributions (``property function``). Also if
        a variable with parents has a ``table`` whose rows sum to 1 in both orders that programs use, or in neither.
    """
    if b"//" in source.data or b"/*" in source.data:
        source.blank(_COMMENT)
    tokens = Tokens(source, _TOKEN, WORD_BYTES)
    reader = BifReader(tokens)
    blocks: list[int] = []
    name, at = "", 0
    while at < len(tokens):
        word = tokens.items[at]
        if word == "network" and at == 0:
            opening = tokens.find("{", at)
            name = " ".join(tokens.items[1:opening]).strip('"')
            at = reader.network(opening)
        elif word == "variable":
            at = reader.variable(at)
        elif word == "probability":
            blocks.append(at)
            at = _block_end(tokens, tokens.find("{", at)) + 1
        else:
            raise tokens.fail(at, "a variable or probability block")
    if not reader.names:
        raise tokens.fail(len(tokens), "a network with variables")
    return _model(source, reader, blocks, name)


def _model(source: Source, reader: BifReader, blocks: list[int], name: str) -> Model:
    """Return the model, checked unless the source says otherwise; its distributions begin at ``blocks``."""
    # distributions are read last, because they may stand before the variables
    functions = tuple([reader.function(at) for at in blocks])
    states = tuple([tuple(labels) for labels in reader.states])
    dims, notes, tokens = tuple(map(len, states)), reader.notes(), reader.tokens
    model = Model("bayes", tuple(reader.names), dims, states, functions, name=name or source.stem, notes=notes)
    if not source.checked:
        return model
    return checked(model, lambda f, *what: tokens.fail(len(tokens) if f is None else blocks[f], *what))


def _cells(text: str, words: list[str], count: int) -> list[str]:
    """Return labels that are separated only by commas, as bnlearn writes them without quotes.

    If the number of labels differs from ``count``, return the words.
    """
    labels = [" ".join(cell.split()).strip('"') for cell in _CELL.findall(text)]
    return labels if len(labels) == count and all(labels) else words


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


# ':' and '=' separate only, as commas do.
_DSC_TOKEN = re.compile(r'"[^"\n]*"|[(){}\[\];|]|[^\s(){}\[\];|,:="]+|"')
_DSC_COMMENT = re.compile(rb'("[^"\n]*")|//[^\n]*', re.DOTALL)


class _DscReader(BifReader):
    """Reads nodes, and rows of probabilities whose parents' states are numbers."""

    WHAT = "node"
    OTHERS = ", a 'name' or a 'position'"
    PROPERTIES = ("name", "position", "state", "property", "format", "version", "creator")

    def _property(self, at: int, variable: str = "") -> int:
        self.properties.passed[self.tokens.items[at]] = None
        return self.tokens.find(";", at) + 1

    def function(self, at: int) -> Function:
        """Read a distribution: one row, or one for each configuration of the parents."""
        tokens = self.tokens
        block, at = self.block_header(at)
        width = len(self.states[block.scope[-1]])
        while (word := tokens.peek(at)) != "}":
            if word == "(":
                at = self._row(block, at)
            elif word == "default" and block.default is None:
                block.default = at + 1
                at = self._numbers_end(at + 1, width) + 1
            elif len(block.scope) == 1 and not block.rows:
                block.rows[()] = at
                at = self._numbers_end(at, width) + 1
            else:
                raise tokens.fail(at, "a row of probabilities, such as (0, 1) : 0.1, 0.9;")
        return self._filled(block)

    def _key(self, parents: list[int], at: int, close: int) -> tuple[int, ...]:
        tokens = self.tokens
        if close - at - 1 != len(parents):
            raise tokens.fail(at, f"{len(parents)} states of parents, by number", f"{close - at - 1}")
        sizes = [len(self.states[v]) for v in parents]
        return tuple([tokens.integer(at + k, "a state, by number", 0, d - 1) for k, d in enumerate(sizes, 1)])


def read_dsc(source: Source) -> Model:
    """Read a .dsc file: discrete nodes with a row of probabilities for each configuration of the parents.

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, or has nodes or distributions of other kinds.
    """
    if b"//" in source.data:
        source.blank(_DSC_COMMENT)
    tokens = Tokens(source, _DSC_TOKEN, WORD_BYTES)
    reader = _DscReader(tokens)
    blocks: list[int] = []
    if tokens.items[:2] != ["belief", "network"]:
        raise tokens.fail(0, "'belief network'")
    at = 3 if tokens.peek(2).startswith('"') else 2
    name = tokens.peek(2).strip('"') if at > 2 else ""
    while at < len(tokens):
        word = tokens.items[at]
        if word == "node":
            at = reader.variable(at)
        elif word == "properties":
            reader.properties.passed[word] = None
            at = tokens.find("}", at) + 1
        elif word == "probability":
            blocks.append(at)
            at = tokens.find("}", at) + 1
        else:
            raise tokens.fail(at, "a node or a distribution (probability)")
    return _model(source, reader, blocks, name)
