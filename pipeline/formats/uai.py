"""The .uai format: Markov networks of potentials and Bayesian networks."""

from __future__ import annotations

import re

from ..models.model import Function, Kind, Model
from .text.source import Source
from .text.tables import cell_count, full_table, take_function, take_variables
from .text.tokens import MAX_DOMAIN, Tokens
from .text.words import Words

# pyAgrum writes comments behind a number sign: the variable's name after a scope of a Bayesian network, whose
# tables it lists with the first parent fastest, not slowest as the format has it.
_AGRUM = re.compile(rb"^[0-9][0-9 ]*   # \S", re.MULTILINE)
_COMMENT = re.compile(rb"/\*.*?(?:\*/|\Z)|#[^\n]*", re.DOTALL)
_KINDS: dict[str, Kind] = {"MARKOV": "markov", "BAYES": "bayes"}


def read_uai(source: Source) -> Model:
    """Read a .uai file; in a ``BAYES`` file the last variable of each scope is the child.

    Raises
    ------
    FormatError
        If the file is malformed.
    """
    agrum = b"#" in source.data and _AGRUM.search(source.data) is not None
    tokens = Words(source.blank(_COMMENT))
    kind = _KINDS.get(tokens.peek(0).upper())
    if kind is None:
        raise tokens.fail(0, "MARKOV or BAYES")
    n_vars = tokens.integer(1, "the number of variables", 0, len(tokens))
    dims = read_domains(tokens, 2, n_vars)
    at = 2 + n_vars
    n_functions = tokens.integer(at, "the number of functions", 0, len(tokens))
    at += 1
    scopes: list[list[int]] = []
    for _ in range(n_functions):
        scopes.append(read_scope(tokens, at, n_vars))
        if agrum and kind == "bayes" and len(scopes[-1]) > 2:
            raise tokens.fail(at, "tables with the first parent slowest", "one of pyAgrum's; let it save .bif or .net")
        at += 1 + len(scopes[-1])
    functions = []
    for scope in scopes:
        child = scope[-1] if kind == "bayes" and scope else None
        functions.append(read_table(tokens, at, scope, dims, child))
        at += 1 + cell_count(scope, dims)
    check_end(tokens, at)
    return potential_model(kind, dims, functions, source.stem)


def read_domains(tokens: Tokens, at: int, n_vars: int) -> tuple[int, ...]:
    """Read the domain sizes that stand from an index on."""
    take_variables(tokens, n_vars)
    dims = tokens.integers(at, at + n_vars, "a domain size")
    for v, size in enumerate(dims):
        if not 1 <= size <= MAX_DOMAIN:
            raise tokens.fail(at + v, f"a domain size from 1 to {MAX_DOMAIN}")
    return tuple(dims)


def read_scope(tokens: Tokens, at: int, n_vars: int) -> list[int]:
    """Read a scope: the number of variables, then the variables."""
    arity = tokens.integer(at, "the number of variables of a scope", 0, len(tokens))
    take_function(tokens, arity)
    scope = tokens.integers(at + 1, at + 1 + arity, "a variable of the scope")
    for k, variable in enumerate(scope):
        if not 0 <= variable < n_vars:
            raise tokens.fail(at + 1 + k, f"a variable from 0 to {n_vars - 1}")
    return scope


def read_table(tokens: Tokens, at: int, scope: list[int], dims: tuple[int, ...], child: int | None) -> Function:
    """Read a table: its size, then its entries, the last variable of the scope fastest."""
    cells = cell_count(scope, dims)
    tokens.integer(at, "the number of table entries,", cells, cells)
    if at + 1 + cells > len(tokens):
        raise tokens.fail(len(tokens), f"{cells} table entries")
    tokens.allowance.take(8 * cells, f"a table of {cells} entries")
    values = tokens.table(at + 1, at + 1 + cells)
    return full_table(scope, dims, values, tokens, at, child)


def check_end(tokens: Tokens, at: int) -> None:
    """Refuse anything behind the last table."""
    if at < len(tokens):
        raise tokens.fail(at, "the end of the file after the last table")


def potential_model(kind: Kind, dims: tuple[int, ...], functions: list[Function], name: str) -> Model:
    """Build a model whose file names neither variables nor states."""
    n_vars = len(dims)
    names = tuple(f"x{v}" for v in range(n_vars))
    return Model(kind, names, dims, (None,) * n_vars, tuple(functions), name=name)
