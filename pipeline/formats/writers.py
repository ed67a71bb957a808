"""Writers: .uai for probabilities, .wcsp for integer costs, .xml and .yaml with agents; whole files or nothing."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, format_bytes, format_count, writing
from ..models.dcop import Dcop, one_agent_each
from ..models.model import FORBIDDEN, Function, Model
from .dcop.write_pydcop import pydcop_lines
from .dcop.write_xcsp import xcsp_lines
from .text.source import MAX_TEXT_BYTES, strip_compression
from .whole_files import whole_file

# A number, and the space behind it.
_LEAST_ENTRY_BYTES = 4


def save(model: Model | Dcop, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write a model as its name says: .uai or .wcsp, .xml (XCSP 2.1) or .yaml (pyDCOP); ``.gz`` and ``.xz`` too.

    The file appears whole or not at all. Returns what is not as in the model, in sentences: names, labels and
    evidence have no place in .uai and .wcsp, whose costs are integers of at least 0 to be minimised; agents have one
    in .xml and .yaml only, where a model without them gets one for every variable.

    Raises
    ------
    ModelError
        If the format cannot hold the model, the name says no format that can be written, or the file
        cannot be written.
    """
    target = Path(path)
    suffix = Path(strip_compression(target.name)).suffix.lower()
    if suffix in (".xml", ".yaml", ".yml"):
        lines, notes = _distributed(model, suffix)
    else:
        lines, notes = _plain(model, suffix, path)
    data = "".join(f"{line}\n" for line in lines).encode()
    if target.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)  # no time stamp: equal models give equal files
    elif target.suffix.lower() == ".xz":
        data = lzma.compress(data)
    with whole_file(target) as partial, writing(target):
        partial.write_bytes(data)
    return tuple(notes)


def _distributed(model: Model | Dcop, suffix: str) -> tuple[Iterable[str], list[str]]:
    dcop = model if isinstance(model, Dcop) else one_agent_each(model)
    lines, notes = xcsp_lines(dcop) if suffix == ".xml" else pydcop_lines(dcop)
    return lines, [*notes, *_lost_evidence(dcop.model)]


def _plain(problem: Model | Dcop, suffix: str, path: str | os.PathLike[str]) -> tuple[Iterable[str], list[str]]:
    model = problem.model if isinstance(problem, Dcop) else problem
    notes = [*_lost(model), *_lost_evidence(model)]
    if isinstance(problem, Dcop):
        notes.append("agents are not kept")
    if suffix == ".uai":
        return _uai_lines(model), notes
    if suffix != ".wcsp":
        raise ModelError(f"cannot write {os.fspath(path)}: models are written as .uai, .wcsp, .xml or .yaml")
    stored = _shifted(model)
    return _wcsp_lines(stored.model), [*notes, *_shift_notes(model, stored)]


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
    scope = tuple(scope[k] for k in axes)
    if function.rows is not None:
        return function.changed(scope=scope, rows=function.rows[:, axes])
    return Function(scope, function.values.transpose(axes), child=child)


def _dense_values(function: Function, model: Model) -> NDArray[np.generic]:
    if function.rows is None:
        return function.values
    shape = [model.dims[v] for v in function.scope]
    if (least := _LEAST_ENTRY_BYTES * prod(shape)) > MAX_TEXT_BYTES:
        raise ModelError(
            f"the model cannot be written as .uai, which lists every entry of a table: a function of "
            f"{len(function.values):,} rows over {len(shape)} variables has {format_count(prod(shape))}, "
            f"{format_bytes(least)} of text, and files of at most {format_bytes(MAX_TEXT_BYTES)} are read"
        )
    table = np.full(shape, float(function.default))
    table[tuple(function.rows.T)] = function.values
    return table


@dataclass(frozen=True)
class _Shifted:
    """A model of costs of at least 0, and what was subtracted from its totals."""

    model: Model
    shift: int


def _shifted(model: Model) -> _Shifted:
    """Subtract the least cost of every function with a negative one from it, and all of these from the top.

    Raises
    ------
    ModelError
        If the model has no costs, or costs that are too far from each other.
    """
    if model.kind != "cost":
        raise ModelError("the model holds probabilities, and .wcsp holds costs; write .uai")
    lows = [min(low, 0) for low in model.lowest]
    functions = tuple(f if low == 0 else _raised(f, -low) for f, low in zip(model.functions, lows, strict=True))
    shift = sum(lows)
    top = _open_top(functions) if model.top is None else max(model.top - shift, 0)
    return _Shifted(replace(model, functions=functions, top=top), shift)


def _raised(function: Function, by: int) -> Function:
    """Add to all costs that are not forbidden."""
    allowed = function.values < FORBIDDEN
    if function.highest(FORBIDDEN) + by >= FORBIDDEN:
        raise ModelError("the model cannot be written as .wcsp: costs of a function are 2**62 or more apart")
    default = function.default if function.rows is None or function.default >= FORBIDDEN else function.default + by
    return function.changed(values=np.where(allowed, function.values + by, FORBIDDEN), default=default)


def _open_top(functions: tuple[Function, ...]) -> int:
    """Return a top that no total reaches."""
    return max(FORBIDDEN, sum(function.highest(FORBIDDEN) for function in functions) + 1)


def _lost(model: Model) -> Iterator[str]:
    """Say which names and labels have no place in .uai and .wcsp."""
    if any(name != f"x{v}" for v, name in enumerate(model.names)):
        yield "names of variables are not kept: variables are numbered from 0 in the model's order"
    if any(labels is not None for labels in model.states):
        yield "labels of states are not kept: states are numbered from 0 in the model's order"


def _lost_evidence(model: Model) -> Iterator[str]:
    if model.evidence:
        yield f"the model's evidence on {len(model.evidence)} variables is not kept"


def _shift_notes(model: Model, stored: _Shifted) -> Iterator[str]:
    factor = (-1 if model.maximize else 1) * 10**model.decimals
    if stored.shift or factor != 1:
        scaled = "value" if factor == 1 else f"{factor} * value"
        yield f"costs are integers of at least 0: the file's total is {scaled} + {-stored.shift}"


def _wcsp_lines(model: Model) -> Iterator[str]:
    name = "_".join(model.name.split()) or "model"
    top = FORBIDDEN if model.top is None else model.top
    yield f"{name} {len(model.dims)} {max(model.dims, default=0)} {len(model.functions)} {top}"
    yield " ".join(map(str, model.dims))
    for f in model.functions:
        yield from _wcsp_function(f, model.dims, top)


def _wcsp_function(function: Function, dims: tuple[int, ...], top: int) -> Iterator[str]:
    head = " ".join(map(str, (len(function.scope), *function.scope)))
    if not function.scope:
        yield f"{head} {_written(function.at(()), top)} 0"
    elif function.rows is not None:
        yield f"{head} {_written(function.default, top)} {len(function.rows)}"
        for row, cost in zip(function.rows.tolist(), function.values.tolist(), strict=True):
            yield " ".join(map(str, (*row, _written(cost, top))))
    else:
        # Every cell is listed, so that it reads back as a dense function; the default is never used.
        yield f"{head} 0 {function.values.size}"
        states = product(*(range(dims[v]) for v in function.scope))
        for row, cost in zip(states, function.values.ravel().tolist(), strict=True):
            yield " ".join(map(str, (*row, _written(cost, top))))


def _written(cost: int | float, top: int) -> int:
    return top if cost >= FORBIDDEN else min(int(cost), top)
