"""Sums of products that can neither underflow nor overflow: float64 tables with a logarithmic scale.

Each table carries ln-bounds of its non-zero entries. They are propagated by interval arithmetic and only
measured when they become too loose to prove that the next step's products stay in range; a step whose
products really do not fit float64 is done on logarithms (log-sum-exp).

`normalised`, `weighed` and `above_least` turn a table of a belief into numbers without a scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ..cpu.dense import contract, run
from ..steps.light_dataclass import dataclass
from ..steps.lowering import Quick
from ..steps.number_limits import FAR_INTEGER, LARGEST_EXPONENT, LEAST_FACTOR, ordered_sum
from ..steps.semiring import LOG_SUM
from ..steps.step import Step
from ..steps.streaming import BLOCK_CELLS
from .sweep import restrict

Array = NDArray[Any]

# ln of the largest and of the smallest number whose products and sums keep their precision.
HIGHEST = LARGEST_EXPONENT
LOWEST = -HIGHEST
# An output whose bounds are further from 1 than this is measured and scaled immediately. Three outputs within the bound
# can be multiplied.
LOOSE = HIGHEST / 3
# As far above 1 as the maximum of a measured table may stay on a device, and as far from 1 as the middle of an output's
# bounds may be there before a small input is scaled.
NEAR = LOOSE / 2
# How much smaller than the largest input one is whose scaling costs nothing beside the step.
_SMALL = 64


@dataclass(slots=True, eq=False)
class Scaled:
    """A table whose true entries are ``values * exp(log_scale)``; with ``logs``, ``exp(values + log_scale)``.

    Parameters
    ----------
    values : ndarray, float64
    log_scale : float
        Natural logarithm of the common factor.
    low, high : float
        Every non-zero entry of ``values`` (every finite one, with ``logs``) has its ln in this range.
    """

    values: Array
    log_scale: float = 0.0
    low: float = LOWEST
    high: float = 0.0
    logs: bool = False

    def with_values(self, values: Array) -> Scaled:
        """Return other values with the same scale and bounds."""
        return Scaled(values, self.log_scale, self.low, self.high, self.logs)

    def log_value(self) -> float:
        """Return ln of a table's single entry; -inf for 0."""
        value = float(self.values.item())
        if self.logs:
            return value + self.log_scale
        return math.log(value) + self.log_scale if value > 0.0 else -math.inf


def measured(values: Array, log_scale: float = 0.0) -> Scaled:
    """Wrap natural values with exact bounds, scaled **in place** to maximum 1; all zeros stay zeros.

    What spans more than natural values may is put on logarithms. On a device tables are read once, and near enough
    to 1 they stay as they are: more passes cost more than a step.
    """
    if type(values) is not np.ndarray:
        return _measured_there(values, log_scale)
    top = float(values.max())
    if top == 0.0:
        return Scaled(values, log_scale, 0.0, 0.0)
    low, high = math.log(_lowest_positive(values, top)), math.log(top)
    if low - high < LOWEST:
        return _on_logs(values, log_scale, low, high)
    if top != 1.0:
        np.divide(values, top, out=values)
    return Scaled(values, log_scale + high, low - high, 0.0)


def measured_each(tables: Sequence[Array]) -> list[Scaled]:
    """Wrap natural values of small tables, as :func:`measured` does, all at once; several are copied first."""
    if len(tables) < 2:
        return [measured(table) for table in tables]
    values, ends = np.concatenate(tables), np.cumsum([len(table) for table in tables])
    starts = np.append(0, ends[:-1])
    tops = np.maximum.reduceat(values, starts)
    least = np.minimum.reduceat(np.where(values > 0.0, values, math.inf), starts)
    # of zeros as of ones, so that they stay what they are
    lows, highs = ([*map(math.log, np.where(tops > 0.0, found, 1.0).tolist())] for found in (least, tops))
    near = [low - high >= LOWEST for low, high in zip(lows, highs, strict=True)]
    np.divide(values, np.repeat(np.where(near & (tops > 0.0), tops, 1.0), ends - starts), out=values)
    parts = zip(starts.tolist(), ends.tolist(), lows, highs, near, strict=True)
    return [
        Scaled(values[start:end], high, low - high, 0.0) if fits else _on_logs(values[start:end], 0.0, low, high)
        for start, end, low, high, fits in parts
    ]


def _on_logs(values: Array, log_scale: float, low: float, high: float) -> Scaled:
    """Put natural values with these exact bounds on logarithms, **in place**, the greatest 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(values, out=values)
    return Scaled(np.subtract(logs, high, out=logs), log_scale + high, low - high, 0.0, logs=True)


def _measured_there(values: Array, log_scale: float) -> Scaled:
    from ..gpu.gather import extremes_above

    lowest, highest = extremes_above(values, 0.0)
    if highest < lowest:
        return Scaled(values, log_scale, 0.0, 0.0)
    low, high = math.log(lowest), math.log(highest)
    if high <= NEAR and low >= -LOOSE:
        return Scaled(values, log_scale, low, high)
    if low - high < LOWEST:
        return _on_logs(values, log_scale, low, high)
    np.divide(values, highest, out=values)
    return Scaled(values, log_scale + high, low - high, 0.0)


def _bounded(table: Scaled) -> Scaled:
    """Return the table with exact bounds; its values, which others may read too, stay as they are."""
    high = float(table.values.max())
    if table.logs or high == 0.0:
        return table
    return replace(table, low=math.log(_lowest_positive(table.values, high)), high=math.log(high))


def _lowest_positive(values: Array, high: float) -> float:
    """Minimum over the non-zero entries of a table with maximum ``high``, in blocks so that no copy grows."""
    if type(values) is not np.ndarray:
        from ..gpu.gather import lowest_positive

        return lowest_positive(values, high)
    flat = values.reshape(-1)
    least = float(np.minimum.reduce(flat))
    if least > 0.0:
        return least
    blocks = (flat[i : i + BLOCK_CELLS] for i in range(0, flat.size, BLOCK_CELLS))
    return min([float(b[b > 0.0].min(initial=high)) for b in blocks])


def joined_scales(values: Array, parts: Sequence[tuple[Array, Scaled]]) -> Scaled:
    """Bring parts of one table to a common scale, in place.

    Parameters
    ----------
    values : ndarray, float64
        The whole table, flat.
    parts : sequence of (ndarray, Scaled)
        Views that make up ``values``, and the scale and bounds of each.
    """
    live = [(view, part) for view, part in parts if float(view.max()) > (-math.inf if part.logs else 0.0)]
    if not live:
        for view, _ in parts:  # logarithms of zeros among them
            view[...] = 0.0
        return Scaled(values, 0.0, 0.0, 0.0)
    scale = max(part.log_scale for _, part in live)
    low = min(part.log_scale - scale + part.low for _, part in live)
    high = max(part.high for _, part in live)
    if any(part.logs for _, part in parts) or low < LOWEST:
        for view, part in parts:
            with np.errstate(divide="ignore"):
                logs = view if part.logs else np.log(view)
            view[...] = logs + (part.log_scale - scale)
        return Scaled(values, scale, low, high, logs=True)
    for view, part in live:
        if part.log_scale != scale:
            np.multiply(view, math.exp(part.log_scale - scale), out=view)
    return Scaled(values, scale, low, high)


def weighted(table: Scaled, sizes: Sequence[int], likelihoods: Mapping[int, Array]) -> Scaled:
    """Return the table times likelihoods, measured; the given one stays as it is.

    Parameters
    ----------
    table : Scaled
    sizes : sequence of int
        Shape of the table.
    likelihoods : mapping of int to ndarray
        For some axes one number >= 0 for each state.
    """
    factors = [w.reshape([-1] + [1] * (len(sizes) - axis - 1)) for axis, w in likelihoods.items()]
    ends = [np.log([w[w > 0.0].min(), w.max()]) for w in factors if (w > 0.0).any()]
    low, high = (
        table.low + ordered_sum(min(a, 0.0) for a, _ in ends),
        table.high + ordered_sum(max(b, 0.0) for _, b in ends),
    )
    logs = table.logs or low < LOWEST or high > HIGHEST
    values = (as_logs(table) if logs else table).values.reshape(sizes)
    for factor in factors:
        if logs:
            with np.errstate(divide="ignore"):
                factor = np.log(factor)
        values = values + factor if logs else values * factor
    flat = np.ascontiguousarray(values).reshape(-1)
    return from_logs(flat, table.log_scale, LOWEST) if logs else measured(flat, table.log_scale)


def as_logs(table: Scaled) -> Scaled:
    """Return the table on logarithms."""
    if table.logs:
        return table
    with np.errstate(divide="ignore"):
        return replace(table, values=np.log(table.values), logs=True)


def from_logs(logs: Array, log_scale: float, lowest: float = LOWEST / 2) -> Scaled:
    """Shift logarithms to maximum 0, **in place**; return natural values again if none falls below ``lowest``."""
    high = float(logs.max())
    if high == -math.inf:
        return Scaled(np.zeros_like(logs), log_scale, 0.0, 0.0)
    low = _lowest_finite(logs, high) - high
    np.subtract(logs, high, out=logs)
    if low < lowest:
        return Scaled(logs, log_scale + high, low, 0.0, logs=True)
    return Scaled(np.exp(logs, out=logs), log_scale + high, low, 0.0)


def _lowest_finite(logs: Array, high: float) -> float:
    if type(logs) is not np.ndarray:
        from ..gpu.gather import lowest_finite

        return lowest_finite(logs, high)
    return float(np.min(logs, where=logs > -math.inf, initial=high))


class Bounded(Protocol):
    """A table whose non-zero entries have their ln within bounds."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


def in_range(tables: Sequence[Bounded], summed: float) -> bool:
    """Whether every product, partial product and sum of a step stays in the range of natural numbers.

    ``summed`` is ln of the number of cells that are summed into one.
    """
    low, high = 0.0, summed
    for table in tables:
        if table.low < 0.0:
            low += table.low
        if table.high > 0.0:
            high += table.high
    return low >= LOWEST and high <= HIGHEST


def centred(tables: Sequence[Scaled], summed: float) -> Sequence[Scaled]:
    """Scale the smallest input of a step so that the bounds of its output are about 1, if it is small beside others.

    The factor is a power of 2, so that no value is rounded. ``summed`` is ln of the cells that are summed into one.
    """
    middle = (ordered_sum([t.low + t.high for t in tables]) + summed) / 2
    if abs(middle) <= NEAR:
        return tables
    sizes = [t.values.size for t in tables]
    least = min(range(len(tables)), key=sizes.__getitem__)
    table = tables[least]
    if table.logs or sizes[least] * _SMALL > max(sizes):
        return tables
    wanted = min(max(-middle, LOWEST - min(table.low, 0.0)), HIGHEST - max(table.high, 0.0))
    power = round(wanted / math.log(2.0))
    shift = power * math.log(2.0)
    low, high, log_scale = table.low + shift, table.high + shift, table.log_scale - shift
    moved = Scaled(table.values * 2.0**power, log_scale, low, high)
    result = [*tables[:least], moved, *tables[least + 1 :]]
    return result if in_range(result, summed) else tables


def _fits(tables: Sequence[Scaled], summed: float) -> bool:
    return not any(t.logs for t in tables) and in_range(tables, summed)


@dataclass(frozen=True)
class SumProduct:
    """The algebra of :class:`Scaled` tables.

    Parameters
    ----------
    sizes : tuple of int
        Domain size of each variable.
    compiled : bool
        Whether compiled kernels may be used.
    """

    sizes: tuple[int, ...]
    compiled: bool = True

    def step(self, step: Step, tables: Sequence[Scaled], threads: int) -> Scaled:
        """Return the output of ``step``, on natural values wherever its range allows."""
        summed = math.log(step.lowered.cells // step.lowered.out_cells)
        tables = self._moved(tables, summed)
        scale = math.fsum([t.log_scale for t in tables])
        if not _fits(tables, summed):
            return self._endangered_step(step, tables, summed, threads)
        values = self._run(step, tables, threads)
        low, high = ordered_sum([t.low for t in tables]), ordered_sum([t.high for t in tables]) + summed
        # Nobody else has seen the output yet, so this is the time to scale it.
        if low < -LOOSE or high > LOOSE:
            return measured(values, scale)
        return Scaled(values, scale, low, high)

    def _moved(self, tables: Sequence[Scaled], summed: float) -> Sequence[Scaled]:
        """Return the inputs of a step, perhaps on other scales."""
        return tables

    def _run(self, step: Step, tables: Sequence[Scaled], threads: int) -> Array:
        return run(step.lowered, [t.values for t in tables], threads=threads, compiled=self.compiled)

    def _endangered_step(self, step: Step, tables: Sequence[Scaled], summed: float, threads: int) -> Scaled:
        """Do a step whose bounds do not prove that its products stay in range.

        What underflows loses at most 2**-1074 for each product, times the factors above 1 that it meets later, which
        is nothing beside a sum that is itself far above: natural values will do if every entry of the output is.
        """
        tables = [_bounded(t) for t in tables]
        scale = math.fsum(t.log_scale for t in tables)
        high = ordered_sum(max(t.high, 0.0) for t in tables)
        if not any(t.logs for t in tables) and high + summed <= HIGHEST:
            values = self._run(step, tables, threads)
            if _fits(tables, summed) or float(values.min()) > LEAST_FACTOR * math.exp(high):
                return measured(values, scale)
            del values
        return self.log_step(step, tables, threads)

    def restrict(self, table: Scaled, axes: Sequence[int], sizes: Sequence[int], states: Mapping[int, int]) -> Scaled:
        """Return the table with some variables fixed; its bounds still hold."""
        values = restrict(table.values, axes, sizes, states)
        return table if values is table.values else table.with_values(values)

    def resized(self, sizes: tuple[int, ...]) -> Self:
        """Return the algebra with bounds of other sums."""
        return replace(self, sizes=sizes)

    def log_step(self, step: Step, tables: Sequence[Scaled], threads: int) -> Scaled:
        sizes = dict(enumerate(self.sizes))
        axes, logs = self._merged(step, [as_logs(t).values for t in tables], sizes)
        out = contract(logs, axes, step.axes, sizes, LOG_SUM, threads=threads)
        return from_logs(out, math.fsum(t.log_scale for t in tables))

    def _merged(
        self, step: Step, logs: Sequence[Array], sizes: Mapping[int, int]
    ) -> tuple[list[tuple[int, ...]], list[Array]]:
        """Join the small inputs that compiled loops would join too: without loops each is read for every cell."""
        merges = [merge for merge in step.lowered.loops.merges if len(merge.inputs) > 1] if step.lowered.loops else []
        joined = {i for merge in merges for i in merge.inputs}
        axes = [step.input_axes[i] for i in range(len(logs)) if i not in joined]
        tables = [table for i, table in enumerate(logs) if i not in joined]
        for merge in merges:
            inputs = [step.input_axes[i] for i in merge.inputs]
            axes.append(tuple(dict.fromkeys([v for scope in inputs for v in scope])))
            tables.append(contract([logs[i] for i in merge.inputs], inputs, axes[-1], sizes, LOG_SUM))
        return axes, tables


# Small steps of a sum-product sweep with as little ado as NumPy allows.
#
# A network of hundreds of small tables spends its time between the loops, not in them: such steps are planned
# once for all that look alike and run as one call to ``einsum``, a third of the time of the general way.


@dataclass(frozen=True)
class QuickSumProduct(SumProduct):
    """The algebra of scaled tables, with a short way for steps that were planned as quick ones."""

    def step(self, step: Step, tables: Sequence[Scaled], threads: int) -> Scaled:
        """Return the output of a step; small steps that provably stay in range take one NumPy call.

        Parameters
        ----------
        step : Step
        tables : sequence of Scaled
            Its inputs, flat, with their scales and bounds.
        threads : int
            Cores for large steps.
        """
        lowered = step.lowered
        if lowered.quick is None:
            return super().step(step, tables, threads)
        shapes, subscripts, pairs, summed = lowered.quick
        if pairs and self.compiled and lowered.regime != "small":
            return super().step(step, tables, threads)
        # the bounds of SumProduct._fits, and those of the result, in one pass
        low = high = scale = below = above = 0.0
        views = []
        for table, shape in zip(tables, shapes, strict=True):
            if table.logs:
                return super().step(step, tables, threads)
            low, high, scale = low + table.low, high + table.high, scale + table.log_scale
            if table.low < 0.0:
                below += table.low
            if table.high > 0.0:
                above += table.high
            views.append(table.values.reshape(shape))
        if below < LOWEST or above + summed > HIGHEST:
            return super().step(step, tables, threads)
        if pairs or len(views) == 1:
            values = einsum_step(lowered.quick, views).reshape(-1)
        else:
            values = np.einsum(subscripts, *views).reshape(-1)
        if low < -LOOSE or high + summed > LOOSE:
            return measured(values, scale)
        return Scaled(values, scale, low, high + summed)


def einsum_step(quick: Quick, views: list[Array], out: Array | None = None) -> Array:
    """Compute a step from its shaped inputs, which are taken out of the list."""
    for i, j, joined in quick.pairs:
        right = views.pop(j)
        views.append(np.einsum(joined, views.pop(i), right))
    if out is not None:
        return np.einsum(quick.subscripts, *views, out=out)
    values: Array = np.einsum(quick.subscripts, *views)
    # with nothing to sum, einsum returns a view of its only input
    return values.copy() if len(views) == 1 and quick.log_summed == 0.0 else values


def normalised(belief: Scaled) -> Array:
    """Return a belief's entries as probabilities; all zeros stay zeros."""
    return weighed(belief)[1]


def weighed(belief: Scaled) -> tuple[float, Array]:
    """Return ln of the sum of a belief, -inf for zero, and its entries as probabilities."""
    values = belief.values
    top = float(values.max())
    if top == (-math.inf if belief.logs else 0.0):
        return -math.inf, np.zeros_like(values)
    # the sum of tiny entries may be below the normal range
    values = np.exp(values - top) if belief.logs else values / top
    total = float(values.sum())
    return belief.log_scale + (top if belief.logs else math.log(top)) + math.log(total), values / total


def above_least(belief: Array, infinity: float) -> tuple[Any, Array]:
    """Return the least energy or cost, and all of them above it: float64, or int64 where costs are integers.

    From ``infinity`` on an entry is infinite: inf, or ``FAR_INTEGER``.
    """
    exact = belief.dtype.kind == "i"
    beyond = FAR_INTEGER if exact else math.inf
    least = belief.min()
    if least >= infinity:
        return beyond, np.full(belief.shape, beyond)
    if exact:
        return int(least), np.where(belief < infinity, belief.astype(np.int64) - int(least), beyond)
    return float(least), np.where(belief < infinity, belief - least, math.inf)
