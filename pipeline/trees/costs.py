"""Costs of steps and trees: cells swept, tables stored, and the seconds by which all plans are compared.

A step is priced from its sizes, the number of tables that its loops read, and the kernel that lowering chooses for it.
All of that follows from scopes, so a search, slices, boxes and lowered steps are compared by the same seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from functools import lru_cache, reduce
from math import ceil, log2
from operator import or_
from typing import Final, NamedTuple

from ...tasks.steps.axes import RUN_CELLS, mask_key, mask_of
from ...tasks.steps.caches import Remembered
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.lowering import SMALL_CELLS, Lowered
from ...tasks.steps.number_limits import SAME_SHARE, ordered_sum
from ...tasks.steps.products import pays
from ...tasks.steps.row_order import SMALL_SHARE, SPREAD_CELLS
from ...tasks.steps.semiring import Semiring
from ...tasks.steps.step import Step
from .tree import Sizer, Tree, sizer_of

#: Rates refer to loops that read two tables.
_READS_RATED = 2
#: Cost of joining small inputs before the loops, in cells of a loop, for each input and cell of its join.
JOINED_CELL = 3.5
#: Extra fraction of the cost of reading a small table at random, per doubling of all such tables beyond 2^k cells,
#: which the second-level cache holds; and k.
_SPREAD_SHARE, _NEAR_LOG = 0.6, 18.0
#: Number of reads in a step from which a table counts as read at random; number of such tables that does not matter.
_READ_AGAIN, _FEW_READ = 4, 64
#: Maximum number of small inputs that are examined to estimate the joins of all.
_SAMPLED = 24


@dataclass(frozen=True)
class Rates:
    """A machine's calibration.

    Parameters
    ----------
    cells_per_second : float
        Streaming kernel with two inputs, in cache.
    matmul_cells_per_second : float
        Steps that are products of matrices.
    bytes_per_second : float
        Memory traffic.
    step_seconds : float
        Overhead of one step.
    read_share : float
        Extra fraction of a cell's time for each streamed table beyond two.
    fresh_bytes_per_second : float
        Touching memory for the first time; only predictions of whole runs know it.
    """

    cells_per_second: float = 1.0e9
    matmul_cells_per_second: float = 8.0e9
    bytes_per_second: float = 5.0e9
    step_seconds: float = 40e-6
    read_share: float = 0.2
    fresh_bytes_per_second: float = 2.0e9


GPU_RATES = Rates(2e12, 8e12, 3.5e12, 20e-6)
"""By which trees for GPUs are searched for at first: compiled loops know no more figures."""


@dataclass(frozen=True)
class KernelRates(Rates):
    """Rates of a GPU's kernels. A step is a product, a reduction, or an elimination in fast memory.

    Parameters
    ----------
    moved_cell_seconds : float
        Besides `cells_per_second`, for every cell that is read or written: short loops are bound by that.
    reduced_cells_per_second : float
        Rate of steps with many inputs and almost no output.
    table_share : float
        Extra fraction of a step's overhead for each input, because many inputs need more launches.
    """

    moved_cell_seconds: float = 0.0
    reduced_cells_per_second: float = float("inf")
    table_share: float = 0.0

    def seconds(self, work: StepWork, itemsize: int) -> float:
        """Predict one step on tables that are on the device."""
        overhead = self.step_seconds * (1.0 + self.table_share * work.tables)
        # inputs beyond one launch's limit are joined before, a few tables at a time, into dense tables
        passed = max(0, work.reads - _LAUNCH_READS) * _JOINED_SHARE * work.cells
        traffic = _ratio(work.moved_cells + passed, self.bytes_per_second / itemsize)
        moved = work.moved_cells * self.moved_cell_seconds
        if work.sides >= _LEAST_DEVICE_SIDES:
            arithmetic = _ratio(work.cells, self.matmul_cells_per_second)
            return overhead + max(arithmetic, traffic) + _PRODUCT_SHARE * moved
        if work.tables > _FEW_TABLES and work.out_cells < _REDUCED_CELLS:
            return overhead + max(_ratio(work.cells, self.reduced_cells_per_second), traffic)
        return overhead + max(_ratio(work.cells, self.cells_per_second), traffic) + moved


def gpu_rates(semiring: Semiring) -> KernelRates:
    """Return the rates of a data-centre GPU in a semiring; plans for GPUs are compared by these rates."""
    cells, products, moved = _GPU.get(semiring.dtype if semiring.name == "min_plus" else semiring.name, _GPU["int64"])
    return KernelRates(
        cells, products, 3e12, 20e-6, moved_cell_seconds=moved, reduced_cells_per_second=0.1e12, table_share=0.2
    )


# Factors of residues against sums of floats on a CPU: for a cell of a loop, for a cell of a matrix product, which no
# library provides, and for starting a step. Measured factors are 1.4 to 1.8 and 5.5 with AVX-512, and 1.8 to 4.3 and
# 6.8 with AVX2.
_RESIDUE_CELL, _RESIDUE_PRODUCT, _RESIDUE_STEP = 2.5, 6.0, 2.0


def residue_rates(rates: Rates) -> Rates:
    """Return the rates modulo a prime of a machine with the given rates for sums of floats: each product needs a
    division.
    """
    cells, products, step = _RESIDUE_CELL, _RESIDUE_PRODUCT, _RESIDUE_STEP
    if isinstance(rates, KernelRates):
        (cells, products), step = (a / b for a, b in zip(_GPU["sum_product"][:2], _GPU["int64"][:2], strict=True)), 1.0
    return replace(
        rates,
        cells_per_second=rates.cells_per_second / cells,
        matmul_cells_per_second=rates.matmul_cells_per_second / products,
        step_seconds=rates.step_seconds * step,
    )


# Measured on one of 2022: cells in a second of eliminations and of products, and seconds of a cell that is moved. Of
# 240 steps of `drawn_steps`, 120 of each of two seeds, 83% take between half and twice what these say.
_GPU: dict[str, tuple[float, float, float]] = {
    "int16": (8e12, 12e12, 1e-12),
    "int32": (6e12, 13e12, 1.5e-12),
    "int64": (1.5e12, 1.9e12, 4e-12),
    "float64": (4e12, 4.1e12, 3e-12),
    "sum_product": (3e12, 8e12, 2e-12),
}
# From there a step is a product on a GPU; below, and with as few inputs, it is no reduction.
_LEAST_DEVICE_SIDES, _FEW_TABLES, _REDUCED_CELLS = 12, 4, 1 << 16
# Large tables that a launch reads, and what each further one makes of tables of all cells.
_LAUNCH_READS, _JOINED_SHARE = 8, 0.02
# A product moves its cells in large pieces.
_PRODUCT_SHARE = 0.25


@dataclass(frozen=True)
class TreeCost:
    """Cost of running a tree once (of one slice, if sliced).

    ``cells`` are combined values, ``largest_table_cells`` counts input functions too, ``width`` is the
    largest number of variables swept by a step, less one.
    """

    cells: int
    largest_table_cells: int
    width: int
    read_cells: int
    written_cells: int
    seconds: float
    steps: int


class StepWork(NamedTuple):
    """The quantities that determine the price of a step.

    Parameters
    ----------
    cells, moved_cells : int or float
        Cells of the join, and of all inputs and the output together.
    reads : int
        Tables that a streaming loop reads for a cell: large inputs, and joins of small ones. Steps too small for
        one are priced as if there were two.
    matrix : bool
        Whether the kernel is a matrix product.
    tables, out_cells : int
        Inputs of the step, and cells that are left of it.
    sides : int
        Of a product the shortest of rows, columns and depth.
    further : float
        Tables that a streaming loop on a CPU reads beyond two. A table that is small or read in order counts as one.
        Small tables that exceed the cache together count more.
    joined_cells : float
        Of the joins of small inputs that are made for it before, times their inputs.
    """

    cells: int | float
    moved_cells: int | float
    reads: int
    matrix: bool
    tables: int = 0
    out_cells: int = 0
    sides: int = 0
    further: float = 0.0
    joined_cells: float = 0.0


def step_seconds(work: StepWork, rates: Rates, itemsize: int) -> float:
    """Predict one step: the slower of arithmetic and memory, after a fixed overhead (roofline)."""
    if isinstance(rates, KernelRates):
        return rates.seconds(work, itemsize)
    if work.matrix:  # factors are packed, and the result is unpacked, at the pace of a streaming loop
        arithmetic = _ratio(work.cells, rates.matmul_cells_per_second)
        arithmetic += _ratio(work.moved_cells, rates.cells_per_second)
    else:
        arithmetic = _ratio(work.cells, rates.cells_per_second) * (1.0 + rates.read_share * work.further)
        arithmetic += _ratio(JOINED_CELL * work.joined_cells, rates.cells_per_second)
    return rates.step_seconds + max(arithmetic, _ratio(work.moved_cells, rates.bytes_per_second / itemsize))


def step_prices(sizer: Sizer, rates: Rates, itemsize: int) -> Callable[[Sequence[int], int], tuple[StepWork, float]]:
    """Return a function that measures and prices a step, from the scopes of its inputs and of its output as bit sets,
    and caches the results.
    """
    known = sizer.prices((rates, itemsize))

    def price(inputs: Sequence[int], output: int) -> tuple[StepWork, float]:
        key = (*map(mask_key, inputs), mask_key(output))
        found: tuple[StepWork, float] | None = known.get(key)
        if found is None:
            work = sized_work(sizer, inputs, output)
            found = known[key] = work, step_seconds(work, rates, itemsize)
        return found

    return price


def lowered_seconds(step: Step, rates: Rates, itemsize: int) -> float:
    """Predict a step whose loops are fixed."""
    return step_seconds(lowered_work(step.lowered), rates, itemsize)


@lru_cache(maxsize=1 << 13)
def lowered_work(lowered: Lowered) -> StepWork:
    """Return the cells that a lowered step sweeps, moves and reads; plans of one network share most results."""
    axes, reading = lowered.axes, _Reading()
    if lowered.cells > SMALL_CELLS:
        masks = [mask_of(axis for axis, stride in enumerate(strides) if stride) for strides in axes.strides]
        reading = _reading(Sizer(axes.sizes), masks, lowered.input_cells, lowered.cells)
    matrix, out = lowered.regime == "matrix", lowered.out_cells
    sides = _sides(lowered.input_cells, lowered.cells, out) if matrix else 0
    return _work(lowered.cells, lowered.input_cells, out, reading, matrix, sides)


def least_seconds(cells: int, rates: Rates) -> float:
    """Return a lower limit of the predicted seconds of a step with this many cells."""
    fastest = max(rates.cells_per_second, rates.matmul_cells_per_second)
    if isinstance(rates, KernelRates):
        fastest = max(fastest, rates.reduced_cells_per_second)
    return rates.step_seconds + _ratio(cells, fastest) * (1.0 - rates.read_share)


def sized_work(sizer: Sizer, inputs: Sequence[int], output: int, known: list[int] | None = None) -> StepWork:
    """Return the cells that a step of these scopes (bit sets) will sweep, move and read once it is lowered.

    The cells of the inputs are counted unless they are ``known``.
    """
    joined = reduce(or_, inputs, 0)
    cells, out = sizer.cells(joined), sizer.cells(output)
    sizes = known or [sizer.cells(mask) for mask in inputs]
    if cells <= SMALL_CELLS:
        return _work(cells, sizes, out, _Reading())
    matrix = _is_product(sizer, inputs, sizes, cells, output, out)
    sides = _sides(sizes, cells, out) if matrix else 0
    return _work(cells, sizes, out, _reading(sizer, inputs, sizes, cells), matrix, sides)


class _Reading(NamedTuple):
    """See :class:`StepWork`."""

    reads: int = _READS_RATED
    further: float = 0.0
    joined_cells: float = 0.0


def _work(
    cells: int, sizes: Sequence[int], out: int, reading: _Reading, matrix: bool = False, sides: int = 0
) -> StepWork:
    return StepWork(cells, sum(sizes) + out, reading.reads, matrix, len(sizes), out, sides, *reading[1:])


def _sides(sizes: Sequence[int], cells: int, out: int) -> int:
    """Return the shortest of rows, columns and depth of a product of the two largest tables."""
    return cells // max(out, *sorted(sizes)[-2:])


def _is_product(sizer: Sizer, inputs: Sequence[int], sizes: Sequence[int], cells: int, output: int, out: int) -> bool:
    """Whether lowering makes a step a product of its two largest inputs, the others folded into them."""
    if len(inputs) < 2:
        return False
    first = sizes.index(max(sizes))
    others = [*sizes[:first], *sizes[first + 1 :]]
    largest = max(others)
    if not pays(cells // largest, cells // sizes[first], cells // out):
        return False
    second = others.index(largest)
    second += second >= first
    left, right, wide = inputs[first], inputs[second], sizer.wide
    if wide & ~output & (left ^ right):
        return False
    beside_left, beside_right = wide & ~left, wide & ~right
    return all(not mask & beside_left or not mask & beside_right for mask in inputs)


def _reading(sizer: Sizer, inputs: Sequence[int], sizes: Sequence[int], cells: int) -> _Reading:
    """Count what loops read: small inputs are merged; a join in the first-level cache is as good as none."""
    if len(inputs) < 3:
        return _Reading(len(inputs), len(inputs) - _READS_RATED)
    limit = min(SPREAD_CELLS, cells // SMALL_SHARE)
    small = [i for i, size in enumerate(sizes) if size <= limit]
    most = cells // _READ_AGAIN
    near = [size for size in sizes if limit < size <= most]
    union = reduce(or_, [inputs[i] for i in small], 0)
    size, large = sizer.log(union), len(inputs) - len(small)
    merged = ceil(size / log2(SPREAD_CELLS) - SAME_SHARE) if size > log2(RUN_CELLS) + SAME_SHARE else 0
    reads = max(2, large + min(len(small), merged))
    joins = joined = joined_cells = 0.0
    if merged and len(small) > _FEW_READ:
        small.sort(key=sizes.__getitem__)
        joins, joined, joined_cells = _joins(sizer, [inputs[i] for i in small], log2(limit))
    often = joins + len(near)
    if often <= _FEW_READ:
        return _Reading(reads, reads - _READS_RATED)
    share = 1.0 + _SPREAD_SHARE * max(0.0, log2(max(joined + ordered_sum(near), 1.0)) - _NEAR_LOG)
    seldom = large - len(near)
    often -= max(0, _READS_RATED - seldom)
    return _Reading(reads, max(0, seldom - _READS_RATED) + often * share, joined_cells)


def _joins(sizer: Sizer, inputs: Sequence[int], largest: float) -> tuple[float, float, float]:
    """Return how many joins within a limit the given inputs make, smallest first, their cells, and those an input.

    The joins of many inputs are estimated from a sample: the number of joins is a power of the number of inputs.
    """
    count = len(inputs)
    some = inputs if count <= _SAMPLED else [inputs[i * count // _SAMPLED] for i in range(_SAMPLED)]
    joins: list[int] = []
    members: list[int] = []
    for mask in some:
        for j, union in enumerate(joins):
            if union | mask == union or sizer.log(union | mask) <= largest + SAME_SHARE:
                joins[j] = union | mask
                members[j] += 1
                break
        else:
            joins.append(mask)
            members.append(1)
    cells = [2.0 ** sizer.log(union) for union in joins]
    of_inputs = ordered_sum([size * n for size, n in zip(cells, members, strict=True) if n > 1]) * count / len(some)
    number = float(len(joins))
    if count > len(some):
        number = count ** (log2(number) / log2(len(some)))
    return number, ordered_sum(cells) * number / len(joins), of_inputs


def steps_cost(
    steps: Iterable[Step], tree: Tree, rates: Rates, itemsize: int, before: TreeCost | None = None
) -> TreeCost:
    """Count the work of the lowered steps of one sweep or of both sweeps over a tree.

    With ``before``, the work of earlier steps over the same tree is included.
    """
    cells = read = written = count = 0
    seconds = 0.0
    if before is not None:
        cells, read, written, count = before.cells, before.read_cells, before.written_cells, before.steps
        seconds = before.seconds
    # steps that look alike are lowered once
    alike: dict[int, tuple[float, int]] = {}
    for step in steps:
        lowered = step.lowered
        known = alike.get(id(lowered))
        if known is None:
            known = alike[id(lowered)] = lowered_seconds(step, rates, itemsize), sum(lowered.input_cells)
        seconds += known[0]
        cells, read, written = cells + lowered.cells, read + known[1], written + lowered.out_cells
        count += 1
    if before is not None:
        return TreeCost(cells, before.largest_table_cells, before.width, read, written, seconds, count)
    width = max([mask.bit_count() for mask in tree.joined_masks], default=0) - 1
    return TreeCost(cells, max(tree.cells, default=1), width, read, written, seconds, count)


_COSTS: Final[Remembered[TreeCost]] = Remembered(16)


def tree_cost(tree: Tree, rates: Rates | None = None, itemsize: int = 8, sliced: Set[int] = frozenset()) -> TreeCost:
    """Count a tree's work exactly, and predict its seconds.

    Parameters
    ----------
    sliced : set of int
        Variables conditioned on. The cost is for one slice; the total is this times the product of their domain sizes.
    """
    by = rates or Rates()
    return _COSTS.of((tree,), (by, itemsize, frozenset(sliced)), lambda: _tree_cost(tree, by, itemsize, sliced))


def _tree_cost(tree: Tree, rates: Rates, itemsize: int, sliced: Set[int]) -> TreeCost:
    sizer = sizer_of(tuple([1 if v in sliced else d for v, d in enumerate(tree.dims)]))
    masks, fixed = tree.scope_masks, mask_of(sliced)
    cells = read = written = 0
    seconds = 0.0
    width = -1
    price = step_prices(sizer, rates, itemsize)
    for kids, joined, output in zip(tree.children, tree.joined_masks, masks[tree.n_leaves :], strict=True):
        work, spent = price([masks[c] for c in kids], output)
        out = sizer.cells(output)
        cells, read, written = cells + int(work.cells), read + int(work.moved_cells) - out, written + out
        width = max(width, (joined & ~fixed).bit_count() - 1)
        seconds += spent
    largest = max(map(sizer.cells, masks), default=1)
    return TreeCost(cells, largest, width, read, written, seconds, len(tree.children))


def two_way_seconds(tree: Tree, rates: Rates, itemsize: int) -> float:
    """Predict both sweeps: a join is swept upward, for each message back, and for variables that no message has.

    No message goes back to a function: variables that only functions have are read from the join above them.
    """
    sizer, masks, first = sizer_of(tree.dims), tree.scope_masks, tree.n_leaves
    known = sizer.prices(("both ways", rates, itemsize))
    seconds = 0.0
    for output, kids in zip(masks[first:], tree.children, strict=True):
        tables = (*[masks[c] for c in kids], output)
        below = tuple([i for i, c in enumerate(kids) if c >= first])
        key = tuple(map(mask_key, tables)), below
        price = known.get(key)
        if price is None:
            price = known[key] = _two_way_step(sizer, tables, below, rates, itemsize)
        seconds += price
    return seconds


def _two_way_step(sizer: Sizer, tables: tuple[int, ...], below: Sequence[int], rates: Rates, itemsize: int) -> float:
    """Predict a step upward, to a table that is the last of these, and what comes back to those from ``below``."""
    up = sized_work(sizer, tables[:-1], tables[-1])
    seconds = step_seconds(up, rates, itemsize)
    own = reduce(or_, tables[:-1], 0) & ~tables[-1]
    for i in below:
        own &= ~tables[i]
    often = own.bit_count()
    if often > 1 and up.cells <= SMALL_CELLS:  # made once, and each variable summed from it
        seconds += often * step_seconds(StepWork(up.cells, up.cells, 1, False, further=-1.0), rates, itemsize)
        often = 1
    if len(tables) > 3 or up.cells <= SMALL_CELLS:
        often += len(below)
        below = ()
    if often:
        seconds += often * step_seconds(up._replace(matrix=False), rates, itemsize)
    for i in below:
        seconds += step_seconds(sized_work(sizer, tables[:i] + tables[i + 1 :], tables[i]), rates, itemsize)
    return seconds


def _ratio(amount: int | float, rate: float) -> float:
    """Divide without overflow: amounts beyond the float range give infinity."""
    try:
        return amount / rate
    except OverflowError:
        return float("inf")
