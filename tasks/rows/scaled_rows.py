"""Sums of products on tables that store all cells or only the nonzero cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..steps.number_limits import ordered_sum
from ..steps.semiring import LOG_SUM, SUM_PRODUCT, Semiring
from ..steps.step import Step
from ..sweeps.scaled import Scaled, SumProduct, from_logs, in_range, joined_scales, measured
from .algebra import Representation, bare, narrowed
from .keys import Keys, Words
from .memory_account import MemoryAccount
from .ordering import Ranges, gathered, union
from .relation import Relation, Table, to_dense
from .row_backend import backend_of

Array = NDArray[Any]


@dataclass(slots=True, eq=False)
class ScaledRows:
    """Rows whose true entries are ``values * exp(log_scale)``; with ``logs``, ``exp(values + log_scale)``.

    The fields mean what they do for :class:`.Scaled`.
    """

    rows: Relation
    log_scale: float = 0.0
    low: float = 0.0
    high: float = 0.0
    logs: bool = False


Weights = Scaled | ScaledRows


@dataclass(frozen=True)
class SumProductRows:
    """The algebra of scaled tables, each an array or rows.

    Parameters
    ----------
    choice : Choice
    base : SumProduct
        The algebra that loops over all cells.
    """

    choice: Representation
    base: SumProduct

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels may be used."""
        return self.base.compiled

    def step(self, step: Step, tables: Sequence[Weights], threads: int) -> Weights:
        """Return the output of ``step``, on natural values wherever its range allows."""
        sizes = self.choice.sizes
        gone = {v for axes in step.input_axes for v in axes if v not in step.axes}
        natural = not any(t.logs for t in tables) and in_range(tables, ordered_sum(math.log(sizes[v]) for v in gone))
        choice = self.choice if natural else replace(self.choice, semiring=LOG_SUM)
        inputs = choice.tables(step, [values_of(t, logs=not natural) for t in tables])
        if choice.is_swept(step, inputs):
            choice.sweep(step)
            own = choice.tables(step, [values_of(t, logs=t.logs) for t in tables])
            placed = [
                _array(with_values(t, bare(one))) for t, one in zip(tables, choice.placed(step, own), strict=True)
            ]
            return self._kept(step, self.base.step(step, placed, threads))
        rows = choice.joined(step, inputs)
        near = [one.values for one in inputs if type(one.values) is type(rows.values)]
        if any(np.may_share_memory(rows.values, values) for values in near):
            rows = replace(rows, values=rows.values.copy())
        return self._kept(step, _scaled(rows, math.fsum(t.log_scale for t in tables), choice.semiring))

    def _kept(self, step: Step, table: Weights) -> Weights:
        """Return the result of a step in the form in which it is kept."""
        choice = replace(self.choice, semiring=LOG_SUM) if table.logs else self.choice
        return with_values(table, choice.made(step, values_of(table, logs=table.logs)))

    def restrict(self, table: Weights, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> Weights:
        """Return the table with some variables fixed; its bounds still hold."""
        values = values_of(table, logs=table.logs)
        found = narrowed(values, axes, sizes, states)
        return table if found is values else with_values(table, self.choice.room.keep(found))

    def resized(self, sizes: tuple[int, ...]) -> Self:
        """Return the algebra with bounds of other sums."""
        return replace(self, choice=replace(self.choice, sizes=sizes), base=self.base.resized(sizes))

    def listed(self, keys: Keys, words: Words, values: Scaled) -> ScaledRows:
        """Return a leaf table from the keys of some of its cells and their values, zeros among them."""
        rows = gathered(keys, words, values.values, _semiring(values))
        return ScaledRows(rows, values.log_scale, values.low, values.high, values.logs)

    def leaf(self, table: Scaled, axes: Sequence[int]) -> Weights:
        """Return a leaf table as whichever takes fewer bytes."""
        choice = replace(self.choice, semiring=_semiring(table))
        return with_values(table, choice.smaller(table.values, axes))

    def in_room(self, room: MemoryAccount) -> Self:
        """Return the algebra with another account."""
        return replace(self, choice=replace(self.choice, room=room))

    def keyed(self, table: Weights, axes: Sequence[int]) -> tuple[Table, dict[str, Any]]:
        """Return a table with its variables, and what belongs to its values besides."""
        kept = {"log_scale": table.log_scale, "low": table.low, "high": table.high, "logs": table.logs}
        return self.choice.table(values_of(table, logs=table.logs), axes), kept

    def restored(self, values: Array, kept: Mapping[str, Any]) -> Scaled:
        """Return an array of all cells with the data that belongs to its values."""
        return Scaled(values, **kept)

    def within(self, table: Weights, axes: Sequence[int], ranges: Ranges) -> Weights:
        """Return the part of a table within ranges, with its states counted from their start."""
        choice = replace(self.choice, semiring=_semiring(table))
        return with_values(table, choice.within(values_of(table, logs=table.logs), axes, ranges))

    def united(self, parts: Sequence[tuple[Relation, Mapping[str, Any]]]) -> ScaledRows:
        """Return the sum of runs, each with its scale."""
        live = [(run, kept) for run, kept in parts if len(run)]
        if not live:
            return ScaledRows(parts[0][0])
        values = backend_of(live[0][0].values).arrays.concatenate([run.values for run, _ in live])
        ends = np.cumsum([len(run) for run, _ in live]).tolist()
        views = [values[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]
        scaled = [(view, Scaled(view, **kept)) for view, (_, kept) in zip(views, live, strict=True)]
        joined = joined_scales(values, scaled)
        semiring = _semiring(joined)
        rows = union([replace(run, values=view) for view, (run, _) in zip(views, live, strict=True)], semiring)
        return _scaled(rows, joined.log_scale, semiring)

    def made(self, step: Step, table: Weights) -> Weights:
        """Return the result of a step that was run elsewhere in the form in which it is kept."""
        return self._kept(step, table)


def values_of(table: Weights, *, logs: bool) -> Array | Relation:
    """Return the array or the rows of a table, as logarithms if asked."""
    values = table.values if isinstance(table, Scaled) else table.rows
    if table.logs == logs:
        return values
    with np.errstate(divide="ignore"):
        if isinstance(values, Relation):
            return replace(values, values=np.log(values.values))
        return np.log(values)


def _semiring(table: Weights) -> Semiring:
    return LOG_SUM if table.logs else SUM_PRODUCT


def with_values(table: Weights, values: Array | Relation) -> Weights:
    """Return a table with the same entries, as an array or as rows."""
    kind = ScaledRows if isinstance(values, Relation) else Scaled
    return kind(values, table.log_scale, table.low, table.high, table.logs)  # type: ignore[arg-type]


def _array(table: Weights) -> Scaled:
    """Return a table with all its cells."""
    if isinstance(table, Scaled):
        return table
    values = to_dense(table.rows, _semiring(table)).values
    return Scaled(values, table.log_scale, table.low, table.high, table.logs)


def _scaled(rows: Relation, log_scale: float, semiring: Semiring) -> ScaledRows:
    """Scale rows that no other code holds, **in place**, with exact bounds."""
    if not len(rows):
        return ScaledRows(rows, log_scale, logs=semiring == LOG_SUM)
    found = from_logs(rows.values, log_scale) if semiring == LOG_SUM else measured(rows.values, log_scale)
    return ScaledRows(replace(rows, values=found.values), found.log_scale, found.low, found.high, found.logs)
