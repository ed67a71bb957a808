"""Drawing on a GPU: tables of the distributions to draw from, and reasons to walk on the host instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.gpu.cold_kernels import AVOIDED_START, cores_end_first
from ...tasks.steps.policy import SweepPolicy
from ...tasks.sweeps import conditional_draws
from ...tasks.sweeps.conditional_draws import TOGETHER as TOGETHER
from ...tasks.sweeps.conditional_draws import Conditional, DeviceWalks, step_conditionals, walk_bytes
from ...tasks.sweeps.scaled import Scaled, measured
from ..answering.engines.strategy_policy import StrategyPolicy
from ..machine.resources import Resources
from ..plans.planning_policy import PlanningPolicy
from ..preprocessing.preprocess import Network
from .drawing import Drawing, in_order, rows_of
from .kept_sweep import SweptTables

# Variables of draws that a core draws in a second: 38 to 45 million of munin3 and pigs, fewer of large tables.
_WALKED_A_SECOND: Final = 20_000_000

Array = NDArray[Any]


def why_walked_here(
    resources: Resources, drawing: Drawing | None, draws: int, variables: int, thrown_away: bool, dtype: np.dtype[Any]
) -> str:
    """Return why the cores make draws although a GPU was requested; an empty text if the GPU makes the draws.

    Parameters
    ----------
    resources : Resources
    drawing : Drawing or None
    draws, variables : int
        Number of draws, and of drawn variables.
    thrown_away : bool
        Whether some draws are rejected.
    dtype : dtype
        Dtype of the states.
    """
    if thrown_away:
        return "because draws that reach top are rejected"
    if resources.asked.remote:
        return "because the GPUs belong to a cluster"
    sweep = None if drawing is None else drawing.sweep
    if sweep is not None and (sweep.rows is not None or not sweep.is_whole or rows_of(sweep.algebra) is not None):
        return "because tables are in slices, in boxes on disk, or sparse"
    policy = SweepPolicy.current()
    start = PlanningPolicy.current().device_start_seconds if resources.device_sleeps else policy.least_walk_seconds
    cores = draws * variables / _WALKED_A_SECOND
    if cores < start:
        return "because this takes less time than starting a device"
    if sweep is not None:
        # a device needs the sums of all rows of a table; the cores compute only the rows that their draws reach
        large = [s.lowered for s in sweep.run.plan.up if s.lowered.out_cells > policy.rows_a_draw * draws]
        if sum([each.cells for each in large]) * StrategyPolicy().table_cell_seconds > cores:
            return "because this takes less time than making the tables for a device"
    if cores_end_first(conditional_draws.walk_kernels(dtype), cores):
        AVOIDED_START.add(cores)
        return "because this takes less time than compiling the kernels of a device"
    return ""


def cells_there(host_bytes: int) -> int:
    """Return the most cells of all tables that draws on a device are taken from, within a part of this memory."""
    return max(min(SweepPolicy.current().drawn_cells_there, host_bytes // 64), 1)


def device_walks(
    resources: Resources, drawing: Drawing | None, network: Network, n: int, columns: int, seed: int, dtype: Any
) -> Any:
    """Return walks of all variables on the present device; None where tables do not fit, there or here.

    Parameters
    ----------
    n : int
        Draws.
    columns : int
        Variables that are drawn, the first of the model.
    """
    free = resources.memory_bytes
    cells = min(cells_there(resources.host_bytes), free // 16)
    conditionals, streams = list[Conditional](), list[int]()
    for each, stream in _conditionals(network, drawing, cells):
        if each is None or (cells := cells - each.sums.size) < 0:
            return None
        conditionals.append(each)
        streams.append(stream)
    taken = sum(8 * each.sums.size for each in conditionals)
    room = (free - taken) // walk_bytes(len(conditionals), columns, np.dtype(dtype).itemsize)
    most = min(n, SweepPolicy.current().walked_draws_there)
    draws = min(-(-most // TOGETHER), room // TOGETHER) * TOGETHER
    if draws < min(most, SweepPolicy.current().batch_draws):
        return None
    return DeviceWalks(conditionals, streams, range(columns), seed, dtype, draws)


def _conditionals(network: Network, drawing: Drawing | None, cells: int) -> Iterator[tuple[Conditional | None, int]]:
    """Yield the distribution of each variable in the order of draws, and its stream; None where one has too many cells.

    Variables of the model have their numbers. A local variable of a part of its states is drawn by a number of its
    own, and the one of the model from it.
    """
    dims, known = network.model.dims, set[int]()
    if drawing is not None:
        found: SweptTables[Scaled] = drawing.sweep.tables()
        names = [
            v if len(network.domains[v]) == dims[v] else len(dims) + local for local, v in enumerate(network.variables)
        ]
        swept = set[int]()
        for step in reversed(found.steps):
            made = step_conditionals(found.read(step), found.sizes, dict.fromkeys(swept), cells)
            for each in [None] if made is None else made:
                if each is None:
                    yield None, 0
                    return
                swept.add(each.variable)
                v = network.variables[each.variable]
                given = tuple([names[u] for u in each.given])
                yield Conditional(names[each.variable], given, each.sums), 1 + v
                if names[each.variable] != v:
                    chosen = (np.arange(dims[v]) >= network.domains[v][:, None]).astype(np.float64)
                    yield Conditional(v, (names[each.variable],), chosen), 1 + v
                known.add(v)
    for v, domain in enumerate(network.domains):
        if v not in known and v not in network.barren:
            allowed = np.zeros(dims[v])
            allowed[domain] = 1.0
            yield Conditional(v, (), np.cumsum(allowed)[None, :]), 1 + v
            known.add(v)
    for f in in_order(network, known):
        yield from _of_function(network, f, known, cells)


def _of_function(network: Network, f: int, known: set[int], cells: int) -> Iterator[tuple[Conditional | None, int]]:
    """Yield the distribution of a barren variable, given its parents."""
    model = network.model
    function = model.functions[f]
    assert function.child is not None
    read = [(measured(np.array(function.dense(model.dims), np.float64).reshape(-1)), tuple(function.scope))]
    made: Sequence[Conditional] | None = step_conditionals(read, model.dims, dict.fromkeys(known), cells)
    for each in [None] if made is None else made or [Conditional(function.child, (), np.ones((1, 1)))]:
        yield each, 1 + function.child
    known.add(function.child)
