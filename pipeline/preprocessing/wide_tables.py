"""Functions over very many variables that list few assignments, as chains of small functions over further variables.

The function reads its variables in order, some at a time, and remembers which of its rows are still possible. A hidden
variable between two links stores this: its states are the classes of rows that look the same from there on, and 0 for
none. Each assignment of the model's variables has exactly one state of these variables, so that optima do not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from math import prod
from typing import Any, Final

import numpy as np

from ..models.function import FORBIDDEN, Function
from ..models.model import Kind, Model
from .consistency import allowed
from .preprocessing_policy import PreprocessingPolicy

_MOST_CELLS: Final = PreprocessingPolicy.wide_cells

Prefix = tuple[int, ...]
Automaton = list[dict[Prefix, int]]
"""For each link what it reads, the state before it first, and the state behind it, or the number of a value."""


def with_links(model: Model, cells: int | None = None) -> Model:
    """Return a model of the same optima, sums and counts with chains of small functions in place of very wide ones.

    The model itself where there are none. Variables of links come last, and are not shown.

    Parameters
    ----------
    model : Model
    cells : int, optional
        Functions with more cells than this are wide; by default, functions that are too large for an array.
    """
    most = PreprocessingPolicy.current().wide_cells if cells is None else cells
    # a function over fewer variables cannot have this many cells
    least = most.bit_length() // max(1, (max(model.dims, default=1) - 1).bit_length())
    listed = [f for f, g in enumerate(model.functions) if g.rows is not None and len(g.scope) >= least]
    wide = [f for f in listed if _is_wide(model, f, model.functions[f], most)]
    if not wide:
        return model
    order = {v: at for at, v in enumerate(_order(model, wide))}
    names, dims, functions, taken = [*model.names], [*model.dims], [*model.functions], {*model.names}
    unused = (name for name in (f"link{n}" for n in count()) if name not in taken)
    for f in wide:
        sorted_ = _sorted(model.functions[f], order)
        parts = _parts([model.dims[v] for v in sorted_.scope], len(sorted_.values))
        automaton = _automaton(sorted_, parts)
        sizes = [1 + max(states.values(), default=0) for states in automaton[:-1]]
        read = [prod([model.dims[v] for v in sorted_.scope[part]]) for part in parts]
        if sum(map(prod, zip((1, *sizes), read, (*sizes, 1), strict=True))) > _MOST_CELLS:
            continue
        links = [*_links(model, sorted_, parts, automaton, len(dims))]
        functions[f : f + 1] = [links[0]]
        functions += links[1:]
        names += islice(unused, len(sizes))
        dims += sizes
    if len(dims) == len(model.dims):
        return model
    kind: Kind = "cost" if model.kind == "cost" else "markov"
    plain = [replace(function, child=None) for function in functions] if model.kind == "bayes" else functions
    added = len(dims) - len(model.dims)
    states = (*model.states, *[None] * added)
    return replace(
        model,
        kind=kind,
        names=tuple(names),
        dims=tuple(dims),
        states=states,
        functions=tuple(plain),
        hidden=model.hidden + added,
    )


def _is_wide(model: Model, f: int, function: Function, most: int) -> bool:
    """Whether a function has more cells than that, few rows, and is worth something in cells that it does not list."""
    if function.rows is None or (cells := prod([model.dims[v] for v in function.scope])) <= most:
        return False
    if cells <= PreprocessingPolicy.current().wide_cells and len(function.rows) ** 2 > cells:
        return False
    return bool(allowed(model, f, np.asarray(function.default)).item())


def _order(model: Model, wide: Sequence[int]) -> list[int]:
    """Return all variables, neighbours in other functions near each other: chains side by side stay narrow then."""
    near: list[set[int]] = [set() for _ in model.dims]
    for f in {*range(len(model.functions))}.difference(wide):
        for v in model.functions[f].scope:
            near[v].update(model.functions[f].scope)
    found: dict[int, None] = {}
    for start in sorted(range(len(near)), key=lambda v: (len(near[v]), v)):
        queue = deque([start] if start not in found else [])
        found.setdefault(start)
        while queue:
            new = [v for v in sorted(near[queue.popleft()], key=lambda v: (len(near[v]), v)) if v not in found]
            found.update(dict.fromkeys(new))
            queue.extend(new)
    return [*found]


def _sorted(function: Function, order: Mapping[int, int]) -> Function:
    assert function.rows is not None
    columns = sorted(range(len(function.scope)), key=lambda c: order[function.scope[c]])
    return function.changed(scope=tuple([function.scope[c] for c in columns]), rows=function.rows[:, columns])


def _parts(dims: Sequence[int], rows: int) -> list[slice]:
    """Cut a scope into what each link reads, if there are at most as many states between them as rows and one."""
    parts, start, cells = [], 0, rows + 1
    for at, d in enumerate(dims):
        if at - start >= 2 and cells * d > PreprocessingPolicy.current().link_cells:
            parts.append(slice(start, at))
            start, cells = at, (rows + 1) ** 2
        cells *= d
    return [*parts, slice(start, len(dims))]


def _automaton(function: Function, parts: Sequence[slice]) -> Automaton:
    """Return for each link where it leads; rows that agree in all that is behind a link, and in values, are one."""
    assert function.rows is not None
    rows = function.rows.tolist()
    prefixes = [{tuple(row[: part.stop]) for row in rows} for part in parts]
    first = {value: i for i, value in reversed([*enumerate(function.values.tolist())])}
    ends: dict[Prefix, int] = {tuple(row): first[v] for row, v in zip(rows, function.values.tolist(), strict=True)}
    automaton: Automaton = []
    for at in range(len(parts) - 1, -1, -1):
        own, before = parts[at], prefixes[at - 1] if at else {()}
        follows: dict[Prefix, dict[Prefix, int]] = {prefix: {} for prefix in before}
        for prefix in prefixes[at]:
            follows[prefix[: own.start]][prefix[own.start :]] = ends[prefix]
        classes: dict[frozenset[tuple[Prefix, int]], int] = {}
        ends = {prefix: classes.setdefault(frozenset(to.items()), len(classes) + 1) for prefix, to in follows.items()}
        automaton.insert(0, {(ends[p], *read): to for p, reads in follows.items() for read, to in reads.items()})
    return automaton


def _links(
    model: Model, function: Function, parts: Sequence[slice], automaton: Automaton, first: int
) -> Iterator[Function]:
    """Yield the functions of a chain, with hidden variables numbered from ``first`` on."""
    forbidden: Any = FORBIDDEN if model.kind == "cost" else 0.0
    neutral: Any = 0 if model.kind == "cost" else 1.0
    states = [1 + max(own.values(), default=0) for own in automaton[:-1]]
    for at, (part, own) in enumerate(zip(parts, automaton, strict=True)):
        before, last = at > 0, at == len(parts) - 1
        scope = ((first + at - 1,) if before else ()) + function.scope[part]
        dims = ([states[at - 1]] if before else []) + [model.dims[v] for v in function.scope[part]]
        behind: Any = np.zeros(dims, np.int64)
        for (state, *read), to in own.items():
            behind[(state, *read) if before else tuple(read)] = to if not last else to + 1
        if last:
            yield Function(scope, np.append(function.values.dtype.type(function.default), function.values)[behind])
            continue
        values = np.full((*dims, states[at]), forbidden, function.values.dtype)
        np.put_along_axis(values, behind[..., None], neutral, axis=-1)
        yield Function((*scope, first + at), values)
