"""Writers: .uai for probabilistic models, .wcsp for integer costs; whole files or nothing."""

from __future__ import annotations

import gzip
import lzma
import os
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, writing
from ..models.model import FORBIDDEN, Function, Model
from .text.source import strip_compression

_UNBOUNDED_TOP = FORBIDDEN


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model as .uai or .wcsp, as its name says, compressed if that ends in ``.gz`` or ``.xz``.

    The file appears whole or not at all. Evidence and labels have no place in these formats.

    Raises
    ------
    ModelError
        If the format cannot hold the model, the name says no format that can be written, or the file
        cannot be written.
    """
    target = Path(path)
    suffix = Path(strip_compression(target.name)).suffix.lower()
    if suffix == ".uai":
        lines = _uai_lines(model)
    elif suffix == ".wcsp":
        lines = _wcsp_lines(model)
    else:
        raise ModelError(f"cannot write {os.fspath(path)}: models are written as .uai or .wcsp")
    data = "".join(f"{line}\n" for line in lines).encode()
    if target.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)  # no time stamp: equal models give equal files
    elif target.suffix.lower() == ".xz":
        data = lzma.compress(data)
    _write_whole(target, data)


def _write_whole(target: Path, data: bytes) -> None:
    with writing(target):
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(partial, 0o666 & ~_umask())
            os.replace(partial, target)
        except BaseException:
            os.unlink(partial)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _uai_lines(model: Model) -> Iterator[str]:
    if model.kind == "cost":
        raise ModelError("a cost model cannot be written as .uai, which holds probabilities; write .wcsp")
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
    if function.rows is not None:
        raise ModelError("a distribution given by rows cannot be written as BAYES")
    return Function(tuple(scope[k] for k in axes), function.values.transpose(axes), child=child)


def _dense_values(function: Function, model: Model) -> NDArray[np.generic]:
    if function.rows is None:
        return function.values
    table = np.full([model.dims[v] for v in function.scope], float(function.default))
    table[tuple(function.rows.T)] = function.values
    return table


def _wcsp_lines(model: Model) -> Iterator[str]:
    _check_wcsp(model)
    name = "_".join(model.name.split()) or "model"
    top = _UNBOUNDED_TOP if model.top is None else model.top
    yield f"{name} {len(model.dims)} {max(model.dims, default=0)} {len(model.functions)} {top}"
    yield " ".join(map(str, model.dims))
    for f in model.functions:
        yield from _wcsp_function(f, model.dims, top)


def _wcsp_function(function: Function, dims: tuple[int, ...], top: int) -> Iterator[str]:
    head = " ".join(map(str, (len(function.scope), *function.scope)))
    if not function.scope:
        yield f"{head} {min(int(function.at(())), top)} 0"
    elif function.rows is not None:
        yield f"{head} {min(int(function.default), top)} {len(function.rows)}"
        for row, cost in zip(function.rows.tolist(), function.values.tolist(), strict=True):
            yield " ".join(map(str, (*row, min(cost, top))))
    else:
        # Every cell is listed, so that it reads back as a dense function; the default is never used.
        yield f"{head} 0 {function.values.size}"
        states = product(*(range(dims[v]) for v in function.scope))
        for row, cost in zip(states, function.values.ravel().tolist(), strict=True):
            yield " ".join(map(str, (*row, min(cost, top))))


def _check_wcsp(model: Model) -> None:
    reason = None
    if model.kind != "cost":
        reason = "it holds probabilities; write .uai"
    elif model.decimals:
        reason = f"its costs have {model.decimals} decimals"
    elif model.maximize:
        reason = "it is maximised"
    elif any(_least(f) < 0 for f in model.functions):
        reason = "it has negative costs"
    if reason is not None:
        raise ModelError(f"the model cannot be written as .wcsp, which holds integer costs to minimise: {reason}")


def _least(function: Function) -> int:
    default = [int(function.default)] if function.rows is not None else []
    return min([*default, int(function.values.min(initial=0))])
