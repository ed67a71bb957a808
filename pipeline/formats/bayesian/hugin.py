"""The Hugin .net format: Bayesian networks of discrete nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, shorten
from ...models.model import Function, Model
from ..format_policy import UNWRITTEN, WORD_BYTES
from ..text.source import Source
from ..text.tables import cell_count, full_table
from ..text.tokens import Tokens
from .network_draft import checked, listed, passed_over

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(){};=|]|[^\s(){};=|"]+|"', re.DOTALL)
_COMMENT = re.compile(rb'("(?:[^"\\]|\\.)*")|%[^\n]*', re.DOTALL)
_REFUSED = ("continuous", "utility", "decision", "function", "instance", "temporal", "boolean", "interval", "number")
# Attributes that are read; of the others none is about probabilities.
_READ = ("states", "data", "inputs")
_EXPRESSIONS = ("model_nodes", "model_data")


@dataclass
class _HuginReader:
    tokens: Tokens
    names: dict[str, int] = field(default_factory=dict)
    states: list[tuple[str, ...]] = field(default_factory=list)
    potentials: list[int] = field(default_factory=list)
    name: str = ""
    uniform_cells: int = 0
    passed: dict[str, None] = field(default_factory=dict)
    uniform: list[str] = field(default_factory=list)

    def blocks(self) -> None:
        """Read all nodes, and note where the potentials start (a node may come after its potential)."""
        tokens, at, depth = self.tokens, 0, 0
        while at < len(tokens):
            word = tokens.items[at]
            if word == "net":
                at = self._attributes(tokens.expect(at + 1, "{"))[1] + 1
            elif word == "class":
                at, depth = self._class(at), depth + 1
            elif word == "}" and depth:
                at, depth = at + 1, depth - 1
            elif word in ("node", "discrete"):
                at = self._node(at + 1 if word == "node" else tokens.expect(at + 1, "node"))
            elif word == "potential":
                self.potentials.append(at)
                at = tokens.find("}", at) + 1
            elif depth and tokens.peek(at + 1) == "=":
                at = self._attribute(at)[1] + 1
            else:
                raise self._unknown(at)
        if depth:
            raise tokens.fail(at, "'}' at the end of the class")

    def _class(self, at: int) -> int:
        """Read the beginning of a class. A single class without inputs is a network."""
        tokens = self.tokens
        if self.name or self.names or self.potentials:
            raise tokens.fail(at, "one network", f"another class, {shorten(tokens.peek(at + 1))!r}, which is not read")
        self.name = tokens.peek(at + 1)
        return tokens.expect(at + 2, "{")

    def _unknown(self, at: int) -> FormatError:
        word = self.tokens.items[at]
        if word in _REFUSED:
            return self.tokens.fail(at, "discrete nodes", f"a node of kind {word!r}, which is not read")
        return self.tokens.fail(at, "a node or a potential")

    def _node(self, at: int) -> int:
        tokens = self.tokens
        name = tokens.peek(at)
        if name in self.names:
            raise tokens.fail(at, "a node that is not declared yet")
        values, end = self._attributes(tokens.expect(at + 1, "{"))
        if "states" not in values:
            raise tokens.fail(at, "a node with states")
        start, stop = values["states"]
        labels = tuple(_unquote(s) for s in tokens.items[start:stop] if s not in ("(", ")"))
        if not labels or len(set(labels)) < len(labels):
            raise tokens.fail(start, "a list of different states")
        self.names[name] = len(self.names)
        self.states.append(labels)
        return end + 1

    def _attributes(self, at: int) -> tuple[dict[str, tuple[int, int]], int]:
        """Read ``name = value;`` up to the closing brace, as the token range of each value."""
        tokens = self.tokens
        ranges: dict[str, tuple[int, int]] = {}
        while tokens.peek(at) != "}":
            if tokens.peek(at + 1) != "=":
                raise tokens.fail(at, "an attribute (name = value;)")
            name, end = self._attribute(at)
            if name in _READ and name in ranges:
                raise tokens.fail(at, f"one attribute {name!r}", "a second one")
            ranges[name] = (at + 2, end)
            at = end + 1
        return ranges, at

    def _attribute(self, at: int) -> tuple[str, int]:
        """Return the name of an attribute and the index of its end, and note an attribute that is not read."""
        tokens = self.tokens
        name, end = tokens.items[at], tokens.find(";", at)
        if name == "inputs" and end > at + 4:
            raise tokens.fail(at, "a network", "a class with inputs, which is a part of one")
        if name not in _READ and name not in self.passed:
            self.passed["HR_*" if name.startswith("HR_") else name] = None
        return name, end

    def function(self, at: int) -> Function:
        """Read a potential into a dense function with scope (parents..., child)."""
        tokens = self.tokens
        scope, opening = self._scope(at)
        values, _ = self._attributes(tokens.expect(opening, "{"))
        for key in _EXPRESSIONS:
            if key in values:
                raise tokens.fail(values[key][0] - 2, "a table", f"{key!r}, an expression, which is not read")
        dims = [len(labels) for labels in self.states]
        if "data" in values:
            start, stop = values["data"]
            table = self._data(start, stop, cell_count(scope, dims), dims[scope[-1]])
        else:
            table = self._uniform(at, cell_count(scope, dims), dims[scope[-1]])
        return full_table(scope, dims, table, tokens, at, child=scope[-1])

    def _scope(self, at: int) -> tuple[list[int], int]:
        tokens = self.tokens
        start = tokens.expect(at + 1, "(")
        end = tokens.find(")", start)
        if end > start + 1 and tokens.items[start + 1] != "|":
            raise tokens.fail(start + 1, "one child, then '|' and its parents")
        scope: list[int] = []
        for place in [*range(start + 2, end), start]:
            variable = self.names.get(tokens.peek(place))
            if variable is None:
                raise tokens.fail(place, "a declared node")
            if variable in scope:
                raise tokens.fail(place, "different nodes")
            scope.append(variable)
        return scope, end + 1

    def _data(self, start: int, stop: int, cells: int, child_states: int) -> NDArray[np.float64]:
        tokens = self.tokens
        part = [token for token in tokens.items[start:stop] if token not in ("(", ")")]
        if len(part) != cells:
            raise tokens.fail(start, f"{cells} numbers", f"{len(part)} numbers")
        self._check_nesting(start, stop, child_states)

        def place(k: int) -> int:
            return [at for at in range(start, stop) if tokens.items[at] not in ("(", ")")][k]

        return tokens.probabilities(part, place)

    def _check_nesting(self, start: int, stop: int, child_states: int) -> None:
        """Check that parentheses match and that the innermost lists run over the child's states."""
        items, depth, inner = self.tokens.items, 0, -1
        for at in range(start, stop):
            if items[at] == "(":
                depth, inner = depth + 1, at
            elif items[at] == ")":
                if inner >= start + 1 and at - inner - 1 != child_states:
                    raise self.tokens.fail(inner, f"lists of {child_states} numbers", f"{at - inner - 1} numbers")
                depth, inner = depth - 1, -1
            if depth < 0:
                break
        if depth:
            raise self.tokens.fail(start, "matching parentheses", "an unclosed one")

    def _uniform(self, at: int, cells: int, width: int) -> NDArray[np.float64]:
        self.uniform.append(self.tokens.peek(at + 2))
        self.uniform_cells += cells
        if self.uniform_cells > UNWRITTEN:
            expected = f"at most {UNWRITTEN} entries in potentials without data"
            raise self.tokens.fail(at, expected, f"{self.uniform_cells} entries")
        return np.full(cells, 1 / width)

    def notes(self) -> tuple[str, ...]:
        """Return notes about content of the file that answers do not show."""
        found = list(passed_over(self.passed))
        if self.uniform:
            names = listed(self.uniform)
            found.append(f"potentials without data are read as uniform: {names}")
        return tuple(found)


def read_hugin(source: Source) -> Model:
    """Read a Hugin .net file; tables may hold counts, and a potential without data is uniform.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, or has continuous, utility, decision or function nodes,
        several classes, or tables given by expressions.
    """
    if b"%" in source.data:
        source.blank(_COMMENT)
    tokens = Tokens(source, _TOKEN, WORD_BYTES)
    reader = _HuginReader(tokens)
    if tokens.peek(0) not in ("net", "class"):
        raise tokens.fail(0, "'net' or 'class'")
    reader.blocks()
    functions = tuple([reader.function(at) for at in reader.potentials])
    names, states = tuple(reader.names), tuple(reader.states)
    name, dims = reader.name or source.stem, tuple(map(len, states))
    model = Model("bayes", names, dims, states, functions, name=name, notes=reader.notes())
    if not source.checked:
        return model
    places = reader.potentials
    return checked(model, lambda f, *what: tokens.fail(len(tokens) if f is None else places[f], *what), counts=True)


def _unquote(token: str) -> str:
    if not token.startswith('"'):
        return token
    return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)
