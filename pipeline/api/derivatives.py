"""Derivatives of log Z by the entries of tables, from the beliefs of a two-way sweep (Darwiche, JACM 2003)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import LEAST_FACTOR
from ..answering.question import Question
from ..errors import ModelError
from ..machine.resources import Resources
from ..queries.beliefs import BeliefRequest
from ..results.posteriors import Marginals
from .multipliers import multipliers

Array = NDArray[Any]
# A probability of a smaller entry's states may be below all floats, though the derivative is not.
_SMALL: Final = 1e-100
WIDE_ORDERS: Final = 290.0
"""If two assignments differ by at least this number of orders of magnitude, parts of a sum may be below all floats."""

Answer = Callable[[Question], Marginals]
"""Propagates a question."""


def derivatives_of(question: Question, found: Marginals, answer: Answer, resources: Resources) -> dict[int, Array]:
    """Return d ln Z / d entry for every entry of every function that has variables, by the index of the function.

    If an entry is above 0, its derivative is the probability of its states divided by the entry. Functions with entries
    of 0, or with entries so small that the probability may vanish, need one more propagation. It computes the
    multipliers of all their entries together. If this propagation does not fit in memory, each function takes its own
    propagation, of the model without that function.

    Parameters
    ----------
    question : Question
    found : Marginals
        With the families of all functions.
    answer : callable
    resources : Resources

    Raises
    ------
    ModelError
        If the evidence is impossible, because ln 0 has no derivatives.
    """
    if found.status == "infeasible":
        raise ModelError("the evidence is impossible: the logarithm of 0 has no derivatives")
    made, zeros = {}, []
    wide = question.model.orders_of_magnitude > WIDE_ORDERS
    for f, belief in found.families.items():
        values = question.model.functions[f].dense(question.model.dims)
        lost = wide and bool(((belief < LEAST_FACTOR) & (values > 0.0)).any())
        if not lost and (values > _SMALL).all():
            made[f] = belief / values
        else:
            zeros.append(f)
    multiplied = multipliers(question, zeros, resources) if len(zeros) > 1 else None
    if multiplied is None:
        multiplied = {f: _without(question, f, found, answer) for f in zeros}
    return dict(sorted((made | multiplied).items()))


def _without(question: Question, f: int, found: Marginals, answer: Answer) -> Array:
    """Return the multipliers of a function's entries over Z: the joint of its scope without the function."""
    model = question.model
    scope, functions = model.functions[f].scope, [*model.functions]
    del functions[f]
    # a network without one of its distributions is none; projections and what follows from others do not matter here
    rest = replace(model, kind="markov", functions=tuple(functions), projection=None)
    own = answer(replace(question, model=rest, asked=BeliefRequest((), (scope,), ())))
    assert own.log10_evidence is not None
    assert found.log10_evidence is not None
    (joint,) = own.joint.values()
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(10.0 ** (np.log10(joint) + own.log10_evidence - found.log10_evidence))
