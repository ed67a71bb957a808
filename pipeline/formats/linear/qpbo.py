"""Quadratic pseudo-Boolean problems of toulbar2 (.qpbo): a matrix by its entries, over 0 and 1 or 1 and -1."""

from __future__ import annotations

from dataclasses import replace
from decimal import Context, Decimal
from typing import Final

from ...errors import FormatError
from ...models.model import Model
from ..decimal_costs import decimal_places
from ..format_policy import OBJECT_BYTES
from ..text.source import Source
from ..text.tokens import WordStream
from .linear_draft import LinearDraft, LinearTerm

# Totals of at most this many digits fit 64 bits.
_MOST_DIGITS: Final = 18
# A cost enters a function at most this many times.
_LARGEST_FACTOR: Final = 8
_ROUNDED: Final = Context(prec=40)


def read_qpbo(source: Source) -> Model:
    """Read ``N M`` and M entries ``i j cost``: the sum of cost times x_i times x_j, and twice that where i is not j.

    A negative N is for variables of 1 and -1, in this order of their states; a negative M maximises.

    Costs are exact if 64 bits hold them, or else rounded, as in toulbar2, to as many decimals as fit, with a note.

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
    source.allowance.take(OBJECT_BYTES * (abs(count) + abs(entries)), "its variables and entries")
    pairs, costs = list[tuple[int, int]](), list[Decimal]()
    for at in range(2, len(tokens), 3):
        i, j = (tokens.integer(at + k, "a variable", 1, abs(count)) for k in range(2))
        pairs.append((i, j))
        costs += tokens.converted([tokens.peek(at + 2)], Decimal, "a finite number", (at + 2).__add__)
        if not costs[-1].is_finite():
            raise tokens.fail(at + 2, "a finite number")

    def model_of(costs: list[Decimal]) -> Model:
        draft = LinearDraft[int](source, lambda at, *what: tokens.fail(at, *what), maximize=entries < 0)
        draft.domains = {f"x{k}": (0, 1) for k in range(1, abs(count) + 1)}
        for (i, j), cost in zip(pairs, costs, strict=True):
            draft.objective += _terms(i, j, cost if i == j else 2 * cost, signs=count < 0)
        model = draft.model()
        return model if count > 0 else _labelled(model)

    try:
        return model_of(costs)
    except FormatError:
        decimals, digits = decimal_places(costs), 1 + max(cost.adjusted() for cost in costs)
        digits += len(str(_LARGEST_FACTOR * len(costs)))
        if decimals == 0 or digits > _MOST_DIGITS:
            raise
    fit = min(_MOST_DIGITS - digits, decimals - 1)
    model = model_of([cost.quantize(Decimal(1).scaleb(-fit), context=_ROUNDED) for cost in costs])
    note = f"costs of {decimals} decimals are rounded to {fit}, because costs are integers of 64 bits"
    return replace(model, notes=(*model.notes, note))


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
