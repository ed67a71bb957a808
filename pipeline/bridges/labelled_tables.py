"""Tables whose axes have labelled states, put together to a model: arrays, tables of pandas, and other bridges' tables.

:func:`from_arrays` takes numbers of states, variables of factors by number, and tables, as OpenGM has them.
:func:`from_pandas` takes a row for each joint state, a column for each variable, and one of values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...cluster.memory import default_memory_bytes
from ...tasks.steps.number_limits import CELL_BYTES
from ..errors import BudgetError, ModelError, checks_keywords, format_bytes, public, shorten
from ..models.model import Kind, Model
from ..models.state_names import TypedLabel, typed_label

# Of a value and how often it was given; a label takes more.
_LEAST_BYTES = 2 * CELL_BYTES

Table = tuple[Sequence[Hashable], Mapping[Hashable, Sequence[Any]], Any]
"""Variables of the axes, the states of some of them in the order of the axis, and an array."""


def labelled_model(kind: Kind, states: Mapping[Hashable, Sequence[Any]], tables: Iterable[Table]) -> Model:
    """Return a model of tables, each of whose axes may order the states of its variable in its own way.

    Parameters
    ----------
    kind : {"bayes", "markov", "cost"}
        In a Bayesian network the last axis of a table is the child's.
    states : mapping
        Variable → its states, in the order of the model.
    tables : iterable

    Raises
    ------
    ModelError
        If variables have the same name, states differ from their variable's, or tables form no valid model.
    """
    _check_memory(sum(map(len, states.values())), "a list of all states")
    labels = {variable: [typed_label(state) for state in own] for variable, own in states.items()}
    names = dict(zip(labels, map(str, labels), strict=True))
    if len(set(names.values())) < len(names):
        raise ModelError("variables need different names as texts, but some of these names are equal")
    functions = []
    for scope, orders, values in tables:
        if unknown := [v for v in scope if v not in names]:
            raise ModelError(f"a table is over {shorten(str(unknown[0]))!r}, but this is not a variable of the model")
        array = np.asarray(values)
        if array.shape != tuple(len(labels[v]) for v in scope):
            shown = ", ".join(names[v] for v in scope)
            raise ModelError(f"a table over {shorten(shown)} has shape {array.shape}, unlike its variables' states")
        for axis, variable in enumerate(scope):
            if variable in orders:
                array = array.take(_order(names[variable], labels[variable], orders[variable]), axis=axis)
        functions.append(([names[v] for v in scope], array))
    variables = {names[v]: own for v, own in labels.items()}
    return Model.build(kind, variables, functions)


def _order(name: str, labels: Sequence[str], given: Sequence[Any]) -> list[int]:
    """Return where each state of a variable stands in another order."""
    places = {str(state): k for k, state in enumerate(given)}
    if sorted(places) != sorted(labels):
        raise ModelError(f"tables do not agree on the states of {shorten(name)!r}")
    return [places[label] for label in labels]


def library(module: str, package: str) -> Any:
    """Import a module of a library.

    Raises
    ------
    ModelError
        If it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise ModelError(f"{package} is not installed: pip install {package.lower()}") from None


def exported(model: Model, library: str, kinds: Sequence[str]) -> None:
    """Refuse a model that another library cannot hold.

    Raises
    ------
    ModelError
        Naming what it cannot hold.
    """
    if model.kind not in kinds:
        what = {"cost": "costs", "markov": "potentials", "bayes": "distributions"}[model.kind]
        raise ModelError(f"{library} has no networks of {what}; bucketflow.save writes .wcsp, .cfn, .xml or .yaml")
    if model.hidden:
        raise ModelError(f"{library} has no hidden variables, but the model has {model.hidden}")
    if model.evidence:
        raise ModelError(
            f"{library} stores no evidence in a network, but the model has evidence: observe it in the other program"
        )


def state_labels(model: Model, variable: int) -> list[str]:
    """Return the labels of a variable's states, or their numbers as texts."""
    own = model.states[variable]
    return [*map(str, range(model.dims[variable]))] if own is None else [*map(str, own)]


def state_values(model: Model, variable: int) -> list[Any]:
    """Return the states of a variable as the library that they come from has them; labels of other models are texts."""
    own = model.states[variable] or state_labels(model, variable)
    return [label.value if isinstance(label, TypedLabel) else label for label in own]


def child_last(model: Model, function: int) -> tuple[list[int], Any]:
    """Return the scope of a distribution with the child last, and its table in that order."""
    own = model.functions[function].child_last()
    return [*own.scope], own.dense(model.dims)


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
    tables = [frames] if hasattr(frames, "columns") else [*frames] if isinstance(frames, Iterable) else [frames]
    for frame in tables:
        if not hasattr(frame, "columns"):
            raise ModelError(f"tables of pandas are expected, found {type(frame).__name__}")
        if not frame.columns.is_unique:
            raise ModelError(
                f"a table has two columns of one name, among {shorten(', '.join(map(str, frame.columns)))}"
            )
        if value not in frame.columns:
            raise ModelError(f"a table has no column {value!r}; its columns are {', '.join(map(str, frame.columns))}")
    domains = _domains(tables, value, dict(states or {}))
    return labelled_model(kind, domains, [_table(frame, value, domains, default) for frame in tables])


def _check_memory(count: int, what: str) -> None:
    """Refuse a number of states, or of values, before they are made."""
    if (needed := _LEAST_BYTES * count) > (allowed := default_memory_bytes()):
        raise BudgetError(f"{what} takes at least {format_bytes(needed)} of memory, allowed {format_bytes(allowed)}")


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
    _check_memory(prod(shape), f"a table over {shown or 'no variables'}")
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
