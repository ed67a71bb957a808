"""Drawing: one sweep up, then as many walks down as are asked for; slices are drawn first, by their sums.

A GPU can walk too. It needs tables of the distributions to draw from; :func:`why_walked_here` gives the reason if the
host walks instead.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.gpu.cold_kernels import AVOIDED_START, cores_end_first
from ...tasks.rows.memory_account import RowsNoRoomError
from ...tasks.rows.scaled_rows import ScaledRows, SumProductRows
from ...tasks.steps.number_limits import FAR_INTEGER
from ...tasks.steps.policy import SweepPolicy
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step, make_step
from ...tasks.sweeps import conditional_draws
from ...tasks.sweeps.conditional_draws import TOGETHER as TOGETHER
from ...tasks.sweeps.conditional_draws import (
    Conditional,
    DeviceWalks,
    Uniform,
    draw_step,
    step_conditionals,
    uniform_numbers,
    walk_bytes,
)
from ...tasks.sweeps.scaled import Scaled, measured
from ..answering.engines.strategy_policy import StrategyPolicy
from ..machine.resources import Resources
from ..plans.problem import PlanningPolicy
from ..preprocessing.preprocess import Network
from ..runs.slices import Slices
from .kept_sweep import KeptSweep, SweptTables, kept_tables, no_room

# Independent draws of the variables that a sparse step summed out, from the rows of its join, grouped by the states
# drawn above.


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


Array = NDArray[Any]
# Copies of a step's table: the table, its cumulative sums, its inputs, and the parts in use by batches.
_COPIES = 5


def table_cells(memory_bytes: int) -> int:
    """Return the most cells of a table that draws are taken from, within a part of the memory."""
    return max(min(SweepPolicy.current().drawn_cells, memory_bytes // (8 * 4 * _COPIES)), 1)


def drawing_bytes(cells: int) -> int:
    """Return the bytes that drawing needs in addition to the tables of a sweep."""
    return 8 * _COPIES * cells


@dataclass(frozen=True)
class Streams:
    """Random numbers of a variable, determined by a seed, a slice, the variable and the number of the draw.

    Parameters
    ----------
    seed : int
    variables : int
        Of the model; stream 0 chooses slices.
    slice : int
    begun : int
        Draws of this slice that there were before.
    """

    seed: int
    variables: int
    slice: int = 0
    begun: int = 0

    def of(self, v: int, start: int, stop: int) -> Array:
        """Return the numbers of a variable of the model."""
        stream = 1 + self.slice * self.variables + v
        return uniform_numbers(self.seed, stream, self.begun + start, self.begun + stop)

    def local(self, network_variables: tuple[int, ...]) -> Uniform:
        """Return the same by local variables."""
        return lambda v, start, stop: self.of(network_variables[v], start, stop)


def walks_down(
    found: SweptTables[Scaled], uniform: Uniform, draws: int, cells: int, algebra: SumProductRows | None = None
) -> dict[int, Array]:
    """Draw states of all local variables, independent ones, from the roots down.

    Parameters
    ----------
    algebra : SumProductRows, optional
        Joins tables if some of them are sparse.

    Returns
    -------
    dict of int to ndarray of int, shape (draws,)

    Raises
    ------
    BudgetError
        If a join of rows does not fit.
    """
    states: dict[int, Array] = {v: np.full(draws, s, np.int32) for v, s in found.states.items()}
    draw_steps(found, states, uniform, draws, cells, algebra)
    return states


def draw_steps(
    found: SweptTables[Scaled],
    states: dict[int, Array],
    uniform: Uniform,
    draws: int,
    cells: int,
    algebra: SumProductRows | None = None,
) -> None:
    """Draw the variables that each step summed out, from the last step to the first, given the states drawn before."""
    for step in reversed(found.steps):
        try:
            _draw_one(found, step, states, uniform, draws, cells, algebra)
        except RowsNoRoomError as error:
            raise no_room(error) from None


def _draw_one(
    found: SweptTables[Any],
    step: Step,
    states: dict[int, Array],
    uniform: Uniform,
    draws: int,
    cells: int,
    algebra: SumProductRows | None,
) -> None:
    """Draw what one step summed out.

    Raises
    ------
    RowsNoRoomError
        If a join of rows does not fit.
    """
    read = found.read(step)
    if algebra is None or all(isinstance(table, Scaled) for table, _ in read):
        draw_step(read, found.sizes, states, uniform, draws, cells)
    else:
        draw_rows(read, algebra.resized(found.sizes), states, uniform, draws, cells)


def draw_slice(
    slices: Slices[Scaled],
    sizes: tuple[int, ...],
    streams: Streams,
    variables: tuple[int, ...],
    draws: int,
    cells: int,
) -> dict[int, Array]:
    """Task: sweep a slice and draw from it."""
    found = kept_tables(slices, sizes, streams.slice)
    return walks_down(found, streams.local(variables), draws, cells, rows_of(slices.program.algebra))


def rows_of(algebra: Any) -> SumProductRows | None:
    """Return the algebra of a sweep if its tables may be rows."""
    return algebra if isinstance(algebra, SumProductRows) else None


@dataclass
class Drawing:
    """Draws of the variables that a network has left, in one sequence.

    Parameters
    ----------
    sweep : KeptSweep
    network : Network
    seed : int
    cells : int
        Most cells of a table that is drawn from.
    done : int
        Number of draws made so far; the next draw has this number.
    """

    sweep: KeptSweep[Scaled]
    network: Network
    seed: int
    cells: int
    done: int = 0
    _begun: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._first = self.done

    @cached_property
    def _totals(self) -> Array:
        """Natural logarithm of the sum of each slice, or box at the roots."""
        return np.array(self.sweep.totals, np.float64)

    @cached_property
    def feasible(self) -> bool:
        """Whether anything is possible."""
        return bool(self._totals.max() > -np.inf)

    def more(self, draws: int) -> dict[int, Array]:
        """Return the next draws: states of each local variable."""
        start, self.done = self.done, self.done + draws
        streams = Streams(self.seed, len(self.network.model.dims), begun=start)
        uniform = streams.local(self.network.variables)
        if self.sweep.rows is not None:
            return self._of_stored_rows(uniform, draws)
        if self.sweep.is_whole:
            return walks_down(self.sweep.tables(), uniform, draws, self.cells, rows_of(self.sweep.algebra))
        cumulative = np.cumsum(np.exp(self._totals - self._totals.max()))[None, :]
        numbers = uniform_numbers(self.seed, 0, start, self.done)
        wanted = inverse_of_many(cumulative[0], numbers)
        if self.sweep.boxes is not None:
            return self._of_boxes(wanted, uniform)
        return self._of_slices(wanted, draws)

    def _of_boxes(self, wanted: Array, uniform: Uniform) -> dict[int, Array]:
        """Draw stage by stage from the roots down, each box that some draws pass with all of these."""
        boxes, draws = self.sweep.boxes, len(wanted)
        assert boxes is not None
        states: dict[int, Array] = {}
        for stage in range(self.sweep.stages):
            if stage:
                wanted = np.broadcast_to(boxes.number(stage, states), draws)
            above = {*states}  # states drawn by other boxes of the stage are not conditions
            for number, where in _places(wanted).items():
                found = self.sweep.tables(number if stage else boxes.top(number), stage)
                scope = {v for step in found.steps for axes in step.input_axes for v in axes}
                own = {v: states[v][where] for v in scope & above}
                own |= {v: np.full(len(where), s, np.int32) for v, s in found.states.items()}
                draw_steps(found, own, _at(uniform, where), len(where), self.cells)
                for v, drawn in own.items():
                    states.setdefault(v, np.zeros(draws, np.int32))[where] = drawn
        return states

    def _of_stored_rows(self, uniform: Uniform, draws: int) -> dict[int, Array]:
        """Draw step by step from the roots down; of tables on disk only rows are read that agree with some draws."""
        states: dict[int, Array] = defaultdict(lambda: np.zeros(draws, np.int32))
        for step in reversed(self.sweep.run.plan.up):
            self._draw_stored(step, {}, states, uniform, np.arange(draws))
        return states

    def _draw_stored(
        self, step: Step, fixed: Mapping[int, int], states: dict[int, Array], uniform: Uniform, where: Array
    ) -> None:
        """Draw the variables that a step summed out, for draws that agree in the fixed variables.

        The draws are split if the tables do not fit.

        Raises
        ------
        BudgetError
            If the rows that agree with a single draw do not fit.
        """
        given = {v for v in step.axes if v in states}  # states drawn below by other parts are not conditions
        own = {v: states[v][where] for v in given}
        try:
            found = self.sweep.read_rows(step, fixed)
            _draw_one(found, step, own, _at(uniform, where), len(where), self.cells, self.sweep.algebra)
        except RowsNoRoomError as error:
            known = [v for v in given if v not in fixed and self.sweep.sizes[v] > 1]
            if not known:
                raise no_room(error) from None
            v = max(known, key=lambda v: len(np.unique(states[v][where])))
            for state, at in _places(states[v][where]).items():
                self._draw_stored(step, {**fixed, v: state}, states, uniform, where[at])
            return
        for v in own.keys() - given:
            states[v][where] = own[v]

    def _of_slices(self, wanted: Array, draws: int) -> dict[int, Array]:
        """Draw from each slice as often as it was drawn."""
        places = _places(wanted)
        states: dict[int, Array] = defaultdict(lambda: np.empty(draws, np.int32))
        pool = self.sweep.run.pool
        found = pool.stream(draw_slice, self._calls(places))
        for (number, where), drawn in zip(places.items(), found, strict=True):
            self._begun[number] += len(where)
            for v, own in drawn.items():
                states[v][where] = own
        return dict(states)

    def _calls(self, places: Mapping[int, Array]) -> Iterator[tuple[Any, ...]]:
        variables = self.network.variables
        for number, where in places.items():
            streams = Streams(self.seed, len(self.network.model.dims), number, self._first + self._begun[number])
            yield self.sweep.sent, self.sweep.sizes, streams, variables, len(where), self.cells


def _places(wanted: Array) -> dict[int, Array]:
    """Return for each number that is wanted which draws want it."""
    return {int(number): np.flatnonzero(wanted == number) for number in np.unique(wanted)}


def _at(uniform: Uniform, places: Array) -> Uniform:
    """Return the numbers of some draws, as if there were no others."""
    first, last = int(places[0]), int(places[-1]) + 1
    return lambda v, start, stop: uniform(v, first, last)[places[start:stop] - first]


def inverse_of_many(cumulative: Array, numbers: Array) -> Array:
    """Return a state for each number by the inverse of one distribution with many states; see :func:`.inverse`."""
    wanted = np.minimum(numbers * cumulative[-1], np.nextafter(cumulative[-1], 0.0))
    return np.asarray(np.searchsorted(cumulative, wanted, side="right"))


def draw_others(network: Network, states: dict[int, Array], streams: Streams, draws: int, cells: int) -> None:
    """Draw what a network does not have left, into states by variable of the model.

    Draw the remaining variables. Variables without a function take any state; barren variables of a Bayesian network
    follow their parents.
    """
    model = network.model
    for v, domain in enumerate(network.domains):
        if v not in states and v not in network.barren:
            places = np.zeros(draws, np.intp)
            if len(domain) > 1:
                places = np.minimum((streams.of(v, 0, draws) * len(domain)).astype(np.intp), len(domain) - 1)
            states[v] = domain[places].astype(np.int32)
    for f in in_order(network, states):
        function = model.functions[f]
        read = [(measured(np.array(function.dense(model.dims), np.float64).reshape(-1)), tuple(function.scope))]
        assert function.child is not None
        draw_step(read, model.dims, states, streams.of, draws, cells)
        states.setdefault(function.child, np.zeros(draws, np.int32))


def in_order(network: Network, known: Iterable[int]) -> list[int]:
    """Return the distributions of barren variables, each after the distributions of its parents."""
    functions = network.model.functions
    own = {functions[f].child: f for f in range(len(functions)) if functions[f].child in network.barren}
    done, order = {*known}, []
    stack = list(network.barren)
    while stack:
        v = stack[-1]
        missing = [u for u in functions[own[v]].scope if u != v and u not in done]
        if v in done or not missing:
            stack.pop()
            if v not in done:
                done.add(v)
                order.append(own[v])
        else:
            stack += missing
    return order


# Variables of draws that a core draws in a second: 38 to 45 million of munin3 and pigs, fewer of large tables.
_WALKED_A_SECOND: Final = 20_000_000


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
