"""The .erg format of the UAI 2006 and 2008 evaluations: Bayesian networks."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

from ..models.model import Model
from .text.source import BLOCK_COMMENT, Source
from .text.tables import cell_count
from .text.words import Words
from .uai import potential_model, read_domains, read_scope, read_table


def read_erg(source: Source) -> Model:
    """Read a .erg file: for each variable its parents, then for each variable its distribution.

    Names of the variables and labels of the states follow in most files.

    Raises
    ------
    FormatError
        If the file is malformed.
    """
    tokens = Words(source.blank(BLOCK_COMMENT))
    n_vars = tokens.integer(0, "the number of variables", 0, len(tokens))
    dims = read_domains(tokens, 1, n_vars)
    at = 1 + n_vars
    scopes: list[list[int]] = []
    for variable in range(n_vars):
        parents = read_scope(tokens, at, n_vars)
        if variable in parents:
            raise tokens.fail(at, f"parents of variable {variable}", "the variable itself")
        at += 1 + len(parents)
        scopes.append([*parents, variable])
    functions = []
    for variable, scope in enumerate(scopes):
        functions.append(read_table(tokens, at, scope, dims, variable))
        at += 1 + cell_count(scope, dims)
    model = potential_model("bayes", dims, functions, source.stem)
    return _named(tokens, at, model)


def _named(tokens: Words, at: int, model: Model) -> Model:
    """Read what may follow the tables: all variable names, then all state labels."""
    n_vars, dims = len(model.dims), model.dims
    labels_at = at + n_vars
    ends = list(accumulate(dims, initial=labels_at))
    if len(tokens) == at:
        return model
    if len(tokens) not in (labels_at, ends[-1]):
        what = f"the end of the file, {n_vars} names, or as many names and {sum(dims)} labels"
        raise tokens.fail(at, what, f"{len(tokens) - at} words")
    tokens.allowance.take(64 * (len(tokens) - at), "names")
    names = _words(tokens, at, labels_at)
    if len(set(names)) < n_vars:
        raise tokens.fail(at, "different variable names")
    if len(tokens) == labels_at:
        return replace(model, names=names)
    states = tuple(_words(tokens, i, j) for i, j in pairwise(ends))
    for labels, start in zip(states, ends, strict=False):
        if len(set(labels)) < len(labels):
            raise tokens.fail(start, "different states of a variable")
    return replace(model, names=names, states=states)


def _words(tokens: Words, start: int, stop: int) -> tuple[str, ...]:
    return tuple(word for _, part in tokens.parts(start, stop) for word in part)
