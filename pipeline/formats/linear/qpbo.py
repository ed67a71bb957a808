"""Quadratic pseudo-Boolean problems of toulbar2 (.qpbo): a matrix by its entries, over 0 and 1 or 1 and -1."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from ...models.model import Model
from ..format_policy import OBJECT_BYTES
from ..text.source import Source
from ..text.tokens import WordStream
from .linear_draft import LinearDraft, LinearTerm


def read_qpbo(source: Source) -> Model:
    """Read ``N M`` and M entries ``i j cost``: the sum of cost times x_i times x_j, and twice that where i is not j.

    A negative N is for variables of 1 and -1, in this order of their states; a negative M maximises.

    Raises
    ------
    FormatError
        If the file is malformed.
    """
    tokens = WordStream(source)
    count = tokens.integer(0, "the number of variables", -len(source.data), len(source.data))
    entries = tokens.integer(1, "the number of entries", -len(tokens), len(tokens))
    if len(tokens) != 2 + 3 * abs(entries):
        raise tokens.fail(len(tokens), f"{abs(entries)} entries, three words each", f"{len(tokens) - 2} words")
    draft = LinearDraft[int](source, lambda at, *what: tokens.fail(at, *what), maximize=entries < 0)
    source.allowance.take(OBJECT_BYTES * (abs(count) + abs(entries)), "its variables and entries")
    draft.domains = {f"x{k}": (0, 1) for k in range(1, abs(count) + 1)}
    for at in range(2, len(tokens), 3):
        i, j = (tokens.integer(at + k, "a variable", 1, abs(count)) for k in range(2))
        (cost,) = tokens.converted([tokens.peek(at + 2)], Decimal, "a finite number", (at + 2).__add__)
        if not cost.is_finite():
            raise tokens.fail(at + 2, "a finite number")
        draft.objective += _terms(i, j, cost if i == j else 2 * cost, signs=count < 0)
    model = draft.model()
    return model if count > 0 else _labelled(model)


def _terms(i: int, j: int, cost: Decimal, *, signs: bool) -> list[LinearTerm]:
    """Return a product of two variables; of signs 1 - 2x each, where x is the state."""
    first, second = (f"x{i}", False), (f"x{j}", False)
    if not signs:
        return [LinearTerm(cost, (first, second))]
    if i == j:
        return [LinearTerm(cost, ())]
    return [
        LinearTerm(cost, ()),
        LinearTerm(-2 * cost, (first,)),
        LinearTerm(-2 * cost, (second,)),
        LinearTerm(4 * cost, (first, second)),
    ]


def _labelled(model: Model) -> Model:
    """Return a model whose states are called 1 and -1."""
    return replace(model, states=(("1", "-1"),) * len(model.dims))
