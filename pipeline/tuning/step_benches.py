"""Measuring steps: each launch of each step on a core or a device, threads beside one, the device beside the core."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...tasks.cpu.dense import launched, run
from ...tasks.learnt.learnt_launches import RULES, LaunchPolicy, Place
from ...tasks.steps.lowering import Lowered
from ...tasks.steps.semiring import Semiring
from ..machine.cpu import _best, machine, machine_rates
from ..plans.prediction import rates_key, ruled_step_seconds
from ..trees.costs import Rates

CPU_LAUNCHES: Final = (RULES, "product", "loops", "blocks")
"""The launch space on a core: compiled products and loops, and blocks of NumPy."""

# The device is compared with a core up to 2^ this many cells, about where any threshold lies; on every n-th step.
_COMPARED_LOG2, _COMPARED_EVERY = 21, 2


@dataclass(frozen=True)
class MeasuredStep:
    """A step, its price by the rules, and what it took.

    Parameters
    ----------
    lowered : Lowered
    price : float
        Seconds that today's prices predict.
    seconds : mapping
        Seconds of each launch; equal launches share their seconds.
    two_ways : mapping
        Other comparisons. For all ``threads``: the seconds of one thread and of all. For a ``device``: the seconds of
        the core and of the device, from host tables to host tables.
    """

    lowered: Lowered
    price: float
    seconds: Mapping[str, float]
    two_ways: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class StepBench(Protocol):
    """Where steps are measured."""

    place: Place
    launches: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name under which the rates of this machine or device are stored."""
        ...

    def rates(self, semiring: Semiring) -> Rates:
        """The rates of today's prices."""
        ...

    def measured(self, lowered: Lowered) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        """Seconds of a step by launch, and in two ways; see `MeasuredStep`."""
        ...


def measured_steps(
    bench: StepBench,
    steps: Iterator[Lowered],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    on_step: Callable[[int, float], None] = lambda count, spent: None,
) -> list[MeasuredStep]:
    """Measure steps for ``seconds`` seconds; steps that do not fit in memory are skipped."""
    found: list[MeasuredStep] = []
    begin = clock()
    with LaunchPolicy.using(uses_stored=False):
        for lowered in steps:
            price = ruled_step_seconds(lowered, bench.rates(lowered.semiring), lowered.semiring.itemsize)
            try:
                found.append(MeasuredStep(lowered, price, *bench.measured(lowered)))
            except MemoryError:
                continue
            spent = clock() - begin
            on_step(len(found), spent)
            if spent >= seconds:
                break
    return found


def drawn_tables(lowered: Lowered) -> list[Any]:
    """Draw small values for every input."""
    return [np.resize(drawn_pattern(lowered), cells) for cells in lowered.input_cells]


def drawn_pattern(lowered: Lowered) -> NDArray[Any]:
    """Small values of a step's dtype, which its tables repeat."""
    return np.random.default_rng(0).integers(1, 100, 1 << 16).astype(lowered.semiring.dtype)


def wall_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Least seconds by the clock on the wall, after a first run."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


class CpuBench:
    """Steps on a core, by seconds of the core; with several threads by the clock on the wall."""

    place: Place = "cpu"
    launches: tuple[str, ...] = CPU_LAUNCHES

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._rates: dict[Semiring, Rates] = {}

    @property
    def name(self) -> str:
        """This machine."""
        return machine()

    def rates(self, semiring: Semiring) -> Rates:
        """This machine's rates, measured if they were not."""
        if semiring not in self._rates:
            self._rates[semiring] = machine_rates(semiring)
        return self._rates[semiring]

    def measured(self, lowered: Lowered) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        """Run every launch that differs from the rules' launch."""
        tables, out = drawn_tables(lowered), np.empty(lowered.out_cells, lowered.semiring.dtype)
        seconds = {RULES: _best(lambda: run(lowered, tables, out))}
        for launch in self.launches[1:]:
            other = launched(lowered, launch)
            seconds[launch] = seconds[RULES] if other is lowered else _best(partial(run, other, tables, out))
        if self.threads < 2:
            return seconds, {}
        both = [wall_seconds(partial(run, lowered, tables, out, n)) for n in (1, self.threads)]
        return seconds, {"threads": (both[0], both[1])}


class GpuBench:
    """Steps on the current device, by its clock."""

    place: Place = "gpu"

    def __init__(self) -> None:
        from ...tasks.gpu.tiling.tile_launches import TILE_LAUNCHES

        self.launches = tuple(TILE_LAUNCHES)
        self._count = 0

    @cached_property
    def name(self) -> str:
        """The device, and what drives it."""
        from ..machine.device import device_name

        return device_name()

    @cached_property
    def _known(self) -> dict[str, Rates]:
        from ..machine.device import cached_device_rates, measure_device, measure_link
        from ..queries.arithmetic import SEMIRINGS

        link: tuple[float, float] | None = None
        known: dict[str, Rates] = {}
        for semiring in SEMIRINGS:
            rates = cached_device_rates(semiring)
            if rates is None:
                link = link or measure_link()
                rates = measure_device(semiring, *link)
            known[rates_key(semiring)] = rates.rates
        return known

    def rates(self, semiring: Semiring) -> Rates:
        """The device's rates, measured if they were not."""
        return self._known[rates_key(semiring)]

    def measured(self, lowered: Lowered) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        """Run every launch whose passes differ from those before it."""
        from ...tasks.gpu import arrays
        from ...tasks.gpu.kernels import cupy
        from ...tasks.gpu.launch import prepared_launch
        from ...tasks.gpu.tiling.device_lowering import launched_step
        from ..machine.device import _on_device

        pattern = cupy().asarray(drawn_pattern(lowered))
        tables = [cupy().resize(pattern, cells) for cells in lowered.input_cells]
        out = arrays.empty(lowered.out_cells, lowered.semiring.dtype)
        stream = cupy().cuda.get_current_stream()
        seconds: dict[str, float] = {}
        alike: dict[Any, float] = {}
        for launch in self.launches:
            passes = launched_step(lowered, launch)
            if passes not in alike:
                alike[passes] = _on_device(partial(prepared_launch(lowered, launch), tables, out), stream)
            seconds[launch] = alike[passes]
        self._count += 1
        compared = lowered.cells <= 1 << _COMPARED_LOG2 and self._count % _COMPARED_EVERY == 0
        return seconds, {"device": self._both(lowered)} if compared else {}

    def _both(self, lowered: Lowered) -> tuple[float, float]:
        """Seconds of a core, and of the device with the ways there and back."""
        from ...tasks.gpu import arrays
        from ...tasks.gpu.launch import prepare

        tables, out = drawn_tables(lowered), np.empty(lowered.out_cells, lowered.semiring.dtype)
        prepared = prepare(lowered)

        def there() -> None:
            prepared(arrays.upload(tables)).get(out=out)

        return wall_seconds(partial(run, lowered, tables, out)), wall_seconds(there)
