"""The E-step: expected counts of all learnt tables, and the log-likelihood of the rows, under given parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..compiled.compiled import Compiled, compile_model
from ..compiled.expected_counts import expected_counts, with_tables
from ..models.model import Model
from ..options import Keywords
from .data_rows import DataRows
from .parameters import Parameters, Tables, weighted_log

Array = NDArray[Any]


class Expectation:
    """Expected counts of rows under changing parameters.

    Complete rows are counted once. DataRows with missing cells are propagated in batches over one compiled tree, which
    stays the same while the parameters change.

    Parameters
    ----------
    parameters : Parameters
    rows : DataRows
    **options
        As in :func:`bucketflow.compile`.
    """

    def __init__(self, parameters: Parameters, rows: DataRows, **options: Unpack[Keywords]) -> None:
        self._parameters, self._options = parameters, options
        model = parameters.model
        used = {v for f in model.functions for v in f.scope}
        complete = _observed(rows, used)
        self._whole, self._open = rows.some(complete), rows.some(~complete)
        every = range(len(model.functions))
        self._whole_counts = {f: present_counts(model, f, self._whole) for f in every}
        self._counts: dict[int, Array] = {f: self._whole_counts[f] for f in parameters.learnt}
        self._asked = []
        for f in parameters.learnt:
            if _observed(self._open, model.functions[f].scope).all():
                self._counts[f] = self._counts[f] + present_counts(model, f, self._open)
            else:
                self._asked.append(f)

    @property
    def counts(self) -> Mapping[int, Array]:
        """Counts that do not depend on the parameters, by learnt function."""
        return self._counts

    @property
    def is_counting(self) -> bool:
        """Whether no row has a missing cell, so that counts do not depend on the parameters."""
        return not self._open.cases.count

    @cached_property
    def compiled(self) -> Compiled:
        """The tree of all rows.

        Preprocessing removes states that zeros exclude. Learnt tables therefore have no zeros while the tree is built.
        """
        parameters = self._parameters
        positive = parameters.with_tables(parameters.start("uniform", ()))
        return compile_model(replace(positive, evidence={}), families=True, background=False, **self._options)

    def at(self, tables: Tables) -> tuple[Mapping[int, Array], float]:
        """Return the expected counts by function, and ln of the probability of all rows.

        Raises
        ------
        FormatError, ModelError
            If a row has probability 0.
        """
        model = self._parameters.with_tables(tables)
        counts, total = dict(self._counts), self._whole_log(model)
        if self.is_counting:
            return counts, total
        scopes = [model.functions[f].scope for f in self._asked]
        rows = self._open
        under = with_tables(self.compiled, replace(model, evidence={}))
        found, logs = expected_counts(under, rows.cases, rows.weights, scopes, {})
        impossible = np.flatnonzero(~np.isfinite(logs))
        if len(impossible):
            raise rows.impossible(int(impossible[0]), _ZERO)
        for f, table in zip(self._asked, found, strict=True):
            counts[f] = counts[f] + table
        return counts, total + math.fsum((rows.weights * logs).tolist())

    def _whole_log(self, model: Model) -> float:
        """Return ln of the probability of the complete rows."""
        counts = self._whole_counts.items()
        parts = [weighted_log(table, model.functions[f].dense(model.dims)) for f, table in counts]
        if -math.inf in parts:
            f = model.functions[parts.index(-math.inf)]
            values = f.dense(model.dims)[tuple(self._whole.cases.columns[v] for v in f.scope)]
            raise self._whole.impossible(int(np.flatnonzero(values == 0.0)[0]), _ZERO)
        return math.fsum(parts)


_ZERO = "probability 0 under the fixed tables and the start"


def _observed(rows: DataRows, variables: Any) -> Array:
    """Return which rows observe a state of each of some variables."""
    found = np.ones(rows.cases.count, dtype=bool)
    for v in variables:
        column = rows.cases.columns.get(v)
        found &= column >= 0 if column is not None and column.ndim == 1 else False
    return found


def present_counts(model: Model, f: int, rows: DataRows) -> Array:
    """Count the joint states of a function's scope in the rows that observe all its variables."""
    scope = model.functions[f].scope
    shape, observed = [model.dims[v] for v in scope], _observed(rows, scope)
    rows = rows if observed.all() else rows.some(observed)
    if not rows.cases.count or not scope:
        return np.full(shape, rows.weights.sum())
    places = np.ravel_multi_index(tuple(rows.cases.columns[v] for v in scope), shape)
    return np.bincount(places, weights=rows.weights, minlength=math.prod(shape)).reshape(shape)
