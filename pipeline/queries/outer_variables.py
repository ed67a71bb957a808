"""Which variables a question is about where all others are eliminated first, by another operation.

Projected counts and sums are over assignments of some variables, for which there is an assignment of the others
(Aziz, Chu, Muise and Stuckey, #∃SAT: projected model counting, SAT 2015). Marginal MAP is the best assignment of some
variables, by the sum over the others (Park and Darwiche 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import ModelError
from ..models.model import Function, Model, Projection

#: Queries that are about assignments of some variables, if these are named.
PROJECTED = ("count", "partition")


def with_outer(
    model: Model, query: str, project: Sequence[int] | None, maximize: Sequence[int] | None
) -> tuple[Model, frozenset[int] | None]:
    """Return the model as it is asked about, and the variables that are counted or maximised over alone.

    Parameters
    ----------
    model : Model
    query : str
    project : sequence of int or None
        Instead of the projection of the model's file, if it has one.
    maximize : sequence of int or None

    Returns
    -------
    tuple of Model and frozenset of int or None
        None where no variables are set apart.

    Raises
    ------
    ModelError
        If the query takes no such variables or needs them, or if a projected sum depends on other variables.
    """
    if maximize is not None and query != "mmap":
        raise ModelError(f"maximize goes with the query mmap, not with the {query}")
    if project is not None and query not in PROJECTED:
        raise ModelError(f"a projection goes with a count or a partition function, not with the {query}")
    if query == "mmap":
        if not maximize:
            raise ModelError("the query mmap needs the variables to maximise over: give maximize")
        return model, frozenset(maximize)
    if query not in PROJECTED or (project is None and model.projection is None):
        return model, None
    if project is None and model.projection is not None:
        outer, model = frozenset(model.projection.variables), _without_unread(model, model.projection)
    else:
        outer = frozenset(project or ())
    model = replace(model, projection=None)
    return _checked(model, outer) if query == "partition" else model, outer


def _without_unread(model: Model, projection: Projection) -> Model:
    """Leave out the weights of variables that a file does not count, which its sums are without."""
    if not (unread := frozenset(projection.unread)):
        return model
    kept = tuple([f for k, f in enumerate(model.functions) if k not in unread])
    note = f"weights of {len(unread)} variables that are not counted are ignored, as in the counting competitions"
    return replace(model, functions=kept, notes=(*model.notes, note))


def _checked(model: Model, outer: frozenset[int]) -> Model:
    """Return the model of a projected sum as potentials; functions of other variables must be 0 or 1.

    Raises
    ------
    ModelError
        If one is not: the sum would depend on which of the others are chosen.
    """
    if model.kind == "cost":
        return model
    for function in model.functions:
        if not outer.issuperset(function.scope) and not _is_zero_or_one(function):
            name = next(model.names[v] for v in function.scope if v not in outer)
            raise ModelError(
                f"a projected sum is of weights of the variables that are named, but a function weighs {name!r} too; "
                "ask for the projected count, or name that variable as well"
            )
    return replace(model, kind="markov", functions=tuple([replace(f, child=None) for f in model.functions]))


def _is_zero_or_one(function: Function) -> bool:
    values = function.values if function.rows is None else np.append(function.values, function.default)
    return bool(np.isin(values, (0.0, 1.0)).all())
