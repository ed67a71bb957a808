"""Launches of junction-tree messages, learnt by regression (Zheng & Mengshoel 2013): the experiment, not the product.

The messages of real networks are run by every launch of a space. Regressions of ln(seconds / predicted seconds) are
compared by cross-validation (:mod:`.launch_regressions`). No setting changes: on whole propagations nothing gained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from ...tasks.compiler.code_cache import impatient
from ...tasks.cpu.dense import run
from ...tasks.steps.lowering import SMALL_CELLS, Lowered
from ...tasks.steps.products import as_product
from ...tasks.steps.streaming import as_loops, merged_blocks
from ..api.solve import load, plan
from ..errors import ModelError
from ..machine.rates import _best, cached_rates
from ..plans.prediction import step_seconds
from ..trees.costs import Rates
from .launch_regressions import (
    FEWEST_STEPS,
    REGRESSIONS,
    RULES,
    MeasuredMessage,
    chosen_by,
    cross_validated,
    launch_table,
    need_scikit_learn,
    worthwhile,
)
from .papers import PaperRow, PaperTable, Way

NETWORKS: Final = (
    "water",
    "barley",
    "diabetes",
    "munin3",
    "link",
    "pigs",
    "andes",
    "mildew",
    "munin1",
    "munin2",
    "munin4",
)
# Messages with fewer cells are not measured, since starting a kernel takes longer than the kernel.
_LEAST_CELLS: Final = 1 << 10
# Cells that one measured graph sweeps at least: small messages are repeated.
_GRAPH_CELLS, _MOST_COPIES = 1 << 22, 256
_LANES, _ITEM_MICROSECONDS = (1, 4, 16, 64, 128), (2, 8, 32)

MESSAGE_LAUNCHES: Final[Mapping[str, tuple[int | None, float | None]]] = {
    RULES: (None, None),
    **{f"{n} outputs, {us} µs": (n, us * 1e-6) for n in _LANES for us in _ITEM_MICROSECONDS},
}
"""The launch space on a GPU: outputs side by side, and the length of an item, which cuts an elimination into pieces."""
CORE_LAUNCHES: Final = (RULES, "product", "loops", "blocks")
"""The launch space on a core: compiled products and loops, and blocks of NumPy."""
SURFACES: Final = {"small": (0, 1 << 14), "medium": (1 << 14, 1 << 18), "large": (1 << 18, 1 << 62)}
"""Classes of messages by cells, for the surfaces of the paper's figures 2 and 4 to 6."""


class MessageBench(Protocol):
    """Where messages are measured."""

    launches: tuple[str, ...]

    def price(self, lowered: Lowered) -> float:
        """Return the seconds that bucketflow predicts."""
        ...

    def measured(self, lowered: Lowered) -> dict[str, float]:
        """Return the seconds of each launch."""
        ...


class CoreBench:
    """Messages on a core, by seconds of the core."""

    launches: tuple[str, ...] = CORE_LAUNCHES

    def price(self, lowered: Lowered) -> float:
        """Predict by the rates of this machine, or by nominal rates if these were not measured."""
        semiring = lowered.semiring
        return step_seconds(lowered, cached_rates(semiring) or Rates(), semiring.itemsize)

    def measured(self, lowered: Lowered) -> dict[str, float]:
        """Run every launch that differs from the rules' launch."""
        drawn = np.random.default_rng(0).integers(1, 100, 1 << 16).astype(lowered.semiring.dtype)
        tables = [np.resize(drawn, cells) for cells in lowered.input_cells]
        out = np.empty(lowered.out_cells, lowered.semiring.dtype)
        seconds = {RULES: _best(partial(run, lowered, tables, out))}
        for launch in self.launches[1:]:
            other = on_core(lowered, launch)
            seconds[launch] = seconds[RULES] if other is lowered else _best(partial(run, other, tables, out))
        return seconds


def on_core(lowered: Lowered, launch: str) -> Lowered:
    """Return a step for another kernel of a core, one of `CORE_LAUNCHES`; the step itself if it has no such kernel."""
    axes, semiring = lowered.axes, lowered.semiring
    if lowered.cells <= SMALL_CELLS or launch == RULES or (launch == "product" and lowered.product is not None):
        return lowered
    product = as_product(axes, semiring, (2, 2, 2)) if launch == "product" else None
    loops = as_loops(axes, semiring) if launch == "loops" else None
    if launch != "blocks" and product is None and loops is None:
        return lowered
    merged = merged_blocks(loops) if loops else None
    regime: Any = "matrix" if product else "streaming"
    return replace(lowered, product=product, loops=loops, merged=merged, regime=regime)


class DeviceBench:
    """Messages on the current device, by its clock, each launch as a graph of the kernel of propagations."""

    launches: tuple[str, ...] = tuple(MESSAGE_LAUNCHES)

    def price(self, lowered: Lowered) -> float:
        """Predict by the rates of this device, or by nominal rates if these were not measured."""
        from ..machine.device import cached_device_rates, nominal_device_rates

        semiring = lowered.semiring
        rates = cached_device_rates(semiring) or nominal_device_rates(semiring)
        return step_seconds(lowered, rates.rates, semiring.itemsize)

    def measured(self, lowered: Lowered) -> dict[str, float]:
        """Run every launch."""
        return {name: _graph_seconds(lowered, *launch) for name, launch in MESSAGE_LAUNCHES.items()}


def _graph_seconds(lowered: Lowered, lanes: int | None, item_seconds: float | None) -> float:
    """Return a device's seconds for one message: a graph of copies that read the same tables."""
    from ...tasks.gpu.messages.propagation import DeviceMessages
    from ..machine.device import _on_device

    copies = int(np.clip(_GRAPH_CELLS // lowered.cells, 1, _MOST_COPIES))
    program, constants = message_program(lowered, copies, lanes, item_seconds)
    device = DeviceMessages(program, constants)
    device.run(np.empty(0))
    single = device._single
    assert single is not None
    return _on_device(lambda: single.graph.launch(single.stream), single.stream) / copies


def message_program(lowered: Lowered, copies: int, lanes: int | None, item_seconds: float | None) -> tuple[Any, Any]:
    """Return a program that sends a message several times, and its constant tables.

    Parameters
    ----------
    lowered : Lowered
    copies : int
    lanes : int or None
        Outputs side by side; by the rules if None.
    item_seconds : float or None
        Length of an item; by the rules if None.

    Returns
    -------
    MessageProgram, ndarray of float64
    """
    from ...tasks.gpu.messages.layout import Operation
    from ...tasks.gpu.messages.propagation import MessageProgram
    from ...tasks.gpu.messages.records import Constant, records_of

    inputs = tuple(range(len(lowered.input_cells)))
    operations = [Operation(len(inputs) + k, inputs, lowered.axes) for k in range(copies)]
    tables = {table: Constant(cells, -1) for table, cells in enumerate(lowered.input_cells)}  # values from 0.5 to 1
    records = records_of(operations, tables, {}, (), item_seconds, lanes=lanes)
    constants = np.random.default_rng(0).uniform(0.5, 1.0, records.constant_cells)
    nothing = np.empty(0, np.uint32)
    targets = np.empty((0, 4), np.uint32)
    return MessageProgram(records, records.constant_at, {}, targets, nothing, nothing, 0.0), constants


def message_steps(networks: Sequence[Path | str]) -> list[Lowered]:
    """Return the distinct messages of junction trees, both ways, in random order; very small ones are left out."""
    found: dict[Lowered, None] = {}
    for each in networks:
        made = plan(load(str(each)), "marginals", tree="junction")
        found.update(dict.fromkeys(step.lowered for step in made.steps if step.lowered.cells >= _LEAST_CELLS))
    order = np.random.default_rng(0).permutation(len(found)).tolist()
    steps = list(found)
    return [steps[k] for k in order]


def measured_messages(
    bench: MessageBench, steps: Iterable[Lowered], seconds: float, clock: Callable[[], float] = time.monotonic
) -> list[MeasuredMessage]:
    """Measure messages for ``seconds`` seconds; messages that do not fit in memory are skipped."""
    found: list[MeasuredMessage] = []
    end = clock() + seconds
    for lowered in steps:
        try:
            found.append(MeasuredMessage(lowered, bench.price(lowered), bench.measured(lowered)))
        except MemoryError:
            continue
        if clock() >= end:
            break
    return found


def launch_figures(
    launches: Sequence[str], steps: Sequence[MeasuredMessage], seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Return measures by regression, and surfaces by launch.

    Parameters
    ----------
    launches : sequence of str
        The measured launches.
    steps : sequence of MeasuredMessage
    seed : int
        Seed of the folds.

    Returns
    -------
    dict of dict
        ``residual_squares``, ``squared_deviance``, ``miss_rate``, ``gain``, ``mean_gain`` and ``chosen`` of the rules
        and each regression; seconds over the least seconds of each launch, for each class of `SURFACES`.

    Raises
    ------
    ModelError
        If there are too few steps, or scikit-learn is missing.
    """
    need_scikit_learn()
    if len(steps) < FEWEST_STEPS:
        raise ModelError(f"{len(steps)} messages were measured, {FEWEST_STEPS} are needed: give a longer --time")
    table = launch_table(steps, worthwhile(launches, steps))
    judged = cross_validated(table, REGRESSIONS, seed)
    scores = {RULES: table.score(np.zeros(table.seconds.shape)), **judged}
    figures: dict[str, dict[str, Any]] = {}
    for measure in ("residual_squares", "squared_deviance", "miss_rate", "gain", "mean_gain"):
        figures[measure] = {name: getattr(each, measure) for name, each in scores.items()}
    figures["chosen"] = {chosen_by(judged): "chosen"}
    for name, (least, most) in SURFACES.items():
        some = [each for each in steps if least <= each.lowered.cells < most]
        logs = {launch: [np.log(s.seconds[launch] / min(s.seconds.values())) for s in some] for launch in launches}
        figures[name] = {launch: float(np.exp(np.mean(found))) for launch, found in logs.items() if found}
    return figures


def measure_launches(networks: Sequence[Path | str], *, gpu: bool, seconds: float) -> dict[str, dict[str, Any]]:
    """Measure messages of networks for some seconds, and compare the regressions."""
    need_scikit_learn()
    bench: MessageBench = DeviceBench() if gpu else CoreBench()
    steps = message_steps(networks)
    # measured loops must be compiled before, whatever --time would allow
    with impatient():
        found = measured_messages(bench, steps, seconds)
    return launch_figures(bench.launches, found)


_MEASURES: Final = {
    **{"residual_squares": "RSS", "squared_deviance": "squared deviance", "miss_rate": "miss rate"},
    **{"gain": "gain", "mean_gain": "mean gain", "chosen": "cross-validation"},
}


def _launches(place: str, shown: Mapping[str, str]) -> Way:
    """Return the way that measures launches on a place: all its tables share one measurement."""
    heads = {key: f"{place}, {head}" for key, head in shown.items()}
    return Way(f"{place} launches", "launches", heads, gpu=place == "GPU")


def launch_tables() -> tuple[PaperTable, ...]:
    """Describe the regressions of launches, and the surfaces of a core and of a GPU."""
    regressions = PaperTable(
        "Tables 2 and 3: regressions of launches",
        (),
        tuple(PaperRow(name) for name in (RULES, *REGRESSIONS)),
        (_launches("core", _MEASURES), _launches("GPU", _MEASURES)),
        first="instance | " + " | ".join(f"ours: core, {head}" for head in _MEASURES.values()),
        notes=(
            "the paper's tables 2 and 3 are empty in our copy; these are its three measures on our launches; each "
            "message is judged by a fit that never saw it (five folds)",
            "gain: seconds of today's rules over seconds of the chosen launches, in sum and as a geometric mean; RSS: "
            "of ln(measured / predicted); needs scikit-learn",
        ),
    )
    note = (
        "ours: seconds of each launch over the least seconds, geometric means over the messages of up to 2^14 cells "
        "(small), up to 2^18 (medium) and more (large)"
    )
    gpu_note = "a launch: outputs side by side, and the length of an item, which cuts eliminations into pieces"
    surfaces = [
        PaperTable(
            f"Figures 2 and 4 to 6: surfaces of launches, one {place}",
            (),
            tuple(PaperRow(name) for name in launches),
            (_launches(place, {name: name for name in SURFACES}),),
            first="instance | " + " | ".join(f"ours: {place}, {name}" for name in SURFACES),
            notes=notes,
        )
        for place, launches, notes in (("core", CORE_LAUNCHES, (note,)), ("GPU", MESSAGE_LAUNCHES, (note, gpu_note)))
    ]
    return (regressions, *surfaces)
