"""The .dsc format of Microsoft's tools, which bnlearn writes: much like .bif, with states of parents by number."""

from __future__ import annotations

import re

from ...models.function import Function
from ...models.model import Model
from ..format_policy import NUMBER_BYTES
from ..text.source import Source
from ..text.tokens import Tokens
from .bif import BifReader, ProbabilityBlock
from .network_checks import checked, passed_over

# ':' and '=' separate only, as commas do.
_TOKEN = re.compile(r'"[^"\n]*"|[(){}\[\];|]|[^\s(){}\[\];|,:="]+|"')
_COMMENT = re.compile(rb'("[^"\n]*")|//[^\n]*', re.DOTALL)
_PASSED = ("name", "position", "state", "property", "format", "version", "creator")


class _DscReader(BifReader):
    """Reads nodes, and rows of probabilities whose parents' states are numbers."""

    def node(self, at: int) -> int:
        """Read a node and return the index behind it."""
        tokens, name = self.tokens, self.tokens.peek(at + 1)
        if name in self.names:
            raise tokens.fail(at + 1, "a node that is not declared yet")
        at = tokens.expect(at + 2, "{")
        labels: dict[str, int] | None = None
        while (word := tokens.peek(at)) != "}":
            if word == "type" and labels is None:
                labels, at = self._labels(at + 1)
            elif word in _PASSED:
                self.properties.passed[word] = None
                at = tokens.find(";", at) + 1
            else:
                raise tokens.fail(at, "one 'type', a 'name' or a 'position' of the node")
        if labels is None:
            raise tokens.fail(at, f"the type of node {name!r}")
        self.names[name] = len(self.names)
        self.states.append(labels)
        return at + 1

    def function(self, at: int) -> Function:
        """Read a distribution: one row, or one for each configuration of the parents."""
        tokens = self.tokens
        block, at = self.block_header(at)
        width = len(self.states[block.scope[-1]])
        while (word := tokens.peek(at)) != "}":
            if word == "(":
                at = self._numbered_row(block, at)
            elif word == "default" and block.default is None:
                block.default = at + 1
                at = self._numbers_end(at + 1, width) + 1
            elif len(block.scope) == 1 and not block.rows:
                block.rows[()] = at
                at = self._numbers_end(at, width) + 1
            else:
                raise tokens.fail(at, "a row of probabilities, such as (0, 1) : 0.1, 0.9;")
        return self._filled(block)

    def _numbered_row(self, block: ProbabilityBlock, at: int) -> int:
        tokens, parents = self.tokens, block.scope[:-1]
        close = tokens.find(")", at)
        if close - at - 1 != len(parents):
            raise tokens.fail(at, f"{len(parents)} states of parents, by number", f"{close - at - 1}")
        sizes = [len(self.states[v]) for v in parents]
        key = tuple([tokens.integer(at + k, "a state, by number", 0, d - 1) for k, d in enumerate(sizes, 1)])
        if block.rows.setdefault(key, close + 1) != close + 1:
            raise tokens.fail(at, "a parent configuration that has no row yet")
        return self._numbers_end(close + 1, len(self.states[block.scope[-1]])) + 1


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
        source.blank(_COMMENT)
    tokens = Tokens(source, _TOKEN, NUMBER_BYTES)
    reader, blocks = _DscReader(tokens), [0][:0]
    if tokens.items[:2] != ["belief", "network"]:
        raise tokens.fail(0, "'belief network'")
    at = 3 if tokens.peek(2).startswith('"') else 2
    name = tokens.peek(2).strip('"') if at > 2 else ""
    while at < len(tokens):
        word = tokens.items[at]
        if word == "node":
            at = reader.node(at)
        elif word == "properties":
            reader.properties.passed[word] = None
            at = tokens.find("}", at) + 1
        elif word == "probability":
            blocks.append(at)
            at = tokens.find("}", at) + 1
        else:
            raise tokens.fail(at, "a node or a distribution (probability)")
    # distributions are read last, because they may stand before the nodes
    functions = tuple([reader.function(at) for at in blocks])
    states = tuple([tuple(labels) for labels in reader.states])
    notes = passed_over(reader.properties.passed)
    dims = tuple(map(len, states))
    model = Model("bayes", tuple(reader.names), dims, states, functions, name=name or source.stem, notes=notes)
    if not source.checked:
        return model
    return checked(model, lambda f, *what: tokens.fail(len(tokens) if f is None else blocks[f], *what))
