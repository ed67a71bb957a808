"""Bayesian networks of nested blocks of attributes: GeNIe's .dsl, which aGrUM writes too, and Netica's .dne."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ...errors import shorten
from ...models.model import Model
from ..format_policy import MOST_LEVELS, WORD_BYTES
from ..text.source import Source
from ..text.tokens import Tokens
from .network_draft import NetworkDraft, strength_ordered

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}=;,]|[^\s(){}=;,"]+|"', re.DOTALL)
_COMMENT = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*', re.DOTALL)
# Attributes that are read, of either format.
_OF_GENIE = ("type", "parents", "namestates", "probabilities", "resultingstates", "strengths")
_OF_NETICA = ("kind", "states", "levels", "numstates", "discrete", "probs", "functable", "equation", "evidence")
_GENIE = {"cpt": "PROBABILITIES", "truthtable": "RESULTINGSTATES", "noisy_max": "PROBABILITIES"}


@dataclass
class _Block:
    """A block: the words before its brace, the values of its attributes as ranges of tokens, and blocks within it."""

    at: int
    words: list[str]
    values: dict[str, tuple[int, int]] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)

    def inner(self, name: str) -> _Block:
        """Return the block of a name within this one, or an empty one."""
        return next((block for block in self.blocks if block.words[0].lower() == name), _Block(self.at, [name]))


@dataclass
class _BlockReader:
    """The blocks of a file.

    Parameters
    ----------
    tokens : Tokens
    draft : NetworkDraft of int
        Places are indices of tokens.
    """

    tokens: Tokens
    draft: NetworkDraft[int]

    def blocks(self, at: int, words: list[str], depth: int = 0) -> tuple[_Block, int]:
        """Read a block and the blocks inside it.

        Parameters
        ----------
        at : int
            Index of the token behind the opening brace.
        words : list of str
            Words before the brace.
        depth : int
            Number of blocks around it.

        Returns
        -------
        _Block, int
            The block, and the index of the token behind its closing brace.
        """
        tokens, block = self.tokens, _Block(at - len(words) - 1, words)
        if depth > MOST_LEVELS:
            raise tokens.fail(at, f"at most {MOST_LEVELS} blocks inside each other", "more")
        while (word := tokens.peek(at)) != "}":
            if word == ";":
                at += 1
                continue
            equals = tokens.peek(at + 1) == "="
            opening = at + 1
            while tokens.peek(opening) not in ("{", ";", "(", ""):
                opening += 1
            if tokens.peek(opening) == "{":
                if word.lower() == "definition" and any(word.lower() == b.words[0].lower() for b in block.blocks):
                    raise tokens.fail(at, "one definition", "a second one")
                inner, at = self.blocks(opening + 1, [*tokens.items[at:opening]], depth + 1)
                block.blocks.append(inner)
            elif equals:
                end = tokens.find(";", at)
                # the second of two attributes would silently win
                if word.lower() in block.values and word.lower() in (*_OF_GENIE, *_OF_NETICA):
                    raise tokens.fail(at, f"one attribute {shorten(word)!r}", "a second one")
                block.values[word.lower()] = (at + 2, end)
                at = end + 1
            else:
                raise tokens.fail(at, "an attribute (name = value;), or a block")
        return block, at + 1

    def network(self, words: Sequence[str]) -> _Block:
        """Read the file, which is one block."""
        tokens = self.tokens
        if tokens.peek(0) != words[0] or tokens.peek(2) != "{":
            raise tokens.fail(0, f"'{words[0]} NAME {{'")
        block, at = self.blocks(3, [*tokens.items[:2]])
        while tokens.peek(at) == ";":
            at += 1
        if at < len(tokens):
            raise tokens.fail(at, "the end of the file")
        return block

    def nodes(self, network: _Block) -> Iterator[_Block]:
        """Yield the blocks ``node NAME { … }`` of a network.

        Raises
        ------
        FormatError
            If a node has no name, or no blank before its name.
        """
        for block in network.blocks:
            word = block.words[0].lower()
            if word == "node" and len(block.words) > 1:
                yield block
            elif word.startswith("node"):
                raise self.tokens.fail(block.at, "'node NAME {'", repr(shorten(" ".join(block.words))))

    def listed(self, block: _Block, name: str) -> list[str] | None:
        """Return the words of an attribute without punctuation; None if the block does not have the attribute."""
        if name not in block.values:
            return None
        start, stop = block.values[name]
        return [_unquoted(word) for word in self.tokens.items[start:stop] if word not in ("(", ")", ",")]

    def needed(self, block: _Block, name: str, what: str) -> list[str]:
        """Return the words of an attribute that the block must have."""
        if (found := self.listed(block, name)) is None:
            raise self.tokens.fail(block.at, what, f"none in block {shorten(' '.join(block.words))!r}")
        return found

    def word(self, block: _Block, name: str, default: str) -> str:
        """Return the one word of an attribute."""
        return " ".join(self.listed(block, name) or [default])


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL) if word.startswith('"') else word


def _reader(source: Source) -> _BlockReader:
    if b"//" in source.data:
        source.blank(_COMMENT)
    tokens = Tokens(source, _TOKEN, WORD_BYTES)
    return _BlockReader(tokens, NetworkDraft(source, lambda at, *what: tokens.fail(at, *what)))


def read_dsl(source: Source) -> Model:
    """Read a .dsl file of GeNIe or aGrUM: tables, truth tables and noisy maxima.

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, or has nodes of other kinds.
    """
    reader = _reader(source)
    network, draft = reader.network(["net"]), reader.draft
    nodes = [*reader.nodes(network)]
    for node in nodes:
        kind = reader.word(node, "type", "?").lower()
        if kind not in _GENIE:
            found = f"a node of kind {shorten(kind.upper())!r}, which is not read"
            raise reader.tokens.fail(node.at, f"nodes of chance ({', '.join(map(str.upper, _GENIE))})", found)
        labels = reader.needed(node.inner("definition"), "namestates", "names of states (NAMESTATES)")
        draft.variable(node.at, node.words[-1], labels)
    for node in nodes:
        kind, inner = reader.word(node, "type", "?").lower(), node.inner("definition")
        parents = reader.listed(node, "parents") or []
        words = reader.needed(inner, _GENIE[kind].lower(), f"a distribution ({_GENIE[kind]})")
        if kind == "noisy_max":
            scope = draft.scope(node.at, node.words[-1], parents, len(nodes))
            strengths = reader.listed(inner, "strengths") or []
            # a noisy maximum stays a chain until the size of its table is known
            draft.chain(node.at, strength_ordered(draft, node.at, scope, words, strengths))
            continue
        scope = draft.scope(node.at, node.words[-1], parents)
        if kind == "truthtable":
            draft.results(node.at, scope, _state_names(words, draft.states[scope[-1]]))
        else:
            draft.probabilities(node.at, scope, words)
    return draft.model(0, network.words[-1], counts=True)


def _state_names(words: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return names of states, which files have by name or by number."""
    numbered = {str(k): label for k, label in enumerate(labels)} | {f"#{k}": label for k, label in enumerate(labels)}
    return [word if word in labels else numbered.get(word, word) for word in words]


def read_dne(source: Source) -> Model:
    """Read a network of Netica as text (.dne, .dnet): nodes of nature with tables of probabilities or of functions.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, or has decisions, utilities, or equations without a table.
    """
    reader = _reader(source)
    network, draft = reader.network(["bnet"]), reader.draft
    nodes = [*reader.nodes(network)]
    for node in nodes:
        if (kind := reader.word(node, "kind", "NATURE").upper()) != "NATURE":
            raise reader.tokens.fail(node.at, "nodes of nature", f"a node of kind {shorten(kind)!r}, which is not read")
        draft.variable(node.at, node.words[-1], _netica_states(reader, node))
        if observed := reader.word(node, "evidence", ""):
            draft.properties.observed.append(f"{node.words[-1]} = {observed}")
    for node in nodes:
        scope = draft.scope(node.at, node.words[-1], reader.listed(node, "parents") or [])
        if (results := reader.listed(node, "functable")) is not None and "probs" not in node.values:
            draft.results(node.at, scope, _state_names(results, draft.states[scope[-1]]))
            continue
        what = "a table (probs or functable)"
        if "probs" not in node.values and "equation" in node.values:
            raise reader.tokens.fail(node.at, what, "an equation alone: let Netica make its table and save it")
        draft.probabilities(node.at, scope, reader.needed(node, "probs", what))
    return draft.model(0, network.words[-1])


def _netica_states(reader: _BlockReader, node: _Block) -> list[str]:
    """Return the labels of a node's states: their names, numbers, or intervals between levels."""
    if names := reader.listed(node, "states"):
        return names
    levels = reader.listed(node, "levels") or []
    if levels and reader.word(node, "discrete", "TRUE").upper() == "TRUE":
        return levels
    if levels:
        return [f"{low} to {high}" for low, high in pairwise(levels)]
    if "numstates" not in node.values:
        raise reader.tokens.fail(node.at, "a node with states", "none: continuous nodes without levels are not read")
    count = reader.tokens.integer(node.values["numstates"][0], "the number of states", 1, len(reader.tokens))
    return [*map(str, range(count))]
