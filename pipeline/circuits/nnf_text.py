"""Reading a d-DNNF in the text of c2d, with weights of literals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, shorten
from ..formats.format_policy import WORD_BYTES
from ..formats.text.source import Source
from ..formats.text.tokens import has_plain_digits
from ..gates.circuit import CircuitGraph, CircuitVariables, Gates

Array = NDArray[Any]

_MOST = 1 << 31


class _NnfDraft:
    """Nodes as they are read; leaves get their numbers at the end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.literals: dict[int, int] = {}
        self.weights: dict[int, float] = {}
        self.nodes: list[tuple[bool, list[int]] | int] = []
        self.variables = 0

    def read(self, line: int, words: Sequence[str]) -> None:
        """Read a line behind the header."""
        if words[0] == "c":
            if words[1:3] == ["p", "weight"]:
                self._weight(line, words[3:])
            return
        numbers = self._numbers(line, words)
        if words[0] == "L" and len(numbers) == 1 and 0 < abs(numbers[0]) <= self.variables:
            self.literals.setdefault(numbers[0], len(self.literals))
            self.nodes.append(numbers[0])
            return
        children = numbers[2:] if words[0] == "O" else numbers[1:]
        if words[0] not in ("A", "O") or not numbers or len(numbers) - len(children) != 1 + (words[0] == "O"):
            raise self.fail(line, "a line 'L literal', 'A count children' or 'O variable count children'", words)
        if len(children) != numbers[-len(children) - 1]:
            raise self.fail(line, f"{numbers[-len(children) - 1]} children", words)
        if not all(0 <= child < len(self.nodes) for child in children):
            raise self.fail(line, f"children from 0 to {len(self.nodes) - 1}, nodes before this one", words)
        self.nodes.append((words[0] == "O", children))

    def fail(self, line: int, expected: str, words: Sequence[str]) -> FormatError:
        """Return the error for a line."""
        return FormatError(self.path, line, expected, repr(shorten(" ".join(words))))

    def _numbers(self, line: int, words: Sequence[str]) -> list[int]:
        try:
            return [int(word if has_plain_digits(word) else "none") for word in words[1:]]
        except ValueError:
            raise self.fail(line, "numbers after the letter of a node", words) from None

    def _weight(self, line: int, words: Sequence[str]) -> None:
        try:
            literal, weight = (int(words[0]), float(words[1])) if has_plain_digits("".join(words)) else (0, 0.0)
        except (ValueError, IndexError):
            literal, weight = 0, 0.0
        if not (0 < abs(literal) <= self.variables and 0.0 <= weight < np.inf):
            raise self.fail(line, "a literal and its weight", ["c", "p", "weight", *words])
        self.weights[literal] = weight

    def made(self) -> CircuitGraph:
        """Build the circuit: a literal with a weight becomes a product of its indicator and a parameter.

        Returns
        -------
        CircuitGraph
            Indicators first, then parameters, then gates.
        """
        n, literals = len(self.literals), [*self.literals]
        weighing = [k for k, literal in enumerate(literals) if self.weights.get(literal, 1.0) not in (0.0, 1.0)]
        zero = {literal for literal, weight in self.weights.items() if weight == 0.0}
        first = n + len(weighing)
        arities: list[int] = []
        children: list[int] = []
        is_sum: list[bool] = []
        of_literal: dict[int, int] = {}
        for place, k in enumerate(weighing):
            of_literal[literals[k]] = first + len(arities)
            is_sum.append(False)
            arities.append(2)
            children += [k, n + place]
        for literal in sorted(zero & {*literals}):
            of_literal[literal] = first + len(arities)
            is_sum.append(True)
            arities.append(0)
        numbers: list[int] = []
        for node in self.nodes:
            if isinstance(node, int):
                numbers.append(of_literal.get(node, self.literals[node]))
                continue
            numbers.append(first + len(arities))
            is_sum.append(node[0])
            arities.append(len(node[1]))
            children += [numbers[child] for child in node[1]]
        if numbers[-1] != first + len(arities) - 1:  # the last node is a literal
            is_sum.append(False)
            arities.append(1)
            children.append(numbers[-1])
        starts = np.append(0, np.cumsum(arities)).astype(np.int64)
        gates = Gates(np.array(is_sum, bool), starts, np.array(children, np.int64))
        known = CircuitVariables(
            tuple(f"x{v + 1}" for v in range(self.variables)), (2,) * self.variables, (None,) * self.variables
        )
        own = np.array([[abs(literal) - 1, literal > 0] for literal in literals], np.int64).reshape(-1, 2).T
        values = np.array([self.weights[literals[k]] for k in weighing])
        scopes: dict[int, tuple[int, ...]] = {int(v): (int(v),) for v in own[0, weighing]}
        return CircuitGraph(known, own, own[:, weighing], values, gates, "", scopes)


def read_nnf(source: Source) -> CircuitGraph:
    """Read the text of an ``.nnf``, within the memory of its allowance.

    Raises
    ------
    BudgetError
        If the nodes do not fit memory.
    FormatError
        Naming the line.
    """
    path, text = source.path, source.text
    draft, header = _NnfDraft(path), None
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        source.allowance.take(WORD_BYTES * (1 + len(words)), f"{number:,} lines")
        if not words or (header is None and words[0] == "c"):
            continue
        if header is None:
            header = _header(draft, number, words)
            draft.variables = header[2]
            continue
        draft.read(number, words)
    if header is None or len(draft.nodes) != header[0] or not draft.nodes:
        nodes = "a header 'nnf NODES EDGES VARIABLES'" if header is None else f"{header[0]} nodes, at least one"
        raise FormatError(path, None, nodes, f"{len(draft.nodes)}" if header else "none")
    return draft.made()


def _is_count(word: str) -> bool:
    return has_plain_digits(word) and word.isdigit() and int(word) < _MOST


def _header(draft: _NnfDraft, line: int, words: Sequence[str]) -> tuple[int, int, int]:
    if len(words) != 4 or words[0] != "nnf" or not all(_is_count(word) for word in words[1:]):
        raise draft.fail(line, "a header 'nnf NODES EDGES VARIABLES'", words)
    nodes, edges, variables = map(int, words[1:])
    return nodes, edges, variables
