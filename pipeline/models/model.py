"""The model: variables, domain sizes and functions, immutable, as every reader produces it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError

Kind = Literal["cost", "markov", "bayes"]

# A stored cost of at least this is forbidden whatever the top.
FORBIDDEN = 1 << 62
# So many rows are compared sooner one by one than sorted.
_FEW_ROWS = 64


@dataclass(frozen=True, eq=False)
class Function:
    """A function over a scope of distinct variables: dense, or explicit rows plus a default.

    Parameters
    ----------
    scope : tuple of int
        Variable indices; may be empty (a constant).
    values : ndarray
        Dense: one value per assignment, shape = domain sizes in scope order.
        Rows: shape ``(rows,)``. dtype int64 for costs, float64 for probabilities.
    rows : ndarray, shape (rows, arity), integer, optional
        State indices of each listed assignment, without repetition.
    default : int or float
        The value of every assignment that ``rows`` does not list.
    child : int, optional
        The variable whose conditional distribution this is (Bayesian networks).
    """

    scope: tuple[int, ...]
    values: NDArray[Any]
    rows: NDArray[Any] | None = None
    default: int | float = 0
    child: int | None = None

    @cached_property
    def positive(self) -> tuple[float, float]:
        """Least and greatest of the values above 0, of probabilities; 1 and 1 if all are 0."""
        values = np.append(self.values, self.default) if self.rows is not None else self.values
        values = values[values > 0]
        return (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)

    @cached_property
    def allowed(self) -> NDArray[np.bool_] | None:
        """Which values are not 0, of probabilities; None if the function excludes no assignment."""
        if self.rows is not None and self.default != 0:
            return None
        nonzero = np.asarray(self.values != 0)
        return None if self.rows is None and nonzero.all() else nonzero

    @cached_property
    def supported(self) -> bool:
        """Whether every state of every variable of a dense scope has a value other than 0, of probabilities."""
        if self.rows is not None or self.allowed is None or not self.scope:
            return self.allowed is None
        axes = range(self.values.ndim)
        return all(self.allowed.any(axis=tuple(a for a in axes if a != axis)).all() for axis in axes)

    def at(self, states: Sequence[int]) -> int | float:
        """Return the value at one assignment of the scope (state indices in scope order)."""
        if self.rows is None:
            value: int | float = self.values[tuple(states)].item()
            return value
        hits = np.flatnonzero((self.rows == np.asarray(states, dtype=self.rows.dtype)).all(axis=1))
        return self.values[hits[0]].item() if hits.size else self.default


def dense_function(scope: Sequence[int], values: NDArray[Any], child: int | None = None) -> Function:
    """Build a dense function; a variable named twice in the scope keeps only its diagonal."""
    distinct = tuple(dict.fromkeys(scope))
    if len(distinct) < len(scope):
        # The diagonal of equal axes is a view whose stride is the sum of theirs.
        size = dict(zip(scope, values.shape, strict=True))
        stride = dict.fromkeys(distinct, 0)
        for v, step in zip(scope, values.strides, strict=True):
            stride[v] += step
        shape, strides = [size[v] for v in distinct], [stride[v] for v in distinct]
        values = np.ascontiguousarray(np.lib.stride_tricks.as_strided(values, shape, strides))
    return Function(distinct, values, child=child)


def _least(function: Function) -> int:
    values = function.values[function.values < FORBIDDEN]
    ends = [int(values.min())] if values.size else []
    if function.rows is not None and function.default < FORBIDDEN:
        ends.append(int(function.default))
    return min(ends, default=0)


def row_function(scope: Sequence[int], rows: NDArray[Any], values: NDArray[Any], default: int | float) -> Function:
    """Build a function from listed rows; later duplicates win, a repeated variable keeps consistent rows."""
    distinct = tuple(dict.fromkeys(scope))
    if len(distinct) < len(scope):
        first = [list(scope).index(v) for v in scope]
        keep = (rows == rows[:, first]).all(axis=1)
        columns = [list(scope).index(v) for v in distinct]
        rows, values = rows[keep][:, columns], values[keep]
    if len(rows) > 1 and not (len(rows) <= _FEW_ROWS and len(set(map(tuple, rows.tolist()))) == len(rows)):
        _, last = np.unique(rows[::-1], axis=0, return_index=True)
        if len(last) < len(rows):
            pick = np.sort(len(rows) - 1 - last)
            rows, values = rows[pick], values[pick]
    return Function(distinct, values, rows=rows, default=default)


@dataclass(frozen=True, eq=False)
class Model:
    """A discrete graphical model.

    Costs are int64 and are minimised; an assignment is forbidden if one of its costs is ``FORBIDDEN`` or
    their sum reaches ``top``. A decimal or maximised file is stored scaled by ``10**decimals`` and, if
    ``maximize``, negated; :meth:`objective` turns a stored cost back. Probabilities and potentials are
    float64 >= 0 in natural scale, multiplied.

    Parameters
    ----------
    kind : {"cost", "markov", "bayes"}
        What the functions are: costs that add up, potentials that multiply, or conditional distributions.
    names : tuple of str
        Variable names, distinct.
    dims : tuple of int
        Domain sizes, each at least 1.
    states : tuple
        For each variable its state labels, or None where states are plain indices.
    functions : tuple of Function
    source : str
        Absolute path of the file that was read, empty for a model made in memory.
    top : int, optional
        Totals of at least this are forbidden; None for no such bound.
    """

    kind: Kind
    names: tuple[str, ...]
    dims: tuple[int, ...]
    states: tuple[tuple[str, ...] | None, ...]
    functions: tuple[Function, ...]
    top: int | None = None
    decimals: int = 0
    maximize: bool = False
    name: str = ""
    source: str = ""
    evidence: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def index(self) -> dict[str, int]:
        """Variable index by name."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all function values and rows."""
        return sum(f.values.nbytes + (0 if f.rows is None else f.rows.nbytes) for f in self.functions)

    @cached_property
    def lowest(self) -> tuple[int, ...]:
        """Least allowed cost of each function; 0 for a function that allows nothing."""
        return tuple(_least(f) for f in self.functions)

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """For each function, the cost from which no assignment with it can be allowed.

        That is where even the least costs of all other functions bring the total to ``top``.
        """
        if self.top is None:
            return (FORBIDDEN,) * len(self.functions)
        rest = self.top - sum(self.lowest)
        return tuple(min(FORBIDDEN, rest + low) for low in self.lowest)

    def state_index(self, variable: int, state: str | int) -> int:
        """Return the index of a state given by label or by number, counted from 0; a text that is a label is one.

        Raises
        ------
        ModelError
            If the variable has no such state.
        """
        labels = self.states[variable]
        if labels is not None and isinstance(state, str) and state in labels:
            return labels.index(state)
        try:
            number = int(state)
        except ValueError:
            number = -1
        if 0 <= number < self.dims[variable]:
            return number
        known = ", ".join(labels) if labels is not None else f"0..{self.dims[variable] - 1}"
        raise ModelError(f"variable {self.names[variable]!r} has no state {state!r}; its states are {known}")

    def label(self, variable: int, state: int) -> str | int:
        """Return the label of a state, or its index where the variable has no labels."""
        labels = self.states[variable]
        return state if labels is None else labels[state]

    def objective(self, cost: int) -> int | Decimal:
        """Turn a stored cost into the value that the file's author means."""
        signed = -cost if self.maximize else cost
        return Decimal(signed).scaleb(-self.decimals) if self.decimals else signed

    def observe(self, evidence: Mapping[str, str | int] | Iterable[tuple[str, str | int]]) -> dict[int, int]:
        """Turn named evidence into variable index → state index, on top of the model's own evidence.

        Raises
        ------
        ModelError
            If a variable or state is unknown, or a variable is observed in two different states.
        """
        found = dict(self.evidence)
        for name, state in evidence.items() if isinstance(evidence, Mapping) else evidence:
            if name not in self.index:
                raise ModelError(f"evidence names {name!r}, which is not a variable of the model")
            variable = self.index[name]
            value = self.state_index(variable, state)
            if found.setdefault(variable, value) != value:
                raise ModelError(f"variable {name!r} is observed in two different states")
        return found

    def cost(self, assignment: Sequence[int]) -> int | None:
        """Return the total cost of a full assignment (state indices), or None if it is forbidden."""
        total = 0
        for f in self.functions:
            value = int(f.at([assignment[v] for v in f.scope]))
            if value >= FORBIDDEN:
                return None
            total += value
        return None if self.top is not None and total >= self.top else total

    def log10_value(self, assignment: Sequence[int]) -> float:
        """Return log10 of the product of all functions at a full assignment; -inf for probability 0."""
        values = [float(f.at([assignment[v] for v in f.scope])) for f in self.functions]
        if any(v == 0.0 for v in values):
            return -math.inf
        return math.fsum(math.log10(v) for v in values)
