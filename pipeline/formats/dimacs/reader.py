"""Reading a DIMACS file: what its comments say, its header, its clauses."""

from __future__ import annotations

import re
from itertools import chain

from ...models.model import Model
from ..text.source import Source
from ..text.tables import take_functions, take_variables
from ..text.tokens import WordStream
from .clauses import WeightedClauses
from .comments import COMMENT, notes_of, projection_of, read_comments
from .lines import READ, read_lines
from .weights import weight_functions, weight_notes, weights_of

# SATLIB's files end with a line of a percent sign and one of a zero.
_END = re.compile(rb"^%\s*(?:0\s*)?\Z", re.MULTILINE)


def read_dimacs(source: Source) -> Model:
    """Read a DIMACS file: ``p cnf``, the weighted ``p wcnf``, or the weighted without a header that MaxSAT has now.

    Variable 3 of the file is ``x3``, with the states 0 (false) and 1 (true). A formula is potentials, 0 where a clause
    is violated; weights of literals (``c p weight 3 0.4 0``, ``w 3 0.4``) are potentials too. Violated clauses of a
    weighted formula cost their weights, and are forbidden from the top on, or in lines that begin with ``h``. Variables
    that are counted alone (``c p show``, ``c ind``) are the model's projection.

    Raises
    ------
    FormatError
        If the file is malformed, weighs only one literal of a variable, or has lines of kinds that are not read.
    """
    told = read_comments(source)
    header, weight_lines = read_lines(source.blank(COMMENT).blank(_END))
    words = WordStream(source.blank(READ))
    clauses = WeightedClauses(words, header)
    n_vars = clauses.n_vars
    take_variables(words, n_vars)
    weights = weights_of(source.path, told, weight_lines, header.weighted, n_vars)
    take_functions(words, len(weights) // 2, len(weights) // 2)
    projection = projection_of(source.path, told, n_vars)
    costs, decimals = clauses.weights()
    return Model(
        kind="cost" if header.weighted else "markov",
        names=tuple(f"x{v}" for v in range(1, n_vars + 1)),
        dims=(2,) * n_vars,
        states=(None,) * n_vars,
        functions=tuple(chain(clauses.functions(costs), weight_functions(weights))),
        decimals=decimals,
        name=source.stem,
        notes=(
            *clauses.notes(),
            *weight_notes(weight_lines, n_vars),
            *notes_of(told, projection, n_vars, bool(weights)),
        ),
        projection=projection,
    )
