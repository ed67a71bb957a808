"""Arrays as models: numbers of states, variables of factors by number, and tables, as OpenGM has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ModelError, checks_keywords
from ..models.model import Kind, Model
from ..public_names import public


@public
@checks_keywords
def from_arrays(
    cardinalities: ArrayLike,
    scopes: Iterable[ArrayLike],
    tables: Iterable[ArrayLike],
    kind: Kind = "markov",
    *,
    names: Sequence[str] | None = None,
    top: int | None = None,
) -> Model:
    """Return the model of arrays.

    Parameters
    ----------
    cardinalities : array_like of int, shape (variables,)
        How many states each variable has.
    scopes : iterable of array_like of int
        For each factor the numbers of its variables from 0, or one number; an array of shape (factors, variables of a
        factor) is one too. In a Bayesian network the last is the child.
    tables : iterable of array_like
        For each factor its values, an axis a variable in the order of its scope; or all of them in a row, the last
        variable fastest.
    kind : {"markov", "cost", "bayes"}, optional
    names : sequence of str, optional
        Names of the variables, by default ``x0``, ``x1`` and so on.
    top : int, optional
        Totals of costs of at least this are forbidden; of costs only.

    Raises
    ------
    ModelError
        If arrays do not fit each other.

    Examples
    --------
    >>> import bucketflow
    >>> model = bucketflow.from_arrays([2, 2], [[0, 1]], [[[1.0, 2.0], [3.0, 4.0]]])
    >>> round(10**bucketflow.solve(model, "partition").log10, 6)
    10.0
    """
    sizes = _integers(cardinalities, "numbers of states")
    own = [f"x{v}" for v in range(len(sizes))] if names is None else [*map(str, names)]
    if len({*own}) < len(own) or len(own) != len(sizes):
        raise ModelError(f"{len(sizes)} variables need as many different names, found {len({*own})}")
    given, values = [*scopes], [*tables]
    if len(given) != len(values):
        raise ModelError(f"each factor needs a scope and a table, found {len(given)} scopes and {len(values)} tables")
    functions = []
    for k, (scope, table) in enumerate(zip(given, values, strict=True)):
        places = _integers(scope, f"the scope of factor {k}")
        if outside := [v for v in places if not 0 <= v < len(sizes)]:
            raise ModelError(f"factor {k} is over variable {outside[0]}, and variables are from 0 to {len(sizes) - 1}")
        shape, array = tuple(sizes[v] for v in places), np.asarray(table)
        # OpenGM writes tables flat
        if array.ndim == 1 and array.size == np.prod(shape, dtype=object):
            array = array.reshape(shape)
        functions.append(([own[v] for v in places], array))
    return Model.build(kind, dict(zip(own, sizes, strict=True)), functions, top=top)


def _integers(given: ArrayLike, what: str) -> list[int]:
    """Return integers as a list, of a single number too."""
    array = np.asarray(given)
    if array.size and array.dtype.kind not in "iu":
        raise ModelError(f"{what} must be integers, found an array of {array.dtype}")
    return [int(each) for each in array.reshape(-1)]
