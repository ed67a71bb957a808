"""Bayesian networks as files give them: checked once, and normalised where the format's own tools do so."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace

import numpy as np

from ....tasks.steps.light_dataclass import dataclass
from ...errors import FormatError, printable
from ...models.bayesian_networks import (
    EVEN,
    MOST_ROUNDED,
    Fault,
    SumSpread,
    children_fault,
    cycle_fault,
    normalised,
    rounding,
    row_fault,
    row_sums,
    spread_of,
)
from ...models.function import compact, joined
from ...models.model import Function, Model

Refuse = Callable[[int | None, str, str], FormatError]
"""Builds the error at a function, or at a missing function (None), from the expected and the found content."""

_SHOWN, _NAMED = 3, 8
_NAME = re.compile(r"[\w-]+")
# Properties of JavaBayes that make a set of networks of one.
_DENSITIES = ("constant-density-ratio", "constant-density-bounded")
_CREDAL = ("credal-set", "epsilon-contaminated", "total-variation", *_DENSITIES)
UNCHECKED = "to read it as it is: --no-check, or check=False"


def checked(model: Model, refuse: Refuse, *, counts: bool = False) -> Model:
    """Return a network whose rows sum to 1.

    Rows that do not are divided by their sums, with a note: within the digits that they are printed with, or always
    where tables may be ``counts``.

    Raises
    ------
    FormatError
        If a variable has no distribution or two, a row is no distribution, or there is a cycle.
    """
    functions, names = model.functions, model.names
    if (fault := children_fault(functions, names)) is not None:
        raise refused(fault, refuse)
    spread = spread_of(functions, model.dims)
    if uneven := spread.uneven:
        for f in uneven:
            if spread.low[f] <= 0 if counts else not is_rounded(functions[f], model.dims):
                raise refused(row_fault(functions, f, names, model.dims, model.states), refuse)
    if (fault := cycle_fault(functions, names)) is not None:
        raise refused(fault, refuse)
    return _normalised(model, uneven, spread) if uneven else model


def checked_product(model: Model, refuse: Refuse, *, backwards: bool = False) -> Model:
    """Check a network in a UAI format, and return it. Its answers are for the product of the tables as written.

    Their networks may hold evidence or constraints, which exclude configurations: then rows that sum to less than 1 and
    tables of 0 and 1 are left as they are, with a note. Tables whose rows sum to 1 in another order only were written
    in that: they are turned, with a note, if it is known.

    Parameters
    ----------
    backwards : bool
        Whether a program wrote the file that lists tables with the first variable of the scope fastest.

    Raises
    ------
    FormatError
        If a variable has no distribution or two, other rows do not sum to 1, or there is a cycle.
    """
    functions, names, dims = model.functions, model.names, model.dims
    if (fault := children_fault(functions, names)) is not None:
        raise refused(replace(fault, expected=f"{fault.expected}, the last of its scope"), refuse)
    spread = spread_of(functions, dims)
    uneven = spread.uneven
    near = np.maximum(spread.high - 1, 1 - spread.low) <= MOST_ROUNDED
    wrong = [f for f in uneven if not near[f] or not is_rounded(functions[f], dims)]
    if wrong and all(_is_shuffled(functions[f], dims) for f in wrong):
        if (turned := _turned_model(model, backwards)) is None:
            raise refused(row_fault(functions, wrong[0], names, dims, model.states), refuse)
        model, uneven, wrong = turned, [], []
    if (at := _unexplained(functions, spread, wrong)) is not None:
        raise refused(row_fault(functions, at, names, dims, model.states), refuse)
    if not wrong and (fault := cycle_fault(model.functions, names)) is not None:
        raise refused(fault, refuse)
    return _as_written(model, uneven, spread) if uneven else model


def _unexplained(functions: Sequence[Function], spread: SumSpread, wrong: list[int]) -> int | None:
    """Return a function whose rows do not sum to 1 for a reason other than evidence or constraints, or None.

    Where they do, rows of 0 show it; others sum to less than 1, or their table is a relation of 0 and 1.
    """
    if not wrong or spread.low[wrong].min() > 0:
        return wrong[0] if wrong else None
    larger: list[int] = np.intersect1d(wrong, np.flatnonzero(spread.high > 1 + EVEN)).tolist()
    if not larger or _are_relations([functions[f] for f in larger]):
        return None
    return next(f for f in larger if not _are_relations([functions[f]]))


def _are_relations(functions: Sequence[Function]) -> bool:
    values = joined([function.values for function in functions])
    return bool(((values == 0) | (values == 1)).all())


def _turned_model(model: Model, backwards: bool) -> Model | None:
    """Return a model whose tables were written with their first variables fastest, if its rows sum to 1 then.

    With several parents, only rows from a known program show the order of the parents.
    """
    functions, dims = model.functions, model.dims
    turned = [_turned(function, dims) for function in functions]
    known = backwards or all(sum(dims[v] > 1 for v in function.scope) <= 2 for function in functions)
    if not known or not all(is_rounded(function, dims) for function in turned):
        return None
    note = (
        "tables are read with the first variable of each scope fastest, as pgmpy writes them: only so do rows sum to 1"
    )
    return model.with_functions(dict(enumerate(turned)), note)


def _is_shuffled(function: Function, dims: Sequence[int]) -> bool:
    """Whether the entries of a table would form rows that sum to 1 in another order."""
    width = dims[function.child or 0]
    rows = math.prod([dims[v] for v in function.scope]) // width
    return bool(abs(float(function.dense(dims).sum()) - rows) <= rows * rounding(function.values, width))


def _turned(function: Function, dims: Sequence[int]) -> Function:
    """Return a function whose values were written with the first variable fastest."""
    shape = [dims[v] for v in function.scope]
    values = function.dense(dims).reshape(shape[::-1]).transpose()
    return compact(Function(function.scope, np.ascontiguousarray(values), child=function.child))


def _as_written(model: Model, uneven: Sequence[int], spread: SumSpread) -> Model:
    names = listed([model.names[model.functions[f].child or 0] for f in uneven])
    note = (
        f"rows of {names} sum to {_interval(spread)}, not to 1: answers are computed for the product of the tables "
        "as written"
    )
    return replace(model, notes=(*model.notes, note))


def refused(fault: Fault, refuse: Refuse) -> FormatError:
    """Return the error of a fault."""
    return refuse(fault.function, fault.expected, f"{fault.found} ({UNCHECKED})")


def is_rounded(function: Function, dims: Sequence[int]) -> bool:
    """Whether rows differ from 1 by at most the rounding of their printed digits."""
    allowed = rounding(function.values, dims[function.child or 0])
    return bool(np.abs(row_sums(function, dims) - 1).max(initial=0.0) <= allowed)


def _normalised(model: Model, uneven: Sequence[int], spread: SumSpread) -> Model:
    functions = model.functions
    names = [model.names[functions[f].child or 0] for f in uneven]
    note = f"probabilities of {listed(names)} were normalised: rows summed to {_interval(spread)}"
    return model.with_functions({f: normalised(functions[f], model.dims) for f in uneven}, note)


@dataclass
class Properties:
    """Content that programs store beside a network and that is not read, by name."""

    passed: dict[str, None] = field(default_factory=dict)
    observed: list[str] = field(default_factory=list)

    def add(self, text: str, variable: str = "") -> str | None:
        """Take a property of a variable, or of something else; return why the file cannot be read with it."""
        name, *values = _NAME.findall(text) or ("without a name",)
        if name in _CREDAL:
            return f"a set of networks (property {name}), which is not read"
        if name == "observed" and variable:
            self.observed.append(f"{variable} = {' '.join(values)}")
        else:
            self.passed[f"property {name}"] = None
        return None

    def notes(self) -> tuple[str, ...]:
        """Return notes about content that answers do not show."""
        observed = f"observations in the file are not used as evidence: {listed(self.observed)}"
        return (*passed_over(self.passed), *([observed] if self.observed else ()))


def passed_over(what: Iterable[str]) -> tuple[str, ...]:
    """Return the note about what a file says that no answer depends on, if there is something."""
    names = [*dict.fromkeys(what)]
    if not names:
        return ()
    shown = ", ".join(printable(name, 30) for name in names[:_NAMED])
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (f"ignored, because no answer depends on it: {shown}{more}",)


def listed(names: Sequence[str]) -> str:
    """Return names of variables, or how many there are and the first of them."""
    shown = ", ".join(printable(name, 30) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{len(names)} variables ({shown}, …)"


def _interval(spread: SumSpread) -> str:
    """Return the range of the row sums that differ from 1."""
    ends = dict.fromkeys(f"{end:.7g}" for end in (spread.least, spread.most))
    return " to ".join(ends)
