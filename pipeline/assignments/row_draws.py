"""Independent draws of the variables that a sparse step summed out, from the rows of its join, grouped by the states
drawn above.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.memory_account import RowsNoRoomError
from ...tasks.rows.scaled_rows import ScaledRows, SumProductRows
from ...tasks.steps.number_limits import FAR_INTEGER
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import make_step
from ...tasks.sweeps.conditional_draws import Uniform, draw_step
from ...tasks.sweeps.scaled import Scaled

Array = NDArray[Any]


def draw_rows(
    read: Sequence[tuple[Scaled | ScaledRows, tuple[int, ...]]],
    algebra: SumProductRows,
    states: MutableMapping[int, Array],
    uniform: Uniform,
    draws: int,
    cells: int,
) -> None:
    """Draw as :func:`.draw_step` does, where some tables are rows.

    The step's tables are joined again without summation. Rows of the join that agree in the states drawn above form a
    group. A random number chooses one row of the group by its weight.

    Parameters
    ----------
    algebra : SumProductRows

    Raises
    ------
    RowsNoRoomError
        If the join does not fit, or if the joint states of the variables drawn above cannot be numbered.
    """
    sizes = algebra.choice.sizes
    axes = [v for v in dict.fromkeys(v for _, scope in read for v in scope) if sizes[v] > 1]
    given, left = [v for v in axes if v in states], [v for v in axes if v not in states]
    if not left:
        return
    scope = (*given, *left)
    tables, scopes = zip(*read, strict=True)
    if prod(sizes[v] for v in given) > FAR_INTEGER:
        raise RowsNoRoomError((), FAR_INTEGER, FAR_INTEGER)
    step = make_step(-1, tuple(range(len(read))), tuple(scopes), scope, sizes, SUM_PRODUCT)
    joined = algebra.step(step, tables, 1)
    if isinstance(joined, Scaled):
        draw_step([(joined, scope)], sizes, states, uniform, draws, cells)
        return
    rows = joined.rows
    found = dict(zip(rows.keys.variables, rows.keys.unpack(rows.words), strict=True))
    codes = _codes([found[v] for v in given], [sizes[v] for v in given], len(rows))
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    sums = _sums_within(rows.values[order], begins, joined.logs)
    wanted = _codes([states[v] for v in given], [sizes[v] for v in given], draws)
    group = np.searchsorted(codes[begins], wanted)
    # the sums of a group end at its number plus 1, so that draws count from the start of the group
    numbers = group + np.minimum(uniform(left[0], 0, draws), np.nextafter(1.0, 0.0))
    ends = np.append(begins[1:], len(codes))
    places = np.clip(np.searchsorted(sums, numbers, side="right"), begins[group], ends[group] - 1)
    for v in left:
        states[v] = found[v][order[places]].astype(np.int32)


def _codes(columns: Sequence[Array], sizes: Sequence[int], rows: int) -> Array:
    """Return the number of each row's joint state."""
    codes: Array = np.zeros(rows, np.int64)
    for column, size in zip(columns, sizes, strict=True):
        codes = codes * size + column
    return codes


def _sums_within(values: Array, begins: Array, logs: bool) -> Array:
    """Return sums of weights up to each row within its group, as parts of the group's, above the group's number."""
    counts = np.diff(np.append(begins, len(values)))
    if logs:
        values = np.exp(values - np.repeat(np.maximum.reduceat(values, begins), counts))
    shares = values / np.repeat(np.add.reduceat(values, begins), counts)
    sums = np.cumsum(shares)
    before = np.append(0.0, sums)[begins]
    numbers = np.repeat(np.arange(len(begins), dtype=np.float64), counts)
    return np.asarray(numbers + np.minimum(sums - np.repeat(before, counts), 1.0))
