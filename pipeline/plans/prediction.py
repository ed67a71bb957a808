"""The predicted seconds of a run as shown to users: its steps, and Python's work around them. Pure.

Plans are compared by the prices of :mod:`~bucketflow.pipeline.trees.costs`, which follow from scopes alone and are the
same everywhere. A prediction knows the kernel of each lowered step and the pace of the interpreter, makes leaf tables,
restricts them to slices, decodes and reads beliefs.

Starting a step of ten cells takes nearly all of its time:

>>> from bucketflow.tasks.steps.lowering import lower
>>> from bucketflow.tasks.steps.semiring import SUM_PRODUCT
>>> step = lower([(0, 1), (1,)], (0,), {0: 5, 1: 2}, "float64", SUM_PRODUCT)
>>> f"{step_seconds(step, Rates(), itemsize=8):.1g}"
'1e-05'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.lowering import SMALL_CELLS, Lowered
from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.semiring import Semiring
from ..trees import costs
from ..trees.costs import KernelRates, Rates, StepWork, lowered_work, residue_rates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...tasks.steps.step import Step
    from .stages import Evaluations

#: A core of 2023 with CPython 3.11, as ``calibrate`` measures it; measurements on other machines scale all figures
#: here.
REFERENCE = Rates(1.4e9, 20e9, 23e9, 9.5e-6, fresh_bytes_per_second=2e9)
# Cells of a step on a GPU from which its launches are counted one by one; rates of all steps know nothing of its axes.
_LAUNCHES_COUNTED = 1 << 25
# Both sweeps of large tables on a GPU, beside one core of the same machine.
CORES_OF_A_DEVICE = 100


@dataclass(frozen=True)
class Pace:
    """Seconds of Python's work around steps.

    Parameters
    ----------
    function, cell : float
        Making the leaf table of a function, and each of its cells.
    restricted : float
        Restricting a leaf table to a slice.
    launch, repeated : float
        Beginning a step, besides what the price of the step has; one of a sweep whose launches are made once.
    decoded : float
        Finding the best states of a step, for each of its tables.
    evaluated : float
        Looking up the value of a function at the assignment.
    belief : float
        Reading a belief from its table.
    sweep, power, point : float
        Seconds to begin a sweep modulo a prime, without its leaf tables; per cell of the leaf tables at a point, a
        power of a root; and per point to read the count from the values.
    """

    function: float
    cell: float
    restricted: float
    launch: float
    repeated: float
    decoded: float
    evaluated: float
    belief: float
    sweep: float = 2.5e-4
    power: float = 13e-9
    point: float = 5e-7


#: Where steps run on a core.
CORE = Pace(6e-6, 6e-9, 1e-5, 0.0, 0.0, 6.5e-6, 2.2e-6, 12e-6)
#: Where they run on a GPU, by the core beside it: as runs of 6 to 80 ms took on one H100, each twice.
DEVICE = Pace(4e-6, 6e-9, 1e-5, 60e-6, 5e-6, 1e-6, 1.2e-6, 15e-6)
# Steps on a GPU whose launches are recorded once, which are all steps except sums of floats, take about half of the
# start time of others. If several small steps share one launch, each takes the second number of seconds.
_REPEATED, _SMALL_REPEATED = 0.5, 1e-6

# Beginning a step, and for each of its tables: of few cells, in a streaming loop, a product of matrices.
_SMALL, _STREAMING, _PRODUCT = (3.5e-6, 4e-6), (25e-6, 11e-6), (10e-6, 14e-6)
# Factors of NumPy against a loop: for a cell of a small step, and for a cell of each of its tables.
_SMALL_CELL, _SMALL_TABLE_CELL = 2.0, 0.4
# Factor for loops over long rows, which are faster than the measured loop.
_LONG_ROWS = 0.75
# Factors for products of short sides, in cells of a loop, and for rows of several tables, which move at a third of a
# copy's rate.
_SIDE_CELL, _ROWS_MOVED = 0.3, 2.8
# The allocator gives larger tables back each time, so that every page is touched for the first time; and no cache holds
# them.
_LARGE_BYTES = 1 << 25
# Factors for reading such a table against its order, in cells of a loop: for each of its cells, and for each cell of an
# inner loop.
_FAR_CELL, _GATHERED_CELL = 10.0, 2.0


@dataclass(frozen=True)
class RunOverhead:
    """Work of a run other than its steps.

    Parameters
    ----------
    functions : int
        That leaf tables are made of.
    evaluated : int
        Functions that a decoded assignment is evaluated on; 0 where none is decoded.
    rates : Rates
        By which steps are priced; nominal ones where the machine was not measured.
    """

    functions: int = 0
    evaluated: int = 0
    rates: Rates = Rates()

    def leaf_seconds(self, device: bool, cells: int) -> float:
        """Predict the seconds to build leaf tables of ``cells`` cells."""
        pace = DEVICE if device else CORE
        return self._slowness * (pace.function * self.functions + pace.cell * cells)

    def reading_seconds(self, device: bool, inputs: int, beliefs: int) -> float:
        """Predict the seconds to decode steps with ``inputs`` inputs, and to read beliefs."""
        pace = DEVICE if device else CORE
        calls = pace.belief * beliefs
        if self.evaluated:
            calls += pace.evaluated * self.evaluated + pace.decoded * inputs
        return self._slowness * calls

    def slice_seconds(self, device: bool, launched: Sequence[Step], varying: int) -> float:
        """Predict what begins launches and restricts leaf tables, besides the steps of a slice."""
        pace = DEVICE if device else CORE
        begun = ordered_sum([pace.repeated if is_repeated(step.lowered) else pace.launch for step in launched])
        return self._slowness * (begun + pace.restricted * varying)

    def evaluation_seconds(self, later: Evaluations, cells: int) -> float:
        """Predict the seconds of sweeps modulo primes outside their steps, with leaf tables of ``cells`` cells."""
        made = CORE.power if later.points > 1 else CORE.cell
        values = later.points * later.primes
        begun = later.sweeps * (CORE.sweep + CORE.function * self.functions)
        return self._slowness * (begun + values * (made * cells + CORE.point))

    def residues_seconds(self, steps: Iterable[Step], itemsize: int) -> float:
        """Predict lowered steps modulo a prime."""
        rates = self.rates if isinstance(self.rates, KernelRates) else _measured(self.rates)
        return _sum_of(steps, lambda lowered: step_seconds(lowered, residue_rates(rates), itemsize))

    def steps_seconds(self, steps: Iterable[Step], itemsize: int) -> float:
        """Predict lowered steps."""
        return steps_seconds(steps, self.rates, itemsize)

    @property
    def _slowness(self) -> float:
        return _slowness(self.rates)


def _slowness(rates: Rates) -> float:
    """Return Python's slowness against the reference. The launch time of a device is no measure of it."""
    return 1.0 if isinstance(rates, KernelRates) else _measured(rates).step_seconds / REFERENCE.step_seconds


def steps_seconds(steps: Iterable[Step], rates: Rates, itemsize: int) -> float:
    """Predict lowered steps, one after the other."""
    return _sum_of(steps, _pricing(rates, itemsize))


def _sum_of(steps: Iterable[Step], price: Callable[[Lowered], float]) -> float:
    # steps that look alike are lowered once
    alike: dict[int, float] = {}
    seconds = 0.0
    for step in steps:
        lowered: Lowered = step.lowered
        known = alike.get(id(lowered))
        if known is None:
            known = alike[id(lowered)] = price(lowered)
        seconds += known
    return seconds


def is_repeated(lowered: Lowered) -> bool:
    """Whether a sweep on a GPU of steps like this one is launches that are made once."""
    return lowered.semiring.name not in ("sum_product", "log_sum")


def rates_key(semiring: Semiring) -> str:
    """Return under which name rates of a semiring are kept."""
    return f"{semiring.name} {semiring.dtype}"


def step_seconds(lowered: Lowered, rates: Rates, itemsize: int) -> float:
    """Predict the seconds of one lowered step: its start, plus its loops and the memory's rate.

    Parameters
    ----------
    lowered : Lowered
    rates : Rates or KernelRates
        Measured rates of a core, or of a device.
    itemsize : int
        Bytes of a cell.
    """
    return _pricing(rates, itemsize)(lowered)


def _pricing(rates: Rates, itemsize: int) -> Callable[[Lowered], float]:
    """Return a function that predicts the seconds of one lowered step."""
    if isinstance(rates, KernelRates):
        return partial(_launched_seconds, rates, itemsize)
    return partial(_looped_seconds, _measured(rates), _slowness(rates), itemsize)


def _launched_seconds(rates: KernelRates, itemsize: int, lowered: Lowered) -> float:
    """Predict the seconds of a step on a device."""
    if is_repeated(lowered):
        if lowered.cells <= SMALL_CELLS:
            return _SMALL_REPEATED
        rates = replace(rates, step_seconds=_REPEATED * rates.step_seconds)
    if lowered.cells < _LAUNCHES_COUNTED:
        return costs.step_seconds(lowered_work(lowered), rates, itemsize)
    from ...tasks.gpu.tiling.device_lowering import launched_seconds

    return rates.step_seconds + launched_seconds(lowered)


def _looped_seconds(rates: Rates, slowness: float, itemsize: int, lowered: Lowered) -> float:
    """Predict the seconds of a step on one core, from measured rates."""
    work = lowered_work(lowered)
    if work.cells <= SMALL_CELLS:
        loops = (_SMALL_CELL + _SMALL_TABLE_CELL * work.tables) * work.cells / rates.cells_per_second
        return _begun(_SMALL, work, slowness) + loops
    moved = _ROWS_MOVED * work.moved_cells * itemsize / rates.bytes_per_second
    written = work.out_cells * itemsize
    # pages that the system must clear first are written more slowly
    fresh = written / rates.fresh_bytes_per_second if written >= _LARGE_BYTES else 0.0
    if work.matrix:
        loops = work.cells / rates.matmul_cells_per_second
        loops += _SIDE_CELL * work.cells / max(work.sides, 1) / rates.cells_per_second
        return _begun(_PRODUCT, work, slowness) + loops + moved + fresh
    loops = _LONG_ROWS * work.cells * (1.0 + rates.read_share * work.further)
    loops += costs.JOINED_CELL * work.joined_cells + _gathered_cells(lowered, itemsize)
    return _begun(_STREAMING, work, slowness) + loops / rates.cells_per_second + moved + fresh


def _gathered_cells(lowered: Lowered, itemsize: int) -> float:
    """Return the cost of reading tables against their order, in cells of a loop."""
    loops = lowered.loops
    if loops is None:
        return 0.0
    cells = 0.0
    for operand in loops.operands:
        if operand.role == "gather":
            size = prod([n for n, stride in zip(loops.axes.sizes, operand.strides, strict=True) if stride])
            if size * itemsize >= _LARGE_BYTES:
                cells += _FAR_CELL * size + _GATHERED_CELL * lowered.cells * loops.gathered_inside(operand)
    return cells


def _begun(kind: tuple[float, float], work: StepWork, slowness: float) -> float:
    step, table = kind
    return slowness * (step + table * work.tables)


def _measured(rates: Rates) -> Rates:
    """Return the measured rates of a machine, or the reference rates."""
    return REFERENCE if rates == Rates() else rates
