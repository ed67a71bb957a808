"""Long tables of pandas as models: a row for each joint state, a column for each variable, and one of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError, checks_keywords, shorten
from ..models.model import Kind, Model
from ..public_names import public
from .labelled_tables import labelled_model


@public
@checks_keywords
def from_pandas(
    frames: Iterable[Any],
    kind: Kind = "markov",
    *,
    value: str = "value",
    states: Mapping[str, Sequence[Any]] | None = None,
    default: float | None = None,
) -> Model:
    """Return the model of long tables, one for each function.

    Parameters
    ----------
    frames : iterable of pandas.DataFrame
        A column for each variable, in the order of the scope (in a Bayesian network the child is last), and the
        column of values. Without variables it has one row.
    kind : {"markov", "cost", "bayes"}, optional
    value : str, optional
        The name of the column of values.
    states : mapping, optional
        The states of some variables in their order. Those of others are the categories of the first column that has
        some, or else what columns hold, in the order of their first rows.
    default : number, optional
        The value of joint states without a row; by default those are an error.

    Raises
    ------
    ModelError
        If a table has no column of values, two rows for one joint state, none for another without a ``default``, or
        empty cells.

    Examples
    --------
    >>> import bucketflow
    >>> import pandas
    >>> frame = pandas.DataFrame({"a": ["x", "x", "y", "y"], "b": [0, 1, 0, 1], "value": [1.0, 2.0, 3.0, 4.0]})
    >>> bucketflow.from_pandas([frame]).variables
    {'a': ('x', 'y'), 'b': ('0', '1')}
    """
    tables = [*frames]
    for frame in tables:
        if value not in frame.columns:
            raise ModelError(f"a table has no column {value!r}; its columns are {', '.join(map(str, frame.columns))}")
    domains = _domains(tables, value, dict(states or {}))
    return labelled_model(kind, domains, [_table(frame, value, domains, default) for frame in tables])


def _domains(tables: Sequence[Any], value: str, given: dict[Any, Sequence[Any]]) -> dict[Any, Sequence[Any]]:
    found: dict[Any, list[Any]] = {}
    for frame in tables:
        for column in frame.columns:
            if column == value:
                continue
            if column not in given and hasattr(frame[column], "cat"):
                given[column] = [*frame[column].cat.categories]
            cells = frame[column].tolist()
            if any(cell is None or cell != cell for cell in cells):
                raise ModelError(f"the column {shorten(str(column))!r} has empty cells")
            found.setdefault(column, []).extend(cells)
    return {column: given[column] if column in given else [*dict.fromkeys(cells)] for column, cells in found.items()}


def _table(frame: Any, value: str, domains: Mapping[Any, Sequence[Any]], default: float | None) -> Any:
    """Return the scope of a table, and its values as an array."""
    scope = [column for column in frame.columns if column != value]
    shape = [len(domains[column]) for column in scope]
    places = [{state: k for k, state in enumerate(domains[column])} for column in scope]
    shown = shorten(", ".join(map(str, scope)))
    try:
        at = tuple([[own[cell] for cell in frame[column].tolist()] for column, own in zip(scope, places, strict=True)])
    except KeyError as error:
        raise ModelError(
            f"the table over {shown} has the state {error.args[0]!r}, which its variable does not have"
        ) from None
    numbers = np.asarray(frame[value].tolist())
    rows = np.zeros(shape, np.int64)
    np.add.at(rows, at, 1)
    if (rows.size and rows.max() > 1) or (not scope and len(numbers) != 1):
        raise ModelError(f"the table over {shown or 'no variables'} has several rows, or none, for one joint state")
    if default is None and not rows.all():
        count = int(np.count_nonzero(rows == 0))
        raise ModelError(f"the table over {shown} has no row for {count} of its joint states, and no default is given")
    values = np.full(shape, 0 if default is None else default, np.result_type(numbers, np.asarray(default or 0)))
    values[at] = numbers if scope else numbers[0]
    return scope, {}, values
