"""Checks of models built in Python. Each fault is one sentence, raised when the model is built."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, meant
from .function import SMALL_CELLS, Function

Kind = Literal["cost", "markov", "bayes"]

States = tuple[tuple[str, ...] | None, ...]


class Checked(tuple[Function, ...]):
    """Functions that are known to fit domains and a kind, so that a changed copy of a model need not look again."""

    fits: tuple[tuple[int, ...], str]
    read_only: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Say nothing of arrays, which can be written to in a copy."""
        return {"fits": self.fits}


def fitting(
    kind: Kind, dims: tuple[int, ...], functions: Iterable[Function], *, are_read_only: bool = False
) -> Checked:
    """Check that functions fit the domains and the kind of a model, with their values and dtypes; return them.

    Parameters
    ----------
    kind : str
    dims : tuple of int
    functions : iterable of Function
    are_read_only : bool, optional
        Whether the arrays of all functions are read-only.
    """
    checked = Checked(functions)
    checked.fits, checked.read_only = (dims, kind), are_read_only
    return checked


def read_only(functions: Checked) -> Checked:
    """Let functions have arrays that cannot be written to: plans and answers are kept for them. They share the data."""
    known = dict[int, tuple[NDArray[Any], NDArray[Any]]]()  # a million clauses share a few arrays
    for function in () if functions.read_only else functions:
        own = vars(function)
        for name in ("values", "rows") if own["rows"] is not None else ("values",):
            array = own.get(name)  # None of a deferred table, which is read-only when it is built
            if array is None or not array.flags.writeable:
                continue
            pair = known.get(id(array))
            if pair is None:
                pair = known[id(array)] = array, array.view()
                pair[1].flags.writeable = False
            own[name] = pair[1]
    functions.read_only = True
    return functions


def kind_named(kind: Any) -> Kind:
    """Check the kind of a model."""
    if kind not in get_args(Kind):
        raise ModelError(f"unknown kind of model {kind!r}; one of {', '.join(get_args(Kind))}")
    return cast(Kind, kind)


def unknown_variable(name: Any, known: Iterable[str], who: str = "") -> ModelError:
    """Return the error for an unknown variable name, with the name that was probably meant; ``who`` describes the
    source of the name.
    """
    said = f"{who} {name!r}, which" if who else f"{name!r}"
    return ModelError(f"{said} is not a variable of the model{meant(name, known)}")


def integer(value: Any, what: str, low: int | None = 0, high: int | None = None) -> int:
    """Check that a value is an integer, no truth value, of at least ``low``, and below ``high``."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise ModelError(f"{what} is {value!r}, which is not an integer") from None
    if (low is not None and number < low) or (high is not None and number >= high):
        bounds = f"at least {low}" if high is None else f"{low} to {high - 1}"
        raise ModelError(f"{what} is {number}; expected {bounds}")
    return number


def checked_variables(
    names: Iterable[Any], dims: Iterable[Any], states: Iterable[Any]
) -> tuple[tuple[str, ...], tuple[int, ...], States]:
    """Check names, domain sizes and labels.

    Raises
    ------
    ModelError
        If they differ in number, a name or label is missing or used twice, or a domain is empty.
    """
    names, dims, states = _tuple(names), _tuple(dims), _tuple(states)
    if not len(names) == len(dims) == len(states):
        raise ModelError(f"a model has {len(names)} names, {len(dims)} domains and {len(states)} lists of labels")
    _check_labels(names, "variables")
    if not all(type(size) is int and size >= 1 for size in dims):
        dims = tuple(integer(size, f"the domain of {name!r}", 1) for name, size in zip(names, dims, strict=True))
    if any(labels is not None for labels in states):
        states = tuple(None if labels is None else _tuple(labels) for labels in states)
        known: set[int] = set()  # labels that several variables share are checked once
        for name, size, labels in zip(names, dims, states, strict=True):
            if labels is not None:
                if id(labels) not in known:
                    _check_labels(labels, f"states of {name!r}")
                    known.add(id(labels))
                if len(labels) != size:
                    raise ModelError(f"variable {name!r} has {size} states and {len(labels)} labels")
    return names, dims, states


KnownRows = set[tuple[int, int, int, tuple[int, ...]]]
"""Identities of rows, values and defaults, and sizes of variables."""


def checked_functions(kind: Kind, dims: tuple[int, ...], functions: Iterable[Any]) -> Checked:
    """Check functions against the domains, and give their values the dtype of the kind.

    Raises
    ------
    ModelError
        If a scope, shape, state or value is not what the kind of model allows.
    """
    if isinstance(functions, Checked) and functions.fits == (dims, kind):
        return functions
    sizes = dict(enumerate(dims))
    given = [_as_arrays(k, f) for k, f in enumerate(functions)]
    known: KnownRows = set()
    for k, f in enumerate(given):
        if (fault := function_fault(f, sizes, known)) is not None:
            raise ModelError(f"function {k} {fault}")
        if f.rows is not None and kind == "cost":
            integer(f.default, f"the default cost of function {k}", -(1 << 63), 1 << 63)
    dtype = np.dtype(np.int64 if kind == "cost" else np.float64)
    given = [f if f.values.dtype == dtype else _converted(k, f, dtype) for k, f in enumerate(given)]
    if kind != "cost":
        _check_probabilities(given)
    return fitting(kind, dims, given)


def function_fault(function: Any, sizes: Mapping[int, int], known: KnownRows | None = None) -> str | None:
    """Return the fault of a function over variables of these sizes, or None.

    Parameters
    ----------
    function : object
    sizes : mapping of int to int
        By variable.
    known : set, optional
        Rows that were looked at before, over which sizes: of clauses, many functions have the same.
    """
    if not isinstance(function, Function):
        return f"is not a Function but {type(function).__name__}"
    scope, values = function.scope, function.values
    try:
        shape = tuple([sizes[v] for v in scope])
    except (KeyError, TypeError):
        return f"has the scope {scope}, where variables are numbered 0 to {len(sizes) - 1}"
    if len(set(scope)) < len(scope):
        return f"has the scope {scope}, which names a variable twice"
    if function.child is not None and function.child not in scope:
        return f"has the child {function.child}, which is not in its scope {scope}"
    if function.rows is not None:
        key = id(function.rows), id(values), id(function.default), shape
        if known is not None and key in known:
            return None
        fault = _rows_fault(function, shape)
        if fault is None and known is not None:
            known.add(key)
        return fault
    return None if values.shape == shape else f"has values of shape {values.shape}; its scope has shape {shape}"


def _as_arrays(k: int, function: Any) -> Any:
    """Turn lists for scope and values, and a number for a constant, into a tuple and an array."""
    if not isinstance(function, Function) or (type(function.scope) is tuple and type(function.values) is np.ndarray):
        return function
    scope: Any = function.scope
    if isinstance(scope, str) or not isinstance(scope, Iterable):
        raise ModelError(f"function {k} has the scope {scope!r}; expected a tuple of variable indices")
    return function.changed(scope=tuple(scope), values=array_of(function.values, f"function {k}"))


def array_of(values: Any, what: str) -> NDArray[Any]:
    """Return values as an array.

    Raises
    ------
    ModelError
        If they are lists of different lengths, or some are masked.
    """
    if np.ma.is_masked(values):
        raise ModelError(f"{what} has masked values; replace them by the values they stand for")
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ModelError(f"{what} has values that are not an array: {error}") from None


def rows_of(rows: Any, arity: int, what: str) -> NDArray[Any]:
    """Return a copy of listed joint states, shape (rows, arity).

    Lists without any state have no dtype, and rows over no variables have no cells: NumPy takes both for floats.
    """
    found = array_of(rows, what).copy()
    if found.size:
        return found
    return np.empty((0 if arity else len(found), arity), dtype=np.uint8)


def _rows_fault(function: Function, shape: tuple[int, ...]) -> str | None:
    rows: Any = function.rows
    values = function.values
    if not isinstance(rows, np.ndarray) or not np.issubdtype(rows.dtype, np.integer):
        return "has rows that are not an array of integers"
    default: Any = function.default
    if not isinstance(default, int | float | np.number):
        return f"has the default {default!r}, which is not a number"
    if values.ndim != 1 or rows.shape != (len(values), len(shape)):
        return f"has rows of shape {rows.shape} and values of shape {values.shape} for {len(shape)} variables"
    if rows.size and not ((rows >= 0).all() and (rows < np.array(shape)).all()):
        return f"lists states outside of its domains {shape}"
    return None if function.distinct else "lists an assignment twice"


def _tuple(items: Any) -> tuple[Any, ...]:
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise ModelError(f"a model needs lists of names, domains, labels and functions, not {items!r}")
    return items if type(items) is tuple else tuple(items)


def first_again(labels: Iterable[str]) -> str | None:
    """Return the first label that was there before; None if all differ."""
    seen: set[str] = set()
    for label in labels:
        if label in seen:
            return label
        seen.add(label)
    return None


def _check_labels(labels: Sequence[Any], what: str) -> None:
    """Check that labels are different strings."""
    kinds = {*map(type, labels)}
    if kinds - {str} and not all(issubclass(kind, str) for kind in kinds):
        raise ModelError(f"the names of {what} must be strings")
    if len(set(labels)) < len(labels):
        raise ModelError(f"the names of {what} must differ; {first_again(labels)!r} occurs twice")


def _converted(k: int, function: Function, dtype: np.dtype[Any]) -> Function:
    """Return a function with values of another dtype, if they are equal in it."""
    needed = "integers, of at most 64 bits" if dtype.kind == "i" else "numbers"
    if function.values.dtype.kind not in "biuf":
        raise ModelError(f"function {k} has values of type {function.values.dtype}; expected {needed}")
    with np.errstate(invalid="ignore"):
        values = function.values.astype(dtype)
    if dtype.kind == "i" and not np.array_equal(values, function.values):
        raise ModelError(f"function {k} has costs that are not integers of at most 64 bits; multiply and round them")
    return function.changed(values=values)


def _check_probabilities(functions: Sequence[Function]) -> None:
    small = [f.values.reshape(-1) for f in functions if f.values.size <= SMALL_CELLS]
    large = [f.values for f in functions if f.values.size > SMALL_CELLS]
    defaults = [f.default for f in functions if f.rows is not None]
    if all(map(_are_probabilities, [np.concatenate([np.zeros(0), *small]), *large, np.array(defaults, dtype=float)])):
        return
    k = next(k for k, f in enumerate(functions) if not _are_probabilities(np.append(f.values, f.default)))
    raise ModelError(
        f"function {k} has a value that is negative or not finite; probabilities and potentials must be "
        "finite and at least 0"
    )


def _are_probabilities(values: Any) -> bool:
    return not values.size or bool(values.min() >= 0.0 and values.max() < math.inf)
