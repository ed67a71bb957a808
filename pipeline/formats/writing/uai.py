"""The UAI format: probabilities and potentials, every entry of every table."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...errors import ModelError
from ...models.model import Function, Model
from ...text import format_bytes, format_count
from ..text.source import MAX_TEXT_BYTES

# A number, and the space behind it.
_LEAST_ENTRY_BYTES = 4


def uai_lines(model: Model) -> Iterator[str]:
    """Give the lines of a file.

    Raises
    ------
    ModelError
        If the model holds costs, or a table would be too long.
    """
    if model.kind == "cost":
        raise ModelError("a cost model cannot be written as .uai, which holds probabilities; write .wcsp or .cfn")
    functions = [_child_last(f) if model.kind == "bayes" else f for f in model.functions]
    yield "BAYES" if model.kind == "bayes" else "MARKOV"
    yield str(len(model.dims))
    yield " ".join(map(str, model.dims))
    yield str(len(functions))
    for f in functions:
        yield " ".join(map(str, (len(f.scope), *f.scope)))
    for f in functions:
        values = _dense_values(f, model).ravel()
        yield f"\n{values.size}"
        yield " ".join(map(repr, values.tolist()))


def _child_last(function: Function) -> Function:
    """Return a function whose child is the last variable of its scope, as BAYES files have it."""
    scope, child = function.scope, function.child
    if child is None or scope[-1] == child:
        return function
    axes = [*(k for k, v in enumerate(scope) if v != child), scope.index(child)]
    scope = tuple(scope[k] for k in axes)
    if function.rows is not None:
        return function.changed(scope=scope, rows=function.rows[:, axes])
    return Function(scope, function.values.transpose(axes), child=child)


def _dense_values(function: Function, model: Model) -> NDArray[np.generic]:
    shape = [model.dims[v] for v in function.scope]
    if function.rows is not None and (least := _LEAST_ENTRY_BYTES * prod(shape)) > MAX_TEXT_BYTES:
        raise ModelError(
            f"the model cannot be written as .uai, which lists every entry of a table: a function of "
            f"{len(function.values):,} rows over {len(shape)} variables has {format_count(prod(shape))}, "
            f"{format_bytes(least)} of text, and files of at most {format_bytes(MAX_TEXT_BYTES)} are read"
        )
    return function.dense(model.dims)
