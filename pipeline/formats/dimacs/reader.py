"""Reading a DIMACS file: its comments, its header, its clauses, and weights in the forms of model counters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np

from ...errors import FormatError, shorten
from ...models.checks import fitting
from ...models.function import Function, dense_function
from ...models.model import Kind, Model, Projection
from ..text.source import Source
from ..text.tables import take_functions, take_variables
from ..text.tokens import WordStream
from .clauses import WeightedClauses
from .lines import COMMENT, READ, CommentFacts, Line, notes_of, projection_of, read_comments, read_lines

_NUMBER = re.compile(r"[-+.0-9eE]+(?:/[-+.0-9eE]+)?")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,6})?")
_LITERAL = re.compile(r"-?[0-9]{1,10}")
_CACHET = "a line 'w VARIABLE PROBABILITY' as Cachet has it"

Weights = dict[int, float]
"""Weights by literal."""


def weights_of(path: str, told: Sequence[CommentFacts], lines: Sequence[Line], weighted: bool, n_vars: int) -> Weights:
    """Read weights in one of three forms.

    ``c p weight 3 0.4 0`` weighs one literal (model counting competitions). ``w 3 0.4`` weighs a variable, and its
    opposite literal gets 1 minus the weight (Cachet; there, variables without a line have weight 1/2 for both
    literals). ``c weights`` gives both weights of all variables (miniC2D).

    Raises
    ------
    FormatError
        If they are malformed, contradict each other, or weigh only one literal of a variable.
    """
    spoken = [one for one in told if one.kind == "p weight"]
    listed = [one for one in told if one.kind == "weights"]
    kinds = [("c p weight", one.line) for one in spoken[:1]]
    kinds += [("w", one.number) for one in lines[:1]] + [("c weights", one.line) for one in listed[:1]]
    if kinds and weighted:
        raise FormatError(path, kinds[0][1], "weights of clauses", "a weight of a literal")
    if len(kinds) > 1:
        raise FormatError(path, kinds[1][1], f"weights as in the lines {kinds[0][0]!r}", f"a line {kinds[1][0]!r}")
    weights: Weights = {}
    lines_of: dict[int, int] = {}
    for line, literal, weight in _read(path, spoken, lines, listed, n_vars):
        lines_of.setdefault(literal, line)
        if weights.setdefault(literal, weight) != weight:
            raise FormatError(path, line, "one weight for each literal", f"another one of {literal}")
    for literal in weights:
        if -literal not in weights:
            both = f"weights of {abs(literal)} and {-abs(literal)}"
            raise FormatError(path, lines_of[literal], both, f"that of {literal}")
    for v in range(1, n_vars + 1) if lines else ():
        if v not in weights:
            weights[v] = weights[-v] = 0.5
    return weights


def weight_notes(lines: Sequence[Line], n_vars: int) -> Iterator[str]:
    """Yield a note about the weights of variables without a line in a file of Cachet."""
    if lines and (without := n_vars - len({int(line.words[1]) for line in lines})):
        yield (
            f"{without} of {n_vars} variables have no line 'w': both literals of such a variable weigh 1/2, as in "
            "Cachet"
        )


def weight_functions(weights: Weights) -> Iterator[Function]:
    """Yield a function for each variable whose literals weigh."""
    for literal in filter(lambda literal: literal > 0, weights):
        yield dense_function((literal - 1,), np.array([weights[-literal], weights[literal]]))


def _with_unread(projection: Projection | None, weights: Weights, first: int) -> Projection | None:
    """Note the functions, from a number on, that weigh variables which are not counted."""
    if projection is None:
        return None
    weighed = [literal - 1 for literal in weights if literal > 0]
    others = {v for v in weighed if (weights[v + 1], weights[-v - 1]) != (1.0, 1.0)} - {*projection.variables}
    return replace(projection, unread=tuple(first + k for k, v in enumerate(weighed) if v in others))


def _read(
    path: str, spoken: Sequence[CommentFacts], lines: Sequence[Line], listed: Sequence[CommentFacts], n_vars: int
) -> Iterator[tuple[int, int, float]]:
    """Yield lines, literals and weights."""
    for one in spoken:
        yield (one.line, *_weight(path, one.line, one.words, n_vars))
    for line in lines:
        variable, probability = _cachet(path, line, n_vars)
        yield line.number, variable, 1.0 if probability is None else float(probability)
        yield line.number, -variable, 1.0 if probability is None else float(1 - probability)
    for one in listed:
        if len(one.words) != 2 * n_vars:
            raise one.fail(
                path, f"{2 * n_vars} weights, two for each variable, behind 'c weights'", f"{len(one.words)}"
            )
        for k, word in enumerate(one.words):
            yield one.line, (k // 2 + 1) * (-1) ** k, _number(path, one.line, word)


def _weight(path: str, line: int, words: Sequence[str], n_vars: int) -> tuple[int, float]:
    """Read a literal and its weight."""
    if len(words) not in (2, 3) or words[2:] not in ((), ("0",)):
        raise FormatError(path, line, "a literal, its weight and 0", repr(shorten(" ".join(words))))
    if not _LITERAL.fullmatch(words[0]) or not 1 <= abs(int(words[0])) <= n_vars:
        raise FormatError(path, line, f"a literal from {-n_vars} to {n_vars}", repr(shorten(words[0])))
    return int(words[0]), _number(path, line, words[1])


def _number(path: str, line: int, word: str) -> float:
    try:
        over, _, under = word.partition("/")
        weight = float(over) / float(under or 1) if _NUMBER.fullmatch(word) else math.nan
    except (ValueError, ZeroDivisionError):
        weight = math.nan
    if not 0.0 <= weight < math.inf:
        raise FormatError(path, line, "a finite weight of at least 0", repr(shorten(word)))
    return weight


def _cachet(path: str, line: Line, n_vars: int) -> tuple[int, Decimal | None]:
    """Read a variable and the weight of its positive literal; None where both weigh 1."""
    words = line.words[1:]
    if len(words) == 3 and words[2] == "0":
        found = (
            "a weight line that ends with 0, as in the competition of 2020; write 'c p weight LITERAL WEIGHT 0' for "
            "both literals"
        )
        raise FormatError(path, line.number, _CACHET, found)
    if len(words) != 2:
        raise FormatError(path, line.number, _CACHET, repr(shorten(" ".join(line.words))))
    if not _LITERAL.fullmatch(words[0]) or not 1 <= int(words[0]) <= n_vars:
        raise FormatError(path, line.number, f"{_CACHET}, a variable from 1 to {n_vars}", repr(shorten(words[0])))
    probability = Decimal(words[1]) if _DECIMAL.fullmatch(words[1]) else None
    if probability is None or not (0 <= probability <= 1 or probability == -1):
        raise FormatError(path, line.number, f"{_CACHET}, from 0 to 1 or -1", repr(shorten(words[1])))
    return int(words[0]), None if probability == -1 else probability


# SATLIB's files end with a line of a percent sign and one of a zero.
_END = re.compile(rb"^%\s*(?:0\s*)?\Z", re.MULTILINE)


def read_dimacs(source: Source) -> Model:
    """Read a DIMACS file: ``p cnf``, the weighted ``p wcnf``, or the weighted without a header that MaxSAT has now.

    Variable 3 of the file is ``x3``, with the states 0 (false) and 1 (true). A formula is potentials, 0 where a clause
    is violated; weights of literals (``c p weight 3 0.4 0``, ``w 3 0.4``) are potentials too. Violated clauses of a
    weighted formula cost their weights, and are forbidden from the top on, or in lines that begin with ``h``.
    Variables that are counted alone (``c p show``, ``c ind``) are the model's projection.

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Raises
    ------
    FormatError
        If the file is malformed, weighs only one literal of a variable, or has lines of kinds that are not read.
    """
    stop = source.lettered
    told = read_comments(source, stop)
    source.blank(COMMENT, stop)
    if b"%" in source.data:
        # some old files end with a line of %
        source.blank(_END)
    header, weight_lines = read_lines(source, stop)
    words = WordStream(source.blank(READ, stop))
    clauses = WeightedClauses(words, header)
    n_vars = clauses.n_vars
    take_variables(words, n_vars)
    weights = weights_of(source.path, told, weight_lines, header.weighted, n_vars)
    take_functions(words, len(weights) // 2, len(weights) // 2)
    costs, decimals = clauses.weights()
    functions = clauses.functions(costs)
    projection = _with_unread(projection_of(source.path, told, n_vars), weights, len(functions))
    kind: Kind = "cost" if header.weighted else "markov"
    return Model(
        kind=kind,
        names=tuple(f"x{v}" for v in range(1, n_vars + 1)),
        dims=(2,) * n_vars,
        states=(None,) * n_vars,
        functions=fitting(kind, (2,) * n_vars, (*functions, *weight_functions(weights))),
        decimals=decimals,
        name=source.stem,
        notes=(
            *clauses.notes(),
            *weight_notes(weight_lines, n_vars),
            *notes_of(told, projection, n_vars, bool(weights)),
        ),
        projection=projection,
    )
