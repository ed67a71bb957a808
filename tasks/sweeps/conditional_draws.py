"""Independent draws of the variables that one step of a sum eliminated, given the others' states: many at a time.

The backward sweep of elimination that draws, instead of taking the best as decoding does (forward filtering, backward
sampling; Dawid 1992, "Applications of a general propagation algorithm"): a step's inputs, at the states drawn above,
are proportional to the distribution of the variables that it eliminated. The random numbers come from a counter
(Philox, Salmon et al. 2011): draw ``i`` of a stream is the same in every batch.

On a GPU, the distributions of all variables lie there, and each thread takes four draws through them. The host joins
and sums up weights, once. The remaining work is to look up, multiply and compare, which a device does to the same bits:
a draw equals the draw that the host makes from the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..gpu import arrays
from ..gpu.kernels import Kernel, cupy, kernel
from ..gpu.memory import to_device, to_host
from ..steps.number_limits import WORD_ONES
from ..steps.policy import SweepPolicy
from ..steps.semiring import SUM_PRODUCT
from ..steps.step import make_step
from .scaled import QuickSumProduct, Scaled, as_logs, in_range

Array = NDArray[Any]
Uniform = Callable[[int, int, int], Array]
"""Takes a variable and the first and last but one of some draws; returns a number of [0, 1) for each."""
Read = Sequence[tuple[Scaled, tuple[int, ...]]]
"""The tables that a step reads, with their variables."""


@dataclass(frozen=True)
class Conditional:
    """The distribution of one variable given the states of others, as weights that are summed up.

    Parameters
    ----------
    variable : int
    given : tuple of int
        Row by row their joint states, the last one's next to each other.
    sums : ndarray, float64, shape (rows, states)
        Sums of weights up to each state; only rows of a positive sum are drawn from.
    """

    variable: int
    given: tuple[int, ...]
    sums: Array


TOGETHER = 4
"""Numbers of 64 bits that one count of Philox gives."""


def uniform_numbers(seed: int, stream: int, start: int, stop: int) -> Array:
    """Return numbers ``start`` to ``stop`` of a stream of uniform numbers of [0, 1)."""
    bits = np.random.Philox(key=np.array([seed & WORD_ONES, stream & WORD_ONES], np.uint64))
    bits.advance(start // TOGETHER)
    skipped = start % TOGETHER
    return np.random.Generator(bits).random(stop - start + skipped)[skipped:]


def inverse(cumulative: Array, rows: Array, numbers: Array) -> Array:
    """Return a state for each draw by the inverse of a distribution: one of a positive weight.

    Parameters
    ----------
    cumulative : ndarray, float64, shape (rows, states)
        Sums of weights up to each state; only rows of a positive sum are drawn from.
    rows : ndarray of int, shape (draws,)
    numbers : ndarray, float64, shape (draws,)
        Uniform numbers of [0, 1).
    """
    states = cumulative.shape[1]
    totals = cumulative[:, -1][rows]
    # the product may round up to the total, which no state has below it
    wanted = np.minimum(numbers * totals, np.nextafter(totals, 0.0))
    if states == 2:
        return np.asarray(cumulative[:, 0][rows] <= wanted, np.intp)
    # halving takes one number of each draw at a time, for any number of states
    flat, before, found = cumulative.reshape(-1), rows * states - 1, np.zeros(len(rows), np.intp)
    step = 1 << (states.bit_length() - 1)
    while step:
        tried = found + step
        passed = (tried <= states) & (flat[before + np.minimum(tried, states)] <= wanted)
        found, step = np.where(passed, tried, found), step >> 1
    return found


def draw_step(
    read: Read,
    sizes: Sequence[int],
    states: MutableMapping[int, Array],
    uniform: Uniform,
    draws: int,
    cells: int,
) -> None:
    """Draw the variables of a step's inputs that have no state yet, and enter them into ``states``.

    Parameters
    ----------
    read : sequence of (Scaled, tuple of int)
        All tables that the step joins.
    sizes : sequence of int
        Domain sizes, by variable; one of a single state may have any state in ``states``.
    states : mapping of int to ndarray of int, shape (draws,)
        The states that were drawn for the variables above.
    uniform : callable
        The random numbers of a variable.
    draws : int
    cells : int
        Most cells of a table that is made for all draws, or for a batch of them.
    """
    given, left = _drawn_and_left(read, sizes, states)
    policy = SweepPolicy.current()
    while left:
        above, below = _cells(given, sizes), _cells(left, sizes)
        if above * below <= min(cells, policy.rows_a_draw * draws * below):
            _from_table(read, given, left, sizes, states, uniform, draws)
            return
        # a table of more rows than that takes longer to join than the rows of all draws
        many = above > policy.rows_a_draw * draws
        few = min(policy.joined_cells if many else policy.joint_states, cells // 2)
        if below <= few or len(left) == 1:
            together = max(min(policy.joined_cells, cells) // below, 1)
            _from_batches(read, given, left, sizes, states, uniform, draws, together)
            return
        first = _first(left, sizes, max(cells // above, 1))
        _from_table(read, given, first, sizes, states, uniform, draws)
        given, left = given + first, left[len(first) :]


def step_conditionals(
    read: Read, sizes: Sequence[int], known: Mapping[int, Any], cells: int
) -> list[Conditional] | None:
    """Return the tables from which `draw_step` draws one variable after the other, for any number of draws.

    Parameters
    ----------
    read, sizes
        As there.
    known : mapping of int to anything
        The variables whose states are drawn before.
    cells : int
        Most cells of a table.

    Returns
    -------
    list of Conditional or None
        None where a table would have more cells.
    """
    given, left = _drawn_and_left(read, sizes, known)
    found: list[Conditional] = []
    while left:
        above = _cells(given, sizes)
        first = left
        if above * _cells(left, sizes) > cells:
            first = left[:1] if len(left) == 1 else _first(left, sizes, max(cells // above, 1))
        if above * _cells(first, sizes) > cells:
            return None
        found += _conditionals(read, given, first, sizes)
        given, left = given + first, left[len(first) :]
    return found


def _drawn_and_left(read: Read, sizes: Sequence[int], known: Mapping[int, Any]) -> tuple[list[int], list[int]]:
    """Return the variables of some tables whose states are known, and those whose states are not."""
    axes = [v for v in dict.fromkeys(v for _, scope in read for v in scope) if sizes[v] > 1]
    return [v for v in axes if v in known], [v for v in axes if v not in known]


def _first(left: Sequence[int], sizes: Sequence[int], most: int) -> list[int]:
    """Return the first variables, as many as have few joint states, but one at least and not all."""
    count = 1
    while count < len(left) - 1 and _cells(left[: count + 1], sizes) <= most:
        count += 1
    return list(left[:count])


def _from_table(
    read: Read,
    given: Sequence[int],
    wanted: Sequence[int],
    sizes: Sequence[int],
    states: MutableMapping[int, Array],
    uniform: Uniform,
    draws: int,
) -> None:
    """Draw from one table of all states of ``given``; variables that are neither given nor wanted are summed out."""
    sums = [each.sums for each in _conditionals(read, given, wanted, sizes)]
    found = {v: np.empty(draws, np.int32) for v in wanted}
    for start, stop in _batches(draws, SweepPolicy.current().batch_draws):
        rows = _codes(given, sizes, states, start, stop)
        for v, state in _drawn(sums, rows, wanted, sizes, uniform, start, stop):
            found[v][start:stop] = state
    states.update(found)


def _conditionals(read: Read, given: Sequence[int], wanted: Sequence[int], sizes: Sequence[int]) -> list[Conditional]:
    """Return the distribution of each wanted variable, given those before it too; all others are summed out."""
    tables, axes = zip(*[(t, a) for t, a in read], strict=True)
    step = make_step(-1, tuple(range(len(read))), axes, (*given, *wanted), sizes, SUM_PRODUCT)
    joined = QuickSumProduct(tuple(sizes), compiled=False).step(step, tables, 1)
    weights = _natural(joined.values.reshape([_cells(given, sizes), -1]), joined.logs)
    sums = _sums(weights.reshape([len(weights), *(sizes[v] for v in wanted)]))
    return [Conditional(v, (*given, *wanted[:k]), sums[k]) for k, v in enumerate(wanted)]


def _from_batches(
    read: Read,
    given: Sequence[int],
    wanted: Sequence[int],
    sizes: Sequence[int],
    states: MutableMapping[int, Array],
    uniform: Uniform,
    draws: int,
    batch: int,
) -> None:
    """Draw wanted variables from the tables at each draw's own states, one batch of draws at a time.

    Parameters
    ----------
    read : sequence of (table, axes)
        Tables over given and wanted variables.
    given, wanted : sequence of int
        Variables drawn before, and variables to draw.
    sizes : sequence of int
        Number of states, by variable.
    states : dict of int to int32 array, shape (draws,)
        States of the given variables; receives the states of the wanted variables.
    uniform : callable
        Random numbers by variable and draw.
    draws, batch : int
        Number of draws, and the largest number of draws that share memory.
    """
    tables = [table for table, _ in read]
    # products that may leave the range of floats are added as logarithms
    logs = any(t.logs for t in tables) or not in_range(tables, 0.0)
    values = [(as_logs(table) if logs else table).values for table in tables]
    found = {v: np.empty(draws, np.int32) for v in wanted}
    for start, stop in _batches(draws, min(batch, SweepPolicy.current().batch_draws)):
        total: Array = np.zeros(()) if logs else np.ones(())
        for table, (_, axes) in zip(values, read, strict=True):
            at = _at_draws(table, axes, wanted, sizes, states, start, stop)
            total = total + at if logs else total * at
        shape = stop - start, *(sizes[v] for v in wanted)
        total = np.broadcast_to(total, shape).reshape(stop - start, -1)
        sums = _sums(_natural(total, logs).reshape(shape))
        for v, state in _drawn(sums, np.arange(stop - start), wanted, sizes, uniform, start, stop):
            found[v][start:stop] = state
    states.update(found)


def _at_draws(
    table: Array,
    axes: Sequence[int],
    wanted: Sequence[int],
    sizes: Sequence[int],
    states: Mapping[int, Array],
    start: int,
    stop: int,
) -> Array:
    """Return a table's cells at the states of some draws: an axis of draws, and an axis for each wanted variable."""
    first: Any = np.zeros(stop - start, np.intp)
    offsets: Any = np.zeros([1] * len(wanted), np.intp)
    stride = 1
    for v in reversed(axes):
        if v in wanted:
            place = wanted.index(v)
            shape = [sizes[v] if k == place else 1 for k in range(len(wanted))]
            offsets = offsets + stride * np.arange(sizes[v]).reshape(shape)
        elif sizes[v] > 1:
            first += stride * states[v][start:stop].astype(np.intp)
        stride *= sizes[v]
    found: Array = table.reshape(-1)[first.reshape([-1] + [1] * len(wanted)) + offsets]
    return found


def _natural(weights: Array, logs: bool) -> Array:
    """Return rows of weights, each on a scale of its own if they are logarithms."""
    if not logs:
        return weights
    tops = weights.max(axis=1, keepdims=True)
    return np.asarray(np.exp(weights - np.where(tops > -np.inf, tops, 0.0)))


def _sums(weights: Array) -> list[Array]:
    """Return for each variable the cumulated weights of its states, given those before it, later ones summed out."""
    table, found = weights, [_cumulated(weights)]
    while table.ndim > 2:
        # two states are cumulated to the same bits as they are summed; there NumPy's loops over an axis are slow
        table = found[-1][:, 1].reshape(table.shape[:-1]) if table.shape[-1] == 2 else table.sum(axis=-1)
        found.append(_cumulated(table))
    return found[::-1]


def _cumulated(weights: Array) -> Array:
    """Return the sums of weights up to each state, a row for each joint state of the variables before it."""
    rows = weights.reshape(-1, weights.shape[-1])
    if rows.shape[1] != 2:
        return np.cumsum(rows, axis=1)
    sums = np.empty(rows.shape)
    sums[:, 0] = rows[:, 0]
    np.add(rows[:, 0], rows[:, 1], out=sums[:, 1])
    return sums


def _drawn(
    sums: Sequence[Array],
    rows: Array,
    wanted: Sequence[int],
    sizes: Sequence[int],
    uniform: Uniform,
    start: int,
    stop: int,
) -> list[tuple[int, Array]]:
    """Draw variables one after the other, each given those before it."""
    found = []
    for v, table in zip(wanted, sums, strict=True):
        state = inverse(table, rows, uniform(v, start, stop))
        rows = rows * sizes[v] + state
        found.append((v, state))
    return found


def _codes(scope: Sequence[int], sizes: Sequence[int], states: Mapping[int, Array], start: int, stop: int) -> Array:
    """Return the number of each draw's joint state."""
    codes: Array = np.zeros(stop - start, np.intp)
    for v in scope:
        codes = codes * sizes[v] + states[v][start:stop]
    return codes


def _batches(draws: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, draws)) for start in range(0, draws, size)]


def _cells(scope: Sequence[int], sizes: Sequence[int]) -> int:
    return prod([sizes[v] for v in scope])


_THREADS: Final = 128
_TILE: Final = 32
"""Threads of a block, and the side of the tiles that are turned; as in ``cuda/walk.cu``."""

_CONDITIONAL: Final = np.dtype(
    [("first_sum", "i8"), ("stream", "u8"), *((name, "i4") for name in ("first_given", "given", "states", "slot"))],
    align=True,
)
"""The layout of ``Conditional`` in ``cuda/walk.cu``."""

_WALK: Final = np.dtype(
    [
        *((name, "u8") for name in ("sums", "conditionals", "slots", "strides", "columns", "found", "out")),
        *((name, "i8") for name in ("draws", "begun")),
        ("seed", "u8"),
        *((name, "i4") for name in ("count", "width")),
    ],
    align=True,
)
"""The layout of ``Walk`` in ``cuda/walk.cu``."""


def walk_bytes(slots: int, columns: int, itemsize: int) -> int:
    """Return the bytes of a draw on the device: states of all slots, and the states of the answer."""
    return itemsize * (slots + columns)


class DeviceWalks:
    """The distributions of variables on the present device, in the order in which they are drawn.

    Parameters
    ----------
    conditionals : sequence of Conditional
        Their variables number slots; the given variables were drawn before.
    streams : sequence of int
        Of random numbers, one for each of them.
    columns : sequence of int
        Slots, in the order of the answer.
    seed : int
    dtype : dtype
        Of states, int16 or int32.
    draws : int
        Most draws that are made together, a multiple of four.
    """

    def __init__(
        self,
        conditionals: Sequence[Conditional],
        streams: Sequence[int],
        columns: Sequence[int],
        seed: int,
        dtype: np.dtype[Any],
        draws: int,
    ) -> None:
        """Copy the conditionals to the device and allocate room for the draws.

        Parameters
        ----------
        conditionals : sequence of Conditional
            Cumulative sums of each variable given the variables above it, in the order of drawing.
        streams : sequence of int
            Random stream of each conditional.
        columns : sequence of int
            Variables in the order of the output's columns.
        seed : int
        dtype : dtype
            Of the drawn states.
        draws : int
            Most draws of one launch.
        """
        sizes = [each.sums.shape[1] for each in conditionals]
        place = {each.variable: k for k, each in enumerate(conditionals)}
        records = np.zeros(len(conditionals), _CONDITIONAL)
        records["first_sum"] = np.cumsum([0, *(each.sums.size for each in conditionals)])[:-1]
        records["stream"] = np.array(streams, np.uint64)
        records["given"] = [len(each.given) for each in conditionals]
        records["first_given"] = np.cumsum(records["given"]) - records["given"]
        records["states"] = sizes
        records["slot"] = range(len(conditionals))
        strides = []
        for each in conditionals:
            own = [sizes[place[v]] for v in each.given]
            strides.append(np.append(np.cumprod(own[:0:-1], dtype=np.int64)[::-1], 1)[: len(own)])
        parts: dict[str, Array] = {
            "conditionals": records.view(np.uint8),
            "slots": np.array([place[v] for each in conditionals for v in each.given], np.int32),
            "strides": np.array([*chain.from_iterable(strides)], np.int64),
            "columns": np.array([place[v] for v in columns], np.int32),
        }
        # one copy for all small arrays; the sums are large and copied one by one
        copies = dict(zip(parts, arrays.upload([*parts.values()]), strict=True))
        copies["sums"] = arrays.empty(sum(each.sums.size for each in conditionals), "float64")
        for first, each in zip(records["first_sum"].tolist(), conditionals, strict=True):
            to_device(np.ascontiguousarray(each.sums), copies["sums"][first : first + each.sums.size])
        copies["found"] = arrays.empty(draws * len(conditionals), dtype.name)
        copies["out"] = arrays.empty(draws * len(columns), dtype.name)
        self._held, self._dtype, self._most = copies, dtype, draws
        self._record = np.zeros((), _WALK)
        for name, copy in copies.items():
            self._record[name] = copy.data.ptr
        self._record["seed"] = np.uint64(seed & ((1 << 64) - 1))
        self._record["count"], self._record["width"] = len(conditionals), len(columns)

    def fill(self, found: Array, begun: int = 0) -> None:
        """Draw a row of states for each row of an array of the host; the first row is draw ``begun``.

        Parameters
        ----------
        found : ndarray, shape (draws, columns)
            C-contiguous, of the states' dtype.
        begun : int
            A multiple of four.
        """
        for start in range(0, len(found), self._most):
            rows = found[start : start + self._most]
            draws = -(-len(rows) // TOGETHER) * TOGETHER
            self._record["draws"], self._record["begun"] = draws, begun + start
            walk_kernel(self._dtype.name, "walk")((-(-draws // (TOGETHER * _THREADS)),), (_THREADS,), (self._record,))
            tiles = -(-draws // _TILE), -(-found.shape[1] // _TILE)
            walk_kernel(self._dtype.name, "turn")(tiles, (_THREADS,), (self._record,))
            to_host(self._held["out"][: rows.size], rows)
            cupy().cuda.get_current_stream().synchronize()


def walk_kernel(dtype: str, entry: str) -> Kernel:
    """Return the kernel that draws states of a type, or the kernel that transposes them."""
    return kernel("walk", "min_plus", dtype, entry)


def walk_kernels(dtype: np.dtype[Any]) -> list[Kernel]:
    """Return the two kernels that draw states of a dtype."""
    return [walk_kernel(dtype.name, entry) for entry in ("walk", "turn")]
